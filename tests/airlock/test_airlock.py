# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of smt_slot on hosts, with the reference server of FleetLock, airlock."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import change, record
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.request import Asked
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import Slot, SlotError
from prometheus_server import free_port, unpacked

BOOT = "proc/sys/kernel/random/boot_id"
START_SECONDS = 60.0
MANY = 8
GROUPS = {"db": 1, "web": 2, "many": MANY}


class Program:
    """A server on loopback that a test ends and starts again, always on the same port; ready as soon as it listens."""

    def __init__(self, command: list[str], port: int, log: pathlib.Path) -> None:
        self._command, self._port, self._log = command, port, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as output:
            how = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "cwd": self._log.parent}
            self._process = subprocess.Popen(self._command, **how)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(0.05)
        raise AssertionError(f"{self._command[0]} does not listen: {self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        """End it, where it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None


class Servers:
    """Airlock, which hosts ask, and its etcd, where it keeps who holds what, below a directory."""

    def __init__(self, place: pathlib.Path) -> None:
        clients, peers, port = (free_port() for _number in range(3))
        store, between = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
        self.url = f"http://127.0.0.1:{port}"
        urls = ("listen-client-urls", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls")
        options = {"name": "one", "data-dir": f"{place}/etcd", "initial-cluster": f"one={between}"}
        options |= dict(zip(urls, (store, store, between, between)))
        command = [etcd(), *(f"--{key}={value}" for key, value in options.items())]
        self.etcd = Program(command, clients, place / "etcd.log")
        config = place / "airlock.toml"
        config.write_text(
            f'[status]\nenabled = false\n[service]\naddress = "127.0.0.1"\nport = {port}\ntls = false\n'
            f'[etcd3]\nendpoints = ["{store}"]\n[lock]\ndefault_group_name = "default"\ndefault_slots = 1\n'
            + "".join(f'[[lock.groups]]\nname = "{name}"\nslots = {slots}\n' for name, slots in GROUPS.items())
        )
        self.airlock = Program([airlock(), "serve", "--config", str(config)], port, place / "airlock.log")


class Host:
    """A host, below a tree of its own, which asks airlock."""

    def __init__(self, place: pathlib.Path, url: str, name: str, group: str = "db") -> None:
        self._root, self.name = place / name, name
        self.fs = files.HostFs(str(self._root))
        self.asked = Asked(Slot(fleetlock=url), group, name, "run")
        self.boot(1)

    def boot(self, number: int) -> None:
        """Let it run in another boot."""
        path = self._root / BOOT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")

    def acquire(self) -> change.SlotAnswer:
        return change.acquire(self.fs, self.asked)

    def release(self) -> change.SlotAnswer:
        return change.release(self.fs, "run")

    @property
    def kept(self) -> record.SlotRecord | None:
        """What the host knows of its slot."""
        return record.load(self.fs)


def airlock() -> str:
    """Return the program that is tested."""
    found = shutil.which(os.environ.get("AIRLOCK") or "airlock")
    if found is None:
        pytest.fail("airlock is missing: set AIRLOCK to the path of the program", pytrace=False)
    return str(pathlib.Path(found).resolve())


def etcd() -> str:
    """Return the program of this machine, or Debian's, which is unpacked and not installed."""
    return shutil.which("etcd") or unpacked("etcd-server", "usr/bin/etcd")


@pytest.fixture(name="servers")
def _servers(tmp_path):
    servers = Servers(tmp_path)
    try:
        servers.etcd.start()
        servers.airlock.start()
        yield servers
    finally:
        servers.airlock.stop()
        servers.etcd.stop()


@pytest.fixture(name="host_of")
def _host_of(tmp_path, servers):
    """Make a host of a name, and of a group."""
    return lambda name, group="db": Host(tmp_path / "hosts", servers.url, name, group)


def test_one_host_at_a_time(servers, host_of):
    a, b = host_of("a"), host_of("b")
    first = a.acquire()
    assert first.granted and first.holds["granted"] and a.kept.is_held
    refused = b.acquire()
    assert not refused.granted and not b.kept.is_held
    assert refused.reason == f"{servers.url} answers with status 500: all 1 semaphore slots currently locked"
    assert a.release().changed and a.kept is None
    assert b.acquire().granted and b.kept.is_held and not a.acquire().granted


def test_who_asks_again_holds_the_same_slot(host_of):
    a, b = host_of("a", "web"), host_of("b", "web")
    since = a.acquire().holds["since"]
    a.boot(2)
    assert [a.acquire().holds, a.acquire().holds] == [{"granted": True, "since": since}] * 2
    # A second slot of the two would not be free otherwise, and another group has slots of its own.
    c = host_of("c", "web")
    assert b.acquire().granted and not c.acquire().granted and host_of("d").acquire().granted
    assert a.release().changed and c.acquire().granted


def test_what_is_not_held_can_be_given_back(host_of):
    a, b = host_of("a"), host_of("b")
    assert a.acquire().granted and a.release().changed
    assert a.release() == change.SlotAnswer(False)
    # Somebody who releases by name asks the server in any case: it takes nothing from who does hold one.
    assert b.acquire().granted
    for _time in range(2):
        assert change.release_by_name(host_of("elsewhere").fs, a.asked).changed
    assert not a.acquire().granted
    assert change.release_by_name(host_of("elsewhere").fs, b.asked).changed and a.acquire().granted


def test_a_group_that_it_does_not_know(servers, host_of):
    a = host_of("a", "nobodys")
    refused = a.acquire()
    assert not refused.granted and not a.kept.is_held
    assert refused.reason == f'{servers.url} answers with status 400: unknown group "nobodys"'
    with pytest.raises(SlotError, match=r'with status 400: unknown group "nobodys"\.'):
        a.release()
    assert a.kept is not None


def test_hosts_that_give_back_at_once_all_succeed(host_of):
    """Of two requests that cross airlock refuses one, in the middle of what is right: that is asked again."""
    hosts = [host_of(f"h{number}", "many") for number in range(MANY)]
    ready = threading.Barrier(MANY)

    def give_back(host):
        ready.wait(60)
        return host.release().changed

    with concurrent.futures.ThreadPoolExecutor(MANY) as pool:
        for _turn in range(5):
            for host in hosts:
                assert host.acquire().granted
            assert list(pool.map(give_back, hosts)) == [True] * MANY
            assert [host.kept for host in hosts] == [None] * MANY


def test_etcd_is_down(servers, host_of):
    a, b = host_of("a"), host_of("b")
    assert a.acquire().granted
    servers.etcd.stop()
    refused = b.acquire()
    assert not refused.granted
    reason = "status 500: failed to initialize semaphore manager: context deadline exceeded"
    assert refused.reason == f"{servers.url} answers with {reason}"
    # It may have been granted one, for all that it knows.
    assert b.kept is not None and refused.holds["granted"] is False
    with pytest.raises(SlotError, match=f"{reason}. a holds a"):
        a.release()
    assert a.kept.is_held
    servers.etcd.start()
    assert a.release().changed and a.kept is None
    assert b.acquire().granted and b.release().changed


def test_airlock_is_down_and_keeps_slots_over_its_end(servers, host_of):
    a, b = host_of("a"), host_of("b")
    assert a.acquire().granted
    servers.airlock.stop()
    refused = b.acquire()
    gone = f"{servers.url} cannot be reached, or its answer breaks off: Connection refused"
    assert not refused.granted and refused.reason == gone and b.kept is not None
    with pytest.raises(SlotError, match=f"its slot is not known to be given back: {gone}. a holds a slot"):
        a.release()
    assert a.kept.is_held
    servers.airlock.start()
    assert not b.acquire().granted and a.acquire().granted
    assert a.release().changed and b.acquire().granted
