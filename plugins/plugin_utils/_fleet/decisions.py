# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collected evaluations -> what they decide for each hardware class, whose they are and how old. Never stronger than the weakest of them.

Hosts are not trusted. Of a class each host counts once, by its latest run that compared anything, and they have to agree: one that lies can have nothing
decided, and cannot overrule the others. When a run was taken is what the controller noted that fetched it.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

MOST_RUNS = 10_000
# Clocks that are set by NTP differ by less.
AHEAD = datetime.timedelta(minutes=5)
NAMED = 3

STATES = {conclusion.ON: policy.ENABLED, conclusion.OFF: policy.DISABLED, conclusion.EITHER: policy.ANY}


class EvidenceError(Exception):
    """A result that decides nothing; the text says why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Witness:
    """What one host's evaluation says.

    Attributes:
        choice: as :func:`recommendation.recommend` gives it.
        sentence: the answer in words.
        at: when the controller fetched it, or else when the host says it ended (aware), or None.
    """

    host: str
    run: str
    hardware_class: str
    choice: str
    sentence: str
    at: datetime.datetime | None


def witness(result: host_comparisons.Result, now: datetime.datetime) -> Witness | None:
    """What a result says for its hardware class; None where its class is not known, or something else than SMT was switched.

    Args:
        result: a document that :func:`result_files.load` has accepted
        now: aware.

    Raises:
        EvidenceError: it cannot be evidence.
    """
    for name in ("started", "finished", "collected"):
        at = _moment(result, name)
        if at and at > now + AHEAD:
            raise EvidenceError(f"{result['host']}: {name} is {result[name]}, which has not come yet: set the clock of the host, and evaluate it again")
    hardware_class = result["facts"].get("hardware_class")
    if not hardware_class or result["change"].get("name") not in host_comparisons.CHANGES_OF_SMT:
        return None
    comparisons = host_comparisons.compare_host(result)
    choice = recommendation.recommend(result, comparisons)["choice"]
    return Witness(
        result["host"],
        result["run"],
        hardware_class,
        choice,
        conclusion.answer(result, comparisons)["sentence"],
        _moment(result, "collected") or _moment(result, "finished") or _moment(result, "started"),
    )


def result_files_below(directory: str | os.PathLike[str]) -> list[Path]:
    """The files of results in a run's directory, or in all runs of a directory of runs.

    Raises:
        result_files.ResultError: no such directory
    """
    found = result_files.result_paths(directory)
    runs = sorted(path for path in Path(directory).iterdir() if path.is_dir() and not path.name.startswith("."))[-MOST_RUNS:]
    return found + [path for run in runs for path in result_files.result_paths(run)]


def decisions(witnesses: t.Iterable[Witness], now: datetime.datetime) -> dict[str, dict[str, t.Any]]:
    """What is decided for each hardware class, by the latest run of each of its hosts that compared anything.

    Args:
        now: aware; ages are told from it.

    Returns:
        class to ``{decision, whose, sentence, hosts, runs, age_days}``: ``decision`` is ``enabled``, ``disabled``, ``any``, or None where the
            evidence does not decide; ``runs`` are those that count, the latest first; ``age_days`` is that of the oldest of them, None where a result does not say
            when it was taken.
    """
    by_class: dict[str, dict[str, list[Witness]]] = {}
    for one in witnesses:
        by_class.setdefault(one.hardware_class, {}).setdefault(one.host, []).append(one)
    return {name: _decide([max(told, key=_rank) for told in hosts.values()], now) for name, hosts in by_class.items()}


def _rank(one: Witness) -> tuple[bool, datetime.datetime, str]:
    """Later runs rank higher; one that compared nothing says nothing about SMT and ranks below those that did."""
    return one.choice != conclusion.NOT_COMPARED, one.at or datetime.datetime.min.replace(tzinfo=datetime.UTC), one.run


def _decide(told: list[Witness], now: datetime.datetime) -> dict[str, t.Any]:
    told = sorted(told, key=_rank, reverse=True)
    heard = [one for one in told if one.choice != conclusion.NOT_COMPARED] or told
    said = {one.choice for one in heard}
    sides = said - {conclusion.EITHER} or said
    decision = STATES.get(next(iter(sides))) if len(sides) == 1 else None
    sentence = heard[0].sentence
    if len(sides) > 1:
        sentence = "Its hosts do not agree: " + ", ".join(f"{one.host} says {one.choice}" for one in heard[: NAMED * 2]) + "."
    times = [one.at for one in heard if one.at is not None]
    age = None if len(times) < len(heard) else max(0, (now - min(times)).days)
    hosts = sorted(one.host for one in heard)
    runs = list(dict.fromkeys(one.run for one in heard))
    return {"decision": decision, "whose": _whose(hosts, runs, age), "sentence": sentence, "hosts": hosts, "runs": runs, "age_days": age}


def _whose(hosts: list[str], runs: list[str], age: int | None) -> str:
    alone = ", which alone decides for all hosts of this class" if len(hosts) == 1 else ""
    old = "of unknown age" if age is None else "less than a day old" if age == 0 else f"{age} day{'s' if age > 1 else ''} old"
    return f"evaluation of {_named(hosts)} in run{'' if len(runs) == 1 else 's'} {_named(runs)}, {old}{alone}"


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _moment(result: host_comparisons.Result, name: str) -> datetime.datetime | None:
    return results.moment(result.get(name), name)
