# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Siblings offline and back on a fake kernel: whether the host is as before, and why it is not."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import locks
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import switching
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change as smt_change
from fake_host import Host

SIBLINGS = "1,3,5,7"
TICKS = 100


@pytest.fixture(name="host")
def make_host(tmp_path, monkeypatch):
    host = Host(tmp_path)
    host.stand_in(switching, monkeypatch)
    return host


def there_and_back(host, check=False):
    return switching.there_and_back(host.run_command, TICKS, check, host.sysroot)


def test_siblings_go_and_the_host_is_as_before(host):
    found = there_and_back(host, check=True)
    assert (found.refused, found.cpus, found.seconds_off) == (None, SIBLINGS, None)
    assert host.writes == [] and host.commands == []
    host.put("proc/irq/30/smp_affinity_list", "0-7")
    found = there_and_back(host)
    assert (found.refused, found.cpus) == (None, SIBLINGS) and host.online == set(range(8))
    assert found.different == {"cpus": [], "masks": [], "cpusets": [], "interrupts": []}
    assert found.seconds_off is not None and found.seconds_back is not None
    # Until then a timer would have brought the host back. Nothing waits now, and the next change is a first one.
    assert [command[0] for command in host.commands].count("systemd-run") == 1
    assert host.pending() is None and host.saved() is None and not host.is_waiting
    # Interrupts are irqbalance's where it runs, and not called as before.
    host.put("proc/77/comm", "irqbalance")
    host.put("proc/77/status", "Name:\tirqbalance\nUid:\t0\t0\t0\t0\n")
    assert set(there_and_back(host).different) == {"cpus", "masks", "cpusets"}


def test_a_host_that_was_changed_before_is_as_it_was_then(host):
    """One sibling is off on purpose, by smt_state, which can still restore it."""
    host.ask("disabled", cores={"cpus": "0-1"})
    found = there_and_back(host)
    assert found.refused is None and not any(found.different.values()) and host.online == {0, 2, 3, 4, 5, 6, 7}
    host.ask("restored")
    assert host.online == set(range(8))


def test_a_cpu_that_the_kernel_refuses_is_named_and_nothing_is_left(host):
    host.control = None
    host.refusals[5, False] = errno.EBUSY
    host._show_all()
    found = there_and_back(host)
    assert found.failed and found.refused.startswith("CPU 5: EBUSY"), found
    assert host.online == set(range(8)) and host.pending() is None and not host.is_waiting


def _hold_the_lock(host, monkeypatch):
    monkeypatch.setattr(locks, "CHANGE_SECONDS", 0.1)
    return locks.HostLock(host.sysroot, "smt_benchmark")


def _full_disk(_host, monkeypatch):
    def save(_fs, _saved):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/threadwise-smt/snapshot.json")

    monkeypatch.setattr(smt_change.smt_snapshot, "save", save)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (_hold_the_lock, "this host is being changed by smt_benchmark"),
        (
            lambda host, _patch: shutil.rmtree(os.path.join(host.sysroot, "run/systemd")),
            "its rollback timer needs systemd (systemd-run), which does not run on this host. Try it with smt_state",
        ),
        (
            lambda host, _patch: host.status.update({"systemd-run": 1}),
            "systemd-run did not start the rollback timer (status 1). Mend that and try again",
        ),
        (_full_disk, "/var/lib/threadwise-smt/snapshot.json: No space left on device. The host is as it was before. M"),
        (
            lambda host, _patch: setattr(host, "read_only", True),
            "EROFS: sysfs is mounted read-only, as in a container: change the machine that runs the container",
        ),
        (
            lambda host, _patch: put_thread(host, 41, "3"),
            "1 affinity conflict(s). Move what is bound to these CPUs, and try again: CPU 3: ",
        ),
    ],
)
def test_what_keeps_the_kernel_from_being_asked_is_no_fault_of_it(prepare, said, host, monkeypatch):
    context = prepare(host, monkeypatch)
    with context if hasattr(context, "__enter__") else contextlib.nullcontext():
        found = there_and_back(host)
    assert found.refused.startswith(said) and not found.failed, found
    assert not any(option in found.refused for option in ("rollback_after", "affinity_conflicts", "state:"))
    assert host.online == set(range(8)) and host.pending() is None and not host.is_waiting


def test_a_host_that_an_error_left_changed_is_a_fault(host, monkeypatch):
    """The disk is full in the middle, and the siblings do not come back."""
    host.refusals[3, True] = errno.EIO

    def full(*_all):
        raise OSError(errno.ENOSPC, "full", "x")

    monkeypatch.setattr(smt_change.affinity, "note_left", full)
    monkeypatch.setattr(smt_change.watchdog.Watchdog, "__exit__", lambda *_all: None)
    found = there_and_back(host)
    assert found.failed and "Still different from before" in found.refused


def test_a_change_that_waits_for_its_confirmation_is_not_confirmed_by_this(host):
    host.ask("disabled", rollback_after=600)
    assert "waits for its confirmation" in there_and_back(host).refused and host.pending() is not None


def put_thread(host, pid, mask):
    start = f"{pid} (worker) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 {10 * pid} 0"
    for folder in (f"proc/{pid}", f"proc/{pid}/task/{pid}"):
        host.put(f"{folder}/stat", start)
        host.put(f"{folder}/status", f"Name:\tworker\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{mask}\n")
        host.put(f"{folder}/cgroup", "0::/system.slice/db.service\n")


def test_a_mask_that_is_lost_is_named(host):
    """Kernels before 6.2 give a thread all CPUs when its last one goes offline."""
    put_thread(host, 41, "3")
    before = switching.picture(host)
    put_thread(host, 41, "0-7")
    after = switching.picture(host, before.masks)
    assert switching.differences(before, after, TICKS)["masks"] == ["thread 41 may run on 0-7, before on 3"]
    # Another thread of the same number is another thread.
    host.put("proc/41/stat", "41 (other) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 999 0")
    assert not any(switching.differences(before, switching.picture(host, before.masks), TICKS).values())


V1 = ("cgroup /cpu cgroup rw,cpuset 0 0", "cpuset.cpus")
V2 = ("cgroup2 /cpu cgroup2 rw 0 0", "cpuset.cpus.effective")


@pytest.mark.parametrize(
    ("hierarchy", "file", "had", "has"),
    [
        (*V1, "0-7", "0,2,4,6"),
        # The last CPU is gone for good.
        (*V1, "3", "\n"),
        (*V2, "2-3", "2"),
        (V2[0], "cpuset.cpus", "0-7", "0-6"),
        (V2[0], "cpuset.cpus.partition", "root", "root invalid (Cpu list in cpuset.cpus not exclusive)"),
    ],
)
def test_a_cpuset_that_is_narrower_is_named_whether_it_bound_or_not(hierarchy, file, had, has, host):
    """Also one in a cgroup that sets no CPUs, and one that could run on all of them."""
    host.put("proc/self/mounts", hierarchy + "\n")
    host.put("cpu/cpuset.cpus.effective", "0-7")
    host.put("cpu/docker/cpuset.cpus", "\n")
    host.put(f"cpu/docker/a/{file}", had)
    before = switching.picture(host)
    host.put(f"cpu/docker/a/{file}", has)
    found = switching.differences(before, switching.picture(host), TICKS)["cpusets"]
    name = file.rpartition(".")[2]
    assert found == [f"/cpu/docker/a has {name} {has.strip() or 'none'} (before: {name} {had})"]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_cpuset_that_is_as_before_a_little_later_is_no_difference(is_late, host, monkeypatch):
    host.put("proc/self/mounts", V2[0] + "\n")
    path = "cpu/a/cpuset.cpus.effective"
    host.put(path, "0-7")
    monkeypatch.setattr(switching, "CPUSET_SECONDS", 0.3)
    if is_late:
        monkeypatch.setattr(switching.time, "sleep", lambda _seconds: host.put(path, "0-7"))
    host.before_command = lambda command: host.put(path, "0-6") if command[:2] == ["systemctl", "stop"] else None
    assert len(there_and_back(host).different["cpusets"]) == (not is_late)


def picture(masks, cpusets, interrupts, online=(0, 1, 2, 3)):
    state = {"control": "on", "active": True, "online": list(online), "present": [0, 1, 2, 3]}
    return switching.Picture(100.0, state, masks, cpusets, interrupts)


def test_each_difference_is_said_with_what_was_before_and_what_began_or_ended_since_is_none():
    before = picture({(7, "10"): "0"}, {"a": "cpus 0-1"}, {"9": "0-3"})
    now = picture({(7, "10"): "2", (8, "9000"): "0-2"}, {"a": "cpus 0"}, {"9": "0"}, online=(0, 1, 2))
    found = switching.differences(before, now, TICKS)
    assert found.pop("cpus") and found == {
        "masks": ["thread 7 may run on 2, before on 0", "thread 8 may run on 0-2, before on all CPUs"],
        "cpusets": ["/a has cpus 0 (before: cpus 0-1)"],
        "interrupts": ["interrupt 9 is on 0, before on 0-3"],
    }
    after = picture({(8, "10100"): "0"}, {"b": "cpus 0"}, {"10": "0"})
    assert not any(switching.differences(before, after, TICKS).values())
