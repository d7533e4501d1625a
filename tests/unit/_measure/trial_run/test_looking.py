# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that write at the same time: each look is taken once, and ends the trial; what is said before it begins."""

import contextlib
import datetime
import functools
import math
import multiprocessing
import os
import re

import prometheus_server
import pytest
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import base, prometheus
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError, access
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    announcement,
    directory,
    host_check,
    looking,
    overlap,
    readings,
    settings,
)

ARMS = {"smt_on": "SMT on", "smt_off": "SMT off"}
AT = "2026-11-23T12:00:00Z"
END = records.End(host="", ended=AT, reason="a guardrail", restored=True, before="0-3", after="0-3")


def drawn_trial(name=design.SWITCHBACK, hosts=4, better="higher", most=4, arms=None):
    arms = arms or ARMS
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(hosts)]
    drawn = design.draw(name, members, design.Wanted(tuple(arms), 12, 6, most, 1))
    metric = records.Metric("rate", "1/s", better, True, None)
    return parts.changed(trial_maker.of_design(drawn, arms, (metric,), period=60.0, settle=10.0), seed=1)


@pytest.fixture(name="trial")
def a_trial():
    return drawn_trial()


@pytest.fixture(name="files")
def its_directory(trial, tmp_path):
    files = directory.TrialDirectory(tmp_path / "r")
    files.create(records.written(trial, 1))
    return files


def record(trial, host, number, **changed):
    arm = trial.design.schedule[host][number]
    value = 100.0 * (0.5 if arm == "smt_off" else 1.0) * (1 + 0.01 * ((7 * number) % 5))
    fields = {"started": AT, "counted_from": AT, "ended": AT, "complete": True, "reason": None, **reading(value)}
    return records.Period(**{"number": number, "arm": arm, **fields, "series": {}, "events": (), "block": 0, **changed})


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


@pytest.mark.parametrize(("better", "word", "decided"), [("higher", "worse", "loss"), ("lower", "better", "gain")])
def test_a_look_waits_for_the_last_host_of_a_block_and_a_decision_ends_the_trial(files, trial, better, word, decided):
    lines, trial = [], parts.changed(trial, metrics=(parts.changed(trial.metrics[0], better=better),))
    said = f"4 of 12 observations, SMT off: rate −50.0 % (−50.0 to −50.0 %), {word}"
    follow(files, trial, trial.design.schedule, range(12), lines.append)
    looks = looking.looks_of(files)
    # Two groups: the first look after two blocks of both.
    assert [look.blocks for look in looks.taken] == [4] and looks.decided == {"smt_off": decided}
    assert files.ended() == f"each arm is decided: SMT off: {word}" and lines[-1] == said
    assert len(looking.known(files, trial).periods["web0"]) == 4
    # Whoever ends a period last says how long it still takes.
    assert lines[1] == "Period 2 of 12 is over on 4 hosts; about 10 min to go, or less once it is decided."


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
        files.create(records.written(trial, 1))


def reading(value):
    return {"metrics": {"rate": records.Reading(value, 4, 4, None)}}


INVALID = {
    "a huge number": reading(1e200),
    "infinity": reading(math.inf),
    "no JSON": reading(1 + 2j),
    "a point in 1e90": {"series": {"rate": [[1e90, 1.0]]}},
    "nested deeply": {"metrics": functools.reduce(lambda inner, _turn: [inner], range(5000), [])},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_a_record_that_could_not_be_read_is_its_hosts_failure_and_is_written_as_one(files, trial, fields):
    with pytest.raises(records.RecordError, match=r"^this cannot be written down: ") as caught:
        part_of(files, trial, "web0").period(record(trial, "web0", 0, **fields))
    seen = looking.known(files, trial)
    (one,) = seen.periods["web0"]
    assert seen.unreadable == {} and (one.complete, one.metrics, one.reason) == (False, {}, str(caught.value))
    assert len(one.reason) < 400


def test_the_trial_goes_on_without_a_host_that_left_or_whose_file_is_damaged_and_that_one_leaves(files, trial):
    first, second, *others = trial.design.schedule
    part_of(files, trial, first).ended(parts.changed(END, host=first))
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


ERRORS, IDLE = settings.guardrails(
    [{"name": "errors", "query": "e", "above": 0.01, "for": 30}, {"name": "idle", "query": "i", "below": 5}]
)


def announced(trial, *guardrails):
    longest = overlap.Longest(9.0, "rate counts samples from up to 9 s before")
    return " ".join(announcement.sentences(trial, longest, guardrails, 10))


def test_each_sentence_of_the_announcement():
    usual = announced(drawn_trial())
    for sentence in (
        "A switchback trial of SMT on and SMT off on 4 hosts, judged by rate (higher is better).",
        "in 12 periods of about 60 s, about 12 min in all, or less once it is decided.",
        "rate counts samples from up to 9 s before; the first 10 s of a period are not counted.",
        "Which host is in which arm when was drawn by lot, seed 1:",
        "Guardrails: none is given.",
        "when the metrics server is lost, and within 60 s without this controller.",
    ):
        assert sentence in usual
    assert "errors above 0.01 for 30 s; idle below 5." in announced(drawn_trial(), ERRORS, IDLE)
    waves = announced(drawn_trial(most=1))
    assert "in 2 waves, so that no more are switched at once than" in waves and "web2: from period 13 on: " in waves
    assert "... and 14 more hosts, which trial.json lists." in announced(drawn_trial(hosts=26, most=13))
    assert ": SMT on x 6, SMT off x 6." in announced(drawn_trial(design.PARALLEL, 12))
    booted = drawn_trial(design.PARALLEL, 12, arms={"smt_on": "SMT on", "nosmt": "nosmt"})
    assert "into nosmt, and rebooted to go back; without this controller they do so after about 1" in announced(booted)


START = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
P99 = {"name": "p99", "query": "p99", "better": "lower", "primary": True}


class Server:
    """A metrics server with these values."""

    def __init__(self, **values):
        self.values = values
        self.points = 4

    @contextlib.contextmanager
    def at_most(self, _seconds):
        yield

    def instant(self, query):
        if self.values.get(query) is None:
            raise SourceError(f"no series for {query}")
        return self.values[query]

    def over(self, query, begin, end, step):
        value, at = self.instant(query), begin.timestamp()
        return base.Series(tuple((at + step * number, value + number) for number in range(self.points)), 5)


def of(metrics, guardrails=(), server=None):
    """The readings of a host, and a clock of a check each ten seconds: (readings, check)."""
    clock = [0.0]
    given = settings.metrics(list(metrics)), settings.guardrails(list(guardrails))
    given += ({} if server is None else dict.fromkeys(prometheus.SOURCES, server),)
    found = readings.HostReadings(*given, lambda: START + datetime.timedelta(seconds=clock[0]), 15.0)

    def check(*printed):
        clock[0] += 10.0
        return found.watch(clock[0], host_check.Checked((0, 1), True, printed))

    return found, check


def period(found, seconds=60, begin=START):
    return found.of_period(begin, begin + datetime.timedelta(seconds=seconds))


def value(number, points=4, expected=5, reason=None):
    return records.Reading(number, points, expected, reason)


def test_a_period_has_the_mean_of_its_points_and_with_few_or_none_the_reason():
    server = Server(p99=1.0)
    found, _check = of([P99, {**P99, "name": "other", "query": "other", "primary": False}], server=server)
    metrics, series = period(found)
    assert metrics == {"p99": value(2.5), "other": value(None, 0, 5, "no series for other")}
    assert series["p99"] == ((0.0, 1.0), (15.0, 2.0), (30.0, 3.0), (45.0, 4.0))
    server.points = 2
    why = "2 of 5 points: a period with fewer than half of them has no value"
    assert period(found)[0]["p99"] == value(None, 2, 5, why)


def test_numbers_of_the_host_are_read_at_each_check_one_command_each():
    of_file = {"file": "/run/x.prom", "sample": "requests_total", "counter": True}
    rate = {"name": "rate", **of_file, "better": "higher", "primary": True}
    load = {"name": "load", "command": ["cat", "/proc/loadavg"], "better": "lower"}
    found, check = of([rate, load], [{"name": "too_busy", "command": ["cat", "/proc/loadavg"], "above": 8}])
    assert found.commands == [["cat", "--", "/run/x.prom"], ["cat", "/proc/loadavg"]]
    for _number in range(3):
        check("requests_total 7\n", "5")
    # Points of the period before do not count.
    found.start_period()
    begin = START + datetime.timedelta(seconds=30)
    assert [check(f"requests_total {7 + 100 * number}\n", "0.5\n") for number in range(1, 5)] == [None] * 4
    metrics, _series = period(found, 50, begin)
    assert metrics == {"rate": value(10.0, 4, 4), "load": value(0.5, 4, 4)}
    assert check("requests_total 500\n", "9\n") == "the guardrail too_busy was breached: above 8 (9)"


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
# Each is what a server may do, and a word of the reason for which the host goes back after a minute.
FAULTS = {
    "silence": ((), "timed out|was not there"),
    "damaged": ((OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",), "broke off"),
    "its queue is full": ((b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",), "answers no queries now"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_server_is_borne_for_a_minute_and_its_reason_is_true(name):
    sent, said = FAULTS[name]
    limits = [{"name": "errors", "query": "errors", "above": 0.5}]
    with prometheus_server.raw(*sent) as url:
        found, check = of([P99], limits, prometheus.Prometheus(access({"url": url}.get), 15.0 if sent else 0.5))
        reasons = [check() for _number in range(7)]
        assert reasons[:6] == [None] * 6 and re.search(said, reasons[6])
        assert reasons[6].startswith(f"nothing was known of p99 for 60 s: the metrics server {url}")
        # At the end of a period, too.
        [record] = list(period(found)[0].values())
        assert record.value is None and re.search(said, record.reason)


def test_a_moment_of_a_server_that_no_file_can_have_ends_no_trial():
    """1e200 was written, and read no more: the trial was over for all of its hosts."""
    moments = ("1e200", "-1e200", START.timestamp(), START.timestamp() + 15)
    series = '{"metric": {}, "values": [' + ", ".join(f'[{moment}, "1"]' for moment in moments) + "]}"
    body = '{"status": "success", "data": {"resultType": "matrix", "result": [' + series + "]}}"
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, body)) as url:
        found, _check = of([P99], server=prometheus.Prometheus(access({"url": url}.get)))
        metrics, series = period(found, 30)
    assert series == {"p99": ((0.0, 1.0), (15.0, 1.0))} and metrics["p99"].points == 2
