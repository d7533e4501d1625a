# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a trial: its metrics, where their numbers come from, its guardrails and its times."""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.options.smt_trial_design import RANGES
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import Origin
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.registry import sources
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records

# No duration is longer than the longest period.
MAX_SECONDS = RANGES["period"][1]
MAX_METRICS = 50
CONTINUE, END = "continue", "end"

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|min|h)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_OF_SOURCES = (*(name for source in sources() for name in source.settings), "counter")
_OF_METRICS = ("name", "unit", "better", "primary", "per", "looks_back", *_OF_SOURCES)
_OF_GUARDRAILS = ("name", "above", "below", "for", *_OF_SOURCES)


class TrialSettingsError(Exception):
    """A setting of a trial is not valid; the message names it and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of the service, with its source; the first fields are those of :class:`records.Metric`.

    Attributes:
        origin: where its numbers come from.
        looks_back: the age of the oldest sample that is a part of a value, in seconds, as the user says it; None where
            nothing is said.
    """

    name: str
    unit: str
    better: t.Literal["higher", "lower"]
    is_primary: bool
    per: str | None
    origin: Origin
    looks_back: float | None

    @property
    def written(self) -> records.Metric:
        """Itself as a trial has it."""
        return records.Metric(self.name, self.unit, self.better, self.is_primary, self.per)


@dataclasses.dataclass(frozen=True)
class Limit:
    """A guardrail.

    Attributes:
        name: for messages.
        above: the value that it may not exceed, or None.
        below: the value that it may not fall below, or None.
        seconds: how long it has to last.
        origin: where its numbers come from.
    """

    name: str
    above: float | None
    below: float | None
    seconds: float
    origin: Origin


def metrics(given: object) -> tuple[Metric, ...]:
    """Return the metrics of a trial, the primary one first.

    Args:
        given: a list of mappings, as the role's README describes them.

    Raises:
        TrialSettingsError: one of them is not valid.
    """
    trial_metrics = [
        _metric(entry, f"smt_trial_metrics[{number}]")
        for number, entry in enumerate(_entries("smt_trial_metrics", given))
    ]
    if not trial_metrics:
        raise TrialSettingsError(
            "smt_trial_metrics is empty: say what the service is judged by, such as {name: p99, query: ..., better:"
            " lower, primary: true}"
        )
    _see_that_names_differ("smt_trial_metrics", [metric.name for metric in trial_metrics])
    primary = [metric.name for metric in trial_metrics if metric.is_primary]
    if len(primary) != 1:
        raise TrialSettingsError(
            f"smt_trial_metrics has {len(primary)} primary metrics ({', '.join(primary) or 'none'}): mark the one that"
            " decides with primary: true"
        )
    for metric in trial_metrics:
        if metric.per is not None and (
            metric.per == metric.name or metric.per not in {other.name for other in trial_metrics}
        ):
            raise TrialSettingsError(
                f"smt_trial_metrics: {metric.name} is given per {text.line(metric.per, 60)}, which is not another of"
                " its metrics"
            )
    return tuple(sorted(trial_metrics, key=lambda metric: not metric.is_primary))


def guardrails(given: object) -> tuple[Limit, ...]:
    """Return the guardrails of a trial.

    Raises:
        TrialSettingsError: one of them is not valid.
    """
    limits = [
        _limit(entry, f"smt_trial_guardrails[{number}]")
        for number, entry in enumerate(_entries("smt_trial_guardrails", given))
    ]
    _see_that_names_differ("smt_trial_guardrails", [limit.name for limit in limits])
    return tuple(limits)


def whole(name: str, given: object, least: float, most: float) -> int:
    """Return a whole number within limits.

    Raises:
        TrialSettingsError: it is none; the message says what is allowed.
    """
    match = re.fullmatch(r"[0-9]{1,9}", str(given).strip()) if not isinstance(given, bool) else None
    if not match or not least <= int(match[0]) <= most:
        raise TrialSettingsError(
            f"{name} is {text.line(given, 40)}: it must be a whole number from {least:g} to {most:g}"
        )
    return int(match[0])


def seconds(name: str, given: object) -> float:
    """Return a duration in seconds, from a number or a number with its unit such as ``30s``.

    Raises:
        TrialSettingsError: it is none.
    """
    match = _DURATION.fullmatch(str(given).strip()) if not isinstance(given, bool) else None
    value = float(match[1]) * _UNITS[match[2] or "s"] if match else math.nan
    if not 0 <= value <= MAX_SECONDS:
        raise TrialSettingsError(f"{name} is {text.line(given, 40)}: it must be a duration such as 30s or 2m")
    return value


def most_switched(given: object, hosts: int) -> int:
    """Return how many hosts may be in another arm than the baseline at once.

    Args:
        given: a number, or a share such as ``50%``.
        hosts: how many hosts take part.

    Raises:
        TrialSettingsError: it is neither.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,5})(%?)", str(given).strip())
    if not match or (match[2] and int(match[1]) > 100):
        raise TrialSettingsError(
            f"smt_trial_most_switched is {text.line(given, 40)}: it must be a number of hosts, 1 or more, or a share of"
            " them such as 50%"
        )
    return max(1, hosts * int(match[1]) // 100) if match[2] else int(match[1])


def _entries(name: str, given: object) -> list[t.Any]:
    if not isinstance(given, list) or len(given) > MAX_METRICS:
        raise TrialSettingsError(f"{name} must be a list of at most {MAX_METRICS} mappings")
    return given


def _metric(given: object, where: str) -> Metric:
    entry = _mapping(given, where, _OF_METRICS)
    if entry.get("better") not in ("higher", "lower"):
        raise TrialSettingsError(f"{where}: better is {text.line(entry.get('better'), 40)}: it must be higher or lower")
    if not isinstance(entry.get("primary", False), bool):
        raise TrialSettingsError(f"{where}: primary is {text.line(entry['primary'], 40)}: it must be true or false")
    per = entry.get("per")
    return Metric(
        name=_name(entry, where),
        unit=text.line(entry.get("unit") or "", 40),
        better=entry["better"],
        is_primary=entry.get("primary", False),
        per=None if per is None else str(per),
        origin=_origin(entry, where),
        looks_back=seconds(f"{where}: looks_back", entry["looks_back"])
        if entry.get("looks_back") is not None
        else None,
    )


def _limit(given: object, where: str) -> Limit:
    entry = _mapping(given, where, _OF_GUARDRAILS)
    if ("above" in entry) == ("below" in entry):
        raise TrialSettingsError(
            f"{where}: give the value that {text.line(entry.get('name'), 60)} may not be above, or the one that it may"
            " not be below"
        )
    return Limit(
        name=_name(entry, where),
        above=_number(entry["above"], f"{where}: above") if "above" in entry else None,
        below=_number(entry["below"], f"{where}: below") if "below" in entry else None,
        seconds=seconds(f"{where}: for", entry.get("for", 0)),
        origin=_origin(entry, where),
    )


def _mapping(given: object, where: str, keys: t.Sequence[str]) -> dict[str, t.Any]:
    if not isinstance(given, dict):
        raise TrialSettingsError(f"{where} is {text.line(given, 80)}: it must be a mapping with a name and a source")
    unknown = sorted(text.line(key, 60) for key in given if key not in keys)
    if unknown:
        raise TrialSettingsError(f"{where} has {', '.join(unknown)}: it may have {', '.join(keys)}")
    return given


def _name(entry: dict[str, t.Any], where: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TrialSettingsError(
            f"{where}: name is {text.line(name, 80)}: it must be a word of lower-case letters, digits and '_', at"
            " most 60"
        )
    return name


def _origin(entry: dict[str, t.Any], where: str) -> Origin:
    given = [source for source in sources() if entry.get(source.key)]
    if len(given) != 1:
        raise TrialSettingsError(
            f"{where}: {text.line(entry.get('name'), 60)} has {len(given)} sources: give one of"
            f" {', '.join(source.key for source in sources())}"
        )
    try:
        asked = {source: source.asked(entry) for source in sources()}
    except SourceError as error:
        raise TrialSettingsError(f"{where}: {error}") from None
    origin = Origin(given[0], asked[given[0]], entry.get("counter", False))
    if not isinstance(origin.counter, bool) or (origin.counter and not origin.command):
        raise TrialSettingsError(f"{where}: counter is true or false, and not for a query, which has rate() of its own")
    return origin


def _number(given: object, where: str) -> float:
    try:
        value = float(str(given)) if not isinstance(given, bool) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TrialSettingsError(f"{where} is {text.line(given, 40)}: it must be a number")
    return value


def _see_that_names_differ(name: str, names: t.Sequence[str]) -> None:
    twice = sorted({repeated for repeated in names if names.count(repeated) > 1})
    if twice:
        raise TrialSettingsError(f"{name} has {', '.join(twice)} twice")
