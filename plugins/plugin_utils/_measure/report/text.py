# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Display names and number formats of the report, shared by pages, Markdown and messages."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions.cautions import (
    Failure,
    Missing,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, wording

EFFECT_TITLES = {
    "cost_of_sharing": "two workers on one core against two on two cores",
    "smt_yield": "all threads against one worker per core",
    "cost_of_one_cpu": "two workers on one CPU against two on two cores",
    "cost_of_sharing_alone": "two workers on the only core against one worker alone",
    "second_core": "two workers on two cores against one worker alone",
    "core_yield": "two workers on one core against one worker alone",
    "second_package": "two workers on two packages against two on one package",
    "remote_memory": "memory on another node against memory on the CPU's own",
    "packing": "workers on siblings first against as many on separate cores first",
    "other_cpus": "workers on other CPUs against as many on the first ones",
}
# Arms beyond this number are counted in a question, not named.
MAX_ASKED = 4
SIDES_OF_SMT = ("better with SMT on", "better with SMT off")
SIDES_OF_ARMS = ("worse than the baseline", "better than the baseline")
RECOMMENDATION_TITLES = {
    conclusion.ON: "SMT on",
    conclusion.OFF: "SMT off",
    conclusion.EITHER: "either",
    conclusion.BY_WORKLOAD: "depends on the work",
    conclusion.UNDECIDED: "not decided",
    conclusion.NOT_COMPARED: "not compared",
    outcomes.HOSTS_DISAGREE: "its hosts disagree",
}
OUTCOME_TITLES = {
    outcomes.WORSE: "worse",
    outcomes.BETTER: "better",
    outcomes.EQUAL: "no difference",
    conclusion.BY_WORKLOAD: "depends on the work",
    conclusion.UNDECIDED: "not decided",
    conclusion.NOT_COMPARED: "not compared",
    outcomes.HOSTS_DISAGREE: "its hosts disagree",
}


def question(summary: Summary) -> str:
    """Return the question that a host's evaluation was to answer."""
    if summary.factors:
        (_base, first), (second_base, second) = summary.factors[0].levels
        return f"What does {first} do with {second_base}, and with {second}?"
    others = [arm.title for arm in summary.recommendation.arms]
    asked = {arm.name: arm.title for arm in [*summary.result.arms, *summary.result.arms_left_out]}
    if not others:
        return "Should SMT be on here?"
    if len(asked) < 3:
        return f"What does {' and '.join(others)} do here?"
    return (
        f"Which of {wording.join(list(asked.values()))} is best here?"
        if len(asked) <= MAX_ASKED
        else f"Which of these {len(asked)} arms is best here?"
    )


def is_of_smt_alone(summary: Summary) -> bool:
    """Return whether a host's evaluation has no other arm than those of SMT, or none at all."""
    return not summary.recommendation.arms


def conclusion_title(summary: Summary) -> str:
    """Return a short title for what a host's summary concludes, about SMT or about the other arms of its run."""
    recommendation, arms = summary.recommendation, summary.result.arms
    if not is_of_smt_alone(summary) and len(arms) > 2 and recommendation.standing.best:
        return f"{next(arm.title for arm in arms if arm.name == recommendation.standing.best)} is best"
    of_smt = [RECOMMENDATION_TITLES[recommendation.choice]] if summary.concerns_smt else []
    return ", ".join([*of_smt, *(outcome_title(arm.title, arm.outcome) for arm in recommendation.arms)])


def outcome_title(arm: str, outcome: str) -> str:
    """Return a title such as ``strict overcommit: no difference``."""
    return f"{arm}: {OUTCOME_TITLES[outcome]}"


def compared(comparison: Comparison) -> str:
    """Describe what a comparison compares: ``SMT off against SMT on, every online thread busy``."""
    if comparison.kind == "placement":
        return compared_placements(comparison)
    return (
        f"{comparison.candidate.arm_title} against {comparison.baseline.arm_title},"
        f" {placements.title(comparison.placement)}"
    )


def compared_placements(comparison: Comparison, several: bool = False) -> str:
    """Describe what a comparison of placements compares; several of one effect in general."""
    if several or comparison.effect not in (host_comparisons.PACKING, host_comparisons.OTHER_CPUS):
        return EFFECT_TITLES[comparison.effect]
    return " against ".join(placements.title(side.placement) for side in (comparison.candidate, comparison.baseline))


def metric(comparison: Comparison) -> str:
    """Return the metric of a comparison with its unit, for one that is not the primary metric; else nothing."""
    return "" if comparison.primary else f"{comparison.metric} [{comparison.unit}]"


def verdict(comparison: outcomes.Said) -> str:
    """Format the verdict of a host or a hardware class."""
    return wording.VERDICT_TITLES[comparison.verdict] + (
        ", confounded with the reboot" if comparison.confounded else ""
    )


def ratio_row(label: str, found: Ratio, more: str = "", ratios: t.Sequence[float] = ()) -> charts.RatioRow:
    """Return what was found as a row of a picture of ratios; ``more`` is added to its text."""
    low, high = found.ci_low or found.ratio, found.ci_high or found.ratio
    text = f"{wording.change_and_interval(found.change)}{more}"
    return charts.RatioRow(label, text, found.better, found.ratio, found.verdict, low, high, ratios)


def key_parts(entry: Missing | Failure) -> list[str]:
    """Return the workload, placement and arm that an entry names."""
    parts = [entry.workload, placements.title(entry.placement) if entry.placement else None, entry.arm_title]
    return [part for part in parts if part] or ["everything"]
