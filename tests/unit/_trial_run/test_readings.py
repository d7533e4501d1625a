# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a host: metrics over a period from a server and from the host, and guardrails at each check."""

from __future__ import annotations

import datetime

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import prometheus
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import host_check, readings, settings

START = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
P99 = {"name": "p99", "query": "p99", "better": "lower", "primary": True}


class Server:
    """A metrics server with these values."""

    def __init__(self, **values):
        self.values = values
        self.points = 4

    def instant(self, query):
        if self.values.get(query) is None:
            raise prometheus.SourceError(f"no series for {query}")
        return self.values[query]

    def over(self, query, begin, end, step):
        value = self.instant(query)
        return prometheus.Series(tuple((begin.timestamp() + step * number, value + number) for number in range(self.points)), 5)


def of(metrics, guardrails=(), server=None):
    """The readings of a host, and a clock of a check each ten seconds: (readings, check)."""
    clock = [0.0]
    found = readings.HostReadings(
        settings.metrics(list(metrics)), settings.guardrails(list(guardrails)), server, lambda: START + datetime.timedelta(seconds=clock[0]), 15.0
    )

    def check(*printed):
        clock[0] += 10.0
        return found.watch(clock[0], host_check.Checked((0, 1), True, printed))

    return found, check


def test_a_period_has_the_mean_of_its_points():
    found, _check = of([P99], server=Server(p99=1.0))
    record = found.of_period(START, START + datetime.timedelta(seconds=60))
    assert record["metrics"] == {"p99": {"value": 2.5, "points": 4, "expected": 5, "reason": None}}
    assert record["series"] == {"p99": [[0.0, 1.0], [15.0, 2.0], [30.0, 3.0], [45.0, 4.0]]}


def test_a_period_with_few_points_or_none_has_no_value_and_the_reason():
    server = Server(p99=1.0)
    server.points = 2
    found, _check = of([P99, {**P99, "name": "other", "query": "other", "primary": False}], server=server)
    record = found.of_period(START, START + datetime.timedelta(seconds=60))["metrics"]
    assert record["p99"] == {"value": None, "points": 2, "expected": 5, "reason": "2 of 5 points: a period with fewer than half of them has no value"}
    assert record["other"] == {"value": None, "points": 0, "expected": 5, "reason": "no series for other"}


def test_numbers_of_the_host_are_read_at_each_check_one_command_each():
    rate = {"name": "rate", "file": "/run/x.prom", "sample": "requests_total", "counter": True, "better": "higher", "primary": True}
    load = {"name": "load", "command": ["cat", "/proc/loadavg"], "better": "lower"}
    limit = {"name": "too_busy", "command": ["cat", "/proc/loadavg"], "above": 8}
    found, check = of([rate, load], [limit])
    assert found.commands == [["cat", "--", "/run/x.prom"], ["cat", "/proc/loadavg"]]
    found.start_period()
    for number in range(4):
        assert check(f"requests_total {100 * number}\n", "0.5\n") is None
    record = found.of_period(START, START + datetime.timedelta(seconds=60))["metrics"]
    assert record["rate"] == {"value": 10.0, "points": 3, "expected": 4, "reason": None}
    assert record["load"]["value"] == 0.5
    assert check("requests_total 500\n", "9\n") == "the guardrail too_busy was breached: above 8 (9)"


def test_a_server_that_is_lost_shows_without_a_guardrail():
    server = Server(p99=1.0)
    _found, check = of([P99], server=server)
    assert check() is None
    server.values["p99"] = None
    said = [check() for _number in range(7)]
    assert said[:6] == [None] * 6
    assert said[6] == "nothing was known of p99 for 60 s: no series for p99"


@pytest.mark.parametrize(("value", "reason"), [(0.4, None), (0.6, "the guardrail errors was breached: above 0.5 (0.6)")])
def test_a_guardrail_of_the_server(value, reason):
    _found, check = of([P99], [{"name": "errors", "query": "errors", "above": 0.5}], Server(p99=1.0, errors=value))
    assert check() == reason


def test_points_of_the_period_before_do_not_count():
    found, check = of([{"name": "load", "command": ["x"], "better": "lower", "primary": True}])
    for _number in range(3):
        check("5")
    found.start_period()
    begin = START + datetime.timedelta(seconds=30)
    for _number in range(3):
        check("1")
    assert found.of_period(begin, begin + datetime.timedelta(seconds=40))["metrics"]["load"]["value"] == 1.0
