# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a memory policy means for processes, measured: how much is promised, what one that overreaches gets.

Each measurement is made by a child process that is gone afterwards, with an oom_score_adj of 1000, so that it is the first one the OOM killer takes.
The child ends by _exit: what it measures is memory, and nothing of the caller's is to be flushed or cleaned up in it.

This file imports nothing from the collection: it can be run by itself on a host.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import select
import signal
import time

MIB = 1 << 20
# What is asked for in steps of this is known as exactly as a process could use.
STEP = MIB
# A policy without a limit on the sum shows within so many times RAM and swap.
CEILING = 4
MOST_MAPPINGS = 1000
CGROUPS = "/sys/fs/cgroup"
CONFINEMENT = "threadwise-smt-probe"
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

ENOMEM_AT_ONCE, KILLED_LATER, GRANTED, SURVIVED = "enomem", "oom_killed", "granted", "survived"


class ProbeError(Exception):
    """The measurement could not be made; the text says why."""


def allocatable():
    """How much one process is promised without touching it. Held for an instant only: under a strict policy others go short of it meanwhile.

    Returns:
        dict: ``largest_bytes`` (the largest single mapping, to the MiB), ``total_bytes`` (in any number of mappings; under a strict policy less,
        because the kernel keeps back 1/32 of what a process has already, up to vm.user_reserve_kbytes), ``total_limited`` (False when the sum
        reached ``CEILING`` times RAM and swap and was not asked for more).

    Raises:
        ProbeError: the child ended without an answer.
    """
    ceiling = CEILING * _ram_and_swap()
    return _in_child(lambda: _allocatable(ceiling))


def _allocatable(ceiling):
    largest = _largest_mapping(ceiling)
    total = _total(ceiling, max(largest // 4, STEP))
    return {"largest_bytes": largest, "total_bytes": total, "total_limited": total < ceiling}


def _largest_mapping(ceiling):
    """By halving: each mapping is given back before the next is asked for."""
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


def _total(ceiling, chunk):
    held, total = [], 0
    while chunk >= STEP and total < ceiling and len(held) < MOST_MAPPINGS:
        area = _map(chunk // STEP * STEP)
        if area is None:
            chunk //= 2
        else:
            held.append(area)
            total += len(area)
    for area in held:
        area.close()
    return total


def _map(length):
    """Private memory that nothing has touched, or None when the kernel does not promise it."""
    try:
        return mmap.mmap(-1, length, flags=PRIVATE)
    except OSError as refused:
        if refused.errno != errno.ENOMEM:
            raise
        return None


def overreach(length, touch=False, confine=None, timeout=120.0):
    """What a process gets that asks for more than there is.

    Args:
        length: bytes to ask for, in one request.
        touch: whether to use what was granted, page after page. Without ``confine`` that takes the host's memory: a real out-of-memory.
        confine: bytes that the process may use of what it was granted before the kernel takes it for out of memory, in a cgroup (v2)
            of its own; the host is not touched by it.
        timeout: seconds after which it is ended.

    Returns:
        dict: ``outcome`` (``enomem``: refused at once; ``granted``: promised and not used; ``oom_killed``: promised, and killed when
        it was used; ``survived``: promised and used), ``touched_bytes`` (at least so many were used).

    Raises:
        ProbeError: it cannot be confined here (vm.panic_on_oom=2 panics on that as well), or the process ended in another way.
    """
    cgroup = _Confinement(confine) if touch and confine is not None else None
    try:
        return _overreach(length, touch, cgroup, timeout)
    finally:
        if cgroup:
            cgroup.remove()


def _overreach(length, touch, cgroup, timeout):
    told_read, told_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told_read)
        _ask_and_touch(length, touch, cgroup, told_write)
    os.close(told_write)
    try:
        text = _read_all(told_read, pid, timeout)
    finally:
        status = os.waitpid(pid, 0)[1]
    words = text.split()
    touched = int(words[-1]) if words and words[-1].isdigit() else 0
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and "granted" in words:
        outcome = KILLED_LATER
    elif words[:1] == ["refused"]:
        outcome = ENOMEM_AT_ONCE
    elif words[-1:] == ["whole"]:
        outcome, touched = SURVIVED, length
    elif words == ["granted"] and not touch:
        outcome = GRANTED
    else:
        raise ProbeError("the process that overreaches ended without an answer: %s" % (text.strip()[-200:] or "wait status %d" % status))
    return {"outcome": outcome, "touched_bytes": touched}


def _ask_and_touch(length, touch, cgroup, told):
    """In the child; never returns."""
    try:
        _be_first_victim()
        if cgroup:
            cgroup.enter()
        area = _map(length)
        os.write(told, b"granted\n" if area else b"refused\n")
        if area and touch:
            start = ctypes.addressof(ctypes.c_char.from_buffer(area))
            for offset in range(0, length, 8 * MIB):
                ctypes.memset(start + offset, 1, min(8 * MIB, length - offset))
                os.write(told, b"%d\n" % offset)
            os.write(told, b"whole\n")
    except (OSError, ValueError) as trouble:
        os.write(told, str(trouble).encode("utf-8", "replace"))
    finally:
        os._exit(0)


class _Confinement:
    """A cgroup of its own with a limit on memory (Documentation/admin-guide/cgroup-v2.rst)."""

    def __init__(self, limit):
        with open("/proc/sys/vm/panic_on_oom", encoding="ascii") as setting:
            if setting.read().strip() == "2":
                raise ProbeError("the overreaching process cannot be confined: vm.panic_on_oom is 2, so the host would panic all the same")
        self._path = os.path.join(CGROUPS, f"{CONFINEMENT}-{os.getpid()}")
        try:
            os.mkdir(self._path)
        except OSError as trouble:
            raise ProbeError(f"no cgroup can be made to confine the overreaching process ({self._path}): {trouble.strerror}") from trouble
        try:
            self._write("memory.max", limit)
        except OSError as trouble:
            self.remove()
            raise ProbeError(f"the overreaching process cannot be confined: {self._path}: {trouble.strerror} (cgroup v1, or no memory controller)") from trouble
        try:
            self._write("memory.swap.max", 0)
        except FileNotFoundError:
            # A kernel without swap accounting has no such file; memory.max alone confines, only later.
            pass

    def _write(self, name, number):
        with open(os.path.join(self._path, name), "w", encoding="ascii") as handle:
            handle.write(f"{number}\n")

    def enter(self):
        self._write("cgroup.procs", os.getpid())

    def remove(self):
        for _attempt in range(50):
            try:
                os.rmdir(self._path)
                return
            except OSError as busy:
                if busy.errno != errno.EBUSY:
                    return
                time.sleep(0.02)


def _in_child(measure):
    """What ``measure`` returns (plain data), called in a child process."""
    told_read, told_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told_read)
        _tell(measure, told_write)
    os.close(told_write)
    text = _read_all(told_read, pid, None)
    os.waitpid(pid, 0)
    try:
        answer = json.loads(text)
    except ValueError:
        raise ProbeError("the measuring process ended without an answer; was it killed?") from None
    if "trouble" in answer:
        raise ProbeError(answer["trouble"])
    return answer


def _tell(measure, told):
    """In the child; never returns."""
    try:
        _be_first_victim()
        answer = measure()
    except (OSError, ValueError, MemoryError) as trouble:
        answer = {"trouble": str(trouble) or type(trouble).__name__}
    try:
        os.write(told, json.dumps(answer).encode("ascii"))
    finally:
        os._exit(0)


def _be_first_victim():
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:
        handle.write("1000\n")


def _read_all(descriptor, pid, timeout):
    """All that is told until the teller ends; one that takes longer than the timeout (seconds or None) is killed."""
    end = None if timeout is None else time.monotonic() + timeout
    text = b""
    with os.fdopen(descriptor, "rb", buffering=0) as told:
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and (left <= 0 or not select.select([told], [], [], left)[0]):
                os.kill(pid, signal.SIGKILL)
                raise ProbeError(f"the process did not end within {int(timeout)} s and was ended")
            chunk = told.read(65536)
            if not chunk:
                return text.decode("utf-8", "replace")
            text += chunk


def _ram_and_swap():
    """Bytes of RAM and swap (proc(5), meminfo)."""
    with open("/proc/meminfo", encoding="ascii", errors="replace") as meminfo:
        lines = dict(line.split(":", 1) for line in meminfo if ":" in line)
    return sum(int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "SwapTotal"))
