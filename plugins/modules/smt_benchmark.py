#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_benchmark
short_description: Measure workloads in several arms, such as SMT on and off, on the host itself
version_added: 1.0.0
description:
  - Runs a benchmark plan on the host - pinned workloads in interleaved blocks, in each arm, such as SMT on and SMT
    off - and writes the result to a file on the controller.
  - The plan runs under Ansible's own async and needs no controller while it measures. The task shows how far it is and
    what it measured last, waits for its end, and fetches the result.
  - Afterwards the host is restored, also when the plan failed, was killed, or lost its controller. Samples are kept on
    the host until the controller has them; those of earlier runs whose controller was lost are fetched first, at most
    four. One that was not started from O(dest) on this host goes to C(DEST/_collected/HOST/RUN/HOST.json).
  - C(SIGTERM) to the plan on the host ends it early; it puts the host back first.
options:
  run:
    description:
      - Name of the run, which is the name of a directory - letters, digits, C(.), C(_) and C(-), at most 100.
      - A run never overwrites another. It is refused before anything is measured, in check mode too, where O(dest) has
        a result of this host under it.
      - Where the host still has the samples of such a run because its controller was lost, they are fetched instead,
        and nothing is measured again.
    type: str
    required: true
  dest:
    description:
      - Directory on the controller that holds runs. The result goes to C(DEST/RUN/HOST.json).
    type: path
    default: smt_eval_results
  arms:
    description:
      - What is compared, the baseline first. Each other arm is compared with the baseline.
      - Switched at run time are V(as_found), V(hugepages_N), V(isolated), V(one_thread_per_core),
        V(one_thread_per_core_unit_NAME), V(overcommit_always), V(overcommit_heuristic), V(overcommit_strict),
        V(panic_on_oom), V(smt_off), V(smt_off_on_cpus_LIST), V(smt_off_on_node_N), V(smt_off_on_package_N),
        V(smt_off_on_unit_NAME), V(smt_on), V(thp_always), V(thp_madvise), V(thp_never), V(threads_per_core_N).
      - docs/arms.md says what they are. V(as_found) alone measures only the placements.
      - An arm of a part of the host may be a mapping of C(smt_off_on) or C(one_thread_per_core) to a mapping of
        C(node), C(package), C(cpus) or C(unit).
      - An arm that a host cannot have is left out, and the result says why. Without a baseline, or with fewer than two
        arms, the placements are measured alone.
      - With V(panic_on_oom) a real out-of-memory during the plan makes the host panic and restart. With either memory
        policy it is also recorded what a process can allocate, and what happens to one that allocates more than there
        is.
    type: list
    elements: raw
    default: [smt_on, smt_off]
  overcommit_ratio:
    description:
      - Percent of RAM that V(overcommit_strict) promises, beside swap; without it the host's own C(vm.overcommit_ratio)
        or C(vm.overcommit_kbytes). A limit that the host would exceed is not put in force, and the result says so with
        the figures.
    type: int
  workloads:
    description:
      - Names of the workloads, in the order in which they are measured, each once.
      - Built in are V(array_columns), V(array_columns_write), V(array_rows), V(array_rows_write), V(false_sharing),
        V(gzip), V(int_float_loop), V(int_float_loop_co_runners), V(int_float_loop_niced), V(load_levels),
        V(memory_pages), V(oltp), V(stream), V(sysbench_cpu), V(sysbench_threads).
      - A workload whose command is missing on the host is named before the start, and left out.
    type: list
    elements: str
    default: [gzip, sysbench_cpu]
  custom:
    description:
      - Commands of your own, measured after the workloads. Each is run as it is; its name is how results call it.
      - In C(argv) V({threads}) is replaced by the number of workers and V({seconds}) by the whole seconds of a sample.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Lower-case letters, digits and C(_).
        type: str
        required: true
      title:
        description: How people call it; without it the name.
        type: str
      argv:
        description: The command and its arguments; no shell reads them.
        type: list
        elements: str
        required: true
      multithreaded:
        description:
          - Whether the placement's workers are threads of one process, which may use the CPUs of all of them. Otherwise
            each worker is a process of its own, pinned to its CPU.
        type: bool
        default: false
      timeout:
        description: Seconds after which a sample is ended and counted as failed.
        type: int
        default: 60
      metric:
        description: What verdicts are about.
        type: dict
        required: true
        suboptions: &metric
          name:
            description: Lower-case letters, digits and C(_).
            type: str
            required: true
          unit:
            description: Its unit.
            type: str
            required: true
          better:
            description: Which way is better.
            type: str
            choices: [higher, lower]
            required: true
          aggregate:
            description:
              - How the workers' values make the sample's.
              - V(per_job) is for seconds of which each worker needs its own for a whole job. CPU time is the mean of
                the workers', and of other times that of the slowest worker is divided by the number of workers.
              - V(sum) of a metric where lower is better is compared only between equal numbers of workers.
              - Without it V(sum) where higher is better. Where lower is, V(per_job) for a clock of workers that do not
                run together, else V(max).
            type: str
            choices: [sum, max, mean, per_job]
          pattern:
            description: A regular expression whose first group is the number in what the command prints.
            type: str
          json:
            description: The path to the number in the JSON document that the command prints, a key or an index an item.
            type: list
            elements: str
          clock:
            description: The time a worker took, in seconds, on the clock or on the CPU.
            type: str
            choices: [wall_seconds, cpu_seconds]
      metrics:
        description: Further metrics.
        type: list
        elements: dict
        default: []
        suboptions: *metric
      parameters:
        description:
          - Values at which the command is measured, one sample each in a block; the report draws the metrics over them.
          - In C(argv) V({parameter}) is replaced by the value.
        type: dict
        suboptions:
          name:
            description: What the values are, such as V(clients); lower-case letters, digits and C(_).
            type: str
            required: true
          unit:
            description: Their unit; without it their name.
            type: str
          values:
            description: From 1 to 50 numbers above 0.
            type: list
            elements: float
            required: true
      placements:
        description: The placements in which the command is measured, of those that the plan has. Without it all of
          them.
        type: list
        elements: str
      environment:
        description: Variables for the command, and for C(start), C(ready) and C(stop), beside C(PATH) and C(LC_ALL).
        type: dict
        default: {}
      start:
        description:
          - A command that starts a server, before the samples of each arm and on the CPUs of that arm, in a directory
            of its own.
          - It may stay in the foreground, or leave the server in the background and end with 0. All that it started is
            ended before the next arm.
          - In this and in the other hooks V({server}) is replaced by the directory, V({cpus}) by the CPU list of the
            arm, V({threads}) by the number of its CPUs. In C(argv) V({server}) is the directory too.
        type: list
        elements: str
      ready:
        description: A command that succeeds when the server is ready. It is tried for two minutes.
        type: list
        elements: str
      stop:
        description: A command that ends the server. What is left then gets SIGTERM, and SIGKILL after 15 seconds.
        type: list
        elements: str
  placements:
    description:
      - Where workers run. V(single) is one worker, V(same_cpu) two on one CPU, V(siblings) two on one core, V(cores)
        two on two cores, V(packages_2) two on two packages, V(remote_memory) one whose memory is on another NUMA node,
        V(one_per_core) one on each core, V(all_threads) one on each CPU, V(unpinned) as many without pinning.
      - N workers are V(spread_N) on separate cores first, then on siblings, V(packed_N) on siblings first, or V(free_N)
        wherever the scheduler puts them.
      - CPUs are chosen by the topology, never by number; only V(cpus_A_B) names them.
      - The list may be empty where O(streams) or O(cpus) is given.
    type: list
    elements: str
    default: [single, same_cpu, siblings, cores, one_per_core, all_threads]
  streams:
    description:
      - Numbers of workers at once, as numbers or ranges such as V(1-12), at most 1024. Each is measured as V(free_N),
        in addition to O(placements) - the same number in each arm, left to the scheduler on the CPUs that the arm has,
        also where they are more than the CPUs.
      - The report draws time and rate by the number of streams. It says from which number on SMT helps, if numbers
        below and above that of the cores were measured.
    type: list
    elements: str
    default: []
  cpus:
    description:
      - Placements on CPUs of your choice, in addition to O(placements). An item is a list of CPUs, one worker on each,
        at most 16, such as C([0, 2]).
      - Each is compared with the first one that has as many workers.
    type: list
    elements: list
    default: []
  response_limit:
    description:
      - Longest response time allowed, by the name of a workload that is measured at several loads, with its unit, such
        as V(2.0 s) for V(oltp). The report says how many clients each arm serves within it. Without a limit, twice the
        response time of the fewest clients counts.
    type: dict
    default: {}
  budget:
    description: Seconds the plan may take. It stops at the end of the last block that fits.
    type: int
    default: 300
  shared_by:
    description:
      - How many hosts of one hardware class share O(budget), this one included. The plan takes its part of it, and
        longer, within O(budget), only until it has 6 blocks.
    type: int
    default: 1
  goal:
    description:
      - What the plan stops for before its budget is spent.
      - V(decision) looks at the samples after planned numbers of blocks, with levels that are adjusted for it. A
        workload is decided when its main comparison is a gain, a loss or equivalent, or when the rest of the budget
        could not decide it any more. It then rests.
      - V(precision) goes on until half the width of the interval of each workload's main comparison is at most
        O(margin). It never stops because of what a comparison says. So does a plan that shares its budget with other
        hosts (O(shared_by)).
    type: str
    choices: [decision, precision]
    default: decision
  margin:
    description:
      - The equivalence margin, as a share, from 0.0001 to 0.5. Effects within it count as none.
    type: float
    default: 0.01
  blocks:
    description: The most blocks to measure; without it the budget alone decides.
    type: int
  sample_seconds:
    description:
      - Seconds a sample of one worker alone takes, from 0.05 to 600. Longer samples are less noisy, shorter ones make
        more blocks.
      - V(auto) chooses for each workload a length at which neither the start of its command nor the clock matters, from
        0.2 to 1 second.
    type: str
    default: auto
  settle_seconds:
    description:
      - Seconds to wait after each switch before anything is timed, from 0 to 600.
      - V(auto) waits for 1 second or longer in the first block, until the CPUs are no busier than before the first
        switch, and then half as long again as that took, from 0.2 to 5 seconds.
    type: str
    default: auto
  affinity_conflicts:
    description:
      - What to do about affinity conflicts, such as a task pinned to a sibling that would go offline. V(fail) does not
        switch and only measures the placements, V(warn) switches. Changed affinities are restored at the end.
    type: str
    choices: [fail, warn]
    default: fail
  affinity_conflicts_of:
    description: Owners whose affinity conflicts O(affinity_conflicts=fail) counts, as in M(threadwise.smt.smt_state).
      Others are shown before the start.
    type: list
    elements: str
    default: [services]
  siblings:
    description:
      - Whose siblings count, for the placements and for the CPUs that go offline.
      - V(kernel) takes those that the kernel shows. V(measured) takes those that the probe has measured since the host
        booted, and fails where it was not sure. A list names the CPUs of each core, such as V([[0, 2], [1, 3]]); a CPU
        that it leaves out is a core of its own.
      - With other siblings than the kernel's the CPUs go offline one by one, because the kernel's own control knows
        only its own siblings.
    type: raw
    default: kernel
  probe:
    description:
      - Whether to measure before the plan which CPUs share a core, as M(threadwise.smt.smt_probe) does. V(auto)
        measures only in guests whose hypervisor shows no SMT.
    type: str
    choices: [auto, always, never]
    default: never
  price_per_hour:
    description: Price of the host per hour, above zero, in any currency. M(threadwise.smt.smt_report) sets the work of
      machines beside their prices.
    type: float
  licence_per:
    description: What the licences of the host's software count. M(threadwise.smt.smt_report) then shows the work per
      licence.
    type: str
    choices: [core, thread, host]
  nominal_ghz:
    description: Nominal frequency of the host's CPUs in GHz, where neither the kernel nor the processor's name has it,
      as in most Arm guests of a cloud, or where what they have is wrong. M(threadwise.smt.smt_report) shows the work
      per nominal GHz.
    type: float
  progress:
    description:
      - How many lines tell how far the plan is, from 0 to 1000. By default 3, and 1 in a play of more than 10 hosts.
    type: int
  _fails_later:
    description: Not for users. Whether a failure is in RV(error) alone, so that the playbook can build the report
      before it fails the host.
    type: bool
    default: false
  _sources:
    description: Not for users. C sources of workloads that are compiled on the host, by file name, which the task
      sends.
    type: dict
    default: {}
  _step:
    description: Not for users. The part of the work that one call on the host does; the task goes through all of them.
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
    details: The host is not changed.
  action:
    support: full
    description: Starts the plan under async, shows its progress and writes the result on the controller.
  async:
    support: none
    description: The action starts the plan under async itself.
notes:
  - Needs root, C(become=true) in a playbook or C(ansible-playbook -b), to switch between arms. Without root V(as_found)
    alone can be measured.
seealso:
  - module: threadwise.smt.smt_facts
  - module: threadwise.smt.smt_state
  - module: threadwise.smt.smt_report
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Measure what SMT does to this host's work
  threadwise.smt.smt_benchmark:
    run: before-the-upgrade
  become: true

- name: Measure the placements alone, for a minute
  threadwise.smt.smt_benchmark:
    run: placements
    arms: [as_found]
    budget: 60

- name: Compare the memory policies
  threadwise.smt.smt_benchmark:
    run: overcommit
    arms: [as_found, overcommit_strict]
    workloads: [memory_pages]
  become: true

- name: Compare SMT off for all with one thread per core for the database alone
  threadwise.smt.smt_benchmark:
    run: database
    arms: [smt_on, smt_off, {one_thread_per_core: {unit: postgresql.service}}]
    workloads: [oltp]
  become: true

- name: From how many streams on SMT helps
  threadwise.smt.smt_benchmark:
    run: streams
    workloads: [array_rows]
    placements: []
    streams: [1-12]
  become: true

- name: Measure a command of my own beside gzip
  threadwise.smt.smt_benchmark:
    run: compress
    workloads: [gzip]
    custom:
      - name: zstd
        argv: [zstd, -b3, -i1, /srv/sample.tar]
        metric: {name: throughput, unit: MB/s, better: higher, pattern: '([0-9.]+) MB/s'}
  become: true
"""

RETURN = r"""
error:
  description: Why the evaluation failed; null where it was completed.
  returned: always
  type: str
announcement:
  description: What was said before the start, a sentence an item.
  returned: always
  type: list
  elements: str
arms:
  description: The measured arms, the baseline first. C(name), C(title), C(baseline) and C(settings); one arm alone
    compares nothing.
  returned: always
  type: list
  elements: dict
arms_left_out:
  description: Arms that this host cannot have. C(name), C(title) and C(reason).
  returned: always
  type: list
  elements: dict
workloads:
  description: Names of the workloads that this host can measure.
  returned: always
  type: list
  elements: str
workloads_left_out:
  description: Workloads whose commands this host does not have. C(name) and C(reason).
  returned: always
  type: list
  elements: dict
missing_packages:
  description: Packages with commands that the workloads need and the host does not have.
  returned: always
  type: list
  elements: str
obstacles:
  description: Why a plan could not start on the host now, one sentence each, such as who holds its lock.
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
  description: The restored state. C(ok), C(before) and C(after) (C(control) and C(online)), and C(differences), a
    sentence each.
  returned: when it ran
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import ArmError
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import settings as plan_settings, steps
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.plan import PlanError
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectoryError
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._looks import goals
from ansible_collections.threadwise.smt.plugins.module_utils._topology.placement import PlacementError
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import WorkloadError

SETTINGS = (
    "arms",
    "overcommit_ratio",
    "workloads",
    "custom",
    "placements",
    "streams",
    "cpus",
    "response_limit",
    "budget",
    "shared_by",
    "blocks",
    "goal",
    "margin",
    "sample_seconds",
    "settle_seconds",
    "affinity_conflicts",
    "affinity_conflicts_of",
    "siblings",
)
METRIC = {
    "name": {"type": "str", "required": True},
    "unit": {"type": "str", "required": True},
    "better": {"type": "str", "choices": ["higher", "lower"], "required": True},
    "aggregate": {"type": "str", "choices": ["sum", "max", "mean", "per_job"]},
    "pattern": {"type": "str"},
    "json": {"type": "list", "elements": "str"},
    "clock": {"type": "str", "choices": ["wall_seconds", "cpu_seconds"]},
}
CUSTOM = {
    "name": {"type": "str", "required": True},
    "title": {"type": "str"},
    "argv": {"type": "list", "elements": "str", "required": True},
    "multithreaded": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 60},
    "metric": {"type": "dict", "required": True, "options": METRIC},
    "metrics": {"type": "list", "elements": "dict", "default": [], "options": METRIC},
    "parameters": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "values": {"type": "list", "elements": "float", "required": True},
        },
    },
    "placements": {"type": "list", "elements": "str"},
    "environment": {"type": "dict", "default": {}},
    "start": {"type": "list", "elements": "str"},
    "ready": {"type": "list", "elements": "str"},
    "stop": {"type": "list", "elements": "str"},
}


def main() -> None:
    """Run one step of a benchmark plan."""
    module = AnsibleModule(
        argument_spec={
            "run": {"type": "str", "required": True},
            "dest": {"type": "path", "default": "smt_eval_results"},
            "arms": {"type": "list", "elements": "raw", "default": ["smt_on", "smt_off"]},
            "overcommit_ratio": {"type": "int"},
            "workloads": {"type": "list", "elements": "str", "default": ["gzip", "sysbench_cpu"]},
            "custom": {"type": "list", "elements": "dict", "default": [], "options": CUSTOM},
            "placements": {"type": "list", "elements": "str", "default": list(placements.DEFAULT)},
            "streams": {"type": "list", "elements": "str", "default": []},
            "cpus": {"type": "list", "elements": "list", "default": []},
            "response_limit": {"type": "dict", "default": {}},
            "budget": {"type": "int", "default": 300},
            "shared_by": {"type": "int", "default": 1},
            "blocks": {"type": "int"},
            "goal": {"type": "str", "choices": list(goals.GOALS), "default": goals.DECISION},
            "margin": {"type": "float", "default": 0.01},
            "sample_seconds": {"type": "str", "default": plan_settings.AUTO},
            "settle_seconds": {"type": "str", "default": plan_settings.AUTO},
            "affinity_conflicts": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
            "affinity_conflicts_of": {"type": "list", "elements": "str", "default": ["services"]},
            "siblings": {"type": "raw", "default": "kernel"},
            # The action reads these six and sends none of them.
            "probe": {"type": "str", "choices": ["auto", "always", "never"], "default": "never"},
            "price_per_hour": {"type": "float"},
            "licence_per": {"type": "str", "choices": ["core", "thread", "host"]},
            "nominal_ghz": {"type": "float"},
            "progress": {"type": "int"},
            "_fails_later": {"type": "bool", "default": False},
            "_sources": {"type": "dict", "default": {}},
            "_step": {"type": "str", "choices": ["describe", "measure", "collect", "forget"], "default": "measure"},
        },
        supports_check_mode=True,
    )
    step = "describe" if module.check_mode else module.params["_step"]
    settings = {**{name: module.params[name] for name in SETTINGS}, "sources": module.params["_sources"]}
    try:
        settings.update({name: plan_settings.seconds(name, settings[name]) for name in plan_settings.SECONDS})
        result = steps.STEPS[step](module.params["run"], settings)
    except (
        ArmError,
        PlanError,
        PlacementError,
        plan_settings.SettingsError,
        WorkloadError,
        RunDirectoryError,
        HostError,
    ) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
