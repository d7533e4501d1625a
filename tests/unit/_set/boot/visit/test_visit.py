# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose boot arguments undo themselves: everything is there before they are set,
and gone when the host was seen without them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import visited_host
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import (
    change as visit,
    program,
    record,
    units,
)

NOSMT = change.Request("disabled", None, False, False)
FORCED = change.Request("forced_off", None, False, False)
OPEN = change.Request("enabled", None, False, False, "off")
OWN = change.Request("enabled", None, False, False)
EVALUATION = "the evaluation r"


@pytest.fixture(name="host")
def a_host(tmp_path, monkeypatch):
    host = visited_host.VisitedHost(tmp_path / "host")
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


def test_a_beginning_that_fails_leaves_nothing(host):
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


def test_what_was_not_booted_needs_no_reboot(host):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert visit.end(host.fs, False) == (True, False) and host.arguments == () and host.has_visit == (False, False)


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
    with pytest.raises(visit.VisitError) as refused:
        visit.begin(host.fs, NOSMT, 600, "the trial t")
    assert str(refused.value).startswith(
        f"{EVALUATION} has set its boot arguments, and they are not undone yet (it cannot be rebooted:\\x1b[31m no)"
    )
    assert record.UNDO_NOW in str(refused.value)
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


def test_what_a_killed_call_left_keeps_no_other_out(host, monkeypatch):
    class KilledError(BaseException):
        pass

    def killed(*_arguments):
        raise KilledError

    monkeypatch.setattr(units.processes, "run", killed)
    with pytest.raises(KilledError):
        visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert host.has_visit == (True, True)
    monkeypatch.setattr(units.processes, "run", host.systemctl)
    assert visit.begin(host.fs, NOSMT, 600, "the trial t")["arguments"] == ["nosmt"]


def test_the_copy_on_the_host_loads_with_nothing_else(host):
    """As the service does: nothing of this collection is found elsewhere.

    The arguments were not booted, and its time is over at once.
    """
    visit.begin(host.fs, NOSMT, 0, EVALUATION)
    command = [sys.executable, "-BES", units.ARCHIVE, str(host.root)]
    done = subprocess.run(command, cwd=host.root, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert host.has_visit == (False, False) and host.arguments == ()
    assert "back: neither the boot configuration nor the running kernel" in (host.root / program.LOG).read_text()


def test_words_of_the_unit_are_words_for_systemd_and_the_shell(host, monkeypatch, tmp_path):
    monkeypatch.setattr(archive.sys, "executable", '/opt/50%/py$3 \\"x"')
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    lines = dict(
        line.split("=", 1) for line in (host.root / visited_host.UNIT_FILE).read_text().splitlines() if "=" in line
    )
    assert '"/opt/50%%/py$$3 \\\\\\"x\\"" "/usr/bin/python3"' in lines["ExecStart"]
    shell = archive._START
    tool = tmp_path / "python"
    tool.write_text('#!/bin/sh\necho "$0 $*"\n')
    tool.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", "/program", "/", "/gone", str(tool)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tool} -BES /program /\n"


def test_a_record_that_cannot_be_read_sends_the_host_back(host):
    visit.begin(host.fs, NOSMT, 600, EVALUATION)
    for damage in ("", "[]", '{"schema": "threadwise.smt/boot-visit", "schema_version": 1, "owner": 1}'):
        (host.root / record.PROGRAM / "visit.json").write_text(damage)
        assert record.load(host.fs) == record.UNKNOWN
        with pytest.raises(visit.VisitError, match="an earlier run has set its boot arguments"):
            visit.begin(host.fs, NOSMT, 600, EVALUATION)
    assert visit.end(host.fs, False) == (True, False) and host.arguments == ()
