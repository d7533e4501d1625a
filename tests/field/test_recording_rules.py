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
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server

RULES = [
    {
        "name": "kube-resources.rules",
        "interval": "3s",
        "rules": [
            {
                "record": "ksm:resource_count",
                "expr": (
                    "count by (job, ksm_resource) (max without (instance)"
                    ' (label_replace({__name__!~"kube_pod_.*",__name__=~"kube_.*_info",namespace!=""}, "ksm_resource",'
                    ' "$1", "__name__", "kube_(.*)_info")))\n'
                ),
            },
            {
                "record": "net_total_rate_offset",
                "expr": 'sum(rate(node_network_receive_bytes{device="eth0"}[50s] offset 1m)) * 8',
            },
            {"record": "requests::rate1m", "expr": "sum(rate(requests_total[1m]))"},
        ],
    }
]


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


def test_prometheus_13596_several_patterns_for_a_name(url):
    """Also promql-parser 70."""
    assert lineage_of(url).of("sum(ksm:resource_count)").seconds == 3 + 1


def test_prometheus_1223_an_offset_within_a_rule(url):
    """Also prometheus 1234."""
    assert lineage_of(url).of("net_total_rate_offset").seconds == 3 + 50 + 60 + 1


def test_prometheus_2754_a_rule_with_two_colons_beside_the_query_that_it_stands_for(url):
    assert lineage_of(url).of("requests::rate1m").seconds == 3 + 60 + 1
    assert lineage_of(url).of("sum(rate(requests_total[1m]))").seconds == 60 + 1


def groups(rules, **more):
    return {"groups": [{"name": "kube-apiserver.rules", "rules": rules, "interval": 15, **more}]}


def answering(data, gap=15, refuses=""):
    """Answer as servers do: their rules, samples that far apart, and an error where a word is in a query."""

    def answer(handler):
        path, _mark, wanted = handler.path.partition("?")
        one = {"metric": {}, "value": [1, "7"], "values": [[gap * number, "1"] for number in range(2)]}
        if refuses and refuses in urllib.parse.unquote_plus(wanted):
            return prometheus_server.send(
                handler,
                json.dumps({"status": "error", "error": "=~ is an unsupported matchtype for the __name__ label"}),
                400,
            )
        known = data if path.endswith("rules") else {"resultType": "vector", "result": [one]}
        return prometheus_server.send(handler, json.dumps({"status": "success", "data": known}))

    return prometheus_server.serving(answer)


def test_prometheus_16913_a_rule_before_its_source_lags_by_two_evaluations():
    """Of one group, from Prometheus 3 on."""
    before = {"type": "recording", "name": "minute_before", "query": "minute_current + 0"}
    with answering(
        groups([before, {"type": "recording", "name": "minute_current", "query": "scalar(minute())"}])
    ) as url:
        assert lineage_of(url).of("minute_before").seconds == 3 * 15


def test_prometheus_3290_a_rule_with_labels_in_its_name_makes_no_series_of_the_name_before_them():
    with answering(
        groups([{"type": "recording", "name": 'banana{color="yellow"}', "query": "rate(strawberry[1h])"}])
    ) as url:
        assert lineage_of(url).of('banana{color="yellow"}').seconds == 15


def test_prometheus_9092_a_service_that_is_scraped_every_five_minutes(url):
    with answering(groups([{"type": "recording", "name": "x", "query": "1"}]), gap=300) as slow:
        assert lineage_of(slow).of("increase(ifHCInOctets[10m])").seconds == 600 + 300


def test_victoriametrics_7297_rules_with_empty_fields_and_alerts_that_nobody_asked_for():
    """Also 5743: it gives all rules, whatever type is asked for; and some without labels."""
    empty = dict.fromkeys(("state", "file", "group_name", "lastError"), "")
    recording = {
        **empty,
        "type": "recording",
        "name": "quantile:duration",
        "query": "max(rate(duration_bucket[5m]))\n",
        "labels": {"quantile": "0.5"},
    }
    alert = {"type": "alerting", "name": "quantile:duration", "query": "x[1w]", "alerts": [], "state": "firing"}
    with answering(
        groups(
            [alert, recording, {**recording, "labels": None, "name": "other"}],
            id="4652008536941098091",
            evaluationTime=None,
        )
    ) as url:
        assert lineage_of(url).of('quantile:duration{quantile="0.5"}').seconds == 15 + 300 + 15
        assert lineage_of(url).of("other").seconds == 15 + 300 + 15
        # That rule makes no other quantile.
        with pytest.raises(lineage.NotKnownError, match="no rule of the metrics server makes it"):
            lineage_of(url).of('quantile:duration{quantile="0.9"}')


def test_prometheus_engine_1601_a_server_that_takes_no_pattern_for_a_name():
    with answering(groups([{"type": "recording", "name": "x", "query": "1"}]), refuses="__name__=~") as url:
        query = 'time()-max({__name__=~".*_last_successful_run_timestamp_seconds"}) by (job, instance)'
        with pytest.raises(lineage.NotKnownError, match="=~ is an unsupported matchtype for the __name__ label"):
            lineage_of(url).of(query)
        assert lineage_of(url).of(query, 30.0).seconds == 30
