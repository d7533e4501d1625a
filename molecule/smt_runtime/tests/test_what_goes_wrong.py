# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong on the way, on one guest, after the tests of states have left all CPUs online.

The last leaves a guest that only a reboot leads out of.
"""

from __future__ import annotations

import re

import pytest
from guest import (
    CPUS,
    RECORD,
    SAVED,
    UNIT,
    control,
    cores_of,
    cpus,
    firsts,
    online,
    pinned,
    plan,
    smt_state,
    wait_until,
)

KILLER = "/usr/local/lib/kill_between_writes.sh"
RULES = "/usr/lib/udev/rules.d/40-redhat.rules"
RULE = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"'
# Eight of these fit on eight CPUs (8 x 0.94 < 8 x 0.95), and not on seven.
DEADLINE = (
    "chrt --deadline --sched-runtime 940000000 --sched-deadline 1000000000 --sched-period 1000000000 0 sleep infinity"
)
testinfra_hosts = ["ansible://faults"]


@pytest.fixture(name="cores")
def cores_of_the_shape(host):
    return cores_of(host)


def test_a_task_that_wakes_up_without_its_cpu(host):
    """Linux before 6.2 widens the mask of such a task when it wakes up, and forgets what it was."""
    host.check_output("systemd-run --collect --unit=waking taskset -c 7 sh -c 'while sleep 0.2; do :; done'")
    pid = host.check_output("systemctl show -p MainPID --value waking")
    smt_state(host, state="disabled", affinity_conflicts="warn")
    wait_until(lambda: host.check_output("grep Cpus_allowed_list /proc/%s/status", pid).split()[1] != "7")
    done = smt_state(host, state="enabled")
    assert all("is gone" in line for line in done["not_restored"]), "its children come and go"
    assert host.check_output("grep Cpus_allowed_list /proc/%s/status", pid).split()[1] == "7"
    host.check_output("systemctl stop waking")


def test_killed_between_two_writes(host, cores):
    host.check_output("systemd-run --collect --unit=killer sh %s", KILLER)
    done = smt_state(host, state="disabled", affinity_conflicts="warn", method="cpu_online")
    assert "after" not in done, "the module was to be killed"
    between = cpus(host.check_output("cat /run/killed_at"))
    assert firsts(cores, 1) != between != firsts(cores, 99), "it was killed half way"
    wait_until(lambda: host.run("flock -n /run/threadwise-smt/lock true").rc == 0)
    assert online(host) == firsts(cores, 99)
    assert pinned(host) == "7"
    assert " restored, because " in host.check_output("tail -n 1 /var/lib/threadwise-smt/watchdog.log")
    assert not host.file(SAVED).exists


def test_second_run_names_the_first(host):
    host.check_output("systemd-run --collect --unit=holder flock /run/threadwise-smt/lock sleep infinity")
    host.check_output("sleep 1; echo $(systemctl show -p MainPID --value holder) another run >/run/threadwise-smt/lock")
    done = smt_state(host, state="disabled", affinity_conflicts="warn")
    host.check_output("systemctl stop holder")
    assert re.search(r"changed by another run, pid \d+", done["msg"]), done


def test_lost_controller(host, cores):
    """The change is made, and nobody confirms it."""
    done = smt_state(host, state="disabled", affinity_conflicts="warn", rollback_after=5, persist="systemd")
    assert done["rollback_pending"] is True
    assert not host.file(UNIT).exists, "kept over boots with the confirmation only"
    wait_until(lambda: not host.file(RECORD).exists)
    assert online(host) == firsts(cores, 99)
    assert pinned(host) == "7"
    assert not host.file(SAVED).exists
    late = smt_state(host, state="disabled", affinity_conflicts="warn", confirm=True)
    assert "this comes too late" in late["msg"]
    assert online(host) == firsts(cores, 99)


@pytest.mark.parametrize("first", ["confirmation", "timer"])
def test_confirmation_beside_the_timer(host, cores, first):
    """Both wait for the lock that a third one holds.

    Who waits is held as well: a stopped process does not look whether the lock is free.
    """
    smt_state(host, state="disabled", affinity_conflicts="warn", rollback_after=10)
    # Killed and not stopped by systemd, the holder would be started again or leave a failed unit.
    host.check_output("systemd-run --collect --unit=holder flock /run/threadwise-smt/lock sleep infinity")
    wait_until(lambda: host.run("systemctl is-active --quiet threadwise-smt-rollback.service").rc == 0)
    if first == "timer":
        host.check_output("systemd-run --collect --on-active=5 systemctl stop holder")
        host.check_output("sleep 4")
        wait_until(lambda: not host.file(RECORD).exists)
        done = smt_state(host, state="disabled", affinity_conflicts="warn", confirm=True)
        assert "this comes too late" in done["msg"]
        assert online(host) == firsts(cores, 99)
    else:
        host.check_output("systemctl kill --signal=STOP threadwise-smt-rollback.service")
        host.check_output("systemctl stop holder")
        done = smt_state(host, state="disabled", affinity_conflicts="warn", confirm=True)
        assert (done["changed"], done["rollback_pending"]) == (True, False)
        assert host.run("systemctl is-active threadwise-smt-rollback.service").rc == 3, (
            "nobody is left who would take it back"
        )
        assert online(host) == firsts(cores, 1)
        smt_state(host, state="restored")
    assert pinned(host) == "7"


def test_an_evaluation_does_not_keep_the_timer_waiting(host):
    smt_state(host, state="disabled", affinity_conflicts="warn", rollback_after=3600)
    refused = plan(host, run="waiting", budget=30, workloads=["gzip"])
    assert "waits to be confirmed" in refused["msg"], refused
    smt_state(host, state="restored")


def test_confirmed(host, cores):
    smt_state(host, state="disabled", affinity_conflicts="warn", rollback_after=3600)
    done = smt_state(host, state="disabled", affinity_conflicts="warn", confirm=True, persist="systemd")
    assert (done["changed"], done["rollback_pending"]) == (True, False)
    assert host.run("systemctl is-active threadwise-smt-rollback.service").rc == 3
    assert host.check_output("systemctl is-enabled threadwise-smt") == "enabled"
    assert host.run("systemd-analyze verify threadwise-smt.service").rc == 0
    assert online(host) == firsts(cores, 1)
    smt_state(host, state="restored")
    assert not host.file(UNIT).exists
    assert not host.file("/etc/systemd/system/sysinit.target.wants/threadwise-smt.service").exists


def test_deadline_tasks_that_would_not_fit(host, cores):
    host.check_output(f"for n in 1 2 3 4 5 6 7 8; do systemd-run --collect --unit=deadline$n {DEADLINE}; done; sleep 2")
    done = smt_state(host, state="disabled", affinity_conflicts="warn")
    host.check_output("systemctl stop 'deadline*'")
    assert re.search(
        r"CPU \d+: EBUSY: SCHED_DEADLINE bandwidth would not fit.*the previous state was restored", done["msg"]
    ), done
    assert online(host) == firsts(cores, 99)
    assert not host.file(SAVED).exists


def test_refused_half_way(host, cores):
    """CPU 1 and 3 have gone when CPU 5 is refused."""
    path = CPUS + "/cpu5/online"
    host.check_output(f"echo 1 >/run/refusing; mount --bind /run/refusing {path}; mount -o remount,bind,ro {path}")
    done = smt_state(host, state="disabled", affinity_conflicts="warn", method="cpu_online")
    host.check_output("umount %s", path)
    assert re.search("CPU 5: EROFS: .*the previous state was restored", done["msg"]), done
    assert online(host) == firsts(cores, 99)
    assert pinned(host) == "7"


def test_read_only_sysfs(host, cores):
    host.check_output("mount -o remount,ro /sys")
    done = smt_state(host, state="disabled", affinity_conflicts="warn")
    host.check_output("mount -o remount,rw /sys")
    assert "smt/control is on a file system that is mounted read-only" in done["msg"]
    assert online(host) == firsts(cores, 99)


def test_no_dead_man_without_systemd(host):
    host.check_output("mv /usr/bin/systemd-run /usr/bin/systemd-run.away")
    done = smt_state(host, state="disabled", affinity_conflicts="warn", rollback_after=60)
    host.check_output("mv /usr/bin/systemd-run.away /usr/bin/systemd-run")
    assert "rollback_after needs systemd" in done["msg"]
    assert control(host) == "on"


def test_rules_that_online_cpus(host, cores):
    host.check_output(f"echo '{RULE}' >{RULES}; sleep 4")
    smt_state(host, threads_per_core=1, method="cpu_online", affinity_conflicts="warn")
    host.check_output("udevadm trigger --action=add --subsystem-match=cpu --settle")
    assert online(host) == firsts(cores, 99), "the rule has undone it"
    assert smt_state(
        host, threads_per_core=1, method="cpu_online", affinity_conflicts="warn", neutralise_udev_rules=True
    )["changed"]
    host.check_output("sleep 4; udevadm trigger --action=add --subsystem-match=cpu --settle")
    assert online(host) == firsts(cores, 1), "the rule rests"
    assert smt_state(host, state="restored")["changed"]
    assert not host.file("/etc/udev/rules.d/40-redhat.rules").exists
    host.check_output("rm %s", RULES)


def test_final_off(host, cores):
    """Last, because only a reboot leads out of it."""
    host.check_output("systemctl stop pinned; echo forceoff >%s/smt/control", CPUS)
    assert smt_state(host, state="disabled")["changed"] is False
    for options in ({"state": "enabled"}, {"threads_per_core": 2}):
        assert "forceoff is final until a reboot" in smt_state(host, **options)["msg"]
    assert online(host) == firsts(cores, 1)
