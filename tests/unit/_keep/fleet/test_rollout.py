# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waves of a rollout."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, rollout
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.rollout import Member
from hypothesis import given, strategies as st

MEMBERS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), max_size=60).map(
    lambda rows: [Member(f"h{number}", group, pending) for number, (group, pending) in enumerate(rows)]
)
SIZES = st.lists(st.integers(1, 20) | st.integers(1, 100).map("{}%".format), min_size=1, max_size=5)


@given(MEMBERS, SIZES)
def test_each_pending_host_is_in_one_wave_and_no_wave_has_two_of_a_group(members, sizes):
    waves = rollout.waves(members, sizes)
    assert sorted(host for wave in waves for host in wave) == sorted(
        member.host for member in members if member.pending
    )
    groups = {member.host: member.group for member in members}
    for wave in waves:
        named = [groups[host] for host in wave if groups[host]]
        assert wave and len(named) == len(set(named))


@given(MEMBERS, SIZES, st.integers(0, 60))
def test_begun_again_it_goes_on_with_the_waves_that_are_left(members, sizes, done):
    members = [Member(member.host, member.group) for member in members]
    waves = rollout.waves(members, sizes)
    gone = {host for wave in waves[:done] for host in wave}
    again = rollout.waves([Member(member.host, member.group, member.host not in gone) for member in members], sizes)
    assert again == waves[done:]


@pytest.mark.parametrize(
    ("members", "sizes", "waves"),
    [
        # A share of a small fleet is one host.
        ([Member("a"), Member("b")], ["10%"], ["a", "b"]),
        # More waves than were asked for.
        (
            [Member("1"), Member("2", "db"), Member("3"), Member("4", "db"), Member("5", "db")],
            ["100%"],
            ["123", "4", "5"],
        ),
        # The same slot.
        (
            [Member("a", slot="s"), Member("b", slot="s"), Member("c", "db", slot="x"), Member("d", "x")],
            [9],
            ["acd", "b"],
        ),
    ],
)
def test_waves(members, sizes, waves):
    assert rollout.waves(members, sizes) == [list(wave) for wave in waves]


def test_canary_then_growing_waves():
    members = [Member(f"h{number:03}") for number in range(100)]
    assert [len(wave) for wave in rollout.waves(members, [1, "10%", "25%"])] == [1, 10, 25, 25, 25, 14]


def test_a_group_waits_for_the_one_that_is_gone():
    members = [Member("a", "db", pending=False, reachable=False), Member("b", "db"), Member("c", "db", pending=False)]
    members += [Member("d", "web"), Member("e"), Member("f", None, False, reachable=False)]
    assert rollout.waiting(members) == {"b": "a"}
    # Nobody waits for another one of a slot that cannot be reached: it says whether it is down.
    assert rollout.waiting([Member("a", slot="s", reachable=False, pending=False), Member("b", slot="s")]) == {}


def test_each_of_a_group_follows_the_one_before():
    groups = {"a": "db", "b": None, "c": "db", "d": "web", "e": "db"}
    assert rollout.predecessors([["a", "b"], ["c", "d"], ["e"]], groups) == {"c": "a", "e": "c"}


@pytest.mark.parametrize("sizes", [[], [0], ["0%"], [-1], ["x"], [True], ["1" * 50], [None], [1.5]])
def test_what_is_no_size_is_refused(sizes):
    with pytest.raises(rollout.RolloutError, match="size"):
        rollout.waves([Member("a")], sizes)


def verdict(status="drifted", reboot=False, **actual):
    change = {"running": None, "configured": None, "reboot": reboot}
    return {**compliance.refused("", status), "change": change, **actual}


HINDERED = {"status": "drifted", "reasons": [], "blocked_by": "no way"}
FREE = {**HINDERED, "blocked_by": None}


@pytest.mark.parametrize(
    ("actual", "reboot_ok", "pending"),
    [
        (verdict(running=FREE), False, True),
        (verdict(running=HINDERED), True, False),
        (verdict(running=HINDERED, reboot=True), False, False),
        (verdict(running=HINDERED, reboot=True), True, True),
        (verdict(running=FREE, configured=HINDERED), False, False),
        (verdict("compliant"), True, False),
        (verdict("compliant", pending_rollback={}), False, True),
        (verdict("compliant", holds_slot="h holds a slot"), False, True),
        (verdict(memory_configured=FREE), False, True),
        (verdict(memory_configured=HINDERED), False, False),
        (verdict(memory=HINDERED), True, False),
        (verdict("compliant", reboot=True), True, True),
        (verdict("compliant", reboot=True), False, False),
        (verdict("unknown"), True, False),
    ],
)
def test_who_is_changed(actual, reboot_ok, pending):
    assert rollout.is_pending(actual, reboot_ok) is pending
