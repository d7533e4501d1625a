# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Worker processes, one pinned to each CPU, that work on request and report how long a unit of work took."""

import contextlib
import errno
import os
import select
import signal
import struct
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import Protocol
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.processes import die_with_parent

# Number of the round, its start and its end on the monotonic clock, which is the same for all CPUs.
_ORDER = struct.Struct("=qdd")
# The fields of `_Reply`.
_REPLY = struct.Struct("=qqqddd")
# Workers must be awake when the round begins; waking each of them takes this process some time.
_LEAD_SECONDS = 0.005
_LEAD_SECONDS_EACH = 0.0001
# Shares of a round: a sample is invalid if the worker started or ended later than this, or got less CPU time than that.
_MAX_DELAY = 0.25
_MIN_ON_CPU = 0.5
# Seconds after the end of a round until a worker without a reply counts as lost.
_TIME_LIMIT = 10.0
# One unit of work, done between two readings of the clock: 10-20 microseconds.
_UNIT = tuple(range(400))


class ProbeError(HostError):
    """The CPUs cannot be measured; the message names the CPUs and the reason."""


class Machine(Protocol):
    """The CPUs under test: real ones with `Workers`, or simulated ones."""

    def measure(self, active: "set[int]", seconds: float) -> "dict[int, float | None]":
        """Run a round, see `Workers.measure`."""

    def check_pins(self) -> None:
        """Check the CPUs after the last round, see `Workers.check_pins`."""


class _Reply(t.NamedTuple):
    """A worker's reply.

    Attributes:
        number: number of the round; 0 after the start; negative errno if the worker could not be pinned.
        position: index of the CPU.
        units: completed units of work.
        cpu_seconds: CPU time spent on them.
        begun: start of the work on the monotonic clock.
        ended: end of the work on the monotonic clock.
    """

    number: int
    position: int
    units: int = 0
    cpu_seconds: float = 0.0
    begun: float = 0.0
    ended: float = 0.0


class Workers:
    """One process per CPU, asleep except in the rounds it takes part in; use as a context manager.

    All processes end with it, or with the process that made it.

    A unit of work is integer arithmetic in the interpreter on a few kilobytes that fit into the first-level cache: it
    uses the execution units of a core, which siblings share, and few other shared resources.

    Args:
        cpus: CPU numbers.

    Raises:
        ProbeError: on entry, if a process cannot be pinned.
    """

    def __init__(self, cpus: "t.Iterable[int]") -> None:
        self._cpus = list(cpus)
        self._orders: list[int] = []
        self._pids: list[int] = []
        self._round = 0
        self._reader = self._writer = -1

    def __enter__(self) -> "Workers":
        """Start the workers.

        Raises:
            ProbeError: a process cannot be pinned.
        """
        self._reader, self._writer = os.pipe()
        try:
            for index in range(len(self._cpus)):
                self._start(index)
            self._receive(set(range(len(self._cpus))), time.monotonic() + _TIME_LIMIT)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: t.Optional[types.TracebackType],
    ) -> None:
        """End the workers."""
        self._end()

    def measure(self, active: "t.Collection[int]", seconds: float) -> "dict[int, float | None]":
        """Let some of the CPUs work at the same time.

        Args:
            active: CPU numbers.
            seconds: duration of the round.

        Returns:
            CPU -> CPU seconds per unit of work, or None if the worker was late or did not get enough CPU time.

        Raises:
            ProbeError: a worker has died or does not reply.
        """
        indexes = [index for index, cpu in enumerate(self._cpus) if cpu in active]
        self._round += 1
        start = time.monotonic() + _LEAD_SECONDS + _LEAD_SECONDS_EACH * len(indexes)
        for index in indexes:
            try:
                os.write(self._orders[index], _ORDER.pack(self._round, start, start + seconds))
            except BrokenPipeError:
                raise self._lost(index) from None
        replies = self._receive(set(indexes), start + seconds + _TIME_LIMIT)
        return {self._cpus[index]: _slowness(reply, start, seconds) for index, reply in replies.items()}

    def check_pins(self) -> None:
        """Check that each worker is still pinned to its CPU. The kernel silently moves it when the CPU goes offline.

        Raises:
            ProbeError: a worker is not; the message names the CPU.
        """
        for cpu, pid in zip(self._cpus, self._pids):
            if os.sched_getaffinity(pid) != {cpu}:
                raise ProbeError(
                    f"CPU {cpu} went offline, or was removed from this process's cpuset, during the measurement: the"
                    " results are not valid. Try again."
                )

    def _start(self, index: int) -> None:
        reader, writer = os.pipe()
        self._orders.append(writer)
        pid = os.fork()
        if pid:
            self._pids.append(pid)
            os.close(reader)
            return
        try:
            _serve(index, self._cpus[index], reader, self._writer, self._orders)
        finally:
            os._exit(1)

    def _receive(self, indexes: "set[int]", until: float) -> "dict[int, _Reply]":
        replies: dict[int, _Reply] = {}
        while len(replies) < len(indexes):
            ready = select.select([self._reader], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise self._lost(min(indexes - set(replies)))
            # Writes of less than PIPE_BUF are atomic (pipe(7)), so each read returns one whole reply.
            reply = _Reply._make(_REPLY.unpack(os.read(self._reader, _REPLY.size)))
            if reply.number < 0:
                raise ProbeError(
                    f"no process can be pinned to CPU {self._cpus[reply.position]}: {os.strerror(-reply.number)}. "
                    "The CPU is offline, or this process is not allowed to use it (cpuset, taskset)"
                )
            if reply.number == self._round:
                replies[reply.position] = reply
        return replies

    def _lost(self, index: int) -> ProbeError:
        return ProbeError(
            f"the process on CPU {self._cpus[index]} does not reply: the host is too busy to be measured, or the"
            " process was killed"
        )

    def _end(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for descriptor in [*self._orders, self._reader, self._writer]:
            os.close(descriptor)
        self._pids, self._orders = [], []


def _serve(index: int, cpu: int, reader: int, writer: int, others: "t.Iterable[int]") -> None:
    """Work on request, in the worker process. Returns when the parent has died.

    Args:
        index: index of the CPU, for replies.
        cpu: the CPU to run on.
        reader: descriptor to read orders from.
        writer: descriptor to write replies to.
        others: inherited descriptors to close.
    """
    parent = os.getppid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    # The parent may handle these signals; a worker has nothing to clean up.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in others:
        os.close(descriptor)
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        os.write(writer, _REPLY.pack(*_Reply(-(error.errno or errno.EINVAL), index)))
        return
    os.write(writer, _REPLY.pack(*_Reply(0, index)))
    while True:
        order = os.read(reader, _ORDER.size)
        if len(order) < _ORDER.size:
            return
        number, start, end = _ORDER.unpack(order)
        os.write(writer, _REPLY.pack(number, index, *_work(start, end)))


def _work(start: float, end: float) -> "tuple[int, float, float, float]":
    """Work from start to end. Returns (units, CPU seconds, start, end)."""
    time.sleep(max(0.0, start - time.monotonic()))
    units = value = 0
    before = _cpu_seconds()
    begun = now = time.monotonic()
    while now < end:
        for number in _UNIT:
            value = (value ^ number) + (value & 255)
            value &= 0xFFFFFF
        units += 1
        now = time.monotonic()
    return units, _cpu_seconds() - before, begun, now


def _cpu_seconds() -> float:
    """Return the CPU time of this thread, as time.thread_time of Python 3.7."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def _slowness(reply: _Reply, start: float, seconds: float) -> "float | None":
    late = reply.begun - start > _MAX_DELAY * seconds or reply.ended - start > (1 + _MAX_DELAY) * seconds
    # CPU time, because time lost to other processes, a quota or (if visible) the hypervisor is not caused by the
    # sibling.
    return (
        None
        if late or not reply.units or reply.cpu_seconds < _MIN_ON_CPU * seconds
        else reply.cpu_seconds / reply.units
    )
