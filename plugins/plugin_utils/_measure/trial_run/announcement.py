# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial is going to do, in sentences, before anything is touched: who is switched when,
and what sends a host back.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.selection import length
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import Trial
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import follower, overlap
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run.settings import Limit

# Hosts whose schedule is shown on the terminal; the file of the trial has all of them.
MAX_SHOWN = 12


def sentences(trial: Trial, longest: overlap.Longest, guardrails: t.Sequence[Limit], check: float) -> list[str]:
    """Return what a trial is going to do.

    Args:
        trial: the trial.
        longest: how far back its metrics count.
        guardrails: what sends a host back.
        check: seconds between two checks.
    """
    drawn = trial.design
    titles = " and ".join(trial.titles[arm] for arm in trial.arms)
    primary = next(metric for metric in trial.metrics if metric.is_primary)
    seconds = drawn.periods * trial.period_seconds
    timer = follower.Times(trial.period_seconds, trial.settle_seconds, check).timer
    lines = [
        (
            f"A {drawn.name} trial of {titles} on {len(drawn.schedule)} hosts, judged by {primary.name}"
            f" ({primary.better} is better)."
        ),
        (
            f"{trial.units} observations in {drawn.periods} periods of {length(trial.period_seconds)},"
            f" {length(seconds)} in all, or less once it is decided."
        ),
        (
            f"Of all metrics, {text.line(longest.said, 1000)}; the first {trial.settle_seconds:g} s of a period are not"
            " counted."
        ),
        f"Which host is in which arm when was drawn by lot, seed {trial.seed}:",
    ]
    if len(drawn.waves) > 1:
        lines.append(
            f"The hosts take turns in {len(drawn.waves)} waves, so that no more are switched at once than"
            " smt_trial_most_switched and smt_policy_group allow."
        )
    lines += [f"{host}: {_arms(trial, host)}." for host in list(drawn.schedule)[:MAX_SHOWN]]
    if len(drawn.schedule) > MAX_SHOWN:
        lines.append(f"... and {len(drawn.schedule) - MAX_SHOWN} more hosts, which trial.json lists.")
    watched = "; ".join(guardrail(limit) for limit in guardrails) or "none is given"
    lines.append(f"Guardrails: {watched}.")
    lines.append(
        "Each host goes back to its own state at the end, at a breach, when the metrics server is lost, and within"
        f" {timer} s without this controller."
    )
    booted = [trial.titles[arm] for arm in trial.arms if catalogue.takes_reboot(arm)]
    if booted:
        lines.append(
            f"Hosts are rebooted into {' and '.join(booted)}, and rebooted to go back; without this controller they do"
            f" so after {length(max(timer, visit.MIN_SECONDS))}."
        )
    return lines


def guardrail(limit: Limit) -> str:
    """Return a guardrail in words."""
    side, value = ("above", limit.above) if limit.above is not None else ("below", limit.below)
    return f"{limit.name} {side} {value:g}" + (f" for {limit.seconds:g} s" if limit.seconds else "")


def _arms(trial: Trial, host: str) -> str:
    """Return the arms of a host's periods, equal ones in a row together."""
    drawn = trial.design
    runs: list[tuple[str, int]] = []
    for arm in drawn.schedule[host]:
        runs = [*runs[:-1], (arm, runs[-1][1] + 1)] if runs and runs[-1][0] == arm else [*runs, (arm, 1)]
    shown = ", ".join(trial.titles[arm] + (f" x {count}" if count > 1 else "") for arm, count in runs[: 2 * MAX_SHOWN])
    start = f"from period {drawn.first[host] + 1} on: " if drawn.first[host] else ""
    return start + shown + (", ..." if len(runs) > 2 * MAX_SHOWN else "")
