# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one host as objects: each class says what a part of it holds, and within which limits."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import schedule
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts, parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    ArmName,
    Better,
    Count,
    Cpu,
    CpuList,
    CpuNumbers,
    Key,
    MetricName,
    Moment,
    Name,
    Number,
    Part,
    PlacementName,
    RunName,
    Seconds,
    Share,
    Text,
    WorkloadName,
    about,
    at_most,
    between,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import MAX_CPUS

SchemaName = t.Literal["threadwise.smt/result"]
SchemaVersion = t.Literal[2]
(SCHEMA_NAME,), (SCHEMA_VERSION,) = t.get_args(SchemaName), t.get_args(SchemaVersion)
MAX_ARMS = 20
# Limits for the number of comparisons in a report.
MAX_WORKLOADS = 200
MAX_LOOKS = schedule.MAX_LOOKS

Setting = Text | Number | None
SettingName = t.Annotated[str, text_of(100, r"^[A-Za-z0-9_./-]{1,100}$")]
VulnerabilityName = t.Annotated[str, text_of(64, r"^[A-Za-z0-9_.-]{1,64}$")]
EventName = t.Annotated[str, text_of(40, r"^[a-z_]+$")]
# A sentence, or values that change from block to block.
Detail = Text | t.Annotated[dict[t.Annotated[str, text_of(40, r"^[a-z_]{1,40}$")], Setting], at_most(20)]
Block = t.Annotated[int, between(0, 1_000_000)]


class Costs(Part, frozen=True, kw_only=True):
    """What the user says of a host's price."""

    price_per_hour: t.Annotated[
        Number | None, about("Price of the host per hour, in any currency; null where none was given.")
    ] = None
    licence_per: t.Annotated[
        t.Literal["core", "thread", "host"] | None,
        about("What the host's licences count; null where nothing was given."),
    ] = None


class Busy(Part, frozen=True, kw_only=True):
    """What ran beside the measurement."""

    others: t.Annotated[
        Share | None, about("The highest share of all CPUs' time that other processes used before a block, 0 to 1.")
    ] = None


class Environment(Part, frozen=True, kw_only=True):
    """What a measurement ran in."""

    busy: t.Annotated[Busy | None, about("What ran beside the measurement.")] = None
    load_average: t.Annotated[Number | None, about("Load average over one minute at the start, processes.")] = None
    kernel: t.Annotated[Text | None, about("Release of the kernel.")] = None
    architecture: t.Annotated[Text | None, about("Architecture, as uname -m prints it.")] = None
    python: t.Annotated[Text | None, about("Version of the host's Python.")] = None
    cmdline: t.Annotated[Text | None, about("The kernel's command line.")] = None
    governor: t.Annotated[Text | None, about("Frequency governor; null without cpufreq.")] = None
    boost: t.Annotated[
        bool | None,
        about(
            "Whether CPUs may run faster than their nominal frequency; null where the kernel does not say it. Files of"
            " earlier releases lack it."
        ),
    ] = None
    hypervisor: t.Annotated[Text | None, about("Name of the hypervisor; null on a machine of its own.")] = None
    cpu_model: t.Annotated[Text | None, about("Model of the processor.")] = None
    microcode: t.Annotated[Text | None, about("Version of the microcode.")] = None
    cpu_quota: t.Annotated[
        Number | None,
        about("CPUs that the run could use at once, by the smallest CPU quota of its cgroups; null without one."),
    ] = None
    nominal_mhz: t.Annotated[
        Number | None,
        about(
            "Nominal frequency of CPU 0, MHz, or the one that the controller's user names; null where neither the"
            " kernel nor the model's name has it."
        ),
    ] = None


class NamedArm(Part, frozen=True, kw_only=True):
    """An arm that was asked for."""

    name: t.Annotated[ArmName, about("Name of the arm.")]
    title: t.Annotated[Name, about("What it is, for people.")]


class Arm(NamedArm, frozen=True, kw_only=True):
    """A state that was compared."""

    baseline: t.Annotated[bool, about("Whether the others are compared with it.")]
    settings: t.Annotated[
        dict[SettingName, Setting], at_most(100), about("Name of a setting -> its value in this arm.")
    ]


class ArmLeftOut(NamedArm, frozen=True, kw_only=True):
    """An arm that was asked for and could not be measured."""

    reason: t.Annotated[Text, about("Why it was not measured.")]


Arms = t.Annotated[tuple[Arm, ...], at_most(MAX_ARMS)]
ArmsLeftOut = t.Annotated[tuple[ArmLeftOut, ...], at_most(MAX_ARMS)]


class Look(Part, frozen=True, kw_only=True):
    """A look at the samples that could end a comparison."""

    blocks: t.Annotated[Count, about("Number of blocks that were done.")]
    share: t.Annotated[Share, about("Share of the plan that was done, 1 at its end.")]


class Decided(Part, frozen=True, kw_only=True):
    """A main comparison that a look has ended."""

    workload: t.Annotated[WorkloadName, about("Name of the workload.")]
    parameter: t.Annotated[Number | None, about("Value of its parameter; null without one.")] = None
    arm: t.Annotated[ArmName, about("The arm that was compared with the baseline.")]
    placement: t.Annotated[PlacementName, about("The placement.")]
    blocks: t.Annotated[Count, about("Number of blocks that were done.")]
    outcome: t.Annotated[
        t.Literal["gain", "loss", "equivalent", "futile"],
        about("The verdict on the host, or futile: the rest of the budget could not decide it."),
    ]


class Switches(Part, frozen=True, kw_only=True):
    """What switching to an arm took."""

    count: t.Annotated[Count, about("How often the host was switched to the arm.")]
    seconds: t.Annotated[Seconds, about("How long that took in the median, in seconds, without the pause after it.")]


class DeclaredMetric(Part, frozen=True, kw_only=True):
    """What a metric is."""

    unit: t.Annotated[Text, about("Unit of its values.")]
    better: t.Annotated[Better, about("Whether a higher or a lower value is better.")]
    aggregate: t.Annotated[
        t.Literal["sum", "max", "mean", "per_job", "mean_per_job", "per_operation", "undeclared"],
        about("How the values of all workers become one."),
    ]


class Parameter(Part, frozen=True, kw_only=True):
    """What a workload is measured at several values of."""

    per_worker: t.Annotated[
        bool, about("Whether it is the load that each worker is offered: only the highest value is compared.")
    ]
    name: t.Annotated[Name, about("Name of the parameter.")]
    unit: t.Annotated[Text | None, about("Its unit; null without one.")]
    values: t.Annotated[tuple[Number, ...], at_most(1_000), about("Its values, in its unit.")]


class Workload(Part, frozen=True, kw_only=True):
    """A workload as the plan declares it."""

    name: t.Annotated[WorkloadName, about("Name of the workload.")]
    title: t.Annotated[Text, about("What it is, for people.")]
    primary: t.Annotated[MetricName, about("Name of the metric that decides.")]
    metrics: t.Annotated[dict[MetricName, DeclaredMetric], at_most(100), about("Name of a metric -> what it is.")]
    argv: t.Annotated[t.Annotated[tuple[Text, ...], at_most(1_000)] | None, about("The command of a worker.")] = None
    package: t.Annotated[Text | None, about("Debian package with the command; null without one.")] = None
    nice: t.Annotated[Number | None, about("Niceness of the workers; 0 for that of the plan.")] = None
    co_runners: t.Annotated[Count | None, about("Number of busy loops on each CPU that co_runners_on names.")] = None
    co_runners_on: t.Annotated[
        t.Literal["same", "sibling", "both"] | None,
        about("Where they run: on the workers' CPUs, on the other CPUs of their cores, or on both."),
    ] = None
    co_runners_nice: t.Annotated[Number | None, about("Niceness of the busy loops; 0 for that of the plan.")] = None
    memory: t.Annotated[Number | None, about("Memory of one worker, in MB (1,000,000 bytes).")] = None
    server: t.Annotated[
        bool | None,
        about(
            "Whether a server does a part of its work, in CPU time that no worker is charged for; null if not known."
        ),
    ] = None
    parameter: t.Annotated[
        Parameter | None, about("What it is measured at several values of; null for a workload without one.")
    ] = None
    response_limit: t.Annotated[
        Seconds | None, about("Longest response time allowed, in seconds; null without a limit.")
    ] = None


class Spot(Part, frozen=True, kw_only=True):
    """The CPUs of a placement in an arm."""

    workers: t.Annotated[
        t.Annotated[tuple[CpuList, ...], at_most(MAX_CPUS)] | None,
        about("For each worker its CPUs, as a CPU list; null where the placement does not exist."),
    ] = None
    memory_node: t.Annotated[
        Count | None, about("NUMA node that all memory of the workers came from; null for the kernel's choice.")
    ] = None
    same_as: t.Annotated[
        PlacementName | None,
        about("Another placement with the same CPUs, whose samples are used; null where there is none."),
    ] = None
    reason: t.Annotated[Text | None, about("Why the placement does not exist; null where it does.")] = None


class Plan(Part, frozen=True, kw_only=True):
    """What was to be measured."""

    blocks: t.Annotated[Count | None, about("Upper limit of the number of blocks; null without one.")] = None
    blocks_done: t.Annotated[Count | None, about("Number of complete blocks.")] = None
    seconds_budget: t.Annotated[Seconds | None, about("Time that the plan may take, in seconds.")] = None
    sample_seconds: t.Annotated[
        Seconds | None,
        about("Intended duration of a sample, in seconds; null where the plan chose one for each workload."),
    ] = None
    settle_seconds: t.Annotated[
        Seconds | None,
        about("Pause after each switch, in seconds; of a plan that chooses it, null before its second block."),
    ] = None
    margin: t.Annotated[Share | None, about("Equivalence margin, as a share: 0.02 is 2 %.")] = None
    order: t.Annotated[Text | None, about("How the arms are ordered in the blocks.")] = None
    goal: t.Annotated[
        Text | None, about("What the plan stops for before its budget is spent: decision, precision or recheck.")
    ] = None
    looks: t.Annotated[
        t.Annotated[tuple[Look, ...], at_most(MAX_LOOKS)] | None,
        about(
            "The looks at the samples that could end a comparison, in their order; null where the plan did not look."
        ),
    ] = None
    decided: t.Annotated[
        t.Annotated[tuple[Decided, ...], at_most(1_000)] | None, about("The main comparisons that a look has ended.")
    ] = None
    stopped: t.Annotated[
        Text | None,
        about(
            "Why the plan ended: gain, loss, equivalent or futile (of the comparison that ended last), precise,"
            " rechecked, budget, blocks, nothing or size."
        ),
    ] = None
    switches: t.Annotated[
        t.Annotated[dict[ArmName, Switches], at_most(MAX_ARMS)] | None,
        about("What switching took: arm -> how often and how long; null where the plan did not end by itself."),
    ] = None
    boots: t.Annotated[
        Count | None, about("How often the host was booted in each arm; null where nothing was booted.")
    ] = None
    booted: t.Annotated[
        t.Annotated[tuple[ArmName, ...], at_most(MAX_ARMS)] | None,
        about(
            "Names of the arms that had boots of their own, the baseline first; the others were switched within the"
            " boots of the baseline."
        ),
    ] = None
    confounded: t.Annotated[
        bool | None,
        about("Whether each booted arm was measured in one boot only, so that nothing can be decided about it."),
    ] = None
    workloads: t.Annotated[t.Annotated[tuple[Workload, ...], at_most(MAX_WORKLOADS)] | None, about("What was run.")] = (
        None
    )
    placements: t.Annotated[
        t.Annotated[dict[ArmName, t.Annotated[dict[PlacementName, Spot], at_most(100)]], at_most(MAX_ARMS)] | None,
        about("Arm -> placement -> on which CPUs its workers run."),
    ] = None


class Value(Part, frozen=True, kw_only=True):
    """A metric's value."""

    value: t.Annotated[Number | None, about("The value; null where it could not be measured.")]
    unit: t.Annotated[Text, about("Unit of the value.")]
    better: t.Annotated[Better, about("Whether a higher or a lower value is better.")]


class Worker(Part, frozen=True, kw_only=True):
    """What one worker did in a sample."""

    cpus: t.Annotated[CpuList, about("CPUs that it was pinned to, as a CPU list; empty where it was not.")] = ""
    value: t.Annotated[Number | None, about("Its value of the primary metric, in the metric's unit.")]
    wall_seconds: t.Annotated[Seconds | None, about("Its duration, in seconds.")] = None
    cpu_seconds: t.Annotated[Seconds | None, about("CPU time that it used, in seconds.")] = None
    context_switches: t.Annotated[Count | None, about("Number of its context switches.")] = None


class Stalls(Part, frozen=True, kw_only=True):
    """The cycles in which a thread waited."""

    frontend_stalled: t.Annotated[Share | None, about("Share without new instructions, 0 to 1.")] = None
    backend_stalled: t.Annotated[Share | None, about("Share without progress of those it had, 0 to 1.")] = None


class TopDown(Part, frozen=True, kw_only=True):
    """What became of a thread's issue slots: Top-Down analysis at its first level."""

    retiring: t.Annotated[Share | None, about("Share that did work that counted, 0 to 1.")] = None
    bad_speculation: t.Annotated[Share | None, about("Share lost to wrong guesses of branches, 0 to 1.")] = None
    frontend_bound: t.Annotated[Share | None, about("Share for which no instruction was there, 0 to 1.")] = None
    backend_bound: t.Annotated[Share | None, about("Share that waited for data or for units, 0 to 1.")] = None


class Counters(Part, frozen=True, kw_only=True):
    """The counters of a CPU or a core."""

    cycles: t.Annotated[Number | None, about("CPU cycles.")] = None
    instructions: t.Annotated[Number | None, about("Retired instructions.")] = None
    ipc: t.Annotated[Number | None, about("Instructions per cycle.")] = None
    cpi: t.Annotated[Number | None, about("Cycles per instruction.")] = None
    stalls: t.Annotated[Stalls | None, about("Of a CPU's cycles, where they were counted.")] = None
    topdown: t.Annotated[TopDown | None, about("Of a CPU's issue slots, where they were counted.")] = None


class Perf(Part, frozen=True, kw_only=True):
    """Hardware counters during a sample."""

    reason: t.Annotated[Text | None, about("Why there are no counters; null where there are.")] = None
    cpus: t.Annotated[dict[CpuNumbers, Counters], at_most(MAX_CPUS), about("CPU number -> its counters.")] = (
        parts.empty_mapping()
    )
    cores: t.Annotated[
        dict[CpuNumbers, Counters],
        at_most(MAX_CPUS),
        about("Core, as the numbers of its CPUs -> the counters of all its CPUs."),
    ] = parts.empty_mapping()


class Telemetry(Part, frozen=True, kw_only=True):
    """What a host did beside the work of a sample."""

    cpu_usage: t.Annotated[
        t.Annotated[dict[CpuNumbers, Share | None], at_most(MAX_CPUS)] | None,
        about("CPU number -> the share of its time that it was busy, 0 to 1."),
    ] = None
    core_usage: t.Annotated[
        t.Annotated[dict[CpuNumbers, Share | None], at_most(MAX_CPUS)] | None,
        about("Core, as the numbers of its CPUs -> the share of all its CPUs' time that they were busy, 0 to 1."),
    ] = None
    steal: t.Annotated[Share | None, about("Share of all CPUs' time that a hypervisor took, 0 to 1.")] = None
    frequency: t.Annotated[
        t.Annotated[dict[CpuNumbers, Number | None], at_most(MAX_CPUS)] | None,
        about("CPU number -> its frequency in MHz, the mean of begin and end."),
    ] = None
    throttled: t.Annotated[
        Count | None, about("Number of thermal throttle events; null where the kernel does not count them.")
    ] = None
    joules: t.Annotated[
        Number | None,
        about(
            "Energy that the processor's packages used, in joules; null where it is not counted, not for this user, or"
            " for longer than a counter may take to go through its range."
        ),
    ] = None
    perf: t.Annotated[Perf | None, about("Hardware counters during the sample.")] = None


class Sample(Part, frozen=True, kw_only=True):
    """One sample."""

    workload: t.Annotated[WorkloadName, about("Name of the workload.")]
    placement: t.Annotated[PlacementName, about("Name of the placement.")]
    arm: t.Annotated[ArmName, about("Name of the arm.")]
    block: t.Annotated[Block, about("Number of its block, from 0; samples of one block are paired.")]
    index: t.Annotated[Count | None, about("Its number in the order of measurement, from 0.")] = None
    ok: t.Annotated[bool, about("Whether all workers succeeded.")]
    error: t.Annotated[Text | None, about("Why it failed; null where it did not.")] = None
    started: t.Annotated[Moment | None, about("Time of its start, UTC.")] = None
    wall_seconds: t.Annotated[Seconds | None, about("Its duration, in seconds.")] = None
    metrics: t.Annotated[
        dict[MetricName, Value], at_most(100), about("Name of a metric -> its value for all workers together.")
    ]
    work: t.Annotated[
        Number | None,
        about("Work of one worker, in the unit of the workload; null for a workload that runs for a time."),
    ] = None
    co_runners: t.Annotated[
        Count | None,
        about("Number of busy loops that ran; fewer where a sibling is offline. Null for a workload without."),
    ] = None
    workers: t.Annotated[
        t.Annotated[tuple[Worker, ...], at_most(MAX_CPUS)] | None, about("One entry for each worker.")
    ] = None
    parameter: t.Annotated[
        Number | None, about("Value of the workload's parameter, in its unit; null for a workload without one.")
    ] = None
    telemetry: t.Annotated[Telemetry | None, about("What the host did beside the work.")] = None
    boot: t.Annotated[
        Count | None, about("Number of the boot in which it was measured; only where arms were booted.")
    ] = None
    pair: t.Annotated[
        Count | None,
        about(
            "Number of the round of boots that it belongs to, one boot of each booted arm; only where arms were booted."
        ),
    ] = None


class Skipped(Part, frozen=True, kw_only=True):
    """What the plan names and could not be measured."""

    workload: t.Annotated[WorkloadName | None, about("Name of the workload; null for all.")] = None
    placement: t.Annotated[PlacementName | None, about("Name of the placement; null for all.")] = None
    arm: t.Annotated[ArmName | None, about("Name of the arm; null for all.")] = None
    reason: t.Annotated[Text, about("Why it was not measured.")]


class Allocatable(Part, frozen=True, kw_only=True):
    """Memory that processes could allocate."""

    largest_bytes: t.Annotated[Number | None, about("Largest single allocation, in bytes.")] = None
    total_bytes: t.Annotated[Number | None, about("Sum of all allocations, in bytes.")] = None
    total_limited: t.Annotated[
        bool | None, about("Whether the kernel ended the sum; false where the measurement stopped by itself.")
    ] = None


class OvercommitTest(Part, frozen=True, kw_only=True):
    """What became of a process that asked for more memory than there is."""

    outcome: t.Annotated[Text, about("What happened.")]
    touched_bytes: t.Annotated[Number | None, about("Memory that the process wrote to before it ended, in bytes.")] = (
        None
    )


class BootedSmt(Part, frozen=True, kw_only=True):
    """SMT in a boot."""

    control: t.Annotated[Text | None, about("Content of smt/control in that boot.")] = None
    active: t.Annotated[bool | None, about("Whether SMT was active.")] = None
    online: t.Annotated[CpuList | None, about("CPUs that were online, as a CPU list.")] = None


class Vulnerability(facts.Vulnerability, frozen=True, kw_only=True):
    """A vulnerability in a boot."""

    smt: t.Annotated[
        facts.SmtStatus | None,
        about("The part of it that depends on SMT; null without one."),
    ]


class Observation(Part, frozen=True, kw_only=True):
    """What was seen of an arm besides its samples."""

    arm: t.Annotated[ArmName, about("Name of the arm.")]
    settings: t.Annotated[
        t.Annotated[dict[Key, Number | None], at_most(100)] | None, about("Name of a sysctl -> its value.")
    ] = None
    headroom_bytes: t.Annotated[Number | None, about("Memory that can still be committed, in bytes.")] = None
    asked_bytes: t.Annotated[Number | None, about("Memory that the overcommit test asked for, in bytes.")] = None
    allocatable: t.Annotated[Allocatable | None, about("Memory that processes could allocate.")] = None
    allocatable_reason: t.Annotated[Text | None, about("Why this was not measured; null where it was.")] = None
    overcommit_test: t.Annotated[
        OvercommitTest | None, about("What happened to a process that asked for more memory than there is.")
    ] = None
    overcommit_test_reason: t.Annotated[Text | None, about("Why this was not tested; null where it was.")] = None
    cmdline: t.Annotated[Text | None, about("The kernel's command line in the first boot of the arm.")] = None
    smt: t.Annotated[BootedSmt | None, about("SMT in that boot.")] = None
    vulnerabilities: t.Annotated[
        dict[VulnerabilityName, Vulnerability],
        at_most(200),
        about("The kernel's status of each vulnerability in that boot, as in the facts."),
    ] = parts.empty_mapping()


class Event(Part, frozen=True, kw_only=True):
    """Something that happened during a run."""

    at: t.Annotated[Moment | None, about("Time, UTC.")] = None
    event: t.Annotated[EventName, about("Kind of the event.")]
    detail: t.Annotated[Detail | None, about("A sentence, or values with names.")] = None


class CpuState(Part, frozen=True, kw_only=True):
    """The state of a host's CPUs, and of what arms switched."""

    control: t.Annotated[Text | None, about("Content of smt/control; null where it is not known.")] = None
    online: t.Annotated[
        t.Annotated[tuple[Cpu, ...], at_most(MAX_CPUS)] | None, about("Numbers of the CPUs that were online.")
    ] = None
    sysctls: t.Annotated[
        t.Annotated[dict[Key, Number | None], at_most(100)] | None,
        about("Name of a sysctl -> its value, of arms of the memory policy."),
    ] = None
    settings: t.Annotated[dict[Key, Setting], at_most(100), about("What else arms switched -> its value.")] = (
        parts.empty_mapping()
    )


class Restored(Part, frozen=True, kw_only=True):
    """Whether a host was left as it was found."""

    ok: t.Annotated[bool | None, about("Whether the host is as it was found; null where this is not known.")]
    before: t.Annotated[CpuState | None, about("The host before the run.")] = None
    after: t.Annotated[CpuState | None, about("The host after the run.")] = None
    differences: t.Annotated[
        t.Annotated[tuple[Text, ...], at_most(100_000)] | None, about("A sentence for each difference.")
    ] = None


class HostResult(Part, frozen=True, kw_only=True):
    """What one host measured in one run."""

    schema: t.Annotated[SchemaName, about("Name of this kind of file.")]
    schema_version: t.Annotated[
        SchemaVersion, about("Version of this kind of file; docs/files.md says what changes it.")
    ]
    run: t.Annotated[RunName, about("Name of the run.")]
    host: t.Annotated[Name, about("Name of the host in the inventory.")]
    collection_version: t.Annotated[Text | None, about("Version of threadwise.smt that measured.")] = None
    started: t.Annotated[Moment | None, about("Time of the start, UTC, by the host's clock.")] = None
    finished: t.Annotated[
        Moment | None, about("Time of the end, UTC, by the host's clock; null for a plan that was killed.")
    ] = None
    collected: t.Annotated[
        Moment | None, about("Time at which the controller fetched the result, UTC, by the controller's clock.")
    ] = None
    fetched: t.Annotated[
        tuple[RunName, ...],
        at_most(100),
        about(
            "Names of earlier runs of the host that the controller fetched first, because no controller had; their"
            " results are in the directory of runs."
        ),
    ] = ()
    costs: t.Annotated[Costs | None, about("What the controller's user says of the host's price.")] = None
    outcome: t.Annotated[t.Literal["completed", "failed", "interrupted"], about("How the plan ended.")]
    message: t.Annotated[Text | None, about("Why it did not complete; null where it did.")] = None
    facts: t.Annotated[Facts, about("Facts of the host before the run, as the module smt_facts returns them.")]
    environment: t.Annotated[Environment, about("What the measurement ran in.")]
    arms: t.Annotated[
        Arms,
        about("What was compared; the first is the baseline. One alone compares nothing."),
    ]
    arms_left_out: t.Annotated[ArmsLeftOut, about("What was asked for and could not be measured on this host.")] = ()
    plan: t.Annotated[Plan, about("What was to be measured.")]
    samples: t.Annotated[tuple[Sample, ...], at_most(500_000), about("The samples, in the order of measurement.")]
    skipped: t.Annotated[
        tuple[Skipped, ...], at_most(100_000), about("What the plan names and could not be measured.")
    ] = ()
    observations: t.Annotated[
        t.Annotated[tuple[Observation, ...], at_most(100)] | None,
        about(
            "What was seen of an arm besides its samples, one entry for each arm of the memory policy and each arm"
            " that was booted."
        ),
    ] = None
    events: t.Annotated[tuple[Event, ...], at_most(500_000), about("What happened during the run.")] = ()
    restored: t.Annotated[
        Restored | None,
        about("Whether the host was left as it was found; null where nothing was switched or the plan was killed."),
    ] = None
