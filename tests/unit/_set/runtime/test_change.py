# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole requests on a fake kernel: the snapshot, a second run, a reboot, parts of a host, files that make a setting
persistent, threads of SCHED_DEADLINE, and disks without room.
"""

from __future__ import annotations

import contextlib
import errno
import pathlib
import re
import shutil

import faults
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    restore as smt_restore,
    snapshot as smt_snapshot,
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence, udev_rules
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    timer as rollback_timer,
)
from fake_host import CORES, Host

PART, ALL, ONE_EACH = {"cpus": "4-7"}, "0-7", "0,2,4,6"
CPU = smt_state.CPU_DIRECTORY
KERNELS = {"old": {}, "modern": {"modern": True}, "no control": {"control": None}, "power": {"numeric": True}}
REDHAT = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"\n'


@pytest.fixture(name="host")
def fake_host(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "build", lambda *_arguments: b"the program")
    return Host(tmp_path)


def online(host):
    return cpulist.render(smt_state.read(files=host)["online"])


def test_known_cores_are_remembered(tmp_path):
    """CPU 5 is offline from the start, so no topology cache is saved, and later changes take more CPUs offline:
    their cores have to stay known.
    """
    host = Host(tmp_path, offline=[5])
    host.ask(threads=2)
    assert online(host) == "0-7"
    for state in ("disabled", "restored", "disabled", "enabled"):
        host.ask(state, method="cpu_online" if state == "disabled" else "auto")
    assert online(host) == "0-4,6-7"
    host.ask("disabled", method="cpu_online")
    host.writes.clear()
    host.ask(threads=2, check=True)
    assert host.writes == []
    host.ask(threads=2)
    assert online(host) == "0-7"


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "disabled", "persist": "systemd"},
        {"threads": 1, "method": "cpu_online", "persist": "tmpfiles"},
        {"state": "enabled"},
        {"state": "restored"},
    ],
)
def test_check_mode_predicts_the_result_and_a_second_run_writes_nothing(host, asked):
    predicted = host.ask(check=True, **asked)
    assert (host.writes, host.saved()) == ([], None)
    done = host.ask(**asked)
    assert [done[key] == predicted[key] for key in ("changed", "before", "after", "diff")] == [True] * 4
    assert done["changed"] is (asked.get("state") not in ("enabled", "restored"))
    host.writes.clear()
    assert [host.ask(check=check, **asked)["changed"] for check in (True, False)] == [False, False]
    assert host.writes == []


@pytest.mark.parametrize("text", ["", '{"schema": "threadwise.smt/state", "schema_version": 1, "cpu": {}}', "[" * 5000])
def test_damaged_snapshot(host, text):
    host.put(smt_snapshot.PATH, text)
    with pytest.raises(smt_snapshot.SmtSnapshotError, match=r"smt-snapshot.json cannot be used"):
        host.ask("disabled")
    assert host.writes == []


def test_the_rollback_timer_is_armed_before_the_writes(host):
    assert host.ask("disabled", rollback_after=60, persist="tmpfiles")["rollback_pending"] is True
    armed = [command for command in host.commands if command[0] == "systemd-run"]
    assert len(armed) == 1 and "--service-type=notify" in armed[0] and host.pending()["seconds"] == 60
    assert not host.exists(persistence.TMPFILES_PATH)
    done = host.ask("disabled", confirm=True, persist="tmpfiles")
    assert (done["changed"], done["rollback_pending"], host.exists(persistence.TMPFILES_PATH)) == (True, False, True)
    assert ["systemctl", "stop", "threadwise-smt-rollback.service"] in host.commands
    assert host.ask("disabled", rollback_after=60, persist="tmpfiles")["changed"] is False


NO_SYSTEMD = {"systemd": False}
# The host, what is asked of it (off where nothing else), and what is said. Nothing is written.
REFUSED = [
    ({}, {"confirm": True}, "there is nothing to confirm: no rollback is pending"),
    (NO_SYSTEMD, {"rollback_after": 60}, "needs systemd"),
    (NO_SYSTEMD, {"persist": "systemd"}, "persist: systemd needs systemd, which does not run on this host"),
    ({}, {"conflicts_of": ["orcale"]}, "affinity_conflicts_of names orcale, and this host knows no such user"),
    ({}, {"cores": {"cpus": "8"}}, "there is no CPU 8"),
    ({}, {"cores": {}}, "does not name cores"),
    ({}, {"cores": PART, "method": "smt_control"}, "switches the siblings of all cores"),
    ({}, {"cores": PART, "state": "enabled"}, "(CPUs 4-7), and enabled is a state of all of it"),
]


@pytest.mark.parametrize(("given", "asked", "sentence"), REFUSED)
def test_what_is_refused(tmp_path, given, asked, sentence):
    host = Host(tmp_path, **given)
    with pytest.raises(HostError) as refused:
        host.ask(**{"state": "disabled", **asked})
    assert sentence in str(refused.value)
    assert (host.writes, host.saved()) == ([], None)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (REDHAT, True),
        ('ACTION=="add|change", SUBSYSTEM=="cpu", ATTR{online}:="1"\n', True),
        ('SUBSYSTEM=="cpu", \\\n  ATTR{online}="1"\n', True),
        ("#" + REDHAT, False),
        (REDHAT.replace('="1"', '="0"'), False),
        ('SUBSYSTEM=="memory", ACTION=="add", ATTR{state}="online"\n', False),
        ('SUBSYSTEM!="cpu", KERNEL=="cpu*", ATTR{online}="1"\n', False),
    ],
)
def test_rules_that_online_cpus(tmp_path, rule, counts):
    fs = host_files.HostFs(str(tmp_path))
    text = "# first\n" + rule + 'KERNEL=="x", NAME="y"\n'
    fs.write("usr/lib/udev/rules.d/40-x.rules", text)
    assert bool(udev_rules.active(fs)) is counts
    assert (udev_rules.without_them(text) != text) is counts
    left = [line for line in udev_rules.without_them(text).splitlines() if not line.startswith("#")]
    assert left[-1] == 'KERNEL=="x", NAME="y"' and not udev_rules.brings_cpus_online(" ".join(left))


@pytest.mark.parametrize("directory", ["usr/lib/udev/rules.d", "etc/udev/rules.d"])
def test_rules_are_disabled_and_restored(host, directory):
    path = directory + "/40-redhat.rules"
    host.put(path, REDHAT)
    assert any("/" + path in warning for warning in host.ask("disabled", method="cpu_online")["warnings"])
    for changed in (True, False):
        assert host.ask("disabled", method="cpu_online", neutralise=True)["changed"] is changed
        assert udev_rules.active(host_files.HostFs(host.sysroot)) == []
    host.ask("restored")
    assert host.read(path) == REDHAT.strip()
    assert host.exists("etc/udev/rules.d/40-redhat.rules") is directory.startswith("etc")
    assert not host.exists(udev_rules.BACKUPS)
    assert host.ask("disabled")["warnings"] == [], "the control is off, whatever the rules do"


def put_task(host, uid, cgroup, login):
    stat = "5 (sleep) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 20
    status = f"Name:\tsleep\nUid:\t{uid}\t{uid}\nCpus_allowed_list:\t3\n"
    for folder in ("proc/5", "proc/5/task/5"):
        for name, text in (("stat", stat), ("status", status), ("cgroup", f"0::{cgroup}\n"), ("loginuid", str(login))):
            host.put(f"{folder}/{name}", text)


def test_a_task_pinned_by_a_user_prevents_a_change_only_on_request(host):
    put_task(host, 1001, "/user.slice/user-1001.slice/session-3.scope", 1001)
    what = r"pid 5 sleep \(user 1001, unit session-3.scope, by the user alone\) is pinned to 3 alone"
    for whose in (["all"], ["services", "1001"]):
        with pytest.raises(smt_change.ChangeRefusedError, match=what):
            host.ask("disabled", conflicts_of=whose)
    assert host.writes == []
    for check, begins in ((True, "expected affinity conflict: CPU 3: "), (False, "affinity conflict: CPU 3: ")):
        done = host.ask("disabled", check=check)
        assert done["after"]["online"] == "0,2,4,6" and re.match(begins + what, done["warnings"][0])
    assert [task["pid"] for task in host.saved()["masks"]["tasks"]] == [5]


def test_a_pinned_service_prevents_a_change_of_its_cpus(host):
    put_task(host, 1001, "/system.slice/db.service", 4294967295)
    host.put("etc/systemd/system/db.service", "[Service]\nUser=1001\n")
    for cores in ({}, {"cores": {"cpus": "2"}}):
        with pytest.raises(smt_change.ChangeRefusedError, match=r"1 affinity conflict.*\n.*unit db.service") as refused:
            host.ask("disabled", **cores)
        assert len(refused.value.findings) == 1 and host.writes == []
    assert host.ask("disabled", cores=PART)["affinity_conflicts"] == []


@pytest.mark.parametrize("options", KERNELS.values(), ids=KERNELS)
def test_parts_replace_each_other(tmp_path, options):
    host = Host(tmp_path, **options)
    host.write(CPU + "/cpu1/online", "0")
    before = smt_state.read(files=host)
    predicted = host.ask("disabled", cores=PART, check=True)
    assert host.writes[1:] == []
    assert host.ask("disabled", cores=PART)["diff"] == predicted["diff"]
    assert [path for path, _text in host.writes[1:]] == [f"{CPU}/cpu{cpu}/online" for cpu in (5, 7)]
    assert host.ask("disabled", cores={"cpus": "5,6"})["changed"] is False, "one thread names its core"
    for request, right in (
        ({"state": "disabled", "cores": {"cpus": "2"}}, "0,2,4-7"),
        ({"state": "disabled"}, "0,2,4,6"),
        ({"threads": 1, "cores": {"cpus": "4-5"}}, "0,2-4,6-7"),
        ({"threads": 2, "cores": {"cpus": "0"}}, "0-7"),
        ({"state": "enabled"}, "0,2-7"),
    ):
        host.ask(**request)
        assert host.ask(**request)["after"]["online"] == right, request
    assert smt_state.read(files=host) == before
    host.ask("disabled", cores={"cpus": "2"})
    assert host.ask("restored")["changed"] is True
    assert (smt_state.read(files=host), host.saved()) == (before, None)


@pytest.mark.parametrize("cores", [None, PART])
@pytest.mark.parametrize("control", ["on", None])
def test_what_is_kept_over_boots(tmp_path, control, cores):
    host = Host(tmp_path, control=control)
    host.ask("disabled", cores=cores, persist="tmpfiles")
    right = online(host)
    lines = [line.split() for line in (host.read(persistence.TMPFILES_PATH) or "").splitlines()[1:]]
    again = Host(tmp_path, control="off" if control else None)
    again.boot("second")
    for line in lines:
        again.write(line[1][1:], line[-1])
    assert online(again) == right == ("0-4,6" if cores else "0,2,4,6")
    assert again.ask("disabled", cores=cores, persist="tmpfiles")["changed"] is False
    assert again.ask("disabled", cores=cores, persist="systemd")["changed"] is True
    assert not host.exists(persistence.TMPFILES_PATH)
    assert again.ask("restored")["changed"] is True
    assert online(again) == "0-7" and not any(host.exists(path) for path in persistence.PATHS)


def test_a_timer_that_cannot_be_started_leaves_nothing(host):
    host.status = {"systemd-run": 1}
    with pytest.raises(rollback_timer.RollbackTimerError, match=r"did not start the rollback timer"):
        host.ask("disabled", rollback_after=60)
    assert (online(host), host.saved(), host.pending()) == (ALL, None, None)
    host.write(CPU + "/cpu3/online", "0")
    assert host.ask("restored")["changed"] is False and online(host) == "0-2,4-7"


@pytest.mark.parametrize("persist", ["none", "systemd"])
def test_a_core_that_is_off_on_purpose_leaves_nothing_to_confirm(host, persist):
    """The kernel shows no core of CPUs that are offline: that they are one is found by trying."""
    for cpu in (2, 3):
        host.write(f"{CPU}/cpu{cpu}/online", "0")
    was = online(host)
    done = host.ask(threads=2, persist=persist, rollback_after=60)
    assert (done["changed"], done["rollback_pending"], done["rollback_started"]) == (persist != "none", False, False)
    assert (online(host), host.pending(), host.saved(), host.is_waiting) == (was, None, None, False)
    assert persistence.is_kept(host_files.HostFs(host.sysroot)) == (persist != "none")


# Threads of SCHED_DEADLINE: kernels divide by zero when a CPU goes offline on which one sleeps (seen with 6.1)
REQUESTS = {
    "of some cores, in check mode": {"state": "disabled", "cores": PART, "check": True},
    "by a number": {"threads": 1},
    "with a rollback": {"state": "disabled", "rollback_after": 60},
}
# Folder below /proc, name, flags, policy (fields 9 and 41 of stat), and whether it counts.
THREADS = {
    "a later thread": ("500/task/512", "worker 2) S", 0x400000, 6, True),
    "a user's name for it": ("500/task/500", "sugov:0", 0x400000, 6, True),
    "another thread of the kernel": ("60/task/60", "irq/24-nvme0q1", 0x208040, 6, True),
    "schedutil's": ("60/task/60", "sugov:0", 0x208040, 6, False),
    "of SCHED_FIFO": ("500/task/500", "jackd", 0x400000, 1, False),
}


def put(host, folder="500/task/500", name="cyclicdl", flags=0x400000, policy=6):
    thread = folder.rpartition("/")[2]
    fields = ["S", "1", *["0"] * 4, str(flags), *["0"] * 12, "1000", *["0"] * 18, str(policy), *["0"] * 11]
    host.put(f"proc/{folder}/stat", f"{thread} ({name}) {' '.join(fields)}\n")


@pytest.mark.parametrize("request_options", REQUESTS.values(), ids=REQUESTS)
def test_nothing_goes_offline_whatever_is_asked_for(host, request_options):
    put(host)
    with pytest.raises(smt_change.ChangeRefusedError, match=r"SCHED_DEADLINE.*pid 500 cyclicdl\. .*chrt"):
        host.ask(**request_options)
    assert (host.writes, host.saved(), host.pending()) == ([], None, None)


@pytest.mark.parametrize(("folder", "name", "flags", "policy", "counts"), THREADS.values(), ids=THREADS)
def test_which_threads_count(host, folder, name, flags, policy, counts):
    put(host, folder, name, flags, policy)
    if counts:
        with pytest.raises(smt_change.ChangeRefusedError, match=f"pid {folder.rpartition('/')[2]} "):
            host.ask("disabled")
    else:
        assert host.ask("disabled")["after"]["online"] == "0,2,4,6"


def test_what_only_brings_cpus_online_is_not_refused(host):
    host.ask("disabled")
    put(host)
    assert host.ask("disabled")["changed"] is False
    assert (host.ask("enabled")["changed"], online(host)) == (True, ALL)


def test_what_goes_back_by_itself_waits_for_the_last_of_them(tmp_path):
    """The rollback of a change that brought CPUs online, the watchdog, and the end of an evaluation."""
    host = Host(tmp_path, control="off")
    host.ask("enabled", rollback_after=60)
    put(host)
    left = smt_restore.left(smt_restore.restore(host, host.pending()))
    assert (["pid 500 cyclicdl" in one for one in left], online(host)) == ([True, True], ALL)
    shutil.rmtree(pathlib.Path(host.sysroot, "proc/500"))
    assert (smt_restore.restore(host, host.pending()), online(host)) == ([], ONE_EACH)


def test_one_that_begins_after_the_look_at_them_is_seen_before_the_write(host):
    put(host)
    with pytest.raises(smt_state.StateError, match="pid 500"):
        smt_transition.set_threads_per_core(host.sysroot, CORES, 1, files=host)
    assert host.writes == []


# What brings CPUs back needs no room on any disk; what takes them offline is saved before

BACK = {
    "restored": {"state": "restored"},
    "enabled": {"state": "enabled"},
    "two threads": {"threads": 2},
    "a part of it": {"state": "disabled", "cores": PART},
    "one by one": {"state": "enabled", "method": "cpu_online"},
    "with a rollback": {"state": "restored", "rollback_after": 60},
}
FULL = {"full": errno.ENOSPC, "no quota left": errno.EDQUOT, "read-only": errno.EROFS}
# By day each request and each disk.
CASES = [(BACK[back], list(FULL)[(number + turn) % 3]) for turn in range(3) for number, back in enumerate(BACK)]


@contextlib.contextmanager
def full(host, kind):
    """Nothing that takes room on a disk is written, on a read-only one nothing; files of the kernel take none."""
    host.faults = faults.Faults()
    host.faults.number = FULL[kind]
    host.faults.plan("full", 0)
    with host.faults.installed():
        yield
    host.faults = None


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("back", "kind"), CASES)
def test_cpus_come_back_and_what_was_saved_stays(host, back, kind):
    host.ask("disabled", persist="tmpfiles")
    with full(host, kind):
        done = host.ask(**back)
    expected = "0-4,6" if "cores" in back else ALL
    assert (done["changed"], done["after"]["online"], online(host)) == (True, done["after"]["online"], expected)
    assert any("not recorded" in warning for warning in done["warnings"])
    assert (done["rollback_pending"], host.pending()) == (False, None)
    if host.saved() is not None:
        assert host.saved()["cpu"]["online"] == list(range(8))
    # With room again, the same request settles the rest.
    host.ask(**{**back, "rollback_after": None})
    assert online(host) == expected and not persistence.is_kept(host_files.HostFs(host.sysroot))


@pytest.mark.parametrize("kind", FULL)
def test_nothing_goes_offline_without_a_record(host, kind):
    with full(host, kind), pytest.raises(HostError, match="The host is as it was before"):
        host.ask("disabled")
    assert (host.writes, host.saved()) == ([], None)


def test_the_rollback_timer_needs_no_lock_file(host):
    host.ask("disabled", rollback_after=60)
    pathlib.Path(host.sysroot, locks.LOCK).unlink()
    with full(host, "full"):
        host.roll_back()
    assert (online(host), pending_rollback.exists(host_files.HostFs(host.sysroot))) == (ALL, False)


def test_a_change_back_that_the_kernel_refuses_is_undone_and_loses_nothing(host):
    host.ask("disabled")
    host.refusals[(3, True)] = errno.EIO
    with full(host, "read-only"), pytest.raises(HostError, match="CPU 3: EIO"):
        host.ask("restored", method="cpu_online")
    assert (online(host), host.saved()["cpu"]["online"]) == (ONE_EACH, list(range(8)))


def test_a_lock_without_a_file_is_one(host):
    lock = pathlib.Path(host.sysroot, locks.LOCK)
    with full(host, "full"), locks.HostLock(host.sysroot, "one"):
        assert not lock.exists()
        with pytest.raises(locks.HostLockError, match="changed by another run"):
            locks.HostLock(host.sysroot, "another").__enter__()
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    with full(host, "read-only"), locks.HostLock(host.sysroot, "one"):
        assert locks.HostLock(host.sysroot, "").holder() is not None
