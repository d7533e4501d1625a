#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_memory
short_description: Memory policy of a running host
version_added: 1.0.0
description:
  - Sets how much memory a host overcommits, what happens when it runs out of memory, and which services the OOM killer
    spares, now and after each boot, and puts back what was there before.
  - Each change is one transaction. The effect is computed first, and a policy that the host would not survive is
    refused with the figures. The present values are saved before the first change of each. Then the kernel's values,
    their file for each boot and the protected services are written and read back, and undone as a whole when a part of
    it fails.
  - Settings without a value stay as they are.
options:
  state:
    description:
      - V(present) puts the policy in force.
      - V(restored) writes the values from before the first change, gives protected services back the scores they had,
        and removes the files of this module and the saved values. The other options, except O(margin), have no effect
        then.
    type: str
    choices: [present, restored]
    default: present
  overcommit:
    description:
      - V(heuristic) refuses only obviously excessive requests, V(always) refuses nothing, V(strict) commits no more
        memory than O(overcommit_ratio) or O(overcommit_kbytes) allows.
    type: str
    choices: [heuristic, always, strict]
  overcommit_ratio:
    description:
      - Percent of the memory that V(strict) allows to be committed, plus swap. Without this and O(overcommit_kbytes)
        the host's present amount is kept.
      - Mutually exclusive with O(overcommit_kbytes).
    type: int
  overcommit_kbytes:
    description:
      - KiB that V(strict) allows to be committed, plus swap.
      - Mutually exclusive with O(overcommit_ratio), because the kernel sets one to 0 when the other is written.
    type: int
  margin:
    description: Percent of the memory committed already that a strict policy has to leave free, also one that is
      restored.
    type: int
    default: 10
  on_oom:
    description:
      - V(kill) ends a process when memory runs out, V(panic) panics unless a cpuset, memory policy or cgroup limit was
        the cause, V(panic_always) panics.
    type: str
    choices: [kill, panic, panic_always]
  panic_reboot_after:
    description: Seconds from a panic to the automatic reboot, or V(never). Required with O(on_oom=panic) and
      O(on_oom=panic_always).
    type: str
  nr_hugepages:
    description: Persistent huge pages of the default size. They lower the limit that a ratio gives.
    type: int
  protect:
    description:
      - Systemd services that the OOM killer spares, with or without C(.service) at the end. They get an OOM score of
        -900 by a drop-in, and their running processes without a restart, so they are killed only when nothing else is
        left.
      - The list is complete. A service that is not in it any more gets back the score it had. Without this option the
        protected services stay as they are.
      - A service that has -900 or less by itself is left alone, and so are processes that have chosen another score
        than their service gives them.
    type: list
    elements: str
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the kernel's values, the scores of processes, the saved values and the files.
notes:
  - Needs root. O(protect) needs systemd.
  - A call that is killed half way is completed by the next one. The values from before the first change are saved by
    then.
seealso:
  - module: threadwise.smt.smt_memory_facts
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Refuse what the host does not have, and restart it when it runs out of memory after all
  threadwise.smt.smt_memory:
    overcommit: strict
    on_oom: panic
    panic_reboot_after: 10
  become: true

- name: Let the OOM killer take something else than the data base
  threadwise.smt.smt_memory:
    protect:
      - postgresql@15-main
  become: true

- name: Restore the settings from before the first change
  threadwise.smt.smt_memory:
    state: restored
  become: true
"""

RETURN = r"""
before:
  description: The policy before.
  returned: success
  type: dict
  contains: &policy
    overcommit:
      description: V(heuristic), V(always), V(strict), or null when it is not known.
      type: str
      returned: success
    overcommit_ratio:
      description: Percent of the memory that a strict policy allows; 0 when the KiB count.
      type: int
      returned: success
    overcommit_kbytes:
      description: KiB that a strict policy allows; 0 when the ratio counts.
      type: int
      returned: success
    on_oom:
      description: V(kill), V(panic), V(panic_always), or null when it is not known.
      type: str
      returned: success
    panic_reboot_after:
      description: Seconds from a panic to the reboot; 0 is never, below 0 at once.
      type: int
      returned: success
    nr_hugepages:
      description: Persistent huge pages of the default size.
      type: int
      returned: success
    commit_limit_bytes:
      description: How much memory all processes together may commit under a strict policy with these values.
      type: int
      returned: success
    headroom:
      description:
        - What can still be committed, C(bytes) to root, C(unprivileged_bytes) to others (both null where the sum has no
          limit), C(largest_request_bytes) in one request (null where that has no limit).
      type: dict
      returned: success
after:
  description: The policy in force after the change, in check mode as predicted.
  returned: success
  type: dict
  contains: *policy
settings:
  description: Each value in the kernel after the change, in check mode as predicted, and where it comes from.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The sysctl.
      type: str
      returned: success
    value:
      description: Its value, or null when the kernel does not have it.
      type: int
      returned: success
    at_boot:
      description: The value that it gets at the next boot, or null when no file sets one.
      type: int
      returned: success
    source:
      description: The file, or the TuneD profile, that sets it at boot, or null.
      type: str
      returned: success
    original:
      description: The value that O(state=restored) brings back, or null when this module has not changed it.
      type: int
      returned: success
  sample:
    - name: vm.overcommit_memory
      value: 2
      at_boot: 2
      source: /etc/sysctl.d/99-threadwise-smt-memory.conf
      original: 0
protected:
  description: Services that this module protects from the OOM killer after the change, by their own names.
  returned: success
  type: list
  elements: str
  sample: [postgresql@15-main.service]
released:
  description: Services that got back the score they had.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._memory import change as memory_change


def main() -> None:
    """Change the memory policy."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
            "overcommit": {"type": "str", "choices": ["heuristic", "always", "strict"]},
            "overcommit_ratio": {"type": "int"},
            "overcommit_kbytes": {"type": "int"},
            "margin": {"type": "int", "default": 10},
            "on_oom": {"type": "str", "choices": ["kill", "panic", "panic_always"]},
            "panic_reboot_after": {"type": "str"},
            "nr_hugepages": {"type": "int"},
            "protect": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    options = dict(module.params)
    request = memory_change.Request(
        options.pop("state"), protect=options.pop("protect"), options=options, check=module.check_mode
    )
    change = memory_change.MemoryChange(request, module.run_command)
    try:
        result = change.run()
    except memory_change.ERRORS as error:
        module.fail_json(msg=str(error))
    for warning in change.warnings:
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
