# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done next so that a host is without the boot arguments of its visit: pure rules,
and the reading that they decide about.
"""

import enum
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    change,
    mitigations as boot_mitigations,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit.record import Visit

# A host that still has the arguments after so many reboots boots something else than its boot loader's entries: another
# reboot would not help.
MAX_REBOOTS = 3

_OWN = change.Request("enabled", None, False, False)


class Seen(t.NamedTuple):
    """The boot arguments of a host as they are read.

    Attributes:
        is_configured: whether its next boot would have other arguments than its own.
        running: the arguments of the running kernel that are not the host's own.
    """

    is_configured: bool
    running: "tuple[str, ...]"


class Step(enum.Enum):
    """What is to be done next."""

    UNDO = "undo the arguments in the boot configuration"
    REBOOT = "reboot"
    STAY = "say that reboots do not help"
    FORGET = "remove what brings the host back, because it is back"


def next_step(seen: Seen, reboots: int) -> Step:
    """Return what is to be done next.

    The host is back when neither its configuration nor its kernel has the arguments, and not before.

    Args:
        seen: of the host, now.
        reboots: boots in which it was rebooted to be without the arguments.
    """
    if seen.is_configured:
        return Step.UNDO
    if not seen.running:
        return Step.FORGET
    return Step.REBOOT if reboots < MAX_REBOOTS else Step.STAY


def look(fs: host_files.HostFs, visit: Visit) -> Seen:
    """Read the boot arguments of a host; raises the errors of ``change.ERRORS``."""
    planned = change.run(fs, _OWN._replace(check=True))
    running = boot_arguments.smt_arguments(planned["running"])
    running += [
        argument
        for argument in planned["mitigations_running"]
        if argument in visit.arguments and argument not in running
    ]
    # The record of mitigations= that are ours goes last, when they are undone.
    return Seen(planned["changed"] or fs.status(boot_mitigations.RECORD.path) is not None, tuple(running))


def undo(fs: host_files.HostFs) -> None:
    """Remove the arguments from the boot configuration; raises the errors of ``change.ERRORS``."""
    change.run(fs, _OWN)
