# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial: its design, what each host did, and the looks.

They are kept for years, and travel between controllers. Each is checked as it is read before it is written: what one
host's record holds never keeps the others, or the report, from reading.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import itertools
import json
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import spending, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    ArmName,
    Better,
    Count,
    CpuList,
    LineKey,
    Moment,
    Name,
    RunName,
    Seconds,
    Text,
    about,
    at_most,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, units

SCHEMA_NAME = "threadwise.smt/trial"
SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
MAX_HOSTS = 10_000
MAX_PERIODS = 10_000
MAX_POINTS = 600
# Begins why a trial ended that was decided, and the reason of the periods that this cut.
DECIDED = "each arm is decided: "
# The longest sentence in a record, in characters, and the fields that have one.
MAX_SAID = 2000
_SENTENCES = ("reason", "detail")
# Seconds by which a point may be outside of its period: servers that keep answers put points on steps of their own.
_ALIGNED = 60.0

MetricName = t.Annotated[str, text_of(60, r"^[a-z][a-z0-9_]*$")]
_MetricKey = t.Annotated[str, text_of(None, r"^[a-z][a-z0-9_]{0,59}$")]
_Value = (
    t.Annotated[int, parts.between(-schema.MAX_NUMBER, schema.MAX_NUMBER)]
    | t.Annotated[float, parts.between(-1e100, 1e100)]
)
_DesignName = t.Literal["switchback", "parallel"]


class RecordError(text.BorderError):
    """A record would not be valid when it is read, and is not written."""


class Arm(parts.Part, frozen=True):
    """An arm of a trial."""

    name: t.Annotated[ArmName, about("Name of the arm.")]
    title: t.Annotated[str, text_of(300), about("What it is, for people.")]


class Metric(parts.Part, frozen=True, rename={"is_primary": "primary"}):
    """A metric of the service."""

    name: t.Annotated[MetricName, about("Name of the metric.")]
    unit: t.Annotated[str, text_of(40), about("Unit of its values; empty without one.")]
    better: t.Annotated[Better, about("Whether a higher or a lower value is better.")]
    is_primary: t.Annotated[bool, about("Whether the trial is decided by it; true for one metric.")]
    per: t.Annotated[MetricName | None, about("Metric that it is divided by in each period; null for none.")]


class Schedule(parts.Part, frozen=True):
    """What a host does in a trial."""

    first_period: t.Annotated[Count, about("Number of its first period, from 0.")]
    arms: t.Annotated[tuple[ArmName, ...], parts.from_to(1, MAX_PERIODS), about("Its arm in each period.")]


class Trial(
    parts.Part, frozen=True, kw_only=True, gc=True, dict=True, rename={"design_name": "design", "compared": "arms"}
):
    """A trial, as it was written down before the first switch."""

    schema: t.Literal["threadwise.smt/trial"]
    schema_version: t.Literal[1]
    run: t.Annotated[RunName, about("Name of the trial, that of its directory.")]
    created: t.Annotated[Moment, about("When this file was written, UTC.")]
    design_name: t.Annotated[
        _DesignName,
        parts.in_order(_DesignName),
        about("switchback: each host changes its arm; parallel: each host gets one arm."),
    ]
    seed: t.Annotated[
        int,
        parts.between(-schema.MAX_NUMBER, schema.MAX_NUMBER),
        about("What was drawn by lot follows from this number."),
    ]
    compared: t.Annotated[tuple[Arm, ...], parts.from_to(2, 8), about("What is compared, the baseline first.")]
    metrics: t.Annotated[tuple[Metric, ...], parts.from_to(1, 50), about("What the service is judged by.")]
    traffic: t.Annotated[
        MetricName | None, about("Metric that says how much the service is asked to do; null where none does.")
    ]
    guardrails: t.Annotated[
        tuple[t.Annotated[str, text_of(500)], ...],
        at_most(50),
        about("What sends a host back at once, a sentence each."),
    ]
    margin: t.Annotated[float, parts.between(0, 0.5), about("Effects within this share count as none, 0.01 is 1 %.")]
    period_seconds: t.Annotated[Seconds, about("Length of a period, in seconds.")]
    settle_seconds: t.Annotated[Seconds, about("What is not counted at the beginning of each period, in seconds.")]
    looks_back_seconds: t.Annotated[
        Seconds | parts.Unset,
        about(
            "How far back a value of a metric counts samples, at most, in seconds. Missing in trials of 1.0.0, which"
            " did not know it."
        ),
    ] = parts.UNSET
    groups: t.Annotated[
        tuple[t.Annotated[tuple[Name, ...], parts.from_to(1, 8)], ...],
        at_most(MAX_HOSTS),
        about("Hosts that are compared with each other."),
    ]
    waves: t.Annotated[
        tuple[t.Annotated[tuple[t.Annotated[int, parts.between(0, MAX_HOSTS)], ...], at_most(MAX_HOSTS)], ...],
        at_most(MAX_HOSTS),
        about(
            "Groups, by their place in groups from 0, that are measured at the same time; one wave follows the other."
        ),
    ]
    hosts: t.Annotated[dict[LineKey, Schedule], at_most(MAX_HOSTS), about("Name of a host -> its schedule.")]
    left_out: t.Annotated[
        dict[LineKey, Text], at_most(MAX_HOSTS), about("Name of a host that has no part -> the reason.")
    ]

    @functools.cached_property
    def titles(self) -> dict[str, str]:
        """Arm -> its title."""
        return {arm.name: arm.title for arm in self.compared}

    @functools.cached_property
    def arms(self) -> tuple[str, ...]:
        """Names, the baseline first."""
        return tuple(arm.name for arm in self.compared)

    @functools.cached_property
    def design(self) -> design.Design:
        """What was drawn."""
        return design.Design(
            self.design_name,
            self.groups,
            self.waves,
            {host: schedule.arms for host, schedule in self.hosts.items()},
            {host: schedule.first_period for host, schedule in self.hosts.items()},
            self.left_out,
        )

    @property
    def units(self) -> int:
        """How many units of evidence the whole trial has."""
        if self.design.name == design.PARALLEL:
            return len(self.groups)
        return sum(len(self.hosts[group[0]].arms) // len(self.arms) for group in self.groups)


def of_design(drawn: design.Design) -> dict[str, t.Any]:
    """Return the fields of a trial that say what was drawn, and what kind of file that is."""
    return {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "design_name": drawn.name,
        "groups": drawn.groups,
        "waves": drawn.waves,
        "hosts": {host: Schedule(drawn.first[host], arms) for host, arms in drawn.schedule.items()},
        "left_out": drawn.left_out,
    }


SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "A trial of arms on live hosts",
    "smt_trial_results/RUN/trial.json on the controller: what was drawn by lot, written before the first switch and"
    " never changed.",
    parts.schema_of(Trial),
)


class Reading(parts.Part, frozen=True):
    """A metric over a period.

    Attributes:
        value: its value; None where it has none.
        points: how many it has.
        expected: how many it should have.
        reason: why it has no value; None where it has one.
    """

    value: _Value | None
    points: Count
    expected: Count
    reason: Text | None


# Each with its seconds since the period counts.
Points = t.Annotated[tuple[tuple[_Value | None, _Value | None], ...], at_most(MAX_POINTS)]
Read = tuple[dict[str, Reading], dict[str, Points]]


class Event(parts.Part, frozen=True):
    """What happened in a period."""

    at: Moment
    event: t.Annotated[str, text_of(60)]
    detail: Text


class Period(parts.Part, frozen=True, kw_only=True, rename={"number": "period"}):
    """A period of a host.

    Attributes:
        number: of the period, from 0.
        arm: name of the arm.
        started: when it began.
        counted_from: from when on it counts.
        ended: when it ended.
        complete: whether it counts.
        reason: why it was cut, or None.
        metrics: name of a metric -> what was read of it.
        series: name of a metric -> its points.
        events: what happened.
        block: its number, from 0; :func:`period` knows it.
    """

    number: Count
    arm: ArmName
    started: Moment
    counted_from: Moment
    ended: Moment
    complete: bool
    reason: Text | None
    metrics: t.Annotated[dict[_MetricKey, Reading], at_most(50)]
    series: t.Annotated[dict[_MetricKey, Points], at_most(50)]
    events: t.Annotated[tuple[Event, ...], at_most(1000)]
    block: Count

    @property
    def happened(self) -> list[str]:
        """What happened, beside switching."""
        return [event.detail for event in self.events if event.event != "switched"]


class End(parts.Part, frozen=True, kw_only=True):
    """How a host's part of a trial ended.

    Attributes:
        host: its name.
        ended: when.
        reason: why it ended before its time, or None.
        restored: whether the host is known to be in its own state again.
        before: its CPUs online before the trial; None where it was not switched.
        after: those after it.
    """

    host: Name
    ended: Moment
    reason: Text | None
    restored: bool
    before: CpuList | None
    after: CpuList | None


class Stopped(parts.Part, frozen=True):
    """Why a trial ends for all its hosts."""

    reason: Text


class Look(parts.Part, frozen=True, kw_only=True):
    """A look at a trial.

    Attributes:
        at: when.
        units: how many units of evidence were known.
        share: of the plan that was done.
        decided: arm -> the outcome that ended its comparison.
    """

    at: Moment
    units: Count
    share: t.Annotated[float, parts.above(0, 1)]
    decided: t.Annotated[dict[ArmName, t.Literal["gain", "loss", "equivalent", "futile"]], at_most(8)]


@dataclasses.dataclass(frozen=True)
class Part:
    """A host's part of a trial, as it was written.

    Attributes:
        periods: its periods, in their order.
        end: how it ended; None where that was not written.
    """

    periods: tuple[Period, ...] = ()
    end: End | None = None


def written(record: parts.Part, indent: int | None = None) -> str:
    """Return a record as JSON, checked as it will be when it is read;
    sentences in it that are too long are shortened.

    Args:
        record: a trial, or a record of it.
        indent: spaces before each level; None for one line.

    Raises:
        RecordError: it is not valid.
    """
    try:
        plain = text.parse(json.dumps(_shortened(parts.data(record)), allow_nan=False))
        parts.converted(plain, type(record))
    except (TypeError, ValueError, RecursionError, text.BorderError) as error:
        raise RecordError(f"this cannot be written down: {text.line(error, 300)}") from error
    return json.dumps(plain, indent=indent, separators=None if indent else (",", ":")) + "\n"


def _shortened(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {
            name: text.line(entry, MAX_SAID) if name in _SENTENCES and isinstance(entry, str) else _shortened(entry)
            for name, entry in value.items()
        }
    return [_shortened(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def period(trial: Trial, host: str, record: Period) -> str:
    """Return the line of a period in its host's file.

    Raises:
        RecordError: it is not valid.
    """
    block = max(0, record.number - trial.hosts[host].first_period) // len(trial.arms)
    line = written(parts.changed(record, block=block))
    try:
        _see_period(trial, host, record)
    except text.BorderError as error:
        raise RecordError(f"this cannot be written down: {error}") from error
    return line


def without_numbers(record: Period, reason: str) -> Period:
    """Return the record of a period whose own record is not valid."""
    return parts.changed(
        record, counted_from=record.started, complete=False, reason=reason, metrics={}, series={}, events=()
    )


def trial_of(content: str) -> Trial:
    """Return a trial from the text of its file.

    Raises:
        BorderError: it is not valid; the message names the place and the reason.
    """
    trial = parts.decoded(content, Trial)
    metrics = [metric.name for metric in trial.metrics]
    if len(trial.titles) < len(trial.arms) or len(set(metrics)) < len(metrics):
        raise text.BorderError("arms and metrics: a name comes twice")
    if sum(metric.is_primary for metric in trial.metrics) != 1:
        raise text.BorderError("metrics: exactly one has to be primary")
    if not {trial.traffic, *(metric.per for metric in trial.metrics)} <= {None, *metrics}:
        raise text.BorderError("traffic and metrics: a metric that is named is not there")
    if (trial.looks_back_seconds or 0) > trial.settle_seconds:
        raise text.BorderError(
            "looks_back_seconds: more than settle_seconds: its periods count samples of each other, and are no"
            " observations of their own"
        )
    _see_design(trial)
    return trial


def _see_design(trial: Trial) -> None:
    drawn = trial.design
    if (
        not drawn.schedule
        or sorted(itertools.chain(*drawn.groups)) != sorted(drawn.schedule)
        or sorted(itertools.chain(*drawn.waves)) != list(range(len(drawn.groups)))
    ):
        raise text.BorderError("groups, waves and hosts do not name each host and each group once")
    schedules = drawn.schedule.values()
    if not set(itertools.chain(*schedules)) <= set(trial.arms) or len(set(map(len, schedules))) != 1:
        raise text.BorderError("hosts: a schedule has another arm or another length than the trial")
    if drawn.name == design.PARALLEL and any(
        len({drawn.schedule[host] for host in group}) < len(group) or len(group) < 2 for group in drawn.groups
    ):
        raise text.BorderError("groups: two hosts of a parallel trial have the same arms, or one is alone")


def lines(content: bytes, kind: type[parts.Made]) -> list[parts.Made]:
    """Return the records of a file with one a line; a last line that was not written whole is left out.

    Raises:
        BorderError: a line is not valid; the message names it.
    """
    records: list[parts.Made] = []
    # One line after the other: a file of nothing but line ends would become a list of millions.
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.endswith(b"\n"):
            break
        try:
            records.append(parts.decoded(line.decode("utf-8"), kind))
        except UnicodeDecodeError as error:
            raise text.BorderError(f"line {number}: not UTF-8 at byte {error.start}") from error
        except text.BorderError as error:
            raise text.BorderError(f"line {number}: {error}") from error
    return records


def part(trial: Trial, host: str, periods: t.Sequence[Period], ends: t.Sequence[End]) -> Part:
    """Return a host's part of a trial.

    Args:
        trial: the trial.
        host: the host.
        periods: those of its file of periods.
        ends: those of its file of ends; the last one counts.

    Raises:
        BorderError: they are not what this host does in this trial; the message names the period and the reason.
    """
    before = None
    for record in periods:
        if before is not None and record.number <= before:
            raise text.BorderError(f"period {record.number + 1} comes after period {before + 1}")
        _see_period(trial, host, record)
        before = record.number
    if any(end.host != text.line(host, schema.MAX_NAME) for end in ends):
        raise text.BorderError(f"its end is that of {text.line(ends[-1].host, 100)}")
    return Part(tuple(periods), ends[-1] if ends else None)


def _see_period(trial: Trial, host: str, record: Period) -> None:
    """See that a period is one of its host, and that its times can be.

    Raises:
        BorderError: it is not.
    """
    schedule = trial.hosts[host]
    named = f"period {record.number + 1}"
    place = record.number - schedule.first_period
    if not 0 <= place < len(schedule.arms):
        raise text.BorderError(f"{named}: the design has no such period of this host")
    if record.arm != schedule.arms[place]:
        raise text.BorderError(f"{named} is in the arm {record.arm}, and by the design in {schedule.arms[place]}")
    try:
        for at in (record.started, record.counted_from, record.ended):
            moment(at)
    except ValueError as error:
        raise text.BorderError(f"{named}: {text.line(error, 100)}") from error
    for name, points in record.series.items():
        if any(at is None or not -_ALIGNED <= at <= trial.period_seconds + _ALIGNED for at, _value in points):
            raise text.BorderError(f"{named}: a point of {name} is not within the period")


def moment(written_down: str) -> datetime.datetime:
    """Return a time of day from a file.

    Raises:
        ValueError: there is no such time.
    """
    return datetime.datetime.fromisoformat(written_down)


def looks(records: t.Sequence[Look]) -> tuple[tuple[spending.Look, ...], dict[str, str]]:
    """Return the looks at a trial so far, and what they decided.

    Raises:
        BorderError: no trial takes these, one after the other.
    """
    taken = tuple(spending.Look(record.units, record.share) for record in records)
    rising = all(look.blocks < other.blocks and look.share <= other.share for look, other in itertools.pairwise(taken))
    if not rising or any(look.blocks < verdicts.MIN_BLOCKS for look in taken):
        raise text.BorderError("its looks do not follow each other")
    return taken, dict(records[-1].decided) if records else {}


def complete(periods: t.Iterable[Period]) -> list[units.Period]:
    """Return the complete periods of a host's file, with the metrics that have a value."""
    return [
        units.Period(
            host_period.number,
            host_period.arm,
            {name: metric.value for name, metric in host_period.metrics.items() if metric.value is not None},
        )
        for host_period in periods
        if host_period.complete
    ]
