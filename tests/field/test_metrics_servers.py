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
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()


def source(url, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get))


def vector(**more):
    of = {"resultType": "vector", "result": [{"metric": {}, "value": [1, "7"]}]}
    return {"status": "success", "data": of, **more}


def serving(document, *more):
    """A server with one answer, which may be made of the request."""

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


def test_hetznercloud_cli_102_a_letter_in_a_token_that_nobody_sees():
    with pytest.raises(server.SourceError) as caught:
        source("http://127.0.0.1:1", token="s3cret\u200b")
    assert "another character in it that cannot be printed" in str(caught.value) and "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401])
def test_victoriametrics_4190_a_server_repeats_the_credentials_in_its_answer(status):
    def answer(handler):
        return {"status": "error", "error": f"cannot authorize {handler.headers['Authorization']!r}"}

    with serving(answer, status) as url, pytest.raises(server.SourceError) as caught:
        source(url, user="me", password="s3cret").instant("up")
    assert "bWU6czNjcmV0" not in str(caught.value) and "s3cret" not in str(caught.value)


def test_prom2json_124_credentials_in_the_address():
    """Also telegraf 3739, unsee 259, elasticsearch_exporter 298."""
    with pytest.raises(server.SourceError, match="has a user or a password in it") as caught:
        source("http://me:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(caught.value)


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
