# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP servers as workloads: h2load asks one at rising numbers of connections."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    ServerDeclaration,
    Workload,
    latency,
    throughput,
)

H2LOAD = "h2load"
H2LOAD_PACKAGE = "nghttp2-client"
URL = "http://127.0.0.1:{port}/"
# What h2load prints counts only where each request was answered, and well: others take less work.
_RATE = (
    r"(?m)^finished in [^,\n]+, ([0-9.]+) req/s.*\nrequests: .* 0 failed, 0 errored, 0 timeout\n"
    r"status codes: [0-9]+ 2xx, 0 3xx, 0 4xx, 0 5xx$"
)
# A line of its log: start, status and response time in microseconds.
_REQUEST = r"(?m)^\d+\t\d+\t(\d+)$"
_LOG = "requests.log"


def under_load(name: str, title: str, description: str, server: ServerDeclaration) -> Workload:
    """Return the workload of an HTTP server.

    Args:
        name: its name for results.
        title: its name for people.
        description: what it does, for the documentation.
        server: its declaration. It answers requests for ``/`` at the port ``{port}``.
    """
    return {
        **PLAIN,
        "name": name,
        "title": title,
        "description": description,
        "multithreaded": True,
        "placements": ["all_threads"],
        "server": server,
        "argv": [
            H2LOAD,
            "--h1",
            "--header=Accept-Encoding: gzip",
            "--requests={work}",
            "--clients={parameter}",
            "--threads={threads}",
            f"--log-file={_LOG}",
            URL,
        ],
        # The same for all numbers of connections, and more than there are connections.
        "work": {"unit": "requests", "start": 2000, "step": 500, "limit": 100_000_000},
        # Clients have a thread for each CPU of a quarter of the cores, and each needs a connection.
        "parameter": {"name": "connections", "unit": "connections", "per_cpu": [0.5, 1, 2, 4]},
        "metrics": [
            throughput("requests/s", {"pattern": _RATE}),
            latency("mean", {"pattern": r"(?m)^time for request: +\S+ +\S+ +([0-9.]+[a-z]+) "}),
            latency("median", {"file": _LOG, "pattern": _REQUEST, "quantile": 0.5, "scale": 0.001}),
            latency("p99", {"file": _LOG, "pattern": _REQUEST, "quantile": 0.99, "scale": 0.001}),
        ],
        "package": next(iter(server["commands"].values())),
    }
