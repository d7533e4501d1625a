# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions that collected evaluations allow for each hardware class, with their hosts and age.

Hosts are not trusted. Each host counts once and for one class: by its latest run with a comparison that is no re-check
(:mod:`rechecks`), for the class that its facts show now or, where these are not known, that of its latest run. All
hosts of a class must agree. What hosts leave open by themselves, such as those that share the work of one, is decided
by all of them combined (:mod:`pooled`), where no host says otherwise. A decision of several hosts has to hold without
any one of them: a host with false results can prevent a decision, but cannot overrule the others. The time of a run is
the one that the controller recorded when it fetched the result.
"""

from __future__ import annotations

import datetime
import os
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis, rechecks
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.basis import Basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.conclusions import Conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.errors import FleetError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    paired,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    conclusion,
    outcomes,
    recommendation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

MAX_RUNS = 10_000
# Clocks synchronised by NTP differ by less.
AHEAD = datetime.timedelta(minutes=5)
NAMED = 3

STATES = {conclusion.ON: policy.ENABLED, conclusion.OFF: policy.DISABLED, conclusion.EITHER: policy.ANY}


class DecisionError(FleetError):
    """A result cannot be used for a decision. The text gives the reason and what to do."""


def read(path: Path, now: datetime.datetime) -> Conclusion | None:
    """Read a host's result and return its conclusion, as :func:`conclude` does.

    Args:
        path: the file, which has its host's name.
        now: the present time, aware.

    Raises:
        ResultError: it cannot be read or is not valid.
        DecisionError: it is in the file of another host, or its time lies in the future.
        paired.SampleError: a value is not valid.
    """
    result = result_files.load(path)
    if path.stem != result_files.file_stem(result.host):
        raise DecisionError(
            f"{path.name}: holds a result of {result.host}, whose file is"
            f" {result_files.file_stem(result.host)}.json: name it so, or remove it"
        )
    return conclude(result, now)


def read_all(paths: t.Iterable[Path], now: datetime.datetime) -> tuple[list[Conclusion], list[dict[str, str]]]:
    """Return the conclusions of results, and the files that cannot be used, each ``file`` and ``reason``.

    Args:
        paths: the files.
        now: the present time, aware.
    """
    conclusions: list[Conclusion] = []
    refused: list[dict[str, str]] = []
    for path in paths:
        try:
            evaluation = read(path, now)
        except (result_files.ResultError, paired.SampleError, DecisionError) as error:
            refused.append({"file": str(path), "reason": str(error)})
        else:
            conclusions += [evaluation] if evaluation else []
    return conclusions, refused


def conclude(result: HostResult, now: datetime.datetime) -> Conclusion | None:
    """Return a result's conclusion for its hardware class,
    or None without a class or for a run that has nothing to do with SMT.

    Args:
        result: from :func:`result_files.load`.
        now: the present time, aware.

    Raises:
        DecisionError: the result's time lies in the future.
    """
    for name in ("started", "finished", "collected"):
        at = _moment(result, name)
        if at and at > now + AHEAD:
            raise DecisionError(
                f"{result.host}: {name} is {getattr(result, name)}, which is in the future: set the clock of the host,"
                " and evaluate it again"
            )
    hardware_class = result.facts.hardware_class
    if not hardware_class or not recorded.concerns_smt(result):
        return None
    analysis = HostAnalysis(result)
    choice = recommendation.recommend(analysis).choice
    return Conclusion(
        result.host,
        result.run,
        hardware_class,
        choice,
        conclusion.conclude(analysis).sentence,
        {comparison.work: comparison for comparison in analysis.of_smt},
        _moment(result, "collected") or _moment(result, "finished") or _moment(result, "started"),
        Basis.from_result(result),
        by_one=outcomes.of_smt_by_one(analysis),
        is_incomplete=outcomes.is_incomplete(analysis),
        is_recheck=result.plan.goal == goals.RECHECK,
    )


def result_files_below(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the result files in a run's directory, or of all runs in a directory of runs.

    Args:
        directory: of a run, or of runs.

    Raises:
        result_files.ResultError: the directory cannot be listed.
    """
    paths = result_files.result_paths(directory)
    runs = sorted(path for path in Path(directory).iterdir() if path.is_dir() and not path.name.startswith("."))[
        -MAX_RUNS:
    ]
    return paths + [path for run in runs for path in result_files.result_paths(run)]


def decisions(
    conclusions: t.Iterable[Conclusion], now: datetime.datetime, classes: t.Mapping[str, str | None] | None = None
) -> dict[str, dict[str, t.Any]]:
    """Decide for each hardware class by the latest run with a comparison of each of its hosts.

    Args:
        conclusions: conclusions of hosts' evaluations.
        now: the present time, aware.
        classes: host -> the hardware class that its facts show now, of the hosts whose facts are known.

    Returns:
        Hardware class -> ``{decision, whose, sentence, hosts, runs, age_days, rests_on, rechecks, not_counted}``:
        ``decision`` is ``enabled``, ``disabled``, ``any``, or None where the hosts do not decide; ``runs`` are those
        that count, the latest first; ``age_days`` is that of the oldest, None where a result has no time; ``rests_on``
        is from :func:`basis.together`, ``rechecks`` from :func:`rechecks.of_class`; ``not_counted`` has hosts with a
        result that states this class while they are of another: name -> why it does not count.
    """
    conclusions = list(conclusions)
    by_class, not_counted = counted(conclusions, classes)
    again: dict[str, list[Conclusion]] = {}
    for host, runs in _by_host(conclusions).items():
        own = _own_class(host, runs, classes)[0]
        for evaluation in runs:
            if (
                evaluation.is_recheck
                and evaluation.hardware_class == own
                and evaluation.choice != conclusion.NOT_COMPARED
            ):
                again.setdefault(evaluation.hardware_class, []).append(evaluation)
    return {
        name: _decide(by_class.get(name, []), not_counted.get(name, {}), again.get(name, []), now)
        for name in dict.fromkeys([*by_class, *not_counted, *again])
    }


def counted(
    conclusions: t.Iterable[Conclusion], classes: t.Mapping[str, str | None] | None = None
) -> tuple[dict[str, list[Conclusion]], dict[str, dict[str, str]]]:
    """Return the one conclusion of each host that counts, by the hardware class for which it does; and by class the
    hosts that state it and are of another: name -> why they do not count.

    Args:
        conclusions: as for :func:`decisions`.
        classes: likewise.
    """
    by_class: dict[str, list[Conclusion]] = {}
    not_counted: dict[str, dict[str, str]] = {}
    for host, runs in _by_host(conclusions).items():
        own, whence = _own_class(host, runs, classes)
        of_class = [evaluation for evaluation in runs if evaluation.hardware_class == own and not evaluation.is_recheck]
        if of_class:
            by_class.setdefault(of_class[0].hardware_class, []).append(max(of_class, key=_rank))
        for evaluation in runs:
            if evaluation.hardware_class != own:
                reason = f"{host} does not count by run {evaluation.run}: {whence} hardware class {own or 'unknown'}"
                not_counted.setdefault(evaluation.hardware_class, {}).setdefault(host, reason)
    return by_class, not_counted


def _own_class(
    host: str, runs: t.Sequence[Conclusion], classes: t.Mapping[str, str | None] | None
) -> tuple[str | None, str]:
    """Return the hardware class for which a host counts, and what shows that."""
    latest = _latest(runs)
    if classes and host in classes:
        return classes[host], "its facts show"
    return latest.hardware_class, f"its latest run, {latest.run}, shows"


def classes_of(conclusions: t.Iterable[Conclusion]) -> dict[str, str]:
    """Return the hardware class that each host decides for if its facts are not known:
    host -> that of its latest run.
    """
    return {host: _latest(runs).hardware_class for host, runs in _by_host(conclusions).items()}


def _by_host(conclusions: t.Iterable[Conclusion]) -> dict[str, list[Conclusion]]:
    by_host: dict[str, list[Conclusion]] = {}
    for evaluation in conclusions:
        by_host.setdefault(evaluation.host, []).append(evaluation)
    return by_host


def _latest(runs: t.Iterable[Conclusion]) -> Conclusion:
    return max(runs, key=lambda evaluation: (evaluation.when, evaluation.run))


def _rank(evaluation: Conclusion) -> tuple[bool, datetime.datetime, str]:
    """Rank later runs higher, and a run without a comparison below those with one."""
    return evaluation.choice != conclusion.NOT_COMPARED, evaluation.when, evaluation.run


def _decide(
    latest: list[Conclusion], not_counted: dict[str, str], again: list[Conclusion], now: datetime.datetime
) -> dict[str, t.Any]:
    latest = sorted(latest, key=_rank, reverse=True)
    counted = [evaluation for evaluation in latest if evaluation.choice != conclusion.NOT_COMPARED] or latest
    decision, sentence = (
        _decision_and_sentence(counted) if counted else (None, "No result of a host of this class counts.")
    )
    if again and not counted:
        sentence = "Its hosts were only re-checked, which decides nothing: evaluate them without smt_eval_goal=recheck."
    checked = rechecks.of_class(counted, again, now)
    times = [evaluation.at for evaluation in counted if evaluation.at is not None]
    age = None if len(times) < len(counted) or not times else max(0, (now - min(times)).days)
    hosts = sorted(evaluation.host for evaluation in counted)
    runs = list(dict.fromkeys(evaluation.run for evaluation in counted))
    whose = _source(hosts, runs, age) if hosts else "no evaluation"
    if decision and (confirmation := rechecks.sentence(checked)):
        whose = f"{whose}, {confirmation}"
    if not_counted:
        reasons = list(not_counted.values())
        more = f"; and {len(reasons) - NAMED} more do not count" if len(reasons) > NAMED else ""
        whose = f"{whose} ({'; '.join(reasons[:NAMED])}{more})"
    return {
        "decision": decision,
        "whose": whose,
        "sentence": sentence,
        "hosts": hosts,
        "runs": runs,
        "age_days": age,
        "rests_on": basis.together(
            [evaluation.basis for evaluation in counted], [evaluation.at for evaluation in counted]
        ),
        "rechecks": checked,
        "not_counted": not_counted,
    }


def _decision_and_sentence(counted: list[Conclusion]) -> tuple[str | None, str]:
    """Return the decision of hosts of one class, None where they do not decide, and a sentence about it."""
    different = [
        (of_hosts, declarations)
        for of_hosts in _workloads(counted).values()
        if len(declarations := pooled.declarations(of_hosts)) > 1
    ]
    if different:
        of_hosts, declarations = different[0]
        return None, f"Its hosts declare {_title(of_hosts)} differently: {pooled.declared(declarations)}."
    sides = _sides(counted)
    if len(sides) == 1 and (decision := STATES.get(next(iter(sides)))):
        chosen = [evaluation.host for evaluation in counted if evaluation.choice in sides]
        if len(chosen) == 1 and len(counted) > 1:
            choice, others = next(iter(sides)), len(counted) - 1
            return (
                None,
                (
                    f"{chosen[0]} alone says {choice}, the other {others} say {conclusion.EITHER}: one host does not"
                    " decide for the others."
                ),
            )
        return decision, counted[0].sentence
    open_ones = [evaluation.host for evaluation in counted if evaluation.choice == conclusion.UNDECIDED]
    # What one of them could not measure, others that agree do not tell.
    can_be_told = open_ones and len(counted) > 1 and not any(evaluation.is_incomplete for evaluation in counted)
    together, figures, turned = _together(counted) if can_be_told else (conclusion.UNDECIDED, "", {})
    if together in STATES and sides <= {conclusion.UNDECIDED, together}:
        combined = (
            f"Its {len(counted)} hosts combined, of which {_named(open_ones)} {'are' if len(open_ones) > 1 else 'is'}"
            f" undecided alone: {figures}."
        )
        # Without it, all others may say the same by themselves.
        alone = {
            host: sentence
            for host, sentence in turned.items()
            if _sides([evaluation for evaluation in counted if evaluation.host != host]) != {together}
        }
        return (None, f"{combined} {next(iter(alone.values()))}") if alone else (STATES[together], combined)
    if len(sides) > 1:
        return (
            None,
            "Its hosts do not agree: "
            + ", ".join(f"{evaluation.host} says {evaluation.choice}" for evaluation in counted[: NAMED * 2])
            + ".",
        )
    return None, counted[0].sentence


def _sides(counted: t.Sequence[Conclusion]) -> set[str]:
    """Return what hosts say; ``either`` does not contradict anything else."""
    choices = {evaluation.choice for evaluation in counted}
    return choices - {conclusion.EITHER} or choices


def _workloads(
    counted: t.Sequence[Conclusion],
) -> dict[tuple[str, float | None], dict[str, host_comparisons.Comparison]]:
    """Return the workloads of some hosts: workload -> host -> its comparison."""
    by_workload: dict[tuple[str, float | None], dict[str, host_comparisons.Comparison]] = {}
    for evaluation in counted:
        for key, workload in evaluation.workloads.items():
            by_workload.setdefault(key, {})[evaluation.host] = workload
    return by_workload


def _title(hosts: t.Mapping[str, host_comparisons.Comparison]) -> str:
    return next(iter(hosts.values())).title


def _together(counted: t.Sequence[Conclusion]) -> tuple[str, str, dict[str, str]]:
    """Return what the hosts of a class say combined, the change of each workload with SMT off,
    and each host that alone turns one of them: name -> how.
    """
    workloads = list(_workloads(counted).values())
    judged = list(zip(workloads, pooled.combine_family(workloads)))
    deciding = pooled.shared([combined for _hosts, combined in judged])
    figures = [
        f"{_title(hosts)} {wording.change_of(combined.change)} with SMT off ({combined.word})"
        for hosts, combined in judged
    ]
    turned = {
        host: f"{_title(hosts)}: {combined.turns}"
        for hosts, combined in judged
        if combined in deciding
        for host in combined.turned_by
    }
    by_one = [served for evaluation in counted for served in evaluation.by_one]
    return conclusion.recommendation([*deciding, *by_one]), ", ".join(figures), turned


def _source(hosts: list[str], runs: list[str], age: int | None) -> str:
    alone = ", which alone decides for all hosts of this class" if len(hosts) == 1 else ""
    named = _named(hosts) if len(hosts) == 1 else f"{len(hosts)} hosts ({_named(hosts)})"
    old = (
        "of unknown age"
        if age is None
        else "less than a day old"
        if age == 0
        else f"{age} day{'s' if age > 1 else ''} old"
    )
    return f"evaluation of {named} in run{'' if len(runs) == 1 else 's'} {_named(runs)}, {old}{alone}"


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _moment(result: HostResult, name: str) -> datetime.datetime | None:
    return results.moment(getattr(result, name), name)
