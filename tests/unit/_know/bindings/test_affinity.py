# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Affinity conflicts on synthetic trees, with more cases than a guest can have at once."""

import errno
import json

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import (
    affinity,
    bindings,
    origins,
    saved_masks,
)

ONLINE = range(8)
GOING = (1, 3, 5, 7)


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

    def task(self, pid, name, mask, unit=None, cgroup=None, uid=0, login=origins.NO_LOGIN, start=1000, **more):
        cgroup = cgroup or ("/system.slice/" + unit if unit else "/")
        flags = 0x00200000 if more.get("kernel") else 0x400000
        fields = f"S 1{' 0' * 4} {flags}{' 0' * 12} {start}{' 0' * 20}"
        ids = f"Uid:\t{uid}\t{uid}\t0\t0\n"
        for folder in (f"proc/{pid}", f"proc/{pid}/task/{more.get('thread') or pid}"):
            self.put(folder + "/stat", f"{pid} ({name}) {fields}\n")
            self.put(folder + "/status", f"Name:\t{name}\n{ids}Cpus_allowed:\tff\nCpus_allowed_list:\t{mask}\n")
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


def captured(tree, going=GOING):
    found = json.loads(json.dumps(affinity.capture(tree, ONLINE, going)))
    saved_masks.check(found)
    return found


SESSION = "/user.slice/user-1001.slice/session-3.scope"
APP = "[Unit]\nUser=root\n[Service]\nUser = alice\nExecStart=/bin/app\n"
MANAGER = "/user.slice/user-1001.slice/user@1001.service"
DB = {"/system.slice": ("", "0-7"), "/system.slice/db.service": ("2-3", "2-3")}
DB_FILE, OF_DB = "etc/systemd/system/db.service", {"unit": "db.service"}

ALICE = {"cgroup": SESSION, "uid": 1001, "login": 1001}
KUBELET = "var/lib/kubelet/cpu_manager_state"
SHORT = {"<T>": "by sched_setaffinity(2) as with taskset", "<G>": "/sys/fs/cgroup", "<M>": MANAGER, "<DB>": DB_FILE}
SHORT |= {"<K>": "may run on 2-3 only and would keep 2", "<S>": "(cgroup v2 cpuset, CPUs 2-3) would shrink to 2"}
SHORT |= {"<L>": "cpuset, CPUs 3) would lose all its CPUs, and its tasks", "<50>": "CPU 3: pid 50 db (user root, uid 0"}
CASES = r"""
pinned: {say: ["CPU 3: pid 5 sleep (user root, uid 0, unit foo.service) is pinned to 3 alone, <T>"],
  tasks: [[5, sleep, "3", {unit: foo.service}]]}
threads: {say: ["CPU 3: pid 5 java) R 1 (user root, uid 0, unit db.service) and 2 more threads like it <K>, <T>"],
  tasks: [[5, java) R 1, 2-3, {unit: db.service}], [5, java) R 1, 2-3, {unit: db.service, thread: 6}],
  [5, java) R 1, 2-3, {unit: db.service, thread: 7}]]}
of a user: {say: ["CPUs 1,3: pid 5 x (user alice, uid 1001, unit session-3.scope, by the user alone) is pinned to 1
  alone, <T>; 1 more threads of this user are pinned to other CPUs"], tasks: [[5, x, "1", ALICE], [6, y, "3", ALICE]]}
inherited: {say: ["CPUs 1,3: pid 1 systemd (user root, uid 0, unit init.scope) and 2 more threads that inherit its mask
  may run on 0-3 only and would keep 0,2, as /etc/systemd/system.conf sets CPUAffinity=0-3",
  "<50>, unit db.service) <K>, <T>"], files: {etc/systemd/system.conf: "CPUAffinity=0-3\n"},
  tasks: [[1, systemd, 0-3, {unit: init.scope, cgroup: /init.scope}], [20, cron, 0-3, {unit: c.service}],
  [30, bash, 0-3, ALICE], [50, db, 2-3, {unit: db.service}]]}
unit of a task: {say: ["<50>, unit db@main.service) <K>, as /lib/systemd/system/db@.service sets CPUAffinity=2-3"],
  files: {"lib/systemd/system/db@.service": "CPUAffinity=2-3\n"}, tasks: [[50, db, 2-3, {unit: db@main.service}]]}
# What its cpuset leaves a task nobody has bound.
shrinks: {say: ["CPU 3: <G>/system.slice/db.service <S>"], sets: DB, tasks: [[50, db, 2-3, {unit: db.service}]]}
empties: {say: ["CPU 3: <G>/a (cgroup v2 <L> have those of the cpuset above"], sets: {/a: ["3", "3"], /b: ["4", "4"]}}
empties v1: {say: ["CPU 3: <G>/a (cgroup v1 <L> move to the cpuset above"], sets: {/a: ["3", "3"], /b: ["4", "4"]}}
delegated: {say: ["CPUs 1,3: <G><M>/a (cgroup v2 cpuset, CPUs 1,3) of user alice, uid 1001 would lose all its CPUs, and
  its tasks have those of the cpuset above, and 1 more cpusets of this user lose CPUs"],
  sets: {/user.slice: ["", 0-7], /user.slice/user-1001.slice: ["", 0-7], <M>: ["", 0-7], <M>/a: ["1,3", "1,3"],
  <M>/a/b: ["3", "3"]}}
two files: {say: ["CPU 3: <G>/system.slice/db.service <S>, as /<DB> sets AllowedCPUs=2 and
  /etc/systemd/system/service.d/a.conf sets AllowedCPUs=3"], sets: DB,
  files: {<DB>: "AllowedCPUs=2\n", etc/systemd/system/service.d/a.conf: "AllowedCPUs=3\n"}}
# Such as one that was written since the unit was started.
other file: {say: ["CPU 3: <G>/system.slice/db.service <S>", "CPU 5: /<DB> sets AllowedCPUs=4-5"], sets: DB,
  files: {<DB>: "AllowedCPUs=4-5\n", etc/systemd/system/o.service: "AllowedCPUs=0-7\n"}}
container: {say: ["CPU 3: <G>/system.slice/docker-01.scope <S>, set for a container or guest"],
  sets: {/system.slice: ["", 0-7], /system.slice/docker-01.scope: [2-3, 2-3]}}
partition: {say: ["CPU 7: <G>/part (cgroup v2 cpuset, CPUs 6-7) is a partition (root) and would shrink to 6"],
  sets: {"": ["", 0-5], /part: [6-7, 6-7, root], /not: ["7", 0-5, root invalid]}}
last of it: {say: ["CPU 5: <G>/one (cgroup v2 cpuset, CPUs 5) is a partition (isolated) and would become invalid, and
  its tasks run among all others"], sets: {"": ["", 0-4], /one: ["5", "5", isolated]}}
all but siblings: {say: ["CPUs 0,2,4,6: <G>/part (cgroup v2 cpuset, CPUs 0,2,4,6) is a partition (root) and would become
  invalid, because what is outside of it would have no CPU"],
  sets: {"": ["", "1,3,5,7"], /part: ["0,2,4,6", "0,2,4,6", root]}}
# Since 6.7 a partition needs no cpuset.cpus, and its parent need not be one.
exclusive: {say: ["CPU 7: <G>/a/b (cgroup v2 cpuset, CPUs 6-7) is a partition (isolated) and would shrink to 6"],
  files: {sys/fs/cgroup/a/b/cpuset.cpus.exclusive: 6-7},
  sets: {"": ["", 0-5], /a: ["", 0-5, member], /a/b: ["", 6-7, isolated]}}
affinity file: {say: ["CPUs 1,3: /<DB> sets CPUAffinity=0 1 2-3"],
  files: {<DB>: "[Service]\nCPUAffinity=7\nCPUAffinity=\nCPUAffinity=0 1 2-3\n"}}
drop-in: {say: ["CPU 5: /<DB>.d/x.conf sets AllowedCPUs=4,5"],
  files: {<DB>.d/x.conf: "[Service]\n AllowedCPUs = 4,5\n"}}
guest: {say: ["CPU 3: libvirt guest vm is pinned there (vcpupin)"],
  files: {etc/libvirt/qemu/vm.xml: "<vcpupin vcpu='0' cpuset='1-3,^1'/>"}}
isolated: {say: ["CPU 3: isolated at boot (isolcpus=) for a workload that would lose it"],
  files: {sys/devices/system/cpu/isolated: "3,6\n"}}
node: {say: ["CPUs 5,7: NUMA node1 would be left without a CPU"], files: {sys/devices/system/node/node1/cpulist: "5,7"}}
interrupt: {say: ["CPU 3: interrupt 24 is bound to 3 alone"],
  files: {proc/irq/24/smp_affinity_list: "3\n", proc/irq/25/smp_affinity_list: "2-3\n"}}
kubelet: {say: ["CPUs 1,3,5,7: the CPU manager policy of kubelet is static (/var/lib/kubelet/cpu_manager_state): kubelet
  does not start when CPUs recorded there are offline"],
  files: {var/lib/kubelet/cpu_manager_state: '{"policyName": "static", "defaultCpuSet": "0-7"}'}}
"""
for short, whole in SHORT.items():
    CASES = CASES.replace(short, whole)
CASES = yaml.safe_load(CASES)


@pytest.mark.parametrize("case", CASES)
def test_each_conflict_is_one_sentence(tree, case):
    known = CASES[case]
    cpusets = DB if known.get("sets") == "DB" else known.get("sets", {})
    if cpusets:
        tree.cpusets(cpusets, 1 if case == "empties v1" else 2)
    for path, text in known.get("files", {}).items():
        tree.put(path, text)
    for *task, more in known.get("tasks", ()):
        tree.task(*task, **(ALICE if more == "ALICE" else more))
    for path in [f"sys/fs/cgroup{name}/cpuset.cpus" for name in cpusets if name.startswith(f"{MANAGER}/")]:
        tree.owners[path] = 1001
    assert sorted(conflicts(tree)) == sorted(known["say"])
    of_user = case in ("of a user", "delegated")
    assert {one.user for one in affinity.find(tree, ONLINE, GOING)} == {"alice" if of_user else None}


def test_who_has_nothing_bound_or_is_no_ordinary_user_and_hostile_names(tree):
    tree.task(1, "systemd", "0-7")
    tree.task(2, "kthreadd/3) R 1", "3", kernel=True)
    tree.task(5, "even", "0,2,4")
    assert affinity.find(tree, ONLINE, GOING) == []
    tree = Tree(tree.root / "other")
    tree.put("etc/login.defs", "#UID_MIN 1\nUID_MIN\t\t 2000\n")
    tree.task(5, "sleep", "3", **ALICE)
    assert [finding.user for finding in affinity.find(tree, ONLINE, GOING)] == [None]
    tree = Tree(tree.root / "hostile")
    tree.task(5, "a\x1b[2Jb", "7")
    tree.task(6, "sleep", "7", cgroup=f"{MANAGER}/a\x1b[2J\u202eb.scope", uid=1001)
    tree.task(7, "sleep", "7", cgroup="/user.slice/user-1002.slice/\x9b2J", uid=1002)
    tree.names_of_users[1002] = "1002"
    assert all(text.isprintable() for text in conflicts(tree)) and len(conflicts(tree)) == 3


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (DB_FILE, "#CPUAffinity=3\nCPUAffinity=numa\nCPUAffinity=\nCPUAffinity=99-1\n"),
        ("etc/libvirt/qemu/vm.xml", "<vcpupin vcpu='0' cpuset='junk'/>"),
        *((KUBELET, '{"policyName":"none"}'), (KUBELET, '{"policyName":'), (KUBELET, "[[]]")),
        (KUBELET, '{"policyName": "static", "a": ' * 50_000),
        ("proc/irq/24/smp_affinity_list", ""),
        *(("proc/77/stat", "no stat"), ("proc/77/task/77/status", "Cpus_allowed_list:\t\n")),
        ("sys/devices/system/node/node1/cpulist", "4-5\n"),
    ],
)
def test_no_conflict(tree, path, text):
    tree.put(path, text)
    assert conflicts(tree) == []


# The name of the user who set the mask, null for the system; S and M are a session and the manager of alice.
ORIGINS = yaml.safe_load(r"""
a login: [alice, 1001, S, {login: 1001}]
a login, in a kernel without auditing: [alice, 1001, S, {}]
a unit of the user: [alice, 1001, M/app.slice/postgresql.service, {}]
a unit of the user, as the package has the manager's: [alice, 1001, M/app.slice/x.service,
  {"usr/lib/systemd/system/user@.service": "[Service]\nUser=%i\n"}]
a login on a host without pam_systemd: [alice, 1001, /system.slice/ssh.service, {login: 1001}]
the same without pam_loginuid: [alice, 1001, /system.slice/ssh.service, {}]
a crontab of systemd-cron: [alice, 1001, /system.slice/cron-alice-0.service,
  {run/systemd/generator/cron-alice-0.service: APP}]
mail in a container of the user: [nobody, 100123, /system.slice/system-postfix.slice/postfix@-.service, {}]
a set-user-ID program of mail: [nobody, 0, /system.slice/postfix.service, {setuid: true}]
a pool of PHP-FPM: [alice, 1001, /system.slice/fpm.service, {lib/systemd/system/fpm.service: "[Service]\n"}]
a job of Slurm: [alice, 1001, /system.slice/slurmstepd.scope/job_12/step_0/user/task_0, {}]
a user in a service of another one: [bob, 1002, /system.slice/app.service, {etc/systemd/system/app.service: APP}]
a unit that no longer says who: [alice, 1001, /system.slice/app.service,
  {usr/lib/systemd/system/app.service: APP, etc/systemd/system/app.service.d/x.conf: "[Service]\nUser=\n"}]
a unit that an administrator replaced: [alice, 1001, /system.slice/app.service,
  {usr/lib/systemd/system/app.service: APP, etc/systemd/system/app.service: "[Service]\n"}]
a user in the range of DynamicUser: ["61200", 61200, /system.slice/cron.service, {login: 61200}]
a rootless container: [alice, 100123, S, {login: 1001}]
a setuid program of a login: [alice, 0, S, {login: 1001, setuid: true}]
the same without auditing: [alice, 0, S, {setuid: true}]
a service: [null, 0, /system.slice/db.service, {}]
a service of a system user: [null, 110, /system.slice/db.service, {}]
a service of an ordinary user: [null, 1001, /system.slice/app.service, {etc/systemd/system/app.service: APP}]
the same by id: [null, 1003, /system.slice/app.service, {etc/systemd/system/app.service: "[Service]\nUser=1003"}]
the same by a drop-in: [null, 1001, /a.slice/a-b.slice/app.service/deeper,
  {lib/systemd/system/app.service: "[Service]\nUser=postgres\n",
  etc/systemd/system/app.service.d/b.conf: "[Service]\nUser=alice\n",
  lib/systemd/system/app.service.d/a.conf: "[Service]\nUser=bob\n"}]
the same of a template: [null, 1001, /system.slice/system-sync.slice/sync@alice.service,
  {"lib/systemd/system/sync@.service": "[Service]\nExecStart=a \\\nUser=b\nUser=%i\n"}]
a service with DynamicUser: [null, 61200, /system.slice/app.service,
  {lib/systemd/system/app.service: "[Service]\nDynamicUser=yes\n"}]
a container: [null, 1001, /system.slice/docker-0123.scope, {}]
a container that an administrator started: [null, 1001, /machine.slice/libpod-0123.scope/container, {login: 1002}]
a system container: [null, 1000000, /lxc.payload.web/user.slice/user-1000.slice/session-1.scope, {}]
a pod: [null, 1001, /kubepods.slice/kubepods-burstable.slice/cri-1.scope, {}]
root by sudo: [null, 0, S, {login: 1001}]
""")


@pytest.mark.parametrize("case", ORIGINS)
def test_origin_of_a_pinned_task(tree, case):
    user, uid, cgroup, known = ORIGINS[case]
    if known.get("setuid"):
        tree.setuid.add("proc/5/task/5")
    for path, text in known.items():
        if "/" in path:
            tree.put(path, APP if text == "APP" else text)
    where = SESSION if cgroup == "S" else cgroup.replace("M/", f"{MANAGER}/")
    tree.task(5, "sleep", "3", uid=uid, cgroup=where, login=known.get("login", origins.NO_LOGIN))
    found = affinity.find(tree, ONLINE, GOING)
    assert [finding.user for finding in found] == [user], found
    assert affinity.selected(found, ["services"]) == ([] if user else found)
    assert affinity.selected(found, ["all"]) == affinity.selected(found, ["carol", "services", user or "x"]) == found
    assert affinity.selected(found, []) == [] and f"user {tree.user_name(uid)}" in found[0].text
    assert ("of whom there is no record" in found[0].text) == (user == "nobody")


def test_no_user_fills_the_list_and_a_long_one_is_cut_for_reading_only(tree):
    whole = dict.fromkeys(("/user.slice", "/user.slice/user-1001.slice", MANAGER), ("", "0-7"))
    tree.cpusets({**whole, **{f"{MANAGER}/c{number}": (str(number % 8),) * 2 for number in range(50)}})
    for number in range(50):
        tree.owners[f"sys/fs/cgroup{MANAGER}/c{number}/cpuset.cpus"] = 1001
        tree.task(100 + number, f"x{number}", "3", cgroup=f"{SESSION}/{number}.scope", uid=100000 + number, login=1001)
        tree.task(200 + number, "sleep", "3", cgroup="/system.slice/postfix.service", uid=100000 + number)
    assert sorted(finding.user for finding in affinity.find(tree, ONLINE, GOING)) == ["alice", "alice", "nobody"]
    assert len(captured(tree)["tasks"]) == 100, "their masks are restored like all others"
    for pid in range(300, 360):
        tree.task(pid, f"worker{pid}", "3")
    found = affinity.selected(affinity.find(tree, ONLINE, GOING), ["services"])
    text = affinity.readable(found)
    assert len(found) == 60 and text.splitlines()[-1] == "- and 40 more" and len(text.splitlines()) == 21


def test_owners_that_this_host_has_and_slips(tree):
    tree.task(5, "sleep", "3", uid=1003)
    tree.task(6, "sleep", "3", uid=100123, login=1004)
    del tree.names_of_users[origins.NO_RECORD]
    affinity.check_users(tree, ["services", "all", "alice", "1003", "1004", "65534"])
    slips = {"orcale": "(getent passwd orcale)", "a\x1b[2J": "(getent passwd a\\x1b", "1001": "alice: give that"}
    slips |= {"": "no such user", "99999999999": "no such user", "01001": "here, alice", "1005": "no task runs as it"}
    for name, reason in slips.items():
        with pytest.raises(HostError) as refused:
            affinity.check_users(tree, ["services", name])
        assert reason in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize("version", [1, 2])
def test_cpusets_and_their_tasks(tree, version):
    tree.cpusets({"/a.slice": ("", "0-7"), "/a.slice/b.scope": ("2-3", "2-3"), "/a.slice/c.scope": ("5", "5")}, version)
    tree.put("sys/fs/cgroup/unmanaged/below/cpuset.cpus", "7")
    for pid, name, mask, path in ((10, "inside", "2-3", "b.scope/deep"), (11, "narrower", "3", "b.scope")):
        tree.task(pid, name, mask, cgroup=f"/a.slice/{path}")
        if version == 1:
            tree.put(f"proc/{pid}/task/{pid}/cgroup", f"7:name=systemd:/\n4:cpu,cpuset:/a.slice/{path}\n")
    found = [text.partition(" (")[0] for text in conflicts(tree)]
    sets = ["CPU 3: /sys/fs/cgroup/a.slice/b.scope", "CPU 5: /sys/fs/cgroup/a.slice/c.scope"]
    assert sorted(found) == sorted([*sets, "CPU 3: pid 11 narrower"])


def test_what_a_partition_leaves_to_all_others_binds_nobody(tree):
    tree.cpusets({"": ("", "0-5"), "/part": ("6-7", "6-7", "root"), "/system.slice": ("", "0-5")})
    tree.task(1, "systemd", "0-5", cgroup="/init.scope")
    tree.task(30, "bash", "0-5", **ALICE)
    tree.task(40, "inside", "6-7", cgroup="/part")
    tree.task(50, "db", "2-3", unit="db.service")
    assert [text.partition(" (")[0] for text in conflicts(tree)] == ["CPU 7: /sys/fs/cgroup/part", "CPU 3: pid 50 db"]
    assert [task["pid"] for task in captured(tree)["tasks"]] == [50], "nobody gets a mask that nobody set"
    assert captured(tree)["partitions"] == {"sys/fs/cgroup/part": "root"}


def test_interrupts_placed_by_the_kernel_or_irqbalance(tree):
    def found():
        return [finding.is_conflict for finding in affinity.find(tree, ONLINE, GOING)]

    tree.put("proc/irq/24/smp_affinity_list", "3")
    tree.put("proc/irq/24/affinity_hint", "08")
    assert found() == []
    tree.put("proc/irq/25/smp_affinity_list", "5")
    tree.task(50, "irqbalance", "0-7", uid=1001)
    assert found() == [True], "any user can give a process this name"
    tree.task(50, "irqbalance", "0-7")
    tree.setuid.add("proc/50")
    assert found() == [True], "also by a link to a set-user-ID program"
    tree.setuid.clear()
    assert found() == [False]


def lose(tree, now="0-7"):
    """Capture, then let the kernel widen the masks, as before Linux 6.2."""
    found = captured(tree)
    for pid in [task["pid"] for task in found["tasks"]]:
        tree.task(pid, "sleep", now)
    affinity.note_left(tree, found)
    return found


def restored(tree, found, online=ONLINE):
    return affinity.restore(tree, found, affinity.masks_now(tree, found), online)


def mask(tree, pid):
    return tree.read(f"proc/{pid}/status").rpartition("\t")[2]


def test_masks_are_restored_and_wait_for_their_cpus_and_the_first_ones_are_kept(tree):
    tree.task(5, "sleep", "3")
    tree.task(6, "sleep", "4-5")
    found = lose(tree)
    reports, pending = restored(tree, found, online=[0, 1, 2, 4, 5, 6])
    assert (reports, [task["pid"] for task in pending["tasks"]], mask(tree, 5)) == ([], [5], "0-7")
    reports, pending = restored(tree, pending)
    assert (reports, saved_masks.is_empty(pending)) == ([], True)
    assert (mask(tree, 5), mask(tree, 6)) == ("3", "4-5")
    tree = Tree(tree.root / "other")
    tree.task(5, "sleep", "3")
    first = lose(tree)
    tree.task(5, "sleep", "1,3")
    tree.task(6, "sleep", "7")
    merged = saved_masks.merge(first, captured(tree))
    assert [(task["pid"], task["mask"]) for task in merged["tasks"]] == [(5, "3"), (6, "7")]


def test_a_mask_that_somebody_chose_since_stays(tree):
    tree.task(5, "sleep", "3")
    found = lose(tree)
    tree.task(5, "sleep", "0")
    masks = affinity.masks_now(tree, found)
    assert isinstance(restored(tree, found)[0][0], affinity.Harmless) and mask(tree, 5) == "0"
    # It is set again where the kernel takes it as CPUs come back.
    tree.task(5, "sleep", "0-7")
    said = "pid 5 sleep was given another mask (0) while CPUs were offline: it keeps that mask, 3 was not restored"
    assert affinity.restore(tree, found, masks, ONLINE)[0] == [said] and mask(tree, 5) == "0"


@pytest.mark.parametrize(("wanted", "left"), [("2", "2"), ("2-3", "2"), ("3", "0,2,4,6")])
def test_a_pin_that_the_kernel_takes_with_another_cpu_of_the_cpuset_is_set_at_once(tree, wanted, left):
    """Before 6.2 all tasks of a cpuset get its mask when it loses a CPU or gets one."""
    tree.cpusets({})
    tree.task(5, "sleep", wanted)
    found = lose(tree, "0,2,4,6")
    assert (mask(tree, 5), found["tasks"][0]["left"]) == (left, left)
    masks = affinity.masks_now(tree, found)
    tree.task(5, "sleep", "0-7")
    assert affinity.restore(tree, found, masks, ONLINE)[0] == [] and mask(tree, 5) == wanted


@pytest.mark.parametrize("kind", [None, "cgroup rw,cpuset", "cgroup2 rw"])
def test_a_mask_that_the_kernel_widened_later_is_restored(tree, kind):
    """Seen on 6.1: a sleeping task keeps its mask until it wakes up, and then has those of its cpuset."""
    tree.task(5, "sleep", "3")
    if kind:
        tree.put("proc/self/mounts", f"x /sys/fs/cgroup {kind} 0 0\n")
        tree.put(f"sys/fs/cgroup/a/cpuset.cpus{'.effective' if kind == 'cgroup2 rw' else ''}", "2")
    found = captured(tree)
    affinity.note_left(tree, found)
    tree.task(5, "sleep", "2" if kind else "0-7")
    if kind:
        tree.put("proc/5/cgroup", f"{'0:' if kind == 'cgroup2 rw' else '4:cpuset'}:/a/below\n")
    assert restored(tree, found)[0] == [] and mask(tree, 5) == "3"


def test_a_reused_pid_is_another_task_and_a_pin_to_cpus_that_stay_is_saved_only_where_the_kernel_takes_it(tree):
    tree.task(5, "sleep", "3")
    found = lose(tree)
    tree.refused[5] = errno.EINVAL
    assert restored(tree, found)[0] == ["pid 5 sleep: mask 3 could not be restored: refused"]
    tree.task(5, "sleep", "0-7", start=2000)
    assert restored(tree, found)[0] == ["pid 5 sleep is gone, its mask 3 was not needed any more"]
    assert mask(tree, 5) == "0-7"
    tree = Tree(tree.root / "other")
    tree.task(5, "sleep", "2")
    assert captured(tree)["tasks"] == [], "it stays in a host without cpusets"
    tree.cpusets({"/docker": ("0-7", "0-7")}, 1)
    assert len(captured(tree)["tasks"]) == 1
    tree.cpusets({})
    assert len(captured(tree, ())["tasks"]) == 1, "also when CPUs only come"


def test_cpusets_grow_back_from_the_top_and_interrupts_go_back(tree):
    tree.put("proc/irq/24/smp_affinity_list", "3")
    tree.put("proc/self/mounts", "x /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n")
    paths = [f"sys/fs/cgroup/cpuset/{name}/cpuset.cpus" for name in ("a", "a/b", "gone")]
    for path in paths:
        tree.put(path, "2-3")
    found = lose(tree)
    written, write = [], tree.write
    tree.write = lambda path, text: (written.append(path), write(path, text))
    for path in paths[:2]:
        tree.put(path, "2")
    (tree.root / paths[2]).unlink()
    tree.put("proc/irq/24/smp_affinity_list", "0-7")
    reports, _pending = restored(tree, found)
    assert reports == ["/sys/fs/cgroup/cpuset/gone is gone, its cpuset 2-3 was not needed any more"]
    assert written == [*paths[:2], "proc/irq/24/smp_affinity_list"]
    assert (tree.read(paths[1]), tree.read("proc/irq/24/smp_affinity_list")) == ("2-3", "3")


@pytest.mark.parametrize(
    ("now", "then"),
    [("root invalid (No cpu available due to hotplug)", "root"), ("member", "member"), ("isolated", "isolated")],
)
def test_a_partition_is_made_valid_again_but_not_made_again(tree, now, then):
    tree.cpusets({"": ("", "0-6"), "/part": ("7", "7", "root")})
    found, path = lose(tree), "sys/fs/cgroup/part/cpuset.cpus.partition"
    tree.put(path, now)
    reports, pending = restored(tree, found, online=[0, 2, 4, 6])
    assert (reports, pending["partitions"], tree.read(path)) == ([], {"sys/fs/cgroup/part": "root"}, now)
    assert restored(tree, found)[0] == [] and tree.read(path) == then


BAD_TASKS = [{"tasks": None}, {"tasks": [{"pid": -1}]}, {"tasks": [{"pid": "x"}]}, {"tasks": [{"pid": 5}]}]
BAD_CPUS = [{"cpusets": {"a": 1}}, {"online": ["0"]}, {"online": [0, -1]}]


@pytest.mark.parametrize("damage", [*BAD_TASKS, *BAD_CPUS])
def test_damaged_capture(damage):
    with pytest.raises(ValueError, match=r"not valid"):
        saved_masks.check({**saved_masks.nothing([]), **damage})


class OfInterrupt:
    """The files of an interrupt whose CPUs the kernel manages, as those of the queues of NVMe and virtio disks."""

    is_host = True

    def __init__(self, code):
        self.code, self.written = code, []

    def read(self, path):
        return "0\n" if path.endswith("affinity_hint") else "0-3\n"

    def write(self, path, text):
        self.written.append(text)
        raise OSError(self.code, "refused")


@pytest.mark.parametrize(("code", "managed"), [(errno.EIO, True), (errno.EPERM, True), (errno.EINVAL, False)])
def test_a_managed_interrupt_is_told_by_what_a_write_gives_and_needs_no_restoring(code, managed):
    """The errnos are those of guests with Linux 6.1 and 6.12."""
    kernel = OfInterrupt(code)
    assert bindings.is_placed_by_kernel(kernel, "22", frozenset({1})) is managed
    assert kernel.written == ["none"], "a text that changes nothing"
    assert len(affinity._restore_interrupt(OfInterrupt(code), "22", frozenset({1}), frozenset(range(4)))) == (
        not managed
    )
