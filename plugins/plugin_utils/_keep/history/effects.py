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

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import histories
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons, paired, recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled.series import Interval
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._page.change import Change

REPORT = "results.json"
MAX_BYTES = 1024 * 1024 * 1024
MAX_RUNS = 10_000
MAX_TEXT = 300


class Key(t.NamedTuple):
    """Of what an effect is.

    Attributes:
        hardware_class: the class; empty where it is not known.
        host: the host where its class is not known, as it represents no other one; else empty.
        workload: name of the workload, with the value of its parameter.
    """

    hardware_class: str
    host: str
    workload: str

    @property
    def whose(self) -> str:
        """The class, or the host."""
        return self.hardware_class or self.host


class Measured(t.NamedTuple):
    """What the numbers of a workload mean: those of :data:`pooled.DECLARED`; what is not known is empty."""

    metric: str
    unit: str
    better: str
    aggregate: str

    def in_words(self) -> str:
        """Return it in words."""
        of_workers = f", {self.aggregate} of its workers" if self.aggregate else ""
        return f"{self.metric} in {self.unit}, {self.better} is better{of_workers}"


class Effect(t.NamedTuple):
    """What one run says of a workload of a class.

    Attributes:
        run: its name.
        host: that says it by itself; empty where several hosts do, combined.
        at: when the controller had collected the last of its hosts (aware); None where that is not known.
        kernels: releases of its hosts' kernels.
        title: of the workload.
        measured: of the workload.
        interval: SMT off against SMT on, turned so that above 1 is better.
        verdict: of the comparison.
    """

    run: str
    host: str
    at: datetime.datetime | None
    kernels: tuple[str, ...]
    title: str
    measured: Measured
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
        return Change.of_ratios(self.measured.better, self.interval.ratio, self.interval.low, self.interval.high)

    def turned(self) -> Effect:
        """Return what the baseline is against the candidate."""
        verdict = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}.get(self.verdict, self.verdict)
        return self._replace(interval=self.interval.turned(), verdict=verdict)


def read(directory: str | os.PathLike[str], now: datetime.datetime) -> tuple[dict[Key, list[Effect]], list[str]]:
    """Return the effects of each workload of each hardware class in the order of their times, and a sentence about each
    run that is left out.

    The hosts of a class differ. So what a host says by itself in the latest run is compared with what it has said
    before, and what several say combined with what several have said. A run that measured something else by a workload
    of the same name is no part of its series.

    Args:
        directory: that of runs, such as ``smt_eval_results``, or of one run.
        now: the present time, aware.

    Raises:
        BorderError: it cannot be read, or has no report of an evaluation of SMT.
    """
    by_key: dict[Key, list[Effect]] = collections.defaultdict(list)
    whole = pathlib.Path(directory).resolve()
    try:
        runs = sorted(path for path in whole.iterdir() if results.is_run_name(path.name) and path.is_dir())
    except OSError as error:
        raise text.BorderError(f"{directory}: the runs of evaluations: {error.strerror}") from None
    more = wording.counted(len(runs) - MAX_RUNS, "run")
    left_out = [f"{more}: only the last {MAX_RUNS} by name are read"] if len(runs) > MAX_RUNS else []
    # A directory of one run is a run itself.
    for path in [whole, *runs[-MAX_RUNS:]]:
        try:
            if not (path / REPORT).exists():
                continue
            for key, effect in _of_run(path, now):
                by_key[key].append(effect)
        except (OSError, text.BorderError) as error:
            left_out.append(f"{text.line(path.name)}: {text.line(getattr(error, 'strerror', error), MAX_TEXT)}")
    if not by_key:
        why = f" ({left_out[0]}{f'; and {len(left_out) - 1} more' if left_out[1:] else ''})" if left_out else ""
        raise text.BorderError(
            f"{directory}: no report of a run has an effect of SMT{why}: name a directory of evaluations that compared"
            " SMT on and off (smt_history_results)"
        )
    alike: dict[Key, list[Effect]] = {}
    differing: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for key, effects in sorted(by_key.items()):
        effects.sort(key=lambda effect: effect.moment)
        latest = min((effect for effect in effects if effect.run == effects[-1].run), key=lambda effect: effect.host)
        by_same = [effect for effect in effects if effect.host == latest.host]
        alike[key] = [effect for effect in by_same if effect.measured == latest.measured]
        others = {effect.run: None for effect in effects} | {effect.run: effect.measured for effect in by_same}
        for run in others.keys() - {effect.run for effect in alike[key]}:
            differing[run, _difference(latest, others[run])].append(f"{latest.title} of {key.whose}")
    left_out += [f"{run} for {wording.named(names)}: {why}" for (run, why), names in sorted(differing.items())]
    return alike, left_out


def _difference(latest: Effect, measured: Measured | None) -> str:
    """Say why a run is not compared with the latest; ``measured`` is what it measured, where the same hosts did."""
    if measured:
        return f"it measured {measured.in_words()}, and the latest run {latest.measured.in_words()}"
    by = f"{latest.host} alone" if latest.host else "several hosts"
    return f"it was not measured by {by}, as in the latest run"


def _of_run(path: pathlib.Path, now: datetime.datetime) -> t.Iterator[tuple[Key, Effect]]:
    """Yield what each host says by itself, and what those of a class say combined where they are several."""
    report = parts.decoded(folders.read(path / REPORT, MAX_BYTES).decode("utf-8", "replace"), histories.Report)
    kernels: dict[str, set[str]] = collections.defaultdict(set)
    declared: dict[Key, Measured] = {}
    at = _when(report)
    if at and at > now + decisions.AHEAD:
        raise text.BorderError(f"its time is {at:%Y-%m-%dT%H:%M:%SZ}, which is in the future")
    for host in report.hosts:
        name, by = host.hardware_class or "", text.line(host.host, MAX_TEXT)
        kernel = host.environment and host.environment.kernel
        ran = {text.line(kernel, MAX_TEXT)} if kernel else set()
        kernels[name] |= ran
        for compared in host.comparisons:
            sides = compared.baseline.arm, compared.candidate.arm
            if not (
                compared.primary
                and compared.placement == comparisons.WHOLE_MACHINE
                and set(sides) == set(recorded.OF_SMT)
            ):
                continue
            key = _key(
                name,
                by,
                compared.workload if compared.parameter is None else f"{compared.workload} {compared.parameter:g}",
            )
            meaning = compared.metric, compared.unit, compared.better, compared.aggregate or ""
            measured = declared[key] = Measured(*(text.line(part, MAX_TEXT) for part in meaning))
            effect = _effect(compared, path.name, by, at, ran, measured)
            if effect is not None:
                # Of SMT off against on, whatever the baseline was.
                yield key, effect if sides == recorded.OF_SMT else effect.turned()
    for of_class in report.classes:
        name = of_class.hardware_class or ""
        for workload in of_class.workloads:
            # The place and the sides stand behind a comma where they are not those of most.
            key = _key(name, "", workload.workload.partition(",")[0])
            # Its hosts are combined only where they declare it alike.
            if name and workload.of_smt and workload.n > 1 and key in declared:
                effect = _effect(workload, path.name, "", at, kernels[name], declared[key])
                if effect is not None:
                    # A most load is compared the other way round, and its title says so.
                    effect = effect._replace(title=text.line(workload.name or workload.title, MAX_TEXT))
                    yield key, effect.turned() if workload.effect == arms.SMT_ON else effect


def _key(name: str, host: str, workload: str) -> Key:
    return Key(text.line(name, MAX_TEXT), "" if name else host, text.line(workload, MAX_TEXT))


def _effect(
    compared: histories.Compared,
    run: str,
    host: str,
    at: datetime.datetime | None,
    kernels: t.Iterable[str],
    measured: Measured,
) -> Effect | None:
    interval = series.interval(compared.ratio, compared.ci_low, compared.ci_high, compared.interval_confidence)
    if interval is None:
        return None
    title = text.line(compared.title, MAX_TEXT)
    return Effect(run, host, at, tuple(sorted(kernels)), title, measured, interval, compared.verdict or "")


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
