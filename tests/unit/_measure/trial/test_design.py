# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The design of a trial: balanced in each block, opposite at the same time, fair, and within what may be switched."""

from __future__ import annotations

import collections

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.design import PARALLEL, SWITCHBACK, Member

TWO, THREE = ("smt_on", "smt_off"), ("smt_on", "smt_off", "threads_per_core_2")


def members(count, **changed):
    return [Member(f"web{n}", **{"hardware_class": "x", "load": float(n), **changed}) for n in range(1, count + 1)]


def drawn(hosts, name=SWITCHBACK, arms=TWO, periods=24, before=12, most=100, seed=1):
    return design.draw(name, hosts, design.Wanted(arms, periods, before, most, seed))


@pytest.mark.parametrize("arms", [TWO, THREE])
def test_each_block_of_a_host_has_each_arm_once_and_hosts_of_a_group_are_in_different_arms(arms):
    found, size = drawn(members(2 * len(arms)), arms=arms), len(arms)
    assert [len(group) for group in found.groups] == [size, size]
    for periods in found.schedule.values():
        assert all(sorted(periods[block : block + size]) == sorted(arms) for block in range(0, 24, size))
    for group in found.groups:
        assert all(len(set(at_once)) == size for at_once in zip(*(found.schedule[host] for host in group)))


def test_the_lot_is_fair_independent_and_the_same_for_the_same_seed():
    found = collections.Counter()
    for seed in range(400):
        one, other = (drawn(members(4), seed=seed, periods=6).schedule[host] for host in ("web1", "web3"))
        found.update({"off": one[0] == "smt_off", "next": one[0] == one[2], "other": one[0] == other[0]})
    assert all(150 < count < 250 for count in found.values()), found
    assert drawn(members(8), seed=5) == drawn(members(8)[::-1], seed=5) != drawn(members(8), seed=6)


def test_groups_are_of_one_class_and_of_neighbours_by_load():
    given = [("a", "x", 9.0), ("b", "y", 1.0), ("c", "x", 1.0), ("d", "x", 8.0), ("e", "x", 2.0), ("f", None, 1.0)]
    assert set(drawn([Member(*one) for one in given]).groups) == {("c", "e"), ("d", "a"), ("b",), ("f",)}


def away(found, hosts):
    """The most hosts that are in another arm than the baseline in one period."""
    begun = {host: dict(enumerate(found.schedule[host], found.first[host])) for host in hosts}
    return max(sum(begun[host].get(period, "smt_on") != "smt_on" for host in hosts) for period in range(found.periods))


@pytest.mark.parametrize(("most", "waves"), [(4, 1), (3, 2), (2, 2), (1, 4)])
def test_no_more_hosts_are_switched_at_once_than_allowed(most, waves):
    found = drawn(members(8), most=most)
    assert len(found.waves) == waves and found.periods == 24 * waves
    assert away(found, found.schedule) <= most


def test_a_wave_begins_when_the_one_before_has_done_its_whole_blocks():
    found = drawn(members(8), most=2, periods=25)
    assert {found.first[host] for host in found.schedule} == {0, 24} and found.periods == 48


def test_hosts_of_a_policy_group_are_never_switched_at_once_but_a_pair_may_be_compared():
    hosts = [Member(f"web{n}", "x", float(n), group="front" if n % 3 == 0 else None) for n in range(1, 9)]
    assert away(drawn(hosts), ["web3", "web6"]) == 1
    assert len(drawn(members(2, group="front")).groups) == 1


def test_three_arms_with_one_switch_allowed_take_each_host_by_itself():
    found = drawn(members(3), arms=THREE, most=1)
    assert [len(group) for group in found.groups] == [1] * 3 and away(found, found.schedule) == 1
    with pytest.raises(design.DesignError, match="smt_trial_most_switched is 1"):
        drawn(members(18), name=PARALLEL, arms=THREE, most=1)


def test_parallel_draws_one_of_each_pair():
    found = drawn(members(13), name=PARALLEL)
    assert len(found.groups) == 6 and list(found.left_out) == ["web13"]
    for group in found.groups:
        assert {found.schedule[host][:12] for host in group} == {("smt_on",) * 12}
        assert {found.schedule[host][12:] for host in group} == {("smt_on",) * 12, ("smt_off",) * 12}


@pytest.mark.parametrize(
    ("hosts", "options", "said"),
    [
        (0, {}, "no host can take part in the trial"),
        (
            1,
            {"periods": 10},
            "has 5 observations, and a verdict needs 6: give it 12 periods or more (smt_trial_periods)",
        ),
        (4, {"periods": 4}, "has 4 observations, and a verdict needs 6: give it 6 periods or more"),
        (10, {"name": PARALLEL}, "in 2 hosts of one class: these hosts give 5, and a verdict needs 6, so 12 hosts"),
    ],
)
def test_a_design_that_cannot_lead_to_a_verdict_is_refused_with_what_can(hosts, options, said):
    with pytest.raises(design.DesignError) as caught:
        drawn(members(hosts), **options)
    assert said in str(caught.value)
    assert drawn(members(1), periods=12).groups == (("web1",),)
