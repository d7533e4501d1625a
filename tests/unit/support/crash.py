# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that is killed just before its N-th change of the file system, for each N."""

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
_NUMBERS = {
    "x86_64": """write 1 pwrite64 18 writev 20 fsync 74 fdatasync 75 truncate 76 ftruncate 77 open 2 openat 257
        rename 82 renameat 264 renameat2 316 mkdir 83 mkdirat 258 rmdir 84 unlink 87 unlinkat 263 symlink 88
        symlinkat 266 link 86 linkat 265 chmod 90 fchmod 91 fchmodat 268 chown 92 fchown 93 fchownat 260""",
    "aarch64": """write 64 pwrite64 68 writev 66 fsync 82 fdatasync 83 truncate 45 ftruncate 46 openat 56 renameat 38
        renameat2 276 mkdirat 34 unlinkat 35 symlinkat 36 linkat 37 fchmod 52 fchmodat 53 fchown 55 fchownat 54""",
}
_WORDS = _NUMBERS.get(platform.machine(), "").split()
NUMBERS = dict(zip(map(int, _WORDS[1::2]), _WORDS[::2]))
RENAMES = ("rename", "renameat", "renameat2")
WRITES = ("write", "pwrite64", "writev")


class _Info(ctypes.Structure):
    """struct ptrace_syscall_info at the entry of a system call (linux/ptrace.h, Linux 5.3)."""

    _fields_ = [("op", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 3), ("arch", ctypes.c_uint32)]
    _fields_ += [("ip", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("nr", ctypes.c_uint64)]
    _fields_ += [("args", ctypes.c_uint64 * 6)]


def _ptrace(request, pid, address=0, data=0):
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if call(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def changes(work, last=None):
    """Run a function in a process of its own and list what it changes; kill it before the change number ``last``.

    Returns: the changes, and whether it was killed.
    """
    pid = os.fork()
    if pid == 0:
        _traced(work)
    seen, number = [], 0
    os.waitpid(pid, 0)
    _ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
    while True:
        _ptrace(PTRACE_SYSCALL, pid, 0, number)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSTOPPED(status):
            assert status == 0, "the program failed; its traceback is on standard error"
            return seen, False
        number = 0 if os.WSTOPSIG(status) & 0x7F == signal.SIGTRAP else os.WSTOPSIG(status)
        change = _change(pid) if os.WSTOPSIG(status) == signal.SIGTRAP | 0x80 else None
        if change and len(seen) + 1 == last:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return seen, True
        seen += [change] if change else []


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
    """Kill a program before each of its changes; ``check`` gets its number and whether it came to it."""
    last, killed = 0, True
    while killed:
        last += 1
        prepare()
        killed = changes(work, last)[1]
        check(last, killed)
    return last - 1


def assert_durable(work):
    """Hold each rename of a program against what makes it last: its directory is flushed next. Returns all changes."""
    seen, _killed = changes(work)
    renames = [place for place, change in enumerate(seen) if change in RENAMES]
    assert renames, seen
    for place in renames:
        assert seen[place + 1 : place + 2] == ["fsync directory"], f"{seen}: a rename that a power cut may undo"
    return seen


def can_trace():
    """Whether this kernel lets a process trace its child, and its system calls are known here."""
    try:
        return bool(NUMBERS) and changes(lambda: os.path.exists("/proc/none")) == ([], False)
    except OSError:
        return False


needs_trace = pytest.mark.skipif(not can_trace(), reason="this kernel does not let a process trace another one")


def fresh(folder, template):
    """Make a folder the copy of another one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
