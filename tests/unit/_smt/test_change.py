# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole requests on a fake kernel: the snapshot, a second run, a reboot,
and the files that make a setting persistent.
"""

from __future__ import annotations

import errno
import re

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    change as smt_change,
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence, udev_rules
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology
from fake_host import Host

ALL, FIRST = list(range(8)), [0, 2, 4, 6]
REDHAT = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"\n'


@pytest.fixture(name="host")
def fake_host(tmp_path):
    return Host(tmp_path)


def test_back_to_the_state_before_the_first_change(host):
    host.write(smt_state.CPU_DIRECTORY + "/cpu5/online", "0")
    before = smt_state.read(files=host)
    host.ask("disabled")
    host.ask(threads=2)
    assert host.saved()["cpu"] == before
    assert smt_state.read(files=host)["online"] == ALL, "a number of threads was requested"
    host.ask("enabled")
    assert smt_state.read(files=host) == before
    assert host.saved() is None, "the state is that before the first change: there is nothing to restore"
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
    assert smt_state.read(files=host)["online"] == ALL
    host.ask("disabled", method="cpu_online")
    host.ask("restored")
    host.ask("disabled", method="cpu_online")
    host.ask("enabled")
    assert smt_state.read(files=host)["online"] == [0, 1, 2, 3, 4, 6, 7]
    host.ask("disabled", method="cpu_online")
    host.writes.clear()
    host.ask(threads=2, check=True)
    assert host.writes == []
    host.ask(threads=2)
    assert smt_state.read(files=host)["online"] == ALL


def test_an_unknown_core_is_explored_once(tmp_path):
    host = Host(tmp_path, offline=[6, 7])
    host.ask(threads=2)
    assert host.writes and smt_state.read(files=host)["online"] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ], "the core was completely offline and stays so"
    host.writes.clear()
    assert host.ask(threads=2)["changed"] is False
    assert host.writes == []


@pytest.mark.parametrize("state", ["enabled", "disabled", "restored"])
def test_second_run_writes_nothing(host, state):
    host.ask(state)
    host.writes.clear()
    assert host.ask(state)["changed"] is False
    assert host.writes == []


@pytest.mark.parametrize(
    "request_options",
    [{"state": "disabled", "persist": "systemd"}, {"threads": 1, "method": "cpu_online", "persist": "tmpfiles"}],
)
def test_check_mode_predicts_the_result(host, request_options):
    predicted = host.ask(check=True, **request_options)
    assert (host.writes, host.saved()) == ([], None)
    done = host.ask(**request_options)
    assert {key: done[key] for key in ("changed", "before", "after", "diff")} == {
        key: predicted[key] for key in ("changed", "before", "after", "diff")
    }
    assert host.ask(check=True, **request_options)["changed"] is False


def test_reboot_ends_a_change_that_is_not_persistent(host, tmp_path):
    host.ask("disabled")
    again = Host(tmp_path)
    again.boot("second")
    assert again.ask("restored")["changed"] is False
    again.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    again.ask("disabled")
    assert again.saved()["cpu"]["online"] == [0, 1, 2, 4, 5, 6, 7], "the first change of this boot saves a new snapshot"


def test_reboot_into_a_persistent_setting(host, tmp_path):
    host.ask("disabled", persist="tmpfiles")
    again = Host(tmp_path, control="off")
    again.boot("second")
    assert again.ask("disabled", persist="tmpfiles")["changed"] is False
    assert again.ask("restored")["changed"] is True
    assert smt_state.read(files=again)["online"] == ALL
    assert not again.exists(persistence.TMPFILES_PATH)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": 1}', '{"schema": "threadwise.smt/state", "schema_version": 1, "cpu": {}}', "[" * 5000],
)
def test_damaged_snapshot(host, text):
    host.put(smt_snapshot.PATH, text)
    with pytest.raises(smt_snapshot.SmtSnapshotError, match=r"smt-snapshot.json cannot be used .*Remove it"):
        host.ask("disabled")
    assert host.writes == []


def test_refused_on_the_third_cpu(host):
    host.refusals = {(5, False): 16}
    with pytest.raises(smt_state.StateError, match=r"CPU 5: EBUSY"):
        host.ask("disabled")
    assert smt_state.read(files=host)["online"] == ALL


def test_no_rollback_timer_without_systemd(tmp_path):
    host = Host(tmp_path, systemd=False)
    with pytest.raises(smt_change.rollback_timer.RollbackTimerError, match=r"needs systemd"):
        host.ask("disabled", rollback_after=60)
    assert (host.writes, host.saved()) == ([], None)


def test_the_rollback_timer_is_armed_before_the_writes(host):
    assert host.ask("disabled", rollback_after=60, persist="tmpfiles")["rollback_pending"] is True
    armed = [command for command in host.commands if command[0] == "systemd-run"]
    assert len(armed) == 1 and "--service-type=notify" in armed[0] and host.pending()["seconds"] == 60
    assert not host.exists(persistence.TMPFILES_PATH)
    done = host.ask("disabled", confirm=True, persist="tmpfiles")
    assert (done["changed"], done["rollback_pending"], host.exists(persistence.TMPFILES_PATH)) == (True, False, True)
    assert ["systemctl", "stop", "threadwise-smt-rollback.service"] in host.commands
    assert host.ask("disabled", rollback_after=60, persist="tmpfiles")["changed"] is False


def test_nothing_to_confirm(host):
    with pytest.raises(smt_change.ChangeRefusedError, match=r"nothing to confirm"):
        host.ask("disabled", confirm=True)
    assert host.writes == []


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("auto", ["w /sys/devices/system/cpu/smt/control - - - - off"]),
        (
            "cpu_online",
            ["w /sys/devices/system/cpu/smt/control - - - - on"]
            + [f"w /sys/devices/system/cpu/cpu{cpu}/online - - - - 0" for cpu in (1, 3, 5, 7)],
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
    assert left[-1] == 'KERNEL=="x", NAME="y"'
    assert not udev_rules.brings_cpus_online(" ".join(left))


@pytest.mark.parametrize("directory", ["usr/lib/udev/rules.d", "etc/udev/rules.d"])
def test_rules_are_disabled_and_restored(host, directory):
    path = directory + "/40-redhat.rules"
    host.put(path, REDHAT)
    warnings = host.ask("disabled", method="cpu_online")["warnings"]
    assert any("/" + path in warning for warning in warnings)
    assert host.ask("disabled", method="cpu_online", neutralise=True)["changed"] is True
    assert udev_rules.active(host_files.HostFs(host.sysroot)) == []
    assert host.ask("disabled", method="cpu_online", neutralise=True)["changed"] is False
    host.ask("restored")
    assert host.read(path) == REDHAT.strip()
    assert host.exists("etc/udev/rules.d/40-redhat.rules") is directory.startswith("etc")
    assert not host.exists(udev_rules.BACKUPS)


def test_no_warning_if_the_control_is_off(host):
    host.put("usr/lib/udev/rules.d/40-redhat.rules", REDHAT)
    assert host.ask("disabled")["warnings"] == []


def put_task(host, uid, cgroup, login):
    stat = "5 (sleep) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 20
    for folder in ("proc/5", "proc/5/task/5"):
        for name, text in (
            ("stat", stat),
            ("status", f"Name:\tsleep\nUid:\t{uid}\t{uid}\nCpus_allowed_list:\t3\n"),
            ("cgroup", f"0::{cgroup}\n"),
            ("loginuid", str(login)),
        ):
            host.put(f"{folder}/{name}", text)


def test_a_task_pinned_by_a_user_prevents_a_change_only_on_request(host):
    put_task(host, 1001, "/user.slice/user-1001.slice/session-3.scope", 1001)
    what = r"pid 5 sleep \(user 1001, unit session-3.scope, by the user alone\) is pinned to 3 alone"
    for whose in (["all"], ["services", "1001"]):
        with pytest.raises(smt_change.ChangeRefusedError, match=what):
            host.ask("disabled", conflicts_of=whose)
    assert host.writes == []
    predicted = host.ask("disabled", check=True)
    warned = [
        re.match("expected affinity conflict: CPU 3: " + what, warning) is not None for warning in predicted["warnings"]
    ]
    assert (predicted["after"]["online"], warned) == ("0,2,4,6", [True])
    done = host.ask("disabled")
    assert re.match("affinity conflict: CPU 3: " + what, done["warnings"][0]) and [
        task["pid"] for task in host.saved()["masks"]["tasks"]
    ] == [5]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("policy", ["fail", "warn"])
def test_an_owner_that_the_host_does_not_have_is_refused(host, check, policy):
    with pytest.raises(HostError, match="affinity_conflicts_of names orcale, and this host knows no such user"):
        host.ask("disabled", conflicts_of=["services", "orcale"], affinity_conflicts=policy, check=check)
    assert host.writes == []


def test_a_confirmation_asks_no_directory_of_users(host):
    """The change was checked before. One more answer that does not come would roll it back."""
    with pytest.raises(smt_change.ChangeRefusedError, match="nothing to confirm"):
        host.ask("disabled", conflicts_of=["orcale"], confirm=True)


def test_a_pinned_service_prevents_a_change(host):
    put_task(host, 1001, "/system.slice/db.service", 4294967295)
    host.put("etc/systemd/system/db.service", "[Service]\nUser=1001\n")
    with pytest.raises(smt_change.ChangeRefusedError, match=r"1 affinity conflict.*\n.*unit db.service") as refused:
        host.ask("disabled")
    assert len(refused.value.findings) == 1 and host.writes == []


def test_what_a_user_runs_within_a_service_prevents_no_change(host):
    """By a crontab or ~/.forward, with nothing that set its login uid."""
    put_task(host, 1001, "/system.slice/cron.service", 4294967295)
    done = host.ask("disabled")
    assert done["after"]["online"] == "0,2,4,6" and "unit cron.service" in done["warnings"][0]
    assert [task["pid"] for task in host.saved()["masks"]["tasks"]] == [5]


def test_an_error_of_the_files_is_the_one_class_that_modules_catch(host, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/x")

    monkeypatch.setattr(host_files.HostFs, "write", full)
    with pytest.raises(HostError, match=r"/var/lib/x: No space left on device. The host is as it was before"):
        host.ask("disabled")
    assert host.writes == []


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


def test_the_topology_is_read_once_a_request(host, reads):
    for number, state in enumerate(("disabled", "enabled", "restored", "disabled", "restored"), 1):
        host.ask(state)
        assert len(reads) == number, state


def test_the_topology_is_read_again_where_the_host_changed_while_the_lock_was_awaited(host, reads, monkeypatch):
    take = locks.HostLock._take

    def later(self):
        monkeypatch.setattr(locks.HostLock, "_take", take)
        host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
        take(self)

    monkeypatch.setattr(locks.HostLock, "_take", later)
    host.ask("disabled")
    assert [len(seen.online) for seen in reads] == [8, 7]


def test_the_topology_is_saved_once_all_cpus_are_online(tmp_path, reads):
    host = Host(tmp_path, offline=(1, 3, 5, 7))
    host.ask("enabled")
    assert [seen.complete for seen in reads] == [False, True]
    assert topology_cache.load(host_files.HostFs(host.sysroot)).cores == reads[-1].cores


# Part of the host -----------------------------------------------------------------------------------------------------


PART = {"cpus": "4-7"}


@pytest.fixture(
    params=[{}, {"modern": True}, {"control": None}, {"numeric": True}],
    ids=["old", "modern", "no control", "power"],
    name="any_host",
)
def hosts_of_each_kernel(request, tmp_path):
    return Host(tmp_path, **request.param)


def test_part_of_the_host_and_back(any_host):
    before = smt_state.read(files=any_host)
    predicted = any_host.ask("disabled", cores=PART, check=True)
    assert any_host.writes == []
    done = any_host.ask("disabled", cores=PART)
    assert (done["after"]["online"], done["diff"]) == ("0-4,6", predicted["diff"])
    assert [path for path, _text in any_host.writes] == [f"{smt_state.CPU_DIRECTORY}/cpu{cpu}/online" for cpu in (5, 7)]
    any_host.writes.clear()
    assert any_host.ask("disabled", cores={"cpus": "5,6"})["changed"] is False, "one thread names its core"
    assert any_host.writes == []
    assert any_host.ask("restored")["changed"] is True
    assert (smt_state.read(files=any_host), any_host.saved()) == (before, None)


def test_parts_replace_each_other(any_host):
    any_host.write(smt_state.CPU_DIRECTORY + "/cpu1/online", "0")
    before = smt_state.read(files=any_host)
    for request, online in (
        ({"state": "disabled", "cores": {"cpus": "2"}}, "0,2,4-7"),
        ({"state": "disabled", "cores": {"cpus": "7"}}, "0,2-6"),
        ({"state": "disabled"}, "0,2,4,6"),
        ({"threads": 1, "cores": {"cpus": "4-5"}}, "0,2-4,6-7"),
        ({"threads": 2, "cores": {"cpus": "0"}}, "0-7"),
        ({"state": "enabled"}, "0,2-7"),
    ):
        any_host.ask(**request)
        assert any_host.ask(**request)["after"]["online"] == online, request
    assert smt_state.read(files=any_host) == before
    any_host.ask("disabled", cores={"cpus": "2"})
    any_host.ask("restored")
    assert (smt_state.read(files=any_host), any_host.saved()) == (before, None)


@pytest.mark.parametrize("cpu", [5, 7])
@pytest.mark.parametrize("start", [None, {"cpus": "0-3"}])
def test_a_part_refused_at_each_cpu_is_undone(any_host, start, cpu):
    if start:
        any_host.ask("disabled", cores=start)
    before = smt_state.read(files=any_host)
    any_host.refusals = {(cpu, False): errno.EBUSY}
    with pytest.raises(smt_state.StateError, match=f"CPU {cpu}: EBUSY.*the previous state was restored"):
        any_host.ask("disabled", cores=PART)
    assert smt_state.read(files=any_host) == before
    any_host.refusals = {}
    any_host.ask("restored")
    assert smt_state.read(files=any_host)["online"] == ALL


@pytest.mark.parametrize("state", ["enabled", "restored"])
def test_a_part_has_no_such_state(host, state):
    with pytest.raises(
        smt_change.ChangeRefusedError,
        match=rf"cores names a part of the host \(CPUs 4-7\), and {state} is a state of all of it",
    ):
        host.ask(state, cores=PART)
    assert host.writes == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cores": {"cpus": "8"}}, "there is no CPU 8"),
        ({"cores": {"node": 0}}, "there is no node 0"),
        ({"cores": {}}, "does not name cores"),
        ({"cores": PART, "method": "smt_control"}, "switches the siblings of all cores"),
    ],
)
def test_a_part_that_is_refused(host, options, reason):
    with pytest.raises(HostError, match=reason):
        host.ask("disabled", **options)
    assert (host.writes, host.saved()) == ([], None)


def test_only_conflicts_of_cpus_that_go_offline_count(host):
    put_task(host, 0, "/system.slice/db.service", 4294967295)
    with pytest.raises(smt_change.ChangeRefusedError, match=r"pinned to 3 alone"):
        host.ask("disabled", cores={"cpus": "2"})
    assert host.ask("disabled", cores=PART)["affinity_conflicts"] == []


@pytest.mark.parametrize("control", ["on", None])
def test_a_part_kept_over_boots(tmp_path, control):
    host = Host(tmp_path, control=control)
    host.ask("disabled", cores=PART, persist="tmpfiles")
    lines = [line.split() for line in (host.read(persistence.TMPFILES_PATH) or "").splitlines()[1:]]
    assert [line[1:2] + line[-1:] for line in lines] == [["/" + smt_state.CONTROL, "on"]] * bool(control) + [
        [f"/{smt_state.CPU_DIRECTORY}/cpu{cpu}/online", "0"] for cpu in (5, 7)
    ]
    again = Host(tmp_path, control="off" if control else None)
    again.boot("second")
    for line in lines:
        again.write(line[1][1:], line[-1])
    assert smt_state.read(files=again)["online"] == [0, 1, 2, 3, 4, 6]
    assert again.ask("disabled", cores=PART, persist="tmpfiles")["changed"] is False
    assert again.ask("restored")["changed"] is True
    assert (smt_state.read(files=again)["online"], again.exists(persistence.TMPFILES_PATH)) == (ALL, False)


def test_a_part_is_confirmed_and_rolled_back_like_any_change(host):
    assert host.ask("disabled", cores=PART, rollback_after=60)["rollback_pending"] is True
    assert host.ask("disabled", cores=PART, confirm=True)["rollback_pending"] is False
    with pytest.raises(smt_change.ChangeRefusedError, match=r"the host is not in the state asked for"):
        host.ask("disabled", cores={"cpus": "0"}, confirm=True)


def test_measured_siblings_of_a_part(host):
    """Siblings that a user names: the part names those cores."""
    done = host.ask("disabled", siblings=[[0, 4], [1, 5], [2, 6], [3, 7]], cores={"cpus": "5"})
    assert done["after"]["online"] == "0-4,6-7"


def test_whether_a_unit_has_all_cores_is_a_question_of_the_siblings_that_count(host):
    unit = "sys/fs/cgroup/system.slice/db.service"
    host.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    for name in ("cpuset.cpus", "cpuset.cpus.effective"):
        host.put(f"{unit}/{name}", "0-3\n")
    request = {"cores": {"unit": "db.service"}, "affinity_conflicts": "warn", "check": True}
    assert host.ask("disabled", **request)["after"]["online"] == "0,2,4-7"
    with pytest.raises(HostError, match=r"unit db.service may run on every core of this host"):
        host.ask("disabled", siblings=[[0, 4], [1, 5], [2, 6], [3, 7]], **request)


def test_a_unit_names_the_same_cores_after_its_siblings_went_offline(host):
    unit = "sys/fs/cgroup/system.slice/db.service"
    host.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    host.put(unit + "/cpuset.cpus", "4-7\n")
    host.put(unit + "/cpuset.cpus.effective", "4-7\n")
    host.put("sys/fs/cgroup/system.slice/cpuset.cpus", "\n")
    request = {"cores": {"unit": "db.service"}, "affinity_conflicts": "warn"}
    done = host.ask("disabled", **request)
    assert done["after"]["online"] == "0-4,6"
    assert [text for text in done["affinity_conflicts"] if "db.service" in text and "would shrink to 4,6" in text]
    host.put(unit + "/cpuset.cpus.effective", "4,6\n")
    assert host.ask("disabled", **request)["changed"] is False
