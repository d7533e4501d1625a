# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports of what binds work to CPUs, and of hosts where nobody does: each one found a fault here."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files

SERVICES = ("dbus", "sshd", "cron")


@pytest.fixture(name="host")
def host_of_files(tmp_path):
    """A host of eight CPUs, siblings side by side; its tasks are process 1 and three services."""

    class Host:
        def put(self, files):
            for path, content in files.items():
                (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / path).write_text(content)

        def tasks(self, mask, cgroup="0::/{unit}\n"):
            fields = " ".join(["S", "1", *"0000", "4194304", *12 * "0", "1000", *20 * "0"])
            for pid, name in enumerate(("systemd", *SERVICES), 1):
                unit = "init.scope" if pid == 1 else f"system.slice/{name}.service"
                status = f"Name:\t{name}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{mask}\n"
                task = {"stat": f"{pid} ({name}) {fields}", "status": status, "cgroup": cgroup.format(unit=unit)}
                self.put(
                    {
                        f"proc/{pid}{deeper}/{file}": text
                        for file, text in task.items()
                        for deeper in ("", f"/task/{pid}")
                    }
                )

        def conflicts(self):
            return [
                one.text
                for one in affinity.find(kernel_files.KernelFiles(str(tmp_path)), range(8), (1, 3, 5, 7))
                if one.is_conflict
            ]

    host = Host()
    host.put({"proc/self/mounts": "", "sys/devices/system/cpu/online": "0-7"})
    return host


def test_systemd_9692_one_setting_that_all_processes_inherit(host):
    """Also what tuned's profile cpu-partitioning writes, tuned 98."""
    host.tasks("0-3")
    host.put({"etc/systemd/system.conf": "[Manager]\nCPUAffinity=0 1 2 3\n"})
    (conflict,) = host.conflicts()
    assert "and 3 more threads that inherit its mask" in conflict and conflict.endswith(
        "as /etc/systemd/system.conf sets CPUAffinity=0 1 2 3"
    )


def test_systemd_14154_the_same_as_a_boot_argument(host):
    host.tasks("0-3")
    host.put({"proc/cmdline": "root=/dev/vda1 systemd.cpu_affinity=0-3 quiet"})
    (conflict,) = host.conflicts()
    assert conflict.endswith("as /proc/cmdline sets systemd.cpu_affinity=0-3")


def test_tuned_564_every_process_is_pinned_by_one_program(host):
    host.tasks("0-3")
    (conflict,) = host.conflicts()
    assert conflict.startswith("CPUs 1,3: pid 1 systemd")


def test_systemd_31150_a_partition_of_its_own_restricts_all_other_slices(host):
    host.tasks("0-5")
    slices = {f"sys/fs/cgroup/{name}/cpuset.cpus": "" for name in ("init.scope", "system.slice")}
    slices.update({path + ".effective": "0-5" for path in slices})
    partition = {"cpuset.cpus": "6-7", "cpuset.cpus.effective": "6-7", "cpuset.cpus.partition": "root"}
    host.put(
        {
            "proc/self/mounts": "x /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-5",
            **slices,
        }
    )
    host.put({f"sys/fs/cgroup/own.slice/{name}": text for name, text in partition.items()})
    (conflict,) = host.conflicts()
    assert (
        conflict
        == "CPU 7: /sys/fs/cgroup/own.slice (cgroup v2 cpuset, CPUs 6-7) is a partition (root) and would shrink to 6"
    )


def test_systemd_23748_three_slices_that_leave_cpus_free(host):
    host.tasks("0-3")
    host.put({"proc/self/mounts": "x /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7"})
    for unit in ("init.scope", "system.slice", "user.slice"):
        host.put({f"sys/fs/cgroup/{unit}/{name}": "0-3" for name in ("cpuset.cpus", "cpuset.cpus.effective")})
        host.put({f"etc/systemd/system.control/{unit}.d/50-AllowedCPUs.conf": "AllowedCPUs=0-3\n"})
    assert len(host.conflicts()) == 3 and all(
        " would shrink to 0,2, as /etc/systemd/system.control/" in conflict for conflict in host.conflicts()
    )


def test_kubernetes_71622_isolated_cpus_are_not_in_the_mask_of_any_task(host):
    host.tasks("0,1")
    host.put({"sys/devices/system/cpu/isolated": "2-7"})
    (conflict,) = host.conflicts()
    assert "isolated at boot" in conflict


@pytest.mark.parametrize("group", ["docker", "machine.slice"])
def test_moby_40041_a_v1_cpuset_lists_cpus_though_nobody_chose_them(host, group):
    """Also tp-libvirt 1310."""
    host.put({"proc/self/mounts": "x /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"})
    host.put({f"sys/fs/cgroup/cpuset{path}/cpuset.cpus": "0-7" for path in ("", f"/{group}", f"/{group}/0123")})
    assert host.conflicts() == []


def test_tp_libvirt_3390_a_guest_that_is_pinned_to_all_cpus(host):
    host.put({"etc/libvirt/qemu/vm.xml": "<vcpu cpuset='0-7'>4</vcpu><emulatorpin cpuset='0-7'/>"})
    assert host.conflicts() == []
