# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts that forbid a reboot: a real Prometheus with rules, and servers that do something else."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._slot import alerts, exchange, request
from ansible_collections.threadwise.smt.plugins.module_utils._slot.settings import SlotError
from prometheus_server import Exporter, free_port, prometheus, raw, send, serving

FIRING = 'ALERTS{alertstate="firing", alertname!="Watchdog"}'
RULES = [
    {
        "name": "service",
        "interval": "1s",
        "rules": [
            {"alert": "Watchdog", "expr": "vector(1)"},
            {"alert": "QueueFull", "expr": "queue > 10"},
            {"alert": "QueueLong", "expr": "queue > 5", "for": "1h"},
        ],
    }
]


@pytest.fixture(name="exporter", scope="module")
def an_exporter():
    return Exporter()


@pytest.fixture(name="url", scope="module")
def a_server(exporter, tmp_path_factory):
    with (
        serving(exporter.answer) as target,
        prometheus(tmp_path_factory.mktemp("prometheus"), [target.removeprefix("http://")], rules=RULES) as url,
    ):
        yield url


def refused(url, query=FIRING):
    """Return why a reboot is forbidden; empty where it is not."""
    try:
        alerts.ask(request.parse_alerts({"prometheus": url, "query": query}))
    except exchange.RefusedError as error:
        return str(error)
    return ""


def in_time(url, expected, query=FIRING):
    """Return what is said, as soon as it is what is expected, or what is said after a minute."""
    for _attempt in range(120):
        said = refused(url, query)
        if bool(said) == expected:
            break
        time.sleep(0.5)
    return said


def test_an_alert_forbids_it_as_long_as_it_fires(exporter, url):
    exporter.text = "queue 11\n"
    said = in_time(url, expected=True)
    assert said.startswith("alerts forbid it: QueueFull of 127.0.0.1:") and said.endswith(f" ({url})")
    # One that is pending fires in an hour.
    exporter.text = "queue 7\n"
    assert in_time(url, expected=False) == ""
    assert "QueueLong" in in_time(url, expected=True, query='ALERTS{alertname="QueueLong"}')


def test_any_query_is_one_of_alerts(exporter, url):
    exporter.text = "queue 7\n"
    assert in_time(url, expected=True, query="queue == 7").startswith("alerts forbid it: queue of ")
    assert refused(url, "sum(up) > 0").startswith("alerts forbid it: a result without a name")
    assert refused(url, "up == 17") == ""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("17", "query gives a scalar, and a list of alerts is needed"),
        ("up[5m]", "query gives a matrix"),
        ("up{", "parse error"),
        ("up" + " " * 1990 + "\u00e9", "parse error"),
    ],
    ids=["scalar", "matrix", "broken", "accent"],
)
def test_a_query_that_gives_no_alerts_says_nothing_of_them(url, query, said):
    assert refused(url, query).startswith("alerts are not known: ") and said in refused(url, query)


def vector(*metrics, **more):
    result = [{"metric": metric, "value": [1, "1"]} for metric in metrics]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vector(), ""),
        (vector(warnings=["PromQL info: metric might not be a counter"]), ""),
        (vector(*[{"alertname": f"A{number}"} for number in range(5)]), "alerts forbid it: A0, A1, A2 and 2 more"),
        (vector({"alertname": "A\x1b[2J\nB", "instance": ["x"]}), "alerts forbid it: A\\x1b[2J B of ['x']"),
        (vector(isPartial=True), "alerts are not all known"),
        (vector(warnings=["No StoreAPIs matched for this query"]), "No StoreAPIs matched"),
        (vector(warnings="x"), "alerts are not all known"),
        ({"status": "success"}, "does not answer as Prometheus does"),
        ({"status": "success", "data": {"resultType": "vector", "result": [7]}}, "does not answer as Prometheus does"),
        ({"status": "success", "data": {"resultType": "vector", "result": 7}}, "does not answer as Prometheus does"),
        ({"status": "success", "data": {"resultType": "vector", "result": {}}}, "does not answer as Prometheus does"),
        ({"status": "success", "data": {"resultType": "vector", "result": ""}}, "does not answer as Prometheus does"),
        (vector(7), "does not answer as Prometheus does"),
        (vector(None), "does not answer as Prometheus does"),
        ([], "not as Prometheus does"),
        ("<html>", "not as Prometheus does"),
        (vector({"alertname": "x" * 2**20}), "answers with more than 1024 KiB"),
    ],
    ids=range(17),
)
def test_what_other_servers_say(answer, said):
    body = answer if isinstance(answer, str) else json.dumps(answer)
    with serving(lambda handler: send(handler, body)) as url:
        found = refused(url)
    assert (said in found) if said else found == ""
    assert found.isprintable() and len(found) < 600


def test_a_server_that_cannot_be_asked_forbids_it():
    assert "cannot be reached" in refused(f"http://127.0.0.1:{free_port()}")
    with raw(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n") as url:
        assert "answers with status 503, and not as Prometheus does" in refused(url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("x", "it must be a mapping"),
        ({"prometheus": "http://p:9090"}, "it must be a mapping"),
        ({"prometheus": "http://p:9090", "query": " "}, "query must be one of PromQL"),
        ({"prometheus": "http://p:9090", "query": ["up"]}, "query must be one of PromQL"),
        ({"prometheus": "http://p:9090", "query": "x" * 2001}, "query must be one of PromQL"),
        ({"prometheus": "p:9090", "query": "up"}, "prometheus is no address such as"),
        ({"prometheus": "http://me:secret@p:9090", "query": "up"}, "prometheus has more in it than an address"),
    ],
)
def test_what_is_refused(given, said):
    with pytest.raises(SlotError) as raised:
        request.parse_alerts(given)
    assert said in str(raised.value) and "secret" not in str(raised.value)


def test_nothing_is_no_alert():
    assert request.parse_alerts(None) is None and request.parse_alerts({}) is None
