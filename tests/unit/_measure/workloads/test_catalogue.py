# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in workloads as a whole: each is registered, complete and documented, and can be chosen by name."""

import copy

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import catalogue, declaration


def test_unknown_names_are_refused_with_a_list_of_the_valid_names():
    assert [workload["name"] for workload in catalogue.named(["stream", "gzip"])] == ["stream", "gzip"]
    with pytest.raises(
        declaration.WorkloadError,
        match=r"no workload nonsense: choose from array_columns, .*, gzip, .*, sysbench_threads",
    ):
        catalogue.named(["gzip", "nonsense"])


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_each_declaration_is_complete(name):
    workload = catalogue.BUILT_IN[name]
    assert set(workload) == set(declaration.PLAIN) | {"name", "title", "argv", "metrics"}
    assert set(workload["placements"] or []) <= set(placements.NAMES)
    assert workload["source"] is None or workload["source"] in sources()
    line = " ".join(workload["argv"])
    assert (workload["work"] is not None) == ("{work}" in line or "{total}" in line) or workload["reads_stream"]
    assert (workload["parameter"] is not None) == ("{parameter}" in line or "{percent}" in line)
    # Nothing is installed there but the Python that asks.
    assert declaration.missing_packages(workload, "/nowhere") or workload["server"] or name == "python_loop"
    assert workload["description"] and "|" not in workload["description"]


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


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_a_name_keeps_the_meaning_that_it_had_in_each_release(name):
    """A new workload is entered in MEANT; one that was released keeps its meaning, for results are compared with it."""
    workload = catalogue.BUILT_IN[name]
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
        ("gzip", ("metrics", "throughput", "unit"), "s", "has unit s instead of MB/s for throughput"),
        ("array_rows", ("metrics", "wall_time", "aggregate"), "sum", "has aggregate sum instead of mean for wall_time"),
        ("oltp", ("primary",), "latency_mean", "decides by latency_mean instead of throughput"),
        ("oltp", ("parameter",), None, "has a parameter with name None instead of clients"),
        ("load_levels", ("parameter", "per_worker"), False, "has a parameter with per_worker None instead of True"),
        # Metrics come and go, and a user's own workload is declared by the user.
        ("oltp", ("metrics", "new"), {"unit": "1", "better": "lower", "aggregate": "max"}, None),
        ("oltp", ("title",), "PG", None),
        ("own", ("primary",), "latency_mean", None),
    ],
)
def test_a_result_that_declares_a_built_in_workload_otherwise_is_told_apart(name, where, value, words):
    stated = copy.deepcopy(
        {**declaration.described(catalogue.BUILT_IN[name if name != "own" else "oltp"], 8), "name": name}
    )
    about = stated
    for key in where[:-1]:
        about = about[key]
    about[where[-1]] = value
    assert catalogue.difference(stated) == words
