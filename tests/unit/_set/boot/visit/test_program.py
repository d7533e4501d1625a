# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What undoes tries until it is done: each fault of a host ends some time, and then the host is back,
and has said what kept it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import socket

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import (
    change as visit,
    program,
    record,
    steps,
    units,
)
from fleetlock_server import FleetLock
from visited_host import Booted, Time

NOSMT = change.Request("disabled", None, False, False)
OPEN = change.Request("enabled", None, False, False, "off")


@pytest.fixture(name="booted")
def a_booted_host(tmp_path, monkeypatch):
    return Booted(tmp_path / "host", monkeypatch)


@pytest.mark.parametrize(("is_booted", "reboots"), [(True, 1), (False, 0)])
def test_it_reboots_only_what_was_booted_and_forgets_after_the_proof(tmp_path, monkeypatch, is_booted, reboots):
    booted, time = Booted(tmp_path / "host", monkeypatch, is_booted=is_booted), Time()
    forget, seen = units.forget, []

    def forgets(fs, stops):
        seen.append(steps.look(fs, record.load(fs)))
        forget(fs, stops)

    monkeypatch.setattr(units, "forget", forgets)
    booted.follow(time)
    booted.assert_back(reboots)
    assert time.now >= 600 and seen == [steps.Seen(False, ())]


def test_signs_of_the_controller_put_it_off_and_its_order_ends_it(booted):
    time = Time((500, program.RENEWED), (1000, program.RENEWED), (1100, program.UNDO_NOW))
    booted.follow(time)
    booted.assert_back()
    assert 1100 <= time.now < 1200


def test_a_boot_that_ends_the_visit_does_not_wait(booted):
    visit.end(booted.host.fs, False)
    booted.host.boot()
    time = Time()
    booted.follow(time)
    assert time.now == 0
    booted.assert_back(reboots=0)


def test_a_measurement_is_waited_for_and_leaves_time_for_its_controller(booted):
    lock = booted.host.root / "run/threadwise-smt/lock"
    held = os.open(lock, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.write(held, b"1 smt_benchmark\n")

    def released():
        assert "its time is over; it waits, because this host is being changed by smt_benchmark, pid 1" in booted.said()
        assert booted.host.arguments == ("nosmt",)
        os.close(held)

    def renewed():
        # The controller has fetched the results, and goes on.
        visit.begin(booted.host.fs, NOSMT, 700, "the trial t")
        return program.RENEWED

    time = Time((900, released), (900 + program.GRACE_SECONDS - 30, renewed))
    booted.follow(time)
    assert time.now >= 1100 + 700
    booted.assert_back()


@pytest.mark.night(after=1)
@pytest.mark.parametrize("renewed", [True, False], ids=["while it goes back", "at the end of its time"])
def test_a_lock_that_another_run_holds_for_an_hour(booted, renewed):
    lock = booted.host.root / "run/threadwise-smt/lock"
    held = os.open(lock, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    events = [(10, program.UNDO_NOW)] if renewed else []
    # Sixty attempts and more are enough.
    time = Time(*events, (1500, lambda: os.close(held)))
    booted.follow(time)
    booted.assert_back()
    assert "this host is being" in booted.said() and time.now < 1500 + program.GRACE_SECONDS + 60


def test_a_boot_loader_tool_that_fails_for_a_while(booted):
    broken = booted.host.root / "mkconfig-fails"
    broken.touch()

    def mended():
        why = [one for one in facts.gather(booted.host.fs)["problems"] if "not undone yet" in one]
        assert len(why) == 1 and "cannot find a device for /" in why[0] and "the trial t" in why[0]
        assert booted.host.has_visit == (True, True)
        broken.unlink()

    booted.follow(Time((900, mended)))
    booted.assert_back()
    assert "cannot find a device for /" in booted.said()
    assert not [
        one for one in facts.gather(host_files.HostFs(str(booted.host.root)))["problems"] if "not undone yet" in one
    ]


def test_checks_that_go_on_do_not_make_it_try_more_often(booted):
    booted.host.fails = {"reboot": "Access denied", "start": "Access denied"}

    def mended():
        assert "Access denied" in record.load(booted.host.fs).why and booted.host.arguments == ()
        booted.host.fails = {}

    checks = [(620 + second, program.RENEWED) for second in range(100)]
    booted.follow(Time((500, program.UNDO_NOW), *checks, (721, mended)))
    booted.assert_back()
    # From the order to the repair, every half a minute.
    assert booted.host.calls.count("reboot") <= (721 - 500) / program.PAUSE_SECONDS + 2


def test_an_inhibitor_that_nobody_takes_away_is_respected_and_then_not_asked(booted):
    booted.host.fails = {"reboot": "Access denied"}
    time = Time()
    booted.follow(time)
    booted.assert_back()
    assert booted.host.calls.count("reboot") == program.POLITE_ATTEMPTS and "start reboot.target" in booted.host.calls


def test_a_disk_without_room_for_what_it_says(booted, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "save", full)
    monkeypatch.setattr(program, "_append", full)
    time = Time()
    booted.follow(time)
    # Without a note of it the boot that is back waits for its time.
    assert (booted.reboots, booted.host.has_visit, booted.host.arguments) == (1, (False, False), ())
    assert time.now >= 1200


def test_a_kernel_that_keeps_the_arguments_is_not_rebooted_for_ever(booted):
    """What boots does not read the boot loader's entries, as with kexec."""
    booted.host.keeps_arguments = True

    def mended():
        assert booted.reboots == steps.MAX_REBOOTS
        assert "after 3 reboots the kernel still runs with nosmt" in record.load(booted.host.fs).why
        booted.host.keeps_arguments = False
        booted.host.boot()

    booted.follow(Time((5000, mended)))
    booted.assert_back(steps.MAX_REBOOTS)


def test_mitigations_of_the_administrator_stay_and_ours_go(tmp_path, monkeypatch):
    own = "mitigations=auto,no_user_kernel"
    settings = f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{own}"\n'
    booted = Booted(tmp_path / "host", monkeypatch, OPEN, settings=settings)
    assert "mitigations=off" in (booted.host.root / "proc/cmdline").read_text()
    booted.follow(Time())
    assert (booted.reboots, booted.host.arguments, booted.host.has_visit) == (1, (own,), (False, False))
    assert own in (booted.host.root / "proc/cmdline").read_text()


def test_the_log_is_no_way_to_another_file_and_does_not_grow_for_ever(booted, tmp_path):
    log, other = booted.host.root / program.LOG, tmp_path / "other"
    other.write_text("theirs")
    log.symlink_to(other)
    booted.follow(Time())
    assert other.read_text() == "theirs"
    log.unlink()
    log.write_bytes(b"x" * program._MAX_LOG)
    program._append(str(log), "more\n")
    assert log.stat().st_size == program._MAX_LOG


def test_what_it_says_reaches_systemd_in_one_line(booted, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        path = pathlib.Path(tmp_path, "n")
        systemd.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        program.Program(booted.host.fs, record.load(booted.host.fs), Time().wait)._say("two\nlines\x1b")
        assert systemd.recv(1000) == b"STATUS=two lines\\x1b"


def test_it_asks_before_it_reboots_and_waits_until_it_may(tmp_path, monkeypatch):
    with FleetLock().running() as server:
        server.holders = {"db": {"other"}}
        slot = {"slot": {"fleetlock": server.url}, "group": "db", "host": "a", "window": {}}
        booted = Booted(tmp_path / "host", monkeypatch, slot=slot)

        def free():
            assert booted.reboots == 0 and "it waits for its reboot: " in record.load(booted.host.fs).why
            server.holders.clear()

        booted.follow(Time((1000, free)))
        booted.assert_back()
        assert server.holders == {"db": set()} and server.asked[-1] == ("steady-state", "db", "a")
        assert server.asked.count(("steady-state", "db", "a")) == 1


def test_the_record_of_an_earlier_version_has_no_slot(booted):
    path = booted.host.root / record.PROGRAM / "visit.json"
    known = json.loads(path.read_text())
    del known["slot"]
    path.write_text(json.dumps(known))
    assert record.load(booted.host.fs).slot is None
    path.write_text(json.dumps({**known, "slot": {"slot": {"fleetlock": "x"}, "group": "", "host": "", "window": {}}}))
    assert record.load(booted.host.fs) == record.UNKNOWN
