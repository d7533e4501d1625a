# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a host: metrics over a period from a server and from the host, and guardrails at each check."""

from __future__ import annotations

import contextlib
import datetime
import re

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import prometheus
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError, access
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import host_check, readings, settings

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
        value = self.instant(query)
        return prometheus.Series(
            tuple((begin.timestamp() + step * number, value + number) for number in range(self.points)), 5
        )


def of(metrics, guardrails=(), server=None):
    """The readings of a host, and a clock of a check each ten seconds: (readings, check)."""
    clock = [0.0]
    found = readings.HostReadings(
        settings.metrics(list(metrics)),
        settings.guardrails(list(guardrails)),
        server,
        lambda: START + datetime.timedelta(seconds=clock[0]),
        15.0,
    )

    def check(*printed):
        clock[0] += 10.0
        return found.watch(clock[0], host_check.Checked((0, 1), True, printed))

    return found, check


def period(found, seconds=60, begin=START):
    return found.of_period(begin, begin + datetime.timedelta(seconds=seconds))


def value(number, points=4, expected=5, reason=None):
    return {"value": number, "points": points, "expected": expected, "reason": reason}


def test_a_period_has_the_mean_of_its_points_and_with_few_or_none_the_reason():
    server = Server(p99=1.0)
    found, _check = of([P99, {**P99, "name": "other", "query": "other", "primary": False}], server=server)
    record = period(found)
    assert record["metrics"] == {"p99": value(2.5), "other": value(None, 0, 5, "no series for other")}
    assert record["series"]["p99"] == [[0.0, 1.0], [15.0, 2.0], [30.0, 3.0], [45.0, 4.0]]
    server.points = 2
    why = "2 of 5 points: a period with fewer than half of them has no value"
    assert period(found)["metrics"]["p99"] == value(None, 2, 5, why)


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
    record = period(found, 50, begin)["metrics"]
    assert record == {"rate": value(10.0, 4, 4), "load": value(0.5, 4, 4)}
    assert check("requests_total 500\n", "9\n") == "the guardrail too_busy was breached: above 8 (9)"


def test_a_server_that_is_lost_shows_without_a_guardrail():
    server = Server(p99=1.0)
    _found, check = of([P99], server=server)
    assert check() is None
    server.values["p99"] = None
    said = [check() for _number in range(7)]
    assert said[:6] == [None] * 6
    assert said[6] == "nothing was known of p99 for 60 s: no series for p99"


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
# Each is what a server may do, and a word of the reason for which the host goes back after a minute.
FAULTS = {
    "silence": ((), "timed out|was not there"),
    "no HTTP": ((b"SSH-2.0\r\n\r\n",), "does not answer as HTTP says"),
    "damaged": ((OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",), "broke off"),
    "half of a chunk": ((OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), "broke off"),
    "a page": ((OK.replace(b"application/json", b"text/html") + b"Content-Length: 0\r\n\r\n",), "instead of JSON"),
    "its queue is full": ((b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",), "answers no queries now"),
}


@pytest.mark.night(after=2)
@pytest.mark.parametrize("name", ["no HTTP", "damaged", *sorted({*FAULTS} - {"no HTTP", "damaged"})])
def test_a_fault_of_a_server_is_borne_for_a_minute_and_its_reason_is_true(name):
    sent, said = FAULTS[name]
    limits = [{"name": "errors", "query": "errors", "above": 0.5}]
    with prometheus_server.raw(*sent) as url:
        found, check = of([P99], limits, prometheus.Prometheus(access({"url": url}.get), 15.0 if sent else 0.5))
        reasons = [check() for _number in range(7)]
        assert reasons[:6] == [None] * 6 and re.search(said, reasons[6])
        assert reasons[6].startswith(f"nothing was known of p99 for 60 s: the metrics server {url}")
        # At the end of a period, too.
        [record] = list(period(found)["metrics"].values())
        assert record["value"] is None and re.search(said, record["reason"])


def test_a_slow_server_is_not_waited_for_longer_than_the_rollback_timer_runs(monkeypatch):
    """Each of many queries would wait for its own limit, and the host would go back for a reason that nobody knows."""
    monkeypatch.setattr(readings, "ANSWERS_SECONDS", 0.3)
    with prometheus_server.raw() as url:
        limits = [{"name": f"limit_{number}", "query": f"q{number}", "above": 1} for number in range(20)]
        more = [{**P99, "name": f"m{number}", "primary": False} for number in range(20)]
        found, check = of([P99, *more], limits, prometheus.Prometheus(access({"url": url}.get), 0.2))
        reasons = []
        for guard in found._guards.values():
            monkeypatch.setattr(guard, "feed", lambda _now, _value, why="": reasons.append(why))
        assert check() is None
        reasons += [one["reason"] for one in period(found)["metrics"].values()]
    assert sum("took all of the time there is" in reason for reason in reasons) >= 36


def test_a_moment_of_a_server_that_no_file_can_have_ends_no_trial():
    """1e200 was written, and read no more: the trial was over for all of its hosts."""
    moments = ("1e200", "-1e200", START.timestamp(), START.timestamp() + 15)
    series = '{"metric": {}, "values": [' + ", ".join(f'[{moment}, "1"]' for moment in moments) + "]}"
    body = '{"status": "success", "data": {"resultType": "matrix", "result": [' + series + "]}}"
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, body)) as url:
        found, _check = of([P99], server=prometheus.Prometheus(access({"url": url}.get)))
        record = period(found, 30)
    assert record["series"] == {"p99": [[0.0, 1.0], [15.0, 1.0]]} and record["metrics"]["p99"]["points"] == 2
    times = dict.fromkeys(("started", "counted_from", "ended"), "2026-11-23T12:00:00Z")
    about = {"period": 0, "block": 0, "arm": "smt_on", "complete": True, "reason": None, "events": []}
    trials.PERIOD.check({**about, **times, **record})
