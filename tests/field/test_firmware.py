# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about other tools that read a BIOS by Redfish, each tried on ours with a BMC on loopback."""

import contextlib
import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import client
from bmc_server import ONE_THREAD, SESSIONS, kernel, recorded, send, small

SYSTEM = "/redfish/v1/Systems/1"
DELL = {"Manufacturer": "Dell Inc."}
ENABLED = {"LogicalProc": "Enabled"}
HIDDEN = {**ONE_THREAD, "boot": {"running": ["nr_cpus=20"]}}
NOSMT = kernel(active=False, control="forceoff", boot={"running": ["nosmt=force"]})
NO_PATH = {"error": {"code": "1", "message": {"lang": "en-us", "value": "failed: Request URI is invalid"}}}


def sentences(found):
    return [one["sentence"] for one in found["findings"]]


def with_two_systems():
    resources = small({"LogicalProc": "Enabled"}, {})
    resources["/redfish/v1/Systems"]["Members"].append({"@odata.id": "/redfish/v1/Systems/2"})
    resources["/redfish/v1/Systems/2"] = {"Bios": {"@odata.id": "/redfish/v1/Systems/2/Bios"}}
    return {**resources, "/redfish/v1/Systems/2/Bios": {"Attributes": {"LogicalProc": "Disabled"}}}


def with_a_board_of_gpus():
    board, resources = "/redfish/v1/Systems/HGX_Baseboard_0", recorded("nvidia_dgx")
    resources[board]["Bios"] = {"@odata.id": f"{board}/Bios"}
    return {**resources, f"{board}/Bios": {"Attributes": {"EGM": False}}}


def with_registries():
    """The registry is the one that the BIOS names: its name need not have the word attribute in it, others have."""
    resources = small({"X1": "Auto"}, {}, bios={"AttributeRegistry": "VendorBios.v1_0_3"})
    place, files = (
        "/redfish/v1/Registries",
        ["NetworkAttributeRegistry.v1_0_0", "VendorBios.v1_0_0", "BiosAttributeRegistry"],
    )
    entry = {"AttributeName": "X1", "DisplayName": "SMT Control", "Value": [{"ValueName": "Auto"}]}
    resources[place] = {"Members": [{"@odata.id": f"{place}/{one}"} for one in files]}
    resources[f"{place}/VendorBios.v1_0_0"] = {"Location": [{"Language": "en", "Uri": "/files/bios"}]}
    return {**resources, "/files/bios": {"Id": "VendorBios.v1_0_3", "RegistryEntries": {"Attributes": [entry]}}}


# What a BMC has, what the kernel shows; of the answer, and of its first system.
CASES = {
    # What helped there in the end: another start, and the value set once more.
    "idrac_redfish_scripting_33": (
        small(ENABLED, {}, DELL),
        ONE_THREAD,
        {"agrees": False},
        ["LogicalProc=Enabled", "one thread a core", "set the value once more", "idrac_bios"],
    ),
    # What is pending stays so without a job. Also iDRAC-Redfish-Scripting 176.
    "terraform_provider_redfish_231": (
        small(ENABLED, {"LogicalProc": "Disabled"}, DELL),
        kernel(),
        {"agrees": True, "staged": "disabled"},
        ["LogicalProc=Disabled is pending", "LogicalProc=Enabled is in force", "dellemc.openmanage.idrac_bios makes"],
    ),
    # What is staged counts beside what is applied.
    "bmclib_468": (
        small({"ProcSMT": "Enabled"}, {"ProcSMT": "Disabled", "ProcX2Apic": "Auto"}),
        None,
        {"state": "enabled", "staged": "disabled"},
        ["ProcSMT=Disabled is pending"],
    ),
    "bmclib_468, the same": pytest.param(
        small({"ProcSMT": "Enabled"}, {"ProcSMT": "Enabled", "ProcX2Apic": "Auto"}), None, {"staged": None}, None
    ),
    # Also Redfish-Tacklebox 55: the settings of AMI's BMCs are at Bios/SD. Also redfish_service_validator_359: the
    # registry stands where its file should.
    "community_general_6433": (
        recorded("ami_without_words"),
        None,
        {
            "state": "disabled",
            "staged": "enabled",
            "problems": [],
            "allowed": ["CPU01AAuto", "CPU01AEnabled", "CPU01ADisabled"],
        },
        [],
    ),
    # Staged settings have no attributes. Also powershell-redfish-lenovo 138.
    "redfish_tacklebox_185": (
        {**small({"SMTControl": "Auto"}, {}), f"{SYSTEM}/Bios/Settings": {"Id": "SD", "AttributeRegistry": "x"}},
        None,
        {"state": "auto", "staged": None, "problems": []},
        None,
    ),
    # An iLO 4 has its attributes beside everything else.
    "ansible_48296": (recorded("hpe_ilo4"), None, {"attribute": "ProcHyperthreading", "state": "disabled"}, []),
    "ansible_68251": (small({"HyperThreading": False}, {}), None, {"value": "false", "state": "disabled"}, None),
    # Of several systems one has to be named.
    "community_general_9234": (with_two_systems(), ONE_THREAD, {"agrees": None}, ["Set resource_id"]),
    # The board of the GPUs is first and has a BIOS too. Also libredfish 89 and 107.
    "libredfish_124": (with_a_board_of_gpus(), kernel(), {"agrees": True}, None),
    # Also bmcweb 210.
    "bmcweb_1007 null": (small(None, {}), None, {"state": "unknown"}, []),
    "bmcweb_1007 empty": (small({}, {}), None, {"state": "unknown"}, []),
    "community_general_7144": pytest.param(
        with_registries(), None, {"attribute": "X1", "state": "auto", "allowed": ["Auto"]}, None
    ),
    # nosmt is no disagreement of the firmware.
    "performance_addon_operators_567": (small(ENABLED, {}), NOSMT, {"agrees": True}, None),
    # A kernel that was started with fewer CPUs.
    "smartos_live_849": (small(ENABLED, {}), HIDDEN, {"agrees": None}, ["nr_cpus=20"]),
}


@pytest.mark.parametrize(("resources", "shown", "expected", "said"), CASES.values(), ids=CASES)
def test_what_the_firmware_says(resources, shown, expected, said):
    found = bmc_server.read(resources, *([shown] if shown else []))
    every = {**found["systems"][0], **{key: found[key] for key in ("agrees", "findings")}}
    assert {key: every[key] for key in expected} == expected
    assert (sentences(found) == []) if said is None else all(word in " ".join(sentences(found)) for word in said)


def test_what_is_to_be_written_is_written_as_this_bmc_takes_it():
    (ami,) = bmc_server.read(recorded("ami_without_words"))["systems"]
    assert (
        "/redfish/v1/Systems/Self/Bios/SD" in ami["tasks"]["enabled"]
        and "redfish_config" not in ami["tasks"]["enabled"]
    )
    (boolean,) = bmc_server.read(small({"HyperThreading": False}, {}))["systems"]
    assert '{"HyperThreading": true}' in boolean["tasks"]["enabled"]
    (dell,) = bmc_server.read(small(ENABLED, {}, DELL))["systems"]
    assert dell["tasks"]["disabled"].startswith("dellemc.openmanage.idrac_bios: {apply_time: OnReset, ")
    assert bmc_server.read(with_two_systems(), ONE_THREAD, system="2")["agrees"] is True


def test_ansible_48296_an_old_ilo_sends_each_path_on_to_the_one_with_a_slash():
    """Also check_redfish 187, where it is the sign-in of an old Supermicro."""
    resources = small({"ProcHyperthreading": "Enabled"}, {})

    def without_slash(path, answer):
        def answered(handler):
            if handler.path.endswith("/"):
                send(handler, answer)
            else:
                send(handler, {}, 308, Location=f"https://{handler.headers['Host']}{path}/")

        return answered

    slow = {path: without_slash(path, answer) for path, answer in resources.items()}
    assert bmc_server.read(slow)["systems"][0]["state"] == "enabled"

    def sign_in(handler):
        if handler.path.endswith("/"):
            asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
            assert asked["Password"] == bmc_server.PASSWORD
            send(handler, {}, 201, **{"X-Auth-Token": bmc_server.TOKEN})
        else:
            send(handler, {}, 301, Location=f"{SESSIONS}/")

    found = bmc_server.read({**resources, SESSIONS: sign_in})
    assert found["systems"][0]["state"] == "enabled" and ["session" in one for one in found["problems"]] == [True]


def test_idrac_redfish_scripting_7_and_community_general_3686_an_old_bmc_lacks_a_path_and_certificates_are_checked():
    (system,) = bmc_server.read(small({}, Bios=lambda handler: send(handler, NO_PATH, 404)))["systems"]
    assert system["state"] == "unknown" and f"{SYSTEM}/Bios (status 404)" in system["problems"][0]
    # Also baremetal-operator 415 and jetlag 811, whose users had to find out what to set.
    with bmc_server.serving(small({})) as bmc:
        printed = bmc_server.run_module(bmc.host, ca_path=None)
    assert bmc.asked == [] and "ca_path" in printed and "validate_certs" in printed


@pytest.mark.parametrize("broken", [401, 403, 500, 503])
def test_check_redfish_198_a_session_is_ended_whatever_happens(broken):
    """Also badfish 447, gofish 75, Check_MK-Things 41."""
    resources = small({}, Bios=lambda handler: send(handler, b"{", broken))
    with bmc_server.serving(resources) as bmc, contextlib.suppress(client.RefusedError):
        bmc_server.read_from(bmc)
    assert bmc.sessions == 0 and bmc.asked[-1].startswith("DELETE ")


@pytest.mark.parametrize("source", ["python_redfish_library_107", "idrac_exporter_137"])
def test_where_the_session_is_has_an_address_instead_of_the_name_or_is_elsewhere(source):
    resources, place = small(ENABLED, {}), SESSIONS
    if source == "idrac_exporter_137":
        place = "/redfish/v1/Sessions"
        resources["/redfish/v1"]["Links"] = {"Sessions": {"@odata.id": place}}
    location = f"{'' if place != SESSIONS else 'https://192.0.2.20'}{place}/27e9"
    made = {"X-Auth-Token": bmc_server.TOKEN, "Location": location}
    with bmc_server.serving({**resources, place: lambda handler: send(handler, {}, 201, **made)}) as bmc:
        found = bmc_server.read_from(bmc)
    assert (found["problems"], found["systems"][0]["state"]) == ([], "enabled")
    assert bmc.asked[-1] == f"DELETE {place}/27e9"


FULL = {"error": {"@Message.ExtendedInfo": [{"Message": "The maximum number of user sessions is reached."}]}}
ROUND = small({})
ROUND["/redfish/v1/Systems"]["Members@odata.nextLink"] = "/redfish/v1/Systems?$skip=1"
ROUND["/redfish/v1/Systems?$skip=1"] = {"Members": [], "Members@odata.nextLink": "/redfish/v1/Systems"}
PROXY = {"/redfish/v1": lambda handler: send(handler, b"<html>ERR_DNS_FAIL", 503)}


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        pytest.param(
            {**small({}), SESSIONS: lambda handler: send(handler, FULL, 503)},
            r"status 503.*maximum number of user sessions",
            id="check_redfish_89",
        ),
        pytest.param(ROUND, "has pages without an end", id="redfishtool_48"),
        pytest.param(PROXY, r"/redfish/v1/ \(status 503\)", id="python_redfish_library_113"),
    ],
)
def test_why_there_is_no_answer(resources, said):
    with pytest.raises(client.RedfishError, match=said):
        bmc_server.read(resources)
