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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
MARGIN = 0.01


def history(directory):
    """What is read of a directory: the series of its only workload and class, the record, what is left out."""
    found, left_out = effects.read(directory, NOW)
    return next(iter(found.values())), document.joined(None, found, left_out, MARGIN), left_out


def run(directory, month, share=0.6, kernel="6.1.0", hosts=(0,), name=None, **changes):
    """An evaluation of some hosts with its report: second threads give twice ``share``."""
    name = name or f"2026{month:02d}01T000000Z"
    path = directory / name
    path.mkdir(parents=True)
    workloads = {"gzip": {"rate": 100.0, "share": share, "unit": "MB/s", "title": "gzip"}}
    for number in hosts:
        given = {"workloads": workloads, "collected": f"2026-{month:02d}-01T00:00:00Z", **changes}
        seed = 100 * month + number
        made = result_maker.result(host=f"web{number}", run=name, names=("all_threads",), seed=seed, **given)
        made["environment"]["kernel"] = kernel
        (path / f"web{number}.json").write_text(json.dumps(made))
    build.build(sorted(path.glob("web*.json")), path)


def edited(directory, name, change):
    """Change the report of a run."""
    path = directory / name / "results.json"
    report = json.loads(path.read_text())
    change(report)
    path.write_text(json.dumps(report))


OF_CLASS = "gzip of a fixed stream of x86_64-2s4c8t-adjacent-0f3a9c1e"


def test_a_change_with_a_kernel_is_named_with_both(tmp_path):
    for month, share, kernel in ((1, 0.6, "6.1.0"), (3, 0.6, "6.1.0"), (5, 0.55, "6.12.0"), (7, 0.55, "6.12.0")):
        run(tmp_path, month, share, kernel, hosts=(0, 1))
    of_key, record, left_out = history(tmp_path)
    days = [("2026-01-01", "6.1.0"), ("2026-03-01", "6.1.0"), ("2026-05-01", "6.12.0"), ("2026-07-01", "6.12.0")]
    assert [(one.day, *one.kernels) for one in of_key] == days and left_out == []
    sentence, latest = document.sentences(record)
    assert latest == f"The latest run says what those before it say, within 5 %: {OF_CLASS}."
    assert sentence.startswith(f"{OF_CLASS}: from 2026-05-01 on SMT off changes it by \u22129.")
    assert "before by \u22121" in sentence
    assert sentence.endswith("with Linux 6.12.0 instead of 6.1.0: decide this class anew.")
    made = document.document(record, NOW)
    jsonschema_rs.validator_for(document.SCHEMA).validate(made)
    assert made["effects"][0]["turns"][0]["run"] == "20260501T000000Z"
    assert "Linux 6.12.0, changed from here on" in document.page(record, NOW, MARGIN)


def test_one_host_is_compared_with_itself_and_not_with_all_of_its_class(tmp_path):
    """As smt_eval_sample=1 with smt_eval_goal=recheck measures it."""
    run(tmp_path, 1, hosts=(0, 1, 2))
    run(tmp_path, 3, kernel="6.12.0")
    of_key, record, left_out = history(tmp_path)
    assert [(one.host, *one.kernels) for one in of_key] == [("web0", "6.1.0"), ("web0", "6.12.0")]
    assert document.sentences(record)[0] == "In 2 runs of evaluations no effect of SMT has changed."
    assert set(record.latest.values()) == {series.HOLDS} and left_out == []
    run(tmp_path, 5, 0.5, "6.12.0")
    assert set(history(tmp_path)[1].latest.values()) == {series.CHANGED}
    # A host that was not measured before is compared with nothing, and that is said.
    run(tmp_path, 7, 0.5, "6.12.0", hosts=(5,))
    _of_key, record, left_out = history(tmp_path)
    why = "it was not measured by web5 alone, as in the latest run"
    assert set(record.latest.values()) == {None} and len(left_out) == 3
    assert document.sentences(record)[-1] == f"Left out: 20260501T000000Z for {OF_CLASS}: {why}."
    # Several hosts again are compared with several.
    run(tmp_path, 9, kernel="6.12.0", hosts=(0, 1, 2))
    assert [(one.run[:6], one.host) for one in history(tmp_path)[0]] == [("202601", ""), ("202609", "")]


def test_what_the_baseline_was_does_not_matter(tmp_path):
    def turn(report):
        for one in report["hosts"][0]["comparisons"]:
            one["baseline"], one["candidate"], one["verdict"] = one["candidate"], one["baseline"], "gain"
            one["ratio"], one["ci_low"], one["ci_high"] = 1 / one["ratio"], 1 / one["ci_high"], 1 / one["ci_low"]

    for month in (1, 3):
        run(tmp_path, month)
    edited(tmp_path, "20260301T000000Z", turn)
    first, second = history(tmp_path)[0]
    assert second.interval.ratio == pytest.approx(first.interval.ratio, abs=0.01)
    assert first.verdict == second.verdict == "loss"


def test_runs_are_in_the_order_in_which_the_controller_collected_them(tmp_path):
    """Of one day they are not in that of their names, and no clock of a host moves a run."""
    for name, hour, share, kernel in (("old", 8, 0.6, "6.1"), ("after", 10, 0.5, "6.12"), ("middle", 9, 0.6, "6.1")):
        run(tmp_path, 3, share, kernel, name=name, collected=f"2026-03-01T{hour:02}:00:00Z")
    run(tmp_path, 2, kernel="6.1", started="1970-01-01T00:03:00Z")
    # Its time is in the future.
    run(tmp_path, 4, collected="2026-11-27T00:06:00Z")
    of_key, record, left_out = history(tmp_path)
    assert left_out == ["20260401T000000Z: its time is 2026-11-27T00:06:00Z, which is in the future"]
    assert [one.run for one in of_key] == ["20260201T000000Z", "old", "middle", "after"]
    said = document.sentences(record)[0]
    assert "from 2026-03-01 on" in said and "with Linux 6.12 instead of 6.1" in said


def test_a_report_of_an_earlier_release_has_the_time_of_the_host_in_the_middle(tmp_path):
    def without_times(report):
        for host, year in zip(report["hosts"], ("1970-01", "2026-03", "2099-01"), strict=True):
            del host["collected"]
            host["started"] = f"{year}-01T00:00:00Z"

    run(tmp_path, 3, hosts=(0, 1, 2))
    edited(tmp_path, "20260301T000000Z", without_times)
    of_key, _record, left_out = history(tmp_path)
    assert of_key[0].day == "2026-03-01" and left_out == []


TPS = {"tps": {"unit": "1/s", "better": "higher", "aggregate": "sum"}}
P99 = {"p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}


def own(directory, month, rates, metrics, hosts=(0,), name="mydb", title="my database"):
    """An evaluation of a workload of one's own, with its value for SMT on and off."""

    def model(arm, _spot, workers):
        return [rates[arm == "smt_off"]] * len(workers)

    workload = {"rate": 1, "share": 1, "unit": "x", "title": title, "model": model, "metrics": metrics}
    run(directory, month, hosts=hosts, workloads={name: workload})


@pytest.mark.parametrize("hosts", [(0,), (0, 1)])
def test_runs_that_measure_something_else_by_the_same_name_are_no_series(hosts, tmp_path):
    own(tmp_path, 1, (100, 95), TPS, hosts)
    own(tmp_path, 2, (10, 8), P99, hosts)
    own(tmp_path, 3, (10, 8), P99, hosts)
    record = history(tmp_path)[1]
    said = document.sentences(record)
    assert said[0] == "In 2 runs of evaluations no effect of SMT has changed."
    assert said[-1] == (
        "Left out: 20260101T000000Z for my database of x86_64-2s4c8t-adjacent-0f3a9c1e: it measured tps in 1/s, higher"
        " is better, sum of its workers, and the latest run p99 in ms, lower is better, max of its workers."
    )
    (effect,) = document.document(record, NOW)["effects"]
    assert (effect["name"], effect["metric"], effect["unit"], effect["better"]) == ("mydb", "p99", "ms", "lower")


def test_another_workload_of_the_same_title_is_another_series_and_what_was_not_measured_is_said_apart(tmp_path):
    own(tmp_path, 1, (100, 95), TPS, name="one")
    own(tmp_path, 2, (100, 50), TPS, name="other")
    own(tmp_path, 3, (100, 95), TPS, name="one", title="a new title")
    record = history(tmp_path)[1]
    assert {key.workload: len(of_key) for key, of_key in record.effects.items()} == {"one": 2, "other": 1}
    _none, holds, missed = document.sentences(record)
    assert "a new title of x86_64" in holds
    assert missed == "Not measured since 2026-02-01: my database of x86_64-2s4c8t-adjacent-0f3a9c1e."


def test_a_host_without_a_class_is_compared_with_itself_and_named(tmp_path):
    facts = {**result_maker.result(blocks=1)["facts"], "hardware_class": None}
    for month, share in ((1, 0.6), (3, 0.5)):
        run(tmp_path, month, share, hosts=(1, 2), facts=facts)
    record = history(tmp_path)[1]
    said = document.sentences(record)
    assert [one.partition(":")[0] for one in said] == [f"gzip of a fixed stream of web{number}" for number in (1, 2)]
    assert all(one.endswith("its hardware class is not known.") for one in said)
    made = document.document(record, NOW)
    jsonschema_rs.validator_for(document.SCHEMA).validate(made)
    assert [(one["hardware_class"], one["host"]) for one in made["effects"]] == [("", "web1"), ("", "web2")]


REPORT = {"schema": "threadwise.smt/report", "schema_version": 2, "classes": [], "hosts": []}
BROKEN = [{"schema_version": 1}, {"schema": "other"}, {"classes": [{"workloads": 7}]}]


def test_a_report_that_is_none_or_may_not_be_read_is_named_and_the_others_are_read(tmp_path, monkeypatch):
    run(tmp_path, 1)
    texts = ["", "[]", "{" * 10_000, *(json.dumps({**REPORT, **one}) for one in BROKEN)]
    for number, text in enumerate(texts):
        (tmp_path / f"r{number}").mkdir()
        (tmp_path / f"r{number}" / "results.json").write_text(text)
    (tmp_path / "s").mkdir()
    exists = pathlib.Path.exists

    def refused(path):
        # As for a user without rights; tests may run as root.
        if path.parent.name == "s":
            raise PermissionError(errno.EACCES, "Permission denied")
        return exists(path)

    monkeypatch.setattr(pathlib.Path, "exists", refused)
    of_key, _record, left_out = history(tmp_path)
    assert len(of_key) == 1 and left_out.pop() == "s: Permission denied"
    assert [one.partition(": ")[0] for one in left_out] == [f"r{number}" for number in range(len(texts))]
    # The directory of one run is read too.
    monkeypatch.chdir(tmp_path / "20260101T000000Z")
    assert [one.run for one in history(".")[0]] == ["20260101T000000Z"]
    monkeypatch.setattr(effects, "MAX_RUNS", 1)
    with pytest.raises(BorderError, match=r"no report of a run has an effect of SMT \(7 runs: only the last 1 by name"):
        effects.read(tmp_path, NOW)
    with pytest.raises(BorderError, match="nowhere"):
        effects.read(tmp_path / "nowhere", NOW)


def test_a_report_with_impossible_numbers_has_no_effect(tmp_path):
    measured = {"workload": "w", "title": "w", "metric": "m", "unit": "1/s", "better": "higher", "ratio": 1.0}
    workload = {**measured, "of_smt": True, "n": 2, "ci_low": 2.0, "ci_high": 0.5}
    arms = {"baseline": {"arm": "smt_on"}, "candidate": {"arm": "smt_off"}, "placement": "all_threads", "primary": True}
    classes = [{"hardware_class": "c", "workloads": [workload, {**workload, "ci_low": -1.0}]}]
    host = {"host": "h", "started": "0000-99-99T", "hardware_class": "c", "comparisons": [{**workload, **arms}]}
    report = {**REPORT, "classes": classes, "hosts": [{**host, "environment": {"kernel": "\x1b[2J"}}]}
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "results.json").write_text(json.dumps(report))
    with pytest.raises(BorderError, match="no report of a run has an effect of SMT: name"):
        effects.read(tmp_path, NOW)


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

    def of_earlier_release(report):
        """Such files have SMT off against SMT on for the class."""
        (one,) = report["classes"][0]["workloads"]
        one.update(title=one.pop("name"), ratio=1 / one["ratio"], ci_low=1 / one["ci_high"], ci_high=1 / one["ci_low"])
        del one["effect"]

    for change in (lambda _report: None, of_earlier_release):
        edited(tmp_path, path.name, change)
        (one,) = history(tmp_path)[0]
        expected = ("SAP SD, most users within 2 s", "", 0.846)
        assert (one.title, one.host, round(one.interval.ratio, 3)) == expected
