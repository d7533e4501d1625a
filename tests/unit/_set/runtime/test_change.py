# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole requests on a fake kernel: the snapshot, a second run, a reboot, parts of a host,
and the files that make a setting persistent.
"""

from __future__ import annotations

import errno
import re

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence, udev_rules
from fake_host import Host

PART = {"cpus": "4-7"}
CPU = smt_state.CPU_DIRECTORY
KERNELS = {"old": {}, "modern": {"modern": True}, "no control": {"control": None}, "power": {"numeric": True}}
REDHAT = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"\n'
UNIT = "sys/fs/cgroup/system.slice/db.service"


@pytest.fixture(name="host")
def fake_host(tmp_path):
    return Host(tmp_path)


def online(host):
    return cpulist.render(smt_state.read(files=host)["online"])


def test_back_to_the_state_before_the_first_change(host):
    host.write(CPU + "/cpu5/online", "0")
    before = smt_state.read(files=host)
    host.ask("disabled")
    host.ask(threads=2)
    assert host.saved()["cpu"] == before and online(host) == "0-7", "a number of threads was requested"
    host.ask("enabled")
    assert smt_state.read(files=host) == before and host.saved() is None, "there is nothing to restore"
    host.ask("disabled")
    assert host.ask("restored")["changed"] is True
    assert smt_state.read(files=host) == before
    assert (host.ask("restored")["changed"], host.saved()) == (False, None)


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


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": 1}', '{"schema": "threadwise.smt/state", "schema_version": 1, "cpu": {}}', "[" * 5000],
)
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


def writes_fail(host, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/x")

    monkeypatch.setattr(host_files.HostFs, "write", full)


NO_SYSTEMD = {"systemd": False}
# The host, what is asked of it (off where nothing else), and what is said. Nothing is written.
REFUSED = [
    ({}, {"confirm": True}, "there is nothing to confirm: no rollback is pending"),
    # The change was checked before: one more answer of a directory of users that does not come would roll it back.
    ({}, {"confirm": True, "conflicts_of": ["orcale"]}, "there is nothing to confirm"),
    (NO_SYSTEMD, {"rollback_after": 60}, "needs systemd"),
    (NO_SYSTEMD, {"persist": "systemd"}, "persist: systemd needs systemd, which does not run on this host"),
    ({}, {"conflicts_of": ["orcale"]}, "affinity_conflicts_of names orcale, and this host knows no such user"),
    ({}, {"conflicts_of": ["orcale"], "check": True}, "this host knows no such user"),
    ({}, {"conflicts_of": ["orcale"], "affinity_conflicts": "warn"}, "this host knows no such user"),
    ({}, {"cores": {"cpus": "8"}}, "there is no CPU 8"),
    ({}, {"cores": {}}, "does not name cores"),
    ({}, {"cores": PART, "method": "smt_control"}, "switches the siblings of all cores"),
    ({}, {"cores": PART, "state": "enabled"}, "(CPUs 4-7), and enabled is a state of all of it"),
    ({}, {"cores": PART, "state": "restored"}, "(CPUs 4-7), and restored is a state of all of it"),
    (writes_fail, {}, "/var/lib/x: No space left on device. The host is as it was before"),
]


@pytest.mark.parametrize(("given", "asked", "sentence"), REFUSED)
def test_what_is_refused(tmp_path, monkeypatch, given, asked, sentence):
    host = Host(tmp_path, **({} if given is writes_fail else given))
    if given is writes_fail:
        writes_fail(host, monkeypatch)
    with pytest.raises(HostError) as refused:
        host.ask(**{"state": "disabled", **asked})
    assert sentence in str(refused.value)
    assert (host.writes, host.saved()) == ([], None)


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("auto", [f"w /{smt_state.CONTROL} - - - - off"]),
        (
            "cpu_online",
            [f"w /{smt_state.CONTROL} - - - - on", *(f"w /{CPU}/cpu{cpu}/online - - - - 0" for cpu in (1, 3, 5, 7))],
        ),
    ],
)
def test_lines_of_a_persistent_setting(host, method, lines):
    host.ask("disabled", method=method, persist="tmpfiles")
    assert (host.read(persistence.TMPFILES_PATH) or "").splitlines()[1:] == lines
    assert host.ask("disabled", method=method, persist="systemd")["changed"] is True
    assert not host.exists(persistence.TMPFILES_PATH)
    assert host.ask("disabled", method=method)["changed"] is True
    assert not any(host.exists(path) for path in persistence.PATHS)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (REDHAT, True),
        ('ACTION=="add|change", SUBSYSTEM=="cpu", ATTR{online}:="1"\n', True),
        ('SUBSYSTEM=="cpu", \\\n  ATTR{online}="1"\n', True),
        ("#" + REDHAT, False),
        (REDHAT.replace('="1"', '="0"'), False),
        (REDHAT.replace("add", "remove"), False),
        ('SUBSYSTEM=="memory", ACTION=="add", ATTR{state}="online"\n', False),
        ('SUBSYSTEM!="cpu", KERNEL=="cpu*", ATTR{online}="1"\n', False),
        ('junk "" ==\n', False),
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


@pytest.fixture(name="reads")
def reads_of_the_topology(monkeypatch):
    """Each topology that a request read."""
    seen = []
    read = topology.read_topology

    def noted(*arguments):
        seen.append(read(*arguments))
        return seen[-1]

    monkeypatch.setattr(topology, "read_topology", noted)
    return seen


def test_the_topology_is_read_again_where_the_host_changed_while_the_lock_was_awaited(host, reads, monkeypatch):
    host.ask("enabled")
    assert len(reads) == 1, "once a request"
    take = locks.HostLock._take

    def later(self):
        monkeypatch.setattr(locks.HostLock, "_take", take)
        host.write(CPU + "/cpu3/online", "0")
        take(self)

    monkeypatch.setattr(locks.HostLock, "_take", later)
    host.ask("disabled")
    assert [len(seen.online) for seen in reads] == [8, 8, 7]


def test_the_topology_is_saved_once_all_cpus_are_online(tmp_path, reads):
    host = Host(tmp_path, offline=(1, 3, 5, 7))
    host.ask("enabled")
    assert [seen.complete for seen in reads] == [False, True]
    assert topology_cache.load(host_files.HostFs(host.sysroot)).cores == reads[-1].cores


# Part of the host -----------------------------------------------------------------------------------------------------


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
    assert again.ask("restored")["changed"] is True
    assert (online(again), again.exists(persistence.TMPFILES_PATH)) == ("0-7", False)


SIBLINGS = [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_siblings_that_a_user_names_are_those_of_a_part(host):
    """Whether a unit has all cores is a question of the siblings that count, too."""
    host.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    for name in ("cpuset.cpus", "cpuset.cpus.effective"):
        host.put(f"{UNIT}/{name}", "0-3\n")
    request = {"cores": {"unit": "db.service"}, "affinity_conflicts": "warn", "check": True}
    assert host.ask("disabled", **request)["after"]["online"] == "0,2,4-7"
    with pytest.raises(HostError, match=r"unit db.service may run on every core"):
        host.ask("disabled", siblings=SIBLINGS, **request)
    done = host.ask("disabled", siblings=SIBLINGS, cores={"cpus": "5"}, affinity_conflicts="warn")
    assert done["after"]["online"] == "0-4,6-7"


def test_a_unit_names_the_same_cores_after_its_siblings_went_offline(host):
    host.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    host.put(UNIT + "/cpuset.cpus", "4-7\n")
    host.put(UNIT + "/cpuset.cpus.effective", "4-7\n")
    host.put("sys/fs/cgroup/system.slice/cpuset.cpus", "\n")
    request = {"cores": {"unit": "db.service"}, "affinity_conflicts": "warn"}
    done = host.ask("disabled", **request)
    assert done["after"]["online"] == "0-4,6"
    assert [text for text in done["affinity_conflicts"] if "db.service" in text and "would shrink to 4,6" in text]
    host.put(UNIT + "/cpuset.cpus.effective", "4,6\n")
    assert host.ask("disabled", **request)["changed"] is False
