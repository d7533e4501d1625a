# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of FleetLock, and servers that do something else."""

from __future__ import annotations

import itertools
import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._slot import exchange, fleetlock
from ansible_collections.threadwise.smt.plugins.module_utils._slot.exchange import RefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._slot.fleetlock import ACQUIRE, RELEASE
from fleetlock_server import FULL, FleetLock
from prometheus_server import free_port, raw

CONFLICT = "conflict on semaphore detected, aborting"


@pytest.fixture(name="server")
def a_server():
    with FleetLock().running() as server:
        yield server


def test_a_slot_is_held_until_it_is_given_back(server):
    fleetlock.ask(server.url, ACQUIRE, "db", "a")
    fleetlock.ask(server.url, ACQUIRE, "db", "a")
    assert server.holders == {"db": {"a"}}
    with pytest.raises(RefusedError) as raised:
        fleetlock.ask(server.url, ACQUIRE, "db", "b")
    assert str(raised.value) == f"{server.url} answers with status 423: {FULL['value']}"
    fleetlock.ask(server.url, ACQUIRE, "web", "b")
    fleetlock.ask(server.url, RELEASE, "db", "a")
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


def test_a_slot_that_is_given_back_while_another_host_asks_is_given_back(server, monkeypatch):
    fleetlock.ask(server.url, ACQUIRE, "db", "a")
    paths = conflicts(server, monkeypatch, 3)
    fleetlock.ask(server.url, RELEASE, "db", "a")
    assert paths == [RELEASE] * 4 and server.holders == {"db": set()}


def test_that_is_not_asked_for_ever(server, monkeypatch):
    paths = conflicts(server, monkeypatch, 1000)
    with pytest.raises(RefusedError, match=f"answers with status 500: {CONFLICT}"):
        fleetlock.ask(server.url, RELEASE, "db", "a")
    assert paths == [RELEASE] * 4
    # Nor longer than its time, whatever pauses are left.
    monkeypatch.setattr(fleetlock, "AGAIN_SECONDS", -1.0)
    with pytest.raises(RefusedError):
        fleetlock.ask(server.url, RELEASE, "db", "a")
    assert paths == [RELEASE] * 5


def test_a_slot_is_asked_for_once_and_a_wrong_request_is_not_repeated(server, monkeypatch):
    paths = conflicts(server, monkeypatch, 1)
    with pytest.raises(RefusedError, match=CONFLICT):
        fleetlock.ask(server.url, ACQUIRE, "db", "a")
    assert paths == [ACQUIRE]
    server.before, server.answer = paths.append, (400, {"kind": "unknown_group", "value": 'unknown group "db"'})
    with pytest.raises(RefusedError, match='answers with status 400: unknown group "db"'):
        fleetlock.ask(server.url, RELEASE, "db", "a")
    assert len(paths) == 2


def test_a_server_below_a_path(server):
    fleetlock.ask(f"{server.url}/base", ACQUIRE, "db", "a")
    assert server.holders == {"db": {"a"}}


def answer(body, status="200 OK", *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers])
    return head.encode() + b"\r\n\r\n" + content


HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"


@pytest.mark.parametrize(
    "body", [b"", b"obtained reboot lease", {"kind": "success", "value": "The operation was successful"}]
)
def test_what_servers_say_of_a_yes(body):
    with raw(answer(body)) as url:
        fleetlock.ask(url, ACQUIRE, "db", "a")


@pytest.mark.night(after=3)
@pytest.mark.parametrize(
    ("pieces", "drips", "said"),
    [
        ([answer(HTML)], (), "answers with status 200, and not as FleetLock does"),
        ([answer({"status": "ok"})], (), "answers with status 200, and not as FleetLock does"),
        ([answer({"kind": 1, "value": "x"})], (), "answers with status 200, and not as FleetLock does"),
        ([answer(["kind", "value"])], (), "answers with status 200, and not as FleetLock does"),
        ([answer(b"{" + b"[" * 60_000)], (), "answers with status 200, and not as FleetLock does"),
        ([answer(HTML, "500 Internal Server Error")], (), "answers with status 500"),
        ([answer(b"etcd\x1b[31m is\ndown", "500 x")], (), r"answers with status 500: etcd\x1b[31m is down"),
        ([answer({"kind": "error", "value": "no etcd"}, "500 x")], (), "answers with status 500: no etcd"),
        ([answer(b"", "204 No Content")], (), "answers with status 204"),
        ([answer(b"", "202 Accepted")], (), "answers with status 202"),
        ([answer(b"", "302 Found", "Location: http://127.0.0.1:1/")], (), "redirects to http://127.0.0.1:1/, which is"),
        ([answer(b"", "307 x")], (), "redirects to nowhere"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"], (b"x" * 65536,), "not as FleetLock does"),
        ([b"HTTP/1.1 200 OK\r\n\r\n"], (b"x" * 65536,), "not as FleetLock does"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx"], (), "does not answer: nothing came for"),
        ([], (), "does not answer: nothing came for"),
        ([], (b"X-More: 1\r\n", 0.02), "cannot be reached, or its answer breaks off"),
        ([b"HTTP/1.1 200 OK\r\n"], (b"X-", 0.02), "does not answer within"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"], (b"x", 0.02), "does not answer within"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], (), "cannot be reached, or its answer breaks off"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_yes(monkeypatch, pieces, drips, said):
    monkeypatch.setattr(exchange, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", 2.0)
    with raw(*pieces, drips=drips) as url, pytest.raises(RefusedError) as raised:
        fleetlock.ask(url, ACQUIRE, "db", "a")
    assert said in str(raised.value) and str(raised.value).startswith(url) and "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_nobody_is_there(host):
    with pytest.raises(RefusedError, match="cannot be reached, or its answer breaks off"):
        fleetlock.ask(f"http://{host}:{free_port()}", ACQUIRE, "db", "a")


def test_a_redirect_is_not_followed(server):
    redirect = answer(b"", "307 Temporary Redirect", f"Location: {server.url}/v1/pre-reboot")
    with raw(redirect) as url, pytest.raises(RefusedError, match="redirects"):
        fleetlock.ask(url, ACQUIRE, "db", "a")
    assert server.asked == []


def test_no_proxy_is_asked(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    fleetlock.ask(server.url, ACQUIRE, "db", "a")
    assert server.holders == {"db": {"a"}}


def test_what_speaks_no_tls(server):
    with pytest.raises(RefusedError, match="cannot be trusted"):
        fleetlock.ask(server.url.replace("http:", "https:"), ACQUIRE, "db", "a")
    assert server.asked == []


def test_tls_by_the_certificates_of_the_host(monkeypatch):
    with FleetLock(certificate=bmc_server.certificate()).running() as server:
        with pytest.raises(RefusedError, match=r"cannot be trusted: self[- ]signed certificate"):
            fleetlock.ask(server.url, ACQUIRE, "db", "a")
        # Where OpenSSL looks for the certificates of a system.
        monkeypatch.setenv("SSL_CERT_FILE", bmc_server.certificate()[0])
        with pytest.raises(RefusedError, match="cannot be trusted: "):
            fleetlock.ask(server.url.replace("127.0.0.1", "localhost"), ACQUIRE, "db", "a")
        assert server.asked == []
        fleetlock.ask(server.url, ACQUIRE, "db", "a")
        assert server.holders == {"db": {"a"}}
