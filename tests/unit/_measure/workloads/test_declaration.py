# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from a declaration: missing commands, parameter values for the host, the part in a result."""

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    custom,
    declaration,
    response_limit,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.built_in.oltp import POSTGRESQL
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN


def executable(path):
    path.write_text("")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "said", "program"),
    [
        ("sysbench_cpu", "sysbench is not installed (package sysbench)", "sysbench"),
        ("stream", "no C compiler is installed: none of cc, gcc, clang (package gcc)", "clang"),
    ],
)
def test_a_missing_command_is_reported_with_its_package(name, said, program, tmp_path):
    assert declaration.missing(BUILT_IN[name], str(tmp_path)) == said
    executable(tmp_path / program)
    assert declaration.missing(BUILT_IN[name], f"/nowhere:{tmp_path}") is None


def test_the_newest_version_of_a_server_is_found_by_number_not_by_name(tmp_path):
    for version in ("9.6", "15", "7"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for command in POSTGRESQL["commands"]:
            executable(folder / command)
    server = dict(POSTGRESQL, folders=[str(tmp_path / "*" / "bin")])
    oltp = dict(BUILT_IN["oltp"], server=server)
    # The path of this test's directory has numbers too, but they are the same for each version.
    assert declaration.search_path(oltp, "/bin") == f"{tmp_path / '15' / 'bin'}{os.pathsep}/bin"
    assert declaration.missing(oltp, "/nowhere") is None
    (tmp_path / "15" / "bin" / "pgbench").unlink()
    assert declaration.missing(oltp, "/nowhere") == "pgbench is not installed (package postgresql)"


@pytest.mark.parametrize(
    ("on", "workers", "places"),
    [
        ("same", [[2], [2]], [(2,)]),
        ("same", [[], []], [(), ()]),
        ("sibling", [[2]], [(14,)]),
        ("sibling", [[2], [14]], [(2,), (14,)]),
        # CPU 15 is offline, or left idle.
        ("sibling", [[3]], []),
        ("sibling", [[]], []),
        ("both", [[2]], [(2,), (14,)]),
        ("both", [[2], [14]], [(2,), (14,)]),
        ("both", [[3]], [(3,)]),
    ],
)
def test_co_runners_are_on_the_workers_cpus_on_the_siblings_or_on_both(on, workers, places):
    one = dict(declaration.PLAIN, co_runners=3, co_runners_on=on)
    assert sorted(declaration.co_runner_cpus(one, workers, [(2, 14), (3, 15)], {2, 3, 14})) == sorted(places * 3)


@pytest.mark.parametrize(
    ("cpus", "clients"),
    [(1, [1, 2, 4]), (2, [1, 2, 3, 4, 8]), (8, [2, 4, 8, 12, 16, 32]), (64, [16, 32, 64, 96, 128, 256])],
)
def test_the_numbers_of_clients_depend_on_the_number_of_cpus(cpus, clients):
    assert declaration.parameter_values(BUILT_IN["oltp"], cpus) == clients


def test_the_part_of_a_declaration_in_a_result():
    gzip, oltp = (declaration.described(BUILT_IN[name], 4) for name in ("gzip", "oltp"))
    assert (gzip["argv"], gzip["primary"], gzip["parameter"]) == (["gzip", "-6", "-c"], "throughput", None)
    assert gzip["metrics"] == {"throughput": {"unit": "MB/s", "better": "higher", "aggregate": "sum"}}
    assert (gzip["server"], oltp["server"]) == (False, True)
    levels = [0.14, 0.29, 0.43, 0.57, 0.71, 0.86, 1.0]
    parameter = {"name": "load", "unit": "of each CPU", "values": levels, "per_worker": True}
    assert declaration.described(BUILT_IN["load_levels"], 4)["parameter"] == parameter
    # The arguments of a user's own command are not in it.
    metric = {"name": "tps", "unit": "1/s", "better": "higher", "pattern": "tps = ([0-9.]+)"}
    given = {"name": "own", "argv": ["env", "PGPASSWORD=hunter2hunter2", "pgbench"], "metric": metric}
    own = declaration.described(custom.declarations([given])[0], 4)
    assert own["argv"] == ["env"] and "hunter2" not in str(own)


@pytest.mark.parametrize(("given", "seconds"), [("2.0 s", 2.0), ("500ms", 0.5), ("250 us", 0.00025)])
def test_response_limits_are_in_seconds(given, seconds):
    workloads = [BUILT_IN["oltp"], BUILT_IN["load_levels"]]
    assert response_limit.in_seconds({"oltp": given}, workloads) == {"oltp": pytest.approx(seconds)}


def timed(*metrics, **changes):
    """A user's command that is measured at several numbers of clients; each metric is a name with its unit."""
    declared = [{"name": name, "unit": unit, "better": "lower", "pattern": "(.*)"} for name, unit in metrics]
    rate = {"name": "throughput", "unit": "requests/s", "better": "higher", "pattern": "(.*)"}
    first, *others = declared if changes else [rate, *declared]
    parameters = {"name": "clients", "values": [1, 2]}
    given = {"name": "web", "argv": ["ab"], "metric": {**first, **changes}, "metrics": others, "parameters": parameters}
    return custom.declarations([given])[0]


@pytest.mark.parametrize(
    ("workload", "carrier"),
    [
        (timed(("p99", "ms")), "p99"),
        (timed(("latency_p95", "us")), "latency_p95"),
        (timed(("time_to_first_byte", "ns")), "time_to_first_byte"),
        (timed(("latency_mean", "s"), ("p50", "s"), ("latency_p999", "s"), ("p99", "s")), "latency_p999"),
        (timed(("latency_mean", "s"), ("latency_median", "s")), "latency_median"),
        (timed(("latency_mean", "s")), "latency_mean"),
        (timed(("response", "ms"), aggregate="max"), "response"),
        (timed(("response", "ms"), better="lower"), "response"),
    ],
)
def test_any_time_that_is_waited_for_carries_a_limit(workload, carrier):
    assert response_limit.in_seconds({"web": "2 s"}, [workload]) == {"web": 2.0}
    metrics = [(one["name"], one["unit"], one["better"], one["aggregate"]) for one in workload["metrics"]]
    assert response_limit.carrier(metrics) == carrier


@pytest.mark.parametrize(
    "workload",
    [
        timed(("errors", "errors")),
        timed(("p99", "min")),
        timed(("job", "s"), aggregate="per_job"),
        timed(("speed", "ms"), better="higher"),
    ],
)
def test_a_limit_that_no_metric_carries_is_refused_with_the_metrics(workload):
    with pytest.raises(declaration.WorkloadError, match="response_limit names web") as refused:
        response_limit.in_seconds({"web": "2 s"}, [workload])
    assert all(one["name"] in str(refused.value) and one["unit"] in str(refused.value) for one in workload["metrics"])


def test_the_load_of_each_worker_has_no_limit_of_response_times():
    with pytest.raises(declaration.WorkloadError, match="response_limit names 'load_levels'"):
        response_limit.in_seconds({"load_levels": "2 s"}, [BUILT_IN["load_levels"]])


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("--port={port} {server}/conf", "--port=8080 /tmp/{port}/conf"),
        ("{work} of {nobody}", "{work} of {nobody}"),
        ("server { listen 127.0.0.1:{port}; }", "server { listen 127.0.0.1:8080; }"),
    ],
)
def test_placeholders_are_filled_in_once(text, right):
    assert declaration.filled(text, {"server": "/tmp/{port}", "port": 8080, "work": None}) == right
