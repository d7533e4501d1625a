# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a workload declares: the command, its metrics, where it runs and how it is measured;
and what follows from a declaration.

A workload is a ``Workload``: a dict whose ``Defaults`` are in ``PLAIN``.
"""

import glob
import os
import re
import shutil
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict

COMPILERS = ("cc", "gcc", "clang")
COMPILER_PACKAGE = "gcc"
# Where co-runners run: on the CPUs of the workers, on the other CPUs of their cores, or on both.
SAME = "same"
SIBLING = "sibling"
BOTH = "both"
CO_RUNNERS_ON = (SAME, SIBLING, BOTH)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Work(TypedDict):
    """The amount of work of one worker: its unit, the first amount of the calibration, the step and the upper limit."""

    unit: str
    start: int
    step: int
    limit: int


class _Parameter(TypedDict):
    name: str
    unit: str


class Parameter(_Parameter, total=False):
    """A parameter of a workload. It has either ``values`` or ``per_cpu``.

    Attributes:
        name: its name in results.
        unit: its unit.
        values: its values in rising order.
        per_cpu: its values as multiples of the number of CPUs.
        per_worker: whether it is the load that each worker is offered. Below the highest value more workers then do
            more by that alone, so only the highest one is compared.
    """

    values: "list[float]"
    per_cpu: "list[float]"
    per_worker: bool


class Source(TypedDict, total=False):
    """The source of a metric's value for one worker: ``rate``, ``clock``, ``pattern`` or ``json``.

    The other keys are further details.

    Attributes:
        rate: True for the amount of work divided by the worker's own wall time.
        clock: ``wall_seconds`` or ``cpu_seconds`` of the worker.
        pattern: a regular expression for the standard output of the tool, or else its standard error. The group
            ``value``, else the first one, is the number, the group ``unit`` its unit, which is converted to that of the
            metric. Of several lines that match, the last one counts, and in it the first match.
        quantile: with ``pattern``, a share (0..1). Each match is one value, a second group is the number of its
            occurrences, and the metric is that quantile of all values.
        file: with ``pattern`` or ``json``, a glob: it applies to the files with that name in the worker's working
            directory.
        json: the path (keys of objects, indices of arrays, ``*`` for the sum of all) to the number in the last JSON
            document that has it.
        mean: True for the mean instead of that sum.
        unit_at: the path to the unit of the number in the same document.
        one: how the tool is made to print one result; more than one is refused.
        scale: a factor for the unit.
    """

    rate: bool
    clock: str
    pattern: str
    quantile: float
    json: "list[str]"
    mean: bool
    unit_at: "list[str]"
    one: str
    file: str
    scale: float


class Metric(Source):
    """The declaration of a metric.

    Attributes:
        name: its name in results: ``throughput``, ``latency_p99``, ...
        unit: its unit.
        better: ``higher`` or ``lower``.
        aggregate: how the values of the workers are combined, a key of ``metrics.AGGREGATES``.
    """

    name: str
    unit: str
    better: str
    aggregate: str


class ServerDeclaration(TypedDict):
    """The declaration of a server that runs during the samples.

    In an argv and in ``files`` ``{server}`` stands for the server's directory, ``{port}`` for a free TCP port of
    127.0.0.1, ``{cpus}`` for the CPU list that it may use, and ``{threads}`` for the number of these CPUs.

    Attributes:
        folders: globs of the directories to look in before the search path, one directory for each version.
        commands: the commands that must be installed, and the package of each, or None.
        user: the user who runs the server if the plan runs as root, or None for the user of the plan.
        files: names of files beside the declaration that are put into the server's directory first.
        prepare: list of argv, run before the server starts.
        serve: the argv of the server, which may leave it in the background and end with 0.
        ready: an argv that succeeds when the server is ready.
        fill: list of argv, run when the server is ready.
        end: an argv that ends the server, or empty. What is left of it then gets the signal ``stop``.
        in_each_arm: whether it is started anew in each arm, on the CPUs of that arm, instead of once for all arms.
        has_own_cores: with ``in_each_arm``, whether it and its clients run on different cores: the clients on a quarter
            of them.
        stop: the name of the signal that asks the server to end.
        kill: the name of the signal that the kernel sends to the server if its supervisor dies.
    """

    folders: "list[str]"
    commands: "t.Mapping[str, t.Optional[str]]"
    user: "str | None"
    files: "list[str]"
    prepare: "list[list[str]]"
    serve: "list[str]"
    ready: "list[str]"
    fill: "list[list[str]]"
    end: "list[str]"
    in_each_arm: bool
    has_own_cores: bool
    stop: str
    kill: str


class Defaults(TypedDict):
    """The optional part of a declaration: a declaration that leaves a key out has its value from ``PLAIN``.

    Attributes:
        multithreaded: True for one process with a thread for each worker, allowed on the CPUs of all workers; False for
            one process for each worker, pinned to its CPU.
        reads_stream: whether the command reads the fixed stream (see inputs.py) from its standard input, as many
            megabytes as its amount of work.
        unpack: of a command that compresses the fixed stream, the argv that turns its output into the stream again, or
            None. One megabyte goes both ways before the blocks, because samples discard the output.
        keep_output: whether metrics are read from the output of the command.
        work: the amount of work. It is calibrated once, so that one worker alone takes the wanted time, and is then the
            same for every sample. None for a command that runs for a given time or whose work is fixed.
        placements: the names of the placements in which the workload is meaningful, or None for all.
        parameter: each block has one sample for each value of the parameter. None for a workload without one.
        memory: the memory of one worker in MB (10^6 bytes).
        huge_memory: MiB of reserved huge pages that one worker uses where enough are free; 0 for none.
        nice: the niceness of the workers, -20 to 19; 0 leaves that of the plan.
        co_runners: the number of co-runners (busy loops) on each CPU that ``co_runners_on`` names.
        co_runners_on: one of ``CO_RUNNERS_ON``.
        co_runners_nice: the niceness of the co-runners, as for ``nice``.
        timed: the path to a duration in seconds in the JSON output of a program that measures its own time because its
            setup is long, or None for the wall time of the process. Calibration uses this duration.
        source: the file name of a C source beside the declaration, which is compiled on the host, or None.
        server: the server that runs during the samples, or None.
        environment: variables for the command and its server, beside the search path and the locale.
        timeout: the time limit of a sample in seconds, or None to derive it from the first run.
        package: the distribution package that provides the command, or None.
        custom: whether it is a user's own command.
        description: what a worker does, for the documentation of a built-in workload.
    """

    multithreaded: bool
    reads_stream: bool
    unpack: "list[str] | None"
    keep_output: bool
    work: "Work | None"
    placements: "list[str] | None"
    parameter: "Parameter | None"
    memory: int
    huge_memory: int
    nice: int
    co_runners: int
    co_runners_on: str
    co_runners_nice: int
    timed: "list[str] | None"
    source: "str | None"
    server: "ServerDeclaration | None"
    environment: "dict[str, str]"
    timeout: "float | None"
    package: "str | None"
    custom: bool
    description: str


class Workload(Defaults):
    """The declaration of a workload.

    Attributes:
        name: the name for results.
        title: the name for people.
        argv: the command and its arguments. Placeholders: ``{work}`` the calibrated amount of work of one worker,
            ``{alone}`` the seconds that it takes one worker alone (0 during the calibration), ``{total}`` the amount of
            work of all workers, ``{threads}`` the number of workers, ``{cpus}`` the CPU of each worker (``-1``: not
            pinned), ``{seconds}`` the length of a sample in whole seconds, ``{parameter}`` the value of the workload's
            parameter, ``{program}`` the compiled program, ``{server}`` the server's directory, ``{port}`` its TCP port.
        metrics: the metrics. The first one is the primary metric, which verdicts are about.
    """

    name: str
    title: str
    argv: "list[str]"
    metrics: "list[Metric]"


PLAIN: Defaults = {
    "multithreaded": False,
    "reads_stream": False,
    "unpack": None,
    "keep_output": True,
    "work": None,
    "placements": None,
    "parameter": None,
    "memory": 0,
    "huge_memory": 0,
    "nice": 0,
    "co_runners": 0,
    "co_runners_on": SAME,
    "co_runners_nice": 0,
    "timed": None,
    "source": None,
    "server": None,
    "environment": {},
    "timeout": None,
    "package": None,
    "custom": False,
    "description": "",
}


class WorkloadError(Exception):
    """A workload that cannot be used on this host, or a failed sample; the text gives the reason."""


class UnreadableError(WorkloadError):
    """A number of which it is not known what it is. Whether that happens can depend on the number, so the samples
    whose number is known are no fair choice: none of the workload counts.
    """


def throughput(unit: str, source: Source) -> Metric:
    """Return a metric named ``throughput``, which adds up over the workers.

    Args:
        unit: its unit.
        source: where its value comes from.
    """
    return {"name": "throughput", "unit": unit, "better": "higher", "aggregate": "sum", **source}


def latency(name: str, source: Source) -> Metric:
    """Return a latency in milliseconds; that of the slowest worker counts.

    Args:
        name: ``mean``, ``median`` or ``p99``; the metric's name is ``latency_NAME``.
        source: where its value comes from.
    """
    return {"name": "latency_" + name, "unit": "ms", "better": "lower", "aggregate": "max", **source}


def described(workload: Workload, cpus: int) -> "dict[str, t.Any]":
    """Return the part of a declaration that a result keeps, as plain data.

    Args:
        workload: the declaration.
        cpus: as for ``parameter_values``.
    """
    parameter = workload["parameter"]
    return {
        "name": workload["name"],
        "title": workload["title"],
        # The arguments of a user's own command can contain secrets, and results have many readers. The title describes
        # the command.
        "argv": workload["argv"][:1] if workload["custom"] else workload["argv"],
        "package": workload["package"],
        "nice": workload["nice"],
        "co_runners": workload["co_runners"],
        "co_runners_on": workload["co_runners_on"],
        "co_runners_nice": workload["co_runners_nice"],
        "memory": workload["memory"],
        "server": workload["server"] is not None,
        "primary": workload["metrics"][0]["name"],
        "metrics": {
            metric["name"]: {"unit": metric["unit"], "better": metric["better"], "aggregate": metric["aggregate"]}
            for metric in workload["metrics"]
        },
        "parameter": (
            parameter
            and {
                "name": parameter["name"],
                "unit": parameter["unit"],
                "values": list(parameter_values(workload, cpus)),
                "per_worker": parameter.get("per_worker", False),
            }
        ),
    }


def parameter_values(workload: Workload, cpus: int) -> "t.Sequence[float | None]":
    """Return the values of a workload's parameter in rising order, or ``[None]`` for a workload without a parameter.

    Args:
        workload: the declaration.
        cpus: the number of CPUs of the host with all siblings online, so that all arms use the same values.
    """
    parameter = workload["parameter"]
    if parameter is None:
        return [None]
    return (
        parameter["values"]
        if "values" in parameter
        else sorted({max(1, round(share * cpus)) for share in parameter["per_cpu"]})
    )


def co_runner_cpus(
    workload: Workload,
    workers: "t.Sequence[t.Sequence[int]]",
    cores: "t.Iterable[t.Sequence[int]]",
    usable: "t.Container[int]",
) -> "list[tuple[int, ...]]":
    """Return the CPUs of each co-runner; none for one that is not pinned.

    Args:
        workload: the declaration.
        workers: the CPU list of each worker; one that is not pinned has co-runners that are not, and no sibling.
        cores: the CPUs of each core.
        usable: the CPUs that siblings are chosen from.
    """
    places: list[tuple[int, ...]] = []
    pinned = sorted({tuple(cpus) for cpus in workers if cpus})
    if workload["co_runners_on"] != SIBLING:
        places += pinned or [()] * len(workers)
    if workload["co_runners_on"] != SAME:
        siblings = {cpu for cpus in pinned for core in cores if set(core) & set(cpus) for cpu in set(core) - set(cpus)}
        places += [(cpu,) for cpu in sorted(siblings) if cpu in usable and (cpu,) not in places]
    return places * workload["co_runners"]


def missing(workload: Workload, path: str) -> "str | None":
    """Return a message about a command that the workload needs and that is not installed, or None.

    Args:
        workload: the declaration.
        path: the search path, as in the environment variable PATH.
    """
    absent = _absent(workload, path)
    if not absent:
        return None
    if workload["source"]:
        return f"no C compiler is installed: none of {', '.join(COMPILERS)} (package {COMPILER_PACKAGE})"
    command, package = next(iter(absent.items()))
    return f"{command} is not installed" + (f" (package {package})" if package else "")


def missing_packages(workload: Workload, path: str) -> "set[str]":
    """Return the packages that provide the commands which the workload needs and which are not installed, as far as
    they are known.

    Args:
        workload: the declaration.
        path: as for ``missing``.
    """
    return {package for package in _absent(workload, path).values() if package is not None}


def _absent(workload: Workload, path: str) -> "dict[str, str | None]":
    """Return the commands that are not installed, each with its package or None."""
    if workload["source"]:
        return {} if compiler(path) else {COMPILERS[0]: COMPILER_PACKAGE}
    needed = (
        workload["server"]["commands"]
        if workload["server"]
        else dict.fromkeys([workload["argv"][0], *(workload["unpack"] or [])[:1]], workload["package"])
    )
    where = search_path(workload, path)
    return {command: package for command, package in needed.items() if not shutil.which(command, path=where)}


def filled(text: str, values: "t.Mapping[str, object]") -> str:
    """Return a text of a declaration with its placeholders filled in, in one pass.

    Args:
        text: a command, one of its arguments, or a file of a server.
        values: {placeholder without braces: value}. One that is missing or None stays as it is.
    """

    def value_of(match: "t.Match[str]") -> str:
        value = values.get(match.group(1))
        return match.group(0) if value is None else str(value)

    return _PLACEHOLDER.sub(value_of, text)


def compiler(path: str) -> "str | None":
    """Return the path of the host's C compiler, or None."""
    return next(filter(None, (shutil.which(name, path=path) for name in COMPILERS)), None)


def search_path(workload: Workload, path: str) -> str:
    """Return the search path of a workload's commands: the directory of the newest version of its server, then PATH."""
    if not workload["server"]:
        return path
    folders = [folder for pattern in workload["server"]["folders"] for folder in glob.glob(pattern)]
    newest_first = sorted(
        folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder)], reverse=True
    )
    return os.pathsep.join([*newest_first[:1], path])
