# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot around a reboot, as a controller leads it: waited for, kept while the host is not well, and given back."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import settings
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import Calls, HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from rebooted_host import RebootedHost

URL = "https://lock.example.com"
SLOT = reboot.Wanted(settings.Slot(fleetlock=URL), "db", timeout=100)
NOSMT = {"smt": "disabled"}
FULL = {"granted": False, "msg": f"{URL} answers with status 423: full"}
RELEASE = settings.release_command(SLOT.slot, "db", "db1")
BY_HAND = f"gives it back; by hand: {RELEASE}"


class Clock:
    """A clock that goes on by the pauses."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def wait(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        return True


@pytest.fixture(name="host")
def a_host(monkeypatch):
    return RebootedHost(monkeypatch)


@pytest.fixture(name="clock")
def a_clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(reboot.terminal, "wait_while_read", clock.wait)
    monkeypatch.setattr(reboot.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture(name="said")
def what_is_said(monkeypatch):
    said = []
    monkeypatch.setattr(reboot.display, "display", said.append)
    monkeypatch.setattr(reboot.display, "warning", said.append)
    return said


def of(host, wanted=SLOT):
    return reboot.Reboot(Calls(host, {"inventory_hostname": "db1"}), 600, "x", wanted)


def test_each_boot_of_a_visit_has_a_slot_and_a_measurement_has_none(host):
    there = host.visit(wanted=SLOT)
    there.enter(NOSMT)
    assert host.given["slot"] == {"slot": {"fleetlock": URL}, "group": "db", "window": {}, "alerts": {}, "host": "db1"}
    there.back()
    assert [one for one in host.log if one != "cleaned"] == [
        *("slot acquired", "begun", "reboot", "slot released"),
        *("check ended", "slot acquired", "ended", "reboot", "ended", "slot released"),
    ]
    assert len({one["owner"] for one in host.slots}) == 1 and host.slots[0]["owner"]


@pytest.mark.parametrize("alerts", [{}, {"prometheus": URL, "query": "ALERTS"}])
def test_without_a_slot_nothing_is_asked_and_with_alerts_alone_those(host, alerts):
    there = host.visit(wanted=reboot.Wanted(alerts=alerts))
    there.enter(NOSMT)
    assert [(one["slot"], one["alerts"]) for one in host.slots[:1]] == ([({}, alerts)] if alerts else [])
    assert ("slot" in host.given) == bool(alerts)


def test_a_host_that_may_not_be_rebooted_is_left_as_it_is(host, clock, said):
    host.answers = [FULL, FULL, *[{**FULL, "msg": "no etcd"}] * 50]
    there = host.visit(wanted=SLOT)
    with pytest.raises(visit.SwitchError) as raised:
        there.enter(NOSMT)
    message = str(raised.value)
    assert message.startswith("db1 is not rebooted: it has waited since 2") and ": no etcd" in message
    # Nobody knows here who holds it: a host that is gone is released by its name.
    assert message.endswith(settings.release_command(SLOT.slot, "db", "HOST"))
    assert set(host.log) == {"slot acquired", "slot abandoned"} and host.log[-1] == "slot abandoned"
    assert not there.is_begun and clock.now == pytest.approx(100)
    assert all(15 <= one <= 45 for one in clock.pauses[:-1]) and len(set(clock.pauses[:-1])) > 1
    # A line for each reason, and again after a while.
    assert ["full" in one for one in said] == [True, False] and all(
        "waits for its reboot since 2" in one for one in said
    )


def test_a_wait_is_told_again_after_a_while_and_ends_with_the_slot(host, clock, said):
    host.answers = [FULL] * 40
    assert of(host, reboot.Wanted(SLOT.slot, "db", timeout=10_000)).take()
    assert said[-1] == f"db1: it may be rebooted, after {clock.now:.0f} s." and len(said) < 8
    assert [one.partition(" since")[0] for one in said[:-1]] == ["db1: waits for its reboot"] * (len(said) - 1)
    assert len(said) > 2


def test_a_window_that_opens_too_late_is_not_waited_for(host, clock):
    host.answers = [{"granted": False, "msg": "its smt_reboot_window opens at Sat", "wait_seconds": 101.0}]
    with pytest.raises(reboot.NoSlotError, match="its smt_reboot_window opens at Sat"):
        of(host).take()
    assert clock.pauses == []


def test_what_it_may_hold_after_a_wait_is_said(host, clock):
    host.answers = [FULL, {"holds": {"granted": False, "since": "2026-11-25T10:00:00Z"}}]
    with pytest.raises(reboot.NoSlotError, match=r"full\. db1 has asked for a slot of the group db at ") as raised:
        of(host, reboot.Wanted(SLOT.slot, "db", timeout=0)).take()
    assert str(raised.value).endswith(f" since 2026-11-25T10:00:00Z: the next run that finds it well {BY_HAND}")


@pytest.mark.parametrize(
    ("wanted", "begin", "end"),
    [
        (SLOT, f"db1 holds a slot of the group db at {URL} since 2026", f": the next run that finds it well {BY_HAND}"),
        (
            reboot.Wanted(None),
            "db1 holds a slot since 2026",
            "remove /var/lib/threadwise-smt/reboot-slot.json on the host",
        ),
        (reboot.Wanted(settings.Slot(kured="/x")), "db1 holds a slot since 2026", "reboot-slot.json on the host"),
    ],
)
def test_how_a_slot_is_released_is_what_the_user_wrote(wanted, begin, end):
    for since in ("2026", "2026\n; rm -rf /\x1b[2J"):
        said = reboot.held(wanted, "db1", {"granted": True, "since": since})
        assert said.startswith(begin) and said.endswith(end) and said.isprintable()


@pytest.mark.parametrize("fails", ["reboot", "differences"])
def test_a_host_that_is_not_well_keeps_its_slot(host, fails):
    host.fails = {"reboot": "it is gone"} if fails == "reboot" else {}
    host.differences = [["smt/control is on instead of off"]]
    with pytest.raises((HostLostError, visit.SwitchError)) as raised:
        host.visit(wanted=SLOT).enter(NOSMT)
    assert str(raised.value).endswith(BY_HAND)
    assert f"db1 keeps its slot of the group db at {URL}" in str(raised.value)
    assert "slot released" not in host.log


def test_a_host_that_was_not_asked_to_reboot_gives_its_slot_back(host):
    host.fails = {"smt_boot_visit": "the disk is full"}
    with pytest.raises(visit.SwitchError, match="the disk is full") as raised:
        host.visit(wanted=SLOT).enter(NOSMT)
    assert host.log == ["slot acquired", "slot released"] and "keeps" not in str(raised.value)


def test_while_a_host_waits_in_an_arm_its_time_starts_anew(host, clock):
    there = host.visit(wanted=SLOT)
    there.enter(NOSMT)
    host.answers = [FULL, FULL]
    there.back()
    assert host.log.count(visit.RENEW) == 2


def test_kured_makes_no_boots_of_an_evaluation(host):
    there = host.visit(wanted=reboot.Wanted(settings.Slot(kured="/run/reboot-required")))
    with pytest.raises(visit.SwitchError, match="has kured reboot the host, at a time of its own"):
        there.check(NOSMT)
    assert host.log == []


def test_check_mode_says_whom_it_would_ask(host):
    host.answers = [{"msg": "would ask", "wait_seconds": 0}]
    assert of(host).would_take() == "would ask" and host.log == ["check slot acquired"]
    host.answers = [{"msg": "it would wait now: its window opens", "wait_seconds": reboot.DEFAULT_TIMEOUT + 1}]
    late = f", later than smt_slot_timeout ({reboot.DEFAULT_TIMEOUT} s), and it would fail"
    assert of(host, reboot.Wanted(settings.Slot(fleetlock=URL))).would_take().endswith("its window opens" + late)
    assert of(host, reboot.NOTHING).would_take() == ""


ALERTS = {"prometheus": URL, "query": "ALERTS"}
GIVEN = {"smt_slot": {"fleetlock": URL}, "smt_policy_group": "db", "smt_slot_timeout": 5}


HOURS = {"from": "02:00", "to": "03:00"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, reboot.NOTHING),
        (GIVEN, reboot.Wanted(SLOT.slot, "db", timeout=5)),
        ({"smt_slot": {"fleetlock": URL}}, reboot.Wanted(SLOT.slot)),
        ({"smt_reboot_window": HOURS, "smt_slot": {}}, reboot.Wanted(window=HOURS)),
        ({"smt_reboot_alerts": ALERTS}, reboot.Wanted(alerts=ALERTS)),
        ({"smt_slot": "x"}, "smt_slot: it must be a mapping"),
        ({"smt_reboot_window": {"from": 1}}, "smt_reboot_window: it must be a mapping"),
        ({"smt_reboot_alerts": {"prometheus": URL}}, "smt_reboot_alerts: it must be a mapping"),
        ({**GIVEN, "smt_policy_group": "a_b"}, "smt_policy_group is"),
        ({**GIVEN, "smt_slot_timeout": "soon"}, "smt_slot_timeout: it must be a number"),
    ],
)
def test_what_variables_can_ask_for_and_what_not(given, wanted):
    if not isinstance(wanted, str):
        assert reboot.of_values(given, "db1") == wanted
        return
    with pytest.raises(settings.SlotError, match=wanted):
        reboot.of_values(given, "db1")
