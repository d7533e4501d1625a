# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: interleaved blocks of pinned workloads under each condition, on the host, without a controller.

A block holds one sample of each workload in each placement under each condition. Conditions alternate A B, B A, A B, ... and every
second block goes through its samples backwards, so that a drift of the host hits both sides of each comparison alike. Nothing is
timed across a toggle: after each the host settles.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms import changes
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment, placement, stopping_rule
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import MOST_BYTES, RunDirectory, RunDirectoryError, utc_now
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import runner, telemetry
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, custom
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.prepared import Ready, Sample

SCHEMA = "threadwise.smt/result"
SCHEMA_VERSION = 1

# How the conditions are called while one looks on.
CONDITIONS = {changes.SMT_ON: "SMT on", changes.SMT_OFF: "SMT off", changes.AS_FOUND: "what was found"}
# A block is measured whole; one that takes so many seconds more than the whole budget is given up before the guard would have to end the plan.
OVERTIME = 300
# So often in a row a workload may fail before it is given up, so that a broken one does not eat the budget of the others.
FAILURES_ALLOWED = 2


class PlanError(Exception):
    """The plan cannot be carried out on this host; the text says why."""


class Interrupted(BaseException):
    """The plan was told to end early."""


def check_settings(settings: t.Mapping[str, t.Any]) -> None:
    """See that a plan's settings can be carried out.

    Raises:
        PlanError, WorkloadError, PlacementError: the first setting that cannot, and what it may be.
    """
    if not chosen(settings):
        raise PlanError(f"no workload is named: choose from {', '.join(sorted(built_in.BUILT_IN))}, or give a command of your own")
    nowhere = placement.Placements((), (), ())
    for name in settings["placements"]:
        nowhere.workers(name)
    if not settings["placements"]:
        raise PlanError(f"no placement is named: choose from {', '.join(placement.NAMES)}, streams_N")
    limits: dict[str, tuple[float, float]] = {
        "budget": (1, 7 * 24 * 3600),
        "blocks": (1, 10000),
        "sample_seconds": (0.05, 600),
        "settle_seconds": (0, 600),
        "margin": (0.0001, 1),
    }
    for name, (least, most) in limits.items():
        value = settings[name]
        if value is not None and not least <= value <= most:
            raise PlanError(f"{name} is {value}: it must be from {least} to {most}")


def chosen(settings: t.Mapping[str, t.Any]) -> list[built_in.Workload]:
    """The declarations that a plan measures, in their order.

    Raises:
        WorkloadError: a name that does not exist, or a command of the user's own that cannot be used.
    """
    return built_in.named(settings["workloads"]) + custom.declarations(settings["custom"])


class Outline:
    """What a plan would do on this host: conditions and their placements, known before anything is touched.

    Args:
        change: what is switched, of ``changes``.
        allowed: the CPUs this process may use (sched_getaffinity(2)).
        names: names of placements.
    """

    def __init__(self, change: changes.Change, allowed: t.Iterable[int], names: t.Iterable[str]) -> None:
        self.change = change
        self.topology = change.topology
        self.names = list(names)
        self._allowed = set(allowed)

    @property
    def cpus(self) -> int:
        """The number of CPUs that take part when all siblings are online."""
        return max(len(self._usable(condition)) for condition in self.change.conditions) or 1

    def placements(self, condition: str) -> dict[str, placement.Spot]:
        """{placement: {workers, same_as, reason}} under a condition; workers is None, with a reason, where it does not exist."""
        where = self._places(condition)
        found = {name: where.workers(name) for name in self.names}
        same = placement.same_as_earlier({name: workers for name, (workers, _reason) in found.items() if workers})
        return {name: {"workers": workers, "same_as": same.get(name), "reason": reason} for name, (workers, reason) in found.items()}

    def alone(self) -> list[list[int]]:
        """The CPU list of one worker alone, where it runs under each condition."""
        workers, _reason = self._places(self.change.conditions[-1]).workers(placement.SINGLE)
        return workers or [[]]

    def _usable(self, condition: str) -> set[int]:
        # A sibling that is offline now may be missing from the mask of allowed CPUs and is there again once it is online.
        online: set[int] = self.change.online(condition)
        return (online & (self._allowed | set(self.topology.offline))) - set(self.topology.isolated)

    def _places(self, condition: str) -> placement.Placements:
        return placement.Placements(self.topology.cores, self.topology.packages, self._usable(condition))


class Item(t.NamedTuple):
    """What is sampled once in a block under a condition.

    Attributes:
        workload: the workload's name.
        placement: the placement's name.
        workers: the CPU list of each worker.
        point: the value of the workload's point, or None.
    """

    workload: str
    placement: str
    workers: list[list[int]]
    point: float | None


class Skipped(t.TypedDict):
    """What was not measured, and why."""

    workload: str
    placement: str | None
    condition: str | None
    reason: str


class Plan:
    """Carries an outline out.

    Args:
        run_directory: the created RunDirectory.
        outline: an Outline.
        settings: dict with ``workloads``, ``custom`` (commands of the user's own), ``placements``, ``budget`` (seconds), ``blocks``
            (the most of them, or None), ``sample_seconds``, ``settle_seconds``, ``margin`` (the equivalence margin), ``sources`` ({file name: C source}).
    """

    def __init__(self, run_directory: RunDirectory, outline: Outline, settings: t.Mapping[str, t.Any]) -> None:
        self.files = run_directory
        self.outline = outline
        self.settings = settings
        self.started = time.monotonic()
        self.skipped: list[Skipped] = []
        self.ready: dict[str, Ready] = {}
        self.failures = dict.fromkeys((workload["name"] for workload in chosen(settings)), 0)
        # The samples of a block under each condition, in order.
        self.items: dict[str, list[Item]] = {condition: [] for condition in outline.change.conditions}
        self.placements = {condition: outline.placements(condition) for condition in outline.change.conditions}
        self.recorder = telemetry.Recorder(outline.topology.cores)
        self.precision = stopping_rule.Precision(settings["margin"], self.placements)
        self.others = 0.0
        self.last: dict[str, t.Any] | None = None
        self.block = 0
        self.samples_done = 0
        # Bytes that a block has added to the result, at most.
        self.largest = 0
        self.condition: str | None = None

    def header(self, facts: t.Mapping[str, t.Any], host_environment: t.Mapping[str, t.Any], run: str) -> dict[str, t.Any]:
        """The part of a result that is known before the first sample."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "run": run,
            "collection_version": COLLECTION_VERSION,
            "started": utc_now(),
            "facts": facts,
            "environment": host_environment,
            "change": self.outline.change.described(),
            "plan": {
                "seconds_budget": self.settings["budget"],
                "sample_seconds": self.settings["sample_seconds"],
                "settle_seconds": self.settings["settle_seconds"],
                "blocks": self.settings["blocks"],
                "margin": self.settings["margin"],
                "order": "A B, B A, ...: conditions alternate, every second block runs backwards",
                "workloads": [built_in.described(workload, self.outline.cpus) for workload in chosen(self.settings)],
                "placements": self.placements,
            },
        }

    def measure(self) -> None:
        """Take the samples, until each main comparison is known precisely or the budget is spent.

        The host is left in the last condition: who calls puts it back.
        """
        try:
            self._prepare()
            if not self.ready:
                raise PlanError(f"no workload can be run here: {'; '.join(sorted({skip['reason'] for skip in self.skipped}))}")
            longest = 0.0
            stopped: str | None = None
            while stopped is None:
                begun, size = time.monotonic(), self.files.size()
                self._look_around()
                self._measure_block()
                self.largest = max(self.largest, self.files.size() - size)
                longest = max(longest, time.monotonic() - begun)
                self.block += 1
                stopped = self._why_no_more(longest)
            self.files.amend(plan={"stopped": stopped})
        finally:
            for name in list(self.ready):
                self._close(name)

    def _prepare(self) -> None:
        """Find out which workloads work here and how much work makes a sample of the wanted length."""
        self.progress("preparing")
        for workload in chosen(self.settings):
            name = workload["name"]
            try:
                self.ready[name] = Ready(workload, self.files, self.settings["sources"], self.settings["sample_seconds"], self.outline.cpus)
                self._choose_placements(self.ready[name])
                self.files.event("calibrated", self.ready[name].calibrate(self.outline.alone()))
            except (built_in.WorkloadError, runner.RunnerError, OSError) as error:
                self._give_up(name, None, str(error))

    def _choose_placements(self, ready: Ready) -> None:
        """Decide where a workload is measured under each condition, and say what had to be left out."""
        name = ready.workload["name"]
        for condition, spots in self.placements.items():
            for spot, where in spots.items():
                # What is the same set of CPUs under another name is measured under the first of these names.
                names = [spot] + [other for other, elsewhere in spots.items() if elsewhere["same_as"] == spot]
                if not where["workers"] or where["same_as"] or not any(map(ready.applies, names)):
                    continue
                lacking = ready.lacks(where["workers"])
                if lacking:
                    self._skip(name, spot, condition, lacking)
                else:
                    self.items[condition] += [Item(name, spot, where["workers"], point) for point in ready.points]
        if not any(item.workload == name for items in self.items.values() for item in items):
            raise built_in.WorkloadError(
                f"{name} is measured in {', '.join(ready.workload['placements'] or placement.NAMES)}: none of them is in this plan and possible here"
            )

    def _why_no_more(self, longest: float) -> str | None:
        """Why no further block is measured (``budget``, ``blocks``, ``precise``, ``nothing``, ``size``), or None when one is."""
        if not self.ready:
            return "nothing"
        if self.settings["blocks"] and self.block >= self.settings["blocks"]:
            return "blocks"
        if self.elapsed() + longest > self.settings["budget"]:
            return "budget"
        if self.files.size() + self.largest > MOST_BYTES:
            return "size"
        return "precise" if self.precision.enough() else None

    def _look_around(self) -> None:
        """Keep what the host is like before a block, and say so when others keep it busy."""
        others: float = telemetry.load_by_others()
        self.others = max(self.others, others)
        self.files.amend(environment={"busy": {"others": self.others}})
        self.files.event("block", dict(environment.changing(), block=self.block, control=smt_state.read("/")["control"], others=others))
        trouble = telemetry.too_busy(others)
        if trouble:
            self.files.event("busy", f"block {self.block}: {trouble}")

    def _measure_block(self) -> None:
        for condition in self.outline.change.conditions[:: 1 if self.block % 2 == 0 else -1]:
            self._switch(condition)
            items = self.items[condition]
            for item in items if self.block % 2 == 0 else items[::-1]:
                if self.elapsed() > self.settings["budget"] + OVERTIME:
                    raise PlanError(
                        f"block {self.block} was not done {OVERTIME} s after the budget of {self.settings['budget']} s was spent: give this host more time, "
                        "fewer workloads or placements, or shorter samples"
                    )
                if self.files.size() > MOST_BYTES:
                    raise PlanError(
                        f"block {self.block} was not done, and the samples so far are as large as a result may be ({MOST_BYTES // 1024 // 1024} MiB): "
                        "measure fewer workloads, placements or points on this host"
                    )
                if item.workload in self.ready:
                    self._sample(item)

    def _switch(self, condition: str) -> None:
        change = self.outline.change
        if condition != self.condition and change.compared:
            self.progress(f"switching to {CONDITIONS.get(condition, condition)}")
            change.switch(condition)
            self.files.event("switched", condition)
            time.sleep(self.settings["settle_seconds"])
            observed = change.observe(condition) if self.block == 0 else None
            if observed:
                self.files.append("observations.jsonl", observed)
        self.condition = condition

    def _sample(self, item: Item) -> None:
        ready = self.ready[item.workload]
        about = ready.workload["point"]
        sample: dict[str, t.Any] = {
            "workload": item.workload,
            "placement": item.placement,
            "condition": self.condition,
            "block": self.block,
            "index": self.samples_done,
            "started": utc_now(),
            "point": about and {"name": about["name"], "value": item.point, "unit": about["unit"]},
            "frequency": {},
            "throttled": None,
            "perf": None,
        }
        begun = time.monotonic()
        try:
            with self.recorder.around(item.workers, sample):
                taken = ready.sample(item.workers, item.point)
        except (built_in.WorkloadError, runner.RunnerError, OSError) as error:
            self._failed(sample, str(error), time.monotonic() - begun)
        else:
            self._succeeded(ready, sample, taken)
        self.samples_done += 1
        self.progress("measuring")

    def _succeeded(self, ready: Ready, sample: dict[str, t.Any], taken: Sample) -> None:
        metric = ready.workload["metric"]["name"]
        self.failures[sample["workload"]] = 0
        sample.update(
            ok=True,
            error=None,
            wall_seconds=max(worker["wall_seconds"] for worker in taken["workers"]),
            metric=dict(taken["metrics"][metric], name=metric),
            metrics=taken["metrics"],
            work=ready.work,
            workers=[
                {
                    "cpus": ",".join(map(str, worker["cpus"])),
                    "value": value,
                    "wall_seconds": round(worker["wall_seconds"], 6),
                    "cpu_seconds": round(worker["cpu_seconds"], 6),
                    "context_switches": worker["context_switches"],
                }
                for worker, value in zip(taken["workers"], taken["values"])
            ],
            cpu_usage=taken["cpu_usage"],
            core_usage=self.recorder.core_usage(taken["cpu_usage"]),
            steal=taken["steal"],
        )
        self.files.append("samples.jsonl", sample)
        self.precision.add(sample)
        self.last = {key: sample[key] for key in ("workload", "placement", "condition", "metric")}
        self.last["workers"] = len(taken["workers"])

    def _failed(self, sample: dict[str, t.Any], reason: str, seconds: float) -> None:
        name = sample["workload"]
        sample.update(ok=False, error=reason, wall_seconds=seconds, metric=None, metrics={}, workers=[], cpu_usage={}, core_usage={}, steal=None)
        self.files.append("samples.jsonl", sample)
        self.failures[name] += 1
        if self.failures[name] > FAILURES_ALLOWED:
            self._give_up(name, sample["placement"], f"given up after {self.failures[name]} failures in a row: {reason}")

    def _give_up(self, name: str, spot: str | None, reason: str) -> None:
        self._skip(name, spot, self.condition, reason)
        self.precision.drop(name)
        self._close(name)

    def _close(self, name: str) -> None:
        """End what a workload needs, and say what it left behind."""
        ready = self.ready.pop(name, None)
        left = ready.close() if ready else None
        if left:
            # On a full disk it cannot be told; it must not take the place of what is to be told then.
            with contextlib.suppress(RunDirectoryError):
                self.files.event("left", left)

    def _skip(self, name: str, spot: str | None, condition: str | None, reason: str) -> None:
        self.skipped.append({"workload": name, "placement": spot, "condition": condition, "reason": reason})
        self.files.event("skipped", f"{name}: {reason}")

    def elapsed(self) -> float:
        """Return the seconds since the plan began."""
        return time.monotonic() - self.started

    def progress(self, phase: str) -> None:
        """Leave word of how far the plan is, for whoever asks."""
        budget = self.settings["budget"]
        share = self.elapsed() / budget
        if self.settings["blocks"] and self.block:
            share = max(share, self.block / self.settings["blocks"])
        self.files.write(
            "progress.json",
            {
                "phase": phase,
                "at": utc_now(),
                "block": self.block + 1,
                "samples": self.samples_done,
                "fraction": round(min(share, 1.0), 3),
                "seconds_left": round(max(0.0, budget - self.elapsed())),
                "condition": self.condition,
                "last": self.last,
            },
            lasting=False,
        )
