# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workloads are declared to be: the built-in ones, their commands and co-runners, and limits of response times."""

import copy

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    catalogue,
    custom,
    declaration,
    response_limit,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN

# What each name meant in the release that brought it, whose results are still read: the metrics, the primary one first,
# and the parameter.
LATENCIES = ", ".join(f"latency_{name} ms lower max" for name in ("mean", "median", "p99"))
HTTP = f"throughput requests/s higher sum, {LATENCIES}, connections connections"
TIMES = "wall_time s lower mean, cpu_time s lower mean_per_job"
MEANT = {
    "array": "throughput MB/s higher sum, wall_time s lower mean",
    "false_sharing": "throughput M increments/s higher sum",
    "gzip": "throughput MB/s higher sum",
    "int_float_loop": f"throughput bogo ops/s higher sum, {TIMES}",
    "load_levels": f"throughput pieces/s higher sum, {TIMES}, load of each CPU for each worker",
    "jvm": HTTP,
    "memory_pages": "throughput MB/s higher sum, page_faults faults/s higher sum",
    "nginx": HTTP,
    "oltp": f"throughput transactions/s higher sum, {LATENCIES}, clients clients",
    "python_loop": f"throughput loops/s higher sum, {TIMES}",
    "random_access": "throughput M reads/s higher sum, read_time ns lower mean, working_set MiB",
    "stream": "throughput MB/s higher sum",
    "sysbench": f"throughput events/s higher sum, {LATENCIES}",
}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_name_keeps_the_meaning_that_it_had_in_each_release(name):
    """A new workload is entered in MEANT; one that was released keeps its meaning, for results are compared with it."""
    workload = BUILT_IN[name]
    fields = ("name", "unit", "better", "aggregate")
    found = [" ".join(metric[field] for field in fields) for metric in workload["metrics"]]
    if parameter := workload["parameter"]:
        each = " for each worker" if parameter.get("per_worker") else ""
        found.append(f"{parameter['name']} {parameter['unit']}{each}")
    assert ", ".join(found) == next((text for start, text in MEANT.items() if name.startswith(start)), None)
    assert catalogue.difference(declaration.described(workload, 8)) is None


@pytest.mark.parametrize(
    ("name", "where", "value", "words"),
    [
        ("gzip", ("metrics", "throughput", "better"), "lower", "has better lower instead of higher for throughput"),
        ("oltp", ("primary",), "latency_mean", "decides by latency_mean instead of throughput"),
        ("oltp", ("parameter",), None, "has a parameter with name None instead of clients"),
        # Metrics come and go, and a user's own workload is declared by the user.
        ("oltp", ("metrics", "new"), {"unit": "1", "better": "lower", "aggregate": "max"}, None),
        ("own", ("primary",), "latency_mean", None),
    ],
)
def test_a_result_that_declares_a_built_in_workload_otherwise_is_told_apart(name, where, value, words):
    stated = copy.deepcopy({**declaration.described(BUILT_IN[name if name != "own" else "oltp"], 8), "name": name})
    about = stated
    for key in where[:-1]:
        about = about[key]
    about[where[-1]] = value
    assert catalogue.difference(stated) == words


@pytest.mark.parametrize(
    ("on", "workers", "places"),
    [
        ("same", [[2], [2]], [(2,)]),
        ("sibling", [[2]], [(14,)]),
        ("sibling", [[2], [14]], [(2,), (14,)]),
        ("sibling", [[3]], []),
        ("both", [[2]], [(2,), (14,)]),
        ("both", [[3]], [(3,)]),
    ],
)
def test_co_runners_are_on_the_workers_cpus_on_the_siblings_or_on_both(on, workers, places):
    one = dict(declaration.PLAIN, co_runners=3, co_runners_on=on)
    assert sorted(declaration.co_runner_cpus(one, workers, [(2, 14), (3, 15)], {2, 3, 14})) == sorted(places * 3)


def test_the_arguments_of_a_users_command_are_not_in_a_result():
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
        (timed(("latency_mean", "s"), ("p50", "s"), ("latency_p999", "s"), ("p99", "s")), "latency_p999"),
        (timed(("latency_mean", "s"), ("latency_median", "s")), "latency_median"),
        (timed(("latency_mean", "s")), "latency_mean"),
        (timed(("response", "ms"), better="lower"), "response"),
    ],
)
def test_any_time_that_is_waited_for_carries_a_limit(workload, carrier):
    assert response_limit.in_seconds({"web": "2 s"}, [workload]) == {"web": 2.0}
    metrics = [(one["name"], one["unit"], one["better"], one["aggregate"]) for one in workload["metrics"]]
    assert response_limit.carrier(metrics) == carrier


@pytest.mark.parametrize(
    "workload",
    [timed(("errors", "errors")), timed(("job", "s"), aggregate="per_job"), timed(("speed", "ms"), better="higher")],
)
def test_a_limit_that_no_metric_carries_is_refused_with_the_metrics(workload):
    with pytest.raises(declaration.WorkloadError, match="response_limit names web") as refused:
        response_limit.in_seconds({"web": "2 s"}, [workload])
    assert all(one["name"] in str(refused.value) and one["unit"] in str(refused.value) for one in workload["metrics"])


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("--port={port} {server}/conf", "--port=8080 /tmp/{port}/conf"),
        ("server { listen 127.0.0.1:{port}; }", "server { listen 127.0.0.1:8080; }"),
    ],
)
def test_placeholders_are_filled_in_once(text, right):
    assert declaration.filled(text, {"server": "/tmp/{port}", "port": 8080, "work": None}) == right
