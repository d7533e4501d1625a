# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one host: its schema, and the consistency of its parts.

A result comes from a managed host, which may be broken or hostile. A result accepted by :func:`parse` has the types and sizes of :data:`SCHEMA` and
nothing else, only finite numbers, and strings that are safe to encode and display. Otherwise the error names the source and the reason.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, schema, text

SCHEMA_NAME = "threadwise.smt/result"
SCHEMA_VERSION = 2
MAX_BYTES = 32 * 1024 * 1024

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# Limits for the number of comparisons in a report.
MOST_WORKLOADS = 200
MOST_SERIES = 20_000
# Values closer to zero than this are rejected: their ratios overflow.
LEAST_NUMBER = 1e-30

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
_PLACEMENT_NAME = r"^([a-z_]{1,40}|streams_[0-9]{1,4})$"
_ARM_NAME = r"^[a-z][a-z0-9_]{0,59}$"
_ARM = schema.text(60, _ARM_NAME)
MOST_ARMS = 20
_PLACEMENT = schema.text(40, _PLACEMENT_NAME)

_VALUE = schema.whole(value=_NUMBER_OR_NULL, unit=schema.TEXT, better=_BETTER)
_METRICS = 100
_WORKER = schema.strict(
    ("value",),
    cpus=schema.text(schema.MAX_CPU_LIST, schema.CPU_NUMBERS),
    value=_NUMBER_OR_NULL,
    wall_seconds=_SECONDS_OR_NULL,
    cpu_seconds=_SECONDS_OR_NULL,
    context_switches=_COUNT_OR_NULL,
)
# Keys are CPUs, or cores by their CPUs ("0,4").
_USAGE = schema.or_null(schema.mapping(_SHARE_OR_NULL, schema.MOST_CPUS, schema.CPU_NUMBERS))
_COUNTERS = schema.mapping(
    schema.strict(cycles=_NUMBER_OR_NULL, instructions=_NUMBER_OR_NULL, ipc=_NUMBER_OR_NULL, cpi=_NUMBER_OR_NULL), schema.MOST_CPUS, schema.CPU_NUMBERS
)

# What the host did beside the work of a sample.
_TELEMETRY = schema.strict(
    (),
    cpu_usage=_USAGE,
    core_usage=_USAGE,
    steal=_SHARE_OR_NULL,
    frequency=schema.or_null(schema.mapping(_NUMBER_OR_NULL, schema.MOST_CPUS, schema.CPU_NUMBERS)),
    throttled=_COUNT_OR_NULL,
    perf=schema.or_null(schema.strict(reason=_TEXT_OR_NULL, cpus=_COUNTERS, cores=_COUNTERS)),
)

_SAMPLE = schema.strict(
    ("workload", "placement", "arm", "block", "ok", "metrics"),
    workload=_WORKLOAD_NAME,
    placement=_PLACEMENT,
    arm=_ARM,
    block=schema.count(1_000_000),
    index=_COUNT_OR_NULL,
    ok=schema.BOOL,
    error=_TEXT_OR_NULL,
    started=_MOMENT,
    wall_seconds=_SECONDS_OR_NULL,
    metrics=schema.mapping(_VALUE, _METRICS, _METRIC_NAME),
    work=_NUMBER_OR_NULL,
    workers=schema.or_null(schema.items(_WORKER, schema.MOST_CPUS)),
    parameter=_NUMBER_OR_NULL,
    telemetry=schema.or_null(_TELEMETRY),
    boot=_COUNT_OR_NULL,
    pair=_COUNT_OR_NULL,
)

_WHERE = schema.strict(
    workers=schema.or_null(schema.items(schema.items(schema.CPU, schema.MOST_CPUS), schema.MOST_CPUS)),
    same_as=schema.or_null(_PLACEMENT),
    reason=_TEXT_OR_NULL,
)

_WORKLOAD = schema.strict(
    ("name", "title", "primary", "metrics"),
    name=_WORKLOAD_NAME,
    title=schema.TEXT,
    # The metric that decides.
    primary=schema.text(100, _METRIC_NAME),
    metrics=schema.mapping(schema.whole(unit=schema.TEXT, better=_BETTER, aggregate=schema.one_of("sum", "max", "mean", "per_job")), _METRICS, _METRIC_NAME),
    argv=schema.or_null(schema.items(schema.TEXT, 1000)),
    package=_TEXT_OR_NULL,
    nice=_NUMBER_OR_NULL,
    co_runners=_COUNT_OR_NULL,
    memory=_NUMBER_OR_NULL,
    # The parameter of a workload that is measured at several of its values.
    parameter=schema.or_null(schema.whole(name=schema.NAME, unit=_TEXT_OR_NULL, values=schema.items(schema.NUMBER, 1000))),
)

_SETTING = {"type": ["string", "number", "null"], "maxLength": schema.MAX_TEXT}
_SETTINGS = schema.or_null(schema.mapping(_NUMBER_OR_NULL, 100))
_CPU_STATE = schema.or_null(schema.strict(control=_TEXT_OR_NULL, online=schema.or_null(schema.items(schema.CPU, schema.MOST_CPUS)), sysctls=_SETTINGS))

_OBSERVATION = schema.strict(
    ("arm",),
    arm=_ARM,
    settings=_SETTINGS,
    headroom_bytes=_NUMBER_OR_NULL,
    asked_bytes=_NUMBER_OR_NULL,
    allocatable=schema.or_null(schema.strict(largest_bytes=_NUMBER_OR_NULL, total_bytes=_NUMBER_OR_NULL, total_limited=_BOOL_OR_NULL)),
    allocatable_reason=_TEXT_OR_NULL,
    overcommit_test=schema.or_null(schema.strict(("outcome",), outcome=schema.TEXT, touched_bytes=_NUMBER_OR_NULL)),
    overcommit_test_reason=_TEXT_OR_NULL,
)

# The baseline comes first.
ARMS = schema.items(
    schema.whole(name=_ARM, title=schema.NAME, baseline=schema.BOOL, settings=schema.mapping(_SETTING, 100, r"^[A-Za-z0-9_./-]{1,100}$")), MOST_ARMS
)
ARMS_LEFT_OUT = schema.items(schema.whole(name=_ARM, title=schema.NAME, reason=schema.TEXT), MOST_ARMS)

# The detail of an event: a sentence, or values that change from block to block.
_DETAIL = {
    "type": ["string", "object", "null"],
    "maxLength": schema.MAX_TEXT,
    "maxProperties": 20,
    "propertyNames": {"pattern": r"^[a-z_]{1,40}$"},
    "additionalProperties": {"type": ["string", "number", "null"], "maxLength": schema.MAX_TEXT},
}

SCHEMA: dict[str, t.Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What one host measured in one run",
    **schema.strict(
        ("schema", "schema_version", "run", "host", "outcome", "facts", "environment", "arms", "plan", "samples"),
        schema={"const": SCHEMA_NAME},
        schema_version={"const": SCHEMA_VERSION},
        run=schema.text(100, RUN_NAME),
        host=schema.NAME,
        collection_version=_TEXT_OR_NULL,
        started=_MOMENT,
        finished=_MOMENT,
        collected=_MOMENT,
        outcome=schema.one_of("completed", "failed", "interrupted"),
        message=_TEXT_OR_NULL,
        facts=facts.SMT,
        environment=schema.strict(
            busy=schema.or_null(schema.strict(others=_SHARE_OR_NULL)),
            load_average=_NUMBER_OR_NULL,
            **dict.fromkeys(("kernel", "architecture", "python", "cmdline", "governor", "hypervisor", "cpu_model", "microcode"), _TEXT_OR_NULL),
        ),
        arms=ARMS,
        arms_left_out=schema.or_null(ARMS_LEFT_OUT),
        plan=schema.strict(
            blocks=_COUNT_OR_NULL,
            blocks_done=_COUNT_OR_NULL,
            seconds_budget=_SECONDS_OR_NULL,
            sample_seconds=_SECONDS_OR_NULL,
            settle_seconds=_SECONDS_OR_NULL,
            margin=_SHARE_OR_NULL,
            order=_TEXT_OR_NULL,
            stopped=_TEXT_OR_NULL,
            # How often the host was booted in each arm; null where nothing was booted.
            boots=_COUNT_OR_NULL,
            confounded=_BOOL_OR_NULL,
            workloads=schema.or_null(schema.items(_WORKLOAD, MOST_WORKLOADS)),
            placements=schema.or_null(schema.mapping(schema.mapping(_WHERE, 100, _PLACEMENT_NAME), MOST_ARMS, _ARM_NAME)),
        ),
        samples=schema.items(_SAMPLE, 500_000),
        skipped=schema.items(
            schema.strict(
                ("reason",),
                workload=schema.or_null(_WORKLOAD_NAME),
                placement=schema.or_null(_PLACEMENT),
                arm=schema.or_null(_ARM),
                reason=schema.TEXT,
            ),
            100_000,
        ),
        observations=schema.or_null(schema.items(_OBSERVATION, 100)),
        events=schema.items(schema.strict(("event",), at=_MOMENT, event=schema.text(40, r"^[a-z_]+$"), detail=_DETAIL), 500_000),
        restored=schema.or_null(schema.strict(("ok",), ok=_BOOL_OR_NULL, before=_CPU_STATE, after=_CPU_STATE, differences=schema.or_null(_SENTENCES))),
    ),
}
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
        ResultError: larger than ``MAX_BYTES``, not JSON, NaN or infinite numbers, another schema or version, or does not match :data:`SCHEMA`.
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
            f"{source}: {size / 1024 / 1024:.0f} MiB, larger than the limit of {MAX_BYTES // 1024 // 1024} MiB for a result: "
            "measure fewer blocks, workloads or placements in one run"
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
            f"{source}: schema_version {text.line(version, 160)}, this collection reads version {SCHEMA_VERSION}: evaluate this host again, "
            f"or use the version of threadwise.smt that collected it ({text.line(document.get('collection_version'), 160)})"
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
        "skipped": [],
        "events": [],
        "observations": [],
        "arms_left_out": [],
    }
    return {**absent, **document}


def _check(document: dict[str, t.Any]) -> None:
    """Check that samples match the plan and the arms, that the number of series is within its limit, and that times are valid."""
    arms = _arms(document)
    declared = _workloads(document)
    series = set()
    for position, sample in enumerate(document["samples"]):
        value = sample.get("parameter")
        series.add((sample["workload"], sample["placement"], sample["arm"], value))
        if sample["arm"] not in arms:
            raise text.BorderError(f"samples.{position}: the result has no arm {sample['arm']}")
        if sample["workload"] not in declared:
            raise text.BorderError(f"samples.{position}: the plan has no workload {sample['workload']}")
        values, metrics = declared[sample["workload"]]
        if value not in values:
            raise text.BorderError(f"samples.{position}: the plan does not measure {sample['workload']} at {value}")
        if len(series) > MOST_SERIES:
            raise text.BorderError(f"samples: more than {MOST_SERIES} combinations of workload, placement, arm and parameter value")
        for name, metric in sample["metrics"].items():
            if name not in metrics or (metric["unit"], metric["better"]) != metrics[name]:
                raise text.BorderError(f"samples.{position}: the plan does not declare the metric {name} like this")
            if metric["value"] is not None and 0 < abs(metric["value"]) < LEAST_NUMBER:
                raise text.BorderError(f"samples.{position}: the value {metric['value']} is too close to zero: the limit is {LEAST_NUMBER}")
    for name in ("started", "finished", "collected"):
        moment(document.get(name), name)


def _arms(document: dict[str, t.Any]) -> set[str]:
    """Return the names of the arms: each once, with one baseline, the first."""
    arms = document["arms"]
    names = {arm["name"] for arm in arms}
    if not arms or len(names) < len(arms) or [arm["baseline"] for arm in arms] != [True] + [False] * (len(arms) - 1):
        raise text.BorderError("arms: it must name each arm once, and the first one alone is the baseline")
    unknown = sorted(set(document["plan"].get("placements") or {}) - names)
    if unknown:
        raise text.BorderError(f"plan.placements: the result has no arm {unknown[0]}")
    return names


def _workloads(document: dict[str, t.Any]) -> dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]]:
    """Return the parameter values at which the plan measures each workload (None without a parameter), and unit and direction of its metrics."""
    found: dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]] = {}
    for workload in document["plan"].get("workloads") or []:
        values = workload["parameter"]["values"] if workload.get("parameter") else [None]
        # Formatted as in the metrics file, where equal texts would be a duplicate series.
        if workload["name"] in found or len({"" if value is None else f"{value:.12g}" for value in values}) < len(values):
            raise text.BorderError(f"plan.workloads: {workload['name']} or one of its parameter values is listed twice")
        if workload["primary"] not in workload["metrics"]:
            raise text.BorderError(f"plan.workloads: {workload['name']} has no metric {workload['primary']}")
        found[workload["name"]] = set(values), {name: (metric["unit"], metric["better"]) for name, metric in workload["metrics"].items()}
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
