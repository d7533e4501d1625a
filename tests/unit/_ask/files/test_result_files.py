# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Result files: what is sound is read, whatever else comes is refused by name, and nothing is overwritten or half
written.
"""

from __future__ import annotations

import json
import os
import re

import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import report_names, result_files
from hypothesis import given, settings, strategies

ONE = result_maker.result(blocks=1)


def write(directory, content, name="web01.json"):
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def changed(**fields):
    return json.dumps({**ONE, **fields})


def test_what_was_saved_is_read_back_whole_and_the_same_again_writes_nothing(tmp_path):
    document = result_maker.result()
    path, written, result = result_files.save(tmp_path / "run", document)
    assert written and result_files.load(path) == result == result_maker.accepted(document)
    assert json.loads(path.read_text()) == document
    assert list(result.plan.placements["smt_on"]) == list(result_maker.ORDER)
    assert result_files.save(tmp_path / "run", document)[1] is False


NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000]
NO_JSON, NO_RESULT = "not a complete JSON document", "not a result of this collection"
VERSION = "this collection reads version 2"
REFUSED = [
    *((changed()[:length], NO_JSON) for length in (0, 1, 100, 2000)),
    *(
        (changed().replace('"wall_seconds": 0.8', f'"wall_seconds": {n}', 1), "out of range|only finite")
        for n in NUMBERS
    ),
    *((changed(schema_version=one), VERSION) for one in (1, 3, "2", True, [], "x" * 100_000)),
    *((one, NO_RESULT) for one in ("[]", "null", "{}", '{"schema": "other"}')),
    (changed()[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}", ""),
    (changed().encode("utf-8").replace(b"web01", b"web\xff1"), "not UTF-8 at byte"),
    (changed(host=None), "host"),
    (changed(outcome="splendid"), "outcome"),
    (changed(samples={}), "samples"),
    (changed(samples=[{"workload": "gzip"}]), r"samples\.0"),
    (changed(facts={"sibling_groups": "0-1"}), "facts"),
    (changed(plan={"placements": {"smt_on": {"single": {"workers": [["0"]]}}}}), "plan"),
    (changed(arms=[{}]), r"arms\.0"),
    (changed(restored={"ok": "yes"}), r"restored\.ok"),
    (changed(message="y" * 30_000), "message"),
    (changed(facts={**ONE["facts"], "more": 1}), "facts"),
    (changed(facts={**ONE["facts"], "vulnerabilities": {"mds": "bad"}}), "facts"),
]


@pytest.mark.parametrize(("content", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_result_is_refused_by_name_with_the_reason(tmp_path, content, reason):
    with pytest.raises(result_files.ResultError) as caught:
        result_files.load(write(tmp_path, content))
    said = str(caught.value)
    assert said.startswith("web01.json: ") and len(said) < 1000 and re.search(reason, said), said


HIDDEN = ["\\b", "\\f", "\\r", "\\u0007", "\\ud800", "\\u202e", "\u202e", "\x7f", "\u009b", "\u200b", "\u3164"]


@pytest.mark.parametrize("written", [*HIDDEN, "\U000e0041", "\\u0000b\\u001b[31m\\ud800c"], ids=ascii)
def test_what_hides_is_seen_however_it_was_written(tmp_path, written):
    loaded = result_files.load(write(tmp_path, changed(message="MARK").replace("MARK", f"a{written}b")))
    assert loaded.message == f"a{host_text.visible(json.loads(f'{chr(34)}{written}{chr(34)}', strict=False))}b"
    json.dumps(parts.plain(loaded), ensure_ascii=False).encode("utf-8")
    kept = changed(message="MARK").replace("MARK", "\\\\b \\u00b5s")
    assert result_files.load(write(tmp_path, kept)).message == "\\b \u00b5s"


@pytest.mark.parametrize("other", [{"run": "two"}, {"started": "2026-01-01T00:00:01Z"}])
def test_a_run_does_not_overwrite_another(tmp_path, other):
    path, _written, _result = result_files.save(tmp_path, {**ONE, "run": "r"})
    with pytest.raises(result_files.ResultError, match=r"holds run r .*which is not overwritten"):
        result_files.save(tmp_path, {**ONE, "run": "r", **other})
    assert result_files.load(path).run == "r" and result_files.load(path).started == ONE["started"]


HOSTILE = ["../../etc/passwd", "..", ".", "/abs", "-rf", "a\\b", "index", "results", "x" * 255, "ü" * 255, "a\nb"]


@pytest.mark.parametrize("host", HOSTILE)
def test_hostile_names_stay_in_the_directory(tmp_path, host):
    path, _written, _result = result_files.save(tmp_path / "run", {**ONE, "host": host})
    assert path.resolve().parent == (tmp_path / "run").resolve()
    assert path.name[0] not in ".-" and len(os.fsencode(path.name)) <= 200
    write(tmp_path / "run", "{}", "results.json")
    assert result_files.result_paths(tmp_path / "run") == [path] and result_files.load(path).host == text.showable(host)


@settings(max_examples=night.number(25, 100))
@given(strategies.lists(strategies.text(max_size=260), min_size=2, max_size=2, unique=True))
def test_two_hosts_never_share_a_file(hosts):
    one, other = (result_files.file_stem(host) for host in hosts)
    assert one != other
    for stem in (one, other):
        assert not {"/", "\0"} & set(stem) and stem[0] not in ".-"
        assert not {f"{stem}.json", f"{stem}.html"} & report_names.NAMES


def test_a_text_is_written_whole_or_not_at_all_and_readable_as_the_umask_says(tmp_path, monkeypatch):
    path, old = tmp_path / "index.html", os.umask(0o027)
    assert result_files.write_text(path, "old") is True
    os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640 and result_files.write_text(path, "old") is False
    assert result_files.write_text(path, "new", dry_run=True) is True and path.read_text() == "old"

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(result_files.ResultError, match="No space left on device"):
        result_files.write_text(path, "new")
    assert path.read_text() == "old" and [one.name for one in tmp_path.iterdir()] == ["index.html"]


def test_a_result_is_not_written_through_a_link(tmp_path):
    """A run's directory and what is in it are the collection's own; the directory of runs may be a link of the user."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "results").symlink_to("runs")
    (tmp_path / "runs" / "one").symlink_to(tmp_path / "elsewhere")
    path, _written, _result = result_files.save(tmp_path / "results" / "two", ONE)
    assert (tmp_path / "runs" / "two" / path.name).is_file()
    path.rename(tmp_path / "elsewhere" / path.name)
    path.symlink_to(tmp_path / "elsewhere" / path.name)
    for run in ("one", "two"):
        with pytest.raises(result_files.ResultError, match="it is a link"):
            result_files.save(tmp_path / "results" / run, ONE)
    # A user may gather results by links.
    assert result_files.load(path).host == ONE["host"]
