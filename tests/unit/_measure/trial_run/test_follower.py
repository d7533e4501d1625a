# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part of a trial: the schedule, the checks, and that the host goes back whatever happens."""

from __future__ import annotations

import datetime
import itertools

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import follower, host_check

TIMES = follower.Times(period=60.0, settle=10.0, check=10.0)
OWN, HALF = (0, 1, 2, 3), (0, 2)
SCHEDULE = ("smt_on", "smt_off", "smt_off", "smt_on")


class World:
    """A host, its metrics and the clocks, which move only when somebody waits."""

    def __init__(self):
        self.time = 100.0
        self.started = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
        self.done, self.records = [], []
        self.online, self.armed = OWN, False
        self.at = {}
        self.stop = None

    # Clock
    def now(self):
        return self.time

    def wall(self):
        return self.started + datetime.timedelta(seconds=self.time)

    def sleep(self, seconds):
        assert 0 < seconds <= TIMES.check
        self.time += seconds
        for moment in sorted(one for one in self.at if one <= self.time):
            self.at.pop(moment)()

    # LiveHost
    is_booted = False

    def switch(self, arm, timer_seconds):
        self.done.append((round(self.time - 100), arm))
        assert timer_seconds == 60
        self.online, self.armed = (HALF if arm == "smt_off" else OWN), True
        return self.online

    def after_switch(self, before):
        return None

    def check(self):
        return host_check.Checked(self.online, self.armed, ())

    def restore(self):
        self.done.append((round(self.time - 100), "own"))
        self.online, self.armed = OWN, False
        return OWN

    # Readings
    def start_period(self):
        pass

    def watch(self, now, checked):
        return None

    def of_period(self, begin, end):
        return {
            "metrics": {"p99": {"value": (end - begin).total_seconds(), "points": 4, "expected": 4, "reason": None}},
            "series": {},
        }

    # Files
    def period(self, record):
        self.records.append(record)

    def stopped(self):
        return self.stop

    def follow(self, schedule=SCHEDULE):
        return follower.Follower(self, self, self, self, TIMES, OWN).follow(schedule, 0, 100.0)


@pytest.fixture(name="world")
def a_world():
    return World()


def test_each_period_is_in_its_arm_and_the_host_goes_back(world):
    assert world.follow() is None
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (180, "smt_on"), (240, "own")]
    assert [(one["period"], one["arm"], one["complete"]) for one in world.records] == [
        (number, arm, True) for number, arm in enumerate(SCHEDULE)
    ]
    # What is counted is the period without what settles.
    assert {one["metrics"]["p99"]["value"] for one in world.records} == {50.0}
    assert [one["started"] for one in world.records] == [f"2026-11-23T12:0{1 + number}:40Z" for number in range(4)]


def test_a_host_waits_for_its_own_first_period(world):
    follower.Follower(world, world, world, world, TIMES, OWN).follow(["smt_off"], 7, 220.0)
    assert world.done == [(120, "smt_off"), (180, "own")]
    assert world.records[0]["period"] == 7


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"watch": lambda now, checked: "p99 is above 0.5"}, "p99 is above 0.5"),
        ({"online": (0, 1, 2)}, "CPUs 0-2 are online instead of 0,2: somebody else changed them"),
        ({"armed": False}, "the timer that brings it back is gone"),
        ({"stop": "another host's guardrail was breached"}, "another host's guardrail was breached"),
    ],
)
def test_a_host_goes_back_at_the_next_check(world, what, reason):
    world.at[100 + 85.0] = lambda: vars(world).update(what)
    assert world.follow() == reason
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (90, "own")]
    assert [(one["complete"], one["reason"]) for one in world.records] == [(True, None), (False, reason)]
    assert world.records[1]["metrics"] == {}


def raising(error):
    def act(*_given):
        raise error

    return act


def test_what_a_lost_host_did_before_is_kept(world):
    world.at[100 + 85.0] = lambda: vars(world).update(check=raising(follower.HostLostError("no answer for 60 s")))
    assert world.follow() == "no answer for 60 s"
    assert [one["complete"] for one in world.records] == [True] and world.done[-1] == (90, "own")


@pytest.mark.parametrize(("seconds", "counted"), [(5.0, 45.0), (20.0, 30.0), (40.0, None)])
def test_what_settles_begins_when_a_switch_has_ended(world, seconds, counted):
    switch = world.switch

    def slow(arm, timer_seconds):
        world.time += seconds
        return switch(arm, timer_seconds)

    world.switch = slow
    world.follow()
    # The third period follows its own arm, and needs no switch.
    assert [one["metrics"].get("p99", {}).get("value") for one in world.records] == [counted, counted, 50.0, counted]
    reason = None if counted else "the switch took so long that 10 s of the period were left to count: give it longer"
    assert [(one["reason"] or "")[: len(reason or "")] or None for one in world.records] == [
        reason,
        reason,
        None,
        reason,
    ]


def test_what_settles_never_begins_before_the_end_of_what_the_period_before_counts(world):
    """A last check that takes long ends a period late, and with it what the period counts."""
    counted = []
    world.of_period = lambda begin, end: counted.append((begin, end)) or {"metrics": {}, "series": {}}
    check, late = world.check, [100 + 60.0]

    def slow():
        if world.time == late[0]:
            world.time += 4.0
        return check()

    world.check = slow
    follower.Follower(world, world, world, world, TIMES, OWN).follow(["smt_on", "smt_on", "smt_off"], 0, 100.0)
    assert [(after[0] - before[1]).total_seconds() for before, after in itertools.pairwise(counted)] == [10.0, 10.0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), OSError()])
def test_the_host_goes_back_when_the_controller_ends(world, error):
    world.at[100 + 85.0] = raising(error)
    with pytest.raises(type(error)):
        world.follow()
    assert world.done[-1] == (90, "own")


def test_a_host_that_cannot_be_switched_leaves(world):
    world.switch = raising(follower.SwitchError("3 affinity conflict(s)"))
    assert world.follow() == "3 affinity conflict(s)"
    assert world.done == [(0, "own")]


def test_a_service_that_does_not_follow_its_cpus_is_an_event(world):
    world.after_switch = lambda before: f"{before} CPUs before: systemctl reload nginx ended with 1: no such unit"
    world.follow()
    # The first arm is the state that the host had.
    assert [[event["event"] for event in record["events"]] for record in world.records] == [
        ["switched"], ["switched", "after_switch"], [], ["switched", "after_switch"],
    ]  # fmt: skip
    details = [record["events"][-1]["detail"].split(":")[0] for record in world.records[1::2]]
    assert details == ["4 CPUs before", "2 CPUs before"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_period_in_which_the_clock_was_set_has_no_numbers_and_the_next_one_has(world, hours):
    world.at[100 + 85.0] = lambda: setattr(world, "started", world.started + datetime.timedelta(hours=hours))
    assert world.follow() is None
    said = f"the controller's clock was set by {3600 * hours} s in this period"
    assert [one["reason"] for one in world.records] == [None, said, None, None]
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (180, "smt_on"), (240, "own")]


def test_a_host_that_was_rebooted_needs_its_timer_also_with_all_cpus_online(world):
    world.switch = lambda arm, timer_seconds: OWN
    world.is_booted = True
    assert world.follow(["mitigations_auto"]) == "the timer that brings it back is gone"
    world.armed = True
    assert world.follow(["mitigations_auto"]) is None
