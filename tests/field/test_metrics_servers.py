# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of other clients of Prometheus and of servers with its API, each tried on ours.

A test is named after its source.
"""

from __future__ import annotations

import datetime
import json
import urllib.parse

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()


def source(url, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get))


def vector(**more):
    return json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "7"]}]}, **more}
    )


def asked(handler):
    return dict(urllib.parse.parse_qsl(handler.path.partition("?")[2]))


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\n\n"])
def test_kubernetes_52919_a_token_from_a_file_ends_in_a_newline(end):
    """Also keda 4960, VictoriaMetrics 6986, prometheus 5221."""
    heads = []

    def answer(handler):
        heads.append(handler.headers["Authorization"])
        prometheus_server.send(handler, vector())

    with prometheus_server.serving(answer) as url:
        assert source(url, token=f"s3cret{end}").instant("up") == 7.0
    assert heads == ["Bearer s3cret"]


def test_hetznercloud_cli_102_a_letter_in_a_token_that_nobody_sees():
    with pytest.raises(server.SourceError) as caught:
        source("http://127.0.0.1:1", token="s3cret\u200b")
    assert "another character in it that cannot be printed" in str(caught.value) and "s3cret" not in str(caught.value)


def test_victoriametrics_4190_a_server_repeats_the_credentials_in_its_answer():
    def answer(handler):
        prometheus_server.send(
            handler,
            json.dumps({"status": "error", "error": f"cannot authorize {handler.headers['Authorization']!r}"}),
            401,
        )

    def as_bad_request(handler):
        prometheus_server.send(
            handler,
            json.dumps({"status": "error", "error": f"cannot authorize {handler.headers['Authorization']!r}"}),
            400,
        )

    for answers in (answer, as_bad_request):
        with prometheus_server.serving(answers) as url, pytest.raises(server.SourceError) as caught:
            source(url, user="me", password="s3cret").instant("up")
        assert "bWU6czNjcmV0" not in str(caught.value) and "s3cret" not in str(caught.value)


def test_prom2json_124_credentials_in_the_address():
    """Also telegraf 3739, unsee 259, elasticsearch_exporter 298."""
    with pytest.raises(server.SourceError, match="has a user or a password in it") as caught:
        source("http://me:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("hours", "check", "points"), [(1, 2, 1801), (12, 2, 8641), (48, 10, 9601), (48, 1, 9601), (168, 1, 9915)]
)
def test_prometheus_1968_a_long_range_in_small_steps_has_more_points_than_a_server_gives(
    tmp_path, hours, check, points
):
    """Also prometheus-query 1, sighupio module-logging 16."""
    with prometheus_server.prometheus(tmp_path, []) as url:
        found = source(url).over("vector(7)", BEGIN, BEGIN + datetime.timedelta(hours=hours), check)
    assert len(found.points) == found.expected == points


def test_victoriametrics_171_points_from_before_the_range():
    """A range is moved to multiples of its step there, into what was measured in the arm before. Also 669, 6951."""
    values = [[AT - 7 + 15 * number, "100" if number == 0 else "7"] for number in range(22)]
    document = {
        "status": "success",
        "isPartial": False,
        "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]},
    }
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, json.dumps(document))) as url:
        found = source(url).over("up", BEGIN, BEGIN + datetime.timedelta(seconds=300), 15)
    assert {value for _moment, value in found.points} == {7.0} and (len(found.points), found.expected) == (20, 21)


def test_thanos_622_a_sum_without_a_store_that_is_lost():
    """Thanos and VictoriaMetrics are asked to fail instead. Also kubecost 451."""

    def answer(handler):
        whole = asked(handler).get("partial_response") == "false" and asked(handler).get("deny_partial_response") == "1"
        prometheus_server.send(
            handler,
            (
                json.dumps({"status": "error", "error": "a store is gone"})
                if whole
                else vector(warnings=["a store is gone"])
            ),
        )

    with (
        prometheus_server.serving(answer) as url,
        pytest.raises(server.SourceError, match=r"refuses the query .*a store is gone"),
    ):
        source(url).instant("sum(up)")
    with (
        prometheus_server.serving(lambda handler: prometheus_server.send(handler, vector(isPartial=True))) as url,
        pytest.raises(server.SourceError, match="answers with a part of its numbers: one of its stores is lost"),
    ):
        source(url).instant("sum(up)")


def test_client_golang_1179_a_native_histogram_has_no_value():
    one = {"metric": {}, "histogram": [1, {"count": "6", "sum": "20", "buckets": [[0, "1", "2", "6"]]}]}
    document = {"status": "success", "data": {"resultType": "vector", "result": [one]}}
    with (
        prometheus_server.serving(lambda handler: prometheus_server.send(handler, json.dumps(document))) as url,
        pytest.raises(server.SourceError, match="gives a histogram for latency: ask for one number of it"),
    ):
        source(url).instant("latency")


def test_jmx_exporter_207_compression_behind_a_proxy_that_speaks_http_1_0(tmp_path):
    """Also urllib3 441: chunks and gzip at once."""
    (tmp_path / "p").mkdir()
    (tmp_path / "n").mkdir()
    with (
        prometheus_server.prometheus(tmp_path / "p", []) as url,
        prometheus_server.nginx(tmp_path / "n", url, "proxy_http_version 1.0") as front,
    ):
        for seconds in (0, 300, 7200):
            assert (
                len(source(front).over("vector(7)", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), 2).points)
                == seconds // 2 + 1
            )


def test_thanos_6075_a_proxy_that_gave_up_answers_with_a_page():
    with (
        prometheus_server.serving(lambda handler: prometheus_server.send(handler, "<html>", 504, "text/html")) as url,
        pytest.raises(server.SourceError, match=r"answers no queries now \(status 504\)"),
    ):
        source(url).instant("up")


def test_ansible_79624_secrets_are_in_no_argument_specification_of_a_role():
    """With `no_log` there, a role fails for what is encrypted; without,
    Ansible shows the line of one that cannot be templated (as in 85612).
    """
    assert "smt_trial_metrics_token" in variables.ACCESS and set(variables.ACCESS) <= set(variables.known())
    for path in variables._ROLES.glob("*/meta/argument_specs.yml"):
        text = path.read_text(encoding="utf-8")
        assert "no_log" not in text and not any(f"{name}:\n" in text for name in variables.ACCESS)
