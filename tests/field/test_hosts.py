# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read CPUs, siblings, hypervisors and vulnerabilities, each rebuilt as the tree that
such a host shows.
"""

import facts_maker
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import hypervisor, vulnerabilities
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.policy import DesiredState
from fake_host import Host
from fake_kernel import numbered_cores
from sysfs_tree import CPU, Machine

DMI = "sys/class/dmi/id/"


def gather(root, machine, **further):
    tree = {**sysfs_tree.files(machine), **further}
    shown = {path: text for path, text in tree.items() if text is not None}
    return smt_facts.gather(HostFs(sysfs_tree.write(root, shown)))


def judged(facts, state="enabled"):
    return compliance.judge(facts_maker.made(facts), DesiredState(state), "runtime")


def vendor(name, product=""):
    return {DMI + "sys_vendor": f"{name}\n", DMI + "product_name": f"{product}\n"}


HALF = Machine(cores=4, threads=2, numbering="adjacent", offline=(4, 5, 6, 7))
STANDBY = {f"{CPU}cpu{cpu}/configure": f"{int(cpu < 4)}\n" for cpu in range(8)}


@pytest.mark.parametrize(("further", "text"), [(STANDBY, "garbage\n"), ({CPU + "enabled": "0-3\n"}, "0-7\n")])
def test_rhbz_2006257_cpus_that_nobody_here_can_bring_online_are_not_missing(tmp_path, further, text):
    facts = gather(tmp_path, HALF, **further)
    assert (facts["cpus"]["present"], facts["cpus"]["offline"], facts["complete"]) == ("0-7", "", True)
    assert facts["hardware_class"] and facts["cores"] == 2 and judged(facts).status == "compliant"
    assert smt_state.read(str(tmp_path))["present"] == [0, 1, 2, 3]
    states = {f"{CPU}cpu{cpu}/configure": f"{int(cpu not in (6, 7))}\n" for cpu in range(8)}
    facts = gather(tmp_path / "off", Machine(cores=4, offline=(4, 5, 6, 7), control="on"), **states)
    assert (facts["cpus"]["offline"], facts["complete"], judged(facts).status) == ("4-5", False, "drifted")
    # A mask that says nothing takes no CPU away.
    assert gather(tmp_path / "mask", HALF, **{CPU + "enabled": text})["cpus"]["offline"] == "4-7"


@pytest.mark.parametrize("control", ["on", "notsupported"])
def test_kubernetes_71622_and_hardinfo_711_one_cpu_that_is_off_and_off_in_firmware(tmp_path, monkeypatch, control):
    facts = gather(tmp_path, Machine(packages=2, cores=8, threads=1, control=control))
    assert (facts["supported"], facts["active"], facts["methods"]["runtime"]["chosen"]) == (False, False, None)
    assert {judged(facts, state).status for state in ("enabled", "disabled")} == {"compliant"}
    for machine in (Machine(offline=(2, 3), control="off"), Machine(cores=4, offline=(5,), control="on")):
        assert gather(tmp_path / f"{len(machine.present)}", machine)["supported"] is True
    monkeypatch.setattr(smt_facts.os, "geteuid", lambda: 0)
    tree = sysfs_tree.files(Machine(cores=4, offline=(7,), control=""))
    fs = HostFs(sysfs_tree.write(tmp_path / "off", sysfs_tree.without(tree, "smt/control", "smt/active")))
    fs.__class__ = type("RootFs", (HostFs,), {"is_host": True})
    assert smt_facts.gather(fs)["methods"]["runtime"]["chosen"] == "cpu_online"
    # Isolated CPUs are among the reasons.
    cores, whole = [(cpu, cpu + 4) for cpu in range(4)], [tuple(range(8))]
    assert "not isolated" in placement.Placements(cores, whole, usable=(0, 1, 2, 3)).workers("siblings")[1]
    assert "isolated" not in placement.Placements([(0,), (1,)], [(0, 1)], usable=(0, 1)).workers("siblings")[1]


NO_ONLINE = {f"{CPU}cpu0/online": None}
LXCFS = "proc /proc proc rw 0 0\nlxcfs {} fuse.lxcfs rw,nosuid,nodev 0 0\n"


@pytest.mark.parametrize(
    ("further", "said"),
    [
        *(
            pytest.param({CPU + "online": shown, **NO_ONLINE}, "as in a container (lxcfs)", id="lxcfs_731")
            for shown in ("0\n", "2-3\n", "0-3\n")
        ),
        # Each CPU says online, and the list has two.
        pytest.param({CPU + "online": "2,5\n"}, "CPUs 0-1,3-4,6-7 says otherwise", id="lxcfs_627"),
        *(
            pytest.param({"proc/self/mounts": LXCFS.format(path)}, f"lxcfs shows {path}", id="lxcfs_401")
            for path in ("/proc/cpuinfo", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu")
        ),
        # A machine that runs lxcfs for its containers is none.
        pytest.param({"proc/self/mounts": LXCFS.format("/var/lib/lxcfs")}, None, id="host"),
    ],
)
def test_lxcfs_what_contradicts_the_cpus_is_named_and_nothing_is_drift(tmp_path, further, said):
    facts = gather(tmp_path, Machine(cores=4), **further)
    assert [said in text for text in facts["problems"]] == ([True] if said else [])
    assert facts["supported"] is facts["active"] is (None if said else True)
    assert judged(facts).status == ("unknown" if said else "compliant")


@pytest.mark.parametrize("state", ["enabled", "disabled"])
@pytest.mark.parametrize("check", [True, False])
def test_lxcfs_731_nothing_is_switched(tmp_path, state, check):
    host = Host(tmp_path, numbered_cores(4, 2, "adjacent"))
    read, shown = host.read, {"sys/devices/system/cpu/online": "0,2"}
    host.read = lambda path: shown.get(path) or read(path)
    with pytest.raises(HostError, match="lists CPUs 0,2"):
        host.ask(state, check=check)
    assert host.control == "on" and host.online == set(range(8))


RAW = "sys/firmware/dmi/entries/0-0/raw"
ARM, X86, HIDDEN = ("CPU implementer : 0x41", "flags : fpu lm hypervisor", "flags : fpu lm")
KVM, HYPERV, TSC = "kvm-clock tsc acpi_pm", "hyperv_clocksource_tsc_page tsc acpi_pm", "tsc hpet acpi_pm"
PARALLELS = "Parallels Software International Inc.", "Parallels Virtual Platform"
# The processor, vendor and product, SMBIOS' bit for virtual machines (Arm) or clocks, and the hypervisor.
MACHINES = {
    "systemd_18929": (ARM, "Amazon EC2", "m6g.metal", None, None),
    "systemd_18929 by its bit": (ARM, "Amazon EC2", "c7g.16xlarge", False, None),
    "an instance of EC2": (ARM, "Amazon EC2", "c7g.16xlarge", True, "amazon"),
    "systemd_24143": (ARM, "KubeVirt", "None", None, "kvm"),
    "Alibaba": (ARM, "Alibaba Cloud", "Alibaba Cloud ECS", None, "kvm"),
    "Hyper-V": (ARM, "Microsoft Corporation", "Virtual Machine", None, "hyperv"),
    "a Surface": (ARM, "Microsoft Corporation", "Surface Pro X", None, None),
    "a vendor that nobody knows": (ARM, "Acme", "Box", True, "unknown"),
    "no SMBIOS": (ARM, "", "", None, None),
    "systemd_23856": (X86, *PARALLELS, KVM, "parallels"),
    "systemd_1117, an older one": (X86, *PARALLELS, TSC, "parallels"),
    "VirtualBox with KVM's interface": (X86, "innotek GmbH", "VirtualBox", KVM, "virtualbox"),
    "uyuni_2112": (X86, "Nutanix", "AHV", HYPERV, "kvm"),
    "QEMU with interfaces of Hyper-V": (X86, "QEMU", "Standard PC", HYPERV, "kvm"),
    "systemd_21816": (X86, "Microsoft Corporation", "Virtual Machine", HYPERV, "hyperv"),
    "QEMU without KVM": (X86, "QEMU", "Standard PC", TSC, "qemu"),
    # Machines of clouds have the names of their guests, and are none where the processor says so.
    "libcpuid_169 VirtualBox": (HIDDEN, "innotek GmbH", "VirtualBox", TSC, "virtualbox"),
    "libcpuid_169 QEMU": (HIDDEN, "QEMU", "pc", TSC, "qemu"),
    "libcpuid_169 a cloud": (HIDDEN, "Google", "Google Compute Engine", TSC, None),
}


@pytest.mark.parametrize(("processor", "maker", "product", "more", "name"), MACHINES.values(), ids=MACHINES)
def test_the_hypervisor(tmp_path, processor, maker, product, more, name):
    tree = {"proc/cpuinfo": f"processor : 0\n{processor}\n", **vendor(maker, product)}
    if isinstance(more, str):
        tree["sys/devices/system/clocksource/clocksource0/available_clocksource"] = f"{more}\n"
    elif more is not None:
        tree[RAW] = bytes(0x13) + (b"\x1c" if more else b"\x0c") + bytes(4)
    assert hypervisor.detect(HostFs(sysfs_tree.write(tmp_path, tree))) == name


VMSCAPE = "Mitigation: IBPB before exit to userspace"
RETPOLINES = "Mitigation: Retpolines; IBPB: conditional; IBRS_FW; STIBP: {}; RSB filling; PBRSB-eIBRS: Not affected"
AUTOMATIC = "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; STIBP: {}; RSB filling"
# Those of Intel, whose IBRS leaves no need for STIBP, so that its part is missing.
ENHANCED = [
    "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling; PBRSB-eIBRS: SW sequence; BHI: BHI_DIS_S",
    "Mitigation: Enhanced IBRS, IBPB: conditional, RSB filling",
    "Mitigation: Enhanced / Automatic IBRS + Retpolines; IBPB: conditional; RSB filling; PBRSB-eIBRS: Not affected",
]
# Unprivileged eBPF.
HIDES = "Vulnerable: eIBRS with unprivileged eBPF"
THUNK, CLEAR = "Mitigation: untrained return thunk; SMT ", "Mitigation: Clear CPU buffers; SMT "
PTE = "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT "
PROTECTED = "enabled with STIBP protection"
OFF, ON = {"active": False}, {"active": True}
GUEST, GUEST_OFF, UNKNOWN = {"is_guest": True}, {"is_guest": True, "active": False}, {"active": None}
# The file, its text, what smt of it is, where the others are the defaults: of no guest, and with SMT active.
STATUSES = [
    ("l1tf", "Mitigation: PTE Inversion; VMX: flush not necessary, SMT disabled", "unknown", GUEST),
    ("l1tf", PTE + "vulnerable", "unknown", GUEST),
    ("l1tf", "Mitigation: PTE Inversion", None, GUEST),
    ("l1tf", PTE + "disabled", "disabled", {}),
    *(
        ("vmscape", VMSCAPE, smt, {**more, "spectre_v2": text.format(stibp)})
        for text in (RETPOLINES, AUTOMATIC)
        for stibp, smt, more in [
            *(("conditional", "vulnerable", {}), ("disabled", "vulnerable", {}), ("always-on", "mitigated", {})),
            *(("forced", "mitigated", {}), ("disabled", "disabled", OFF), ("conditional", None, UNKNOWN)),
        ]
    ),
    *(
        one
        for text in ENHANCED
        for smt, more in (("mitigated", ON), ("disabled", OFF), (None, UNKNOWN))
        for one in [("vmscape", VMSCAPE, smt, {**more, "spectre_v2": text}), ("spectre_v2", text, smt, more)]
    ),
    ("vmscape", VMSCAPE, "unknown", {"spectre_v2": HIDES}),
    ("spectre_v2", HIDES, "unknown", {}),
    *(("vmscape", "Not affected", None, {}), ("vmscape", "Vulnerable", None, {})),
    ("spectre_v2", AUTOMATIC.format("always-on"), "mitigated", {}),
    ("spectre_v2", AUTOMATIC.format("disabled"), "vulnerable", {}),
    ("spectre_v2", AUTOMATIC.format("conditional"), None, {}),
    ("spectre_v2", AUTOMATIC.format("disabled"), "disabled", OFF),
    ("retbleed", THUNK + PROTECTED, "mitigated", {}),
    *(("retbleed", THUNK + "vulnerable", "vulnerable", {}), ("retbleed", THUNK + "disabled", "disabled", {})),
    ("spec_rstack_overflow", "Mitigation: SMT disabled", "disabled", {}),
    ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode", None, {}),
    ("tsx_async_abort", CLEAR + "Host state unknown", "unknown", {}),
    ("mmio_stale_data", CLEAR + "vulnerable", "vulnerable", {}),
    ("gather_data_sampling", "Mitigation: Microcode", None, {}),
    # lscpu ovh: no vulnerability of a guest is closed by SMT.
    ("retbleed", THUNK + "disabled", "unknown", GUEST_OFF),
    ("spec_rstack_overflow", "Mitigation: SMT disabled", "unknown", GUEST_OFF),
    ("mmio_stale_data", CLEAR + "disabled", "unknown", GUEST_OFF),
    # Where siblings share nothing but the store buffer, under a hypervisor that does not show itself.
    ("mds", CLEAR + "mitigated", "unknown", GUEST),
    ("spectre_v2", RETPOLINES.format("disabled"), "unknown", GUEST_OFF),
    ("spectre_v2", ENHANCED[1], "unknown", GUEST_OFF),
    ("vmscape", VMSCAPE, "unknown", GUEST_OFF),
    ("some_day", "Mitigation: Something; SMT disabled", "unknown", GUEST_OFF),
    # What it sees open is open, and a thread of its own has STIBP whoever is on the other one.
    ("retbleed", THUNK + "vulnerable", "vulnerable", GUEST),
    ("retbleed", THUNK + PROTECTED, "mitigated", GUEST),
    ("spectre_v2", RETPOLINES.format("always-on"), "mitigated", GUEST),
    ("retbleed", "Not affected", None, GUEST_OFF),
    ("spec_rstack_overflow", "Mitigation: Safe RET", None, GUEST_OFF),
]


def test_what_the_text_of_a_vulnerability_says_of_smt(tmp_path):
    found, folder = [], "sys/devices/system/cpu/vulnerabilities/"
    for number, (name, status, _smt, more) in enumerate(STATUSES):
        tree = {folder + key: f"{text}\n" for key, text in {name: status, **more}.items() if isinstance(text, str)}
        fs = HostFs(sysfs_tree.write(tmp_path / str(number), tree))
        read = vulnerabilities.read(fs, more.get("is_guest", False), more.get("active", True))
        found.append((name, status, read[name]["smt"], more))
    assert found == STATUSES


BY_TYPE = ["t2.large", "a1.xlarge", "c7a.2xlarge", "m8a.large", "r7gd.16xlarge", "im4gn.large", "hpc7a.96xlarge"]
DECIDED = {
    **dict.fromkeys(BY_TYPE, "is a core, by its type"),
    **dict.fromkeys(["m6g.metal", "c7a.metal-48xl"], "is a machine of its own"),
    **dict.fromkeys(["c5.large", "m5a.large", "g4dn.xlarge", "None", "x; rm -rf"], "CpuOptions"),
}
ELSEWHERE = {"Google": "--threads-per-core", "Alibaba Cloud": "ThreadsPerCore", "Dell Inc.": None, "": None}


def test_who_decides_about_the_threads_of_a_core(tmp_path):
    fs = HostFs(str(tmp_path))
    cases = [("Amazon EC2", product, words) for product, words in DECIDED.items()]
    cases += [("Microsoft Corporation", "", "HwThreadCountPerCore")]
    for maker, product, words in [*cases, *((name, "", words) for name, words in ELSEWHERE.items())]:
        sysfs_tree.write(tmp_path, vendor(maker, product))
        said = smt_facts.hypervisor.about_threads(fs, supported=False)
        assert (said is None) if words is None else words in said, (maker, product, said)
    facts = gather(tmp_path / "one", Machine(cores=4, threads=1), **vendor("Amazon EC2", "t2.large"))
    assert judged(facts).sentence.endswith(facts["provider"])
    assert gather(tmp_path / "two", Machine(cores=4), **vendor("Amazon EC2", "t2.large"))["provider"] is None
