# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial says, in sentences: the answer first, then what else changed, then what it rests on."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import decisions, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import (
    assumptions,
    design,
    effects,
    evidence,
    records,
    units,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import Trial
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording


def sentences(trial: Trial, comparisons: t.Sequence[effects.Comparison], looks: evidence.Looks) -> list[str]:
    """Return the answer: one sentence for each arm about the primary metric.

    Args:
        trial: the trial.
        comparisons: its comparisons, from :func:`evidence.by_hosts`.
        looks: the looks at it.
    """
    primary = [comparison for comparison in comparisons if comparison.metric.is_primary]
    if not primary:
        metric = next(metric for metric in trial.metrics if metric.is_primary)
        return [f"Nothing can be said: no host has a value of {metric.name} in both arms of a comparison yet."]
    return [_sentence(trial, comparison, looks.decided.get(comparison.candidate)) for comparison in primary]


def others(trial: Trial, comparisons: t.Sequence[effects.Comparison]) -> list[str]:
    """Return a sentence for each other metric, and for the primary one without what goes along with the traffic."""
    lines = [
        _with_hosts(f"{_change(trial, comparison)}: {comparison.judged.word}.", comparison)
        for comparison in comparisons
        if not comparison.metric.is_primary
    ]
    for comparison in comparisons:
        rest = comparison.adjusted
        if rest is not None and rest.ci_low is not None:
            what = (
                f"{comparison.metric.name} with {trial.titles[comparison.candidate]},"
                f" without what goes along with {trial.traffic}"
            )
            lines.append(f"{what}: {rest.in_words}.")
    return lines


def disagreements(trial: Trial, comparisons: t.Sequence[effects.Comparison]) -> list[str]:
    """Return a sentence for each arm in which metrics of the same thing point different ways."""
    counted = [
        comparison
        for comparison in comparisons
        if comparison.metric.is_primary or comparison.metric.name != trial.traffic
    ]
    lines = []
    for group in effects.disagreeing(counted):
        parts = "; ".join(f"{comparison.metric.name} {comparison.judged.in_words}" for comparison in group)
        title = trial.titles[group[0].candidate]
        lines.append(f"Metrics of the same thing point different ways with {title}: {parts}.")
    return lines


def lost(trial: Trial, written: t.Mapping[str, t.Sequence[records.Period]]) -> list[str]:
    """Return a sentence about the periods that are over and have no value of the primary metric,
    with the reason of the first; none where all have one.

    Periods that were cut because all was decided are not lost.

    Args:
        trial: the trial.
        written: host -> its periods.
    """
    primary = next(metric for metric in trial.metrics if metric.is_primary)
    whole = [
        (host, period)
        for host, of_host in written.items()
        for period in of_host
        if not (period.reason or "").startswith(records.DECIDED)
    ]
    known = {
        host: {
            period.number
            for period in records.complete(of_host)
            if units.value(period, primary.name, primary.per) is not None
        }
        for host, of_host in written.items()
    }
    missing = [(period.number, host, period) for host, period in whole if period.number not in known[host]]
    if not missing:
        return []
    number, host, first = min(missing, key=lambda entry: entry[:2])
    read = [first.metrics.get(name or "") for name in (primary.name, primary.per)]
    reasons = [first.reason, *(reading.reason for reading in read if reading)]
    why = next(filter(None, reasons), f"{primary.name} was not above 0")
    return [
        (
            f"{len(missing)} of {len(whole)} periods of hosts have no value of {primary.name} and count for nothing,"
            f" first period {number + 1} of {host}: {why}."
        )
    ]


def rests_on(trial: Trial, comparisons: t.Sequence[effects.Comparison], periods: units.Periods) -> list[str]:
    """Return what was assumed, and what its tests say."""
    primary = next(metric for metric in trial.metrics if metric.is_primary)
    of_hosts = (
        "a group of hosts before and after"
        if trial.design.name == design.PARALLEL
        else "a block of periods of a group of hosts"
    )
    lines = [
        f"One observation is {of_hosts}, never a scrape.",
        (
            f"Which arm came when was drawn by lot (seed {trial.seed}): verdicts hold however much neighbouring periods"
            " resemble each other."
        ),
        "They take for granted that an arm leaves nothing behind for the counted part of the next period.",
    ]
    if trial.looks_back_seconds is not parts.UNSET:
        ages = (
            f"up to {trial.looks_back_seconds:.3g} s before it, and the first {trial.settle_seconds:g} s of a period"
            " are not counted"
        )
        lines.append(f"A value counts samples from {ages}: none of them is of another period.")
    for arm in trial.arms[1:]:
        carried = assumptions.carry_over(trial.design, (trial.arms[0], arm), periods, primary.name, primary.per)
        if carried is not None:
            seen = "shows" if carried.is_seen else "does not show"
            more = (
                ": longer periods, or more of them not counted (smt_trial_settle), would tell"
                if carried.is_seen
                else ""
            )
            rests = f"(p = {carried.p_value:.2g}, {carried.units} observations){more}"
            lines.append(
                f"What a change of arm leaves behind {seen} in {primary.name} with {trial.titles[arm]} {rests}."
            )
    correlation = assumptions.autocorrelation(trial.design, periods, primary.name, primary.per)
    if correlation is not None:
        lines.append(f"Neighbouring periods of a host have a correlation of {correlation:.2f} in {primary.name}.")
    if trial.traffic is not None:
        changed = [
            comparison
            for comparison in comparisons
            if comparison.metric.name == trial.traffic and comparison.judged.is_called
        ]
        if changed:
            lines.append(
                f"{trial.traffic} itself depends on the arm, so figures without it would hide a part of the effect."
            )
    return lines


def _sentence(trial: Trial, comparison: effects.Comparison, decided: str | None) -> str:
    title, judged = trial.titles[comparison.candidate], comparison.judged
    if judged.n < verdicts.MIN_BLOCKS:
        known = f"{judged.n} of {trial.units} observations have a value of {comparison.metric.name}"
        return f"Nothing can be said of {title} yet: {known}, and a verdict needs {verdicts.MIN_BLOCKS}."
    sentence = f"{_change(trial, comparison)}: {judged.word}, after {judged.n} of {trial.units} observations."
    if decided == decisions.FUTILE:
        least = wording.percent(judged.minimum_detectable)
        return (
            f"{sentence} The rest of the trial would hardly have decided it; an effect of {least} would have been seen."
        )
    return _with_hosts(sentence, comparison)


def _with_hosts(sentence: str, comparison: effects.Comparison) -> str:
    """Add to a sentence which host alone turns what it says."""
    turns = leave_one_out.sentence(
        comparison.judged.verdict, comparison.turned_by, comparison.more_hosts, comparison.hosts
    )
    return " ".join(filter(None, [sentence, turns]))


def _change(trial: Trial, comparison: effects.Comparison) -> str:
    per = f" per {comparison.metric.per}" if comparison.metric.per else ""
    return (
        f"With {trial.titles[comparison.candidate]} instead of {trial.titles[comparison.baseline]},"
        f" {comparison.metric.name}{per} changes by {wording.change_and_interval(comparison.judged.change)}"
    )
