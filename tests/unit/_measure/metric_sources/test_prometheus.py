# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus, alone and with TLS: its numbers, in answers of every size."""

from __future__ import annotations

import datetime
import subprocess

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import prometheus, server

SECRET = "s3cret-token"
BCRYPT_OF_SECRET = "$2b$04$abcdefghijklmnopqrstuuNG0Z9xYjgj3pkzN.YpYToaPHOmIUPo."
BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()
ONE = "a metric has to be one number for each host"
EXPORTED = """load 1
workers{pool="a"} 3
workers{pool="b"} 4
broken NaN
"""


@pytest.fixture(name="service", scope="module")
def a_scraped_service(tmp_path_factory):
    """(Address of the server, instance)."""
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = EXPORTED
    with prometheus_server.serving(exporter.answer) as address:
        instance = address.removeprefix("http://")
        directory = tmp_path_factory.mktemp("prometheus")
        with prometheus_server.prometheus(directory, [instance]) as url:
            exporter.wait(3)
            yield url, instance


@pytest.fixture(name="url")
def its_address(service):
    return service[0]


def source(url, **variables):
    """A server as variables describe it: raw, as a user writes them."""
    return prometheus.Prometheus(server.access({"url": url, **variables}.get))


def sentence(url, query="load", **access):
    with pytest.raises(server.SourceError) as caught:
        source(url, **access).instant(query)
    # Nothing that was raised before shows more.
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value) and caught.value.__cause__ is None
    return str(caught.value).removeprefix(f"the metrics server {url}")


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ('load{{instance="{instance}"}}', 1.0),
        ("sum(workers)", 7.0),
        ("workers", f" has 2 series for workers, which differ by pool: {ONE}, so sum them or name one"),
        ("load[1m]", f" answers load[1m] with a matrix: {ONE}"),
        ("broken", " gives NaN for broken, which is no number to judge by"),
        ("load / 0", " gives +Inf for load / 0, which is no number to judge by"),
        ("nothing", " has no series for nothing: it was not scraped lately, or has another name there"),
        ("rate(load", "unclosed left parenthesis"),
        ('load{{instance="127.0.0.2:{port}"}}', ": it knows no instance '127.0.0.2:{port}'; there is {instance}"),
    ],
)
def test_a_query_gives_its_number_now_or_a_sentence(service, query, value):
    url, instance = service
    names = {"instance": instance, "port": instance.rpartition(":")[2]}
    query = query.format(**names)
    if isinstance(value, float):
        assert source(url).instant(query) == value
    else:
        assert sentence(url, query).endswith(value.format(**names))


def test_a_server_with_tls_and_a_password(tmp_path):
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*made.split(), "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], check=True, capture_output=True
    )
    config = {
        "tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem"},
        "basic_auth_users": {"trial": BCRYPT_OF_SECRET},
    }
    given = {"ca": str(tmp_path / "cert.pem"), "user": "trial", "password": SECRET}
    with prometheus_server.prometheus(tmp_path, [], config, "https", credentials=("trial", SECRET)) as url:
        assert source(url, **given).instant("vector(1)") == 1.0
        said = sentence(url, **{**given, "ca": ""})
        assert "certificate verify failed" in said or "self-signed" in said
        assert " refuses access (status 401)" in sentence(url, **{**given, "password": "wrong"})
        assert " refuses access (status 401)" in sentence(url, ca=given["ca"], token=SECRET)


def labelled(word, doublings):
    """A query whose answer has a label of ``len(word) * 2**doublings`` letters."""
    query = f'label_replace(vector(7), "a", "{word}", "", "")'
    for _turn in range(doublings):
        query = f'label_join({query}, "a", "", "a", "a")'
    return query


def read_in_every_size(source):
    """Read answers of a real server from 100 bytes to the limit, each value of which is known."""
    # A day at each check of 2 s would be more points than a server gives: there are fewer of them, further apart.
    for seconds, step, between in ((0, 15, 15), (300, 15, 15), (300, 2, 2), (3600, 2, 2), (86_400, 2, 9)):
        found = source.over("time() * 1.1", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), step)
        moments = [AT + number * between for number in range(seconds // between + 1)]
        assert [moment for moment, _value in found.points] == moments and found.expected == len(moments)
        assert [value for _moment, value in found.points] == pytest.approx([moment * 1.1 for moment in moments])
    # About where Prometheus begins with chunks, and where nginx begins with files.
    for letters, doublings in ((1, 0), (1860, 0), (1960, 0), (2060, 0), (1000, 7), (1000, 10), (31, 17)):
        data = source._asked("query", {"query": labelled("x" * letters, doublings)})
        assert len(data["result"][0]["metric"]["a"]) == letters * 2**doublings and data["result"][0]["value"][1] == "7"
    with pytest.raises(server.SourceError, match="larger than 4 MiB"):
        source.instant(labelled("x" * 32, 17))


def test_answers_of_every_size_from_prometheus_itself(url):
    read_in_every_size(source(url))
