# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A boot with other arguments that the host ends by itself: it goes back to its own arguments, and boots, unless its controller asks for more time.

A systemd timer that is enabled for each boot starts a copy of this collection's code on the host, which undoes the arguments and reboots. The timer is there
before the arguments are set, so a host whose controller is lost at any moment, also while it boots, ends as it began.
"""

import contextlib
import inspect
import os
import shutil
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, processes, state_file

UNIT = "threadwise-smt-boot-visit"
PROGRAM = "var/lib/threadwise-smt/boot-visit"
# The boot in which the visit was asked for.
BEGUN = PROGRAM + "/boot_id"
_UNITS = "etc/systemd/system"
_COLLECTION = "ansible_collections.threadwise.smt."
_MODULE = _COLLECTION + "plugins.module_utils._boot_visit.visit"

SERVICE = """[Unit]
Description=Undo the boot arguments of an SMT trial, and reboot

[Service]
Type=oneshot
WorkingDirectory={program}
ExecStart={python} -m {module} {sysroot}
"""
# systemd.timer(5): OnActiveSec counts from the start of the timer, which is its restart by a check, or the boot.
TIMER = """[Unit]
Description=Until the boot arguments of an SMT trial are undone

[Timer]
OnActiveSec={seconds}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


class VisitError(Exception):
    """The host cannot be booted into other arguments for a while. Nothing was changed."""


def begin(fs: host_files.HostFs, request: change.Request, seconds: int) -> change.Result:
    """Set boot arguments, and start the timer that undoes them.

    Args:
        fs: the files of the running system.
        request: the arguments.
        seconds: of the timer.

    Returns:
        What setting them changed.

    Raises:
        VisitError: the host has arguments of its own, or no systemd.
        BootLoaderError and the others of ``change.ERRORS``: the arguments cannot be set.
    """
    obstacle = why_not(fs)
    if obstacle is not None:
        raise VisitError(obstacle)
    # A copy: Ansible removes its own when a module ends.
    for name, module in sorted(sys.modules.items()):
        if name.startswith(_COLLECTION) and getattr(module, "__file__", None) and not hasattr(module, "__path__"):
            fs.write(f"{PROGRAM}/{name.replace('.', '/')}.py", inspect.getsource(module))
    _make_packages(fs)
    fs.write(BEGUN, state_file.boot_id(fs))
    words = {"program": fs.path(PROGRAM), "python": sys.executable, "module": _MODULE, "sysroot": fs.sysroot, "seconds": seconds}
    fs.write(f"{_UNITS}/{UNIT}.service", SERVICE.format(**words))
    fs.write(f"{_UNITS}/{UNIT}.timer", TIMER.format(**words))
    try:
        for command in (["daemon-reload"], ["enable", f"{UNIT}.timer"], ["start", f"{UNIT}.timer"]):
            status, _out, message = processes.run(["systemctl", *command])
            if status != 0:
                raise VisitError(f"systemctl {' '.join(command)} failed with status {status}: {message.strip()[:500]}")
        return change.run(fs, request)
    except (VisitError, *change.ERRORS):
        _forget(fs)
        raise


def why_not(fs: host_files.HostFs) -> "str | None":
    """Return why the host cannot be booted into other arguments for a while, None where it can."""
    if not fs.runs_systemd:
        return "systemd does not run on this host, and its timer is what would bring the host back"
    # Without its timer, which runs before any argument is set, the file is what a call left that was killed: the next one replaces it.
    if fs.status(BEGUN) is not None and processes.run(["systemctl", "is-active", "--quiet", f"{UNIT}.timer"])[0] == 0:
        return f"another trial has set its boot arguments: wait until {UNIT}.timer has undone them"
    found = change.run(fs, change.Request("enabled", None, False, True))
    # Only what this collection sets can be removed without a trace.
    if found["changed"] or found["configured_before"] or found["differences"]:
        more = found["differences"] or [f"configured are {' '.join(found['configured_before'])}"]
        return f"it does not boot with SMT on and without arguments for it: {'; '.join(more)}"
    return None


def end(fs: host_files.HostFs) -> None:
    """Undo the arguments, and reboot where the host was booted with them."""
    if fs.status(BEGUN) is None:
        return
    is_booted = fs.read(BEGUN) != state_file.boot_id(fs)
    change.run(fs, change.Request("enabled", None, False, False))
    _forget(fs)
    if is_booted:
        processes.run(["systemctl", "reboot"])


def _forget(fs: host_files.HostFs) -> None:
    processes.run(["systemctl", "disable", f"{UNIT}.timer"])
    processes.run(["systemctl", "stop", f"{UNIT}.timer"])
    for suffix in ("timer", "service"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fs.path(f"{_UNITS}/{UNIT}.{suffix}"))
    processes.run(["systemctl", "daemon-reload"])
    shutil.rmtree(fs.path(PROGRAM), ignore_errors=True)


def _make_packages(fs: host_files.HostFs) -> None:
    """Make each folder of the copy a package: a host may have another ansible_collections, which a folder without __init__.py would not come before."""
    top = fs.path(PROGRAM)
    for folder, _folders, _files in os.walk(top):
        if folder != top:
            fs.write(f"{PROGRAM}/{os.path.relpath(folder, top)}/__init__.py", "")


def main(sysroot: str) -> None:
    """What the timer's service runs."""
    end(host_files.HostFs(sysroot))


if __name__ == "__main__":
    main(sys.argv[1])
