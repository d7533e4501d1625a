# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short windows of the scheduler's switches, in an instance of tracefs of our own: other tracers do not notice it.

Nothing is traced between two windows. The buffers are of a fixed size; what does not fit into them is not kept, and the
window ends there (Documentation/trace/ftrace.rst: instances, options/overwrite, trace_clock).
"""

import contextlib
import os
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import switches

ROOTS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
PREFIX = "threadwise-smt-"
# Of all CPUs together, and of one at least and at most. A switch takes some 70 bytes.
BUFFERS_KB, MIN_BUFFER_KB, MAX_BUFFER_KB = 64 * 1024, 64, 1024
EVENTS = ("sched/sched_switch", "sched/sched_process_fork")
# Counts the run time of the task that runs, at each tick too, and so names the one of a CPU without a switch. Of tasks
# that run shorter each time it is not kept. It is not switched on and off for each window: that changes the code of the
# running kernel, for which all CPUs stop.
RUNTIME = "sched/sched_stat_runtime"
LONG = "runtime > 500000"
# Clocks of the trace that are the same on all CPUs, as its usual one is not, and that a program can read.
CLOCKS = {"mono": time.CLOCK_MONOTONIC, "mono_raw": time.CLOCK_MONOTONIC_RAW}
MAX_PAGE = 64 * 1024


class TracingError(Exception):
    """The scheduler cannot be watched on this host; the message says why, and what would help."""


class Window(t.NamedTuple):
    """What happened between two moments.

    Attributes:
        begin: nanoseconds of the trace's clock.
        end: likewise; before the end of the window where a buffer was full.
        switches: by CPU, in order.
        parents: child -> parent of the tasks that began in it.
        running: the task that ran on each CPU at its begin, as far as its run time was counted.
        is_cut: whether a buffer was full.
    """

    begin: int
    end: int
    switches: "dict[int, list[switches.Switch]]"
    parents: "dict[int, int]"
    running: "dict[int, int]"
    is_cut: bool


class Instance:
    """An instance of tracefs, as a context manager. It goes with this process, however that ends.

    Args:
        roots: where tracefs may be.

    Raises:
        TracingError: it cannot be made.
    """

    def __init__(self, roots: "t.Sequence[str]" = ROOTS) -> None:
        root = next((root for root in roots if os.path.isdir(os.path.join(root, "instances"))), None)
        if root is None:
            raise TracingError(_why_not(roots))
        self._instances = os.path.join(root, "instances")
        _sweep(self._instances)
        self._path = os.path.join(self._instances, f"{PREFIX}{os.getpid()}")
        self._guard: t.Optional[t.Tuple[int, int]] = None
        self._buffers: t.Dict[int, int] = {}
        try:
            os.mkdir(self._path)
        except OSError as error:
            raise TracingError(f"tracefs takes no instance ({error.strerror}): {self._path}") from None

    def __enter__(self) -> "Instance":
        try:
            self._guard = _guard(self._path)
            self._write("tracing_on", "0")
            names = [name for name in os.listdir(os.path.join(self._path, "per_cpu")) if name[3:].isdigit()]
            each = min(MAX_BUFFER_KB, max(MIN_BUFFER_KB, BUFFERS_KB // max(1, len(names))))
            self._write("buffer_size_kb", str(each))
            self._write("options/overwrite", "0")
            clocks = self._read("trace_clock").replace("[", " ").replace("]", " ").split()
            name = next(clock for clock in CLOCKS if clock in clocks)
            self._write("trace_clock", name)
            self._clock = CLOCKS[name]
            switch, fork = (self._read(f"events/{event}/format") for event in EVENTS)
            self._reader = switches.Reader(
                self._read("events/header_page"),
                switches.event_format(switch, ("prev_pid", "next_pid")),
                switches.event_format(fork, ("parent_pid", "child_pid")),
                self._runtime(),
            )
            for event in EVENTS:
                self._write(f"events/{event}/enable", "1")
            for name in names:
                raw = os.path.join(self._path, "per_cpu", name, "trace_pipe_raw")
                self._buffers[int(name[3:])] = os.open(raw, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError, StopIteration) as error:
            self.__exit__()
            raise TracingError(f"the scheduler's events cannot be had from tracefs: {error or 'no clock'}") from None
        return self

    def __exit__(self, *_raised: object) -> None:
        for descriptor in self._buffers.values():
            os.close(descriptor)
        self._buffers = {}
        if self._guard is None:
            _remove(self._path)
        else:
            # It removes the instance when this end of its pipe is closed, by us or by our end.
            pid, writer = self._guard
            self._guard = None
            os.close(writer)
            os.waitpid(pid, 0)

    def _runtime(self) -> switches.Format:
        """Count run times, where the kernel has that event, and return its format."""
        try:
            fields = switches.event_format(self._read(f"events/{RUNTIME}/format"), ("pid",))
            self._write(f"events/{RUNTIME}/filter", LONG)
            self._write(f"events/{RUNTIME}/enable", "1")
        except (OSError, ValueError):
            return switches.NO_EVENT
        return fields

    def window(self, seconds: float) -> Window:
        """Watch for a time, and return what happened.

        Raises:
            TracingError: the kernel gives something else than it says, or does not let us any more.
        """
        try:
            return self._window(seconds)
        except OSError as error:
            raise TracingError(f"the scheduler's switches cannot be watched any more: {error}") from None

    def _window(self, seconds: float) -> Window:
        self._write("trace", "")
        for cpu in self._buffers:
            self._pages(cpu)
        self._write("tracing_on", "1")
        begin = self._now()
        time.sleep(seconds)
        end = self._now()
        self._write("tracing_on", "0")
        by_cpu: t.Dict[int, t.List[switches.Switch]] = {}
        parents: t.Dict[int, int] = {}
        running: t.Dict[int, int] = {}
        is_cut = False
        for cpu in self._buffers:
            recorded: t.List[switches.Switch] = []
            for page in self._pages(cpu):
                try:
                    of_page = self._reader.page(page)
                except ValueError as error:
                    raise TracingError(f"the trace of CPU {cpu} cannot be read: {error}") from None
                recorded += of_page.switches
                parents.update((fork.child, fork.parent) for fork in of_page.forks)
                if of_page.running is not None:
                    running.setdefault(cpu, of_page.running)
            if self._lost(cpu) and recorded:
                is_cut, end = True, min(end, recorded[-1].at)
            by_cpu[cpu] = recorded
        return Window(begin, max(begin, end), by_cpu, parents, running, is_cut)

    def _now(self) -> int:
        return int(time.clock_gettime(self._clock) * 1e9)

    def _lost(self, cpu: int) -> bool:
        """Return whether events of a CPU found no room since the buffers were emptied."""
        stats = self._read(f"per_cpu/cpu{cpu}/stats")
        return any(
            line.startswith(("dropped events:", "overrun:")) and line.rpartition(":")[2].strip() not in ("0", "")
            for line in stats.splitlines()
        )

    def _pages(self, cpu: int) -> "t.Iterator[bytes]":
        while True:
            try:
                page = os.read(self._buffers[cpu], MAX_PAGE)
            except BlockingIOError:
                return
            if not page:
                return
            yield page

    def _read(self, name: str) -> str:
        with open(os.path.join(self._path, name), encoding="ascii", errors="replace") as stream:
            return stream.read(1 << 20)

    def _write(self, name: str, value: str) -> None:
        with open(os.path.join(self._path, name), "w", encoding="ascii") as stream:
            stream.write(value)


def _why_not(roots: "t.Sequence[str]") -> str:
    if os.geteuid() != 0:
        return "only root can watch the scheduler's switches: run with become"
    if any(os.path.isdir(root) for root in roots):
        return "tracefs is not mounted (mount -t tracefs tracefs /sys/kernel/tracing), or the kernel is locked down"
    return "this kernel has no tracefs"


def _guard(path: str) -> "tuple[int, int]":
    """Start a process that removes an instance when a descriptor is closed, also by the end of this process.

    It waits at a pipe, whose end a SIGKILL closes, too.

    Returns:
        Its pid, and the descriptor.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return pid, writer
    try:
        os.setsid()
        os.close(writer)
        os.read(reader, 1)
        _remove(path)
    finally:
        os._exit(0)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError), open(os.path.join(path, "tracing_on"), "w", encoding="ascii") as switch:
        switch.write("0")
    for _attempt in range(50):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            # A reader of it is still open.
            time.sleep(0.1)


def _sweep(instances: str) -> None:
    """Remove what a look left whose guard was killed, too."""
    for name in os.listdir(instances):
        pid = name[len(PREFIX) :]
        if name.startswith(PREFIX) and pid.isdigit() and not os.path.isdir(f"/proc/{pid}"):
            # One that is in use, by a look of another container, cannot be removed.
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(instances, name))
