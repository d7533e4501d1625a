# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: interleaved blocks of pinned workloads in each arm, run on the host without a controller.

A block has one sample of each workload in each placement in each arm. The order of the arms is balanced (order.py), and
every second block takes its samples in reverse order, so that a drift of the host affects all arms alike. No sample
spans a switch: after each switch the host has time to settle.
"""

import contextlib
import statistics
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import utc_now
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import (
    environment,
    order,
    selection,
    settings as plan_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import (
    MAX_BYTES,
    RunDirectory,
    RunDirectoryError,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import (
    quotas,
    runner,
    settling,
    telemetry,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import forecast, goals, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import response_limit
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    UnreadableError,
    WorkloadError,
    described,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.prepared import PreparedWorkload, Sample
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import policy as memory_policy
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

SCHEMA = "threadwise.smt/result"
SCHEMA_VERSION = 2

# A block is measured as a whole. One that exceeds the whole budget by this many seconds is given up before the watchdog
# ends the plan.
OVERTIME = 300
# The next block may be larger than any before by a quarter: numbers with more digits, an event.
NEXT_BLOCK = 1.25
# A workload is given up after more consecutive failures than this, so that a broken one does not use up the budget of
# the others.
FAILURES_ALLOWED = 2


class PlanError(Exception):
    """A plan that cannot be carried out on this host; the text gives the reason."""


class Interrupted(BaseException):
    """The early end of a plan by a signal."""


class Outline:
    """The arms and placements of a plan on this host, known before anything is switched.

    Args:
        arms: the arms that are compared.
        topology: the host's Topology.
        allowed: the CPUs in the affinity mask of this process (sched_getaffinity(2)).
        names: the names of the placements.
        memory_nodes: the NUMA nodes that have memory.

    Attributes:
        arms: as above.
        topology: as above.
        names: as above.
    """

    def __init__(
        self,
        arms: selection.Arms,
        topology: Topology,
        allowed: "t.Iterable[int]",
        names: "t.Iterable[str]",
        memory_nodes: "t.Iterable[int]" = (),
    ) -> None:
        self.arms = arms
        self.topology = topology
        self.names = list(names)
        self._allowed = set(allowed)
        self._memory_nodes = tuple(memory_nodes)

    @property
    def cpus(self) -> int:
        """The number of CPUs that take part when all siblings are online."""
        return max(len(self._usable(arm)) for arm in self.arms.names) or 1

    def placements(self, arm: str) -> "dict[str, placement.Assignment]":
        """Return the assignment of workers to CPUs for each placement in an arm."""
        possible = self._placements(arm)
        possible_workers = {name: possible.workers(name) for name in self.names}
        confined = sorted(self._usable(arm))
        if len(confined) < len(self._reachable(arm)):
            # Without a mask of their own workers would leave the CPUs of the arm.
            possible_workers = {
                name: (workers and [cpus or confined for cpus in workers], reason)
                for name, (workers, reason) in possible_workers.items()
            }
        nodes = {name: possible.memory_node(name) for name, (workers, _reason) in possible_workers.items() if workers}
        same = placement.same_as_earlier(
            {name: (workers, nodes[name]) for name, (workers, _reason) in possible_workers.items() if workers}
        )
        return {
            name: {"workers": workers, "memory_node": nodes.get(name), "same_as": same.get(name), "reason": reason}
            for name, (workers, reason) in possible_workers.items()
        }

    def alone(self) -> "list[list[int]]":
        """Return a list with the CPU list of one worker alone, on a CPU of the arm with the fewest."""
        fewest = min(self.arms.names, key=lambda arm: len(self._usable(arm)))
        workers, _reason = self._placements(fewest).workers(placements.SINGLE)
        return workers or [[]]

    def usable(self, arm: str) -> "list[int]":
        """Return the CPUs that workers can use in an arm, sorted."""
        return sorted(self._usable(arm))

    def _usable(self, arm: str) -> "set[int]":
        return self.arms[arm].for_workers(self._reachable(arm))

    def _reachable(self, arm: str) -> "set[int]":
        """Return the CPUs that are online in an arm and that this process may use."""
        # The affinity mask can lack a sibling that is offline now. Once the sibling is online, the mask has it again.
        online: set[int] = self.arms[arm].online()
        return (online & (self._allowed | set(self.topology.offline))) - set(self.topology.isolated)

    def _placements(self, arm: str) -> placement.Placements:
        return placement.Placements(
            self.topology.cores, self.topology.packages, self._usable(arm), self.topology.nodes, self._memory_nodes
        )


class Item(t.NamedTuple):
    """A sample that each block takes in an arm.

    Attributes:
        workload: the name of the workload.
        placement: the name of the placement.
        workers: the CPU list of each worker.
        memory_node: the NUMA node that their memory comes from, or None for the kernel's choice.
        parameter: the value of the workload's parameter, or None.
    """

    workload: str
    placement: str
    workers: "list[list[int]]"
    memory_node: "int | None"
    parameter: "float | None"


class Skipped(TypedDict):
    """What was not measured, and the reason."""

    workload: str
    placement: "str | None"
    arm: "str | None"
    reason: str


def _written(assignment: placement.Assignment) -> "dict[str, t.Any]":
    """Return an assignment as the result has it, the CPUs of each worker as a CPU list:
    many streams on a large machine have many CPUs.
    """
    return {**assignment, "workers": assignment["workers"] and [cpulist.render(cpus) for cpus in assignment["workers"]]}


class Plan:
    """The execution of an outline.

    Args:
        run_directory: the created RunDirectory.
        outline: an Outline.
        settings: dict with ``workloads``, ``custom`` and ``command`` with its ``metric`` (the user's own commands),
            ``placements``, ``streams`` (numbers of streams, as texts that may be ranges), ``cpus`` (the CPUs of
            explicit placements), ``siblings`` (whose siblings count), ``response_limit`` ({workload: time with its
            unit}), ``goal`` (one of ``goals.GOALS``), ``budget`` (seconds), ``shared_by`` (the number of hosts that
            share this budget), ``blocks`` (their maximum number, or None), ``sample_seconds`` and ``settle_seconds``
            (None where the plan chooses them), ``margin`` (the equivalence margin), ``sources`` ({file name: C
            source}).

    Attributes:
        files: the RunDirectory.
        outline: as above.
        settings: as above.
        started: the start time of the plan (time.monotonic).
        skipped: what was not measured.
        prepared: the workloads that are still measured, by name.
        failures: the number of consecutive failures of each workload.
        items: the samples of a block in each arm, in order.
        placements: {arm: {placement: Assignment}}.
        recorder: the telemetry recorder.
        goal: the main comparisons so far, and whether they need more blocks.
        others: the highest load by other processes before a block (0..1).
        last: the latest successful sample in short, for the progress display, or None.
        next: what follows the samples of the current arm in words, or None.
        block: the number of the current block, from 0.
        samples_done: the number of samples so far.
        largest: the highest number of bytes that a block has added to the result.
        switches: the seconds that each switch to an arm took, without the pause after it.
        settling: the pauses after switches.
        costs: the seconds that each workload, at each value of its parameter, took of a block, and those of all else
            (None), at the highest.
        arm: the current arm, or None before the first switch.
        serving: the workload that was sampled last in this arm, whose server runs if it has one in each arm; None
            before the first sample.
    """

    def __init__(self, run_directory: RunDirectory, outline: Outline, settings: "t.Mapping[str, t.Any]") -> None:
        self.files = run_directory
        self.outline = outline
        self.settings = settings
        self.started = time.monotonic()
        self.skipped: list[Skipped] = []
        self.prepared: dict[str, PreparedWorkload] = {}
        self.failures = dict.fromkeys((workload["name"] for workload in plan_settings.chosen(settings)), 0)
        self.items: dict[str, list[Item]] = {arm: [] for arm in outline.arms.names}
        self.placements = {arm: outline.placements(arm) for arm in outline.arms.names}
        self._host = host_files.HostFs("/")
        self.recorder = telemetry.Recorder(outline.topology.cores, self._host)
        better = {workload["name"]: workload["metrics"][0]["better"] for workload in plan_settings.chosen(settings)}
        self.goal = goals.goal(plan_settings.goal(settings), settings["margin"], self.placements, better)
        self.others = 0.0
        self.last: t.Optional[dict[str, t.Any]] = None
        self.next: t.Optional[str] = None
        self.block = 0
        self.samples_done = 0
        self.largest = 0
        self.switches: dict[str, list[float]] = {}
        self.settling = settling.Settling(settings["settle_seconds"])
        self.costs: dict[t.Optional[goals.Measured], float] = {}
        self.arm: t.Optional[str] = None
        self.serving: t.Optional[str] = None
        # Samples up to this one were taken in the arm that they name.
        self._proved = 0

    def header(
        self, facts: "t.Mapping[str, t.Any]", host_environment: "t.Mapping[str, t.Any]", run: str
    ) -> "dict[str, t.Any]":
        """Return the part of a result that is known before the first sample.

        Args:
            facts: ``ansible_facts['smt']``.
            host_environment: as from ``environment.read``.
            run: the name of the run.
        """
        response_limits = response_limit.in_seconds(
            self.settings["response_limit"], plan_settings.chosen(self.settings)
        )
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "run": run,
            "collection_version": COLLECTION_VERSION,
            "started": utc_now(),
            "facts": facts,
            "environment": host_environment,
            "arms": self.outline.arms.described(),
            "arms_left_out": self.outline.arms.left_out,
            "plan": {
                "seconds_budget": plan_settings.share(self.settings),
                "sample_seconds": self.settings["sample_seconds"],
                "settle_seconds": self.settings["settle_seconds"],
                "blocks": self.settings["blocks"],
                "margin": self.settings["margin"],
                "goal": plan_settings.goal(self.settings),
                "order": order.DESCRIPTION,
                "boots": None,
                "confounded": False,
                "workloads": [
                    dict(described(workload, self.outline.cpus), response_limit=response_limits.get(workload["name"]))
                    for workload in plan_settings.chosen(self.settings)
                ],
                "placements": {
                    arm: {name: _written(assignment) for name, assignment in by_name.items()}
                    for arm, by_name in self.placements.items()
                },
            },
        }

    def measure(self) -> None:
        """Take samples until the goal is reached or the budget is spent.

        The host stays in the last arm. The caller restores it.

        Raises:
            PlanError: no workload can be run on this host, the budget is too short for a verdict, or a block takes too
                long or is too large.
            ArmError: the host cannot be switched to an arm, or is not in it any more.
            RunDirectoryError: a file of the run cannot be written.
        """
        try:
            self._prepare()
            if not self.prepared:
                raise PlanError(
                    f"no workload can be run here: {'; '.join(sorted({skip['reason'] for skip in self.skipped}))}"
                )
            self._fit_budget()
            stopped: t.Optional[str] = None
            while stopped is None:
                size = self.files.size()
                self._record_host_state()
                self._measure_block()
                self.largest = max(self.largest, self.files.size() - size)
                self.block += 1
                if self.settling.choose():
                    # The pauses of the first block tell nothing about those of the others.
                    self.costs.pop(None)
                    self.files.amend(plan={"settle_seconds": self.settling.seconds})
                stopped = self._stop_reason()
            self.files.amend(plan={"stopped": stopped, "switches": self._seconds_of_switches()})
        finally:
            for name in list(self.prepared):
                self._close(name)

    def _seconds_of_switches(self) -> "dict[str, dict[str, float]]":
        """Return how often the plan switched to each arm, and how long that took in the median."""
        return {
            arm: {"count": len(seconds), "seconds": round(statistics.median(seconds), 3)}
            for arm, seconds in self.switches.items()
        }

    def _prepare(self) -> None:
        """Find out which workloads work on this host, and how much work makes a sample of the wanted length."""
        self.progress("preparing")
        for declaration in plan_settings.chosen(self.settings):
            name = declaration["name"]
            try:
                workload = PreparedWorkload(
                    declaration,
                    self.files,
                    self.settings["sources"],
                    self.settings["sample_seconds"],
                    self.outline.cpus,
                    self.outline.topology.cores,
                )
                self.prepared[name] = workload
                self._choose_placements(workload)
                workload.enter_arm(self.outline.usable(self.outline.arms.names[0]))
                self.files.event("calibrated", workload.calibrate(self.outline.alone()))
                self._record_left(workload.leave_arm())
            except (WorkloadError, runner.RunnerError, OSError) as error:
                self._give_up(name, None, str(error))

    def _fit_budget(self) -> None:
        """See that the budget can lead to a verdict, and leave out what does not decide where it would not.

        Raises:
            PlanError: what decides does not fit. Nothing has been switched.
        """
        settings = self.settings
        if (
            plan_settings.goal(settings) != goals.DECISION
            or (settings["blocks"] or verdicts.MIN_BLOCKS) < verdicts.MIN_BLOCKS
        ):
            return
        planned = {
            (item.workload, item.parameter, arm, item.placement): item
            for arm, items in self.items.items()
            for item in items
            if item.workload in self.prepared
        }
        deciding = self.goal.deciding(planned)
        costs = [
            forecast.Cost(
                item.workload, item.placement, self.prepared[item.workload].least_seconds(item.workers), key in deciding
            )
            for key, item in planned.items()
        ]
        others = self.settling.seconds * (len(self.outline.arms.names) - 1)
        budget = settings["budget"] - self.elapsed()
        error = forecast.too_short([cost for cost in costs if cost.decides], others, budget)
        if error:
            raise PlanError(error)
        for place in forecast.left_out(costs, others, budget) if deciding else ():
            for arm, items in self.items.items():
                gone = [
                    item
                    for item in items
                    if item.placement == place and (item.workload, item.parameter, arm, place) not in deciding
                ]
                self.items[arm] = [item for item in items if item not in gone]
                for name in dict.fromkeys(item.workload for item in gone):
                    self._skip(
                        name,
                        place,
                        arm,
                        f"left out, so that {verdicts.MIN_BLOCKS} blocks of what decides fit into the budget",
                    )

    def _choose_placements(self, workload: PreparedWorkload) -> None:
        """Choose the placements of a workload in each arm, and record which ones are left out."""
        name = workload.declaration["name"]
        # The same in each arm: one that reserves none is compared with one that does.
        huge_pages = max(
            self.outline.arms[arm].settings.get(memory_policy.HUGEPAGES, 0) for arm in self.outline.arms.names
        )
        shortages: list[str] = []
        for arm, assignments in self.placements.items():
            for place, assignment in assignments.items():
                # Placements with the same CPUs are measured once, under the first of their names.
                names = [place] + [other for other, elsewhere in assignments.items() if elsewhere["same_as"] == place]
                if not assignment["workers"] or assignment["same_as"] or not any(map(workload.applies, names)):
                    continue
                shortage = workload.memory_shortage(assignment["workers"], huge_pages)
                if shortage:
                    shortages.append(shortage)
                    self._skip(name, place, arm, shortage)
                else:
                    self.items[arm] += [
                        Item(name, place, assignment["workers"], assignment["memory_node"], value)
                        for value in workload.values
                    ]
        if not any(item.workload == name for items in self.items.values() for item in items):
            raise WorkloadError(
                shortages[0]
                if shortages
                else f"{name} needs one of the placements"
                f" {', '.join(workload.declaration['placements'] or placements.CHOICES)}: none of them is both in this"
                " plan and possible on this host"
            )

    def _stop_reason(self) -> "str | None":
        """Return why the plan stops, or None if it takes another block: the goal's reason, ``nothing``, ``blocks``,
        ``budget`` or ``size``.
        """
        if not self.prepared:
            return "nothing"
        more, limit = self._more_blocks()
        looks, decided = len(self.goal.looks), len(self.goal.decided)
        reached = self.goal.after_block(self.block, more)
        if len(self.goal.looks) > looks:
            self.files.amend(
                plan={
                    "looks": [look._asdict() for look in self.goal.looks],
                    "decided": [decision._asdict() for decision in self.goal.decided],
                }
            )
        for decision in self.goal.decided[decided:]:
            self.files.event(
                "decided",
                f"{decision.workload}, {decision.arm}, {decision.placement}: {decision.outcome} after {decision.blocks}"
                " blocks",
            )
        return reached or (None if more else limit)

    def _more_blocks(self) -> "tuple[int, str]":
        """Return how many more blocks are possible, and what limits them: ``blocks``, ``budget`` or ``size``."""
        seconds = sum(
            cost for measured, cost in self.costs.items() if measured is None or not self.goal.rests(measured)
        )
        # A host that measures a share of the work needs as many blocks for its part of a verdict as one that measures
        # all of it.
        enough = self.block >= verdicts.MIN_BLOCKS_RANKED
        limits = {
            "budget": (
                ((plan_settings.share(self.settings) if enough else self.settings["budget"]) - self.elapsed())
                / max(seconds, 0.001)
            ),
            "size": (MAX_BYTES - self.files.size()) / max(self.largest * NEXT_BLOCK, 1),
        }
        if self.settings["blocks"]:
            limits["blocks"] = self.settings["blocks"] - self.block
        limit = min(limits, key=limits.__getitem__)
        return max(0, int(limits[limit])), limit

    def _record_host_state(self) -> None:
        """Record the state of the host before a block, and warn if other processes keep it busy."""
        others: float = telemetry.load_by_others()
        self.others = max(self.others, others)
        self.files.amend(environment={"busy": {"others": self.others}})
        self.files.event(
            "block",
            dict(environment.read_changing(), block=self.block, control=smt_state.read("/")["control"], others=others),
        )
        warning = telemetry.too_busy(others)
        if warning:
            self.files.event("busy", f"block {self.block}: {warning}")

    def _measure_block(self) -> None:
        begun = time.monotonic()
        costs: dict[goals.Measured, float] = {}
        arms = list(order.of_block(self.outline.arms.names, self.block))
        for arm, following in zip(arms, [*arms[1:], None]):
            self.next = f"block {self.block + 2}" if following is None else self.outline.arms[following].title
            self._switch(arm)
            items = self.items[arm]
            for item in items if self.block % 2 == 0 else items[::-1]:
                if self.elapsed() > self.settings["budget"] + OVERTIME:
                    raise PlanError(
                        f"block {self.block} was not done {OVERTIME} s after the end of the budget of"
                        f" {self.settings['budget']} s: give this host more time, fewer workloads or placements, or"
                        " shorter samples"
                    )
                if self.files.size() > MAX_BYTES:
                    raise PlanError(
                        f"block {self.block} was not done, and the samples so far already have the maximum size of a"
                        f" result ({MAX_BYTES // 1024 // 1024} MiB): measure fewer workloads, placements or parameter"
                        " values on this host"
                    )
                measured = (item.workload, item.parameter)
                if self.goal.rests(measured):
                    continue
                started = time.monotonic()
                if item.workload in self.prepared:
                    self._serve(item.workload)
                if item.workload in self.prepared:
                    self._sample(item)
                costs[measured] = costs.get(measured, 0.0) + time.monotonic() - started
            self._prove(arm)
        self._record_costs(costs, time.monotonic() - begun)

    def _record_costs(self, costs: "t.Mapping[goals.Measured, float]", seconds: float) -> None:
        """Record what a block of so many seconds has cost for each workload, and for all else."""
        costs_of_block: list[tuple[t.Optional[goals.Measured], float]] = [
            *costs.items(),
            (None, seconds - sum(costs.values())),
        ]
        for measured, cost in costs_of_block:
            self.costs[measured] = max(self.costs.get(measured, 0.0), cost)

    def _switch(self, arm: str) -> None:
        if arm == self.arm:
            return
        arms = self.outline.arms
        self._serve(None)
        if arms.compared:
            self.progress(f"switching to {arms[arm].title}")
            self.settling.before_switch()
            begun = time.monotonic()
            arms.switch(arm)
            self.switches.setdefault(arm, []).append(time.monotonic() - begun)
            self.files.event("switched", arm)
            self.settling.wait()
            self._prove(arm)
            for observed in arms.observe(arm) if self.block == 0 else ():
                self.files.append("observations.jsonl", observed)
        self.arm = arm

    def _prove(self, arm: str) -> None:
        """See that the host is in an arm, before its samples and after them;
        samples of a host that somebody changed are of another arm.
        """
        try:
            self.outline.arms.prove(arm)
        except base.ArmError as error:
            self._withdraw(str(error), self._proved)
            self.files.event("not_proved", str(error))
            raise
        self._proved = self.samples_done

    def _withdraw(self, reason: str, since: int, workload: "str | None" = None) -> None:
        """Let no sample count from one on, of all workloads or of one."""
        self.files.append("withdrawn.jsonl", {"from": since, "workload": workload, "reason": reason})

    def _serve(self, name: "str | None") -> None:
        """Start what a workload starts in each arm, and end that of another one: it would disturb the samples."""
        if name == self.serving:
            return
        if self.serving in self.prepared:
            self._record_left(self.prepared[self.serving].leave_arm())
        self.serving = name
        if name is not None and self.arm is not None:
            try:
                arm = self.outline.arms[self.arm]
                self.prepared[name].enter_arm(self.outline.usable(self.arm), arm.more_work)
            except (WorkloadError, OSError) as error:
                self._give_up(name, None, str(error))

    def _sample(self, item: Item) -> None:
        workload = self.prepared[item.workload]
        telemetry_record: dict[str, t.Any] = {
            "cpu_usage": {},
            "core_usage": {},
            "steal": None,
            "frequency": {},
            "throttled": None,
            "joules": None,
            "perf": None,
        }
        sample: dict[str, t.Any] = {
            "workload": item.workload,
            "placement": item.placement,
            "arm": self.arm,
            "block": self.block,
            "index": self.samples_done,
            "started": utc_now(),
            "parameter": item.parameter,
            "telemetry": telemetry_record,
        }
        begun, limits = time.monotonic(), quotas.read(self._host)
        try:
            with self.recorder.around(item.workers, telemetry_record):
                taken = workload.sample(item.workers, item.parameter, item.memory_node)
        except (WorkloadError, runner.RunnerError, OSError) as error:
            self._failed(sample, str(error), time.monotonic() - begun)
            if isinstance(error, UnreadableError):
                self._withdraw(str(error), 0, item.workload)
                if item.workload in self.prepared:
                    self._give_up(item.workload, item.placement, str(error))
        else:
            seconds = sum(worker["wall_seconds"] for worker in taken["workers"])
            refused = quotas.refusal(limits, quotas.read(self._host), seconds)
            if refused:
                self._failed(sample, refused, time.monotonic() - begun)
            else:
                self._succeeded(workload, sample, taken)
        self.samples_done += 1
        self.progress("measuring")

    def _succeeded(self, workload: PreparedWorkload, sample: "dict[str, t.Any]", taken: Sample) -> None:
        self.failures[sample["workload"]] = 0
        sample.update(
            ok=True,
            error=None,
            wall_seconds=max(worker["wall_seconds"] for worker in taken["workers"]),
            metrics=taken["metrics"],
            work=workload.work,
            co_runners=taken["co_runners"] if workload.declaration["co_runners"] else None,
            workers=[
                {
                    "cpus": cpulist.render(worker["cpus"]),
                    "value": value,
                    "wall_seconds": round(worker["wall_seconds"], 6),
                    "cpu_seconds": round(worker["cpu_seconds"], 6),
                    "context_switches": worker["context_switches"],
                }
                for worker, value in zip(taken["workers"], taken["values"])
            ],
        )
        sample["telemetry"].update(
            cpu_usage=taken["cpu_usage"], core_usage=self.recorder.core_usage(taken["cpu_usage"]), steal=taken["steal"]
        )
        self.files.append("samples.jsonl", sample)
        primary = workload.declaration["metrics"][0]["name"]
        self.goal.add(sample, taken["metrics"][primary]["value"])
        self.last = {key: sample[key] for key in ("workload", "placement")}
        self.last.update(
            arm=self.outline.arms[sample["arm"]].title,
            metric=dict(taken["metrics"][primary], name=primary),
            workers=len(taken["workers"]),
        )

    def _failed(self, sample: "dict[str, t.Any]", reason: str, seconds: float) -> None:
        name = sample["workload"]
        sample.update(ok=False, error=reason, wall_seconds=seconds, metrics={}, work=None, workers=[])
        self.files.append("samples.jsonl", sample)
        self.failures[name] += 1
        if self.failures[name] > FAILURES_ALLOWED:
            self._give_up(
                name, sample["placement"], f"given up after {self.failures[name]} failures in a row: {reason}"
            )

    def _give_up(self, name: str, place: "str | None", reason: str) -> None:
        self._skip(name, place, self.arm, reason)
        self.goal.drop(name)
        self._close(name)

    def _close(self, name: str) -> None:
        """End the server of a workload, and record what could not be removed."""
        workload = self.prepared.pop(name, None)
        self._record_left(workload.close() if workload else None)

    def _record_left(self, left: "str | None") -> None:
        if left:
            # On a full disk the event cannot be written. That error must not hide the first one.
            with contextlib.suppress(RunDirectoryError):
                self.files.event("left", left)

    def _skip(self, name: str, place: "str | None", arm: "str | None", reason: str) -> None:
        self.skipped.append({"workload": name, "placement": place, "arm": arm, "reason": reason})
        self.files.event("skipped", f"{name}: {reason}")

    def elapsed(self) -> float:
        """Return the seconds since the start of the plan."""
        return time.monotonic() - self.started

    def progress(self, phase: str) -> None:
        """Write the progress of the plan to progress.json, where the controller reads it."""
        budget = plan_settings.share(self.settings)
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
                "arm": self.arm and self.outline.arms[self.arm].title,
                "last": self.last,
                "next": self.next,
            },
            lasting=False,
        )
