# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd service that brings a host back from its visit, and the program that it runs."""

import contextlib
import shutil

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files, processes
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident.service import START_SECONDS
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit.record import PROGRAM, UNIT

_FILE = f"etc/systemd/system/{UNIT}.service"
ARCHIVE = PROGRAM + "/program.pyz"
# It does not end with the first attempt to shut down, which may be cancelled: systemd ends it with the last processes.
# An exit status of 0 says that the host is back; all else starts it again.
SERVICE = """[Unit]
Description=Undo boot arguments that threadwise.smt has set for a while, and reboot
DefaultDependencies=no
After=sysinit.target local-fs.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
WorkingDirectory={program}
ExecStart={command}
ExecReload=/bin/sh -c "kill -HUP $MAINPID"
Restart=always
RestartSec=30
RestartPreventExitStatus=0
TimeoutStartSec={seconds}
OOMScoreAdjust=-1000

[Install]
WantedBy=basic.target
"""


class UnitError(boot_arguments.BootError):
    """systemd does not do what it is asked for; the message has the command and its error."""


def install(fs: host_files.HostFs, module: str) -> None:
    """Leave the program and its service on a host.

    Args:
        fs: the files of the running system.
        module: the name of the module that the service runs.

    Raises:
        OSError: a file cannot be written.
    """
    archive.install(fs, ARCHIVE, module)
    command = " ".join(map(_quoted, archive.command(fs, ARCHIVE)))
    fs.write(_FILE, SERVICE.format(program=fs.path(PROGRAM).replace("%", "%%"), command=command, seconds=START_SECONDS))


def start() -> None:
    """Start the service for this boot and each later one, and wait until it has loaded what it needs;
    raises UnitError.
    """
    for command in (["daemon-reload"], ["enable", f"{UNIT}.service"], ["restart", f"{UNIT}.service"]):
        _systemctl(command)


def renew() -> None:
    """Start its time anew; raises UnitError where it does not run."""
    _systemctl(["reload", f"{UNIT}.service"])


def is_active() -> bool:
    """Return whether it runs, or is about to."""
    return processes.run(["systemctl", "is-active", f"{UNIT}.service"])[1].strip() in (
        "active",
        "activating",
        "reloading",
    )


def status_text() -> str:
    """Return what it said last, also on a full disk; empty where it said nothing."""
    return processes.run(["systemctl", "show", "--property=StatusText", f"{UNIT}.service"])[1].partition("=")[2].strip()


def forget(fs: host_files.HostFs, stops: bool) -> None:
    """Remove the service and its program.

    Args:
        fs: the files of the running system.
        stops: whether it is stopped; it cannot stop itself half way.
    """
    processes.run(["systemctl", "disable", f"{UNIT}.service"])
    if stops:
        processes.run(["systemctl", "stop", f"{UNIT}.service"])
    with contextlib.suppress(FileNotFoundError):
        durable.unlink(fs.path(_FILE))
    processes.run(["systemctl", "daemon-reload"])
    shutil.rmtree(fs.path(PROGRAM), ignore_errors=True)


def _systemctl(command: "list[str]") -> None:
    status, _out, message = processes.run(["systemctl", *command], START_SECONDS + processes.COMMAND_SECONDS)
    if status != 0:
        raise UnitError(f"systemctl {' '.join(command)} failed with status {status}: {' '.join(message.split())[:500]}")


def _quoted(word: str) -> str:
    """Return a word of a command as systemd reads it (systemd.service(5), "Command lines"): without specifiers,
    variables and escapes.
    """
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(character, written)
    return f'"{word}"'
