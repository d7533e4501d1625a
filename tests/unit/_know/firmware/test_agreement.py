# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which attribute switches SMT, what its values mean, and what the firmware says beside what the kernel shows."""

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import agreement, attributes, commands

UNKNOWN = bmc_server.kernel(supported=None, active=None)
OFFLINE = bmc_server.kernel(active=False, control="off")
ON, ONE_THREAD, GUEST = bmc_server.kernel(), bmc_server.ONE_THREAD, bmc_server.kernel(hypervisor="kvm")
HIDES = ("nr_cpus=18", "maxcpus=18", "possible_cpus=18", "nosmp")
VALUES = {"enabled": "Enabled", "disabled": "Disabled", "auto": "Auto", "unknown": "3"}
SEEN = {"system": "1", "attribute": "LogicalProc", "staged": None, "staged_value": None, "is_off": False}
SEEN |= {"core_limits": (), "counts": {"sockets": None, "cores": None, "threads": None}, "needs_job": False}
SEEN |= {"tasks": {"enabled": "turn it on", "disabled": "turn it off"}}


def seen(state="enabled", **changes):
    return agreement.Seen(**{**SEEN, "value": VALUES[state], "state": state, **changes})


def compare(system, kernel):
    return agreement.compare([system], None if kernel is None else agreement.kernel_of(kernel))


@pytest.mark.parametrize(
    ("state", "kernel", "agrees"),
    [
        *(("enabled", kernel, agrees) for kernel, agrees in ((ON, True), (OFFLINE, True), (ONE_THREAD, False))),
        *(("disabled", kernel, agrees) for kernel, agrees in ((ON, False), (OFFLINE, False), (ONE_THREAD, True))),
        *(("auto", kernel, agrees) for kernel, agrees in ((ON, True), (OFFLINE, True), (ONE_THREAD, None))),
        *((state, kernel, None) for state in ("enabled", "disabled") for kernel in (UNKNOWN, GUEST)),
        *(("unknown", kernel, None) for kernel in (ON, ONE_THREAD)),
        # A kernel that does not look at all CPUs says nothing of second threads, but of those that it sees.
        *(("enabled", {**ONE_THREAD, "boot": {"running": ["nosmt", one]}}, None) for one in HIDES),
        ("enabled", {**ON, "boot": {"running": ["nosmt", HIDES[0]]}}, True),
    ],
)
def test_whether_they_agree(state, kernel, agrees):
    found = compare(seen(state), kernel)
    assert found.agrees is agrees
    # What agrees needs no sentence, and where there is none to say what the setting means the facts have a problem.
    assert [one.about for one in found.findings] == ([] if agrees or state == "unknown" else ["kernel"])


STAGED = {"staged": "disabled", "staged_value": "Disabled"}
NR_CPUS = {**ONE_THREAD, "boot": {"running": ["nr_cpus=1"]}}
NOT_SEEN = ", as LogicalProc={} that is pending: the BMC has not seen the last boot yet".format


@pytest.mark.parametrize(
    ("system", "kernel", "about", "said"),
    [
        (seen("disabled"), OFFLINE, "kernel", "has second threads, which it holds offline: the value is not in force."),
        (seen("disabled"), ON, "kernel", "; if that changes nothing, set the value once more (turn it off)"),
        (seen(), ONE_THREAD, "kernel", "the firmware says LogicalProc=Enabled, and the kernel shows one thread"),
        (seen("auto"), ONE_THREAD, "kernel", "LogicalProc=Auto leaves SMT to the firmware, and the kernel sho"),
        (seen(**STAGED), None, "staged", "LogicalProc=Disabled is pending until the next boot; LogicalProc=Enabled is"),
        (seen(**STAGED, needs_job=True), None, "staged", ". iDRAC applies it only with a configuration job, which del"),
        # A kernel that shows what waits has booted before the BMC looked; another value explains nothing.
        (seen(**STAGED), ONE_THREAD, "staged kernel", NOT_SEEN("Disabled")),
        (seen("disabled", staged="enabled", staged_value="Enabled"), ON, "staged kernel", NOT_SEEN("Enabled")),
        (seen(staged="auto", staged_value="Auto"), ONE_THREAD, "staged kernel", "Power the host off"),
        (seen(), GUEST, "kernel", "the kernel runs under kvm, and shows the CPUs that it gets from there: nothing is"),
        (seen(), NR_CPUS, "kernel", "the kernel was started with nr_cpus=1, which may hide second threads: nothing is"),
        (seen(), UNKNOWN, "kernel", "the facts do not say whether the cores have second threads: nothing is compared"),
        (seen(core_limits=("ProcCores=4",)), None, "cores", "ProcCores=4 leaves a part of the cores off: fewer CPUs "),
        (seen(counts={"cores": 36, "threads": 36}), None, "inventory", "the BMC's inventory has 36 threads on 36"),
        (seen(is_off=True), ON, "power", "the BMC says that the host is off, and its facts are there: is this the BMC"),
    ],
)
def test_a_finding_names_the_way_out(system, kernel, about, said):
    found = compare(system, kernel).findings
    assert [one.about for one in found] == about.split() and said in found[-1].sentence


def test_facts_of_another_type_are_not_known_and_others_are_shown_as_text_alone():
    for facts in (
        {"supported": "yes", "active": 1, "hypervisor": ["kvm"], "boot": "nosmt"},
        {"supported": 1, "boot": {"running": [1, None, {"nr_cpus=": 2}]}},
        {"supported": [], "boot": {"running": "nr_cpus=1"}},
    ):
        assert agreement.kernel_of(facts) == agreement.Kernel(None, None, None, ())
    hostile = {"supported": False, "boot": {"running": ["nr_cpus=1\x1b[2J"]}, "hypervisor": "\u202ekvm"}
    kernel = agreement.kernel_of(hostile)
    assert kernel.hiding == ("nr_cpus=1\\x1b[2J",) and kernel.hypervisor == "\\u202ekvm"
    with pytest.raises(HostError, match="give what smt_facts returns"):
        agreement.kernel_of({"smt": {"supported": True}})


def entry(name, title="", *values, is_hidden=False):
    pairs = tuple(one if isinstance(one, tuple) else (one, one) for one in values)
    return attributes.Entry(name, title, pairs, is_hidden)


NUMBERS = entry("HT", "Hyper-Threading", ("0", "Enable"), ("1", "Disable"))


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        *((known.name, True) for known in attributes.NAMES),
        *((one, True) for one in ("Hyper_Threading_ALL__F27F", "HyperThreading_0055", "SMT Control")),
        *((one, False) for one in ("SMTP", "SmtpServer", "TurboRatioLimitCores0", "HyperTransport")),
    ],
)
def test_a_name_is_found_among_others_whatever_its_suffix(name, is_found):
    values = {"BootMode": "Uefi", name: "Enabled", "ProcX2Apic": "Enabled", "ThreadedMemory": "Enabled"}
    assert attributes.candidates(values, {name: entry(name, name)}) == [name] * is_found


@pytest.mark.parametrize(
    "title", ["Intel(R) Hyper-Threading Tech", "SMT Mode", "Simultaneous Multi-Threading (SMT)", "Logical Processor"]
)
def test_a_name_without_words_is_found_by_its_title_and_a_hidden_one_only_alone(title):
    entries = {"A": entry("A", title, is_hidden=True), "B": entry("B", title), "C": entry("C", "SMT Security Table")}
    assert attributes.candidates({"A": "Auto", "B": "Disabled", "C": "Auto"}, entries) == ["B"]
    assert attributes.candidates({"A": "Auto"}, entries) == ["A"]


@pytest.mark.parametrize(
    ("value", "of", "means"),
    [
        *((value, None, "enabled") for value in ("Enabled", "enable", "On", True, "CPU01AEnabled")),
        *((value, None, "disabled") for value in ("Disabled", "Disable", "OFF", False, "CPU01A_Disabled")),
        *((value, None, "auto") for value in ("Auto", " Auto ")),
        *((value, None, "unknown") for value in (0, 1, "1", "", "Enabled, of course")),
        # Supermicro's 0 is on.
        *(("0", NUMBERS, "enabled"), (1, NUMBERS, "disabled"), ("Enable", NUMBERS, "enabled")),
        # A name that says the opposite counts by its title.
        ("Enabled", entry("x", "Disable Hyper-Threading"), "disabled"),
    ],
)
def test_what_a_value_means(value, of, means):
    assert attributes.meaning("CPU01A", value, of) == means


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ({"ProcCores": "All", "CcdCores": "All", "ProcCoreDisable": 0, "EnabledCoresPerProc": "CoresPerProc0"}, []),
        ({"CCDControl_7032": "Auto", "CoreControl_7035": "TWO (1 + 1)"}, [("CoreControl_7035", "TWO (1 + 1)")]),
        ({"NumberofCores_3BCF": "255"}, []),
        ({"NumberofCores_3BCF": "4"}, [("NumberofCores_3BCF", "4 Cores")]),
    ],
)
def test_what_leaves_a_part_of_the_cores_off(values, limits):
    cores = entry("NumberofCores_3BCF", "Number of Cores", ("4", "4 Cores"), ("255", "All Cores"))
    assert attributes.core_limits(values, {cores.name: cores}) == limits


@pytest.mark.parametrize(
    ("value", "of", "other"),
    [
        *(("Enable", NUMBERS, "Disable"), ("0", NUMBERS, "1"), ("Enabled", None, "Disabled"), ("On", None, "Off")),
        *(("enabled", None, "disabled"), (True, None, "false"), ("Auto", None, None), (3, None, None)),
    ],
)
def test_a_value_to_set_has_the_form_of_the_one_that_is_there(value, of, other):
    assert attributes.value_for("disabled", "HT", value, of) == other
    assert [attributes.same("HT", "Enable", one, NUMBERS) for one in ("0", "1")] == [True, False]
    assert attributes.same("HT", "Enabled", "enabled", None)


PATH = "/redfish/v1/S"


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (("Dell Inc.", "System.1", "HT", "off", PATH, True), "idrac_bios: {apply_time: OnReset, attributes: "),
        (("Lenovo", "1", "HT", "off", PATH, True), "redfish_config: {category: Systems, command: SetBiosAttributes, "),
        # That module refuses a BMC that does not say where values are staged.
        (("GIGABYTE", "Self", "HT", "off", PATH, False), "ansible.builtin.uri: {url: "),
        (("Cisco", "1", "HT", "off", None, False), "the BMC's own pages: set HT to off there; it does not say where"),
        # What would be a template in a play is no part of a task.
        (("GIGABYTE", "{{ 7 }}", "HT", "off", PATH, False), None),
        (("GIGABYTE", "1", "HT{{ lookup('pipe', 'id') }}", "off", PATH, False), None),
        (("GIGABYTE", "1", "HT", "off {{ 7 }}", PATH, False), None),
        *((("GIGABYTE", "1", "HT", "off", PATH + bad, False), None) for bad in ("{{ 7 }}", "\nx")),
    ],
)
def test_the_task_is_one_that_has_an_effect(task, said):
    found = commands.task(*task)
    assert found is None if said is None else said in found
