# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in one line: its words, what its number is by the words of the pattern, whether its time is one of work."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import settings
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import command, custom, prepared
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import WorkloadError

HERE = sorted(os.sched_getaffinity(0))


def declared(line, pattern=None):
    return custom.declarations(command.entries(line, pattern))[0]


def test_without_a_pattern_it_is_the_time_of_a_run():
    made = declared("xz -9 '/srv/a b'")
    assert (made["name"], made["title"], made["argv"]) == ("command", "xz", ["xz", "-9", "/srv/a b"])
    assert made["metrics"] == [
        {"name": "time", "unit": "s", "better": "lower", "aggregate": "per_job", "clock": "wall_seconds"}
    ]


@pytest.mark.parametrize(
    ("pattern", "unit", "better", "aggregate"),
    [
        (r"Requests/sec: (\S+)", "requests/s", "higher", "sum"),
        (r"Requests per second: +(\S+)", "requests/s", "higher", "sum"),
        (r"events per second: +([0-9.]+)", "events/s", "higher", "sum"),
        (r"([0-9.]+) MB/s", "MB/s", "higher", "sum"),
        (r"(?P<value>[0-9.]+) (?P<unit>[kMG]i?B/s)", "B/s", "higher", "sum"),
        (r"([0-9.]+) GiB/s", "GiB/s", "higher", "sum"),
        (r"tps = (\S+)", "tps", "higher", "sum"),
        (r"IOPS=(\S+)", "IOPS", "higher", "sum"),
        (r"\s(\S+) ns/op", "ns/op", "lower", "per_operation"),
        (r"Mean \+- std dev: (\S+) ms", "ms", "lower", "per_operation"),
        (r"latency average = (\S+) ms", "ms", "lower", "undeclared"),
        (r"99% in (\S+) secs per request", "secs", "lower", "undeclared"),
        (r"errors/s: (\S+)", None, None, None),
        (r"misses per second (\S+)", None, None, None),
        (r"score: (\d+)", None, None, None),
        (r"(\S+) requests/sec in 5 s", None, None, None),
        (r"real\s+(\S+)", None, None, None),
    ],
)
def test_what_a_number_is_by_the_words_of_its_pattern(pattern, unit, better, aggregate):
    if unit is None:
        with pytest.raises(WorkloadError, match="it cannot be known from the pattern which way its number is better"):
            declared("true", pattern)
        return
    (made,) = declared("true", pattern)["metrics"]
    assert (made["unit"], made["better"], made["aggregate"]) == (unit, better, aggregate)


@pytest.mark.parametrize(
    ("line", "pattern", "reason"),
    [
        ("cat a | wc", None, r"the command has '\|', and no shell reads it: put it into sh -c"),
        ("a && b", None, "the command has '&&'"),
        ("echo 'x", None, "the command cannot be split into words: No closing quotation"),
        (" ", None, "the command is empty"),
        ("", r"tps = (\S+)", "metric is set, and no command that prints it"),
        ("true", "tps = (", "its pattern is not a valid regular expression"),
        ("true", "tps", "its pattern has no group"),
    ],
)
def test_what_cannot_be_measured_is_named(line, pattern, reason):
    with pytest.raises(WorkloadError, match=reason):
        custom.declarations(command.entries(line, pattern))


def test_a_command_is_measured_alone_unless_others_are_named():
    def names(**given):
        return [one["name"] for one in settings.chosen({"workloads": None, "custom": [], **given})]

    assert names() == ["gzip", "sysbench_cpu"]
    assert names(command="true") == ["command"]
    assert names(command="true", workloads=["gzip"]) == ["gzip", "command"]
    assert names(workloads=[]) == []


@pytest.mark.parametrize(
    ("seconds", "refused"),
    [
        # Of it alone, of two on one CPU, and of it alone once more.
        ([1.0, 1.9], False),
        ([5.0, 2.0, 1.0], False),
        ([1.0, 1.05, 1.0], True),
        ([2.0, 1.2, 1.1], True),
        # Two take too long: that is no waiting.
        ([1.0, WorkloadError("own did not end within 60 s")], False),
    ],
)
def test_a_time_that_is_set_is_no_time_of_work(seconds, refused, files, monkeypatch):
    times, asked = iter(seconds), []

    def timed(self, workers):
        asked.append(len(workers))
        taken = next(times)
        if isinstance(taken, WorkloadError):
            raise taken
        self._alone = taken
        return taken

    monkeypatch.setattr(prepared.PreparedWorkload, "_time", timed)
    one = prepared.PreparedWorkload(declared("true"), files, {}, 0.1, len(HERE))
    if refused:
        with pytest.raises(
            WorkloadError, match="it runs for a time that is set, or waits, and the time of its run says"
        ):
            one.calibrate([[HERE[0]]])
    else:
        # A sample takes what it takes alone.
        assert one.calibrate([[HERE[0]]]) == "command: 1.00 s per sample"
    assert asked == [1, 2, 1][: len(seconds)] and next(times, None) is None


@pytest.mark.parametrize(
    ("line", "pattern", "cpus"),
    [("sh -c 'sleep 0.1; echo 5 ops/s'", r"(\d+) ops/s", HERE[:1]), ("sleep 0.1", None, [])],
)
def test_a_number_of_its_own_or_a_worker_without_a_cpu_needs_no_such_proof(line, pattern, cpus, files):
    assert prepared.PreparedWorkload(declared(line, pattern), files, {}, 0.1, len(HERE)).calibrate([cpus])
