# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SMT did to each workload of a hardware class, from one evaluation to the next: over kernels and months."""

from __future__ import annotations

import collections
import contextlib
import datetime
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
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled.series import Interval

REPORT = "results.json"
MAX_BYTES = 1024 * 1024 * 1024
MAX_RUNS = 10_000
MAX_TEXT = 300


class Effect(t.NamedTuple):
    """What one run says of a workload of a class.

    Attributes:
        run: its name.
        host: that says it by itself; empty where several hosts do, combined.
        at: when the controller had collected the last of its hosts (aware); None where that is not known.
        kernels: releases of its hosts' kernels.
        better: the direction of the metric.
        interval: SMT off against SMT on, turned so that above 1 is better.
        verdict: of the comparison.
    """

    run: str
    host: str
    at: datetime.datetime | None
    kernels: tuple[str, ...]
    better: str
    interval: Interval
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
    def change(self) -> Change:
        """The change of the metric itself."""
        return Change.of_ratios(self.better, self.interval.ratio, self.interval.low, self.interval.high)

    def turned(self) -> Effect:
        """Return what the baseline is against the candidate."""
        verdict = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}.get(self.verdict, self.verdict)
        return self._replace(interval=self.interval.turned(), verdict=verdict)


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
    interval = series.interval(one.ratio, one.ci_low, one.ci_high, one.interval_confidence)
    if not (one.better and interval):
        return None
    return Effect(run, host, at, tuple(sorted(kernels)), one.better, interval, one.verdict or "")


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
