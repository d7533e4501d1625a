#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: smt_memory_state
short_description: Save a host's memory policy before it is changed, and bring it back
version_added: 0.1.0
description:
  - With O(state=saved) keeps the present values of sysctl settings in C(/var/lib/threadwise-smt/memory.json), for root only. A value that is kept
    already stays what it was, so that the first one counts.
  - With O(state=restored) writes what was kept back to the running kernel, in an order that is safe in each step, gives protected services back
    the OOM scores they had, and removes C(/etc/sysctl.d/99-threadwise-smt-memory.conf), the drop-ins and what was kept.
  - Restoring a strict policy is refused, with the numbers and without any change, when the host has committed more memory than it allows.
options:
  state:
    description: Whether to save or to bring back.
    type: str
    choices: [saved, restored]
    required: true
  sysctls:
    description:
      - Names of the settings that are about to be changed. The ratio brings the kbytes along and the other way round, because the kernel
        sets each to zero when the other is written.
    type: list
    elements: str
    choices: [vm.overcommit_memory, vm.overcommit_ratio, vm.overcommit_kbytes, vm.panic_on_oom, kernel.panic, vm.nr_hugepages]
    default: []
  margin:
    description: Percent of what is promised already that a strict policy has to leave free for being brought back.
    type: int
    default: 10
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows what is kept, or the values and files before and after.
seealso:
  - module: threadwise.smt.smt_memory_facts
  - module: threadwise.smt.smt_memory_protect
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Keep what is there
  threadwise.smt.smt_memory_state:
    state: saved
    sysctls:
      - vm.overcommit_memory
      - vm.overcommit_ratio
  become: true

- name: Bring it back
  threadwise.smt.smt_memory_state:
    state: restored
  become: true
"""

RETURN = r"""
sysctls:
  description: With O(state=saved) what is kept; with O(state=restored) what was written, in this order.
  returned: always
  type: dict
units:
  description: Services that got back the scores they had.
  returned: with O(state=restored)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLockError
from ansible_collections.threadwise.smt.plugins.module_utils._memory import change as memory_change
from ansible_collections.threadwise.smt.plugins.module_utils._memory.oom_score import UnitError
from ansible_collections.threadwise.smt.plugins.module_utils._memory.snapshot import MemorySnapshotError

SYSCTLS = ["vm.overcommit_memory", "vm.overcommit_ratio", "vm.overcommit_kbytes", "vm.panic_on_oom", "kernel.panic", "vm.nr_hugepages"]


def main() -> None:
    """Save or restore memory settings."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["saved", "restored"], "required": True},
            "sysctls": {"type": "list", "elements": "str", "choices": SYSCTLS, "default": []},
            "margin": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    try:
        if module.params["state"] == "saved":
            result = memory_change.save(module.params["sysctls"], module.check_mode)
        else:
            result = memory_change.restore(module.run_command, module.params["margin"], module.check_mode)
    except (MemorySnapshotError, UnitError, HostLockError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
