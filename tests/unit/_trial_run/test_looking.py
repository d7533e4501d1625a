# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that write at the same time: each look is taken once, when a block of all hosts is over,
and ends the trial when all is decided.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
import os
import time

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import directory, looking

ARMS = ("smt_on", "smt_off")
AT = "2026-11-23T12:00:00Z"


@pytest.fixture(name="trial")
def a_trial():
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(4)]
    drawn = design.draw(design.SWITCHBACK, members, design.Wanted(ARMS, 12, 0, 4, 1))
    metric = records.Metric("rate", "1/s", "higher", True, None)
    return records.Trial(
        "r", AT, ARMS, {"smt_on": "SMT on", "smt_off": "SMT off"}, (metric,), None, (), 0.01, 60.0, 10.0, drawn, 1
    )


@pytest.fixture(name="files")
def its_directory(trial, tmp_path):
    files = directory.TrialDirectory(tmp_path / "r")
    files.create(trial.written())
    return files


def record(trial, host, number, value):
    arm = trial.design.schedule[host][number]
    metrics = {
        "rate": {
            "value": value * (0.5 if arm == "smt_off" else 1.0) * (1 + 0.01 * ((7 * number) % 5)),
            "points": 4,
            "expected": 4,
            "reason": None,
        }
    }
    times = {"started": AT, "counted_from": AT, "ended": AT}
    return {
        "period": number,
        "arm": arm,
        **times,
        "complete": True,
        "reason": None,
        "metrics": metrics,
        "series": {},
        "events": [],
    }


def follow(files, trial, host, periods):
    of_host = looking.HostFiles(files, trial, host, lambda _line: None)
    for number in periods:
        if of_host.stopped() is None:
            of_host.period(record(trial, host, number, 100.0))


def test_a_look_waits_for_the_last_host_of_a_block_and_a_decision_ends_the_trial(files, trial):
    said = []
    hosts = {host: looking.HostFiles(files, trial, host, said.append) for host in trial.design.schedule}
    for number in range(12):
        for host, of_host in hosts.items():
            if of_host.stopped() is None:
                of_host.period(record(trial, host, number, 100.0))
    looks = looking.looks_of(files)
    # Two groups: the first look after two blocks of both.
    assert looks.taken[0].blocks == 4 and looks.decided == {"smt_off": "loss"}
    assert files.ended() == "each arm is decided: SMT off: worse"
    # The change of the metric itself, its interval in the same direction, and what it means.
    counted = f"{looks.taken[-1].blocks} of 12 observations"
    assert said[-1] == f"{counted}, SMT off: rate −50.0 % (−50.0 to −50.0 %), worse"
    assert len(looking.known(files, trial).periods["web0"]) < 12


def test_the_progress_of_a_time_says_how_the_time_changes(trial, files):
    slower = dataclasses.replace(trial, metrics=(dataclasses.replace(trial.metrics[0], better="lower"),))
    said = []
    hosts = {host: looking.HostFiles(files, slower, host, said.append) for host in trial.design.schedule}
    for number in range(12):
        for host, of_host in hosts.items():
            if of_host.stopped() is None:
                of_host.period(record(trial, host, number, 100.0))
    assert "SMT off: rate −50" in said[-1] and said[-1].endswith(" %), better")


def test_the_host_that_ends_a_period_last_says_how_long_it_still_takes(files, trial):
    said = []
    hosts = {host: looking.HostFiles(files, trial, host, said.append) for host in trial.design.schedule}
    for number in range(2):
        for host, of_host in hosts.items():
            of_host.period(record(trial, host, number, 100.0))
    assert [line for line in said if line.startswith("Period")] == [
        "Period 1 of 12 is over on 4 hosts; about 11 min to go, or less once it is decided.",
        "Period 2 of 12 is over on 4 hosts; about 10 min to go, or less once it is decided.",
    ]


def test_observations_without_a_value_are_told_from_those_that_count(files, trial):
    said = []
    hosts = {host: looking.HostFiles(files, trial, host, said.append) for host in trial.design.schedule}
    cut = {
        "complete": False,
        "reason": "the switch took so long that 3 s of the period were left to count: give it longer periods",
        "metrics": {},
    }
    for number in range(10):
        for host, of_host in hosts.items():
            if of_host.stopped() is None:
                of_host.period({**record(trial, host, number, 100.0), **(cut if number == 2 else {})})
    # The second block of both groups has no value.
    assert any(line.startswith("6 of 12 observations (2 without a value), SMT off: rate −50") for line in said), said


def test_processes_of_all_hosts_take_each_look_once(files, trial):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=follow, args=(files, trial, host, range(12))) for host in trial.design.schedule]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    blocks = [look.blocks for look in looking.looks_of(files).taken]
    assert blocks == sorted(set(blocks)) and files.ended() is not None


def test_a_host_that_left_is_not_waited_for(files, trial):
    hosts = list(trial.design.schedule)
    gone = looking.HostFiles(files, trial, hosts[0], lambda _line: None)
    gone.ended(
        {"host": hosts[0], "ended": AT, "reason": "a guardrail", "restored": True, "before": "0-3", "after": "0-3"}
    )
    for host in hosts[1:]:
        follow(files, trial, host, range(12))
    assert looking.looks_of(files).decided == {"smt_off": "loss"}


def orphan(files, trial, pipe):
    """Start a process that looks whether the trial goes on, and end before it does."""
    of_host = multiprocessing.get_context("fork").Process(target=wait_for_the_end, args=(files, trial, pipe))
    of_host.start()
    pipe.recv()
    os._exit(0)


def wait_for_the_end(files, trial, pipe):
    of_host = looking.HostFiles(files, trial, "web0", lambda _line: None)
    pipe.send(of_host.stopped())
    while of_host.stopped() is None:
        time.sleep(0.01)
    pipe.send(of_host.stopped())


def test_a_host_whose_playbook_was_killed_goes_back(files, trial):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    playbook = context.Process(target=orphan, args=(files, trial, there))
    playbook.start()
    assert here.recv() is None
    here.send("end")
    assert here.recv() == "ansible-playbook has ended"
    playbook.join()


def test_the_first_reason_to_end_stays(files):
    files.end("first")
    files.end("second")
    assert files.ended() == "first"


def test_a_trial_never_overwrites_another(files, trial):
    with pytest.raises(directory.TrialFileError, match="holds a trial: a run never overwrites another"):
        files.create(trial.written())


def test_names_of_hosts_do_not_meet(files):
    names = ["web1", "web1.ended", "../web1", "web1.periods"]
    paths = [path for name in names for path in (files.host_file(name), files.ended_file(name))]
    assert len(set(paths)) == len(paths) and {path.parent for path in paths} == {files.path / "hosts"}


INVALID = {
    "a huge number": {"metrics": {"rate": {"value": 1e200, "points": 4, "expected": 4, "reason": None}}},
    "a huge integer": {"metrics": {"rate": {"value": 10**200, "points": 4, "expected": 4, "reason": None}}},
    "an integer without end": {"metrics": {"rate": {"value": 10**5000, "points": 4, "expected": 4, "reason": None}}},
    "infinity": {"metrics": {"rate": {"value": math.inf, "points": 4, "expected": 4, "reason": None}}},
    "no number": {"metrics": {"rate": {"value": math.nan, "points": 4, "expected": 4, "reason": None}}},
    "a point in 1e200": {"series": {"rate": [[1e200, 1.0]]}},
    "a point in 1e90": {"series": {"rate": [[1e90, 1.0]]}},
    "a point before the period": {"series": {"rate": [[-3600.0, 1.0]]}},
    "more points than any": {"series": {"rate": [[1.0, 1.0]] * 601}},
    "nested deeply": {"metrics": functools.reduce(lambda inner, _turn: [inner], range(5000), [])},
    "no JSON": {"metrics": {"rate": {"value": 1 + 2j, "points": 4, "expected": 4, "reason": None}}},
    "a long name of an event": {"events": [{"at": AT, "event": "x" * 61, "detail": ""}]},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_a_record_that_could_not_be_read_is_its_hosts_failure_and_is_written_as_one(files, trial, fields):
    with pytest.raises(records.RecordError, match=r"^this cannot be written down: ") as caught:
        looking.HostFiles(files, trial, "web0", lambda _line: None).period(
            {**record(trial, "web0", 0, 100.0), **fields}
        )
    seen = looking.known(files, trial)
    assert seen.unreadable == {}
    (one,) = seen.periods["web0"]
    assert (one.complete, one.metrics, one.reason) == (False, {}, str(caught.value)) and len(one.reason) < 400
    looking.HostFiles(files, trial, "web1", lambda _line: None).period(record(trial, "web1", 0, 100.0))


@pytest.mark.parametrize(
    "said", ["x" * 10**6, "CPUs " + ",".join(map(str, range(0, 10_000, 2))), "\x1b[31m\u202e\ud800\n" * 9999]
)
def test_a_sentence_of_any_length_is_shortened_and_read_again(files, trial, said):
    of_host = looking.HostFiles(files, trial, "web0", lambda _line: None)
    metrics = {"rate": {"value": None, "points": 0, "expected": 4, "reason": said}}
    events = [{"at": AT, "event": "after_switch", "detail": said}]
    of_host.period(
        {**record(trial, "web0", 0, 100.0), "complete": False, "reason": said, "metrics": metrics, "events": events}
    )
    of_host.ended({"host": "web0", "ended": AT, "reason": said, "restored": True, "before": "0-3", "after": "0-3"})
    files.end(said)
    seen = looking.known(files, trial)
    (one,) = seen.periods["web0"]
    for found in (
        one.reason,
        one.metrics["rate"].reason,
        one.happened[0],
        seen.ends["web0"].reason,
        files.ended(),
    ):
        assert found.isprintable() and len(found) == records.MAX_SAID


def test_the_trial_goes_on_without_a_host_whose_file_is_damaged(files, trial):
    hosts = list(trial.design.schedule)
    follow(files, trial, hosts[0], range(2))
    with files.host_file(hosts[0]).open("a") as stream:
        stream.write("damaged\n")
    for host in hosts[1:]:
        follow(files, trial, host, range(4))
    # Two blocks of both groups.
    assert [look.blocks for look in looking.looks_of(files).taken] == [4]


def test_a_host_whose_file_is_damaged_leaves_the_trial(files, trial):
    follow(files, trial, "web0", range(2))
    files.host_file("web0").write_text("damaged\n")
    with pytest.raises(directory.TrialFileError, match=r"^hosts/web0\.periods\.jsonl: line 1: "):
        follow(files, trial, "web0", [2])


def test_a_host_that_wrote_nothing_is_not_waited_for_without_end(files, trial):
    """One that was never reached, or whose worker was killed, has no end."""
    now = [0.0]
    parts = {
        host: looking.HostFiles(files, trial, host, lambda _line: None, lambda: now[0])
        for host in list(trial.design.schedule)[1:]
    }

    def follow_until(begin, end):
        for number in range(begin, end):
            now[0] = (number + 1) * trial.period_seconds
            for host, part in parts.items():
                if part.stopped() is None:
                    part.period(record(trial, host, number, 100.0))

    follow_until(0, 6)
    # Its first period was over after a minute, and it is waited for five more.
    assert now[0] == 60 + looking.LATE_SECONDS
    assert looking.looks_of(files).decided == {}
    follow_until(6, 12)
    assert looking.looks_of(files).decided == {"smt_off": "loss"}


def test_a_host_that_is_late_counts_again_when_it_writes(files, trial):
    of_host = looking.HostFiles(files, trial, "web0", lambda _line: None, lambda: 60 + looking.LATE_SECONDS + 1)
    assert of_host._over(looking.known(files, trial)) == set(trial.design.schedule)
    of_host.period(record(trial, "web0", 0, 100.0))
    assert of_host._over(looking.known(files, trial)) == set(trial.design.schedule) - {"web0"}
