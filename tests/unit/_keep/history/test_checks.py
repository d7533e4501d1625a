# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drifted when, from checks that were added one by one, as smt_compliance adds them."""

from __future__ import annotations

import datetime
import json
import typing

import jsonschema_rs
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import histories
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document

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


@pytest.mark.parametrize("status", ["unknown", GONE, "bad_policy", "silent", "unknown_to_server"])
def test_a_host_of_which_nothing_is_known_has_not_been_mended(status, tmp_path):
    add(tmp_path, [DRIFTED], [status], [DRIFTED], [OK])
    assert checks.read(tmp_path).drifts == [checks.Drift("a", START, START + 3 * DAY)]
    assert set(typing.get_args(histories.Status)) == set(compliance.STATUSES)


def test_check_mode_sees_what_is_there_and_leaves_it(tmp_path):
    add(tmp_path / "new", [OK], dry_run=True)
    add(tmp_path / "old", [OK])
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    checks.add(tmp_path / "old", {"a": DRIFTED}, (), START + DAY, dry_run=True)
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


def test_a_line_that_was_not_written_whole_is_lost_alone(tmp_path):
    host = "h" * 500
    add(tmp_path, {host: OK})
    path = tmp_path / JANUARY
    path.write_text(path.read_text() + '{"schema": "threadwise.smt/che')
    checks.add(tmp_path, {host: DRIFTED}, (), START + DAY)
    assert [one.counts for one in checks.read(tmp_path).checks] == [{OK: 1}, {DRIFTED: 1}]


NO_TIMES = [{"schema_version": 2}, {"at": "yesterday"}, {"at": "2026-13-45T99:00:00Z"}, {"statuses": {"a": "fine"}}]
TIMES = [json.dumps({**LINE, "at": f"2026-01-{day}T06:00:00Z"}) for day in (30, 20)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((one, "line 1 is no check of this collection") for one in ("[]", "not JSON")),
        *((json.dumps({**LINE, **one}), "line 1 is no check of this collection") for one in NO_TIMES),
        ("\n".join(TIMES), r"its check of 2026-01-20T.* comes after one of 2026-01-30T"),
    ],
)
def test_a_file_of_somebody_else_or_out_of_order_is_refused(text, why, tmp_path):
    (tmp_path / JANUARY).write_text(text + "\n")
    with pytest.raises(BorderError, match=rf"{JANUARY}: {why}"):
        checks.read(tmp_path)
    if why.startswith("line"):
        with pytest.raises(BorderError, match=why):
            add(tmp_path, [OK], dry_run=True)


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


def test_a_check_that_waited_for_another_one_is_added_after_it(tmp_path):
    checks.add(tmp_path, {"a": DRIFTED}, (), START)
    checks.add(tmp_path, {"a": OK}, (), START - datetime.timedelta(seconds=40))
    assert [one.at for one in checks.read(tmp_path).checks] == [START, START]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / JANUARY).symlink_to(tmp_path / "other")
    with pytest.raises(BorderError, match="link"):
        add(tmp_path, [OK])
    assert (tmp_path / "other").read_text() == "mine\n"


BEGUN = "In 4 checks since 2026-01-30 "
MENDED = "it was seen mended after 36 hours in the median, 2 days at most"
NEVER = (
    "no host has drifted, as far as was seen. Nothing was ever known of 3 hosts (unreachable, unknown or bad policy)."
)


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (
            [[OK, OK, DRIFTED], [DRIFTED, OK, DRIFTED], [DRIFTED, DRIFTED, DRIFTED], [OK, OK, DRIFTED]],
            f"3 hosts drifted, 3 times in all; {MENDED}; 1 is still so.",
        ),
        ([[OK]] * 4, "no host has drifted."),
        ([{"a": GONE, "b": "unknown", "c": "bad_policy", "d": OK}, *[{"d": GONE}] * 3], NEVER),
        # Of those that left the inventory nobody asks.
        ([{"x": GONE, "d": OK}, *[{"d": OK}] * 3], "no host has drifted."),
    ],
)
def test_what_is_said_of_drifts(days, sentence, tmp_path):
    add(tmp_path, *days)
    assert said(tmp_path) == BEGUN + sentence


def test_the_document_matches_its_schema_and_the_page_shows_no_hosts_text_as_html(tmp_path):
    add(tmp_path, {"<b>a": OK, "b": DRIFTED}, {"<b>a": DRIFTED, "b": OK})
    made = document.document(joined(tmp_path), START)
    jsonschema_rs.validator_for(document.SCHEMA).validate(json.loads(json.dumps(made)))
    shown = document.page(joined(tmp_path), START, 0.01)
    assert "<b>a" not in shown and "&lt;b&gt;a" in shown and "still so" in shown and "<svg" in shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "less than a minute"), (90, "2 minutes"), (3600, "1 hour"), (86400, "24 hours"), (3 * 86400, "3 days")],
)
def test_a_duration_is_said_in_one_unit(seconds, words):
    assert document.length(datetime.timedelta(seconds=seconds)) == words
