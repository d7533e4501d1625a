# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC that is broken, or hostile: where a client goes, what it reads, and what of the credentials is seen."""

from __future__ import annotations

import gzip
import json
import time

import bmc_server
import pytest
from ansible.module_utils.urls import open_url
from ansible_collections.threadwise.smt.plugins.module_utils._firmware import client
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border, schema

SMALL = {"LogicalProc": "Enabled"}
SYSTEM = "/redfish/v1/Systems/1"


def refusal(resources, **how):
    with pytest.raises(client.RedfishError) as caught:
        bmc_server.read(resources, **how)
    return str(caught.value)


def problem(resources, **how):
    """The problem of the only system."""
    (system,) = bmc_server.read(resources, **how)["systems"]
    return system["problems"][0]


# ---- where it goes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("bmc.example.com", "bmc.example.com"),
        (" https://bmc.example.com/ ", "bmc.example.com"),
        ("https://bmc.example.com:8443/redfish/v1/", "bmc.example.com:8443"),
        ("192.0.2.1:8443", "192.0.2.1:8443"),
        ("[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_an_address_is_read(given, host):
    assert client.host_of(given) == host


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("http://bmc.example.com", "for all to read"),
        ("https://me:s3cret@bmc.example.com", "as username and password"),
        ("me:s3cret@bmc.example.com", "as username and password"),
        ("bmc.example.com/redfish/v1/Systems", "has a path"),
        ("bmc.example.com?s3cret", "has a path"),
        ("ftp://bmc.example.com", "is no name"),
        ("bmc.example.com:99999", "is no name"),
        ("bmc example.com", "is no name"),
        ("", "is no name"),
        ("[::1", "is no name"),
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(given, reason):
    with pytest.raises(client.RedfishError, match=reason) as caught:
        client.host_of(given)
    assert "s3cret" not in str(caught.value)


ELSEWHERE = [
    "https://evil.example.com{path}",
    "//evil.example.com{path}",
    "http://{host}{path}",
    "https://{host}@evil.example.com{path}",
    "https://me@{host}{path}",
    "https://127.0.0.1:1{path}",
    "@evil.example.com{path}",
    ".evil.example.com{path}",
    "\\\\evil.example.com{path}",
    "/..{path}",
    "/a/../..{path}",
    "file:///etc/passwd",
    "https://[::1{path}",
    7,
    None,
    [],
    "",
    "/" + "x" * 2000,
]


@pytest.mark.parametrize("link", ELSEWHERE, ids=str)
def test_a_link_that_leads_elsewhere_is_not_followed(link):
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        path = f"{SYSTEM}/Bios"
        bad = link.format(host=bmc.host, path=path) if isinstance(link, str) else link
        bmc.resources[SYSTEM] = {"Bios": {"@odata.id": bad}} if bad else {"Bios": {"@odata.id": [bad, "x"]}}
        (system,) = bmc_server.read_from(bmc)["systems"]
    assert system["state"] == "unknown" and system["problems"], system
    assert not any("Bios" in line for line in bmc.asked)


@pytest.mark.parametrize("link", [link for link in ELSEWHERE if link], ids=str)
def test_the_password_is_not_sent_elsewhere(link):
    """Where a user signs in is a link, too."""
    with bmc_server.serving({}) as other, bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        bad = link.format(host=other.host, path=bmc_server.SESSIONS) if isinstance(link, str) else link
        bmc.resources["/redfish/v1"]["Links"] = {"Sessions": {"@odata.id": bad}}
        with pytest.raises(client.RedfishError, match=r"has a link|has no link"):
            bmc_server.read_from(bmc)
    assert bmc.asked == ["GET /redfish/v1/"] and other.asked == []


@pytest.mark.parametrize("link", ["https://{host}{path}", "https://{host}{path}#a", "{path}/", "{path}?a=b"])
def test_a_link_on_the_same_host_is_followed(link):
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        bmc.resources[SYSTEM] = {"Bios": {"@odata.id": link.format(host=bmc.host, path=f"{SYSTEM}/Bios")}}
        assert bmc_server.read_from(bmc)["systems"][0]["state"] == "enabled"


def test_a_blank_in_a_link_is_sent_as_one():
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        bmc.resources[SYSTEM] = {"Bios": {"@odata.id": f"{SYSTEM}/My Bios\r\nX: y"}}
        bmc_server.read_from(bmc)
    assert any(line.startswith(f"GET {SYSTEM}/My%20Bios") for line in bmc.asked)
    assert not any("X" in head for head in bmc.heads)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(status):
    with bmc_server.serving({}) as other, bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        location = f"https://{other.host}{SYSTEM}/Bios"
        bmc.resources[f"{SYSTEM}/Bios"] = lambda handler: bmc_server.send(handler, {}, status, Location=location)
        (system,) = bmc_server.read_from(bmc)["systems"]
    assert "a link to another host, which is not followed" in system["problems"][0] and other.asked == []


def test_a_redirect_that_comes_back_ends():
    def again(handler):
        bmc_server.send(handler, {}, 308, Location=handler.path)

    assert "from one path to the next without an end" in problem(bmc_server.small(SMALL, {}, Bios=again))


def test_a_redirect_without_a_place_is_none():
    def nowhere(handler):
        bmc_server.send(handler, {}, 302)

    assert "no link where there should be one" in problem(bmc_server.small(SMALL, {}, Bios=nowhere))


# ---- how much it reads -----------------------------------------------------------------------------------------------


def test_pages_that_lead_back_end():
    resources = bmc_server.small(SMALL, {})
    resources["/redfish/v1/Systems"]["Members@odata.nextLink"] = "/redfish/v1/Systems"
    assert "has pages without an end" in refusal(resources)


def test_pages_that_are_always_new_end():
    def page(handler):
        number = int(handler.path.partition("skip=")[2] or 0) + 1
        members = [{"@odata.id": SYSTEM}]
        bmc_server.send(handler, {"Members": members, "Members@odata.nextLink": f"/redfish/v1/Systems?skip={number}"})

    endless = {**bmc_server.small(SMALL, {}), "/redfish/v1/Systems": page}
    with bmc_server.serving(endless) as bmc, pytest.raises(client.RedfishError, match="has pages without an end"):
        bmc_server.read_from(bmc)
    assert len(bmc.asked) < 30 and bmc.sessions == 0


def test_a_collection_of_two_pages_is_read():
    resources = bmc_server.small(SMALL, {})
    resources["/redfish/v1/Systems"] = {"Members": [], "Members@odata.nextLink": "/redfish/v1/Systems?$skip=1"}
    resources["/redfish/v1/Systems?$skip=1"] = {"Members": [{"@odata.id": SYSTEM}]}
    assert bmc_server.read(resources)["systems"][0]["state"] == "enabled"


def test_more_systems_than_a_chassis_has_are_not_all_asked():
    resources = bmc_server.small(SMALL, {})
    resources["/redfish/v1/Systems"]["Members"] = [{"@odata.id": f"/redfish/v1/Systems/x{one}"} for one in range(60)]
    with bmc_server.serving(resources) as bmc:
        found = bmc_server.read_from(bmc)
    assert len(found["systems"]) == 32 and "of 60 systems the first 32 were read" in found["problems"][0]
    resources["/redfish/v1/Systems"]["Members"] *= 10
    assert "more than 500 members" in refusal(resources)


def test_requests_end(monkeypatch):
    monkeypatch.setattr(client, "MAX_REQUESTS", 4)
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        (system,) = bmc_server.read_from(bmc)["systems"]
    assert "takes more than 4 requests" in system["problems"][0]
    # The session is ended all the same.
    assert bmc.sessions == 0 and len(bmc.asked) <= 6


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_has_a_limit_of_size(monkeypatch, packed):
    monkeypatch.setattr(client, "MAX_BYTES", 1024 * 1024)
    huge = json.dumps({"Attributes": {"LogicalProc": "x" * 5_000_000}}).encode()

    def answer(handler):
        content = gzip.compress(huge) if packed else huge
        bmc_server.send(handler, content, **({"Content-Encoding": "gzip"} if packed else {}))

    assert "an answer is larger than 1 MiB" in problem(bmc_server.small(SMALL, {}, Bios=answer))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has 5000 digits"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b"[]", "it is no object"),
        (b'"text"', "it is no object"),
        (b"<html>\x1b[2J</html>", "is not what Redfish has"),
        (b"\xff\xfe\x00", "is not what Redfish has"),
    ],
    ids=range(8),
)
def test_what_is_no_object_of_json_is_refused(content, said):
    resources = bmc_server.small(SMALL, {}, Bios=lambda handler: bmc_server.send(handler, content))
    found = problem(resources)
    assert said in found and found.isprintable()


def test_a_packed_answer_is_read():
    content = gzip.compress(json.dumps({"Attributes": SMALL}).encode())
    packed = bmc_server.small(
        SMALL, {}, Bios=lambda handler: bmc_server.send(handler, content, **{"Content-Encoding": "gzip"})
    )
    assert bmc_server.read(packed)["systems"][0]["state"] == "enabled"


@pytest.mark.parametrize(
    ("content", "headers", "said"),
    [
        (gzip.compress(b"{}" * 5000)[:-9], {"Content-Encoding": "gzip"}, "broke off"),
        (b"no gzip", {"Content-Encoding": "gzip"}, "gzip"),
        (b"{}", {"Content-Encoding": "br"}, "packed as br"),
        (b"{}", {"Content-Length": "900"}, "broke off"),
    ],
    ids=range(4),
)
def test_an_answer_that_is_not_whole_is_refused(content, headers, said):
    def answer(handler):
        bmc_server.send(handler, content, **headers)
        handler.close_connection = True

    assert said in problem(bmc_server.small(SMALL, {}, Bios=answer))


def test_a_bmc_that_sends_its_headers_one_by_one_is_left():
    def drips(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(600):
            handler.wfile.write(f"X-{number}: y\r\n".encode())
            time.sleep(0.1)

    found = problem(bmc_server.small(SMALL, {}, Bios=drips), seconds=3)
    assert "no answer for /redfish/v1/Systems/1/Bios within" in found


def test_all_of_the_time_ends(monkeypatch):
    monkeypatch.setattr(client, "LIMITS_OF_ALL", 0)
    assert "its answers took all of the time there is; set a longer timeout" in refusal(bmc_server.small(SMALL, {}))


# ---- who it is -------------------------------------------------------------------------------------------------------


def test_the_user_signs_in_once_and_out_again():
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        bmc_server.read_from(bmc)
    assert bmc.sessions == 0 and bmc.asked[-1] == f"DELETE {bmc_server.SESSIONS}/7"
    assert [line for line in bmc.asked if line.startswith("POST")] == [f"POST {bmc_server.SESSIONS}"]
    # The root is for everybody; nothing but the sign-in has the password.
    assert "X-Auth-Token" not in bmc.heads[0] and not any("Authorization" in head for head in bmc.heads)


def test_without_sessions_each_request_has_the_password():
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        bmc_server.read_from(bmc, by_session=False)
    assert {head.get("Authorization") for head in bmc.heads[1:]} == {bmc_server.BASIC}
    assert "Authorization" not in bmc.heads[0] and {line.partition(" ")[0] for line in bmc.asked} == {"GET"}


def test_a_session_that_exists_already_is_not_ended():
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        found = bmc_server.read_from(bmc, user="", password="", token=bmc_server.TOKEN)
    assert found["systems"][0]["state"] == "enabled" and {line.partition(" ")[0] for line in bmc.asked} == {"GET"}


@pytest.mark.parametrize("by_session", [True, False])
def test_a_wrong_password_is_tried_once_and_not_shown(by_session):
    """Each try counts towards a lock; the BMC repeats what it got."""
    refused = pytest.raises(client.RefusedError, match="check username and password")
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc, refused as caught:
        bmc_server.read_from(bmc, by_session=by_session, password="wr0ng/word")
    assert len(bmc.asked) == 2
    assert "wr0ng" not in str(caught.value) and "cmVhZGVyOndy" not in str(caught.value)
    assert "(a secret)" in str(caught.value)


def test_a_session_that_ends_in_the_middle_ends_the_reading():
    resources = bmc_server.small(SMALL, {}, Bios=lambda handler: bmc_server.send(handler, {}, 401))
    with bmc_server.serving(resources) as bmc, pytest.raises(client.RefusedError):
        bmc_server.read_from(bmc)
    assert bmc.sessions == 0


def test_a_session_that_cannot_be_ended_is_a_problem():
    resources = {
        **bmc_server.small(SMALL, {}),
        f"{bmc_server.SESSIONS}/7": lambda handler: bmc_server.send(handler, {}, 500),
    }
    (said,) = bmc_server.read(resources)["problems"]
    assert said.startswith("the session stays open until the BMC ends it: ") and "status 500" in said


@pytest.mark.parametrize("headers", [{}, {"X-Auth-Token": "a b"}, {"X-Auth-Token": "x" * 5000}], ids=range(3))
def test_a_sign_in_without_a_usable_token_is_refused(headers):
    def signs_in(handler):
        bmc_server.send(handler, {}, 201, **headers)

    assert "without giving a token" in refusal({**bmc_server.small(SMALL, {}), bmc_server.SESSIONS: signs_in})


def test_a_bmc_without_sessions_says_what_to_set():
    resources = {**bmc_server.small(SMALL, {}), bmc_server.SESSIONS: lambda handler: bmc_server.send(handler, {}, 405)}
    assert refusal(resources).endswith("set auth_method to basic")


def test_where_a_session_is_counts_by_its_path_alone():
    def signs_in(handler):
        location = f"https://evil.example.com{bmc_server.SESSIONS}/9"
        bmc_server.send(handler, {}, 201, **{"X-Auth-Token": bmc_server.TOKEN, "Location": location})

    with bmc_server.serving({**bmc_server.small(SMALL, {}), bmc_server.SESSIONS: signs_in}) as bmc:
        bmc_server.read_from(bmc)
    assert bmc.asked[-1] == f"DELETE {bmc_server.SESSIONS}/9"


def test_the_certificate_is_checked():
    said = refusal(bmc_server.small(SMALL, {}), ca_path=None)
    assert "give the certificate of its CA as ca_path, or set validate_certs to false" in said
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc:
        assert bmc_server.read_from(bmc, ca_path=None, validate_certs=False)["systems"][0]["state"] == "enabled"


def test_before_the_certificate_is_checked_nothing_is_sent():
    with bmc_server.serving(bmc_server.small(SMALL, {})) as bmc, pytest.raises(client.RedfishError):
        bmc_server.read_from(bmc, ca_path=None)
    assert bmc.asked == []


def test_a_bmc_that_is_not_there_is_named():
    access = bmc_server.access("127.0.0.1:1")
    with pytest.raises(client.RedfishError, match=r"the BMC 127\.0\.0\.1:1 cannot be read .*refused"):
        client.Client(access, open_url).get(client.ROOT)


def test_texts_of_a_bmc_are_made_safe():
    evil = "\x1b[2Jx\u202e" * 100
    system = {"Manufacturer": evil, "Model": evil, "PowerState": evil, "BiosVersion": 7}
    found = bmc_server.read(bmc_server.small({f"HyperThreading\n{evil}": evil, "SMTMode": evil}, {}, system))
    assert json.dumps(found, ensure_ascii=False).isprintable()
    assert all(len(text) <= 200 for text in (found["systems"][0]["model"], found["systems"][0]["value"]))


def test_systems_that_are_no_list_are_none():
    assert refusal({**bmc_server.small(SMALL, {}), "/redfish/v1/Systems": {"Members": {"@odata.id": SYSTEM}}}) == (
        "the BMC has no system"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"/redfish/v1": {"Systems": 7, "Links": [], "Registries": None}},
        {"/redfish/v1/Systems": {"Members": [7, None, {"@odata.id": 9}]}},
        {SYSTEM: {"Bios": "x", "ProcessorSummary": 3, "PowerState": {}}},
        {SYSTEM: {"ProcessorSummary": {"Count": True, "CoreCount": -1, "LogicalProcessorCount": 1e9}}},
        {f"{SYSTEM}/Bios": {"Attributes": [1], "@Redfish.Settings": []}},
        {f"{SYSTEM}/Bios": {"Attributes": {"LogicalProc": {"a": 1}, "SMTMode": None}}},
        {f"{SYSTEM}/Bios": {"Attributes": SMALL, "AttributeRegistry": {"a": 1}}},
        {f"{SYSTEM}/Bios": {"Attributes": SMALL, "AttributeRegistry": "X"}, "/redfish/v1/Registries": {"Members": 1}},
        {
            f"{SYSTEM}/Bios": {"Attributes": SMALL, "AttributeRegistry": "/r"},
            "/r": {
                "RegistryEntries": {"Attributes": [{"AttributeName": "LogicalProc", "Value": [{"ValueName": []}, 1]}]}
            },
        },
        {f"{SYSTEM}/Bios": {"Attributes": SMALL, "AttributeRegistry": "/r"}, "/r": {"Location": [{"Language": 7}]}},
        {f"{SYSTEM}/Bios/Settings": {"Attributes": {"LogicalProc": ["Disabled"]}}},
    ],
    ids=range(11),
)
def test_a_field_of_another_type_is_not_there(change):
    """Whatever it is, there are facts, and the border takes them."""
    found = bmc_server.read({**bmc_server.small(SMALL, {}), **change}, bmc_server.kernel())
    schema.Checker(border.FIRMWARE).check(found)
    assert all(one["state"] in ("enabled", "unknown") and one["staged"] is None for one in found["systems"])
