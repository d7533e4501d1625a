# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A workload made ready on this host: its input written, its program built, its server up, its amount of work known; and one sample of it."""

from __future__ import annotations

import math
import os
import shutil

from ansible_collections.threadwise.smt.plugins.module_utils._host import users
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, inputs, metrics as workload_metrics, server
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.inputs import INPUT

# A sample that takes so many times what it takes alone hangs; an emulated or crowded host is slow, but not that slow.
TIMEOUT_FACTOR = 40
TIMEOUT_LEAST = 30.0
CALIBRATION_ROUNDS = 6
# Calibration is good enough within this factor of the wanted time: samples need to be alike, not of an exact length.
CALIBRATION_FACTOR = 1.5
SCRATCH = "scratch"
# What is left free of the memory that the kernel calls available, for everybody else.
MEMORY_SHARE = 0.8


class Ready:
    """A workload that can be sampled here. ``close`` ends what it needs.

    Args:
        workload: its declaration.
        files: the run's RunDirectory.
        sources: {file name: C source}.
        seconds: what a sample of one worker alone should take.
        cpus: the number of CPUs of the host, all siblings online.
    """

    def __init__(self, workload, files, sources, seconds, cpus):
        self.workload = workload
        self.points = built_in.points(workload, cpus)
        self.work = None
        self._files = files
        self._seconds = seconds
        self._alone = seconds
        self._stdin = None
        self._server = None
        # Who runs the workers. The client of a server is run by the server's user: a hostile server could ask root's client for what root's files hold.
        self._owner = (os.geteuid(), os.getegid())
        path = built_in.search_path(workload, os.environ.get("PATH", os.defpath))
        absent = built_in.missing(workload, path)
        if absent:
            raise built_in.WorkloadError(absent)
        self._program = self._built(sources, path)
        # Another version's client must not be found before the server's own.
        self._command = shutil.which(workload["argv"][0], path=path) if workload["server"] else workload["argv"][0]
        if workload["server"]:
            self._owner = server.owner(workload["server"])
            folder = files.folder(workload["name"] + ".server", self._owner)
            self._server = server.Server(workload["server"], folder, path)

    def close(self):
        """End the server, where there is one.

        Returns:
            None, or a sentence about what it left behind.
        """
        return self._server.stop() if self._server else None

    def applies(self, placement):
        """Whether the workload says something about a placement."""
        return self.workload["placements"] is None or placement in self.workload["placements"]

    def lacks(self, workers):
        """Why so many workers cannot be run here, or None when they can.

        Args:
            workers: one CPU list a worker.
        """
        needed = len(workers) * self.workload["memory"]
        available = _available_megabytes()
        if needed and available is not None and needed > MEMORY_SHARE * available:
            return f"{len(workers)} workers of {self.workload['name']} need {int(needed)} MB of memory, and {int(available)} MB are available"
        return None

    def calibrate(self, alone):
        """Find the amount of work, and see that the workload works.

        Args:
            alone: the CPU list of one worker alone, in a list.

        Returns:
            A sentence about what was found.

        Raises:
            WorkloadError, RunnerError: it does not work here.
        """
        work = self.workload["work"]
        if work is None:
            self._time(alone)
            return f"{self.workload['name']}: {self._alone:.2f} s a sample"
        self._set_work(work["start"])
        for _round in range(CALIBRATION_ROUNDS):
            seconds = self._time(alone)
            if self._seconds / CALIBRATION_FACTOR <= seconds <= self._seconds * CALIBRATION_FACTOR:
                break
            self._set_work(next_work(self.workload, self.work, seconds, self._seconds))
        inputs.verify(self.workload, self._stdin)
        return f"{self.workload['name']}: {self.work} {work['unit']}"

    def sample(self, workers, point):
        """One sample.

        Args:
            workers: one CPU list a worker.
            point: the value of the workload's point, or None.

        Returns:
            What ``runner.run`` returns, with ``metrics`` and ``values`` as ``workload_metrics.read`` gives them.

        Raises:
            WorkloadError, RunnerError: it did not work; no process of it is left.
        """
        together = self.workload["together"]
        # Without a CPU list a thread may run anywhere, and so may the process that holds it.
        process_cpus = [sorted({cpu for cpus in workers for cpu in cpus}) if all(workers) else []] if together else workers
        timeout = self._timeout()
        with _Scratch(self._files, self._owner) as directory:
            taken = runner.run(
                self._argv(workers, point),
                process_cpus,
                stdin=self._stdin,
                directory=directory,
                keep_output=self.workload["keep_output"],
                timeout=timeout,
                nice=self.workload["nice"],
                neighbours=self.workload["neighbours"],
                owner=self._owner if self._server else None,
            )
            if taken["timed_out"]:
                stuck = next(worker for worker in taken["workers"] if worker["exit_status"] != 0)
                raise built_in.WorkloadError(f"{self.workload['argv'][0]} did not end within {int(timeout)} s and was ended: {workload_metrics.said(stuck)}")
            work = self.work and self.work * (len(workers) if together else 1)
            taken["metrics"], taken["values"] = workload_metrics.read(self.workload, work, taken["workers"], directory, self._owner)
        return taken

    def _built(self, sources, path):
        name = self.workload["source"]
        if name is None:
            return None
        if name not in sources:
            raise built_in.WorkloadError(f"the source {name} did not come with the plan: start it by the action threadwise.smt.smt_benchmark")
        return inputs.build(name, sources[name], self._files.path, path)

    def _argv(self, workers, point):
        known = {
            "{work}": self.work,
            "{total}": self.work and self.work * len(workers),
            "{threads}": len(workers),
            "{cpus}": ",".join(str(cpus[0]) if len(cpus) == 1 else "-1" for cpus in workers) if self.workload["together"] else None,
            "{seconds}": max(1, math.ceil(self._seconds)),
            "{point}": point,
            "{percent}": point and round(100 * point),
            "{program}": self._program,
            "{server}": self._server and self._server.folder,
        }
        filled = [self._command, *self.workload["argv"][1:]]
        for placeholder, value in known.items():
            if value is not None:
                filled = [word.replace(placeholder, str(value)) for word in filled]
        return filled

    def _set_work(self, work):
        self.work = work
        if self.workload["stdin"] == "stream":
            self._stdin = self._files.file(self.workload["name"] + INPUT)
            inputs.write_stream(self._stdin, work)

    def _time(self, alone):
        workers = self.sample(alone, self.points[0])["workers"]
        self._alone = max(worker["wall_seconds"] for worker in workers)
        timed = self.workload["timed"]
        return max(workload_metrics.in_json(worker["output"], timed) for worker in workers) if timed else self._alone

    def _timeout(self):
        return self.workload["timeout"] or TIMEOUT_LEAST + TIMEOUT_FACTOR * max(self._seconds, self._alone)


def next_work(workload, work, seconds, wanted_seconds):
    """The amount of work that should take the wanted time, given that ``work`` took ``seconds`` on one worker alone."""
    limits = workload["work"]
    # A first run too short to time says only "more".
    factor = wanted_seconds / seconds if seconds > wanted_seconds / 50 else 50
    steps = max(1, math.floor(work * factor / limits["step"]))
    return min(steps * limits["step"], limits["limit"])


class _Scratch:
    """A folder for one sample of a run, the workers' own, empty at its beginning and gone at its end."""

    def __init__(self, files, owner):
        self._files = files
        self._owner = owner

    def __enter__(self):
        users.remove_folder(self._files.file(SCRATCH), self._owner)
        return self._files.folder(SCRATCH, self._owner)

    def __exit__(self, *_raised):
        users.remove_folder(self._files.file(SCRATCH), self._owner)


def _available_megabytes():
    """MemAvailable of /proc/meminfo in MB (10^6 bytes), or None (proc(5): Linux 3.14)."""
    try:
        with open("/proc/meminfo", encoding="ascii", errors="replace") as meminfo:
            return next((int(line.split()[1]) * 1024 // 10**6 for line in meminfo if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None
