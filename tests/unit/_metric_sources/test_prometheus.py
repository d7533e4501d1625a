# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus: numbers, series, gaps, names; and servers that lie, which get one sentence and nothing else."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import time

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import prometheus, server
from prometheus_server import send

SECRET = "s3cret-token"
BCRYPT_OF_SECRET = "$2b$04$abcdefghijklmnopqrstuuNG0Z9xYjgj3pkzN.YpYToaPHOmIUPo."


@pytest.fixture(name="service", scope="module")
def a_scraped_service(tmp_path_factory):
    """A service that a real Prometheus scrapes, and whose numbers stay when a busy machine does not end a scrape:
    (address of the server, instance).
    """

    def answer(handler):
        # Prometheus lets a failed scrape end a series, but not one that brings its own time with it.
        now = int(time.time() * 1000)
        series = ("load 0.5", 'workers{pool="a"} 3', 'workers{pool="b"} 4', "broken NaN")
        send(handler, "".join(f"{line} {now}\n" for line in series), 200, prometheus_server.EXPOSITION)

    with prometheus_server.serving(answer) as address:
        instance = address.removeprefix("http://")
        with prometheus_server.prometheus(tmp_path_factory.mktemp("prometheus"), [instance]) as url:
            wait_for_a_scrape(url)
            yield url, instance


def wait_for_a_scrape(url):
    """Wait until a server has the series load."""
    for _turn in range(600):
        with contextlib.suppress(server.SourceError):
            source(url).instant("load")
            return
        time.sleep(0.1)
    raise AssertionError("no scrape in a minute")


def source(url, seconds=server.ANSWER_SECONDS, **variables):
    """A server as variables describe it: raw, as a user writes them."""
    return prometheus.Prometheus(server.access({"url": url, **variables}.get), seconds)


def test_a_query_gives_its_number_now(service):
    url, instance = service
    assert source(url).instant(f'load{{instance="{instance}"}}') == 0.5
    assert source(url).instant("sum(workers)") == 7.0
    assert source(url).instant("scalar(load)") == 0.5


def test_a_period_has_its_points_and_those_expected(service):
    url, _instance = service
    begin = datetime.datetime.now(datetime.UTC)
    time.sleep(4)
    found = source(url).over("load", begin, begin + datetime.timedelta(seconds=4), 1)
    assert found.expected == len(found.points) == 5
    assert {value for _moment, value in found.points} == {0.5}
    assert [moment for moment, _value in found.points] == sorted(moment for moment, _value in found.points)


def test_scrapes_that_fail_are_missing_points(tmp_path):
    exporter = prometheus_server.Exporter()
    exporter.text = "load 0.5\n"
    with (
        prometheus_server.serving(exporter.answer) as address,
        prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")]) as url,
    ):
        wait_for_a_scrape(url)
        exporter.text = None
        exporter.wait(3)
        begin = datetime.datetime.now(datetime.UTC)
        exporter.wait(3)
        with pytest.raises(server.SourceError, match="has no series for load: it was not scraped lately"):
            source(url).over("load", begin, begin + datetime.timedelta(seconds=2), 1)


def sentence(url, query="load", **access):
    with pytest.raises(server.SourceError) as caught:
        source(url, **access).instant(query)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(server.access({"url": url, **access}.get))
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    # Nothing that was raised before shows more.
    assert caught.value.__cause__ is None
    return str(caught.value).replace(url, "URL")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "workers",
            (
                "the metrics server URL has 2 series for workers, which differ by pool: a metric has to be one number"
                " for each host, so sum them or name one"
            ),
        ),
        (
            "load[1m]",
            "the metrics server URL answers load[1m] with a matrix: a metric has to be one number for each host",
        ),
        ("broken", "the metrics server URL gives NaN for broken, which is no number to judge by"),
        ("load / 0", "the metrics server URL gives +Inf for load / 0, which is no number to judge by"),
        (
            "nothing_of_that_name",
            (
                "the metrics server URL has no series for nothing_of_that_name: it was not scraped lately, or has"
                " another name there"
            ),
        ),
    ],
)
def test_what_is_no_number_for_a_host_gets_a_sentence(service, query, said):
    assert sentence(service[0], query) == said


def test_a_query_that_is_not_valid_gets_the_servers_reason(service):
    said = sentence(service[0], "rate(load")
    assert (
        said.startswith("the metrics server URL refuses the query (status 400): invalid parameter")
        and "unclosed left parenthesis" in said
    )


def test_a_host_that_is_scraped_under_another_name_is_named(service):
    url, instance = service
    port = instance.rpartition(":")[2]
    said = sentence(url, f'load{{instance="127.0.0.2:{port}"}}')
    assert said.endswith(f": it knows no instance '127.0.0.2:{port}'; there is {instance}")


@pytest.fixture(name="protected", scope="module")
def a_protected_server(tmp_path_factory):
    """A real Prometheus with TLS and a user: (address, its certificate)."""
    directory = tmp_path_factory.mktemp("protected")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=127.0.0.1",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ),
            *("-keyout", directory / "key.pem", "-out", directory / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    config = {
        "tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem"},
        "basic_auth_users": {"trial": BCRYPT_OF_SECRET},
    }
    with prometheus_server.prometheus(directory, [], config, "https", credentials=("trial", SECRET)) as url:
        yield url, str(directory / "cert.pem")


def test_a_server_with_tls_and_a_password(protected):
    url, certificate = protected
    assert source(url, ca=certificate, user="trial", password=SECRET).instant("vector(1)") == 1.0


def test_a_server_that_starts_is_no_other_server(tmp_path):
    # Nobody writes to this segment of its log, so it waits for the rest of it as one with a long log does.
    (tmp_path / "data" / "wal").mkdir(parents=True)
    os.mkfifo(tmp_path / "data" / "wal" / "00000000")
    with prometheus_server.running(tmp_path, []) as (process, url):
        while "Connection refused" in (said := sentence(url)):
            assert process.poll() is None
            time.sleep(0.1)
        assert (
            said
            == "the metrics server URL answers no queries now (status 503): it is starting, or what is in front of it"
            " does not reach it"
        )
        assert not prometheus_server.is_ready(url)


def test_without_its_certificate_or_password_it_is_not_asked(protected):
    url, certificate = protected
    assert "certificate verify failed" in sentence(url, user="trial", password=SECRET) or "self-signed" in sentence(
        url, user="trial", password=SECRET
    )
    assert "refuses access (status 401)" in sentence(url, ca=certificate, user="trial", password="wrong")
    assert "refuses access (status 401)" in sentence(url, ca=certificate, token=SECRET)


def answered(result):
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def vector(value):
    return answered([{"metric": {}, "value": [1.0, value]}])


def endless(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def broken_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"status"')
    handler.close_connection = True


def a_million_series(handler):
    # Repeated as text: to encode a million objects takes a busy machine longer than an answer may take.
    series = json.dumps({"metric": {}, "value": [1, "1"]})
    send(handler, json.dumps(answered([])).replace("[]", f"[{', '.join([series] * 1_000_000)}]"))


LIES = {
    "html": (
        lambda handler: send(handler, "<h1>x</h1>", kind="text/html"),
        "answers with text/html and status 200 instead of JSON",
    ),
    "huge number": (
        lambda handler: send(handler, json.dumps(vector("1e308"))),
        "gives 1e308 for load, which is no number to judge by",
    ),
    "words": (lambda handler: send(handler, json.dumps(vector("many"))), "gives many for load"),
    "colours": (
        lambda handler: send(handler, json.dumps({"status": "error", "error": "\x1b[31mred\nline"}), 400),
        "refuses the query (status 400): \\x1b[31mred line",
    ),
    "truncated": (
        lambda handler: send(handler, '{"status": "succ'),
        "its answer cannot be read: not a complete JSON document",
    ),
    "nested": (lambda handler: send(handler, "[" * 100_000), "its answer cannot be read"),
    "a list": (lambda handler: send(handler, "[1, 2]"), "refuses the query (status 200): it does not say why"),
    "no data": (lambda handler: send(handler, '{"status": "success"}'), "its answer has no data"),
    "other data": (lambda handler: send(handler, json.dumps(answered([7]))), "is not that of a Prometheus server"),
    "a million series": (a_million_series, "its answer is larger than 4 MiB"),
    "endless": (endless, "its answer is larger than 4 MiB"),
    "broken off": (broken_off, "its answer broke off: 991 bytes are missing"),
    "an error page": (
        lambda handler: send(handler, "no such page", 404, "text/plain"),
        "answers with text/plain and status 404 instead of JSON",
    ),
    "a proxy without its server": (
        lambda handler: send(handler, "<h1>x</h1>", 502, "text/html"),
        "answers no queries now (status 502)",
    ),
    "a query that takes too long": (
        lambda handler: send(
            handler, json.dumps({"status": "error", "errorType": "timeout", "error": "query timed out"}), 503
        ),
        "refuses the query (status 503): query timed out",
    ),
    "forbidden": (lambda handler: send(handler, SECRET, 403, "text/plain"), "refuses access (status 403)"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_gets_a_sentence(lie):
    answer, said = LIES[lie]
    with prometheus_server.serving(answer) as url:
        assert said in sentence(url, token=SECRET)


def test_a_redirect_is_not_followed_and_takes_no_token_along():
    elsewhere = []
    with (
        prometheus_server.serving(lambda handler: elsewhere.append(handler.headers)) as other,
        prometheus_server.serving(lambda handler: send(handler, "", 302, Location=other)) as url,
    ):
        assert "redirects elsewhere (status 302), which is not followed" in sentence(url, token=SECRET)
    assert elsewhere == []


@pytest.mark.parametrize("drips", [False, True])
def test_silence_and_a_slow_drip_end_at_the_time_limit(drips):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        for _turn in range(300):
            time.sleep(0.1)
            if drips:
                handler.wfile.write(b" ")
                handler.wfile.flush()

    with (
        prometheus_server.serving(answer) as url,
        pytest.raises(server.SourceError, match=r"its answer (was not there after [12] s|broke off: timed out)"),
    ):
        source(url, 1.0).instant("load")


def test_headers_that_never_end_end_at_the_time_limit():
    def answer(handler):
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
        for number in range(300):
            time.sleep(0.1)
            handler.wfile.write(f"X-{number}: {number}\r\n".encode())
            handler.wfile.flush()

    with (
        prometheus_server.serving(answer) as url,
        pytest.raises(server.SourceError, match=r"its answer was not there after 2 s|cannot be reached: .*timed out"),
    ):
        source(url, 1.0).instant("load")


def test_points_out_of_order_and_twice_are_sorted_and_counted_once():
    values = [[3, "3"], [1, "1"], [2, "NaN"], [1, "1"]]
    document = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}}
    with prometheus_server.serving(lambda handler: send(handler, json.dumps(document))) as url:
        begin = datetime.datetime.fromtimestamp(1, datetime.UTC)
        found = source(url).over("load", begin, begin + datetime.timedelta(seconds=2), 1)
    assert found == prometheus.Series(((1.0, 1.0), (3.0, 3.0)), 3)


def test_a_server_that_is_not_there():
    assert sentence(f"http://127.0.0.1:{prometheus_server.free_port()}").endswith(
        "cannot be reached: Connection refused"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://user:s3cret-token@127.0.0.1:9090", "has a user or a password in it"),
        ("127.0.0.1:9090", "is no address such as"),
        ("file:///etc/passwd", "is no address such as"),
        ("http://", "is no address such as"),
        ("http://h:99999", "is no address such as"),
        ("", "is no address such as"),
    ],
)
def test_what_is_no_address_is_refused(url, said):
    with pytest.raises(server.SourceError, match=said) as caught:
        source(url)
    assert SECRET not in str(caught.value)
