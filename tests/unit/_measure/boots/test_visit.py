# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A visit as its controller leads it, of trials and of evaluations. The scenarios smt_eval_boots, smt_boot_visits and
smt_trial_boots do it on guests.
"""

from __future__ import annotations

import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import Calls, HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import booted_host, host_check
from rebooted_host import RebootedHost

NOSMT = {"smt": "disabled"}


@pytest.fixture(name="host")
def a_host(monkeypatch):
    return RebootedHost(monkeypatch)


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


def test_a_host_that_was_not_rebooted_is_not_rebooted_to_go_back(host):
    there = host.visit()
    host.fails = {"reboot": "shutdown: not permitted"}
    with pytest.raises(HostLostError, match="it was not rebooted: shutdown: not permitted"):
        there.enter(NOSMT)
    host.fails = {}
    there.back()
    assert host.log == ["begun", "reboot", "cleaned", "ended"]


@pytest.mark.parametrize("why", ["the disk is full", "failed to transfer file"])
def test_arguments_that_are_refused_are_ended_all_the_same(host, why):
    there = host.visit()
    host.fails = {"smt_boot_visit": why}
    with pytest.raises(visit.SwitchError, match=why):
        there.enter(NOSMT)
    with pytest.raises(visit.SwitchError, match=why):
        there.back()
    # The host itself goes on trying.
    assert host.log == [record.UNDO_NOW] and there.is_begun


def test_what_a_boot_has_not_brought_is_named(host):
    host.differences = [["smt/control is on instead of off"]]
    there = host.visit()
    with pytest.raises(
        visit.SwitchError, match=r"the requested state: smt/control is on instead of off\. The running k"
    ):
        there.enter(NOSMT)
    host.differences = [["CPUs 0 are online"]]
    with pytest.raises(visit.SwitchError, match="CPUs 0 are online"):
        there.back()
    assert host.log[-1] == record.UNDO_NOW and there.is_begun


@pytest.mark.parametrize("lost", ["reboot", "smt_boot_visit", "smt_boot_args"])
def test_a_host_that_is_lost(host, lost):
    host.fails = {lost: "lost"}
    there = host.visit()
    with pytest.raises(HostLostError, match="no route to host"):
        there.enter(NOSMT)
    assert there.is_begun


def test_a_host_that_stays_in_its_boot_is_lost(host):
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
