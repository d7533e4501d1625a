# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Siblings offline, and the host as it was: whether it is, in each CPU, mask, cpuset and interrupt, and how long
both took.

The rollback timer brings the host back where this process dies between the two.
"""

import errno
import re
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files, kernel_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity, bindings, cpusets, tasks
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change,
    frame as smt_frame,
    restore as smt_restore,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    timer as rollback_timer,
)

# The timer of the change: switching hundreds of cores takes a minute.
ROLLBACK_SECONDS = 300
# Older kernels give cpusets their CPUs back some time after these are online (cpuset_hotplug_workfn in
# kernel/cgroup/cpuset.c).
CPUSET_SECONDS = 3.0
# What differs that is written out, of each kind.
MAX_NAMED = 20
# No kernel has refused a CPU where its files cannot be written.
_NOT_WRITABLE = (errno.EROFS, errno.EACCES)

Run = t.Callable[..., "tuple[int, str, str]"]


class Picture(t.NamedTuple):
    """What a switch can change.

    Attributes:
        seconds: since the boot when it was taken, as far as that is known.
        state: the state of the CPUs.
        masks: (thread, its start) -> CPU list, of threads that may not run on all CPUs, or could not before.
        cpusets: path -> what it has, of each, whether it binds or not: a switch can make it narrower.
        interrupts: number -> CPU list, likewise; None where irqbalance runs, which moves them whenever it likes.
    """

    seconds: float
    state: smt_state.State
    masks: "dict[tuple[int, str], str]"
    cpusets: "dict[str, str]"
    interrupts: "dict[str, str] | None"


def picture(host: kernel_files.KernelFiles, known: "t.Iterable[tuple[int, str]]" = ()) -> Picture:
    """Return what a switch can change, as it is now.

    Args:
        host: its files.
        known: threads whose masks are read whatever they are, as (thread, its start); those that have ended are left
            out.
    """
    state = smt_state.read(files=host)
    online = frozenset(state["online"])
    masks = {(task.pid, task.start): task.mask for task in tasks.restricted(host, online)}
    for key in known:
        mask = masks.get(key) or tasks.current_mask(host, *key)
        if mask is not None:
            masks[key] = mask
    return Picture(
        _since_boot(host),
        state,
        {key: cpulist.render(mask) for key, mask in masks.items()},
        cpusets.shown(host),
        None
        if tasks.runs_as_root(host, "irqbalance")
        else {number: cpulist.render(cpus) for number, cpus in bindings.all_interrupts(host)},
    )


def _since_boot(host: kernel_files.KernelFiles) -> float:
    """Return the seconds since the boot (proc(5), /proc/uptime)."""
    match = re.match(r"[0-9]+(\.[0-9]+)?", host.read("proc/uptime") or "")
    return float(match.group()) if match else 0.0


def differences(before: Picture, after: Picture, ticks_a_second: int) -> "dict[str, list[str]]":
    """Return what is not as it was, by kind; without the kinds that were not compared.

    What has ended since or has begun since is left out.

    Args:
        before: the switches.
        after: them.
        ticks_a_second: of the start of threads.
    """
    existed = {key for key in after.masks if key in before.masks or int(key[1]) / ticks_a_second < before.seconds}
    changed = {
        "cpus": smt_state.differences(before.state, after.state),
        "masks": [
            f"thread {key[0]} may run on {mask}, before on {before.masks.get(key, 'all CPUs')}"
            for key, mask in sorted(after.masks.items())
            if key in existed and before.masks.get(key) != mask
        ][:MAX_NAMED],
        "cpusets": [
            f"/{path} has {after.cpusets[path]} (before: {had})"
            for path, had in sorted(before.cpusets.items())
            if after.cpusets.get(path, had) != had
        ][:MAX_NAMED],
    }
    if before.interrupts is not None and after.interrupts is not None:
        changed["interrupts"] = [
            f"interrupt {number} is on {after.interrupts[number]}, before on {had}"
            for number, had in sorted(before.interrupts.items())
            if after.interrupts.get(number, had) != had
        ][:MAX_NAMED]
    return changed


class Switched(t.NamedTuple):
    """How switching went.

    Attributes:
        refused: why nothing was switched, or nothing that stayed; None where it was.
        failed: whether that is because the kernel did not do it, and not because it could not or should not be tried.
        conflicts: number of affinity conflicts that refused it.
        seconds_off: how long taking siblings offline took; None where it did not happen.
        seconds_back: how long bringing it back took; the same.
        cpus: CPU list of those that went offline.
        different: what is not as it was, from :func:`differences`; empty where nothing was compared.
        not_restored: what smt_state says it could not restore.
    """

    refused: "str | None"
    failed: bool = False
    conflicts: int = 0
    seconds_off: "float | None" = None
    seconds_back: "float | None" = None
    cpus: str = ""
    different: "t.Mapping[str, list[str]]" = types.MappingProxyType({})
    not_restored: "t.Sequence[str]" = ()


def there_and_back(run: Run, ticks_a_second: int, check: bool, sysroot: str = "/") -> Switched:
    """Take the siblings offline and bring the host back. The affinity conflicts of services refuse it.

    Args:
        run: runs a command, as ``AnsibleModule.run_command`` does.
        ticks_a_second: of the start of threads in /proc.
        check: only say whether it would be refused.
        sysroot: of the host.
    """
    host, fs = kernel_files.KernelFiles(sysroot), files.HostFs(sysroot)
    if pending_rollback.load(fs) is not None:
        return Switched(
            "a change waits for its confirmation, which this would give: confirm it, or wait for its rollback"
        )
    asked = change.Request(change.DISABLED, rollback_after=ROLLBACK_SECONDS)
    try:
        # Without online siblings there is nothing to try, and a change would still switch the control.
        expected = change.RuntimeChange(asked._replace(check=True), run, sysroot).run()
        going = _online(expected["before"]) - _online(expected["after"])
        if check or not going:
            return Switched(None if going else "no sibling is online", cpus=cpulist.render(going))
    except HostError as error:
        return _not_tried(error)
    # What is to be the same afterwards: in any form, also one that an earlier change has left.
    was = smt_frame.present(host, fs)
    before = picture(host)
    try:
        _off, seconds_off = _timed(asked, run, sysroot)
    except HostError as error:
        is_changed = bool(smt_state.differences(before.state, smt_state.read(files=host)))
        if is_changed or (isinstance(error, smt_state.StateError) and not _was_not_writable(error)):
            return Switched(str(error), failed=True)
        return _not_tried(error)
    back = change.Request(change.PREVIOUS, frame=was)
    begun = time.monotonic()
    # The timer still runs, and does it where this process dies.
    try:
        not_restored = _timed(back, run, sysroot)[0]["not_restored"]
        seconds_back = round(time.monotonic() - begun, 3)
        _timed(back._replace(confirm=True), run, sysroot)
    except HostError as error:
        # A request brings back all or nothing. What can come back does now, and the timer goes on with the rest.
        not_restored = _restored_as_far_as_it_goes(host, fs) or [str(error)]
        seconds_back = round(time.monotonic() - begun, 3)
    return Switched(
        None,
        seconds_off=seconds_off,
        seconds_back=seconds_back,
        cpus=cpulist.render(going),
        different=_lasting_differences(host, before, ticks_a_second),
        not_restored=smt_restore.left(not_restored),
    )


def _not_tried(error: HostError) -> Switched:
    """Return why nothing was tried, with a way out that whoever calls a proof has."""
    if isinstance(error, change.ChangeRefusedError) and error.findings:
        count, shown = len(error.findings), error.findings[: affinity.MAX_LINES]
        more = f"; and {count - len(shown)} more" if count > len(shown) else ""
        return Switched(
            f"{count} affinity conflict(s). Move what is bound to these CPUs, and try again: {'; '.join(shown)}{more}",
            conflicts=count,
        )
    if isinstance(error, rollback_timer.NoSystemdError):
        return Switched(
            "its rollback timer needs systemd (systemd-run), which does not run on this host. Try it with smt_state,"
            " which can do without (docs/runtime.md)"
        )
    if isinstance(error, (change.ChangeRefusedError, locks.HostLockError)):
        return Switched(str(error))
    return Switched(f"{error}. Mend that and try again, or leave the switch out (smt_proof_switch=false)")


def _was_not_writable(error: "BaseException | None") -> bool:
    """Return whether an error comes from files that cannot be written, as in a container."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
            return True
        error = error.__cause__ or error.__context__
    return False


def _lasting_differences(
    host: kernel_files.KernelFiles, before: Picture, ticks_a_second: int
) -> "dict[str, list[str]]":
    """Return what is not as it was, also some time later where it is a cpuset."""
    end = time.monotonic() + CPUSET_SECONDS
    while True:
        changed = differences(before, picture(host, before.masks), ticks_a_second)
        if not changed["cpusets"] or time.monotonic() >= end:
            return changed
        time.sleep(0.1)


def _restored_as_far_as_it_goes(host: kernel_files.KernelFiles, fs: files.HostFs) -> "list[str]":
    with locks.HostLock(fs.sysroot, "a proof that brings siblings back", locks.CHANGE_SECONDS):
        pending = pending_rollback.load(fs)
        return [] if pending is None else smt_restore.restore(host, pending)


def _online(shown: change.ShownState) -> "set[int]":
    return set(cpulist.parse_or_empty(shown["online"]))


def _timed(request: change.Request, run: Run, sysroot: str) -> "tuple[change.Result, float]":
    begun = time.monotonic()
    result = change.RuntimeChange(request, run, sysroot).run()
    return result, round(time.monotonic() - begun, 3)
