# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drifted when, from checks that were added one by one, as smt_compliance adds them."""

from __future__ import annotations

import datetime
import json
import typing

import jsonschema_rs
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.of_files import histories
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import checks, document

START = datetime.datetime(2026, 1, 30, 6, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
LINE = {
    "schema": "threadwise.smt/checks",
    "schema_version": 1,
    "at": "2026-01-30T06:00:00Z",
    "hosts": 1,
    "whole": True,
    "statuses": {},
}


OTHERS = ("a", "b", "c")


def add(directory, *days, others=OTHERS):
    """Add a check a day: each is host -> status."""
    for number, statuses in enumerate(days):
        checks.add(directory, statuses, others, START + number * DAY)


def test_a_drift_lasts_from_the_check_that_saw_it_to_the_one_that_saw_it_mended(tmp_path):
    add(
        tmp_path,
        {"a": "compliant", "b": "compliant", "c": "compliant"},
        {"a": "drifted", "b": "compliant", "c": "drifted"},
        {"a": "unreachable", "b": "compliant", "c": "drifted"},
        {"a": "compliant", "b": "compliant", "c": "drifted"},
    )
    found = checks.read(tmp_path)
    assert found.drifts == [
        checks.Drift("c", START + DAY, None),
        checks.Drift("a", START + DAY, START + 3 * DAY),
    ]
    assert [one.counts for one in found.checks] == [
        {"compliant": 3},
        {"compliant": 1, "drifted": 2},
        {"compliant": 1, "drifted": 1, "unreachable": 1},
        {"compliant": 2, "drifted": 1},
    ]
    # From January into February: each month is complete by itself.
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["checks-2026-01.jsonl", "checks-2026-02.jsonl"]
    (tmp_path / "checks-2026-01.jsonl").unlink()
    assert checks.read(tmp_path).statuses == {"a": "compliant", "b": "compliant", "c": "drifted"}


def test_a_check_of_some_hosts_says_nothing_of_the_others(tmp_path):
    add(tmp_path, {"a": "drifted", "b": "compliant"}, {"b": "drifted"}, {"b": "waived"})
    found = checks.read(tmp_path)
    assert found.statuses == {"a": "drifted", "b": "waived"}
    assert [(one.host, one.until) for one in found.drifts] == [("a", None), ("b", START + 2 * DAY)]


def test_a_host_that_left_the_inventory_is_neither_drifted_for_ever_nor_mended(tmp_path):
    add(tmp_path, {"a": "compliant", "b": "drifted"}, {"a": "compliant"}, {"a": "compliant"}, others=["a"])
    (drift,) = checks.read(tmp_path).drifts
    assert drift == checks.Drift("b", START, START + DAY, is_removed=True) and drift.lasted is None
    assert [one.counts for one in checks.read(tmp_path).checks][1:] == [{"compliant": 1}] * 2
    said = document.sentences(joined(tmp_path))
    assert said == ["In 3 checks since 2026-01-30 1 host drifted, 1 time in all; 1 left the inventory so."]
    assert document.page(joined(tmp_path), START, 0.01).count("left the inventory") == 2
    # It comes back, and is seen as it is then.
    checks.add(tmp_path, {"a": "compliant", "b": "drifted"}, (), START + 3 * DAY)
    assert checks.read(tmp_path).drifts[0] == checks.Drift("b", START + 3 * DAY, None)


def test_a_host_that_is_waived_was_not_mended(tmp_path):
    waived = {"a": "waived", "b": "compliant"}
    add(tmp_path, {"a": "drifted", "b": "drifted"}, {"a": "unreachable"}, waived, waived, {"a": "drifted"})
    again, *ended = checks.read(tmp_path).drifts
    assert again == checks.Drift("a", START + 4 * DAY, None)
    first = checks.Drift("a", START, START + 2 * DAY, is_waived=True)
    assert ended == [first, checks.Drift("b", START, START + 2 * DAY)] and first.lasted is None
    (said,) = document.sentences(joined(tmp_path))
    assert said.endswith("it was seen mended after 2 days in the median, 2 days at most; 1 was waived; 1 is still so.")
    drifts = document.document(joined(tmp_path), START)["drifts"]
    assert [(one["seconds"], one["waived"]) for one in drifts] == [(None, False), (None, True), (2 * 86400, False)]
    assert document.page(joined(tmp_path), START, 0.01).count("lasted>waived") == 1


def test_check_mode_sees_what_is_there_and_leaves_it(tmp_path):
    checks.add(tmp_path / "new", {"a": "compliant"}, (), START, dry_run=True)
    add(tmp_path / "old", {"a": "compliant"})
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    checks.add(tmp_path / "old", {"a": "drifted"}, (), START + DAY, dry_run=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_directory_in_which_nothing_can_be_kept_is_refused_before_hosts_are_asked(tmp_path):
    directory = tmp_path / "checks"
    checks.see_that_it_can_be_kept(directory, START, dry_run=True)
    assert not directory.exists()
    checks.see_that_it_can_be_kept(directory, START, dry_run=False)
    assert directory.is_dir() and not list(directory.glob("*.jsonl"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BorderError, match="Not a directory"):
        checks.see_that_it_can_be_kept(tmp_path / "file" / "checks", START, dry_run=False)


def test_the_statuses_of_a_history_are_those_of_a_check():
    assert set(typing.get_args(histories.Status)) == set(compliance.STATUSES)


@pytest.mark.parametrize("status", ["unknown", "unreachable", "bad_policy", "silent", "unknown_to_server"])
def test_a_host_of_which_nothing_is_known_has_not_been_mended(status, tmp_path):
    add(tmp_path, {"a": "drifted"}, {"a": status}, {"a": "drifted"}, {"a": "compliant"})
    assert checks.read(tmp_path).drifts == [checks.Drift("a", START, START + 3 * DAY)]


def test_only_what_has_changed_is_written(tmp_path):
    hosts = {f"host{number}": "compliant" for number in range(1000)}
    for hour in range(2):
        checks.add(tmp_path, hosts, (), START + datetime.timedelta(hours=hour))
    first, second = (json.loads(line) for line in (tmp_path / "checks-2026-01.jsonl").read_text().splitlines())
    assert first["statuses"] == hosts and second["statuses"] == {}


def test_a_month_is_complete_by_itself_also_of_who_left_and_where_its_first_line_was_torn(tmp_path):
    """The file that is refused is to be removed, by what its message says."""
    september = START.replace(month=9, day=1)
    for months, hosts in ((0, ["a", "b"]), (1, ["b"]), (2, ["b"])):
        statuses = {"a": "drifted", "b": "compliant"}
        at = september + datetime.timedelta(days=31 * months)
        checks.add(tmp_path, {host: statuses[host] for host in hosts}, (), at)
    (tmp_path / "checks-2026-10.jsonl").unlink()
    found = checks.read(tmp_path)
    assert found.statuses == {"b": "compliant"} and [(one.host, one.is_removed) for one in found.drifts] == [
        ("a", True)
    ]
    (tmp_path / "checks-2026-12.jsonl").write_text('{"schema": "threadwise.smt/che')
    checks.add(tmp_path, {"b": "compliant"}, (), september + datetime.timedelta(days=95))
    for path in ("checks-2026-09.jsonl", "checks-2026-11.jsonl"):
        (tmp_path / path).unlink()
    assert checks.read(tmp_path).statuses == {"b": "compliant"}


def test_a_host_with_a_very_long_name_can_be_read_again(tmp_path):
    for day in range(2):
        checks.add(tmp_path, {"h" * 500: "compliant"}, (), START + day * DAY)
    assert list(checks.read(tmp_path).statuses) == ["h" * 500]


def test_a_line_that_was_not_written_whole_is_lost_alone(tmp_path):
    add(tmp_path, {"a": "compliant"})
    path = tmp_path / "checks-2026-01.jsonl"
    path.write_text(path.read_text() + '{"schema": "threadwise.smt/che')
    checks.add(tmp_path, {"a": "drifted"}, (), START + DAY)
    assert [one.counts for one in checks.read(tmp_path).checks] == [{"compliant": 1}, {"drifted": 1}]


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        "not JSON",
        json.dumps({**LINE, "schema_version": 2}),
        json.dumps({**LINE, "at": "yesterday"}),
        json.dumps({**LINE, "at": "2026-13-45T99:00:00Z"}),
        json.dumps({**LINE, "statuses": {"a": "fine"}}),
    ],
)
def test_a_file_of_somebody_else_is_refused_with_its_line(line, tmp_path):
    (tmp_path / "checks-2026-01.jsonl").write_text(line + "\n")
    for call in (
        lambda: checks.read(tmp_path),
        lambda: checks.add(tmp_path, {"a": "compliant"}, (), START, dry_run=True),
    ):
        with pytest.raises(BorderError, match="line 1 is no check of this collection"):
            call()


@pytest.mark.parametrize("ahead", [START + 900 * DAY, START + datetime.timedelta(hours=5)])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_check_of_a_clock_that_was_ahead_stops_the_next_one_and_is_named(ahead, dry_run, tmp_path):
    checks.add(tmp_path, {"a": "drifted"}, (), START)
    checks.add(tmp_path, {"a": "drifted"}, (), ahead)
    path = tmp_path / f"checks-{ahead:%Y-%m}.jsonl"
    now = START + datetime.timedelta(hours=1)
    with pytest.raises(BorderError) as caught:
        checks.add(tmp_path, {"a": "compliant"}, (), now, dry_run=dry_run)
    said = str(caught.value)
    assert str(path) in said and f"{ahead:%Y-%m-%dT%H:%M:%SZ}" in said and "remove the lines of later times" in said
    # The way out that it names.
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if f"{ahead:%Y-%m-%dT%H}" not in line))
    checks.add(tmp_path, {"a": "compliant"}, (), now)
    checks.add(tmp_path, {"a": "compliant"}, (), now + DAY)
    (drift,) = checks.read(tmp_path).drifts
    assert (drift.since, drift.until) == (START, now)
    # An empty file that is left of it does not hide what was known.
    assert json.loads((tmp_path / "checks-2026-01.jsonl").read_text().splitlines()[-1])["statuses"] == {}


def test_a_check_that_waited_for_another_one_is_added_after_it(tmp_path):
    checks.add(tmp_path, {"a": "drifted"}, (), START)
    checks.add(tmp_path, {"a": "compliant"}, (), START - datetime.timedelta(seconds=40))
    assert [one.at for one in checks.read(tmp_path).checks] == [START, START]


def test_a_history_whose_checks_are_not_in_order_is_refused_with_its_file(tmp_path):
    lines = [json.dumps({**LINE, "at": f"2026-01-{day}T06:00:00Z"}) for day in (30, 20)]
    (tmp_path / "checks-2026-01.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(BorderError, match=r"01\.jsonl: its check of 2026-01-20T.* after one of 2026-01-30T"):
        checks.read(tmp_path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / "checks-2026-01.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(BorderError, match="link"):
        checks.add(tmp_path, {"a": "compliant"}, (), START)
    assert (tmp_path / "other").read_text() == "mine\n"


def test_without_checks_it_says_how_to_get_some(tmp_path):
    with pytest.raises(BorderError, match="set smt_compliance_history"):
        checks.read(tmp_path)


def joined(directory):
    return document.joined(checks.read(directory), {}, [], 0.01)


def test_what_is_said_of_drifts(tmp_path):
    add(
        tmp_path,
        {"a": "compliant", "b": "compliant", "c": "drifted"},
        {"a": "drifted", "b": "compliant", "c": "drifted"},
        {"a": "drifted", "b": "drifted", "c": "drifted"},
        {"a": "compliant", "b": "compliant", "c": "drifted"},
    )
    assert document.sentences(joined(tmp_path)) == [
        (
            "In 4 checks since 2026-01-30 3 hosts drifted, 3 times in all; it was seen mended after 36 hours in the"
            " median, 2 days at most; 1 is still so."
        )
    ]


def test_a_fleet_that_never_drifted(tmp_path):
    add(tmp_path, {"a": "compliant"}, {"a": "compliant"})
    assert document.sentences(joined(tmp_path)) == ["In 2 checks since 2026-01-30 no host has drifted."]


def test_hosts_that_were_never_seen_are_counted(tmp_path):
    add(tmp_path, {"a": "unreachable", "b": "unknown", "c": "bad_policy", "d": "compliant"}, {"d": "unreachable"})
    said = "In 2 checks since 2026-01-30 no host has drifted, as far as was seen. Nothing was ever known of 3 hosts"
    assert document.sentences(joined(tmp_path)) == [f"{said} (unreachable, unknown or bad policy)."]
    checks.add(tmp_path, {"d": "drifted", "c": "compliant"}, OTHERS, START + 2 * DAY)
    (sentence,) = document.sentences(joined(tmp_path))
    assert "1 host drifted" in sentence and "Nothing was ever known of 2 hosts" in sentence
    # Of those that left the inventory nobody asks.
    checks.add(tmp_path, {"d": "drifted"}, ["c"], START + 3 * DAY)
    assert "ever known" not in document.sentences(joined(tmp_path))[0]


def test_the_document_matches_its_schema_and_the_page_shows_no_hosts_text_as_html(tmp_path):
    add(tmp_path, {"<b>a": "compliant", "b": "drifted"}, {"<b>a": "drifted", "b": "compliant"})
    made = document.document(joined(tmp_path), START)
    jsonschema_rs.validator_for(document.SCHEMA).validate(json.loads(json.dumps(made)))
    shown = document.page(joined(tmp_path), START, 0.01)
    assert "<b>a" not in shown and "&lt;b&gt;a" in shown and "still so" in shown and "<svg" in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "less than a minute"), (90, "2 minutes"), (3600, "1 hour"), (86400, "24 hours"), (3 * 86400, "3 days")],
)
def test_a_duration_is_said_in_one_unit(seconds, said):
    assert document.length(datetime.timedelta(seconds=seconds)) == said
