# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about what was to undo a change, or to reboot a host, and did not:
each on a host that is to leave the boot arguments of a trial.
"""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "unit/support"))
import rebooted_host
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._boot.visit import program, record, steps
from ansible_collections.threadwise.smt.plugins.plugin_utils._boots import reboot
from visited_host import UNIT_FILE, Booted, Time


@pytest.fixture(name="booted")
def a_booted_host(tmp_path, monkeypatch):
    return Booted(tmp_path / "host", monkeypatch)


def test_systemd_31914_a_daemon_reload_does_not_start_its_time_anew(booted):
    """A timer with OnActiveSec begins again with each daemon-reload: what waits here is a process."""
    assert [path.name for path in (booted.host.root / "etc/systemd/system").iterdir()] == [pathlib.Path(UNIT_FILE).name]
    unit = (booted.host.root / UNIT_FILE).read_text()
    assert "Type=notify" in unit and "Restart=always" in unit and not re.search("^On.*Sec=", unit, re.MULTILINE)


def test_systemd_16578_a_unit_that_failed_often_is_started_again(booted):
    assert re.search("^StartLimitIntervalSec=0$", (booted.host.root / UNIT_FILE).read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "error",
    [
        "Call to Reboot failed: Interactive authentication required.",
        "Please retry operation after closing inhibitors and logging out other users.",
    ],
)
def test_systemd_36786_inhibitors_that_hold_for_root_too_end_some_time(booted, error):
    booted.host.fails = {"reboot": error}
    booted.follow(Time())
    booted.assert_back()
    assert error in booted.said() and booted.host.calls.count("reboot") == program.POLITE_ATTEMPTS


def test_machine_config_operator_2381_a_masked_reboot_target(booted):
    booted.host.fails = {
        "reboot": "Call to Reboot failed: Access denied",
        "start": "Failed to start reboot.target: Unit reboot.target is masked.",
    }
    booted.host.is_masked = True

    def unmasked():
        # One way or the other, it still tries, and logind's answer is not all that it says.
        assert {"reboot", "start reboot.target"} <= set(booted.host.calls)
        assert (
            "Access denied (reboot.target is masked: unmask it)" in booted.said()
            and "is masked" in record.load(booted.host.fs).why
        )
        booted.host.fails = {}

    booted.follow(Time((2400, unmasked)))
    booted.assert_back()


def test_kured_137_a_lock_whose_holder_is_gone(booted):
    """The file names a process that does not exist, and the kernel knows no lock."""
    (booted.host.root / "run/threadwise-smt/lock").write_text(
        "4194305 smt_benchmark\nfor user root since 2020-04-28T14:59:28Z\n"
    )
    time = Time()
    booted.follow(time)
    booted.assert_back()
    assert time.now < 700


def test_talos_4200_a_reboot_by_kexec_with_the_arguments_of_the_running_kernel(booted):
    booted.host.keeps_arguments = True

    def seen():
        assert booted.reboots == steps.MAX_REBOOTS and "still runs with nosmt" in record.load(booted.host.fs).why
        booted.host.keeps_arguments = False
        booted.host.boot()

    booted.follow(Time((9000, seen)))
    booted.assert_back(steps.MAX_REBOOTS)
    assert all(word in program._REBOOT for word in ("SYSTEMCTL_SKIP_AUTO_KEXEC=1", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1"))


def test_netplan_548_an_undo_that_reports_success_and_has_no_effect(booted, monkeypatch):
    real, ineffective = change.run, []

    def run(fs, request, *rest):
        if request.smt == "enabled" and not request.check and len(ineffective) < 3:
            ineffective.append(booted.host.has_visit)
            return real(fs, request._replace(check=True), *rest)
        return real(fs, request, *rest)

    monkeypatch.setattr(steps.change, "run", run)
    booted.follow(Time())
    booted.assert_back()
    assert ineffective == [(True, True)] * 3


def test_nixpkgs_23926_a_full_boot_partition(booted, monkeypatch):
    real = change.run

    def full(fs, request, *rest):
        if not request.check:
            raise change.ERRORS[0]("The backup copy of /boot/grub/grub.cfg cannot be made: No space left on device")
        return real(fs, request, *rest)

    monkeypatch.setattr(steps.change, "run", full)

    def room():
        assert "No space left on device" in record.load(booted.host.fs).why
        monkeypatch.setattr(steps.change, "run", real)

    booted.follow(Time((4000, room)))
    booted.assert_back()


def test_systemd_26943_what_was_waited_for_before_a_boot_is_not_lost(booted):
    """Also a host that is booted again and again goes back in the boot that lasts."""

    def again():
        booted.host.boot()
        raise EndedByPowerError

    class EndedByPowerError(BaseException):
        pass

    for _boot in range(3):
        with pytest.raises(EndedByPowerError):
            booted.follow(Time((300, again)))
    booted.follow(Time())
    booted.assert_back()


def test_ansible_83018_a_host_that_shuts_down_is_not_taken_for_a_rebooted_one(monkeypatch):
    """What a login says of a home directory that is unmounted already differs from the boot id of before."""
    host = rebooted_host.RebootedHost(monkeypatch)
    host.looks = 5
    seen = []
    monkeypatch.setattr(reboot.Reboot, "verify", lambda *_given: seen.append(host.looks))
    host.visit().enter({"smt": "disabled"})
    assert seen == [0]
