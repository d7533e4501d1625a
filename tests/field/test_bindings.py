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


# ---- systemd's own rules -------------------------------------------------------------------------------------------


def drop_in(host, *files):
    host.put({path: f"[Service]\n{text}" for path, text in files})
    return host.conflicts()


@pytest.mark.parametrize(
    "files",
    [
        # An empty assignment takes back what came before.
        {
            "usr/lib/systemd/system/db.service": "CPUAffinity=1\n",
            "etc/systemd/system/db.service.d/a.conf": "CPUAffinity=\n",
        },
        {"etc/systemd/system/db.service": "CPUAffinity=1\nCPUAffinity=\nCPUAffinity=0-7\n"},
        # A file hides that of the same name in a later directory.
        {"usr/lib/systemd/system/db.service": "CPUAffinity=1\n", "etc/systemd/system/db.service": "User=db\n"},
        {
            "usr/lib/systemd/system/db.service.d/a.conf": "CPUAffinity=1\n",
            "etc/systemd/system/db.service.d/a.conf": "User=db\n",
        },
        {"usr/lib/systemd/system.conf": "CPUAffinity=1\n", "etc/systemd/system.conf": "LogLevel=info\n"},
    ],
)
def test_unit_files_that_bind_nothing(host, files):
    assert drop_in(host, *files.items()) == []


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("etc/systemd/system/db.service", "CPUAffinity=0 \\\n  1\n", "CPUAffinity=0"),
        ("usr/local/lib/systemd/system/db.service", "CPUAffinity=1\n", "/usr/local/lib/systemd/system/db.service"),
        ("usr/lib/systemd/system.conf.d/a.conf", "CPUAffinity=1\n", "/usr/lib/systemd/system.conf.d/a.conf"),
        ("usr/lib/systemd/system.conf", "CPUAffinity=1\n", "/usr/lib/systemd/system.conf"),
    ],
)
def test_unit_files_that_bind(host, path, text, said):
    (conflict,) = drop_in(host, (path, text))
    assert said in conflict


def test_a_link_that_gives_a_unit_a_further_name_is_said_once(host, tmp_path):
    host.put({"usr/lib/systemd/system/db.service": "CPUAffinity=1\n"})
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/alias.service").symlink_to(tmp_path / "usr/lib/systemd/system/db.service")
    assert len(host.conflicts()) == 1


# ---- kubelet, wherever it has its files ----------------------------------------------------------------------------

STATIC = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'


@pytest.mark.parametrize(
    ("folder", "program", "arguments"),
    [
        ("var/lib/kubelet", None, ()),
        ("var/snap/microk8s/common/var/lib/kubelet", None, ()),
        ("var/lib/k0s/kubelet", None, ()),
        ("data/kubelet", "kubelet", ("--root-dir=/data/kubelet",)),
        ("data/kubelet", "kubelet", ("--v", "2", "--root-dir", "/data/kubelet/")),
        ("data/kubelet", "k3s-server", ("server", "--kubelet-arg=root-dir=/data/kubelet")),
    ],
)
def test_kubernetes_98121_state_of_kubelet_elsewhere(host, folder, program, arguments):
    host.put({f"{folder}/cpu_manager_state": STATIC})
    if program:
        host.put({"proc/700/comm": f"{program}\n", "proc/700/cmdline": "\0".join(["/usr/bin/x", *arguments, ""])})
    (conflict,) = host.conflicts()
    assert f"policy of kubelet is static (/{folder}/cpu_manager_state)" in conflict


@pytest.mark.parametrize(
    ("arguments", "configuration", "said"),
    [
        (("--cpu-manager-policy=static",), "", ["policy of kubelet is static"]),
        (("--config=/etc/k.yaml",), 'cpuManagerPolicy: "static"\n', ["policy of kubelet is static"]),
        (("--config=/etc/k.yaml",), "cpuManagerPolicy: none\n", []),
        (("--reserved-cpus=0-1",), "", ["CPU 1: kubelet reserves 0-1"]),
        (("--config", "/etc/k.yaml"), "reservedSystemCPUs: 0,3 # system\n", ["CPU 3: kubelet reserves 0,3"]),
        (("--config", "/etc/k.yaml"), "reservedSystemCPUs: 0,2\n", []),
    ],
)
def test_kubernetes_124066_what_kubelet_was_told(host, arguments, configuration, said):
    host.put({"etc/k.yaml": configuration, "proc/700/comm": "kubelet\n"})
    host.put({"proc/700/cmdline": "\0".join(["/usr/bin/kubelet", *arguments, ""])})
    found = host.conflicts()
    assert len(found) == len(said) and all(words in text for words, text in zip(said, found, strict=True))


# ---- containers and guests that do not run -------------------------------------------------------------------------

CONTAINERS = {
    "moby 16141": ("var/lib/docker/containers/0a1b/hostconfig.json", '{"CpusetCpus": "1,3", "Memory": 0}'),
    "podman": (
        "var/lib/containers/storage/overlay-containers/0a1b/userdata/config.json",
        '{"linux": {"resources": {"cpu": {"cpus": "1"}}}}',
    ),
    "podman, whose user has a key of the same name": (
        "var/lib/containers/storage/overlay-containers/0a1b/userdata/config.json",
        '{"annotations": {"cpus": "0"}, "linux": {"resources": {"cpu": {"cpus": "1"}}}}',
    ),
    "lxc": ("var/lib/lxc/0a1b/config", "lxc.uts.name = web\nlxc.cgroup2.cpuset.cpus = 1-2\n"),
    "proxmox container": ("etc/pve/lxc/101.conf", "arch: amd64\nlxc.cgroup2.cpuset.cpus: 1\n"),
    "proxmox guest": ("etc/pve/qemu-server/100.conf", "affinity: 1,3\nmemory: 512\n"),
}


@pytest.mark.parametrize(("path", "text"), CONTAINERS.values(), ids=CONTAINERS)
def test_moby_16141_what_does_not_run_is_pinned_too(host, path, text):
    host.put({path: text})
    (conflict,) = host.conflicts()
    assert "is pinned there" in conflict and conflict.startswith("CPU")


@pytest.mark.parametrize("text", ['{"CpusetCpus": ""}', '{"CpusetCpus": "0,2"}', "", "{"])
def test_compose_3306_containers_without_pins_on_these_cpus(host, text):
    host.put({"var/lib/docker/containers/0a1b/hostconfig.json": text})
    assert host.conflicts() == []


def test_docker_starts_no_container_of_all_cpus_while_one_is_offline(host):
    """Also where it runs, with a cpuset that takes nothing away. Docker 20.10 said so on a guest; Podman starts it."""
    host.put(
        {
            "var/lib/docker/containers/0a1b/hostconfig.json": '{"CpusetCpus": "0-7"}',
            CONTAINERS["podman"][0]: '{"linux": {"resources": {"cpu": {"cpus": "0-7"}}}}',
        }
    )
    (conflict,) = host.conflicts()
    assert conflict.startswith("CPUs 1,3,5,7: Docker's container 0a1b is pinned there (docker start refuses it")
    cgroup = "sys/fs/cgroup/system.slice/docker-0a1b.scope"
    host.put({"proc/self/mounts": "x /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7"})
    host.put({f"{path}/cpuset.cpus.effective": "0-7" for path in (cgroup, "sys/fs/cgroup/system.slice")})
    host.put({f"{cgroup}/cpuset.cpus": "0-7", "sys/fs/cgroup/system.slice/cpuset.cpus": ""})
    assert host.conflicts() == [conflict]


@pytest.mark.parametrize("driver", ["qemu", "lxc", "libxl"])
def test_libvirt_guests_of_each_driver(host, driver):
    host.put({f"etc/libvirt/{driver}/vm.xml": "<vcpu placement='static' cpuset='5,7'>1</vcpu>"})
    (conflict,) = host.conflicts()
    assert conflict == "CPUs 5,7: libvirt guest vm is pinned there (vcpu)"


SLURM = {
    "aws-plugin-for-slurm 10": ("NodeName=ip-10-0-1-[6-12] CPUs=8 RealMemory=32000 State=Cloud", "counts 8 CPUs"),
    "cyclecloud-slurm 50": (
        "Nodename=hpc-[1-10],ip-10-0-1-7 STATE=CLOUD CPUs=8 ThreadsPerCore=2",
        "counts 2 threads of a core",
    ),
    "over two lines": ("NodeName=ip-10-0-[1-2]-[01-09,7] \\\n ThreadsPerCore=2", "counts 2 threads of a core"),
    "geopm 375": ("NodeName=ip-10-0-1-[1-16] Sockets=2 CoresPerSocket=2 ThreadsPerCore=1", None),
    "by default": ("NodeName=DEFAULT ThreadsPerCore=2\nNodeName=x NodeHostname=ip-10-0-1-7", "counts 2 threads"),
    "another node": ("NodeName=ip-10-0-1-[8-12],ip-10-0-1-70 ThreadsPerCore=2", None),
    "a comment": ("# NodeName=ip-10-0-1-7 ThreadsPerCore=2", None),
    "aws-parallelcluster 6238": ("NodeName=ip-10-0-1-7 CPUs=4", None),
    "taken as it is": ("SlurmdParameters=config_overrides\nNodeName=ip-10-0-1-7 ThreadsPerCore=2", None),
    "numbers that are none": ("NodeName=ip-10-0-1-[7-x] ThreadsPerCore=2\nNodeName=ip-10-0-1-7 CPUs=many", None),
}


@pytest.mark.parametrize("folder", ["etc/slurm", "run/slurm/conf"])
@pytest.mark.parametrize(("lines", "said"), SLURM.values(), ids=SLURM)
def test_a_node_that_slurm_drains(host, lines, said, folder):
    host.put({"proc/sys/kernel/hostname": "ip-10-0-1-7\n", f"{folder}/slurm.conf": f"ClusterName=c\n{lines}\n"})
    found = host.conflicts()
    assert [said in text and f"/{folder}/slurm.conf" in text for text in found] == ([True] if said else [])
