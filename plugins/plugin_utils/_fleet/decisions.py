# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions that collected evaluations allow for each hardware class, with their hosts and age.

Hosts are not trusted. Each host of a class counts once, by its latest run with a comparison, and all hosts must agree: a host with false results can
prevent a decision, but cannot overrule the others. What hosts leave open by themselves, such as those that share the work of one, is decided by all of them
combined (:mod:`pooled`), where no host says otherwise. The time of a run is the one that the controller recorded when it fetched the result.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, pooled, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.errors import FleetError
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

MOST_RUNS = 10_000
# Clocks synchronised by NTP differ by less.
AHEAD = datetime.timedelta(minutes=5)
NAMED = 3

# What of a comparison is kept to be combined with those of other hosts.
COMBINED = ("baseline_value", "candidate_value", "better", "confounded", "ratio", "ci_low", "ci_high", "n", "interval_confidence", "verdict")

STATES = {conclusion.ON: policy.ENABLED, conclusion.OFF: policy.DISABLED, conclusion.EITHER: policy.ANY}


class DecisionError(FleetError):
    """A result cannot be used for a decision. The text gives the reason and what to do."""


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of one host's evaluation.

    Attributes:
        host: name in the inventory.
        run: name of the run.
        hardware_class: of the host.
        choice: from :func:`recommendation.recommend`.
        sentence: the conclusion as text.
        workloads: title of each workload -> its comparison of SMT off against SMT on.
        at: time when the controller fetched it, else the end of the run by the host's clock (aware), or None.
    """

    host: str
    run: str
    hardware_class: str
    choice: str
    sentence: str
    workloads: t.Mapping[str, host_comparisons.Comparison]
    at: datetime.datetime | None


def conclude(result: host_comparisons.Result, now: datetime.datetime) -> Conclusion | None:
    """Return a result's conclusion for its hardware class, or None without a class or for a run that has nothing to do with SMT.

    Args:
        result: a document accepted by :func:`result_files.load`.
        now: the present time, aware.

    Raises:
        DecisionError: the result's time lies in the future.
    """
    for name in ("started", "finished", "collected"):
        at = _moment(result, name)
        if at and at > now + AHEAD:
            raise DecisionError(f"{result['host']}: {name} is {result[name]}, which is in the future: set the clock of the host, and evaluate it again")
    hardware_class = result["facts"].get("hardware_class")
    if not hardware_class or not host_comparisons.concerns_smt(result):
        return None
    comparisons = host_comparisons.compare_host(result)
    choice = recommendation.recommend(result, comparisons)["choice"]
    return Conclusion(
        result["host"],
        result["run"],
        hardware_class,
        choice,
        conclusion.conclude(result, comparisons)["sentence"],
        {one["title"]: {name: one[name] for name in COMBINED} for one in host_comparisons.of_smt(comparisons)},
        _moment(result, "collected") or _moment(result, "finished") or _moment(result, "started"),
    )


def result_files_below(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the result files in a run's directory, or of all runs in a directory of runs.

    Args:
        directory: of a run, or of runs.

    Raises:
        result_files.ResultError: the directory cannot be listed.
    """
    found = result_files.result_paths(directory)
    runs = sorted(path for path in Path(directory).iterdir() if path.is_dir() and not path.name.startswith("."))[-MOST_RUNS:]
    return found + [path for run in runs for path in result_files.result_paths(run)]


def decisions(conclusions: t.Iterable[Conclusion], now: datetime.datetime) -> dict[str, dict[str, t.Any]]:
    """Decide for each hardware class by the latest run with a comparison of each of its hosts.

    Args:
        conclusions: conclusions of hosts' evaluations.
        now: the present time, aware.

    Returns:
        Hardware class -> ``{decision, whose, sentence, hosts, runs, age_days}``: ``decision`` is ``enabled``, ``disabled``, ``any``, or None
        where the hosts do not decide; ``runs`` are those that count, the latest first; ``age_days`` is that of the oldest, None where a result has
        no time.
    """
    by_class: dict[str, dict[str, list[Conclusion]]] = {}
    for one in conclusions:
        by_class.setdefault(one.hardware_class, {}).setdefault(one.host, []).append(one)
    return {name: _decide([max(runs, key=_rank) for runs in hosts.values()], now) for name, hosts in by_class.items()}


def _rank(one: Conclusion) -> tuple[bool, datetime.datetime, str]:
    """Rank later runs higher, and a run without a comparison below those with one."""
    return one.choice != conclusion.NOT_COMPARED, one.at or datetime.datetime.min.replace(tzinfo=datetime.UTC), one.run


def _decide(latest: list[Conclusion], now: datetime.datetime) -> dict[str, t.Any]:
    latest = sorted(latest, key=_rank, reverse=True)
    counted = [one for one in latest if one.choice != conclusion.NOT_COMPARED] or latest
    said = {one.choice for one in counted}
    sides = said - {conclusion.EITHER} or said
    decision = STATES.get(next(iter(sides))) if len(sides) == 1 else None
    sentence = counted[0].sentence
    if len(sides) > 1:
        sentence = "Its hosts do not agree: " + ", ".join(f"{one.host} says {one.choice}" for one in counted[: NAMED * 2]) + "."
    open_ones = [one.host for one in counted if one.choice == conclusion.UNDECIDED]
    if decision is None and open_ones:
        together, figures = _together(counted)
        if sides <= {conclusion.UNDECIDED, together}:
            decision = STATES.get(together)
        if decision is not None:
            sentence = f"Its {len(counted)} hosts combined, of which {_named(open_ones)} {'are' if len(open_ones) > 1 else 'is'} undecided alone: {figures}."
    times = [one.at for one in counted if one.at is not None]
    age = None if len(times) < len(counted) else max(0, (now - min(times)).days)
    hosts = sorted(one.host for one in counted)
    runs = list(dict.fromkeys(one.run for one in counted))
    return {"decision": decision, "whose": _source(hosts, runs, age), "sentence": sentence, "hosts": hosts, "runs": runs, "age_days": age}


def _together(counted: t.Sequence[Conclusion]) -> tuple[str, str]:
    """Return what the hosts of a class say combined, and the change of each workload with SMT off."""
    titles = list(dict.fromkeys(title for one in counted for title in one.workloads))
    judged = pooled.combine_family([{one.host: one.workloads[title] for one in counted if title in one.workloads} for title in titles])
    figures = [f"{title} {conclusion.signed(one['ratio'], one)} with SMT off ({one['verdict']})" for title, one in zip(titles, judged)]
    return conclusion.recommendation(judged), ", ".join(figures)


def _source(hosts: list[str], runs: list[str], age: int | None) -> str:
    alone = ", which alone decides for all hosts of this class" if len(hosts) == 1 else ""
    old = "of unknown age" if age is None else "less than a day old" if age == 0 else f"{age} day{'s' if age > 1 else ''} old"
    return f"evaluation of {_named(hosts)} in run{'' if len(runs) == 1 else 's'} {_named(runs)}, {old}{alone}"


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _moment(result: host_comparisons.Result, name: str) -> datetime.datetime | None:
    return results.moment(result.get(name), name)
