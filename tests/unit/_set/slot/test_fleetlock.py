# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of FleetLock, alerts that forbid a reboot, and servers that do something else."""

from __future__ import annotations

import itertools
import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import alerts, exchange, fleetlock, request
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.exchange import RefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.fleetlock import ACQUIRE, RELEASE
from fleetlock_server import FULL, FleetLock
from prometheus_server import free_port, raw, send, serving

CONFLICT = "conflict on semaphore detected, aborting"


@pytest.fixture(name="server")
def a_server():
    with FleetLock().running() as server:
        yield server


def refusal(url, endpoint=ACQUIRE, host="a"):
    with pytest.raises(RefusedError) as raised:
        fleetlock.ask(url, endpoint, "db", host)
    said = str(raised.value)
    assert said.startswith(url) and "\n" not in said and len(said) < 600
    return said.removeprefix(url)


def test_a_slot_is_held_until_it_is_given_back_and_no_proxy_is_asked(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for _again in range(2):
        fleetlock.ask(server.url, ACQUIRE, "db", "a")
    assert server.holders == {"db": {"a"}}
    assert refusal(server.url, host="b") == f" answers with status 423: {FULL['value']}"
    fleetlock.ask(f"{server.url}/base", ACQUIRE, "web", "b")
    for _again in range(2):
        fleetlock.ask(server.url, RELEASE, "db", "a")
    fleetlock.ask(server.url, ACQUIRE, "db", "b")
    assert server.holders == {"db": {"b"}, "web": {"b"}}


def conflicts(server, monkeypatch, number):
    """Let so many requests of each endpoint cross those of other hosts, as airlock says it."""
    monkeypatch.setattr(fleetlock, "AGAIN_PAUSES", (0.0,) * 3)
    left, paths = [number], []

    def before(path):
        paths.append(path.rpartition("/")[2])
        server.answer = (500, {"kind": "failed_lock", "value": CONFLICT}) if left[0] > 0 else None
        left[0] -= 1

    server.before = before
    return paths


def test_a_slot_that_is_given_back_while_another_host_asks_is_given_back_but_not_for_ever(server, monkeypatch):
    fleetlock.ask(server.url, ACQUIRE, "db", "a")
    paths = conflicts(server, monkeypatch, 3)
    fleetlock.ask(server.url, RELEASE, "db", "a")
    assert paths == [RELEASE] * 4 and server.holders == {"db": set()}
    paths = conflicts(server, monkeypatch, 1000)
    assert refusal(server.url, RELEASE) == f" answers with status 500: {CONFLICT}" and paths == [RELEASE] * 4
    # Nor longer than its time, whatever pauses are left.
    monkeypatch.setattr(fleetlock, "AGAIN_SECONDS", -1.0)
    refusal(server.url, RELEASE)
    assert paths == [RELEASE] * 5


def test_a_slot_is_asked_for_once_and_a_wrong_request_is_not_repeated(server, monkeypatch):
    paths = conflicts(server, monkeypatch, 1)
    assert CONFLICT in refusal(server.url) and paths == [ACQUIRE]
    server.before, server.answer = paths.append, (400, {"kind": "unknown_group", "value": "no such group"})
    assert refusal(server.url, RELEASE) == " answers with status 400: no such group" and len(paths) == 2


def answer(body, status="200 OK", *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers])
    return head.encode() + b"\r\n\r\n" + content


HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"
OTHER = " answers with status 200, and not as FleetLock does: is it the address of such a server?"
SILENT = " does not answer: nothing came for 1 s"
BROKEN = " cannot be reached, or its answer breaks off: "
LATE = " does not answer within 1 s"


@pytest.mark.parametrize("body", [b"", b"obtained reboot lease", {"kind": "success", "value": "successful"}])
def test_what_servers_say_of_a_yes(body):
    with raw(answer(body)) as url:
        fleetlock.ask(url, ACQUIRE, "db", "a")


@pytest.mark.night(after=8)
@pytest.mark.parametrize(
    ("pieces", "drips", "said"),
    [
        ([answer(HTML)], (), OTHER),
        ([b"HTTP/1.1 200 OK\r\n"], (b"X-", 0.02), LATE),
        ([answer(b"etcd\x1b[31m is\ndown", "500 x")], (), r" answers with status 500: etcd\x1b[31m is down"),
        (
            [answer(b"", "302 x", "Location: http://127.0.0.1:1/")],
            (),
            " redirects to http://127.0.0.1:1/, which is not",
        ),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"], (b"x" * 65536,), OTHER),
        ([], (), SILENT),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], (), BROKEN),
        *(([answer(one)], (), OTHER) for one in ({"status": "ok"}, {"kind": 1, "value": "x"}, ["kind", "value"])),
        ([answer(b"", "307 x")], (), " redirects to nowhere, which is not followed: give the server's own address"),
        ([], (b"X-More: 1\r\n", 0.02), BROKEN),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"], (b"x", 0.02), LATE),
    ],
    ids=itertools.count(),
)
def test_what_is_no_yes(monkeypatch, pieces, drips, said):
    monkeypatch.setattr(exchange, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", 1.0 if said == LATE else 4.0)
    with raw(*pieces, drips=drips) as url:
        assert refusal(url).startswith(said)


def test_who_is_not_there_redirects_or_speaks_no_tls(server):
    for host in ("127.0.0.1", "no-such-host.invalid"):
        assert refusal(f"http://{host}:{free_port()}").startswith(BROKEN)
    with raw(answer(b"", "307 Temporary Redirect", f"Location: {server.url}/v1/pre-reboot")) as url:
        assert " redirects " in refusal(url)
    assert refusal(server.url.replace("http:", "https:")).startswith(" cannot be trusted: ") and server.asked == []


def test_tls_by_the_certificates_of_the_host(monkeypatch):
    with FleetLock(certificate=bmc_server.certificate()).running() as server:
        assert refusal(server.url).startswith(" cannot be trusted: self")
        # Where OpenSSL looks for the certificates of a system.
        monkeypatch.setenv("SSL_CERT_FILE", bmc_server.certificate()[0])
        assert refusal(server.url.replace("127.0.0.1", "localhost")).startswith(" cannot be trusted: ")
        assert server.asked == []
        fleetlock.ask(server.url, ACQUIRE, "db", "a")
        assert server.holders == {"db": {"a"}}


def refused(url, query="ALERTS"):
    """Return why a reboot is forbidden; empty where it is not."""
    try:
        alerts.ask(request.parse_alerts({"prometheus": url, "query": query}))
    except exchange.RefusedError as error:
        return str(error)
    return ""


def result(kind, found, **more):
    return {"status": "success", "data": {"resultType": kind, "result": found}, **more}


def vector(*metrics, **more):
    return result("vector", [{"metric": metric, "value": [1, "1"]} for metric in metrics], **more)


NOT_SO = "does not answer as Prometheus does"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vector(), ""),
        (vector(warnings=["PromQL info: metric might not be a counter"]), ""),
        (vector(*[{"alertname": f"A{number}"} for number in range(5)]), "alerts forbid it: A0, A1, A2 and 2 more"),
        (vector({"alertname": "A\x1b[2J\nB", "instance": ["x"]}), "alerts forbid it: A\\x1b[2J B of ['x']"),
        (vector(isPartial=True), "alerts are not all known: {} says that its answer is partial"),
        (vector(warnings=["No StoreAPIs matched"]), "alerts are not all known: {} says No StoreAPIs matched"),
        (vector(warnings="x"), "alerts are not all known: {} says x"),
        *((vector(one), NOT_SO) for one in (7, None)),
        *((result("vector", one), NOT_SO) for one in ([7], 7, {}, "")),
        *((one, "{} answers with status 200, and not as Prometheus does") for one in ([], "<html>")),
        (
            vector({"__name__": "queue", "instance": "h1"}, {}),
            "alerts forbid it: queue of h1, a result without a name ({})",
        ),
        *(
            (result(kind, [1, "17"]), f"alerts are not known: query gives a {kind}, and a list of alerts is needed")
            for kind in ("scalar", "matrix")
        ),
        ({"status": "error", "error": "parse error"}, "alerts are not known: {} says parse error"),
        (vector({"alertname": "x" * 2**20}), "alerts are not known: {} answers with more than 1024 KiB"),
    ],
    ids=range(20),
)
def test_what_other_servers_say(answer, said):
    body = answer if isinstance(answer, str) else json.dumps(answer)
    with serving(lambda handler: send(handler, body)) as url:
        found = refused(url)
        assert (said.format(url) in found) if said else found == ""
    assert found.isprintable() and len(found) < 600


def test_a_server_that_cannot_be_asked_forbids_it():
    assert "cannot be reached" in refused(f"http://127.0.0.1:{free_port()}")
    with serving(lambda handler: send(handler, "", 503)) as url:
        assert "answers with status 503, and not as Prometheus does" in refused(url)
