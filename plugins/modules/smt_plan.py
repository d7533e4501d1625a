#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: smt_plan
short_description: Measure workloads with SMT on and off, on the host itself
version_added: 0.1.0
description:
  - Runs a benchmark plan on the host - pinned workloads in interleaved blocks, with SMT on and off where it can be switched - and
    writes the result to a file on the controller.
  - The plan runs under Ansible's own async and needs no controller while it measures. The task shows how far it is and what it measured
    last, waits for its end, and fetches the result.
  - Afterwards the host is as it was, also when the plan failed, was killed, or lost its controller. Samples are kept on the host until
    the controller has them; those of an earlier run whose controller was lost are fetched first.
  - C(SIGTERM) to the plan on the host ends it early; it puts the host back first.
options:
  run:
    description: Name of the run; a run never overwrites another.
    type: str
    required: true
  dest:
    description:
      - Directory on the controller that holds runs. The result goes to C(DEST/RUN/HOST.json).
    type: path
    default: smt_eval_results
  change:
    description:
      - What is compared - V(smt_runtime) switches SMT off and on at run time, V(none) leaves the host alone and measures the placements.
      - On a host where SMT cannot be switched V(smt_runtime) measures the placements too, and the result says why.
    type: str
    choices: [smt_runtime, none]
    default: smt_runtime
  workloads:
    description: Names of the workloads.
    type: list
    elements: str
    default: [gzip, sysbench_cpu]
  placements:
    description:
      - Where workers run. V(single) is one worker, V(same_cpu) two on one CPU, V(siblings) two on one core, V(cores) two on two cores,
        V(one_per_core) one on each core, V(all_threads) one on each CPU, V(unpinned) as many without pinning, V(streams_N) N of them.
      - CPUs are chosen by the topology, never by number.
    type: list
    elements: str
    default: [single, same_cpu, siblings, cores, one_per_core, all_threads]
  budget:
    description: Seconds the plan may take. It stops at the end of the last block that fits, never because of what it measured.
    type: int
    default: 300
  blocks:
    description: The most blocks to measure; without it the budget alone decides.
    type: int
  sample_seconds:
    description: Seconds a sample of one worker alone takes. Longer samples are less noisy, shorter ones make more blocks.
    type: float
    default: 0.5
  settle_seconds:
    description: Seconds to wait after each toggle before anything is timed.
    type: float
    default: 1.0
  bystanders:
    description:
      - What happens when something would be hurt by siblings going offline, such as a task pinned to one. V(refuse) does not switch and
        measures the placements alone, V(warn) switches all the same. What the kernel takes from them is given back at the end.
    type: str
    choices: [refuse, warn]
    default: refuse
  step:
    description:
      - Which part of the work one call on the host does. The task itself goes through all of them; there is no need to set it.
    type: str
    choices: [describe, measure, collect, forget]
    default: measure
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Says what would be switched and for how long.
  diff_mode:
    support: none
    details: The host is left as it was found.
  action:
    support: full
    description: Starts the plan under async, shows its progress and writes the result on the controller.
  async:
    support: none
    description: The action starts the plan under async itself.
seealso:
  - module: threadwise.smt.smt_facts
  - module: threadwise.smt.smt_state
  - module: threadwise.smt.smt_report
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Measure what SMT does to this host's work
  threadwise.smt.smt_plan:
    run: before-the-upgrade
  become: true

- name: Measure the placements alone, for a minute
  threadwise.smt.smt_plan:
    run: placements
    change: none
    budget: 60
"""

RETURN = r"""
announcement:
  description: What was said before the start, a sentence an item.
  returned: always
  type: list
  elements: str
compared:
  description: Whether SMT was switched.
  returned: always
  type: bool
reason:
  description: Why it was not, or null.
  returned: always
  type: str
missing_packages:
  description: Packages that bring the commands which the workloads need and the host has not got.
  returned: always
  type: list
  elements: str
path:
  description: The result's file on the controller.
  returned: when it ran
  type: str
outcome:
  description: V(completed), V(failed) or V(interrupted).
  returned: when it ran
  type: str
samples:
  description: How many samples were taken.
  returned: when it ran
  type: int
restored:
  description: What was put back. C(ok), C(before) and C(after) (C(control) and C(online)), and C(differences), a sentence each.
  returned: when it ran
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils import plan_steps
from ansible_collections.threadwise.smt.plugins.module_utils.cpu_state import StateError
from ansible_collections.threadwise.smt.plugins.module_utils.guard import GuardError
from ansible_collections.threadwise.smt.plugins.module_utils.host_lock import HostLockError
from ansible_collections.threadwise.smt.plugins.module_utils.placement import PlacementError
from ansible_collections.threadwise.smt.plugins.module_utils.plan import PlanError
from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import RunDirectoryError
from ansible_collections.threadwise.smt.plugins.module_utils.workloads import WorkloadError

PLACEMENTS = ["single", "same_cpu", "siblings", "cores", "one_per_core", "all_threads"]
SETTINGS = ("change", "workloads", "placements", "budget", "blocks", "sample_seconds", "settle_seconds", "bystanders")


def main():
    module = AnsibleModule(
        argument_spec={
            "run": {"type": "str", "required": True},
            "dest": {"type": "path", "default": "smt_eval_results"},
            "change": {"type": "str", "choices": ["smt_runtime", "none"], "default": "smt_runtime"},
            "workloads": {"type": "list", "elements": "str", "default": ["gzip", "sysbench_cpu"]},
            "placements": {"type": "list", "elements": "str", "default": PLACEMENTS},
            "budget": {"type": "int", "default": 300},
            "blocks": {"type": "int"},
            "sample_seconds": {"type": "float", "default": 0.5},
            "settle_seconds": {"type": "float", "default": 1.0},
            "bystanders": {"type": "str", "choices": ["refuse", "warn"], "default": "refuse"},
            "step": {"type": "str", "choices": ["describe", "measure", "collect", "forget"], "default": "measure"},
        },
        supports_check_mode=True,
    )
    step = "describe" if module.check_mode else module.params["step"]
    settings = {name: module.params[name] for name in SETTINGS}
    try:
        result = plan_steps.STEPS[step](module.params["run"], settings)
    except (PlanError, PlacementError, WorkloadError, RunDirectoryError, GuardError, HostLockError, StateError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
