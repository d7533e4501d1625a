# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that several processes or users write: what other tools made of them in public reports, and what is right here.

Each test has its source's name.
"""

from __future__ import annotations

import math
import re

import pytest
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import looking


@pytest.fixture(name="begun")
def a_trial(tmp_path):
    return trial_maker.begun(tmp_path / "october")


def period(trial, number):
    return trial_maker.record(number, trial.design.schedule["web1"][number])


def part(files, trial):
    return looking.HostFiles(files, trial, "web1", lambda _line: None)


@pytest.mark.parametrize("source", ["tox_dev_filelock_461", "google_fscrypt_448"])
def test_a_file_that_is_a_link_is_neither_cut_off_nor_extended(begun, tmp_path, source):
    files, trial = begun
    (tmp_path / "precious").write_text("precious\n")
    link = files.path / ".lock" if source == "tox_dev_filelock_461" else files.host_file("web1")
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(text.BorderError, match=rf"{re.escape(link.name)}: cannot be written: it is a link"):
        part(files, trial).period(period(trial, 0))
    assert (tmp_path / "precious").read_text() == "precious\n"


def test_oh_my_pi_8596_a_record_after_one_that_was_cut_off_is_not_lost_with_it(begun):
    files, trial = begun
    host = part(files, trial)
    host.period(period(trial, 0))
    with files.host_file("web1").open("ab") as stream:
        stream.write(records.period(trial, "web1", period(trial, 1)).encode()[:200])
    host.period(period(trial, 1))
    seen = looking.known(files, trial)
    assert not seen.unreadable and [one.number for one in seen.periods["web1"]] == [0, 1]


def test_openworker_56_one_damaged_line_does_not_keep_the_rest_from_being_read(begun):
    files, trial = begun
    part(files, trial).period(period(trial, 0))
    files.host_file("web2").write_text('{"period": 0, "ar\n')
    seen = looking.known(files, trial)
    assert list(seen.unreadable) == ["web2"] and len(seen.periods["web1"]) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_memote_636_a_value_that_is_no_number_does_not_break_the_report(begun, value):
    files, trial = begun
    record = period(trial, 0)
    record["metrics"]["p99"]["value"] = value
    with pytest.raises(records.RecordError):
        part(files, trial).period(record)
    (one,) = looking.known(files, trial).periods["web1"]
    assert not one.complete and "cannot be written down" in str(one.reason)


@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"":[', "]}"), ('{"reason":', "}")])
def test_orjson_458_nesting_is_an_error_of_the_file_and_of_nothing_else(begun, depth, opens, closes):
    files, _trial = begun
    content = opens * depth + "1" + closes * depth
    (files.path / "ended.json").write_text(content)
    assert files.ended().startswith("somebody else ended the trial by ended.json, which cannot be read: ")
    with pytest.raises(text.BorderError, match=r"^line 1: "):
        records.lines(content.encode() + b"\n", trials.PERIOD)


def test_ansible_13987_a_directory_in_place_of_a_file_is_one_hosts_failure(begun):
    files, trial = begun
    files.host_file("web1").mkdir()
    assert looking.known(files, trial).unreadable == {
        "web1": "hosts/web1.periods.jsonl: cannot be read: it is not a regular file"
    }
