# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compliance results of many hosts in sentences and as a table for a terminal; `compliance_files` has the files."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance, Rollback
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_ATTENTION, Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import terminal_table, wording

COLUMNS = ("host", "status", "wanted", "class", "how")

# With more compliant hosts the terminal shows their number only; the files list all.
MAX_COMPLIANT_LINES = 50
# Hosts that a sentence about many names.
MAX_NAMED = 5

Judged = tuple[str, Compliance]


def exit_worthy(judged: t.Iterable[Judged]) -> bool:
    """Return whether a pipeline must stop: some host is neither compliant nor waived."""
    return any(not result.status.row.is_fine for dummy, result in judged)


def counts(judged: t.Sequence[Judged]) -> dict[str, int]:
    """Count the hosts by status; every status is listed."""
    counted = collections.Counter(result.status for dummy, result in judged)
    return {status.value: counted[status] for status in Status}


def sentence(judged: t.Sequence[Judged], left_out: t.Sequence[str] = ()) -> str:
    """Describe the fleet in a sentence, and in others which waivers end, what is to be measured again and what was
    not checked.
    """
    counted = ", ".join(f"{number} {status}" for status, number in by_attention(judged))
    lacking = sum(result.sentence.startswith(compliance.LACKING) for _host, result in judged)
    without = f" Without the SMT that the policy wants: {wording.counted(lacking, 'host')}." if lacking else ""
    checked = f"{wording.counted(len(judged), 'host')}: {counted or 'none'}.{without}"
    others = wording.counted(len(left_out), "other host")
    not_checked = f"Not checked: {others} of the inventory." if left_out else ""
    return " ".join(filter(None, [checked, _waivers(judged), _to_measure_again(judged), not_checked]))


def _waivers(judged: t.Sequence[Judged]) -> str:
    """Return a sentence that names the hosts whose waiver ends soon or is over, and that differ; empty without one."""
    by_state: dict[str, list[str]] = {"expired": [], "ending": []}
    for host, result in judged:
        leave = result.waiver
        if leave and leave.state in by_state and result.status in (Status.WAIVED, Status.DRIFTED):
            by_state[leave.state].append(f"{host} ({leave.until})")
    words = ("Waivers that ended", f"Waivers that end within {waivers.NOTICE_DAYS} days")
    return " ".join(
        f"{what}: {', '.join(hosts[:MAX_NAMED])}"
        f"{f' and {len(hosts) - MAX_NAMED} more' if len(hosts) > MAX_NAMED else ''}."
        for what, hosts in zip(words, by_state.values())
        if hosts
    )


def _to_measure_again(judged: t.Sequence[Judged]) -> str:
    """Return a sentence that names the hardware classes whose decision is stale; empty without one."""
    names = [decision["hardware_class"] for decision in decisions(judged) if decision["stale_hosts"]]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"Decisions to measure again: {', '.join(names[:MAX_NAMED])}{more}." if names else ""


def decisions(judged: t.Sequence[Judged]) -> list[dict[str, t.Any]]:
    """Return the decisions of evaluations to which hosts are held, by hardware class."""
    by_class: dict[str, dict[str, t.Any]] = {}
    for _host, result in judged:
        if result.decision is not None:
            name = result.hardware_class or "unknown"
            known = {"rests_on": result.decision.rests_on, "rechecks": result.decision.rechecks}
            decision = {"hardware_class": name, "stale_hosts": 0, **known}
            by_class.setdefault(name, decision)["stale_hosts"] += bool(result.decision.stale)
    return [by_class[name] for name in sorted(by_class)]


def by_attention(judged: t.Sequence[Judged]) -> list[tuple[str, int]]:
    """Return each status that occurs in words, and its number of hosts."""
    numbers = counts(judged)
    return [(status.words, numbers[status]) for status in BY_ATTENTION if numbers[status]]


def ordered(judged: t.Sequence[Judged]) -> list[Judged]:
    """Return the hosts in the order of :data:`status.BY_ATTENTION`, and by name."""
    return sorted(judged, key=lambda entry: (entry[1].status.row.order, entry[0]))


def table(judged: t.Sequence[Judged], left_out: t.Sequence[str] = ()) -> list[str]:
    """Format the hosts as lines of a table, hosts that need attention first, and a last line with counts."""
    in_order = ordered(judged)
    fine = sum(1 for dummy, result in judged if result.status is Status.COMPLIANT)
    shown = in_order if fine <= MAX_COMPLIANT_LINES else in_order[: len(in_order) - fine]
    return terminal_table.of_hosts(
        COLUMNS, (_cells(host, result) for host, result in shown), sentence(judged, left_out)
    )


def notes(strangers: t.Sequence[str], further: t.Sequence[str]) -> list[str]:
    """Return what is to be said below the table of a source of results: names that no host of the inventory has, and
    its notes.
    """
    more = f" and {len(strangers) - MAX_NAMED} more" if len(strangers) > MAX_NAMED else ""
    unknown = f"Not in the inventory: {', '.join(strangers[:MAX_NAMED])}{more}."
    return [*([unknown] if strangers else []), *further]


def _cells(host: str, result: Compliance) -> tuple[str, ...]:
    return (host, result.status, result.wanted or "", result.hardware_class or "", how(result) or "-")


def how(result: Compliance) -> str:
    """Describe what is wrong on a host; empty for a compliant one."""
    sentences = [result.sentence, _waiting(result.pending_rollback), _stale(result), _services(result)]
    return ". ".join(filter(None, sentences))


def _services(result: Compliance) -> str:
    """Return which services believe in another number of CPUs, but for those of the sentence; empty without any."""
    left = [service for service in result.services if service not in result.sentence]
    more = [f"and {len(left) - MAX_NAMED} more"] if len(left) > MAX_NAMED else []
    return f"services: {'; '.join([*left[:MAX_NAMED], *more])}" if left else ""


def _stale(result: Compliance) -> str:
    reasons = result.decision and result.decision.stale
    return f"the decision of its class is stale: {'; '.join(reasons)}" if reasons else ""


def _waiting(rollback: Rollback | None) -> str:
    if rollback is None:
        return ""
    back = (
        f" (it can be brought back to {rollback.back_to}, as of {rollback.since})"
        if rollback.back_to and rollback.since
        else ""
    )
    return f"changed by a rollout that was interrupted before the host was found healthy{back}"
