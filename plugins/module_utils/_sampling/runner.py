# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one sample: workers pinned before they start, started together, measured one by one, killed whole."""

from __future__ import annotations

import collections
import errno
import json
import os
import select
import signal
import tempfile
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes, users

# A worker's output is read back for its metric and for the last lines of a failure; nobody needs more than this of it.
OUTPUT_LIMIT = 64 * 1024
# proc(5), /proc/stat: the columns of a cpu line.
STAT_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class RunnerError(Exception):
    """The sample could not be started (not: a worker failed)."""


_Job = collections.namedtuple("_Job", ("argv", "cpu_lists", "stdin", "directory", "keep_output", "timeout", "nice", "neighbours", "owner"))


def run(argv, cpu_lists, stdin=None, directory=None, keep_output=True, timeout=60.0, nice=0, neighbours=0, owner=None):
    """Run one command once a worker, all workers started at the same moment.

    Each worker is forked and pinned with sched_setaffinity(2), then waits at a gate; the clock starts when the gate opens.
    Pinning and the fork of this interpreter are thus outside of what is timed. A supervisor of its own session owns
    the workers: whatever they leave behind becomes its child and is ended with it, also when the caller is killed. A worker of an ordinary user cannot become
    root (no_new_privs): nobody could end it then.

    Args:
        argv: list of str: the command; it never reaches a shell.
        cpu_lists: one list of int a worker; an empty list leaves the worker unpinned.
        stdin: path of a file that each worker reads from its beginning, or None for no input.
        directory: working directory of the workers, or None for this process's.
        keep_output: False sends standard output to /dev/null, for a workload whose output is its work.
        timeout: seconds after which the sample is killed whole.
        nice: what is added to the workers' niceness (nice(2)).
        neighbours: how many processes that do nothing but keep a CPU busy run beside the workers on each of their CPUs.
        owner: (uid, gid) of the user whom the workers become, or None for this process's.

    Returns:
        dict: ``workers`` (a list of {cpus, wall_seconds, cpu_seconds, context_switches, exit_status, output, errors}, in the order
        of cpu_lists; exit_status is minus the signal's number for a worker that a signal ended), ``timed_out`` (bool),
        ``cpu_usage`` ({CPU number as str: share of the sample's time it was not idle}), ``steal`` (share of all CPUs' time that the
        hypervisor took, or None).

    Raises:
        RunnerError: a worker could not be pinned or the command could not be started; no process is left.
    """
    result_read, result_write = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(result_read)
        _supervise(result_write, _Job(argv, cpu_lists, stdin, directory, keep_output, timeout, nice, neighbours, owner))
    os.close(result_write)
    try:
        with os.fdopen(result_read, encoding="utf-8") as told:
            text = told.read()
    finally:
        # Nothing happens to a supervisor that has said everything; one whose caller is leaving early ends its workers first.
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
    if not text:
        raise RunnerError(f"the supervisor of {argv[0]} ended without a result")
    result = json.loads(text)
    if result["trouble"]:
        raise RunnerError(result["trouble"])
    del result["trouble"]
    return result


class _Ended(BaseException):
    """SIGTERM reached the supervisor."""


def _supervise(result_write, job):
    """In the child: run the sample, tell the result, leave nothing behind. Never returns."""
    status = 1
    try:
        os.setsid()
        processes.die_with_parent(signal.SIGTERM)
        processes.adopt_orphans()
        signal.signal(signal.SIGTERM, _raise_ended)
        result = _sample(job)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with os.fdopen(result_write, "w", encoding="utf-8") as told:
            json.dump(result, told)
        status = 0
    except _Ended:
        pass
    finally:
        os._exit(status)


def _raise_ended(_number, _frame):
    raise _Ended


def _sample(job):
    workers = []
    trouble = None
    timed_out = False
    times = [{}, {}]
    # Before the gate is there: a neighbour that had its end in hand would keep it shut.
    for cpus in _neighbours(job):
        _start_neighbour(cpus)
    gate_read, gate_write = os.pipe()
    try:
        for cpus in job.cpu_lists:
            workers.append(_Worker(job, cpus, gate_read, gate_write))
        for worker in workers:
            worker.await_pinned()
        times[0] = cpu_times()
        start = time.monotonic()
        os.close(gate_write)
        gate_write = None
        timed_out = _await_ends(workers, start, job.timeout)
        times[1] = cpu_times()
        # A worker that hangs before it has become the command would never say so.
        _end_all(workers)
        for worker in workers:
            worker.await_exec()
    except (RunnerError, OSError) as error:
        trouble = str(error)
    finally:
        if gate_write is not None:
            os.close(gate_write)
        _end_all(workers)
    usage, steal = cpu_usage(*times)
    return {"workers": [worker.result() for worker in workers], "timed_out": timed_out, "trouble": trouble, "cpu_usage": usage, "steal": steal}


def _neighbours(job):
    """The CPU list of each neighbour."""
    places = {tuple(cpus) for cpus in job.cpu_lists if cpus} or [()] * len(job.cpu_lists)
    return [cpus for cpus in places for _neighbour in range(job.neighbours)]


def _start_neighbour(cpus):
    """Fork a process that keeps a CPU busy until it is ended with the sample."""
    if os.fork() == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            processes.die_with_parent(signal.SIGKILL)
            if cpus:
                os.sched_setaffinity(0, cpus)
            while True:
                pass
        finally:
            os._exit(1)


def _end_all(workers):
    """End what is left of the sample: workers, neighbours, and what workers left behind, which is by now a child of this process."""
    left = {worker.pid: worker for worker in workers if worker.ended["exit_status"] is None}
    begun = time.monotonic()

    def reaped(pid, status, usage):
        if pid in left:
            left.pop(pid).reaped(time.monotonic() - begun, status, usage)

    processes.end_children(reaped, waiting=frozenset(left))


class _Worker:
    """One process of a sample, from its pinning to its end."""

    def __init__(self, job, cpus, gate_read, gate_write):
        self.cpus = list(cpus)
        self.ended = {"wall_seconds": None, "cpu_seconds": None, "context_switches": None, "exit_status": None}
        self._output = tempfile.TemporaryFile() if job.keep_output else None
        self._errors = tempfile.TemporaryFile()
        # The worker says on this pipe that it is pinned; a successful exec closes it, a failed one says why.
        self._said, said_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(job, cpus, self._output, self._errors, gate_read, gate_write, said_write)
        os.close(said_write)

    def await_pinned(self):
        said = os.read(self._said, 1000)
        if said != b"ready\n":
            raise RunnerError(said.decode("utf-8", "replace").strip() or "a worker ended before it began")

    def await_exec(self):
        said = os.read(self._said, 1000)
        if said:
            raise RunnerError(said.decode("utf-8", "replace").strip())

    def reaped(self, wall_seconds, status, usage):
        self.ended = {
            "wall_seconds": wall_seconds,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
            "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
        }

    def result(self):
        return dict(self.ended, cpus=self.cpus, output=_read_back(self._output), errors=_read_back(self._errors))


def _become(job, cpus, output, errors, gate_read, gate_write, said):
    """In the worker: be pinned, wait at the gate, become the command. Never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Python ignores SIGPIPE, and an ignored signal stays ignored over exec: tools in a pipeline would never end.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if cpus:
            os.sched_setaffinity(0, cpus)
        if job.nice:
            _renice(job.nice)
        os.dup2(os.open(job.stdin or os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno() if output else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors.fileno(), 2)
        if job.owner:
            users.become(job.owner)
        elif os.geteuid() != 0:
            processes.gain_no_privileges()
        # After the change of user, which takes it away.
        processes.die_with_parent(signal.SIGKILL)
        if job.directory:
            os.chdir(job.directory)
        os.close(gate_write)
        os.write(said, b"ready\n")
        os.read(gate_read, 1)
        _execute(job.argv)
    except (OSError, RunnerError) as error:
        os.write(said, _reason(error, cpus).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _renice(increment):
    try:
        os.nice(increment)
    except PermissionError:
        raise RunnerError(f"nice {increment}: only root may give a process more than its share") from None


def _execute(argv):
    try:
        # Tools print numbers by the locale; C is the one whose decimal point is known.
        os.execvpe(argv[0], argv, {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)})
    except FileNotFoundError:
        raise RunnerError(f"{argv[0]}: no such command on this host") from None
    except OSError as error:
        raise RunnerError(f"{argv[0]} cannot be run: {error.strerror}") from None


def _reason(error, cpus):
    if cpus and getattr(error, "errno", None) == errno.EINVAL:
        return f"cannot pin to CPU {','.join(map(str, cpus))}: it is offline, or not allowed to this process"
    return str(error)


def _await_ends(workers, start, timeout):
    """Reap the workers as they end. Returns whether the timeout struck first (some are still running then)."""
    left = {worker.pid: worker for worker in workers}
    # SIGCHLD wakes the select below at once; asking again and again would take time from the workers.
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    try:
        while True:
            for pid in list(left):
                _reap(pid, left, start)
            seconds = start + timeout - time.monotonic()
            if not left or seconds <= 0:
                return bool(left)
            select.select([wake_read], [], [], seconds)
            _drain(wake_read)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(wake_read)
        os.close(wake_write)


def _reap(pid, left, start):
    """Take note of a worker's end, if it has ended."""
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done:
        left.pop(pid).reaped(time.monotonic() - start, status, usage)


def _drain(descriptor):
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _read_back(handle):
    if handle is None:
        return ""
    with handle:
        size = handle.seek(0, os.SEEK_END)
        # The metric stands at the end of what a tool prints, and so does the reason of a failure.
        handle.seek(max(0, size - OUTPUT_LIMIT))
        return handle.read(OUTPUT_LIMIT).decode("utf-8", "replace")


def cpu_times():
    """Each online CPU's clock ticks by column of /proc/stat (proc(5)): {CPU number as str: {column: int}}."""
    times = {}
    with open("/proc/stat", encoding="ascii", errors="replace") as stat:
        for line in stat:
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                times[name[3:]] = dict(zip(STAT_COLUMNS, map(int, ticks)))
    return times


def cpu_usage(before, after):
    """Usage of each CPU, and the share of all CPUs' time that was stolen, between two readings of cpu_times().

    Returns:
        A pair: {CPU number as str: 0..1} for the CPUs that were online at both, and 0..1 or None when no tick passed.
    """
    usage = {}
    stolen = total = 0
    for cpu in before.keys() & after.keys():
        ticks = {column: max(0, after[cpu][column] - before[cpu].get(column, 0)) for column in after[cpu]}
        passed = sum(ticks.values())
        if passed:
            usage[cpu] = round(1 - (ticks.get("idle", 0) + ticks.get("iowait", 0)) / passed, 4)
            stolen += ticks.get("steal", 0)
            total += passed
    return usage, (round(stolen / total, 4) if total else None)
