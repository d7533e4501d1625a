# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each arm leaves open of the kernel's list of vulnerabilities.

What the kernel said while the host was in an arm is taken as it was read. For other arms it is inferred from what the
kernel said before the run: with one online thread a core the part that depends on SMT is closed; a single core with two
online threads keeps it open (``sched_smt_active`` of arch/x86/kernel/cpu/bugs.c), also where the measured work has only
one of them.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.arms import AS_FOUND
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    BY_CPUS,
    IDLE,
    OFFLINE,
    ONLINE,
    PARTLY,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Vulnerability
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    Arm,
    HostResult,
    Spot,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.recorded import (
    cpus_of,
    is_compared,
)

# States of a vulnerability in an arm; of several that hold, the worst.
NOT_AFFECTED, MITIGATED, SMT_OPEN, SMT_CLOSED = "not_affected", "mitigated", "smt_open", "smt_closed"
VULNERABLE, OPENED, NOT_KNOWN = "vulnerable", "opened", "not_known"
# Whether the states of an arm were read in it or are inferred.
READ, INFERRED = "read", "inferred"

# On AMD's Zen 1 and 2 the kernel calls it closed where SMT was impossible when it booted (srso_select_mitigation of
# arch/x86/kernel/cpu/bugs.c: nosmt=force, or off in firmware): what is switched later, and nosmt, which can be taken
# back, change nothing about it.
_AT_BOOT = "spec_rstack_overflow"

_REMARKS = {
    OFFLINE: "one thread of each core is online",
    PARTLY: "some cores have two online threads, so it is not closed by this arm",
    IDLE: "siblings stay online for other work, so it is not closed by this arm",
    ONLINE: "siblings are online",
}


@dataclasses.dataclass(frozen=True)
class Exposure:
    """What one arm leaves open.

    Attributes:
        name: of the arm.
        title: of the arm.
        basis: ``read`` where the kernel was asked in this arm, else ``inferred``.
        states: vulnerability -> ``not_affected``, ``mitigated``, ``smt_open``, ``smt_closed`` (nothing but the part
            that depends on SMT was open, and this arm closes it), ``vulnerable``, ``opened`` (this arm ends its
            mitigation) or ``not_known``.
        text: the same in one sentence.
    """

    name: str
    title: str
    basis: str
    states: dict[str, str]
    text: str


def exposed(result: HostResult) -> list[str] | None:
    """Return the vulnerabilities that are open because siblings are online,
    or None when the kernel lists none at all, or none of those that it can see.
    """
    names = list(result.facts.open_by_smt())
    is_seen = result.facts.vulnerabilities and not result.facts.open_by_smt("unknown")
    return names if names or is_seen else None


def of_arms(result: HostResult) -> list[Exposure]:
    """Return what each arm leaves open that changes siblings or mitigations, the baseline first.

    Args:
        result: from :func:`result_files.load`.

    Returns:
        Empty where the kernel lists no vulnerabilities, nothing was compared, or no arm changes what they depend on.
    """
    known = result.facts.vulnerabilities
    read = {
        observation.arm: observation.vulnerabilities
        for observation in result.observations or ()
        if observation.vulnerabilities
    }
    changing = [arm for arm in result.arms if arm.name in read or siblings(arm.name)]
    if not known or not changing or not is_compared(result):
        return []
    return [_of_arm(result, arm, read.get(arm.name)) for arm in result.arms if arm.baseline or arm in changing]


def siblings(name: str) -> str | None:
    """Return what an arm does to siblings; None where it leaves them and the mitigations as they were found."""
    arm = catalogue.find(name)
    return arm.siblings if arm else None


def _of_arm(result: HostResult, arm: Arm, read: t.Mapping[str, Vulnerability] | None) -> Exposure:
    before = _states(result.facts.vulnerabilities)
    what = siblings(arm.name)
    if what in (PARTLY, BY_CPUS):
        # A part may be the whole machine.
        what = _by_cpus(result, arm.name) or (PARTLY if what == PARTLY else None)
    if read is not None:
        states = {
            name: OPENED if (state, before.get(name)) == (VULNERABLE, MITIGATED) else state
            for name, state in _states(read).items()
        }
    else:
        states = {
            name: (_inferred_at_boot if name == _AT_BOOT else _inferred)(result, arm.name, state, what)
            for name, state in before.items()
        }
    if result.facts.hypervisor is not None:
        # Whoever else runs on the cores is not the guest's to choose.
        states = {name: NOT_KNOWN if state == SMT_CLOSED else state for name, state in states.items()}
    basis = READ if read is not None or arm.name == AS_FOUND else INFERRED
    return Exposure(arm.name, arm.title, basis, states, _text(states, None if read is not None else what))


def _by_cpus(result: HostResult, name: str) -> str | None:
    """Return what an arm does to siblings, by the CPUs that were used in it with every online thread busy;
    None where these do not tell.
    """
    cores = result.facts.core_cpus
    by_arm = {arm: _used(spots) for arm, spots in (result.plan.placements or {}).items()}
    used = by_arm.get(name)
    if not used or not cores:
        return None
    if any(len(used & set(core)) > 1 for core in cores):
        return PARTLY
    # A plan that may not use some CPUs of the host does not show whether they are online.
    return OFFLINE if set().union(*by_arm.values()) >= set().union(*cores) else None


def _used(spots: t.Mapping[str, Spot]) -> set[int]:
    everything = spots.get(placements.ALL_THREADS)
    return {cpu for worker in (everything and everything.workers) or () for cpu in cpus_of(worker)}


def _states(vulnerabilities: t.Mapping[str, Vulnerability]) -> dict[str, str]:
    return {name: _state(entry.status, entry.smt) for name, entry in sorted(vulnerabilities.items())}


def _state(status: str, smt: str | None) -> str:
    """Return the state that the kernel's own words mean."""
    if status.startswith("Not affected"):
        return NOT_AFFECTED
    if status.startswith("Vulnerable"):
        return VULNERABLE
    by_smt = {"vulnerable": SMT_OPEN, "disabled": SMT_CLOSED, "mitigated": MITIGATED, "unknown": NOT_KNOWN}
    return by_smt.get(smt or "", MITIGATED if "Mitigation" in status else NOT_KNOWN)


def _inferred(result: HostResult, name: str, state: str, what: str | None) -> str:
    """Return the state in an arm of what had a state before the run."""
    if state == NOT_AFFECTED or name == AS_FOUND:
        return state
    arm = catalogue.find(name)
    mitigations = arm.boot.mitigations if arm else None
    if mitigations == "off":
        return state if state == VULNERABLE else OPENED
    # What the kernel said with other mitigations than its own choice does not tell what it says with these.
    if mitigations and re.search(r"\bmitigations=", str(result.environment.cmdline or "")):
        return NOT_KNOWN
    if state in (SMT_OPEN, SMT_CLOSED):
        if what == OFFLINE:
            return SMT_CLOSED
        # With siblings online again it may be vulnerable or mitigated; a lever that leaves SMT alone leaves the state.
        return NOT_KNOWN if siblings(name) and (state == SMT_CLOSED or what is None) else state
    return state


def _inferred_at_boot(result: HostResult, name: str, state: str, what: str | None) -> str:
    """Return the same of a vulnerability whose part that depends on SMT is decided when the kernel boots."""
    arm = catalogue.find(name)
    if arm is None or not arm.takes_reboot or state == NOT_AFFECTED:
        return state
    if arm.boot.smt == boot_arguments.FORCED_OFF:
        return NOT_KNOWN if state == VULNERABLE else state
    return NOT_KNOWN if state == SMT_CLOSED else _inferred(result, name, state, what)


def _text(states: dict[str, str], what: str | None) -> str:
    """Return what an arm leaves open in one sentence."""
    by_state = {
        state: ", ".join(name for name, of_vulnerability in states.items() if of_vulnerability == state)
        for state in set(states.values())
    }
    why = f" ({_REMARKS[what]})" if what else ""
    parts = [
        f"{words} {by_state[state]}{why if state in (SMT_OPEN, SMT_CLOSED) else ''}"
        for state, words in (
            (OPENED, "ends the mitigation of"),
            (VULNERABLE, "leaves vulnerable as a whole"),
            (SMT_OPEN, "leaves open the part that depends on SMT, of"),
            (SMT_CLOSED, "closes the part that depends on SMT, of"),
            (NOT_KNOWN, "not known for"),
        )
        if state in by_state
    ]
    return "; ".join(parts) or "leaves nothing open that the kernel lists"
