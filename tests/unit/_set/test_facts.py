# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import os

import pytest
import sysfs_tree
import yaml
from ansible.module_utils import basic
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import hypervisor, vulnerabilities
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts_module
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import snapshot as smt_snapshot
from ansible_collections.threadwise.smt.plugins.modules import smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts as border
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
    expected = {
        "supported": True,
        "control": "on",
        "active": True,
        "sockets": 2,
        "cores": 18,
        "numbering": "split",
        "cpus": {"present": "0-35", "possible": "0-35", "online": "0-35", "offline": "", "isolated": ""},
        "packages": ["0-8,18-26", "9-17,27-35"],
        "primaries": "0-17",
        "secondaries": "18-35",
        "threads_per_core": {"min": 2, "max": 2, "online_max": 2},
        "nodes": {"0": "0-8,18-26", "1": "9-17,27-35"},
        "measured": None,
        "problems": [],
    }
    assert shown(facts, expected) == expected and facts["sibling_groups"][:2] == ["0,18", "1,19"]
    name, _mark, digest = facts["hardware_class"].rpartition("-")
    assert name == "x86_64-2s18c36t-split" and len(digest) == 8
    # In a recorded tree nothing can be changed.
    methods = facts["methods"]
    assert methods["runtime"]["chosen"] is methods["boot"]["chosen"] is None
    assert "recorded tree" in methods["runtime"]["impossible"]["smt_control"]


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
    assert shown(facts, expected) == expected and border.accept(facts) is facts


def test_facts_with_declared_siblings_keep_the_class_of_the_kernel_s(tmp_path):
    """An evaluation that follows other siblings than the kernel's sends such facts."""
    fs = files_of(tmp_path, sysfs_tree.files(Machine(cores=4, threads=1)))
    kernels, declared = smt_facts_module.gather(fs), smt_facts_module.gather(fs, [[0, 1], [2, 3]])
    assert declared["hardware_class"] == kernels["hardware_class"]
    assert (declared["cores"], declared["numbering"]) == (2, "adjacent") and border.accept(declared) is declared
    with pytest.raises(BorderError, match="hardware_class"):
        border.accept({**declared, "source": "sysfs"})


@pytest.mark.parametrize("is_saved", [False, True])
def test_siblings_that_are_off_are_known_by_the_topology_cache(tmp_path, is_saved):
    fs = files_of(tmp_path, sysfs_tree.files(MACHINE))
    before = smt_facts_module.gather(fs)["hardware_class"]
    if is_saved:
        assert topology_cache.save(fs, topology.read_topology(fs))
    (tmp_path / "sys").rename(tmp_path / "before")
    facts = gather(tmp_path, SIBLINGS_OFF)
    expected = {
        "source": "saved" if is_saved else "sysfs",
        "complete": is_saved,
        "supported": True,
        "active": False,
        "secondaries": "4-7" if is_saved else "",
        "hardware_class": before if is_saved else None,
        "cores": 4,
        "threads_per_core": dict.fromkeys(("min", "max"), 2 if is_saved else 1) | {"online_max": 1},
    }
    assert before and shown(facts, expected) == expected


@pytest.mark.parametrize(
    ("control", "machine", "supported"),
    [
        ("on", MACHINE, True),
        ("off", SIBLINGS_OFF, True),
        ("forceoff", SIBLINGS_OFF, True),
        ("1", SIBLINGS_OFF, True),
        ("notsupported", Machine(threads=1), False),
        ("notimplemented", Machine(threads=1), False),
        ("notimplemented", Machine(threads=4), True),
        ("notimplemented", Machine(threads=1, offline=(1,)), None),
        ("", Machine(threads=1), False),
        ("", MACHINE, True),
        ("", Machine(threads=1, offline=(1,)), None),
        ("notsupported", Machine(threads=1, offline=(1,)), False),
    ],
)
def test_supported(tmp_path, control, machine, supported):
    assert gather(tmp_path, dataclasses.replace(machine, control=control))["supported"] is supported


@pytest.mark.parametrize(
    ("active", "machine", "wanted", "problems"),
    [
        ("1", MACHINE, True, 0),
        ("0", SIBLINGS_OFF, False, 0),
        ("", MACHINE, True, 0),
        ("", SIBLINGS_OFF, False, 0),
        ("x", Machine(threads=1), False, 0),
        # It contradicts the lists.
        ("0\n", MACHINE, False, 1),
    ],
)
def test_active(tmp_path, active, machine, wanted, problems):
    facts = gather(tmp_path, machine, **{CPU + "smt/active": active})
    assert facts["active"] is wanted
    assert ["smt/active reads 0" in one for one in facts["problems"]] == [True] * problems


def test_without_smt_files_the_control_is_absent_and_without_cores_nothing_is_known(tmp_path):
    tree = sysfs_tree.without(sysfs_tree.files(MACHINE), "smt/control", "smt/active")
    facts = smt_facts_module.gather(files_of(tmp_path / "a", tree))
    assert (facts["control"], facts["active"], facts["supported"]) == ("absent", True, True)
    none = smt_facts_module.gather(files_of(tmp_path / "b", {"proc/cpuinfo": "processor : 0\n"}))
    assert none["active"] is None


# ---- methods ---------------------------------------------------------------------------------------------------------


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
        (dataclasses.replace(MACHINE, offline=(7,)), 0, None, None),
        (dataclasses.replace(MACHINE, offline=(7,), control=""), 0, "has no", None),
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


# ---- hardware class --------------------------------------------------------------------------------------------------

INFO = sysfs_tree.files(MACHINE)["proc/cpuinfo"]


@pytest.mark.parametrize(
    ("other", "further", "is_same"),
    [
        (MACHINE, {"proc/cpuinfo": INFO.replace("microcode\t: 0x1", "microcode\t: 0x2")}, True),
        (MACHINE, {"proc/cpuinfo": INFO.replace("stepping\t: 7", "stepping\t: 7\ncpu MHz\t: 900")}, True),
        (dataclasses.replace(MACHINE, model="Another CPU"), {}, False),
        (dataclasses.replace(MACHINE, numbering="adjacent"), {}, False),
        (Machine(packages=1, cores=2), {}, False),
        (Machine(packages=2, cores=2, threads=1), {}, False),
        (dataclasses.replace(MACHINE, flags="fpu lm ht hypervisor"), {}, False),
    ],
)
def test_the_hardware_class_is_that_of_the_machine_and_not_of_what_may_change(tmp_path, other, further, is_same):
    assert further.get("proc/cpuinfo") != INFO
    classes = [gather(tmp_path / "a")["hardware_class"], gather(tmp_path / "b", other, **further)["hardware_class"]]
    assert (classes[0] == classes[1]) == is_same


# ---- vulnerabilities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "smt"),
    [
        ("Mitigation: Clear CPU buffers; SMT vulnerable", "vulnerable"),
        ("Mitigation: Clear CPU buffers; SMT disabled", "disabled"),
        ("Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown", "unknown"),
        ("Not affected", None),
        ("Vulnerable", None),
        ("Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable", "vulnerable"),
        ("", None),
        ("Mitigation: untrained return thunk; SMT enabled with STIBP protection", "mitigated"),
        ("Mitigation: Clear CPU buffers; SMT mitigated", "mitigated"),
    ],
)
def test_the_smt_part_of_a_vulnerability(tmp_path, status, smt):
    assert vulnerabilities.read(host_files.HostFs(str(tmp_path))) == {}
    fs = files_of(tmp_path, {"sys/devices/system/cpu/vulnerabilities/mds": status + "\n"})
    assert vulnerabilities.read(fs) == {"mds": {"status": status, "smt": smt}}


# ---- hypervisor ------------------------------------------------------------------------------------------------------

X86_GUEST = {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}
ARM = {"proc/cpuinfo": "processor : 0\nCPU part : 0xd0c\n"}
POWER_GUEST = {"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : pSeries\n"}
DMI = "sys/class/dmi/id/"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({}, None),
        ({"proc/cpuinfo": "processor : 0\nflags : fpu\n", DMI + "product_name": "KVM\n"}, None),
        (X86_GUEST, "unknown"),
        ({**X86_GUEST, CLOCKS: "kvm-clock tsc acpi_pm\n"}, "kvm"),
        ({**X86_GUEST, DMI + "sys_vendor": "VMware, Inc.\n"}, "vmware"),
        ({**X86_GUEST, DMI + "sys_vendor": "QEMU\n", CLOCKS: "tsc\n"}, "qemu"),
        ({**X86_GUEST, DMI + "sys_vendor": "Amazon EC2\n"}, "amazon"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/sysinfo": "Manufacturer: IBM\nLPAR Name: X\n"}, "pr/sm"),
        ({"proc/sysinfo": "LPAR Name: X\nVM00 Control Program: z/VM    6.3.0\n"}, "zvm"),
        ({"proc/sysinfo": "VM00 Control Program: KVM/Linux\n"}, "kvm"),
        ({"proc/sysinfo": "VM00 Control Program: other\n"}, "unknown"),
        ({"proc/sysinfo": "Manufacturer: IBM\n"}, None),
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


# ---- the module ------------------------------------------------------------------------------------------------------


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
