# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that reboot only with a slot of a FleetLock server: one after the other, also when their controller is lost.

The tests build on one another.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import types

import pytest
import testinfra

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tests/unit/support"))
from fleetlock_server import FleetLock
from interruption import lose

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
GUESTS = FIRST, SECOND = "smt-slot-1", "smt-slot-2"
RECORD = "/var/lib/threadwise-smt/reboot-slot.json"
# Time limit in seconds: emulated guests that share their CPUs with other work take minutes to boot.
TIME_LIMIT = 1800
GROUP = "db"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")


@pytest.fixture(name="server", scope="module")
def a_server():
    with FleetLock(slots=1).running() as server:
        yield server


@pytest.fixture(name="moments")
def when_they_ask(server):
    """What comes to the server: (seconds since 1970, path), until the test ends."""
    seen = []
    server.before = lambda path: seen.append((time.time(), path))
    yield seen
    server.before = lambda _path: None


@pytest.fixture(name="play")
def calls(tmp_path, server):
    """Begin a call of a playbook, whose guests reach the server by their connection."""
    port = server.url.rpartition(":")[2]
    place = types.SimpleNamespace(log=tmp_path / "log")

    def begin(playbook, state, *words):
        (tmp_path / "role.yml").write_text(
            json.dumps([{"hosts": "lab", "gather_facts": False, "roles": ["threadwise.smt.smt_boot"]}])
        )
        given = {
            "ansible_ssh_extra_args": f"-R 127.0.0.1:{port}:127.0.0.1:{port}",
            "smt_boot_smt": state,
            "smt_boot_reboot_ok": True,
            "smt_boot_reboot_timeout": TIME_LIMIT,
            "smt_slot": {"fleetlock": server.url},
            "smt_slot_timeout": TIME_LIMIT,
            "smt_policy_group": GROUP,
        }
        if playbook != "role":
            given = {name: value for name, value in given.items() if name != "smt_boot_smt"}
            given.update(smt_policy=state, smt_policy_scope="boot", smt_policy_reboot_ok=True)
        name = str(tmp_path / "role.yml") if playbook == "role" else f"threadwise.smt.{playbook}"
        with place.log.open("w") as log:
            return subprocess.Popen(
                ["ansible-playbook", "-i", str(INVENTORY), name, "-e", json.dumps(given), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=tmp_path,
                env=PLAIN,
                start_new_session=True,
            )

    place.begin = begin
    yield place
    print(place.log.read_text())


def ask(name, what):
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}").check_output(what)


def booted_at(name):
    """When a guest was booted, seconds since 1970."""
    return int(ask(name, "awk '/^btime/ {print $2}' /proc/stat"))


def is_up(name, boot):
    """Whether a guest answers that it is in a boot."""
    asked = ["ansible", name, "-i", str(INVENTORY), "-m", "raw", "-a", f"cat {BOOT_ID}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=PLAIN)
    return done.returncode == 0 and boot in done.stdout


def kept(name):
    return ask(name, f"cat {RECORD} 2>/dev/null || true")


def test_check_mode_says_what_would_be_asked_and_asks_for_nothing(play, server):
    assert play.begin("role", "disabled", "--check").wait(TIME_LIMIT) == 0
    assert f"would ask for a slot of the group {GROUP} at {server.url}" in play.log.read_text()
    assert server.asked == [] and not any(map(kept, GUESTS))


def test_two_guests_take_turns(play, server, moments):
    before = {name: booted_at(name) for name in GUESTS}
    assert play.begin("role", "disabled").wait(2 * TIME_LIMIT) == 0
    assert server.holders == {GROUP: set()} and not any(map(kept, GUESTS))
    # The answers are in the order of the requests: who holds the one slot, from when to when.
    held, holder = {}, None
    for (moment, _path), (endpoint, _group, name) in zip(moments, server.asked, strict=True):
        if endpoint == "steady-state" and name == holder:
            held[name], holder = (*held[name], moment), None
        elif endpoint == "pre-reboot" and holder is None:
            held[name], holder = (moment,), name
    assert set(held) == set(GUESTS)
    for name in GUESTS:
        granted, released = held[name]
        # Its clock is that of this machine, to a second or two.
        assert booted_at(name) > before[name] and granted - 2 < booted_at(name) < released + 2, held
        assert ask(name, "cat /sys/devices/system/cpu/smt/control") == "off"


def test_a_guest_keeps_its_slot_when_its_controller_is_lost_and_the_next_call_gives_it_back(play, server):
    boot = ask(FIRST, f"cat {BOOT_ID}")
    call = play.begin("smt_enforce", "enabled", "--limit", FIRST)
    try:
        while not server.holders[GROUP]:
            assert call.poll() is None
            time.sleep(0.1)
        # Until it goes down.
        while is_up(FIRST, boot):
            assert call.poll() is None
    finally:
        lose(call)
    assert server.holders == {GROUP: {FIRST}}
    # The other one does not get it, whoever asks for it.
    other = play.begin("smt_enforce", "enabled", "--limit", SECOND, "-e", "smt_slot_timeout=20")
    assert other.wait(TIME_LIMIT) != 0 and "semaphore currently full" in play.log.read_text()
    assert server.holders == {GROUP: {FIRST}}
    assert play.begin("smt_enforce", "enabled").wait(2 * TIME_LIMIT) == 0
    assert server.holders == {GROUP: set()} and not any(map(kept, GUESTS))
    assert all(ask(name, "cat /sys/devices/system/cpu/smt/control") == "on" for name in GUESTS)
