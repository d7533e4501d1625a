# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms for programs: OpenMetrics as parsers of others read it, Parquet as DuckDB reads it, and without a library."""

import dataclasses
import json
from pathlib import Path

import duckdb
import jsonschema_rs
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import report_names, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import (
    openmetrics,
    parquet,
    registry,
    workers_parquet,
)
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

HOSTILE = 'we"b\\n01\n{}'
SCHEMA = json.loads((Path(__file__).parents[5] / "docs" / "results.schema.json").read_text(encoding="utf-8"))
# What a host leaves that tells nothing.
NOTHING = {"samples": [], "facts": result_maker.nothing_known(), "environment": {}, "plan": {}, "restored": None}


def built(directory, *documents):
    for document in documents:
        result_files.save(directory, document)
    return build.build(result_files.result_paths(directory), directory)


@pytest.mark.parametrize("format_of", [parser, openmetrics_parser], ids=["node_exporter", "OpenMetrics"])
def test_metrics_are_what_other_parsers_read(tmp_path, format_of):
    odd = result_maker.result(host=HOSTILE, blocks=5)
    unknown = result_maker.result(host="unknown", finished=None, **NOTHING)
    memory = result_maker.policy_result(host="memory", blocks=5, shape=(1, 2, 2))
    spoilt = {**memory["restored"], "ok": False, "differences": ["CPU 1 is offline"]}
    built(tmp_path, odd, unknown, {**studies.sap(5), "host": "sap"}, {**memory, "restored": spoilt})
    read = format_of.text_string_to_metric_families((tmp_path / "metrics.prom").read_text(encoding="utf-8"))
    families = {family.name: family for family in read}
    assert set(families) == set(openmetrics.METRICS) and {family.type for family in families.values()} == {"gauge"}
    hosts = {
        name.removeprefix("threadwise_smt_"): {
            one.labels["host"]: one.value for one in of.samples if one.labels.get("primary") != "false"
        }
        for name, of in families.items()
    }
    assert hosts["ratio"] == {HOSTILE: pytest.approx(0.8, rel=0.02), "sap": pytest.approx(550 / 650)}
    assert hosts["vulnerable"] == {HOSTILE: 1, "memory": 1, "sap": 1}
    assert hosts["restored"] == {HOSTILE: 1, "memory": 0, "sap": 1}
    assert hosts["arm_ratio"] == {"memory": pytest.approx(0.8, rel=0.02)}
    most = {(one.labels["arm"], one.value) for one in families["threadwise_smt_most_load"].samples}
    assert most == {("smt_on", 650.0), ("smt_off", 550.0)}
    choices = {one.labels["host"]: one.labels["choice"] for one in families["threadwise_smt_recommendation"].samples}
    assert choices == {HOSTILE: "on", "unknown": "not_compared", "sap": "on"}


def test_samples_and_workers_can_be_asked_in_sql(tmp_path):
    document = result_maker.result(host="=cmd|x", blocks=5)
    for sample in document["samples"]:
        sample["telemetry"]["frequency"] = {cpu: 2000.0 + int(cpu) for cpu in sample["telemetry"]["cpu_usage"]}
    document["samples"][0].update(ok=False, error='a "quoted"\nline, with =1', metrics={})
    built(tmp_path, document, result_maker.result(host="plain", blocks=4))

    def ask(question, name=parquet.NAME):
        return duckdb.sql(question.replace("FILE", f"'{tmp_path / name}'")).fetchall()

    count = len(document["samples"])
    counted = ask("SELECT host, count(*), count(value) FROM FILE GROUP BY host ORDER BY host")
    assert counted[0] == ("=cmd|x", count, count - 1)
    assert ask("SELECT error FROM FILE WHERE NOT ok") == [('a "quoted"\nline, with =1',)]
    values = [sample["metrics"]["throughput"]["value"] for sample in document["samples"][1:]]
    assert [value for (value,) in ask("SELECT value FROM FILE WHERE host = '=cmd|x' AND ok")] == values
    asked = (
        "SELECT worker, cpus, value, cpu_seconds, frequency_mhz, usage FROM FILE WHERE host = '=cmd|x' AND"
        " placement = 'cores' AND arm = 'smt_off' ORDER BY block, worker"
    )
    samples = [one for one in document["samples"] if (one["placement"], one["arm"]) == ("cores", "smt_off")]
    assert ask(asked, workers_parquet.NAME) == [
        (number, worker["cpus"], worker["value"], 0.79, 2000.0 + int(worker["cpus"]), 1.0)
        for sample in sorted(samples, key=lambda sample: sample["block"])
        for number, worker in enumerate(sample["workers"])
    ]


def test_no_host_can_take_the_file_of_one(tmp_path):
    """Neither its result nor its page, also where a file system ignores case."""
    assert {one.name for one in registry.formats()} < set(build.own_names()) == report_names.NAMES
    for name in build.own_names():
        for host in (name, name.partition(".")[0], name.upper(), name.partition(".")[0].title()):
            stem = result_files.file_stem(host)
            assert not {f"{stem}.json".casefold(), f"{stem}.html".casefold()} & report_names.NAMES
        (tmp_path / name).write_text("{}")
    assert result_files.result_paths(tmp_path) == []


def test_without_duckdb_all_else_is_made(tmp_path, monkeypatch):
    missing = ImportError("No module named 'duckdb'", name="duckdb")
    for module in (parquet, workers_parquet):
        monkeypatch.setattr(module, "FORMAT", dataclasses.replace(module.FORMAT, missing_library=missing))
    (said,) = built(tmp_path, result_maker.result(blocks=4)).missing
    assert "samples.parquet" in said and "workers.parquet" in said and said.endswith("pip install duckdb")
    assert (tmp_path / "results.csv").exists() and not list(tmp_path.glob("*.parquet"))


def test_results_json_is_as_its_schema_says(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    even = {"even": {**result_maker.GZIP, "share": 0.5}}
    built(
        tmp_path,
        result_maker.result(host="a", blocks=4),
        result_maker.result(host="b", blocks=6, noise=0.05, workloads=even),
        result_maker.result(host="empty", outcome="failed", message="no such host", **NOTHING),
        result_maker.result(host="once", blocks=1),
        result_maker.result(host="plain", blocks=4, compared=False, reason="no SMT", shape=(1, 1, 1)),
    )
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(SCHEMA).validate(document)
    choices = {host["host"]: host["recommendation"]["choice"] for host in document["hosts"]}
    unknown = dict.fromkeys(("empty", "plain"), "not_compared")
    assert choices == {"a": "on", "b": "undecided", "once": "undecided", **unknown}
    assert document["refused"][0]["file"] == "broken.json"
