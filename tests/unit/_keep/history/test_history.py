# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drifted when, from checks that were added one by one; whether the effect of SMT has changed between runs."""

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
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document, effects
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

START = datetime.datetime(2026, 1, 30, 6, tzinfo=datetime.UTC)
DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
LINE = {"schema": "threadwise.smt/checks", "schema_version": 1, "at": "2026-01-30T06:00:00Z", "hosts": 1}
LINE |= {"whole": True, "statuses": {}}
JANUARY = "checks-2026-01.jsonl"
OK, DRIFTED, WAIVED, GONE = "compliant", "drifted", "waived", "unreachable"


def add(directory, *days, others=("a", "b", "c"), **how):
    """Add a check a day: each has a status for the hosts a, b and c, as far as it goes, or host -> status."""
    for number, given in enumerate(days):
        statuses = given if isinstance(given, dict) else dict(zip("abc", given, strict=False))
        checks.add(directory, statuses, others, START + number * DAY, **how)


def joined(directory):
    return document.joined(checks.read(directory), {}, [], 0.01)


def said(directory):
    (sentence,) = document.sentences(joined(directory))
    return sentence


def test_a_drift_lasts_from_the_check_that_saw_it_to_the_one_that_saw_it_mended(tmp_path):
    add(tmp_path, [OK, OK, OK], [DRIFTED, OK, DRIFTED], [GONE, OK, DRIFTED], [OK, OK, DRIFTED])
    found = checks.read(tmp_path)
    assert found.drifts == [checks.Drift("c", START + DAY, None), checks.Drift("a", START + DAY, START + 3 * DAY)]
    counts = [{OK: 3}, {OK: 1, DRIFTED: 2}, {OK: 1, DRIFTED: 1, GONE: 1}, {OK: 2, DRIFTED: 1}]
    assert [one.counts for one in found.checks] == counts
    # Only what has changed is written; from January into February: each month is complete by itself.
    lines = [json.loads(line) for line in (tmp_path / JANUARY).read_text().splitlines()]
    assert [one["statuses"] for one in lines] == [dict.fromkeys("abc", OK), {"a": DRIFTED, "c": DRIFTED}]
    (tmp_path / JANUARY).unlink()
    assert checks.read(tmp_path).statuses == {"a": OK, "b": OK, "c": DRIFTED}


def test_a_host_that_left_the_inventory_is_neither_drifted_for_ever_nor_mended(tmp_path):
    add(tmp_path, [OK, DRIFTED], [OK], [OK], others=["a"])
    (drift,) = checks.read(tmp_path).drifts
    assert drift == checks.Drift("b", START, START + DAY, is_removed=True) and drift.lasted is None
    assert [one.counts for one in checks.read(tmp_path).checks][1:] == [{OK: 1}] * 2
    assert said(tmp_path) == "In 3 checks since 2026-01-30 1 host drifted, 1 time in all; 1 left the inventory so."
    assert document.page(joined(tmp_path), START, 0.01).count("left the inventory") == 2
    # It comes back, and is seen as it is then.
    checks.add(tmp_path, {"a": OK, "b": DRIFTED}, (), START + 3 * DAY)
    assert checks.read(tmp_path).drifts[0] == checks.Drift("b", START + 3 * DAY, None)


def test_a_host_that_is_waived_was_not_mended(tmp_path):
    add(tmp_path, [DRIFTED, DRIFTED], [GONE], [WAIVED, OK], [WAIVED, OK], [DRIFTED])
    first = checks.Drift("a", START, START + 2 * DAY, is_waived=True)
    mended = checks.Drift("b", START, START + 2 * DAY)
    assert checks.read(tmp_path).drifts == [checks.Drift("a", START + 4 * DAY, None), first, mended]
    end = "it was seen mended after 2 days in the median, 2 days at most; 1 was waived; 1 is still so."
    assert said(tmp_path).endswith(end)
    drifts = document.document(joined(tmp_path), START)["drifts"]
    assert [(one["seconds"], one["waived"]) for one in drifts] == [(None, False), (None, True), (2 * 86400, False)]
    assert document.page(joined(tmp_path), START, 0.01).count("lasted>waived") == 1


def test_a_host_of_which_nothing_is_known_has_not_been_mended(tmp_path):
    for status in ("unknown", GONE, "bad_policy", "silent", "unknown_to_server"):
        add(tmp_path / status, [DRIFTED], [status], [DRIFTED], [OK])
        assert checks.read(tmp_path / status).drifts == [checks.Drift("a", START, START + 3 * DAY)]


def test_check_mode_leaves_what_is_there_and_where_nothing_can_be_kept_no_host_is_asked(tmp_path):
    add(tmp_path / "new", [OK], dry_run=True)
    add(tmp_path / "old", [OK])
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    checks.add(tmp_path / "old", {"a": DRIFTED}, (), START + DAY, dry_run=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
    directory = tmp_path / "checks"
    checks.see_that_it_can_be_kept(directory, START, dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    checks.see_that_it_can_be_kept(directory, START, dry_run=False)
    assert directory.is_dir() and not list(directory.glob("*.jsonl"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BorderError, match="Not a directory"):
        checks.see_that_it_can_be_kept(tmp_path / "file" / "checks", START, dry_run=False)
    with pytest.raises(BorderError, match="set smt_compliance_history"):
        checks.read(directory)


def test_a_month_is_complete_by_itself_also_of_who_left_and_where_its_first_line_was_torn(tmp_path):
    """The file that is refused is to be removed, by what its message says."""
    september = START.replace(month=9, day=1)
    for months, statuses in ((0, {"a": DRIFTED, "b": OK}), (1, {"b": OK}), (2, {"b": OK})):
        checks.add(tmp_path, statuses, (), september + months * 31 * DAY)
    (tmp_path / "checks-2026-10.jsonl").unlink()
    found = checks.read(tmp_path)
    assert found.statuses == {"b": OK} and [(one.host, one.is_removed) for one in found.drifts] == [("a", True)]
    (tmp_path / "checks-2026-12.jsonl").write_text('{"schema": "threadwise.smt/che')
    checks.add(tmp_path, {"b": OK}, (), september + 95 * DAY)
    for month in ("09", "11"):
        (tmp_path / f"checks-2026-{month}.jsonl").unlink()
    assert checks.read(tmp_path).statuses == {"b": OK}


def test_a_line_that_was_not_written_whole_is_lost_alone_and_a_link_is_not_followed(tmp_path):
    host, path = "h" * 500, tmp_path / JANUARY
    add(tmp_path, {host: OK})
    path.write_text(path.read_text() + '{"schema": "threadwise.smt/che')
    checks.add(tmp_path, {host: DRIFTED}, (), START + DAY)
    # A check that waited for another one is added after it.
    checks.add(tmp_path, {host: OK}, (), START + DAY - datetime.timedelta(seconds=40))
    found = [(one.at, one.counts) for one in checks.read(tmp_path).checks]
    assert found == [(START, {OK: 1}), (START + DAY, {DRIFTED: 1}), (START + DAY, {OK: 1})]
    path.rename(tmp_path / "other")
    before = (tmp_path / "other").read_bytes()
    path.symlink_to(tmp_path / "other")
    with pytest.raises(BorderError, match="link"):
        add(tmp_path, [OK])
    assert (tmp_path / "other").read_bytes() == before


def test_a_file_of_somebody_else_or_out_of_order_is_refused(tmp_path):
    odd = [{"schema_version": 2}, {"at": "yesterday"}, {"at": "2026-13-45T99:00:00Z"}, {"statuses": {"a": "fine"}}]
    for text in ("[]", "not JSON", *(json.dumps({**LINE, **one}) for one in odd)):
        (tmp_path / JANUARY).write_text(text + "\n")
        why = rf"{JANUARY}: line 1 is no check of this collection"
        for use in (lambda: checks.read(tmp_path), lambda: add(tmp_path, [OK], dry_run=True)):
            with pytest.raises(BorderError, match=why):
                use()
    times = [json.dumps({**LINE, "at": f"2026-01-{day}T06:00:00Z"}) for day in (30, 20)]
    (tmp_path / JANUARY).write_text("\n".join(times) + "\n")
    with pytest.raises(BorderError, match=r"its check of 2026-01-20T.* comes after one of 2026-01-30T"):
        checks.read(tmp_path)


@pytest.mark.parametrize("ahead", [START + 900 * DAY, START + 5 * HOUR])
def test_a_check_of_a_clock_that_was_ahead_stops_the_next_one_and_is_named(ahead, tmp_path):
    for at in (START, ahead):
        checks.add(tmp_path, {"a": DRIFTED}, (), at)
    path, now = tmp_path / f"checks-{ahead:%Y-%m}.jsonl", START + HOUR
    for dry_run in (True, False):
        with pytest.raises(BorderError, match="remove the lines of later times") as caught:
            checks.add(tmp_path, {"a": OK}, (), now, dry_run=dry_run)
        assert str(path) in str(caught.value) and f"{ahead:%Y-%m-%dT%H:%M:%SZ}" in str(caught.value)
    # The way out that it names; an empty file that is left of it does not hide what was known.
    path.write_text("".join(line for line in path.open() if f"{ahead:%Y-%m-%dT%H}" not in line))
    for at in (now, now + DAY):
        checks.add(tmp_path, {"a": OK}, (), at)
    assert [(one.since, one.until) for one in checks.read(tmp_path).drifts] == [(START, now)]
    assert json.loads((tmp_path / JANUARY).read_text().splitlines()[-1])["statuses"] == {}


MENDED = "it was seen mended after 36 hours in the median, 2 days at most"
NEVER = "Nothing was ever known of 3 hosts (unreachable, unknown or bad policy)."
MIXED = [[OK, OK, DRIFTED], [DRIFTED, OK, DRIFTED], [DRIFTED, DRIFTED, DRIFTED], [OK, OK, DRIFTED]]
UNKNOWN = [{"a": GONE, "b": "unknown", "c": "bad_policy", "d": OK}, *[{"d": GONE}] * 3]


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (MIXED, f"3 hosts drifted, 3 times in all; {MENDED}; 1 is still so."),
        (UNKNOWN, f"no host has drifted, as far as was seen. {NEVER}"),
        # Of those that left the inventory nobody asks.
        ([{"x": GONE, "d": OK}, *[{"d": OK}] * 3], "no host has drifted."),
    ],
)
def test_what_is_said_of_drifts(days, sentence, tmp_path):
    add(tmp_path, *days)
    assert said(tmp_path) == f"In 4 checks since 2026-01-30 {sentence}"


def test_the_document_matches_its_schema_and_the_page_shows_no_hosts_text_as_html(tmp_path):
    add(tmp_path, {"<b>a": OK, "b": DRIFTED}, {"<b>a": DRIFTED, "b": OK})
    made = document.document(joined(tmp_path), START)
    jsonschema_rs.validator_for(document.SCHEMA).validate(json.loads(json.dumps(made)))
    shown = document.page(joined(tmp_path), START, 0.01)
    assert "<b>a" not in shown and "&lt;b&gt;a" in shown and "still so" in shown and "<svg" in shown
    words = {5: "less than a minute", 90: "2 minutes", 3600: "1 hour", 86400: "24 hours", 3 * 86400: "3 days"}
    assert {number: document.length(datetime.timedelta(seconds=number)) for number in words} == words


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


def test_what_the_baseline_was_does_not_matter_and_an_earlier_release_has_the_time_of_the_host_in_the_middle(tmp_path):
    def turn(report):
        for one in report["hosts"][0]["comparisons"]:
            one["baseline"], one["candidate"], one["verdict"] = one["candidate"], one["baseline"], "gain"
            one["ratio"], one["ci_low"], one["ci_high"] = 1 / one["ratio"], 1 / one["ci_high"], 1 / one["ci_low"]

    def without_times(report):
        for host, year in zip(report["hosts"], ("1970-01", "2026-03", "2099-01"), strict=True):
            del host["collected"]
            host["started"] = f"{year}-01T00:00:00Z"

    for month in (1, 3):
        run(tmp_path / "turned", month)
    edited(tmp_path / "turned", "20260301T000000Z", turn)
    first, second = history(tmp_path / "turned")[0]
    assert second.interval.ratio == pytest.approx(first.interval.ratio, abs=0.01)
    assert first.verdict == second.verdict == "loss"
    run(tmp_path / "old", 3, hosts=(0, 1, 2))
    edited(tmp_path / "old", "20260301T000000Z", without_times)
    of_key, _record, left_out = history(tmp_path / "old")
    assert of_key[0].day == "2026-03-01" and left_out == []


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


TPS = {"tps": {"unit": "1/s", "better": "higher", "aggregate": "sum"}}
P99 = {"p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}


def own(directory, month, rates, metrics, name="mydb", title="my database"):
    """An evaluation of a workload of one's own, with its value for SMT on and off."""

    def model(arm, _spot, workers):
        return [rates[arm == "smt_off"]] * len(workers)

    workload = {"rate": 1, "share": 1, "unit": "x", "title": title, "model": model, "metrics": metrics}
    run(directory, month, workloads={name: workload})


def test_runs_that_measure_something_else_by_the_same_name_are_no_series(tmp_path):
    for month, rates, metrics in ((1, (100, 95), TPS), (2, (10, 8), P99), (3, (10, 8), P99)):
        own(tmp_path, month, rates, metrics)
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
