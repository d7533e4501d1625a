# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collected evaluations -> what they decide for each hardware class, whose they are and how old. Never stronger than the weakest of them."""

from __future__ import annotations

import dataclasses
import datetime
import os
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils import analysis, answer, policy, recommendation, result_files

MOST_RUNS = 10_000
NAMED = 3

STATES = {answer.ON: policy.ENABLED, answer.OFF: policy.DISABLED, answer.EITHER: policy.ANY}


@dataclasses.dataclass(frozen=True)
class Witness:
    """What one host's evaluation says.

    :ivar choice: as :func:`recommendation.recommend` gives it.
    :ivar sentence: the answer in words.
    :ivar at: when the run ended on this host (aware), or None.
    """

    host: str
    run: str
    hardware_class: str
    choice: str
    sentence: str
    at: datetime.datetime | None


def witness(result: analysis.Result) -> Witness | None:
    """What a result says for its hardware class; None where its class is not known, or something else than SMT was switched.

    :param result: a document that :func:`result_files.load` has accepted
    """
    hardware_class = result["facts"].get("hardware_class")
    if not hardware_class or result["change"].get("name") not in analysis.CHANGES_OF_SMT:
        return None
    comparisons = analysis.compare_host(result)
    choice = recommendation.recommend(result, comparisons)["choice"]
    return Witness(result["host"], result["run"], hardware_class, choice, answer.answer(result, comparisons)["sentence"],
                   _moment(result.get("finished")) or _moment(result.get("started")))


def result_files_below(directory: str | os.PathLike[str]) -> list[Path]:
    """The files of results in a run's directory, or in all runs of a directory of runs.

    :raises result_files.ResultError: no such directory
    """
    found = result_files.result_paths(directory)
    runs = sorted(path for path in Path(directory).iterdir() if path.is_dir() and not path.name.startswith("."))[-MOST_RUNS:]
    return found + [path for run in runs for path in result_files.result_paths(run)]


def decisions(witnesses: t.Iterable[Witness], now: datetime.datetime) -> dict[str, dict[str, t.Any]]:
    """What is decided for each hardware class, by its latest run that compared anything.

    :param now: aware; ages are told from it.
    :returns: class to ``{decision, whose, sentence, hosts, run, age_days}``: ``decision`` is ``enabled``, ``disabled``, ``any``, or None where the
        evidence does not decide; ``age_days`` is None where the results do not say when they were taken.
    """
    by_class: dict[str, dict[str, list[Witness]]] = {}
    for one in witnesses:
        by_class.setdefault(one.hardware_class, {}).setdefault(one.run, []).append(one)
    return {name: _decide(max(runs.values(), key=_rank), now) for name, runs in by_class.items()}


def _rank(run: list[Witness]) -> tuple[bool, datetime.datetime, str]:
    """Later runs rank higher; one that compared nothing says nothing about SMT and ranks below those that did."""
    times = [one.at for one in run if one.at] or [datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)]
    return any(one.choice != answer.NOT_COMPARED for one in run), max(times), run[0].run


def _decide(run: list[Witness], now: datetime.datetime) -> dict[str, t.Any]:
    heard = [one for one in run if one.choice != answer.NOT_COMPARED] or run
    said = {one.choice for one in heard}
    sides = said - {answer.EITHER} or said
    decision = STATES.get(next(iter(sides))) if len(sides) == 1 else None
    sentence = heard[0].sentence
    if len(sides) > 1:
        sentence = "Its hosts do not agree: " + ", ".join(f"{one.host} says {one.choice}" for one in heard[:NAMED * 2]) + "."
    times = [one.at for one in heard if one.at]
    age = max(0, (now - max(times)).days) if times else None
    hosts = sorted(one.host for one in heard)
    return {"decision": decision, "whose": _whose(hosts, heard[0].run, age), "sentence": sentence, "hosts": hosts, "run": heard[0].run, "age_days": age}


def _whose(hosts: list[str], run: str, age: int | None) -> str:
    names = ", ".join(hosts[:NAMED]) + (f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else "")
    old = "of unknown age" if age is None else "less than a day old" if age == 0 else f"{age} day{'s' if age > 1 else ''} old"
    return f"evaluation of {names} in run {run}, {old}"


def _moment(text: t.Any) -> datetime.datetime | None:
    try:
        at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=datetime.timezone.utc)
