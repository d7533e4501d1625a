# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Affinity conflicts on synthetic trees, with more cases than a guest can have at once.

Restored masks are also tested on guests.
"""

from __future__ import annotations

import errno
import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity, origins, saved_masks
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

ONLINE = range(8)
GOING = (1, 3, 5, 7)
BY_CALL = ", by sched_setaffinity(2) as with taskset"


class Tree(kernel_files.KernelFiles):
    """A host of files, with tasks whose masks can be set."""

    def __init__(self, root):
        super().__init__(str(root))
        self.root = root
        self.refused = {}
        self.names_of_users = {1001: "alice", 1002: "bob", 110: "postgres", 0: "root", origins.NO_RECORD: "nobody"}
        self.setuid = set()
        self.owners = {}
        self.put("proc/self/mounts", "")
        self.put("sys/devices/system/cpu/online", "0,2,4,6")

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def user_name(self, uid):
        return self.names_of_users.get(uid, str(uid))

    def is_setuid(self, path):
        return path.rpartition("/")[0] in self.setuid

    def owner(self, path):
        return self.owners.get(path, 0)

    def task(
        self,
        pid,
        name,
        mask,
        unit=None,
        thread=None,
        kernel=False,
        start=1000,
        cgroup=None,
        uid=0,
        login=origins.NO_LOGIN,
    ):
        cgroup = cgroup or ("/system.slice/" + unit if unit else "/")
        fields = (
            ["S", "1"] + ["0"] * 4 + [str(0x00200000 if kernel else 0x400000)] + ["0"] * 12 + [str(start)] + ["0"] * 20
        )
        for folder in (f"proc/{pid}", f"proc/{pid}/task/{thread or pid}"):
            self.put(folder + "/stat", f"{pid} ({name}) {' '.join(fields)}\n")
            self.put(
                folder + "/status",
                f"Name:\t{name}\nUid:\t{uid}\t{uid}\t0\t0\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\n",
            )
            self.put(folder + "/loginuid", str(login))
            self.put(folder + "/cgroup", f"0::{cgroup}\n")
            self.put(folder + "/comm", name + "\n")

    def cpusets(self, given, version=2):
        """Cpusets of the whole host: each with what was written to it and the CPUs that it has, and its partition."""
        kind = "cgroup2 rw" if version == 2 else "cgroup rw,cpuset"
        self.put("proc/self/mounts", f"x /sys/fs/cgroup {kind} 0 0\n")
        self.put("sys/fs/cgroup/cgroup.subtree_control", "cpuset memory")
        for path, (configured, effective, *partition) in {"": ("0-7", "0-7"), **given}.items():
            folder = "sys/fs/cgroup" + path
            if path or version == 1:
                self.put(folder + "/cpuset.cpus", configured if version == 2 else effective)
            if version == 2:
                self.put(folder + "/cpuset.cpus.effective", effective)
            for text in partition:
                self.put(folder + "/cpuset.cpus.partition", text)

    def has_user(self, name):
        return name in self.names_of_users.values()

    def set_affinity(self, pid, cpus):
        if pid in self.refused:
            raise OSError(self.refused[pid], "refused")
        self.task(pid, "sleep", cpulist.render(cpus))


@pytest.fixture(name="tree")
def empty_tree(tmp_path):
    return Tree(tmp_path)


def conflicts(tree):
    return [finding.text for finding in affinity.find(tree, ONLINE, GOING) if finding.is_conflict]


def test_no_restricted_tasks(tree):
    tree.task(1, "systemd", "0-7")
    tree.task(2, "kthreadd/3", "3", kernel=True)
    tree.task(5, "even", "0,2,4")
    assert affinity.find(tree, ONLINE, GOING) == []


def test_tasks_by_unit_and_mask(tree):
    tree.task(812, "sleep", "3", unit="foo.service")
    tree.task(900, "java) R 1", "2-3", unit="db.service")
    for thread in (901, 902, 903):
        tree.task(900, "java) R 1", "2-3", unit="db.service", thread=thread)
    assert conflicts(tree) == [
        "CPU 3: pid 812 sleep (user root, uid 0, unit foo.service) is pinned to 3 alone" + BY_CALL,
        "CPU 3: pid 900 java) R 1 (user root, uid 0, unit db.service) and 3 more threads like it may run on 2-3 only"
        " and would keep 2" + BY_CALL,
    ]


def test_name_of_a_hostile_task(tree):
    tree.task(6, "a\x1b[2Jb", "7")
    assert conflicts(tree) == ["CPU 7: pid 6 a\\x1b[2Jb (user root, uid 0, cgroup /) is pinned to 7 alone" + BY_CALL]


def test_names_of_a_hostile_cgroup(tree):
    tree.task(6, "sleep", "7", cgroup="/user.slice/user-1001.slice/user@1001.service/a\x1b[2J\u202eb.scope", uid=1001)
    tree.task(7, "sleep", "7", cgroup="/user.slice/user-1002.slice/\x9b2J", uid=1002)
    tree.names_of_users[1002] = "1002"
    assert all(text.isprintable() for text in conflicts(tree)) and len(conflicts(tree)) == 2


SESSION = "/user.slice/user-1001.slice/session-3.scope"
CRON = "/system.slice/cron.service"
POSTFIX = "/system.slice/system-postfix.slice/postfix@-.service"
APP = "[Unit]\nUser=root\n[Service]\nUser = alice\nExecStart=/bin/app\n"
# The name of the user who set the mask, None for the system.
ORIGINS = {
    "a login": ({"uid": 1001, "cgroup": SESSION, "login": 1001}, "alice"),
    "a login, in a kernel without auditing": ({"uid": 1001, "cgroup": SESSION}, "alice"),
    "a unit of the user": (
        {"uid": 1001, "cgroup": "/user.slice/user-1001.slice/user@1001.service/app.slice/postgresql.service"},
        "alice",
    ),
    "a unit of the user, as the package has the manager's": (
        {
            "uid": 1001,
            "cgroup": "/user.slice/user-1001.slice/user@1001.service/app.slice/x.service",
            "files": {"usr/lib/systemd/system/user@.service": "[Service]\nUser=%i\n"},
        },
        "alice",
    ),
    "a login on a host without pam_systemd": (
        {"uid": 1001, "cgroup": "/system.slice/ssh.service", "login": 1001},
        "alice",
    ),
    "the same without pam_loginuid": ({"uid": 1001, "cgroup": "/system.slice/ssh.service"}, "alice"),
    "a crontab": ({"uid": 1001, "cgroup": CRON, "login": 1001}, "alice"),
    "a crontab without pam_loginuid": ({"uid": 1001, "cgroup": CRON}, "alice"),
    "a crontab of systemd-cron": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/cron-alice-0.service",
            "files": {"run/systemd/generator/cron-alice-0.service": APP},
        },
        "alice",
    ),
    "at": ({"uid": 1001, "cgroup": "/system.slice/atd.service"}, "alice"),
    "mail to a user's program": ({"uid": 1001, "cgroup": POSTFIX}, "alice"),
    "the same in a container of the user": ({"uid": 100123, "cgroup": POSTFIX}, "nobody"),
    "a set-user-ID program of the same": ({"uid": 0, "cgroup": POSTFIX, "setuid": True}, "nobody"),
    "a pool of PHP-FPM": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/fpm.service",
            "files": {"lib/systemd/system/fpm.service": "[Service]\n"},
        },
        "alice",
    ),
    "a job of Slurm": ({"uid": 1001, "cgroup": "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0"}, "alice"),
    "a job of another batch system": (
        {"uid": 1001, "cgroup": "/system.slice/condor.service/htcondor/slot1/docker-x.scope"},
        "alice",
    ),
    "a notebook server of a user": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/jupyter-alice.service",
            "files": {"run/systemd/transient/jupyter-alice.service": APP},
        },
        "alice",
    ),
    "a user in a service of another one": (
        {"uid": 1002, "cgroup": "/system.slice/app.service", "files": {"etc/systemd/system/app.service": APP}},
        "bob",
    ),
    "a unit that no longer says who": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/app.service",
            "files": {
                "usr/lib/systemd/system/app.service": APP,
                "etc/systemd/system/app.service.d/x.conf": "[Service]\nUser=\n",
            },
        },
        "alice",
    ),
    "a unit that an administrator replaced": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/app.service",
            "files": {"usr/lib/systemd/system/app.service": APP, "etc/systemd/system/app.service": "[Service]\n"},
        },
        "alice",
    ),
    "a user in the range of DynamicUser": ({"uid": 61200, "cgroup": CRON, "login": 61200}, "61200"),
    "the same in a crontab without pam_loginuid": ({"uid": 61200, "cgroup": CRON}, "nobody"),
    "a slice without a unit": ({"uid": 1001, "cgroup": "/batch.slice"}, "alice"),
    "a rootless container": ({"uid": 100123, "cgroup": SESSION, "login": 1001}, "alice"),
    "a user without a name": (
        {"uid": 1003, "cgroup": "/user.slice/user-1003.slice/session-4.scope", "login": 1003},
        "1003",
    ),
    "a host without systemd": ({"uid": 1001, "cgroup": "/"}, "alice"),
    "a setuid program of a login": ({"uid": 0, "cgroup": SESSION, "login": 1001, "setuid": True}, "alice"),
    "the same without auditing": ({"uid": 0, "cgroup": SESSION, "setuid": True}, "alice"),
    "a service": ({"uid": 0, "cgroup": "/system.slice/db.service"}, None),
    "a service of a system user": ({"uid": 110, "cgroup": "/system.slice/db.service"}, None),
    "a service of an ordinary user": (
        {"uid": 1001, "cgroup": "/system.slice/app.service", "files": {"etc/systemd/system/app.service": APP}},
        None,
    ),
    "the same by id": (
        {
            "uid": 1003,
            "cgroup": "/system.slice/app.service",
            "files": {"etc/systemd/system/app.service": "[Service]\nUser=1003"},
        },
        None,
    ),
    "the same by a drop-in": (
        {
            "uid": 1001,
            "cgroup": "/a.slice/a-b.slice/app.service/deeper",
            "files": {
                "lib/systemd/system/app.service": "[Service]\nUser=postgres\n",
                "etc/systemd/system/app.service.d/b.conf": "[Service]\nUser=alice\n",
                "etc/systemd/system/app.service.d/a.conf": "[Service]\nUser=bob\n",
            },
        },
        None,
    ),
    "the same of a template": (
        {
            "uid": 1001,
            "cgroup": "/system.slice/system-sync.slice/sync@alice.service",
            "files": {"lib/systemd/system/sync@.service": "[Service]\nExecStart=a \\\nUser=b\nUser=%i\n"},
        },
        None,
    ),
    "a service with DynamicUser": (
        {
            "uid": 61200,
            "cgroup": "/system.slice/app.service",
            "files": {"lib/systemd/system/app.service": "[Service]\nDynamicUser=yes\n"},
        },
        None,
    ),
    "a container": ({"uid": 1001, "cgroup": "/system.slice/docker-0123.scope"}, None),
    "a container without systemd": ({"uid": 1001, "cgroup": "/docker/0123"}, None),
    "a container that an administrator started": (
        {"uid": 1001, "cgroup": "/machine.slice/libpod-0123.scope/container", "login": 1002},
        None,
    ),
    "a container of a unit": ({"uid": 1001, "cgroup": "/system.slice/web.service/libpod-payload-0123"}, None),
    "a system container": (
        {"uid": 1000000, "cgroup": "/lxc.payload.web/user.slice/user-1000.slice/session-1.scope"},
        None,
    ),
    "a pod": ({"uid": 1001, "cgroup": "/kubepods.slice/kubepods-burstable.slice/cri-1.scope"}, None),
    "root by sudo": ({"uid": 0, "cgroup": SESSION, "login": 1001}, None),
    "a system user by sudo": ({"uid": 110, "cgroup": SESSION, "login": 1001}, None),
    "a setuid program of root": (
        {"uid": 0, "cgroup": "/user.slice/user-0.slice/session-1.scope", "login": 0, "setuid": True},
        None,
    ),
    "root on a host without systemd": ({"uid": 0, "cgroup": "/"}, None),
}


@pytest.mark.parametrize("case", ORIGINS)
def test_origin_of_a_pinned_task(tree, case):
    given, user = ORIGINS[case]
    given = dict(given)
    if given.pop("setuid", False):
        tree.setuid.add("proc/5/task/5")
    for path, content in given.pop("files", {}).items():
        tree.put(path, content)
    tree.task(5, "sleep", "3", **given)
    found = affinity.find(tree, ONLINE, GOING)
    assert [finding.user for finding in found] == [user], found
    assert affinity.selected(found, ["services"]) == ([] if user else found)
    assert affinity.selected(found, ["all"]) == found
    assert affinity.selected(found, ["services", "carol", user or "x"]) == found
    assert affinity.selected(found, []) == []
    assert f"user {tree.user_name(given['uid'])}" in found[0].text and "pid 5 sleep" in found[0].text
    assert ("of whom there is no record" in found[0].text) == (user == "nobody")


def test_ordinary_users_start_at_uid_min(tree):
    tree.put("etc/login.defs", "#UID_MIN 1\nUID_MIN\t\t 2000\n")
    tree.task(5, "sleep", "3", cgroup=SESSION, uid=1001, login=1001)
    assert [finding.user for finding in affinity.find(tree, ONLINE, GOING)] == [None]


def test_no_user_fills_the_list(tree):
    for pid in range(100, 160):
        tree.task(pid, f"x{pid}", str(1 + 2 * (pid % 4)), cgroup=f"{SESSION}/{pid}.scope", uid=1001, login=1001)
    tree.task(5, "db", "3", unit="db.service")
    assert sorted(conflicts(tree)) == [
        "CPU 3: pid 5 db (user root, uid 0, unit db.service) is pinned to 3 alone" + BY_CALL,
        (
            "CPUs 1,3,5,7: pid 100 x100 (user alice, uid 1001, unit 100.scope, by the user alone) and 14 more threads"
            " like it are pinned to 1 alone" + BY_CALL + "; 45 more threads of this user are pinned to other CPUs"
        ),
    ]
    assert len(affinity.capture(tree, ONLINE, GOING)["tasks"]) == 61, "their masks are restored like all others"


MANAGER = "/user.slice/user-1001.slice/user@1001.service"
PARTS = {"/user.slice": ("", "0-7"), "/user.slice/user-1001.slice": ("", "0-7"), MANAGER: ("", "0-7")}


def test_a_cpuset_that_was_delegated_to_a_user(tree):
    tree.cpusets({**PARTS, MANAGER + "/a": ("3", "3")})
    tree.owners[f"sys/fs/cgroup{MANAGER}/a/cpuset.cpus"] = 1001
    assert [finding.user for finding in affinity.find(tree, ONLINE, GOING)] == ["alice"]
    effect = "would lose all its CPUs, and its tasks have those of the cpuset above"
    assert conflicts(tree) == [
        f"CPU 3: /sys/fs/cgroup{MANAGER}/a (cgroup v2 cpuset, CPUs 3) of user alice, uid 1001 {effect}"
    ]


def test_a_user_with_many_cpusets_gets_one_line(tree):
    tree.cpusets({**PARTS, **{f"{MANAGER}/c{number}": (str(number % 8), str(number % 8)) for number in range(50)}})
    for number in range(50):
        tree.owners[f"sys/fs/cgroup{MANAGER}/c{number}/cpuset.cpus"] = 1001
    found = affinity.find(tree, ONLINE, GOING)
    assert [finding.user for finding in found] == ["alice"] and found[0].text.startswith("CPUs 1,3,5,7: ")
    assert found[0].text.endswith(", and 24 more cpusets of this user lose CPUs")


def test_a_user_with_many_ids_gets_one_line(tree):
    for number in range(60):
        tree.task(100 + number, "sleep", "3", cgroup=SESSION, uid=100000 + number, login=1001)
        tree.task(200 + number, "sleep", "3", cgroup=POSTFIX, uid=100000 + number)
    assert sorted(finding.user for finding in affinity.find(tree, ONLINE, GOING)) == ["alice", "nobody"]


def test_the_cpuset_of_a_service_that_has_it_delegated(tree):
    units = [f"/system.slice/{unit}" for unit in ("app.service", "cron.service")]
    tree.cpusets({"/system.slice": ("", "0-7"), **dict.fromkeys(units, ("3", "3"))})
    for unit in units:
        tree.owners[f"sys/fs/cgroup{unit}/cpuset.cpus"] = 1001
    tree.put("etc/systemd/system/app.service", APP)
    assert {finding.user for finding in affinity.find(tree, ONLINE, GOING)} == {None, "alice"}


@pytest.mark.parametrize("version", [1, 2])
def test_cpusets_and_their_tasks(tree, version):
    given = {
        "/a.slice": ("", "0-7"),
        "/a.slice/b.scope": ("2-3", "2-3"),
        "/a.slice/c.scope": ("5", "5"),
        "/a.slice/d.scope": ("4", "4"),
    }
    tree.cpusets(given, version)
    tree.put("sys/fs/cgroup/unmanaged/below/cpuset.cpus", "7")
    tree.task(10, "inside", "2-3", cgroup="/a.slice/b.scope/deep")
    tree.task(11, "narrower", "3", cgroup="/a.slice/b.scope")
    if version == 1:
        for pid, path in ((10, "/a.slice/b.scope/deep"), (11, "/a.slice/b.scope")):
            tree.put(f"proc/{pid}/task/{pid}/cgroup", f"7:name=systemd:/\n4:cpu,cpuset:{path}\n")
    above = "its tasks have those of the cpuset above" if version == 2 else "its tasks move to the cpuset above"
    assert sorted(conflicts(tree)) == [
        f"CPU 3: /sys/fs/cgroup/a.slice/b.scope (cgroup v{version} cpuset, CPUs 2-3) would shrink to 2",
        f"CPU 3: pid 11 narrower (user root, uid 0, unit b.scope) is pinned to 3 alone{BY_CALL}",
        (
            f"CPU 5: /sys/fs/cgroup/a.slice/c.scope (cgroup v{version} cpuset, CPUs 5) would lose all its CPUs, and"
            f" {above}"
        ),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_cpuset_with_all_cpus_of_the_one_above_binds_nothing(tree, version):
    """In v1 each cpuset has to list CPUs before it takes a task."""
    tree.cpusets(
        {"/docker": ("0-7", "0-7"), "/docker/0123": ("0-9", "0-7"), "/a": ("2-3", "2-3"), "/a/b": ("2-3", "2-3")},
        version,
    )
    assert [text.partition(" (")[0] for text in conflicts(tree)] == ["CPU 3: /sys/fs/cgroup/a"]
    assert len(affinity.capture(tree, ONLINE, GOING)["cpusets"]) == (4 if version == 1 else 0), (
        "the kernel shrinks each of v1 for good"
    )


PARTITION = {"": ("", "0-5"), "/part": ("6-7", "6-7", "root"), "/system.slice": ("", "0-5")}


def test_partition(tree):
    valid = {"/one": ("5", "5", "root"), "/two": ("6-7", "6-7", "isolated"), "/two/all": ("6-7", "6-7")}
    tree.cpusets({"": ("", "0-4"), **valid, "/not": ("7", "0-4", "root invalid")})
    assert sorted(conflicts(tree)) == [
        (
            "CPU 5: /sys/fs/cgroup/one (cgroup v2 cpuset, CPUs 5) is a partition (root) and would become invalid, and"
            " its tasks run among all others"
        ),
        "CPU 7: /sys/fs/cgroup/two (cgroup v2 cpuset, CPUs 6-7) is a partition (isolated) and would shrink to 6",
    ]


def test_what_a_partition_leaves_to_all_others_binds_nobody(tree):
    tree.cpusets(PARTITION)
    tree.task(1, "systemd", "0-5", cgroup="/init.scope")
    tree.task(20, "cron", "0-5", unit="cron.service")
    tree.task(30, "bash", "0-5", cgroup=SESSION, uid=1001, login=1001)
    tree.task(40, "inside", "6-7", cgroup="/part")
    tree.task(50, "db", "2-3", unit="db.service")
    assert conflicts(tree) == [
        "CPU 7: /sys/fs/cgroup/part (cgroup v2 cpuset, CPUs 6-7) is a partition (root) and would shrink to 6",
        f"CPU 3: pid 50 db (user root, uid 0, unit db.service) may run on 2-3 only and would keep 2{BY_CALL}",
    ]
    assert [task["pid"] for task in affinity.capture(tree, ONLINE, GOING)["tasks"]] == [50], (
        "nobody gets a mask that nobody set"
    )


def test_a_partition_with_its_own_list_of_exclusive_cpus(tree):
    """Since 6.7 a partition needs no cpuset.cpus, and its parent need not be one."""
    tree.cpusets({"": ("", "0-5"), "/a": ("", "0-5", "member"), "/a/b": ("", "6-7", "isolated")})
    tree.put("sys/fs/cgroup/a/b/cpuset.cpus.exclusive", "6-7")
    assert conflicts(tree) == [
        "CPU 7: /sys/fs/cgroup/a/b (cgroup v2 cpuset, CPUs 6-7) is a partition (isolated) and would shrink to 6"
    ]
    assert affinity.capture(tree, ONLINE, GOING)["partitions"] == {"sys/fs/cgroup/a/b": "isolated"}


def test_a_partition_that_leaves_only_siblings_to_all_others(tree):
    tree.cpusets({"": ("", "1,3,5,7"), "/part": ("0,2,4,6", "0,2,4,6", "root")})
    tree.task(20, "cron", "1,3,5,7", unit="cron.service")
    reason = "would become invalid, because what is outside of it would have no CPU"
    assert conflicts(tree) == [
        f"CPUs 0,2,4,6: /sys/fs/cgroup/part (cgroup v2 cpuset, CPUs 0,2,4,6) is a partition (root) and {reason}"
    ]
    assert affinity.capture(tree, ONLINE, GOING)["partitions"] == {"sys/fs/cgroup/part": "root"}


def test_isolated_cpus_bind_nobody_else(tree):
    tree.put("sys/devices/system/cpu/isolated", "6-7")
    tree.task(1, "systemd", "0-5", cgroup="/init.scope")
    tree.task(20, "cron", "0-5", unit="cron.service")
    tree.task(50, "db", "2-3", unit="db.service")
    assert [text.partition(" (")[0] for text in conflicts(tree)] == ["CPU 3: pid 50 db", "CPU 7: isolated at boot"]
    assert [task["pid"] for task in affinity.capture(tree, ONLINE, GOING)["tasks"]] == [
        1,
        20,
        50,
    ], "without an online CPU the kernel would give all to them"


SLICE = ("/system.slice/db.service", {"/system.slice": ("", "0-7"), "/system.slice/db.service": ("2-3", "2-3")})
# The files, and who binds as the conflict says it.
WHO = {
    "a unit file": (
        {"etc/systemd/system/db.service": "[Service]\nAllowedCPUs=2-3\n"},
        "/etc/systemd/system/db.service sets AllowedCPUs=2-3",
    ),
    "systemctl set-property": (
        {"run/systemd/system.control/db.service.d/50-AllowedCPUs.conf": "[Service]\nAllowedCPUs=2 3\n"},
        "/run/systemd/system.control/db.service.d/50-AllowedCPUs.conf sets AllowedCPUs=2 3",
    ),
    "two files": (
        {"etc/systemd/system/db.service": "AllowedCPUs=2\n", "etc/systemd/system/service.d/a.conf": "AllowedCPUs=3\n"},
        "/etc/systemd/system/db.service sets AllowedCPUs=2 and /etc/systemd/system/service.d/a.conf sets AllowedCPUs=3",
    ),
}


@pytest.mark.parametrize("case", WHO)
def test_a_conflict_names_the_file_of_systemd_once(tree, case):
    files, who = WHO[case]
    tree.cpusets(SLICE[1])
    for path, text in files.items():
        tree.put(path, text)
    tree.task(50, "db", "2-3", unit="db.service")
    assert conflicts(tree) == [
        f"CPU 3: /sys/fs/cgroup{SLICE[0]} (cgroup v2 cpuset, CPUs 2-3) would shrink to 2, as {who}"
    ]


def test_a_file_that_sets_other_cpus_than_the_unit_has_is_named_too(tree):
    """Such as one that was written since the unit was started."""
    tree.cpusets(SLICE[1])
    tree.put("etc/systemd/system/db.service", "AllowedCPUs=4-5\n")
    tree.put("etc/systemd/system/other.service", "AllowedCPUs=0-7\n")
    assert [text.partition(" (")[0] for text in conflicts(tree)] == [
        f"CPU 3: /sys/fs/cgroup{SLICE[0]}",
        "CPU 5: /etc/systemd/system/db.service sets AllowedCPUs=4-5",
    ]


def test_a_task_with_the_cpus_of_its_units_file(tree):
    tree.put("lib/systemd/system/db@.service", "CPUAffinity=2-3\n")
    tree.task(50, "db", "2-3", unit="db@main.service")
    tree.task(51, "db", "3", unit="db@main.service")
    assert conflicts(tree) == [
        (
            "CPU 3: pid 50 db (user root, uid 0, unit db@main.service) may run on 2-3 only and would keep 2, "
            "as /lib/systemd/system/db@.service sets CPUAffinity=2-3"
        ),
        f"CPU 3: pid 51 db (user root, uid 0, unit db@main.service) is pinned to 3 alone{BY_CALL}",
    ]


def test_what_inherits_the_mask_of_process_1_is_one_conflict(tree):
    tree.put("etc/systemd/system.conf", "CPUAffinity=0-3\n")
    tree.task(1, "systemd", "0-3", unit="init.scope", cgroup="/init.scope")
    tree.task(20, "cron", "0-3", unit="cron.service")
    tree.task(30, "bash", "0-3", cgroup=SESSION, uid=1001, login=1001)
    tree.task(50, "db", "2-3", unit="db.service")
    assert conflicts(tree) == [
        (
            "CPUs 1,3: pid 1 systemd (user root, uid 0, unit init.scope) and 2 more threads that inherit its mask may"
            " run on 0-3 only and would keep 0,2, as /etc/systemd/system.conf sets CPUAffinity=0-3"
        ),
        f"CPU 3: pid 50 db (user root, uid 0, unit db.service) may run on 2-3 only and would keep 2{BY_CALL}",
    ]


def test_the_cpuset_of_a_container(tree):
    tree.cpusets({"/system.slice": ("", "0-7"), "/system.slice/docker-0123.scope": ("2-3", "2-3")})
    assert [text.rpartition("would ")[2] for text in conflicts(tree)] == ["shrink to 2, set for a container or guest"]


@pytest.mark.parametrize(
    "names", [[], ["services"], ["all"], ["services", "alice", "postgres"], ["1003"], ["1004"], ["65534"]]
)
def test_owners_that_this_host_has(tree, names):
    tree.task(5, "sleep", "3", uid=1003)
    tree.task(6, "sleep", "3", uid=100123, login=1004)
    del tree.names_of_users[origins.NO_RECORD]
    affinity.check_users(tree, names)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("orcale", r"this host knows no such user \(getent passwd orcale\)"),
        ("service", "knows no such user"),
        ("", "knows no such user"),
        ("a\x1b[2J", r"names a\\x1b\[2J, and this host"),
        ("1001", "this user has a name here, alice: give that"),
        ("1003", "no user with this id, and no task runs as it"),
        ("01001", "this user has a name here, alice"),
        ("99999999999", "knows no such user"),
    ],
)
def test_an_owner_with_a_slip_in_it_is_refused(tree, name, reason):
    with pytest.raises(HostError, match=reason):
        affinity.check_users(tree, ["services", name])


@pytest.mark.parametrize(
    ("path", "text", "conflict"),
    [
        (
            "etc/systemd/system/db.service",
            "[Service]\nCPUAffinity=0 1 2-3\n",
            "CPUs 1,3: /etc/systemd/system/db.service sets CPUAffinity=0 1 2-3",
        ),
        (
            "etc/systemd/system/db.service.d/x.conf",
            "[Service]\n AllowedCPUs = 4,5\n",
            "CPU 5: /etc/systemd/system/db.service.d/x.conf sets AllowedCPUs=4,5",
        ),
        ("etc/systemd/system.conf", "CPUAffinity=7\n", "CPU 7: /etc/systemd/system.conf sets CPUAffinity=7"),
        (
            "etc/libvirt/qemu/vm.xml",
            "<vcpupin vcpu='0' cpuset='2-3,^2'/>",
            "CPU 3: libvirt guest vm is pinned there (vcpupin)",
        ),
        (
            "sys/devices/system/cpu/isolated",
            "3,6\n",
            "CPU 3: isolated at boot (isolcpus=) for a workload that would lose it",
        ),
        ("sys/devices/system/node/node1/cpulist", "5,7\n", "CPUs 5,7: NUMA node1 would be left without a CPU"),
        ("proc/irq/24/smp_affinity_list", "3\n", "CPU 3: interrupt 24 is bound to 3 alone"),
    ],
)
def test_configured_bindings(tree, path, text, conflict):
    tree.put(path, text)
    assert conflicts(tree) == [conflict]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/systemd/system/db.service", "#CPUAffinity=3\nCPUAffinity=numa\nCPUAffinity=\nCPUAffinity=99-1\n"),
        ("etc/libvirt/qemu/vm.xml", "<vcpupin vcpu='0' cpuset='junk'/>"),
        ("var/lib/kubelet/cpu_manager_state", '{"policyName":"none"}'),
        ("var/lib/kubelet/cpu_manager_state", '{"policyName":'),
        ("var/lib/kubelet/cpu_manager_state", "[[]]"),
        ("var/lib/kubelet/cpu_manager_state", "[" * 100_000),
        ("var/lib/kubelet/cpu_manager_state", '{"policyName": "static", "a": ' * 50_000),
        ("proc/irq/24/smp_affinity_list", "2-3\n"),
        ("proc/irq/24/smp_affinity_list", ""),
        ("proc/77/stat", "no stat"),
        ("proc/77/task/77/status", "Cpus_allowed_list:\t\n"),
        ("sys/devices/system/node/node1/cpulist", "4-5\n"),
    ],
)
def test_no_conflict(tree, path, text):
    tree.put(path, text)
    assert conflicts(tree) == []


def test_kubelet(tree):
    tree.put("var/lib/kubelet/cpu_manager_state", json.dumps({"policyName": "static", "defaultCpuSet": "0-7"}))
    assert conflicts(tree)[0].startswith("CPUs 1,3,5,7: the CPU manager policy of kubelet is static")


def test_interrupts_placed_by_the_kernel_or_irqbalance(tree):
    tree.put("proc/irq/24/smp_affinity_list", "3")
    tree.put("proc/irq/24/affinity_hint", "08")
    assert affinity.find(tree, ONLINE, GOING) == []
    tree.put("proc/irq/25/smp_affinity_list", "5")
    tree.task(50, "irqbalance", "0-7", uid=1001)
    assert [finding.is_conflict for finding in affinity.find(tree, ONLINE, GOING)] == [True], (
        "any user can give a process this name"
    )
    tree.task(50, "irqbalance", "0-7")
    tree.setuid.add("proc/50")
    assert [finding.is_conflict for finding in affinity.find(tree, ONLINE, GOING)] == [True], (
        "also by a link to a set-user-ID program"
    )
    tree.setuid.clear()
    assert [finding.is_conflict for finding in affinity.find(tree, ONLINE, GOING)] == [False]


def test_long_list_is_cut_for_reading_only(tree):
    for pid in range(100, 160):
        tree.task(pid, f"worker{pid}", "3")
    assert len(conflicts(tree)) == 60
    text = affinity.readable(affinity.selected(affinity.find(tree, ONLINE, GOING), ["services"]))
    assert text.splitlines()[-1] == "- and 40 more" and len(text.splitlines()) == 21


def lose(tree, **tasks):
    """Capture, then let the kernel widen the masks, as before Linux 6.2."""
    captured = json.loads(json.dumps(affinity.capture(tree, ONLINE, GOING)))
    for pid in [task["pid"] for task in captured["tasks"]]:
        tree.task(pid, "sleep", "0-7")
    affinity.note_left(tree, captured)
    saved_masks.check(captured)
    return captured


def restored(tree, captured, online=ONLINE):
    return affinity.restore(tree, captured, affinity.masks_now(tree, captured), online)


def mask(tree, pid):
    return tree.read(f"proc/{pid}/status").rpartition("\t")[2]


def test_masks_are_restored(tree):
    tree.task(5, "sleep", "3")
    tree.task(6, "sleep", "4-5")
    captured = lose(tree)
    reports, pending = restored(tree, captured)
    assert (reports, saved_masks.is_empty(pending)) == ([], True)
    assert (mask(tree, 5), mask(tree, 6)) == ("3", "4-5")


def test_a_mask_waits_for_its_cpus(tree):
    tree.task(5, "sleep", "3")
    captured = lose(tree)
    reports, pending = restored(tree, captured, online=[0, 1, 2, 4, 5, 6])
    assert (reports, [task["pid"] for task in pending["tasks"]], mask(tree, 5)) == ([], [5], "0-7")
    assert restored(tree, pending)[0] == []
    assert mask(tree, 5) == "3"


def test_a_mask_that_somebody_chose_since_stays(tree):
    tree.task(5, "sleep", "3")
    captured = lose(tree)
    tree.task(5, "sleep", "0")
    assert "was given another mask (0) while CPUs were offline" in restored(tree, captured)[0][0]
    assert mask(tree, 5) == "0"


def test_a_mask_that_somebody_chose_since_is_set_again_where_the_kernel_takes_it_as_cpus_come_back(tree):
    tree.task(5, "sleep", "3")
    captured = lose(tree)
    tree.task(5, "sleep", "0")
    masks = affinity.masks_now(tree, captured)
    tree.task(5, "sleep", "0-7")
    assert "it keeps that mask, 3 was not restored" in affinity.restore(tree, captured, masks, ONLINE)[0][0]
    assert mask(tree, 5) == "0"


@pytest.mark.parametrize(("wanted", "left"), [("2", "2"), ("2-3", "2"), ("3", "0,2,4,6")])
def test_a_pin_that_the_kernel_takes_with_another_cpu_of_the_cpuset_is_set_at_once(tree, wanted, left):
    """Before 6.2 all tasks of a cpuset get its mask when it loses a CPU or gets one."""
    tree.cpusets({})
    tree.task(5, "sleep", wanted)
    captured = json.loads(json.dumps(affinity.capture(tree, ONLINE, GOING)))
    tree.task(5, "sleep", "0,2,4,6")
    affinity.note_left(tree, captured)
    assert (mask(tree, 5), captured["tasks"][0]["left"]) == (left, left)
    masks = affinity.masks_now(tree, captured)
    tree.task(5, "sleep", "0-7")
    assert affinity.restore(tree, captured, masks, ONLINE)[0] == [] and mask(tree, 5) == wanted


def test_a_pin_to_cpus_that_stay_is_saved_only_where_the_kernel_takes_it(tree):
    tree.task(5, "sleep", "2")
    assert affinity.capture(tree, ONLINE, GOING)["tasks"] == [], "it stays in a host without cpusets"
    tree.cpusets({"/docker": ("0-7", "0-7")}, 1)
    assert len(affinity.capture(tree, ONLINE, GOING)["tasks"]) == 1
    tree.cpusets({})
    assert len(affinity.capture(tree, ONLINE, ())["tasks"]) == 1, "also when CPUs only come"


@pytest.mark.parametrize("then", ["gone", "0"])
def test_nothing_is_said_of_a_task_from_which_nothing_was_taken(tree, then):
    tree.cpusets({})
    tree.task(5, "sleep", "2")
    captured = json.loads(json.dumps(affinity.capture(tree, ONLINE, GOING)))
    affinity.note_left(tree, captured)
    tree.task(5, "sleep", then if then != "gone" else "2", start=1000 if then != "gone" else 2000)
    assert restored(tree, captured)[0] == [] and mask(tree, 5) == ("0" if then != "gone" else "2")


def test_a_mask_that_the_kernel_widened_later_is_restored(tree):
    """Seen on 6.1: a sleeping task keeps its mask until it wakes up."""
    tree.task(5, "sleep", "3")
    captured = json.loads(json.dumps(affinity.capture(tree, ONLINE, GOING)))
    affinity.note_left(tree, captured)
    tree.task(5, "sleep", "0-7")
    assert restored(tree, captured)[0] == []
    assert mask(tree, 5) == "3"


@pytest.mark.parametrize(
    ("version", "kind", "name"), [(1, "cgroup rw,cpuset", "cpuset.cpus"), (2, "cgroup2 rw", "cpuset.cpus.effective")]
)
def test_a_mask_that_the_kernel_widened_to_the_cpuset_is_restored(tree, version, kind, name):
    tree.put("proc/self/mounts", f"x /sys/fs/cgroup {kind} 0 0\n")
    tree.put(f"sys/fs/cgroup/a/{name}", "2")
    tree.task(5, "sleep", "3")
    captured = json.loads(json.dumps(affinity.capture(tree, ONLINE, GOING)))
    affinity.note_left(tree, captured)
    tree.task(5, "sleep", "2")
    tree.put("proc/5/cgroup", f"{'0:' if version == 2 else '4:cpuset'}:/a/below\n")
    assert restored(tree, captured)[0] == []
    assert mask(tree, 5) == "3"


def test_a_reused_pid_is_another_task(tree):
    tree.task(5, "sleep", "3")
    captured = lose(tree)
    tree.task(5, "sleep", "0-7", start=2000)
    assert restored(tree, captured)[0] == ["pid 5 sleep is gone, its mask 3 was not needed any more"]
    assert mask(tree, 5) == "0-7"


def test_a_refused_mask_is_reported(tree):
    tree.task(5, "sleep", "3")
    captured = lose(tree)
    tree.refused[5] = errno.EINVAL
    assert restored(tree, captured)[0] == ["pid 5 sleep: mask 3 could not be restored: refused"]


def test_cpusets_grow_back_from_the_top(tree):
    tree.put("proc/self/mounts", "x /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n")
    for path in ("a", "a/b", "gone"):
        tree.put(f"sys/fs/cgroup/cpuset/{path}/cpuset.cpus", "2-3")
    captured = lose(tree)
    written = []
    write = tree.write
    tree.write = lambda path, text: (written.append(path), write(path, text))
    for path in ("a", "a/b"):
        tree.put(f"sys/fs/cgroup/cpuset/{path}/cpuset.cpus", "2")
    (tree.root / "sys/fs/cgroup/cpuset/gone/cpuset.cpus").unlink()
    reports, _pending = restored(tree, captured)
    assert reports == ["/sys/fs/cgroup/cpuset/gone is gone, its cpuset 2-3 was not needed any more"]
    assert written == ["sys/fs/cgroup/cpuset/a/cpuset.cpus", "sys/fs/cgroup/cpuset/a/b/cpuset.cpus"]
    assert tree.read("sys/fs/cgroup/cpuset/a/b/cpuset.cpus") == "2-3"


@pytest.mark.parametrize(
    ("now", "then"),
    [("root invalid (No cpu available due to hotplug)", "root"), ("member", "member"), ("isolated", "isolated")],
)
def test_a_partition_is_made_valid_again_but_not_made_again(tree, now, then):
    tree.cpusets({"": ("", "0-6"), "/part": ("7", "7", "root")})
    captured = lose(tree)
    tree.put("sys/fs/cgroup/part/cpuset.cpus.partition", now)
    reports, pending = restored(tree, captured, online=[0, 2, 4, 6])
    assert (reports, pending["partitions"]) == ([], {"sys/fs/cgroup/part": "root"}) and tree.read(
        "sys/fs/cgroup/part/cpuset.cpus.partition"
    ) == now
    assert restored(tree, captured)[0] == [] and tree.read("sys/fs/cgroup/part/cpuset.cpus.partition") == then


def test_interrupts_go_back(tree):
    tree.put("proc/irq/24/smp_affinity_list", "3")
    captured = lose(tree)
    tree.put("proc/irq/24/smp_affinity_list", "0-7")
    assert restored(tree, captured)[0] == []
    assert tree.read("proc/irq/24/smp_affinity_list") == "3"


def test_the_first_capture_is_kept(tree):
    tree.task(5, "sleep", "3")
    first = lose(tree)
    tree.task(5, "sleep", "1,3")
    tree.task(6, "sleep", "7")
    merged = saved_masks.merge(first, affinity.capture(tree, ONLINE, GOING))
    assert [(task["pid"], task["mask"]) for task in merged["tasks"]] == [(5, "3"), (6, "7")]


@pytest.mark.parametrize(
    "damage",
    [
        {"tasks": None},
        {"tasks": [{"pid": -1}]},
        {"tasks": [{"pid": "x"}]},
        {"cpusets": {"a": 1}},
        {"online": 7},
        {"online": ["0"]},
        {"online": [0, -1]},
        {"online": [[0]]},
    ],
)
def test_damaged_capture(damage):
    whole = {"online": [], "tasks": [], "cpusets": {}, "partitions": {}, "interrupts": {}}
    saved_masks.check(whole)
    with pytest.raises(ValueError, match=r"not valid"):
        saved_masks.check(dict(whole, **damage))
