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


def recommended(licence=None, vulnerable=True, **options):
    result = result_maker.result(**options)
    if not vulnerable:
        result["facts"]["vulnerabilities"] = {}
    return recommendation.recommend(analysed(result), licence)


def about(made, kind):
    return [reason for reason in made["reasons"] if reason["about"] == kind]


def test_performance_chooses_and_a_vulnerability_contradicts():
    made = recommended()
    assert (made["choice"], made["decided_by"], made["agreed"]) == ("on", "performance", False)
    assert [reason["points_to"] for reason in about(made, "performance")] == ["on"]
    assert [(reason["name"], reason["points_to"]) for reason in about(made, "vulnerability")] == [("mds", "off")]
    assert recommended(vulnerable=False)["agreed"] is True


def test_other_reasons_decide_only_between_equals():
    made = recommended(workloads=EVEN, noise=0.001)
    assert (made["choice"], made["decided_by"], made["agreed"]) == ("off", "other reasons", True)
    made = recommended(workloads=EVEN, noise=0.001, vulnerable=False)
    assert (made["choice"], made["decided_by"], made["agreed"]) == ("either", None, False)
    torn = recommended(Licence("core", 10.0), workloads={"even": {**EVEN["even"], "share": 0.498}}, noise=0.0005)
    assert torn["choice"] == "off" and about(torn, "licence")[0]["points_to"] == "off"


def test_what_is_not_decided_stays_so_and_says_what_to_measure():
    made = recommended(workloads=EVEN, noise=0.03, blocks=6)
    assert made["choice"] == "undecided" and made["agreed"] is False and made["decided_by"] is None
    assert (
        made["measure"]["blocks"] > 6 and made["measure"]["seconds"] > 0 and "measure about" in made["measure"]["text"]
    )
    assert recommended()["measure"] is None


def test_without_a_comparison_nothing_is_chosen():
    made = recommended(compared=False, reason="not switched")
    assert made["choice"] == "not_compared" and made["agreed"] is False and about(made, "performance") == []


@pytest.mark.parametrize(
    ("per", "licences", "points_to"), [("thread", {"on": 8, "off": 4}, "off"), ("core", {"on": 4, "off": 4}, "on")]
)
def test_licences_are_weighed_by_the_work_they_buy(per, licences, points_to):
    """SMT off does 0.8 of the work: half the licences for it are cheaper by work, as many are dearer."""
    reason = about(recommended(Licence(per, 100.0)), "licence")[0]
    assert reason["licences"] == licences and reason["points_to"] == points_to
    assert reason["price"] == {side: 100.0 * count for side, count in licences.items()}


def test_licences_of_an_unknown_machine_are_not_guessed():
    result = result_maker.result()
    result["facts"].update(sibling_groups=[], hardware_class=None)
    reason = about(
        recommendation.recommend(analysed(result), Licence("thread", 1.0)),
        "licence",
    )[0]
    assert reason["points_to"] is None and "not known" in reason["text"]
