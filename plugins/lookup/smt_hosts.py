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
  answers:
    description:
      - Variables that name the files of a check, and the path where one is not set, empty for none. Where no host takes
        part, these files say why, so that those of an earlier call are not taken for its own.
    type: dict
    default: {}
  replaces:
    description: The same for files that are removed then.
    type: dict
    default: {}
  anew:
    description: Names of variables that an earlier check of the same call may have registered, which are forgotten.
    type: list
    elements: str
    default: []
  after:
    description: Name of a variable that an earlier play of the call registered, which found that there are hosts.
    type: str
  evaluated:
    description: Name of the variable in which an earlier play registered what M(threadwise.smt.smt_decisions) returned.
      The pattern is narrowed to the hosts that were evaluated, or to one host where none was.
    type: str
  failing:
    description: Name of the variable in which an earlier play registered what M(threadwise.smt.smt_compliance)
      returned. The pattern is narrowed to the hosts that fail, or to one host where none does. A task costs time for
      each host, also where it has nothing to do.
    type: str
  one:
    description: Return one host of the pattern, for a play whose tasks are done once for all of them and contact none.
    type: bool
    default: false
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
from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.inventory.host import Host
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase
from ansible.template import Templar
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import matching
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import user_variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep import earlier_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import remediation

# Options of a call that runs no play.
ONLY_READ = ("syntax", "listtasks", "listtags")
# Of all hosts of the inventory, that are named one by one.
MAX_SHARE = 0.9


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
            # The manager's own way takes more than twice as long, and there may be ten thousand hosts.
            manager.groups[group].add_host(manager.hosts.setdefault(host, Host(host)))
    return manager


class LookupModule(LookupBase):
    """The lookup smt_hosts; contacts no host."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        """Return the pattern, or fail where no host matches it."""
        self.set_options(var_options=variables, direct=kwargs)
        pattern = ",".join(str(part) for term in terms for part in (term if isinstance(term, list) else [term]))
        known = variables or {}
        for of_host in self._of_tasks(known).values():
            for name in self.get_option("anew"):
                of_host.pop(name, None)
        earlier = self._registered(self.get_option("after") or self.get_option("failing"), known)
        if earlier is not None:
            return [self._narrowed(pattern, earlier[0], known)]
        if any(context.CLIARGS.get(name) for name in ONLY_READ):
            return [pattern]
        manager = inventory(known.get("groups") or {}, self._loader)
        refusal = matching.refusal(manager, pattern, self.get_option("variable"), known.get("ansible_limit"))
        if refusal:
            raise AnsibleLookupError("\n".join([refusal, *self._without_answer(refusal, known)]))
        is_narrowed = self.get_option("one") and not context.CLIARGS.get("listhosts")
        alone = (str(host.name) for host in manager.get_hosts(pattern)) if is_narrowed else iter(())
        return [next(filter(remediation.is_alone, alone), pattern)]

    def _narrowed(self, pattern: str, host: str, known: t.Mapping[str, t.Any]) -> str:
        """Return the pattern of a later play: all hosts, one of them, or those that an earlier play named. All where no
        pattern can name these, and where it would name nearly all: Ansible compares each part of one with all hosts.
        """
        named = [host] if self.get_option("one") else None
        for option in ("evaluated", "failing"):
            if self.get_option(option):
                found = self._registered(self.get_option(option), known)
                named = sorted(found[1][option]) if found is not None else []
        if named is None:
            return pattern
        is_most = len(named) > max(1, MAX_SHARE * len((known.get("groups") or {}).get("all", named)))
        return pattern if is_most or not all(map(remediation.is_alone, named)) else ",".join(named or [host])

    def _registered(self, name: str | None, known: t.Mapping[str, t.Any]) -> tuple[str, t.Any] | None:
        """Return the first host for which a task registered a variable, and its value; None where none did."""
        registered = self._of_tasks(known)
        return next(((str(host), found[name]) for host, found in registered.items() if name in found), None)

    @staticmethod
    def _of_tasks(known: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
        """Return what tasks registered, by host: facts of hosts choose no host. A call that runs no play has none."""
        hostvars = known.get("hostvars")
        return hostvars._variable_manager._nonpersistent_fact_cache if hostvars is not None else {}

    def _without_answer(self, refusal: str, known: t.Mapping[str, t.Any]) -> list[str]:
        """See that no file of an earlier call is taken for one of this call; return a sentence where that fails."""
        dry_run = bool(known.get("ansible_check_mode") or context.CLIARGS.get("listhosts"))
        try:
            # What the call and the play set is known here, and what the inventory sets is not.
            own = user_variables.of_inventory(self._loader) if known.get("groups") else {}
            whole = {**own, **known, "hostvars": own.get("hostvars", {})}
            whole["vars"] = dict(whole)
            answers, replaces = (self._files(self.get_option(name), whole) for name in ("answers", "replaces"))
            earlier_files.remove([path for path in replaces.values() if path], dry_run)
            formats = {name.removeprefix("smt_compliance_"): path for name, path in answers.items()}
            earlier_files.answer(formats, refusal, self._loader, dry_run)
        except (AnsibleError, text.BorderError) as error:
            return [str(error)]
        return []

    def _files(self, defaults: t.Mapping[str, str], variables: dict[str, t.Any]) -> dict[str, str]:
        """Return the path of each file by the name of its variable."""
        templar = Templar(self._loader, variables=variables)
        return {name: str(templar.template(variables.get(name, default))) for name, default in defaults.items()}
