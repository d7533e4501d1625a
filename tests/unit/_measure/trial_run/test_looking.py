# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that write at the same time: each look is taken once, when a block of all hosts is over, and ends the trial
when all is decided; what is said of it, and before it begins.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
import os

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    announcement,
    directory,
    looking,
    overlap,
    settings,
)

ARMS = {"smt_on": "SMT on", "smt_off": "SMT off"}
AT = "2026-11-23T12:00:00Z"
END = {"ended": AT, "reason": "a guardrail", "restored": True, "before": "0-3", "after": "0-3"}


def drawn_trial(name=design.SWITCHBACK, hosts=4, better="higher", most=4, arms=None):
    arms = arms or ARMS
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(hosts)]
    drawn = design.draw(name, members, design.Wanted(tuple(arms), 12, 6, most, 1))
    metric = records.Metric("rate", "1/s", better, True, None)
    return records.Trial("r", AT, tuple(arms), arms, (metric,), None, (), 0.01, 60.0, 10.0, drawn, 1)


@pytest.fixture(name="trial")
def a_trial():
    return drawn_trial()


@pytest.fixture(name="files")
def its_directory(trial, tmp_path):
    files = directory.TrialDirectory(tmp_path / "r")
    files.create(trial.written())
    return files


def record(trial, host, number, **changed):
    arm = trial.design.schedule[host][number]
    value = 100.0 * (0.5 if arm == "smt_off" else 1.0) * (1 + 0.01 * ((7 * number) % 5))
    metrics = {"rate": {"value": value, "points": 4, "expected": 4, "reason": None}}
    times = {"started": AT, "counted_from": AT, "ended": AT, "complete": True, "reason": None}
    return {"period": number, "arm": arm, **times, "metrics": metrics, "series": {}, "events": [], **changed}


def part_of(files, trial, host, say=lambda _line: None, *more):
    return looking.HostFiles(files, trial, host, say, *more)


def follow(files, trial, hosts, periods, say=lambda _line: None, cut=()):
    """Have hosts follow their schedules period by period, until the trial is ended."""
    parts = {host: part_of(files, trial, host, say) for host in hosts}
    for number in periods:
        for host, part in parts.items():
            if part.stopped() is None:
                none = {"complete": False, "reason": "the switch took long", "metrics": {}} if number in cut else {}
                part.period(record(trial, host, number, **none))


@pytest.mark.parametrize(
    ("better", "said", "decided"),
    [
        ("higher", "4 of 12 observations, SMT off: rate −50.0 % (−50.0 to −50.0 %), worse", "loss"),
        ("lower", "4 of 12 observations, SMT off: rate −50.0 % (−50.0 to −50.0 %), better", "gain"),
    ],
)
def test_a_look_waits_for_the_last_host_of_a_block_and_a_decision_ends_the_trial(files, trial, better, said, decided):
    lines, trial = [], dataclasses.replace(trial, metrics=(dataclasses.replace(trial.metrics[0], better=better),))
    follow(files, trial, trial.design.schedule, range(12), lines.append)
    looks = looking.looks_of(files)
    # Two groups: the first look after two blocks of both.
    assert [look.blocks for look in looks.taken] == [4] and looks.decided == {"smt_off": decided}
    assert files.ended() == f"each arm is decided: SMT off: {said.split()[-1]}" and lines[-1] == said
    assert len(looking.known(files, trial).periods["web0"]) == 4
    # Whoever ends a period last says how long it still takes.
    assert lines[:2] == [
        "Period 1 of 12 is over on 4 hosts; about 11 min to go, or less once it is decided.",
        "Period 2 of 12 is over on 4 hosts; about 10 min to go, or less once it is decided.",
    ]


def test_observations_without_a_value_are_told_from_those_that_count(files, trial):
    lines = []
    follow(files, trial, trial.design.schedule, range(10), lines.append, cut=[2])
    # The second block of both groups has no value.
    assert any(line.startswith("6 of 12 observations (2 without a value), SMT off: rate −50") for line in lines), lines


def test_each_host_writes_while_no_other_looks(files, trial):
    with files.alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "LOCK_SECONDS", 0.0)
        with pytest.raises(directory.TrialFileError, match="another process has held it"):
            part_of(files, trial, "web0").period(record(trial, "web0", 0))
    assert looking.known(files, trial).periods["web0"] == ()


def orphan(files, trial, pipe):
    """Start a process that looks whether the trial goes on, and end before it does."""
    multiprocessing.get_context("fork").Process(target=wait_for_the_end, args=(files, trial, pipe)).start()
    pipe.recv()
    os._exit(0)


def wait_for_the_end(files, trial, pipe):
    part = part_of(files, trial, "web0")
    pipe.send(part.stopped())
    while part.stopped() is None:
        pass
    pipe.send(part.stopped())


def test_a_host_whose_playbook_was_killed_goes_back(files, trial):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    playbook = context.Process(target=orphan, args=(files, trial, there))
    playbook.start()
    assert here.recv() is None
    here.send("end")
    assert here.recv() == "ansible-playbook has ended"
    playbook.join()


def test_the_first_reason_to_end_stays_and_a_trial_is_never_overwritten(files, trial):
    files.end("first")
    files.end("second")
    assert files.ended() == "first"
    with pytest.raises(directory.TrialFileError, match="a run never overwrites another"):
        files.create(trial.written())


def test_names_of_hosts_do_not_meet(files):
    names = ["web1", "web1.ended", "../web1", "web1.periods"]
    paths = [path for name in names for path in (files.host_file(name), files.ended_file(name))]
    assert len(set(paths)) == len(paths) and {path.parent for path in paths} == {files.path / "hosts"}


def reading(value):
    return {"metrics": {"rate": {"value": value, "points": 4, "expected": 4, "reason": None}}}


INVALID = {
    "a huge number": reading(1e200),
    "an integer without end": reading(10**5000),
    "infinity": reading(math.inf),
    "no number": reading(math.nan),
    "no JSON": reading(1 + 2j),
    "a point in 1e90": {"series": {"rate": [[1e90, 1.0]]}},
    "a point before the period": {"series": {"rate": [[-3600.0, 1.0]]}},
    "more points than any": {"series": {"rate": [[1.0, 1.0]] * 601}},
    "nested deeply": {"metrics": functools.reduce(lambda inner, _turn: [inner], range(5000), [])},
    "a long name of an event": {"events": [{"at": AT, "event": "x" * 61, "detail": ""}]},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_a_record_that_could_not_be_read_is_its_hosts_failure_and_is_written_as_one(files, trial, fields):
    with pytest.raises(records.RecordError, match=r"^this cannot be written down: ") as caught:
        part_of(files, trial, "web0").period(record(trial, "web0", 0, **fields))
    seen = looking.known(files, trial)
    (one,) = seen.periods["web0"]
    assert seen.unreadable == {} and (one.complete, one.metrics, one.reason) == (False, {}, str(caught.value))
    assert len(one.reason) < 400


@pytest.mark.parametrize("said", ["x" * 10**6, "\x1b[31m\u202e\ud800\n" * 9999])
def test_a_sentence_of_any_length_is_shortened_and_read_again(files, trial, said):
    part, (metric,) = part_of(files, trial, "web0"), reading(None)["metrics"].values()
    fields = {"metrics": {"rate": {**metric, "reason": said}}, "complete": False, "reason": said}
    part.period(record(trial, "web0", 0, **fields, events=[{"at": AT, "event": "after_switch", "detail": said}]))
    part.ended({**END, "host": "web0", "reason": said})
    files.end(said)
    seen = looking.known(files, trial)
    (one,) = seen.periods["web0"]
    read = (one.reason, one.metrics["rate"].reason, one.happened[0], seen.ends["web0"].reason, files.ended())
    assert all(found.isprintable() and len(found) == records.MAX_SAID for found in read)


def test_the_trial_goes_on_without_a_host_that_left_or_whose_file_is_damaged_and_that_one_leaves(files, trial):
    first, second, *others = trial.design.schedule
    part_of(files, trial, first).ended({**END, "host": first})
    follow(files, trial, [second], range(2))
    files.host_file(second).write_text("damaged\n")
    with pytest.raises(directory.TrialFileError, match=rf"^hosts/{second}\.periods\.jsonl: line 1: "):
        follow(files, trial, [second], [2])
    follow(files, trial, others, range(12))
    assert looking.looks_of(files).decided == {"smt_off": "loss"}


def test_a_host_that_wrote_nothing_is_not_waited_for_without_end_and_counts_again_when_it_writes(files, trial):
    """One that was never reached, or whose worker was killed, has no end."""
    now = [0.0]
    late, *others = (part_of(files, trial, host, str, lambda: now[0]) for host in trial.design.schedule)
    for number in range(12):
        now[0] = (number + 1) * trial.period_seconds
        for host, part in zip(list(trial.design.schedule)[1:], others):
            if part.stopped() is None:
                part.period(record(trial, host, number))
        # Its first period was over after a minute, and it is waited for five more.
        is_late = now[0] > 60 + looking.LATE_SECONDS
        assert looking.looks_of(files).decided == ({"smt_off": "loss"} if is_late else {}), now
        assert ("web0" in late._over(looking.known(files, trial))) == is_late
    late.period(record(trial, "web0", 11))
    assert "web0" not in late._over(looking.known(files, trial))


ERRORS, IDLE = (
    settings.Limit("errors", 0.01, None, 30.0, settings.Origin(query="e")),
    settings.Limit("idle", None, 5.0, 0.0, settings.Origin(query="i")),
)


def announced(trial, *guardrails):
    return announcement.sentences(
        trial, overlap.Longest(9.0, "rate counts samples from up to 9 s before"), guardrails, 10
    )


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            announced(drawn_trial()),
            "A switchback trial of SMT on and SMT off on 4 hosts, judged by rate (higher is better).",
        ),
        (announced(drawn_trial()), "in 12 periods of about 60 s, about 12 min in all, or less once it is decided."),
        (
            announced(drawn_trial()),
            "rate counts samples from up to 9 s before; the first 10 s of a period are not counted.",
        ),
        (announced(drawn_trial()), "Which host is in which arm when was drawn by lot, seed 1:"),
        (announced(drawn_trial()), "Guardrails: none is given."),
        (announced(drawn_trial(), ERRORS, IDLE), "Guardrails: errors above 0.01 for 30 s; idle below 5."),
        (announced(drawn_trial()), "when the metrics server is lost, and within 60 s without this controller."),
        (announced(drawn_trial(most=1)), "The hosts take turns in 2 waves, so that no more are switched at once than"),
        (announced(drawn_trial(most=1)), "web2: from period 13 on: "),
        (announced(drawn_trial(hosts=26, most=13)), "... and 14 more hosts, which trial.json lists."),
        (announced(drawn_trial(design.PARALLEL, 12)), ": SMT on x 6, SMT off x 6."),
        (
            announced(drawn_trial(design.PARALLEL, 12, arms={"smt_on": "SMT on", "nosmt": "nosmt"})),
            "Hosts are rebooted into nosmt, and rebooted to go back; without this controller they do so after about 1",
        ),
    ],
)
def test_each_sentence_of_the_announcement(said, sentence):
    assert any(sentence in one for one in said), said
