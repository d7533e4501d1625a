# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out the steps of orders on the guest itself, each in a process of its own.

usage: ordered.pyz      packed by ../../resources/pack.py; a line of JSON in for each step, one out

A step is ``["seen"]``, ``["frame"]``, ``["wipe"]``, or ``["ask", REQUEST, FAULT]``. A fault, ``[KIND, N]``, comes
before the n-th change of a file, or of the kernel: the process is killed by SIGKILL, or there is no room from then on,
also not for its watchdog.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import mmap
import os
import signal
import subprocess
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    frame as smt_frame,
    snapshot as smt_snapshot,
    state as smt_state,
    watchdog,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import pending as pending_rollback

STATE = "/var/lib/threadwise-smt"
CPUS = "/sys/devices/system/cpu"
LOCK = "/run/threadwise-smt/lock"
OF_KERNEL = ("/sys/", "/proc/", "/dev/")
# Audit events (PEP 578) of what changes files, and whether it takes room on a disk.
CHANGES = {
    "os.link": True,
    "os.symlink": True,
    "os.mkdir": True,
    "os.rename": False,
    "os.remove": False,
    "os.rmdir": False,
}
# What the processes of one step share: whether the disk is full, and whether the watchdog is disarmed: all is done.
FULL, DONE = 0, 1
shared = mmap.mmap(-1, 2)


class Fault:
    """A hook for audit events that lets a fault come before a change."""

    def __init__(self, kind: str, left: int) -> None:
        self.kind, self.left, self.pid = kind, left, os.getpid()

    def __call__(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _mode, flags = arguments
            if not isinstance(path, str) or not flags & (os.O_WRONLY | os.O_RDWR):
                return
            takes_room = bool(flags & os.O_CREAT) and not path.startswith(OF_KERNEL)
        elif event in CHANGES:
            takes_room = CHANGES[event]
        else:
            return
        if os.getpid() == self.pid:
            self.left -= 1
            if self.left < 0 and self.kind == "killed":
                os.kill(self.pid, signal.SIGKILL)
            shared[FULL] = self.left < 0
        if shared[FULL] and takes_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))


def seen() -> dict:
    """Return what the host shows."""
    fs = host_files.HostFs("/")
    return {
        "cpu": smt_state.read(files=kernel_files.KernelFiles("/")),
        "files": {
            path: fs.read(path) if ".wants" not in path else fs.status(path) is not None for path in persistence.PATHS
        },
        "saved": smt_snapshot.load(fs, persistence.is_kept(fs)),
        "pending": pending_rollback.load(fs),
        "left": [os.path.basename(path) for path in glob.glob(f"{STATE}/[!.]*")],
        "half": [*glob.glob(f"{STATE}/.*"), *glob.glob("/etc/tmpfiles.d/.*"), *glob.glob("/etc/systemd/system/.*")],
    }


def ask(request: dict, fault: list | None) -> dict:
    """Carry out a request."""

    class NotedWatchdog(watchdog.Watchdog):
        def disarm(self) -> None:
            super().disarm()
            shared[DONE] = True

    def run_command(command: list) -> tuple:
        if fault and fault[0] == "no systemd-run" and command[0] == "systemd-run":
            return 1, "", "refused"
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    smt_change.watchdog.Watchdog = NotedWatchdog
    change = smt_change.RuntimeChange(
        smt_change.Request(**{"state": None, "affinity_conflicts": "warn", **request}), run_command
    )
    if fault and fault[0] in ("killed", "full"):
        sys.addaudithook(Fault(*fault))
    try:
        return {"result": change.run()}
    except HostError as error:
        return {"refused": str(error)}


def wipe() -> dict:
    """Leave nothing of any order."""
    subprocess.run(["systemctl", "stop", "threadwise-smt-rollback.service"], stderr=subprocess.DEVNULL, check=False)
    for path in [*glob.glob(f"{STATE}/*"), *glob.glob(f"{STATE}/.*"), *(f"/{path}" for path in persistence.PATHS)]:
        with contextlib.suppress(OSError):
            os.remove(path)
    for path, text in [(f"{CPUS}/smt/control", "on"), *((f"{CPUS}/cpu{cpu}/online", "1") for cpu in range(1, 8))]:
        with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as handle:
            handle.write(text)
    return seen()


ACTIONS = {
    "seen": seen,
    "wipe": wipe,
    "frame": lambda: smt_frame.present(kernel_files.KernelFiles("/"), host_files.HostFs("/")),
    "ask": ask,
}


def wait_for_watchdog() -> None:
    """Wait until nobody has the host's lock."""
    with contextlib.suppress(FileNotFoundError), open(LOCK, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


for line in sys.stdin:
    action, *arguments = json.loads(line)
    shared[FULL] = shared[DONE] = False
    step = os.fork()
    if step == 0:
        os.write(1, (json.dumps(ACTIONS[action](*arguments)) + "\n").encode())
        os._exit(0)
    status = os.waitpid(step, 0)[1]
    wait_for_watchdog()
    if status:
        print(json.dumps({"ended_by": os.WTERMSIG(status), "was_done": bool(shared[DONE])}), flush=True)
