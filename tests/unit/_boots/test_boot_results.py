# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several boots of a host as one result: what differs between boots is not taken for SMT,
and what was measured is all there.
"""

from __future__ import annotations

import copy
import datetime
import math
import random

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._boots import boot_plan, boot_results
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions
from result_maker import accepted, analysed, compared

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
ORDER = ["smt_on", "smt_off", "smt_off", "smt_on"]


def planned(boots, arms=("smt_on", "smt_off")):
    return boot_plan.make(arms, boots)


def legs(pairs, scatter=0.0, seed=1):
    """What each boot of a host left, as smt_benchmark writes it where nothing is switched;
    each boot has a speed of its own.
    """
    source = random.Random(seed)
    made = []
    for number, arm in enumerate((ORDER * pairs)[: 2 * pairs], 1):
        whole = result_maker.result(blocks=5, seed=number)
        speed = math.exp(source.gauss(0, scatter))
        samples = [copy.deepcopy(sample) for sample in whole["samples"] if sample["arm"] == arm]
        for sample in samples:
            sample["arm"] = "as_found"
            sample["metrics"]["throughput"]["value"] *= speed
        whole.update(
            run=f"r-boot-{number}",
            samples=samples,
            arms=[result_maker.arm("as_found", "as found", True)],
            arms_left_out=[],
        )
        whole["plan"]["placements"] = {"as_found": whole["plan"]["placements"][arm]}
        made.append(boot_results.BootResult(number, arm, whole))
    return made


def joined(pairs, scatter=0.0, after=None, **changes):
    made = legs(pairs, scatter)
    before = made[0].result["facts"]
    result = boot_results.join(
        "r", made, planned(pairs), before, before if after is None else after, changes.get("error")
    )
    results.accept(result, "joined")
    return result


def primary(result):
    return host_comparisons.of_smt(compared(result))[0]


def test_one_boot_of_each_is_compared_and_called_confounded():
    result = joined(1)
    one = primary(result)
    assert one["confounded"] and one["n"] == 5 and one["ratio"] == pytest.approx(0.8, rel=0.01)
    actual = conclusion.conclude(analysed(result))
    assert actual["recommendation"] == conclusion.UNDECIDED
    assert "confounded with the reboot" in actual["sentence"] and "smt_eval_boots: 4" in actual["next"]
    assert recommendation.recommend(analysed(result))["choice"] == conclusion.UNDECIDED


def test_several_boots_are_judged_pair_by_pair():
    """Boots differ by 1 %: samples within them, which agree to 0.5 %, must not be taken for repetitions."""
    result = joined(6, scatter=0.01)
    one = primary(result)
    assert not one["confounded"] and one["n"] == 6
    assert one["verdict"] == "loss" and one["ci_low"] <= 0.8 * 1.002 and one["ci_high"] >= 0.8
    assert conclusion.conclude(analysed(result))["recommendation"] == conclusion.ON
    assert decisions.conclude(accepted(result), NOW).choice == conclusion.ON


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
        result = boot_results.join("r", made, planned(4), made[0].result["facts"], made[0].result["facts"])
        called += primary(result)["verdict"] in ("gain", "loss")
    assert called <= 3


def test_placements_keep_their_blocks_within_a_boot():
    result = joined(2)
    sharing = next(one for one in compared(result) if one["effect"] == "cost_of_sharing")
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
    result = boot_results.join("r", made, planned(3), facts, facts, "boot 3: no space")
    assert (result["outcome"], result["message"]) == ("failed", "boot 3: no space")
    assert primary(result)["n"] == 2


def test_a_host_that_is_not_booted_as_before_is_not_done():
    made = legs(1)
    facts = made[0].result["facts"]
    result = boot_results.join("r", made, planned(1), facts, None)
    assert result["outcome"] == "interrupted" and result["restored"] is None


def test_what_is_not_as_before_is_named():
    facts = result_maker.result()["facts"]
    after = copy.deepcopy(facts)
    after["control"] = "off"
    after["boot"]["configured"] = ["nosmt"]
    result = joined(1, after=after)
    assert result["restored"]["differences"] == [
        "smt/control: on before, off now",
        "the next boot's arguments: none before, nosmt now",
    ]
    assert not result["restored"]["ok"]


MIXED = ["smt_on", "smt_off", "nosmt"]


def mixed(boots_each, scatter=0.0, noise=0.01):
    """What boots of [smt_on, smt_off, nosmt] leave: the baseline's boots have two arms that alternate,
    each boot has a speed of its own.
    """
    plan = planned(boots_each, MIXED)
    source = random.Random(7)
    made = []
    for number, arm in enumerate(plan.order, 1):
        whole = result_maker.result(blocks=5, seed=number, noise=noise)
        speed = math.exp(source.gauss(0, scatter))
        if arm == "nosmt":
            kept = [sample for sample in whole["samples"] if sample["arm"] == "smt_off"]
            for sample in kept:
                sample["arm"] = "as_found"
            whole["arms"] = [result_maker.arm("as_found", "as found", True)]
            whole["plan"]["placements"] = {"as_found": whole["plan"]["placements"]["smt_off"]}
            whole["facts"].update(control="off", active=False)
            whole["samples"] = kept
        for sample in whole["samples"]:
            sample["metrics"]["throughput"]["value"] *= speed
        whole["environment"]["cmdline"] = f"quiet {'nosmt' if arm == 'nosmt' else ''}".strip()
        made.append(boot_results.BootResult(number, arm, whole))
    return made, plan


def joined_mix(boots_each, scatter=0.0, made=None):
    legs_of_all, plan = mixed(boots_each, scatter)
    legs_of_all = made(legs_of_all) if made else legs_of_all
    facts = mixed(1)[0][0].result["facts"]
    result = boot_results.join("r", legs_of_all, plan, facts, facts)
    results.accept(result, "mixed")
    return result


def whole_machine(result, arm):
    return next(
        one
        for one in compared(result)
        if one["kind"] == "arm" and one["effect"] == arm and one["placement"] == "all_threads"
    )


def test_what_was_switched_within_boots_rests_on_blocks_and_what_was_booted_on_boots():
    """Boots differ by 5 %: arms within one boot do not, so their interval is narrow,
    and that of booted arms is wide.
    """
    result = joined_mix(4, scatter=0.05)
    assert [arm["name"] for arm in result["arms"]] == MIXED and result["plan"]["booted"] == ["smt_on", "nosmt"]
    within, booted = whole_machine(result, "smt_off"), whole_machine(result, "nosmt")
    assert (within["basis"], within["n"]) == ("blocks", 20) and (booted["basis"], booted["n"]) == ("boots", 4)
    assert not within["confounded"] and not booted["confounded"]
    assert 4 * (within["ci_high"] - within["ci_low"]) < booted["ci_high"] - booted["ci_low"]


@pytest.mark.parametrize("others", [("smt_off", "nosmt"), ("nosmt", "smt_off")], ids="-".join)
def test_a_booted_arm_against_one_that_was_switched_within_other_boots_rests_on_boots(others):
    result = joined_mix(4, scatter=0.05)
    result["arms"].sort(key=lambda arm: ("smt_on", *others).index(arm["name"]))
    found = compared(result, compare="all")
    sides = {
        (one["baseline"]["arm"], one["candidate"]["arm"]): one
        for one in found
        if one["kind"] == "arm" and one["placement"] == "all_threads"
    }
    assert (sides[others]["basis"], sides[others]["n"]) == ("boots", 4)
    assert sides["smt_on", "smt_off"]["basis"] == "blocks"


def test_one_boot_of_each_confounds_only_what_was_booted():
    result = joined_mix(1)
    assert not whole_machine(result, "smt_off")["confounded"] and whole_machine(result, "nosmt")["confounded"]
    assert all(one["basis"] == "blocks" for one in compared(result) if one["kind"] == "placement")


def test_results_from_before_there_were_other_arms_rest_on_boots():
    result = joined(2)
    del result["plan"]["booted"]
    assert primary(result)["basis"] == "boots"


def test_each_booted_arm_keeps_what_the_kernel_showed():
    observed = {one["arm"]: one for one in joined_mix(2)["observations"]}
    assert set(observed) == {"smt_on", "nosmt"}
    assert (
        observed["nosmt"]["cmdline"] == "quiet nosmt"
        and observed["nosmt"]["smt"]["control"] == "off"
        and not observed["nosmt"]["smt"]["active"]
    )
    assert observed["smt_on"]["vulnerabilities"] == mixed(1)[0][0].result["facts"]["vulnerabilities"]


def test_what_was_seen_within_a_boot_is_kept_beside_it():
    def with_memory(legs_of_all):
        legs_of_all[0].result["observations"] = [
            {"arm": "smt_off", "asked_bytes": 1},
            {"arm": "smt_on", "asked_bytes": 2},
        ]
        return legs_of_all

    observed = {one["arm"]: one for one in joined_mix(1, made=with_memory)["observations"]}
    assert (
        observed["smt_off"]["asked_bytes"] == 1
        and observed["smt_on"]["asked_bytes"] == 2
        and observed["smt_on"]["cmdline"] == "quiet"
    )


def test_an_arm_that_the_booted_host_could_not_be_switched_to_is_left_out_with_its_reason():
    def unswitched(legs_of_all):
        for one in legs_of_all:
            result = one.result
            if one.arm == "smt_on":
                for sample in result["samples"]:
                    sample["arm"] = {"smt_on": "as_found"}.get(sample["arm"])
                result["samples"] = [sample for sample in result["samples"] if sample["arm"]]
                result["plan"]["placements"] = {"as_found": result["plan"]["placements"]["smt_on"]}
                result["arms"] = [result_maker.arm("as_found", "as found", True)]
                result["arms_left_out"] = [
                    {"name": name, "title": name, "reason": "conflicts"} for name in ("smt_on", "smt_off")
                ]
        return legs_of_all

    result = joined_mix(2, made=unswitched)
    assert [arm["name"] for arm in result["arms"]] == ["smt_on", "nosmt"]
    assert result["arms_left_out"] == [{"name": "smt_off", "title": "smt_off", "reason": "conflicts"}]
    assert whole_machine(result, "nosmt")["n"] == 2


def test_four_arms_are_joined_round_by_round():
    asked = ["smt_on", "maxcpus_4", "nosmt", "mitigations_auto_nosmt"]
    plan = planned(2, asked)
    made = []
    for number, arm in enumerate(plan.order, 1):
        leg = copy.deepcopy(legs(1)[0 if arm in ("smt_on", "mitigations_auto_nosmt") else 1])
        made.append(leg._replace(number=number, arm=arm))
    facts = made[0].result["facts"]
    result = boot_results.join("r", made, plan, facts, facts)
    results.accept(result, "four")
    assert result["outcome"] == "completed" and {(sample["pair"], sample["arm"]) for sample in result["samples"]} == {
        (r, a) for r in (0, 1) for a in asked
    }
    assert [arm["settings"] for arm in result["arms"]][1] == {"boot_argument": "maxcpus=4"}
    assert {arm: whole_machine(result, arm)["n"] for arm in asked[1:]} == dict.fromkeys(asked[1:], 2)


def test_mitigations_that_are_not_as_before_are_named():
    made = legs(1)
    facts = made[0].result["facts"]
    result = boot_results.join("r", made, planned(1), facts, facts, None, [[], ["mitigations=off"]])
    assert (
        result["restored"]["differences"] == ["the running kernel's mitigations: none before, mitigations=off now"]
        and not result["restored"]["ok"]
    )
