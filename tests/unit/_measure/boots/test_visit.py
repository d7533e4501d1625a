# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reboot as a controller leads it: its slot is waited for, kept while the host is not well, and given back; and a
visit, of trials and of evaluations. The scenarios smt_eval_boots, smt_boot_visits and smt_trial_boots do it on guests.
"""

import re
import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import settings
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import Calls, HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import booted_host, host_check
from rebooted_host import RebootedHost

URL = "https://lock.example.com"
SLOT = reboot.Wanted(settings.Slot(fleetlock=URL), "db", timeout=100)
NOSMT = {"smt": "disabled"}
FULL = {"granted": False, "msg": f"{URL} answers with status 423: full"}
RELEASE = settings.release_command(SLOT.slot, "db", "db1")
BY_HAND = f"gives it back; by hand: {RELEASE}"


@pytest.fixture(name="host")
def a_host(monkeypatch):
    return RebootedHost(monkeypatch)


@pytest.fixture(name="clock")
def a_clock(monkeypatch):
    """A clock that goes on by the pauses."""
    clock = types.SimpleNamespace(now=0.0, pauses=[])

    def wait(seconds):
        clock.pauses.append(seconds)
        clock.now += seconds
        return True

    monkeypatch.setattr(reboot.terminal, "wait_while_read", wait)
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


def test_a_host_that_may_not_be_rebooted_is_left_as_it_is(host, clock, said):
    host.answers = [FULL, FULL, *[{**FULL, "msg": "no etcd"}] * 50]
    there = host.visit(wanted=SLOT)
    # Nobody knows here who holds it: a host that is gone is released by its name.
    command = re.escape(settings.release_command(SLOT.slot, "db", "HOST"))
    with pytest.raises(visit.SwitchError, match=f"^db1 is not rebooted: it has waited since 2.*: no etcd.*{command}$"):
        there.enter(NOSMT)
    assert set(host.log) == {"slot acquired", "slot abandoned"} and host.log[-1] == "slot abandoned"
    assert not there.is_begun and clock.now == pytest.approx(100)
    assert all(15 <= one <= 45 for one in clock.pauses[:-1]) and len(set(clock.pauses[:-1])) > 1
    # A line for each reason, and again after a while.
    assert ["full" in one for one in said] == [True, False]
    assert all("waits for its reboot since 2" in one for one in said)


def test_a_wait_is_told_again_after_a_while_and_ends_with_the_slot_or_what_it_may_hold(host, clock, said):
    host.answers = [FULL] * 40
    assert of(host, reboot.Wanted(SLOT.slot, "db", timeout=10_000)).take()
    assert said[-1] == f"db1: it may be rebooted, after {clock.now:.0f} s." and 2 < len(said) < 8
    host.answers = [FULL, {"holds": {"granted": False, "since": "2026-11-25T10:00:00Z"}}]
    with pytest.raises(reboot.NoSlotError, match=r"full\. db1 has asked for a slot of the group db at ") as raised:
        of(host, reboot.Wanted(SLOT.slot, "db", timeout=0)).take()
    assert str(raised.value).endswith(f" since 2026-11-25T10:00:00Z: the next run that finds it well {BY_HAND}")
    # A window that opens too late is not waited for.
    clock.pauses.clear()
    host.answers = [{"granted": False, "msg": "its smt_reboot_window opens at Sat", "wait_seconds": 101.0}]
    with pytest.raises(reboot.NoSlotError, match="its smt_reboot_window opens at Sat"):
        of(host).take()
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("wanted", "begin", "end"),
    [
        (SLOT, f"db1 holds a slot of the group db at {URL} since 2026", f": the next run that finds it well {BY_HAND}"),
        (
            reboot.Wanted(None),
            "db1 holds a slot since 2026",
            "remove /var/lib/threadwise-smt/reboot-slot.json on the host",
        ),
    ],
)
def test_how_a_slot_is_released_is_what_the_user_wrote(wanted, begin, end):
    for since in ("2026", "2026\n; rm -rf /\x1b[2J"):
        said = reboot.held(wanted, "db1", facts.Slot(granted=True, since=since))
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


def test_check_mode_says_whom_it_would_ask(host):
    host.answers = [{"msg": "would ask", "wait_seconds": 0}]
    assert of(host).would_take() == "would ask" and host.log == ["check slot acquired"]
    host.answers = [{"msg": "it would wait now: its window opens", "wait_seconds": reboot.DEFAULT_TIMEOUT + 1}]
    late = f", later than smt_slot_timeout ({reboot.DEFAULT_TIMEOUT} s), and it would fail"
    assert of(host, reboot.Wanted(settings.Slot(fleetlock=URL))).would_take().endswith("its window opens" + late)
    assert of(host, reboot.NOTHING).would_take() == ""


ALERTS, HOURS = {"prometheus": URL, "query": "ALERTS"}, {"from": "02:00", "to": "03:00"}
GIVEN = {"smt_slot": {"fleetlock": URL}, "smt_policy_group": "db", "smt_slot_timeout": 5}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        *(({}, reboot.NOTHING), (GIVEN, reboot.Wanted(SLOT.slot, "db", timeout=5))),
        ({"smt_slot": {"fleetlock": URL}}, reboot.Wanted(SLOT.slot)),
        ({"smt_reboot_window": HOURS, "smt_slot": {}}, reboot.Wanted(window=HOURS)),
        ({"smt_reboot_alerts": ALERTS}, reboot.Wanted(alerts=ALERTS)),
        *(({"smt_slot": "x"}, "smt_slot: "), ({"smt_reboot_window": {"from": 1}}, "smt_reboot_window: ")),
        ({"smt_reboot_alerts": {"prometheus": URL}}, "smt_reboot_alerts: "),
        ({**GIVEN, "smt_policy_group": "a_b"}, "smt_policy_group is"),
        ({**GIVEN, "smt_slot_timeout": "soon"}, "smt_slot_timeout: "),
    ],
)
def test_what_variables_can_ask_for_and_what_not(given, wanted):
    if not isinstance(wanted, str):
        assert reboot.of_values(given, "db1") == wanted
        return
    with pytest.raises(settings.SlotError, match=wanted):
        reboot.of_values(given, "db1")


@pytest.mark.parametrize(("kind", "seconds", "given"), [("evaluation", 1200, 1200), ("trial", 60, visit.MIN_SECONDS)])
def test_into_an_arm_to_the_next_and_back(host, kind, seconds, given):
    there = host.visit(kind)
    there.check(visit.OWN)
    assert host.log == ["check begun"] and not there.is_begun
    there.enter(NOSMT, seconds)
    assert host.given == {**NOSMT, "owner": f"the {kind} r", "seconds": given} and there.is_begun
    assert host.task.args == {"reboot_timeout": 600, "msg": f"Rebooted by Ansible for the {kind} of SMT on this host"}
    there.enter({"smt": "forced_off"}, seconds)
    there.back()
    there.back()
    assert host.log == ["check begun", *["begun", "reboot", "cleaned"] * 2, "ended", "reboot", "cleaned", "ended"]
    assert not there.is_begun and host._task.check_mode is False


def test_a_host_that_was_not_rebooted_is_not_rebooted_to_go_back_and_gives_its_slot_back(monkeypatch):
    host = RebootedHost(monkeypatch)
    there = host.visit()
    host.fails = {"reboot": "shutdown: not permitted"}
    with pytest.raises(HostLostError, match="it was not rebooted: shutdown: not permitted"):
        there.enter(NOSMT)
    host.fails = {}
    there.back()
    assert host.log == ["begun", "reboot", "cleaned", "ended"]
    host = RebootedHost(monkeypatch)
    host.fails = {"smt_boot_visit": "the disk is full"}
    with pytest.raises(visit.SwitchError, match="the disk is full") as raised:
        host.visit(wanted=SLOT).enter(NOSMT)
    assert host.log == ["slot acquired", "slot released"] and "keeps" not in str(raised.value)
    # Of one that stays in its boot nothing is known.
    host = RebootedHost(monkeypatch)
    host.looks = 10**9
    with pytest.raises(HostLostError, match="it is in the same boot after 0 s"):
        host.visit(seconds=0).enter(NOSMT)


def test_its_time_starts_anew_only_while_it_is_away(host):
    there = host.visit()
    there.renew()
    there.leave()
    assert host.log == []
    there.enter(NOSMT)
    there.renew()
    host.fails = {"command": "lost"}
    there.leave()
    assert host.log[-1] == visit.RENEW


def test_a_host_of_a_trial_is_looked_at_by_what_brings_it_back_and_lost_where_it_is_not_back(host, monkeypatch):
    asked, calls = [], Calls(host, {"inventory_hostname": "db1"})
    monkeypatch.setattr(host_check, "check", lambda _commands, renew: asked.append(renew) or "cat boot_id; reload")
    monkeypatch.setattr(host_check, "parse", lambda *_given: types.SimpleNamespace(online=(0, 2)))
    monkeypatch.setattr(host_check, "parse_online", lambda _printed: (0, 1, 2, 3))
    of_trial = booted_host.BootedHost(calls, {}, run="t", reboot_seconds=900, wanted=reboot.NOTHING)
    of_trial.check()
    assert of_trial.switch("nosmt", 60) == (0, 2) and of_trial.is_booted
    assert asked == [host_check.RENEW, visit.RENEW] and host.task.args["reboot_timeout"] == 900
    host.fails = {"smt_boot_visit": "the disk is full"}
    with pytest.raises(HostLostError, match="the disk is full"):
        of_trial.restore()
    assert of_trial.is_booted and host.log[-1] == record.UNDO_NOW
    host.fails = {}
    assert of_trial.restore() == (0, 1, 2, 3) and not of_trial.is_booted
    # Before the boot arguments what smt_state has pending, and at the end too.
    booted = ("begun", "reboot", record.UNDO_NOW, "ended", "reboot", "ended")
    assert [one for one in host.log if one != "cleaned"] == [host_check.restore(), *booted, host_check.restore()]


DIFFERENCE = "smt/control is on instead of off"


@pytest.mark.parametrize(
    ("fails", "differences", "said", "error"),
    [
        # The host itself goes on trying.
        ({"smt_boot_visit": "the disk is full"}, [], "the disk is full", visit.SwitchError),
        ({}, [[DIFFERENCE], ["x"]], f"the requested state: {DIFFERENCE}", visit.SwitchError),
        *(({lost: "lost"}, [], "no route", HostLostError) for lost in ("reboot", "smt_boot_visit", "smt_boot_args")),
    ],
)
def test_what_a_boot_has_not_brought_is_named_and_the_host_goes_back(host, fails, differences, said, error):
    host.fails, host.differences = fails, list(differences)
    there = host.visit()
    with pytest.raises(error, match=said):
        there.enter(NOSMT)
    assert there.is_begun
    if error is visit.SwitchError:
        with pytest.raises(visit.SwitchError):
            there.back()
        assert host.log[-1] == record.UNDO_NOW and there.is_begun
