# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus, alone, with TLS and behind nginx: its numbers, in answers of every size, and how far back a query
counts over its rules.
"""

from __future__ import annotations

import datetime
import subprocess

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server

SECRET = "s3cret-token"
BCRYPT_OF_SECRET = "$2b$04$abcdefghijklmnopqrstuuNG0Z9xYjgj3pkzN.YpYToaPHOmIUPo."
BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()
ONE = "a metric has to be one number for each host"
EXPORTED = """requests_total{path="a"} 5
requests_total{path="b{,} \\"x\\""} 7
load 1
workers{pool="a"} 3
workers{pool="b"} 4
broken NaN
"""
FIRST = [
    {"record": "job:requests:2m", "expr": "sum(rate(requests_total[2m]))"},
    {"record": "nested", "expr": 'avg_over_time({__name__="job:requests:2m"}[30s] offset 5s)'},
    {"record": "window", "expr": "sum(rate(requests_total[1h]))", "labels": {"window": "1h"}},
    {"record": "selfish", "expr": "max(selfish) or vector(1)"},
    {"alert": "Loaded", "expr": "load > 0"},
]
SECOND = [
    {"record": "window", "expr": "sum(rate(requests_total[1m]))", "labels": {"window": "1m"}},
    # Made of another series of the same name.
    {"record": "sums", "expr": 'sum(sums{level="low"})', "labels": {"level": "high"}},
    {"record": "sums", "expr": "sum(load)", "labels": {"level": "low"}},
]
RULES = [{"name": "first", "interval": "2s", "rules": FIRST}, {"name": "second", "interval": "3s", "rules": SECOND}]


@pytest.fixture(name="service", scope="module")
def a_scraped_service_and_rules(tmp_path_factory):
    """(Address of the server, instance)."""
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = EXPORTED
    with prometheus_server.serving(exporter.answer) as address:
        instance = address.removeprefix("http://")
        directory = tmp_path_factory.mktemp("prometheus")
        with prometheus_server.prometheus(directory, [instance], rules=RULES) as url:
            exporter.wait(6)
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


# ---- answers of every size -------------------------------------------------------------------------------------------


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


# ---- how far back a query counts -------------------------------------------------------------------------------------


@pytest.mark.night(after=4)
@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ('sum(rate(requests_total{path="b{,} \\"x\\"",}[20s]))', 21),
        # A rule over a rule of its group may see what that one made an evaluation earlier.
        ("nested", 2 + 30 + 5 + 2 * 2 + 120 + 1),
        ('{__name__=~"load|job:.*"}', 2 + 120 + 1),
        ('sums{level="high"}', 3 + 2 * 3 + 1),
        ("last_over_time(job:requests:2m[10s] offset -1m)", 10 + 2 + 120 + 1),
        ("max_over_time(rate(job:requests:2m[10s])[30s:])", 40 + 2 + 120 + 1),
        ('window{window="1m"}', 3 + 60 + 1),
        ("window", 2 + 3600 + 1),
        ("selfish", lineage.ENDLESS),
        ("load @ 1", lineage.ENDLESS),
        # Nothing is known of what is not there, but its range.
        ("rate(errors_total[30s]) or vector(0)", 30),
        ("time()", 0),
    ],
)
def test_how_far_back_a_query_counts(url, query, seconds):
    assert lineage.Lineage(source(url)).of(query).seconds == pytest.approx(seconds)


def test_what_makes_it_so_is_said_and_what_the_user_says_counts_where_it_is_more(url):
    known = lineage.Lineage(source(url))
    assert known.of("max(nested)").said == (
        "the rule nested is evaluated every 2 s and looks back 35 s",
        "the rule job:requests:2m is evaluated every 2 s and looks back 2 min",
        "requests_total has a sample every 1 s",
    )
    assert known.of("selfish").said[-1] == "the rule selfish is made of its own values"
    elsewhere = "job:other has the name of a rule's series, and no rule of the metrics server makes it"
    with pytest.raises(lineage.NotKnownError, match=f"^{elsewhere}$"):
        known.of("job:other")
    assert known.of("load", 90.0) == lineage.Path(90.0, ("its looks_back says so",))
    assert [known.of(query, 90.0).seconds for query in ("job:requests:2m", "rate(load)")] == [123.0, 90.0]
    assert known.of("rate(load[5m] @ 1)", 90.0).seconds == lineage.ENDLESS
    said = (f"its looks_back says so, because {elsewhere}",)
    assert known.of("avg_over_time(job:other[2m])", 90.0) == lineage.Path(120.0, said)
