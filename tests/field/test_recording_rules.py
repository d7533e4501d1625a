# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of recording rules and of tools that follow them, each tried on how far back a trial's metric
counts. A test is named after its source.
"""

from __future__ import annotations

import json
import urllib.parse

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus, server

RESOURCES = (
    'count by (job, ksm_resource) (max without (instance) (label_replace({__name__!~"kube_pod_.*",__name__=~'
    '"kube_.*_info",namespace!=""}, "ksm_resource", "$1", "__name__", "kube_(.*)_info")))\n'
)
RECORDED = {
    "ksm:resource_count": RESOURCES,
    "net_total_rate_offset": 'sum(rate(node_network_receive_bytes{device="eth0"}[50s] offset 1m)) * 8',
    "requests::rate1m": "sum(rate(requests_total[1m]))",
}
RULES = [{"name": "r", "interval": "3s", "rules": [{"record": name, "expr": text} for name, text in RECORDED.items()]}]


def lineage_of(url):
    return lineage.Lineage(prometheus.Prometheus(server.access({"url": url}.get)))


@pytest.fixture(name="url", scope="module")
def a_server(tmp_path_factory):
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = (
        'kube_node_info{namespace="a"} 1\nkube_pod_x_info{namespace="a"} 1\nnode_network_receive_bytes{device="eth0"}'
        " 5\nrequests_total 7\n"
    )
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        prometheus_server.serving(exporter.answer) as address,
        prometheus_server.prometheus(directory, [address.removeprefix("http://")], rules=RULES) as url,
    ):
        exporter.wait(8)
        yield url


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        # Several patterns for a name. Also promql-parser 70.
        pytest.param("sum(ksm:resource_count)", 3 + 1, id="prometheus_13596"),
        # An offset within a rule. Also prometheus 1234.
        pytest.param("net_total_rate_offset", 3 + 50 + 60 + 1, id="prometheus_1223"),
        # A rule with two colons beside the query that it stands for.
        pytest.param("requests::rate1m", 3 + 60 + 1, id="prometheus_2754"),
        pytest.param("sum(rate(requests_total[1m]))", 60 + 1, id="prometheus_2754"),
    ],
)
def test_how_far_back_a_query_counts(url, query, seconds):
    assert lineage_of(url).looks_back(query).seconds == seconds


def recording(name, query, **more):
    return {"type": "recording", "name": name, "query": query, **more}


def groups(rules, **more):
    return {"groups": [{"name": "kube-apiserver.rules", "rules": rules, "interval": 15, **more}]}


def answering(data, gap=15, refuses=""):
    """Answer as servers do: their rules, samples that far apart, and an error where a word is in a query."""

    def answer(handler):
        path, _mark, wanted = handler.path.partition("?")
        one = {"metric": {}, "value": [1, "7"], "values": [[gap * number, "1"] for number in range(2)]}
        if refuses and refuses in urllib.parse.unquote_plus(wanted):
            error = {"status": "error", "error": "=~ is an unsupported matchtype for the __name__ label"}
            return prometheus_server.send(handler, json.dumps(error), 400)
        known = data if path.endswith("rules") else {"resultType": "vector", "result": [one]}
        return prometheus_server.send(handler, json.dumps({"status": "success", "data": known}))

    return prometheus_server.serving(answer)


@pytest.mark.parametrize(
    ("rules", "gap", "query", "seconds"),
    [
        # A rule before its source, of one group, lags by two evaluations from Prometheus 3 on.
        pytest.param(
            [recording("before", "current + 0"), recording("current", "scalar(minute())")],
            *(15, "before", 3 * 15),
            id="prometheus_16913",
        ),
        # A rule with labels in its name makes no series of the name before them.
        pytest.param(
            [recording('banana{color="yellow"}', "rate(strawberry[1h])")],
            *(15, 'banana{color="yellow"}', 15),
            id="prometheus_3290",
        ),
        # A service that is scraped every five minutes.
        pytest.param([], 300, "increase(ifHCInOctets[10m])", 600 + 300, id="prometheus_9092"),
    ],
)
def test_how_far_back_a_query_counts_by_what_a_server_says(rules, gap, query, seconds):
    with answering(groups(rules), gap) as url:
        assert lineage_of(url).looks_back(query).seconds == seconds


def test_victoriametrics_7297_rules_with_empty_fields_and_alerts_that_nobody_asked_for():
    """Also 5743: it gives all rules, whatever type is asked for; and some without labels."""
    empty = dict.fromkeys(("state", "file", "group_name", "lastError"), "")
    named = {"name": "quantile:duration", "query": "max(rate(duration_bucket[5m]))\n"}
    quantile = recording(**named, **empty, labels={"quantile": "0.5"})
    alert = {"type": "alerting", "name": "quantile:duration", "query": "x[1w]", "alerts": [], "state": "firing"}
    rules = [alert, quantile, {**quantile, "labels": None, "name": "other"}]
    with answering(groups(rules, id="4652008536941098091", evaluationTime=None)) as url:
        assert lineage_of(url).looks_back('quantile:duration{quantile="0.5"}').seconds == 15 + 300 + 15
        assert lineage_of(url).looks_back("other").seconds == 15 + 300 + 15
        # That rule makes no other quantile.
        with pytest.raises(lineage.NotKnownError, match="no rule of the metrics server makes it"):
            lineage_of(url).looks_back('quantile:duration{quantile="0.9"}')


def test_prometheus_engine_1601_a_server_that_takes_no_pattern_for_a_name():
    with answering(groups([{"type": "recording", "name": "x", "query": "1"}]), refuses="__name__=~") as url:
        query = 'time()-max({__name__=~".*_last_successful_run_timestamp_seconds"}) by (job, instance)'
        with pytest.raises(lineage.NotKnownError, match="=~ is an unsupported matchtype for the __name__ label"):
            lineage_of(url).looks_back(query)
        assert lineage_of(url).looks_back(query, 30.0).seconds == 30
