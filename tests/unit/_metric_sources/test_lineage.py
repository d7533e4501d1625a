# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far back a query counts, of a real Prometheus with recording rules; and of servers that lie about their rules,
or show none.
"""

from __future__ import annotations

import json
import urllib.parse

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server

RULES = [
    {
        "name": "first",
        "interval": "2s",
        "rules": [
            {"record": "job:requests:2m", "expr": "sum(rate(requests_total[2m]))"},
            {"record": "nested", "expr": 'avg_over_time({__name__="job:requests:2m"}[30s] offset 5s)'},
            {"record": "window", "expr": "sum(rate(requests_total[1h]))", "labels": {"window": "1h"}},
            {"record": "selfish", "expr": "max(selfish) or vector(1)"},
            {"record": "clock", "expr": "time()"},
            {"alert": "Loaded", "expr": "load > 0"},
        ],
    },
    {
        "name": "second",
        "interval": "3s",
        "rules": [
            {"record": "window", "expr": "sum(rate(requests_total[1m]))", "labels": {"window": "1m"}},
            # Made of another series of the same name.
            {"record": "sums", "expr": 'sum(sums{level="low"})', "labels": {"level": "high"}},
            {"record": "sums", "expr": "sum(load)", "labels": {"level": "low"}},
        ],
    },
]


def source(url):
    return prometheus.Prometheus(server.access({"url": url}.get))


@pytest.fixture(name="url", scope="module")
def a_server_with_rules(tmp_path_factory):
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = 'requests_total{path="a"} 5\nrequests_total{path="b{,} \\"x\\""} 7\nload 1\n'
    with prometheus_server.serving(exporter.answer) as address:
        directory = tmp_path_factory.mktemp("prometheus")
        with prometheus_server.prometheus(directory, [address.removeprefix("http://")], rules=RULES) as url:
            exporter.wait(6)
            yield url


@pytest.mark.night(after=3)
@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("load", 1),
        ("rate(requests_total[20s])", 21),
        ('sum(rate(requests_total{path="b{,} \\"x\\"",}[20s]))', 21),
        ("job:requests:2m", 2 + 120 + 1),
        ("load + on () job:requests:2m", 2 + 120 + 1),
        ("avg_over_time(job:requests:2m[5m])", 300 + 2 + 120 + 1),
        ("last_over_time(job:requests:2m[10s] offset -1m)", 10 + 2 + 120 + 1),
        ("max_over_time(rate(job:requests:2m[10s])[30s:])", 40 + 2 + 120 + 1),
        # A rule over a rule of its group may see what that one made an evaluation earlier.
        ("nested", 2 + 30 + 5 + 2 * 2 + 120 + 1),
        ('{__name__=~"load|job:.*"}', 2 + 120 + 1),
        ('{__name__=~"lo.*"}', 1),
        ('label_replace(load, "__name__", "job:requests:2m", "", "")', 1),
        ('window{window="1m"}', 3 + 60 + 1),
        ('window{window!="1h"}', 3 + 60 + 1),
        ("window", 2 + 3600 + 1),
        ('sums{level="high"}', 3 + 2 * 3 + 1),
        ("selfish", lineage.ENDLESS),
        ("load @ 1", lineage.ENDLESS),
        ("clock", 2),
        # Nothing is known of what is not there, but its range.
        ("rate(errors_total[30s]) or vector(0)", 30),
        ("time()", 0),
    ],
)
def test_how_far_back_a_query_of_a_real_server_counts(url, query, seconds):
    assert lineage.Lineage(source(url)).of(query).seconds == pytest.approx(seconds)


def test_it_says_what_makes_it_so(url):
    assert lineage.Lineage(source(url)).of("max(nested)").said == (
        "the rule nested is evaluated every 2 s and looks back 35 s",
        "the rule job:requests:2m is evaluated every 2 s and looks back 2 min",
        "requests_total has a sample every 1 s",
    )
    assert lineage.Lineage(source(url)).of("selfish").said[-1] == "the rule selfish is made of its own values"


def test_rules_that_are_elsewhere_are_not_known_by_their_names(url):
    with pytest.raises(
        lineage.NotKnownError,
        match=r"^job:other has the name of a rule's series, and no rule of the metrics server makes it$",
    ):
        lineage.Lineage(source(url)).of("job:other")


def test_what_the_user_says_counts_where_it_is_more(url):
    known = lineage.Lineage(source(url))
    assert known.of("load", 90.0) == lineage.Path(90.0, ("its looks_back says so",))
    assert known.of("job:requests:2m", 90.0).seconds == 123.0
    assert known.of("rate(load[5m] @ 1)", 90.0).seconds == lineage.ENDLESS
    said = (
        "its looks_back says so, because job:other has the name of a rule's series, and no rule of the metrics server"
        " makes it"
    )
    assert known.of("avg_over_time(job:other[2m])", 90.0) == lineage.Path(120.0, (said,))
    assert known.of("rate(load)", 90.0).seconds == 90.0


class Liar:
    """A server of the test: what it says of its rules, and samples of any series."""

    def __init__(self, rules, gap=15.0, series=1):
        self.rules, self.gap, self.series = rules, gap, series
        self.asked = []

    def answer(self, handler):
        path, _mark, wanted = handler.path.partition("?")
        self.asked.append((path, dict(urllib.parse.parse_qsl(wanted))))
        if path.endswith("/rules"):
            if callable(self.rules):
                return self.rules(handler)
            return prometheus_server.send(
                handler,
                self.rules if isinstance(self.rules, str) else json.dumps({"status": "success", "data": self.rules}),
            )
        if path.endswith("/buildinfo"):
            return prometheus_server.send(handler, '{"status": "success", "data": {"version": "2.24.0"}}')
        one = {
            "metric": {"instance": "a"},
            "value": [1, "7"],
            "values": [[self.gap * number, "1"] for number in range(3)],
        }
        return prometheus_server.send(
            handler, json.dumps({"status": "success", "data": {"resultType": "vector", "result": [one] * self.series}})
        )


def groups(*rules, interval=15):
    return {
        "groups": [
            {
                "name": "x",
                "interval": interval,
                "rules": [{"type": "recording", "health": "ok", **one} for one in rules],
            }
        ]
    }


def found(liar, query="a:b", declared=None):
    with prometheus_server.serving(liar.answer) as url:
        try:
            return lineage.Lineage(source(url)).of(query, declared)
        except lineage.NotKnownError as error:
            return str(error)


CHAIN = [{"name": f"r{number}", "query": f"r{number + 1}"} for number in range(2000)]
WIDE = [
    {"name": "a:b", "query": " + ".join(f"r{number}" for number in range(600))},
    *({"name": f"r{number}", "query": "x"} for number in range(600)),
]
LIES = {
    "a rule of its own": (groups({"name": "a:b", "query": "a:b"}), None),
    "a circle": (
        groups(
            {"name": "a:b", "query": "rate(c[1m])"}, {"name": "c", "query": "d"}, {"name": "d", "query": "{'a:b'} + 1"}
        ),
        None,
    ),
    "a long chain": (
        groups({"name": "a:b", "query": "r0"}, *CHAIN),
        "is made of more rules than 30 over each other, or 500 in all",
    ),
    "many rules": (groups(*WIDE), "is made of more rules than 30 over each other, or 500 in all"),
    "many selectors": (
        groups({"name": "a:b", "query": " + ".join(f"x{number}" for number in range(200))}),
        "it is made of the series of more than 30 selectors",
    ),
    "a query that is none": (groups({"name": "a:b", "query": "\x1b[31m((((" + "(" * 5000}), "is not followed from "),
    "no rules": ({"groups": []}, "shows no rules, and only Prometheus itself is known to have none then"),
    "a part of its rules": (
        {**groups({"name": "a:b", "query": "1"}), "groupNextToken": "x"},
        "shows only a part of its rules",
    ),
    "no interval": (
        {"groups": [{"rules": [{"type": "recording", "name": "a:b", "query": "1"}]}]},
        "is not that of a Prometheus server",
    ),
    "no time": (groups({"name": "a:b", "query": "1"}, interval=0), "is not that of a Prometheus server"),
    "less than no time": (groups({"name": "a:b", "query": "1"}, interval=-1e9), "is not that of a Prometheus server"),
    "more than all time": (groups({"name": "a:b", "query": "1"}, interval=1e300), "is not that of a Prometheus server"),
    "a time in words": (groups({"name": "a:b", "query": "1"}, interval="15s"), "is not that of a Prometheus server"),
    "a list as a name": (groups({"name": ["a:b"], "query": "1"}), "is not that of a Prometheus server"),
    "a label that is a list": (
        groups({"name": "a:b", "query": "1", "labels": {"x": []}}),
        "is not that of a Prometheus server",
    ),
    "groups that are none": ({"groups": [7, None]}, "is not that of a Prometheus server"),
    "no groups": ({"rules": []}, "is not that of a Prometheus server"),
    "something else": ("[]", "refuses the query (status 200): it does not say why"),
    "too many": (groups(*({"name": "a" * 4000, "query": "1"} for _number in range(1200))), "is larger than 4 MiB"),
    "nested": ('{"status": "success", "data": ' + "[" * 100_000, "its answer cannot be read"),
    "hidden": (lambda handler: prometheus_server.send(handler, "", 403, "text/plain"), "refuses access (status 403)"),
    "not there": (
        lambda handler: prometheus_server.send(handler, "no such page", 404, "text/plain"),
        "answers with text/plain and status 404",
    ),
}


@pytest.mark.night(after=3)
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_about_its_rules_gets_a_sentence(lie):
    rules, said = LIES[lie]
    answer = found(Liar(rules))
    assert answer.seconds == lineage.ENDLESS if said is None else said in answer, answer
    assert "\x1b" not in str(answer) and len(str(answer)) < 900
    # What it hides or makes up is replaced by what the user says; what is known to have no end is not.
    assert found(Liar(rules), declared=90.0).seconds == (lineage.ENDLESS if said is None else 90.0)


def test_an_absurd_interval_is_what_it_says():
    assert found(Liar(groups({"name": "a:b", "query": "time()"}, interval=86400))).seconds == 86400
    assert found(Liar(groups({"name": "a:b", "query": "x[30d] offset 900y"}, interval=1e9))).seconds == lineage.ENDLESS
    assert found(Liar(groups({"name": "a", "query": "1"}), gap=1e-3), "x").seconds == 1e-3
    # A moment is a number, whatever it is.
    assert "is not that of a Prometheus server" in found(Liar(groups({"name": "a", "query": "1"}), gap="1"), "x")


def test_rules_are_asked_for_once_and_each_selector_once():
    liar = Liar(groups({"name": "a:b", "query": "x + x[1m] + c"}, {"name": "c", "query": "x"}))
    assert found(liar, "a:b + a:b + x + c").seconds == 15 + 60 + 15
    paths = [path.rpartition("/v1/")[2] for path, _wanted in liar.asked]
    assert paths == ["rules", "query", "query"]


def test_a_million_jobs_or_names_are_too_many():
    liar = Liar(groups({"name": "a", "query": "1"}), series=2000)
    assert "has series of 2000 jobs for x" in found(liar, "x")
    assert "has series of 2000 names for {x=" in found(liar, '{x="y"}')


def test_too_few_samples_to_say_are_no_interval(tmp_path):
    exporter = prometheus_server.Exporter()

    def answer(handler):
        exporter.text = "other 1\n" if exporter.scrapes else "load 1\n"
        exporter.answer(handler)

    with (
        prometheus_server.serving(answer) as address,
        prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")]) as url,
    ):
        exporter.wait(2)
        with pytest.raises(lineage.NotKnownError, match="has fewer than two samples of load in 10 min"):
            lineage.Lineage(source(url)).of("load")
