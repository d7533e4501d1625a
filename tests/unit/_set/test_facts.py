# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses
import json
import os
import sys

import pytest
import sysfs_tree
import yaml
from ansible.module_utils import basic
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import (
    hypervisor,
    ppc64_cpu,
    processors,
    vulnerabilities,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts_module
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import snapshot as smt_snapshot
from ansible_collections.threadwise.smt.plugins.modules import smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts as border, parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from fake_host import Host
from sysfs_tree import CPU, Machine

DOCUMENTED = yaml.safe_load(smt_facts.RETURN)["ansible_facts"]["contains"]["smt"]["contains"]
MACHINE = Machine(packages=2, cores=2)
SIBLINGS_OFF = dataclasses.replace(MACHINE, offline=(4, 5, 6, 7), control="off")


def files_of(root, tree):
    return host_files.HostFs(sysfs_tree.write(root, tree))


def gather(root, machine=MACHINE, **further):
    return smt_facts_module.gather(files_of(root, {**sysfs_tree.files(machine), **further}))


def shown(facts, expected):
    return {name: facts[name] for name in expected}


def test_the_facts_are_those_that_are_documented(tmp_path):
    facts = gather(tmp_path, Machine(packages=2, cores=9))
    assert set(facts) == set(DOCUMENTED) and json.loads(json.dumps(facts)) == facts
    expected = {"supported": True, "control": "on", "active": True, "sockets": 2, "cores": 18, "numbering": "split"}
    expected["cpus"] = {"present": "0-35", "possible": "0-35", "online": "0-35", "offline": "", "isolated": ""}
    expected.update(packages=["0-8,18-26", "9-17,27-35"], primaries="0-17", secondaries="18-35", measured=None)
    expected.update(threads_per_core={"min": 2, "max": 2, "online_max": 2}, problems=[])
    expected["nodes"] = {"0": "0-8,18-26", "1": "9-17,27-35"}
    assert shown(facts, expected) == expected and facts["sibling_groups"][:2] == ["0,18", "1,19"]
    name, _mark, digest = facts["hardware_class"].rpartition("-")
    assert name == "x86_64-2s18c36t-split" and len(digest) == 8


def test_what_a_host_does_not_have_is_not_entered(tmp_path):
    """State files that are not there, kinds of consumers that do not run, and boot loaders without a sign."""
    fs, entered = files_of(tmp_path, sysfs_tree.files(MACHINE)), set()

    def note(frame, event, _argument):
        if event == "call" and "/smt/plugins/" in frame.f_code.co_filename:
            entered.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(note)
    try:
        smt_facts_module.gather(fs)
    finally:
        sys.setprofile(None)
    assert 0 < len({file for file, _line in entered}) <= 20 and len(entered) <= 90


@pytest.mark.parametrize("folder", state_file.FOLDERS)
def test_state_files_in_a_folder_that_cannot_be_listed_may_be_there(tmp_path, folder):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (root / folder).parent.mkdir(parents=True)
    (root / folder).symlink_to(outside)
    problems = gather(root)["problems"]
    assert problems and all(one.startswith(f"{root / folder}/") and "link leads out" in one for one in problems)


def test_which_cpus_were_online_before_the_first_change(tmp_path):
    host = Host(tmp_path, offline=[7])
    fs = host_files.HostFs(host.sysroot)
    assert smt_facts_module.gather(fs)["online_before"] is None
    host.ask("disabled")
    host.ask(threads=2)
    assert smt_facts_module.gather(fs)["online_before"] == "0-6"
    host.boot("second")
    assert smt_facts_module.gather(fs)["online_before"] is None
    host.put(smt_snapshot.PATH, "[]")
    facts = smt_facts_module.gather(fs)
    assert facts["online_before"] is None and smt_snapshot.PATH in facts["problems"][0]


def test_cores_that_a_change_has_seen_are_known(tmp_path):
    """CPU 1 is off from the start, so that no topology cache is saved; without the snapshot the siblings that a change
    took offline have no core.
    """
    host = Host(tmp_path, offline=[1])
    fs = host_files.HostFs(host.sysroot)
    host.ask("disabled")
    expected = {"sibling_groups": ["0", "2-3", "4-5", "6-7"], "packages": ["0,2-7"], "source": "saved"}
    expected["complete"] = False
    assert shown(smt_facts_module.gather(fs), expected) == expected
    host.ask(threads=2)
    host.ask("disabled")
    facts = smt_facts_module.gather(fs)
    expected = {"sibling_groups": ["0-1", "2-3", "4-5", "6-7"], "packages": ["0-7"], "complete": True}
    assert shown(facts, expected) == expected and parts.plain(border.made(facts)) == facts


def test_facts_with_declared_siblings_keep_the_class_of_the_kernel_s(tmp_path):
    """An evaluation that follows other siblings than the kernel's sends such facts."""
    fs = files_of(tmp_path, sysfs_tree.files(Machine(cores=4, threads=1)))
    kernels, declared = smt_facts_module.gather(fs), smt_facts_module.gather(fs, [[0, 1], [2, 3]])
    assert declared["hardware_class"] == kernels["hardware_class"]
    made = border.made(declared)
    assert (made.cores, made.numbering) == (2, "adjacent") and parts.plain(made) == declared
    with pytest.raises(BorderError, match="hardware_class"):
        border.made({**declared, "source": "sysfs"})


@pytest.mark.parametrize("is_saved", [False, True])
def test_siblings_that_are_off_are_known_by_the_topology_cache(tmp_path, is_saved):
    fs = files_of(tmp_path, sysfs_tree.files(MACHINE))
    before = smt_facts_module.gather(fs)["hardware_class"]
    if is_saved:
        assert topology_cache.save(fs, topology.read_topology(fs))
    (tmp_path / "sys").rename(tmp_path / "before")
    facts = gather(tmp_path, SIBLINGS_OFF)
    known = 2 if is_saved else 1
    expected = {"source": "saved" if is_saved else "sysfs", "complete": is_saved, "supported": True, "active": False}
    expected.update(secondaries="4-7" if is_saved else "", hardware_class=before if is_saved else None, cores=4)
    expected["threads_per_core"] = {"min": known, "max": known, "online_max": 1}
    assert before and shown(facts, expected) == expected


@pytest.mark.parametrize(
    ("control", "machine", "supported"),
    [
        ("on", MACHINE, True),
        ("off", SIBLINGS_OFF, True),
        ("notsupported", Machine(threads=1), False),
        ("notimplemented", Machine(threads=4), True),
        ("notimplemented", Machine(threads=1, offline=(1,)), None),
        ("", Machine(threads=1), False),
        ("", MACHINE, True),
    ],
)
def test_supported(tmp_path, control, machine, supported):
    assert gather(tmp_path, dataclasses.replace(machine, control=control))["supported"] is supported


@pytest.mark.parametrize(
    ("active", "machine", "wanted", "problems"),
    [
        ("1", MACHINE, True, 0),
        ("0", SIBLINGS_OFF, False, 0),
        # It contradicts the lists.
        ("0\n", MACHINE, False, 1),
    ],
)
def test_active(tmp_path, active, machine, wanted, problems):
    facts = gather(tmp_path, machine, **{CPU + "smt/active": active})
    assert facts["active"] is wanted
    assert ["smt/active reads 0" in one for one in facts["problems"]] == [True] * problems


def test_without_smt_files_the_control_is_absent(tmp_path):
    tree = sysfs_tree.without(sysfs_tree.files(MACHINE), "smt/control", "smt/active")
    facts = smt_facts_module.gather(files_of(tmp_path / "a", tree))
    assert (facts["control"], facts["active"], facts["supported"]) == ("absent", True, True)


class RootFs(host_files.HostFs):
    """A tree that stands for `/`, to test what only the running system allows."""

    is_host = True


@pytest.mark.parametrize(
    ("machine", "user", "control_reason", "online_reason"),
    [
        (MACHINE, 0, None, None),
        (dataclasses.replace(MACHINE, control="notimplemented"), 0, "notimplemented", None),
        (dataclasses.replace(MACHINE, control=""), 0, "has no", None),
        (dataclasses.replace(MACHINE, control="\x1b[31mevil"), 0, "'\\x1b[31mevil'", None),
        (Machine(threads=1), 0, "notsupported", "no core has a sibling"),
        (dataclasses.replace(SIBLINGS_OFF, control="forceoff"), 0, "reboot", "forceoff"),
        (SIBLINGS_OFF, 0, None, "reads off"),
        (MACHINE, 1000, "become", "become"),
        ("no hot-plug", 0, None, "no CPU hot-plug"),
    ],
)
def test_methods_at_run_time(tmp_path, monkeypatch, machine, user, control_reason, online_reason):
    monkeypatch.setattr(smt_facts_module.os, "geteuid", lambda: user)
    tree = sysfs_tree.files(MACHINE if machine == "no hot-plug" else machine)
    if machine == "no hot-plug":
        tree = {path: text for path, text in tree.items() if not (path.startswith(CPU + "cpu") and "/online" in path)}
    facts = smt_facts_module.gather(RootFs(sysfs_tree.write(tmp_path, tree)))["methods"]["runtime"]
    reasons = {"smt_control": control_reason, "cpu_online": online_reason}
    assert facts["possible"] == [name for name, reason in reasons.items() if reason is None]
    assert facts["chosen"] == next(iter(facts["possible"]), None)
    for name, said in facts["impossible"].items():
        assert reasons[name] in said and "\x1b" not in said


INFO = sysfs_tree.files(MACHINE)["proc/cpuinfo"]


@pytest.mark.parametrize(
    ("other", "further", "is_same"),
    [
        (MACHINE, {"proc/cpuinfo": INFO.replace("microcode\t: 0x1", "microcode\t: 0x2")}, True),
        (dataclasses.replace(MACHINE, model="Another CPU"), {}, False),
        (Machine(packages=1, cores=2), {}, False),
        (Machine(packages=2, cores=2, threads=1), {}, False),
        (dataclasses.replace(MACHINE, flags="fpu lm ht hypervisor"), {}, False),
    ],
)
def test_the_hardware_class_is_that_of_the_machine_and_not_of_what_may_change(tmp_path, other, further, is_same):
    assert further.get("proc/cpuinfo") != INFO
    classes = [gather(tmp_path / "a")["hardware_class"], gather(tmp_path / "b", other, **further)["hardware_class"]]
    assert (classes[0] == classes[1]) == is_same


@pytest.mark.parametrize(
    ("status", "smt"),
    [
        ("Mitigation: Clear CPU buffers; SMT disabled", "disabled"),
        ("Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown", "unknown"),
        ("Not affected", None),
        ("Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable", "vulnerable"),
        ("Mitigation: untrained return thunk; SMT enabled with STIBP protection", "mitigated"),
    ],
)
def test_the_smt_part_of_a_vulnerability(tmp_path, status, smt):
    assert vulnerabilities.read(host_files.HostFs(str(tmp_path))) == {}
    fs = files_of(tmp_path, {"sys/devices/system/cpu/vulnerabilities/mds": status + "\n"})
    assert vulnerabilities.read(fs) == {"mds": {"status": status, "smt": smt}}


X86_GUEST = {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}
ARM = {"proc/cpuinfo": "processor : 0\nCPU part : 0xd0c\n"}
POWER_GUEST = {"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : pSeries\n"}
DMI = "sys/class/dmi/id/"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        (X86_GUEST, "unknown"),
        ({**X86_GUEST, CLOCKS: "kvm-clock tsc acpi_pm\n"}, "kvm"),
        ({**X86_GUEST, DMI + "sys_vendor": "VMware, Inc.\n"}, "vmware"),
        ({**X86_GUEST, DMI + "sys_vendor": "QEMU\n", CLOCKS: "tsc\n"}, "qemu"),
        ({"proc/cpuinfo": "processor : 0\nflags : fpu\n", DMI + "product_name": "KVM\n"}, None),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/sysinfo": "LPAR Name: X\nVM00 Control Program: z/VM    6.3.0\n"}, "zvm"),
        (POWER_GUEST, "phyp"),
        # The platform is behind the last CPU.
        ({"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nprocessor : 1\ncpu : POWER8\nplatform : pSeries\n"}, "phyp"),
        ({"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : PowerNV\n"}, None),
        ({**POWER_GUEST, "proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({**ARM, DMI + "sys_vendor": "Amazon EC2\n"}, "amazon"),
        ({**ARM, "proc/device-tree/compatible": "linux,dummy-virt\0"}, "qemu"),
    ],
)
def test_the_hypervisor(tmp_path, tree, name):
    assert hypervisor.detect(files_of(tmp_path, tree)) == name


def run_module(monkeypatch, capsys, **arguments):
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    with pytest.raises(SystemExit) as end:
        smt_facts.main()
    return end.value.code, json.loads(capsys.readouterr().out)


def test_the_module_returns_the_facts_in_check_mode_too_and_writes_nothing(tmp_path, monkeypatch, capsys):
    root = sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE))
    before = sorted(os.walk(root))
    results = [run_module(monkeypatch, capsys, sysroot=root, _ansible_check_mode=check) for check in (False, True)]
    assert results[0] == results[1] and sorted(os.walk(root)) == before
    code, result = results[0]
    assert (code, result["changed"]) == (0, False)
    assert result["ansible_facts"]["smt"] == smt_facts_module.gather(host_files.HostFs(root))
    code, result = run_module(monkeypatch, capsys, sysroot=str(tmp_path / "nothing"))
    assert code == 1 and str(tmp_path / "nothing") in result["msg"]


CPU0 = "sys/devices/system/cpu/cpu0/"
NEOVERSE_N2 = {"CPU implementer": "0x41", "CPU part": "0xd49"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"model name": "A CPU", "cpu": "other"}, "A CPU"),
        ({"Processor": "ARMv7", "model name": ""}, "ARMv7"),
        (NEOVERSE_N2, "Arm Neoverse-N2"),
        ({"CPU implementer": "0x41", "CPU part": "0xfff"}, "Arm part 0xfff"),
        ({"CPU implementer": "0x99", "CPU part": "0x1"}, "implementer 0x99 part 0x1"),
        ({"CPU implementer": "0x41"}, None),
        ({}, None),
    ],
)
def test_the_name_is_in_another_field_on_each_architecture(fields, name):
    assert processors.model(fields) == name


@pytest.mark.parametrize(
    ("files", "fields", "mhz"),
    [
        ({CPU0 + "cpufreq/base_frequency": "2500000\n"}, {"model name": "X @ 3.00GHz"}, 2500),
        ({CPU0 + "cpufreq/cpuinfo_nominal_freq": "3800000\n"}, {"cpu": "POWER9", "clock": "2166.000000MHz"}, 3800),
        ({CPU0 + "acpi_cppc/nominal_freq": "2750\n", CPU0 + "cpufreq/scaling_governor": "x\n"}, NEOVERSE_N2, 2750),
        ({}, {"model name": "Intel(R) Xeon(R) CPU E5-2676 v3 @ 2.40GHz"}, 2400),
        ({}, {"cpu": "POWER10", "clock": "2750.000000MHz"}, 2750),
        ({CPU0 + "cpufreq/scaling_governor": "ondemand\n"}, {"cpu": "POWER9", "clock": "2166.000000MHz"}, None),
        ({}, NEOVERSE_N2, None),
    ],
)
def test_the_nominal_frequency_is_the_one_that_the_maker_names(tmp_path, files, fields, mhz):
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, files))
    assert processors.nominal_mhz(fs, fields) == mhz


TOOL = "/usr/sbin/ppc64_cpu"


def read_tool(monkeypatch, output="SMT=4\n", status=0, machine="ppc64le", tool=TOOL, root="/"):
    """Return (what is said, problems, whether the tool was run) of a host."""
    asked, fs = [], host_files.HostFs(root)

    def run(command):
        asked.append(command)
        return status, output, ""

    monkeypatch.setattr(ppc64_cpu.platform, "machine", lambda: machine)
    monkeypatch.setattr(ppc64_cpu.os, "access", lambda path, mode: path == tool)
    said = ppc64_cpu.read(fs, run)
    assert asked in ([], [[TOOL, "--smt"]])
    return said, fs.problems, bool(asked)


@pytest.mark.parametrize(("output", "said"), [("SMT=4\n", "SMT=4"), ("SMT=1: 1*\nSMT=4: 0*\n", "SMT=1: 1*; SMT=4: 0*")])
def test_what_it_prints_is_shown(monkeypatch, output, said):
    assert read_tool(monkeypatch, output) == (said, [], True)


@pytest.mark.parametrize(("output", "status"), [("", 0), ("SMT=4\n", 1), ("SMT=4\n" * 2000, 0), ("SMT=\x1b[31m\n", 0)])
def test_what_says_nothing_is_a_problem_and_no_fact(monkeypatch, output, status):
    said, (problem,), _asked = read_tool(monkeypatch, output, status)
    assert said is None and "ppc64_cpu --smt" in problem and "\x1b" not in problem and len(problem) < 400


@pytest.mark.parametrize("host", [{"root": "/nothing"}, {"machine": "x86_64"}, {"tool": None}])
def test_nothing_is_run_for_a_recorded_tree_another_architecture_or_without_the_tool(monkeypatch, host):
    assert read_tool(monkeypatch, **host) == (None, [], False)
