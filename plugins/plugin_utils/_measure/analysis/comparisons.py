# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparisons of one host's result, with their verdicts.

A comparison pairs two keys (workload, placement, arm, parameter value) block by block, for one metric; the parameter
(clients, load) is set only for workloads that are measured at several of its values. A block without a good sample on
one side is dropped from that comparison alone, and counted. Ratios are candidate / baseline, turned so that above 1 is
better whichever direction the metric has.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as arm_names, placements
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.arms import SMT_OFF, SMT_ON
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals, spending
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    costs,
    limits,
    measures,
    paired,
    recorded,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import OPPOSITE, Judged

# workload, parameter value, metric
Subject = tuple[str, float | None, str]
# kind, effect, placement, then (placement, arm) of baseline and candidate
Pair = tuple[str, str, str, tuple[str, str], tuple[str, str]]

# Names of metrics of what was asked for and not done.
FAILURES = re.compile(r"(?:\A|_)(?:err|fail|timeout|timed_out|drop|refus|reject)")

# What a comparison rests on.
BOOTS, BLOCKS = "boots", "blocks"
# Which arms are compared with each other: each one with the baseline, or every two of them.
BASELINE, ALL = "baseline", "all"
COMPARE = (BASELINE, ALL)
WHOLE_MACHINE = placements.ALL_THREADS
# From all CPUs to one worker: arms other than SMT's are compared at the widest measured placement. Those of a number of
# workers rank before two workers.
WIDEST_FIRST = (
    WHOLE_MACHINE,
    placements.UNPINNED,
    placements.ONE_PER_CORE,
    "numbered",
    placements.CORES,
    placements.PACKAGES,
    placements.SIBLINGS,
    placements.SAME_CPU,
    placements.SINGLE,
    placements.REMOTE_MEMORY,
)

# (candidate, baseline) placements -> name of the effect that their comparison measures.
PLACEMENT_PAIRS = {
    (placements.SIBLINGS, placements.CORES): "cost_of_sharing",
    (WHOLE_MACHINE, placements.ONE_PER_CORE): "smt_yield",
    (placements.SAME_CPU, placements.CORES): "cost_of_one_cpu",
    (placements.CORES, placements.SINGLE): "second_core",
    (placements.SIBLINGS, placements.SINGLE): "core_yield",
    (placements.PACKAGES, placements.CORES): "second_package",
    (placements.REMOTE_MEMORY, placements.SINGLE): "remote_memory",
}
# The same comparison where the cost of sharing has no other: machines with a single core.
ON_ONE_CORE = {"core_yield": "cost_of_sharing_alone"}
# Placements of as many workers: N on siblings first against N on separate cores first, explicit CPUs against the first
# explicit ones.
PACKING, OTHER_CPUS = "packing", "other_cpus"
EFFECTS = (*PLACEMENT_PAIRS.values(), *ON_ONE_CORE.values(), PACKING, OTHER_CPUS)
# Effects whose sides have different numbers of workers: they need a metric that adds up over workers.
UNEQUAL_SIDES = ("smt_yield", "second_core", "core_yield", "cost_of_sharing_alone")


class Side(t.NamedTuple):
    """A side of a comparison."""

    arm: str
    arm_title: str
    placement: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(measures.Measure):
    """A workload on two sides, with what is said of them; one that is no :class:`Comparison` has no ratio.

    Attributes:
        kind: ``arm`` or ``placement``.
        effect: the candidate's arm, or one of :data:`EFFECTS`.
        placement: where arms were compared, else the candidate's.
        confounded: whether each side is of one boot, which is apart from the other one in more than the arm.
        baseline: of two arms the earlier one of the result.
        candidate: the other side.
        baseline_value: in the metric's unit; None where that side has none.
        candidate_value: the same of the candidate.
        dropped_blocks: how many are left out, as one side has no good sample.
        given: whether the load generator gives the rate.
        ci_low, confidence, family, looks, margin, minimum_detectable, n, verdict: of :class:`Judged`.
    """

    kind: str
    effect: str
    placement: str
    confounded: bool
    baseline: Side
    candidate: Side
    baseline_value: float | None
    candidate_value: float | None
    dropped_blocks: int
    given: bool = False
    ci_low: float | None = None
    confidence: float
    family: int = 1
    looks: int = 0
    margin: float
    minimum_detectable: float | None = None
    n: int
    verdict: str

    @property
    def sides(self) -> tuple[str, str]:
        """The arms: the baseline's, and the candidate's."""
        return self.baseline.arm, self.candidate.arm

    @property
    def is_of_smt(self) -> bool:
        """Whether it has SMT on and SMT off on its sides."""
        return set(self.sides) == set(recorded.OF_SMT)

    @property
    def is_most_load(self) -> bool:
        """Whether it is one of most loads within a limit."""
        return self.metric == limits.MOST_LOAD and self.response_limit is not None

    @property
    def work(self) -> tuple[str, float | None]:
        """The workload, and the value of its parameter."""
        return self.workload, self.parameter

    @property
    def place(self) -> tuple[str, float | None, str, frozenset[str]]:
        """Of what it is, whatever its metric."""
        return *self.work, self.placement, frozenset(self.sides)

    @property
    def subject(self) -> str:
        """What changes: the workload, and its metric where less of it is better, so that a sign can be read."""
        return self.title if self.better == "higher" else f"{self.title} {self.metric}"

    def is_said_of_smt_on(self, of_arms: int) -> bool:
        """Return whether people read it turned: of the most loads of SMT on and off, where its result has these two
        arms alone, they read that of SMT on.
        """
        return self.is_most_load and self.effect == SMT_OFF and of_arms == 2

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        sides = {"baseline": self.baseline._asdict(), "candidate": self.candidate._asdict()}
        optional = ("parameter", "response_limit")
        fields = {**vars(self), **sides}
        return {name: value for name, value in fields.items() if value is not None or name not in optional}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(Compared, Judged):
    """The comparison of two sides, block by block.

    Attributes:
        basis: :data:`BOOTS` where the two arms were booted, :data:`BLOCKS` where they alternate within a boot.
        mean_change: the change of the mean over blocks, which is apart from that of the metric where samples have a
            tail.
    """

    baseline_value: float
    candidate_value: float
    basis: str
    mean_change: float

    def turned(self) -> Comparison:
        """Return it with baseline and candidate exchanged."""
        return dataclasses.replace(
            self,
            ratio=1 / self.ratio,
            ci_low=None if self.ci_high is None else 1 / self.ci_high,
            ci_high=None if self.ci_low is None else 1 / self.ci_low,
            effect=self.baseline.arm,
            baseline=self.candidate,
            candidate=self.baseline,
            baseline_value=self.candidate_value,
            candidate_value=self.baseline_value,
            mean_change=1 / (1 + self.mean_change) - 1,
            verdict=OPPOSITE.get(self.verdict, self.verdict),
        )

    def of_smt_off(self) -> Comparison:
        """Return it as one of SMT off against SMT on where it is of these."""
        return self.turned() if self.is_of_smt and self.effect != SMT_OFF else self

    def as_said(self, of_arms: int) -> Comparison:
        """Return it as people read it; the argument is that of :meth:`is_said_of_smt_on`."""
        return self.turned() if self.is_said_of_smt_on(of_arms) else self

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        described = {**super().described(), **self.change.described()}
        return described if self.given else {name: value for name, value in described.items() if name != "given"}


Found = t.TypeVar("Found", bound=Compared)


def compare_host(
    result: HostResult, margin: float = 0.01, confidence: float = 0.95, compare: str = BASELINE
) -> list[Comparison]:
    """Compute every comparison that a host's samples allow: arms with each other, and placements with each other,
    for each metric.

    Args:
        result: from :func:`result_files.load`.
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts, from 0.5 to 0.9999.
        compare: one of :data:`COMPARE`: each other arm with the baseline, or also the other arms among each other.

    Returns:
        Each. One family for the correction are the primary metrics of all workloads with all arms that are compared at
        one placement, or with one effect of placements; the other metrics are another one, and the costs of work
        (:mod:`costs`) a third. A workload with a most load (:mod:`limits`) has that for its primary metric, with its
        ``response_limit`` in seconds; of SMT on and off alone it is compared for SMT on against off.
    """
    samples = _comparable(result, recorded.by_key(result))
    # Across boots only whole boots are paired.
    of_arms = _comparable(result, recorded.by_key(result, by_pair=True)) if (result.plan.boots or 0) > 1 else samples
    comparisons: list[Comparison] = []
    families = _families(result, samples)
    measured = {(placement, arm) for _workload, placement, arm, _parameter in samples}
    for pairs in _pairs(result, samples, compare):
        keyed = [
            (pair, of_arms if basis(result, pair) == BOOTS else samples)
            for pair in pairs
            if {(recorded.sampled_as(result, *side), side[1]) for side in pair[3:]} <= measured
        ]
        for primary, subjects in zip((True, False, False), families if keyed else ()):
            comparisons += _family(result, keyed, subjects, primary, margin, confidence)
    given = {comparison.place for comparison in comparisons if comparison.primary and _is_given(result, comparison)}
    if not given:
        return comparisons
    metrics = {(comparison.place, comparison.metric) for comparison in comparisons}

    def with_given_rate(comparison: Comparison) -> Comparison:
        waited = limits.response_metric(recorded.declaration(result, comparison.workload))
        decides = comparison.metric == waited if (comparison.place, waited) in metrics else comparison.primary
        return dataclasses.replace(comparison, given=True, primary=decides)

    return [with_given_rate(comparison) if comparison.place in given else comparison for comparison in comparisons]


def _is_given(result: HostResult, rate: Comparison) -> bool:
    """Return whether a rate is the load generator's, so that response times and failures decide: both arms do what the
    workload's parameter asks for, or without one the same while CPUs of both are idle (utilization law: P. Denning, J.
    Buzen, The operational analysis of queueing network models, ACM Computing Surveys 10 (1978)).
    """
    if rate.kind != "arm" or not costs.rate_of(rate.unit) or rate.is_called:
        return False
    if rate.parameter:
        values = rate.baseline_value, rate.candidate_value
        return all(abs(value / rate.parameter - 1) <= 1 - usage.NEARLY for value in values)
    samples = recorded.by_key(result)
    keys = [(rate.workload, recorded.sampled_as(result, WHOLE_MACHINE, arm), arm, None) for arm in rate.sides]
    used = [usage.busy(itertools.chain(*samples.get(key, {}).values())) or usage.FULL for key in keys]
    return rate.verdict == paired.EQUIVALENT and rate.placement == WHOLE_MACHINE and max(used) < usage.FULL


def basis(result: HostResult, pair: Pair) -> str:
    """Return what a comparison rests on: :data:`BOOTS` or :data:`BLOCKS`.

    Args:
        result: from :func:`result_files.load`.
        pair: what is compared.
    """
    if pair[0] != "arm" or not result.plan.boots:
        return BLOCKS
    booted = result.plan.booted
    # Results from before there were other arms have booted all of theirs.
    return BOOTS if booted is None or not {pair[3][1], pair[4][1]}.isdisjoint(booted[1:]) else BLOCKS


def _comparable(result: HostResult, samples: recorded.Samples) -> recorded.Samples:
    """Return the samples without those of loads at which more workers do more only because each is offered the same
    load.
    """
    full = recorded.full_loads(result)
    return {key: blocks for key, blocks in samples.items() if key[3] == full.get(key[0], key[3])}


def of_smt(comparisons: t.Iterable[Comparison], every_metric: bool = False) -> list[Comparison]:
    """Return the comparisons of SMT off against SMT on for the whole machine (every online thread busy).

    Where SMT off is the baseline they are turned around.

    Args:
        comparisons: from :func:`compare_host`.
        every_metric: False for those of primary metrics, which decide.
    """
    return [
        comparison.of_smt_off()
        for comparison in comparisons
        if comparison.placement == WHOLE_MACHINE and comparison.is_of_smt and (every_metric or comparison.primary)
    ]


def of_other_arms(comparisons: t.Iterable[Comparison], every_metric: bool = False) -> list[Comparison]:
    """Return the comparison of each workload and two arms other than SMT on against off,
    at the widest measured placement.

    Args:
        comparisons: from :func:`compare_host`.
        every_metric: False for those of primary metrics, which decide.
    """
    return [comparison for comparison in at_widest(comparisons, every_metric) if not comparison.is_of_smt]


def at_widest(comparisons: t.Iterable[Found], every_metric: bool = False) -> list[Found]:
    """Return the comparison of each workload and two arms at the widest measured placement;
    arguments as in :func:`of_other_arms`.
    """
    widest: dict[tuple[t.Any, ...], Found] = {}
    of_arms = [
        comparison for comparison in comparisons if comparison.kind == "arm" and (every_metric or comparison.primary)
    ]
    for comparison in sorted(of_arms, key=lambda comparison: _narrowness(comparison.placement)):
        widest.setdefault((*comparison.work, comparison.sides, comparison.metric), comparison)
    return list(widest.values())


def against_baseline(comparisons: t.Iterable[Found], baseline: str) -> list[Found]:
    """Return the comparisons of arms with the arm that is the baseline of a result."""
    return [comparison for comparison in comparisons if comparison.baseline.arm == baseline]


def _narrowness(placement: str) -> tuple[int, int]:
    streams = placements.numbered(placement)
    if streams:
        return WIDEST_FIRST.index("numbered"), -streams.workers
    return (WIDEST_FIRST.index(placement) if placement in WIDEST_FIRST else len(WIDEST_FIRST)), 0


def in_order(result: HostResult) -> list[str]:
    """Return the names of the arms, the baseline first; of SMT on and off alone SMT on, whichever was asked for."""
    names = [arm.name for arm in result.arms]
    return list(recorded.OF_SMT) if set(names) == set(recorded.OF_SMT) else names


def _pairs(result: HostResult, samples: dict[recorded.Key, t.Any], compare: str) -> list[list[Pair]]:
    """Return what this result may compare; pairs in one list are of one family."""
    measured = {arm for _workload, _placement, arm, _parameter in samples}
    baseline, *candidates = in_order(result)
    of_arms: dict[str, list[Pair]] = {}
    # The pairs with the baseline come first, so that a family has the same order with and without the others.
    both = [(baseline, candidate) for candidate in candidates] + (
        list(itertools.combinations(candidates, 2)) if compare == ALL else []
    )
    for base, candidate in both:
        for placement in _placements_of(result, samples, base) if {base, candidate} <= measured else []:
            of_arms.setdefault(placement, []).append(
                ("arm", candidate, placement, (placement, base), (placement, candidate))
            )
    # Placements are compared where all siblings are online.
    return [
        *of_arms.values(),
        *([pair] for pair in _placement_pairs(result, samples, SMT_ON if SMT_ON in measured else baseline)),
    ]


def _placement_pairs(result: HostResult, samples: dict[recorded.Key, t.Any], arm: str) -> list[Pair]:
    """Return the pairs of placements that are compared within an arm."""
    planned = (result.plan.placements or {}).get(arm) or {}
    cores = planned.get(placements.CORES)
    named = ON_ONE_CORE if cores and cores.reason else {}
    of_effects = [(named.get(effect, effect), *pair) for pair, effect in PLACEMENT_PAIRS.items()]
    of_workers = _of_as_many_workers(dict.fromkeys([*planned, *_taken(samples, arm)]))
    return [
        ("placement", effect, candidate, (base, arm), (candidate, arm))
        for effect, candidate, base in [*of_effects, *of_workers]
    ]


def _of_as_many_workers(names: t.Collection[str]) -> list[tuple[str, str, str]]:
    """Return (effect, candidate, baseline) for the placements of these that are compared with another one of as many
    workers; of explicit CPUs the first one is the baseline.
    """
    pairs = []
    first: dict[int, str] = {}
    for name in sorted(names, key=placements.rank):
        count, cpus = placements.numbered(name), placements.explicit(name)
        spread = f"{placements.SPREAD}_{count.workers}" if count and count.kind == placements.PACKED else ""
        if spread in names:
            pairs.append((PACKING, name, spread))
        if cpus and first.setdefault(len(cpus), name) != name:
            pairs.append((OTHER_CPUS, name, first[len(cpus)]))
    return pairs


def _taken(samples: t.Iterable[recorded.Key], arm: str) -> list[str]:
    """Return the placements of an arm's samples, in the order of the result."""
    return list(dict.fromkeys(placement for _workload, placement, sampled, _parameter in samples if sampled == arm))


def _placements_of(result: HostResult, samples: dict[recorded.Key, t.Any], baseline: str) -> list[str]:
    """Return the placements to compare across arms, the whole machine first."""
    planned = (result.plan.placements or {}).get(baseline) or {}
    return [
        WHOLE_MACHINE,
        *sorted(
            {*planned, *_taken(samples, baseline)} - {WHOLE_MACHINE}, key=lambda name: (placements.rank(name), name)
        ),
    ]


def _families(
    result: HostResult, samples: dict[recorded.Key, t.Any]
) -> tuple[list[Subject], list[Subject], list[Subject]]:
    """Return what is compared in one family: the primary metric of each workload and parameter value, the costs of its
    work, and between them all other metrics.
    """
    primary: list[Subject] = []
    others: list[Subject] = []
    of_costs: list[Subject] = []
    limited = measures.with_most_load(result, samples)
    for workload, parameter in dict.fromkeys((key[0], key[3]) for key in samples):
        declared = recorded.declaration(result, workload)
        deciding = limits.MOST_LOAD if workload in limited else declared.primary
        metrics = [limits.MOST_LOAD] if workload in limited and parameter is None else list(declared.metrics)
        for name in metrics:
            family = of_costs if name in costs.METRICS else primary if name == deciding else others
            family.append((workload, parameter, name))
    return primary, others, of_costs


def _family(
    result: HostResult,
    pairs: t.Sequence[tuple[Pair, recorded.Samples]],
    subjects: t.Sequence[Subject],
    primary: bool,
    margin: float,
    confidence: float,
) -> list[Comparison]:
    """Compare the two sides of each pair, in the samples beside it, for each workload and metric that has both,
    as one family.
    """
    family, values, measured_blocks, deciding, alone = [], [], [], [], []
    for (pair, samples), (workload, parameter, metric) in itertools.product(pairs, subjects):
        kind, effect, placement, baseline, candidate = pair
        if metric == limits.MOST_LOAD and (baseline[1], candidate[1]) == recorded.OF_SMT and len(result.arms) == 2:
            # What is asked is how much more SMT serves, as from how many streams on it helps.
            effect, baseline, candidate = SMT_ON, candidate, baseline
        sides = [
            samples.get((workload, recorded.sampled_as(result, *side), side[1], parameter))
            for side in (baseline, candidate)
        ]
        if (
            sides[0] is None
            or sides[1] is None
            or sides[0] is sides[1]
            or not _may_differ_in_workers(result, workload, metric, effect, sides)
        ):
            continue
        before, after = (recorded.good_values(side, metric) for side in sides if side is not None)
        blocks = sorted(block for block in set(before) & set(after) if before[block] and after[block])
        # A further metric can be 0, which has no ratio. Its other blocks would be a choice by their values.
        further = [] if primary else [sample for side in sides for block in (side or {}).values() for sample in block]
        good = [sample.metrics[metric] for sample in further if sample.ok and metric in sample.metrics]
        if not blocks or any(value.value == 0 for value in good):
            continue
        measure = dataclasses.replace(measures.describe_workload(result, workload, parameter, metric), primary=primary)
        measured_blocks.append(1 + max(*before, *after))
        both = set(before) & set(after)
        alone.append([sum(bool(side[block]) for block in both) - len(blocks) for side in (before, after)])
        # No look is at a most load.
        own = primary and metric != limits.MOST_LOAD
        deciding.append(own and _decides(result, samples, (workload, parameter), (baseline, candidate)))
        values.append(([before[block] for block in blocks], [after[block] for block in blocks], measure.better))
        of_boots = basis(result, pair)
        family.append(
            {
                **vars(measure),
                "kind": kind,
                "effect": effect,
                "placement": placement,
                "basis": of_boots,
                "confounded": of_boots == BOOTS and bool(result.plan.confounded),
                "baseline": side_of(result, *baseline),
                "candidate": side_of(result, *candidate),
                "dropped_blocks": len(set(before) | set(after)) - len(blocks),
            }
        )
    comparisons = []
    looks = [looks_at(result, blocks) for blocks in measured_blocks]
    for of_pair, measured, of_one, judged in zip(
        family, values, alone, paired.compare_family(values, margin, confidence, looks, deciding)
    ):
        whole = {**of_pair, **vars(judged)}
        whole["baseline_value"], whole["candidate_value"] = paired.sides(*measured, judged.ratio)
        if of_pair["metric"] == limits.MOST_LOAD:
            whole.update(limits.of_loads(*measured[:2], of_one, judged))
        comparisons.append(Comparison(**whole, mean_change=paired.mean_change(*measured[:2])))
    return comparisons


def side_of(result: HostResult, placement: str, arm: str) -> Side:
    """Return a side of a comparison."""
    return Side(arm, recorded.arm_title(result, arm), placement)


def _decides(
    result: HostResult,
    samples: recorded.Samples,
    measured: tuple[str, float | None],
    sides: tuple[tuple[str, str], tuple[str, str]],
) -> bool:
    """Return whether looks are at a comparison of the primary metric:
    it is a main one of the plan (``_measure/statistics/goals.py``).
    """
    workload, parameter = measured
    names = [arm.name for arm in result.arms]

    def taken(pair: tuple[goals.Side, goals.Side]) -> bool:
        keys = [(workload, recorded.sampled_as(result, placement, arm), arm, parameter) for arm, placement in pair]
        return keys[0] != keys[1] and all(key in samples for key in keys)

    # Of two factors looks are at their effects.
    main = [] if arm_names.levels(names) else goals.main_comparisons(names, taken)
    return tuple((arm, placement) for placement, arm in sides) in main


def looks_at(result: HostResult, blocks: int) -> paired.Looks:
    """Return the planned looks at samples of so many blocks, failed ones included; none where the plan did not look.

    A plan that was ended from outside has more blocks than at its last look. They are a last look, which spends the
    rest.
    """
    taken = [spending.Look(look.blocks, look.share) for look in result.plan.looks or () if look.blocks <= blocks]
    if taken and taken[-1].blocks < blocks and taken[-1].share < 1:
        taken.append(spending.Look(blocks, 1.0))
    return tuple(taken)


def _may_differ_in_workers(
    result: HostResult, name: str, metric: str, effect: str, sides: t.Iterable[dict[int, list[Sample]] | None]
) -> bool:
    """Return whether a metric means the same on two sides with their numbers of workers.

    A sum of what each worker does is the work of all. A sum of what each worker costs grows with the work, and says
    nothing of a side where more was done. A time per job or operation is one whatever the number of workers. A time of
    which nobody has said what it is of is compared between as many workers with as many CPUs.
    """
    declared = limits.meaning(recorded.declaration(result, name), metric)
    undeclared = declared.aggregate == workload_metrics.UNDECLARED
    if undeclared or (declared.aggregate == "sum" and declared.better == "lower"):
        good = [
            sample
            for side in sides
            for blocks in (side or {}).values()
            for sample in blocks
            if recorded.good_value(sample, metric) is not None
        ]
        return len({_size(sample, undeclared) for sample in good}) < 2
    comparable = (*workload_metrics.ADDING_UP, workload_metrics.MEAN_PER_JOB)
    return effect not in UNEQUAL_SIDES or declared.aggregate in comparable


def _size(sample: Sample, with_cpus: bool) -> tuple[int, ...]:
    """Return the number of workers of a sample, and how many CPUs each has."""
    workers = sample.workers or ()
    return len(workers), *(sorted(len(cpulist.parse(worker.cpus)) for worker in workers) if with_cpus else ())
