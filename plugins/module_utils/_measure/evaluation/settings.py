# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a plan: which are valid, and the workloads and placements that they name."""

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.options import ranges
from ansible_collections.threadwise.smt.plugins.module_utils._host.options.smt_benchmark import RANGES
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import source as sibling_source
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue as arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    catalogue,
    command,
    custom,
    response_limit,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import Workload

# What a duration, or the numbers of streams, are where the plan is to choose them, and the names of those durations.
AUTO = "auto"
# What is measured where nobody says what.
USUAL = ("gzip", "sysbench_cpu")
SECONDS = ("sample_seconds", "settle_seconds")
# Options of an evaluation by boots, which its controller leads and no plan knows.
BY_BOOTS = ("boots", "reboot_ok", "reboot_timeout", "allow_mitigations_off")
# Hosts with so many CPUs have each number of streams; more would leave too little time for each.
FEW_CPUS = 8


class SettingsError(Exception):
    """A setting that is not valid; the message names it and gives the allowed values."""


def check_settings(settings: "t.Mapping[str, t.Any]") -> None:
    """Check that a plan's settings are valid.

    Args:
        settings: as for ``Plan``.

    Raises:
        SettingsError: a setting is not valid. The message gives the allowed values, as for the other exceptions.
        ArmError: an arm does not exist.
        WorkloadError: a workload does not exist, or a user's own command is not valid.
        PlacementError: a placement does not exist.
        SiblingsError: the siblings that are asked for are not valid.
    """
    names = settings["workloads"] or ()
    if len(set(names)) < len(names):
        raise SettingsError(f"workloads has a name twice: {', '.join(names)}")
    if not chosen(settings):
        raise SettingsError(
            f"no workload is given: choose from {', '.join(sorted(catalogue.BUILT_IN))}, or give a command of your own"
        )
    arms.check(settings["arms"])
    sibling_source.parse(settings["siblings"])
    names_of_placements = placement_names(settings)
    check_placements(names_of_placements)
    if not names_of_placements:
        raise SettingsError(f"no placement is given: choose from {', '.join(placements.CHOICES)}")
    response_limit.in_seconds(settings["response_limit"], chosen(settings))
    if settings["goal"] not in goals.GOALS:
        raise SettingsError(f"goal is {settings['goal']}: it must be {' or '.join(goals.GOALS)}")
    for name, limits in RANGES.items():
        wrong = ranges.problem(settings.get(name), limits)
        if wrong:
            raise SettingsError(f"{name} is {settings[name]}: {wrong}")


def seconds(name: str, given: object) -> "float | None":
    """Return a duration of :data:`SECONDS`, None where the plan is to choose it.

    Args:
        name: of the duration.
        given: a number, also as a text, or ``auto``.

    Raises:
        SettingsError: neither of them, or out of range.
    """
    least, most = RANGES[name]
    if given == AUTO:
        return None
    try:
        value = float(str(given))
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise SettingsError(f"{name} is {str(given)[:40]}: it must be {AUTO}, or seconds from {least} to {most}")
    return value


def share(settings: "t.Mapping[str, t.Any]") -> int:
    """Return the seconds that a plan takes: its part of the budget where several hosts of one class share the work of
    one.

    Args:
        settings: as for ``Plan``.
    """
    return -(-int(settings["budget"]) // int(settings["shared_by"]))


def goal(settings: "t.Mapping[str, t.Any]") -> str:
    """Return what a plan stops for.

    Hosts that share the work of one are decided together: one that stopped at a verdict of its own would bias that of
    all.

    Args:
        settings: as for ``Plan``.
    """
    return goals.PRECISION if settings["shared_by"] > 1 else str(settings["goal"])


def chosen(settings: "t.Mapping[str, t.Any]") -> "list[Workload]":
    """Return the declarations of a plan's workloads, in order.

    Args:
        settings: as for ``Plan``.

    Raises:
        WorkloadError: a workload does not exist, or a user's own command is not valid.
    """
    own = command.entries(settings.get("command"), settings.get("metric"))
    # Whoever gives a command in one line asks about that alone.
    names = settings["workloads"] if settings["workloads"] is not None else [] if own else USUAL
    return catalogue.named(names) + custom.declarations([*settings["custom"], *own])


def placement_names(settings: "t.Mapping[str, t.Any]", cores: int = 1, cpus: int = 1) -> "list[str]":
    """Return the names of a plan's placements, each once, in order.

    Args:
        settings: as for ``Plan``.
        cores: as for ``of_streams``.
        cpus: as for ``of_streams``.

    Raises:
        SettingsError: the numbers of streams, or the CPUs, are not valid.
    """
    streams = of_streams(settings["streams"], cores, cpus)
    return list(dict.fromkeys([*settings["placements"], *streams, *on_cpus(settings["cpus"])]))


def of_streams(streams: "t.Iterable[object]", cores: int = 1, cpus: int = 1) -> "list[str]":
    """Return the names of the placements of numbers of streams.

    Args:
        streams: numbers, ranges such as ``1-12``, or ``auto``, which stands for numbers below the number of cores, up
            to that of the CPUs and above it.
        cores: the number of cores that streams can use.
        cpus: the number of CPUs that streams can use with all siblings online.

    Raises:
        SettingsError: a number is not valid.
    """
    try:
        counts = [
            count
            for entry in streams
            for count in (_around(cores, cpus) if entry == AUTO else cpulist.parse(str(entry)))
        ]
    except cpulist.CpuListError as error:
        raise SettingsError(
            f"streams is not a list of numbers of streams: {error}: give for example 1-12, [1, 2, 4, 8] or {AUTO}"
        ) from None
    if not all(1 <= count <= placement.MAX_WORKERS for count in counts):
        raise SettingsError(f"streams has numbers that are not from 1 to {placement.MAX_WORKERS}")
    return [f"{placements.FREE}_{count}" for count in counts]


def _around(cores: int, cpus: int) -> "list[int]":
    """Return numbers of streams that show where siblings begin to help, in rising order."""
    most = -(-3 * cpus // 2)
    if cpus <= FEW_CPUS:
        return list(range(1, most + 1))
    between = {cores + (cpus - cores) * part // 4 for part in range(5)}
    return sorted(min(count, placement.MAX_WORKERS) for count in {1, max(1, cores // 2), most, *between})


def on_cpus(given: "t.Iterable[t.Sequence[t.Any]]") -> "list[str]":
    """Return the names of explicit placements.

    Args:
        given: the CPUs of each placement, one for each worker.

    Raises:
        SettingsError: the CPUs of a placement are not valid.
    """
    names = []
    for cpus in given:
        name = placements.on_cpus(cpus)
        if not cpus or placements.explicit(name) is None:
            raise SettingsError(
                f"cpus has the entry {cpus}: give the CPUs of one placement, one for each worker, such as [0, 2]; at"
                f" most {placements.MAX_EXPLICIT} CPUs"
            )
        names.append(name)
    return names


def check_placements(names: "t.Iterable[str]") -> None:
    """Check names of placements.

    Raises:
        PlacementError: no placement has this name.
    """
    no_host = placement.Placements((), (), ())
    for name in names:
        no_host.workers(name)
