# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded forms of what BMCs answer, each served by a real HTTPS server and read by the real code:
one expected result each.
"""

from __future__ import annotations

import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._firmware import client
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border, schema

ED = ["Enabled", "Disabled"]
NO_ATTRIBUTES = ["the BMC shows no BIOS attributes of this system: some do after the host's next start only"]
# Form -> the system that counts: attribute, value, what it means, what is staged, allowed values, limits of cores.
EXPECTED = {
    "ami_without_words": (
        "CPU01A",
        "CPU01ADisabled",
        "disabled",
        "enabled",
        ["CPU01AAuto", "CPU01AEnabled", "CPU01ADisabled"],
        [],
    ),
    "cisco_cimc": ("CbsCpuSmtCtrl", "Enabled", "enabled", None, [], ["CbsCpuCcdCtrlSsp=4 CCDs"]),
    "dell_idrac9": ("LogicalProc", "Enabled", "enabled", "disabled", ED, []),
    "fujitsu_irmc": ("HyperThreadingEnabled", "false", "disabled", None, ["true", "false"], []),
    "hpe_ilo4": ("ProcHyperthreading", "Disabled", "disabled", None, [], []),
    "hpe_ilo5": ("ProcSMT", "Enabled", "enabled", None, ED, []),
    "huawei_ibmc": ("ProcessorHyperThreadingDisable", "Enabled", "enabled", None, ED, []),
    "lenovo_xcc": ("Processors_HyperThreading", "Enabled", "enabled", None, ED, []),
    "nvidia_dgx": ("ProcessorHyperThreadingDisable", "Enabled", "enabled", None, ED, []),
    "nvidia_grace": (None, None, "unknown", None, [], []),
    "openbmc": (None, None, "unknown", None, [], []),
    "supermicro_h12": ("SMTControl_00CB", "Auto", "auto", "disabled", ["Disabled", "Enabled", "Auto"], []),
    "supermicro_x13": (
        "Hyper_Threading_ALL__F27F",
        "Enable",
        "enabled",
        None,
        ["Enable", "Disable"],
        ["NumberofCores_3BCF=4 Cores"],
    ),
}
PROBLEMS = {
    "cisco_cimc": [
        "the registry of its attributes cannot be read: the BMC has none of the name CiscoBiosAttributeRegistry.v1_0_0",
        "what is staged for the next boot is not known: the BMC does not show it",
    ],
    "hpe_ilo4": [
        "the registry of its attributes cannot be read: the BMC HOST has no /redfish/v1/Registries (status 404): none"
    ],
    "nvidia_grace": [
        (
            "none of its 4 BIOS attributes is known to switch SMT: the processor may have none, as most for Arm, or the"
            " firmware does not show the setting"
        )
    ],
    "openbmc": NO_ATTRIBUTES,
}


def test_each_recorded_form_says_where_it_is_from_and_has_an_expected_result():
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in bmc_server.RECORDED.glob("*.json")}
    assert files.keys() == EXPECTED.keys() and all(len(file["source"]) > 40 for file in files.values())


@pytest.mark.parametrize("form", EXPECTED)
def test_a_recorded_form_is_read(form):
    with bmc_server.serving(bmc_server.recorded(form)) as bmc:
        found = bmc_server.read_from(bmc)
    schema.Checker(border.FIRMWARE).check(found)
    system = found["systems"][-1]
    limits = [f"{one['attribute']}={one['value']}" for one in system["core_limits"]]
    fields = ("attribute", "value", "state", "staged", "allowed")
    assert (*(system[name] for name in fields), limits) == EXPECTED[form]
    assert [one.replace(bmc.host, "HOST") for one in system["problems"]] == PROBLEMS.get(form, [])
    assert bmc.sessions == 0 and found["problems"] == []


def test_what_else_a_bmc_says():
    found = bmc_server.read(bmc_server.recorded("dell_idrac9"))
    (system,) = found["systems"]
    assert (found["vendor"], found["redfish_version"], found["agrees"]) == ("Dell", "1.13.1", None)
    assert {name: system[name] for name in ("id", "manufacturer", "model", "bios_version", "power", "processors")} == {
        "id": "System.Embedded.1",
        "manufacturer": "Dell Inc.",
        "model": "PowerEdge R750",
        "bios_version": "1.8.2",
        "power": "On",
        "processors": {"sockets": 2, "cores": 36, "threads": 72},
    }
    assert system["staged_value"] == "Disabled" and "idrac_bios" in system["tasks"]["enabled"]


def test_what_a_value_is_written_back_as_is_what_the_bmc_showed():
    (system,) = bmc_server.read(bmc_server.recorded("supermicro_x13"))["systems"]
    assert system["tasks"]["disabled"].endswith('bios_attributes: {"Hyper_Threading_ALL__F27F": "Disable"}}')
    (system,) = bmc_server.read(bmc_server.recorded("fujitsu_irmc"))["systems"]
    assert system["tasks"]["enabled"].endswith('bios_attributes: {"HyperThreadingEnabled": true}}')


def test_the_host_of_several_systems_is_the_one_with_the_setting():
    found = bmc_server.read(bmc_server.recorded("nvidia_dgx"), bmc_server.ONE_THREAD)
    assert found["agrees"] is False and [one["system"] for one in found["findings"]] == ["DGX"]
    assert [system["problems"] for system in found["systems"]] == [NO_ATTRIBUTES, []]


def nodes(*values):
    """A chassis with a system for each value."""
    names = [f"Node{number}" for number in range(len(values))]
    found = bmc_server.small({})
    found["/redfish/v1/Systems"] = {"Members": [{"@odata.id": f"/redfish/v1/Systems/{name}"} for name in names]}
    for name, value in zip(names, values, strict=True):
        one = bmc_server.small({"LogicalProc": value}, {})
        found |= {
            path.replace("/1", f"/{name}"): json.loads(json.dumps(answer).replace("Systems/1", f"Systems/{name}"))
            for path, answer in one.items()
            if "/1" in path
        }
    return found


def test_of_a_chassis_the_node_has_to_be_named():
    found = bmc_server.read(nodes("Enabled", "Disabled"), bmc_server.ONE_THREAD)
    assert found["agrees"] is None and "Set resource_id" in found["findings"][0]["sentence"]
    found = bmc_server.read(nodes("Enabled", "Disabled"), bmc_server.ONE_THREAD, system="Node1")
    assert found["agrees"] is True and [system["id"] for system in found["systems"]] == ["Node1"]
    with pytest.raises(client.RedfishError, match="there is no system Node7: the BMC has Node0, Node1"):
        bmc_server.read(nodes("Enabled", "Disabled"), system="Node7")


def test_what_one_system_does_not_answer_does_not_lose_the_others():
    broken = nodes("Enabled", "Disabled", "Auto")
    broken["/redfish/v1/Systems/Node0"] = lambda handler: bmc_server.send(handler, b"<html>", 500)
    broken["/redfish/v1/Systems/Node1/Bios"] = lambda handler: bmc_server.send(handler, b'{"Attributes": {')
    found = bmc_server.read(broken)
    assert [system["state"] for system in found["systems"]] == ["unknown", "unknown", "auto"]
    assert "status 500" in found["systems"][0]["problems"][0]
    assert "is not what Redfish has" in found["systems"][1]["problems"][0]


def test_a_registry_of_several_systems_is_read_once():
    shared = {"AttributeRegistry": "/redfish/v1/Registries/Bios"}
    found = nodes("Enabled", "Disabled")
    for path, answer in found.items():
        if path.endswith("/Bios"):
            answer.update(shared)
    entry = {"AttributeName": "LogicalProc", "DisplayName": "x", "Value": [{"ValueName": "Enabled"}]}
    found["/redfish/v1/Registries/Bios"] = {"RegistryEntries": {"Attributes": [entry, 7, {"AttributeName": None}]}}
    with bmc_server.serving(found) as bmc:
        assert [one["allowed"] for one in bmc_server.read_from(bmc)["systems"]] == [["Enabled"], ["Enabled"]]
    assert bmc.asked.count("GET /redfish/v1/Registries/Bios") == 1


def test_attributes_that_do_not_say_the_same_are_not_chosen_from():
    found = bmc_server.read(bmc_server.small({"HyperThreading": "Enabled", "SMTMode": "Disabled"}), bmc_server.kernel())
    (system,) = found["systems"]
    assert (system["attribute"], system["state"], found["agrees"]) == (None, "unknown", None)
    assert system["problems"] == [
        "several attributes are about SMT, and do not say the same: HyperThreading=Enabled, SMTMode=Disabled"
    ]


def test_a_value_that_says_nothing_is_a_problem():
    (system,) = bmc_server.read(bmc_server.small({"LogicalProc": 7}, {}))["systems"]
    assert (system["attribute"], system["state"]) == ("LogicalProc", "unknown")
    assert system["problems"] == ["it is not known what LogicalProc=7 means"]


def test_staged_settings_that_cannot_be_read_are_not_none():
    def forbids(handler):
        bmc_server.send(handler, {}, 403)

    (system,) = bmc_server.read(bmc_server.small({"LogicalProc": "Enabled"}, **{"Bios/Settings": forbids}))["systems"]
    assert system["state"] == "enabled" and system["staged"] is None
    assert system["problems"][0].startswith("what is staged for the next boot is not known: ")
    assert "check the role" in system["problems"][0]
