# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FleetLock server on loopback, as the protocol says, which counts who holds what; and what takes down hosts of a
test tells it so, and is counted against what is held.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading

FULL = {"kind": "failed_lock_semaphore_full", "value": "semaphore currently full, all slots are locked already"}


class FleetLock:
    """The server.

    Args:
        slots: of each group.
        certificate: the files of its certificate and its key; without them it speaks no TLS.

    Attributes:
        holders: group -> the ids that hold a slot.
        asked: (endpoint, group, id) of each request that was one of the protocol.
        down: the hosts that are down now.
        answer: (status, body) of all answers, in place of the right one.
        before: called with the path of each request, before it counts.
        faults: what went wrong: more hosts down at once than there are slots, or one that holds none.
    """

    def __init__(self, slots: int = 1, certificate: tuple[str, str] | None = None) -> None:
        self.slots, self.holders, self.asked = slots, {}, []
        self.down, self.faults, self.most_down, self.boots = set(), [], 0, 0
        self.lock = threading.Lock()
        self.answer, self.before = None, lambda _path: None
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_given: None
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    def holds(self, host: str) -> bool:
        """Whether a host holds a slot of any group."""
        return any(host in holders for holders in self.holders.values())

    def reply(self, path, headers, body):
        if path in ("/down", "/up"):
            return self._moved(path[1:], body["host"])
        assert headers["fleet-lock-protocol"] == "true", "a request that is none of the protocol"
        given, endpoint = body["client_params"], path.rpartition("/")[2]
        assert set(given) == {"id", "group"} and all(isinstance(one, str) and one for one in given.values())
        self.asked.append((endpoint, given["group"], given["id"]))
        if self.answer is not None:
            return self.answer
        holders = self.holders.setdefault(given["group"], set())
        if endpoint == "steady-state":
            if given["id"] in self.down:
                self.faults.append(f"{given['id']} is down, and its slot was taken from it")
            holders.discard(given["id"])
        elif endpoint != "pre-reboot":
            return 404, {"kind": "not_found", "value": "no such endpoint"}
        elif given["id"] not in holders:
            if len(holders) >= self.slots:
                return 423, FULL
            holders.add(given["id"])
        return 200, None

    def _moved(self, where, host):
        if where == "up":
            self.down.discard(host)
            return 200, None
        self.boots += 1
        self.down.add(host)
        self.most_down = max(self.most_down, len(self.down))
        if not self.holds(host):
            self.faults.append(f"{host} went down and holds no slot")
        if len(self.down) > self.slots:
            self.faults.append(f"{sorted(self.down)} are down at once")
        return 200, None

    @contextlib.contextmanager
    def running(self):
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


def _handler(server):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
            server.before(self.path)
            with server.lock:
                status, answer = server.reply(self.path, self.headers, body)
                # Before the answer is sent: whoever is killed while it waits for it was granted it all the same.
            self.send_response(status)
            content = json.dumps(answer).encode() if answer else b""
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_given):
            pass

    return Handler
