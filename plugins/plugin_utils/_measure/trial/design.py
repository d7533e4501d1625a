# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The design of a trial: which host is in which arm in which period, drawn by lot before the first switch.

Nothing is assumed of the service's series but that it does not know the lot. Within a block of a group of hosts, the
lot gives each naming of the arms the same chance, so swapping two arms' names is as likely as not: the sign of a unit's
difference is a fair coin where the arms do the same, however much neighbouring periods resemble each other. Source: R.
A. Fisher, The Design of Experiments (1935); for switchback experiments I. Bojinov, D. Simchi-Levi, J. Zhao, Design and
analysis of switchback experiments, Management Science 69 (2023).
"""

from __future__ import annotations

import dataclasses
import random
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.verdicts import MIN_BLOCKS_RANKED

SWITCHBACK, PARALLEL = "switchback", "parallel"
DESIGNS = (SWITCHBACK, PARALLEL)


class DesignError(Exception):
    """No design with these hosts and periods can lead to a verdict; the message says what can."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A host that takes part.

    Attributes:
        host: its name in the inventory.
        hardware_class: of its facts; None if unknown.
        load: how much it was asked to do before the trial; None if unknown.
        group: the hosts of one group are never in another arm than the baseline at once; None for a host without one.
    """

    host: str
    hardware_class: str | None = None
    load: float | None = None
    group: str | None = None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is asked of a design.

    Attributes:
        arms: names, the baseline first.
        periods: of each host.
        before: of a parallel design, so many of them come first, with all hosts in the baseline.
        most_switched: the most hosts that are in another arm than the baseline at once.
        seed: the number that the lot is drawn from.
    """

    arms: tuple[str, ...]
    periods: int
    before: int
    most_switched: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Design:
    """What was drawn.

    Attributes:
        name: one of :data:`DESIGNS`.
        groups: the hosts that are compared with each other, in the order of ``waves``.
        waves: the numbers of the groups that run at the same time.
        schedule: host -> the arm of each of its periods.
        first: host -> the number of its first period.
        left_out: host -> why it does not take part.
    """

    name: str
    groups: tuple[tuple[str, ...], ...]
    waves: tuple[tuple[int, ...], ...]
    schedule: dict[str, tuple[str, ...]]
    first: dict[str, int]
    left_out: dict[str, str]

    @property
    def periods(self) -> int:
        """How many periods the whole trial has."""
        return max(self.first[host] + len(arms) for host, arms in self.schedule.items())


def draw(name: str, members: t.Sequence[Member], wanted: Wanted) -> Design:
    """Draw a design: the same seed and hosts give the same one.

    Args:
        name: one of :data:`DESIGNS`.
        members: the hosts, in any order.
        wanted: what is asked for.

    Raises:
        DesignError: it could not lead to a verdict.
    """
    if not members:
        raise DesignError("no host can take part in the trial")
    lot = random.Random(wanted.seed)
    count = len(wanted.arms)
    chunks = _chunks(members, count)
    left_out: dict[str, str] = {}
    if name == PARALLEL:
        reason = f"no {count - 1} other hosts of its class are left to compare it with"
        left_out = {member.host: reason for chunk in chunks if len(chunk) < count for member in chunk}
        chunks = [chunk for chunk in chunks if len(chunk) == count]
    else:
        chunks = [part for chunk in chunks for part in _within(chunk, count, wanted.most_switched)]
    units = len(chunks) if name == PARALLEL else len(chunks) * (wanted.periods // count)
    if units < MIN_BLOCKS_RANKED:
        raise DesignError(_too_few(name, count, chunks, units))
    if any(_away(chunk, count) > wanted.most_switched for chunk in chunks):
        raise DesignError(
            f"{count} arms in parallel need {count - 1} hosts in other arms than the baseline at once:"
            f" smt_trial_most_switched is {wanted.most_switched}"
        )
    waves = _waves(chunks, count, wanted.most_switched)
    schedule: dict[str, tuple[str, ...]] = {}
    first: dict[str, int] = {}
    length = wanted.periods if name == PARALLEL else wanted.periods // count * count
    for number, wave in enumerate(waves):
        for chunk in (chunks[place] for place in wave):
            drawn = _of_pairs(chunk, wanted, lot) if name == PARALLEL else _of_blocks(chunk, wanted, lot)
            schedule.update({member.host: arms for member, arms in zip(chunk, drawn)})
            first.update({member.host: number * length for member in chunk})
    return Design(
        name, tuple(tuple(member.host for member in chunk) for chunk in chunks), tuple(waves), schedule, first, left_out
    )


def _chunks(members: t.Sequence[Member], size: int) -> list[list[Member]]:
    """Return groups of hosts of one class that were asked to do about the same, as many as there are arms."""
    by_class: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda member: (member.load if member.load is not None else -1.0, member.host)):
        # A host without a known class is compared with itself alone.
        by_class.setdefault(member.hardware_class or f"\0{member.host}", []).append(member)
    return [
        hosts[place : place + size] for _name, hosts in sorted(by_class.items()) for place in range(0, len(hosts), size)
    ]


def _within(chunk: list[Member], arms: int, most: int) -> list[list[Member]]:
    """Return a group as it is, or each host by itself where too many of them would be switched at once."""
    groups = [member.group for member in chunk if member.group is not None]
    shared = len(set(groups)) < len(groups) and _away(chunk, arms) > 1
    return [[member] for member in chunk] if shared or _away(chunk, arms) > most else [chunk]


def _away(chunk: t.Sequence[Member], arms: int) -> int:
    """Return how many hosts of a group are in another arm than the baseline at once, at most."""
    return min(len(chunk), arms - 1)


def _too_few(name: str, arms: int, chunks: t.Sequence[t.Sequence[Member]], units: int) -> str:
    least = MIN_BLOCKS_RANKED
    if name == PARALLEL:
        return (
            f"a parallel trial has one observation in {arms} hosts of one class: these hosts give {units}, and a"
            f" verdict needs {least}, so {least * arms} hosts"
        )
    blocks = -(-least // max(1, len(chunks)))
    return (
        f"a switchback trial of these hosts has {units} observations, and a verdict needs {least}: give it"
        f" {blocks * arms} periods or more (smt_trial_periods)"
    )


def _waves(chunks: t.Sequence[t.Sequence[Member]], arms: int, most: int) -> list[tuple[int, ...]]:
    """Return which groups run at the same time: not too many hosts away from the baseline,
    and no two of one policy group.
    """
    waves: list[list[int]] = []
    for place, chunk in enumerate(chunks):
        for wave in waves:
            others = [chunks[other] for other in wave]
            away = sum(_away(other, arms) for other in others) + _away(chunk, arms)
            theirs = {member.group for other in others for member in other if member.group is not None}
            if away <= most and theirs.isdisjoint(member.group for member in chunk):
                wave.append(place)
                break
        else:
            waves.append([place])
    return [tuple(wave) for wave in waves]


def _of_blocks(chunk: t.Sequence[Member], wanted: Wanted, lot: random.Random) -> list[tuple[str, ...]]:
    """Return the arms of each host of a group: in each block a cyclic Latin square whose names are drawn anew."""
    count = len(wanted.arms)
    rows: list[list[str]] = [[] for _member in chunk]
    for _block in range(wanted.periods // count):
        names = lot.sample(wanted.arms, count)
        for place, row in enumerate(rows):
            row += [names[(place + period) % count] for period in range(count)]
    return [tuple(row) for row in rows]


def _of_pairs(chunk: t.Sequence[Member], wanted: Wanted, lot: random.Random) -> list[tuple[str, ...]]:
    """Return the arms of each host of a group: the baseline, then the one that it draws."""
    names = lot.sample(wanted.arms, len(wanted.arms))
    return [(wanted.arms[0],) * wanted.before + (name,) * (wanted.periods - wanted.before) for name in names]
