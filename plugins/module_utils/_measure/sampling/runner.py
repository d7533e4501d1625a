# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One sample of a command: workers are pinned before they start, start at the same moment, are measured one by one,
and are all ended.
"""

import contextlib
import errno
import json
import os
import select
import signal
import tempfile
import time
import types
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes, users
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import memory_policy

if t.TYPE_CHECKING:
    import resource

# Bytes of a worker's output that are kept, and of that of all workers: tools print documents of some MiB.
OUTPUT_LIMIT = 16 * 1024 * 1024
OUTPUT_OF_ALL = 16 * OUTPUT_LIMIT
# proc(5), /proc/stat: the columns of a cpu line.
STAT_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_READY = b"ready\n"


class RunnerError(Exception):
    """The sample could not be started. A worker that starts and then fails does not raise this."""


class WorkerResult(TypedDict):
    """What one worker did.

    Attributes:
        cpus: the CPUs it was pinned to; empty when it was not pinned.
        wall_seconds: time from the common start to its end, also for a worker that the time limit ended.
        cpu_seconds: user and system time of the worker and the children it waited for.
        context_switches: voluntary and involuntary ones.
        exit_status: exit status, or minus the number of the signal that ended it.
        output: the end of its standard output.
        errors: the end of its standard error.
        cut: whether the begin of one of them is lost.
    """

    cpus: "list[int]"
    wall_seconds: float
    cpu_seconds: float
    context_switches: int
    exit_status: int
    output: str
    errors: str
    cut: bool


class SampleResult(TypedDict):
    """What one sample measured.

    Attributes:
        workers: one result per worker, in the order of the CPU lists.
        timed_out: whether the time limit ended the sample.
        cpu_usage: CPU number -> share of the sample's time (0..1) during which the CPU was not idle.
        steal: share of all CPUs' time (0..1) that the hypervisor took, or None when no clock tick passed.
        co_runners: the number of co-runners that ran.
    """

    workers: "list[WorkerResult]"
    timed_out: bool
    cpu_usage: "dict[str, float]"
    steal: "float | None"
    co_runners: int


class CoRunners(t.NamedTuple):
    """Processes that do nothing but keep CPUs busy while a sample is taken.

    Attributes:
        cpu_lists: the CPUs of each; an empty list leaves it unpinned.
        nice: their niceness, -20 to 19; 0 leaves that of this process.
    """

    cpu_lists: "Sequence[Sequence[int]]" = ()
    nice: int = 0


NO_CO_RUNNERS = CoRunners()


class _Arguments(t.NamedTuple):
    """The arguments of ``run``."""

    argv: "list[str]"
    cpu_lists: "Sequence[Sequence[int]]"
    stdin: "str | None"
    directories: "Sequence[str]"
    keep_output: bool
    timeout: float
    nice: int
    co_runners: CoRunners
    owner: "tuple[int, int] | None"
    memory_node: "int | None"
    variables: "Mapping[str, str]"


class _End(t.NamedTuple):
    """What the kernel reported when a worker was reaped."""

    wall_seconds: float
    cpu_seconds: float
    context_switches: int
    exit_status: int


def run(
    argv: "list[str]",
    cpu_lists: "Sequence[Sequence[int]]",
    stdin: "str | None" = None,
    directories: "Sequence[str]" = (),
    keep_output: bool = True,
    timeout: float = 60.0,
    nice: int = 0,
    co_runners: CoRunners = NO_CO_RUNNERS,
    owner: "tuple[int, int] | None" = None,
    memory_node: "int | None" = None,
    variables: "Mapping[str, str]" = types.MappingProxyType({}),
) -> SampleResult:
    """Run one command once per worker; all workers start at the same moment.

    Each worker is forked and pinned with sched_setaffinity(2), and then waits at a barrier. The clock starts when the
    workers are released, so the measured time contains neither the fork of this interpreter nor the pinning. A
    supervisor with a session of its own owns the workers: processes that they leave behind become its children and are
    ended with it, also when the caller is killed. A worker of an ordinary user cannot become root (no_new_privs),
    because the supervisor could not end it then.

    Args:
        argv: the command; it is never passed to a shell.
        cpu_lists: the CPUs of each worker; an empty list leaves that worker unpinned.
        stdin: path of a file that each worker reads from its beginning, or None for no input.
        directories: the working directory of each worker; empty for that of this process.
        keep_output: False sends standard output to /dev/null, for a workload whose work is its output.
        timeout: seconds after which all processes of the sample are killed.
        nice: niceness of the workers, -20 to 19; 0 leaves that of this process.
        co_runners: the co-runners. One whose CPUs are all offline is left out.
        owner: (uid, gid) of the user that the workers run as, or None for the user of this process.
        memory_node: the NUMA node that all memory of the workers comes from, or None for the kernel's choice.
        variables: of the command's environment, beside those of :func:`environment`.

    Returns:
        The results of the workers and the CPU usage during the sample.

    Raises:
        RunnerError: A worker could not be pinned, a niceness is not allowed, or the command could not be started; no
            process is left.
    """
    result_read, result_write = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(result_read)
        _supervise(
            result_write,
            _Arguments(
                argv,
                cpu_lists,
                stdin,
                directories,
                keep_output,
                timeout,
                nice,
                co_runners,
                owner,
                memory_node,
                variables,
            ),
        )
    os.close(result_write)
    try:
        with os.fdopen(result_read, encoding="utf-8") as stream:
            text = stream.read()
    finally:
        # A supervisor that has reported ignores SIGTERM; if the caller leaves early, the supervisor ends its workers
        # first.
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
    if not text:
        raise RunnerError(f"the supervisor of {argv[0]} ended without a result")
    error: t.Optional[str]
    result: SampleResult
    try:
        error, result = json.loads(text)
    except ValueError:
        raise RunnerError(f"the supervisor of {argv[0]} was killed before it had reported its result") from None
    if error:
        raise RunnerError(error)
    return result


class _Terminated(BaseException):
    """SIGTERM reached the supervisor."""


def _supervise(result_write: int, arguments: _Arguments) -> t.NoReturn:
    """Run the sample in the forked supervisor, report the result, and end all processes that are left."""
    status = 1
    try:
        os.setsid()
        processes.die_with_parent(signal.SIGTERM)
        processes.adopt_orphans()
        signal.signal(signal.SIGTERM, _raise_terminated)
        report = _sample(arguments)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with os.fdopen(result_write, "w", encoding="utf-8") as stream:
            json.dump(report, stream)
        status = 0
    except _Terminated:
        pass
    finally:
        os._exit(status)


def _raise_terminated(_number: int, _frame: t.Optional[FrameType]) -> t.NoReturn:
    raise _Terminated


def _sample(arguments: _Arguments) -> "tuple[str | None, SampleResult]":
    """Return why the sample could not be started, or None, and the result,
    which is meaningful only without an error.
    """
    workers: list[_Worker] = []
    error: t.Optional[str] = None
    timed_out = False
    before: dict[str, dict[str, int]] = {}
    after: dict[str, dict[str, int]] = {}
    co_runners = 0
    barrier_write: t.Optional[int] = None
    start = time.monotonic()
    try:
        # Start the co-runners before the barrier exists: one that inherited its write end would hold the workers back.
        for co_runner_cpus in arguments.co_runners.cpu_lists:
            co_runners += _start_co_runner(co_runner_cpus, arguments.co_runners.nice)
        barrier_read, barrier_write = os.pipe()
        for number, cpus in enumerate(arguments.cpu_lists):
            directory = arguments.directories[number] if arguments.directories else None
            workers.append(_Worker(arguments, cpus, directory, barrier_read, barrier_write))
        for worker in workers:
            worker.await_pinned()
        before = cpu_times()
        start = time.monotonic()
        os.close(barrier_write)
        barrier_write = None
        timed_out = _await_ends(workers, start, arguments.timeout)
        after = cpu_times()
        # A worker that hangs before exec never closes its report pipe: end it before that pipe is read.
        _end_all(workers, start)
        for worker in workers:
            worker.await_exec()
    except (RunnerError, OSError) as failure:
        error = str(failure)
    finally:
        if barrier_write is not None:
            os.close(barrier_write)
        _end_all(workers, start)
    usage, steal = cpu_usage(before, after)
    return error, {
        "workers": [worker.result() for worker in workers],
        "timed_out": timed_out,
        "cpu_usage": usage,
        "steal": steal,
        "co_runners": co_runners,
    }


def _start_co_runner(cpus: "Sequence[int]", nice: int) -> bool:
    """Fork a process that keeps a CPU busy until the sample ends.

    Returns:
        Whether it runs; it does not where its CPUs are offline.

    Raises:
        RunnerError: its niceness is not allowed.
    """
    report, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            processes.die_with_parent(signal.SIGKILL)
            if cpus:
                os.sched_setaffinity(0, cpus)
            if nice:
                _renice(nice)
            os.write(report_write, _READY)
            os.close(report_write)
            while True:
                pass
        except RunnerError as error:
            os.write(report_write, str(error).encode("utf-8"))
        finally:
            os._exit(1)
    os.close(report_write)
    with os.fdopen(report, "rb") as stream:
        output = stream.read()
    if output == _READY:
        return True
    os.waitpid(pid, 0)
    if output:
        raise RunnerError(f"a co-runner was not started: {output.decode('utf-8', 'replace')}")
    return False


def _end_all(workers: "Iterable[_Worker]", start: float) -> None:
    """End what is left of the sample: workers, co-runners, and orphans of workers, which this process has adopted.

    Args:
        workers: the workers.
        start: when they started, by the monotonic clock.
    """
    left = {worker.pid: worker for worker in workers if worker.end is None}

    def reaped(pid: int, status: int, usage: "resource.struct_rusage") -> None:
        if pid in left:
            left.pop(pid).reaped(time.monotonic() - start, status, usage)

    processes.end_children(reaped, waiting=frozenset(left))


class _Worker:
    """One process of a sample, from its fork to its end."""

    def __init__(
        self,
        arguments: _Arguments,
        cpus: "Sequence[int]",
        directory: "str | None",
        barrier_read: int,
        barrier_write: int,
    ) -> None:
        self.cpus = list(cpus)
        self._kept = min(OUTPUT_LIMIT, OUTPUT_OF_ALL // len(arguments.cpu_lists))
        self.end: t.Optional[_End] = None
        self._files = contextlib.ExitStack()
        self._output = self._files.enter_context(_scratch_file()) if arguments.keep_output else None
        self._errors = self._files.enter_context(_scratch_file())
        # The worker reports on this pipe that it is pinned. A successful exec closes the pipe; a failed one writes the
        # reason.
        self._report, report_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become_command(
                arguments, cpus, directory, self._output, self._errors, barrier_read, barrier_write, report_write
            )
        os.close(report_write)

    def await_pinned(self) -> None:
        report = os.read(self._report, 1000)
        if report != _READY:
            raise RunnerError(
                report.decode("utf-8", "replace").strip() or "a worker ended before it started the command"
            )

    def await_exec(self) -> None:
        report = os.read(self._report, 1000)
        if report:
            raise RunnerError(report.decode("utf-8", "replace").strip())

    def reaped(self, wall_seconds: float, status: int, usage: "resource.struct_rusage") -> None:
        self.end = _End(
            wall_seconds,
            usage.ru_utime + usage.ru_stime,
            usage.ru_nvcsw + usage.ru_nivcsw,
            os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status),
        )

    def result(self) -> WorkerResult:
        if self.end is None:
            raise RunnerError(f"worker {self.pid} was not reaped")
        with self._files:
            (output, is_output_cut), (errors, is_errors_cut) = (
                _tail(handle, self._kept) for handle in (self._output, self._errors)
            )
            return {
                "cpus": self.cpus,
                "wall_seconds": self.end.wall_seconds,
                "cpu_seconds": self.end.cpu_seconds,
                "context_switches": self.end.context_switches,
                "exit_status": self.end.exit_status,
                "output": output,
                "errors": errors,
                "cut": is_output_cut or is_errors_cut,
            }


def _scratch_file() -> "t.IO[bytes]":
    """Return an anonymous temporary file, which the caller has to close."""
    return tempfile.TemporaryFile()


def _become_command(
    arguments: _Arguments,
    cpus: "Sequence[int]",
    directory: "str | None",
    output: "t.IO[bytes] | None",
    errors: "t.IO[bytes]",
    barrier_read: int,
    barrier_write: int,
    report: int,
) -> t.NoReturn:
    """Turn the forked worker into the command: pin it, wait at the barrier, exec."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Python ignores SIGPIPE, and an ignored signal stays ignored over exec: tools in a pipeline would never end.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if cpus:
            os.sched_setaffinity(0, cpus)
        if arguments.nice:
            _renice(arguments.nice)
        if arguments.memory_node is not None:
            memory_policy.bind(arguments.memory_node)
        os.dup2(os.open(arguments.stdin or os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno() if output else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors.fileno(), 2)
        if arguments.owner:
            users.become(arguments.owner)
        elif os.geteuid() != 0:
            processes.gain_no_privileges()
        # After the change of user, which clears this setting.
        processes.die_with_parent(signal.SIGKILL)
        if directory:
            os.chdir(directory)
        os.close(barrier_write)
        os.write(report, _READY)
        os.read(barrier_read, 1)
        _execute(arguments.argv, arguments.variables)
    except (OSError, RunnerError, memory_policy.MemoryPolicyError) as error:
        os.write(report, _reason(error, cpus).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _renice(niceness: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    except PermissionError:
        raise RunnerError(f"nice {niceness}: only root may raise the priority of a process") from None


def _execute(argv: "list[str]", variables: "Mapping[str, str]") -> t.NoReturn:
    try:
        os.execvpe(argv[0], argv, {**environment(), **variables})
    except FileNotFoundError:
        raise RunnerError(f"{argv[0]}: command not found on this host") from None
    except OSError as error:
        raise RunnerError(f"{argv[0]} cannot be run: {error.strerror}") from None


def environment() -> "dict[str, str]":
    """Return the environment of the commands that are run: the search path, and a locale with a known decimal point."""
    return {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}


def _reason(error: Exception, cpus: "Sequence[int]") -> str:
    if cpus and isinstance(error, OSError) and error.errno == errno.EINVAL:
        return f"cannot pin to CPU {','.join(map(str, cpus))}: it is offline, or this process may not use it"
    return str(error)


def _await_ends(workers: "Iterable[_Worker]", start: float, timeout: float) -> bool:
    """Reap the workers as they end.

    Args:
        workers: the running workers.
        start: when they started, by the monotonic clock.
        timeout: seconds after the start.

    Returns:
        Whether the time was over while some workers still ran.
    """
    left = {worker.pid: worker for worker in workers}
    # SIGCHLD wakes the select below at once; polling would take CPU time from the workers.
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write)
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


def _reap(pid: int, left: "dict[int, _Worker]", start: float) -> None:
    """Record the end of a worker and remove it from ``left``, if it has ended."""
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done:
        left.pop(pid).reaped(time.monotonic() - start, status, usage)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _tail(handle: "t.IO[bytes] | None", most: int) -> "tuple[str, bool]":
    """Return the end of a file, where tools print their metric and the reason of a failure, and whether there is more
    of it.
    """
    if handle is None:
        return "", False
    size = handle.seek(0, os.SEEK_END)
    handle.seek(max(0, size - most))
    return handle.read(most).decode("utf-8", "replace"), size > most


def cpu_times() -> "dict[str, dict[str, int]]":
    """Read the clock ticks of each online CPU (proc(5), /proc/stat).

    Returns:
        CPU number -> column of ``STAT_COLUMNS`` -> clock ticks since boot.
    """
    times = {}
    with open("/proc/stat", encoding="ascii", errors="replace") as stat:
        for line in stat:
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                times[name[3:]] = dict(zip(STAT_COLUMNS, map(int, ticks)))
    return times


def cpu_usage(
    before: "Mapping[str, Mapping[str, int]]", after: "Mapping[str, Mapping[str, int]]"
) -> "tuple[dict[str, float], float | None]":
    """Compute the usage of each CPU, and the share of all CPUs' time that was stolen,
    between two readings of ``cpu_times``.

    Args:
        before: the first reading.
        after: the second reading.

    Returns:
        Usage (0..1) by CPU number, for the CPUs that were online at both readings; and the stolen share (0..1), or None
        when no tick passed.
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
