# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One effect has one number: page, Markdown, CSV, JSON and metrics give the same change with the same sign."""

import csv
import html
import json
import random
import re

import night
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change, wording

ENDS = ("change", "change_low", "change_high")


def read(directory, document):
    """What each file of the report says, in plain words: page, Markdown, and rows, host and metrics for programs."""
    result_files.save(directory, document)
    assert build.build(result_files.result_paths(directory), directory).refused == []
    files = {one.name: one.read_text(encoding="utf-8") for one in directory.iterdir() if one.suffix != ".parquet"}
    page = html.unescape(files["index.html"]).replace("\u00a0", " ")
    summary = re.sub(r"\\(.)", r"\1", files["summary.md"]).replace("\u00a0", " ")
    rows = list(csv.DictReader(files["comparisons.csv"].splitlines()))
    (host,) = json.loads(files["results.json"])["hosts"]
    return page, summary, rows, host, files["metrics.prom"]


def test_sap_serves_18_percent_more_users_wherever_it_is_said(tmp_path):
    page, summary, rows, host, metrics = read(tmp_path, studies.sap())
    (row,) = [row for row in rows if row["metric"] == "most_load"]
    values = [float(row[name]) for name in ("candidate_value", "baseline_value", "change")]
    assert values == pytest.approx([650, 550, 100 / 550]) and row["primary"] == "True"
    said = "650 users with SMT on against 550 with SMT off, +18 % in each block"
    for text in (page, summary, host["conclusion"]["sentence"]):
        assert said in text and "−15 %" not in text
    assert 'arm="smt_on",placement="all_threads"} 650.0\n' in metrics and "} 550.0\n" in metrics
    assert not re.search(r'^threadwise_smt_change.*metric="most_load"', metrics, re.MULTILINE)


METRICS = "throughput MB/s higher, score points higher, wall_time ms lower, latency_p99 us lower, cpu_time s lower"
METRICS = [one.split() for one in METRICS.split(", ")]
OTHER_ARMS = ("smt_off", "isolated", "mitigations_off", "thp_never", "thp_always", "overcommit_strict")
PLACEMENTS = (*result_maker.ORDER, "free_1", "free_2", "free_4")
JUDGED = re.compile(r"([+−±][\d.]+ % \([^)]*?(?: %|no interval)\)), (better|worse|no difference|not decided)")


def random_workload(source, name, arms):
    """A workload of one to three metrics, with an effect of each arm in each of them, and of the number of workers."""
    first, *further = source.sample(METRICS, source.randint(1, 3))
    aggregates = {"higher": ("sum", "mean"), "lower": ("sum", "mean", "per_job", "max")}
    effects = {(metric[0], arm): source.choice((1, 1, 0.8, 1.25, 0.97, 1.03, 2)) for metric in METRICS for arm in arms}
    level, each = source.choice((0.002, 1.5, 52340.0)), source.choice((0, 0.05, 0.3))
    return {
        "title": f"work {name}",
        "metrics": {
            title: {"unit": unit, "better": better, "aggregate": source.choice(aggregates[better])}
            for title, unit, better in (first, *further)
        },
        "model": lambda arm, _spot, placed: [level * effects[first[0], arm] * (1 + each * len(placed))] * len(placed),
        "further": lambda arm, _spot: {
            title: level * effects[title, arm] * source.uniform(0.99, 1.01) for title, _unit, _better in further
        },
    }


def random_result(seed):
    source = random.Random(seed)
    kind = source.choice(("smt", "smt", "arms", "found"))
    others = source.sample(OTHER_ARMS, source.randint(1, 4)) if kind == "arms" else ["smt_off"]
    arms = ["as_found"] if kind == "found" else ["smt_on", *others]
    return result_maker.result(
        workloads={f"w{name}": random_workload(source, name, arms) for name in range(source.randint(1, 4))},
        shape=(source.randint(1, 2), source.randint(1, 3), source.choice((1, 2, 2))),
        blocks=source.choice((1, 2, 3, 4, 6, 8, 12)),
        noise=source.choice((0, 0.002, 0.02, 0.1)),
        drift=source.choice((0, 0.1)),
        compared=kind != "found",
        arms=dict.fromkeys(arms, 1.0) if kind == "arms" else None,
        names=source.sample(PLACEMENTS, source.randint(1, 6)),
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(night.number(2, 400)))
def test_whatever_was_measured_no_two_places_contradict_each_other(tmp_path, seed):
    page, summary, rows, host, metrics = read(tmp_path, random_result(seed))
    verdicts: dict[str, set[str]] = {}
    for row, one in zip(rows, host["comparisons"], strict=True):
        sign = 1 if one["better"] == "higher" else -1
        assert [row[key] for key in ENDS] == ["" if one[key] is None else str(one[key]) for key in ENDS]
        assert one["change"] == pytest.approx(one["ratio"] ** sign - 1)
        assert {"gain": one["change"] * sign > 0, "loss": one["change"] * sign < 0}.get(one["verdict"], True)
        assert one["change_low"] is None or one["change_low"] <= one["change"] <= one["change_high"]
        said = wording.change_and_interval(change.Change(*(one[name] for name in change.FIELDS)))
        assert said in summary
        if one["primary"] and (one["effect"], one["placement"]) == ("smt_off", "all_threads"):
            assert f'workload="{one["workload"]}",metric="{one["metric"]}"' in metrics
            assert f" {one['change']}\n" in metrics
        verdicts.setdefault(said, set()).add(wording.VERDICT_TITLES[one["verdict"]])
    for text in (page, summary, " ".join(host["conclusion"]["statements"])):
        assert all(word in verdicts.get(said, ()) for said, word in JUDGED.findall(text))
