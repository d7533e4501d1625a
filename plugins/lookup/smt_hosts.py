# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: smt_hosts
short_description: (internal) The pattern of a play's hosts, if any host matches it
version_added: 1.0.0
description:
  - Used by the playbooks of this collection; not to be called directly.
  - Returns the pattern as it is. Fails in one sentence where no host takes part in the play, because the call has no
    inventory, or because no host matches the pattern, or none matches both the pattern and C(--limit). Ansible itself
    would skip the play, and its exit code would be 0.
  - Does not look for hosts when Ansible only checks the syntax of a playbook, or lists its tasks or tags.
options:
  _terms:
    description: One pattern of hosts, or a list of patterns that are taken together.
    type: list
    elements: raw
    required: true
  variable:
    description: Name of the variable that sets the pattern, for the message.
    type: str
    required: true
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Work on the hosts that the caller names, and on all without a name
  hosts: "{{ lookup('threadwise.smt.smt_hosts', smt_eval_hosts | default('all'), variable='smt_eval_hosts') }}"
  tasks:
    - name: See that each responds
      ansible.builtin.ping:
"""

RETURN = r"""
_raw:
  description: The pattern.
  type: list
  elements: str
"""

import typing as t

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import matching

# Options of a call that runs no play.
ONLY_READ = ("syntax", "listtasks", "listtags")


def inventory(groups: t.Mapping[str, t.Iterable[str]], loader: t.Any) -> InventoryManager:
    """Return an inventory of the same groups and hosts, because a lookup has no access to that of the call.

    Args:
        groups: each group and the names of its hosts, Ansible's variable ``groups``.
        loader: Ansible's loader of files, for a limit that names one.
    """
    manager = InventoryManager(loader, parse=False)
    for group, hosts in groups.items():
        manager.add_group(group)
        for host in hosts:
            manager.add_host(host, group=group)
    return manager


class LookupModule(LookupBase):
    """The lookup smt_hosts; contacts no host."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        """Return the pattern, or fail where no host matches it."""
        self.set_options(var_options=variables, direct=kwargs)
        pattern = ",".join(str(part) for term in terms for part in (term if isinstance(term, list) else [term]))
        known = variables or {}
        if not any(context.CLIARGS.get(name) for name in ONLY_READ):
            manager = inventory(known.get("groups") or {}, self._loader)
            refusal = matching.refusal(manager, pattern, self.get_option("variable"), known.get("ansible_limit"))
            if refusal:
                raise AnsibleLookupError(refusal)
        return [pattern]
