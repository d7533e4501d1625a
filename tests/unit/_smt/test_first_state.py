# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first state, and the one before a change that is not confirmed: orders in which one of them was lost."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import frame as smt_frame, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._smt.rollback import timer as rollback_timer
from fake_host import Host

ALL, FIRST, PART = list(range(8)), [0, 2, 4, 6], [0, 1, 2, 3, 4, 6]
PART_OFF = {"state": "disabled", "cores": {"cpus": "4-7"}}


@pytest.fixture(name="host")
def fake_host(tmp_path):
    return Host(tmp_path)


def online(host):
    return smt_state.read(files=host)["online"]


@pytest.mark.night(after=1)
@pytest.mark.parametrize("state", ["enabled", "restored"])
def test_a_rollback_of_the_change_back_to_the_first_state(host, state):
    host.ask(**PART_OFF)
    host.ask(state, rollback_after=60)
    assert online(host) == ALL
    host.roll_back()
    assert (online(host), host.saved()["cpu"]["online"]) == (PART, ALL)
    assert host.ask(state)["changed"] is True
    assert (online(host), host.saved()) == (ALL, None)


def test_a_cpu_that_was_off_on_purpose_stays_so_after_a_rollback(host):
    host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    host.ask("disabled")
    host.ask("restored", rollback_after=60)
    host.roll_back()
    assert online(host) == FIRST
    host.ask("enabled")
    assert online(host) == [0, 1, 2, 4, 5, 6, 7]
    host.ask("restored")
    assert (online(host), host.saved()) == ([0, 1, 2, 4, 5, 6, 7], None)


def test_the_first_state_is_forgotten_with_the_confirmation(host):
    host.ask("disabled")
    host.ask("restored", rollback_after=60)
    assert host.saved()["cpu"]["online"] == ALL
    host.ask("restored", confirm=True)
    assert (online(host), host.saved(), host.pending()) == (ALL, None, None)


def test_a_rollback_of_the_first_change_leaves_no_first_state(host):
    host.ask("disabled", rollback_after=60)
    host.roll_back()
    host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    assert host.ask("restored")["changed"] is False
    assert online(host) == [0, 1, 2, 4, 5, 6, 7], "what others did later is theirs"


def test_a_timer_that_cannot_be_started_leaves_nothing(host):
    host.status = {"systemd-run": 1}
    with pytest.raises(rollback_timer.RollbackTimerError, match=r"did not start the rollback timer"):
        host.ask("disabled", rollback_after=60)
    assert (online(host), host.saved(), host.pending()) == (ALL, None, None)
    host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    assert host.ask("restored")["changed"] is False and 3 not in online(host)


def test_somebody_elses_change_is_not_confirmed_by_another_one(host):
    assert host.ask("disabled", rollback_after=60)["rollback_started"] is True
    again = host.ask("disabled", rollback_after=60)
    assert (again["changed"], again["rollback_pending"], again["rollback_started"]) == (False, True, False)
    assert any("waits for its confirmation, and is rolled back in about" in warning for warning in again["warnings"])


@pytest.mark.parametrize("persist", ["none", "tmpfiles", "systemd"])
def test_back_to_a_part_with_its_files(host, persist):
    fs = host_files.HostFs(host.sysroot)
    host.ask(**PART_OFF, persist=persist)
    before = {path: host.read(path) for path in persistence.PATHS if ".wants" not in path}
    frame = json.loads(json.dumps(smt_frame.present(host, fs)))
    host.ask("disabled", persist="tmpfiles" if persist == "systemd" else "none")
    done = host.ask("previous", frame=frame)
    assert (done["changed"], online(host), host.saved()["cpu"]["online"]) == (True, PART, ALL)
    assert {path: host.read(path) for path in before} == before
    assert host.ask("previous", frame=frame)["changed"] is False
    host.ask("restored")
    assert (online(host), host.saved(), persistence.is_kept(fs)) == (ALL, None, False)


def test_back_to_a_part_after_a_change_to_the_first_state(host):
    fs = host_files.HostFs(host.sysroot)
    host.ask(**PART_OFF)
    frame = json.loads(json.dumps(smt_frame.present(host, fs)))
    host.ask("enabled")
    assert host.saved() is None
    host.ask("previous", frame=frame)
    assert (online(host), host.saved()["cpu"]["online"]) == (PART, ALL)


@pytest.mark.parametrize("persist", ["none", "systemd"])
def test_a_core_that_is_off_on_purpose_leaves_nothing_to_confirm(host, persist):
    """The kernel shows no core of CPUs that are offline: that they are one is found by trying."""
    for cpu in (2, 3):
        host.write(f"sys/devices/system/cpu/cpu{cpu}/online", "0")
    was = online(host)
    done = host.ask(threads=2, persist=persist, rollback_after=60)
    assert (done["changed"], done["rollback_pending"], done["rollback_started"]) == (persist != "none", False, False)
    assert (online(host), host.pending(), host.saved(), host.is_waiting) == (was, None, None, False)
    assert persistence.is_kept(host_files.HostFs(host.sysroot)) == (persist != "none")
