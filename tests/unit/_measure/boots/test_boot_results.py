# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several boots of a host as one result: what differs between boots is not taken for SMT, and nothing is lost."""

import copy
import datetime
import math
import random

import facts_maker
import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan, boot_results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from result_maker import accepted, analysed, compared

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
ORDER = ["smt_on", "smt_off", "smt_off", "smt_on"]


def planned(boots, arms=("smt_on", "smt_off")):
    return boot_plan.make(arms, boots)


def of_one_arm(whole, arm, speed=1.0):
    """Make of a result one in which a boot was measured as it was found, as smt_benchmark writes it."""
    samples = [copy.deepcopy(sample) for sample in whole["samples"] if sample["arm"] == arm]
    for sample in samples:
        sample["arm"] = "as_found"
        sample["metrics"]["throughput"]["value"] *= speed
    placements = {"as_found": whole["plan"]["placements"][arm]}
    arms = {"arms": [result_maker.arm("as_found", "as found", True)], "arms_left_out": []}
    return {**whole, **arms, "samples": samples, "plan": {**whole["plan"], "placements": placements}}


def legs(pairs, scatter=0.0, seed=1):
    """What each boot of a host left; each boot has a speed of its own."""
    source, made = random.Random(seed), []
    for number, arm in enumerate((ORDER * pairs)[: 2 * pairs], 1):
        whole = {**result_maker.result(blocks=5, seed=number), "run": f"r-boot-{number}"}
        found = of_one_arm(whole, arm, math.exp(source.gauss(0, scatter)))
        made.append(boot_results.BootResult(number, arm, accepted(found)))
    return made


FACTS = legs(1)[0].result.facts


def joined(made, plan=None, after=FACTS, error=None, mitigations=()):
    result = boot_results.join("r", made, plan or planned(len(made) // 2), FACTS, after, error, mitigations)
    results.accept(result, "joined")
    return result


def primary(result):
    return analysed(result).of_smt[0].described()


def test_one_boot_of_each_is_confounded_and_several_are_judged_pair_by_pair():
    result = joined(legs(1))
    one = primary(result)
    assert one["confounded"] and one["n"] == 5 and one["ratio"] == pytest.approx(0.8, rel=0.01)
    actual = conclusion.conclude(analysed(result))
    assert actual.recommendation == conclusion.UNDECIDED and "smt_eval_boots: 4" in actual.next
    assert recommendation.recommend(analysed(result)).choice == conclusion.UNDECIDED
    # Boots differ by 1 %: samples within them, which agree to 0.5 %, must not be taken for repetitions.
    result = joined(legs(6, scatter=0.01))
    one = primary(result)
    assert (one["confounded"], one["n"], one["verdict"], one["basis"]) == (False, 6, "loss", "boots")
    assert one["ci_low"] <= 0.8 * 1.002 and one["ci_high"] >= 0.8
    assert conclusion.conclude(analysed(result)).recommendation == conclusion.ON
    assert decisions.conclude(accepted(result), NOW).choice == conclusion.ON
    # So are results from before there were other arms.
    del result["plan"]["booted"]
    assert primary(result)["basis"] == "boots"


def test_what_differs_between_boots_alone_is_rarely_called():
    called = 0
    for seed in range(night.number(8, 20)):
        source = random.Random(seed)
        # Each boot has SMT on, whatever it is called, and a speed of its own.
        found, made = of_one_arm(result_maker.result(blocks=5, seed=1), "smt_on"), []
        for number, arm in enumerate(ORDER * 2, 1):
            speed, again = source.gauss(0, 0.03), copy.deepcopy(found)
            for sample in again["samples"]:
                sample["metrics"]["throughput"]["value"] *= math.exp(speed + source.gauss(0, 0.002))
            made.append(boot_results.BootResult(number, arm, accepted(again)))
        called += primary(joined(made))["verdict"] in ("gain", "loss")
    assert called <= 2


def test_every_sample_keeps_its_boot_and_placements_their_blocks_within_it():
    made = legs(2)
    result = joined(made)
    assert len(result["samples"]) == sum(len(leg.result.samples) for leg in made)
    found = {(sample["boot"], sample["pair"], sample["arm"]) for sample in result["samples"]}
    assert found == {(1, 0, "smt_on"), (2, 0, "smt_off"), (3, 1, "smt_off"), (4, 1, "smt_on")}
    assert result["outcome"] == "completed" and result["restored"]["ok"]
    sharing = next(one for one in compared(result) if one["effect"] == "cost_of_sharing")
    assert sharing["n"] == 10 and not sharing["confounded"]


def test_what_is_missing_or_not_as_before_is_named():
    made = legs(3)
    del made[2]
    result = joined(made, planned(3), error="boot 3: no space")
    assert (result["outcome"], result["message"], primary(result)["n"]) == ("failed", "boot 3: no space", 2)
    result = joined(legs(1), after=None)
    assert result["outcome"] == "interrupted" and result["restored"] is None
    after = facts_maker.made(parts.plain(FACTS), control="off", boot={"configured": ["nosmt"]})
    restored = joined(legs(1), after=after, mitigations=[[], ["mitigations=off"]])["restored"]
    changed = {"smt/control": "on before, off", "the next boot's arguments": "none before, nosmt"}
    changed["the running kernel's mitigations"] = "none before, mitigations=off"
    assert not restored["ok"]
    assert restored["differences"] == [f"{what}: {how} now" for what, how in changed.items()]


MIXED = ["smt_on", "smt_off", "nosmt"]


def joined_mix(boots_each, scatter=0.0, change=None):
    """Boots of [smt_on, smt_off, nosmt]: the baseline's have two arms that alternate, each boot a speed of its own."""
    plan, source, made = planned(boots_each, MIXED), random.Random(7), []
    for number, arm in enumerate(plan.order, 1):
        whole, speed = result_maker.result(blocks=5, seed=number, noise=0.01), math.exp(source.gauss(0, scatter))
        if arm == "nosmt":
            whole = of_one_arm(whole, "smt_off")
            whole["facts"].update(control="off", active=False)
        for sample in whole["samples"]:
            sample["metrics"]["throughput"]["value"] *= speed
        whole["environment"]["cmdline"] = f"quiet {'nosmt' if arm == 'nosmt' else ''}".strip()
        made.append(boot_results.BootResult(number, arm, accepted(change(arm, whole) if change else whole)))
    return joined(made, plan)


def whole_machine(result, **how):
    """Of each pair of arms the comparison on all threads."""
    found = [one for one in compared(result, **how) if one["kind"] == "arm" and one["placement"] == "all_threads"]
    return {(one["baseline"]["arm"], one["candidate"]["arm"]): one for one in found}


def test_what_was_switched_within_boots_rests_on_blocks_and_what_was_booted_on_boots():
    """Boots differ by 5 %: arms within one boot do not, so their interval is narrow, and that of booted arms wide."""
    result = joined_mix(4, scatter=0.05)
    assert [arm["name"] for arm in result["arms"]] == MIXED and result["plan"]["booted"] == ["smt_on", "nosmt"]
    within, booted = (whole_machine(result)["smt_on", arm] for arm in ("smt_off", "nosmt"))
    assert (within["basis"], within["n"]) == ("blocks", 20) and (booted["basis"], booted["n"]) == ("boots", 4)
    assert not within["confounded"] and not booted["confounded"]
    assert 4 * (within["ci_high"] - within["ci_low"]) < booted["ci_high"] - booted["ci_low"]
    # Against an arm that was switched within other boots it rests on boots, whichever comes first.
    for others in (("smt_off", "nosmt"), ("nosmt", "smt_off")):
        result["arms"].sort(key=lambda arm: ("smt_on", *others).index(arm["name"]))
        sides = whole_machine(result, compare="all")
        assert (sides[others]["basis"], sides[others]["n"]) == ("boots", 4)
        assert sides["smt_on", "smt_off"]["basis"] == "blocks"


def test_each_arm_keeps_what_the_kernel_showed_and_what_was_seen_within_a_boot():
    def with_memory(arm, whole):
        observed = [{"arm": name, "asked_bytes": number} for number, name in enumerate(("smt_off", "smt_on"), 1)]
        return {**whole, "observations": observed} if arm == "smt_on" else whole

    observed = {one["arm"]: one for one in joined_mix(2, change=with_memory)["observations"]}
    assert {arm: one.get("asked_bytes") for arm, one in observed.items()} == {"smt_on": 2, "smt_off": 1, "nosmt": None}
    assert observed["nosmt"]["cmdline"] == "quiet nosmt" and observed["smt_on"]["cmdline"] == "quiet"
    assert observed["nosmt"]["smt"]["control"] == "off" and observed["nosmt"]["smt"]["active"] is False
    assert observed["smt_on"]["vulnerabilities"] == parts.plain(FACTS.vulnerabilities)
