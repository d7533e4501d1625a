# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are changed in which wave. Pure: Ansible carries the waves out, as batches of `serial`."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance import Verdict

_SIZE = re.compile(r"([1-9][0-9]{0,6})(%?)")


class RolloutError(Exception):
    """Sizes of waves that cannot be used; the text says why."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A host of the fleet.

    Attributes:
        group: no two hosts of one group are changed in one wave; None for a host of its own.
        pending: whether it is to be changed.
        reachable: whether it answered.
    """

    host: str
    group: str | None = None
    pending: bool = True
    reachable: bool = True


def waiting(members: t.Iterable[Member]) -> dict[str, str]:
    """Hosts that are to be changed and have to wait, each with the one of its group that cannot be reached: two of them must not be down at once."""
    members = list(members)
    gone = {member.group: member.host for member in members if member.group is not None and not member.reachable}
    return {member.host: gone[member.group] for member in members if member.pending and member.group in gone}


def predecessors(waves_of_hosts: t.Iterable[t.Sequence[str]], groups: t.Mapping[str, str | None]) -> dict[str, str]:
    """Each host that follows one of its group in a later wave, with that one.

    Args:
        waves_of_hosts: as :func:`waves` gives them.
        groups: host to group.
    """
    found: dict[str, str] = {}
    last: dict[str, str] = {}
    for host in (host for wave in waves_of_hosts for host in wave):
        group = groups.get(host)
        if group is not None:
            if group in last:
                found[host] = last[group]
            last[group] = host
    return found


def waves(members: t.Sequence[Member], sizes: t.Sequence[int | str]) -> list[list[str]]:
    """The hosts to be changed, by wave, in their order; no wave is empty.

    The waves are laid out over the whole fleet, whoever is pending: a rollout that is begun again goes on in the wave where it stopped, at its size.

    Args:
        members: of the fleet, in the order of changing.
        sizes: of the waves, each a number or a share of the fleet (``10%``); the last is that of all further waves, as in Ansible's `serial`.

    Raises:
        RolloutError: a size is neither.
    """
    if not sizes:
        raise RolloutError("the sizes of waves are empty: give numbers or shares of the fleet such as 10%")
    limits = [_size(size, len(members)) for size in sizes]
    filled: list[list[Member]] = []
    taken: list[set[str]] = []
    first_open = 0
    for member in members:
        number = first_open
        while number < len(filled) and (len(filled[number]) >= _limit(limits, number) or member.group in taken[number]):
            number += 1
        if number == len(filled):
            filled.append([])
            taken.append(set())
        filled[number].append(member)
        if member.group is not None:
            taken[number].add(member.group)
        while first_open < len(filled) and len(filled[first_open]) >= _limit(limits, first_open):
            first_open += 1
    pending = [[member.host for member in wave if member.pending] for wave in filled]
    return [wave for wave in pending if wave]


def _limit(limits: t.Sequence[int], number: int) -> int:
    return limits[min(number, len(limits) - 1)]


def _size(value: t.Any, fleet: int) -> int:
    found = None if isinstance(value, bool) else _SIZE.fullmatch(str(value)[:20])
    if not found:
        raise RolloutError(f"{str(value)[:40]!r} is no size of a wave: give a number or a share of the fleet such as 10%")
    number = int(found[1])
    return max(1, fleet * number // 100) if found[2] else number


def is_pending(verdict: Verdict, reboot_ok: bool) -> bool:
    """Whether a host is to be changed and can be, or was changed and nobody found it to be well."""
    if verdict["status"] == compliance.DRIFTED:
        return obstacle(verdict, reboot_ok) is None
    return verdict["status"] == compliance.COMPLIANT and (verdict["unconfirmed"] is not None or (reboot_ok and verdict["change"]["reboot"]))


def obstacle(verdict: Verdict, reboot_ok: bool) -> str | None:
    """Why a drifted host cannot be mended; None where it can."""
    run = verdict["running"]
    for name in ("configured", "memory", "memory_configured"):
        if verdict[name] and verdict[name]["status"] == compliance.DRIFTED and verdict[name]["hindrance"]:
            return str(verdict[name]["hindrance"])
    if run and run["status"] == compliance.DRIFTED and run["hindrance"] and not (verdict["change"]["reboot"] and reboot_ok):
        return str(run["hindrance"])
    return None
