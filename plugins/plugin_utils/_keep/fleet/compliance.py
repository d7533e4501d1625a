# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host's facts with its desired state: compliant, drifted or unknown, with reasons.

Pure functions, no calls on hosts.

The running state is compared by the same function with which `smt_state` predicts a change, the boot arguments by that
of `smt_boot_args`: a host is compliant where those two modules would change no CPU and no argument.
"""

from __future__ import annotations

import datetime
import json
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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.memory import Memory
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

ASPECTS = ("running", "configured", "memory", "memory_configured")
# The statuses of one.
OF_ASPECTS = (Status.COMPLIANT, Status.DRIFTED, Status.UNKNOWN)

# Long lists, such as every CPU of a large machine, are cut.
MAX_REASONS = 5
MAX_TEXT = 500

_NO_SMT = (
    "no SMT here (the CPUs have none, it is off in the firmware, or the hypervisor hides it), so nothing can be"
    " otherwise"
)
# How the sentence of a host begins of which the firmware may be to blame.
LACKING = "no SMT here, and the policy wants it enabled: it is off in the firmware (docs/firmware.md)"


class WrittenAspect(parts.Excerpt, frozen=True):
    """What files say of a part of a host.

    Attributes of the file:
        status: what the check found of this aspect.
        reasons: a sentence for each difference; the last one may only count the rest.
    """

    status: t.Annotated[Status, parts.listed(*OF_ASPECTS)]
    reasons: parts.Lines

    def __post_init__(self) -> None:
        """Refuse the statuses that only a host has."""
        if self.status not in OF_ASPECTS:
            raise ValueError(f"Invalid enum value '{self.status}'")


class Aspect(WrittenAspect, frozen=True):
    """What a check found of a part of a host.

    Attributes:
        blocked_by: what blocks a change at run time, or at all.
    """

    blocked_by: str | None = None

    @property
    def is_drifted(self) -> bool:
        """Whether it differs from the policy."""
        return self.status is Status.DRIFTED

    @property
    def obstacle(self) -> str | None:
        """What blocks the change that it needs."""
        return self.blocked_by if self.is_drifted else None


MemoryAspects = t.Mapping[str, Aspect | None]


class Change(parts.Part, frozen=True):
    """What leads to the desired state.

    Attributes:
        running: options of `smt_state`; None where there is nothing to do, or no method.
        configured: those of `smt_boot_args`.
        memory: whether the memory policy has to be put in force.
        reboot: whether a reboot is needed.
    """

    running: dict[str, t.Any] | None = None
    configured: dict[str, t.Any] | None = None
    memory: bool = False
    reboot: bool = False


class Rollback(parts.Part, frozen=True):
    """What an interrupted rollout saved on the host before it changed it: when, and the state in words, where known."""

    since: str | None = None
    back_to: str | None = None


class Decision(parts.Part, frozen=True):
    """The decision of evaluations to which a host is held.

    Attributes:
        rests_on: what its evaluations rest on, as :func:`basis.together` has it.
        rechecks: of the class, as :func:`rechecks.of_class` has them.
        stale: why it is to be measured again, a sentence each.
        measure: the hosts whose evaluation ends that.
    """

    rests_on: t.Mapping[str, t.Any]
    rechecks: tuple[t.Mapping[str, t.Any], ...]
    stale: tuple[str, ...] = ()
    measure: tuple[str, ...] = ()


class Compliance(parts.Part, frozen=True, kw_only=True):
    """A host under its policy. What does not apply or is not known is None.

    Attributes:
        status: what was found.
        sentence: why; empty where there is nothing to say.
        wanted: the state that the policy wants.
        scope: one of `policy.SCOPES`.
        decided_by: the run that decided under the policy auto, in words.
        hardware_class: of the host.
        reboot_pending: whether the next boot has other arguments than the running kernel.
        change: leads to the desired state.
        pending_change: that a change waits for its confirmation, in a sentence: until it is confirmed or rolled back,
            nothing is changed here.
        pending_rollback: of an interrupted rollout.
        holds_slot: the slot for a reboot that the host holds, in a sentence.
        decision: of evaluations.
        undecided: whether an evaluation is missing.
        waiver: of the host.
        services: those that believe in another number of CPUs than they have, a sentence each.
        checked: when the host was checked, of UTC.
        running: the running system; like all aspects None where the policy does not cover it.
        configured: the next boot.
        memory: the memory policy of the running kernel.
        memory_configured: that of the next boot.
    """

    status: Status
    sentence: str
    wanted: str | None = None
    scope: str | None = None
    decided_by: str | None = None
    hardware_class: str | None = None
    reboot_pending: bool | None = None
    change: Change | None = None
    pending_change: str | None = None
    pending_rollback: Rollback | None = None
    holds_slot: str | None = None
    decision: Decision | None = None
    undecided: bool | None = None
    waiver: waivers.Leave | None = None
    services: tuple[str, ...] = ()
    checked: str | None = None
    running: Aspect | None = None
    configured: Aspect | None = None
    memory: Aspect | None = None
    memory_configured: Aspect | None = None

    @property
    def aspects(self) -> dict[str, Aspect | None]:
        """All aspects by name, in the order of `ASPECTS`."""
        return dict(zip(ASPECTS, (self.running, self.configured, self.memory, self.memory_configured)))

    @property
    def is_excused(self) -> bool:
        """Whether the host has a waiver that is not over, so that nothing is changed on it."""
        return self.waiver is not None and self.waiver.is_in_force

    @property
    def needs_reboot(self) -> bool:
        """Whether what leads to the desired state needs a reboot."""
        return self.change is not None and self.change.reboot

    @property
    def differences(self) -> str:
        """Every difference from the desired state, in one line."""
        found = [
            f"{name.replace('_', ' ')}: {'; '.join(aspect.reasons)}"
            for name, aspect in self.aspects.items()
            if aspect and aspect.status is not Status.COMPLIANT
        ]
        waits = not found and self.reboot_pending and self.scope == policy.BOOT
        return "in force after the next reboot" if waits else ". ".join(found)

    def saying(self, more: str | None) -> Compliance:
        """Return the same with another sentence behind its own."""
        return parts.changed(self, sentence=". ".join(filter(None, (self.sentence, more))))

    def under(self, waiver: waivers.Waiver | None, now: datetime.datetime) -> Compliance:
        """Return the same with the host's waiver: what differs is waived as long as it is in force, and nothing is
        changed.

        Args:
            waiver: from :func:`waivers.parse`.
            now: the present time, aware.
        """
        if waiver is None:
            return self
        leave, is_drifted = waiver.at(now), self.status is Status.DRIFTED
        found = parts.changed(self.saying(leave.sentence if is_drifted else None), waiver=leave)
        if not leave.is_in_force:
            return found
        return parts.changed(
            found, change=self.change and Change(), status=Status.WAIVED if is_drifted else self.status
        )

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data, as smt_status registers it: of texts that Ansible marked without the marks."""
        return t.cast("dict[str, t.Any]", json.loads(json.dumps(self, default=parts.fields)))


def judge(
    facts: Facts,
    desired: policy.DesiredState,
    scope: str,
    memory: MemoryAspects | None = None,
    consumers: t.Mapping[str, t.Any] | None = None,
    holds_slot: str | None = None,
) -> Compliance:
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
        What was found, without ``decision``, ``waiver`` (:meth:`Compliance.under` adds it) and ``checked``: whoever
        asked the host knows when that was (:func:`stamp`).
    """
    try:
        now = running(facts, desired) if scope in (policy.RUNTIME, policy.BOTH) else None
        if now and now.status is Status.COMPLIANT and not desired.anything:
            followed = [kind for kind, action in (consumers or {}).items() if action != consumer_settings.NONE]
            behind = _services(facts, followed)
            now = _aspect(Status.DRIFTED, behind, facts.methods.runtime.blocked_by) if behind else now
    except smt_scope.ScopeError as error:
        return refused(
            f"{policy.DISABLED_ON}: {error}",
            Status.BAD_POLICY,
            wanted=str(desired),
            scope=scope,
            hardware_class=facts.hardware_class,
        )
    aspects = {
        "running": now,
        "configured": configured(facts, desired) if scope in (policy.BOOT, policy.BOTH) else None,
        **(memory or {}),
    }
    waiting = facts.pending_change.sentence if facts.pending_change else None
    if waiting:
        aspects = {
            name: parts.changed(aspect, blocked_by=waiting) if aspect and aspect.is_drifted else aspect
            for name, aspect in aspects.items()
        }
    statuses = [aspect.status for aspect in aspects.values() if aspect]
    saved = facts.pending_rollback
    found = Compliance(
        status=next((status for status in (Status.DRIFTED, Status.UNKNOWN) if status in statuses), Status.COMPLIANT),
        sentence="",
        wanted=str(desired),
        scope=scope,
        decided_by=desired.decided_by,
        hardware_class=facts.hardware_class,
        reboot_pending=facts.boot.reboot_required,
        pending_change=waiting,
        pending_rollback=Rollback(_text(saved.since), _text(saved.back_to)) if saved else None,
        holds_slot=holds_slot,
        undecided=False,
        services=tuple(_services(facts)),
    )
    found = parts.changed(found, **aspects)
    nothing = found.status is Status.COMPLIANT and facts.without_smt
    shown = found.differences or (_nothing(facts, desired) if nothing else "")
    sentences = ". ".join(filter(None, [shown, waiting, holds_slot]))
    return parts.changed(found, sentence=sentences, change=_change(found, facts, desired))


def refused(reason: t.Any, status: Status = Status.UNKNOWN, **known: t.Any) -> Compliance:
    """Return the result without a comparison: no facts, no policy or no connection."""
    return Compliance(status=status, sentence=_text(reason) or "no reason was given", **known)


# What is known beforehand, so that no connection is tried.
NOT_CONTACTED = "not contacted: this controller cannot reach it"


def from_registered(variable: t.Any) -> Compliance:
    """Return the result that smt_status registered for a host,
    or one with the reason where the task failed or did not run.

    Args:
        variable: the registered variable. A task that failed may say what is known of a host that nobody could judge,
            and nothing else.
    """
    registered = variable if isinstance(variable, dict) else {}
    is_gone, is_judged = registered.get("unreachable"), not (registered.get("failed") or registered.get("unreachable"))
    try:
        found = parts.converted(registered.get("compliance"), Compliance)
    except text.BorderError:
        found = None
    if found and (is_judged or found.status in (Status.UNKNOWN, Status.UNREACHABLE)):
        return found
    return refused(why(registered) or "it was not checked", Status.UNREACHABLE if is_gone else Status.UNKNOWN)


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


def running(facts: Facts, desired: policy.DesiredState) -> Aspect:
    """Compare the running system: drifted where `smt_state` would change a CPU or the control.

    Raises:
        ScopeError: the host does not have the part of a machine that the policy names.
    """
    nothing = facts.without_smt and bool(desired.state or desired.threads == 1)
    if desired.anything or (nothing and not desired.is_part):
        return _aspect(Status.COMPLIANT)
    if facts.active is None and not nothing:
        return _aspect(Status.UNKNOWN, ["the kernel does not report which online CPUs share a core"])
    try:
        shape = facts.topology
        now = smt_state.of_cpus(facts.control, bool(facts.active), shape.online, shape.present)
        only = smt_scope.resolve(desired.cores, shape, None) if desired.is_part else None
        if nothing:
            return _aspect(Status.COMPLIANT)
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
        return _aspect(
            Status.UNKNOWN if facts.supported is None else Status.DRIFTED, [str(error)], blocked_by=str(error)
        )
    differences = _differences(goal, now)
    blocked_by = facts.methods.runtime.blocked_by
    return _aspect(Status.DRIFTED, differences, blocked_by) if differences else _aspect(Status.COMPLIANT)


def configured(facts: Facts, desired: policy.DesiredState) -> Aspect:
    """Compare the next boot: drifted where `smt_boot_args` would change an argument, whoever set it."""
    if desired.anything:
        return _aspect(Status.COMPLIANT)
    try:
        needed = boot_arguments.desired_smt(boot_state(facts, desired))
    except policy.PolicyError as error:
        return _aspect(Status.UNKNOWN, [str(error)], blocked_by=str(error))
    if facts.boot.configured is None:
        return _aspect(
            Status.UNKNOWN,
            [f"the next boot's arguments are not known (boot loader: {facts.boot.loader or 'unknown'})"],
        )
    differences = boot_arguments.differences(facts.boot.configured, needed)
    return (
        _aspect(Status.DRIFTED, differences, facts.methods.boot.blocked_by)
        if differences
        else _aspect(Status.COMPLIANT)
    )


def memory_aspects(facts: Memory) -> MemoryAspects:
    """Compare the memory policy of the running kernel (``memory``) and of the next boot (``memory_configured``) with
    the desired one.
    """
    plan = facts.wanted
    refusal = _text(plan.refusal) if plan else None
    now = [*([refusal] if refusal else plan.differences if plan else ()), *(facts.protect_differences or ())]
    later = plan.boot_differences if plan else ()
    return {
        "memory": _aspect(Status.DRIFTED if now else Status.COMPLIANT, now, refusal),
        "memory_configured": (
            _aspect(Status.DRIFTED if later else Status.COMPLIANT, later, plan.boot_blocked_by if later else None)
            if plan
            else None
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


def _change(found: Compliance, facts: Facts, desired: policy.DesiredState) -> Change:
    """Return what leads to the desired state; nothing while a change waits for its confirmation."""
    if found.pending_change:
        return Change()
    run, boot = found.running, found.configured
    is_blocked, is_drifted = bool(run and run.obstacle), bool(boot and boot.is_drifted)
    reboot = bool(boot) and (is_blocked or (found.scope == policy.BOOT and (is_drifted or bool(found.reboot_pending))))
    try:
        arguments = {"smt": boot_state(facts, desired)} if is_drifted or reboot else None
    except policy.PolicyError:
        arguments = None
    part = {"cores": desired.cores.given} if desired.is_part else {}
    options = {"state": desired.state, **part} if desired.state else {"threads_per_core": desired.threads}
    return Change(
        running=options if run and run.is_drifted and not is_blocked else None,
        configured=arguments,
        memory=any(aspect and aspect.is_drifted for aspect in (found.memory, found.memory_configured)),
        reboot=reboot,
    )


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


def _aspect(status: Status, reasons: t.Sequence[t.Any] = (), blocked_by: str | None = None) -> Aspect:
    shown = [_text(reason) or "?" for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        shown.append(f"and {len(reasons) - MAX_REASONS} more")
    return Aspect(status, tuple(shown), _text(blocked_by))


def _text(value: t.Any) -> str | None:
    return text.line(value, MAX_TEXT) or None if isinstance(value, str) else None
