# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A workload prepared on this host, with its input, program, server and amount of work; and its samples."""

import math
import os
import re
import shutil
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, users
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import Protocol, TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    inputs,
    metrics as workload_metrics,
    sample_length,
    server,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    ServerDeclaration,
    Work,
    Workload,
    WorkloadError,
    co_runner_cpus,
    filled,
    missing,
    parameter_values,
    search_path,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.inputs import INPUT
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import sources

# A sample that takes this many times as long as one worker alone hangs. An emulated or overloaded host is slow, but not
# that slow.
TIMEOUT_FACTOR = 40
MIN_TIMEOUT = 30.0
CALIBRATION_ROUNDS = 6
# Calibration is good enough within this factor of the wanted time. Samples must be alike; their exact length does not
# matter.
CALIBRATION_FACTOR = 1.5
# A command that works takes twice as long where two of them share a CPU.
LEAST_SHARED = 1.25
# One that takes more seconds is not tried: that would be a large part of the budget.
LONGEST_SHARED = 30.0
WALL = "wall_seconds"
SCRATCH = "scratch"
# What clients may use of their own CPUs. Beyond it the server may have waited for them.
MAX_CLIENT_SHARE = 0.95
# The clients of a server with cores of its own have one in so many cores.
CORES_OF_ONE_CLIENT = 4
# The share of the available memory (MemAvailable) that workers can use. The rest stays free for other processes.
MEMORY_SHARE = 0.8
_NUMBER = re.compile(r"(\w+): +([0-9]+)")


class RunFiles(Protocol):
    """The methods of RunDirectory that workloads use."""

    path: str

    def file(self, name: str) -> str:
        """Return the path of a file of the run."""

    def folder(self, name: str, owner: "tuple[int, int]") -> str:
        """Create a directory of the run for a user (uid, gid), and return its path."""


class Sample(TypedDict):
    """The result of one sample: as from ``runner.run``,
    with the metrics and each worker's value of the primary metric.
    """

    workers: "t.Sequence[t.Mapping[str, t.Any]]"
    timed_out: bool
    cpu_usage: "dict[str, float]"
    steal: "float | None"
    co_runners: int
    metrics: "dict[str, workload_metrics.MetricValue]"
    values: "list[float]"


class PreparedWorkload:
    """A workload that is ready for samples on this host. ``close`` ends its server.

    Args:
        declaration: the declaration of the workload.
        files: the run's RunDirectory.
        sources: {file name: text} of the files beside declarations.
        seconds: the wanted length of a sample of one worker alone, or None for one that calibration chooses.
        cpus: the number of CPUs of the host with all siblings online.
        cores: the CPUs of each core, for co-runners on siblings and clients with cores of their own.

    Attributes:
        declaration: as above.
        values: the values of the workload's parameter, ``[None]`` without a parameter.
        work: the calibrated amount of work, or None.

    Raises:
        WorkloadError: a command or source is missing, the program does not compile, or the server does not start.
        OSError: a file or directory cannot be created.
    """

    def __init__(
        self,
        declaration: Workload,
        files: RunFiles,
        sources: "t.Mapping[str, str]",
        seconds: "float | None",
        cpus: int,
        cores: "t.Sequence[t.Sequence[int]]" = (),
    ) -> None:
        self.declaration = declaration
        self.values = parameter_values(declaration, cpus)
        self.work: t.Optional[int] = None
        self._files = files
        self._cores = cores
        self._sources = sources
        self._clients: t.Sequence[int] = ()
        self._usable = {cpu for core in cores for cpu in core}
        self._is_length_chosen = seconds is not None
        self._seconds = sample_length.MIN_SECONDS if seconds is None else seconds
        self._alone = self._seconds
        self._seconds_of_work = 0.0
        self._more_work = 1.0
        self._stdin: t.Optional[str] = None
        self._server: t.Optional[server.Server] = None
        # The user of the workers. The client of a server runs as the server's user: a hostile server could make a
        # client of root reveal root's files.
        self._owner = (os.geteuid(), os.getegid())
        path = search_path(declaration, os.environ.get("PATH", os.defpath))
        absent = missing(declaration, path)
        if absent:
            raise WorkloadError(absent)
        for name in {declaration["source"], *(declaration["server"] or {"files": []})["files"]} - {None}:
            if name not in sources:
                raise WorkloadError(
                    f"the file {name} was not sent: run the plan with the action threadwise.smt.smt_benchmark"
                )
        self._program = self._build(path)
        # The client must be of the same version as the server.
        self._command = (
            shutil.which(declaration["argv"][0], path=path) if declaration["server"] else None
        ) or declaration["argv"][0]
        if declaration["server"]:
            self._owner = server.owner(declaration["server"])
            self._environment = {**runner.environment(), "PATH": path, **declaration["environment"]}
            if not declaration["server"]["in_each_arm"]:
                self._start_server(declaration["server"], ())

    def enter_arm(self, cpus: "t.Sequence[int]", more_work: float = 1.0) -> None:
        """Take note of the CPUs of an arm, and start a server that runs in each arm anew.

        Args:
            cpus: the CPUs that workers can use in the arm.
            more_work: the amount of work in a sample of the arm, in that of others.

        Raises:
            WorkloadError: the server did not start, or the command has no amount of work that could be more.
            OSError: its directory cannot be created.
        """
        self._usable, self._more_work = set(cpus), more_work
        if more_work != 1 and not any("{work}" in argument for argument in self.declaration["argv"]):
            raise WorkloadError("its command has no amount of work, so there is none that could be more")
        declared = self.declaration["server"]
        if declared and declared["in_each_arm"]:
            if declared["has_own_cores"]:
                cpus, self._clients = apart(self._cores, self._usable)
            self._start_server(declared, cpus)

    def leave_arm(self) -> "str | None":
        """End a server that runs in each arm anew.

        Returns:
            None, or a message about what could not be removed.
        """
        declared = self.declaration["server"]
        return self.close() if declared and declared["in_each_arm"] else None

    def close(self) -> "str | None":
        """End the server, if there is one.

        Returns:
            None, or a message about what could not be removed.
        """
        return self._server.stop() if self._server else None

    def _start_server(self, declared: ServerDeclaration, cpus: "t.Sequence[int]") -> None:
        folder = self._files.folder(self.declaration["name"] + ".server", self._owner)
        self._server = server.Server(declared, folder, self._environment, cpus, self._sources)

    def applies(self, placement: str) -> bool:
        """Return whether the workload is meaningful in a placement."""
        return self.declaration["placements"] is None or placement in self.declaration["placements"]

    def memory_shortage(self, workers: "t.Sequence[t.Sequence[int]]", huge_pages: int = 0) -> "str | None":
        """Return a message if this host has not enough memory for the workers, else None.

        Args:
            workers: the CPU list of each worker.
            huge_pages: the highest number of huge pages that an arm reserves, beside those that are free now.
        """
        size, free = _huge_pages()
        pages = len(workers) * -(-self.declaration["huge_memory"] * 1024 // size)
        if pages > max(free, huge_pages):
            return (
                f"{self.declaration['name']} needs {pages} huge pages of {size} kB for"
                f" {len(workers)} worker{'s' if len(workers) > 1 else ''}, and {max(free, huge_pages)} are reserved:"
                f" reserve them (vm.nr_hugepages), or compare an arm hugepages_{pages}"
            )
        needed = len(workers) * self.declaration["memory"]
        available = _available_megabytes()
        if needed and available is not None and needed > MEMORY_SHARE * available:
            return (
                f"{len(workers)} workers of {self.declaration['name']} need {int(needed)} MB of memory, and"
                f" {int(available)} MB are available"
            )
        return None

    def least_seconds(self, workers: "t.Sequence[t.Sequence[int]]") -> float:
        """Return how long a sample takes at least, as far as calibration shows.

        Args:
            workers: the CPU list of each worker.
        """
        turns = len(workers) / max(1, len({cpu for cpus in workers for cpu in cpus}))
        # A worker with several CPUs may have as many threads.
        return self._alone * (max(1.0, turns) if all(len(cpus) == 1 for cpus in workers) else turns)

    def calibrate(self, alone: "t.Sequence[t.Sequence[int]]") -> str:
        """Determine the amount of work, and verify that the workload works.

        Args:
            alone: a list with the CPU list of one worker alone.

        Returns:
            A sentence about the amount of work or the length of a sample.

        Raises:
            WorkloadError: the workload does not work on this host.
            RunnerError: its processes cannot be run.
        """
        work = self.declaration["work"]
        if work is None:
            self._time(alone)
            self._see_that_its_time_is_of_work(alone)
            return f"{self.declaration['name']}: {self._alone:.2f} s per sample"
        self._set_work(work["start"])
        pace = self._fit_work(work, alone)
        if not self._is_length_chosen:
            self._seconds = sample_length.enough(self._start_seconds(work, alone))
            pace = self._fit_work(work, alone)
        self._seconds_of_work = pace * t.cast(int, self.work)
        inputs.verify(self.declaration)
        return f"{self.declaration['name']}: {self.work} {work['unit']}, samples of about {self._alone:.2f} s"

    def _see_that_its_time_is_of_work(self, alone: "t.Sequence[t.Sequence[int]]") -> None:
        """Refuse a command that is measured by the time of its run and does not take longer where it has half a CPU.

        It runs for a time that is set, as load generators do, or waits: with more workers it would always seem to do
        more.

        Raises:
            WorkloadError: the command does not take longer.
        """
        first = self.declaration["metrics"][0]
        if not (
            self.declaration["custom"] and first.get("clock") == WALL and first["aggregate"] == workload_metrics.PER_JOB
        ):
            return
        once = self._alone
        if not all(alone) or self.declaration["server"] or self.declaration["co_runners"] or once > LONGEST_SHARED:
            return
        try:
            shared = self._time([*alone, *alone])
        except WorkloadError:
            # It took too long, which is an answer too; what else can fail fails in the samples.
            self._alone = once
            return
        if shared < LEAST_SHARED * once:
            # The first run may have been one without caches.
            once = min(once, self._time(alone))
        self._alone = once
        if shared < LEAST_SHARED * once:
            raise WorkloadError(
                f"{self.declaration['argv'][0]} takes {once:.2f} s alone, and {shared:.2f} s with another one on its"
                " CPU: it runs for a time that is set, or waits, and the time of its run says nothing of its work."
                " Measure a number that it prints (smt_eval_metric, or metric in smt_eval_custom), or give it work"
            )

    def _fit_work(self, limits: Work, alone: "t.Sequence[t.Sequence[int]]") -> float:
        """Set the amount of work that takes the wanted time, from the one that is set,
        and return the seconds of one unit of it.
        """
        for _round in range(CALIBRATION_ROUNDS):
            amount = t.cast(int, self.work)
            seconds = self._time(alone)
            pace = seconds / amount
            if self._seconds / CALIBRATION_FACTOR <= seconds <= self._seconds * CALIBRATION_FACTOR:
                break
            self._set_work(next_work(limits, amount, seconds, self._seconds))
        return pace

    def _start_seconds(self, limits: Work, alone: "t.Sequence[t.Sequence[int]]") -> float:
        """Return the seconds of the command's start that a metric of it contains."""
        of_its_run = any(metric.get("rate") or metric.get("clock") for metric in self.declaration["metrics"])
        if self.declaration["timed"] or not of_its_run:
            return 0.0
        more = max(t.cast(int, self.work), 2 * limits["step"])
        less = max(limits["step"], more // 4 // limits["step"] * limits["step"])
        timings = []
        for work in (less, more):
            self._set_work(work)
            timings.append(sample_length.Timing(work, min(self._time(alone) for _round in range(sample_length.ROUNDS))))
        return sample_length.start_seconds(*timings)

    def sample(
        self, workers: "t.Sequence[t.Sequence[int]]", value: "float | None", memory_node: "int | None" = None
    ) -> Sample:
        """Take one sample.

        Args:
            workers: the CPU list of each worker.
            value: the value of the workload's parameter, or None.
            memory_node: the NUMA node that the workers' memory comes from, or None for the kernel's choice.

        Raises:
            WorkloadError: the workload failed. None of its processes is left.
            RunnerError: its processes could not be run. None of them is left.
        """
        multithreaded = self.declaration["multithreaded"]
        if self._clients:
            workers = [(cpu,) for cpu in self._clients]
        # A worker without a CPU list can run anywhere, and so can the process of its thread.
        process_cpus = (
            [sorted({cpu for cpus in workers for cpu in cpus}) if all(workers) else []] if multithreaded else workers
        )
        timeout = self._timeout(workers)
        with _Scratch(self._files, self._owner, len(process_cpus)) as directories:
            taken = runner.run(
                self._argv(workers, value),
                process_cpus,
                stdin=self._stdin,
                directories=directories,
                keep_output=self.declaration["keep_output"],
                timeout=timeout,
                nice=self.declaration["nice"],
                co_runners=runner.CoRunners(
                    co_runner_cpus(self.declaration, workers, self._cores, self._usable),
                    self.declaration["co_runners_nice"],
                ),
                owner=self._owner if self._server and self._server.has_own_user else None,
                memory_node=memory_node,
                variables=self.declaration["environment"],
            )
            if taken["timed_out"]:
                # Not the exit status: a command that is asked to end can end with 0.
                stuck = max(taken["workers"], key=lambda worker: worker["wall_seconds"])
                raise WorkloadError(
                    f"{self.declaration['argv'][0]} did not end within {int(timeout)} s and was ended:"
                    f" {workload_metrics.last_lines(stuck)}"
                )
            if self._clients:
                self._see_that_clients_had_time(taken["workers"])
            work = self.work and self.work * (len(workers) if multithreaded else 1)
            metrics, values = workload_metrics.read(self.declaration, work, taken["workers"], directories, self._owner)
        return {
            "workers": taken["workers"],
            "timed_out": taken["timed_out"],
            "cpu_usage": taken["cpu_usage"],
            "steal": taken["steal"],
            "co_runners": taken["co_runners"],
            "metrics": metrics,
            "values": values,
        }

    def _see_that_clients_had_time(self, workers: "t.Sequence[t.Mapping[str, t.Any]]") -> None:
        """Refuse a sample in which the clients were as busy as they can be: it says what they can do.

        Raises:
            WorkloadError: they were.
        """
        share = sum(worker["cpu_seconds"] / worker["wall_seconds"] for worker in workers) / len(self._clients)
        if share > MAX_CLIENT_SHARE:
            raise WorkloadError(
                f"{self.declaration['argv'][0]}, which makes the load, used {share:.0%} of its own CPUs"
                f" {cpulist.render(self._clients)}: it was measured instead of the server"
            )

    def _build(self, path: str) -> "str | None":
        name = self.declaration["source"]
        return None if name is None else inputs.build(name, self._sources[name], self._files.path, path)

    def _argv(self, workers: "t.Sequence[t.Sequence[int]]", parameter: "float | None") -> "list[str]":
        values: dict[str, object] = {
            "work": self.work and round(self.work * self._more_work),
            "alone": f"{self._seconds_of_work:.9f}",
            "total": self.work and self.work * len(workers),
            "threads": len(workers),
            "cpus": (
                ",".join(str(cpus[0]) if len(cpus) == 1 else "-1" for cpus in workers)
                if self.declaration["multithreaded"]
                else None
            ),
            "seconds": max(1, math.ceil(self._seconds)),
            "parameter": parameter,
            "program": self._program,
            "server": self._server and self._server.folder,
            "port": self._server and self._server.port,
        }
        return [filled(argument, values) for argument in [self._command, *self.declaration["argv"][1:]]]

    def _set_work(self, work: int) -> None:
        self.work = work
        if self.declaration["reads_stream"]:
            self._stdin = self._files.file(self.declaration["name"] + INPUT)
            inputs.write_stream(self._stdin, work)

    def _time(self, alone: "t.Sequence[t.Sequence[int]]") -> float:
        workers = self.sample(alone, self.values[0])["workers"]
        self._alone = max(worker["wall_seconds"] for worker in workers)
        timed = self.declaration["timed"]
        return max(sources.in_json(worker["output"], timed) for worker in workers) if timed else self._alone

    def _timeout(self, workers: "t.Sequence[t.Sequence[int]]") -> float:
        # Streams take turns on fewer CPUs than there are of them.
        cpus = {cpu for cpus in workers for cpu in cpus}
        turns = math.ceil(len(workers) / len(cpus)) if cpus else 1
        return self.declaration["timeout"] or MIN_TIMEOUT + TIMEOUT_FACTOR * turns * max(self._seconds, self._alone)


def next_work(limits: Work, work: int, seconds: float, wanted_seconds: float) -> int:
    """Return the amount of work that should take the wanted time.

    Args:
        limits: the step and the limit of the amount.
        work: the amount of a run of one worker alone.
        seconds: the duration of that run.
        wanted_seconds: the wanted duration.
    """
    # A run that is too short to time says only that more work is needed.
    factor = wanted_seconds / seconds if seconds > wanted_seconds / 50 else 50
    steps = max(1, math.floor(work * factor / limits["step"]))
    return min(steps * limits["step"], limits["limit"])


def apart(cores: "t.Sequence[t.Sequence[int]]", usable: "t.Container[int]") -> "tuple[list[int], list[int]]":
    """Return the CPUs of a server and those of its clients, which share no core.

    Args:
        cores: the CPUs of each core, with all siblings online, so that clients have the same cores in each arm.
        usable: the CPUs that the arm has.

    Raises:
        WorkloadError: there is one core only.
    """
    ordered = sorted(cores, key=min)
    clients = ordered[CORES_OF_ONE_CLIENT - 1 :: CORES_OF_ONE_CLIENT] or ordered[-1:]
    split = [
        sorted(cpu for core in part for cpu in core if cpu in usable)
        for part in ([core for core in ordered if core not in clients], clients)
    ]
    if not all(split):
        raise WorkloadError("there is one core only, and the server and what makes its load need one each")
    return split[0], split[1]


class _Scratch:
    """An empty working directory of each worker for one sample, removed afterwards."""

    def __init__(self, files: RunFiles, owner: "tuple[int, int]", workers: int) -> None:
        self._files = files
        self._owner = owner
        self._names = [f"{SCRATCH}.{number}" for number in range(workers)]

    def __enter__(self) -> "list[str]":
        self._remove()
        return [self._files.folder(name, self._owner) for name in self._names]

    def __exit__(self, *_raised: object) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in self._names:
            users.remove_folder(self._files.file(name), self._owner)


def _available_megabytes() -> "int | None":
    """Return MemAvailable (since Linux 3.14) in MB (10^6 bytes), or None."""
    available = _meminfo().get("MemAvailable")
    return None if available is None else available * 1024 // 10**6


def _huge_pages() -> "tuple[int, int]":
    """Return the size of a huge page in kB, and how many are free and promised to nobody."""
    meminfo = _meminfo()
    return meminfo.get("Hugepagesize", 2048), meminfo.get("HugePages_Free", 0) - meminfo.get("HugePages_Rsvd", 0)


def _meminfo() -> "dict[str, int]":
    """Read the numbers of /proc/meminfo (proc(5)), in kB where they have a unit."""
    try:
        with open("/proc/meminfo", encoding="ascii", errors="replace") as meminfo:
            return {match.group(1): int(match.group(2)) for match in map(_NUMBER.match, meminfo) if match}
    except OSError:
        return {}
