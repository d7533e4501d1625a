# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial as typed objects: its design, what each host did, and the looks.

Each is checked by the schema by which it is read before it is written: what one host's record holds never keeps the
others, or the report, from reading.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import itertools
import json
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import spending, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, units

# Begins why a trial ended that was decided, and the reason of the periods that this cut.
DECIDED = "each arm is decided: "
# The longest sentence in a record, in characters, and the fields that have one.
MAX_SAID = 2000
_SENTENCES = ("reason", "detail")
# Seconds by which a point may be outside of its period: servers that keep answers put points on steps of their own.
_ALIGNED = 60.0
# How files have a time of day.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"
_MOMENTS = ("started", "counted_from", "ended")

TrialRecord = dict[str, t.Any]


class RecordError(text.BorderError):
    """A record would not be valid when it is read, and is not written."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of the service.

    Attributes:
        name: for results.
        unit: for people, may be empty.
        better: ``higher`` or ``lower``.
        is_primary: whether the trial is about this one.
        per: the name of the metric that this one is divided by, or None.
    """

    name: str
    unit: str
    better: str
    is_primary: bool
    per: str | None


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial, as it was written down before the first switch.

    Attributes:
        run: its name.
        created: when it was written, ISO 8601 in UTC.
        arms: names, the baseline first.
        titles: arm -> its title.
        metrics: the primary one first.
        traffic: the name of the metric that says how much the service is asked to do, or None.
        guardrails: a sentence each.
        margin: the equivalence margin.
        period_seconds: length of a period.
        settle_seconds: what is not counted at the beginning of each.
        design: what was drawn.
        seed: what it was drawn from.
        looks_back_seconds: the age of the oldest sample that is a part of a value; None where it was not known yet when
            the trial began.
    """

    run: str
    created: str
    arms: tuple[str, ...]
    titles: dict[str, str]
    metrics: tuple[Metric, ...]
    traffic: str | None
    guardrails: tuple[str, ...]
    margin: float
    period_seconds: float
    settle_seconds: float
    design: design.Design
    seed: int
    looks_back_seconds: float | None = None

    @property
    def units(self) -> int:
        """How many units of evidence the whole trial has."""
        if self.design.name == design.PARALLEL:
            return len(self.design.groups)
        return sum(len(self.design.schedule[group[0]]) // len(self.arms) for group in self.design.groups)

    def document(self) -> dict[str, t.Any]:
        """Return the trial as plain JSON data."""
        drawn = self.design
        return {
            "schema": trials.SCHEMA_NAME,
            "schema_version": trials.SCHEMA_VERSION,
            "run": self.run,
            "created": self.created,
            "design": drawn.name,
            "seed": self.seed,
            "arms": [{"name": name, "title": self.titles[name]} for name in self.arms],
            "metrics": [
                {
                    "name": metric.name,
                    "unit": metric.unit,
                    "better": metric.better,
                    "primary": metric.is_primary,
                    "per": metric.per,
                }
                for metric in self.metrics
            ],
            "traffic": self.traffic,
            "guardrails": list(self.guardrails),
            "margin": self.margin,
            "period_seconds": self.period_seconds,
            "settle_seconds": self.settle_seconds,
            **({} if self.looks_back_seconds is None else {"looks_back_seconds": self.looks_back_seconds}),
            "groups": [list(group) for group in drawn.groups],
            "waves": [list(wave) for wave in drawn.waves],
            "hosts": {
                host: {"first_period": drawn.first[host], "arms": list(arms)} for host, arms in drawn.schedule.items()
            },
            "left_out": drawn.left_out,
        }

    def written(self) -> str:
        """Return the content of ``trial.json``.

        Raises:
            RecordError: it would not be valid when it is read.
        """
        return written(self.document(), trials.TRIAL, 1)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A metric over a period.

    Attributes:
        value: its value; None where it has none.
        reason: why it has none; None where it has one.
    """

    value: float | None
    reason: str | None


@dataclasses.dataclass(frozen=True)
class WrittenPeriod:
    """A period of a host, as it was written.

    Attributes:
        number: of the period, from 0.
        arm: name of the arm.
        started: when it began.
        counted_from: from when on it counts.
        ended: when it ended.
        complete: whether it counts.
        reason: why it was cut, or None.
        metrics: name of a metric -> what was read of it.
        series: name of a metric -> its points, each with its seconds since ``counted_from``.
        happened: what happened, beside switching.
    """

    number: int
    arm: str
    started: datetime.datetime
    counted_from: datetime.datetime
    ended: datetime.datetime
    complete: bool
    reason: str | None
    metrics: dict[str, Reading]
    series: dict[str, list[tuple[float, float | None]]]
    happened: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WrittenEnd:
    """How a host's part of a trial ended, as it was written.

    Attributes:
        restored: whether the host is known to be in its own state again.
        before: its CPUs online before the trial; None where it was not switched.
        after: those after it.
        reason: why it ended before its time, or None.
    """

    restored: bool
    before: str | None
    after: str | None
    reason: str | None


@dataclasses.dataclass(frozen=True)
class Part:
    """A host's part of a trial, as it was written.

    Attributes:
        periods: its periods, in their order.
        end: how it ended; None where that was not written.
    """

    periods: tuple[WrittenPeriod, ...] = ()
    end: WrittenEnd | None = None


def written(document: t.Mapping[str, t.Any], checker: schema.Checker, indent: int | None = None) -> str:
    """Return a document as JSON, checked as it will be when it is read;
    sentences in it that are too long are shortened.

    Args:
        document: plain data.
        checker: its schema.
        indent: spaces before each level; None for one line.

    Raises:
        RecordError: it is not valid.
    """
    try:
        plain = text.parse(json.dumps(_shortened(document), allow_nan=False))
        checker.check(plain)
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


def period(trial: Trial, host: str, record: TrialRecord) -> str:
    """Return the line of a period in its host's file.

    Raises:
        RecordError: it is not valid.
    """
    block = max(0, record["period"] - trial.design.first[host]) // len(trial.arms)
    line = written({**record, "block": block}, trials.PERIOD)
    try:
        _see_period(trial, host, record)
    except text.BorderError as error:
        raise RecordError(f"this cannot be written down: {error}") from error
    return line


def without_numbers(record: TrialRecord, reason: str) -> TrialRecord:
    """Return the record of a period whose own record is not valid."""
    return {
        **record,
        "counted_from": record["started"],
        "complete": False,
        "reason": reason,
        "metrics": {},
        "series": {},
        "events": [],
    }


def trial_of(document: t.Any) -> Trial:
    """Return a trial from its JSON data.

    Raises:
        BorderError: it is not valid; the message names the place and the reason.
    """
    trials.TRIAL.check(document)
    arms, metrics = [arm["name"] for arm in document["arms"]], [metric["name"] for metric in document["metrics"]]
    if len(set(arms)) < len(arms) or len(set(metrics)) < len(metrics):
        raise text.BorderError("arms and metrics: a name comes twice")
    if sum(metric["primary"] for metric in document["metrics"]) != 1:
        raise text.BorderError("metrics: exactly one has to be primary")
    if not {document["traffic"], *(metric["per"] for metric in document["metrics"])} <= {None, *metrics}:
        raise text.BorderError("traffic and metrics: a metric that is named is not there")
    if document.get("looks_back_seconds", 0) > document["settle_seconds"]:
        raise text.BorderError(
            "looks_back_seconds: more than settle_seconds: its periods count samples of each other, and are no"
            " observations of their own"
        )
    return Trial(
        run=document["run"],
        created=document["created"],
        arms=tuple(arms),
        titles={arm["name"]: arm["title"] for arm in document["arms"]},
        metrics=tuple(
            Metric(metric["name"], metric["unit"], metric["better"], metric["primary"], metric["per"])
            for metric in document["metrics"]
        ),
        traffic=document["traffic"],
        guardrails=tuple(document["guardrails"]),
        margin=document["margin"],
        period_seconds=document["period_seconds"],
        settle_seconds=document["settle_seconds"],
        design=_design(document, set(arms)),
        seed=int(document["seed"]),
        looks_back_seconds=document.get("looks_back_seconds"),
    )


def _design(document: TrialRecord, arms: set[str]) -> design.Design:
    """Return what was drawn. JSON Schema takes 1.0 for an integer, Python's lists do not."""
    hosts = document["hosts"]
    grouped = [host for group in document["groups"] for host in group]
    if (
        not hosts
        or sorted(grouped) != sorted(hosts)
        or sorted(place for wave in document["waves"] for place in wave) != list(range(len(document["groups"])))
    ):
        raise text.BorderError("groups, waves and hosts do not name each host and each group once")
    if (
        any(not set(entry["arms"]) <= arms for entry in hosts.values())
        or len({len(entry["arms"]) for entry in hosts.values()}) != 1
    ):
        raise text.BorderError("hosts: a schedule has another arm or another length than the trial")
    schedule = {host: tuple(entry["arms"]) for host, entry in hosts.items()}
    if document["design"] == design.PARALLEL and any(
        len({schedule[host] for host in group}) < len(group) or len(group) < 2 for group in document["groups"]
    ):
        raise text.BorderError("groups: two hosts of a parallel trial have the same arms, or one is alone")
    return design.Design(
        document["design"],
        tuple(tuple(group) for group in document["groups"]),
        tuple(tuple(map(int, wave)) for wave in document["waves"]),
        schedule,
        {host: int(entry["first_period"]) for host, entry in hosts.items()},
        dict(document["left_out"]),
    )


def lines(content: bytes, checker: schema.Checker) -> list[TrialRecord]:
    """Return the documents of a file with one a line; a last line that was not written whole is left out.

    Raises:
        BorderError: a line is not valid; the message names it.
    """
    records: list[TrialRecord] = []
    # One line after the other: a file of nothing but line ends would become a list of millions.
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.endswith(b"\n"):
            break
        try:
            document = text.parse(line.decode("utf-8"))
            checker.check(document)
        except UnicodeDecodeError as error:
            raise text.BorderError(f"line {number}: not UTF-8 at byte {error.start}") from error
        except text.BorderError as error:
            raise text.BorderError(f"line {number}: {error}") from error
        records.append(document)
    return records


def part(trial: Trial, host: str, periods: t.Iterable[TrialRecord], ends: t.Sequence[TrialRecord]) -> Part:
    """Return a host's part of a trial.

    Args:
        trial: the trial.
        host: the host.
        periods: the documents of its file of periods.
        ends: those of its file of ends; the last one counts.

    Raises:
        BorderError: they are not what this host does in this trial; the message names the period and the reason.
    """
    written_periods: list[WrittenPeriod] = []
    for record in periods:
        if written_periods and record["period"] <= written_periods[-1].number:
            raise text.BorderError(
                f"period {record['period'] + 1:g} comes after period {written_periods[-1].number + 1}"
            )
        _see_period(trial, host, record)
        written_periods.append(written_period(record))
    if any(end["host"] != text.line(host, schema.MAX_NAME) for end in ends):
        raise text.BorderError(f"its end is that of {text.line(ends[-1]['host'], 100)}")
    end = ends[-1] if ends else None
    return Part(
        tuple(written_periods),
        WrittenEnd(end["restored"], end["before"], end["after"], end["reason"]) if end else None,
    )


def written_period(record: TrialRecord) -> WrittenPeriod:
    """Return a period from its line in its host's file, whose form and times have been checked."""
    return WrittenPeriod(
        number=int(record["period"]),
        arm=record["arm"],
        **{name: moment(record[name]) for name in _MOMENTS},
        complete=record["complete"],
        reason=record["reason"],
        metrics={name: Reading(metric["value"], metric["reason"]) for name, metric in record["metrics"].items()},
        series={name: [tuple(point) for point in points] for name, points in record["series"].items()},
        happened=tuple(event["detail"] for event in record["events"] if event["event"] != "switched"),
    )


def _see_period(trial: Trial, host: str, record: TrialRecord) -> None:
    """See that a period is one of its host, and that its times can be.

    Raises:
        BorderError: it is not.
    """
    number, arms = record["period"], trial.design.schedule[host]
    named = f"period {number + 1:g}"
    place = int(number) - trial.design.first[host]
    if not 0 <= place < len(arms):
        raise text.BorderError(f"{named}: the design has no such period of this host")
    if record["arm"] != arms[place]:
        raise text.BorderError(f"{named} is in the arm {record['arm']}, and by the design in {arms[place]}")
    try:
        for name in _MOMENTS:
            moment(record[name])
    except ValueError as error:
        raise text.BorderError(f"{named}: {text.line(error, 100)}") from error
    for name, points in record["series"].items():
        if any(at is None or not -_ALIGNED <= at <= trial.period_seconds + _ALIGNED for at, _value in points):
            raise text.BorderError(f"{named}: a point of {name} is not within the period")


def moment(written_down: str) -> datetime.datetime:
    """Return a time of day from a file.

    Raises:
        ValueError: there is no such time.
    """
    return datetime.datetime.fromisoformat(written_down)


def looks(documents: t.Sequence[TrialRecord]) -> tuple[tuple[spending.Look, ...], dict[str, str]]:
    """Return the looks at a trial so far, and what they decided.

    Raises:
        BorderError: no trial takes these, one after the other.
    """
    taken = tuple(spending.Look(int(document["units"]), float(document["share"])) for document in documents)
    rising = all(look.blocks < other.blocks and look.share <= other.share for look, other in itertools.pairwise(taken))
    if not rising or any(look.blocks < verdicts.MIN_BLOCKS for look in taken):
        raise text.BorderError("its looks do not follow each other")
    return taken, dict(documents[-1]["decided"]) if documents else {}


def complete(periods: t.Iterable[WrittenPeriod]) -> list[units.Period]:
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
