# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recommendation for programs: never stronger than performance allows, every reason with the side it points to."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.recommendation import Licence
from result_maker import analysed

EVEN = {"even": {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "even work"}}
TAIL = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
WAITS = {"title": "web", "metrics": TAIL, "model": lambda arm, _s, ws: [10.0 if arm == "smt_off" else 25.0] * len(ws)}


def recommended(licence=None, vulnerable=True, facts=None, **options):
    result = result_maker.result(**options)
    result["facts"].update(facts or {}, **({} if vulnerable else {"vulnerabilities": {}}))
    return recommendation.recommend(analysed(result), licence)


def about(made, kind):
    return [reason for reason in made["reasons"] if reason["about"] == kind]


@pytest.mark.parametrize(
    ("options", "expected", "points_to"),
    [
        # A vulnerability contradicts what performance chooses, and decides only between equals.
        ({}, ("on", "performance", False), ["on"]),
        ({"vulnerable": False}, ("on", "performance", True), ["on"]),
        ({"workloads": EVEN, "noise": 0.001}, ("off", "other reasons", True), [None]),
        ({"workloads": EVEN, "noise": 0.001, "vulnerable": False}, ("either", None, False), [None]),
        ({"workloads": EVEN, "noise": 0.03, "blocks": 6}, ("undecided", None, False), [None]),
        ({"compared": False, "reason": "not switched"}, ("not_compared", None, False), []),
    ],
)
def test_performance_chooses_before_all_else(options, expected, points_to):
    made = recommended(**options)
    assert (made["choice"], made["decided_by"], made["agreed"]) == expected
    assert [reason["points_to"] for reason in about(made, "performance")] == points_to
    asked = [] if options.get("vulnerable") is False else [("mds", "off")]
    assert [(reason["name"], reason["points_to"]) for reason in about(made, "vulnerability")] == asked
    measure = made["measure"]
    assert (measure is not None) == (made["choice"] == "undecided")
    if measure:
        assert measure["blocks"] > 6 and measure["seconds"] > 0 and f"about {measure['blocks']}" in measure["text"]


@pytest.mark.parametrize(
    ("per", "licences", "points_to"), [("thread", {"on": 8, "off": 4}, "off"), ("core", {"on": 4, "off": 4}, "on")]
)
def test_licences_are_weighed_by_the_work_they_buy(per, licences, points_to):
    """SMT off does 0.8 of the work: half the licences for it are cheaper by work, as many are dearer."""
    (reason,) = about(recommended(Licence(per, 100.0)), "licence")
    assert reason["licences"] == licences and reason["points_to"] == points_to
    assert reason["price"] == {side: 100.0 * count for side, count in licences.items()}
    assert per == "thread" or "for the same work SMT off costs 1.25 times" in reason["text"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"facts": {"sibling_groups": [], "hardware_class": None}}, "not known"),
        # A time of each worker is no work.
        ({"workloads": {"web": WAITS}}, ""),
    ],
)
def test_what_licences_buy_is_not_guessed(options, words):
    (reason,) = about(recommended(Licence("thread", 1.0), **options), "licence")
    assert reason["points_to"] is None and words in reason["text"] and "same work" not in reason["text"]
