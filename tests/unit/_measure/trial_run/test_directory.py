# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial's files that others may write: what they put there is a host's failure or ends the trial,
and never leads elsewhere or stops a report.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import types

import pytest
import trial_maker
from ansible_collections.threadwise.smt.plugins.action import smt_trial_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import directory, looking

DEEP = '{"reason":' * 50_000 + "1" + "}" * 50_000
AT = "2026-11-23T12:00:00Z"


@pytest.fixture(name="followed", scope="module")
def a_followed_trial(tmp_path_factory):
    """A trial to its end, in which nothing was decided."""
    files, trial, *_rest = trial_maker.followed(tmp_path_factory.mktemp("trials") / "october", effect=0.0)
    assert files.ended() is None
    return files, trial


@pytest.fixture(name="made")
def its_copy(followed, tmp_path):
    """The same trial in a directory of this test."""
    files, trial = followed
    return directory.TrialDirectory(pathlib.Path(shutil.copytree(files.path, tmp_path / "trials" / "october"))), trial


def report(files):
    """Build the report. Returns what the task returns, and the page."""
    action = smt_trial_report.ActionModule.__new__(smt_trial_report.ActionModule)
    action._task = types.SimpleNamespace(check_mode=False)
    result = action.act({"trial_dir": str(files.path)}, {})
    return result, (files.path / "index.html").read_text(encoding="utf-8")


def changed(number, **fields):
    """Change fields of a line of a file."""

    def damage(path):
        found = path.read_text().splitlines()
        found[number] = json.dumps({**json.loads(found[number]), **fields})
        path.write_text("\n".join(found) + "\n")

    return damage


def replaced(content):
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def added(content):
    return lambda path: path.write_bytes(path.read_bytes() + content.encode())


def instead(make):
    return lambda path: (path.unlink(), make(path))


DAMAGES = {
    "an empty line": added("\n"),
    "binary": replaced(os.urandom(5000) + b"\n"),
    "zeroes after a power cut": added("\0" * 4096 + "\n"),
    "not UTF-8": replaced(b'{"period": "\xff"}\n'),
    "lone surrogates": added('{"\\ud800": 1}\n'),
    "nested deeply": added(DEEP + "\n"),
    "a line in a line": added('{"period": 30, "arm": "smt{"period": 31}\n'),
    "a number that is none": added('{"period": NaN}\n'),
    "a huge integer": added('{"period": ' + "9" * 5000 + "}\n"),
    "a huge text": changed(3, reason="x" * 30_000),
    "a huge number": changed(3, metrics={"p99": {"value": 1e200, "points": 1, "expected": 1, "reason": None}}),
    "a point far from its period": changed(3, series={"p99": [[1e99, 1.0]]}),
    "a point without a time": changed(3, series={"p99": [[None, 1.0]]}),
    "larger than any": lambda path: os.truncate(path, 2**40),
    "periods twice": lambda path: path.write_text(path.read_text() * 2),
    "periods backwards": lambda path: path.write_text("".join(reversed(path.read_text().splitlines(keepends=True)))),
    "a period that the design does not have": changed(8, period=24),
    "a period far away": changed(8, period=999_999_999),
    "an arm that the design does not have": changed(3, arm="threads_per_core_1"),
    "a day that there is not": changed(3, started="2026-13-45T99:99:99Z"),
    "a year that there is not": changed(3, ended="0000-01-01T00:00:00Z"),
    "a link": lambda path: path.rename(path.with_name("x")) and path.symlink_to("x"),
    "a link to nothing": instead(lambda path: path.symlink_to("nothing")),
    "a link to itself": instead(lambda path: path.symlink_to(path)),
    "a pipe": instead(os.mkfifo),
    "a directory": instead(os.mkdir),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_host_whose_file_is_damaged_is_left_out_and_named_and_the_others_count(made, damage):
    files, trial = made
    damage(files.host_file("web2"))
    seen = looking.known(files, trial)
    assert list(seen.unreadable) == ["web2"] and len(seen.unreadable["web2"]) < 500
    assert seen.unreadable["web2"].startswith("hosts/web2.periods.jsonl: ")
    assert [host for host, of_host in seen.periods.items() if of_host] == ["web1", "web3", "web4"]


def test_the_report_names_a_host_whose_file_is_damaged_and_counts_the_others(made):
    files, _trial = made
    assert "warnings" not in report(files)[0]
    DAMAGES["a day that there is not"](files.host_file("web2"))
    result, page = report(files)
    (warning,) = result["warnings"]
    assert warning.startswith("web2 counts for nothing: hosts/web2.periods.jsonl: period 4: ")
    assert "p99 changes by " in result["answer"][0] and "Not over yet" not in page
    assert "web2: its files cannot be read, so it counts for nothing" in " ".join(page.split())
    results = json.loads((files.path / "results.json").read_text())
    assert warning in results["others"] and results["comparisons"]


END = {"host": "web2", "ended": AT, "reason": None, "restored": True, "before": "0-3", "after": "0-3"}


@pytest.mark.parametrize("damaged", [{"host": "web1"}, {"restored": "yes"}])
def test_an_end_that_is_damaged_is_its_hosts_failure(made, damaged):
    files, trial = made
    files.ended_file("web2").write_text(json.dumps({**END, **damaged}) + "\n")
    assert list(looking.known(files, trial).unreadable) == ["web2"]


def test_a_report_replaces_links_and_pipes_and_does_not_write_through_them(made, tmp_path):
    files, _trial = made
    (tmp_path / "precious").write_text("precious")
    os.mkfifo(files.path / "index.html")
    (files.path / "results.json").symlink_to(tmp_path / "precious")
    report(files)
    assert (tmp_path / "precious").read_text() == "precious"
    assert all(stat.S_ISREG((files.path / name).lstat().st_mode) for name in ("index.html", "results.json"))


@pytest.mark.parametrize("content", ["{}", DEEP], ids=["no document", "deep"])
def test_looks_that_cannot_be_read_end_the_trial_and_are_named(made, content):
    files, trial = made
    (files.path / "looks.jsonl").write_text(content + "\n")
    looking.HostFiles(files, trial, "web1", lambda _line: None).ended({**END, "host": "web1"})
    assert files.ended().startswith("its looks cannot be read: looks.jsonl: ")
    with pytest.raises(Exception, match=r"^looks\.jsonl: "):
        report(files)


STOPS = {
    "deep": replaced(DEEP),
    "empty": replaced(""),
    "no object": replaced("[]"),
    "no text": replaced('{"reason": 1}'),
    "more": replaced('{"reason": "x", "more": 1}'),
    "huge": replaced(json.dumps({"reason": "x" * 100_000})),
    "binary": replaced(b"\xff\0"),
    "without end": lambda path: (path.touch(), os.truncate(path, 2**40)),
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a pipe": os.mkfifo,
    "a directory": os.mkdir,
}


@pytest.mark.parametrize("make", STOPS.values(), ids=STOPS)
def test_whatever_has_the_name_of_the_end_ends_the_trial_and_says_so(made, make):
    files, _trial = made
    make(files.path / "ended.json")
    reason = files.ended()
    assert reason.startswith("somebody else ended the trial by ended.json, ") and len(reason) < 500
    files.end("a guardrail")
    assert files.ended() == reason


def edited(**fields):
    return lambda document: {**document, **fields}


def parallel(**fields):
    return edited(design="parallel", **fields)


EDITS = {
    "no document": lambda _document: {},
    "no host": edited(hosts={}, groups=[], waves=[]),
    "a parallel trial of the same arms": lambda document: parallel(
        hosts=dict.fromkeys(document["hosts"], document["hosts"]["web1"])
    )(document),
    "a parallel trial of lone hosts": lambda document: parallel(
        groups=[[host] for host in document["hosts"]], waves=[[0, 1, 2, 3]]
    )(document),
    "an arm twice": lambda document: {**document, "arms": [document["arms"][0]] * 2},
    "a metric twice": lambda document: {**document, "metrics": [*document["metrics"], document["metrics"][1]]},
    "a divisor that is not there": lambda document: {
        **document,
        "metrics": [{**document["metrics"][0], "per": "none"}],
    },
    "a traffic that is not there": edited(traffic="none"),
}


@pytest.mark.parametrize("content", [*EDITS, DEEP, "x", b"\xff"], ids=[*EDITS, "deep", "no JSON", "not UTF-8"])
def test_a_design_that_no_lot_draws_or_that_cannot_be_read_is_refused(made, content):
    files, trial = made
    replaced(json.dumps(EDITS[content](trial.document())) if content in EDITS else content)(files.path / "trial.json")
    with pytest.raises(text.BorderError, match=r"^trial\.json: "):
        files.trial()


def test_nobody_is_switched_by_a_design_that_was_changed(made):
    files, trial = made
    digest = trial_maker.digest(files)
    assert files.trial(digest) == trial
    path = files.path / "trial.json"
    path.write_text(path.read_text().replace("smt_off", "threads_per_core_1"))
    assert files.trial().arms == ("smt_on", "threads_per_core_1")
    with pytest.raises(text.BorderError, match=r"trial\.json: somebody has changed it since the schedule was drawn"):
        files.trial(digest)


@pytest.mark.parametrize("name", ["trial.json", "hosts", "looks.jsonl", "ended.json"])
def test_a_trial_does_not_begin_with_what_another_left(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "nothing")
    files = directory.TrialDirectory(tmp_path / "run")
    for begin in (files.see_that_none_exists, lambda: files.create("{}")):
        with pytest.raises(directory.TrialFileError, match="a run never overwrites another"):
            begin()


@pytest.mark.parametrize("place", ["run", "run/.lock"])
def test_a_trial_does_not_begin_through_a_link(tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("precious")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / ("elsewhere" if place == "run" else "elsewhere/precious"))
    with pytest.raises(directory.TrialFileError, match="it is a link"):
        directory.TrialDirectory(tmp_path / "run").create("{}")
    assert [path.read_text() for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]
