# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conclusion of one host's comparisons in plain text: whether SMT should be on, how certain that is,
and what it costs.

The text never claims more than the data: a single undecided workload leaves the host undecided, and where nothing was
switched the sentence gives the reason and what the placements show instead.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements, units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import ONLINE
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    measures,
    paired,
    recorded,
    smt_metrics,
    streams,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared, Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    advice,
    costs as host_costs,
    findings,
    outcomes,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import (
    cautions as host_cautions,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers, load_limit
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

ON, OFF, EITHER = "on", "off", "either"
# Outcome of SMT off against SMT on -> what to choose.
CHOICES = {outcomes.WORSE: ON, outcomes.BETTER: OFF, outcomes.EQUAL: EITHER}
BY_WORKLOAD, UNDECIDED, NOT_COMPARED = outcomes.BY_WORKLOAD, outcomes.UNDECIDED, outcomes.NOT_COMPARED

NOTHING_OF_SHARING = "Nothing could be measured here about sharing a core."


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion for one host.

    Attributes:
        recommendation: ``on``, ``off``, ``either``, ``by_workload``, ``undecided`` or ``not_compared``.
        sentences: the answer.
        basis: what it rests on.
        costs: what a choice costs, in sentences.
        cautions: what makes the numbers less sure, in sentences.
        next: what to measure next, or None.
    """

    recommendation: str
    sentences: list[str]
    basis: str
    costs: list[str]
    cautions: list[str]
    next: str | None

    @property
    def sentence(self) -> str:
        """The answer."""
        return " ".join(self.sentences)

    @property
    def statements(self) -> list[str]:
        """All that is said, in the order in which it matters."""
        return [*self.sentences, *filter(None, [self.next]), *self.cautions, *self.costs, self.basis]

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        fields = {name: value for name, value in vars(self).items() if name != "sentences"}
        return {**fields, "sentence": self.sentence, "statements": self.statements}


def conclude(analysis: HostAnalysis) -> Conclusion:
    """Draw the conclusion for one host.

    Args:
        analysis: of the host.
    """
    result, comparisons = analysis.result, analysis.comparisons
    main = outcomes.deciding(analysis)
    choice = CHOICES.get(outcome := outcomes.of_smt(analysis), outcome)
    changed = [*main, *analysis.of_other_arms, *outcomes.served_by_one(analysis)]
    more = advice.more_to_measure(result, changed, analysis.curves)
    first = findings.of_host(analysis)
    rooms = [
        *filter(
            None, (findings.room(analysis, workload) for workload in result.plan.workloads or () if workload.parameter)
        )
    ]
    answers = _sentences(analysis, main, choice)
    if (first or rooms) and answers[-1] == NOTHING_OF_SHARING:
        answers.pop()
    sentences = [*first, *answers, *rooms] if changed else [*first, *rooms, *answers]
    used = changed or [comparison for comparison in comparisons if comparison.kind == "placement"] or comparisons
    primary = [comparison for comparison in used if comparison.primary]
    basis = " ".join([_confidence_text(primary), *load_limit.resolution(result, primary)])
    costs, cautions = host_costs.of_host(analysis), host_cautions.of_host(analysis)
    return Conclusion(choice, sentences, basis, costs, cautions, more.text if more else None)


def recommendation(main: t.Sequence[outcomes.Said]) -> str:
    """Combine the comparisons of SMT off against SMT on that decide into a recommendation, as in :func:`conclude`."""
    return CHOICES.get(outcome := outcomes.outcome(main), outcome)


def _sentences(analysis: HostAnalysis, main: t.Sequence[Comparison], choice: str) -> list[str]:
    result, curves = analysis.result, analysis.curves
    by_one = outcomes.of_smt_by_one(analysis)
    others = _of_other_arms(analysis)
    standing = outcomes.standing(analysis)
    best = _of_best(analysis, standing)
    if choice == NOT_COMPARED:
        unchanged = all(exposure.siblings(arm.name) in (None, ONLINE) for arm in result.arms)
        return (
            [*best, *others, *(["SMT was not switched."] if unchanged else [])]
            if others
            else _without_comparison(analysis)
        )
    opening = {
        ON: "Leave SMT on",
        OFF: "Turn SMT off",
        EITHER: "For performance SMT may be on or off here",
        BY_WORKLOAD: _it_depends(analysis),
        UNDECIDED: "Not decided",
    }[choice]
    if choice == EITHER and (names := exposure.exposed(result)):
        opening += f", and with it on the kernel calls this host vulnerable to {wording.join(names)}"
    # Another arm may do better than both.
    if set(standing.better) - set(recorded.OF_SMT):
        opening = f"Of SMT on and off alone, {opening[:1].lower()}{opening[1:]}"
    by_streams = _by_streams(curves)
    is_booted = any(comparison.confounded for comparison in [*main, *by_one])
    confounded = ", all of it confounded with the reboot between" if is_booted else ""
    if by_streams and not analysis.of_smt and not by_one:
        return [
            *best,
            f"{opening}: {by_streams}{confounded}.",
            *_worst_of_streams(curves),
            *others,
        ]
    others = [*([f"{wording.capital(by_streams)}.", *_worst_of_streams(curves)] if by_streams else []), *others]
    main = analysis.of_smt
    loads = [comparison.as_said(len(result.arms)) for comparison in main if comparison.is_most_load]
    clauses = [
        load_limit.clause(
            result,
            comparison,
            wording.change_of(comparison.change)
            if comparison.ci_low is None
            else wording.change_and_interval(comparison.change),
        )
        for comparison in loads
    ]
    clauses += [load_limit.clause(result, comparison, "") for comparison in by_one]
    rest = [comparison for comparison in main if not comparison.is_most_load]
    if rest:
        clause = _clauses(rest, "that" if choice == OFF else "turning it off", _undecided)
        clauses.append(f"with every online thread busy, {clause}")
    clauses += _on_one_side(analysis)
    clauses += [
        f"with {placements.title(comparison.placement)} it changes {comparison.subject} by {comparison.in_words}"
        for comparison in outcomes.parts_against(analysis)[: wording.NAMED]
    ]
    return [*best, f"{opening}: {'; '.join(clauses)}{confounded}.", *others]


def _it_depends(analysis: HostAnalysis) -> str:
    """Say what it depends on where one side is better here and worse there."""
    if outcomes.is_by_streams(analysis):
        return "It depends on how much runs at once"
    loads = {comparison.workload: comparison.parameter for comparison in analysis.of_smt}
    return f"It depends on the {'load' if len(loads) == 1 and None not in loads.values() else 'work'}"


def _on_one_side(analysis: HostAnalysis, pair: tuple[str, str] = recorded.OF_SMT) -> list[str]:
    """Say which workloads one of two arms could not do, and the other one could."""
    titles: dict[tuple[str, str | None], list[str]] = {}
    for unable in outcomes.on_one_side(analysis, pair):
        title = measures.describe_workload(analysis.result, unable.workload, unable.parameter).title
        titles.setdefault((unable.arm_title, unable.why), []).append(title)
    return [
        f"{wording.named(names)} could not be measured with {arm} ({wording.clause(why)})"
        if why
        else f"each sample of {wording.named(names)} failed with {arm}"
        for (arm, why), names in titles.items()
    ]


def _by_streams(curves: t.Sequence[streams.Curve]) -> str:
    """Describe from how many streams on SMT helps; empty where no streams were compared."""
    by_crossover: dict[str, list[streams.Curve]] = {}
    for curve in curves:
        by_crossover.setdefault(crossovers.text(curve.crossover), []).append(curve)
    clauses = [
        crossovers.clause(group[0].crossover, wording.join([curve.title for curve in group]))
        for group in by_crossover.values()
    ]
    # What helps is named once.
    helps = "SMT helps "
    return "; ".join(
        clause.removeprefix(helps) if place and clauses[place - 1].startswith(helps) else clause
        for place, clause in enumerate(clauses)
    )


def _worst_of_streams(curves: t.Sequence[streams.Curve]) -> list[str]:
    """Say what SMT costs at worst, whatever the number of streams."""
    losses = [
        (comparison.ratio, count, comparison)
        for curve in curves
        for count, comparison in curve.comparisons.items()
        if comparison.verdict == paired.LOSS
    ]
    if not losses:
        return []
    _ratio, _count, worst = min(losses, key=lambda loss: loss[:2])
    # As tables and charts have it: SMT off against SMT on.
    loss = worst.turned()
    return [
        f"SMT costs most with {placements.title(loss.placement)}: {_clauses([loss], 'turning it off', _undecided)}."
    ]


def _clauses(group: t.Sequence[Comparison], subject: str, undecided: t.Callable[[t.Sequence[Comparison]], str]) -> str:
    """Describe the verdicts of comparisons as clauses:
    ``turning it off changes gzip by −20 % (−22 to −18 %), worse; zlib stays within 1 % either way``.

    Args:
        group: comparisons of the same two arms.
        subject: what makes the change.
        undecided: makes the text for inconclusive comparisons.
    """
    by = _by_verdict(group)
    parts = [f"{subject} changes {changes}"] if (changes := _changes(by)) else []
    if by["equivalent"]:
        parts.append(
            f"{_named(by['equivalent'])} {wording.verb(by['equivalent'], 'stays', 'stay')} within"
            f" {wording.margin(group[0].margin)} either way"
        )
    if by["inconclusive"]:
        parts.append(undecided(by["inconclusive"]))
    return "; ".join(parts)


def _by_verdict(group: t.Sequence[Comparison]) -> dict[str, list[Comparison]]:
    return {
        verdict: [comparison for comparison in group if comparison.verdict == verdict]
        for verdict in ("loss", "gain", "equivalent", "inconclusive")
    }


def _changes(by: t.Mapping[str, t.Sequence[Comparison]], order: t.Sequence[str] = ("loss", "gain")) -> str:
    """Return the changes of what is worse, and of what is better; in few words where there are many of both."""
    effects = (
        _ranges
        if all(by[verdict] for verdict in order) and sum(len(by[verdict]) for verdict in order) > 2
        else _effects
    )
    return "; ".join(f"{effects(by[verdict])}, {wording.VERDICT_TITLES[verdict]}" for verdict in order if by[verdict])


def _effects(group: t.Sequence[Comparison]) -> str:
    """Return ``gzip by −20 % (−22 to −18 %)`` for a few workloads, their range for many: of rates, and of times."""
    if len(group) > wording.NAMED:
        return _ranges(group)
    return wording.join(
        [f"{comparison.subject} by {wording.change_and_interval(comparison.change)}" for comparison in group]
    )


def _ranges(group: t.Sequence[Comparison]) -> str:
    """Return ``3 workloads by +5 to +9 %``, or ``gzip and zlib by +5 to +9 %``: of rates, and of times."""
    ranges = []
    for better in dict.fromkeys(comparison.better for comparison in group):
        members = [comparison for comparison in group if comparison.better == better]
        changes = sorted(comparison.change.value for comparison in members)
        low, high = (
            wording.signed_share(end, wording.digits(changes[0], changes[-1])) for end in (changes[0], changes[-1])
        )
        by = high if low == high else f"{low.removesuffix(' %')} to {high}"
        few = len(members) < wording.NAMED
        named = [comparison.subject for comparison in members] if few else [wording.counted(len(changes), _what(group))]
        ranges.append(f"{wording.join(named)} by {by}")
    return wording.join(ranges)


def _undecided(group: t.Sequence[Comparison]) -> str:
    if len(group) > wording.NAMED:
        return f"{len(group)} {_what(group)}s are not decided"
    return "; ".join(_undecided_text(comparison) for comparison in group)


def _undecided_text(comparison: Comparison) -> str:
    if comparison.n < paired.MIN_BLOCKS:
        return (
            f"{comparison.title} has {comparison.n} {'block' if comparison.n == 1 else 'blocks'} and needs at"
            f" least {paired.MIN_BLOCKS}"
        )
    return f"{comparison.subject} may change by anything from {wording.ends(comparison.change)} with SMT off"


def _named(group: t.Sequence[Comparison]) -> str:
    if len(group) > wording.NAMED:
        return f"{len(group)} {_what(group)}s"
    return wording.join([comparison.title for comparison in group])


def _what(group: t.Sequence[Comparison]) -> str:
    """Return what comparisons are of: a workload can be measured at several values of its parameter."""
    return "workload" if len({comparison.workload for comparison in group}) == len(group) else "load"


def _of_best(analysis: HostAnalysis, standing: outcomes.Standing) -> list[str]:
    """Say which of three or more arms is best, or which are better than the baseline and why none is called best."""
    result = analysis.result
    names = [arm.name for arm in result.arms]
    if len(names) < 3 or not standing.outcomes:
        return []
    baseline = recorded.arm_title(result, names[0])
    if standing.best == names[0]:
        return [
            f"{wording.capital(baseline)}, the baseline, is the best of the {len(names)} arms: each other one costs."
        ]
    if standing.best:
        return [
            (
                f"{wording.capital(recorded.arm_title(result, standing.best))} is the best of the {len(names)}"
                " arms: it is better than each other one."
            )
        ]
    if not standing.better:
        return [f"No arm is called better than {baseline}."]
    better = [recorded.arm_title(result, name) for name in standing.better]
    why = "none of the arms is better than each other one"
    if not standing.complete:
        missing = analysis.settings[2] != host_comparisons.ALL
        why = f"which arm is best was not compared{' (smt_report_compare: all)' if missing else ''}"
    # Combined arms have commas in their titles.
    named = f"{'; '.join(better)}. {wording.capital(why)}" if any(", " in title for title in better) else None
    return [f"Better than {baseline}: {named or f'{wording.join(better)}; {why}'}."]


def _of_other_arms(analysis: HostAnalysis) -> list[str]:
    """Describe the effect of each arm against the baseline, other than SMT off against on: one arm in a sentence,
    several in one for each placement.
    """
    by_arm: dict[str, dict[str, list[Comparison]]] = {}
    by_placement: dict[str, dict[str, list[Comparison]]] = {}
    for comparison in analysis.against_baseline:
        by_arm.setdefault(comparison.effect, {}).setdefault(comparison.placement, []).append(comparison)
        by_placement.setdefault(comparison.placement, {}).setdefault(comparison.effect, []).append(comparison)
    first, *others = (arm.name for arm in analysis.result.arms)
    baseline = analysis.titles[first]
    by_one = [
        f"{wording.capital('; '.join(unable))}."
        for name in others
        if {first, name} != {*recorded.OF_SMT} and (unable := _on_one_side(analysis, (first, name)))
    ]
    by_one += [
        f"{wording.capital(load_limit.clause(analysis.result, comparison, ''))}."
        for comparison in outcomes.served_by_one(analysis)
        if not comparison.is_of_smt
    ]
    if len(by_arm) > 1:
        return by_one + [
            f"Against {baseline}, with {placements.title(placement)}:"
            f" {'; '.join(map(_of_arm, sorted(groups.values(), key=_rank)))}."
            for placement, groups in by_placement.items()
        ]
    sentences = by_one
    for groups in by_arm.values():
        clauses = []
        for placement, group in groups.items():
            clause = _clauses(
                group, "it", lambda open_ones: f"{_named(open_ones)} {wording.verb(open_ones, 'is', 'are')} not decided"
            )
            clauses.append(f"with {placements.title(placement)}: {clause}")
            candidate = group[0].candidate.arm_title
        confounded = _confounded(itertools.chain(*groups.values()))
        sentences.append(f"{wording.capital(candidate)} against {baseline}, {'; '.join(clauses)}{confounded}.")
    return sentences


def _rank(group: t.Sequence[Comparison]) -> int:
    """Return the place of an arm among others: first what may be chosen."""
    return (outcomes.BETTER, outcomes.BY_WORKLOAD, outcomes.EQUAL, outcomes.UNDECIDED, outcomes.WORSE).index(
        outcomes.outcome(group)
    )


def _of_arm(group: t.Sequence[Comparison]) -> str:
    """Describe what one of several arms does as a clause:
    ``isolated changes gzip by +5 % (+4 to +6 %), better; oltp latency_p99 by +9 % (+7 to +11 %), worse``.
    """
    by = _by_verdict(group)
    within = f"within {wording.margin(group[0].margin)}"
    parts = [f"changes {changes}"] if (changes := _changes(by, ("gain", "loss"))) else []
    if by["equivalent"]:
        unchanged = len(by["equivalent"]) == len(group)
        parts.append(
            f"changes nothing: {within} for {_named(group)}"
            if unchanged
            else f"leaves {_named(by['equivalent'])} {within}"
        )
    if by["inconclusive"]:
        parts.append(f"is not decided for {_named_open(by['inconclusive'])}")
    return f"{group[0].candidate.arm_title} {', and '.join(parts)}{_confounded(group)}"


def _confounded(group: t.Iterable[Comparison]) -> str:
    return ", confounded with the reboot between" if any(comparison.confounded for comparison in group) else ""


def _named_open(group: t.Sequence[Comparison]) -> str:
    """Name undecided workloads with what would decide them."""
    if len(group) > wording.NAMED:
        return f"{len(group)} {_what(group)}s"
    return wording.join([f"{comparison.title} ({_what_would_decide(comparison)})" for comparison in group])


def _what_would_decide(comparison: Comparison) -> str:
    if comparison.n < paired.MIN_BLOCKS:
        return f"{comparison.n} of at least {paired.MIN_BLOCKS} blocks"
    needs = advice.blocks_needed(comparison)
    more = (
        f"about {needs} blocks would decide"
        if needs and needs <= advice.MAX_BLOCKS
        else "it scatters too much for more blocks to decide"
    )
    return f"{wording.ends(comparison.change)}; {more}"


def _without_comparison(analysis: HostAnalysis) -> list[str]:
    result, comparisons = analysis.result, analysis.comparisons
    smt = recorded.concerns_smt(result)
    reason = recorded.why_not_compared(result)
    if recorded.is_compared(result):
        most = [level.value for level in analysis.levels if level.metric == limits.MOST_LOAD]
        missing = (
            "no load that was measured is served within its limit"
            if most and set(most) == {None}
            else f"no block has good samples {'with every online thread busy ' if smt else ''}on both sides"
        )
        reason = "; ".join(_on_one_side(analysis)) or _of_other_work(analysis) or missing
    others = list(recorded.other_arms(result).values())
    what = (
        "SMT on and off were"
        if smt
        else f"{wording.capital(wording.join(others))} {wording.verb(others, 'was', 'were')}"
    )
    why = f"{what} not compared here: {wording.clause(reason)}."
    if parts := _of_a_part(comparisons):
        shown = _from_placements(comparisons)
        failed = "; ".join(_on_one_side(analysis))
        why_not = f" ({failed})" if failed else ""
        whole = f"The whole machine was not compared{why_not}, so nothing is recommended."
        return [*filter(None, [shown]), *parts, whole]
    shown = _from_placements(comparisons)
    if shown is None and host_cautions.background_load(result):
        return [why, "The measurement tells nothing of sharing a core, because of background load on the CPUs."]
    shown = shown or _second_core(comparisons)
    if shown is None:
        measured = [] if comparisons else findings.measured(analysis)
        few = max((comparison.n for comparison in comparisons if comparison.kind == "placement"), default=0)
        nothing = (
            f"{few} of at least {paired.MIN_BLOCKS} blocks say nothing of sharing a core yet."
            if 0 < few < paired.MIN_BLOCKS
            else NOTHING_OF_SHARING
        )
        return [*measured, why] if measured else [why, nothing]
    return [shown, why]


def _of_other_work(analysis: HostAnalysis) -> str:
    """Say why numbers of both sides with every online thread busy were not compared: they are not of the same work, or
    nobody has said what they are of; empty where there are none.
    """
    of_whole = [
        level
        for level in analysis.levels
        if level.primary and level.placement == host_comparisons.WHOLE_MACHINE and level.value is not None
    ]
    on_both = {level.workload for level in of_whole if level.arm == recorded.OF_SMT[0]}
    for level in of_whole:
        if level.arm == recorded.OF_SMT[1] and level.workload in on_both:
            measure = measures.describe_workload(analysis.result, level.workload, level.parameter)
            if (measure.aggregate, measure.better) == ("sum", "lower"):
                return (
                    f"{measure.metric} of {measure.title} is a sum over as many workers as ran: declare what a job"
                    " takes"
                )
            if measure.aggregate == workload_metrics.UNDECLARED:
                return f"it is not declared what {measure.metric} of {measure.title} is of"
    return ""


def _of_a_part(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe what SMT off does to workers that leave a part of the machine idle, where nothing else was compared;
    where it changes something comes first.
    """
    by_placement: dict[str, list[Comparison]] = {}
    for comparison in host_comparisons.at_widest(comparisons):
        if comparison.is_of_smt:
            by_placement.setdefault(comparison.placement, []).append(comparison.of_smt_off())
    changed = (paired.LOSS, paired.GAIN)
    return [
        f"With {placements.title(placement)}, {_clauses(group, 'turning SMT off', _undecided)}{_confounded(group)}."
        for placement, group in sorted(
            by_placement.items(), key=lambda part: not any(comparison.verdict in changed for comparison in part[1])
        )
    ]


def _from_placements(comparisons: t.Sequence[Comparison]) -> str | None:
    """Describe what the placements alone show about sharing a core, in one sentence; None where they show nothing."""
    for subject, base, group in _of_sharing(comparisons):
        arm = group[0].baseline
        state = "As it is now" if arm.arm == arms.AS_FOUND else f"With {arm.arm_title}"
        # What all of it cost is no work, as joules are.
        costs = [comparison for comparison in group if (comparison.aggregate, comparison.better) == ("sum", "lower")]
        taken = [
            comparison
            for comparison in group
            if comparison in costs or comparison.aggregate == workload_metrics.MEAN_PER_JOB
        ]
        done = [
            comparison
            for comparison in group
            if comparison.aggregate in workload_metrics.ADDING_UP and comparison not in costs
        ]
        # A response time is no work that is done.
        waits = [comparison for comparison in group if comparison not in done and comparison not in taken]
        clauses = [f"did {_each(done, f' the work of {base}', by_ratio=True)}"] if done else []
        for metric in dict.fromkeys(comparison.metric for comparison in taken):
            of_metric = [comparison for comparison in taken if comparison.metric == metric]
            clauses.append(f"took {_each(of_metric, f' the {metric} of {base}')}")
        times = [comparison for comparison in waits if comparison.unit in units.SECONDS]
        if times:
            clauses.append(f"took {_each(times, f' as long as {base}')}")
        others = [comparison for comparison in waits if comparison not in times]
        for metric in dict.fromkeys(comparison.metric for comparison in others):
            of_metric = [comparison for comparison in others if comparison.metric == metric]
            clauses.append(f"had {_each(of_metric, f' the {metric} of {base}')}")
        return f"{state}, {subject} {', and '.join(clauses)}."
    return None


def _of_sharing(comparisons: t.Sequence[Comparison]) -> t.Iterator[tuple[str, str, list[Comparison]]]:
    """Give the comparisons that show what sharing a core does, those that say most first, each with the names of what
    is compared with what. Of numbers of workers the fewest share most.
    """

    def with_effect(effect: str) -> list[Comparison]:
        return [
            comparison
            for comparison in comparisons
            if comparison.effect == effect and comparison.primary and comparison.n >= paired.MIN_BLOCKS
        ]

    if of_effect := with_effect("smt_yield"):
        yield "all threads combined", "one worker per core", of_effect
    if of_effect := with_effect("cost_of_sharing"):
        yield "two workers on one core", "two on two cores", of_effect
    if of_effect := with_effect(host_comparisons.PACKING):
        packed, apart = min(
            ((comparison.candidate.placement, comparison.baseline.placement) for comparison in of_effect),
            key=lambda pair: placements.rank(pair[0]),
        )
        group = [comparison for comparison in of_effect if comparison.candidate.placement == packed]
        yield placements.title(packed), placements.title(apart), group


def _each(group: t.Sequence[Comparison], what: str, by_ratio: bool = False) -> str:
    """Return how many times something is so of each workload: ``1.25 times (1.20 to 1.30) the work of one worker per
    core (gzip) and 1.10 times (1.05 to 1.15) (zlib)``.
    """
    parts = [
        _times(comparison.ratio, comparison.ci_low, comparison.ci_high)
        if by_ratio
        else _times(1.0 + comparison.change.value, *(end and end + 1.0 for end in comparison.change[1:]))
        for comparison in group[: wording.NAMED]
    ]
    return wording.join(
        [
            f"{times}{'' if place else what} ({comparison.title})"
            for place, (times, comparison) in enumerate(zip(parts, group))
        ]
    )


def _second_core(comparisons: t.Sequence[Comparison]) -> str | None:
    """Describe whether two workers on two cores really had two cores: a hypervisor may hide the true topology."""
    group = [
        comparison
        for comparison in comparisons
        if comparison.effect == "second_core"
        and comparison.primary
        and comparison.better == "higher"
        and comparison.n >= paired.MIN_BLOCKS
    ]
    if not group:
        return None
    # The workload with the largest loss is the most informative.
    comparison = min(group, key=lambda comparison: comparison.ratio)
    shares = {smt_metrics.what_two_share((end or 0.0) / 2, 1.0) for end in (comparison.ci_low, comparison.ci_high)}
    meaning = (
        "which leaves open what they share"
        if len(shares) > 1
        else {
            "nothing": "so they do not share a core",
            "core": "as if they shared a core, although the topology calls them two",
            "cpu": "as if they were one CPU, although the topology calls them two cores",
        }[shares.pop()]
    )
    times = _times(comparison.ratio, comparison.ci_low, comparison.ci_high)
    return f"Two workers on two cores did {times} the work of one alone ({comparison.title}), {meaning}."


def _times(value: float, low: float | None, high: float | None) -> str:
    """Return how many times one value is another."""
    return f"{value:.2f} times" + ("" if low is None or high is None else f" ({low:.2f} to {high:.2f})")


def _confidence_text(used: t.Sequence[Compared]) -> str:
    if not used:
        return "There is no comparison to be sure of."
    blocks = sorted({comparison.n for comparison in used})
    number = f"{blocks[0]}" if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
    is_of_each = len({comparison.workload for comparison in used}) == len(used)
    counted = "workloads" if is_of_each else "comparisons"
    family = f" for the {used[0].family} {counted} combined" if used[0].family > 1 else ""
    one_block = blocks[-1] == 1
    kind = f"interleaved {'block' if one_block else 'blocks'}, paired"
    if any(comparison.confounded for comparison in used):
        kind = f"{'block' if one_block else 'blocks'} of one boot on each side, not interleaved"
    sentences = [
        (
            f"{number} {kind};"
            f" {wording.percent(used[0].confidence)} confidence{family}; effects within"
            f" {wording.margin(used[0].margin)} count as none."
        )
    ]
    looks = max(comparison.looks for comparison in used)
    if looks:
        sentences.append(
            f"The plan looked at its samples {'once' if looks == 1 else f'{looks} times'}; intervals and verdicts hold"
            " over all planned looks."
        )
    # A plan that stopped at a verdict would have gone on for a smaller effect.
    whole = [comparison for comparison in used if not looks or comparison.verdict == "inconclusive"]
    least = [
        comparison.minimum_detectable
        for comparison in whole
        if comparison.minimum_detectable is not None and comparison.n >= paired.MIN_BLOCKS
    ]
    if least:
        sentences.append(f"An effect of {wording.percent(max(least))} would have been called in nine of ten such runs.")
    return " ".join(sentences)
