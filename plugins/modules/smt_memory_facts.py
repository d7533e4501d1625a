#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_memory_facts
short_description: What a host promises of its memory, and what happens when it runs out
version_added: 1.0.0
description:
  - Reads the overcommit policy, what is promised and what is left, OOM kills since boot, what happens on a panic, and
    which services are spared by the OOM killer, and returns them as C(ansible_facts['smt_memory']).
  - With a wanted policy it works out what that would allow, whether it may be put in force, and which files would
    override it at boot.
  - Nothing is written, and no program is run but systemctl, where services are named. What cannot be known is null or
    empty, never a guess.
options:
  overcommit:
    description:
      - Wanted overcommit policy. V(heuristic) refuses only what is obviously too much, V(always) refuses nothing,
        V(strict) promises no more than O(overcommit_ratio) or O(overcommit_kbytes) allow.
    type: str
    choices: [heuristic, always, strict]
  overcommit_ratio:
    description:
      - Percent of the memory that a strict policy promises, swap beside it. Without this and O(overcommit_kbytes) the
        host's present amount is kept.
    type: int
  overcommit_kbytes:
    description:
      - KiB that a strict policy promises, swap beside it. The kernel forgets the ratio when this is set, and the other
        way round.
    type: int
  on_oom:
    description:
      - Wanted reaction when memory runs out. V(kill) ends a process, V(panic) panics unless a cpuset, memory policy or
        cgroup limit was the cause, V(panic_always) panics.
    type: str
    choices: [kill, panic, panic_always]
  panic_reboot_after:
    description:
      - Seconds after which the host reboots by itself after a panic, or V(never). Required with O(on_oom=panic) and
        O(on_oom=panic_always).
    type: str
  nr_hugepages:
    description:
      - Wanted number of persistent huge pages of the default size. They lower what a ratio allows.
    type: int
  margin:
    description:
      - Percent of what is promised already that a strict policy has to leave free.
    type: int
    default: 10
  protect:
    description:
      - Services that the OOM killer should spare, and no others. Needs root, and a running systemd, which no recorded
        tree has.
    type: list
    elements: str
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
seealso:
  - module: threadwise.smt.smt_memory
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Read the facts
  threadwise.smt.smt_memory_facts:

- name: Compute what a strict policy would allow
  threadwise.smt.smt_memory_facts:
    overcommit: strict
    overcommit_ratio: 80

- name: Say why it may not be put in force
  ansible.builtin.debug:
    msg: "{{ ansible_facts['smt_memory']['wanted']['refusal'] }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    smt_memory:
      description: The memory policy of this host.
      type: dict
      returned: always
      contains:
        overcommit:
          description: V(heuristic), V(always), V(strict), or null when it is not known.
          type: str
          returned: always
        overcommit_ratio:
          description: Percent of memory that a strict policy promises; 0 when the kbytes count.
          type: int
          returned: always
        overcommit_kbytes:
          description: KiB that a strict policy promises; 0 when the ratio counts.
          type: int
          returned: always
        total_bytes:
          description: Memory that the kernel can use.
          type: int
          returned: always
        swap_bytes:
          description: Swap space.
          type: int
          returned: always
        hugetlb_bytes:
          description: Memory in huge pages, which a ratio does not count.
          type: int
          returned: always
        nr_hugepages:
          description: Persistent huge pages of the default size.
          type: int
          returned: always
        commit_limit_bytes:
          description: CommitLimit as the kernel reckons it; it binds under a strict policy only.
          type: int
          returned: always
        committed_bytes:
          description: What is promised to all processes together (Committed_AS).
          type: int
          returned: always
        headroom:
          description:
            - What can still be promised under the present policy. C(bytes) to root, C(unprivileged_bytes) to others
              (both null where the sum has no limit), C(largest_request_bytes) in one request (null where that has no
              limit).
          type: dict
          returned: always
        on_oom:
          description: V(kill), V(panic) or V(panic_always), or null when it is not known.
          type: str
          returned: always
        panic_reboot_after:
          description: Seconds after which the host reboots after a panic; 0 is never, below 0 at once.
          type: int
          returned: always
        oom_kills:
          description: Processes that the OOM killer has killed since boot.
          type: int
          returned: always
        protected_units:
          description: Services with a process that is less likely to be killed than others, each C(unit) and its lowest
            C(oom_score_adj).
          type: list
          elements: dict
          returned: always
        wanted:
          description:
            - What the wanted policy comes to; null when none is named. C(overcommit), C(commit_limit_bytes) and
              C(headroom) as above; C(refusal), a sentence, or null when it may be put in force; C(sysctls), the policy
              as the kernel's settings, values by name; C(differences), a sentence for each value that is not in force;
              C(boot_differences), a sentence for each value that the files as they are make otherwise at the next boot,
              and C(boot_blocked_by), why the file of M(threadwise.smt.smt_memory) could not mend that, or null;
              C(overrides), a sentence for each file or profile that has the last word at boot.
          type: dict
          returned: always
        protect_differences:
          description: A sentence for each service whose protection from the OOM killer differs from O(protect); null
            without O(protect).
          type: list
          elements: str
          returned: always
        problems:
          description: Sentences about files that could not be read.
          type: list
          elements: str
          returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    change as memory_change,
    facts as memory_facts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._memory.errors import MemoryPolicyError

POLICY = ("overcommit", "overcommit_ratio", "overcommit_kbytes", "on_oom", "panic_reboot_after", "nr_hugepages")


def main() -> None:
    """Read the memory facts."""
    module = AnsibleModule(
        argument_spec={
            "overcommit": {"type": "str", "choices": ["heuristic", "always", "strict"]},
            "overcommit_ratio": {"type": "int"},
            "overcommit_kbytes": {"type": "int"},
            "on_oom": {"type": "str", "choices": ["kill", "panic", "panic_always"]},
            "panic_reboot_after": {"type": "str"},
            "nr_hugepages": {"type": "int"},
            "margin": {"type": "int", "default": 10},
            "protect": {"type": "list", "elements": "str"},
            "sysroot": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    protect, sysroot = module.params["protect"], module.params["sysroot"]
    if protect is not None and sysroot != "/":
        module.fail_json(
            msg=(
                f"protect needs the running systemd, which the tree {sysroot} does not have: set only one of protect"
                " and sysroot"
            )
        )
    options = None
    if any(module.params[name] is not None for name in POLICY):
        options = {name: module.params[name] for name in (*POLICY, "margin")}
    fs = host_files.HostFs(sysroot)
    try:
        facts = memory_facts.gather(fs, options)
        facts["protect_differences"] = (
            None if protect is None else memory_change.protect_differences(fs, module.run_command, protect)
        )
    except MemoryPolicyError as error:
        module.fail_json(msg=str(error))
    for sentence in facts["wanted"]["overrides"] if options else []:
        module.warn(sentence)
    module.exit_json(changed=False, ansible_facts={"smt_memory": facts})


if __name__ == "__main__":
    main()
