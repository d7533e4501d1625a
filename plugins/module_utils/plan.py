# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: interleaved blocks of pinned workloads under each condition, on the host, without a controller.

A block holds one sample of each workload in each placement under each condition. Conditions alternate A B, B A, A B, ... and every
second block goes through its samples backwards, so that a drift of the host hits both sides of each comparison alike. Nothing is
timed across a toggle: after each the host settles.
"""

from __future__ import annotations

import time

from ansible_collections.threadwise.smt.plugins.module_utils import (
    cpu_state, environment, placement, runner, sample_record, stop_rule, workload_custom, workloads)
from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import utc_now
from ansible_collections.threadwise.smt.plugins.module_utils.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils.workload_run import Ready

SMT_ON = "smt_on"
SMT_OFF = "smt_off"
AS_FOUND = "as_found"
SMT_RUNTIME = "smt_runtime"

SCHEMA = "threadwise.smt/result"
SCHEMA_VERSION = 1

# So often in a row a workload may fail before it is given up, so that a broken one does not eat the budget of the others.
FAILURES_ALLOWED = 2


class PlanError(Exception):
    """The plan cannot be carried out on this host; the text says why."""


class Interrupted(BaseException):
    """The plan was told to end early."""


def check_settings(settings):
    """See that a plan's settings can be carried out.

    Raises:
        PlanError, WorkloadError, PlacementError: the first setting that cannot, and what it may be.
    """
    if not chosen(settings):
        raise PlanError("no workload is named: choose from %s, or give a command of your own" % ", ".join(sorted(workloads.BUILT_IN)))
    nowhere = placement.Placements((), (), ())
    for name in settings["placements"]:
        nowhere.workers(name)
    if not settings["placements"]:
        raise PlanError("no placement is named: choose from %s, streams_N" % ", ".join(placement.NAMES))
    limits = {"budget": (1, 7 * 24 * 3600), "blocks": (1, 10000), "sample_seconds": (0.05, 600), "settle_seconds": (0, 600),
              "margin": (0.0001, 1)}
    for name, (least, most) in limits.items():
        value = settings[name]
        if value is not None and not least <= value <= most:
            raise PlanError("%s is %s: it must be from %s to %s" % (name, value, least, most))


def chosen(settings):
    """The declarations that a plan measures, in their order.

    Raises:
        WorkloadError: a name that does not exist, or a command of the user's own that cannot be used.
    """
    return workloads.named(settings["workloads"]) + workload_custom.declarations(settings["custom"])


def why_not_switched(facts, wanted):
    """Why SMT is not switched on this host, as a sentence part, or None when it is.

    Args:
        facts: ``ansible_facts['smt']``.
        wanted: whether the user wants SMT switched.
    """
    control = facts["control"]
    if not wanted:
        return "switching was not asked for"
    if control == "notsupported" or facts["supported"] is False:
        return "this host has no SMT to switch (smt/control reads %s)" % control
    if facts["complete"] and facts["threads_per_core"]["max"] == 1 and control not in ("off", "forceoff"):
        return "no core of this host has a second thread"
    runtime = facts["methods"]["runtime"]
    if runtime["chosen"] is None:
        reasons = "; ".join("%s: %s" % item for item in sorted(runtime["impossible"].items()))
        return "SMT cannot be switched at run time here (%s)" % (reasons or "no method")
    return None


class Outline:
    """What a plan would do on this host: conditions and their placements, known before anything is touched.

    Args:
        facts: ``ansible_facts['smt']``, for the reasons.
        topology: the host's ``Topology``.
        allowed: the CPUs this process may use (sched_getaffinity(2)).
        settings: dict with ``workloads``, ``placements`` (lists of names), ``change`` (``smt_runtime`` or ``none``).
    """

    def __init__(self, facts, topology, allowed, settings):
        self.topology = topology
        self.reason = why_not_switched(facts, settings["change"] == SMT_RUNTIME)
        self.names = list(settings["placements"])
        self._allowed = set(allowed)

    @property
    def compared(self):
        """Whether SMT is switched."""
        return self.reason is None

    @property
    def conditions(self):
        """The conditions of each block, in the order of the first."""
        return [SMT_ON, SMT_OFF] if self.compared else [AS_FOUND]

    @property
    def cpus(self):
        """The number of CPUs that take part when all siblings are online."""
        return max(len(self._usable(condition)) for condition in self.conditions) or 1

    def do_not_switch(self, reason):
        """Measure the placements alone, because of a reason that the host's facts do not tell."""
        self.reason = reason

    def placements(self, condition):
        """{placement: {workers, same_as, reason}} under a condition; workers is None, with a reason, where it does not exist."""
        where = self._places(condition)
        found = {name: where.workers(name) for name in self.names}
        same = placement.same_as_earlier({name: workers for name, (workers, _reason) in found.items() if workers})
        return {name: {"workers": workers, "same_as": same.get(name), "reason": reason} for name, (workers, reason) in found.items()}

    def alone(self):
        """The CPU list of one worker alone, where it runs under each condition."""
        workers, _reason = self._places(self.conditions[-1]).workers(placement.SINGLE)
        return workers or [[]]

    def online(self, condition):
        """The set of CPUs that are online under a condition, as far as the topology tells."""
        online = set(self.topology.online)
        if condition == SMT_ON and not cpu_state.smt_in_use(online, self.topology.cores):
            online |= {cpu for core in self.topology.cores if online & set(core) for cpu in core}
        if condition == SMT_OFF:
            online -= set(self.secondaries(online))
        return online

    def _usable(self, condition):
        # A sibling that is offline now may be missing from the mask of allowed CPUs and is there again once it is online.
        return (self.online(condition) & (self._allowed | set(self.topology.offline))) - set(self.topology.isolated)

    def _places(self, condition):
        return placement.Placements(self.topology.cores, self.topology.packages, self._usable(condition))

    def secondaries(self, online):
        """The CPUs that go offline with SMT: all but the first online thread of each core."""
        return [cpu for core in self.topology.cores for cpu in [one for one in core if one in online][1:]]


class Plan:
    """Carries an outline out.

    Args:
        run_directory: the created RunDirectory.
        outline: an Outline.
        settings: dict with ``workloads``, ``custom`` (commands of the user's own), ``placements``, ``change``, ``budget`` (seconds), ``blocks``
            (the most of them, or None), ``sample_seconds``, ``settle_seconds``, ``margin`` (the equivalence margin), ``sources`` ({file name: C source}).
        origin: the host's state as from ``cpu_state.read`` before the plan: a sibling that is off on purpose in it stays off.
        sysroot: where sysfs is.
    """

    def __init__(self, run_directory, outline, settings, origin, sysroot="/"):
        self.files = run_directory
        self.outline = outline
        self.settings = settings
        self.origin = origin
        self.sysroot = sysroot
        self.started = time.monotonic()
        self.skipped = []
        self.ready = {}
        self.failures = dict.fromkeys((workload["name"] for workload in chosen(settings)), 0)
        # The samples of a block under each condition, in order: (workload, placement, workers, point).
        self.items = {condition: [] for condition in outline.conditions}
        self.placements = {condition: outline.placements(condition) for condition in outline.conditions}
        self.recorder = sample_record.Recorder(outline.topology.cores)
        self.precision = stop_rule.Precision(settings["margin"], self.placements)
        self.others = 0.0
        self.last = None
        self.block = 0
        self.samples_done = 0
        self.condition = None

    def header(self, facts, host_environment, run):
        """The part of a result that is known before the first sample."""
        compared = self.outline.compared
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "run": run,
            "collection_version": COLLECTION_VERSION,
            "started": utc_now(),
            "facts": facts,
            "environment": host_environment,
            "change": {
                "name": self.settings["change"],
                "compared": compared,
                "reason": self.outline.reason,
                "before": SMT_ON if compared else None,
                "after": SMT_OFF if compared else None,
            },
            "plan": {
                "seconds_budget": self.settings["budget"],
                "sample_seconds": self.settings["sample_seconds"],
                "settle_seconds": self.settings["settle_seconds"],
                "blocks": self.settings["blocks"],
                "margin": self.settings["margin"],
                "order": "A B, B A, ...: conditions alternate, every second block runs backwards",
                "workloads": [workloads.described(workload, self.outline.cpus) for workload in chosen(self.settings)],
                "placements": self.placements,
            },
        }

    def measure(self):
        """Take the samples, until each main comparison is known precisely or the budget is spent.

        The host is left in the last condition: who calls puts it back.
        """
        try:
            self._prepare()
            if not self.ready:
                raise PlanError("no workload can be run here: %s" % "; ".join(sorted({skip["reason"] for skip in self.skipped})))
            longest = 0.0
            stopped = None
            while stopped is None:
                begun = time.monotonic()
                self._look_around()
                self._measure_block()
                longest = max(longest, time.monotonic() - begun)
                self.block += 1
                stopped = self._why_no_more(longest)
            self.files.amend(plan={"stopped": stopped})
        finally:
            for ready in self.ready.values():
                ready.close()

    def _prepare(self):
        """Find out which workloads work here and how much work makes a sample of the wanted length."""
        self.progress("preparing")
        for workload in chosen(self.settings):
            name = workload["name"]
            try:
                self.ready[name] = Ready(workload, self.files, self.settings["sources"], self.settings["sample_seconds"], self.outline.cpus)
                self._choose_placements(self.ready[name])
                self.files.event("calibrated", self.ready[name].calibrate(self.outline.alone()))
            except (workloads.WorkloadError, runner.RunnerError, OSError) as error:
                self._give_up(name, None, str(error))

    def _choose_placements(self, ready):
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
                    self.items[condition] += [(name, spot, where["workers"], point) for point in ready.points]
        if not any(item[0] == name for items in self.items.values() for item in items):
            raise workloads.WorkloadError("%s is measured in %s: none of them is in this plan and possible here" % (
                name, ", ".join(ready.workload["placements"] or placement.NAMES)))

    def _why_no_more(self, longest):
        """Why no further block is measured (``budget``, ``blocks``, ``precise``, ``nothing``), or None when one is."""
        if not self.ready:
            return "nothing"
        if self.settings["blocks"] and self.block >= self.settings["blocks"]:
            return "blocks"
        if self.elapsed() + longest > self.settings["budget"]:
            return "budget"
        return "precise" if self.precision.enough() else None

    def _look_around(self):
        """Keep what the host is like before a block, and say so when others keep it busy."""
        others = sample_record.load_by_others()
        self.others = max(self.others, others)
        self.files.amend(environment={"busy": {"others": self.others}})
        self.files.event("block", dict(environment.changing(), block=self.block, control=cpu_state.read(self.sysroot)["control"], others=others))
        trouble = sample_record.too_busy(others)
        if trouble:
            self.files.event("busy", "block %d: %s" % (self.block, trouble))

    def _measure_block(self):
        conditions = self.outline.conditions if self.block % 2 == 0 else self.outline.conditions[::-1]
        for condition in conditions:
            self._switch(condition)
            items = self.items[condition]
            for name, spot, workers, point in items if self.block % 2 == 0 else items[::-1]:
                if name in self.ready:
                    self._sample(name, spot, workers, point)

    def _switch(self, condition):
        if condition in (AS_FOUND, self.condition):
            self.condition = condition
            return
        self.progress("switching SMT %s" % ("on" if condition == SMT_ON else "off"))
        change = cpu_state.enable if condition == SMT_ON else cpu_state.disable
        change(self.sysroot, self.outline.topology.cores, origin=self.origin)
        self.files.event("switched", condition)
        self.condition = condition
        time.sleep(self.settings["settle_seconds"])

    def _sample(self, name, spot, workers, point):
        ready = self.ready[name]
        about = ready.workload["point"]
        sample = {"workload": name, "placement": spot, "condition": self.condition, "block": self.block, "index": self.samples_done, "started": utc_now(),
                  "point": about and {"name": about["name"], "value": point, "unit": about["unit"]},
                  "frequency": {}, "throttled": None, "perf": None}
        begun = time.monotonic()
        try:
            with self.recorder.around(workers, sample):
                taken = ready.sample(workers, point)
        except (workloads.WorkloadError, runner.RunnerError, OSError) as error:
            self._failed(name, spot, sample, str(error), time.monotonic() - begun)
        else:
            self._succeeded(ready, sample, taken)
        self.samples_done += 1
        self.progress("measuring")

    def _succeeded(self, ready, sample, taken):
        metric = ready.workload["metric"]["name"]
        self.failures[sample["workload"]] = 0
        sample.update(
            ok=True, error=None,
            wall_seconds=max(worker["wall_seconds"] for worker in taken["workers"]),
            metric=dict(taken["metrics"][metric], name=metric),
            metrics=taken["metrics"],
            work=ready.work,
            workers=[{"cpus": ",".join(map(str, worker["cpus"])), "value": value, "wall_seconds": worker["wall_seconds"],
                      "cpu_seconds": worker["cpu_seconds"], "context_switches": worker["context_switches"]}
                     for worker, value in zip(taken["workers"], taken["values"])],
            cpu_usage=taken["cpu_usage"], core_usage=self.recorder.core_usage(taken["cpu_usage"]), steal=taken["steal"],
        )
        self.files.append("samples.jsonl", sample)
        self.precision.add(sample)
        self.last = {key: sample[key] for key in ("workload", "placement", "condition", "metric")}
        self.last["workers"] = len(taken["workers"])

    def _failed(self, name, spot, sample, reason, seconds):
        sample.update(ok=False, error=reason, wall_seconds=seconds, metric=None, metrics={}, workers=[], cpu_usage={}, core_usage={}, steal=None)
        self.files.append("samples.jsonl", sample)
        self.failures[name] += 1
        if self.failures[name] > FAILURES_ALLOWED:
            self._give_up(name, spot, "given up after %d failures in a row: %s" % (self.failures[name], reason))

    def _give_up(self, name, spot, reason):
        self._skip(name, spot, self.condition, reason)
        self.precision.drop(name)
        ready = self.ready.pop(name, None)
        if ready:
            ready.close()

    def _skip(self, name, spot, condition, reason):
        self.skipped.append({"workload": name, "placement": spot, "condition": condition, "reason": reason})
        self.files.event("skipped", "%s: %s" % (name, reason))

    def elapsed(self):
        return time.monotonic() - self.started

    def progress(self, phase):
        """Leave word of how far the plan is, for whoever asks."""
        budget = self.settings["budget"]
        share = self.elapsed() / budget
        if self.settings["blocks"] and self.block:
            share = max(share, self.block / self.settings["blocks"])
        self.files.write("progress.json", {
            "phase": phase, "at": utc_now(), "block": self.block + 1, "samples": self.samples_done, "fraction": round(min(share, 1.0), 3),
            "seconds_left": round(max(0.0, budget - self.elapsed())), "condition": self.condition, "last": self.last,
        })


def compare_with(state, differences=(), sysroot="/"):
    """Hold the host as it is now against a state saved before.

    Args:
        state: as from ``cpu_state.read``.
        differences: what is already known not to be as before, a sentence each.
        sysroot: where sysfs is.

    Returns:
        dict: ``ok``, ``before`` and ``after`` (``{control, online}``, online a list of CPU numbers), ``differences`` (list of str).
    """
    after = cpu_state.read(sysroot)
    differences = list(differences) or cpu_state.differences(state, after)
    kept = ("control", "online")
    return {"ok": not differences, "before": {key: state[key] for key in kept}, "after": {key: after[key] for key in kept}, "differences": differences}
