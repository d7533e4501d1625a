# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a decision rests on - kernel, mitigations, microcode, frequencies, the day -, and whether it is stale:
a host of its class is now otherwise in what changes the answer, or the decision is too old.

Kernels change how siblings are used from one series to the next, and mitigations what sharing a core costs. A decision
that is stale stays in force: it says that its class is to be measured again.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult

MAX_AGE_DAYS = 365
MAX_TEXT = 200
NAMED = 3

_SERIES = re.compile("[0-9]{1,4}[.][0-9]{1,4}")
# Parts of a vulnerability's status that follow from the state of SMT, which a decision changes, or say that nothing is
# mitigated. After "Vulnerable" a reason follows, which can have commas in it.
_NO_MITIGATION = re.compile(r"\bSMT\b|^no |^STIBP\b|Not affected|: disabled$|^(Vulnerable|Unknown)\b|^$")
_VULNERABLE = re.compile(r"[A-Za-z-]+: (Vulnerable|Unknown)\b|Vulnerable\b(?!,)|Unknown\b")
# What follows from KVM being in use, as the first guest of a host does it.
_OF_KVM = re.compile(r"itlb_multihit: |l1tf: VMX\b")
# Where SMT off is the mitigation, what would be in force with SMT on cannot be seen.
_BY_SMT = "Mitigation: SMT disabled"
# What costs siblings most is compared where both sides show it: the kernel shows retbleed's part with SMT on alone, and
# STIBP where it is conditional. With SMT off that may be shown as disabled.
_OF_SIBLINGS = re.compile(r"spectre_v2: STIBP(?=:)|retbleed: SMT(?= (enabled|vulnerable)\b)")
_STIBP_OFF = "spectre_v2: STIBP: disabled"
_SMT_OFF = "SMT disabled"
# The same mitigation before and after updates of one series (arch/x86/kernel/cpu/bugs.c), also where a later kernel
# does not count it as one.
_RENAMED = (
    ("Enhanced / Automatic IBRS", "Enhanced IBRS"),
    ("Full generic retpoline", "Retpolines"),
    ("Full AMD retpoline", "LFENCE"),
    ("Vulnerable: LFENCE", "Mitigation: LFENCE"),
    ("Vulnerable: Microcode, no safe RET", "Mitigation: Microcode"),
)


@dataclasses.dataclass(frozen=True)
class Basis:
    """What the evaluation of one host rests on; None is not known, as in results of earlier releases.

    Attributes:
        kernel: release of the kernel.
        microcode: version of the microcode.
        mitigations: those in force, each as ``vulnerability: what the kernel does``, sorted; None where it lists no
            vulnerability.
        collection_version: of this collection.
        governor: the frequency governor.
        boost: whether CPUs may run faster than their nominal frequency.
    """

    kernel: str | None = None
    microcode: str | None = None
    mitigations: tuple[str, ...] | None = None
    collection_version: str | None = None
    governor: str | None = None
    boost: bool | None = None

    @classmethod
    def from_result(cls, result: HostResult) -> Basis:
        """Return what a host's result rests on."""
        environment = result.environment
        return cls(
            environment.kernel,
            environment.microcode,
            mitigations(result.facts),
            result.collection_version,
            environment.governor,
            environment.boost,
        )


def mitigations(facts: Facts) -> tuple[str, ...] | None:
    """Return the mitigations that are in force by a host's facts, whatever the state of its SMT.

    Returns:
        Sorted, each as ``vulnerability: what the kernel does``; None where the kernel lists no vulnerability.
    """
    statuses = {name: vulnerability.status for name, vulnerability in facts.vulnerabilities.items()}
    if not statuses:
        return None
    in_force = {f"{name}: {part}" for name, status in statuses.items() for part in _in_force(name, status)}
    if facts.active is False or any(_SMT_OFF in status for status in statuses.values()):
        in_force.discard(_STIBP_OFF)
    return tuple(sorted(text.line(mitigation, MAX_TEXT) for mitigation in in_force))


def _in_force(name: str, status: str) -> t.Iterator[str]:
    """Give the parts of a vulnerability's status that say what the kernel does, and retbleed's of SMT."""
    for before, after in _RENAMED:
        status = status.replace(before, after)
    for whole in map(str.strip, status.split(";")):
        if _OF_KVM.match(f"{name}: {whole}") or _VULNERABLE.match(whole):
            continue
        for part in map(str.strip, whole.split(",")):
            is_counted = part == _BY_SMT or _OF_SIBLINGS.match(f"{name}: {part}")
            if is_counted or not _NO_MITIGATION.search(part.removeprefix("Mitigation:").strip()):
                yield part


def together(bases: t.Sequence[Basis], days: t.Iterable[datetime.datetime | None]) -> dict[str, t.Any]:
    """Return what the evaluations of a class rest on as plain data: each different value once.

    Args:
        bases: of the hosts that count.
        days: when each was evaluated, aware; None where that is not known.
    """

    def values(name: str) -> list[t.Any]:
        return sorted({getattr(basis, name) for basis in bases} - {None})

    known = sorted(day.astimezone(datetime.UTC).date().isoformat() for day in days if day)
    return {
        "kernels": values("kernel"),
        "microcode": values("microcode"),
        "mitigations": [list(statuses) for statuses in values("mitigations")],
        "collection_versions": values("collection_version"),
        "governors": values("governor"),
        "boost": values("boost"),
        "first_day": known[0] if known else None,
        "last_day": known[-1] if known else None,
    }


def stale(rests_on: t.Mapping[str, t.Any], age_days: int | None, facts: Facts, max_age: int) -> list[str]:
    """Return why a decision is stale for a host, as sentences without an end; empty where it is not.

    Args:
        rests_on: from :func:`together`.
        age_days: of the decision; None where it is not known.
        facts: of the host now.
        max_age: days after which a decision is stale.
    """
    reasons = []
    if _is_old(age_days, max_age):
        reasons.append(
            "its age is not known"
            if age_days is None
            else f"it is {age_days} days old, more than smt_policy_max_age ({max_age})"
        )
    now = series(facts.kernel or None)
    measured = sorted({kernel for kernel in map(series, rests_on["kernels"]) if kernel}, key=_numbers)
    if now and measured and now not in measured:
        reasons.append(f"it was measured on Linux {' and '.join(measured)}, and the host runs {now}")
    present = mitigations(facts)
    if present is not None and rests_on["mitigations"]:
        changes = [_changes(statuses, present) for statuses in rests_on["mitigations"]]
        more, fewer = min(changes, key=lambda change: sum(map(len, change)))
        differences = [f"the host has {_named(more)}"] if more else []
        differences += [f"the host has no more {_named(fewer)}"] if fewer else []
        if differences:
            reasons.append(f"the mitigations are others than when it was measured ({'; '.join(differences)})")
    return reasons


def to_measure(
    host: str, hosts: t.Sequence[str], age_days: int | None, reasons: t.Sequence[str], max_age: int
) -> list[str]:
    """Return the hosts after whose evaluation a decision is stale for a host no more: its age is that of the oldest of
    its evaluations, and for what else has changed one evaluation of what there is now is enough.

    Args:
        host: the host.
        hosts: those that decided.
        age_days: as for :func:`stale`.
        reasons: from :func:`stale`.
        max_age: as for :func:`stale`.
    """
    is_old = _is_old(age_days, max_age)
    return sorted({*(hosts if is_old else ()), *([host] if len(reasons) > is_old else ())})


def _is_old(age_days: int | None, max_age: int) -> bool:
    return age_days is None or age_days > max_age


def _changes(measured: t.Sequence[str], present: t.Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the mitigations that have come and those that have gone, as far as both sides can be seen."""
    hidden = [
        mitigation.removesuffix(_BY_SMT) for mitigation in (*measured, *present) if mitigation.endswith(f": {_BY_SMT}")
    ]
    of_siblings = [{match[0] for match in map(_OF_SIBLINGS.match, side) if match} for side in (measured, present)]
    hidden += of_siblings[0] ^ of_siblings[1]
    # Updates change the case of names.
    before, now = (
        {mitigation.casefold(): mitigation for mitigation in side if not mitigation.startswith(tuple(hidden))}
        for side in (measured, present)
    )
    more, fewer = (
        [side[mitigation] for mitigation in sorted(side.keys() - other)]
        for side, other in ((now, before), (before, now))
    )
    return more, fewer


def _named(names: t.Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def series(release: str | None) -> str | None:
    """Return the series of a kernel's release, such as ``6.12`` of ``6.12.9-1-amd64``; None where it has none."""
    match = _SERIES.match(release or "")
    return match[0] if match else None


def _numbers(name: str) -> list[int]:
    return [int(number) for number in name.split(".")]
