#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_rollback
short_description: (internal) The state of a host from before its policy was enforced
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_policy#role); not to be called directly.
  - Saves what a policy is going to change, as it is, on the host, and puts it back - the CPUs one by one with what
    keeps them over boots, the texts of the boot configuration, the memory policy with its files. What
    M(threadwise.smt.smt_state) and M(threadwise.smt.smt_memory) know of the state before their first change is put back
    with it, so that C(restored) still means that state.
  - Nothing is rebooted.
options:
  state:
    description:
      - V(saved) writes the state of O(parts) to C(/var/lib/threadwise-smt/rollout-rollback.json). What a rollout saved
        there and has not confirmed stays as it is, because it is older, and only parts that it lacks are added.
      - V(back) puts back what is saved, each part of it, and fails when one cannot be put back. It changes nothing
        where nothing is saved.
      - V(confirmed) removes the file.
    type: str
    choices: [saved, back, confirmed]
    required: true
  parts:
    description: What is going to be changed.
    type: list
    elements: str
    choices: [running, configured, memory]
    default: []
  reboot:
    description: Whether that takes a reboot, so that putting it back may take one too.
    type: bool
    default: false
  rollout:
    description: Whether what is saved is kept until V(confirmed). Otherwise the next V(saved) replaces it.
    type: bool
    default: false
  interrupted_since:
    description: With V(saved), C(since) of the C(pending_rollback) in the facts, of a rollout that was interrupted.
      What another rollout has saved since these were read makes the module fail.
    type: str
  reboot_ok:
    description:
      - With V(back), whether the host is rebooted where RV(reboot_required) says so, and O(state=back) asked for again.
        All but the boot arguments waits for that.
    type: bool
    default: false
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Needs root.
seealso:
  - module: threadwise.smt.smt_status
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Save what is going to be changed
  threadwise.smt.smt_rollback:
    state: saved
    parts: [running, configured]
    rollout: true

- name: Put it back
  threadwise.smt.smt_rollback:
    state: back
"""

RETURN = r"""
back_to:
  description: The saved state in a few words; null where nothing is saved.
  returned: success
  type: str
  sample: CPUs 0-4,6 online, boot arguments nosmt
not_back:
  description: Sentences about what could not be put back as it was, because others changed it since.
  returned: success
  type: list
  elements: str
  sample: ["the boot entry Linux 6.6 has no argument for SMT instead of nosmt"]
reboot_required:
  description: Whether the running kernel has other arguments than before, after a change that took a reboot.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._set import follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import transaction
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change as rollback_change


def main() -> None:
    """Save a state, put it back, or forget it."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["saved", "back", "confirmed"], "required": True},
            "parts": {"type": "list", "elements": "str", "choices": ["running", "configured", "memory"], "default": []},
            "reboot": {"type": "bool", "default": False},
            "rollout": {"type": "bool", "default": False},
            "reboot_ok": {"type": "bool", "default": False},
            "interrupted_since": {"type": "str"},
        },
        supports_check_mode=True,
    )
    transaction.defer_termination_signals()
    rollback = rollback_change.Rollback(rollback_change.Request(check=module.check_mode, **module.params), follow.run)
    try:
        result = rollback.run()
    except rollback_change.ERRORS as error:
        module.fail_json(msg=str(error))
    for warning in rollback.warnings:
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
