# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that work on one CPU each when they are told to, and say how long a unit of work took. Knows nothing of what is made of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host.processes import die_with_parent

# Number of the round, its start and its end on the monotonic clock, which is one clock for all CPUs.
_ORDER = struct.Struct("=qdd")
# Number of the round, place of the CPU, units of work, CPU seconds, and when it began and ended.
_ANSWER = struct.Struct("=qqqddd")
# Workers have to be awake when the round begins; waking takes some of the teller's time for each of them.
_LEAD_SECONDS = 0.005
_LEAD_SECONDS_EACH = 0.0001
# A worker that is later, or that something else kept from its CPU for longer, did not meet the others: its sample says nothing.
_LATEST = 0.25
_LEAST_ON_CPU = 0.5
# A round whose answers take longer than this has lost a worker.
_PATIENCE = 10.0
# What is done between two looks at the clock: 10-20 microseconds.
_UNIT = tuple(range(400))


class ProbeError(Exception):
    """The CPUs cannot be measured; the text says which and why."""


class Workers:
    """One process a CPU, asleep except in the rounds it is told to work in; use as a context manager. None outlives it or its maker.

    A unit of work is integer arithmetic of the interpreter, a few kilobytes that stay in the first cache: it keeps the execution units of a core busy,
    which is what siblings share, and as little else as possible.

    Args:
        cpus: CPU numbers (list of int).

    Raises:
        ProbeError: on entry, when a process cannot be pinned.
    """

    def __init__(self, cpus):
        self._cpus = list(cpus)
        self._orders = []
        self._pids = []
        self._round = 0
        self._answers = self._answer = -1

    def __enter__(self):
        self._answers, self._answer = os.pipe()
        try:
            for place in range(len(self._cpus)):
                self._start(place)
            self._receive(set(range(len(self._cpus))), time.monotonic() + _PATIENCE)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, trouble, where):
        self._end()

    def measure(self, active, seconds):
        """Let some of the CPUs work at the same time.

        Args:
            active: CPU numbers (iterable of int).
            seconds: how long.

        Returns:
            {CPU: CPU seconds for a unit of work, or None when it was late or was kept from working}.

        Raises:
            ProbeError: a worker has ended, or no longer runs where it was pinned.
        """
        places = [place for place, cpu in enumerate(self._cpus) if cpu in active]
        self._round += 1
        start = time.monotonic() + _LEAD_SECONDS + _LEAD_SECONDS_EACH * len(places)
        for place in places:
            try:
                os.write(self._orders[place], _ORDER.pack(self._round, start, start + seconds))
            except BrokenPipeError:
                raise self._lost(place) from None
        answers = self._receive(set(places), start + seconds + _PATIENCE)
        return {self._cpus[place]: _slowness(answer, start, seconds) for place, answer in answers.items()}

    def check_pins(self):
        """See that each worker still may run on its CPU only. The kernel moves it when the CPU goes offline, and tells nobody.

        Raises:
            ProbeError: with the CPU.
        """
        for cpu, pid in zip(self._cpus, self._pids):
            if os.sched_getaffinity(pid) != {cpu}:
                raise ProbeError(f"CPU {cpu} went offline, or out of this process's cpuset, while it was measured: nothing is known. Try again.")

    def _start(self, place):
        order, orders = os.pipe()
        self._orders.append(orders)
        pid = os.fork()
        if pid:
            self._pids.append(pid)
            os.close(order)
            return
        try:
            _serve(place, self._cpus[place], order, self._answer, self._orders)
        finally:
            os._exit(1)

    def _receive(self, places, until):
        answers = {}
        while len(answers) < len(places):
            ready = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise self._lost(min(places - set(answers)))
            # Writes of less than PIPE_BUF are whole (pipe(7)), so are reads of one of them.
            answer = _ANSWER.unpack(os.read(self._answers, _ANSWER.size))
            if answer[0] < 0:
                raise ProbeError(
                    "no process can be pinned to CPU %d: %s. It is offline, or outside of what this process is allowed (cpuset, taskset)"
                    % (self._cpus[answer[1]], os.strerror(-answer[0]))
                )
            if answer[0] == self._round:
                answers[answer[1]] = answer
        return answers

    def _lost(self, place):
        return ProbeError(f"the process on CPU {self._cpus[place]} does not answer: the host is too busy to be measured, or the process was ended")

    def _end(self):
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for descriptor in [*self._orders, self._answers, self._answer]:
            os.close(descriptor)
        self._pids, self._orders = [], []


def _serve(place, cpu, order, answer, others):
    """In the worker: work when told. Returns when the teller has gone."""
    teller = os.getppid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != teller:
        return
    # Whoever started the probe may handle these; a worker has nothing to put in order.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for descriptor in others:
        os.close(descriptor)
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        os.write(answer, _ANSWER.pack(-error.errno, place, 0, 0.0, 0.0, 0.0))
        return
    os.write(answer, _ANSWER.pack(0, place, 0, 0.0, 0.0, 0.0))
    while True:
        told = os.read(order, _ORDER.size)
        if len(told) < _ORDER.size:
            return
        number, start, end = _ORDER.unpack(told)
        os.write(answer, _ANSWER.pack(number, place, *_work(start, end)))


def _work(start, end):
    """Work from start to end. Returns (units, CPU seconds, when it began, when it ended)."""
    time.sleep(max(0.0, start - time.monotonic()))
    units = value = 0
    before = time.thread_time()
    begun = now = time.monotonic()
    while now < end:
        for number in _UNIT:
            value = (value ^ number) + (value & 255)
            value &= 0xFFFFFF
        units += 1
        now = time.monotonic()
    return units, time.thread_time() - before, begun, now


def _slowness(answer, start, seconds):
    _number, _place, units, cpu_seconds, begun, ended = answer
    late = begun - start > _LATEST * seconds or ended - start > (1 + _LATEST) * seconds
    # By CPU time: what other processes, a quota or (where it tells) the hypervisor took is not the sibling's doing.
    return None if late or not units or cpu_seconds < _LEAST_ON_CPU * seconds else cpu_seconds / units
