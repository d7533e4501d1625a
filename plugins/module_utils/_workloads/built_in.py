# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workload declarations: the command, its metrics, where it runs and how it is measured.

A declaration is a ``Workload``. A key that a declaration leaves out has its value from ``PLAIN``.

``name``, ``title``
    The names for results and for people.
``argv``
    The command and its arguments (list of str). Placeholders: ``{work}`` the calibrated amount of work of one worker, ``{total}`` the amount of
    work of all workers, ``{threads}`` the number of workers, ``{cpus}`` the CPU of each worker (``-1``: not pinned), ``{seconds}`` the length of a
    sample in whole seconds, ``{point}`` the value of the workload's parameter, ``{percent}`` that value times 100, ``{program}`` the compiled
    program, ``{server}`` the server's directory.
``together``
    True: one process with a thread for each worker, allowed on the CPUs of all workers. False: one process for each worker, pinned to its CPU.
``stdin``
    ``stream`` (the fixed stream, see inputs.py) or None.
``keep_output``
    Whether metrics are read from the output of the command.
``work``
    ``{unit, start, step, limit}``: the amount of work. It is calibrated once, so that one worker alone takes the wanted time, and is then the same
    for every sample. None for a command that runs for a given time or whose work is fixed.
``metric``, ``metrics``
    The metric that verdicts are about, and further metrics: see metrics.py.
``placements``
    The names of the placements in which the workload is meaningful, or None for all.
``point``
    ``{name, unit, values}``: a parameter. Each block has one sample for each of its values. ``per_cpu`` instead of ``values`` lists multiples of
    the number of CPUs. None for a workload without a parameter.
``memory``
    The memory of one worker in MB (10^6 bytes).
``nice``, ``co_runners``
    The nice value of the workers, and the number of co-runners (busy loops) on each of their CPUs.
``timed``
    The path to a duration in seconds in the JSON output of a program that measures its own time because its setup is long, or None for the wall
    time of the process. Calibration uses this duration.
``source``
    The name of a C source file that is compiled on the host, or None.
``server``
    The server that runs during the samples: see server.py. None for no server.
``timeout``
    The time limit of a sample in seconds, or None to derive it from the first run.
``package``
    The distribution package that provides the command.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import typing as t

MEGABYTE = 1000 * 1000


class Work(t.TypedDict):
    """The amount of work of one worker: its unit, the first amount of the calibration, the step and the upper limit."""

    unit: str
    start: int
    step: int
    limit: int


class _Parameter(t.TypedDict):
    name: str
    unit: str


class Parameter(_Parameter, total=False):
    """A parameter of a workload: ``values``, or ``per_cpu`` as multiples of the number of CPUs."""

    values: list[float]
    per_cpu: list[float]


class Source(t.TypedDict, total=False):
    """The source of a metric's value: see metrics.py."""

    rate: bool
    clock: str
    pattern: str
    quantile: float
    json: list[str]
    file: str
    scale: float


class Metric(Source):
    """The declaration of a metric: see metrics.py."""

    name: str
    unit: str
    better: str
    aggregate: str


class ServerDeclaration(t.TypedDict):
    """The declaration of a server: see server.py."""

    folders: list[str]
    commands: list[str]
    user: str
    prepare: list[list[str]]
    serve: list[str]
    ready: list[str]
    fill: list[list[str]]
    stop: str
    kill: str


class Defaults(t.TypedDict):
    """The optional part of a declaration."""

    multithreaded: bool
    stdin: str | None
    keep_output: bool
    work: Work | None
    metrics: list[Metric]
    placements: list[str] | None
    point: Parameter | None
    memory: int
    nice: int
    co_runners: int
    timed: list[str] | None
    source: str | None
    server: ServerDeclaration | None
    timeout: float | None
    package: str | None


class Workload(Defaults):
    """The declaration of a workload."""

    name: str
    title: str
    argv: list[str]
    metric: Metric


PLAIN: Defaults = {
    "multithreaded": False,
    "stdin": None,
    "keep_output": True,
    "work": None,
    "metrics": [],
    "placements": None,
    "point": None,
    "memory": 0,
    "nice": 0,
    "co_runners": 0,
    "timed": None,
    "source": None,
    "server": None,
    "timeout": None,
    "package": None,
}

COMPILERS = ("cc", "gcc", "clang")
COMPILER_PACKAGE = "gcc"


class WorkloadError(Exception):
    """A workload that cannot be used on this host, or a failed sample; the text gives the reason."""


def _throughput(unit: str, source: Source) -> Metric:
    return {"name": "throughput", "unit": unit, "better": "higher", "aggregate": "sum", **source}


def _latency(name: str, source: Source) -> Metric:
    return {"name": "latency_" + name, "unit": "ms", "better": "lower", "aggregate": "max", **source}


# sysbench --histogram prints one line for each bucket with events, such as "0.888 |****   17": milliseconds, bar, number of events.
SYSBENCH_BUCKET = r"(?m)^\s*([0-9.]+) \|\**\s+(\d+)$"
SYSBENCH_LATENCIES = [
    _latency("mean", {"pattern": r"avg:\s+([0-9.]+)"}),
    _latency("median", {"pattern": SYSBENCH_BUCKET, "quantile": 0.5}),
    _latency("p99", {"pattern": SYSBENCH_BUCKET, "quantile": 0.99}),
]

GZIP: Workload = {
    **PLAIN,
    "name": "gzip",
    "title": "gzip of a fixed stream",
    "argv": ["gzip", "-6", "-c"],
    "stdin": "stream",
    "keep_output": False,
    "work": {"unit": "MB", "start": 2, "step": 1, "limit": 2000},
    "metric": _throughput("MB/s", {"rate": True}),
    "package": "gzip",
}

SYSBENCH_CPU: Workload = {
    **PLAIN,
    "name": "sysbench_cpu",
    "title": "sysbench cpu (primes to 10000)",
    "argv": ["sysbench", "cpu", "--threads=1", "--cpu-max-prime=10000", "--time=0", "--histogram", "--events={work}", "run"],
    "work": {"unit": "events", "start": 100, "step": 10, "limit": 10 * MEGABYTE},
    "metric": _throughput("events/s", {"pattern": r"events per second:\s+([0-9.]+)"}),
    "metrics": SYSBENCH_LATENCIES,
    "package": "sysbench",
}

SYSBENCH_THREADS: Workload = {
    **PLAIN,
    "name": "sysbench_threads",
    "title": "sysbench threads (contention for one lock)",
    "multithreaded": True,
    "argv": ["sysbench", "threads", "--threads={threads}", "--thread-locks=1", "--time=0", "--histogram", "--events={total}", "run"],
    "work": {"unit": "events", "start": 100, "step": 10, "limit": MEGABYTE},
    "metric": _throughput("events/s", {"rate": True}),
    "metrics": SYSBENCH_LATENCIES,
    "package": "sysbench",
}

FALSE_SHARING: Workload = {
    **PLAIN,
    "name": "false_sharing",
    "title": "all workers write to one cache line",
    "multithreaded": True,
    "source": "cache_line.c",
    "argv": ["{program}", "{cpus}", "{work}"],
    "work": {"unit": "increments", "start": 100000, "step": 100000, "limit": 100000 * MEGABYTE},
    "metric": _throughput("M increments/s", {"json": ["million_per_second"]}),
}


def _array(order: str, access: str, suffix: str, title: str) -> Workload:
    return {
        **PLAIN,
        "name": f"array_{order}{suffix}",
        "title": f"100 MB array, {title}",
        "source": "array.c",
        "timed": ["seconds"],
        "memory": 100,
        "argv": ["{program}", order, access, "{work}"],
        "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100000},
        "metric": _throughput("MB/s", {"json": ["mb_per_second"]}),
    }


ARRAYS = (
    _array("rows", "read", "", "read in memory order"),
    _array("rows", "write", "_write", "read and written in memory order"),
    _array("columns", "read", "", "read across memory order"),
    _array("columns", "write", "_write", "read and written across memory order"),
)

# The line of a stressor in the output of stress-ng: bogo ops, real, user and system time, bogo ops per second of real time and of CPU time.
STRESSOR_RATE = r"\bcpu\s+\d+\s+[0-9.]+\s+[0-9.]+\s+[0-9.]+\s+([0-9.]+)"
TWO_WORKERS = ["single", "same_cpu", "siblings", "cores"]

INT_FLOAT_LOOP: Workload = {
    **PLAIN,
    "name": "int_float_loop",
    "title": "integer and floating-point loop",
    "argv": ["stress-ng", "--cpu", "1", "--cpu-method", "int64double", "--cpu-ops", "{work}", "--metrics-brief"],
    "work": {"unit": "bogo ops", "start": 50, "step": 10, "limit": 1000 * MEGABYTE},
    "metric": _throughput("bogo ops/s", {"pattern": STRESSOR_RATE}),
    "metrics": [
        {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "clock": "wall_seconds"},
        {"name": "cpu_time", "unit": "s", "better": "lower", "aggregate": "sum", "clock": "cpu_seconds"},
    ],
    "package": "stress-ng",
}

INT_FLOAT_LOOP_CO_RUNNERS: Workload = {
    **INT_FLOAT_LOOP,
    "name": "int_float_loop_co_runners",
    "title": "integer and floating-point loop with three co-runners on each CPU",
    "co_runners": 3,
    "placements": TWO_WORKERS,
}

INT_FLOAT_LOOP_NICED: Workload = {
    **INT_FLOAT_LOOP_CO_RUNNERS,
    "name": "int_float_loop_niced",
    "title": "integer and floating-point loop at nice -20 with three co-runners on each CPU",
    "nice": -20,
}

LOAD_LEVELS: Workload = {
    **PLAIN,
    "name": "load_levels",
    "title": "integer work at rising load",
    "placements": ["single", "siblings"],
    "argv": ["stress-ng", "--cpu", "1", "--cpu-method", "int64", "--cpu-load", "{percent}", "--timeout", "{seconds}s", "--metrics-brief"],
    "point": {"name": "load", "unit": "of one CPU", "values": [0.14, 0.29, 0.43, 0.57, 0.71, 0.86, 1.0]},
    "metric": _throughput("bogo ops/s", {"pattern": STRESSOR_RATE}),
    "package": "stress-ng",
}

STREAM: Workload = {
    **PLAIN,
    "name": "stream",
    "title": "memory bandwidth (triad)",
    "source": "triad.c",
    "timed": ["seconds"],
    "memory": 200,
    "argv": ["{program}", "{work}"],
    "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100000},
    "metric": _throughput("MB/s", {"json": ["mb_per_second"]}),
}

MEMORY_PAGES: Workload = {
    **PLAIN,
    "name": "memory_pages",
    "title": "memory allocated page by page and copied",
    "source": "pages.c",
    "timed": ["seconds"],
    "memory": 16,
    "argv": ["{program}", "{work}"],
    "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100000},
    "metric": _throughput("MB/s", {"json": ["mb_per_second"]}),
    "metrics": [{"name": "page_faults", "unit": "faults/s", "better": "higher", "aggregate": "sum", "json": ["faults_per_second"]}],
}

# A line of pgbench --log: client, transaction, latency in microseconds, ...
PGBENCH_TRANSACTION = r"(?m)^\d+ \d+ (\d+) "
POSTGRESQL: ServerDeclaration = {
    # Distributions install the server's commands outside the search path, in one directory for each version.
    "folders": ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"],
    "commands": ["initdb", "postgres", "createdb", "pg_isready", "pgbench"],
    # PostgreSQL refuses to run as root.
    "user": "postgres",
    "prepare": [["initdb", "--pgdata={server}/data", "--no-sync", "--auth=trust", "--username=threadwise", "--encoding=UTF8", "--locale=C"]],
    # The workload measures CPUs. With durable commits the disk would be the bottleneck.
    "serve": [
        "postgres",
        "-D",
        "{server}/data",
        "-c",
        "listen_addresses=",
        "-c",
        "unix_socket_directories={server}",
        "-c",
        "max_connections=5000",
        "-c",
        "fsync=off",
        "-c",
        "synchronous_commit=off",
        "-c",
        "full_page_writes=off",
        "-c",
        "autovacuum=off",
        "-c",
        "logging_collector=off",
    ],
    "ready": ["pg_isready", "--quiet", "--host={server}"],
    "fill": [
        ["createdb", "--host={server}", "--username=threadwise", "bench"],
        ["pgbench", "--host={server}", "--username=threadwise", "--initialize", "--quiet", "--scale=4", "bench"],
    ],
    # Fast shutdown, immediate shutdown (PostgreSQL, "Shutting Down the Server").
    "stop": "SIGINT",
    "kill": "SIGQUIT",
}

OLTP: Workload = {
    **PLAIN,
    "name": "oltp",
    "title": "PostgreSQL, pgbench simple-update",
    "multithreaded": True,
    "placements": ["all_threads"],
    "server": POSTGRESQL,
    "argv": [
        "pgbench",
        "--host={server}",
        "--username=threadwise",
        "--no-vacuum",
        "--builtin=simple-update",
        "--client={point}",
        "--jobs={threads}",
        "--transactions={work}",
        "--log",
        "--log-prefix=latency",
        "bench",
    ],
    # Per client, and not a run time: a run time could be over before the last of many clients is connected.
    "work": {"unit": "transactions a client", "start": 20, "step": 10, "limit": MEGABYTE},
    "point": {"name": "clients", "unit": "clients", "per_cpu": [0.25, 0.5, 1, 1.5, 2, 4]},
    "metric": _throughput("transactions/s", {"pattern": r"tps = ([0-9.]+)"}),
    "metrics": [
        _latency("mean", {"pattern": r"latency average = ([0-9.]+)"}),
        _latency("median", {"file": "latency.*", "pattern": PGBENCH_TRANSACTION, "quantile": 0.5, "scale": 0.001}),
        _latency("p99", {"file": "latency.*", "pattern": PGBENCH_TRANSACTION, "quantile": 0.99, "scale": 0.001}),
    ],
    "package": "postgresql",
}

BUILT_IN: dict[str, Workload] = {
    workload["name"]: workload
    for workload in (
        GZIP,
        SYSBENCH_CPU,
        SYSBENCH_THREADS,
        FALSE_SHARING,
        *ARRAYS,
        INT_FLOAT_LOOP,
        INT_FLOAT_LOOP_CO_RUNNERS,
        INT_FLOAT_LOOP_NICED,
        LOAD_LEVELS,
        STREAM,
        MEMORY_PAGES,
        OLTP,
    )
}


def named(names: t.Sequence[str]) -> list[Workload]:
    """Return the declarations of the named workloads, in the given order.

    Raises:
        WorkloadError: a name is not the name of a built-in workload.
    """
    unknown = sorted(set(names) - set(BUILT_IN))
    if unknown:
        raise WorkloadError(f"there is no workload {', '.join(unknown)}: choose from {', '.join(sorted(BUILT_IN))}")
    return [BUILT_IN[name] for name in names]


def described(workload: Workload, cpus: int) -> dict[str, t.Any]:
    """Return the part of a declaration that a result keeps, as plain data.

    Args:
        workload: the declaration.
        cpus: as for ``parameter_values``.
    """
    parameter = workload["point"]
    return {
        "name": workload["name"],
        "title": workload["title"],
        # The arguments of a user's own command can contain secrets, and results have many readers. The title describes the command.
        "argv": workload["argv"] if workload["name"] in BUILT_IN else workload["argv"][:1],
        "package": workload["package"],
        "nice": workload["nice"],
        "co_runners": workload["co_runners"],
        "memory": workload["memory"],
        "primary": workload["metric"]["name"],
        "metrics": {metric["name"]: {key: metric[key] for key in ("unit", "better", "aggregate")} for metric in [workload["metric"], *workload["metrics"]]},
        "parameter": parameter and {"name": parameter["name"], "unit": parameter["unit"], "values": list(parameter_values(workload, cpus))},
    }


def parameter_values(workload: Workload, cpus: int) -> t.Sequence[float | None]:
    """Return the values of a workload's parameter in rising order, or ``[None]`` for a workload without a parameter.

    Args:
        workload: the declaration.
        cpus: the number of CPUs of the host with all siblings online, so that all arms use the same values.
    """
    parameter = workload["point"]
    if parameter is None:
        return [None]
    return parameter["values"] if "values" in parameter else sorted({max(1, round(share * cpus)) for share in parameter["per_cpu"]})


def missing(workload: Workload, path: str) -> str | None:
    """Return a message about a command that the workload needs and that is not installed, or None.

    Args:
        workload: the declaration.
        path: the search path, as in the environment variable PATH.
    """
    if workload["source"]:
        return None if compiler(path) else f"no C compiler is installed: none of {', '.join(COMPILERS)} (package {COMPILER_PACKAGE})"
    needed = workload["server"]["commands"] if workload["server"] else [workload["argv"][0]]
    absent = [command for command in needed if not shutil.which(command, path=search_path(workload, path))]
    if not absent:
        return None
    return f"{absent[0]} is not installed" + (f" (package {workload['package']})" if workload["package"] else "")


def package(workload: Workload) -> str | None:
    """Return the package that provides what ``missing`` reports, or None."""
    return COMPILER_PACKAGE if workload["source"] else workload["package"]


def compiler(path: str) -> str | None:
    """Return the path of the host's C compiler, or None."""
    return next(filter(None, (shutil.which(name, path=path) for name in COMPILERS)), None)


def search_path(workload: Workload, path: str) -> str:
    """Return the search path of a workload's commands: the directory of the newest version of its server, then PATH."""
    if not workload["server"]:
        return path
    folders = [folder for pattern in workload["server"]["folders"] for folder in glob.glob(pattern)]
    newest_first = sorted(folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder)], reverse=True)
    return os.pathsep.join([*newest_first[:1], path])
