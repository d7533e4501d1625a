# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A history in sentences, as a document, and as a page."""

from __future__ import annotations

import collections
import datetime
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history.checks import Drift, History
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history.effects import Effect, Key
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled.series import (
    HOLDS,
    NOT_DECIDED,
    Turn,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, frame, wording

SCHEMA_NAME: t.Literal["threadwise.smt/history"] = "threadwise.smt/history"
SCHEMA_VERSION: t.Literal[1] = 1
Standing = t.Literal["holds", "changed", "not decided"]
# Drifts that a page lists; a document has all.
MAX_DRIFTS = 500
# Points of a picture.
MAX_POINTS = 400
# What a picture of the fleet has.
NOT_AS_WANTED = tuple(dict.fromkeys(status.row.in_history for status in Status if status.row.in_history))
SIDES = ("better with SMT on", "better with SMT off")
_DAY = datetime.timedelta(days=1)
_HOUR = datetime.timedelta(hours=1)


class WrittenDrift(parts.Part, frozen=True):
    """A host that differed from its policy.

    Attributes of the file:
        host: name of the host in the inventory.
        since: the first check that saw it.
        until: the first check that did not any more; null where none has.
        seconds: seconds between the two; null where it was not seen mended.
        removed: whether it was not seen mended because the host left the inventory.
        waived: whether it was not seen mended because a waiver allowed it.
    """

    host: parts.Text
    since: parts.Moment
    until: parts.Moment | None
    seconds: float | None
    removed: bool
    waived: bool


class WrittenRun(parts.Part, frozen=True):
    """What a run found of an effect.

    Attributes of the file:
        run: name of the run.
        day: day on which the controller had collected the last of its hosts; of reports of earlier releases that of the
            start. Empty where it is not known.
        kernels: kernels of its hosts.
        change: change of the metric with SMT off, a share.
        change_low: lower end of its interval.
        change_high: upper end of its interval.
        ratio: the same, turned so that above 1 is better.
    """

    run: parts.Text
    day: parts.Text
    kernels: tuple[parts.Text, ...]
    change: float
    change_low: float
    change_high: float
    ratio: float


class WrittenTurn(parts.Part, frozen=True):
    """Where an effect has changed.

    Attributes of the file:
        run: first run after the change.
        before: mean ratio of the runs before it.
        after: mean ratio of the runs from it on.
        p_value: how often chance alone gives such a change.
    """

    run: parts.Text
    before: float
    after: float
    p_value: float


class WrittenEffect(parts.Part, frozen=True):
    """What SMT off did to a workload.

    Attributes of the file:
        hardware_class: the class; empty where it is not known.
        host: the host where its class is not known; null where it is.
        name: name of the workload, with the value of its parameter.
        workload: title of the workload.
        metric: what of it was measured.
        unit: unit of the metric.
        better: which numbers of it are better.
        runs: runs in the order of their times.
        turns: where the effect has changed.
        latest: whether the latest of these runs says what those before it say; null for a single run.
    """

    hardware_class: parts.Text
    host: parts.Text | None
    name: parts.Text
    workload: parts.Text
    metric: parts.Text
    unit: parts.Text
    better: parts.Better
    runs: tuple[WrittenRun, ...]
    turns: tuple[WrittenTurn, ...]
    latest: t.Annotated[Standing, parts.in_order(Standing)] | None


class WrittenHistory(parts.Part, frozen=True):
    """The document.

    Attributes of the file:
        at: when it was made, UTC.
        checks: number of checks of compliance; 0 without a history.
        since: the first of them.
        until: the last of them.
        drifts: hosts that differed from their policy, those that still do first.
        effects: what SMT off did to each workload of each hardware class.
        left_out: runs that are left out, a sentence each.
    """

    schema: t.Literal["threadwise.smt/history"]
    schema_version: t.Literal[1]
    at: parts.Moment
    checks: t.Annotated[int, parts.between(0, None)]
    since: parts.Moment | None
    until: parts.Moment | None
    drifts: tuple[WrittenDrift, ...]
    effects: tuple[WrittenEffect, ...]
    left_out: tuple[parts.Text, ...]


SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What drifted when, and what SMT did over months",
    "smt_history.json on the controller, or beside the page that smt_history_page names.",
    parts.schema_of(WrittenHistory),
)

Effects = t.Mapping[Key, t.Sequence[Effect]]


class HistoryRecord(t.NamedTuple):
    """A history with all that is said of it.

    Attributes:
        history: of checks, None without any.
        effects: by hardware class and workload.
        turns: of each of them.
        latest: of each of them, from :func:`series.standing`.
        left_out: runs that are left out, a sentence each.
    """

    history: History | None
    effects: Effects
    turns: t.Mapping[Key, t.Sequence[Turn]]
    latest: t.Mapping[Key, str | None]
    left_out: t.Sequence[str]


def joined(history: History | None, effects: Effects, left_out: t.Sequence[str], margin: float) -> HistoryRecord:
    """Return a history with where its effects have changed.

    Args:
        history: of checks, or None.
        effects: from :func:`effects.read`.
        left_out: likewise.
        margin: effects within this share of 1 count as none.
    """
    runs = {key: [effect.interval for effect in of_key] for key, of_key in effects.items()}
    turns = {key: series.turns(of_key, margin) for key, of_key in runs.items()}
    latest = {key: series.standing(of_key, turns[key], margin) for key, of_key in runs.items()}
    return HistoryRecord(history, effects, turns, latest, left_out)


def sentences(record: HistoryRecord) -> list[str]:
    """Say what there is to say, the most important first."""
    parts = [] if record.history is None else [_of_checks(record.history)]
    for key, all_turns in record.turns.items():
        of_key = record.effects[key]
        to_do = "decide this class anew" if key.hardware_class else "its hardware class is not known"
        for turn in all_turns:
            first = of_key[turn.place]
            before, after = (
                wording.change_of_ratio(ratio, first.measured.better) for ratio in (turn.before, turn.after)
            )
            kernels = _kernels(of_key[turn.place - 1], first)
            parts.append(
                f"{_named(record, key)}: from {first.day or first.run} on SMT off changes it by {after}, before by"
                f" {before}{kernels}: {to_do}."
            )
    if record.effects and not any(record.turns.values()):
        runs = {effect.run for of_key in record.effects.values() for effect in of_key}
        parts.append(f"In {wording.counted(len(runs), 'run')} of evaluations no effect of SMT has changed.")
    parts += _of_latest(record)
    return [*parts, *(f"Left out: {reason}." for reason in record.left_out)]


def _of_latest(record: HistoryRecord) -> list[str]:
    """Say of which effects the latest run of their class says what those before it say, of which that is not decided,
    and which it did not measure.
    """
    newest: dict[tuple[str, str], tuple[datetime.datetime, str]] = {}
    for key, of_key in record.effects.items():
        newest[key[:2]] = max(newest.get(key[:2], of_key[-1].moment), of_key[-1].moment)
    missed = {key: of_key[-1] for key, of_key in record.effects.items() if of_key[-1].moment < newest[key[:2]]}
    standing = []
    for state, words in (
        (HOLDS, "The latest run says what those before it say, within 5 %"),
        (NOT_DECIDED, "Not decided by the latest run, which takes more blocks"),
    ):
        named = [_named(record, key) for key, latest in record.latest.items() if latest == state and key not in missed]
        if named:
            standing.append(f"{words}: {wording.named(named)}.")
    since: dict[str, list[str]] = collections.defaultdict(list)
    for key, effect in missed.items():
        since[effect.day or effect.run].append(_named(record, key))
    return [*standing, *(f"Not measured since {begin}: {wording.named(since[begin])}." for begin in sorted(since))]


def _named(record: HistoryRecord, key: Key) -> str:
    """Return of what an effect is, such as ``gzip of a fixed stream of CLASS``."""
    return f"{record.effects[key][-1].title} of {key.whose}"


def _kernels(before: Effect, after: Effect) -> str:
    """Return the kernels on both sides of a change where they are others."""
    if before.kernels == after.kernels or not (before.kernels and after.kernels):
        return ""
    return f", with Linux {wording.join(list(after.kernels))} instead of {wording.join(list(before.kernels))}"


def _of_checks(history: History) -> str:
    checks, drifts = history.checks, history.drifts
    begun = f"In {wording.counted(len(checks), 'check')} since {checks[0].at:%Y-%m-%d}"
    unseen = len(history.statuses.keys() - history.seen)
    never = f" Nothing was ever known of {wording.counted(unseen, 'host')} (unreachable, unknown or bad policy)."
    if not drifts:
        return f"{begun} no host has drifted, as far as was seen.{never}" if unseen else f"{begun} no host has drifted."
    lasted = [drift.lasted for drift in drifts if drift.lasted is not None]
    open_now = [drift for drift in drifts if drift.until is None]
    removed, waived = sum(drift.is_removed for drift in drifts), sum(drift.is_waived for drift in drifts)
    hosts = len({drift.host for drift in drifts})
    sentence = f"{begun} {wording.counted(hosts, 'host')} drifted, {wording.counted(len(drifts), 'time')} in all"
    if lasted:
        median = datetime.timedelta(seconds=statistics.median(duration.total_seconds() for duration in lasted))
        sentence += f"; it was seen mended after {length(median)} in the median, {length(max(lasted))} at most"
    if removed:
        sentence += f"; {removed} left the inventory so"
    if waived:
        sentence += f"; {waived} {'was' if waived == 1 else 'were'} waived"
    if open_now:
        sentence += f"; {len(open_now)} {'is' if len(open_now) == 1 else 'are'} still so"
    return f"{sentence}.{never if unseen else ''}"


def length(duration: datetime.timedelta) -> str:
    """Return a duration for people: ``3 days``, ``5 hours``, ``20 minutes``."""
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (datetime.timedelta(minutes=1), "minute")):
        if duration >= 2 * unit or (duration >= unit and unit != _DAY):
            return wording.counted(round(duration / unit), name)
    return "less than a minute"


def document(record: HistoryRecord, at: datetime.datetime) -> dict[str, t.Any]:
    """Return a history as plain data that matches :data:`SCHEMA`."""
    checks, drifts = (record.history.checks, record.history.drifts) if record.history else ([], [])
    first, last = (_moment(checks[0].at), _moment(checks[-1].at)) if checks else (None, None)
    written: dict[str, t.Any] = parts.plain(
        WrittenHistory(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            _moment(at),
            len(checks),
            first,
            last,
            tuple(map(_drift, drifts)),
            tuple(_written(record, key, effects) for key, effects in record.effects.items()),
            tuple(record.left_out),
        )
    )
    return written


def _written(record: HistoryRecord, key: Key, effects: t.Sequence[Effect]) -> WrittenEffect:
    measured = effects[-1].measured
    return WrittenEffect(
        key.hardware_class,
        key.host or None,
        key.workload,
        effects[-1].title,
        measured.metric,
        measured.unit,
        t.cast("parts.Better", measured.better),
        tuple(map(_effect, effects)),
        tuple(
            WrittenTurn(effects[turn.place].run, turn.before, turn.after, turn.p_value) for turn in record.turns[key]
        ),
        t.cast("Standing | None", record.latest[key]),
    )


def _moment(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _drift(drift: Drift) -> WrittenDrift:
    until = None if drift.until is None else _moment(drift.until)
    seconds = None if drift.lasted is None else drift.lasted.total_seconds()
    return WrittenDrift(drift.host, _moment(drift.since), until, seconds, drift.is_removed, drift.is_waived)


def _effect(effect: Effect) -> WrittenRun:
    value, low, high = t.cast(
        "tuple[float, float, float]", (effect.change.value, effect.change.low, effect.change.high)
    )
    return WrittenRun(effect.run, effect.day, tuple(effect.kernels), value, low, high, effect.interval.ratio)


def page(record: HistoryRecord, at: datetime.datetime, margin: float) -> str:
    """Render a history as one self-contained HTML page."""
    drifts = record.history.drifts if record.history else []
    return frame.render(
        "history.html.j2",
        at=at.strftime("%Y-%m-%d %H:%M UTC"),
        sentences=sentences(record),
        fleet=_fleet(record.history) if record.history else None,
        drifts=drifts[:MAX_DRIFTS],
        all_drifts=len(drifts),
        length=length,
        effects=[
            (_named(record, key), _picture(_named(record, key), effects, record.turns[key], margin))
            for key, effects in record.effects.items()
        ],
    )


def _fleet(history: History) -> charts.Picture | None:
    """Draw how many hosts were not as wanted, by day; None for a single check."""
    first, step = history.checks[0].at, max(1, len(history.checks) // MAX_POINTS)
    shown = [*history.checks[::step], history.checks[-1]]
    if shown[-1].at == first:
        return None
    rows = [
        {"x": (check.at - first) / _DAY, "arm": name, "value": value, "low": value, "high": value}
        for check in shown
        for name in NOT_AS_WANTED
        for value in [sum(count for status, count in check.counts.items() if status.row.in_history == name)]
    ]
    along = f"days since {first:%Y-%m-%d}"
    return charts.points(rows, NOT_AS_WANTED, "hosts", along, "Hosts that were not as wanted, over time")


def _picture(title: str, effects: t.Sequence[Effect], turns: t.Sequence[Turn], margin: float) -> charts.Picture:
    """Draw the effect of each run, one below the other in the order of their times."""
    begin = {turn.place for turn in turns}
    rows = []
    for place, effect in enumerate(effects):
        kernels = f", Linux {wording.join(list(effect.kernels))}" if effect.kernels else ""
        turned = ", changed from here on" if place in begin else ""
        rows.append(
            {
                "label": f"{effect.day or effect.run}{kernels}{turned}",
                "better": effect.measured.better,
                "ratio": effect.interval.ratio,
                "low": effect.interval.low,
                "high": effect.interval.high,
                "verdict": effect.verdict,
                "text": wording.change_and_interval(effect.change),
            }
        )
    return charts.forest(rows, margin, SIDES, f"SMT off against SMT on: {title}, by run")


def summary(record: HistoryRecord) -> str:
    """Describe a history in one sentence for the terminal."""
    turned = sum(map(len, record.turns.values()))
    drifted = len(record.history.drifts) if record.history else 0
    return (
        f"{wording.counted(drifted, 'drift')}, {wording.counted(len(record.effects), 'effect')} of SMT by class and"
        f" workload, of which {turned} changed."
    )
