# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several boots of a host as one result: what differs between boots is not taken for SMT, and what was measured is all there."""

from __future__ import annotations

import copy
import datetime
import math
import random

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import boots, comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import decisions

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
ORDER = ["smt_on", "smt_off", "smt_off", "smt_on"]


def legs(pairs, scatter=0.0, seed=1):
    """What each boot of a host left, as smt_benchmark writes it where nothing is switched; each boot has a speed of its own."""
    source = random.Random(seed)
    made = []
    for number, arm in enumerate((ORDER * pairs)[: 2 * pairs], 1):
        whole = result_maker.result(blocks=5, seed=number)
        speed = math.exp(source.gauss(0, scatter))
        samples = [copy.deepcopy(sample) for sample in whole["samples"] if sample["arm"] == arm]
        for sample in samples:
            sample["arm"] = "as_found"
            sample["metrics"]["throughput"]["value"] *= speed
        whole.update(run=f"r-boot-{number}", samples=samples, arms=[result_maker.arm("as_found", "as found", True)], arms_left_out=[])
        whole["plan"]["placements"] = {"as_found": whole["plan"]["placements"][arm]}
        made.append(boots.BootResult(number, arm, whole))
    return made


def joined(pairs, scatter=0.0, after=None, **changes):
    made = legs(pairs, scatter)
    before = made[0].result["facts"]
    result = boots.join("r", made, pairs, before, before if after is None else after, changes.get("error"))
    results.accept(result, "joined")
    return result


def primary(result):
    return host_comparisons.of_smt(host_comparisons.compare_host(result))[0]


def test_one_boot_of_each_is_compared_and_called_confounded():
    result = joined(1)
    one = primary(result)
    assert one["confounded"] and one["n"] == 5 and one["ratio"] == pytest.approx(0.8, rel=0.01)
    actual = conclusion.conclude(result, host_comparisons.compare_host(result))
    assert actual["recommendation"] == conclusion.UNDECIDED
    assert "confounded with the reboot" in actual["sentence"] and "smt_eval_boots: 4" in actual["next"]
    assert recommendation.recommend(result, host_comparisons.compare_host(result))["choice"] == conclusion.UNDECIDED


def test_several_boots_are_judged_pair_by_pair():
    """Boots differ by 1 %: samples within them, which agree to 0.5 %, must not be taken for repetitions."""
    result = joined(6, scatter=0.01)
    one = primary(result)
    assert not one["confounded"] and one["n"] == 6
    assert one["verdict"] == "loss" and one["ci_low"] <= 0.8 * 1.002 and one["ci_high"] >= 0.8
    assert conclusion.conclude(result, host_comparisons.compare_host(result))["recommendation"] == conclusion.ON
    assert decisions.conclude(result, NOW).choice == conclusion.ON


def test_what_differs_between_boots_alone_is_rarely_called():
    called = 0
    for seed in range(20):
        source = random.Random(seed)
        # Each boot has SMT on, whatever it is called, and a speed of its own.
        made = [leg._replace(result=copy.deepcopy(leg.result)) for leg in [legs(1)[0]] * 8]
        made = [leg._replace(number=number, arm=arm) for number, (leg, arm) in enumerate(zip(made, ORDER * 2), 1)]
        for leg in made:
            speed = source.gauss(0, 0.03)
            for sample in leg.result["samples"]:
                sample["metrics"]["throughput"]["value"] *= math.exp(speed + source.gauss(0, 0.002))
        result = boots.join("r", made, 4, made[0].result["facts"], made[0].result["facts"])
        called += primary(result)["verdict"] in ("gain", "loss")
    assert called <= 3


def test_placements_keep_their_blocks_within_a_boot():
    result = joined(2)
    sharing = next(one for one in host_comparisons.compare_host(result) if one["effect"] == "cost_of_sharing")
    assert sharing["n"] == 10 and not sharing["confounded"]


def test_every_sample_keeps_its_boot():
    made = legs(2)
    result = joined(2)
    assert len(result["samples"]) == sum(len(leg.result["samples"]) for leg in made)
    assert {(sample["boot"], sample["pair"], sample["arm"]) for sample in result["samples"]} == {
        (1, 0, "smt_on"),
        (2, 0, "smt_off"),
        (3, 1, "smt_off"),
        (4, 1, "smt_on"),
    }
    assert result["outcome"] == "completed" and result["restored"]["ok"]


def test_a_boot_that_left_nothing_breaks_its_pair_alone():
    made = legs(3)
    facts = made[0].result["facts"]
    del made[2]
    result = boots.join("r", made, 3, facts, facts, "boot 3: no space")
    assert (result["outcome"], result["message"]) == ("failed", "boot 3: no space")
    assert primary(result)["n"] == 2


def test_a_host_that_is_not_booted_as_before_is_not_done():
    made = legs(1)
    facts = made[0].result["facts"]
    result = boots.join("r", made, 1, facts, None)
    assert result["outcome"] == "interrupted" and result["restored"] is None


def test_what_is_not_as_before_is_named():
    facts = result_maker.result()["facts"]
    after = copy.deepcopy(facts)
    after["control"] = "off"
    after["boot"]["configured"] = ["nosmt"]
    result = joined(1, after=after)
    assert result["restored"]["differences"] == ["smt/control: on before, off now", "the next boot's arguments: none before, nosmt now"]
    assert not result["restored"]["ok"]
