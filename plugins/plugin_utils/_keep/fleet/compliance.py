# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host's facts with its desired state: compliant, drifted or unknown, with reasons.

Pure functions, no calls on hosts.

The running state is compared by the same function with which `smt_state` predicts a change, the boot arguments by that
of `smt_boot_args`: a host is compliant where those two modules would change no CPU and no argument.
"""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import agreement
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    scope as smt_scope,
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.registered import why
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.memory import Memory
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy

COMPLIANT, DRIFTED, BAD_POLICY, UNKNOWN, UNREACHABLE = "compliant", "drifted", "bad_policy", "unknown", "unreachable"
# Drifted by somebody's leave, for a time: `waivers`.
WAIVED = "waived"
# Of a host that nobody asked: what it said of itself is too old, or the metrics server has never heard of it.
SILENT, UNKNOWN_TO_SERVER = "silent", "unknown_to_server"
STATUSES = (COMPLIANT, WAIVED, DRIFTED, BAD_POLICY, UNKNOWN, UNREACHABLE, SILENT, UNKNOWN_TO_SERVER)
# Those that say nothing of the host itself.
NOT_SEEN = (UNREACHABLE, SILENT, UNKNOWN_TO_SERVER)
# Nobody has to do anything.
FINE = (COMPLIANT, WAIVED)
ASPECTS = ("running", "configured", "memory", "memory_configured")

# The fields of a result.
_FIELDS = {
    "status",
    "sentence",
    "wanted",
    "scope",
    "decided_by",
    "hardware_class",
    "reboot_pending",
    "change",
    "pending_change",
    "pending_rollback",
    "holds_slot",
    "decision",
    "undecided",
    "waiver",
    "services",
    "checked",
    *ASPECTS,
}

# Long lists, such as every CPU of a large machine, are cut.
MAX_REASONS = 5
MAX_TEXT = 500

_NO_SMT = (
    "no SMT here (the CPUs have none, it is off in the firmware, or the hypervisor hides it), so nothing can be"
    " otherwise"
)
# How the sentence of a host begins of which the firmware may be to blame.
LACKING = "no SMT here, and the policy wants it enabled: it is off in the firmware (docs/firmware.md)"

ComplianceResult = dict[str, t.Any]


def judge(
    facts: Facts,
    desired: policy.DesiredState,
    scope: str,
    memory: t.Mapping[str, t.Any] | None = None,
    consumers: t.Mapping[str, t.Any] | None = None,
    holds_slot: str | None = None,
) -> ComplianceResult:
    """Compare one host with its desired state.

    Args:
        facts: of the host.
        desired: the desired state.
        scope: one of `policy.SCOPES`.
        memory: from :func:`memory_aspects`, or None without a memory policy.
        consumers: by kind, what is done to services that count CPUs (``smt_runtime_consumers``): those of a kind that
            follows are a part of the running system.
        holds_slot: a sentence about the slot for a reboot that the host holds, None without.

    Returns:
        ``{status, wanted, scope, decided_by, hardware_class, reboot_pending, change, pending_rollback, sentence}`` and
        the `ASPECTS`. Each aspect is None where the policy does not cover it, or ``{status, reasons, blocked_by}`` with
        the reason that blocks a change at run time (or at all) as `blocked_by`. ``change`` leads to the desired state:
        ``{running, configured, memory, reboot}``, options of `smt_state` and `smt_boot_args` (None where there is
        nothing to do, or no method), and whether the memory policy has to be put in force and a reboot is needed.
        ``pending_rollback`` says what an interrupted rollout saved on the host before it changed it:
        ``{since, back_to}``, each a text or None; it is None without one. ``pending_change`` says that a change waits
        for its confirmation: until it is confirmed or rolled back, nothing is changed here. ``waiver`` is None:
        :func:`waivers.applied` adds it. ``undecided`` says whether an evaluation is missing. ``services`` has a
        sentence for each that believes in another number of CPUs than it has. ``checked``, when the host was checked,
        is None: whoever asked the host knows it (:func:`stamp`).
    """
    try:
        now = running(facts, desired) if scope in (policy.RUNTIME, policy.BOTH) else None
        if now and now["status"] == COMPLIANT and not desired.anything:
            followed = [kind for kind, action in (consumers or {}).items() if action != consumer_settings.NONE]
            behind = _services(facts, followed)
            now = _aspect(DRIFTED, behind, facts.methods.runtime.blocked_by) if behind else now
    except smt_scope.ScopeError as error:
        return refused(
            f"{policy.DISABLED_ON}: {error}",
            BAD_POLICY,
            wanted=str(desired),
            scope=scope,
            hardware_class=facts.hardware_class,
        )
    aspects = {
        "running": now,
        "configured": configured(facts, desired) if scope in (policy.BOOT, policy.BOTH) else None,
        "memory": None,
        "memory_configured": None,
        **(memory or {}),
    }
    waiting = facts.pending_change.sentence if facts.pending_change else None
    if waiting:
        aspects = {
            name: dict(aspect, blocked_by=waiting) if aspect and aspect["status"] == DRIFTED else aspect
            for name, aspect in aspects.items()
        }
    statuses = [aspect["status"] for aspect in aspects.values() if aspect]
    saved = facts.pending_rollback
    result = {
        "status": next((status for status in (DRIFTED, UNKNOWN) if status in statuses), COMPLIANT),
        "wanted": str(desired),
        "scope": scope,
        "decided_by": desired.decided_by,
        "hardware_class": facts.hardware_class,
        "reboot_pending": facts.boot.reboot_required,
        "pending_change": waiting,
        "pending_rollback": saved and {"since": _text(saved.since), "back_to": _text(saved.back_to)},
        "holds_slot": holds_slot,
        "decision": None,
        "undecided": False,
        "waiver": None,
        "services": _services(facts),
        "checked": None,
        **aspects,
    }
    nothing = result["status"] == COMPLIANT and facts.without_smt
    shown = sentence(result) or (_nothing(facts, desired) if nothing else "")
    sentences = ". ".join(filter(None, [shown, waiting, result["holds_slot"]]))
    return dict(result, sentence=sentences, change=_change(result, facts, desired))


def refused(reason: str, status: str = UNKNOWN, **known: t.Any) -> ComplianceResult:
    """Return the result without a comparison: no facts, no policy or no connection."""
    result = {**dict.fromkeys(_FIELDS), "status": status, "services": [], **known}
    return dict(result, sentence=_text(reason) or "no reason was given")


# What is known beforehand, so that no connection is tried.
NOT_CONTACTED = "not contacted: this controller cannot reach it"


def from_registered(variable: t.Any) -> ComplianceResult:
    """Return the result that smt_status registered for a host,
    or one with the reason where the task failed or did not run.

    Args:
        variable: the registered variable. A task that failed may say what is known of a host that nobody could judge,
            and nothing else.
    """
    registered = variable if isinstance(variable, dict) else {}
    result, is_judged = registered.get("compliance"), not (registered.get("failed") or registered.get("unreachable"))
    possible = STATUSES if is_judged else (UNKNOWN, UNREACHABLE)
    if isinstance(result, dict) and result.get("status") in possible and set(result) >= _FIELDS:
        return result
    return refused(why(registered) or "it was not checked", UNREACHABLE if registered.get("unreachable") else UNKNOWN)


def stamp(moment: datetime.datetime) -> str:
    """Return a time (aware) as files have it, of UTC."""
    return f"{moment.astimezone(datetime.UTC):{host_text.UTC_FORMAT}}"


def _nothing(facts: Facts, desired: policy.DesiredState) -> str:
    """Return what is to be said of a host without SMT. A machine of its own, of x86, can have it off in firmware, and
    has where the control reads ``on``: the kernel goes by what the processor could have.
    """
    unless = {smt_state.ON: "", smt_state.NOT_SUPPORTED: ", or the processor has none"}.get(facts.control)
    of_firmware = (facts.hardware_class or "").startswith("x86_64-") and not facts.hypervisor
    is_hiding = bool(agreement.hiding(facts.boot.running or ()))
    lacking = desired.state == policy.ENABLED and of_firmware and not is_hiding and unless is not None
    return ". ".join(filter(None, [f"{LACKING}{unless}" if lacking else _NO_SMT, _text(facts.provider)]))


def running(facts: Facts, desired: policy.DesiredState) -> dict[str, t.Any]:
    """Compare the running system: drifted where `smt_state` would change a CPU or the control.

    Raises:
        ScopeError: the host does not have the part of a machine that the policy names.
    """
    nothing = facts.without_smt and bool(desired.state or desired.threads == 1)
    if desired.anything or (nothing and not desired.is_part):
        return _aspect(COMPLIANT)
    if facts.active is None and not nothing:
        return _aspect(UNKNOWN, ["the kernel does not report which online CPUs share a core"])
    try:
        shape = facts.topology
        now = smt_state.of_cpus(facts.control, bool(facts.active), shape.online, shape.present)
        only = smt_scope.resolve(desired.cores, shape, None) if desired.is_part else None
        if nothing:
            return _aspect(COMPLIANT)
        threads = {policy.ENABLED: None, policy.DISABLED: 1}[desired.state] if desired.state else desired.threads
        numeric = smt_transition.takes_numbers(facts.hardware_class or "")
        origin: smt_state.State | None = None
        if facts.online_before:
            # Of the state before the first change of this host: what was offline in it was off on purpose.
            origin = {**now, "online": list(cpulist.parse(facts.online_before))}
        goal = smt_transition.predict(now, shape.cores, threads, origin=origin, numeric=numeric, only=only)
    except smt_state.StateError as error:
        # Without the online CPUs the status is unknown; where the desired state is not possible, the present state
        # differs from it.
        return _aspect(UNKNOWN if facts.supported is None else DRIFTED, [str(error)], blocked_by=str(error))
    differences = _differences(goal, now)
    return _aspect(DRIFTED, differences, facts.methods.runtime.blocked_by) if differences else _aspect(COMPLIANT)


def configured(facts: Facts, desired: policy.DesiredState) -> dict[str, t.Any]:
    """Compare the next boot: drifted where `smt_boot_args` would change an argument, whoever set it."""
    if desired.anything:
        return _aspect(COMPLIANT)
    try:
        needed = boot_arguments.desired_smt(boot_state(facts, desired))
    except policy.PolicyError as error:
        return _aspect(UNKNOWN, [str(error)], blocked_by=str(error))
    if facts.boot.configured is None:
        return _aspect(
            UNKNOWN,
            [f"the next boot's arguments are not known (boot loader: {facts.boot.loader or 'unknown'})"],
        )
    differences = boot_arguments.differences(facts.boot.configured, needed)
    return _aspect(DRIFTED, differences, facts.methods.boot.blocked_by) if differences else _aspect(COMPLIANT)


def memory_aspects(facts: Memory) -> dict[str, dict[str, t.Any] | None]:
    """Compare the memory policy of the running kernel (``memory``) and of the next boot (``memory_configured``) with
    the desired one.
    """
    plan = facts.wanted
    refusal = _text(plan.refusal) if plan else None
    now = [*([refusal] if refusal else plan.differences if plan else ()), *(facts.protect_differences or ())]
    later = plan.boot_differences if plan else ()
    return {
        "memory": _aspect(DRIFTED if now else COMPLIANT, now, refusal),
        "memory_configured": (
            _aspect(DRIFTED if later else COMPLIANT, later, plan.boot_blocked_by if later else None) if plan else None
        ),
    }


def boot_state(facts: Facts, desired: policy.DesiredState) -> str:
    """Return the desired state as boot arguments can express it: ``enabled`` or ``disabled``.

    Raises:
        PolicyError: no boot argument has this effect.
    """
    if desired.is_part:
        raise policy.PolicyError(
            f"no boot argument turns SMT off on a part of the machine ({desired.cores.title}): use smt_policy_scope"
            " runtime, with smt_runtime_persist to keep it over boots"
        )
    if desired.state:
        return desired.state
    most = facts.threads_per_core.max
    if desired.threads == 1:
        return policy.DISABLED
    if desired.threads == most:
        return policy.ENABLED
    raise policy.PolicyError(
        f"no boot argument leaves {desired.threads} of {'an unknown number of' if most is None else most}"
        " threads per core: use smt_policy_scope runtime, with smt_runtime_persist to keep it over boots"
    )


def _needs(result: ComplianceResult) -> dict[str, bool]:
    """Return which of running system and boot arguments must change, and whether a reboot is needed."""
    if result["pending_change"]:
        return {"running": False, "configured": False, "reboot": False}
    run, boot = result["running"], result["configured"]
    blocked = bool(run and run["status"] == DRIFTED and run["blocked_by"])
    drifted = bool(boot and boot["status"] == DRIFTED)
    reboot = bool(boot) and (
        blocked or (result["scope"] == policy.BOOT and (drifted or bool(result["reboot_pending"])))
    )
    return {
        "running": bool(run and run["status"] == DRIFTED and not blocked),
        "configured": drifted or reboot,
        "reboot": reboot,
    }


def _change(result: ComplianceResult, facts: Facts, desired: policy.DesiredState) -> dict[str, t.Any]:
    needs = _needs(result)
    try:
        boot = {"smt": boot_state(facts, desired)} if needs["configured"] else None
    except policy.PolicyError:
        boot = None
    part = {"cores": desired.cores.given} if desired.is_part else {}
    run = {"state": desired.state, **part} if desired.state else {"threads_per_core": desired.threads}
    memory = not result["pending_change"] and any(
        result[name] and result[name]["status"] == DRIFTED for name in ("memory", "memory_configured")
    )
    return {
        "running": run if needs["running"] else None,
        "configured": boot,
        "memory": memory,
        "reboot": needs["reboot"],
    }


def _services(facts: Facts, kinds: t.Container[str] | None = None) -> list[str]:
    """Return the services that believe in another number of CPUs than they have, a sentence each.

    Args:
        facts: of the host.
        kinds: only services of the system of these kinds; None for all programs.
    """
    return [
        consumer.sentence()
        for consumer in facts.consumers or ()
        if kinds is None or (consumer.is_service and consumer.program in kinds)
    ]


def sentence(result: ComplianceResult) -> str:
    """Describe every difference from the desired state in one line."""
    parts = []
    for name in ASPECTS:
        aspect = result[name]
        if aspect and aspect["status"] != COMPLIANT:
            parts.append(f"{name.replace('_', ' ')}: {'; '.join(aspect['reasons'])}")
    if not parts and result["reboot_pending"] and result["scope"] == policy.BOOT:
        parts.append("in force after the next reboot")
    return ". ".join(parts)


def _differences(wanted: smt_state.State, now: smt_state.State) -> list[str]:
    """List the differences with CPUs as lists: one line per CPU would be too long."""
    differences = (
        []
        if wanted["control"] == now["control"]
        else [f"smt/control reads {cpulist.quoted(now['control'])} instead of {wanted['control']}"]
    )
    over, short = set(now["online"]) - set(wanted["online"]), set(wanted["online"]) - set(now["online"])
    differences += [f"CPUs {cpulist.render(over)} are online"] if over else []
    return differences + ([f"CPUs {cpulist.render(short)} are offline"] if short else [])


def _aspect(status: str, reasons: t.Sequence[t.Any] = (), blocked_by: str | None = None) -> dict[str, t.Any]:
    shown = [_text(reason) or "?" for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        shown.append(f"and {len(reasons) - MAX_REASONS} more")
    return {"status": status, "reasons": shown, "blocked_by": _text(blocked_by)}


def _text(value: t.Any) -> str | None:
    return text.line(value, MAX_TEXT) or None if isinstance(value, str) else None
