# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shortest orders in which the first state, or the one before a change that is not confirmed, could be lost,
on a real kernel.
"""

from __future__ import annotations

import pytest
from guest import CPUS, RECORD, SAVED, TMPFILES, UNIT, call, cpus, online, pinned, smt_state, wait_until

FILLER = "/usr/local/lib/fill_and_kill.sh"
STATE = "/var/lib/threadwise-smt"
ALL, FIRST, PART = list(range(8)), [0, 2, 4, 6], [0, 1, 2, 3, 4, 6]
PART_OFF = {"state": "disabled", "cores": {"package": 1}}
SERVICE = "threadwise-smt-rollback.service"
testinfra_hosts = ["ansible://faults"]


@pytest.fixture(name="guest")
def first_state(host):
    """A guest as it was found, before and after."""
    yield host
    done = change(host, "restored")
    host.run("echo 1 >%s/cpu3/online", CPUS)
    assert (online(host), pinned(host), host.file(SAVED).exists, host.file(RECORD).exists) == (
        ALL,
        "7",
        False,
        False,
    ), done
    assert host.run("find /etc /var/lib/threadwise-smt -name '.*threadwise-smt-before'").stdout == ""


def change(host, state=None, **options):
    return smt_state(host, **({"state": state} if state else {}), affinity_conflicts="warn", **options)


def roll_back(host):
    """The time is over."""
    host.check_output("systemctl kill --kill-who=main --signal=USR1 %s", SERVICE)
    wait_until(lambda: not host.file(RECORD).exists)


@pytest.mark.parametrize("state", ["enabled", "restored"])
def test_a_rollback_of_the_change_back_to_the_first_state(guest, state):
    change(guest, **PART_OFF)
    change(guest, state, rollback_after=600)
    assert online(guest) == ALL
    roll_back(guest)
    assert online(guest) == PART
    assert change(guest, state)["changed"] and online(guest) == ALL


def test_a_cpu_that_was_off_on_purpose(guest):
    guest.check_output("echo 0 >%s/cpu3/online", CPUS)
    change(guest, "disabled")
    change(guest, "restored", rollback_after=600)
    roll_back(guest)
    assert online(guest) == FIRST
    change(guest, "enabled")
    assert online(guest) == [0, 1, 2, 4, 5, 6, 7]
    change(guest, "restored")
    assert online(guest) == [0, 1, 2, 4, 5, 6, 7]


def test_a_timer_that_cannot_be_started(guest):
    guest.check_output("systemctl mask --runtime %s", SERVICE)
    refused = change(guest, "disabled", rollback_after=600)
    guest.check_output("systemctl unmask --runtime %s", SERVICE)
    assert "did not start the rollback timer" in refused["msg"]
    assert (online(guest), guest.file(SAVED).exists, guest.file(RECORD).exists) == (ALL, False, False)


def test_a_service_that_is_killed_goes_on(guest):
    change(guest, "disabled", rollback_after=8)
    guest.check_output("systemctl kill --kill-who=main --signal=KILL %s", SERVICE)
    wait_until(lambda: not guest.file(RECORD).exists)
    assert online(guest) == ALL


def test_two_changes_that_are_not_confirmed(guest):
    change(guest, **PART_OFF, rollback_after=600)
    change(guest, "disabled")
    roll_back(guest)
    assert online(guest) == ALL


def test_back_to_a_part_with_its_file(guest):
    change(guest, **PART_OFF, persist="systemd")
    unit = guest.file(UNIT).content_string
    call(guest, "smt_rollback", False, {"state": "saved", "parts": ["running"]})
    change(guest, "disabled")
    assert online(guest) == FIRST and not guest.file(UNIT).exists
    call(guest, "smt_rollback", False, {"state": "back"})
    call(guest, "smt_rollback", False, {"state": "confirmed"})
    assert (online(guest), guest.file(UNIT).content_string) == (PART, unit)


@pytest.fixture(name="small_disk")
def disk_of_its_own(guest):
    """The state is on a file system of one MiB; ``df`` counts what root may use."""
    guest.check_output(
        f"truncate -s 1M /run/small && mkfs.ext4 -q -m 0 /run/small && cp -a {STATE} /run/state-before && mount -o loop"
        f" /run/small {STATE} && cp -a /run/state-before/. {STATE}/"
    )
    yield guest
    change(guest, "restored")
    guest.check_output(f"rm -f {STATE}/filler; umount {STATE}; rm -r /run/state-before /run/small")


@pytest.mark.parametrize("left", [0, 1, 4096])
def test_a_change_without_room_is_not_begun(small_disk, left):
    small_disk.check_output(
        f"n=$(df --output=avail -B1 {STATE} | tail -1); head -c $((n - {left})) /dev/zero >{STATE}/filler; true"
    )
    refused = change(small_disk, "disabled")
    assert (
        "No space left on device" in refused["msg"]
        and STATE in refused["msg"]
        and "The host is as it was before" in refused["msg"]
    )
    assert online(small_disk) == ALL


def test_a_disk_that_is_full_when_the_change_is_killed(small_disk):
    small_disk.check_output("systemd-run --collect --unit=filler sh %s", FILLER)
    done = change(small_disk, "disabled", method="cpu_online")
    assert "after" not in done, "the module was to be killed"
    assert cpus(small_disk.check_output("cat /run/killed_at")) != ALL
    wait_until(lambda: small_disk.run("flock -n /run/threadwise-smt/lock true").rc == 0)
    assert online(small_disk) == ALL and pinned(small_disk) == "7"
    assert not small_disk.file(SAVED).exists


def test_a_disk_that_is_full_when_the_time_is_over(small_disk):
    change(small_disk, "disabled", rollback_after=600)
    small_disk.run(f"cat /dev/zero >{STATE}/filler")
    roll_back(small_disk)
    assert online(small_disk) == ALL and not small_disk.file(SAVED).exists
    small_disk.check_output(f"rm {STATE}/filler")
    assert change(small_disk, "restored")["changed"] is False


def test_a_file_that_is_removed_after_a_boot(guest):
    change(guest, "disabled", persist="tmpfiles")
    guest.ansible("ansible.builtin.reboot", "reboot_timeout=1800", check=False)
    assert online(guest) == FIRST
    change(guest, "disabled")
    assert not guest.file(TMPFILES).exists
    assert change(guest, "restored")["changed"] and online(guest) == ALL
    guest.check_output("systemctl is-active pinned || systemctl start pinned")
