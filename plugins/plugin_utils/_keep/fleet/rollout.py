# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waves of a rollout. Pure functions: Ansible runs the waves as batches of `serial`."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

_SIZE = re.compile(r"([1-9][0-9]{0,6})(%?)")


class RolloutError(Exception):
    """The sizes of waves are not valid. The text gives the reason."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A host of the fleet.

    Attributes:
        host: name in the inventory.
        group: hosts of one group are never changed in the same wave; None for a host without a group.
        pending: whether it needs a change.
        reachable: whether it answered.
        slot: the group of the slot by which it is rebooted: it keeps it until its wave has ended, so that another one
            of the group in that wave would wait in vain; None where it needs none.
    """

    host: str
    group: str | None = None
    pending: bool = True
    reachable: bool = True
    slot: str | None = None

    @property
    def apart(self) -> set[tuple[str, str]]:
        """What it has in common with hosts that are never in its wave."""
        return {(kind, name) for kind, name in (("group", self.group), ("slot", self.slot)) if name is not None}


def waiting(members: t.Iterable[Member]) -> dict[str, str]:
    """Return the pending hosts that must wait, each with the unreachable host of its group:
    two of a group must not be down at once.
    """
    members = list(members)
    gone = {member.group: member.host for member in members if member.group is not None and not member.reachable}
    return {member.host: gone[member.group] for member in members if member.pending and member.group in gone}


def predecessors(waves_of_hosts: t.Iterable[t.Sequence[str]], groups: t.Mapping[str, str | None]) -> dict[str, str]:
    """Return the predecessor of each host that follows one of its group in a later wave.

    Args:
        waves_of_hosts: from :func:`waves`.
        groups: host -> group.

    Returns:
        Host -> the host before it.
    """
    before: dict[str, str] = {}
    last: dict[str, str] = {}
    for host in (host for wave in waves_of_hosts for host in wave):
        group = groups.get(host)
        if group is not None:
            if group in last:
                before[host] = last[group]
            last[group] = host
    return before


def waves(members: t.Sequence[Member], sizes: t.Sequence[int | str]) -> list[list[str]]:
    """Plan the waves.

    The waves are planned for the whole fleet, pending or not: a rollout that is started again continues in the wave
    where it stopped.

    Args:
        members: the fleet, in the order of change.
        sizes: of the waves, each a number or a share of the fleet (``10%``); the last one applies to all further waves,
            as in Ansible's `serial`.

    Returns:
        Names of hosts by wave; no wave is empty.

    Raises:
        RolloutError: a size is not valid.
    """
    if not sizes:
        raise RolloutError("there is no wave size: give numbers or shares of the fleet such as 10%")
    limits = [_size(size, len(members)) for size in sizes]
    filled: list[list[Member]] = []
    taken: list[set[tuple[str, str]]] = []
    first_open = 0
    for member in members:
        number = first_open
        while number < len(filled) and (len(filled[number]) >= _limit(limits, number) or member.apart & taken[number]):
            number += 1
        if number == len(filled):
            filled.append([])
            taken.append(set())
        filled[number].append(member)
        taken[number] |= member.apart
        while first_open < len(filled) and len(filled[first_open]) >= _limit(limits, first_open):
            first_open += 1
    pending = [[member.host for member in wave if member.pending] for wave in filled]
    return [wave for wave in pending if wave]


def _limit(limits: t.Sequence[int], number: int) -> int:
    return limits[min(number, len(limits) - 1)]


def _size(value: t.Any, fleet: int) -> int:
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value)[:20])
    if not match:
        raise RolloutError(
            f"{str(value)[:40]!r} is not a valid wave size: give a number or a share of the fleet such as 10%"
        )
    number = int(match[1])
    return max(1, fleet * number // 100) if match[2] else number


def is_pending(result: Compliance, reboot_ok: bool) -> bool:
    """Return whether a host needs a change and can be changed, or has a pending rollback, and no waiver."""
    if result.is_excused:
        return False
    if result.status is Status.DRIFTED:
        return blocked_by(result, reboot_ok) is None
    return result.status is Status.COMPLIANT and (
        result.pending_rollback is not None or result.holds_slot is not None or (reboot_ok and result.needs_reboot)
    )


def blocked_by(result: Compliance, reboot_ok: bool) -> str | None:
    """Return what blocks the change of a drifted host, or None."""
    aspects = [result.configured, result.memory, result.memory_configured]
    if not (reboot_ok and result.needs_reboot):
        aspects.append(result.running)
    return next((aspect.obstacle for aspect in aspects if aspect and aspect.obstacle), None)
