# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the effect of SMT has changed from run to run: on reports of this collection."""

from __future__ import annotations

import datetime
import errno
import json
import pathlib

import jsonschema_rs
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
MARGIN = 0.01


def only(found):
    """The value of a mapping that has one."""
    (one,) = found.values()
    return one


def run(directory, month, share, kernel, hosts=(0, 1), **changes):
    """An evaluation of some hosts with its report: second threads give twice ``share``."""
    name = f"2026{month:02d}01T000000Z"
    path = directory / name
    path.mkdir(parents=True)
    for number in hosts:
        made = result_maker.result(
            host=f"web{number}",
            run=name,
            names=("all_threads",),
            seed=100 * month + number,
            **{
                "workloads": {"gzip": {"rate": 100.0, "share": share, "unit": "MB/s", "title": "gzip"}},
                "collected": f"2026-{month:02d}-01T00:00:00Z",
                **changes,
            },
        )
        made["environment"]["kernel"] = kernel
        (path / f"web{number}.json").write_text(json.dumps(made))
    build.build(sorted(path.glob("web*.json")), path)


def test_a_change_with_a_kernel_is_named_with_both(tmp_path):
    for month, share, kernel in ((1, 0.6, "6.1.0"), (3, 0.6, "6.1.0"), (5, 0.55, "6.12.0"), (7, 0.55, "6.12.0")):
        run(tmp_path, month, share, kernel)
    found, left_out = effects.read(tmp_path, NOW)
    assert left_out == [] and len(found) == 1
    of_key = only(found)
    assert [(one.day, one.kernels) for one in of_key] == [
        ("2026-01-01", ("6.1.0",)),
        ("2026-03-01", ("6.1.0",)),
        ("2026-05-01", ("6.12.0",)),
        ("2026-07-01", ("6.12.0",)),
    ]
    record = document.joined(None, found, left_out, MARGIN)
    sentence, latest = document.sentences(record)
    assert latest.startswith("The latest run says what those before it say, within 5 %: gzip of a fixed stream of")
    assert (
        "gzip of a fixed stream of x86_64" in sentence
        and "from 2026-05-01 on SMT off changes it by \u22129." in sentence
    )
    assert "before by \u221217 %" in sentence or "before by \u221216." in sentence
    assert "with Linux 6.12.0 instead of 6.1.0: decide this class anew." in sentence
    made = document.document(record, NOW)
    jsonschema_rs.validator_for(document.SCHEMA).validate(made)
    assert made["effects"][0]["turns"][0]["run"] == "20260501T000000Z"
    shown = document.page(record, NOW, MARGIN)
    assert "Linux 6.12.0, changed from here on" in shown


def test_runs_that_say_the_same_have_no_change(tmp_path):
    for month in (1, 3, 5):
        run(tmp_path, month, 0.6, "6.1.0")
    found, _left_out = effects.read(tmp_path, NOW)
    record = document.joined(None, found, [], MARGIN)
    assert document.sentences(record)[0] == "In 3 runs of evaluations no effect of SMT has changed."
    assert set(record.latest.values()) == {series.HOLDS}


def test_one_host_is_compared_with_itself_and_not_with_all_of_its_class(tmp_path):
    """As smt_eval_sample=1 with smt_eval_goal=recheck measures it."""
    run(tmp_path, 1, 0.6, "6.1.0", hosts=(0, 1, 2))
    run(tmp_path, 3, 0.6, "6.12.0", hosts=(0,))
    found, left_out = effects.read(tmp_path, NOW)
    of_key = only(found)
    assert [(one.host, one.kernels) for one in of_key] == [("web0", ("6.1.0",)), ("web0", ("6.12.0",))]
    record = document.joined(None, found, left_out, MARGIN)
    assert set(record.latest.values()) == {series.HOLDS} and left_out == []
    run(tmp_path, 5, 0.5, "6.12.0", hosts=(0,))
    record = document.joined(None, *effects.read(tmp_path, NOW), MARGIN)
    assert set(record.latest.values()) == {series.CHANGED}
    # A host that was not measured before is compared with nothing, and that is said.
    run(tmp_path, 7, 0.5, "6.12.0", hosts=(5,))
    found, left_out = effects.read(tmp_path, NOW)
    record = document.joined(None, found, left_out, MARGIN)
    assert set(record.latest.values()) == {None} and len(left_out) == 3
    assert document.sentences(record)[-1] == (
        "Left out: 20260501T000000Z for gzip of a fixed stream of x86_64-2s4c8t-adjacent-0f3a9c1e: it was not measured"
        " by web5 alone, as in the latest run."
    )
    # Several hosts again are compared with several.
    run(tmp_path, 9, 0.6, "6.12.0", hosts=(0, 1, 2))
    of_key = only(effects.read(tmp_path, NOW)[0])
    assert [(one.run[:6], one.host) for one in of_key] == [("202601", ""), ("202609", "")]


def test_what_the_baseline_was_does_not_matter(tmp_path):
    run(tmp_path, 1, 0.6, "6.1.0", hosts=(0,))
    run(tmp_path, 3, 0.6, "6.1.0", hosts=(0,))
    path = tmp_path / "20260301T000000Z" / "results.json"
    report = json.loads(path.read_text())
    for one in report["hosts"][0]["comparisons"]:
        one["baseline"], one["candidate"] = one["candidate"], one["baseline"]
        one["ratio"], one["ci_low"], one["ci_high"] = 1 / one["ratio"], 1 / one["ci_high"], 1 / one["ci_low"]
        one["verdict"] = "gain"
    path.write_text(json.dumps(report))
    first, second = only(effects.read(tmp_path, NOW)[0])
    assert (
        second.interval.ratio == pytest.approx(first.interval.ratio, abs=0.01)
        and first.verdict == second.verdict == "loss"
    )


def test_runs_are_in_the_order_in_which_the_controller_collected_them(tmp_path):
    """Of one day they are not in that of their names, and no clock of a host moves a run."""
    for name, hour, kernel in (("old", 8, "6.1.0"), ("after", 10, "6.12.0"), ("middle", 9, "6.1.0")):
        run(tmp_path, 3, 0.6 if kernel == "6.1.0" else 0.5, kernel, collected=f"2026-03-01T{hour:02}:00:00Z")
        (tmp_path / "20260301T000000Z").rename(tmp_path / name)
    run(tmp_path, 2, 0.6, "6.1.0", collected="2026-02-01T00:00:00Z", started="1970-01-01T00:03:00Z")
    found, left_out = effects.read(tmp_path, NOW)
    of_key = only(found)
    assert [one.run for one in of_key] == ["20260201T000000Z", "old", "middle", "after"] and left_out == []
    assert [one.day for one in of_key] == ["2026-02-01", *["2026-03-01"] * 3]
    said = document.sentences(document.joined(None, found, left_out, MARGIN))[0]
    assert "from 2026-03-01 on" in said and "with Linux 6.12.0 instead of 6.1.0" in said


def test_a_run_of_the_future_is_left_out(tmp_path):
    run(tmp_path, 1, 0.6, "6.1.0")
    run(tmp_path, 3, 0.6, "6.1.0", collected="2026-11-27T00:06:00Z")
    found, left_out = effects.read(tmp_path, NOW)
    assert len(next(iter(found.values()))) == 1
    assert left_out == ["20260301T000000Z: its time is 2026-11-27T00:06:00Z, which is in the future"]


def test_a_report_of_an_earlier_release_has_the_time_of_the_host_in_the_middle(tmp_path):
    run(tmp_path, 3, 0.6, "6.1.0", hosts=(0, 1, 2))
    path = tmp_path / "20260301T000000Z" / "results.json"
    report = json.loads(path.read_text())
    for host, started in zip(
        report["hosts"], ("1970-01-01T00:03:00Z", "2026-03-01T00:00:00Z", "2099-01-01T00:00:00Z"), strict=True
    ):
        del host["collected"]
        host["started"] = started
    path.write_text(json.dumps(report))
    found, left_out = effects.read(tmp_path, NOW)
    assert next(iter(found.values()))[0].day == "2026-03-01" and left_out == []


TPS = {"tps": {"unit": "1/s", "better": "higher", "aggregate": "sum"}}
P99 = {"p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}


def own(directory, month, rates, metrics, hosts=(0,), name="mydb", title="my database"):
    """An evaluation of a workload of one's own, with its value for SMT on and off."""

    def model(arm, _spot, workers):
        return [rates[arm == "smt_off"]] * len(workers)

    workload = {"rate": 1, "share": 1, "unit": "x", "title": title, "model": model, "metrics": metrics}
    run(directory, month, 0.6, "6.1.0", hosts, workloads={name: workload})


@pytest.mark.parametrize("hosts", [(0,), (0, 1)])
def test_runs_that_measure_something_else_by_the_same_name_are_no_series(hosts, tmp_path):
    own(tmp_path, 1, (100, 95), TPS, hosts)
    own(tmp_path, 2, (10, 8), P99, hosts)
    own(tmp_path, 3, (10, 8), P99, hosts)
    found, left_out = effects.read(tmp_path, NOW)
    record = document.joined(None, found, left_out, MARGIN)
    said = document.sentences(record)
    assert said[0] == "In 2 runs of evaluations no effect of SMT has changed."
    assert said[-1] == (
        "Left out: 20260101T000000Z for my database of x86_64-2s4c8t-adjacent-0f3a9c1e: it measured tps in 1/s, higher"
        " is better, sum of its workers, and the latest run p99 in ms, lower is better, max of its workers."
    )
    (effect,) = document.document(record, NOW)["effects"]
    assert (effect["name"], effect["metric"], effect["unit"], effect["better"]) == ("mydb", "p99", "ms", "lower")


def test_another_workload_of_the_same_title_is_another_series(tmp_path):
    own(tmp_path, 1, (100, 95), TPS, name="one")
    own(tmp_path, 2, (100, 50), TPS, name="other")
    own(tmp_path, 3, (100, 95), TPS, name="one", title="a new title")
    record = document.joined(None, *effects.read(tmp_path, NOW), MARGIN)
    assert {key.workload: len(of_key) for key, of_key in record.effects.items()} == {"one": 2, "other": 1}
    assert "a new title of x86_64" in document.sentences(record)[1]


def test_what_the_latest_run_did_not_measure_is_said_apart(tmp_path):
    both = {name: {**result_maker.GZIP, "share": 0.6, "title": name} for name in ("now", "old")}
    other = {**result_maker.result(blocks=1)["facts"], "hardware_class": "x86_64-2s4c8t-adjacent-ffffffff"}
    for month in (1, 2, 3):
        workloads = {name: one for name, one in both.items() if month < 3 or name == "now"}
        run(tmp_path, month, 0.6, "6.1.0", hosts=(0,), workloads=workloads)
    for month in (4, 5):
        # Another class is measured later, which says nothing of this one.
        run(tmp_path, month, 0.6, "6.1.0", hosts=(1,), workloads={"now": both["now"]}, facts=other)
    holds, missed = document.sentences(document.joined(None, *effects.read(tmp_path, NOW), MARGIN))[1:]
    assert holds == (
        "The latest run says what those before it say, within 5 %: now of x86_64-2s4c8t-adjacent-0f3a9c1e and now of"
        " x86_64-2s4c8t-adjacent-ffffffff."
    )
    assert missed == "Not measured since 2026-02-01: old of x86_64-2s4c8t-adjacent-0f3a9c1e."


def test_a_host_without_a_class_is_compared_with_itself_and_named(tmp_path):
    facts = {**result_maker.result(blocks=1)["facts"], "hardware_class": None}
    for month, share in ((1, 0.6), (3, 0.5)):
        run(tmp_path, month, share, "6.1.0", hosts=(1, 2), facts=facts)
    record = document.joined(None, *effects.read(tmp_path, NOW), MARGIN)
    said = document.sentences(record)
    assert [one.partition(":")[0] for one in said] == [
        "gzip of a fixed stream of web1",
        "gzip of a fixed stream of web2",
    ]
    assert all(one.endswith("its hardware class is not known.") for one in said)
    made = document.document(record, NOW)
    jsonschema_rs.validator_for(document.SCHEMA).validate(made)
    assert [(one["hardware_class"], one["host"]) for one in made["effects"]] == [("", "web1"), ("", "web2")]
    assert "gzip of a fixed stream of web2" in document.page(record, NOW, MARGIN)


@pytest.mark.parametrize(
    "report",
    [
        "",
        "[]",
        "{" * 10_000,
        json.dumps({"schema": "threadwise.smt/report", "schema_version": 1, "classes": [], "hosts": []}),
        json.dumps({"schema": "other", "schema_version": 2, "classes": [], "hosts": []}),
        json.dumps(
            {"schema": "threadwise.smt/report", "schema_version": 2, "classes": [{"workloads": 7}], "hosts": []}
        ),
    ],
)
def test_a_report_that_is_none_is_named_and_the_others_are_read(report, tmp_path):
    run(tmp_path, 1, 0.6, "6.1.0")
    other = tmp_path / "20260201T000000Z"
    other.mkdir()
    (other / "results.json").write_text(report)
    found, left_out = effects.read(tmp_path, NOW)
    assert len(found) == 1 and len(left_out) == 1 and left_out[0].startswith("20260201T000000Z: ")


def test_a_report_with_impossible_numbers_has_no_effect(tmp_path):
    measured = {"workload": "w", "title": "w", "metric": "m", "unit": "1/s", "better": "higher", "ratio": 1.0}
    workload = {**measured, "of_smt": True, "n": 2, "ci_low": 2.0, "ci_high": 0.5}
    arms = {"baseline": {"arm": "smt_on"}, "candidate": {"arm": "smt_off"}, "placement": "all_threads", "primary": True}
    report = {
        "schema": "threadwise.smt/report",
        "schema_version": 2,
        "classes": [{"hardware_class": "c", "workloads": [workload, {**workload, "ci_low": -1.0}]}],
        "hosts": [
            {
                "host": "h",
                "started": "0000-99-99T",
                "hardware_class": "c",
                "environment": {"kernel": "\x1b[2J"},
                "comparisons": [{**workload, **arms}],
            }
        ],
    }
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "results.json").write_text(json.dumps(report))
    with pytest.raises(BorderError, match="no report of a run has an effect of SMT: name"):
        effects.read(tmp_path, NOW)


def test_a_directory_without_runs_is_named_with_what_was_left_out(tmp_path):
    with pytest.raises(BorderError, match=f"{tmp_path}: no report of a run"):
        effects.read(tmp_path, NOW)
    for number in range(3):
        (tmp_path / f"r{number}").mkdir()
        (tmp_path / f"r{number}" / "results.json").write_text("{}")
    with pytest.raises(BorderError, match=r"r0: .*; and 2 more"):
        effects.read(tmp_path, NOW)


def test_the_directory_of_one_run_is_read_too(tmp_path, monkeypatch):
    run(tmp_path, 1, 0.6, "6.1.0")
    monkeypatch.chdir(tmp_path / "20260101T000000Z")
    for directory in (tmp_path / "20260101T000000Z", "."):
        of_key = only(effects.read(directory, NOW)[0])
        assert [one.run for one in of_key] == ["20260101T000000Z"]


def test_a_run_that_may_not_be_read_is_left_out(tmp_path, monkeypatch):
    run(tmp_path, 1, 0.6, "6.1.0")
    (tmp_path / "locked").mkdir()
    exists = pathlib.Path.exists

    def refused(path):
        # As for a user without rights; tests may run as root.
        if path.parent.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return exists(path)

    monkeypatch.setattr(pathlib.Path, "exists", refused)
    found, left_out = effects.read(tmp_path, NOW)
    assert len(found) == 1 and left_out == ["locked: Permission denied"]


def test_of_too_many_runs_the_last_ones_count(tmp_path, monkeypatch):
    monkeypatch.setattr(effects, "MAX_RUNS", 2)
    for month in (1, 2, 3):
        run(tmp_path, month, 0.6, "6.1.0")
    found, left_out = effects.read(tmp_path, NOW)
    assert [one.run[:6] for one in next(iter(found.values()))] == ["202602", "202603"]
    assert left_out == ["1 run: only the last 2 by name are read"]


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BorderError, match="nowhere"):
        effects.read(tmp_path / "nowhere", NOW)


def test_a_most_load_of_smt_on_is_one_of_smt_off_in_a_history(tmp_path):
    path = tmp_path / "20260101T000000Z"
    path.mkdir()
    for host, over in (("web0", 1), ("web1", 2)):
        made = {**studies.sap(), "host": host, "run": path.name}
        served = [one for one in made["samples"] if (one["arm"], one["parameter"]) == ("smt_on", 650)]
        for sample in served[:over]:
            sample["metrics"]["latency_mean"]["value"] = 2.01
        (path / f"{host}.json").write_text(json.dumps(made))
    build.build(sorted(path.glob("web*.json")), path)

    def read():
        found = only(effects.read(tmp_path, NOW)[0])
        return found[0].title, [(one.host, round(one.interval.ratio, 3)) for one in found]

    assert read() == ("SAP SD, most users within 2 s", [("", 0.846)])
    # Files of earlier releases have SMT off against SMT on for the class.
    report = json.loads((path / "results.json").read_text())
    (one,) = report["classes"][0]["workloads"]
    one.update(title=one["name"], ratio=1 / one["ratio"], ci_low=1 / one["ci_high"], ci_high=1 / one["ci_low"])
    for name in ("name", "effect"):
        del one[name]
    (path / "results.json").write_text(json.dumps(report))
    assert read() == ("SAP SD, most users within 2 s", [("", 0.846)])
