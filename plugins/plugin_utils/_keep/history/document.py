# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A history in sentences, as a document, and as a page."""

from __future__ import annotations

import collections
import datetime
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import Moment, Text, about, at_least
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history.checks import Drift, History
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history.effects import Effect, Key
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled.series import (
    HOLDS,
    NOT_DECIDED,
    Turn,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, frame, wording

SCHEMA_NAME: t.Final = "threadwise.smt/history"
SCHEMA_VERSION: t.Final = 1
# Drifts that a page lists; a document has all.
MAX_DRIFTS = 500
# Points of a picture.
MAX_POINTS = 400
# What a picture of the fleet has, with the statuses of each.
NOT_AS_WANTED = {
    "drifted": (compliance.DRIFTED, compliance.BAD_POLICY),
    "not known": (compliance.UNKNOWN, *compliance.NOT_SEEN),
}
SIDES = ("better with SMT on", "better with SMT off")
_DAY = datetime.timedelta(days=1)
_HOUR = datetime.timedelta(hours=1)
Latest = t.Literal["holds", "changed", "not decided"]


class DriftOfHost(parts.Part, frozen=True):
    """A host that differed from its policy."""

    host: t.Annotated[Text, about("Name of the host in the inventory.")]
    since: t.Annotated[Moment, about("The first check that saw it.")]
    until: t.Annotated[Moment | None, about("The first check that did not any more; null where none has.")]
    seconds: t.Annotated[float | None, about("Seconds between the two; null where it was not seen mended.")]
    removed: t.Annotated[bool, about("Whether it was not seen mended because the host left the inventory.")]
    waived: t.Annotated[bool, about("Whether it was not seen mended because a waiver allowed it.")]


class EffectOfRun(parts.Part, frozen=True):
    """What a run says."""

    run: t.Annotated[Text, about("Name of the run.")]
    day: t.Annotated[
        Text,
        about(
            "Day on which the controller had collected the last of its hosts; of reports of earlier releases that of"
            " the start. Empty where it is not known."
        ),
    ]
    kernels: t.Annotated[tuple[Text, ...], about("Kernels of its hosts.")]
    # Of an effect all three are known.
    change: t.Annotated[float | None, parts.shown(type="number"), about("Change of the metric with SMT off, a share.")]
    change_low: t.Annotated[float | None, parts.shown(type="number"), about("Lower end of its interval.")]
    change_high: t.Annotated[float | None, parts.shown(type="number"), about("Upper end of its interval.")]
    ratio: t.Annotated[float, about("The same, turned so that above 1 is better.")]


class TurnOfEffect(parts.Part, frozen=True):
    """Where an effect has changed."""

    run: t.Annotated[Text, about("First run after the change.")]
    before: t.Annotated[float, about("Mean ratio of the runs before it.")]
    after: t.Annotated[float, about("Mean ratio of the runs from it on.")]
    p_value: t.Annotated[float, about("How often chance alone gives such a change.")]


class EffectOnWorkload(parts.Part, frozen=True):
    """What SMT off did to a workload."""

    hardware_class: t.Annotated[Text, about("The class; empty where it is not known.")]
    host: t.Annotated[Text | None, about("The host where its class is not known; null where it is.")]
    name: t.Annotated[Text, about("Name of the workload, with the value of its parameter.")]
    workload: t.Annotated[Text, about("Title of the workload.")]
    metric: t.Annotated[Text, about("What of it was measured.")]
    unit: t.Annotated[Text, about("Unit of the metric.")]
    better: t.Annotated[parts.Better, about("Which numbers of it are better.")]
    runs: t.Annotated[tuple[EffectOfRun, ...], about("Runs in the order of their times.")]
    turns: t.Annotated[tuple[TurnOfEffect, ...], about("Where the effect has changed.")]
    latest: t.Annotated[
        Latest | None,
        parts.in_order(Latest),
        about("Whether the latest of these runs says what those before it say; null for a single run."),
    ]


class HistoryFile(parts.Part, frozen=True):
    """The file of a history."""

    schema: t.Literal["threadwise.smt/history"]
    schema_version: t.Literal[1]
    at: t.Annotated[Moment, about("When it was made, UTC.")]
    checks: t.Annotated[int, at_least(0), about("Number of checks of compliance; 0 without a history.")]
    since: t.Annotated[Moment | None, about("The first of them.")]
    until: t.Annotated[Moment | None, about("The last of them.")]
    drifts: t.Annotated[
        tuple[DriftOfHost, ...], about("Hosts that differed from their policy, those that still do first.")
    ]
    effects: t.Annotated[
        tuple[EffectOnWorkload, ...], about("What SMT off did to each workload of each hardware class.")
    ]
    left_out: t.Annotated[tuple[Text, ...], about("Runs that are left out, a sentence each.")]


SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What drifted when, and what SMT did over months",
    "smt_history.json on the controller, or beside the page that smt_history_page names.",
    parts.schema_of(HistoryFile),
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
    """Return a history as plain data that match :data:`SCHEMA`."""
    checks = record.history.checks if record.history else []
    made: dict[str, t.Any] = parts.plain(
        HistoryFile(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            at=_moment(at),
            checks=len(checks),
            since=_moment(checks[0].at) if checks else None,
            until=_moment(checks[-1].at) if checks else None,
            drifts=tuple(map(_drift, record.history.drifts if record.history else ())),
            effects=tuple(_effect(record, key, effects) for key, effects in record.effects.items()),
            left_out=tuple(record.left_out),
        )
    )
    return made


def _moment(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _drift(drift: Drift) -> DriftOfHost:
    return DriftOfHost(
        drift.host,
        _moment(drift.since),
        until=None if drift.until is None else _moment(drift.until),
        seconds=None if drift.lasted is None else drift.lasted.total_seconds(),
        removed=drift.is_removed,
        waived=drift.is_waived,
    )


def _effect(record: HistoryRecord, key: Key, effects: t.Sequence[Effect]) -> EffectOnWorkload:
    measured = effects[-1].measured
    return EffectOnWorkload(
        key.hardware_class,
        key.host or None,
        name=key.workload,
        workload=effects[-1].title,
        metric=measured.metric,
        unit=measured.unit,
        better=t.cast("parts.Better", measured.better),
        runs=tuple(map(_run, effects)),
        turns=tuple(
            TurnOfEffect(effects[turn.place].run, turn.before, turn.after, turn.p_value) for turn in record.turns[key]
        ),
        latest=t.cast("Latest | None", record.latest[key]),
    )


def _run(effect: Effect) -> EffectOfRun:
    change = effect.change
    return EffectOfRun(
        effect.run, effect.day, tuple(effect.kernels), change.value, change.low, change.high, effect.interval.ratio
    )


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
        for name, statuses in NOT_AS_WANTED.items()
        for value in [sum(check.counts.get(status, 0) for status in statuses)]
    ]
    along = f"days since {first:%Y-%m-%d}"
    return charts.points(rows, list(NOT_AS_WANTED), "hosts", along, "Hosts that were not as wanted, over time")


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
