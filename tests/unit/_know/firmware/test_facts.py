# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded forms of what BMCs answer, each served by a real HTTPS server and read by the real code; and a BMC that is
broken, or hostile: where a client goes, what it reads, and what of the credentials is seen.
"""

import gzip
import json
import time

import answer_maker
import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import client
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.firmware import Firmware

ED = ["Enabled", "Disabled"]
CPU01A, HT_ALL = [f"CPU01A{one}" for one in ("Auto", "Enabled", "Disabled")], "Hyper_Threading_ALL__F27F"
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
NO_REGISTRY = "the registry of its attributes cannot be read: the BMC "
# What each problem begins with.
PROBLEMS = {
    "cisco_cimc": [f"{NO_REGISTRY}has none of the name Cisco", "what is staged for the next boot is not known: "],
    "hpe_ilo4": [f"{NO_REGISTRY}HOST has no /redfish/v1/Registries (status 404): none"],
    "nvidia_grace": ["none of its 4 BIOS attributes is known to switch SMT: the processor may have none, as most for"],
    "openbmc": ["the BMC shows no BIOS attributes of this system: some do after the host's next start only"],
}


def test_each_recorded_form_says_where_it_is_from_and_has_an_expected_result():
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in bmc_server.RECORDED.glob("*.json")}
    assert files.keys() == EXPECTED.keys() and all(len(file["source"]) > 40 for file in files.values())


@pytest.mark.parametrize("form", EXPECTED)
def test_a_recorded_form_is_read(form):
    with bmc_server.serving(bmc_server.recorded(form)) as bmc:
        found = bmc_server.read_from(bmc)
    parts.converted(found, Firmware)
    system = found["systems"][-1]
    limits = [f"{one['attribute']}={one['value']}" for one in system["core_limits"]]
    fields = ("attribute", "value", "state", "staged", "allowed")
    assert (*(system[name] for name in fields), limits) == EXPECTED[form]
    said = zip([one.replace(bmc.host, "HOST") for one in system["problems"]], PROBLEMS.get(form, []), strict=True)
    assert all(one.startswith(begin) for one, begin in said), system["problems"]
    assert bmc.sessions == 0 and found["problems"] == []


def test_what_else_a_bmc_says_also_where_one_system_does_not_answer():
    found = bmc_server.read(bmc_server.recorded("dell_idrac9"))
    (system,) = found["systems"]
    assert (found["vendor"], found["redfish_version"], found["agrees"]) == ("Dell", "1.13.1", None)
    names = ("id", "manufacturer", "model", "bios_version", "power", "staged_value")
    expected = ("System.Embedded.1", "Dell Inc.", "PowerEdge R750", "1.8.2", "On", "Disabled")
    assert tuple(system[name] for name in names) == expected and "idrac_bios" in system["tasks"]["enabled"]
    assert system["processors"] == {"sockets": 2, "cores": 36, "threads": 72}
    (system,) = bmc_server.read(bmc_server.recorded("supermicro_x13"))["systems"]
    assert system["tasks"]["disabled"].endswith('bios_attributes: {"Hyper_Threading_ALL__F27F": "Disable"}}')
    resources = bmc_server.small({"LogicalProc": "Auto"}, {})
    resources[SYSTEMS]["Members"].insert(0, {"@odata.id": f"{SYSTEMS}/0"})
    resources[f"{SYSTEMS}/0"] = lambda handler: bmc_server.send(handler, b"<html>", 500)
    found = bmc_server.read(resources)["systems"]
    assert [system["state"] for system in found] == ["unknown", "auto"] and "status 500" in found[0]["problems"][0]


SEVERAL = bmc_server.small({"HyperThreading": "Enabled", "SMTMode": "Disabled"})
FORBIDS = {"Bios/Settings": lambda handler: bmc_server.send(handler, {}, 403)}


@pytest.mark.parametrize(
    ("resources", "expected", "said"),
    [
        (SEVERAL, (None, "unknown", None), "several attributes are about SMT, and do not say the same: "),
        (bmc_server.small({"LogicalProc": 7}, {}), ("LogicalProc", "unknown", None), "what LogicalProc=7 means"),
        (bmc_server.small({"LogicalProc": "Enabled"}, **FORBIDS), ("LogicalProc", "enabled", None), "is not known: "),
    ],
    ids=range(3),
)
def test_what_is_not_known_is_a_problem(resources, expected, said):
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
    firmware = answer_maker.accepted("smt_firmware_facts", json.dumps(answer))["ansible_facts"]["smt_firmware"]
    assert (answer["changed"], firmware["agrees"], firmware["systems"][0]["state"]) == (False, False, "enabled")
    assert [one["about"] for one in firmware["findings"]] == ["staged", "kernel"]
    # Nothing is written but the session.
    posted = [line for line in bmc.asked if not line.startswith("GET")]
    assert posted == [f"POST {bmc_server.SESSIONS}", f"DELETE {bmc_server.SESSIONS}/7"]
    # A machine between that runs the module may answer anything.
    for change in ({"bmc_address": "evil"}, {"smt_firmware": {**firmware, "x": 1}}):
        changed = {**answer, "ansible_facts": {**answer["ansible_facts"], **change}}
        with pytest.raises(text.BorderError):
            answer_maker.accepted("smt_firmware_facts", json.dumps(changed))


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
    answer = answer_maker.accepted("smt_firmware_facts", json.dumps(asked(bmc_server.small({}), **options)[0]))
    assert answer["failed"] and said in answer["msg"] and "exception" not in answer


SMALL = {"LogicalProc": "Enabled"}
SYSTEM, SYSTEMS = "/redfish/v1/Systems/1", "/redfish/v1/Systems"
BIOS = f"{SYSTEM}/Bios"


def small(**more):
    return bmc_server.small(SMALL, {}, **more)


def refusal(resources, **how):
    with pytest.raises(client.RedfishError) as caught:
        bmc_server.read(resources, **how)
    return str(caught.value)


def problem(answer, **how):
    """The problem of the only system, whose BIOS answers so."""
    (system,) = bmc_server.read(small(Bios=answer), **how)["systems"]
    found = system["problems"][0]
    assert found.isprintable()
    return found


PATH = "baseuri has a path in it: give the name or the address of the BMC alone"
NO_NAME = "baseuri is no name or address such as bmc.example.com, 192.0.2.1:8443 or"
USER = "baseuri has a user or a password in it: give them as username and password"


@pytest.mark.parametrize(
    ("given", "host", "said"),
    [
        (" https://bmc.example.com/ ", "bmc.example.com", None),
        ("https://bmc.example.com:8443/redfish/v1/", "bmc.example.com:8443", None),
        ("192.0.2.1:8443", "192.0.2.1:8443", None),
        ("[2001:db8::1]", "[2001:db8::1]", None),
        ("http://bmc.example.com", None, "baseuri begins with http://: the password would be sent for all to read"),
        *((one, None, USER) for one in ("https://me:s3cret@bmc.example.com", "me:s3cret@bmc.example.com")),
        *((one, None, PATH) for one in ("bmc.example.com/redfish/v1/Systems", "bmc.example.com?s3cret")),
        *((one, None, NO_NAME) for one in ("ftp://bmc.example.com", "bmc.example.com:99999", "bmc a", "", "[::1")),
    ],
)
def test_an_address_is_read_or_refused_and_not_shown(given, host, said):
    if said is None:
        assert client.host_of(given) == host
        return
    with pytest.raises(client.RedfishError) as caught:
        client.host_of(given)
    assert said in str(caught.value) and "s3cret" not in str(caught.value)


ELSEWHERE = ["https://{other}{path}", "https://{host}@{other}{path}", "http://{host}{path}", "//{other}{path}"]
ELSEWHERE += ["\\\\{other}{path}", "/a/../..{path}", "https://[::1{path}", 7]


@pytest.mark.night(after=5)
@pytest.mark.parametrize("link", ELSEWHERE, ids=str)
def test_a_link_that_leads_elsewhere_is_not_followed_nor_is_the_password_sent_there(link):
    def bad(path):
        return link if link == 7 else link.format(other=other.host, host=bmc.host, path=path)

    with bmc_server.serving({}) as other:
        with bmc_server.serving(small()) as bmc:
            bmc.resources[SYSTEM] = {"Bios": {"@odata.id": bad(BIOS)}}
            (system,) = bmc_server.read_from(bmc)["systems"]
        assert system["state"] == "unknown" and system["problems"] and not any("Bios" in line for line in bmc.asked)
        # Where a user signs in is a link, too.
        with bmc_server.serving(small()) as bmc:
            bmc.resources["/redfish/v1"]["Links"] = {"Sessions": {"@odata.id": bad(bmc_server.SESSIONS)}}
            with pytest.raises(client.RedfishError, match=r"has a link|has no link"):
                bmc_server.read_from(bmc)
        assert bmc.asked == ["GET /redfish/v1/"] and other.asked == []


@pytest.mark.night(after=1)
@pytest.mark.parametrize("status", [307, 301, 302, 303, 308])
def test_a_redirect_to_another_host_is_not_followed(status):
    with bmc_server.serving({}) as other:
        location = f"https://{other.host}{BIOS}"
        said = problem(lambda handler: bmc_server.send(handler, {}, status, Location=location))
    assert "a link to another host, which is not followed" in said and other.asked == []


def sends(content, status=200, **headers):
    def answer(handler):
        bmc_server.send(handler, content, status, **headers)
        handler.close_connection = True

    return answer


GZIP = {"Content-Encoding": "gzip"}
HUGE = json.dumps({"Attributes": {"LogicalProc": "x" * 2_000_000}}).encode()
OTHER = "is not what Redfish has: "


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda it: bmc_server.send(it, {}, 308, Location=it.path), "from one path to the next without an end"),
        (sends({}, 302), "has no link where there should be one"),
        *(
            (sends(content, **head), "an answer is larger than 1 MiB")
            for content, head in ((HUGE, {}), (gzip.compress(HUGE), GZIP))
        ),
        (sends(b"[" * 200_000), OTHER + "nested too deeply"),
        (sends(b'{"a": ' + b"9" * 5000 + b"}"), "has 5000 digits"),
        (sends(b'"text"'), OTHER + "it is no object"),
        *((sends(content), OTHER) for content in (b"<html>\x1b[2J</html>", b"\xff\xfe\x00")),
        (sends(gzip.compress(b"{}" * 5000)[:-9], **GZIP), "an answer broke off: "),
        (sends(b"no gzip", **GZIP), "ot a gzipped file"),
        (sends(b"{}", **{"Content-Encoding": "br"}), "an answer is packed as br, which nobody asked for"),
        (sends(b"{}", **{"Content-Length": "900"}), "an answer broke off: "),
        (sends({}, 500), "does not answer "),
        (sends({}, 403), "check the role of the user, and the licence of the BMC"),
    ],
    ids=range(15),
)
def test_what_is_no_answer_is_a_problem(answer, said, monkeypatch):
    monkeypatch.setattr(client, "MAX_BYTES", 1024 * 1024)
    assert said in problem(answer)


def test_a_bmc_that_sends_its_headers_one_by_one_is_left():
    def drips(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(600):
            handler.wfile.write(f"X-{number}: y\r\n".encode())
            time.sleep(0.1)

    assert f"no answer for {BIOS} within 2 s" in problem(drips, seconds=1)


def test_pages_that_are_always_new_end():
    def page(handler):
        number = int(handler.path.partition("skip=")[2] or 0) + 1
        members = [{"@odata.id": SYSTEM}]
        bmc_server.send(handler, {"Members": members, "Members@odata.nextLink": f"{SYSTEMS}?skip={number}"})

    endless = pytest.raises(client.RedfishError, match="has pages without an end")
    with endless, bmc_server.serving({**small(), SYSTEMS: page}) as bmc:
        bmc_server.read_from(bmc)
    assert len(bmc.asked) < 30 and bmc.sessions == 0


def test_systems_requests_and_time_have_an_end(monkeypatch):
    resources = small()
    assert refusal({**resources, SYSTEMS: {"Members": {"@odata.id": SYSTEM}}}) == "the BMC has no system"
    resources[SYSTEMS]["Members"] = [{"@odata.id": f"{SYSTEMS}/x{one}"} for one in range(501)]
    assert "more than 500 members" in refusal(resources)
    del resources[SYSTEMS]["Members"][33:]
    found = bmc_server.read(resources)
    assert len(found["systems"]) == 32 and "of 33 systems the first 32 were read" in found["problems"][0]
    monkeypatch.setattr(client, "MAX_REQUESTS", 4)
    with bmc_server.serving(small()) as bmc:
        (system,) = bmc_server.read_from(bmc)["systems"]
    assert "takes more than 4 requests" in system["problems"][0]
    # The session is ended all the same.
    assert bmc.sessions == 0 and len(bmc.asked) <= 6
    monkeypatch.setattr(client, "LIMITS_OF_ALL", 0)
    assert "its answers took all of the time there is; set a longer timeout" in refusal(small())


def test_the_user_signs_in_once_and_out_again_or_sends_the_password_or_has_a_session():
    with bmc_server.serving(small()) as bmc:
        bmc_server.read_from(bmc)
        assert bmc.sessions == 0 and bmc.asked[-1] == f"DELETE {bmc_server.SESSIONS}/7"
        assert [line for line in bmc.asked if line.startswith("POST")] == [f"POST {bmc_server.SESSIONS}"]
        # The root is for everybody; nothing but the sign-in has the password.
        assert "X-Auth-Token" not in bmc.heads[0] and not any("Authorization" in head for head in bmc.heads)
    for how in ({"by_session": False}, {"user": "", "password": "", "token": bmc_server.TOKEN}):
        with bmc_server.serving(small()) as bmc:
            assert bmc_server.read_from(bmc, **how)["systems"][0]["state"] == "enabled"
        expected = None if "token" in how else bmc_server.BASIC
        assert {head.get("Authorization") for head in bmc.heads[1:]} == {expected}
        assert "Authorization" not in bmc.heads[0] and {line.partition(" ")[0] for line in bmc.asked} == {"GET"}


@pytest.mark.parametrize("by_session", [True, False])
def test_a_wrong_password_is_tried_once_and_not_shown(by_session):
    """Each try counts towards a lock; the BMC repeats what it got."""
    refused = pytest.raises(client.RefusedError, match="check username and password")
    with bmc_server.serving(small()) as bmc, refused as caught:
        bmc_server.read_from(bmc, by_session=by_session, password="wr0ng/word")
    said = str(caught.value)
    assert len(bmc.asked) == 2 and "(a secret)" in said and "wr0ng" not in said and "cmVhZGVyOndy" not in said


def test_a_bmc_without_sessions_says_what_to_set():
    for answer in (sends({}, 201), sends({}, 201, **{"X-Auth-Token": "a b"}), sends({}, 405)):
        assert refusal({**small(), bmc_server.SESSIONS: answer}).endswith(": set auth_method to basic")


def test_texts_of_a_bmc_are_made_safe():
    evil = "\x1b[2Jx\u202e" * 100
    system = {"Manufacturer": evil, "Model": evil, "PowerState": evil, "BiosVersion": 7}
    found = bmc_server.read(bmc_server.small({f"HyperThreading\n{evil}": evil, "SMTMode": evil}, {}, system))
    assert json.dumps(found, ensure_ascii=False).isprintable()
    assert all(len(text) <= 200 for text in (found["systems"][0]["model"], found["systems"][0]["value"]))


VALUE = {"AttributeName": "LogicalProc", "Value": [{"ValueName": []}, 1]}
BY_PATH = {"Attributes": SMALL, "AttributeRegistry": "/r"}


@pytest.mark.night(after=6)
@pytest.mark.parametrize(
    "change",
    [
        {"/redfish/v1": {"Systems": 7, "Links": [], "Registries": None}},
        {SYSTEM: {"ProcessorSummary": {"Count": True, "CoreCount": -1, "LogicalProcessorCount": 1e9}}},
        {BIOS: {"Attributes": {"LogicalProc": {"a": 1}, "SMTMode": None}}},
        {BIOS: BY_PATH, "/r": {"RegistryEntries": {"Attributes": [VALUE]}}},
        {f"{BIOS}/Settings": {"Attributes": {"LogicalProc": ["Disabled"]}}},
        {BIOS: {"Attributes": SMALL, "AttributeRegistry": "X"}, "/redfish/v1/Registries": {"Members": 1}},
    ],
    ids=str,
)
def test_a_field_of_another_type_is_not_there(change):
    """Whatever it is, there are facts, and the border takes them."""
    found = bmc_server.read({**small(), **change}, bmc_server.kernel())
    parts.converted(found, Firmware)
    assert all(one["state"] in ("enabled", "unknown") and one["staged"] is None for one in found["systems"])
