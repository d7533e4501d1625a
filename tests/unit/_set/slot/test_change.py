# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of smt_slot on a host, with a server that counts who holds what, also where the host is killed in the
middle of one.
"""

from __future__ import annotations

import json
import stat

import crash
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import change, record, request, window
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.request import Asked
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import Slot, SlotError
from fleetlock_server import FULL, FleetLock
from prometheus_server import send, serving

BOOT = "proc/sys/kernel/random/boot_id"
HELD, NOBODY = {"db": {"a"}}, {"db": set()}
NO_ETCD = (500, {"kind": "error", "value": "no etcd"})
SENTINEL = Slot(kured="/run/reboot-required")


class Host:
    """A host, below a tree, and the server that it asks."""

    def __init__(self, root, server, name="a"):
        self.root, self.server, self.name = root, server, name
        self.fs = files.HostFs(str(root))
        self.slot = Slot(fleetlock=server.url)
        self.boot(1)

    def boot(self, number):
        path = self.root / BOOT
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")

    def acquire(self, owner="", check=False, **more):
        asked = {"slot": self.slot, "group": "db", "host": self.name, "owner": owner, **more}
        return change.acquire(self.fs, Asked(**asked), check)

    def release(self, owner="", **more):
        return change.release(self.fs, owner, **more)

    @property
    def kept(self):
        return record.load(self.fs)


@pytest.fixture(name="server")
def a_server():
    with FleetLock().running() as server:
        yield server


@pytest.fixture(name="host")
def a_host(tmp_path, server):
    return Host(tmp_path / "a", server)


def test_a_slot_is_kept_over_a_boot_and_given_back(host, server):
    answer = host.acquire("run 1")
    assert answer.granted and answer.changed and server.holders == HELD
    kept = host.kept
    assert kept.is_held and kept.boot == "1" and kept.owner == "run 1"
    assert answer.holds == {"granted": True, "since": kept.since} and kept.since in kept.sentence
    assert stat.S_IMODE((host.root / record.FILE.path).stat().st_mode) == 0o600
    host.boot(2)
    # A host that is asked for again, by whoever comes next, holds the slot that it held.
    assert host.acquire("run 2").granted and host.kept.since == kept.since and server.holders == HELD
    # Who asked first does not give it back under the reboot of another.
    left = host.release("run 1")
    assert not left.changed and left.holds["granted"] and server.holders == HELD
    assert host.release("run 2").changed and host.kept is None and server.holders == NOBODY
    assert host.release("run 2") == change.SlotAnswer(False)


def test_one_that_is_not_granted_says_why_and_its_end_gives_back_nothing_that_is_held(host, server, tmp_path):
    other = Host(tmp_path / "b", server, "b")
    assert other.acquire("run 1").granted
    answer = host.acquire("run 1")
    assert not answer.granted and FULL["value"] in answer.reason and answer.holds["granted"] is False
    assert not host.kept.is_held
    assert host.release("run 1", only_asked=True).changed and host.kept is None
    server.answer = NO_ETCD
    assert not other.acquire("run 2").granted and other.kept.is_held
    server.answer = None
    assert not other.release("run 2", only_asked=True).changed and server.holders == {"db": {"b"}}


def test_who_has_not_asked_gives_back_after_a_boot_or_when_nobody_comes_to_one(host, server, monkeypatch):
    host.acquire("run")
    assert not host.release().changed and server.holders == HELD
    host.boot(2)
    assert host.release().changed and server.holders == NOBODY
    host.acquire("run")
    now = change.time.time()
    monkeypatch.setattr(change.time, "time", lambda: now + change.FRESH_SECONDS + 1)
    assert host.release().changed and server.holders == NOBODY


def test_a_server_that_takes_nothing_back_leaves_the_way_to_release_it(host, server, monkeypatch):
    monkeypatch.setattr(change.fleetlock, "AGAIN_PAUSES", (0.0,))
    host.acquire("run")
    host.boot(2)
    server.answer = NO_ETCD
    with pytest.raises(SlotError) as raised:
        host.release("run")
    # Commands are a controller's to say: whoever copies one takes none that a host chose.
    assert str(raised.value) == (
        f"its slot is not known to be given back: {server.url} answers with status 500: no etcd. a holds a slot of the"
        f" group db at {server.url} since {host.kept.since}"
    )
    # On the host itself the record goes as well when the slot is released by its name.
    server.answer = None
    by_name = Asked(host.slot, "db", "a")
    assert change.release_by_name(host.fs, by_name).changed and host.kept is None and server.holders == NOBODY


def test_without_its_record_nobody_is_asked_and_another_or_a_damaged_one_is_no_leave(host, server, monkeypatch):
    def full(*_given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(SlotError, match="cannot be written: No space left"):
        patched.setattr(host.fs, "write", full)
        host.acquire()
    assert server.asked == []
    host.acquire()
    with pytest.raises(SlotError, match="another slot is asked for, and a holds a slot of the group db"):
        host.acquire(group="web")
    assert host.kept.group == "db"
    (host.root / record.FILE.path).write_text("{}")
    with pytest.raises(SlotError, match=r"cannot be used.*Whether the host holds a slot is not known"):
        host.acquire()
    assert record.pending(host.fs) is None and record.FILE.path in host.fs.problems[0]


@pytest.fixture(name="alerting")
def a_prometheus_with_an_alert():
    """Its address, and the answer that it gives."""
    body = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"alertname": "Down"}}]}}
    with serving(lambda handler: send(handler, json.dumps(body))) as url:
        yield url, body


def test_alerts_are_asked_for_before_the_slot(host, server, alerting):
    url, body = alerting
    asked = request.Alerts(url, "ALERTS")
    answer = host.acquire(alerts=asked)
    assert not answer.granted and answer.reason == f"alerts forbid it: Down ({url})" and answer.holds is None
    # Also without any slot, and where kured would reboot it.
    assert not host.acquire(alerts=asked, slot=None).granted
    assert not host.acquire(alerts=asked, slot=SENTINEL).handed_over
    assert not (host.root / "run/reboot-required").exists()
    body["data"]["result"] = []
    assert host.acquire(alerts=asked, slot=None).granted and server.asked == [] and host.kept is None
    assert host.acquire(alerts=asked).granted


def test_check_mode_asks_for_no_slot_and_says_what_would_be_asked_and_what_forbids_it(
    host, server, alerting, monkeypatch
):
    def would(**asked):
        return host.acquire(check=True, **asked).reason

    url, body = alerting
    asked = request.Alerts(url, "ALERTS")
    assert would() == f"would ask for a slot of the group db at {server.url}"
    assert would(slot=Slot(acquire=("lock", "db"), release=("unlock", "db"))) == "would ask for a slot by lock db"
    assert would(slot=SENTINEL) == "would write /run/reboot-required, after which kured reboots it"
    both = f"would ask {url} for alerts and ask for a slot of the group db at {server.url}"
    assert would(alerts=asked) == f"{both}; it would wait now: alerts forbid it: Down ({url})"
    body["data"]["result"] = []
    assert would(alerts=asked) == both and would(alerts=asked, slot=None) == f"would ask {url} for alerts"
    monkeypatch.setattr(change.time, "time", lambda: 20 * 3600.0)
    shut = window.parse({"from": "00:00", "to": "05:00"})
    opens = "it would wait now: its smt_reboot_window opens at Fri 1970-01-02 00:00 UTC"
    expected = change.SlotAnswer(True, granted=True, reason=opens, wait_seconds=4 * 3600.0)
    assert host.acquire(check=True, window=shut, slot=None) == expected
    assert server.asked == [] and host.kept is None and not (host.root / "run/reboot-required").exists()
    # The change would be refused for it.
    host.acquire("another run")
    with pytest.raises(SlotError, match="another slot is asked for, and a holds"):
        host.acquire(check=True, slot=Slot(fleetlock="http://127.0.0.1:1"))
    host.boot(2)
    answer = host.release("another run", check=True)
    assert answer.changed and answer.reason == f"would give back a slot of the group db at {server.url}"
    assert answer.holds["granted"] and server.holders == HELD


def commands(tmp_path, acquire, release="exit 0"):
    for name, text in (("lock", acquire), ("unlock", release)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return Slot(acquire=(f"{tmp_path}/lock", "$(id); *"), release=(f"{tmp_path}/unlock",))


def test_commands_are_run_without_a_shell(host, tmp_path):
    slot = commands(tmp_path, f'printf "%s\\n" "$@" >>{tmp_path}/log', f"echo gone >>{tmp_path}/log")
    assert host.acquire(slot=slot).granted and host.kept.is_held
    host.boot(2)
    assert host.release().changed
    assert (tmp_path / "log").read_text() == "$(id); *\ngone\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo one; echo ' two  \x1b[31m ' >&2; echo; exit 1", "lock ended with status 1: two \\x1b[31m"),
        ("kill -9 $$", "lock ended with signal 9"),
        ("yes no; exit 1", "lock took longer than 1 s and was ended"),
        (None, "lock cannot be started: "),
    ],
)
def test_a_command_that_says_no(host, tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(change, "COMMAND_SECONDS", 1.0)
    slot = commands(tmp_path, script) if script else Slot(acquire=("/nowhere/lock",), release=("x",))
    answer = host.acquire(slot=slot)
    assert not answer.granted and reason in answer.reason


def test_kured_is_told_once_and_the_host_is_not_rebooted(host):
    answer = host.acquire(slot=SENTINEL)
    assert (answer.granted, answer.handed_over, answer.changed) == (False, True, True)
    assert (host.root / "run/reboot-required").exists() and host.kept is None
    assert host.acquire(slot=SENTINEL) == change.SlotAnswer(False, handed_over=True)


@crash.needs_trace
def test_a_host_that_is_killed_in_any_step_of_asking_leaves_what_the_next_one_reads(host, server, tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    crash.fresh(template, host.root)

    def prepare():
        crash.fresh(host.root, template)
        server.holders = {}

    def check(_number, killed):
        kept = host.kept
        assert kept is not None or not server.holds("a"), "a slot that nobody knows of"
        assert killed or kept.is_held
        held = server.holds("a")
        assert held or kept is None or not kept.is_held
        # Another host cannot take it, and the next run on this one re-uses it, and gives it back.
        assert Host(tmp_path / "b", server, "b").acquire().granted != held
        Host(tmp_path / "b", server, "b").release() if held else server.holders.clear()
        (tmp_path / "b" / record.FILE.path).unlink(missing_ok=True)
        assert host.acquire("next").granted and host.release("next").changed and not server.holds("a")

    assert crash.killed_at_each(prepare, lambda: host.acquire("run"), check) > 8


@crash.needs_trace
def test_a_host_that_is_killed_in_any_step_of_giving_back_gives_back_again(host, server, tmp_path):
    template = tmp_path / "template"

    def prepare():
        server.holders = {}
        (host.root / record.FILE.path).unlink(missing_ok=True)
        host.acquire("run")
        crash.fresh(template, host.root)

    def check(_number, killed):
        assert host.kept is not None or not server.holds("a"), "a slot that nobody knows of"
        assert killed or host.kept is None
        host.release("run")
        assert host.kept is None and not server.holds("a")

    assert crash.killed_at_each(prepare, lambda: host.release("run"), check) > 2
