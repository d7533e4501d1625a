# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about fleets whose hosts rebooted together, or never again: each with the requests of smt_slot and a
FleetLock server.
"""

import calendar
import json
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import change, record, request, settings, window
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from fleetlock_server import FleetLock
from prometheus_server import send, serving
from rebooted_host import RebootedHost

BOOT = "proc/sys/kernel/random/boot_id"


@pytest.fixture(name="server")
def a_server():
    with FleetLock().running() as server:
        yield server


class Host:
    def __init__(self, root, server, name):
        self.root, self.fs = root / name, files.HostFs(str(root / name))
        self.asked = change.Asked(settings.Slot(fleetlock=server.url), "web", name)
        self.boot()

    def boot(self):
        path = self.root / BOOT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{time.time()}\n")

    def acquire(self, **more):
        return change.acquire(self.fs, self.asked._replace(**more))


@pytest.fixture(name="hosts")
def two_hosts(tmp_path, server):
    return Host(tmp_path, server, "a"), Host(tmp_path, server, "b")


def at(text):
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


def test_zincati_756_locksmith_58_and_trinity_1919_one_slot_whoever_asks_and_however_often(hosts, server):
    assert all(hosts[0].acquire().granted for _turn in range(5))
    assert server.holders == {"web": {"a"}} and not hosts[1].acquire().granted
    hosts[0].boot()
    assert hosts[0].acquire(owner="another run").granted and server.holders == {"web": {"a"}}
    hosts[0].acquire(owner="first")
    hosts[0].acquire(owner="second")
    hosts[0].boot()
    assert not change.release(hosts[0].fs, "first").changed
    assert not hosts[1].acquire().granted


def test_zincati_239_a_host_is_not_steady_before_it_was_looked_at(monkeypatch):
    host = RebootedHost(monkeypatch)
    host.differences = [["smt/control is on instead of off"]]
    there = host.visit(wanted=reboot.Wanted(settings.Slot(fleetlock="https://lock.example.com")))
    with pytest.raises(visit.SwitchError, match="keeps its slot"):
        there.enter({"smt": "disabled"})
    assert "slot released" not in host.log


def test_airlock_81_that_all_slots_are_taken_is_said_and_not_an_error_of_the_server(hosts, server):
    server.answer = (500, {"kind": "failed_lock", "value": "all 1 semaphore slots currently locked"})
    answer = hosts[0].acquire()
    assert answer.reason.endswith("answers with status 500: all 1 semaphore slots currently locked")


def test_kured_819_a_host_that_may_not_reboot_now_takes_no_slot_from_others(hosts, server, monkeypatch):
    monkeypatch.setattr(change.time, "time", lambda: at("2026-11-28 12:00:00"))
    assert not hosts[0].acquire(window=window.parse({"from": "02:00", "to": "05:00"})).granted
    assert server.asked == [] and record.load(hosts[0].fs) is None
    assert hosts[1].acquire().granted


def test_kured_137_and_container_linux_update_operator_45_a_host_that_is_no_more_or_down_for_long(
    hosts, server, tmp_path
):
    hosts[0].acquire()
    # Its controller is gone, and the host is down for long.
    assert not any(hosts[1].acquire().granted for _turn in range(3))
    hosts[0].boot()
    assert change.release(hosts[0].fs).changed and hosts[1].acquire().granted
    elsewhere = files.HostFs(str(tmp_path / "controller"))
    assert change.release_by_name(elsewhere, hosts[1].asked).changed
    assert hosts[0].acquire().granted


NIGHTS = {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "21:00", "to": "05:00"}


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        *(("2019-04-05 00:49:00", True), ("2019-04-05 22:49:00", True), ("2019-04-05 04:59:59", True)),
        # The night from Friday to Saturday, and not the one from Saturday to Sunday.
        *(("2019-04-05 08:59:00", False), ("2019-04-06 00:49:00", True), ("2019-04-06 22:49:00", False)),
    ],
)
def test_kured_204_a_window_over_midnight(moment, is_open):
    assert (window.parse(NIGHTS).opens_in(at(moment)) == 0) == is_open


def test_kured_179_and_zincati_301_a_window_from_midnight_on_with_one_digit_and_a_change_of_clocks():
    found = window.parse({"from": "0:00", "to": "04:00"})
    assert [hour for hour in range(24) if found.opens_in(at(f"2020-08-24 {hour:02}:30:00")) == 0] == [0, 1, 2, 3]
    found = window.parse({"from": "01:00", "to": "03:00"})
    # In Berlin the first of these nights has no hour from 2 to 3, and the second has it twice.
    for day in ("2026-03-29", "2026-10-25"):
        minutes = [minute for minute in range(24 * 60) if found.opens_in(at(f"{day} 00:00:00") + minute * 60) == 0]
        assert minutes == list(range(60, 180))


def test_rebootmgr_10_not_a_second_before_the_window_and_not_all_at_its_first(monkeypatch):
    found = window.parse({"from": "07:00", "to": "08:30"})
    assert found.opens_in(at("2022-10-26 06:59:59")) == 1 and found.opens_in(at("2022-10-26 07:00:00")) == 0
    pauses, now = [], [0.0]
    monkeypatch.setattr(reboot.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(reboot.terminal, "wait_while_read", lambda one: pauses.append(one) or True)
    for _host in range(10):
        host = RebootedHost(monkeypatch)
        host.answers = [{"granted": False, "msg": "it opens soon", "wait_seconds": 1.0}]
        wanted = reboot.Wanted(window={"from": "07:00", "to": "08:30"})
        host.visit(wanted=wanted).enter({"smt": "disabled"})
    assert len(set(pauses)) == len(pauses) == 10 and min(pauses) > 1


FULL = {"data": {"resultType": "vector", "result": [{"metric": {"pool": "a"}, "value": [0, "0.93"]}]}}


@pytest.mark.parametrize(
    ("answer", "granted", "said"),
    [
        # Any result, and none.
        pytest.param(FULL, False, "", id="kured_619"),
        pytest.param({}, True, "", id="kured_619 none"),
        # An answer that lacks a part is no leave; a warning of how a query is written lacks nothing.
        pytest.param({"warnings": ["fetch series for store b: refused"]}, False, "store b", id="thanos_622"),
        pytest.param({"isPartial": True}, False, "", id="thanos_622 isPartial"),
        pytest.param({"warnings": ["PromQL info: metric might not be a counter"]}, True, "", id="thanos_7354"),
    ],
)
def test_whether_a_host_may_be_rebooted_by_the_answer_to_a_query(hosts, server, answer, granted, said):
    document = {"status": "success", "data": {"resultType": "vector", "result": []}, **answer}
    with serving(lambda handler: send(handler, json.dumps(document))) as url:
        found = hosts[0].acquire(alerts=request.Alerts(url, "ALERTS"))
    assert found.granted is granted and said in found.reason and bool(found.reason) != granted
    assert (server.asked != []) == granted
