# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A visit of other boot arguments: what undoes it is there before they are, and gone when the host was seen without
them; it tries until it is done, and has said what kept it.
"""

import fcntl
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
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
from visited_host import UNIT_FILE, Booted, Time, VisitedHost

NOSMT = change.Request("disabled", None, False, False)
FORCED = change.Request("forced_off", None, False, False)
OPEN = change.Request("enabled", None, False, False, "off")
OWN = change.Request("enabled", None, False, False)
EVALUATION = "the evaluation r"


@pytest.fixture(name="host")
def a_host(tmp_path, monkeypatch):
    host = VisitedHost(tmp_path / "host")
    monkeypatch.setattr(units.processes, "run", host.systemctl)
    return host


def test_what_undoes_runs_before_the_arguments_are_set(host, monkeypatch):
    real = change.run

    def run(fs, request, *rest):
        if not request.check:
            assert host.has_visit == (True, True) and host.calls[-1] == f"restart {record.UNIT}.service"
        return real(fs, request, *rest)

    monkeypatch.setattr(visit.change, "run", run)
    assert visit.begin(host.fs, NOSMT, 600, EVALUATION)["arguments"] == ["nosmt"]
    assert host.calls == ["daemon-reload", f"enable {record.UNIT}.service", f"restart {record.UNIT}.service"]
    assert record.load(host.fs) == record.Visit(EVALUATION, 600, ("nosmt",)) and host.arguments == ("nosmt",)


def test_a_beginning_that_fails_leaves_nothing_and_one_that_is_killed_keeps_no_other_out(host, monkeypatch):
    for fails in ("enable", "restart"):
        host.fails = {fails: "no"}
        with pytest.raises(visit.VisitError, match=f"systemctl {fails}.*failed with status 1: no"):
            visit.begin(host.fs, NOSMT, 600, EVALUATION)
        assert host.has_visit == (False, False) and host.arguments == ()
    host.fails = {}
    (host.root / "mkconfig-fails").touch()
    with pytest.raises(change.ERRORS):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert host.has_visit == (False, False)
    (host.root / "mkconfig-fails").unlink()

    def killed(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(units.processes, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert host.has_visit == (True, True)
    monkeypatch.setattr(units.processes, "run", host.systemctl)
    assert visit.begin(host.fs, NOSMT, 600, "the trial t")["arguments"] == ["nosmt"]


def test_who_has_begun_goes_on_with_other_arguments_and_ends_it_after_the_proof(host):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    host.boot()
    for request, arguments in ((FORCED, ("nosmt=force",)), (OWN, ()), (OPEN, ("mitigations=off",))):
        host.calls.clear()
        visit.begin(host.fs, request, 900, EVALUATION)
        assert host.arguments == arguments and f"reload {record.UNIT}.service" in host.calls
        assert f"restart {record.UNIT}.service" not in host.calls
        host.boot()
    known = record.load(host.fs)
    assert (known.arguments, known.seconds) == (("mitigations=off", "nosmt", "nosmt=force"), 900)
    assert visit.end(host.fs, True) == (True, True) and host.arguments == ("mitigations=off",)
    # Nothing is removed while the kernel has the arguments.
    assert visit.end(host.fs, False) == (True, True) and host.arguments == () and host.has_visit == (True, True)
    assert record.load(host.fs).is_ending
    host.boot()
    assert visit.end(host.fs, False) == (True, False) and host.has_visit == (False, False)
    assert f"stop {record.UNIT}.service" in host.calls
    assert visit.end(host.fs, False) == (False, False)


def test_arguments_that_it_cannot_have_leave_what_brings_it_back_from_others(host):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    (host.root / "mkconfig-fails").touch()
    with pytest.raises(change.ERRORS):
        visit.begin(host.fs, FORCED, 600, EVALUATION)
    assert host.has_visit == (True, True) and host.arguments == ("nosmt",)
    with pytest.raises(change.ERRORS):
        visit.end(host.fs, False)
    assert host.has_visit == (True, True)


def test_another_visit_is_refused_with_what_it_said_last_and_the_way_out(host, monkeypatch):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    monkeypatch.setattr(units, "status_text", lambda: "it cannot be rebooted:\x1b[31m no")
    with pytest.raises(visit.VisitError, match=r"cannot be rebooted:\\x1b\[31m no") as refused:
        visit.begin(host.fs, NOSMT, 600, "the trial t")
    assert str(refused.value).startswith(EVALUATION) and record.UNDO_NOW in str(refused.value)
    # Once it goes back, its own controller is too late.
    visit.end(host.fs, False)
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    host.boot()
    visit.end(host.fs, False)
    with pytest.raises(visit.VisitError, match="they are not undone yet"):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)


def test_a_host_with_arguments_of_its_own_or_without_systemd_is_refused(host):
    change.run(host.fs, NOSMT)
    with pytest.raises(visit.VisitError, match=r"it does not boot with SMT on.*smt_boot_smt=enabled"):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)
    change.run(host.fs, OWN)
    (host.root / "run/systemd/system").rmdir()
    with pytest.raises(visit.VisitError, match="systemd does not run on this host"):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)


def test_the_copy_on_the_host_loads_with_nothing_else(host):
    """As the service does: nothing of this collection is found elsewhere."""
    visit.begin(host.fs, NOSMT, 0, EVALUATION)
    command = [sys.executable, "-BES", units.ARCHIVE, str(host.root)]
    done = subprocess.run(command, cwd=host.root, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert host.has_visit == (False, False) and host.arguments == ()
    assert "back: neither the boot configuration nor the running kernel" in (host.root / program.LOG).read_text()


def test_words_of_the_unit_are_words_for_systemd_and_the_shell(host, monkeypatch, tmp_path):
    monkeypatch.setattr(archive.sys, "executable", '/opt/50%/py$3 \\"x"')
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    unit = (host.root / UNIT_FILE).read_text()
    assert re.search("^ExecStart=.*" + re.escape(r'"/opt/50%%/py$$3 \\\"x\"" "/usr/bin/python3"'), unit, re.MULTILINE)
    tool = tmp_path / "python"
    tool.write_text('#!/bin/sh\necho "$0 $*"\n')
    tool.chmod(0o755)
    command = ["/bin/sh", "-c", archive._START, "sh", "/program", "/", "/gone", str(tool)]
    assert subprocess.check_output(command, text=True) == f"{tool} -BES /program /\n"


def test_a_record_that_cannot_be_read_sends_the_host_back(host):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    path = host.root / record.PROGRAM / "visit.json"
    slot = {"slot": {"fleetlock": "x"}, "group": "", "host": "", "window": {}}
    known = json.loads(path.read_text())
    of_slot = json.dumps({**known, "slot": slot})
    # The record of an earlier version has no slot.
    del known["slot"]
    path.write_text(json.dumps(known))
    assert record.load(host.fs).slot is None
    for damage in ("", "[]", '{"schema": "threadwise.smt/boot-visit", "schema_version": 1, "owner": 1}', of_slot):
        path.write_text(damage)
        assert record.load(host.fs) == record.UNKNOWN
        with pytest.raises(visit.VisitError):
            visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert visit.end(host.fs, False) == (True, False) and host.arguments == ()


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


def test_a_measurement_is_waited_for_and_leaves_time_for_its_controller(booted):
    held = os.open(booted.host.root / "run/threadwise-smt/lock", os.O_RDWR)
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


def test_a_boot_loader_tool_that_fails_for_a_while(booted):
    broken = booted.host.root / "mkconfig-fails"
    broken.touch()

    def problems():
        fs = host_files.HostFs(str(booted.host.root))
        return [one for one in facts.gather(fs)["problems"] if "not undone yet" in one]

    def mended():
        (why,) = problems()
        assert "cannot find a device for /" in why and "the trial t" in why
        assert booted.host.has_visit == (True, True)
        broken.unlink()

    booted.follow(Time((900, mended)))
    booted.assert_back()
    assert "cannot find a device for /" in booted.said() and not problems()


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
        assert server.holders == {"db": set()} and server.asked.count(("steady-state", "db", "a")) == 1
