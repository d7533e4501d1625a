#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_state
short_description: Threads per core of a running host
version_added: 1.0.0
description:
  - Turns simultaneous multithreading (SMT, Hyper-Threading) off and on while the host runs, or sets the number of
    threads per core, and puts back what was there before.
  - Each change is one transaction. It is written, read back, and undone as a whole when the kernel refuses a part of
    it. A process of its own restores the host when the module is killed half way.
  - Before the first change the state of each CPU is saved on the host, together with the CPU masks of tasks, cgroup v1
    cpusets and interrupts that the kernel would forget; O(state=restored) brings all of it back.
options:
  state:
    description:
      - V(disabled) leaves one thread of each core online.
      - V(enabled) brings the siblings of all cores online that are in use. CPUs that were off on purpose stay off,
        which are those that were offline while SMT was in use on other cores.
      - V(restored) brings back the state from before the first change, removes what keeps a setting over boots, and
        forgets the saved state.
      - V(on) and V(off), and YAML's V(true) and V(false), are other words for V(enabled) and V(disabled).
      - Mutually exclusive with O(threads_per_core).
    type: str
    choices: [enabled, disabled, restored, 'on', 'off']
  threads_per_core:
    description:
      - So many threads of each core are online, the first ones. V(1) is the same as O(state=disabled).
      - Mutually exclusive with O(state).
    type: int
  cores:
    description:
      - The cores to which O(state=disabled) or O(threads_per_core) applies, by one of the suboptions. Every other core
        gets all its threads, as with O(state=enabled), so that the state of the whole host is the same, whatever it was
        before. Without it, all cores.
      - Naming one thread of a core names the core.
      - The kernel's own control switches all cores, so the siblings go offline one by one, and the control reads C(on).
      - Not with the other states, nor with O(method=smt_control).
    type: dict
    suboptions:
      cpus:
        description: The cores of these CPUs, a CPU list such as V(0-7).
        type: str
      node:
        description: The cores of this NUMA node.
        type: int
      package:
        description: The cores of this package (socket). They count from 0 by their first CPU, as in the fact
          C(packages) of M(threadwise.smt.smt_facts).
        type: int
      unit:
        description:
          - The cores that this systemd unit may run on, by its full name, such as V(postgresql.service), from its
            cpuset, else from its tasks' CPU masks. A unit that may run on every core is refused.
          - The unit's own cpuset and tasks lose CPUs, which is an affinity conflict; it takes
            O(affinity_conflicts=warn).
        type: str
  method:
    description:
      - V(smt_control) writes C(/sys/devices/system/cpu/smt/control), V(cpu_online) takes the CPUs off and on one by
        one.
      - V(auto) uses the control where the kernel has it and it can express the state.
    type: str
    choices: [auto, smt_control, cpu_online]
    default: auto
  affinity_conflicts:
    description:
      - What to do about affinity conflicts of CPUs that go offline with pinned tasks, cpusets, units, guests,
        interrupts or isolated CPUs.
      - Each is named once, with who did it. What nobody bound is none, such as a task with all CPUs that a cpuset
        partition leaves to it.
      - V(fail) fails with the list before anything is changed, V(warn) goes on. In check mode the list is shown and
        nothing is changed either way.
    type: str
    choices: [fail, warn]
    default: fail
  affinity_conflicts_of:
    description:
      - Owners whose affinity conflicts O(affinity_conflicts=fail) refuses. Others only cause a warning; all affinities
        are saved and restored.
      - V(services) is what the machine's administrators set up - units, cpusets, guests, interrupts, isolated CPUs, and
        tasks of root, of system users, of services that run as the C(User=) of their unit file, and of containers.
      - A user's name stands for tasks that this user pinned, such as with C(taskset) in a login, a crontab or
        C(~/.forward). V(all) means all owners. Any user may pin own tasks, so with V(all) any user can block a change
        of the host.
      - A name that no user of the host has is refused, in check mode too, because what it was meant to protect would go
        offline unseen. So is the id of a user who has a name. The id of a user without a name is taken while a task
        runs as it. A user that only some hosts have belongs in the variables of those.
    type: list
    elements: str
    default: [services]
  siblings:
    description:
      - Whose siblings count. V(kernel) takes those that the kernel shows.
      - V(measured) takes those that M(threadwise.smt.smt_probe) has measured since the host booted, and fails where it
        was not sure. A list names the CPUs of each core, such as V([[0, 2], [1, 3]]); a CPU that it leaves out is a
        core of its own.
      - Other siblings than the kernel's go offline one by one, because the kernel's own control knows only its own.
        O(state=restored) does not need them.
    type: raw
    default: kernel
  persist:
    description:
      - Keeps the setting over boots without touching boot arguments.
      - V(tmpfiles) writes a file for systemd-tmpfiles, V(systemd) a unit that runs before C(sysinit.target). V(none)
        removes either again.
    type: str
    choices: [none, tmpfiles, systemd]
    default: none
  neutralise_udev_rules:
    description:
      - Disables udev rules that bring CPUs online on their C(add) event, by a file of the same name in
        C(/etc/udev/rules.d). With V(false) the rules are enabled again.
    type: bool
    default: false
  rollback_after:
    description:
      - Arms a systemd timer before the first write. Unless the change is confirmed by O(confirm=true) within so many
        seconds, the host goes back by itself. What keeps a setting over boots is written with the confirmation.
    type: int
  confirm:
    description:
      - Confirms a change that O(rollback_after) watches. The other options have to be those of the change.
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
  - Needs root, C(become=true) in a playbook or C(ansible-playbook -b), because it writes files of the kernel below
    C(/sys) and the saved state.
  - Never time a workload across a change.
  - A confirmation and the end of O(rollback_after) exclude each other. Whichever gets the host's lock first decides,
    and a confirmation that comes too late fails.
seealso:
  - module: threadwise.smt.smt_facts
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: One thread per core
  threadwise.smt.smt_state:
    state: disabled
  become: true

- name: Two of four threads of each core, although some services are pinned
  threadwise.smt.smt_state:
    threads_per_core: 2
    affinity_conflicts: warn
  become: true

- name: Refuse also where the database that its user starts by hand is pinned
  threadwise.smt.smt_state:
    state: disabled
    affinity_conflicts_of: [services, oracle]
  become: true

- name: One thread per core by the siblings that were measured, in a guest whose hypervisor shows none
  threadwise.smt.smt_state:
    state: disabled
    siblings: measured
  become: true

- name: One thread per core on the second socket, all threads on the others
  threadwise.smt.smt_state:
    state: disabled
    cores:
      package: 1
  become: true

- name: Restore the state from before the first change
  threadwise.smt.smt_state:
    state: restored
  become: true
"""

RETURN = r"""
before:
  description: The state before.
  returned: success
  type: dict
  sample: {"control": "on", "active": true, "online": "0-7"}
after:
  description: The state after the change, in check mode as predicted.
  returned: success
  type: dict
  sample: {"control": "off", "active": false, "online": "0,2,4,6"}
affinity_conflicts:
  description: Affinity conflicts, one sentence each, and what is corrected automatically. Also returned for a change
    that was refused because of them.
  returned: always
  type: list
  elements: str
  sample: ["CPU 3: pid 812 sleep (user root, uid 0, unit foo.service) is pinned to 3 alone, by sched_setaffinity(2) as
    with taskset"]
not_restored:
  description: Affinities that could not be restored when CPUs came online, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["pid 812 sleep is gone, its mask 3 was not needed any more"]
rollback_pending:
  description: Whether a timer is armed that takes the change back unless it is confirmed.
  returned: success
  type: bool
rollback_started:
  description: Whether this call has started that timer. Otherwise it is that of an earlier change, perhaps somebody
    else's.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._smt import change as smt_change
from ansible_collections.threadwise.smt.plugins.module_utils._smt.rollback import timer as rollback_timer
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import states


def main() -> None:
    """Change the running SMT state."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["enabled", "disabled", "restored", "on", "off"]},
            "threads_per_core": {"type": "int"},
            "cores": {
                "type": "dict",
                "options": {
                    "cpus": {"type": "str"},
                    "node": {"type": "int"},
                    "package": {"type": "int"},
                    "unit": {"type": "str"},
                },
                "mutually_exclusive": [("cpus", "node", "package", "unit")],
                "required_one_of": [("cpus", "node", "package", "unit")],
            },
            "method": {"type": "str", "choices": ["auto", "smt_control", "cpu_online"], "default": "auto"},
            "affinity_conflicts": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
            "affinity_conflicts_of": {"type": "list", "elements": "str", "default": ["services"]},
            "siblings": {"type": "raw", "default": "kernel"},
            "persist": {"type": "str", "choices": ["none", "tmpfiles", "systemd"], "default": "none"},
            "neutralise_udev_rules": {"type": "bool", "default": False},
            "rollback_after": {"type": "int"},
            "confirm": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("state", "threads_per_core"), ("rollback_after", "confirm")],
        required_one_of=[("state", "threads_per_core")],
        supports_check_mode=True,
    )
    given = module.params
    if given["rollback_after"] is not None and not 1 <= given["rollback_after"] <= rollback_timer.LONGEST_SECONDS:
        module.fail_json(
            msg=(
                f"rollback_after is {given['rollback_after']}: it must be from 1 to {rollback_timer.LONGEST_SECONDS}"
                " seconds"
            )
        )
    request = smt_change.Request(
        state=states.named(given["state"]),
        threads=given["threads_per_core"],
        method=given["method"],
        affinity_conflicts=given["affinity_conflicts"],
        conflicts_of=given["affinity_conflicts_of"],
        persist=given["persist"],
        neutralise=given["neutralise_udev_rules"],
        rollback_after=given["rollback_after"],
        confirm=given["confirm"],
        check=module.check_mode,
        siblings=given["siblings"],
        cores=given["cores"] and {kind: value for kind, value in given["cores"].items() if value is not None},
    )
    change = smt_change.RuntimeChange(request, module.run_command)
    try:
        result = change.run()
    except smt_change.ChangeRefusedError as error:
        module.fail_json(msg=str(error), affinity_conflicts=error.findings)
    except HostError as error:
        module.fail_json(msg=str(error), affinity_conflicts=[finding.text for finding in change.findings])
    for warning in change.warnings:
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
