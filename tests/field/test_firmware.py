# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about other tools that read a BIOS by Redfish, each tried on ours with a BMC on loopback.

A test is named after its source.
"""

from __future__ import annotations

import contextlib
import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._firmware import client

SYSTEM = "/redfish/v1/Systems/1"


def sentences(found):
    return [one["sentence"] for one in found["findings"]]


def test_idrac_redfish_scripting_33_the_bmc_says_enabled_and_the_kernel_has_no_more_cpus():
    resources = bmc_server.small({"LogicalProc": "Enabled"}, {}, {"Manufacturer": "Dell Inc."})
    found = bmc_server.read(resources, bmc_server.ONE_THREAD)
    (said,) = sentences(found)
    assert found["agrees"] is False
    assert said.startswith("the firmware says LogicalProc=Enabled, and the kernel shows one thread a core: ")
    # What helped there in the end: another start, and the value set once more.
    assert (
        "Power the host off and on; if that changes nothing, set the value once more" in said and "idrac_bios" in said
    )


def test_terraform_provider_redfish_231_what_is_pending_stays_so_without_a_job():
    """Also iDRAC-Redfish-Scripting 176."""
    resources = bmc_server.small({"LogicalProc": "Enabled"}, {"LogicalProc": "Disabled"}, {"Manufacturer": "Dell Inc."})
    found = bmc_server.read(resources, bmc_server.kernel())
    assert found["agrees"] is True and found["systems"][0]["staged"] == "disabled"
    (said,) = sentences(found)
    assert said == (
        "LogicalProc=Disabled is pending until the next boot; LogicalProc=Enabled is in force. iDRAC applies it only"
        " with a configuration job, which dellemc.openmanage.idrac_bios makes"
    )
    assert found["systems"][0]["tasks"]["disabled"].startswith("dellemc.openmanage.idrac_bios: {apply_time: OnReset, ")


def test_bmclib_468_what_is_staged_counts_beside_what_is_applied():
    """Whoever compares with what is applied alone finds nothing to do, and the other value comes with the boot."""
    found = bmc_server.read(bmc_server.small({"ProcSMT": "Enabled"}, {"ProcSMT": "Disabled", "ProcX2Apic": "Auto"}))
    (system,) = found["systems"]
    assert (system["state"], system["staged"]) == ("enabled", "disabled")
    found = bmc_server.read(bmc_server.small({"ProcSMT": "Enabled"}, {"ProcSMT": "Enabled", "ProcX2Apic": "Auto"}))
    assert found["systems"][0]["staged"] is None and found["findings"] == []


def test_community_general_6433_a_bmc_does_not_say_where_it_stages():
    """Also Redfish-Tacklebox 55: the settings of AMI's BMCs are at Bios/SD; redfish_config refuses to write there."""
    (system,) = bmc_server.read(bmc_server.recorded("ami_without_words"))["systems"]
    assert (system["state"], system["staged"], system["problems"]) == ("disabled", "enabled", [])
    assert "/redfish/v1/Systems/Self/Bios/SD" in system["tasks"]["enabled"]
    assert "redfish_config" not in system["tasks"]["enabled"]


def test_redfish_tacklebox_185_staged_settings_have_no_attributes():
    """Also powershell-redfish-lenovo 138."""
    resources = bmc_server.small({"SMTControl": "Auto"}, {})
    resources[f"{SYSTEM}/Bios/Settings"] = {"Id": "SD", "AttributeRegistry": "x"}
    (system,) = bmc_server.read(resources)["systems"]
    assert (system["state"], system["staged"], system["problems"]) == ("auto", None, [])


def test_ansible_48296_an_ilo_4_has_its_attributes_beside_everything_else():
    (system,) = bmc_server.read(bmc_server.recorded("hpe_ilo4"))["systems"]
    assert (system["attribute"], system["state"]) == ("ProcHyperthreading", "disabled")


def test_ansible_48296_an_old_ilo_sends_each_path_on_to_the_one_with_a_slash():
    """Also check_redfish 187, where it is the sign-in of an old Supermicro."""
    resources = bmc_server.small({"ProcHyperthreading": "Enabled"}, {})

    def without_slash(path, answer):
        def send(handler):
            if handler.path.endswith("/"):
                bmc_server.send(handler, answer)
            else:
                bmc_server.send(handler, {}, 308, Location=f"https://{handler.headers['Host']}{path}/")

        return send

    slow = {path: without_slash(path, answer) for path, answer in resources.items()}
    assert bmc_server.read(slow)["systems"][0]["state"] == "enabled"

    def sign_in(handler):
        if handler.path.endswith("/"):
            asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
            assert asked["Password"] == bmc_server.PASSWORD
            bmc_server.send(handler, {}, 201, **{"X-Auth-Token": bmc_server.TOKEN})
        else:
            bmc_server.send(handler, {}, 301, Location=f"{bmc_server.SESSIONS}/")

    found = bmc_server.read({**resources, bmc_server.SESSIONS: sign_in})
    assert found["systems"][0]["state"] == "enabled"
    assert found["problems"] == ["the session stays open until the BMC ends it: it did not say where its session is"]


def test_ansible_68251_a_boolean_is_written_as_one():
    (system,) = bmc_server.read(bmc_server.small({"HyperThreading": False}, {}))["systems"]
    assert (system["value"], system["state"]) == ("false", "disabled")
    assert '{"HyperThreading": true}' in system["tasks"]["enabled"]


def test_community_general_9234_of_several_systems_one_has_to_be_named():
    resources = bmc_server.small({"LogicalProc": "Enabled"}, {})
    resources["/redfish/v1/Systems"]["Members"].append({"@odata.id": "/redfish/v1/Systems/2"})
    resources["/redfish/v1/Systems/2"] = {"Bios": {"@odata.id": "/redfish/v1/Systems/2/Bios"}}
    resources["/redfish/v1/Systems/2/Bios"] = {"Attributes": {"LogicalProc": "Disabled"}}
    found = bmc_server.read(resources, bmc_server.ONE_THREAD)
    assert found["agrees"] is None and sentences(found)[-1].endswith("Set resource_id")
    assert bmc_server.read(resources, bmc_server.ONE_THREAD, system="2")["agrees"] is True


def test_libredfish_124_the_board_of_the_gpus_is_first_and_has_a_bios_too():
    """Also libredfish 89 and 107."""
    resources = bmc_server.recorded("nvidia_dgx")
    board = "/redfish/v1/Systems/HGX_Baseboard_0"
    resources[board]["Bios"] = {"@odata.id": f"{board}/Bios"}
    resources[f"{board}/Bios"] = {"Attributes": {"EGM": False}}
    found = bmc_server.read(resources, bmc_server.kernel())
    assert (found["agrees"], found["findings"]) == (True, [])


@pytest.mark.parametrize("attributes", [None, {}])
def test_bmcweb_1007_the_attributes_are_null(attributes):
    """Also bmcweb 210."""
    (system,) = bmc_server.read(bmc_server.small(attributes, {}))["systems"]
    assert system["state"] == "unknown" and "shows no BIOS attributes" in system["problems"][0]


def test_idrac_redfish_scripting_7_an_old_bmc_does_not_know_the_path():
    error = {"error": {"code": "1", "message": {"lang": "en-us", "value": "failed: Request URI is invalid"}}}
    resources = bmc_server.small({}, Bios=lambda handler: bmc_server.send(handler, error, 404))
    (system,) = bmc_server.read(resources)["systems"]
    assert system["state"] == "unknown" and "has no /redfish/v1/Systems/1/Bios (status 404)" in system["problems"][0]


@pytest.mark.parametrize("broken", [401, 403, 500, 503])
def test_check_redfish_198_a_session_is_ended_whatever_happens(broken):
    """Also badfish 447, gofish 75, Check_MK-Things 41."""
    resources = bmc_server.small({}, Bios=lambda handler: bmc_server.send(handler, b"{", broken))
    with bmc_server.serving(resources) as bmc, contextlib.suppress(client.RefusedError):
        bmc_server.read_from(bmc)
    assert bmc.sessions == 0 and bmc.asked[-1].startswith("DELETE ")


def test_check_redfish_89_a_bmc_without_a_free_session_says_so():
    full = {"error": {"@Message.ExtendedInfo": [{"Message": "The maximum number of user sessions is reached."}]}}
    resources = {**bmc_server.small({}), bmc_server.SESSIONS: lambda handler: bmc_server.send(handler, full, 503)}
    with pytest.raises(client.RedfishError, match=r"status 503.*maximum number of user sessions"):
        bmc_server.read(resources)


def test_python_redfish_library_107_where_the_session_is_has_the_address_instead_of_the_name():
    def sign_in(handler):
        location = f"https://192.0.2.20{bmc_server.SESSIONS}/27e9"
        bmc_server.send(handler, {}, 201, **{"X-Auth-Token": bmc_server.TOKEN, "Location": location})

    with bmc_server.serving({**bmc_server.small({"SMTMode": "Auto"}, {}), bmc_server.SESSIONS: sign_in}) as bmc:
        assert bmc_server.read_from(bmc)["problems"] == []
    assert bmc.asked[-1] == f"DELETE {bmc_server.SESSIONS}/27e9"


def test_idrac_exporter_137_an_idrac_8_makes_sessions_elsewhere():
    resources = bmc_server.small({"LogicalProc": "Enabled"}, {})
    resources["/redfish/v1"]["Links"] = {"Sessions": {"@odata.id": "/redfish/v1/Sessions"}}
    resources["/redfish/v1/Sessions"] = lambda handler: bmc_server.send(
        handler, {}, 201, **{"X-Auth-Token": bmc_server.TOKEN, "Location": "/redfish/v1/Sessions/4"}
    )
    with bmc_server.serving(resources) as bmc:
        assert bmc_server.read_from(bmc)["systems"][0]["state"] == "enabled"
    assert bmc.asked[-1] == "DELETE /redfish/v1/Sessions/4"


def test_redfishtool_48_pages_that_go_round():
    resources = bmc_server.small({})
    resources["/redfish/v1/Systems"]["Members@odata.nextLink"] = "/redfish/v1/Systems?$skip=1"
    resources["/redfish/v1/Systems?$skip=1"] = {"Members": [], "Members@odata.nextLink": "/redfish/v1/Systems"}
    with pytest.raises(client.RedfishError, match="has pages without an end"):
        bmc_server.read(resources)


def registry(name, **more):
    entry = {"AttributeName": "X1", "DisplayName": "SMT Control", "Value": [{"ValueName": "Auto"}]}
    return {"Id": name, "RegistryEntries": {"Attributes": [entry]}, **more}


def test_community_general_7144_a_registry_is_the_one_that_the_bios_names():
    """Its name need not have the word attribute in it, and others have."""
    resources = bmc_server.small({"X1": "Auto"}, {}, bios={"AttributeRegistry": "VendorBios.v1_0_3"})
    files = ["NetworkAttributeRegistry.v1_0_0", "VendorBios.v1_0_0", "BiosAttributeRegistry"]
    resources["/redfish/v1/Registries"] = {"Members": [{"@odata.id": f"/redfish/v1/Registries/{one}"} for one in files]}
    resources["/redfish/v1/Registries/VendorBios.v1_0_0"] = {"Location": [{"Language": "en", "Uri": "/files/bios"}]}
    resources["/files/bios"] = registry("VendorBios.v1_0_3")
    (system,) = bmc_server.read(resources)["systems"]
    assert (system["attribute"], system["state"], system["allowed"]) == ("X1", "auto", ["Auto"])


def test_redfish_service_validator_359_the_registry_stands_where_its_file_should():
    (system,) = bmc_server.read(bmc_server.recorded("ami_without_words"))["systems"]
    assert system["allowed"] == ["CPU01AAuto", "CPU01AEnabled", "CPU01ADisabled"]


def test_community_general_3686_the_certificate_is_checked():
    """Also baremetal-operator 415 and jetlag 811, whose users had to find out what to set."""
    with bmc_server.serving(bmc_server.small({})) as bmc:
        printed = bmc_server.run_module(bmc.host, ca_path=None)
    assert bmc.asked == [] and "give the certificate of its CA as ca_path, or set validate_certs to false" in printed


def test_python_redfish_library_113_a_proxy_answers_in_its_place():
    with (
        bmc_server.serving(
            {"/redfish/v1": lambda handler: bmc_server.send(handler, b"<html>ERR_DNS_FAIL", 503)}
        ) as bmc,
        pytest.raises(client.RedfishError, match=r"does not answer /redfish/v1/ \(status 503\)"),
    ):
        bmc_server.read_from(bmc)


def test_performance_addon_operators_567_nosmt_is_no_disagreement_of_the_firmware():
    offline = bmc_server.kernel(active=False, control="forceoff", boot={"running": ["nosmt=force"]})
    found = bmc_server.read(bmc_server.small({"LogicalProc": "Enabled"}, {}), offline)
    assert (found["agrees"], found["findings"]) == (True, [])


def test_smartos_live_849_a_kernel_that_was_started_with_fewer_cpus():
    hidden = {**bmc_server.ONE_THREAD, "boot": {"running": ["nr_cpus=20"]}}
    found = bmc_server.read(bmc_server.small({"LogicalProc": "Enabled"}, {}), hidden)
    assert (
        found["agrees"] is None and "was started with nr_cpus=20, which may hide second threads" in sentences(found)[0]
    )
