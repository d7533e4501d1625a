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
from ansible_collections.threadwise.smt.plugins.module_utils._facts import (
    facts as smt_facts_module,
    hypervisor,
    vulnerabilities,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import snapshot as smt_snapshot
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.modules import smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from fake_host import Host
from sysfs_tree import CPU, Machine

DOCUMENTED = yaml.safe_load(smt_facts.RETURN)["ansible_facts"]["contains"]["smt"]["contains"]
MACHINE = Machine(packages=2, cores=9)
SIBLINGS_OFF = dataclasses.replace(MACHINE, offline=tuple(range(18, 36)), control="off")


def gather(root, tree):
    return smt_facts_module.gather(host_files.HostFs(sysfs_tree.write(root, tree)))


def gather_machine(root, machine, **further):
    return gather(root, dict(sysfs_tree.files(machine), **further))


def test_the_facts_are_those_that_are_documented(tmp_path):
    facts = gather_machine(tmp_path, MACHINE)
    assert set(facts) == set(DOCUMENTED)
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["supported"], facts["control"], facts["active"], facts["sockets"], facts["cores"]) == (
        True,
        "on",
        True,
        2,
        18,
    )
    assert facts["cpus"] == {"present": "0-35", "possible": "0-35", "online": "0-35", "offline": "", "isolated": ""}
    assert facts["packages"] == ["0-8,18-26", "9-17,27-35"]
    assert facts["sibling_groups"][:2] == ["0,18", "1,19"]
    assert (facts["primaries"], facts["secondaries"], facts["numbering"]) == ("0-17", "18-35", "split")
    assert facts["threads_per_core"] == {"min": 2, "max": 2, "online_max": 2}
    assert facts["nodes"] == {"0": "0-8,18-26", "1": "9-17,27-35"}
    assert facts["measured"] is None and facts["problems"] == []


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
    assert facts["online_before"] is None and "Which CPUs were off on purpose is not known: " in facts["problems"][0]


def test_cores_that_a_change_has_seen_are_known(tmp_path):
    """CPU 1 is off from the start, so that no topology cache is saved;
    without the snapshot the siblings that a change took offline have no core.
    """
    host = Host(tmp_path, offline=[1])
    fs = host_files.HostFs(host.sysroot)
    host.ask("disabled")
    facts = smt_facts_module.gather(fs)
    assert (facts["sibling_groups"], facts["packages"], facts["source"], facts["complete"]) == (
        ["0", "2-3", "4-5", "6-7"],
        ["0,2-7"],
        "saved",
        False,
    )
    host.ask(threads=2)
    host.ask("disabled")
    facts = smt_facts_module.gather(fs)
    assert (facts["sibling_groups"], facts["packages"], facts["complete"]) == (
        ["0-1", "2-3", "4-5", "6-7"],
        ["0-7"],
        True,
    )
    assert border.accept(facts) is facts


def test_facts_with_declared_siblings_keep_the_class_of_the_kernel_s(tmp_path):
    """An evaluation that follows other siblings than the kernel's sends such facts."""
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(Machine(cores=4, threads=1))))
    kernels, declared = smt_facts_module.gather(fs), smt_facts_module.gather(fs, [[0, 1], [2, 3]])
    assert declared["hardware_class"] == kernels["hardware_class"] and (declared["cores"], declared["numbering"]) == (
        2,
        "adjacent",
    )
    assert border.accept(declared) is declared
    with pytest.raises(BorderError, match="hardware_class"):
        border.accept({**declared, "source": "sysfs"})


def test_siblings_off_without_a_topology_cache_is_unknown_not_no_smt(tmp_path):
    facts = gather_machine(tmp_path, SIBLINGS_OFF)
    assert (facts["supported"], facts["active"], facts["complete"], facts["secondaries"]) == (True, False, False, "")
    assert (facts["cores"], facts["threads_per_core"]["max"]) == (18, 1)
    assert facts["hardware_class"] is None
    assert (
        "is not known" in facts["methods"]["runtime"]["impossible"]["cpu_online"]
        or "reads off" in facts["methods"]["runtime"]["impossible"]["cpu_online"]
    )


def test_siblings_off_with_a_topology_cache_names_them(tmp_path):
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE)))
    before = smt_facts_module.gather(fs)
    assert topology_cache.save(fs, topology.read_topology(fs))
    (tmp_path / "sys").rename(tmp_path / "before")
    facts = gather_machine(tmp_path, SIBLINGS_OFF)
    assert (facts["source"], facts["complete"], facts["secondaries"], facts["sibling_groups"][0]) == (
        "saved",
        True,
        "18-35",
        "0,18",
    )
    assert facts["threads_per_core"] == {"min": 2, "max": 2, "online_max": 1}
    assert before["hardware_class"] is not None
    assert facts["hardware_class"] == before["hardware_class"]
    assert facts["active"] is False


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
    assert gather_machine(tmp_path, dataclasses.replace(machine, control=control))["supported"] is supported


@pytest.mark.parametrize(
    ("active", "machine", "wanted"),
    [
        ("1", MACHINE, True),
        ("0", SIBLINGS_OFF, False),
        ("", MACHINE, True),
        ("", SIBLINGS_OFF, False),
        ("x", Machine(threads=1), False),
    ],
)
def test_active(tmp_path, active, machine, wanted):
    assert gather_machine(tmp_path, machine, **{CPU + "smt/active": active})["active"] is wanted


def test_active_is_unknown_if_no_core_is_known(tmp_path):
    assert gather(tmp_path, {"proc/cpuinfo": "processor : 0\n"})["active"] is None


def test_an_active_that_contradicts_the_lists_is_a_problem(tmp_path):
    facts = gather_machine(tmp_path, MACHINE, **{CPU + "smt/active": "0\n"})
    assert "smt/active reads 0" in facts["problems"][0]


def test_a_tree_without_smt_files_has_an_absent_control(tmp_path):
    facts = gather(tmp_path, sysfs_tree.without(sysfs_tree.files(MACHINE), "smt/control", "smt/active"))
    assert (facts["control"], facts["active"], facts["supported"]) == ("absent", True, True)


# ---- methods ---------------------------------------------------------------------------------------------------------


class RootFs(host_files.HostFs):
    """A tree that stands for `/`, to test what only the running system allows."""

    is_host = True


def methods(root, monkeypatch, machine, user=0):
    monkeypatch.setattr(smt_facts_module.os, "geteuid", lambda: user)
    return smt_facts_module.gather(RootFs(sysfs_tree.write(root, sysfs_tree.files(machine))))["methods"]["runtime"]


def test_on_a_host_with_smt_both_methods_are_possible(tmp_path, monkeypatch):
    assert methods(tmp_path, monkeypatch, MACHINE) == {
        "chosen": "smt_control",
        "possible": ["smt_control", "cpu_online"],
        "impossible": {},
    }


@pytest.mark.parametrize(
    ("machine", "user", "chosen", "control_reason", "online_reason"),
    [
        (dataclasses.replace(MACHINE, control="notimplemented"), 0, "cpu_online", "notimplemented", None),
        (dataclasses.replace(MACHINE, control=""), 0, "cpu_online", "has no", None),
        (dataclasses.replace(MACHINE, control="\x1b[31mevil"), 0, "cpu_online", "'\\x1b[31mevil'", None),
        (Machine(threads=1), 0, None, "notsupported", "no core has a sibling"),
        (dataclasses.replace(SIBLINGS_OFF, control="forceoff"), 0, None, "reboot", "forceoff"),
        (SIBLINGS_OFF, 0, "smt_control", None, "reads off"),
        (dataclasses.replace(MACHINE, offline=(35,)), 0, "smt_control", None, None),
        (dataclasses.replace(MACHINE, offline=(35,), control=""), 0, "cpu_online", "has no", None),
        (MACHINE, 1000, None, "become", "become"),
    ],
)
def test_methods_at_run_time(tmp_path, monkeypatch, machine, user, chosen, control_reason, online_reason):
    facts = methods(tmp_path, monkeypatch, machine, user)
    assert facts["chosen"] == chosen
    for name, reason in (("smt_control", control_reason), ("cpu_online", online_reason)):
        assert (name in facts["possible"]) == (reason is None)
        assert reason is None or reason in facts["impossible"][name]


def test_a_kernel_without_hotplug_offers_no_cpu_online(tmp_path, monkeypatch):
    monkeypatch.setattr(smt_facts_module.os, "geteuid", lambda: 0)
    tree = {
        path: text
        for path, text in sysfs_tree.files(MACHINE).items()
        if not (path.startswith(CPU + "cpu") and path.endswith("/online"))
    }
    facts = smt_facts_module.gather(RootFs(sysfs_tree.write(tmp_path, tree)))["methods"]["runtime"]
    assert "no CPU hot-plug" in facts["impossible"]["cpu_online"]


def test_in_a_recorded_tree_nothing_can_be_changed(tmp_path):
    facts = gather_machine(tmp_path, MACHINE)["methods"]
    assert facts["runtime"]["chosen"] is facts["boot"]["chosen"] is None
    assert "recorded tree" in facts["runtime"]["impossible"]["smt_control"]


# ---- hardware class --------------------------------------------------------------------------------------------------


def test_the_format_of_the_hardware_class(tmp_path):
    name = gather_machine(tmp_path, MACHINE)["hardware_class"]
    assert name.startswith("x86_64-2s18c36t-split-") and len(name.rpartition("-")[2]) == 8


@pytest.mark.parametrize(
    "change",
    [
        {"microcode": ("microcode\t: 0x1", "microcode\t: 0x2")},
        {"clock": ("stepping\t: 7", "stepping\t: 7\ncpu MHz\t: 900")},
    ],
)
def test_the_hardware_class_does_not_depend_on_what_may_change(tmp_path, change):
    tree = sysfs_tree.files(MACHINE)
    other = dict(tree, **{"proc/cpuinfo": tree["proc/cpuinfo"].replace(*next(iter(change.values())))})
    assert other != tree
    assert gather(tmp_path / "a", tree)["hardware_class"] == gather(tmp_path / "b", other)["hardware_class"]


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(MACHINE, model="Another CPU"),
        dataclasses.replace(MACHINE, numbering="adjacent"),
        Machine(packages=1, cores=18),
        Machine(packages=2, cores=18, threads=1),
        dataclasses.replace(MACHINE, flags="fpu lm ht hypervisor"),
    ],
)
def test_the_hardware_class_of_another_machine_differs(tmp_path, other):
    assert (
        gather_machine(tmp_path / "a", MACHINE)["hardware_class"]
        != gather_machine(tmp_path / "b", other)["hardware_class"]
    )


# ---- vulnerabilities -------------------------------------------------------------------------------------------------

VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities/"


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
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, {VULNERABILITIES + "mds": status + "\n"}))
    assert vulnerabilities.read(fs) == {"mds": {"status": status, "smt": smt}}


def test_a_kernel_without_vulnerability_files_has_none(tmp_path):
    assert vulnerabilities.read(host_files.HostFs(str(tmp_path))) == {}


# ---- hypervisor ------------------------------------------------------------------------------------------------------

X86_GUEST = {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n"}
DMI = "sys/class/dmi/id/"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({}, None),
        ({"proc/cpuinfo": "processor : 0\nflags : fpu\n", DMI + "product_name": "KVM\n"}, None),
        (X86_GUEST, "unknown"),
        (dict(X86_GUEST, **{CLOCKS: "kvm-clock tsc acpi_pm\n"}), "kvm"),
        (dict(X86_GUEST, **{DMI + "sys_vendor": "VMware, Inc.\n"}), "vmware"),
        (dict(X86_GUEST, **{DMI + "sys_vendor": "QEMU\n", CLOCKS: "tsc\n"}), "qemu"),
        (
            dict(
                X86_GUEST, **{DMI + "sys_vendor": "Microsoft Corporation\n", DMI + "product_name": "Virtual Machine\n"}
            ),
            "hyperv",
        ),
        (dict(X86_GUEST, **{DMI + "sys_vendor": "Amazon EC2\n"}), "amazon"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/sysinfo": "Manufacturer: IBM\nLPAR Name: X\n"}, "pr/sm"),
        ({"proc/sysinfo": "LPAR Name: X\nVM00 Control Program: z/VM    6.3.0\n"}, "zvm"),
        ({"proc/sysinfo": "VM00 Control Program: KVM/Linux\n"}, "kvm"),
        ({"proc/sysinfo": "VM00 Control Program: other\n"}, "unknown"),
        ({"proc/sysinfo": "Manufacturer: IBM\n"}, None),
        ({"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : pSeries\n"}, "phyp"),
        ({"proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : PowerNV\n"}, None),
        (
            {
                "proc/cpuinfo": "processor : 0\ncpu : POWER8\n\nplatform : pSeries\n",
                "proc/device-tree/hypervisor/compatible": "linux,kvm\0",
            },
            "kvm",
        ),
        ({"proc/cpuinfo": "processor : 0\nCPU part : 0xd0c\n", DMI + "sys_vendor": "Amazon EC2\n"}, "amazon"),
        (
            {"proc/cpuinfo": "processor : 0\nCPU part : 0xd0c\n", "proc/device-tree/compatible": "linux,dummy-virt\0"},
            "qemu",
        ),
    ],
)
def test_the_hypervisor(tmp_path, tree, name):
    assert hypervisor.detect(host_files.HostFs(sysfs_tree.write(tmp_path, tree))) == name


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
    assert results[0] == results[1]
    code, result = results[0]
    assert (code, result["changed"]) == (0, False)
    assert result["ansible_facts"]["smt"] == smt_facts_module.gather(host_files.HostFs(root))
    assert sorted(os.walk(root)) == before


def test_the_module_reports_a_missing_sysroot(tmp_path, monkeypatch, capsys):
    code, result = run_module(monkeypatch, capsys, sysroot=str(tmp_path / "nothing"))
    assert code == 1 and "is not a directory" in result["msg"]
