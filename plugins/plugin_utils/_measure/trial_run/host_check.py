# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial runs on a host beside modules: one short shell command a check,
and the one that restores the host at once.

The rollback timer of smt_state is what brings a host back whose controller is lost: each check starts its time anew by
a signal to its service, which another signal makes act before its time. A host that was booted into its arm has a
service of the same kind.
"""

from __future__ import annotations

import base64
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record as boot_visit
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback.timer import UNIT
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

# The longest answer to a check, and to one command in it.
MAX_CHARACTERS = 64 * 1024
MAX_OF_ONE = 16 * 1024
# A command of a check that takes longer is ended (timeout(1)).
COMMAND_SECONDS = 10
_ONLINE = "cat /sys/devices/system/cpu/online"
# What starts the time anew of what brings a host back. One that is not there stays so.
RENEW = f"systemctl kill --kill-who=main --signal=HUP {UNIT} >/dev/null 2>&1"


class CheckError(text.BorderError):
    """A host's answer to a check is not valid."""


class Checked(t.NamedTuple):
    """The host at a check.

    Attributes:
        online: the numbers of its online CPUs, sorted.
        is_armed: whether what brings the host back was running, and its time has started anew.
        printed: what each command of the check printed, in their order; empty where it failed or took too long.
    """

    online: tuple[int, ...]
    is_armed: bool
    printed: tuple[str, ...]


def check(commands: t.Sequence[t.Sequence[str]] = (), renew: str = RENEW) -> str:
    """Return the shell command of a check.

    Args:
        commands: argv of each command that prints a metric of the host.
        renew: the shell command that starts the time anew of what brings the host back.
    """
    lines = [_ONLINE, f"{renew}; echo $?"]
    # Encoded, one line each: nothing that a command prints can be taken for another line of the answer.
    lines += [
        f"timeout {COMMAND_SECONDS} {shlex.join(argv)} 2>/dev/null | head -c {MAX_OF_ONE} | base64 -w0; echo"
        for argv in commands
    ]
    return "; ".join(lines)


def most_characters(commands: int) -> int:
    """Return the length of the longest answer to a check with so many commands."""
    return MAX_CHARACTERS + commands * 2 * MAX_OF_ONE


def parse(printed: object, commands: int) -> Checked:
    """Return what a check found.

    Args:
        printed: the answer to ``check``.
        commands: how many commands it had.

    Raises:
        CheckError: it is not valid.
    """
    lines = str(printed)[: most_characters(commands)].splitlines()
    if len(lines) < 2 + commands:
        raise CheckError(f"its answer has {len(lines)} lines instead of {2 + commands}: {text.line(lines, 200)}")
    online = parse_online(lines[0])
    try:
        outputs = tuple(
            base64.b64decode(line, validate=True).decode("utf-8", errors="replace") for line in lines[2 : 2 + commands]
        )
    except ValueError as error:
        raise CheckError(f"what its commands printed cannot be read: {text.line(error, 200)}") from error
    return Checked(online, lines[1].strip() == "0", outputs)


def restore() -> str:
    """Return the shell command that has the pending rollback done at once, waits for its end,
    and prints the online CPUs.
    """
    return (
        f"systemctl kill --kill-who=main --signal=USR1 {UNIT} >/dev/null 2>&1; "
        f"for turn in $(seq 300); do systemctl is-active --quiet {UNIT} || break; sleep 0.1; done; {_ONLINE}"
    )


def pending() -> str:
    """Return the shell command that succeeds while something runs that brings the host back, of another change,
    of a trial or of an evaluation.

    It prints what that said last, where it said something.
    """
    # systemctl(1): is-active succeeds if at least one of the units is active.
    return (
        f"systemctl is-active --quiet {UNIT} {boot_visit.UNIT}.service && systemctl show --property=StatusText --value"
        f" {boot_visit.UNIT}.service"
    )


def parse_online(printed: object) -> tuple[int, ...]:
    """Return the numbers of the online CPUs from what ``restore`` or the first line of ``check`` prints.

    Raises:
        CheckError: it is not a CPU list.
    """
    lines = str(printed)[:MAX_CHARACTERS].strip().splitlines()
    try:
        return tuple(cpulist.parse(lines[0].strip() if lines else ""))
    except ValueError as error:
        raise CheckError(f"the list of online CPUs cannot be read: {text.line(error, 200)}") from error
