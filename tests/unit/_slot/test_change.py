# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of smt_slot on a host, with a server that counts who holds what, also where the host is killed in the
middle of one.
"""

from __future__ import annotations

import json
import shlex
import stat
import threading

import crash
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._slot import change, record, request, settings, window
from ansible_collections.threadwise.smt.plugins.module_utils._slot.request import Asked
from ansible_collections.threadwise.smt.plugins.module_utils._slot.settings import Slot, SlotError
from fleetlock_server import FULL, FleetLock
from prometheus_server import send, serving

BOOT = "proc/sys/kernel/random/boot_id"


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

    def asked(self, owner="", **more):
        return Asked(**{"slot": self.slot, "group": "db", "host": self.name, "owner": owner, **more})

    def acquire(self, owner="", check=False, **more):
        return change.acquire(self.fs, self.asked(owner, **more), check)

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
    assert answer.granted and answer.changed and server.holders == {"db": {"a"}}
    kept = host.kept
    assert kept.is_held and kept.boot == "1" and kept.owner == "run 1"
    assert answer.holds == {"granted": True, "since": kept.since} and kept.since in kept.sentence
    path = host.root / record.FILE.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    host.boot(2)
    # A host that is asked for again, by whoever comes next, holds the slot that it held.
    again = host.acquire("run 2")
    assert again.granted and host.kept.since == kept.since and server.holders == {"db": {"a"}}
    assert host.release("run 2").changed and host.kept is None and server.holders == {"db": set()}
    assert host.release("run 2") == change.Answer(False)


def test_one_that_is_not_granted_says_why_and_is_given_up(host, server, tmp_path):
    other = Host(tmp_path / "b", server, "b")
    assert other.acquire().granted
    answer = host.acquire("run 1")
    assert not answer.granted and FULL["value"] in answer.reason and answer.holds["granted"] is False
    assert not host.kept.is_held
    assert host.release("run 1", only_asked=True).changed and host.kept is None
    assert server.holders == {"db": {"b"}}


def test_the_end_of_a_wait_gives_back_nothing_that_is_held(host, server):
    host.acquire("run 1")
    server.answer = (500, {"kind": "error", "value": "no etcd"})
    assert not host.acquire("run 2").granted and host.kept.is_held
    server.answer = None
    assert not host.release("run 2", only_asked=True).changed and server.holders == {"db": {"a"}}


def test_a_controller_does_not_give_back_the_slot_under_the_reboot_of_another(host, server):
    host.acquire("first")
    host.acquire("second")
    host.boot(2)
    left = host.release("first")
    assert not left.changed and left.holds["granted"] and server.holders == {"db": {"a"}}
    assert host.release("second").changed and server.holders == {"db": set()}


def test_who_has_not_asked_gives_back_after_a_boot_or_when_nobody_comes_to_one(host, server, monkeypatch):
    host.acquire("run")
    assert not host.release().changed and server.holders == {"db": {"a"}}
    host.boot(2)
    assert host.release().changed and server.holders == {"db": set()}
    host.acquire("run")
    now = change.time.time()
    monkeypatch.setattr(change.time, "time", lambda: now + change.FRESH_SECONDS + 1)
    assert host.release().changed and server.holders == {"db": set()}


def test_a_server_that_takes_nothing_back_leaves_the_way_to_release_it(host, server, monkeypatch):
    monkeypatch.setattr(change.fleetlock, "AGAIN_PAUSES", (0.0,))
    host.acquire("run")
    host.boot(2)
    server.answer = (500, {"kind": "error", "value": "no etcd"})
    with pytest.raises(SlotError) as raised:
        host.release("run")
    said = str(raised.value)
    assert f"its slot is not known to be given back: {server.url} answers with status 500: no etcd. a holds" in said
    # Commands are a controller's to say: whoever copies one takes none that a host chose.
    assert said.endswith(f"since {host.kept.since}") and "ansible" not in said and host.kept.is_held
    # As somebody on another machine gives it.
    server.answer = None
    command = settings.release_command(host.slot, "db", "a")
    given = dict(word.split("=", 1) for word in shlex.split(command)[-1].split())
    assert given == {"state": "released", "slot": f"fleetlock={server.url}", "group": "db", "host": "a"}
    elsewhere = files.HostFs(str(host.root.parent / "elsewhere"))
    by_name = Asked(host.slot, given["group"], given["host"])
    assert change.release_by_name(elsewhere, by_name).changed and server.holders == {"db": set()}
    # On the host itself the record goes as well.
    assert change.release_by_name(host.fs, by_name).changed and host.kept is None


def test_another_slot_than_the_one_that_is_held_is_refused(host):
    host.acquire()
    with pytest.raises(SlotError, match="another slot is asked for, and a holds a slot of the group db"):
        host.acquire(group="web")
    assert host.kept.group == "db"


def test_without_its_record_nobody_is_asked(host, server, monkeypatch):
    def full(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.fs, "write", full)
    with pytest.raises(SlotError, match="cannot be written: No space left on device"):
        host.acquire()
    assert server.asked == []


def test_a_record_that_is_damaged_is_no_slot_and_no_leave(host, server):
    host.acquire()
    (host.root / record.FILE.path).write_text("{}")
    with pytest.raises(SlotError, match="cannot be used"):
        host.acquire()
    assert record.pending(host.fs) is None and "Whether the host holds a slot is not known" in host.fs.problems[0]


def test_check_mode_asks_nobody_and_says_what_it_would(host, server):
    assert host.acquire(check=True).reason == f"would ask for a slot of the group db at {server.url}"
    pair = Slot(acquire=("lock", "db"), release=("unlock", "db"))
    assert host.acquire(check=True, slot=pair).reason == "would ask for a slot by lock db"
    sentinel = Slot(kured="/run/reboot-required")
    assert host.acquire(check=True, slot=sentinel).reason.startswith("would write /run/reboot-required")
    assert server.asked == [] and host.kept is None and not (host.root / "run/reboot-required").exists()
    host.acquire()
    host.boot(2)
    answer = host.release(check=True)
    assert answer.changed and "would give back a slot of the group db" in answer.reason and answer.holds["granted"]
    assert server.holders == {"db": {"a"}}


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
    assert not host.acquire(alerts=asked, slot=Slot(kured="/run/reboot-required")).handed_over
    assert not (host.root / "run/reboot-required").exists()
    body["data"]["result"] = []
    assert host.acquire(alerts=asked, slot=None).granted and server.asked == [] and host.kept is None
    assert host.acquire(alerts=asked).granted


def test_check_mode_says_what_would_be_asked_and_what_forbids_it_now(host, server, alerting, monkeypatch):
    url, body = alerting
    asked = request.Alerts(url, "ALERTS")
    both = f"would ask {url} for alerts and ask for a slot of the group db at {server.url}"
    assert host.acquire(check=True, alerts=asked).reason == f"{both}; it would wait now: alerts forbid it: Down ({url})"
    body["data"]["result"] = []
    assert host.acquire(check=True, alerts=asked).reason == both
    assert host.acquire(check=True, alerts=asked, slot=None).reason == f"would ask {url} for alerts"
    monkeypatch.setattr(change.time, "time", lambda: 20 * 3600.0)
    shut = window.parse({"from": "00:00", "to": "05:00"})
    opens = "it would wait now: its smt_reboot_window opens at Fri 1970-01-02 00:00 UTC"
    expected = change.Answer(True, granted=True, reason=opens, wait_seconds=4 * 3600.0)
    assert host.acquire(check=True, window=shut, slot=None) == expected
    # The change would be refused for it.
    host.acquire("another run")
    with pytest.raises(SlotError, match="another slot is asked for, and a holds"):
        host.acquire(check=True, slot=Slot(fleetlock="http://127.0.0.1:1"))
    assert host.acquire(check=True).reason and len(server.asked) == 1


def test_nobody_is_asked_outside_the_window(host, server, monkeypatch):
    midnight = 24 * 3600 * (change.time.time() // (24 * 3600) + 1)
    monkeypatch.setattr(change.time, "time", lambda: midnight - 3600)
    shut_for_now = window.parse({"from": "00:00", "to": "05:00"})
    answer = host.acquire(window=shut_for_now)
    assert (answer.granted, answer.wait_seconds) == (False, 3600)
    assert answer.reason.startswith("its smt_reboot_window opens at ") and answer.reason.endswith(" 00:00 UTC")
    assert server.asked == [] and host.kept is None
    always = window.parse({"from": "00:00", "to": "24:00"})
    assert host.acquire(window=always).granted
    # The window alone decides where there is no slot.
    assert change.acquire(host.fs, Asked(None, "db", "a", window=always)).granted
    assert not change.acquire(host.fs, Asked(None, "db", "a", window=shut_for_now)).granted


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
        ("exit 3", "lock ended with status 3"),
        ("kill -9 $$", "lock ended with signal 9"),
        ("sleep 600", "lock took longer than 1 s and was ended"),
        ("yes no; exit 1", "lock took longer than 1 s and was ended"),
    ],
)
def test_a_command_that_says_no(host, tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(change, "COMMAND_SECONDS", 1.0)
    answer = host.acquire(slot=commands(tmp_path, script))
    assert not answer.granted and reason in answer.reason


def test_a_command_that_is_not_there(host):
    answer = host.acquire(slot=Slot(acquire=("/nowhere/lock",), release=("x",)))
    assert not answer.granted and answer.reason.startswith("lock cannot be started: ")


def test_kured_is_told_once_and_the_host_is_not_rebooted(host):
    sentinel = Slot(kured="/run/reboot-required")
    answer = host.acquire(slot=sentinel)
    assert (answer.granted, answer.handed_over, answer.changed) == (False, True, True)
    assert (host.root / "run/reboot-required").exists() and host.kept is None
    assert host.acquire(slot=sentinel) == change.Answer(False, handed_over=True)


def test_two_runs_on_one_host_ask_one_after_the_other(host, server):
    """A slot that one run gives back is not the one that another was just granted."""
    done = []

    def work(owner):
        done.extend(owner for _turn in range(20) if host.acquire(owner).granted and host.release(owner).changed)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("x", "y")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    known = host.kept
    assert (known is None) == (server.holders == {"db": set()}) and done


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
        if kept is not None and kept.is_held:
            assert server.holds("a")
        # Another host cannot take it, and the next run on this one re-uses it, and gives it back.
        held = server.holds("a")
        assert Host(tmp_path / "b", server, "b").acquire().granted != held
        Host(tmp_path / "b", server, "b").release(owner="") if held else server.holders.clear()
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
