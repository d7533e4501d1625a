# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boots of an evaluation: which arms have some, in which order, what is measured within them, and what is refused
before any host is rebooted.
"""

import collections
import itertools

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan

REASON = "maxcpus=4 would not leave one thread of each core"


def test_two_arms_alternate_and_what_the_host_cannot_have_is_left_out_with_its_reason():
    plan = boot_plan.make(["smt_on", "smt_off"], 3)
    assert plan.order == ["smt_on", "smt_off", "smt_off", "smt_on", "smt_on", "smt_off"]
    assert plan.reboots == 7 and boot_plan.make(["smt_on", "smt_off"], 2).reboots == 4
    assert [arm.boot.smt for arm in plan.booted] == ["enabled", "disabled"] and plan.within == ("as_found",)
    left_out = {"maxcpus_4": REASON, "smt_off": "x"}
    plan = boot_plan.make(["smt_on", "maxcpus_4", "nosmt", "smt_off"], 1, left_out)
    assert plan.order == ["smt_on", "nosmt"] == list(plan.asked) and plan.within == ("as_found",)
    left = [(one.name, one.title, one.reason) for one in plan.left_out]
    assert left == [("maxcpus_4", "maxcpus=4", REASON), ("smt_off", "SMT off", "x")]
    assert f"maxcpus=4 is left out: {REASON}." in boot_plan.announcement(plan, 100)


@pytest.mark.parametrize("count", [4, 3])
def test_each_arm_follows_each_other_one_equally_often(count):
    """Williams: within the rounds of a whole design, 4 with four arms and 6 with three."""
    asked = ["smt_on", "nosmt", "maxcpus_4", "mitigations_auto_nosmt"][:count]
    order = boot_plan.make(asked, count if count % 2 == 0 else 2 * count).order
    each = [order[begin : begin + count] for begin in range(0, len(order), count)]
    assert all(sorted(one) == sorted(asked) for one in each)
    follows = collections.Counter(pair for one in each for pair in itertools.pairwise(one))
    assert len(follows) == count * (count - 1) and len(set(follows.values())) == 1


@pytest.mark.parametrize(
    ("asked", "order", "within"),
    [
        ("smt_on,smt_off,nosmt", "smt_on,nosmt", "smt_on,smt_off"),
        ("nosmt,overcommit_strict,maxcpus_4", "nosmt,maxcpus_4", "as_found,overcommit_strict"),
        ("as_found,overcommit_strict,nosmt", "as_found,nosmt", "as_found,overcommit_strict"),
    ],
)
def test_arms_that_are_switched_at_run_time_are_measured_within_the_boots_of_the_baseline(asked, order, within):
    plan = boot_plan.make(boot_plan.names(asked), 1)
    baseline, other = order.split(",")
    assert plan.order == [baseline, other] and plan.measured_in(other) == ["as_found"]
    assert plan.measured_in(baseline) == within.split(",") == list(plan.within)


NONE_LEFT = "no arm is left that takes a reboot ({}): leave out smt_eval_boots"


@pytest.mark.parametrize(
    ("asked", "boots", "left_out", "message"),
    [
        ("maxcpus_4,nosmt", 1, ["maxcpus_4"], f"the baseline maxcpus=4 is not possible on this host: {REASON}"),
        ("smt_on,maxcpus_4", 1, ["maxcpus_4"], NONE_LEFT.format(f"maxcpus_4: {REASON}")),
        ("as_found,overcommit_strict", 1, [], NONE_LEFT.format("no other arm was asked for")),
        ("overcommit_strict,nosmt", 1, [], "overcommit_strict is the baseline, and the host is not booted into it: na"),
        ("smt_on,as_found,nosmt", 1, [], "as_found can only be the baseline where arms are booted"),
        ("smt_on,nosmt", 0, [], "smt_eval_boots is 0: give the number of boots in each arm, from 1 to 1000"),
    ],
)
def test_what_cannot_be_compared_by_boots_is_refused_with_the_way_out(asked, boots, left_out, message):
    with pytest.raises(boot_plan.BootPlanError) as caught:
        boot_plan.make(asked.split(","), boots, dict.fromkeys(left_out, REASON))
    assert message in str(caught.value)


OPEN = "smt_eval_allow_mitigations_off"


@pytest.mark.parametrize(
    ("asked", "boots", "reboot_ok", "allowed", "message"),
    [
        ("smt_on,nosmt", 0, True, [], "nosmt takes a reboot: set smt_eval_boots to the number of boots in each arm"),
        ("smt_on,nosmt,maxcpus_2", 0, True, [], "nosmt, maxcpus_2 take a reboot: "),
        ("smt_on,nosmt", 2, False, [], "4 times to compare boots: allow it with smt_boot_reboot_ok=true, or leave out"),
        ("smt_on,smt_off", 1, False, [], "rebooted 3 times"),
        ("smt_on,mitigations_off", 4, True, [], f"allow it with {OPEN}=true, or leave it out"),
        *(("smt_on,mitigations_off", 4, True, [OPEN], None), ("smt_on,smt_off", 0, False, [], None)),
    ],
)
def test_variables_alone_tell_what_cannot_be_booted(asked, boots, reboot_ok, allowed, message):
    reason = boot_plan.refusal(asked.split(","), boots, reboot_ok, allowed)
    assert reason is None if message is None else message in reason


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["smt_on", "maxcpus_$(reboot)"], "there is no arm 'maxcpus_.*': choose from .*maxcpus_N.*nosmt_force"),
        *(("smt_on,smt_on", "twice"), ([], "1 to 8"), (["smt_on", 4], "4 is not an arm"), (None, "a list of arms")),
    ],
)
def test_names_are_checked(given, message):
    with pytest.raises(boot_plan.BootPlanError, match=message):
        boot_plan.names(given)


def test_the_announcement_says_how_often_for_how_long_and_what_stays_open():
    said = boot_plan.announcement(boot_plan.make(["smt_on", "smt_off", "mitigations_off"], 2), 400)
    for sentence in (
        "rebooted 4 times (smt_on, mitigations_off, mitigations_off, smt_on) and measured after each reboot for 100 s.",
        "Within each boot of SMT on it would be switched to SMT off and back.",
        "leaves open every vulnerability of the processor",
        "At the end, and by itself when this controller is lost, it would be booted with its present arguments.",
    ):
        assert any(sentence in one for one in said), said
