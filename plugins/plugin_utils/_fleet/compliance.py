# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a host x what is wanted of it -> compliant, drifted or unknown, and how. Pure: nothing is asked, nothing is written.

The running state is judged by the very rule with which `smt_state` predicts a change, the boot arguments by that of `smt_boot_args`: a host is
compliant where those two would change no CPU and no argument.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import policy

COMPLIANT, DRIFTED, UNKNOWN, UNREACHABLE = "compliant", "drifted", "unknown", "unreachable"
STATUSES = (COMPLIANT, DRIFTED, UNKNOWN, UNREACHABLE)
ASPECTS = ("running", "configured", "memory", "memory_configured")

# Of a verdict.
_FIELDS = {"status", "sentence", "wanted", "scope", "evidence", "hardware_class", "reboot_pending", "change", "before", "unconfirmed", *ASPECTS}

# A page or a fact that repeats each CPU of a large machine helps nobody.
MOST_REASONS = 5
MOST_TEXT = 500

# Options of smt_state and smt_boot_args that lead back; RESTORED, the state from before the first change, stands for one that no word describes.
RESTORED = "restored"
_SWITCHED = (boot_arguments.DISABLED, boot_arguments.FORCED_OFF, boot_arguments.MITIGATIONS_NOSMT)
_NUMBER = re.compile(r"[0-9]{1,9}")

Verdict = dict[str, t.Any]
Facts = t.Mapping[str, t.Any]


class _KernelFacts(smt_state.SysFiles):
    """The kernel's files as a host's facts tell them, for the rules that read files. Nothing can be written."""

    def __init__(self, facts: Facts):
        super().__init__()
        cpus = _dict(facts, "cpus")
        active = facts.get("active")
        self._texts = {
            smt_state.CPU_DIRECTORY + "/online": cpus.get("online"),
            smt_state.CPU_DIRECTORY + "/present": cpus.get("present"),
            smt_state.CONTROL: facts.get("control"),
            smt_state.ACTIVE: str(int(active)) if isinstance(active, bool) else None,
        }

    def read(self, path: str) -> str | None:
        text = self._texts.get(path)
        return text[: smt_state.LONGEST_FILE] if isinstance(text, str) else None


def judge(facts: t.Any, wish: policy.Wish, scope: str, memory: t.Mapping[str, t.Any] | None = None) -> Verdict:
    """The verdict on one host.

    Args:
        facts: ``ansible_facts['smt']``; what is not of the expected type counts as unknown.
        wish: what is wanted.
        scope: one of `policy.SCOPES`.
        memory: what :func:`memory_aspects` gave, or None where no memory policy is asked for.

    Returns:
        ``{status, wanted, scope, evidence, hardware_class, reboot_pending, change, before, unconfirmed, sentence}`` and the `ASPECTS`; each of these
            is None where nothing is asked of it, or ``{status, reasons, hindrance}`` with `hindrance` why it cannot be mended while the host
            runs (or at all). ``change`` leads to what is wanted, ``before`` back to what is there: ``{running, configured, reboot}``, options of
            `smt_state` and of `smt_boot_args`, None where nothing is to be done or nothing does it, and whether it takes a reboot. ``unconfirmed`` is the
            way back of a change that an interrupted rollout made and nobody found to be well, with ``memory`` (bool) beside these three, or None.
    """
    if not isinstance(facts, dict):
        return refused("it returned no facts", wanted=str(wish), scope=scope)
    aspects = {
        "running": running(facts, wish) if scope in (policy.RUNTIME, policy.BOTH) else None,
        "configured": configured(facts, wish) if scope in (policy.BOOT, policy.BOTH) else None,
        "memory": None,
        "memory_configured": None,
        **(memory or {}),
    }
    statuses = [one["status"] for one in aspects.values() if one]
    pending = _dict(facts, "boot").get("reboot_required")
    verdict = {
        "status": next((status for status in (DRIFTED, UNKNOWN) if status in statuses), COMPLIANT),
        "wanted": str(wish),
        "scope": scope,
        "evidence": wish.evidence,
        "hardware_class": _text(facts.get("hardware_class")),
        "reboot_pending": pending if isinstance(pending, bool) else None,
        "unconfirmed": _unconfirmed(facts.get("unconfirmed")),
        **aspects,
    }
    needs = _needs(verdict)
    back = {"running": _running_way_back(facts), "configured": _boot_way_back(_dict(facts, "boot").get("configured"))}
    return dict(verdict, sentence=sentence(verdict), change=_only(needs, _way_forward(facts, wish)), before=_only(needs, back))


def refused(reason: str, status: str = UNKNOWN, **known: t.Any) -> Verdict:
    """The verdict where there is nothing to compare: no facts, no policy, no connection."""
    verdict = {**dict.fromkeys(_FIELDS), "status": status, **known}
    return dict(verdict, sentence=_text(reason) or "no reason was given")


def told(result: t.Any) -> Verdict:
    """The verdict that smt_status registered for a host; one that says why there is none where the task failed or did not run.

    Args:
        result: the registered variable: only what the action itself returned has a verdict, and never when it failed.
    """
    registered = result if isinstance(result, dict) else {}
    verdict = registered.get("verdict")
    if not registered.get("failed") and isinstance(verdict, dict) and verdict.get("status") in STATUSES and set(verdict) >= _FIELDS:
        return verdict
    return refused(registered.get("msg") or "it was not asked", UNREACHABLE if registered.get("unreachable") else UNKNOWN)


def running(facts: Facts, wish: policy.Wish) -> dict[str, t.Any]:
    """Whether the running system is as wanted: whether `smt_state` would change a CPU or the control."""
    if wish.anything:
        return _aspect(COMPLIANT)
    if not isinstance(facts.get("active"), bool):
        return _aspect(UNKNOWN, ["nothing on this host tells which online CPUs share a core"])
    files = _KernelFacts(facts)
    try:
        now = smt_state.read(files=files)
        cores = [cpulist.parse(core) for core in _list(facts, "sibling_groups")[: smt_state.MOST_CPUS]]
        goal = smt_state.predict("/", cores, {policy.ENABLED: None, policy.DISABLED: 1}.get(wish.state, wish.threads), files=files)
    except cpulist.CpuListError as error:
        return _aspect(UNKNOWN, [str(error)])
    except smt_state.StateError as error:
        # Where the CPUs online cannot be read there is no verdict; where the wish cannot be had, the state is known and another one.
        known = facts.get("supported") is not None and isinstance(_dict(facts, "cpus").get("online"), str)
        return _aspect(DRIFTED if known else UNKNOWN, [str(error)], hindrance=str(error))
    differences = smt_state.differences(now, goal)
    return _aspect(DRIFTED, _turned(goal, now), _hindrance(facts, "runtime")) if differences else _aspect(COMPLIANT)


def configured(facts: Facts, wish: policy.Wish) -> dict[str, t.Any]:
    """Whether the next boot is as wanted, by whomever its arguments were set: whether `smt_boot_args` would change one."""
    if wish.anything:
        return _aspect(COMPLIANT)
    boot = _dict(facts, "boot")
    try:
        wanted = boot_arguments.wanted_smt(boot_state(facts, wish))
    except policy.PolicyError as error:
        return _aspect(UNKNOWN, [str(error)], hindrance=str(error))
    arguments = boot.get("configured")
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        return _aspect(UNKNOWN, [f"what the next boot brings is not known (boot loader: {_text(boot.get('loader')) or 'unknown'})"])
    faults = boot_arguments.faults(arguments, wanted)
    return _aspect(DRIFTED, faults, _hindrance(facts, "boot")) if faults else _aspect(COMPLIANT)


def memory_aspects(facts: t.Any) -> dict[str, dict[str, t.Any] | None]:
    """Whether the memory policy is in force (``memory``), and whether it will be after the next boot (``memory_configured``).

    Args:
        facts: ``ansible_facts['smt_memory']``; its ``wanted`` is None where only services are to be spared.
    """
    known = facts if isinstance(facts, dict) else {}
    told = _dict(known, "wanted")
    refusal = _text(told.get("refusal"))
    now = [*([refusal] if refusal else _list(told, "differences")), *_list(known, "protect_differences")]
    later = _list(told, "boot_differences")
    return {
        "memory": _aspect(DRIFTED if now else COMPLIANT, now, refusal),
        "memory_configured": _aspect(DRIFTED if later else COMPLIANT, later, _text(told.get("boot_hindrance")) if later else None) if told else None,
    }


def boot_state(facts: Facts, wish: policy.Wish) -> str:
    """The wish as a boot argument can say it: ``enabled`` or ``disabled``. Raises PolicyError where none says it."""
    if wish.state:
        return wish.state
    most = _dict(facts, "threads_per_core").get("max")
    if wish.threads == 1:
        return policy.DISABLED
    if wish.threads == most:
        return policy.ENABLED
    raise policy.PolicyError(
        f"no boot argument leaves {wish.threads} of {most if isinstance(most, int) else 'an unknown number of'} threads per core: "
        "use smt_policy_scope runtime, with smt_runtime_persist to keep it over boots"
    )


def _hindrance(facts: Facts, when: str) -> str | None:
    """Why no method can change SMT, ``runtime`` or ``boot``; None where one can."""
    methods = _dict(_dict(facts, "methods"), when)
    if methods.get("chosen"):
        return None
    return next((_text(why) for why in _dict(methods, "impossible").values()), None) or "no method is known here"


def _needs(verdict: Verdict) -> dict[str, bool]:
    """Which of running system and boot arguments have to be changed, and whether that comes into force by a reboot alone."""
    run, boot = verdict["running"], verdict["configured"]
    hindered = bool(run and run["status"] == DRIFTED and run["hindrance"])
    drifted = bool(boot and boot["status"] == DRIFTED)
    reboot = bool(boot) and (hindered or (verdict["scope"] == policy.BOOT and (drifted or bool(verdict["reboot_pending"]))))
    return {"running": bool(run and run["status"] == DRIFTED and not hindered), "configured": drifted or reboot, "reboot": reboot}


def _only(needs: dict[str, bool], ways: dict[str, t.Any]) -> dict[str, t.Any]:
    return {name: ways[name] if needs[name] else None for name in ("running", "configured")} | {"reboot": needs["reboot"]}


def _way_forward(facts: Facts, wish: policy.Wish) -> dict[str, t.Any]:
    if wish.anything:
        return {"running": None, "configured": None}
    try:
        boot = {"smt": boot_state(facts, wish)}
    except policy.PolicyError:
        boot = None
    return {"running": {"state": wish.state} if wish.state else {"threads_per_core": wish.threads}, "configured": boot}


def _running_way_back(facts: Facts) -> dict[str, str]:
    if facts.get("active") is True and not _dict(facts, "cpus").get("offline"):
        return {"state": policy.ENABLED}
    return {"state": policy.DISABLED if facts.get("active") is False and facts.get("control") in smt_state.OFF else RESTORED}


def _boot_way_back(arguments: t.Any) -> dict[str, str] | None:
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        return None
    if not arguments:
        return {"smt": boot_arguments.ENABLED}
    name, _dummy, value = arguments[0].partition("=")
    if name == "maxcpus" and _NUMBER.fullmatch(value) and len(arguments) == 1:
        return {"maxcpus": value}
    return next(({"smt": state} for state in _SWITCHED if _are_all_of(arguments, boot_arguments.wanted_smt(state))), None)


def _are_all_of(arguments: list[str], wanted: boot_arguments.Wanted) -> bool:
    """Whether asking for a state brings back all of these arguments."""
    kept = [argument for argument in arguments if wanted.keeps_vectors and argument.startswith(boot_arguments.OURS + ",")]
    return not boot_arguments.faults(arguments, wanted) and len(arguments) == len(wanted.arguments) + len(kept)


def _unconfirmed(told: t.Any) -> dict[str, t.Any] | None:
    """A way back as the host tells it; of what is no such thing nothing is taken."""
    if not isinstance(told, dict):
        return None
    state, boot = _text(_dict(told, "running").get("state")), _dict(told, "configured")
    smt, maxcpus = _text(boot.get("smt")), _text(boot.get("maxcpus"))
    return {
        "running": {"state": state} if state in (policy.ENABLED, policy.DISABLED, RESTORED) else None,
        "configured": {"smt": smt} if smt in (boot_arguments.ENABLED, *_SWITCHED) else {"maxcpus": maxcpus} if maxcpus and _NUMBER.fullmatch(maxcpus) else None,
        "reboot": told.get("reboot") is True,
        "memory": told.get("memory") is True,
    }


def sentence(verdict: Verdict) -> str:
    """One line for a person: what is not as wanted."""
    parts = []
    for name in ASPECTS:
        aspect = verdict[name]
        if aspect and aspect["status"] != COMPLIANT:
            parts.append(f"{name.replace('_', ' ')}: {'; '.join(aspect['reasons'])}")
    if not parts and verdict["reboot_pending"] and verdict["scope"] == policy.BOOT:
        parts.append("in force after the next reboot")
    return ". ".join(parts)


def _turned(wanted: dict[str, t.Any], now: dict[str, t.Any]) -> list[str]:
    """What differs, CPUs as lists: a large machine would take a line for each."""
    found = [] if wanted["control"] == now["control"] else [f"smt/control reads {cpulist.quoted(now['control'])}, wanted is {wanted['control']}"]
    over, short = set(now["online"]) - set(wanted["online"]), set(wanted["online"]) - set(now["online"])
    found += [f"CPUs {cpulist.render(over)} are online"] if over else []
    return found + ([f"CPUs {cpulist.render(short)} are offline"] if short else [])


def _aspect(status: str, reasons: t.Sequence[t.Any] = (), hindrance: str | None = None) -> dict[str, t.Any]:
    told = [_text(reason) or "?" for reason in reasons[:MOST_REASONS]]
    if len(reasons) > MOST_REASONS:
        told.append(f"and {len(reasons) - MOST_REASONS} more")
    return {"status": status, "reasons": told, "hindrance": _text(hindrance)}


def _dict(mapping: t.Mapping[str, t.Any], name: str) -> dict[str, t.Any]:
    value = mapping.get(name)
    return value if isinstance(value, dict) else {}


def _list(mapping: t.Mapping[str, t.Any], name: str) -> list[t.Any]:
    value = mapping.get(name)
    return value if isinstance(value, list) else []


def _text(value: t.Any) -> str | None:
    """One line, cut, or None when the value is no text or an empty one."""
    return text.line(value, MOST_TEXT) or None if isinstance(value, str) else None
