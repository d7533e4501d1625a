# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FleetLock server on loopback, as the protocol says, which counts who holds what."""

import contextlib
import json
import threading

import prometheus_server

FULL = {"kind": "failed_lock_semaphore_full", "value": "semaphore currently full, all slots are locked already"}


class FleetLock:
    """The server, with so many slots of each group; what takes down hosts of a test tells it so.

    Attributes:
        holders: group -> the ids that hold a slot.
        asked: (endpoint, group, id) of each request that was one of the protocol.
        down: the hosts that are down now.
        answer: (status, body) of all answers, in place of the right one.
        before: called with the path of each request, before it counts.
        faults: what went wrong: more hosts down at once than there are slots, or one that holds none.
    """

    def __init__(self, slots: int = 1, certificate: tuple[str, str] | None = None) -> None:
        self.slots, self.certificate, self.holders, self.asked = slots, certificate, {}, []
        self.down, self.faults, self.most_down, self.boots = set(), [], 0, 0
        self.lock, self.url = threading.Lock(), ""
        self.answer, self.before = None, lambda _path: None

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

    def _answer(self, handler):
        body = json.loads(handler.rfile.read() or "{}")
        self.before(handler.path)
        with self.lock:
            status, answer = self.reply(handler.path, handler.headers, body)
        # Only now: whoever is killed while it waits for the answer was granted it all the same.
        prometheus_server.send(handler, json.dumps(answer) if answer else "", status)

    @contextlib.contextmanager
    def running(self):
        with prometheus_server.serving(self._answer, self.certificate) as self.url:
            yield self
