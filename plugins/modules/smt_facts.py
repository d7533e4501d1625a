#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_facts
short_description: Which CPUs share a core, and what is known about SMT on a host
version_added: 1.0.0
description:
  - Reads the CPU topology, the state of simultaneous multithreading (SMT, Hyper-Threading), boot arguments,
    vulnerabilities and what can be changed here and how, and returns them as C(ansible_facts['smt']).
  - Nothing is written and no program is run. What cannot be known is null or empty, never a guess.
options:
  sysroot:
    description:
      - Directory that stands for C(/). With another value than V(/) a recorded tree of another machine is read.
    type: path
    default: /
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  facts:
    support: full
    description: Returns C(ansible_facts), which are added to the host's.
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - Run it as root. Without, the saved sibling map of a host whose siblings are offline may not be found to be of this
    machine.
seealso:
  - module: threadwise.smt.smt_state
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Read the facts
  threadwise.smt.smt_facts:

- name: Say which CPUs are siblings of another
  ansible.builtin.debug:
    msg: "{{ ansible_facts['smt']['secondaries'] if ansible_facts['smt']['complete'] else 'not known' }}"

- name: Read a recorded tree instead of this machine
  threadwise.smt.smt_facts:
    sysroot: /srv/recorded/db01
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    smt:
      description:
        - What is known about SMT on this host. Counts speak of the CPUs whose place is known; what is not known is null
          or empty.
        - CPU sets are CPU lists as the kernel writes them, such as V(0-3,8); see the filter
          P(threadwise.smt.cpulist#filter).
      type: dict
      returned: always
      contains:
        supported:
          description: Whether this machine has SMT, on or off; null when unknown.
          type: bool
        control:
          description: C(smt/control) as the kernel writes it, or V(absent) where it has no such file.
          type: str
          sample: "on"
        active:
          description: Whether two siblings of some core are online; null when unknown.
          type: bool
        sockets:
          description: Number of packages.
          type: int
        cores:
          description: Number of cores.
          type: int
        threads_per_core:
          description: The least and the most threads a core has, and the most that are online in one.
          type: dict
          sample: {"min": 1, "max": 2, "online_max": 2}
        cpus:
          description: CPU lists C(present), C(possible), C(online), C(offline) (present and not online) and
            C(isolated). CPUs that nobody on the host can bring online (in standby on s390, not enabled by firmware) are
            present and not offline.
          type: dict
          sample: {"present": "0-7", "possible": "0-7", "online": "0-3", "offline": "4-7", "isolated": ""}
        packages:
          description: One CPU list a package (socket), offline CPUs in it when their place is known; empty when
            unknown.
          type: list
          elements: str
          sample: ["0-7"]
        sibling_groups:
          description: One CPU list a core, sorted by its first CPU; offline siblings are in it when their place is
            known.
          type: list
          elements: str
          sample: ["0,4", "1,5", "2,6", "3,7"]
        primaries:
          description: The first CPU of each core.
          type: str
        secondaries:
          description: The CPUs that share a core with a primary.
          type: str
        nodes:
          description: NUMA node to CPU list, as the kernel reports them now.
          type: dict
          sample: {"0": "0-3"}
        numbering:
          description:
            - V(split) when all first threads come before all second threads (0,2)(1,3), V(adjacent) when siblings stand
              side by side (0,1)(2,3), V(mixed) when it is neither, V(none) when no core is known to have siblings.
          type: str
        source:
          description:
            - Where the cores come from - V(sysfs), V(saved) when a map that was saved while more CPUs were online was
              needed, V(cpuinfo), or V(unknown).
          type: str
        complete:
          description: Whether the core of every present CPU is known. When it is false, C(secondaries) may lack some.
          type: bool
        measured:
          description: What a measurement of pairs said about siblings; null when none was made.
          type: dict
        boot:
          description:
            - SMT-related boot arguments. C(running) are those of the running kernel, C(configured) those that the boot
              loader's configuration gives at the next start, C(loader) is the boot loader, C(reboot_required) is true
              when the two differ. Null where unknown.
          type: dict
          sample: {"running": [], "configured": ["nosmt"], "loader": "grub_debian", "reboot_required": true}
        vulnerabilities:
          description:
            - Name to C(status), the kernel's own line, and C(smt), its SMT part - V(vulnerable), V(mitigated),
              V(disabled), V(unknown) in a guest, or null when the line does not speak of SMT.
          type: dict
          sample: {"mds": {"status": "Mitigation: Clear CPU buffers; SMT vulnerable", "smt": "vulnerable"}}
        hypervisor:
          description: Name of the hypervisor, V(unknown) for one without a name, null on a machine of its own.
          type: str
        provider:
          description: How the threads of a core are chosen where that is not on the host - a cloud's instance type or
            option. None elsewhere, and on a host that has SMT.
          type: str
        kernel:
          description: Release of the running kernel. Null when unknown.
          type: str
          sample: 6.1.0-28-amd64
        ppc64_cpu:
          description:
            - What C(ppc64_cpu --smt) says, on POWER where it is installed, such as V(SMT=4) or V(SMT is off). Lines are
              separated by semicolons.
            - It is shown beside C(control) and C(threads_per_core), which come from the kernel. Null elsewhere.
          type: str
        methods:
          description:
            - C(runtime) and C(boot), the ways to change SMT now and at the next start. Each has C(chosen) (the one that
              would be taken, or null), C(possible) (list) and C(impossible) (name to reason).
            - At run time they are C(smt_control) and C(cpu_online), at boot the names of boot loaders, such as
              C(grub_debian); the others are in C(impossible).
          type: dict
          sample:
            runtime: {"chosen": "smt_control", "possible": ["smt_control", "cpu_online"], "impossible": {}}
            boot: {"chosen": null, "possible": [], "impossible": {"grubby": "the boot loader found here is none"}}
        hardware_class:
          description:
            - Short id that is equal on hosts whose evaluation may be shared, from architecture, processor model and
              stepping, packages, cores, threads, their numbering, and the hypervisor. Null when C(complete) is false.
          type: str
          sample: x86_64-2s18c36t-split-1f0a9c3e
        online_before:
          description:
            - The CPUs that were online before this collection changed the running SMT state for the first time, as a
              CPU list. Null where it did not, or where that cannot be read, which takes root.
          type: str
          sample: "0-7"
        pending_rollback:
          description:
            - What a rollout saved on the host before it changed it, where it was interrupted before the host was found
              healthy - C(since) when, in UTC, and C(back_to), the state in a few words, each null where the file cannot
              be used, and for users other than root. Null where there is none.
          type: dict
        pending_change:
          description:
            - A change of M(threadwise.smt.smt_state) with C(rollback_after) that is not confirmed yet - C(by) whom, as
              part of a sentence, and C(seconds_left) until it is rolled back. Null where there is none, and for users
              other than root.
          type: dict
        reboot_slot:
          description:
            - The slot for a reboot that the host holds, or may hold - whether it was C(granted), and C(since) when, in
              UTC. Null where there is none, and for users other than root.
          type: dict
        consumers:
          description:
            - Programs that counted CPUs before this collection changed them, in this boot, and believe in that number
              still, and a kubelet that does not start with the CPUs that there are - the C(program), its C(unit),
              C(is_service) whether that is a service of the system, the number that it C(counted), the C(cpus) that it
              has, what it C(has) in words, and the C(remedy).
            - Options of M(threadwise.smt.smt_state) make services follow.
          type: list
          elements: dict
        consumers_after_switch:
          description:
            - Programs that count CPUs, are right now, and would be wrong after SMT was switched - off where it is
              active, else on. With the keys of C(consumers), of which C(cpus) is the number then.
          type: list
          elements: dict
        problems:
          description: Sentences about what was there and could not be read or believed.
          type: list
          elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat import zip_imports


def main() -> None:
    """Read the SMT facts."""
    # Thousands of hosts are asked for them, and loading what reads them takes most of the time.
    zip_imports.compile_once()
    from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
    from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts

    module = AnsibleModule(argument_spec={"sysroot": {"type": "path", "default": "/"}}, supports_check_mode=True)
    sysroot = module.params["sysroot"]
    if not os.path.isdir(sysroot):
        module.fail_json(msg=f"sysroot {sysroot} is not a directory on this host")
    module.exit_json(changed=False, ansible_facts={"smt": smt_facts.gather(host_files.HostFs(sysroot))})


if __name__ == "__main__":
    main()
