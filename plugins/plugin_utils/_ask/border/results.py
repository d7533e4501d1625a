# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the result of one host crosses the border, and the consistency of its parts.

A result comes from a managed host, which may be broken or hostile. A result accepted by :func:`parse` has the types and
sizes of :class:`host_result.HostResult` and nothing else, only finite numbers, and strings that are safe to encode and
display. Otherwise the error names the source and the reason.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts, parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    HostResult,
    Look,
)

MAX_BYTES = 32 * 1024 * 1024
MAX_SERIES = 20_000
# Values closer to zero than this are rejected: their ratios overflow.
MIN_NUMBER = 1e-30

SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What one host measured in one run",
    "smt_eval_results/RUN/HOST.json on the controller. Beyond this schema, samples name only arms, workloads, metrics"
    " and parameter values of the plan.",
    parts.schema_of(HostResult, docstrings=True),
)
_RUN = re.compile(schema.RUN_NAME.replace("$", r"\Z"))


class ResultError(text.BorderError):
    """A result cannot be read, validated or written. The message names the file, the reason and what to do."""


def is_run_name(name: t.Any) -> bool:
    """Return whether a run name is valid: safe as a file name, in a shell and on a terminal."""
    return isinstance(name, str) and _RUN.match(name) is not None


def parse(document_text: str, source: str) -> HostResult:
    """Make a result from JSON text.

    Args:
        document_text: the JSON text.
        source: the file's or host's name, for messages.

    Raises:
        ResultError: larger than ``MAX_BYTES``, not JSON, NaN or infinite numbers, another schema or version, or not
            what :class:`host_result.HostResult` holds.
    """
    see_size(len(document_text), source)
    try:
        _see_version(parts.decoded(document_text, _HEAD), source)
    except ResultError:
        raise
    except text.BorderError as error:
        raise ResultError(f"{source}: {error}: collect this host again") from None
    return _made(lambda: parts.decoded(document_text, HostResult), source)


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


def accept(document: dict[str, t.Any], source: str) -> HostResult:
    """Make a result from plain JSON data.

    Args:
        document: plain data whose strings are safe to display.
        source: the file's or host's name, for messages.

    Raises:
        ResultError: not valid; the message names the place of the first error.
    """
    _see_version(parts.converted(document, _Head), source)
    return _made(lambda: parts.converted(document, HostResult), source)


class _Head(parts.Part, frozen=True, forbid_unknown_fields=False):
    """What tells whether the rest can be read."""

    schema: t.Any = None
    schema_version: t.Any = None
    collection_version: t.Any = None


# Or other JSON.
_HEAD: t.Any = _Head | str | int | float | bool | list[t.Any] | None


def _see_version(head: t.Any, source: str) -> None:
    """Refuse what is no result, or one of another version."""
    if not isinstance(head, _Head) or head.schema != SCHEMA_NAME:
        raise ResultError(f'{source}: not a result of this collection (its "schema" is not "{SCHEMA_NAME}")')
    if head.schema_version != SCHEMA_VERSION or isinstance(head.schema_version, bool):
        raise ResultError(
            f"{source}: schema_version {text.line(head.schema_version, 160)}, this collection reads version"
            f" {SCHEMA_VERSION}: evaluate this host again, or use the version of threadwise.smt that collected it"
            f" ({text.line(head.collection_version, 160)})"
        )


def _made(make: t.Callable[[], HostResult], source: str) -> HostResult:
    try:
        result = make()
        _check(result)
    except text.BorderError as error:
        raise ResultError(f"{source}: {error}") from None
    try:
        facts.check(result.facts)
    except text.BorderError as error:
        raise ResultError(f"{source}: facts.{error}") from None
    return result


def _check(result: HostResult) -> None:
    """Check that samples match the plan and the arms, that the number of series is within its limit,
    and that times are valid.
    """
    named = _arms(result)
    declared = _workloads(result)
    series = set()
    for position, sample in enumerate(result.samples):
        series.add((sample.workload, sample.placement, sample.arm, sample.parameter))
        if sample.arm not in named:
            raise text.BorderError(f"samples.{position}: the result has no arm {sample.arm}")
        if sample.workload not in declared:
            raise text.BorderError(f"samples.{position}: the plan has no workload {sample.workload}")
        values, metrics = declared[sample.workload]
        if sample.parameter not in values:
            raise text.BorderError(
                f"samples.{position}: the plan does not measure {sample.workload} at {sample.parameter}"
            )
        if len(series) > MAX_SERIES:
            raise text.BorderError(
                f"samples: more than {MAX_SERIES} combinations of workload, placement, arm and parameter value"
            )
        for name, metric in sample.metrics.items():
            if (metric.unit, metric.better) != metrics.get(name):
                raise text.BorderError(f"samples.{position}: the plan does not declare the metric {name} like this")
            if metric.value is not None and 0 < abs(metric.value) < MIN_NUMBER:
                raise text.BorderError(
                    f"samples.{position}: the value {metric.value} is too close to zero: the limit is {MIN_NUMBER}"
                )
    _looks(result.plan.looks or ())
    for name in ("started", "finished", "collected"):
        moment(getattr(result, name), name)


def _looks(looks: t.Iterable[Look]) -> None:
    """Check that each look came later than the one before it, and spends something."""
    blocks, share = 0, 0.0
    for position, look in enumerate(looks):
        if look.blocks <= blocks or look.share <= share:
            raise text.BorderError(f"plan.looks.{position}: blocks and share have to rise from look to look")
        blocks, share = look.blocks, look.share


def _arms(result: HostResult) -> set[str]:
    """Return the names of the arms: each once, with one baseline, the first."""
    names = {arm.name for arm in result.arms}
    if (
        not result.arms
        or len(names) < len(result.arms)
        or [arm.baseline for arm in result.arms] != [True] + [False] * (len(result.arms) - 1)
    ):
        raise text.BorderError("arms: it must name each arm once, and the first one alone is the baseline")
    for field in ("placements", "switches"):
        unknown = sorted(set(getattr(result.plan, field) or {}) - names)
        if unknown:
            raise text.BorderError(f"plan.{field}: the result has no arm {unknown[0]}")
    return names


def _workloads(result: HostResult) -> dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]]:
    """Return the parameter values at which the plan measures each workload (None without a parameter),
    and unit and direction of its metrics.
    """
    by_name: dict[str, tuple[set[float | None], dict[str, tuple[str, str]]]] = {}
    for workload in result.plan.workloads or ():
        values: tuple[float | None, ...] = workload.parameter.values if workload.parameter else (None,)
        # Formatted as in the metrics file, where equal texts would be a duplicate series.
        if workload.name in by_name or len({"" if value is None else f"{value:.12g}" for value in values}) < len(
            values
        ):
            raise text.BorderError(f"plan.workloads: {workload.name} or one of its parameter values is listed twice")
        if workload.primary not in workload.metrics:
            raise text.BorderError(f"plan.workloads: {workload.name} has no metric {workload.primary}")
        difference = catalogue.difference(parts.plain(workload))
        if difference:
            raise text.BorderError(
                f"plan.workloads: {workload.name} {text.line(difference, 300)}: a workload of this collection is"
                " declared by it alone"
            )
        by_name[workload.name] = (
            set(values),
            {name: (metric.unit, metric.better) for name, metric in workload.metrics.items()},
        )
    return by_name


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
        return text.moment(value)
    except ValueError as error:
        raise text.BorderError(f"{name}: {value} is not a valid time") from error
