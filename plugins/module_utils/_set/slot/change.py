# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request of `smt_slot`: ask for a slot, once, or give it back.

It runs on the host that is to be rebooted, whoever asks for that: its record outlives each controller, and is in the
hands of the next one.
"""

import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    files as host_files,
    locks,
    state_file,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import commands
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import (
    alerts,
    exchange,
    fleetlock,
    record,
    settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.request import Asked
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import Slot, SlotError

COMMAND_SECONDS = 60.0
# Whoever took a slot reboots the host within this time, or does not come to it.
FRESH_SECONDS = 900.0
_LOCK = "run/threadwise-smt/slot-lock"
_LOCK_SECONDS = 2 * COMMAND_SECONDS


class SlotAnswer(t.NamedTuple):
    """What comes of a request.

    Attributes:
        changed: whether anything was asked, written or removed, or would be.
        granted: whether the host may be rebooted now.
        handed_over: whether kured reboots it instead.
        reason: why it may not, or what would be asked; empty otherwise.
        wait_seconds: how long it is certain that it may not.
        holds: what the facts say of the slot that the host holds, or may hold; None without.
    """

    changed: bool
    granted: bool = False
    handed_over: bool = False
    reason: str = ""
    wait_seconds: float = 0.0
    holds: "dict[str, t.Any] | None" = None


def acquire(fs: host_files.HostFs, wanted: Asked, check: bool = False) -> SlotAnswer:
    """Ask for a slot, once. Who holds it already is granted it again.

    Args:
        fs: the files of the running system.
        wanted: for what.
        check: ask for no slot, and say whether the window or an alert forbids it now.

    Raises:
        SlotError: what is asked for is not valid, or the host cannot keep what it asks for, or keeps something else.
        HostLockError: another run has asked for all of the time that one waits for it.
    """
    if wanted.slot is not None:
        settings.check(wanted.slot, wanted.group, wanted.host)
    forbidden = _forbidden(fs, wanted)
    if check:
        _kept(fs, wanted)
        waits = f"it would wait now: {forbidden.reason}" if forbidden is not None else ""
        reason = "; ".join(filter(None, (_would_ask(wanted), waits)))
        return SlotAnswer(bool(reason), True, reason=reason, wait_seconds=forbidden.wait_seconds if forbidden else 0.0)
    if forbidden is not None:
        return forbidden
    if wanted.slot is None:
        return SlotAnswer(wanted.alerts is not None, granted=True)
    if wanted.slot.kured:
        return _hand_over(fs, wanted.slot.kured.lstrip("/"))
    with locks.HostLock(fs.sysroot, "smt_slot", _LOCK_SECONDS, _LOCK):
        known = _kept(fs, wanted)
        since = known.since if known is not None else host_text.utc_now()
        is_held = known is not None and known.is_held
        kept = record.SlotRecord(
            wanted.slot, wanted.group, wanted.host, wanted.owner, is_held, since, time.time(), state_file.boot_id(fs)
        )
        # Before anybody is asked: whoever is killed from here on has left what the next one reads.
        record.save(fs, kept)
        try:
            _ask(wanted.slot, fleetlock.ACQUIRE, wanted.group, wanted.host)
        except exchange.RefusedError as error:
            return SlotAnswer(True, reason=str(error), holds=kept.fact)
        held = kept if kept.is_held else kept._replace(is_held=True, since=host_text.utc_now())
        record.save(fs, held)
    return SlotAnswer(True, granted=True, holds=held.fact)


def release(fs: host_files.HostFs, owner: str = "", only_asked: bool = False, check: bool = False) -> SlotAnswer:
    """Give back the slot that the host holds, where it holds one, and nobody else is about to reboot it.

    Args:
        fs: the files of the running system.
        owner: who gives it back; empty for one that has not asked for it, and finds the host well.
        only_asked: leave one that was granted: this is the end of a wait.
        check: change nothing.

    Raises:
        SlotError: the server does not say that it is given back.
        HostLockError: as for `acquire`.
    """
    if fs.status(record.FILE.path) is None:
        return SlotAnswer(False)
    with locks.HostLock(fs.sysroot, "smt_slot", _LOCK_SECONDS, _LOCK):
        known = record.load(fs)
        if known is None or (only_asked and known.is_held) or _is_of_another(known, owner, state_file.boot_id(fs)):
            return SlotAnswer(False, holds=known and known.fact)
        if check:
            return SlotAnswer(True, reason=_would_give(known.slot, known.group), holds=known.fact)
        try:
            _ask(known.slot, fleetlock.RELEASE, known.group, known.host)
        except exchange.RefusedError as error:
            raise SlotError(f"its slot is not known to be given back: {error}. {known.sentence}") from None
        record.forget(fs)
    return SlotAnswer(True)


def release_by_name(fs: host_files.HostFs, wanted: Asked, check: bool = False) -> SlotAnswer:
    """Release the slot of a host that cannot do it itself; raises as `release` does.

    Args:
        fs: the files of this machine, which may be that host.
        wanted: the slot, its group and the host.
        check: change nothing.
    """
    slot = t.cast(Slot, wanted.slot)
    settings.check(slot, wanted.group, wanted.host)
    if check:
        return SlotAnswer(True, reason=_would_give(slot, wanted.group))
    _ask(slot, fleetlock.RELEASE, wanted.group, wanted.host)
    known = record.load(fs)
    if known is not None and (known.slot, known.group, known.host) == wanted[:3]:
        record.forget(fs)
    return SlotAnswer(True)


def _is_of_another(known: record.SlotRecord, owner: str, boot: str) -> bool:
    """Return whether somebody else may be about to reboot the host by this slot.

    Two controllers can ask for one host, and both are granted the same slot: the first one to be ready must not give it
    back under the other one's reboot.
    """
    if owner:
        return known.owner != owner
    return known.boot == boot and 0 <= time.time() - known.at < FRESH_SECONDS


def _kept(fs: host_files.HostFs, wanted: Asked) -> "record.SlotRecord | None":
    """Return what the host holds, or has asked for; raise SlotError where that is another slot than the wanted one."""
    known = record.load(fs)
    if known is None or wanted.slot is None or wanted.slot.kured:
        return known
    if (known.slot, known.group, known.host) != wanted[:3]:
        raise SlotError(f"another slot is asked for, and {known.sentence}: give that one back first")
    return known


def _forbidden(fs: host_files.HostFs, wanted: Asked) -> "SlotAnswer | None":
    """Return why the host may not be rebooted now, whoever gives a slot; None where it may."""
    now = time.time()
    if wanted.window is not None and wanted.window.opens_in(now):
        reason = f"its smt_reboot_window opens at {wanted.window.opens_at(now)}"
        return SlotAnswer(False, reason=reason, wait_seconds=wanted.window.opens_in(now), holds=record.pending(fs))
    try:
        if wanted.alerts is not None:
            alerts.ask(wanted.alerts)
    except exchange.RefusedError as error:
        return SlotAnswer(True, reason=str(error), holds=record.pending(fs))
    return None


def _hand_over(fs: host_files.HostFs, path: str) -> SlotAnswer:
    if fs.status(path) is not None:
        return SlotAnswer(False, handed_over=True)
    try:
        fs.write(path, "The boot arguments for SMT have changed (threadwise.smt).\n")
    except OSError as error:
        raise SlotError(f"{fs.path(path)} cannot be written: {error.strerror}") from error
    return SlotAnswer(True, handed_over=True)


def _ask(slot: Slot, endpoint: str, group: str, host: str) -> None:
    """Ask a server, or run a command; raise RefusedError where the answer is no yes."""
    if slot.fleetlock:
        fleetlock.ask(slot.fleetlock, endpoint, group, host)
        return
    argv = list(slot.acquire if endpoint == fleetlock.ACQUIRE else slot.release)
    try:
        done = commands.run(argv, COMMAND_SECONDS, "/", {}, is_shown=False)
    except commands.CommandError as error:
        raise exchange.RefusedError(str(error)) from None
    if done.status != 0:
        message = host_text.printable(
            " ".join(next((line for line in reversed(done.output) if line.strip()), "").split()), 300
        )
        how = f"status {done.status}" if done.status > 0 else f"signal {-done.status}"
        raise exchange.RefusedError(f"{argv[0]} ended with {how}{f': {message}' if message else ''}")


def _would_ask(wanted: Asked) -> str:
    """Say what would be asked, and of whom; empty where nobody would be."""
    slot, steps = wanted.slot, []
    if wanted.alerts is not None:
        steps.append(f"ask {wanted.alerts.prometheus} for alerts")
    if slot is not None and slot.kured:
        steps.append(f"write {slot.kured}, after which kured reboots it")
    elif slot is not None and slot.fleetlock:
        steps.append(f"ask for a slot of the group {wanted.group} at {slot.fleetlock}")
    elif slot is not None:
        steps.append(f"ask for a slot by {' '.join(slot.acquire)}")
    return f"would {' and '.join(steps)}"[:1000] if steps else ""


def _would_give(slot: Slot, group: str) -> str:
    if slot.fleetlock:
        return f"would give back a slot of the group {group} at {slot.fleetlock}"
    return f"would give back a slot by {' '.join(slot.release)}"[:1000]
