# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conclusion of one host's comparisons in plain text: whether SMT should be on, how certain that is,
and what it costs.

The text never claims more than the data: a single undecided workload leaves the host undecided, and where nothing was
switched the sentence gives the reason and what the placements show instead.
"""

from __future__ import annotations

import collections
import datetime
import functools
import math
import typing as t
from statistics import median

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import ONLINE
from ansible_collections.threadwise.smt.plugins.module_utils._siblings import (
    cache as sibling_cache,
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import decisions
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.arms import SMT_OFF
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.metrics import UNDECLARED
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    change,
    comparisons as host_comparisons,
    paired,
    smt_metrics,
    streams,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import (
    disturbances,
    exposure,
    findings,
    load_limit,
    outcomes,
    spread,
    work_costs,
)

ON, OFF, EITHER = "on", "off", "either"
# Outcome of SMT off against SMT on -> what to choose.
CHOICES = {outcomes.WORSE: ON, outcomes.BETTER: OFF, outcomes.EQUAL: EITHER}
BY_WORKLOAD, UNDECIDED, NOT_COMPARED = outcomes.BY_WORKLOAD, outcomes.UNDECIDED, outcomes.NOT_COMPARED

# Verdict -> the word for people.
VERDICT_TITLES = {
    paired.GAIN: "better",
    paired.LOSS: "worse",
    paired.EQUIVALENT: "no difference",
    paired.INCONCLUSIVE: "not decided",
    outcomes.HOSTS_DISAGREE: "hosts disagree",
}
# A decided verdict -> its opposite.
DECIDED = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}
# Shares of stolen time above this are reported.
NOTABLE_SHARE = 0.01
MIB = 1024 * 1024
OVERCOMMIT_TESTS = {
    "enomem": "it was refused at once (ENOMEM)",
    "oom_killed": "it was promised them, and killed when it used them",
    "survived": "it was promised them, and could use them",
}
NOTHING_OF_SHARING = "Nothing could be measured here about sharing a core."
# More workloads than this are counted, not named.
NAMED = 3
MINUTE = 60
# A measurement of more blocks is not practical.
MAX_BLOCKS = 10_000


def conclude(analysis: HostAnalysis) -> dict[str, t.Any]:
    """Draw the conclusion for one host.

    Args:
        analysis: of the host.

    Returns:
        ``{recommendation, sentence, basis, costs, cautions, next, statements}``: ``recommendation`` is ``on``, ``off``,
        ``either``, ``by_workload``, ``undecided`` or ``not_compared``; ``costs`` and ``cautions`` are lists of
        sentences; ``next`` names what to measure next, or is None; ``statements`` has all that is said, in the order in
        which it matters.
    """
    result, comparisons = analysis.result, analysis.comparisons
    main = outcomes.deciding(analysis)
    choice = CHOICES.get(said := outcomes.of_smt(analysis), said)
    changed = [*main, *analysis.of_other_arms]
    more = more_to_measure(result, changed, analysis.curves)
    first = findings.of_host(analysis)
    sentences = [*first, *_sentences(analysis, main, choice)]
    if first and sentences[-1] == NOTHING_OF_SHARING:
        sentences.pop()
    used = changed or [one for one in comparisons if one["kind"] == "placement"] or comparisons
    basis = _confidence_text([one for one in used if one["primary"]])
    costs, cautions = [*_costs(analysis), *_observed(result)], _cautions(result)
    cautions += _first(disturbances.cautions(result, comparisons), "comparisons")
    cautions += [*load_limit.cautions(analysis), *_tails(comparisons)]
    advice = more["text"] if more else None
    return {
        "recommendation": choice,
        "sentence": " ".join(sentences),
        "basis": basis,
        "costs": costs,
        "cautions": cautions,
        "next": advice,
        "statements": [*sentences, *filter(None, [advice]), *cautions, *costs, basis],
    }


def recommendation(main: t.Sequence[Comparison]) -> str:
    """Combine the comparisons of SMT off against SMT on that decide into a recommendation, as in :func:`conclude`."""
    return CHOICES.get(said := outcomes.outcome(main), said)


def _sentences(analysis: HostAnalysis, main: t.Sequence[Comparison], choice: str) -> list[str]:
    result, curves = analysis.result, analysis.curves
    others = _of_other_arms(analysis)
    standing = outcomes.standing(analysis)
    best = _of_best(result, standing)
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
        BY_WORKLOAD: "It depends on the work",
        UNDECIDED: "Not decided",
    }[choice]
    # Another arm may do better than both.
    if set(standing.better) - set(host_comparisons.OF_SMT):
        opening = f"Of SMT on and off alone, {opening[:1].lower()}{opening[1:]}"
    by_streams = _by_streams(curves)
    if by_streams and not analysis.of_smt:
        return [
            *best,
            f"{'It depends on how much runs at once' if choice == BY_WORKLOAD else opening}: {by_streams}.",
            *_worst_of_streams(curves),
            *others,
        ]
    others = [*([f"{_capital(by_streams)}.", *_worst_of_streams(curves)] if by_streams else []), *others]
    loads = [load_limit.as_said(result, one) for one in main if load_limit.is_most_load(one)]
    clauses = [
        load_limit.clause(
            result,
            one,
            change_of(change.Change.read(one))
            if one["ci_low"] is None
            else change_and_interval(change.Change.read(one)),
        )
        for one in loads
    ]
    rest = [one for one in main if not load_limit.is_most_load(one)]
    if rest:
        found = _clauses(rest, "that" if choice == OFF else "turning it off", _undecided)
        clauses.append(f"with every online thread busy, {found}")
    confounded = ", all of it confounded with the reboot between" if any(one["confounded"] for one in main) else ""
    return [*best, f"{opening}: {'; '.join(clauses)}{confounded}.", *others]


def _by_streams(curves: t.Sequence[streams.Curve]) -> str:
    """Describe from how many streams on SMT helps; empty where no streams were compared."""
    by_text: dict[tuple[bool, str], list[str]] = {}
    for curve in curves:
        known = curve.crossover.status in (streams.FOUND, streams.NEVER)
        by_text.setdefault((known, curve.crossover.text()), []).append(curve.title)
    clauses: list[str] = []
    for (known, text), titles in by_text.items():
        helps = "" if clauses and known else "SMT helps "
        clauses.append(f"{helps}{join(titles)} {text}" if known else f"whether {helps}{join(titles)} is {text}")
    return "; ".join(clauses)


def _worst_of_streams(curves: t.Sequence[streams.Curve]) -> list[str]:
    """Say what SMT costs at worst, whatever the number of streams."""
    losses = [
        (one["ratio"], count, one)
        for curve in curves
        for count, one in curve.comparisons.items()
        if one["verdict"] == paired.LOSS
    ]
    if not losses:
        return []
    _ratio, _count, worst = min(losses, key=lambda loss: loss[:2])
    # As tables and charts have it: SMT off against SMT on.
    one = host_comparisons.turned(worst)
    return [
        f"SMT costs most with {placements.title(one['placement'])}: {_clauses([one], 'turning it off', _undecided)}."
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
            f"{_named(by['equivalent'])} {_verb(by['equivalent'], 'stays', 'stay')} within"
            f" {percent(group[0]['margin'])} either way"
        )
    if by["inconclusive"]:
        parts.append(undecided(by["inconclusive"]))
    return "; ".join(parts)


def _by_verdict(group: t.Sequence[Comparison]) -> dict[str, list[Comparison]]:
    return {
        verdict: [one for one in group if one["verdict"] == verdict]
        for verdict in ("loss", "gain", "equivalent", "inconclusive")
    }


def _changes(by: t.Mapping[str, t.Sequence[Comparison]], order: t.Sequence[str] = ("loss", "gain")) -> str:
    """Return the changes of what is worse, and of what is better."""
    return "; ".join(f"{_effects(by[verdict])}, {VERDICT_TITLES[verdict]}" for verdict in order if by[verdict])


def _verb(group: t.Sequence[t.Any], one: str, many: str) -> str:
    return one if len(group) == 1 else many


def _effects(group: t.Sequence[Comparison]) -> str:
    """Return ``gzip by −20 % (−22 to −18 %)`` for a few workloads, their range for many: of rates, and of times."""
    if len(group) <= NAMED:
        return join([f"{subject_of(one)} by {change_and_interval(change.Change.read(one))}" for one in group])
    ranges = []
    for better in dict.fromkeys(one["better"] for one in group):
        changes = sorted(one["change"] for one in group if one["better"] == better)
        low, high = (_signed(end, _digits(changes[0], changes[-1])) for end in (changes[0], changes[-1]))
        ranges.append(f"{counted(len(changes), 'workload')} by {low.removesuffix(' %')} to {high}")
    return join(ranges)


def subject_of(one: Comparison) -> str:
    """Return what changes: the workload, and its metric where less of it is better, so that a sign can be read."""
    return str(one["title"]) if one["better"] == "higher" else f"{one['title']} {one['metric']}"


def _undecided(group: t.Sequence[Comparison]) -> str:
    if len(group) > NAMED:
        return f"{len(group)} workloads are not decided"
    return "; ".join(_undecided_text(one) for one in group)


def _undecided_text(one: Comparison) -> str:
    if one["n"] < paired.MIN_BLOCKS:
        return (
            f"{one['title']} has {one['n']} {'block' if one['n'] == 1 else 'blocks'} and needs at least"
            f" {paired.MIN_BLOCKS}"
        )
    return (
        f"{subject_of(one)} may change by anything from {_signed(one['change_low'])} to {_signed(one['change_high'])}"
        " with SMT off"
    )


def _named(group: t.Sequence[Comparison]) -> str:
    return f"{len(group)} workloads" if len(group) > NAMED else join([one["title"] for one in group])


def _of_best(result: HostResult, standing: outcomes.Standing) -> list[str]:
    """Say which of three or more arms is best, or which are better than the baseline and why none is called best."""
    names = [arm.name for arm in result.arms]
    if len(names) < 3 or not standing.outcomes:
        return []
    baseline = host_comparisons.arm_title(result, names[0])
    if standing.best == names[0]:
        return [f"{_capital(baseline)}, the baseline, is the best of the {len(names)} arms: each other one costs."]
    if standing.best:
        return [
            (
                f"{_capital(host_comparisons.arm_title(result, standing.best))} is the best of the {len(names)} arms:"
                " it is better than each other one."
            )
        ]
    if not standing.better:
        return [f"No arm is called better than {baseline}."]
    better = [host_comparisons.arm_title(result, name) for name in standing.better]
    why = (
        "none of the arms is better than each other one"
        if standing.complete
        else "which arm is best was not compared (smt_report_compare: all)"
    )
    return [f"Better than {baseline}: {join(better)}; {why}."]


def _of_other_arms(analysis: HostAnalysis) -> list[str]:
    """Describe the effect of each arm against the baseline, other than SMT off against on: one arm in a sentence,
    several in one for each placement.
    """
    by_arm: dict[str, dict[str, list[Comparison]]] = {}
    by_placement: dict[str, dict[str, list[Comparison]]] = {}
    for one in analysis.against_baseline:
        by_arm.setdefault(one["effect"], {}).setdefault(one["placement"], []).append(one)
        by_placement.setdefault(one["placement"], {}).setdefault(one["effect"], []).append(one)
    baseline = analysis.titles[analysis.result.arms[0].name]
    if len(by_arm) > 1:
        return [
            f"Against {baseline}, with {placements.title(placement)}:"
            f" {'; '.join(map(_of_arm, sorted(groups.values(), key=_rank)))}."
            for placement, groups in by_placement.items()
        ]
    sentences = []
    for groups in by_arm.values():
        clauses = []
        for placement, group in groups.items():
            said = _clauses(
                group, "it", lambda open_ones: f"{_named(open_ones)} {_verb(open_ones, 'is', 'are')} not decided"
            )
            clauses.append(f"with {placements.title(placement)}: {said}")
            candidate = group[0]["candidate"]["arm_title"]
        sentences.append(f"{_capital(candidate)} against {baseline}, {'; '.join(clauses)}.")
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
    within = f"within {percent(group[0]['margin'])}"
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
    confounded = ", confounded with the reboot between" if any(one["confounded"] for one in group) else ""
    return f"{group[0]['candidate']['arm_title']} {', and '.join(parts)}{confounded}"


def _named_open(group: t.Sequence[Comparison]) -> str:
    """Name undecided workloads with what would decide them."""
    if len(group) > NAMED:
        return f"{len(group)} workloads"
    return join([f"{one['title']} ({_what_would_decide(one)})" for one in group])


def _what_would_decide(one: Comparison) -> str:
    if one["n"] < paired.MIN_BLOCKS:
        return f"{one['n']} of at least {paired.MIN_BLOCKS} blocks"
    needs = _blocks_needed(one)
    more = (
        f"about {needs} blocks would decide"
        if needs and needs <= MAX_BLOCKS
        else "it scatters too much for more blocks to decide"
    )
    return f"{_signed(one['change_low'])} to {_signed(one['change_high'])}; {more}"


def _observed(result: HostResult) -> list[str]:
    """Describe the result of the overcommit test under each memory policy."""
    sentences = []
    for one in result.observations or ():
        outcome = one.overcommit_test and OVERCOMMIT_TESTS.get(one.overcommit_test.outcome)
        if outcome and one.asked_bytes:
            where = host_comparisons.arm_title(result, one.arm)
            sentences.append(
                f"A process that asked for {one.asked_bytes / MIB:.0f} MiB and was confined to a part of them,"
                f" {where}: {outcome}."
            )
    return sentences


def _without_comparison(analysis: HostAnalysis) -> list[str]:
    result, comparisons = analysis.result, analysis.comparisons
    smt = host_comparisons.concerns_smt(result)
    reason = host_comparisons.why_not_compared(result)
    if host_comparisons.is_compared(result):
        reason = f"no block has good samples {'with every online thread busy ' if smt else ''}on both sides"
    others = list(host_comparisons.other_arms(result).values())
    what = "SMT on and off were" if smt else f"{_capital(join(others))} {_verb(others, 'was', 'were')}"
    why = f"{what} not compared here: {_clause(reason)}."
    if parts := _of_a_part(comparisons):
        shown = _from_placements(comparisons)
        return [*filter(None, [shown]), *parts, "The whole machine was not compared, so nothing is recommended."]
    shown = _from_placements(comparisons)
    if shown is None and _background_load(result):
        return [why, "The measurement tells nothing of sharing a core, because of background load on the CPUs."]
    shown = shown or _second_core(comparisons)
    if shown is None:
        measured = [] if comparisons else findings.measured(analysis)
        return [*measured, why] if measured else [why, NOTHING_OF_SHARING]
    return [shown, why]


def _of_a_part(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe what SMT off does to workers that leave a part of the machine idle, where nothing else was compared."""
    by_placement: dict[str, list[Comparison]] = {}
    for one in host_comparisons.at_widest(comparisons):
        if host_comparisons.is_of_smt(one):
            by_placement.setdefault(one["placement"], []).append(_of_smt_off(one))
    return [
        f"With {placements.title(placement)}, {_clauses(group, 'turning SMT off', _undecided)}."
        for placement, group in by_placement.items()
    ]


def _from_placements(comparisons: t.Sequence[Comparison]) -> str | None:
    """Describe what the placements alone show about sharing a core, in one sentence; None where they show nothing."""
    effects = {
        "smt_yield": ("all threads combined", "the work of one worker per core", "one worker per core"),
        "cost_of_sharing": ("two workers on one core", "the work of two on two cores", "two on two cores"),
    }
    for effect, (subject, work, base) in effects.items():
        group = [
            one for one in comparisons if one["effect"] == effect and one["primary"] and one["n"] >= paired.MIN_BLOCKS
        ]
        if group:
            first = group[0]
            did = f"did {_times(first)} {work}"
            if first["better"] == "lower":
                did = f"took {_times(first)} as long as {base}"
            parts = [f"{did} ({first['title']})"] + [f"{_times(one)} ({one['title']})" for one in group[1:NAMED]]
            return f"As it is now, {subject} {join(parts)}."
    return None


def _second_core(comparisons: t.Sequence[Comparison]) -> str | None:
    """Describe whether two workers on two cores really had two cores: a hypervisor may hide the true topology."""
    group = [
        one
        for one in comparisons
        if one["effect"] == "second_core"
        and one["primary"]
        and one["better"] == "higher"
        and one["n"] >= paired.MIN_BLOCKS
    ]
    if not group:
        return None
    # The workload with the largest loss is the most informative.
    one = min(group, key=lambda one: one["ratio"])
    shares = {smt_metrics.what_two_share(one[end] / 2, 1.0) for end in ("ci_low", "ci_high")}
    meaning = (
        "which leaves open what they share"
        if len(shares) > 1
        else {
            "nothing": "so they do not share a core",
            "core": "as if they shared a core, although the topology calls them two",
            "cpu": "as if they were one CPU, although the topology calls them two cores",
        }[shares.pop()]
    )
    return f"Two workers on two cores did {_times(one)} the work of one alone ({one['title']}), {meaning}."


def _times(one: Comparison) -> str:
    """Return how many times the baseline's value a candidate has."""
    return f"{1 + one['change']:.2f} times" + (
        "" if one["change_low"] is None else f" ({1 + one['change_low']:.2f} to {1 + one['change_high']:.2f})"
    )


def _confidence_text(used: t.Sequence[Comparison]) -> str:
    if not used:
        return "There is no comparison to be sure of."
    blocks = sorted({one["n"] for one in used})
    number = f"{blocks[0]}" if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
    counted = "workloads" if len(set(map(host_comparisons.sides_of, used))) == 1 else "comparisons"
    family = f" for the {used[0]['family']} {counted} combined" if used[0]["family"] > 1 else ""
    sentences = [
        (
            f"{number} interleaved {'block' if blocks[-1] == 1 else 'blocks'}, paired; {percent(used[0]['confidence'])}"
            f" confidence{family}; effects within {percent(used[0]['margin'])} count as none."
        )
    ]
    looks = max(one["looks"] for one in used)
    if looks:
        sentences.append(
            f"The plan looked at its samples {'once' if looks == 1 else f'{looks} times'}; intervals and verdicts hold"
            " over all planned looks."
        )
    # A plan that stopped at a verdict would have gone on for a smaller effect.
    whole = [one for one in used if not looks or one["verdict"] == "inconclusive"]
    least = [
        one["minimum_detectable"]
        for one in whole
        if one["minimum_detectable"] is not None and one["n"] >= paired.MIN_BLOCKS
    ]
    if least:
        sentences.append(f"An effect of {percent(max(least))} would have been called in nine of ten such runs.")
    return " ".join(sentences)


def _switching(result: HostResult) -> list[str]:
    """Say what switching itself took: it is a time in which the host's work stands still or stutters."""
    switches = result.plan.switches or {}
    taken = [
        f"{one.seconds:.2g} s to {host_comparisons.arm_title(result, name)} ({one.count} times)"
        for name, one in switches.items()
    ]
    pause = result.plan.settle_seconds
    return (
        [f"A switch took, in the median, {join(taken)}{f', and {pause:g} s of pause after each' if pause else ''}."]
        if taken
        else []
    )


def _costs(analysis: HostAnalysis) -> list[str]:
    costs: list[str] = []
    result, comparisons, whole = analysis.result, analysis.comparisons, analysis.of_smt
    for one in comparisons:
        if (
            one["effect"] in ("cost_of_sharing", "cost_of_sharing_alone")
            and one["primary"]
            and one["verdict"] != "inconclusive"
        ):
            cost = smt_metrics.of_comparison(one["effect"], one)
            what = "work" if one["better"] == "higher" else one["metric"]
            costs.append(
                f"Cost of sharing a core, {one['title']}: while another runs on its sibling, a worker's {what} changes"
                f" by {change_and_interval(cost.change)}."
            )
    costs.extend(
        f"One worker alone, {subject_of(one)}: {change_and_interval(change.Change.read(one))} with"
        f" {host_comparisons.arm_title(result, one['effect'])}, {VERDICT_TITLES[one['verdict']]}."
        for one in comparisons
        if (one["kind"], one["placement"]) == ("arm", placements.SINGLE)
        and one["primary"]
        and one["verdict"] in ("gain", "loss")
        and not one["confounded"]
        # Else it is said first.
        and (whole or not host_comparisons.is_of_smt(one))
    )
    costs += [*_narrower(comparisons), *_other_side(comparisons)]
    costs += _first(work_costs.sentences(comparisons, judged), "workloads")
    costs += _switching(result)
    names = exposure.exposed(result)
    if names:
        costs.append(
            f"With SMT on the kernel calls this host vulnerable to {join(names)}; speed says nothing about that."
        )
    for arm in exposure.of_arms(result):
        opened = [name for name, state in arm.states.items() if state == exposure.OPENED]
        if opened:
            costs.append(
                f"{_capital(arm.title)} ends the mitigation of {join(opened)} ({arm.basis}); speed says nothing about"
                " that."
            )
    return costs


def _narrower(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe what SMT off does to several workers that leave a part of the machine idle, where that is the opposite
    of what it does to the whole machine.
    """
    opposite = {one["workload"]: DECIDED.get(one["verdict"]) for one in host_comparisons.of_smt(comparisons)}
    found = [
        _of_smt_off(one)
        for one in comparisons
        if one["kind"] == "arm"
        and one["primary"]
        and one["placement"] not in (host_comparisons.WHOLE_MACHINE, placements.SINGLE)
        and placements.numbered(one["placement"]) is None
        and host_comparisons.is_of_smt(one)
        and not one["confounded"]
    ]
    sentences = [
        f"With {placements.title(one['placement'])} turning SMT off changes {subject_of(one)} by {judged(one)}."
        for one in found
        if one["verdict"] == opposite.get(one["workload"])
    ]
    return sentences[:NAMED]


def _of_smt_off(one: Comparison) -> Comparison:
    """Return a comparison of SMT on and off as one of SMT off against SMT on."""
    return one if one["effect"] == SMT_OFF else host_comparisons.turned(one)


def _other_side(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe the further metrics of the whole machine on which SMT off has the opposite effect of that on the
    workload's primary metric.
    """
    every = host_comparisons.of_smt(comparisons, every_metric=True)
    opposite = {(one["workload"], one.get("parameter")): DECIDED.get(one["verdict"]) for one in every if one["primary"]}
    found = [
        one
        for one in every
        if not one["primary"] and one["verdict"] == opposite.get((one["workload"], one.get("parameter")))
    ]
    sentences = [
        f"The other side of it, {one['title']}: with SMT off {one['metric']} changes by {judged(one)}."
        for one in found
        if not one["confounded"]
    ]
    return _first(sentences, "metrics")


def _first(sentences: t.Sequence[str], what: str) -> list[str]:
    """Return the first sentences of some that say the like, and how many more there are."""
    more = len(sentences) - NAMED
    return [*sentences[:NAMED], *([f"The same holds for {more} further {what}."] if more > 0 else [])]


def _tails(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Return cautions about typical values that say the opposite of means or tails, the largest first."""
    apart = sorted(spread.found(comparisons), key=lambda one: -abs(one["against_change"]))
    return _first([spread.caution(one, signed) for one in apart], "metrics")


def _cautions(result: HostResult) -> list[str]:
    cautions = []
    if result.outcome != "completed":
        ended = "failed" if result.outcome == "failed" else "was interrupted"
        cautions.append(
            f"The run {ended}: {_clause(result.message or 'no message was left')}. What it had measured until then"
            " is shown."
        )
    samples = result.samples
    reasons: collections.Counter[str] = collections.Counter()
    for one in host_comparisons.failures(result):
        reasons[one["reason"]] += one["samples"]
    for usual, count in reasons.most_common(1):
        cautions.append(
            f"{reasons.total()} of {len(samples)} samples failed; their blocks are left out of the comparisons they"
            f" belong to. {'Of all' if count == reasons.total() else 'Of most'} the reason is: {_clause(usual)}."
        )
    cautions += _undeclared(result)
    cautions += _background_load(result)
    stolen = [steal for sample in samples if (steal := host_comparisons.telemetry_of(sample).steal) is not None]
    if stolen and max(stolen) > NOTABLE_SHARE:
        cautions.append(f"The hypervisor took up to {percent(max(stolen))} of the CPU time away during a sample.")
    cautions += _hypervisor(result)
    if not result.facts.get("complete", True):
        cautions.append("The topology is not complete: the place of some CPUs is not known.")
    return cautions


def _undeclared(result: HostResult) -> list[str]:
    """Return cautions about workloads whose number nobody has said what it is of: of one operation, or of all."""
    return [
        f"{one.title}: {name} was compared only between as many workers with as many CPUs, so not between SMT on and"
        " off with every thread busy, because it is not declared what it is of: set aggregate of the metric"
        " (per_operation, per_job, or max for a response time)."
        for one in result.plan.workloads or ()
        for name, metric in list(one.metrics.items())[:1]
        if metric.aggregate == UNDECLARED and len(result.arms) > 1
    ]


def _hypervisor(result: HostResult) -> list[str]:
    """Return cautions about siblings that a hypervisor may report wrongly."""
    source = result.facts.get("source")
    if source in sibling_source.NOT_THE_KERNELS:
        return [f"The siblings are those {source}, not those that the kernel shows."]
    measured = result.facts.get("measured")
    disagreement = sibling_cache.disagreement(measured)
    if disagreement:
        return [f"{disagreement} The placements are the kernel's, so what they compare is not what their names say."]
    name = result.environment.hypervisor
    if not name or (isinstance(measured, dict) and measured.get("agrees_with_kernel") is True):
        return []
    known = (
        "was measured and is not clear" if isinstance(measured, dict) else "was not measured (smt_eval_probe: always)"
    )
    return [f"This host is a guest ({name}), and which of its CPUs share a core of the real machine {known}."]


def _background_load(result: HostResult) -> list[str]:
    """Return a caution when background load used the measured CPUs, as workers show that have a CPU each,
    and work that does not pause.
    """
    full = host_comparisons.full_loads(result)
    own = disturbances.alone(result)
    shares = [
        share
        for sample in result.samples
        if sample.ok and sample.workload in own and sample.parameter == full.get(sample.workload, sample.parameter)
        for share in disturbances.share_of_cpus(sample)
    ]
    typical = median(shares) if shares else 1.0
    if typical >= disturbances.MIN_CPU_SHARE:
        return []
    load = result.environment.load_average
    average = f" (load average before the run: {load})" if isinstance(load, (int, float)) else ""
    return [
        (
            f"This host was too busy with other work to be measured well{average}: in the median a worker got"
            f" {percent(typical)} of its CPU's time. Measure again when it is quiet."
        )
    ]


def more_to_measure(
    result: HostResult, main: t.Sequence[Comparison], curves: t.Sequence[streams.Curve] = ()
) -> dict[str, t.Any] | None:
    """Estimate how much more to measure: an interval narrows with the square root of the number of blocks.

    Args:
        result: from :func:`result_files.load`.
        main: the comparisons that should be decided.
        curves: of the host, where streams may be missing.

    Returns:
        None where nothing is undecided, else ``{blocks, seconds, text}``; a number that cannot be estimated is None.
    """
    open_ones = [one for one in main if one["verdict"] == "inconclusive"]
    instead = _instead_of_blocks(result, main, curves, open_ones)
    if instead:
        return {"blocks": None, "seconds": None, "text": instead}
    if not open_ones:
        return None
    needs = [need for need in map(_blocks_needed, open_ones) if need is not None]
    if len(needs) < len(open_ones):
        return {
            "blocks": None,
            "seconds": None,
            "text": "Measure more blocks: there are too few to say how many it would take.",
        }
    most = max(needs)
    if most > MAX_BLOCKS:
        return {
            "blocks": None,
            "seconds": None,
            "text": "The samples scatter too much for more of them to decide: measure on a quieter host.",
        }
    seconds = seconds_a_block(result)
    time = f", about {_duration(most * seconds)} at the {seconds:.0f} s a block took here" if seconds else ""
    stopped = (
        "The plan stopped early: the rest of its budget would hardly have decided this. "
        if result.plan.stopped == decisions.FUTILE
        else ""
    )
    advice = f"{stopped}To decide, measure about {most} blocks{time}; a quieter host needs fewer."
    return {"blocks": most, "seconds": round(most * seconds) if seconds else None, "text": advice}


def _instead_of_blocks(
    result: HostResult,
    main: t.Sequence[Comparison],
    curves: t.Sequence[streams.Curve],
    open_ones: t.Sequence[Comparison],
) -> str | None:
    """Say what to measure where more of the same blocks would not decide; None where they would."""
    if any(one["confounded"] for one in main):
        state, what = ("state", "SMT") if all(map(host_comparisons.is_of_smt, main)) else ("arm", "the arms")
        return (
            f"One boot in each {state} cannot tell {what} from what else differs between two boots: measure several"
            f" (smt_eval_boots: {paired.MIN_BLOCKS})."
        )
    missing = next((curve.crossover for curve in curves if curve.crossover.threads), None)
    if missing and not any(one["placement"] == host_comparisons.WHOLE_MACHINE for one in main):
        return _streams_to_add(missing)
    if open_ones and result.plan.stopped == "size":
        # As on machines with very many CPUs: each sample has each of them.
        return (
            "The result had its maximum size before this was decided: measure fewer workloads, placements or parameter"
            " values here, so that more blocks fit."
        )
    return None


def _streams_to_add(missing: streams.Crossover) -> str:
    cores, threads = missing.cores or 0, missing.threads or 0
    # A quarter, a half and three quarters of the way from the cores to the threads.
    between = sorted({cores + max(1, (threads - cores) * part // 4) for part in (1, 2, 3)})
    return (
        f"Between {cores} and {threads} streams some cores are shared and others are not: measure there as well"
        f" (smt_eval_streams: {sorted({*missing.measured, *between})})."
    )


def _blocks_needed(one: Comparison) -> int | None:
    """Estimate the blocks until the interval is half as wide as the distance to the nearest verdict (width ~ 1 /
    sqrt(blocks)).
    """
    if one["ci_low"] is None:
        return None
    half = (math.log(one["ci_high"]) - math.log(one["ci_low"])) / 2
    margin = math.log1p(one["margin"])
    distance = abs(math.log(one["ratio"]))
    # Outside the margin the interval must exclude 1; inside, it must fit into the margin.
    wanted = max(distance if distance > margin else margin - distance, margin / 4)
    blocks: int = one["n"]
    return max(blocks + 1, paired.MIN_BLOCKS, math.ceil(blocks * (half / wanted) ** 2))


def seconds_a_block(result: HostResult) -> float | None:
    """Return the seconds per block, from the first to the last sample, or None when unknown."""
    times = [time for time in (moment(sample.started) for sample in result.samples) if time is not None]
    if not times:
        return None
    blocks = len({sample.block for sample in result.samples})
    seconds = max(times) - min(times) + (result.samples[-1].wall_seconds or 0.0)
    return seconds / blocks if seconds > 0 else None


def moment(text: str | None) -> float | None:
    """Parse a time as results write it (ISO 8601); return seconds since 1970, or None for an invalid text."""
    try:
        time = datetime.datetime.fromisoformat(text or "")
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    minutes = seconds / MINUTE
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"


@functools.lru_cache(maxsize=4096)
def percent(share: float, unit: str = " %") -> str:
    """Format a share as percent, with one decimal below ten."""
    value = 100 * share
    return f"{value:.1f}{unit}" if abs(value) < 10 and round(value, 1) != round(value) else f"{value:.0f}{unit}"


def signed(ratio: float, of: Comparison | None = None) -> str:
    """Format a ratio as the change it means: 0.8 is ``−20 %``.

    Args:
        ratio: above 0; 1 is no change.
        of: the comparison it belongs to; the width of its interval sets the number of digits.
    """
    return _signed(ratio - 1, None if of is None or of["ci_low"] is None else _digits(of["ci_low"], of["ci_high"]))


def change_of(found: change.Change, end: float | None = None) -> str:
    """Format a change as ``−20 %``, with one more digit for narrow intervals.

    Args:
        found: the change.
        end: one end of its interval, in the place of its value.
    """
    digits = None if found.low is None or found.high is None else _digits(found.low, found.high)
    return _signed(found.value if end is None else end, digits)


def change_and_interval(found: change.Change) -> str:
    """Format a change as ``−20 % (−22 to −18 %)``."""
    if found.low is None or found.high is None:
        return f"{change_of(found)} (no interval)"
    low, high = (change_of(found, end) for end in (found.low, found.high))
    return f"{change_of(found)} ({low.removesuffix(' %')} to {high})"


def change_of_ratio(ratio: float, better: str) -> str:
    """Format the metric's own change for a ratio that is turned so that above 1 is better."""
    return _signed(change.of_ratio(ratio, better) or 0.0)


def judged(one: dict[str, t.Any]) -> str:
    """Format a comparison as ``−20 % (−22 to −18 %), worse``."""
    return f"{change_and_interval(change.Change.read(one))}, {VERDICT_TITLES[one['verdict']]}"


def _signed(share: float, digits: int | None = None) -> str:
    text = percent(abs(share)) if digits is None else f"{100 * abs(share):.{digits}f} %"
    return f"{'+' if share > 0 else '−'}{text}" if text.strip(" 0.%") else f"±{text}"


def counted(count: int, what: str) -> str:
    """Return ``1 host``, ``2 hosts``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _digits(low: float, high: float) -> int:
    return 0 if high - low >= 0.05 else 1


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _clause(text: str) -> str:
    """Turn a foreign message into a clause without a full stop."""
    return text.strip().rstrip(".")


def named(names: t.Sequence[str]) -> str:
    """Name the first ones and count the others."""
    return join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def declared(found: t.Mapping[tuple[str, ...], t.Sequence[str]]) -> str:
    """Say which hosts declare a workload how.

    Args:
        found: from :func:`pooled.declarations`.
    """
    return "; ".join(
        f"{metric} in {unit}, {better} is better, {how} of its workers on {named(names)}"
        for (metric, unit, better, how), names in found.items()
    )


def turned(one: dict[str, t.Any], hosts: int) -> str:
    """Say which host alone turns a verdict about several hosts, what the others say without it,
    and how many more it takes; empty where none does.

    Args:
        one: ``turned_by``, ``more_hosts`` and ``verdict``, as :func:`pooled.combine_family` returns them.
        hosts: how many there are.
    """
    if not one["turned_by"]:
        return ""
    names = list(one["turned_by"])
    said = join([VERDICT_TITLES.get(verdict, verdict) for verdict in dict.fromkeys(one["turned_by"].values())])
    if one["verdict"] == paired.INCONCLUSIVE:
        return (
            f"{named(names)} alone {_verb(names, 'keeps', 'keep')} this open: without it the other {hosts - 1} say"
            f" {said}."
        )
    more = one["more_hosts"]
    takes = (
        "more hosts like the others would hardly tell"
        if more is None
        else f"it takes about {more} more {_verb(range(more), 'host', 'hosts')}"
    )
    if hosts == 1:
        return f"{names[0]} alone says this; {takes}."
    others = "the other host says" if hosts == 2 else f"the other {hosts - 1} say"
    alone = f"{names[0]} alone turns this" if len(names) == 1 else f"One host alone turns this, each of {named(names)}"
    return f"{alone}: without it {others} {said}; {takes}."


def join(parts: t.Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
