# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A boot with other arguments that the host ends by itself: it goes back to its own arguments, and boots,
unless its controller asks for more time.

A service that is enabled for each boot runs a copy of this collection's code. It is there before the arguments are set,
so a host whose controller is lost at any moment, also while it boots, ends as it began; and it is there until the host
was seen without the arguments.
"""

import contextlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments, change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import program, record, steps, units

_NO_REBOOT = "compare arms that take no reboot"


class VisitError(boot_arguments.BootError):
    """The host cannot be booted into other arguments for a while. Nothing was changed."""


class Ended(t.NamedTuple):
    """How far the end of a visit is.

    Attributes:
        changed: whether anything was changed, or would be.
        reboot_required: whether the running kernel still has the arguments.
    """

    changed: bool
    reboot_required: bool


def begin(
    fs: host_files.HostFs,
    request: change.Request,
    seconds: int,
    owner: str,
    slot: "dict[str, t.Any] | None" = None,
) -> change.Result:
    """Set boot arguments, and start what undoes them. Who has begun a visit may go on with other arguments.

    Args:
        fs: the files of the running system.
        request: the arguments.
        seconds: after so many without a sign of the controller the host goes back.
        owner: who asks for it, as part of a sentence.
        slot: whom the host asks before it reboots by itself, as options of smt_slot; None for nobody.

    Returns:
        What setting them changed.

    Raises:
        VisitError: the host has arguments of its own, or no systemd, or another visit.
        BootLoaderError and the others of ``change.ERRORS``: the arguments cannot be set.
    """
    obstacle = why_not(fs, owner)
    if obstacle is not None:
        raise VisitError(obstacle)
    planned = change.run(fs, request._replace(check=True))
    new = [argument for argument in planned["arguments"] if argument not in planned["mitigations_running"]]
    visit = record.load(fs)
    goes_on = visit is not None and units.is_active()
    arguments = {*(visit.arguments if visit is not None and goes_on else ()), *new}
    try:
        if not goes_on:
            units.install(fs, program.__name__)
        record.save(fs, record.Visit(owner, seconds, tuple(sorted(arguments)), slot=slot))
        (units.renew if goes_on else units.start)()
        return change.run(fs, request)
    except (units.UnitError, OSError) as error:
        _give_up(fs, goes_on)
        raise VisitError(str(error)) from error
    except change.ERRORS:
        _give_up(fs, goes_on)
        raise


def _give_up(fs: host_files.HostFs, goes_on: bool) -> None:
    """Remove what was to bring the host back from arguments that it did not get. One that goes on may have others."""
    if not goes_on:
        units.forget(fs, stops=True)


def why_not(fs: host_files.HostFs, owner: str) -> "str | None":
    """Return why the host cannot be booted into other arguments for a while, None where it can.

    Args:
        fs: the files of the running system.
        owner: who asks for it.
    """
    if not fs.runs_systemd:
        return (
            "systemd does not run on this host, and a service of it is what would bring the host back when its"
            f" controller is lost: {_NO_REBOOT}"
        )
    visit = record.load(fs)
    # Without its service, which runs before any argument is set, the record is what a call left that was killed: the
    # next one replaces it.
    if visit is not None and units.is_active():
        if visit.owner == owner and not visit.is_ending:
            return None
        status = host_text.printable(units.status_text(), 500)
        return (
            f"{host_text.printable(visit.owner, 200)} has set its boot arguments, and they are not undone"
            f" yet{f' ({status})' if status else ''}: wait until {record.UNIT}.service has undone them, or let it by"
            f" {record.UNDO_NOW}"
        )
    own = change.run(fs, change.Request("enabled", None, False, True))
    # Only what this collection sets can be removed without a trace.
    if own["changed"] or own["configured_before"] or own["differences"]:
        more = own["differences"] or [f"configured are {' '.join(own['configured_before'])}"]
        return (
            f"it does not boot with SMT on and without arguments for it: {'; '.join(more)}. Set smt_boot_smt=enabled"
            f" with the role smt_boot, or {_NO_REBOOT}"
        )
    return None


def end(fs: host_files.HostFs, check: bool) -> Ended:
    """Undo the arguments of a visit; remove what brings the host back where it is back.

    Args:
        fs: the files of the running system.
        check: change nothing.

    Raises:
        BootLoaderError and the others of ``change.ERRORS``: the arguments cannot be undone; the host goes on trying.
    """
    visit = record.load(fs)
    if visit is None:
        return Ended(False, False)
    seen = steps.look(fs, visit)
    if check:
        return Ended(True, bool(seen.running))
    if seen.is_configured:
        steps.undo(fs)
        seen = steps.look(fs, visit)
    if steps.next_step(seen, 0) is steps.Step.FORGET:
        units.forget(fs, stops=True)
        return Ended(True, False)
    # The boot that follows need not wait for its time; where this cannot be written it does.
    with contextlib.suppress(OSError, units.UnitError):
        record.save(fs, visit._replace(is_ending=True))
        units.renew()
    return Ended(True, True)
