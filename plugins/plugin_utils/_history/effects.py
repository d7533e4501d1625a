# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SMT did to each workload of a hardware class, from one evaluation to the next: over kernels and months."""

from __future__ import annotations

import collections
import contextlib
import datetime
import itertools
import math
import os
import pathlib
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons, paired, recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.change import Change
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import histories, parts, results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import folders
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions

REPORT = "results.json"
MAX_BYTES = 1024 * 1024 * 1024
MAX_RUNS = 10_000
# How sure a change has to be.
LEVEL = 0.05
MAX_TEXT = 300


class Effect(t.NamedTuple):
    """What one run says of a workload of a class.

    Attributes:
        run: its name.
        host: that says it by itself; empty where several hosts do, combined.
        at: when the controller had collected the last of its hosts (aware); None where that is not known.
        kernels: releases of its hosts' kernels.
        better: the direction of the metric.
        ratio: SMT off against SMT on, turned so that above 1 is better.
        low: the lower end of its interval.
        high: the upper end.
        confidence: of the interval.
        verdict: of the comparison.
    """

    run: str
    host: str
    at: datetime.datetime | None
    kernels: tuple[str, ...]
    better: str
    ratio: float
    low: float
    high: float
    confidence: float
    verdict: str

    @property
    def day(self) -> str:
        """``YYYY-MM-DD`` of UTC; empty where it is not known."""
        return self.at.date().isoformat() if self.at else ""

    @property
    def moment(self) -> tuple[datetime.datetime, str]:
        """By which runs are in order."""
        return self.at or datetime.datetime.min.replace(tzinfo=datetime.UTC), self.run

    @property
    def log(self) -> float:
        """The logarithm of the ratio."""
        return math.log(self.ratio)

    @property
    def error(self) -> float:
        """The standard error of it, as the interval has it."""
        quantile = statistics.NormalDist().inv_cdf((1 + self.confidence) / 2)
        return max(1e-6, math.log(self.high / self.low) / (2 * quantile))

    @property
    def change(self) -> Change:
        """The change of the metric itself."""
        return Change.of_ratios(self.better, self.ratio, self.low, self.high)

    def turned(self) -> Effect:
        """Return what the baseline is against the candidate."""
        verdict = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}.get(self.verdict, self.verdict)
        return self._replace(ratio=1 / self.ratio, low=1 / self.high, high=1 / self.low, verdict=verdict)


# Whether the latest run says what those before it say.
HOLDS, CHANGED, NOT_DECIDED = "holds", "changed", "not decided"
# What it may differ by and still hold, a share.
NEAR = 0.05


class Turn(t.NamedTuple):
    """A change between two runs.

    Attributes:
        place: number of the first run after it.
        before: mean ratio of the runs before it, since the turn before.
        after: that of the runs from it on, until the next turn.
        p_value: how often chance alone gives such a turn at one of the possible places.
    """

    place: int
    before: float
    after: float
    p_value: float


Key = tuple[str, str]


def read(directory: str | os.PathLike[str], now: datetime.datetime) -> tuple[dict[Key, list[Effect]], list[str]]:
    """Return the effects of each workload of each hardware class in the order of their times, and a sentence about each
    run that is left out.

    The hosts of a class differ. So what a host says by itself in the latest run is compared with what it has said
    before, and what several say combined with what several have said.

    Args:
        directory: that of runs, such as ``smt_eval_results``.
        now: the present time, aware.

    Raises:
        BorderError: it cannot be read.
    """
    found: dict[Key, list[Effect]] = collections.defaultdict(list)
    left_out = []
    try:
        runs = sorted(path for path in pathlib.Path(directory).iterdir() if results.is_run_name(path.name))[:MAX_RUNS]
    except OSError as error:
        raise text.BorderError(f"{directory}: the runs of evaluations: {error.strerror}") from None
    for path in runs:
        if not (path / REPORT).exists():
            continue
        try:
            for key, effect in _of_run(path, now):
                found[key].append(effect)
        except (OSError, text.BorderError) as error:
            left_out.append(f"{text.line(path.name)}: {text.line(error, MAX_TEXT)}")
    alike: dict[Key, list[Effect]] = {}
    by_others: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for key, effects in sorted(found.items()):
        effects.sort(key=lambda effect: effect.moment)
        latest = effects[-1].run
        host = min(one.host for one in effects if one.run == latest)
        alike[key] = [one for one in effects if one.host == host]
        others = dict.fromkeys(one.run for one in effects if one.run not in {kept.run for kept in alike[key]})
        for run in others:
            by_others[run, f"{host} alone" if host else "several hosts"].append(" of ".join(filter(None, key[::-1])))
    left_out += [
        f"{run} for {wording.named(measured)}: it was not measured by {by}, as in the latest run"
        for (run, by), measured in by_others.items()
    ]
    return alike, left_out


def _of_run(path: pathlib.Path, now: datetime.datetime) -> t.Iterator[tuple[Key, Effect]]:
    """Yield what each host says by itself, and what those of a class say combined where they are several."""
    report = parts.decoded(folders.read(path / REPORT, MAX_BYTES).decode("utf-8", "replace"), histories.Report)
    kernels: dict[str, set[str]] = collections.defaultdict(set)
    at = _when(report)
    if at and at > now + decisions.AHEAD:
        raise text.BorderError(f"its time is {at:%Y-%m-%dT%H:%M:%SZ}, which is in the future")
    for host in report.hosts:
        name = host.hardware_class or ""
        kernel = host.environment and host.environment.kernel
        ran = {text.line(kernel, MAX_TEXT)} if kernel else set()
        kernels[name] |= ran
        for one in host.comparisons:
            sides = one.baseline.arm, one.candidate.arm
            if not (one.primary and one.placement == comparisons.WHOLE_MACHINE and set(sides) == set(recorded.OF_SMT)):
                continue
            effect = _effect(one, path.name, text.line(host.host, MAX_TEXT), at, ran)
            if effect is not None:
                # Of SMT off against on, whatever the baseline was.
                yield _key(name, one), effect if sides == recorded.OF_SMT else effect.turned()
    for of_class in report.classes:
        name = of_class.hardware_class or ""
        for workload in of_class.workloads:
            effect = _effect(workload, path.name, "", at, kernels[name])
            if workload.of_smt and workload.n > 1 and effect is not None:
                yield _key(name, workload), effect


def _key(name: str, one: histories.Compared) -> Key:
    return text.line(name, MAX_TEXT), text.line(one.title, MAX_TEXT)


def _effect(
    one: histories.Compared, run: str, host: str, at: datetime.datetime | None, kernels: t.Iterable[str]
) -> Effect | None:
    low, high, ratio = one.ci_low, one.ci_high, one.ratio
    if not (one.better and low and high and ratio and 0 < low <= ratio <= high):
        return None
    confidence = min(0.9999, max(0.5, one.interval_confidence or 0.95))
    return Effect(run, host, at, tuple(sorted(kernels)), one.better, ratio, low, high, confidence, one.verdict or "")


def _when(report: histories.Report) -> datetime.datetime | None:
    """Return when the controller had collected the last host of a run.

    Reports of earlier releases lack it. For them it is the start of the run on the host in the middle: the clock of any
    one of them may be wrong.
    """
    collected, started = (
        sorted(at for host in report.hosts if (at := _moment(getattr(host, name)))) for name in ("collected", "started")
    )
    return collected[-1] if collected else statistics.median_low(started) if started else None


def _moment(value: str | None) -> datetime.datetime | None:
    with contextlib.suppress(text.BorderError):
        return results.moment(value, "")
    return None


def turns(effects: t.Sequence[Effect], margin: float) -> list[Turn]:
    """Return where the effect has changed, by its intervals.

    The runs are split where the weighted means before and after differ most, in standard errors; the p-value of that is
    multiplied by the number of places where they could have been split. Then the parts are split likewise. Runs on
    other days differ by more than their own intervals say: by the margin, or by as much as the runs within the parts do
    (DerSimonian and Laird, Control. Clin. Trials 7, 1986). A difference below the margin is none.

    docs/fleet.md says how often it finds a change, and calls one where there is none. apache-otava, which finds changes
    in series of values, does not know their intervals and needs four of them, so it is not used.

    Args:
        effects: of one workload of one class, in order.
        margin: effects within this share of 1 count as none.
    """
    places = _split(effects, 0, margin)
    ends = [0, *(place for place, _p_value in places), len(effects)]
    means = [math.exp(_mean(effects[begin:end], 0.0)[0]) for begin, end in itertools.pairwise(ends)]
    return [Turn(place, *pair, p_value) for (place, p_value), pair in zip(places, itertools.pairwise(means))]


def standing(effects: t.Sequence[Effect], found: t.Sequence[Turn], margin: float) -> str | None:
    """Return whether the latest run says what those before it say since the last turn: ``HOLDS`` where it cannot differ
    by more than :data:`NEAR`, ``CHANGED`` where a turn is at it, or ``NOT_DECIDED``; None for a single run.

    Args:
        effects: of one workload of one class, in order.
        found: from :func:`turns`.
        margin: as there.
    """
    last = len(effects) - 1
    if last < 1:
        return None
    if found and found[-1].place == last:
        return CHANGED
    since = found[-1].place if found else 0
    difference, error = _difference(effects[since:last], effects[last:], margin)
    reach = difference + statistics.NormalDist().inv_cdf(1 - LEVEL) * error
    return HOLDS if reach <= math.log1p(NEAR) else NOT_DECIDED


def _split(effects: t.Sequence[Effect], first: int, margin: float) -> list[tuple[int, float]]:
    if len(effects) < 2:
        return []
    tried = []
    for place in range(1, len(effects)):
        difference, error = _difference(effects[:place], effects[place:], margin)
        tried.append((difference / error, difference, place))
    score, difference, place = max(tried)
    p_value = min(1.0, 2 * (1 - statistics.NormalDist().cdf(score)) * len(tried))
    if p_value > LEVEL or difference <= math.log1p(margin):
        return []
    return [
        *_split(effects[:place], first, margin),
        (first + place, p_value),
        *_split(effects[place:], first + place, margin),
    ]


def _difference(before: t.Sequence[Effect], after: t.Sequence[Effect], margin: float) -> tuple[float, float]:
    """Return by how much two parts differ, and the standard error of that."""
    pairs = [_heterogeneity(part) for part in (before, after) if len(part) > 1]
    denominator = sum(scale for _excess, scale in pairs)
    between = sum(excess for excess, _scale in pairs) / denominator if denominator else 0.0
    variance = max(math.log1p(margin) ** 2, between)
    (first, of_first), (second, of_second) = _mean(before, variance), _mean(after, variance)
    return abs(second - first), math.sqrt(of_first + of_second)


def _mean(effects: t.Sequence[Effect], between: float) -> tuple[float, float]:
    """Return the weighted mean of logarithms, and its variance."""
    weights = [1 / (one.error**2 + between) for one in effects]
    whole = sum(weights)
    return sum(weight * one.log for weight, one in zip(weights, effects)) / whole, 1 / whole


def _heterogeneity(effects: t.Sequence[Effect]) -> tuple[float, float]:
    """Return Cochran's Q beyond its degrees of freedom, and what turns that into a variance between runs."""
    weights = [1 / one.error**2 for one in effects]
    centre, _variance = _mean(effects, 0.0)
    excess = sum(weight * (one.log - centre) ** 2 for weight, one in zip(weights, effects)) - (len(effects) - 1)
    return max(0.0, excess), sum(weights) - sum(weight**2 for weight in weights) / sum(weights)
