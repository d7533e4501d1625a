# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far back a query counts, of servers that lie about their rules, or show none."""

from __future__ import annotations

import json

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server


class Liar:
    """A server of the test: what it says of its rules, and samples of any series."""

    def __init__(self, rules, gap=15.0, series=1, samples=3):
        self.rules = rules if isinstance(rules, (str, int)) else json.dumps({"status": "success", "data": rules})
        one = {"metric": {"instance": "a"}, "value": [1, "7"]}
        one["values"] = [[gap * number, "1"] for number in range(samples)]
        data = {"resultType": "vector", "result": [one] * series}
        self.samples = json.dumps({"status": "success", "data": data})
        self.asked = []

    def answer(self, handler):
        path = handler.path.partition("?")[0].rpartition("/v1/")[2]
        self.asked.append(path)
        if path == "status/buildinfo":
            prometheus_server.send(handler, '{"status": "success", "data": {"version": "2.24.0"}}')
        elif path == "rules" and isinstance(self.rules, int):
            prometheus_server.send(handler, "no such page", self.rules, "text/plain")
        else:
            prometheus_server.send(handler, self.rules if path == "rules" else self.samples)


def groups(*rules, interval=15):
    rules = [{"type": "recording", "health": "ok", **one} for one in rules]
    return {"groups": [{"name": "x", "interval": interval, "rules": rules}]}


def rule(query="1", name="a:b", **more):
    return {"name": name, "query": query, **more}


def found(liar, query="a:b", declared=None):
    with prometheus_server.serving(liar.answer) as url:
        try:
            return lineage.Lineage(prometheus.Prometheus(server.access({"url": url}.get))).of(query, declared)
        except lineage.NotKnownError as error:
            return str(error)


CHAIN = [rule(f"r{number + 1}", f"r{number}") for number in range(2000)]
WIDE = [rule(" + ".join(f"r{number}" for number in range(600))), *(rule("x", f"r{number}") for number in range(600))]
TOO_MANY = "is made of more rules than 30 over each other, or 500 in all"
OTHER = "is not that of a Prometheus server"
LIES = {
    "a circle": (groups(rule("rate(c[1m])"), rule("d", "c"), rule("{'a:b'} + 1", "d")), None),
    "a long chain": (groups(rule("r0"), *CHAIN), TOO_MANY),
    "no rules": ({"groups": []}, "shows no rules, and only Prometheus itself is known to have none then"),
    "no interval": ({"groups": [{"rules": [rule(type="recording")]}]}, OTHER),
    "many rules": (groups(*WIDE), TOO_MANY),
    "many selectors": (
        groups(rule(" + ".join(f"x{number}" for number in range(200)))),
        "it is made of the series of more than 30 selectors",
    ),
    "a query that is none": (groups(rule("\x1b[31m((((" + "(" * 5000)), "is not followed from "),
    "a part of its rules": ({**groups(rule()), "groupNextToken": "x"}, "shows only a part of its rules"),
    **{f"the interval {one}": (groups(rule(), interval=one), OTHER) for one in (0, -1e9, 1e300, "15s")},
    "a list as a name": (groups(rule(name=["a:b"])), OTHER),
    "groups that are none": ({"groups": [7, None]}, OTHER),
    "too many": (groups(*(rule(name="a" * 4000) for _number in range(1200))), "is larger than 4 MiB"),
    "nested": ('{"status": "success", "data": ' + "[" * 100_000, "its answer cannot be read"),
    "hidden": (403, "refuses access (status 403)"),
}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_about_its_rules_gets_a_sentence(lie):
    rules, said = LIES[lie]
    answer = found(Liar(rules))
    assert answer.seconds == lineage.ENDLESS if said is None else said in answer, answer
    assert "\x1b" not in str(answer) and len(str(answer)) < 900
    # What it hides or makes up is replaced by what the user says; what is known to have no end is not.
    assert found(Liar(rules), declared=90.0).seconds == (lineage.ENDLESS if said is None else 90.0)


def test_an_absurd_interval_is_what_it_says():
    assert found(Liar(groups(rule("time()"), interval=86400))).seconds == 86400
    assert found(Liar(groups(rule("x[30d] offset 900y"), interval=1e9))).seconds == lineage.ENDLESS
    assert found(Liar(groups(rule()), gap=1e-3), "x").seconds == 1e-3
    # A moment is a number, whatever it is.
    assert OTHER in found(Liar(groups(rule()), gap="1"), "x")
    assert "has fewer than two samples of x in 10 min" in found(Liar(groups(rule()), samples=1), "x")


def test_a_million_jobs_or_names_are_too_many():
    liar = Liar(groups(rule()), series=2000)
    assert "has series of 2000 jobs for x" in found(liar, "x")
    assert "has series of 2000 names for {x=" in found(liar, '{x="y"}')
