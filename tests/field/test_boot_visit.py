# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about what was to undo a change, or to reboot a host, and did not: each on a host that is to leave the
boot arguments of a trial.
"""

from __future__ import annotations

import pathlib
import re

import pytest
import rebooted_host
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import program, record, steps
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot
from visited_host import UNIT_FILE, Booted, Time


@pytest.fixture(name="booted")
def a_booted_host(tmp_path, monkeypatch):
    return Booted(tmp_path / "host", monkeypatch)


def test_systemd_31914_and_16578_what_waits_is_a_process_and_no_timer_and_is_always_started_again(booted):
    assert [path.name for path in (booted.host.root / "etc/systemd/system").iterdir()] == [pathlib.Path(UNIT_FILE).name]
    unit = (booted.host.root / UNIT_FILE).read_text()
    assert "Type=notify" in unit and "Restart=always" in unit and not re.search("^On.*Sec=", unit, re.MULTILINE)
    assert re.search("^StartLimitIntervalSec=0$", unit, re.MULTILINE)


@pytest.mark.parametrize("error", ["Call to Reboot failed: Interactive authentication required.", "Please retry"])
def test_systemd_36786_inhibitors_that_hold_for_root_too_end_some_time(booted, error):
    booted.host.fails = {"reboot": error}
    booted.follow(Time())
    booted.assert_back()
    assert error in booted.said() and booted.host.calls.count("reboot") == program.POLITE_ATTEMPTS


def test_machine_config_operator_2381_a_masked_reboot_target(booted):
    masked = "Failed to start reboot.target: Unit reboot.target is masked."
    booted.host.fails = {"reboot": "Call to Reboot failed: Access denied", "start": masked}
    booted.host.is_masked = True

    def unmasked():
        # One way or the other, it still tries, and logind's answer is not all that it says.
        assert {"reboot", "start reboot.target"} <= set(booted.host.calls)
        assert "Access denied (reboot.target is masked: unmask it)" in booted.said()
        assert "is masked" in record.load(booted.host.fs).why
        booted.host.fails = {}

    booted.follow(Time((2400, unmasked)))
    booted.assert_back()


def test_kured_137_a_lock_whose_holder_is_gone(booted):
    """The file names a process that does not exist, and the kernel knows no lock."""
    lock = "4194305 smt_benchmark\nfor user root since 2020-04-28T14:59:28Z\n"
    (booted.host.root / "run/threadwise-smt/lock").write_text(lock)
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


def test_netplan_548_and_nixpkgs_23926_an_undo_without_effect_and_a_full_boot_partition(booted, monkeypatch):
    real, failed = change.run, []

    def run(fs, request, *rest):
        if request.check or request.smt != "enabled" or len(failed) >= 6:
            return real(fs, request, *rest)
        failed.append(booted.host.has_visit)
        if len(failed) <= 3:
            return real(fs, request._replace(check=True), *rest)
        raise change.ERRORS[0]("The backup copy of /boot/grub/grub.cfg cannot be made: No space left on device")

    monkeypatch.setattr(steps.change, "run", run)
    booted.follow(Time())
    booted.assert_back()
    assert failed == [(True, True)] * 6 and "No space left on device" in booted.said()


def test_systemd_26943_what_was_waited_for_before_a_boot_is_not_lost(booted):
    """Also a host that is booted again and again goes back in the boot that lasts."""

    def again():
        booted.host.boot()
        raise KeyboardInterrupt

    for _boot in range(3):
        with pytest.raises(KeyboardInterrupt):
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
