# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one host: its schema, and the consistency of its parts.

A result comes from a managed host, which may be broken or hostile. A result accepted by :func:`parse` has the types and
sizes of :data:`SCHEMA` and nothing else, only finite numbers, and strings that are safe to encode and display.
Otherwise the error names the source and the reason.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._statistics import decisions, schedule, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, schema, text

SCHEMA_NAME = "threadwise.smt/result"
SCHEMA_VERSION = 2
MAX_BYTES = 32 * 1024 * 1024

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# Limits for the number of comparisons in a report.
MAX_WORKLOADS = 200
# What a look can end a comparison with.
OUTCOMES = (verdicts.GAIN, verdicts.LOSS, verdicts.EQUIVALENT, decisions.FUTILE)
MAX_SERIES = 20_000
# Values closer to zero than this are rejected: their ratios overflow.
MIN_NUMBER = 1e-30

_RUN = re.compile(RUN_NAME.replace("$", r"\Z"))

_TEXT_OR_NULL = schema.or_null(schema.TEXT)
_NUMBER_OR_NULL = schema.or_null(schema.NUMBER)
_COUNT_OR_NULL = schema.or_null(schema.count())
_SECONDS_OR_NULL = schema.or_null(schema.SECONDS)
_SHARE_OR_NULL = schema.or_null(schema.SHARE)
_BOOL_OR_NULL = schema.or_null(schema.BOOL)
_BETTER = schema.one_of("higher", "lower")
_SENTENCES = schema.items(schema.TEXT, 100_000)
_MOMENT = schema.or_null(schema.MOMENT)

# Names declared by this collection or by the user, with the syntax of the packages that declare them.
_WORKLOAD_NAME = schema.text(100, r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
_METRIC_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,99}$"
_PLACEMENT_NAME = r"^([a-z_]{1,40}|packages_2|(free|spread|packed)_[1-9][0-9]{0,3}|cpus(_[0-9]{1,5}){1,16})$"
_ARM = schema.text(arms.LONGEST_NAME, arms.NAME)
MAX_ARMS = 20
_PLACEMENT = schema.text(placements.LONGEST_NAME, _PLACEMENT_NAME)

_VALUE = schema.whole(
    value=schema.about(_NUMBER_OR_NULL, "The value; null where it could not be measured."),
    unit=schema.about(schema.TEXT, "Unit of the value."),
    better=schema.about(_BETTER, "Whether a higher or a lower value is better."),
)
_METRICS = 100
_WORKER = schema.strict(
    ("value",),
    cpus=schema.about(schema.CPU_LIST, "CPUs that it was pinned to, as a CPU list; empty where it was not."),
    value=schema.about(_NUMBER_OR_NULL, "Its value of the primary metric, in the metric's unit."),
    wall_seconds=schema.about(_SECONDS_OR_NULL, "Its duration, in seconds."),
    cpu_seconds=schema.about(_SECONDS_OR_NULL, "CPU time that it used, in seconds."),
    context_switches=schema.about(_COUNT_OR_NULL, "Number of its context switches."),
)
# Keys are CPUs, or cores by their CPUs ("0,4").
_USAGE = schema.or_null(schema.mapping(_SHARE_OR_NULL, schema.MAX_CPUS, schema.CPU_NUMBERS))
_COUNTERS = schema.mapping(
    schema.strict(
        cycles=schema.about(_NUMBER_OR_NULL, "CPU cycles."),
        instructions=schema.about(_NUMBER_OR_NULL, "Retired instructions."),
        ipc=schema.about(_NUMBER_OR_NULL, "Instructions per cycle."),
        cpi=schema.about(_NUMBER_OR_NULL, "Cycles per instruction."),
    ),
    schema.MAX_CPUS,
    schema.CPU_NUMBERS,
)

# What the host did beside the work of a sample.
_TELEMETRY = schema.strict(
    (),
    cpu_usage=schema.about(_USAGE, "CPU number -> the share of its time that it was busy, 0 to 1."),
    core_usage=schema.about(
        _USAGE, "Core, as the numbers of its CPUs -> the share of all its CPUs' time that they were busy, 0 to 1."
    ),
    steal=schema.about(_SHARE_OR_NULL, "Share of all CPUs' time that a hypervisor took, 0 to 1."),
    frequency=schema.about(
        schema.or_null(schema.mapping(_NUMBER_OR_NULL, schema.MAX_CPUS, schema.CPU_NUMBERS)),
        "CPU number -> its frequency in MHz, the mean of begin and end.",
    ),
    throttled=schema.about(
        _COUNT_OR_NULL, "Number of thermal throttle events; null where the kernel does not count them."
    ),
    perf=schema.about(
        schema.or_null(
            schema.strict(
                reason=schema.about(_TEXT_OR_NULL, "Why there are no counters; null where there are."),
                cpus=schema.about(_COUNTERS, "CPU number -> its counters."),
                cores=schema.about(_COUNTERS, "Core, as the numbers of its CPUs -> the counters of all its CPUs."),
            )
        ),
        "Hardware counters during the sample.",
    ),
)

_SAMPLE = schema.strict(
    ("workload", "placement", "arm", "block", "ok", "metrics"),
    workload=schema.about(_WORKLOAD_NAME, "Name of the workload."),
    placement=schema.about(_PLACEMENT, "Name of the placement."),
    arm=schema.about(_ARM, "Name of the arm."),
    block=schema.about(schema.count(1_000_000), "Number of its block, from 0; samples of one block are paired."),
    index=schema.about(_COUNT_OR_NULL, "Its number in the order of measurement, from 0."),
    ok=schema.about(schema.BOOL, "Whether all workers succeeded."),
    error=schema.about(_TEXT_OR_NULL, "Why it failed; null where it did not."),
    started=schema.about(_MOMENT, "Time of its start, UTC."),
    wall_seconds=schema.about(_SECONDS_OR_NULL, "Its duration, in seconds."),
    metrics=schema.about(
        schema.mapping(_VALUE, _METRICS, _METRIC_NAME), "Name of a metric -> its value for all workers together."
    ),
    work=schema.about(
        _NUMBER_OR_NULL, "Work of one worker, in the unit of the workload; null for a workload that runs for a time."
    ),
    workers=schema.about(schema.or_null(schema.items(_WORKER, schema.MAX_CPUS)), "One entry for each worker."),
    parameter=schema.about(
        _NUMBER_OR_NULL, "Value of the workload's parameter, in its unit; null for a workload without one."
    ),
    telemetry=schema.about(schema.or_null(_TELEMETRY), "What the host did beside the work."),
    boot=schema.about(_COUNT_OR_NULL, "Number of the boot in which it was measured; only where arms were booted."),
    pair=schema.about(
        _COUNT_OR_NULL,
        "Number of the round of boots that it belongs to, one boot of each booted arm; only where arms were booted.",
    ),
)

_WHERE = schema.strict(
    workers=schema.about(
        schema.or_null(schema.items(schema.CPU_LIST, schema.MAX_CPUS)),
        "For each worker its CPUs, as a CPU list; null where the placement does not exist.",
    ),
    memory_node=schema.about(
        _COUNT_OR_NULL, "NUMA node that all memory of the workers came from; null for the kernel's choice."
    ),
    same_as=schema.about(
        schema.or_null(_PLACEMENT),
        "Another placement with the same CPUs, whose samples are used; null where there is none.",
    ),
    reason=schema.about(_TEXT_OR_NULL, "Why the placement does not exist; null where it does."),
)

_WORKLOAD = schema.strict(
    ("name", "title", "primary", "metrics"),
    name=schema.about(_WORKLOAD_NAME, "Name of the workload."),
    title=schema.about(schema.TEXT, "What it is, for people."),
    primary=schema.about(schema.text(100, _METRIC_NAME), "Name of the metric that decides."),
    metrics=schema.about(
        schema.mapping(
            schema.whole(
                unit=schema.about(schema.TEXT, "Unit of its values."),
                better=schema.about(_BETTER, "Whether a higher or a lower value is better."),
                aggregate=schema.about(
                    schema.one_of("sum", "max", "mean", "per_job"), "How the values of all workers become one."
                ),
            ),
            _METRICS,
            _METRIC_NAME,
        ),
        "Name of a metric -> what it is.",
    ),
    argv=schema.about(schema.or_null(schema.items(schema.TEXT, 1000)), "The command of a worker."),
    package=schema.about(_TEXT_OR_NULL, "Debian package with the command; null without one."),
    nice=schema.about(_NUMBER_OR_NULL, "Niceness of the workers."),
    co_runners=schema.about(_COUNT_OR_NULL, "Number of busy loops on each of the workers' CPUs."),
    memory=schema.about(_NUMBER_OR_NULL, "Memory of one worker, in MB (1,000,000 bytes)."),
    parameter=schema.about(
        schema.or_null(
            schema.whole(
                per_worker=schema.about(
                    schema.BOOL,
                    "Whether it is the load that each worker is offered: only the highest value is compared.",
                ),
                name=schema.about(schema.NAME, "Name of the parameter."),
                unit=schema.about(_TEXT_OR_NULL, "Its unit; null without one."),
                values=schema.about(schema.items(schema.NUMBER, 1000), "Its values, in its unit."),
            )
        ),
        "What it is measured at several values of; null for a workload without one.",
    ),
    response_limit=schema.about(_SECONDS_OR_NULL, "Longest response time allowed, in seconds; null without a limit."),
)

_SETTING = {"type": ["string", "number", "null"], "maxLength": schema.MAX_TEXT}
_SETTINGS = schema.or_null(schema.mapping(_NUMBER_OR_NULL, 100))
_CPU_STATE = schema.or_null(
    schema.strict(
        control=schema.about(_TEXT_OR_NULL, "Content of smt/control; null where it is not known."),
        online=schema.about(
            schema.or_null(schema.items(schema.CPU, schema.MAX_CPUS)), "Numbers of the CPUs that were online."
        ),
        sysctls=schema.about(_SETTINGS, "Name of a sysctl -> its value, of arms of the memory policy."),
        settings=schema.about(schema.mapping(_SETTING, 100), "What else arms switched -> its value."),
    )
)

_OBSERVATION = schema.strict(
    ("arm",),
    arm=schema.about(_ARM, "Name of the arm."),
    settings=schema.about(_SETTINGS, "Name of a sysctl -> its value."),
    headroom_bytes=schema.about(_NUMBER_OR_NULL, "Memory that can still be committed, in bytes."),
    asked_bytes=schema.about(_NUMBER_OR_NULL, "Memory that the overcommit test asked for, in bytes."),
    allocatable=schema.about(
        schema.or_null(
            schema.strict(
                largest_bytes=schema.about(_NUMBER_OR_NULL, "Largest single allocation, in bytes."),
                total_bytes=schema.about(_NUMBER_OR_NULL, "Sum of all allocations, in bytes."),
                total_limited=schema.about(
                    _BOOL_OR_NULL, "Whether the kernel ended the sum; false where the measurement stopped by itself."
                ),
            )
        ),
        "Memory that processes could allocate.",
    ),
    allocatable_reason=schema.about(_TEXT_OR_NULL, "Why this was not measured; null where it was."),
    overcommit_test=schema.about(
        schema.or_null(
            schema.strict(
                ("outcome",),
                outcome=schema.about(schema.TEXT, "What happened."),
                touched_bytes=schema.about(
                    _NUMBER_OR_NULL, "Memory that the process wrote to before it ended, in bytes."
                ),
            )
        ),
        "What happened to a process that asked for more memory than there is.",
    ),
    overcommit_test_reason=schema.about(_TEXT_OR_NULL, "Why this was not tested; null where it was."),
    cmdline=schema.about(_TEXT_OR_NULL, "The kernel's command line in the first boot of the arm."),
    smt=schema.about(
        schema.strict(
            control=schema.about(_TEXT_OR_NULL, "Content of smt/control in that boot."),
            active=schema.about(_BOOL_OR_NULL, "Whether SMT was active."),
            online=schema.about(schema.or_null(schema.CPU_LIST), "CPUs that were online, as a CPU list."),
        ),
        "SMT in that boot.",
    ),
    vulnerabilities=schema.about(
        facts.VULNERABILITIES, "The kernel's status of each vulnerability in that boot, as in the facts."
    ),
)

# The baseline comes first.
ARMS = schema.items(
    schema.whole(
        name=schema.about(_ARM, "Name of the arm."),
        title=schema.about(schema.NAME, "What it is, for people."),
        baseline=schema.about(schema.BOOL, "Whether the others are compared with it."),
        settings=schema.about(
            schema.mapping(_SETTING, 100, r"^[A-Za-z0-9_./-]{1,100}$"), "Name of a setting -> its value in this arm."
        ),
    ),
    MAX_ARMS,
)
ARMS_LEFT_OUT = schema.items(
    schema.whole(
        name=schema.about(_ARM, "Name of the arm."),
        title=schema.about(schema.NAME, "What it is, for people."),
        reason=schema.about(schema.TEXT, "Why it was not measured."),
    ),
    MAX_ARMS,
)

# The detail of an event: a sentence, or values that change from block to block.
_DETAIL = {
    "type": ["string", "object", "null"],
    "maxLength": schema.MAX_TEXT,
    "maxProperties": 20,
    "propertyNames": {"pattern": r"^[a-z_]{1,40}$"},
    "additionalProperties": {"type": ["string", "number", "null"], "maxLength": schema.MAX_TEXT},
}

SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What one host measured in one run",
    "smt_eval_results/RUN/HOST.json on the controller. Beyond this schema, samples name only arms, workloads, metrics"
    " and parameter values of the plan.",
    schema.strict(
        ("run", "host", "outcome", "facts", "environment", "arms", "plan", "samples"),
        run=schema.about(schema.text(100, RUN_NAME), "Name of the run."),
        host=schema.about(schema.NAME, "Name of the host in the inventory."),
        collection_version=schema.about(_TEXT_OR_NULL, "Version of threadwise.smt that measured."),
        started=schema.about(_MOMENT, "Time of the start, UTC, by the host's clock."),
        finished=schema.about(_MOMENT, "Time of the end, UTC, by the host's clock; null for a plan that was killed."),
        collected=schema.about(
            _MOMENT, "Time at which the controller fetched the result, UTC, by the controller's clock."
        ),
        fetched=schema.about(
            schema.items(schema.text(100, RUN_NAME), 100),
            "Names of earlier runs of the host that the controller fetched first, because no controller had; their"
            " results are in the directory of runs.",
        ),
        costs=schema.about(
            schema.or_null(
                schema.strict(
                    price_per_hour=schema.about(
                        _NUMBER_OR_NULL, "Price of the host per hour, in any currency; null where none was given."
                    ),
                    licence_per=schema.about(
                        schema.one_of("core", "thread", "host", None),
                        "What the host's licences count; null where nothing was given.",
                    ),
                )
            ),
            "What the controller's user says of the host's price.",
        ),
        outcome=schema.about(schema.one_of("completed", "failed", "interrupted"), "How the plan ended."),
        message=schema.about(_TEXT_OR_NULL, "Why it did not complete; null where it did."),
        facts=schema.about(facts.SMT, "Facts of the host before the run, as the module smt_facts returns them."),
        environment=schema.about(
            schema.strict(
                busy=schema.about(
                    schema.or_null(
                        schema.strict(
                            others=schema.about(
                                _SHARE_OR_NULL,
                                "The highest share of all CPUs' time that other processes used before a block, 0 to 1.",
                            )
                        )
                    ),
                    "What ran beside the measurement.",
                ),
                load_average=schema.about(_NUMBER_OR_NULL, "Load average over one minute at the start, processes."),
                kernel=schema.about(_TEXT_OR_NULL, "Release of the kernel."),
                architecture=schema.about(_TEXT_OR_NULL, "Architecture, as uname -m prints it."),
                python=schema.about(_TEXT_OR_NULL, "Version of the host's Python."),
                cmdline=schema.about(_TEXT_OR_NULL, "The kernel's command line."),
                governor=schema.about(_TEXT_OR_NULL, "Frequency governor; null without cpufreq."),
                hypervisor=schema.about(_TEXT_OR_NULL, "Name of the hypervisor; null on a machine of its own."),
                cpu_model=schema.about(_TEXT_OR_NULL, "Model of the processor."),
                microcode=schema.about(_TEXT_OR_NULL, "Version of the microcode."),
                nominal_mhz=schema.about(
                    _NUMBER_OR_NULL,
                    "Nominal frequency of CPU 0, MHz, or the one that the controller's user names; null where neither"
                    " the kernel nor the model's name has it.",
                ),
            ),
            "What the measurement ran in.",
        ),
        arms=schema.about(ARMS, "What was compared; the first is the baseline. One alone compares nothing."),
        arms_left_out=schema.about(
            schema.or_null(ARMS_LEFT_OUT), "What was asked for and could not be measured on this host."
        ),
        plan=schema.about(
            schema.strict(
                blocks=schema.about(_COUNT_OR_NULL, "Upper limit of the number of blocks; null without one."),
                blocks_done=schema.about(_COUNT_OR_NULL, "Number of complete blocks."),
                seconds_budget=schema.about(_SECONDS_OR_NULL, "Time that the plan may take, in seconds."),
                sample_seconds=schema.about(
                    _SECONDS_OR_NULL,
                    "Intended duration of a sample, in seconds; null where the plan chose one for each workload.",
                ),
                settle_seconds=schema.about(
                    _SECONDS_OR_NULL,
                    "Pause after each switch, in seconds; of a plan that chooses it, null before its second block.",
                ),
                margin=schema.about(_SHARE_OR_NULL, "Equivalence margin, as a share: 0.02 is 2 %."),
                order=schema.about(_TEXT_OR_NULL, "How the arms are ordered in the blocks."),
                goal=schema.about(
                    _TEXT_OR_NULL, "What the plan stops for before its budget is spent: decision or precision."
                ),
                looks=schema.about(
                    schema.or_null(
                        schema.items(
                            schema.strict(
                                ("blocks", "share"),
                                blocks=schema.about(schema.count(), "Number of blocks that were done."),
                                share=schema.about(schema.SHARE, "Share of the plan that was done, 1 at its end."),
                            ),
                            schedule.MAX_LOOKS,
                        )
                    ),
                    "The looks at the samples that could end a comparison, in their order; null where the plan did not"
                    " look.",
                ),
                decided=schema.about(
                    schema.or_null(
                        schema.items(
                            schema.strict(
                                ("workload", "arm", "placement", "blocks", "outcome"),
                                workload=schema.about(_WORKLOAD_NAME, "Name of the workload."),
                                parameter=schema.about(_NUMBER_OR_NULL, "Value of its parameter; null without one."),
                                arm=schema.about(_ARM, "The arm that was compared with the baseline."),
                                placement=schema.about(_PLACEMENT, "The placement."),
                                blocks=schema.about(schema.count(), "Number of blocks that were done."),
                                outcome=schema.about(
                                    schema.one_of(*OUTCOMES),
                                    "The verdict on the host, or futile: the rest of the budget could not decide it.",
                                ),
                            ),
                            1000,
                        )
                    ),
                    "The main comparisons that a look has ended.",
                ),
                stopped=schema.about(
                    _TEXT_OR_NULL,
                    "Why the plan ended: gain, loss, equivalent or futile (of the comparison that ended last), precise,"
                    " budget, blocks, nothing or size.",
                ),
                switches=schema.about(
                    schema.or_null(
                        schema.mapping(
                            schema.strict(
                                ("count", "seconds"),
                                count=schema.about(schema.count(), "How often the host was switched to the arm."),
                                seconds=schema.about(
                                    schema.SECONDS,
                                    "How long that took in the median, in seconds, without the pause after it.",
                                ),
                            ),
                            MAX_ARMS,
                            arms.NAME,
                        )
                    ),
                    "What switching took: arm -> how often and how long; null where the plan did not end by itself.",
                ),
                boots=schema.about(
                    _COUNT_OR_NULL, "How often the host was booted in each arm; null where nothing was booted."
                ),
                booted=schema.about(
                    schema.or_null(schema.items(_ARM, MAX_ARMS)),
                    "Names of the arms that had boots of their own, the baseline first; the others were switched within"
                    " the boots of the baseline.",
                ),
                confounded=schema.about(
                    _BOOL_OR_NULL,
                    "Whether each booted arm was measured in one boot only, so that nothing can be decided about it.",
                ),
                workloads=schema.about(schema.or_null(schema.items(_WORKLOAD, MAX_WORKLOADS)), "What was run."),
                placements=schema.about(
                    schema.or_null(schema.mapping(schema.mapping(_WHERE, 100, _PLACEMENT_NAME), MAX_ARMS, arms.NAME)),
                    "Arm -> placement -> on which CPUs its workers run.",
                ),
            ),
            "What was to be measured.",
        ),
        samples=schema.about(schema.items(_SAMPLE, 500_000), "The samples, in the order of measurement."),
        skipped=schema.about(
            schema.items(
                schema.strict(
                    ("reason",),
                    workload=schema.about(schema.or_null(_WORKLOAD_NAME), "Name of the workload; null for all."),
                    placement=schema.about(schema.or_null(_PLACEMENT), "Name of the placement; null for all."),
                    arm=schema.about(schema.or_null(_ARM), "Name of the arm; null for all."),
                    reason=schema.about(schema.TEXT, "Why it was not measured."),
                ),
                100_000,
            ),
            "What the plan names and could not be measured.",
        ),
        observations=schema.about(
            schema.or_null(schema.items(_OBSERVATION, 100)),
            "What was seen of an arm besides its samples, one entry for each arm of the memory policy and each arm that"
            " was booted.",
        ),
        events=schema.about(
            schema.items(
                schema.strict(
                    ("event",),
                    at=schema.about(_MOMENT, "Time, UTC."),
                    event=schema.about(schema.text(40, r"^[a-z_]+$"), "Kind of the event."),
                    detail=schema.about(_DETAIL, "A sentence, or values with names."),
                ),
                500_000,
            ),
            "What happened during the run.",
        ),
        restored=schema.about(
            schema.or_null(
                schema.strict(
                    ("ok",),
                    ok=schema.about(
                        _BOOL_OR_NULL, "Whether the host is as it was found; null where this is not known."
                    ),
                    before=schema.about(_CPU_STATE, "The host before the run."),
                    after=schema.about(_CPU_STATE, "The host after the run."),
                    differences=schema.about(schema.or_null(_SENTENCES), "A sentence for each difference."),
                )
            ),
            "Whether the host was left as it was found; null where nothing was switched or the plan was killed.",
        ),
    ),
)
_CHECKER = schema.Checker(SCHEMA)


class ResultError(text.BorderError):
    """A result cannot be read, validated or written. The message names the file, the reason and what to do."""


def is_run_name(name: t.Any) -> bool:
    """Return whether a run name is valid: safe as a file name, in a shell and on a terminal."""
    return isinstance(name, str) and _RUN.match(name) is not None


def parse(document_text: str, source: str) -> dict[str, t.Any]:
    """Parse and validate the JSON text of a result.

    Args:
        document_text: the JSON text.
        source: the file's or host's name, for messages.

    Raises:
        ResultError: larger than ``MAX_BYTES``, not JSON, NaN or infinite numbers, another schema or version, or does
            not match :data:`SCHEMA`.
    """
    see_size(len(document_text), source)
    try:
        document = text.parse(document_text)
    except text.BorderError as error:
        raise ResultError(f"{source}: {error}: collect this host again") from None
    return accept(document, source)


def see_size(size: int, source: str) -> None:
    """Check that a result is small enough to be read back.

    Args:
        size: in bytes.
        source: the file's or host's name, for messages.

    Raises:
        ResultError: it is larger than ``MAX_BYTES``.
    """
    if size > MAX_BYTES:
        raise ResultError(
            f"{source}: {size / 1024 / 1024:.0f} MiB, larger than the limit of {MAX_BYTES // 1024 // 1024} MiB for a"
            " result: measure fewer blocks, workloads or placements in one run"
        )


def accept(document: t.Any, source: str) -> dict[str, t.Any]:
    """Validate plain JSON data as a result and add its missing optional parts.

    Args:
        document: plain data whose strings are safe to display.
        source: the file's or host's name, for messages.

    Raises:
        ResultError: not valid; the message names the place of the first error.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA_NAME:
        raise ResultError(f'{source}: not a result of this collection (its "schema" is not "{SCHEMA_NAME}")')
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ResultError(
            f"{source}: schema_version {text.line(version, 160)}, this collection reads version {SCHEMA_VERSION}:"
            " evaluate this host again, or use the version of threadwise.smt that collected it"
            f" ({text.line(document.get('collection_version'), 160)})"
        )
    try:
        _CHECKER.check(document)
        facts.check(document["facts"])
        _check(document)
    except text.BorderError as error:
        raise ResultError(f"{source}: {error}") from None
    # A plan that was killed did not write these.
    absent: dict[str, t.Any] = {
        "message": None,
        "finished": None,
        "collected": None,
        "restored": None,
        "fetched": [],
        "skipped": [],
        "events": [],
        "observations": [],
        "arms_left_out": [],
    }
    return {**absent, **document}


def _check(document: dict[str, t.Any]) -> None:
    """Check that samples match the plan and the arms, that the number of series is within its limit,
    and that times are valid.
    """
    named = _arms(document)
    declared = _workloads(document)
    series = set()
    for position, sample in enumerate(document["samples"]):
        value = sample.get("parameter")
        series.add((sample["workload"], sample["placement"], sample["arm"], value))
        if sample["arm"] not in named:
            raise text.BorderError(f"samples.{position}: the result has no arm {sample['arm']}")
        if sample["workload"] not in declared:
            raise text.BorderError(f"samples.{position}: the plan has no workload {sample['workload']}")
        values, metrics = declared[sample["workload"]]
        if value not in values:
            raise text.BorderError(f"samples.{position}: the plan does not measure {sample['workload']} at {value}")
        if len(series) > MAX_SERIES:
            raise text.BorderError(
                f"samples: more than {MAX_SERIES} combinations of workload, placement, arm and parameter value"
            )
        for name, metric in sample["metrics"].items():
            if name not in metrics or (metric["unit"], metric["better"]) != metrics[name]:
                raise text.BorderError(f"samples.{position}: the plan does not declare the metric {name} like this")
            if metric["value"] is not None and 0 < abs(metric["value"]) < MIN_NUMBER:
                raise text.BorderError(
                    f"samples.{position}: the value {metric['value']} is too close to zero: the limit is {MIN_NUMBER}"
                )
    _looks(document["plan"].get("looks") or [])
    for name in ("started", "finished", "collected"):
        moment(document.get(name), name)


def _looks(looks: list[dict[str, t.Any]]) -> None:
    """Check that each look came later than the one before it, and spends something."""
    before = {"blocks": 0, "share": 0.0}
    for position, look in enumerate(looks):
        if look["blocks"] <= before["blocks"] or look["share"] <= before["share"]:
            raise text.BorderError(f"plan.looks.{position}: blocks and share have to rise from look to look")
        before = look


def _arms(document: dict[str, t.Any]) -> set[str]:
    """Return the names of the arms: each once, with one baseline, the first."""
    given = document["arms"]
    names = {arm["name"] for arm in given}
    if (
        not given
        or len(names) < len(given)
        or [arm["baseline"] for arm in given] != [True] + [False] * (len(given) - 1)
    ):
        raise text.BorderError("arms: it must name each arm once, and the first one alone is the baseline")
    for field in ("placements", "switches"):
        unknown = sorted(set(document["plan"].get(field) or {}) - names)
        if unknown:
            raise text.BorderError(f"plan.{field}: the result has no arm {unknown[0]}")
    return names


def _workloads(document: dict[str, t.Any]) -> dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]]:
    """Return the parameter values at which the plan measures each workload (None without a parameter),
    and unit and direction of its metrics.
    """
    found: dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]] = {}
    for workload in document["plan"].get("workloads") or []:
        values = workload["parameter"]["values"] if workload.get("parameter") else [None]
        # Formatted as in the metrics file, where equal texts would be a duplicate series.
        if workload["name"] in found or len({"" if value is None else f"{value:.12g}" for value in values}) < len(
            values
        ):
            raise text.BorderError(f"plan.workloads: {workload['name']} or one of its parameter values is listed twice")
        if workload["primary"] not in workload["metrics"]:
            raise text.BorderError(f"plan.workloads: {workload['name']} has no metric {workload['primary']}")
        difference = catalogue.difference(workload)
        if difference:
            raise text.BorderError(
                f"plan.workloads: {workload['name']} {text.line(difference, 300)}: a workload of this collection is"
                " declared by it alone"
            )
        found[workload["name"]] = (
            set(values),
            {name: (metric["unit"], metric["better"]) for name, metric in workload["metrics"].items()},
        )
    return found


def moment(value: str | None, name: str) -> datetime.datetime | None:
    """Parse a time of a result (UTC, ISO 8601).

    Args:
        value: the text, or None.
        name: the field's name, for messages.

    Returns:
        The time, aware of its zone; None for None.

    Raises:
        BorderError: not a valid time.
    """
    if value is None:
        return None
    try:
        return datetime.datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    except ValueError as error:
        raise text.BorderError(f"{name}: {value} is not a valid time") from error
