# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a memory policy means for processes, measured: how much memory one can allocate,
and what happens to one that uses more than the host has.

Each measurement is made by a child process with an oom_score_adj of 1000, so that the OOM killer selects it first. The
child ends by _exit: it must not flush or clean up anything of the caller.

This file can be run on a host without the collection: it imports only errors.py and typing_forms.py, by relative
imports.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import select
import signal
import time
import typing as t
from collections.abc import Callable

from ..._host.compat.typing_forms import TypedDict
from .errors import MemoryPolicyError

MIB = 1 << 20
# The resolution of the measurement.
STEP = MIB
# A policy without a limit on the sum has shown this when so many times RAM and swap are allocated.
CEILING = 4
MAX_MAPPINGS = 1000
CGROUPS = "/sys/fs/cgroup"
CONFINEMENT = "threadwise-smt-probe"
# Seconds after which a measuring process is killed.
TIMEOUT = 120.0
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

ENOMEM_AT_ONCE, KILLED_LATER, GRANTED, SURVIVED = "enomem", "oom_killed", "granted", "survived"


class OvercommitTestError(MemoryPolicyError):
    """The measurement could not be made; the text gives the reason."""


class Allocatable(TypedDict):
    """How much memory one process can allocate without using it.

    Attributes:
        largest_bytes: the largest single mapping, in whole MiB.
        total_bytes: the sum of any number of mappings; less under a strict policy, because the kernel reserves 1/32 of
            what a process already has, up to vm.user_reserve_kbytes.
        total_limited: False when the sum reached ``CEILING`` times RAM and swap, where the measurement stops.
    """

    largest_bytes: int
    total_bytes: int
    total_limited: bool


class Outcome(TypedDict):
    """What happened to a process that asked for memory.

    Attributes:
        outcome: ``enomem``: refused at once; ``granted``: allocated and not used; ``oom_killed``: allocated, and killed
            while it was used; ``survived``: allocated and used.
        touched_bytes: how much was used at least.
    """

    outcome: str
    touched_bytes: int


def allocatable(timeout: float = TIMEOUT) -> Allocatable:
    """Measure how much memory one process can allocate without using it.

    The memory is allocated for a moment only. Under a strict policy other processes cannot allocate it during that
    moment.

    Args:
        timeout: seconds after which the process is killed.

    Raises:
        OvercommitTestError: The child process ended without a result, or did not end in time.
    """
    ceiling = CEILING * _ram_and_swap()
    text, _status = _in_child(lambda report: _report(ceiling, report), timeout)
    error: t.Optional[str]
    measured: Allocatable
    try:
        error, measured = json.loads(text)
    except ValueError:
        raise OvercommitTestError("the measuring process ended without a result; it may have been killed") from None
    if error is not None:
        raise OvercommitTestError(error)
    return measured


def _allocatable(ceiling: int) -> Allocatable:
    largest = _largest_mapping(ceiling)
    total = _total(ceiling, max(largest // 4, STEP))
    return {"largest_bytes": largest, "total_bytes": total, "total_limited": total < ceiling}


def _largest_mapping(ceiling: int) -> int:
    """Find the largest mapping by bisection; each one is released before the next is requested."""
    granted, refused = 0, ceiling // STEP + 1
    while refused - granted > 1:
        middle = (granted + refused) // 2
        area = _map(middle * STEP)
        if area is None:
            refused = middle
        else:
            area.close()
            granted = middle
    return granted * STEP


def _total(ceiling: int, chunk: int) -> int:
    held: list[mmap.mmap] = []
    total = 0
    while chunk >= STEP and total < ceiling and len(held) < MAX_MAPPINGS:
        area = _map(chunk // STEP * STEP)
        if area is None:
            chunk //= 2
        else:
            held.append(area)
            total += len(area)
    for area in held:
        area.close()
    return total


def _map(length: int) -> "mmap.mmap | None":
    """Return private, untouched memory, or None when the kernel refuses it."""
    try:
        return mmap.mmap(-1, length, flags=PRIVATE)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return None


def run(length: int, touch: bool = False, confine: "int | None" = None, timeout: float = TIMEOUT) -> Outcome:
    """Run the overcommit test: request more memory than there is, and see what happens.

    Args:
        length: bytes to request, in one mapping.
        touch: whether to use the memory, page after page. Without ``confine`` this uses up the host's memory: a real
            out-of-memory situation.
        confine: bytes that the process may use before the kernel treats it as out of memory, in a cgroup (v2) of its
            own; this does not affect the host.
        timeout: seconds after which the process is killed.

    Raises:
        OvercommitTestError: The process cannot be confined on this host (vm.panic_on_oom=2 panics on a full cgroup as
            well), or ended in another way.
    """
    cgroup = _Confinement(confine) if touch and confine is not None else None
    try:
        return _run_test(length, touch, cgroup, timeout)
    finally:
        if cgroup:
            cgroup.remove()


def _run_test(length: int, touch: bool, cgroup: "_Confinement | None", timeout: float) -> Outcome:
    text, status = _in_child(lambda report: _request_and_touch(length, touch, cgroup, report), timeout)
    lines = text.split()
    touched = int(lines[-1]) if lines and lines[-1].isdigit() else 0
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and "granted" in lines:
        outcome = KILLED_LATER
    elif lines[:1] == ["refused"]:
        outcome = ENOMEM_AT_ONCE
    elif lines[-1:] == ["complete"]:
        outcome, touched = SURVIVED, length
    elif lines == ["granted"] and not touch:
        outcome = GRANTED
    else:
        raise OvercommitTestError(
            "the process of the overcommit test ended without a result:"
            f" {text.strip()[-200:] or f'wait status {status}'}"
        )
    return {"outcome": outcome, "touched_bytes": touched}


def _request_and_touch(length: int, touch: bool, cgroup: "_Confinement | None", report: int) -> t.NoReturn:
    """Request the memory in the forked child, use it if wanted, and report each step."""
    try:
        _be_first_victim()
        if cgroup:
            cgroup.enter()
        area = _map(length)
        os.write(report, b"granted\n" if area else b"refused\n")
        if area and touch:
            start = ctypes.addressof(ctypes.c_char.from_buffer(area))
            for offset in range(0, length, 8 * MIB):
                ctypes.memset(start + offset, 1, min(8 * MIB, length - offset))
                os.write(report, b"%d\n" % offset)
            os.write(report, b"complete\n")
    except (OSError, ValueError) as error:
        os.write(report, str(error).encode("utf-8", "replace"))
    finally:
        os._exit(0)


class _Confinement:
    """A cgroup with a limit on memory (Documentation/admin-guide/cgroup-v2.rst)."""

    def __init__(self, limit: int) -> None:
        with open("/proc/sys/vm/panic_on_oom", encoding="ascii") as setting:
            if setting.read().strip() == "2":
                raise OvercommitTestError(
                    "the process of the overcommit test cannot be confined: vm.panic_on_oom is 2, so the host would"
                    " still panic"
                )
        self._path = os.path.join(CGROUPS, f"{CONFINEMENT}-{os.getpid()}")
        try:
            os.mkdir(self._path)
        except OSError as error:
            raise OvercommitTestError(
                f"the cgroup for the overcommit test cannot be created ({self._path}): {error.strerror}"
            ) from error
        try:
            self._write("memory.max", limit)
        except OSError as error:
            self.remove()
            raise OvercommitTestError(
                f"the process of the overcommit test cannot be confined: {self._path}: {error.strerror} (cgroup v1, or"
                " no memory controller)"
            ) from error
        # A kernel without swap accounting has no such file; memory.max alone confines the process as well, only later.
        with contextlib.suppress(FileNotFoundError):
            self._write("memory.swap.max", 0)

    def _write(self, name: str, number: int) -> None:
        with open(os.path.join(self._path, name), "w", encoding="ascii") as handle:
            handle.write(f"{number}\n")

    def enter(self) -> None:
        self._write("cgroup.procs", os.getpid())

    def remove(self) -> None:
        for _attempt in range(50):
            try:
                os.rmdir(self._path)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
                time.sleep(0.02)


def _in_child(work: "Callable[[int], t.NoReturn]", timeout: float) -> "tuple[str, int]":
    """Fork, let the child work, and wait for it.

    Args:
        work: what the child does; it gets the descriptor that it reports to, and ends the child.
        timeout: seconds after which the child is killed.

    Returns:
        The report, and the wait status.

    Raises:
        OvercommitTestError: The child did not end in time.
    """
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(report_read)
        work(report_write)
    os.close(report_write)
    try:
        text = _read_all(report_read, pid, timeout)
    finally:
        status = os.waitpid(pid, 0)[1]
    return text, status


def _report(ceiling: int, report: int) -> t.NoReturn:
    """Measure in the forked child, and report an error or None, and the result or None."""
    error, measured = None, None
    try:
        _be_first_victim()
        measured = _allocatable(ceiling)
    except (OSError, ValueError, MemoryError) as failure:
        error = str(failure) or type(failure).__name__
    try:
        os.write(report, json.dumps([error, measured]).encode("ascii"))
    finally:
        os._exit(0)


def _be_first_victim() -> None:
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:
        handle.write("1000\n")


def _read_all(descriptor: int, pid: int, timeout: float) -> str:
    """Read a child's report until its end.

    Args:
        descriptor: the read end of the pipe; it is closed.
        pid: the child.
        timeout: seconds after which the child is killed.

    Raises:
        OvercommitTestError: The child did not end in time.
    """
    start = time.monotonic()
    text = b""
    with os.fdopen(descriptor, "rb", buffering=0) as report:
        while True:
            left = start + timeout - time.monotonic()
            if left <= 0 or not select.select([report], [], [], left)[0]:
                os.kill(pid, signal.SIGKILL)
                raise OvercommitTestError(f"the process did not end within {int(timeout)} s and was killed")
            chunk = report.read(65536)
            if not chunk:
                return text.decode("utf-8", "replace")
            text += chunk


def _ram_and_swap() -> int:
    """Return the bytes of RAM and swap (proc(5), meminfo)."""
    with open("/proc/meminfo", encoding="ascii", errors="replace") as meminfo:
        lines = dict(line.split(":", 1) for line in meminfo if ":" in line)
    return sum(int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "SwapTotal"))
