# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the user's own as workloads: what comes from an inventory, made a declaration or refused with the reason."""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import BUILT_IN, PLAIN, WorkloadError
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.metrics import AGGREGATES, PER_JOB

NAME = re.compile(r"\A[a-z0-9][a-z0-9_]{0,63}\Z")
MOST = 100
MOST_WORDS = 1000
MOST_TEXT = 4000
TIMEOUT = (1, 24 * 3600)
SOURCES = ("pattern", "json", "clock")
WALL = "wall_seconds"
CLOCKS = (WALL, "cpu_seconds")


def declarations(given):
    """The declarations of a user's own commands.

    Args:
        given: list of dict as the option ``custom`` of smt_benchmark takes them.

    Raises:
        WorkloadError: the first that cannot be used: which one, what of it, and what it may be.
    """
    if len(given) > MOST:
        raise WorkloadError(f"custom names {len(given)} commands: no more than {MOST}")
    made = [_declaration(one) for one in given]
    names = [one["name"] for one in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WorkloadError(f"custom names {', '.join(twice)} more than once")
    return made


def _declaration(given):
    name = given["name"]
    if not NAME.match(name):
        raise WorkloadError(f"custom: {name[:80]!r} cannot be a name: lower-case letters, digits and '_', at most 64")
    if name in BUILT_IN:
        raise WorkloadError(f"custom: {name} is the name of a built-in workload")
    argv = given["argv"]
    if not argv or not argv[0] or len(argv) > MOST_WORDS or any("\0" in word or len(word) > MOST_TEXT for word in argv):
        raise WorkloadError(f"custom: argv of {name}: from 1 to {MOST_WORDS} words of at most {MOST_TEXT} characters, the first the command")
    timeout = given.get("timeout") or 60
    if not TIMEOUT[0] <= timeout <= TIMEOUT[1]:
        raise WorkloadError("custom: timeout of %s is %s: it must be from %d to %d seconds" % (name, timeout, *TIMEOUT))
    metrics = [_metric(given, one) for one in [given["metric"]] + (given.get("metrics") or [])]
    metric_names = [one["name"] for one in metrics]
    if len(set(metric_names)) < len(metric_names):
        raise WorkloadError(f"custom: {name} has two metrics of one name")
    return dict(
        PLAIN,
        name=name,
        title=(given.get("title") or name)[:200],
        argv=list(argv),
        together=bool(given.get("together")),
        timeout=timeout,
        metric=metrics[0],
        metrics=metrics[1:],
    )


def _metric(workload, given):
    about = f"custom: metric {given['name'][:80]} of {workload['name']}"
    if not NAME.match(given["name"]):
        raise WorkloadError(f"{about}: a name is lower-case letters, digits and '_', at most 64")
    chosen = [source for source in SOURCES if given.get(source)]
    if len(chosen) != 1:
        raise WorkloadError(f"{about}: name one of {', '.join(SOURCES)}")
    better = given["better"]
    aggregate = given.get("aggregate") or _usual_aggregate(given, bool(workload.get("together")))
    if better not in ("higher", "lower") or aggregate not in AGGREGATES:
        raise WorkloadError(f"{about}: better is higher or lower, aggregate one of {', '.join(sorted(AGGREGATES))}")
    metric = {"name": given["name"], "unit": given["unit"][:60], "better": better, "aggregate": aggregate}
    if chosen[0] == "pattern":
        return dict(metric, pattern=_pattern(about, given["pattern"]))
    if chosen[0] == "json":
        return dict(metric, json=list(given["json"]))
    if given["clock"] not in CLOCKS:
        raise WorkloadError(f"{about}: clock is one of {', '.join(CLOCKS)}")
    return dict(metric, clock=given["clock"])


def _usual_aggregate(metric, together):
    if metric["better"] == "higher":
        return "sum"
    # More workers do more jobs in a longer time: that time alone would speak against all threads whatever they do.
    return PER_JOB if metric.get("clock") == WALL and not together else "max"


def _pattern(about, pattern):
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise WorkloadError(f"{about}: its pattern is no regular expression: {error}") from None
    if groups < 1:
        raise WorkloadError(f"{about}: its pattern has no group, so that it is not known where the number stands: put it in parentheses")
    return pattern
