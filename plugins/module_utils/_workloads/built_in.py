# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is run to measure, as declarations: the command, what it reports, which way is better, where and how it is run.

A declaration is a dict. Whatever is not said is as in ``PLAIN``.

``name``, ``title``
    How results and people call it.
``argv``
    list of str. Filled in: ``{work}`` the calibrated amount of work of a worker, ``{total}`` that of all threads, ``{threads}`` their
    number, ``{cpus}`` the CPU of each (``-1``: not pinned), ``{seconds}`` whole seconds of a sample, ``{point}`` the point's value and
    ``{percent}`` a hundred times it, ``{program}`` the compiled source, ``{server}`` the server's folder.
``together``
    True: one process with a thread for each worker, allowed on the CPUs of all. False: one process a worker, pinned to its CPU.
``stdin``
    ``stream`` (the fixed stream of workload_input) or None.
``keep_output``
    Whether metrics are read from what it prints.
``work``
    ``{unit, start, step, limit}``: the amount of work that is calibrated once, so that one worker alone takes the wanted time, and then
    kept for every sample: what is compared is always the same work. None for a command that runs as it is, for a given time or to its end.
``metric``, ``metrics``
    The one that verdicts are about, and further ones: see workload_metrics.
``placements``
    Names of the placements it says something about, or None for each.
``point``
    ``{name, unit, values}``: the parameter at whose values it is measured, one sample each; ``per_cpu`` instead of ``values`` gives them as
    multiples of the number of CPUs. None for a workload without one.
``memory``
    Megabytes a worker needs.
``nice``, ``neighbours``
    The niceness of the workers; how many busy loops run beside them on each of their CPUs.
``timed``
    The path in the program's JSON to the seconds that it timed itself, where its preparations take long; None for its wall time. The amount of work
    is calibrated by it.
``source``
    File of C source that is compiled on the host, or None.
``server``
    What has to run meanwhile: see workload_server. None for nothing.
``timeout``
    Seconds after which a sample is ended, or None to tell it from the first run.
``package``
    The package of the distribution that brings the command.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import typing as t

MEGABYTE = 1000 * 1000


class Work(t.TypedDict):
    """The unit of a worker's work, the amount that calibration starts with, its step and its limit."""

    unit: str
    start: int
    step: int
    limit: int


class _Parameter(t.TypedDict):
    name: str
    unit: str


class Parameter(_Parameter, total=False):
    """The parameter at whose values a workload is measured: ``values``, or ``per_cpu`` as multiples of the number of CPUs."""

    values: list[float]
    per_cpu: list[float]


class Source(t.TypedDict, total=False):
    """Where the number of a metric comes from: see metrics.py."""

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

    together: bool
    stdin: str | None
    keep_output: bool
    work: Work | None
    metrics: list[Metric]
    placements: list[str] | None
    point: Parameter | None
    memory: int
    nice: int
    neighbours: int
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
    "together": False,
    "stdin": None,
    "keep_output": True,
    "work": None,
    "metrics": [],
    "placements": None,
    "point": None,
    "memory": 0,
    "nice": 0,
    "neighbours": 0,
    "timed": None,
    "source": None,
    "server": None,
    "timeout": None,
    "package": None,
}

COMPILERS = ("cc", "gcc", "clang")
COMPILER_PACKAGE = "gcc"


class WorkloadError(Exception):
    """A workload cannot be used on this host, or a sample of it has not worked; the text says why."""


def _throughput(unit: str, source: Source) -> Metric:
    return {"name": "throughput", "unit": unit, "better": "higher", "aggregate": "sum", **source}


def _latency(name: str, source: Source) -> Metric:
    return {"name": "latency_" + name, "unit": "ms", "better": "lower", "aggregate": "max", **source}


# sysbench --histogram: a line for each step that has events, "0.888 |****   17": milliseconds, bar, number of events.
SYSBENCH_STEP = r"(?m)^\s*([0-9.]+) \|\**\s+(\d+)$"
SYSBENCH_LATENCIES = [
    _latency("mean", {"pattern": r"avg:\s+([0-9.]+)"}),
    _latency("median", {"pattern": SYSBENCH_STEP, "quantile": 0.5}),
    _latency("p99", {"pattern": SYSBENCH_STEP, "quantile": 0.99}),
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
    "together": True,
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
    "together": True,
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
    _array("rows", "read", "", "read in the order of memory"),
    _array("rows", "write", "_write", "read and written in the order of memory"),
    _array("columns", "read", "", "read across the order of memory"),
    _array("columns", "write", "_write", "read and written across the order of memory"),
)

# stress-ng's line of a stressor: bogo ops, real, user and system time, bogo ops by real time, bogo ops by CPU time.
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

INT_FLOAT_LOOP_NEIGHBOURS: Workload = {
    **INT_FLOAT_LOOP,
    "name": "int_float_loop_neighbours",
    "title": "integer and floating-point loop, three busy neighbours on each CPU",
    "neighbours": 3,
    "placements": TWO_WORKERS,
}

INT_FLOAT_LOOP_NICED: Workload = {
    **INT_FLOAT_LOOP_NEIGHBOURS,
    "name": "int_float_loop_niced",
    "title": "integer and floating-point loop at nice -20, three busy neighbours on each CPU",
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
    "title": "memory taken page by page and copied",
    "source": "pages.c",
    "timed": ["seconds"],
    "memory": 16,
    "argv": ["{program}", "{work}"],
    "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100000},
    "metric": _throughput("MB/s", {"json": ["mb_per_second"]}),
    "metrics": [{"name": "page_faults", "unit": "faults/s", "better": "higher", "aggregate": "sum", "json": ["faults_per_second"]}],
}

# A line of pgbench --log: client, transaction, microseconds, ...
PGBENCH_TRANSACTION = r"(?m)^\d+ \d+ (\d+) "
POSTGRESQL: ServerDeclaration = {
    # Distributions keep the server's commands out of the search path, one folder a version.
    "folders": ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"],
    "commands": ["initdb", "postgres", "createdb", "pg_isready", "pgbench"],
    # PostgreSQL refuses to serve as root.
    "user": "postgres",
    "prepare": [["initdb", "--pgdata={server}/data", "--no-sync", "--auth=trust", "--username=threadwise", "--encoding=UTF8", "--locale=C"]],
    # Durability is not what is measured, and the disk would hide the CPUs.
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
    "together": True,
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
    # Of each client: a time to run for might be over before the last of many clients has its connection.
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
        INT_FLOAT_LOOP_NEIGHBOURS,
        INT_FLOAT_LOOP_NICED,
        LOAD_LEVELS,
        STREAM,
        MEMORY_PAGES,
        OLTP,
    )
}


def named(names: t.Sequence[str]) -> list[Workload]:
    """The declarations of the named workloads, in the order given.

    Raises:
        WorkloadError: a name that is not built in.
    """
    unknown = sorted(set(names) - set(BUILT_IN))
    if unknown:
        raise WorkloadError(f"there is no workload {', '.join(unknown)}: choose from {', '.join(sorted(BUILT_IN))}")
    return [BUILT_IN[name] for name in names]


def described(workload: Workload, cpus: int) -> dict[str, t.Any]:
    """What a result keeps of a declaration: plain data without what only the runner needs.

    Args:
        workload: its declaration.
        cpus: as for ``points``.
    """
    metric = workload["metric"]
    about: dict[str, t.Any] = {
        "name": workload["name"],
        "title": workload["title"],
        # The words of a user's own command may hold what is not for all who read results; its title says what it is.
        "argv": workload["argv"] if workload["name"] in BUILT_IN else workload["argv"][:1],
        "package": workload["package"],
        "nice": workload["nice"],
        "neighbours": workload["neighbours"],
        "memory": workload["memory"],
        "metric": metric["name"],
        "unit": metric["unit"],
        "better": metric["better"],
        "aggregate": metric["aggregate"],
    }
    point = workload["point"]
    if point:
        about.update(points=points(workload, cpus), point={"name": point["name"], "unit": point["unit"]})
    return about


def points(workload: Workload, cpus: int) -> t.Sequence[float | None]:
    """The values at which a workload is measured, rising; ``[None]`` for one without a point.

    Args:
        workload: its declaration.
        cpus: the number of CPUs of the host, all siblings online: the same values under each condition.
    """
    point = workload["point"]
    if point is None:
        return [None]
    return point["values"] if "values" in point else sorted({max(1, round(share * cpus)) for share in point["per_cpu"]})


def missing(workload: Workload, path: str) -> str | None:
    """Why a command that the workload needs is not there, or None.

    Args:
        workload: its declaration.
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
    """The package that brings what ``missing`` names, or None."""
    return COMPILER_PACKAGE if workload["source"] else workload["package"]


def compiler(path: str) -> str | None:
    """The path of the host's C compiler, or None."""
    return next(filter(None, (shutil.which(name, path=path) for name in COMPILERS)), None)


def search_path(workload: Workload, path: str) -> str:
    """The search path of a workload's commands: before PATH the folder of the newest version of its server."""
    if not workload["server"]:
        return path
    folders = [folder for pattern in workload["server"]["folders"] for folder in glob.glob(pattern)]
    newest_first = sorted(folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder)], reverse=True)
    return os.pathsep.join([*newest_first[:1], path])
