# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts that forbid a reboot: a real Prometheus with rules, and servers that do something else."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._slot import alerts, exchange, request
from prometheus_server import Exporter, free_port, prometheus, send, serving

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


def refused(url, query=FIRING):
    """Return why a reboot is forbidden; empty where it is not."""
    try:
        alerts.ask(request.parse_alerts({"prometheus": url, "query": query}))
    except exchange.RefusedError as error:
        return str(error)
    return ""


def in_time(url, expected, query=FIRING):
    """Return what is said, as soon as it is what is expected, or what is said after a minute."""
    for _attempt in range(240):
        said = refused(url, query)
        if bool(said) == expected:
            break
        time.sleep(0.25)
    return said


def test_an_alert_forbids_it_as_long_as_it_fires_and_any_query_is_one_of_alerts(tmp_path):
    exporter = Exporter()
    exporter.text = "queue 11\n"
    with serving(exporter.answer) as target, prometheus(tmp_path, [target.removeprefix("http://")], rules=RULES) as url:
        said = in_time(url, expected=True)
        assert said.startswith("alerts forbid it: QueueFull of 127.0.0.1:") and said.endswith(f" ({url})")
        # One that is pending fires in an hour.
        exporter.text = "queue 7\n"
        assert in_time(url, expected=False) == ""
        assert "QueueLong" in in_time(url, expected=True, query='ALERTS{alertname="QueueLong"}')
        assert in_time(url, expected=True, query="queue == 7").startswith("alerts forbid it: queue of ")
        assert refused(url, "sum(up) > 0").startswith("alerts forbid it: a result without a name")
        for query, said in (
            ("up == 17", ""),
            ("17", "alerts are not known: query gives a scalar, and a list of alerts is needed"),
            ("up[5m]", "alerts are not known: query gives a matrix, and a list of alerts is needed"),
        ):
            assert refused(url, query) == said
        assert [" parse error" in refused(url, query) for query in ("up{", "up" + " " * 1990 + "\u00e9")] == [True] * 2


def vector(*metrics, **more):
    result = [{"metric": metric, "value": [1, "1"]} for metric in metrics]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


NOT_SO = "does not answer as Prometheus does"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vector(), ""),
        (vector(warnings=["PromQL info: metric might not be a counter"]), ""),
        (vector(*[{"alertname": f"A{number}"} for number in range(5)]), "alerts forbid it: A0, A1, A2 and 2 more"),
        (vector({"alertname": "A\x1b[2J\nB", "instance": ["x"]}), "alerts forbid it: A\\x1b[2J B of ['x']"),
        (vector(isPartial=True), "alerts are not all known: {} says that its answer is partial"),
        (vector(warnings=["No StoreAPIs matched"]), "alerts are not all known: {} says No StoreAPIs matched"),
        (vector(warnings="x"), "alerts are not all known: {} says x"),
        *((vector(one), NOT_SO) for one in (7, None)),
        *(({"status": "success", "data": {"resultType": "vector", "result": one}}, NOT_SO) for one in ([7], 7, {}, "")),
        *((one, "{} answers with status 200, and not as Prometheus does") for one in ([], "<html>")),
        (vector({"alertname": "x" * 2**20}), "alerts are not known: {} answers with more than 1024 KiB"),
    ],
    ids=range(16),
)
def test_what_other_servers_say(answer, said):
    body = answer if isinstance(answer, str) else json.dumps(answer)
    with serving(lambda handler: send(handler, body)) as url:
        found = refused(url)
        assert (said.format(url) in found) if said else found == ""
    assert found.isprintable() and len(found) < 600


def test_a_server_that_cannot_be_asked_forbids_it():
    assert "cannot be reached" in refused(f"http://127.0.0.1:{free_port()}")
    with serving(lambda handler: send(handler, "", 503)) as url:
        assert "answers with status 503, and not as Prometheus does" in refused(url)
