# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports of what binds work to CPUs, of whose a task is, of characters that hide, and of files that a tool
writes over: each one found a fault here.
"""

import os

import pytest
import sysfs_tree
from ansible import context
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

V2 = {"proc/self/mounts": "x /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-7"}


def conflicts(root, files):
    """What loses CPUs 1, 3, 5 and 7 on a host of eight, siblings side by side, with these files."""
    base = {"proc/self/mounts": "", "sys/devices/system/cpu/online": "0-7"}
    found = affinity.find(kernel_files.KernelFiles(sysfs_tree.write(root, {**base, **files})), range(8), (1, 3, 5, 7))
    return [one.text for one in found if one.is_conflict]


def tasks(mask):
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


ETC, LIB = "etc/systemd/", "usr/lib/systemd/"
STATIC = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'
PODMAN = "var/lib/containers/storage/overlay-containers/0a1b/userdata/config.json"
DOCKER = "var/lib/docker/containers/0a1b/hostconfig.json"
SCOPE = "sys/fs/cgroup/system.slice/docker-0a1b.scope"
ALL_OF_DOCKER = {DOCKER: '{"CpusetCpus": "0-7"}', PODMAN: '{"linux": {"resources": {"cpu": {"cpus": "0-7"}}}}'}
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
        {**tasks("0-3"), ETC + "system.conf": "[Manager]\nCPUAffinity=0 1 2 3\n"},
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
}
# Source, what is said, and each file (~ ends a line), or the words of a program that runs. Systemd: an empty assignment
# takes back what came before, a file hides that of its name in a later directory. What does not run is pinned too.
ROWS = r"""
tp_libvirt_3390 | | etc/libvirt/qemu/vm.xml: <vcpu cpuset='0-7'>4</vcpu><emulatorpin cpuset='0-7'/>
taken back and set | | <ETC>db.service: [Service]~CPUAffinity=1~CPUAffinity=~CPUAffinity=0-7
hidden | | <LIB>db.service: CPUAffinity=1 | <ETC>db.service: [Service]~User=db
hidden manager | | usr/lib/systemd/system.conf: CPUAffinity=1 | etc/systemd/system.conf: [Manager]~LogLevel=info
over two lines | CPUAffinity=0 | <ETC>db.service: CPUAffinity=0 \~  1
manager drop-in | /usr/lib/systemd/system.conf.d/a.conf | usr/lib/systemd/system.conf.d/a.conf: CPUAffinity=1
kubernetes_98121 | <IS> (/var/lib/kubelet/ | var/lib/kubelet/<STATIC>
kubernetes_98121 microk8s | <IS> (/var/snap/ | var/snap/microk8s/common/var/lib/kubelet/<STATIC>
kubernetes_98121 k0s | <IS> (/var/lib/k0s/kubelet/ | var/lib/k0s/kubelet/<STATIC>
kubernetes_98121 root | <IS> (/data/kubelet/ | data/kubelet/<STATIC> | kubelet --root-dir=/data/kubelet
kubernetes_98121 apart | <IS> (/data/kubelet/ | data/kubelet/<STATIC> | kubelet --v 2 --root-dir /data/kubelet/
kubernetes_98121 k3s | <IS> (/data/k | data/kubelet/<STATIC> | k3s-server server --kubelet-arg=root-dir=/data/kubelet
kubernetes_124066 | <IS> | kubelet --cpu-manager-policy=static
kubernetes_124066 file | <IS> | etc/k.yaml: cpuManagerPolicy: "static" | kubelet --config=/etc/k.yaml
kubernetes_124066 none | | etc/k.yaml: cpuManagerPolicy: none | kubelet --config=/etc/k.yaml
kubernetes_124066 reserved | CPU 1: kubelet reserves 0-1 | kubelet --reserved-cpus=0-1
kubernetes_124066 reserved 3 | CPU 3: kubelet reserves 0,3 | k: reservedSystemCPUs: 0,3 # x | kubelet --config /k
kubernetes_124066 reserved, first threads | | etc/k.yaml: reservedSystemCPUs: 0,2 | kubelet --config /etc/k.yaml
moby_16141 | <PIN> | <DOCKER>: {"CpusetCpus": "1,3", "Memory": 0}
moby_16141 podman | <PIN> | <PODMAN>: {"linux": {"resources": {"cpu": {"cpus": "1"}}}}
moby_16141 key of a user | <PIN> | <PODMAN>: {"a": {"cpus": "0"}, "linux": {"resources": {"cpu": {"cpus": "1"}}}}
moby_16141 lxc | <PIN> | var/lib/lxc/0a1b/config: lxc.uts.name = web~lxc.cgroup2.cpuset.cpus = 1-2
moby_16141 proxmox container | <PIN> | etc/pve/lxc/101.conf: arch: amd64~lxc.cgroup2.cpuset.cpus: 1
moby_16141 proxmox guest | <PIN> | etc/pve/qemu-server/100.conf: affinity: 1,3~memory: 512
compose_3306 | | <DOCKER>: {"CpusetCpus": ""}
compose_3306 first threads | | <DOCKER>: {"CpusetCpus": "0,2"}
compose_3306 broken | | <DOCKER>: {
libvirt qemu | <GUEST> | etc/libvirt/qemu/vm.xml: <vcpu placement='static' cpuset='5,7'>1</vcpu>
libvirt lxc | <GUEST> | etc/libvirt/lxc/vm.xml: <vcpu placement='static' cpuset='5,7'>1</vcpu>
libvirt libxl | <GUEST> | etc/libvirt/libxl/vm.xml: <vcpu placement='static' cpuset='5,7'>1</vcpu>
"""
SHORT = {
    "<ETC>": ETC + "system/",
    "<LIB>": LIB + "system/",
    "<DOCKER>": DOCKER,
    "<PODMAN>": PODMAN,
    "<PIN>": "is pinned there",
}
SHORT |= {"<STATIC>": f"cpu_manager_state: {STATIC}", "<IS>": "policy of kubelet is static"}
SHORT |= {"<GUEST>": "CPUs 5,7: libvirt guest vm is pinned there (vcpu)"}
for short, whole in SHORT.items():
    ROWS = ROWS.replace(short, whole)
for name, said, *parts in (line.split(" |") for line in ROWS.strip().splitlines()):
    files = {}
    for path, colon, content in (part.strip().partition(": ") for part in parts):
        files |= {path: content.replace("~", "\n") + "\n"} if colon else program(*path.split())
    CASES[name] = files, [said.strip()] if said.strip() else None
# A node that Slurm drains: what is said, and lines of its configuration.
SLURM = """
aws_plugin_for_slurm_10 | counts 8 CPUs | NodeName=ip-10-0-1-[6-12] CPUs=8 RealMemory=32000 State=Cloud
cyclecloud_slurm_50 | counts 2 threads of a core | Nodename=hpc-[1-10],ip-10-0-1-7 STATE=CLOUD CPUs=8 ThreadsPerCore=2
over two lines | counts 2 threads | NodeName=ip-10-0-[1-2]-[01-09,7] \\~ ThreadsPerCore=2
geopm_375 | | NodeName=ip-10-0-1-[1-16] Sockets=2 CoresPerSocket=2 ThreadsPerCore=1
by default | counts 2 threads | NodeName=DEFAULT ThreadsPerCore=2~NodeName=x NodeHostname=ip-10-0-1-7
another node | | NodeName=ip-10-0-1-[8-12],ip-10-0-1-70 ThreadsPerCore=2
a comment | | # NodeName=ip-10-0-1-7 ThreadsPerCore=2
leading zeros | | NodeName=ip-10-0-1-[01-09] ThreadsPerCore=2
aws_parallelcluster_6238 | | NodeName=ip-10-0-1-7 CPUs=4
as it is | | SlurmdParameters=config_overrides~NodeName=ip-10-0-1-7 ThreadsPerCore=2
no numbers | | NodeName=ip-10-0-1-[7-x] ThreadsPerCore=2~NodeName=ip-10-0-1-7 CPUs=many
"""
for folder in ("etc/slurm", "run/slurm/conf"):
    for name, said, lines in (line.split(" |") for line in SLURM.strip().splitlines()):
        path, text = f"{folder}/slurm.conf", lines.strip().replace("~", "\n")
        files = {"proc/sys/kernel/hostname": "ip-10-0-1-7\n", path: f"ClusterName=c\n{text}\n"}
        CASES[f"{name} {folder}"] = (files, [said.strip(), path] if said.strip() else None)


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


NO_LOGIN = 0xFFFFFFFF


def pinned(root, uid, cgroup, login=NO_LOGIN, files=()):
    fields = " ".join(["S", "1", *"0000", "4194304", *12 * "0", "1000", *20 * "0"])
    written = {
        "proc/self/mounts": "",
        "proc/5/stat": f"5 (sleep) {fields}",
        "proc/5/task/5/stat": f"5 (sleep) {fields}",
        "proc/5/task/5/status": f"Name:\tsleep\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCpus_allowed_list:\t3\n",
        "proc/5/task/5/loginuid": str(login),
        "proc/5/task/5/cgroup": f"0::{cgroup}\n",
        **dict(files),
    }
    return affinity.find(kernel_files.KernelFiles(sysfs_tree.write(root, written)), range(4), [1, 3])


SPAWNED = "jupyter-alice-singleuser.service"


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        # Jobs of users without pam_loginuid. Also docker-mailserver 1528, where it may not write: the job has no login
        # uid, and is in the unit of the daemon.
        *(pytest.param(f"{unit}.service", {}, id="clearlinux_distribution_595") for unit in ("cron", "crond", "atd")),
        # A server of a user is a transient unit of the system.
        pytest.param(
            SPAWNED, {f"run/systemd/transient/{SPAWNED}": "[Service]\nUser=1001\n"}, id="jupyterhub_systemdspawner_32"
        ),
        # A job of a batch system is a user's.
        pytest.param("flux.service/job-1", {}, id="flux_framework_flux_core_7559"),
    ],
)
def test_whose_a_pinned_task_is(tmp_path, cgroup, files):
    assert affinity.selected(pinned(tmp_path, 1001, f"/system.slice/{cgroup}", files=files), ["services"]) == []


@pytest.mark.parametrize(
    "characters",
    [
        # Directions that a list of them leaves out.
        pytest.param("\u061c\u202a\u202b", id="nvidia_skillspector_39"),
        # Blanks that are letters and marks. Also harfbuzz 6229: U+180F came with Unicode 14, older lists lack it.
        pytest.param("\u180f\u3164\uffa0\u115f\u17b4", id="guillaumemeyer_watermarks_remover_93"),
        # Characters that nobody has assigned yet.
        pytest.param("\u2065\ufff0\U000e0000\U000e0fff", id="guillaumemeyer_watermarks_remover_94"),
    ],
)
def test_characters_that_hide_are_shown(characters):
    for character in characters:
        assert border_text.showable(f"a{character}b").isascii() and character not in border_text.line(f"a{character}b")
        assert host_text.may_hide(character)


@pytest.mark.parametrize("host", ["Index", "INDEX", "Machines"])
def test_typestrong_typedoc_2012_pages_that_differ_in_case_only(host):
    """Also cedille 80: on some file systems the second is the first one's file."""
    assert f"{result_files.file_stem(host)}.html".casefold() not in build.own_names()


@pytest.mark.parametrize(("name", "suffixes"), [("config.json", places.DOCUMENT), ("index.html", places.PAGE)])
def test_max_sixty_worktrunk_4153_an_output_that_is_somebodys_configuration(tmp_path, monkeypatch, name, suffixes):
    monkeypatch.setattr(context, "CLIARGS", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text('{"aliases": {}}')
    with pytest.raises(border_text.BorderError, match="this collection did not write it"):
        places.file(name, suffixes)
    assert os.listdir(tmp_path) == [name]
