# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports of what binds work to CPUs, and of hosts where nobody does: each one found a fault here."""

from __future__ import annotations

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity

V2 = {"proc/self/mounts": "x /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7"}


def conflicts(root, files):
    """What loses CPUs 1, 3, 5 and 7 on a host of eight, siblings side by side, with these files."""
    base = {"proc/self/mounts": "", "sys/devices/system/cpu/online": "0-7"}
    found = affinity.find(kernel_files.KernelFiles(sysfs_tree.write(root, {**base, **files})), range(8), (1, 3, 5, 7))
    return [one.text for one in found if one.is_conflict]


def tasks(mask):
    """Process 1 and three services."""
    fields, files = " ".join(["S", "1", *"0000", "4194304", *12 * "0", "1000", *20 * "0"]), {}
    for pid, name in enumerate(("systemd", "dbus", "sshd", "cron"), 1):
        unit = "init.scope" if pid == 1 else f"system.slice/{name}.service"
        status = f"Name:\t{name}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{mask}\n"
        for deeper in ("", f"/task/{pid}"):
            place = f"proc/{pid}{deeper}"
            files |= {f"{place}/stat": f"{pid} ({name}) {fields}", f"{place}/status": status}
            files |= {f"{place}/cgroup": f"0::/{unit}\n"}
    return files


def program(name, *arguments):
    return {"proc/700/comm": f"{name}\n", "proc/700/cmdline": "\0".join(["/usr/bin/x", *arguments, ""])}


DB, DROP_IN, CONF = "system/db.service", "system/db.service.d/a.conf", "system.conf"
ETC, LIB = "etc/systemd/", "usr/lib/systemd/"
ONE, NONE = "[Service]\nCPUAffinity=1\n", "[Service]\nUser=db\n"
STATIC = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'
IS_STATIC = "policy of kubelet is static"
PODMAN = "var/lib/containers/storage/overlay-containers/0a1b/userdata/config.json"
DOCKER = "var/lib/docker/containers/0a1b/hostconfig.json"
SCOPE = "sys/fs/cgroup/system.slice/docker-0a1b.scope"
ALL_OF_DOCKER = {
    DOCKER: '{"CpusetCpus": "0-7"}',
    PODMAN: '{"linux": {"resources": {"cpu": {"cpus": "0-7"}}}}',
}
REFUSES = "CPUs 1,3,5,7: Docker's container 0a1b is pinned there (docker start refuses it"
CONTROL = "etc/systemd/system.control/"


def v1(group):
    return {f"sys/fs/cgroup/cpuset{path}/cpuset.cpus": "0-7" for path in ("", f"/{group}", f"/{group}/0123")} | {
        "proc/self/mounts": "x /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
    }


# Files, and what each conflict has in it.
CASES = {
    # Also what tuned's profile cpu-partitioning writes, tuned 98.
    "systemd_9692": (
        {**tasks("0-3"), ETC + CONF: "[Manager]\nCPUAffinity=0 1 2 3\n"},
        ["3 more threads", "/etc/systemd/system.conf sets CPUAffinity=0 1 2 3"],
    ),
    "systemd_14154": (
        {**tasks("0-3"), "proc/cmdline": "root=/dev/vda1 systemd.cpu_affinity=0-3 quiet"},
        ["/proc/cmdline sets systemd.cpu_affinity=0-3"],
    ),
    "tuned_564": (tasks("0-3"), ["CPUs 1,3: pid 1 systemd"]),
    # A partition of its own restricts all other slices.
    "systemd_31150": (
        {
            **tasks("0-5"),
            **V2,
            "sys/fs/cgroup/cpuset.cpus.effective": "0-5",
            **{f"sys/fs/cgroup/{name}/cpuset.cpus": "" for name in ("init.scope", "system.slice")},
            **{f"sys/fs/cgroup/{name}/cpuset.cpus.effective": "0-5" for name in ("init.scope", "system.slice")},
            **{f"sys/fs/cgroup/own.slice/cpuset.cpus{name}": "6-7" for name in ("", ".effective")},
            "sys/fs/cgroup/own.slice/cpuset.cpus.partition": "root",
        },
        ["CPU 7: /sys/fs/cgroup/own.slice (cgroup v2 cpuset, CPUs 6-7) is a partition (root) and would shrink to 6"],
    ),
    "kubernetes_71622": ({**tasks("0,1"), "sys/devices/system/cpu/isolated": "2-7"}, ["isolated at boot"]),
    # A v1 cpuset lists CPUs though nobody chose them.
    "moby_40041": (v1("docker"), None),
    "tp_libvirt_1310": (v1("machine.slice"), None),
    "tp_libvirt_3390": ({"etc/libvirt/qemu/vm.xml": "<vcpu cpuset='0-7'>4</vcpu><emulatorpin cpuset='0-7'/>"}, None),
    # systemd: an empty assignment takes back what came before, a file hides that of its name in a later directory.
    "taken back": ({LIB + DB: ONE, ETC + DROP_IN: "[Service]\nCPUAffinity=\n"}, None),
    "taken back and set": ({ETC + DB: ONE + "CPUAffinity=\nCPUAffinity=0-7\n"}, None),
    "hidden": ({LIB + DB: ONE, ETC + DB: NONE}, None),
    "hidden drop-in": ({LIB + DROP_IN: ONE, ETC + DROP_IN: NONE}, None),
    "hidden manager": ({LIB + CONF: ONE, ETC + CONF: "[Manager]\nLogLevel=info\n"}, None),
    "over two lines": ({ETC + DB: "[Service]\nCPUAffinity=0 \\\n  1\n"}, ["CPUAffinity=0"]),
    "local": ({"usr/local/lib/systemd/" + DB: ONE}, ["/usr/local/lib/systemd/system/db.service"]),
    "manager drop-in": ({LIB + CONF + ".d/a.conf": ONE}, ["/usr/lib/systemd/system.conf.d/a.conf"]),
    "manager of the vendor": ({LIB + CONF: ONE}, ["/usr/lib/systemd/system.conf"]),
    **{
        f"kubernetes_98121 {folder} {arguments}": (
            {f"{folder}/cpu_manager_state": STATIC, **(program(*arguments) if arguments else {})},
            [f"{IS_STATIC} (/{folder}/cpu_manager_state)"],
        )
        for folder, *arguments in [
            ("var/lib/kubelet",),
            ("var/snap/microk8s/common/var/lib/kubelet",),
            ("var/lib/k0s/kubelet",),
            ("data/kubelet", "kubelet", "--root-dir=/data/kubelet"),
            ("data/kubelet", "kubelet", "--v", "2", "--root-dir", "/data/kubelet/"),
            ("data/kubelet", "k3s-server", "server", "--kubelet-arg=root-dir=/data/kubelet"),
        ]
    },
    **{
        f"kubernetes_124066 {configuration} {arguments}": (
            {"etc/k.yaml": configuration, **program("kubelet", *arguments)},
            said and [said],
        )
        for said, configuration, *arguments in [
            (IS_STATIC, "", "--cpu-manager-policy=static"),
            (IS_STATIC, 'cpuManagerPolicy: "static"\n', "--config=/etc/k.yaml"),
            (None, "cpuManagerPolicy: none\n", "--config=/etc/k.yaml"),
            ("CPU 1: kubelet reserves 0-1", "", "--reserved-cpus=0-1"),
            ("CPU 3: kubelet reserves 0,3", "reservedSystemCPUs: 0,3 # system\n", "--config", "/etc/k.yaml"),
            (None, "reservedSystemCPUs: 0,2\n", "--config", "/etc/k.yaml"),
        ]
    },
    # What does not run is pinned too.
    **{
        f"moby_16141 {name}": ({path: text}, ["CPU", "is pinned there"])
        for name, path, text in [
            ("docker", DOCKER, '{"CpusetCpus": "1,3", "Memory": 0}'),
            ("podman", PODMAN, '{"linux": {"resources": {"cpu": {"cpus": "1"}}}}'),
            (
                "podman, whose user has a key of the same name",
                PODMAN,
                '{"annotations": {"cpus": "0"}, "linux": {"resources": {"cpu": {"cpus": "1"}}}}',
            ),
            ("lxc", "var/lib/lxc/0a1b/config", "lxc.uts.name = web\nlxc.cgroup2.cpuset.cpus = 1-2\n"),
            ("proxmox container", "etc/pve/lxc/101.conf", "arch: amd64\nlxc.cgroup2.cpuset.cpus: 1\n"),
            ("proxmox guest", "etc/pve/qemu-server/100.conf", "affinity: 1,3\nmemory: 512\n"),
        ]
    },
    **{
        f"compose_3306 {text}": ({DOCKER: text}, None)
        for text in ['{"CpusetCpus": ""}', '{"CpusetCpus": "0,2"}', "", "{"]
    },
    # Docker 20.10 starts no container of all CPUs while one is offline; Podman does. Also where it runs.
    "docker 20.10": (ALL_OF_DOCKER, [REFUSES]),
    "docker 20.10, running": (
        {
            **ALL_OF_DOCKER,
            **V2,
            **{f"{path}/cpuset.cpus.effective": "0-7" for path in (SCOPE, "sys/fs/cgroup/system.slice")},
            f"{SCOPE}/cpuset.cpus": "0-7",
            "sys/fs/cgroup/system.slice/cpuset.cpus": "",
        },
        [REFUSES],
    ),
    **{
        f"libvirt {driver}": (
            {f"etc/libvirt/{driver}/vm.xml": "<vcpu placement='static' cpuset='5,7'>1</vcpu>"},
            ["CPUs 5,7: libvirt guest vm is pinned there (vcpu)"],
        )
        for driver in ("qemu", "lxc", "libxl")
    },
    # A node that Slurm drains.
    **{
        f"{name} {folder}": (
            {"proc/sys/kernel/hostname": "ip-10-0-1-7\n", f"{folder}/slurm.conf": f"ClusterName=c\n{lines}\n"},
            said and [said, f"/{folder}/slurm.conf"],
        )
        for folder in ("etc/slurm", "run/slurm/conf")
        for name, said, lines in [
            (
                "aws_plugin_for_slurm_10",
                "counts 8 CPUs",
                "NodeName=ip-10-0-1-[6-12] CPUs=8 RealMemory=32000 State=Cloud",
            ),
            (
                "cyclecloud_slurm_50",
                "counts 2 threads of a core",
                "Nodename=hpc-[1-10],ip-10-0-1-7 STATE=CLOUD CPUs=8 ThreadsPerCore=2",
            ),
            ("over two lines", "counts 2 threads", "NodeName=ip-10-0-[1-2]-[01-09,7] \\\n ThreadsPerCore=2"),
            ("geopm_375", None, "NodeName=ip-10-0-1-[1-16] Sockets=2 CoresPerSocket=2 ThreadsPerCore=1"),
            (
                "by default",
                "counts 2 threads",
                "NodeName=DEFAULT ThreadsPerCore=2\nNodeName=x NodeHostname=ip-10-0-1-7",
            ),
            ("another node", None, "NodeName=ip-10-0-1-[8-12],ip-10-0-1-70 ThreadsPerCore=2"),
            ("a comment", None, "# NodeName=ip-10-0-1-7 ThreadsPerCore=2"),
            ("aws_parallelcluster_6238", None, "NodeName=ip-10-0-1-7 CPUs=4"),
            ("as it is", None, "SlurmdParameters=config_overrides\nNodeName=ip-10-0-1-7 ThreadsPerCore=2"),
            ("no numbers", None, "NodeName=ip-10-0-1-[7-x] ThreadsPerCore=2\nNodeName=ip-10-0-1-7 CPUs=many"),
        ]
    },
}


@pytest.mark.parametrize(("files", "said"), CASES.values(), ids=CASES)
def test_what_binds_work_to_cpus(tmp_path, files, said):
    found = conflicts(tmp_path, files)
    assert [[words for words in said if words not in text] for text in found] == ([[]] if said else []), found


def test_systemd_23748_three_slices_that_leave_cpus_free(tmp_path):
    files = {**tasks("0-3"), **V2}
    for unit in ("init.scope", "system.slice", "user.slice"):
        files |= {f"sys/fs/cgroup/{unit}/{name}": "0-3" for name in ("cpuset.cpus", "cpuset.cpus.effective")}
        files[f"{CONTROL}{unit}.d/50-AllowedCPUs.conf"] = "AllowedCPUs=0-3\n"
    found = conflicts(tmp_path, files)
    assert len(found) == 3 and all(f" would shrink to 0,2, as /{CONTROL}" in conflict for conflict in found)


def test_a_link_that_gives_a_unit_a_further_name_is_said_once(tmp_path):
    (tmp_path / ETC / "system").mkdir(parents=True)
    (tmp_path / ETC / "system/alias.service").symlink_to(tmp_path / LIB / DB)
    assert len(conflicts(tmp_path, {LIB + DB: ONE})) == 1
