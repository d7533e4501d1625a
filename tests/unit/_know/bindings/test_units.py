# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroup of a systemd unit and the CPUs it is bound to, on trees as cgroup v2 and v1 show them."""

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import units, worker_counts

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
V1 = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
ROOT = "sys/fs/cgroup"


class Tree(kernel_files.KernelFiles):
    """A host of cgroups and tasks."""

    def __init__(self, root, mounts=V2, online="0-7"):
        super().__init__(str(root))
        self.root = root
        self.put("proc/self/mounts", mounts)
        self.put("sys/devices/system/cpu/online", online)

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def cgroup(self, path, cpus=None, effective=None, pids=()):
        if effective is not None:
            self.put(f"{path}/cpuset.cpus", (cpus or "") + "\n")
            self.put(f"{path}/cpuset.cpus.effective", effective + "\n")
        self.put(f"{path}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))

    def task(self, pid, *masks):
        for thread, mask in enumerate(masks, pid):
            self.put(f"proc/{pid}/task/{thread}/status", f"Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\n")

    def only(self, unit):
        (found,) = units.cgroups(self, unit)
        return found


@pytest.mark.parametrize(
    ("unit", "path"),
    [
        ("postgresql@14-main.service", "system.slice/system-postgresql.slice/postgresql@14-main.service"),
        ("machine-a.slice", "machine.slice/machine-a.slice"),
    ],
)
def test_a_unit_lies_in_nested_slices(tmp_path, unit, path):
    tree = Tree(tmp_path)
    for other in ("init.scope", "system.slice/cron.service", path):
        tree.cgroup(f"{ROOT}/{other}")
    assert units.cgroups(tree, unit) == [units.Cgroup(ROOT, f"{ROOT}/{path}")]


def test_what_a_user_names_like_a_unit_is_not_the_unit(tmp_path):
    tree = Tree(tmp_path)
    tree.cgroup(f"{ROOT}/user.slice/user-1001.slice/user@1001.service/app.slice/db.service", "3", "3")
    assert units.cgroups(tree, "db.service") == []


@pytest.mark.parametrize(
    ("online", "slice_cpus", "cpus", "effective", "expected"),
    [
        ("0-7", "", "2-3,6-7", "2-3,6-7", "2-3,6-7"),
        # After a change: 6 and 7 are offline, and still the unit's.
        ("0-5", "", "2-3,6-7", "2-3", "2-3,6-7"),
        # All its CPUs are offline: the kernel gives it its parent's.
        ("0-3", "", "4-7", "0-3", "4-7"),
        ("0-7", "0-3", "2-5", "2-3", "2-3"),
        # A list without a CPU of the slice's has no effect.
        ("0-7", "0-3", "6-7", "0-3", "0-3"),
        # CPUs of another unit's partition.
        ("0-7", "", "", "0-5", "0-5"),
        ("0-7", "", "", "0-7", "0-7"),
    ],
)
def test_cpus_of_a_cpuset(tmp_path, online, slice_cpus, cpus, effective, expected):
    tree = Tree(tmp_path, online=online)
    tree.cgroup(f"{ROOT}/system.slice", slice_cpus, slice_cpus or online)
    tree.cgroup(f"{ROOT}/system.slice/db.service", cpus, effective)
    assert cpulist.render(units.cpus(tree, tree.only("db.service"))) == expected


def test_masks_of_all_threads_of_all_cgroups_of_a_unit(tmp_path):
    tree = Tree(tmp_path)
    tree.cgroup(f"{ROOT}/system.slice/db.service", pids=(10, 99))
    tree.cgroup(f"{ROOT}/system.slice/db.service/workers", pids=(20,))
    tree.task(10, "1", "3-4")
    tree.task(20, "6")
    assert units.cpus(tree, tree.only("db.service")) == frozenset()
    assert units.masks(tree, tree.only("db.service")) == {1, 3, 4, 6}
    old = Tree(tmp_path / "v1", mounts=V1)
    old.cgroup(f"{ROOT}/systemd/system.slice/db.service", pids=(10,))
    old.task(10, "2-3")
    unit = old.only("db.service")
    assert (unit.mount, units.cpus(old, unit), units.masks(old, unit)) == (f"{ROOT}/systemd", frozenset(), {2, 3})


# ---- services with as many processes or threads as there were CPUs

# Of each: pid, name, parent, unit, threads.
PROCESSES = [(100, "nginx", 1, "nginx.service", 1), (300, "postgres", 1, "postgresql@15-main.service", 1)]
PROCESSES += [
    (200, "java", 1, "app.service", 4),
    (201, "java", 1, "more.service", 9),
    (202, "java", 1, "few.service", 3),
]
PROCESSES += [(600, "\x1b[31mx", 1, "odd.service", 4)]
PROCESSES += [(301 + number, "postgres", 300, "postgresql@15-main.service", 1) for number in range(5)]
for one in range(4):
    PROCESSES += [(101 + one, "nginx", 100, "nginx.service", 1), (400 + one, "sh", 2000 + one, "cron.service", 1)]
    PROCESSES += [(500 + one, "kworker", 2, "", 1)]


def test_services_with_as_many_workers_as_cpus(tmp_path):
    host = Tree(tmp_path)
    for pid, name, parent, unit, threads in PROCESSES:
        host.put(f"proc/{pid}/status", f"Name:\t{name}\nPid:\t{pid}\nPPid:\t{parent}\nThreads:\t{threads}\n")
        host.put(f"proc/{pid}/cgroup", f"0::/system.slice/{unit}\n" if unit else "0::/\n")
    (tmp_path / "proc/700").mkdir()
    found = [(one["unit"], one["name"], one["kind"]) for one in worker_counts.of_services(host, 4)]
    java, odd = ("app.service", "java", "threads"), ("odd.service", "\\x1b[31mx", "threads")
    assert found == [java, ("nginx.service", "nginx", "processes"), odd]
    assert [one["unit"] for one in worker_counts.of_services(host, 5)] == ["postgresql@15-main.service"]
    # Few CPUs would name services that count none.
    assert [one for cpus in (0, 1, 2, 3, 8) for one in worker_counts.of_services(host, cpus)] == []
