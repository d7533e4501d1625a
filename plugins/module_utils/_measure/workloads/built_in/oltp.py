# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""PostgreSQL under pgbench, at rising numbers of clients."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    ServerDeclaration,
    Workload,
    latency,
    throughput,
)

PACKAGE = "postgresql"
# A line of pgbench --log: client, transaction, latency in microseconds, ...
TRANSACTION = r"(?m)^\d+ \d+ (\d+) "
POSTGRESQL: ServerDeclaration = {
    # Distributions install the server's commands outside the search path, in one directory for each version.
    "folders": ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"],
    "commands": dict.fromkeys(["initdb", "postgres", "createdb", "pg_isready", "pgbench"], PACKAGE),
    # PostgreSQL refuses to run as root.
    "user": "postgres",
    "files": [],
    "prepare": [
        [
            "initdb",
            "--pgdata={server}/data",
            "--no-sync",
            "--auth=trust",
            "--username=threadwise",
            "--encoding=UTF8",
            "--locale=C",
        ]
    ],
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
    "end": [],
    "in_each_arm": False,
    "has_own_cores": False,
    # Fast shutdown, immediate shutdown (PostgreSQL, "Shutting Down the Server").
    "stop": "SIGINT",
    "kill": "SIGQUIT",
}

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "oltp",
        "title": "PostgreSQL, pgbench simple-update",
        "description": (
            "pgbench's simple-update, a fixed number of transactions per client, at rising numbers of clients: a"
            " quarter to four times the CPUs"
        ),
        "multithreaded": True,
        "placements": ["all_threads"],
        "server": POSTGRESQL,
        "argv": [
            "pgbench",
            "--host={server}",
            "--username=threadwise",
            "--no-vacuum",
            "--builtin=simple-update",
            "--client={parameter}",
            "--jobs={threads}",
            "--transactions={work}",
            "--log",
            "--log-prefix=latency",
            "bench",
        ],
        # Per client, and not a run time: a run time could be over before the last of many clients is connected.
        "work": {"unit": "transactions a client", "start": 20, "step": 10, "limit": 1_000_000},
        "parameter": {"name": "clients", "unit": "clients", "per_cpu": [0.25, 0.5, 1, 1.5, 2, 4]},
        "metrics": [
            throughput("transactions/s", {"pattern": r"tps = ([0-9.]+)"}),
            latency("mean", {"pattern": r"latency average = ([0-9.]+)"}),
            latency("median", {"file": "latency.*", "pattern": TRANSACTION, "quantile": 0.5, "scale": 0.001}),
            latency("p99", {"file": "latency.*", "pattern": TRANSACTION, "quantile": 0.99, "scale": 0.001}),
        ],
        "package": PACKAGE,
    },
)
