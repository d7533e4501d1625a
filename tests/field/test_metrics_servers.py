# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of other clients of Prometheus and of servers with its API, and of how far back a query counts,
each tried on ours. A test is named after its source.
"""

import datetime
import json
import urllib.parse

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()


def source(url, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get))


def vector(**more):
    of = {"resultType": "vector", "result": [{"metric": {}, "value": [1, "7"]}]}
    return {"status": "success", "data": of, **more}


def serving(document, *more):
    def answer(handler):
        made = document(handler) if callable(document) else document
        prometheus_server.send(handler, made if isinstance(made, str) else json.dumps(made), *more)

    return prometheus_server.serving(answer)


def asked(handler):
    return dict(urllib.parse.parse_qsl(handler.path.partition("?")[2]))


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\n\n"])
def test_kubernetes_52919_a_token_from_a_file_ends_in_a_newline(end):
    """Also keda 4960, VictoriaMetrics 6986, prometheus 5221."""
    heads = []

    def answer(handler):
        heads.append(handler.headers["Authorization"])
        return vector()

    with serving(answer) as url:
        assert source(url, token=f"s3cret{end}").instant("up") == 7.0
    assert heads == ["Bearer s3cret"]


def test_hetznercloud_cli_102_and_prom2json_124_a_letter_in_a_token_that_nobody_sees_and_credentials_in_the_address():
    with pytest.raises(server.SourceError) as caught:
        source("http://127.0.0.1:1", token="s3cret\u200b")
    assert "another character in it that cannot be printed" in str(caught.value) and "s3cret" not in str(caught.value)
    # Also telegraf 3739, unsee 259, elasticsearch_exporter 298.
    with pytest.raises(server.SourceError, match="has a user or a password in it") as caught:
        source("http://me:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401])
def test_victoriametrics_4190_a_server_repeats_the_credentials_in_its_answer(status):
    def answer(handler):
        return {"status": "error", "error": f"cannot authorize {handler.headers['Authorization']!r}"}

    with serving(answer, status) as url, pytest.raises(server.SourceError) as caught:
        source(url, user="me", password="s3cret").instant("up")
    assert "bWU6czNjcmV0" not in str(caught.value) and "s3cret" not in str(caught.value)


def test_prometheus_1968_and_jmx_exporter_207_ranges_of_a_real_server(tmp_path):
    """A long range in small steps has more points than a server gives (also prometheus-query 1, sighupio module-logging
    16); a proxy that speaks HTTP 1.0 sends compressed answers in chunks (also urllib3 441).
    """
    (tmp_path / "p").mkdir()
    (tmp_path / "n").mkdir()
    with (
        prometheus_server.prometheus(tmp_path / "p", []) as url,
        prometheus_server.nginx(tmp_path / "n", url, "proxy_http_version 1.0") as front,
    ):
        for hours, check, points in ((1, 2, 1801), (12, 2, 8641), (48, 10, 9601), (48, 1, 9601), (168, 1, 9915)):
            found = source(url).over("vector(7)", BEGIN, BEGIN + datetime.timedelta(hours=hours), check)
            assert len(found.points) == found.expected == points
        for seconds in (0, 300, 7200):
            found = source(front).over("vector(7)", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), 2)
            assert len(found.points) == seconds // 2 + 1


def test_victoriametrics_171_points_from_before_the_range():
    """A range is moved to multiples of its step there, into what was measured in the arm before. Also 669, 6951."""
    values = [[AT - 7 + 15 * number, "100" if number == 0 else "7"] for number in range(22)]
    data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    with serving({"status": "success", "isPartial": False, "data": data}) as url:
        found = source(url).over("up", BEGIN, BEGIN + datetime.timedelta(seconds=300), 15)
    assert {value for _moment, value in found.points} == {7.0} and (len(found.points), found.expected) == (20, 21)


def unless_asked_to_fail(handler):
    """Thanos and VictoriaMetrics are asked to fail instead of a sum without a store that is lost."""
    whole = asked(handler).get("partial_response") == "false" and asked(handler).get("deny_partial_response") == "1"
    lost = "a store is gone"
    return {"status": "error", "error": lost} if whole else vector(warnings=[lost])


HISTOGRAM = {"metric": {}, "histogram": [1, {"count": "6", "sum": "20", "buckets": [[0, "1", "2", "6"]]}]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        # Also kubecost 451.
        pytest.param([unless_asked_to_fail], "refuses the query .*a store is gone", id="thanos_622"),
        pytest.param([vector(isPartial=True)], "with a part of its numbers", id="thanos_622 isPartial"),
        # A native histogram has no value.
        pytest.param(
            [vector(data={"resultType": "vector", "result": [HISTOGRAM]})], "histogram", id="client_golang_1179"
        ),
        # A proxy that gave up answers with a page.
        pytest.param(["<html>", 504, "text/html"], r"\(status 504\)", id="thanos_6075"),
    ],
)
def test_why_an_answer_is_no_number(answer, said):
    with serving(*answer) as url, pytest.raises(server.SourceError, match=said):
        source(url).instant("sum(up)")


def test_ansible_79624_secrets_are_in_no_argument_specification_of_a_role():
    """With `no_log` there, a role fails for what is encrypted; without,
    Ansible shows the line of one that cannot be templated (as in 85612).
    """
    assert "smt_trial_metrics_token" in variables.ACCESS and set(variables.ACCESS) <= set(variables.known())
    for path in variables._ROLES.glob("*/meta/argument_specs.yml"):
        text = path.read_text(encoding="utf-8")
        assert "no_log" not in text and not any(f"{name}:\n" in text for name in variables.ACCESS)


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
