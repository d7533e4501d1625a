# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One effect has one number: page, Markdown, CSV, JSON and metrics are read, and give the same change with the same
sign.
"""

import csv
import html
import json
import re

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build

ENDS = ("change", "change_low", "change_high")
# More workers take longer here, so that time and rate point to different sides.
TIME = {
    "title": "orders",
    "metrics": {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}},
    "model": lambda _arm, _spot, workers: [2.0 * (1 + 0.1 * len(workers))] * len(workers),
}


def test_a_change_has_the_same_sign_and_size_wherever_it_stands(tmp_path):
    result_files.save(tmp_path, result_maker.result(blocks=8, workloads={"gzip": result_maker.GZIP, "orders": TIME}))
    build.build(result_files.result_paths(tmp_path), tmp_path)
    files = {
        name: (tmp_path / name).read_text(encoding="utf-8")
        for name in ("index.html", "summary.md", "comparisons.csv", "results.json", "metrics.prom")
    }
    page, text = html.unescape(files["index.html"]), re.sub(r"\\(.)", r"\1", files["summary.md"])
    rows = list(csv.DictReader(files["comparisons.csv"].splitlines()))
    (of_host,) = json.loads(files["results.json"])["hosts"]
    assert {row["better"] for row in rows} == {"higher", "lower"}
    for row, one in zip(rows, of_host["comparisons"], strict=True):
        sign = 1 if one["better"] == "higher" else -1
        assert one["change"] == pytest.approx(one["ratio"] ** sign - 1)
        assert one["change"] == pytest.approx(one["candidate_value"] / one["baseline_value"] - 1, abs=1e-9)
        assert [float(row[key]) for key in ENDS] == [one[key] for key in ENDS]
        assert one["change_low"] <= one["change"] <= one["change_high"]
        said = conclusion.change_and_interval(one)
        assert said in text and said.split(" (", 1)[0].replace(" %", "\u00a0%") in page.replace(" %", "\u00a0%")
        if one["primary"] and (one["effect"], one["placement"]) == ("smt_off", "all_threads"):
            assert f"by {said}, {conclusion.VERDICT_TITLES[one['verdict']]}" in of_host["conclusion"]["sentence"]
            (line,) = [
                line
                for line in files["metrics.prom"].splitlines()
                if line.startswith("threadwise_smt_change{")
                and f'workload="{one["workload"]}",metric="{one["metric"]}"' in line
            ]
            assert float(line.rsplit(" ", 1)[1]) == one["change"]


def test_sap_serves_18_percent_more_users_wherever_it_is_said(tmp_path):
    result_files.save(tmp_path, studies.sap())
    build.build(result_files.result_paths(tmp_path), tmp_path)
    files = {
        name: re.sub(r"\\(.)", r"\1", html.unescape((tmp_path / name).read_text(encoding="utf-8"))).replace(
            "\u00a0", " "
        )
        for name in ("index.html", "summary.md")
    }
    (row,) = [
        row
        for row in csv.DictReader((tmp_path / "comparisons.csv").read_text(encoding="utf-8").splitlines())
        if row["metric"] == "most_load"
    ]
    assert [float(row[name]) for name in ("candidate_value", "baseline_value")] == [650, 550]
    assert float(row["change"]) == pytest.approx(100 / 550) and row["primary"] == "True"
    (of_host,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]
    said = "650 users with SMT on against 550 with SMT off, +18 % in each block, of the loads measured"
    assert said in of_host["conclusion"]["sentence"]
    for text in files.values():
        assert said in text and "−15 %" not in text and not re.search(r"\d samples failed", text)
    assert (
        "| SAP SD, most users within 2 s | SMT on against SMT off, every online thread busy | +18 % (no interval)"
        in (files["summary.md"])
    )
    metrics = (tmp_path / "metrics.prom").read_text(encoding="utf-8")
    assert 'arm="smt_on",placement="all_threads"} 650.0\n' in metrics and "} 550.0\n" in metrics
    assert not re.search(r'^threadwise_smt_change.*metric="most_load"', metrics, re.MULTILINE)


ARMS = {"smt_on": 1.0, "smt_off": 0.8, "isolated": 1.02, "mitigations_off": 1.1, "thp_never": 0.97}
MADE = {
    "hp": studies.hp,
    "hp with few streams": lambda: studies.hp((1, 2, 4, 8, 12), tests=["inner", "outer"]),
    "sap": studies.sap,
    "pythian": studies.pythian_pinned,
    "2014": studies.threads_2014,
    "2014 beside others": studies.busy_2014,
    "2016": studies.overhead,
    "arm": studies.arm,
    "five arms": lambda: result_maker.result(
        blocks=8, workloads={"orders": TIME, "gzip": result_maker.GZIP}, arms=ARMS
    ),
    "noise": lambda: result_maker.result(blocks=6, noise=0.1, workloads={"orders": TIME, "gzip": result_maker.GZIP}),
    "one core": lambda: result_maker.result(blocks=8, workloads={"orders": TIME}, shape=(1, 1, 2)),
    "few blocks": lambda: result_maker.result(blocks=3, workloads={"orders": TIME, "gzip": result_maker.GZIP}),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_each_change_that_a_sentence_names_is_one_of_a_comparison(tmp_path, made):
    result_files.save(tmp_path, made())
    build.build(result_files.result_paths(tmp_path), tmp_path)
    (of_host,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]
    known = {
        text
        for one in of_host["comparisons"]
        for text in re.findall(r"[+−±][\d.]+", conclusion.change_and_interval(one))
        + [conclusion.signed(1 + one[name]) for name in ENDS if one[name] is not None]
    }
    concluded = of_host["conclusion"]
    said = [*concluded["statements"], *(reason["text"] for reason in of_host["recommendation"]["reasons"])]
    known = {text.removesuffix(" %") for text in known}
    assert {number for text in said for number in re.findall(r"[+−±][\d.]*\d", text)} <= known
