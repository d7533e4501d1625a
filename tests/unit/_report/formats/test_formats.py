# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms for programs: OpenMetrics as parsers of others read it, Parquet as DuckDB reads it,
and what holds when a library is missing.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import duckdb
import jsonschema_rs
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import report_names, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import (
    base,
    openmetrics,
    parquet,
    registry,
    workers_parquet,
)
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

HOSTILE = 'we"b\\n01\n{}'


def built(directory, *documents):
    for document in documents:
        result_files.save(directory, document)
    return build.build(result_files.result_paths(directory), directory)


@pytest.mark.parametrize(
    "parse",
    [parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families],
    ids=["node_exporter's format", "OpenMetrics"],
)
def test_metrics_are_what_other_parsers_read(tmp_path, parse):
    odd = result_maker.result(host=HOSTILE, blocks=5)
    unknown = result_maker.result(
        host="unknown", samples=[], restored=None, finished=None, facts=result_maker.nothing_known()
    )
    limited = {**studies.sap(5), "host": "sap"}
    built(tmp_path, odd, unknown, limited, result_maker.policy_result(host="memory", blocks=5, shape=(1, 2, 2)))
    families = {family.name: family for family in parse((tmp_path / "metrics.prom").read_text(encoding="utf-8"))}
    assert set(families) == set(openmetrics.METRICS) and {family.type for family in families.values()} == {"gauge"}
    hosts = {
        name: {
            sample.labels["host"]: sample.value for sample in family.samples if sample.labels.get("primary") != "false"
        }
        for name, family in families.items()
    }
    assert hosts["threadwise_smt_ratio"] == {HOSTILE: pytest.approx(0.8, rel=0.02), "sap": pytest.approx(550 / 650)}
    known = {HOSTILE: 1, "memory": 1, "sap": 1}
    assert hosts["threadwise_smt_vulnerable"] == known and hosts["threadwise_smt_restored"] == known
    most = {(one.labels["arm"], one.value) for one in families["threadwise_smt_most_load"].samples}
    assert most == {("smt_on", 650.0), ("smt_off", 550.0)}
    assert hosts["threadwise_smt_arm_ratio"] == {"memory": pytest.approx(0.8, rel=0.02)}
    assert hosts["threadwise_smt_recommendation"] == {HOSTILE: 1, "unknown": 1, "sap": 1}
    choice = {
        sample.labels["host"]: sample.labels["choice"] for sample in families["threadwise_smt_recommendation"].samples
    }
    assert choice == {HOSTILE: "on", "unknown": "not_compared", "sap": "on"}


def test_samples_can_be_asked_in_sql(tmp_path):
    document = result_maker.result(host="=cmd|x", blocks=5)
    document["samples"][0].update(ok=False, error='a "quoted"\nline, with =1', metrics={})
    document["plan"]["workloads"].append(
        {
            **document["plan"]["workloads"][0],
            "name": "served",
            "parameter": {"name": "clients", "unit": "clients", "values": [8], "per_worker": False},
        }
    )
    document["samples"][1].update(workload="served", parameter=8)
    built(tmp_path, document, result_maker.result(host="plain", blocks=4))
    path = tmp_path / parquet.NAME

    def ask(question):
        return duckdb.sql(question.replace("SAMPLES", f"'{path}'")).fetchall()

    assert duckdb.read_parquet(str(path)).columns == list(base.SAMPLE_COLUMNS)
    count = len(document["samples"])
    assert ask("SELECT host, count(*), count(value) FROM SAMPLES GROUP BY host ORDER BY host")[0] == (
        "=cmd|x",
        count,
        count - 1,
    )
    assert ask("SELECT error FROM SAMPLES WHERE NOT ok") == [('a "quoted"\nline, with =1',)]
    assert ask("SELECT parameter, parameter_name FROM SAMPLES WHERE parameter IS NOT NULL") == [(8.0, "clients")]
    values = [sample["metrics"]["throughput"]["value"] for sample in document["samples"][1:]]
    assert [value for (value,) in ask("SELECT value FROM SAMPLES WHERE host = '=cmd|x' AND ok")] == values


def test_workers_in_sql(tmp_path):
    """What sharing a core does to each worker: its rate, its CPU time, its CPU's frequency."""
    document = result_maker.result(host="=cmd|x", blocks=4)
    for sample in document["samples"]:
        sample["telemetry"]["frequency"] = {cpu: 2000.0 + int(cpu) for cpu in sample["telemetry"]["cpu_usage"]}
    built(tmp_path, document)
    path = tmp_path / workers_parquet.NAME
    assert duckdb.read_parquet(str(path)).columns == list(base.WORKER_COLUMNS)
    rows = duckdb.sql(
        f"SELECT worker, cpus, value, cpu_seconds, frequency_mhz, usage FROM '{path}' WHERE host = '=cmd|x' AND"
        " placement = 'siblings' ORDER BY block, worker"
    ).fetchall()
    samples = [sample for sample in document["samples"] if sample["placement"] == "siblings"]
    assert rows == [
        (number, worker["cpus"], worker["value"], 0.79, 2000.0 + int(worker["cpus"]), 1.0)
        for sample in sorted(samples, key=lambda sample: sample["block"])
        for number, worker in enumerate(sample["workers"])
    ]


def test_a_worker_that_was_not_pinned_has_an_empty_cell_of_cpus(tmp_path):
    document = result_maker.result(blocks=1)
    document["samples"][0]["workers"][0]["cpus"] = ""
    built(tmp_path, document)
    (first,) = [line for line in (tmp_path / "workers.csv").read_text().splitlines() if ",,throughput," in line]
    assert '"' not in first


def test_each_file_with_a_format_is_found():
    folder = Path(registry.__file__).parent
    declared = {path.stem for path in folder.glob("*.py") if "\nFORMAT = " in path.read_text(encoding="utf-8")}
    names = [one.name for one in registry.formats()]
    assert len(names) == len(set(names)) == len(declared) > 0
    assert all(one.about and "|" not in one.about for one in registry.formats())


def test_no_host_can_take_the_file_of_a_format():
    """Neither its result nor its page, also where a file system ignores case. `make registries` writes the names."""
    assert {one.name for one in registry.formats()} < set(build.own_names()) == report_names.NAMES
    for name in build.own_names():
        for host in (name, name.partition(".")[0]):
            for called in (host, host.upper(), host.title()):
                stem = result_files.file_stem(called)
                assert not {f"{stem}.json".casefold(), f"{stem}.html".casefold()} & report_names.NAMES


def test_no_file_of_a_report_is_taken_for_the_result_of_a_host(tmp_path):
    for name in build.own_names():
        (tmp_path / name).write_text("{}")
    assert result_files.result_paths(tmp_path) == []


def test_without_duckdb_all_else_is_made(tmp_path, monkeypatch):
    without = dataclasses.replace(
        parquet.FORMAT, missing_library=ImportError("No module named 'duckdb'", name="duckdb")
    )
    monkeypatch.setattr(parquet, "FORMAT", without)
    monkeypatch.setattr(
        workers_parquet, "FORMAT", dataclasses.replace(workers_parquet.FORMAT, missing_library=without.missing_library)
    )
    made = built(tmp_path, result_maker.result(blocks=4))
    assert (
        len(made.missing) == 1
        and "without samples.parquet and without workers.parquet" in made.missing[0]
        and made.missing[0].endswith("pip install duckdb")
    )
    assert (tmp_path / "results.csv").exists() and not list(tmp_path.glob("*.parquet"))


SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "results.schema.json").read_text(encoding="utf-8"))


def test_results_json_is_as_its_schema_says(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    built(
        tmp_path,
        result_maker.result(host="a", blocks=4),
        result_maker.result(host="b", blocks=6, noise=0.05, workloads={"even": {**result_maker.GZIP, "share": 0.5}}),
        result_maker.result(
            host="empty",
            samples=[],
            facts=result_maker.nothing_known(),
            environment={},
            plan={},
            outcome="failed",
            message="no such host",
            restored=None,
        ),
        result_maker.result(host="once", blocks=1),
        result_maker.result(host="plain", blocks=4, compared=False, reason="no SMT", shape=(1, 1, 1)),
    )
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(SCHEMA).validate(document)
    choices = {host["host"]: host["recommendation"]["choice"] for host in document["hosts"]}
    assert choices == {
        "a": "on",
        "b": "undecided",
        "empty": "not_compared",
        "once": "undecided",
        "plain": "not_compared",
    }
    assert document["refused"][0]["file"] == "broken.json"
