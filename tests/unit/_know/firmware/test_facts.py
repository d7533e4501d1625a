# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded forms of what BMCs answer, each served by a real HTTPS server and read by the real code:
one expected result each.
"""

from __future__ import annotations

import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, facts as border, schema

ED = ["Enabled", "Disabled"]
CPU01A, HT_ALL = [f"CPU01A{one}" for one in ("Auto", "Enabled", "Disabled")], "Hyper_Threading_ALL__F27F"
NO_ATTRIBUTES = ["the BMC shows no BIOS attributes of this system: some do after the host's next start only"]
# Form -> the system that counts: attribute, value, what it means, what is staged, allowed values, limits of cores.
EXPECTED = {
    "ami_without_words": ("CPU01A", "CPU01ADisabled", "disabled", "enabled", CPU01A, []),
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
    "supermicro_x13": (HT_ALL, "Enable", "enabled", None, ["Enable", "Disable"], ["NumberofCores_3BCF=4 Cores"]),
}
NO_REGISTRY = "the registry of its attributes cannot be read: "
NOT_SHOWN = "what is staged for the next boot is not known: the BMC does not show it"
NOT_KNOWN = (
    "none of its 4 BIOS attributes is known to switch SMT: the processor may have none, as most for Arm, or the "
)
PROBLEMS = {
    "cisco_cimc": [f"{NO_REGISTRY}the BMC has none of the name CiscoBiosAttributeRegistry.v1_0_0", NOT_SHOWN],
    "hpe_ilo4": [f"{NO_REGISTRY}the BMC HOST has no /redfish/v1/Registries (status 404): none"],
    "nvidia_grace": [f"{NOT_KNOWN}firmware does not show the setting"],
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


def test_what_else_a_bmc_says_and_what_a_value_is_written_back_as():
    found = bmc_server.read(bmc_server.recorded("dell_idrac9"))
    (system,) = found["systems"]
    assert (found["vendor"], found["redfish_version"], found["agrees"]) == ("Dell", "1.13.1", None)
    names = ("id", "manufacturer", "model", "bios_version", "power", "staged_value")
    expected = ("System.Embedded.1", "Dell Inc.", "PowerEdge R750", "1.8.2", "On", "Disabled")
    assert tuple(system[name] for name in names) == expected and "idrac_bios" in system["tasks"]["enabled"]
    assert system["processors"] == {"sockets": 2, "cores": 36, "threads": 72}
    (system,) = bmc_server.read(bmc_server.recorded("supermicro_x13"))["systems"]
    assert system["tasks"]["disabled"].endswith('bios_attributes: {"Hyper_Threading_ALL__F27F": "Disable"}}')


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


def test_what_one_system_does_not_answer_does_not_lose_the_others():
    broken = nodes("Enabled", "Auto")
    broken["/redfish/v1/Systems/Node0"] = lambda handler: bmc_server.send(handler, b"<html>", 500)
    found = bmc_server.read(broken)["systems"]
    assert [system["state"] for system in found] == ["unknown", "auto"] and "status 500" in found[0]["problems"][0]


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


def test_what_is_not_known_is_a_problem():
    several = {"HyperThreading": "Enabled", "SMTMode": "Disabled"}
    forbids = {"Bios/Settings": lambda handler: bmc_server.send(handler, {}, 403)}
    for resources, expected, said in (
        (
            *(bmc_server.small(several), (None, "unknown", None)),
            "several attributes are about SMT, and do not say the same: HyperThreading=Enabled, SMTMode=Disabled",
        ),
        (
            bmc_server.small({"LogicalProc": 7}, {}),
            ("LogicalProc", "unknown", None),
            "not known what LogicalProc=7 means",
        ),
        (
            *(bmc_server.small({"LogicalProc": "Enabled"}, **forbids), ("LogicalProc", "enabled", None)),
            "what is staged for the next boot is not known: ",
        ),
    ):
        (system,) = bmc_server.read(resources)["systems"]
        assert tuple(system[name] for name in ("attribute", "state", "staged")) == expected
        assert said in system["problems"][0]


def asked(resources, **options):
    """What the module prints; and the BMC."""
    with bmc_server.serving(resources) as bmc:
        printed = bmc_server.run_module(**{"host": options.pop("baseuri", bmc.host), **options})
    assert bmc_server.PASSWORD not in printed and bmc_server.TOKEN not in printed and "wr0ng" not in printed
    return json.loads(printed), bmc


def test_its_facts_pass_the_border_in_check_mode_too_and_nothing_else_does():
    answer, bmc = asked(bmc_server.recorded("dell_idrac9"), check=True, kernel=bmc_server.ONE_THREAD)
    firmware = answers.accept("smt_firmware_facts", json.dumps(answer))["ansible_facts"]["smt_firmware"]
    assert (answer["changed"], firmware["agrees"], firmware["systems"][0]["state"]) == (False, False, "enabled")
    assert [one["about"] for one in firmware["findings"]] == ["staged", "kernel"]
    # Nothing is written but the session.
    posted = [line for line in bmc.asked if not line.startswith("GET")]
    assert posted == [f"POST {bmc_server.SESSIONS}", f"DELETE {bmc_server.SESSIONS}/7"]
    # A machine between that runs the module may answer anything.
    for change in ({"bmc_address": "evil"}, {"smt_firmware": {**firmware, "x": 1}}):
        changed = {**answer, "ansible_facts": {**answer["ansible_facts"], **change}}
        with pytest.raises(answers.text.BorderError):
            answers.accept("smt_firmware_facts", json.dumps(changed))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"password": "wr0ng"}, "/redfish/v1/SessionService/Sessions (status 401): no (a secret): check username"),
        ({"baseuri": "http://bmc"}, "baseuri begins with http://"),
        ({"timeout": 0}, "timeout is 0: it must be from 1 to 600"),
        ({"auth_token": "an0ther"}, "mutually exclusive"),
        ({"username": None}, "required together"),
        ({"username": None, "password": None}, "one of the following is required"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(options, said):
    answer = answers.accept("smt_firmware_facts", json.dumps(asked(bmc_server.small({}), **options)[0]))
    assert answer["failed"] and said in answer["msg"] and "exception" not in answer
