# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the attribute that switches SMT, and what its values mean."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._firmware import attributes, commands


def entry(name, title="", *values, is_hidden=False):
    pairs = tuple(one if isinstance(one, tuple) else (one, one) for one in values)
    return attributes.Entry(name, title, pairs, is_hidden)


@pytest.mark.parametrize("known", attributes.NAMES, ids=lambda known: known.name)
def test_each_name_is_found_among_others(known):
    values = {"BootMode": "Uefi", known.name: "Enabled", "ProcX2Apic": "Enabled", "ThreadedMemory": "Enabled"}
    assert attributes.candidates(values, {}) == [known.name]


@pytest.mark.parametrize(
    "name",
    ["Hyper_Threading_ALL__F27F", "HyperThreading_0055", "SMTControl_0037", "SMT Control", "Processors_SMTMode_00b1"],
)
def test_a_suffix_and_the_way_it_is_written_do_not_count(name):
    assert attributes.candidates({name: "Auto"}, {}) == [name]


@pytest.mark.parametrize(
    "name", ["SMTP", "SmtpServer", "TurboRatioLimitCores0", "Processors_Processors1to16coresactive", "HyperTransport"]
)
def test_other_names_are_not_taken_for_it(name):
    assert attributes.candidates({name: "Enabled"}, {name: entry(name, name)}) == []


@pytest.mark.parametrize(
    "title",
    [
        "Hyper-Threading [ALL]",
        "Hyper-Threading",
        "Intel(R) Hyper-Threading Tech",
        "Intel Hyper Threading Technology",
        "SMT Control",
        "SMT Mode",
        "Simultaneous Multi-Threading (SMT)",
        "Logical Processor",
    ],
)
def test_a_name_without_words_is_found_by_its_title(title):
    entries = {"PRS7": entry("PRS7", title), "PRS8": entry("PRS8", "SMT Security Mitigation Table")}
    assert attributes.candidates({"PRS8": "Enable", "PRS7": "Enable"}, entries) == ["PRS7"]


def test_of_two_with_the_same_title_the_one_that_the_setup_shows_counts():
    entries = {"A": entry("A", "SMT Control", is_hidden=True), "B": entry("B", "SMT Control")}
    assert attributes.candidates({"A": "Auto", "B": "Disabled"}, entries) == ["B"]
    assert attributes.candidates({"A": "Auto"}, entries) == ["A"]


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("Enabled", "enabled"),
        ("enable", "enabled"),
        ("On", "enabled"),
        (True, "enabled"),
        ("Disabled", "disabled"),
        ("Disable", "disabled"),
        ("OFF", "disabled"),
        (False, "disabled"),
        ("Auto", "auto"),
        (" Auto ", "auto"),
        (0, "unknown"),
        (1, "unknown"),
        ("1", "unknown"),
        ("", "unknown"),
        ("Enabled, of course", "unknown"),
        ("CPU01AEnabled", "enabled"),
        ("CPU01A_Disabled", "disabled"),
    ],
)
def test_what_a_value_means(value, means):
    assert attributes.meaning("CPU01A", value, None) == means


@pytest.mark.parametrize(
    ("value", "means"), [("0", "enabled"), ("1", "disabled"), (1, "disabled"), ("Enable", "enabled")]
)
def test_a_number_means_what_the_registry_says(value, means):
    """Supermicro's 0 is on."""
    assert (
        attributes.meaning("HT_F27F", value, entry("HT_F27F", "Hyper-Threading", ("0", "Enable"), ("1", "Disable")))
        == means
    )


def test_a_name_that_says_the_opposite_counts_by_its_title():
    name = "ProcessorHyperThreadingDisable"
    assert attributes.meaning(name, "Enabled", None) == "enabled"
    assert attributes.meaning(name, "Enabled", entry(name, "Hyper-Threading [ALL]")) == "enabled"
    assert attributes.meaning(name, "Enabled", entry(name, "Disable Hyper-Threading")) == "disabled"
    assert attributes.meaning(name, "Auto", entry(name, "Disable Hyper-Threading")) == "auto"


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ({"ProcCores": "All", "CcdCores": "All", "ProcCoreDisable": 0, "EnabledCoresPerProc": "CoresPerProc0"}, []),
        ({"CCDControl_7032": "Auto", "CoreControl_7035": "TWO (1 + 1)"}, [("CoreControl_7035", "TWO (1 + 1)")]),
        ({"ProcCores": "4", "CoreMultiProcessing": "All"}, [("ProcCores", "4")]),
        ({"CbsCpuCoreCtrl": "Auto", "CbsCpuCcdCtrlSsp": "4 CCDs"}, [("CbsCpuCcdCtrlSsp", "4 CCDs")]),
        ({"NumberofCores_3BCF": "255"}, []),
        ({"NumberofCores_3BCF": "4"}, [("NumberofCores_3BCF", "4 Cores")]),
    ],
)
def test_what_leaves_a_part_of_the_cores_off(values, limits):
    cores = entry("NumberofCores_3BCF", "Number of Cores", ("4", "4 Cores"), ("255", "All Cores"))
    assert attributes.core_limits(values, {cores.name: cores}) == limits


def test_values_to_set_have_the_form_of_the_one_that_is_there():
    numbers = entry("HT", "Hyper-Threading", ("0", "Enable"), ("1", "Disable"))
    assert attributes.allowed("Enable", numbers) == ["Enable", "Disable"]
    assert attributes.allowed("0", numbers) == ["0", "1"]
    assert attributes.value_for("disabled", "HT", "Enable", numbers) == "Disable"
    assert attributes.value_for("disabled", "HT", "0", numbers) == "1"


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("Enabled", "Disabled"),
        ("enabled", "disabled"),
        ("Enable", "Disable"),
        ("On", "Off"),
        (True, "false"),
        ("Auto", None),
        (3, None),
    ],
)
def test_without_a_registry_the_other_value_is_known_by_the_one_that_is_there(value, other):
    assert attributes.value_for("disabled", "HT", value, None) == other


def test_values_are_the_same_however_they_are_written():
    numbers = entry("HT", "Hyper-Threading", ("0", "Enable"), ("1", "Disable"))
    assert attributes.same("HT", "Enable", "0", numbers) and not attributes.same("HT", "Enable", "1", numbers)
    assert attributes.same("HT", "Enabled", "enabled", None)


def test_the_task_is_one_that_has_an_effect():
    dell = commands.task("Dell Inc.", "System.Embedded.1", "LogicalProc", "Disabled", "/redfish/v1/S", True)
    assert dell == 'dellemc.openmanage.idrac_bios: {apply_time: OnReset, attributes: {"LogicalProc": "Disabled"}}'
    assert "redfish_config" in commands.task("Lenovo", "1", "HT", "Disabled", "/redfish/v1/S", True)
    # That module refuses a BMC that does not say where values are staged.
    assert "ansible.builtin.uri" in commands.task("GIGABYTE", "Self", "HT", "Disabled", "/redfish/v1/S", False)
    assert "own pages" in commands.task("Cisco Systems Inc", "1", "HT", "Disabled", None, False)


@pytest.mark.parametrize("part", range(4))
def test_what_would_be_a_template_in_a_play_is_no_part_of_a_task(part):
    parts = ["1", "HT", "Disabled", "/redfish/v1/S"]
    assert "Disabled" in commands.task("GIGABYTE", *parts, False)
    parts[part] += "{{ lookup('pipe', 'id') }}"
    assert commands.task("GIGABYTE", *parts, False) is None
    parts[part] = "/redfish/\nx"
    assert commands.task("GIGABYTE", *parts, False) is None
