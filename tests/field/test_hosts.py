# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read CPUs, siblings, hypervisors and vulnerabilities, each rebuilt as the tree that
such a host shows. A test is named after its source.
"""

from __future__ import annotations

import dataclasses

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._facts import (
    facts as smt_facts,
    hypervisor,
    vulnerabilities,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology import placement
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.policy import DesiredState
from fake_host import Host
from fake_kernel import numbered_cores
from sysfs_tree import CPU, Machine


def gather(root, machine, **further):
    tree = {**sysfs_tree.files(machine), **further}
    return smt_facts.gather(
        HostFs(sysfs_tree.write(root, {path: text for path, text in tree.items() if text is not None}))
    )


def judged(facts, state="enabled"):
    return compliance.judge(facts, DesiredState(state), "runtime")


# ---- present is not available --------------------------------------------------------------------------------------

FOUR_OF_EIGHT = Machine(cores=4, threads=2, numbering="adjacent", offline=(4, 5, 6, 7))


def s390_standby(root):
    return gather(root, FOUR_OF_EIGHT, **{f"{CPU}cpu{cpu}/configure": f"{int(cpu < 4)}\n" for cpu in range(8)})


def arm64_not_enabled(root):
    return gather(root, FOUR_OF_EIGHT, **{CPU + "enabled": "0-3\n"})


@pytest.mark.parametrize("made", [s390_standby, arm64_not_enabled])
def test_rhbz_2006257_cpus_that_nobody_here_can_bring_online_are_not_missing(tmp_path, made):
    facts = made(tmp_path)
    assert (facts["cpus"]["present"], facts["cpus"]["offline"], facts["complete"]) == ("0-7", "", True)
    assert facts["hardware_class"] and facts["cores"] == 2
    assert judged(facts)["status"] == "compliant"
    assert smt_state.read(str(tmp_path))["present"] == [0, 1, 2, 3]


def test_rhbz_2006257_cpus_that_are_configured_and_off_are_missing(tmp_path):
    siblings_off = Machine(cores=4, offline=(4, 5, 6, 7), control="on")
    states = {f"{CPU}cpu{cpu}/configure": f"{int(cpu not in (6, 7))}\n" for cpu in range(8)}
    facts = gather(tmp_path, siblings_off, **states)
    assert (facts["cpus"]["offline"], facts["complete"]) == ("4-5", False)
    assert judged(facts)["status"] == "drifted"


@pytest.mark.parametrize("text", ["", "\n", "garbage\n", "0-7\n"])
def test_a_mask_that_says_nothing_takes_no_cpu_away(tmp_path, text):
    assert gather(tmp_path, FOUR_OF_EIGHT, **{CPU + "enabled": text})["cpus"]["offline"] == "4-7"


# ---- what a change would do ----------------------------------------------------------------------------------------


def test_kubernetes_71622_one_cpu_that_is_off_does_not_hide_the_siblings_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(smt_facts.os, "geteuid", lambda: 0)
    machine = Machine(cores=4, offline=(7,), control="")
    tree = sysfs_tree.without(sysfs_tree.files(machine), "smt/control", "smt/active")
    fs = HostFs(sysfs_tree.write(tmp_path, tree))
    fs.__class__ = type("RootFs", (HostFs,), {"is_host": True})
    methods = smt_facts.gather(fs)["methods"]["runtime"]
    assert methods["chosen"] == "cpu_online"


def test_kubernetes_71622_isolated_cpus_are_among_the_reasons():
    cores = [(cpu, cpu + 4) for cpu in range(4)]
    placements = placement.Placements(cores, [tuple(range(8))], usable=(0, 1, 2, 3))
    assert placements.workers("siblings")[1].endswith("allowed to this process and not isolated")
    single = placement.Placements([(0,), (1,)], [(0, 1)], usable=(0, 1))
    assert single.workers("siblings")[1] == "no core has two threads online"


# ---- off in firmware -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["on", "notsupported"])
def test_hardinfo_711_off_in_firmware_is_one_thing(tmp_path, control):
    facts = gather(tmp_path, Machine(packages=2, cores=8, threads=1, control=control))
    assert (facts["supported"], facts["active"], facts["methods"]["runtime"]["chosen"]) == (False, False, None)
    for state in ("enabled", "disabled"):
        verdict = judged(facts, state)
        assert verdict["status"] == "compliant" and "no SMT here" in verdict["sentence"]


@pytest.mark.parametrize(
    "machine",
    [
        Machine(cores=4, control="on"),
        Machine(cores=4, offline=(4, 5, 6, 7), control="off"),
        Machine(cores=4, offline=(5,), control="on"),
    ],
)
def test_smt_that_is_there_is_supported(tmp_path, machine):
    assert gather(tmp_path, machine)["supported"] is True


# ---- containers ----------------------------------------------------------------------------------------------------


def lxcfs(root, shown="0\n"):
    machine = Machine(cores=4)
    return gather(root, machine, **{CPU + "online": shown, f"{CPU}cpu0/online": None})


@pytest.mark.parametrize("shown", ["0\n", "2-3\n", "0-3\n"])
def test_lxcfs_731_a_list_that_contradicts_the_cpus_is_named_and_nothing_is_drift(tmp_path, shown):
    facts = lxcfs(tmp_path, shown)
    assert (facts["supported"], facts["active"], facts["methods"]["runtime"]["chosen"]) == (None, None, None)
    assert any("as in a container (lxcfs)" in problem for problem in facts["problems"])
    for state in ("enabled", "disabled"):
        assert judged(facts, state)["status"] == "unknown"


def test_lxcfs_627_each_cpu_says_online_and_the_list_has_two(tmp_path):
    facts = gather(tmp_path, Machine(cores=4), **{CPU + "online": "2,5\n"})
    assert facts["supported"] is None and any("CPUs 0-1,3-4,6-7 says otherwise" in text for text in facts["problems"])
    assert judged(facts)["status"] == "unknown"


@pytest.mark.parametrize("covered", ["/proc/cpuinfo", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu"])
def test_lxcfs_401_a_container_that_sees_all_cpus_in_sysfs(tmp_path, covered):
    mounts = f"proc /proc proc rw 0 0\nlxcfs {covered} fuse.lxcfs rw,nosuid,nodev 0 0\n"
    facts = gather(tmp_path, Machine(cores=4), **{"proc/self/mounts": mounts})
    assert (facts["supported"], facts["methods"]["runtime"]["chosen"]) == (None, None)
    assert [text for text in facts["problems"] if text.startswith(f"lxcfs shows {covered}, as in a container")]
    assert judged(facts)["status"] == "unknown"


def test_a_machine_that_runs_lxcfs_for_its_containers_is_none(tmp_path):
    mounts = "lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\n"
    assert gather(tmp_path, Machine(cores=4), **{"proc/self/mounts": mounts})["problems"] == []


@pytest.mark.parametrize("state", ["enabled", "disabled"])
@pytest.mark.parametrize("check", [True, False])
def test_lxcfs_731_nothing_is_switched(tmp_path, state, check):
    host = Host(tmp_path, numbered_cores(4, 2, "adjacent"))
    read = host.read
    shown = {"sys/devices/system/cpu/online": "0,2"}
    host.read = lambda path: shown.get(path) or read(path)
    with pytest.raises(HostError, match=r"lists CPUs 0,2, .*Nothing was changed"):
        host.ask(state, check=check)


# ---- hypervisors ---------------------------------------------------------------------------------------------------

DMI = "sys/class/dmi/id/"
RAW = "sys/firmware/dmi/entries/0-0/raw"
MACHINES = {
    "QEMU's virt board": ({"sys_vendor": "QEMU", "product_name": "KVM Virtual Machine"}, None, "kvm"),
    "systemd 18929": ({"sys_vendor": "Amazon EC2", "product_name": "m6g.metal"}, None, None),
    "systemd 18929, by its bit": ({"sys_vendor": "Amazon EC2", "product_name": "c7g.16xlarge"}, False, None),
    "an instance of EC2": ({"sys_vendor": "Amazon EC2", "product_name": "c7g.16xlarge"}, True, "amazon"),
    "an instance whose bit only root reads": (
        {"sys_vendor": "Amazon EC2", "product_name": "t4g.small"},
        None,
        "amazon",
    ),
    "systemd 24143": ({"sys_vendor": "KubeVirt", "product_name": "None"}, None, "kvm"),
    "Alibaba": ({"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"}, None, "kvm"),
    "Hyper-V": ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None, "hyperv"),
    "a Surface": ({"sys_vendor": "Microsoft Corporation", "product_name": "Surface Pro X"}, None, None),
    "another vendor's words": ({"sys_vendor": "Acme", "product_name": "Virtual Machine Host 9000"}, None, None),
    "a vendor that nobody knows": ({"sys_vendor": "Acme", "product_name": "Box"}, True, "unknown"),
    "a server": ({"sys_vendor": "Ampere(R)", "product_name": "Mt. Jade"}, False, None),
    "no SMBIOS": ({}, None, None),
}


@pytest.mark.parametrize(("dmi", "bit", "name"), MACHINES.values(), ids=MACHINES)
def test_the_hypervisor_of_an_arm_machine(tmp_path, dmi, bit, name):
    tree = {
        "proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\n",
        **{DMI + key: f"{text}\n" for key, text in dmi.items()},
    }
    root = sysfs_tree.write(tmp_path, tree)
    if bit is not None:
        (tmp_path / RAW).parent.mkdir(parents=True)
        raw = bytearray(24)
        raw[0x13] = 0x1C if bit else 0x0C
        (tmp_path / RAW).write_bytes(raw)
    assert hypervisor.detect(HostFs(root)) == name


PARALLELS = {"sys_vendor": "Parallels Software International Inc.", "product_name": "Parallels Virtual Platform"}
HYPER_V = "hyperv_clocksource_tsc_page tsc acpi_pm"
X86 = {
    "systemd 23856": (PARALLELS, "kvm-clock tsc acpi_pm", "parallels"),
    "systemd 1117, an older one": (PARALLELS, "tsc acpi_pm", "parallels"),
    "VirtualBox with KVM's interface": (
        {"sys_vendor": "innotek GmbH", "product_name": "VirtualBox"},
        "kvm-clock tsc acpi_pm",
        "virtualbox",
    ),
    "uyuni 2112": ({"sys_vendor": "Nutanix", "product_name": "AHV", "bios_vendor": "SeaBIOS"}, HYPER_V, "kvm"),
    "QEMU with interfaces of Hyper-V": ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, HYPER_V, "kvm"),
    "systemd 21816": (
        {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"},
        HYPER_V,
        "hyperv",
    ),
    "KVM of an old machine": ({"sys_vendor": "Bochs", "product_name": "Bochs"}, "kvm-clock tsc acpi_pm", "kvm"),
    "QEMU without KVM": ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, "tsc hpet acpi_pm", "qemu"),
    "EC2's Nitro": ({"sys_vendor": "Amazon EC2", "product_name": "m5.large"}, "kvm-clock tsc acpi_pm", "kvm"),
}


@pytest.mark.parametrize(("dmi", "clocks", "name"), X86.values(), ids=X86)
def test_the_hypervisor_of_an_x86_machine_with_interfaces_of_another(tmp_path, dmi, clocks, name):
    tree = {
        "proc/cpuinfo": "processor : 0\nflags : fpu lm hypervisor\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": f"{clocks}\n",
        **{DMI + key: f"{text}\n" for key, text in dmi.items()},
    }
    assert hypervisor.detect(HostFs(sysfs_tree.write(tmp_path, tree))) == name


# ---- vulnerabilities -----------------------------------------------------------------------------------------------

FILES = "sys/devices/system/cpu/vulnerabilities/"
VMSCAPE = "Mitigation: IBPB before exit to userspace"
RETPOLINES = "Mitigation: Retpolines; IBPB: conditional; IBRS_FW; STIBP: {}; RSB filling; PBRSB-eIBRS: Not affected"
AUTOMATIC = (
    "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; STIBP: {}; RSB filling; PBRSB-eIBRS: Not affected"
)
# Those of Intel, whose IBRS leaves no need for STIBP, so that its part is missing.
ENHANCED = [
    "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling; PBRSB-eIBRS: SW sequence; BHI: BHI_DIS_S",
    "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: Not affected; BHI: SW loop, KVM: SW loop",
    "Mitigation: Enhanced IBRS, IBPB: conditional, RSB filling",
    "Mitigation: Enhanced / Automatic IBRS + Retpolines; IBPB: conditional; RSB filling; PBRSB-eIBRS: Not affected",
]


def of(root, name, status, is_guest=False, active=True, **others):
    tree = {FILES + key: text + "\n" for key, text in {name: status, **others}.items()}
    return vulnerabilities.read(HostFs(sysfs_tree.write(root, tree)), is_guest, active)[name]["smt"]


@pytest.mark.parametrize(
    ("is_guest", "status", "smt"),
    [
        (True, "Mitigation: PTE Inversion; VMX: flush not necessary, SMT disabled", "unknown"),
        (True, "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable", "unknown"),
        (True, "Mitigation: PTE Inversion", None),
        (False, "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT disabled", "disabled"),
    ],
)
def test_l1tf_of_a_guest_is_what_the_guest_sees(tmp_path, is_guest, status, smt):
    assert of(tmp_path, "l1tf", status, is_guest) == smt


@pytest.mark.parametrize(
    ("active", "stibp", "smt"),
    [
        (True, "conditional", "vulnerable"),
        (True, "disabled", "vulnerable"),
        (True, "always-on", "mitigated"),
        (True, "forced", "mitigated"),
        (False, "disabled", "disabled"),
        (None, "conditional", None),
    ],
)
@pytest.mark.parametrize("text", [RETPOLINES, AUTOMATIC])
def test_vmscape_by_the_kernels_own_condition(tmp_path, text, active, stibp, smt):
    assert of(tmp_path, "vmscape", VMSCAPE, active=active, spectre_v2=text.format(stibp)) == smt


@pytest.mark.parametrize(("active", "smt"), [(True, "mitigated"), (False, "disabled"), (None, None)])
@pytest.mark.parametrize("spectre_v2", ENHANCED)
def test_enhanced_ibrs_of_intel_implies_stibp(tmp_path, spectre_v2, active, smt):
    assert of(tmp_path / "vmscape", "vmscape", VMSCAPE, active=active, spectre_v2=spectre_v2) == smt
    assert of(tmp_path / "itself", "spectre_v2", spectre_v2, active=active) == smt


def test_with_unprivileged_ebpf_stibp_cannot_be_seen(tmp_path):
    status = "Vulnerable: eIBRS with unprivileged eBPF"
    assert of(tmp_path / "vmscape", "vmscape", VMSCAPE, spectre_v2=status) == "unknown"
    assert of(tmp_path / "itself", "spectre_v2", status) == "unknown"


@pytest.mark.parametrize("status", ["Not affected", "Vulnerable"])
def test_vmscape_without_a_mitigation(tmp_path, status):
    assert of(tmp_path, "vmscape", status) is None


@pytest.mark.parametrize(
    ("stibp", "active", "smt"),
    [
        ("always-on", True, "mitigated"),
        ("disabled", True, "vulnerable"),
        ("conditional", True, None),
        ("disabled", False, "disabled"),
    ],
)
def test_spectre_v2_has_a_part_that_is_stibp(tmp_path, stibp, active, smt):
    assert of(tmp_path, "spectre_v2", AUTOMATIC.format(stibp), active=active) == smt


@pytest.mark.parametrize(
    ("name", "status", "smt"),
    [
        ("retbleed", "Mitigation: untrained return thunk; SMT enabled with STIBP protection", "mitigated"),
        ("retbleed", "Mitigation: untrained return thunk; SMT vulnerable", "vulnerable"),
        ("retbleed", "Mitigation: untrained return thunk; SMT disabled", "disabled"),
        ("spec_rstack_overflow", "Mitigation: SMT disabled", "disabled"),
        ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode", None),
        ("tsx_async_abort", "Mitigation: Clear CPU buffers; SMT Host state unknown", "unknown"),
        ("mmio_stale_data", "Mitigation: Clear CPU buffers; SMT vulnerable", "vulnerable"),
        ("gather_data_sampling", "Mitigation: Microcode", None),
    ],
)
def test_texts_of_the_kernel(tmp_path, name, status, smt):
    assert of(tmp_path, name, status) == smt


@pytest.mark.parametrize(
    ("name", "status", "active", "smt"),
    [
        ("retbleed", "Mitigation: untrained return thunk; SMT disabled", False, "unknown"),
        ("spec_rstack_overflow", "Mitigation: SMT disabled", False, "unknown"),
        ("mmio_stale_data", "Mitigation: Clear CPU buffers; SMT disabled", False, "unknown"),
        # Where siblings share nothing but the store buffer, under a hypervisor that does not show itself.
        ("mds", "Mitigation: Clear CPU buffers; SMT mitigated", True, "unknown"),
        ("spectre_v2", RETPOLINES.format("disabled"), False, "unknown"),
        ("spectre_v2", ENHANCED[2], False, "unknown"),
        ("vmscape", VMSCAPE, False, "unknown"),
        ("some_day", "Mitigation: Something; SMT disabled", False, "unknown"),
        # What it sees open is open, and a thread of its own has STIBP whoever is on the other one.
        ("retbleed", "Mitigation: untrained return thunk; SMT vulnerable", True, "vulnerable"),
        ("retbleed", "Mitigation: untrained return thunk; SMT enabled with STIBP protection", True, "mitigated"),
        ("spectre_v2", RETPOLINES.format("always-on"), True, "mitigated"),
        ("retbleed", "Not affected", False, None),
        ("spec_rstack_overflow", "Mitigation: Safe RET", False, None),
    ],
)
def test_lscpu_ovh_no_vulnerability_of_a_guest_is_closed_by_smt(tmp_path, name, status, active, smt):
    assert of(tmp_path, name, status, True, active) == smt


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [("innotek GmbH", "VirtualBox", "virtualbox"), ("QEMU", "pc", "qemu"), ("Google", "Google Compute Engine", None)],
)
def test_libcpuid_169_a_guest_whose_processor_hides_the_hypervisor(tmp_path, vendor, product, name):
    """Machines of clouds have the same names, and are none where the processor says so."""
    tree = {
        "proc/cpuinfo": "processor : 0\nflags : fpu lm\n",
        DMI + "sys_vendor": f"{vendor}\n",
        DMI + "product_name": f"{product}\n",
    }
    assert hypervisor.detect(HostFs(sysfs_tree.write(tmp_path, tree))) == name


def test_the_machine_of_a_tree_keeps_its_facts(tmp_path):
    """What these rules are about changes nothing else."""
    facts = gather(tmp_path, dataclasses.replace(Machine(packages=2, cores=4), slots=8))
    assert facts["problems"] == [] and facts["complete"] and facts["cpus"]["present"] == "0-15"


# ---- SMT that somebody else decides about --------------------------------------------------------------------------

TYPES = {
    "t2.large": "is a core, by its type",
    "a1.xlarge": "is a core, by its type",
    "c7a.2xlarge": "is a core, by its type",
    "m8a.large": "is a core, by its type",
    "r7gd.16xlarge": "is a core, by its type",
    "im4gn.large": "is a core, by its type",
    "hpc7a.96xlarge": "is a core, by its type",
    "m6g.metal": "is a machine of its own",
    "c7a.metal-48xl": "is a machine of its own",
    "c5.large": "CpuOptions",
    "m5a.large": "CpuOptions",
    "g4dn.xlarge": "CpuOptions",
    "None": "CpuOptions",
    "x; rm -rf": "CpuOptions",
}


@pytest.mark.parametrize(("product", "words"), TYPES.items())
def test_what_decides_about_threads_of_an_instance_of_ec2(tmp_path, product, words):
    dmi = {DMI + "sys_vendor": "Amazon EC2\n", DMI + "product_name": f"{product}\n"}
    machine = Machine(cores=4, threads=1, flags="fpu lm hypervisor")
    facts = gather(tmp_path, machine, **dmi)
    assert words in facts["provider"]
    assert judged(facts)["sentence"].endswith(facts["provider"])


@pytest.mark.parametrize(
    ("vendor", "words"),
    [
        ("Google", "--threads-per-core"),
        ("Alibaba Cloud", "ThreadsPerCore"),
        ("Microsoft Corporation", "HwThreadCountPerCore"),
    ],
)
def test_who_decides_elsewhere(tmp_path, vendor, words):
    facts = gather(tmp_path, Machine(cores=4, threads=1), **{DMI + "sys_vendor": f"{vendor}\n"})
    assert words in facts["provider"]


@pytest.mark.parametrize(("vendor", "threads"), [("Amazon EC2", 2), ("Dell Inc.", 1), ("", 1)])
def test_nobody_else_decides(tmp_path, vendor, threads):
    facts = gather(tmp_path, Machine(cores=4, threads=threads), **{DMI + "sys_vendor": f"{vendor}\n"})
    assert facts["provider"] is None
