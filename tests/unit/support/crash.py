# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that is killed just before its N-th change of the file system, for each N; and what it changed,
system call by system call.

The kernel stops the program at each of its system calls (ptrace(2)), so it does not matter by which of Python's ways it
writes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import sys

import pytest

PTRACE_TRACEME, PTRACE_SYSCALL, PTRACE_SETOPTIONS, PTRACE_GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
PTRACE_O_TRACESYSGOOD, PTRACE_O_EXITKILL = 1, 1 << 20
ENTRY = 1
# Numbers of the system calls that change a file system, or have it on the disk, as the C libraries of both call them.
NUMBERS = {
    "x86_64": {
        1: "write",
        18: "pwrite64",
        20: "writev",
        74: "fsync",
        75: "fdatasync",
        76: "truncate",
        77: "ftruncate",
        2: "open",
        257: "openat",
        82: "rename",
        264: "renameat",
        316: "renameat2",
        83: "mkdir",
        258: "mkdirat",
        84: "rmdir",
        87: "unlink",
        263: "unlinkat",
        88: "symlink",
        266: "symlinkat",
        86: "link",
        265: "linkat",
        90: "chmod",
        91: "fchmod",
        268: "fchmodat",
        92: "chown",
        93: "fchown",
        260: "fchownat",
    },
    "aarch64": {
        64: "write",
        68: "pwrite64",
        66: "writev",
        82: "fsync",
        83: "fdatasync",
        45: "truncate",
        46: "ftruncate",
        56: "openat",
        38: "renameat",
        276: "renameat2",
        34: "mkdirat",
        35: "unlinkat",
        36: "symlinkat",
        37: "linkat",
        52: "fchmod",
        53: "fchmodat",
        55: "fchown",
        54: "fchownat",
    },
}.get(platform.machine(), {})
RENAMES = ("rename", "renameat", "renameat2")
WRITES = ("write", "pwrite64", "writev")


class _Info(ctypes.Structure):
    """struct ptrace_syscall_info at the entry of a system call (linux/ptrace.h, Linux 5.3)."""

    _fields_ = [
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("ip", ctypes.c_uint64),
        ("sp", ctypes.c_uint64),
        ("nr", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
    ]


def _ptrace(request, pid, address=0, data=0):
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if call(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def changes(work, last=None):
    """Run a function in a process of its own and list what it changes.

    Args:
        work: ``callable()``.
        last: the number of the change, from 1, before which it is killed; None lets it come to its end.

    Returns:
        A pair: the changes, each the name of a system call, for ``fsync`` with what is flushed (``fsync directory``,
        ``fsync file``); whether it was killed.
    """
    pid = os.fork()
    if pid == 0:
        _traced(work)
    seen = []
    _wait(pid)
    _ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
    number = 0
    while True:
        _ptrace(PTRACE_SYSCALL, pid, 0, number)
        status = _wait(pid)
        if not os.WIFSTOPPED(status):
            assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, (
                "the program failed; its traceback is on standard error"
            )
            return seen, False
        number = 0 if os.WSTOPSIG(status) & 0x7F == signal.SIGTRAP else os.WSTOPSIG(status)
        change = _change(pid) if os.WSTOPSIG(status) == signal.SIGTRAP | 0x80 else None
        if change and len(seen) + 1 == last:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return seen, True
        if change:
            seen.append(change)


def _traced(work):
    """In the child. Never returns."""
    status = 1
    try:
        _ptrace(PTRACE_TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _wait(pid):
    return os.waitpid(pid, 0)[1]


def _change(pid):
    info = _Info()
    _ptrace(PTRACE_GET_SYSCALL_INFO, pid, ctypes.sizeof(info), ctypes.addressof(info))
    name = NUMBERS.get(info.nr) if info.op == ENTRY else None
    if name in ("open", "openat"):
        flags = info.args[1 if name == "open" else 2]
        return name if flags & (os.O_CREAT | os.O_TRUNC) else None
    if name in WRITES and info.args[0] <= 2:
        return None
    if name in ("fsync", "fdatasync"):
        return name + (" directory" if os.path.isdir(f"/proc/{pid}/fd/{info.args[0]}") else " file")
    return name


def killed_at_each(prepare, work, check):
    """Kill a program before each of its changes, one after the other.

    Args:
        prepare: called before each, makes what it works on as it is to be at the beginning.
        work: what is killed.
        check: called with (the number of the change, whether it was killed) after each.

    Returns:
        How many changes the program makes (int).
    """
    last = 0
    while True:
        last += 1
        prepare()
        killed = changes(work, last)[1]
        check(last, killed)
        if not killed:
            return last - 1


def assert_durable(work):
    """Hold each rename of a program against what makes it last: its file flushed before, its directory afterwards."""
    seen, _killed = changes(work)
    renames = [place for place, change in enumerate(seen) if change in RENAMES]
    assert renames, seen
    for place in renames:
        following = seen[place + 1 : place + 2]
        assert following == ["fsync directory"], f"{seen}: a rename that a power cut may undo"
    return seen


def can_trace():
    """Whether this kernel lets a process trace its child, and its system calls are known here."""
    try:
        return bool(NUMBERS) and changes(lambda: os.mkdir("/proc/none") if os.path.exists("/proc/none") else None) == (
            [],
            False,
        )
    except OSError:
        return False


needs_trace = pytest.mark.skipif(
    not can_trace(), reason="this kernel does not let a process trace another one's system calls"
)


def fresh(folder, template):
    """Make a folder the copy of another one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
