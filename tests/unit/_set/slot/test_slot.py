# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of smt_slot on a host, also where it is killed in one; FleetLock, alerts and servers that do otherwise."""

from __future__ import annotations

import calendar
import itertools
import json
import shlex
import stat
import time

import bmc_server
import crash
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import (
    alerts,
    change,
    exchange,
    fleetlock,
    record,
    request,
    settings,
    window,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.exchange import RefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.fleetlock import ACQUIRE, RELEASE
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.request import Asked
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import Slot, SlotError
from fleetlock_server import FULL, FleetLock
from prometheus_server import free_port, raw, send, serving

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
    monkeypatch.setattr(change.fleetlock, "AGAIN_PAUSES", (0.0,))
    host.acquire("run")
    assert not host.release().changed and server.holders == HELD
    host.boot(2)
    assert host.release().changed and server.holders == NOBODY
    host.acquire("run")
    now = change.time.time()
    monkeypatch.setattr(change.time, "time", lambda: now + change.FRESH_SECONDS + 1)
    assert host.release().changed and server.holders == NOBODY
    host.acquire("run")
    server.answer = NO_ETCD
    with pytest.raises(SlotError) as raised:
        host.release("run")
    # Commands are a controller's to say: whoever copies one takes none that a host chose.
    assert str(raised.value) == (
        f"its slot is not known to be given back: {server.url} answers with status 500: no etcd. a holds a slot of the"
        f" group db at {server.url} since {host.kept.since}"
    )
    # On the host itself the record goes as well when the slot is released by its name.
    server.answer, by_name = None, Asked(host.slot, "db", "a")
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


def test_commands_are_run_without_a_shell_and_may_say_no(host, tmp_path, monkeypatch):
    slot = commands(tmp_path, f'printf "%s\\n" "$@" >>{tmp_path}/log', f"echo gone >>{tmp_path}/log")
    assert host.acquire(slot=slot).granted and host.kept.is_held
    host.boot(2)
    assert host.release().changed
    assert (tmp_path / "log").read_text() == "$(id); *\ngone\n"
    monkeypatch.setattr(change, "COMMAND_SECONDS", 1.0)
    for script, reason in (
        ("echo one; echo ' two  \x1b[31m ' >&2; echo; exit 1", "lock ended with status 1: two \\x1b[31m"),
        ("kill -9 $$", "lock ended with signal 9"),
        ("yes no; exit 1", "lock took longer than 1 s and was ended"),
        (None, "lock cannot be started: "),
    ):
        slot = commands(tmp_path, script) if script else Slot(acquire=("/nowhere/lock",), release=("x",))
        answer = host.acquire(slot=slot)
        assert not answer.granted and reason in answer.reason
        (host.root / record.FILE.path).unlink(missing_ok=True)


def test_kured_is_told_once_and_the_host_is_not_rebooted(host):
    answer = host.acquire(slot=SENTINEL)
    assert (answer.granted, answer.handed_over, answer.changed) == (False, True, True)
    assert (host.root / "run/reboot-required").exists() and host.kept is None
    assert host.acquire(slot=SENTINEL) == change.SlotAnswer(False, handed_over=True)


@crash.needs_trace
def test_a_host_that_is_killed_in_any_step_of_asking_or_giving_back_leaves_what_the_next_one_reads(
    host, server, tmp_path
):
    template = tmp_path / "template"
    template.mkdir()
    crash.fresh(template, host.root)

    def none_asked():
        crash.fresh(host.root, template)
        server.holders = {}

    def check_asked(_number, killed):
        kept, held = host.kept, server.holds("a")
        assert kept is not None or not held, "a slot that nobody knows of"
        assert (killed or kept.is_held) and (held or kept is None or not kept.is_held)
        # Another host cannot take it, and the next run on this one re-uses it, and gives it back.
        assert Host(tmp_path / "b", server, "b").acquire().granted != held
        Host(tmp_path / "b", server, "b").release() if held else server.holders.clear()
        (tmp_path / "b" / record.FILE.path).unlink(missing_ok=True)
        assert host.acquire("next").granted and host.release("next").changed and not server.holds("a")

    assert crash.killed_at_each(none_asked, lambda: host.acquire("run"), check_asked) > 8

    def one_held():
        server.holders = {}
        (host.root / record.FILE.path).unlink(missing_ok=True)
        host.acquire("run")
        crash.fresh(template, host.root)

    def check_given_back(_number, killed):
        assert host.kept is not None or not server.holds("a"), "a slot that nobody knows of"
        assert killed or host.kept is None
        host.release("run")
        assert host.kept is None and not server.holds("a")

    assert crash.killed_at_each(one_held, lambda: host.release("run"), check_given_back) > 2


CONFLICT = "conflict on semaphore detected, aborting"


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
    assert refusal(server.url, host="b") == f" answers with status 423: {FULL['value']}"
    fleetlock.ask(f"{server.url}/base", ACQUIRE, "web", "b")
    assert server.holders == {"db": {"a"}, "web": {"b"}}
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
    # A slot is asked for once, and a wrong request is not repeated.
    paths = conflicts(server, monkeypatch, 1)
    assert CONFLICT in refusal(server.url) and paths == [ACQUIRE]
    server.before, server.answer = paths.append, (400, {"kind": "unknown_group", "value": "no such group"})
    assert refusal(server.url, RELEASE) == " answers with status 400: no such group" and len(paths) == 2


def http(body, status="200 OK", *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers])
    return head.encode() + b"\r\n\r\n" + content


HTML = b"<!DOCTYPE html><html><body>Sign in</body></html>"
OTHER = " answers with status 200, and not as FleetLock does: is it the address of such a server?"
SILENT = " does not answer: nothing came for 1 s"
BROKEN = " cannot be reached, or its answer breaks off: "
LATE = " does not answer within 1 s"


TO_1 = http(b"", "302 x", "Location: http://127.0.0.1:1/")
HUGE, NEVER = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
)


@pytest.mark.night(after=9)
@pytest.mark.parametrize(
    ("pieces", "drips", "said"),
    [
        ([http(HTML)], (), OTHER),
        ([b"HTTP/1.1 200 OK\r\n"], (b"X-", 0.02), LATE),
        ([http(b"etcd\x1b[31m is\ndown", "500 x")], (), r" answers with status 500: etcd\x1b[31m is down"),
        ([TO_1], (), " redirects to http://127.0.0.1:1/, which is not"),
        ([HUGE], (b"x" * 65536,), OTHER),
        ([], (), SILENT),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], (), BROKEN),
        *(([http(one)], (), OTHER) for one in ({"kind": 1, "value": "x"}, ["kind", "value"])),
        ([], (b"X-More: 1\r\n", 0.02), BROKEN),
        ([NEVER], (b"x", 0.02), LATE),
    ],
    ids=itertools.count(),
)
def test_what_is_no_yes(monkeypatch, pieces, drips, said):
    monkeypatch.setattr(exchange, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", 1.0 if said == LATE else 4.0)
    with raw(*pieces, drips=drips) as url:
        assert refusal(url).startswith(said)


def test_yes_is_said_in_other_words_and_by_nobody_who_is_not_there_redirects_or_speaks_no_tls(server):
    for body in (b"", b"obtained reboot lease", {"kind": "success", "value": "successful"}):
        with raw(http(body)) as url:
            fleetlock.ask(url, ACQUIRE, "db", "a")
    for host in ("127.0.0.1", "no-such-host.invalid"):
        assert refusal(f"http://{host}:{free_port()}").startswith(BROKEN)
    with raw(http(b"", "307 Temporary Redirect", f"Location: {server.url}/v1/pre-reboot")) as url:
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


MANY = vector(*[{"alertname": f"A{number}"} for number in range(5)])
NO_LIST = "alerts are not known: query gives a {}, and a list of alerts is needed"
OF_QUEUE = "alerts forbid it: queue of h1, a result without a name ({})"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vector(), ""),
        (vector(warnings=["PromQL info: metric might not be a counter"]), ""),
        (MANY, "alerts forbid it: A0, A1, A2 and 2 more"),
        (vector({"alertname": "A\x1b[2J\nB", "instance": ["x"]}), "alerts forbid it: A\\x1b[2J B of ['x']"),
        (vector({"__name__": "queue", "instance": "h1"}, {}), OF_QUEUE),
        (vector(isPartial=True), "alerts are not all known: {} says that its answer is partial"),
        (vector(warnings=["No StoreAPIs matched"]), "alerts are not all known: {} says No StoreAPIs matched"),
        (vector(warnings="x"), "alerts are not all known: {} says x"),
        (vector(7), NOT_SO),
        *((result("vector", one), NOT_SO) for one in ([7], {}, "")),
        *((one, "{} answers with status 200, and not as Prometheus does") for one in ([], "<html>")),
        *((result(kind, [1, "17"]), NO_LIST.format(kind)) for kind in ("scalar", "matrix")),
        ({"status": "error", "error": "parse error"}, "alerts are not known: {} says parse error"),
        (vector({"alertname": "x" * 2**20}), "alerts are not known: {} answers with more than 1024 KiB"),
    ],
    ids=itertools.count(),
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


URL = "https://lock.example.com/base"
FROM_2_TO_5 = {"from": "02:00", "to": "05:00"}


def test_what_is_a_slot_and_what_is_empty_is_none():
    for given, slot in (
        ({"fleetlock": URL + "/"}, Slot(fleetlock=URL)),
        ({"fleetlock": "http://[::1]:8080"}, Slot(fleetlock="http://[::1]:8080")),
        ({"acquire": ["a", ""], "release": ["b"]}, Slot(acquire=("a", ""), release=("b",))),
        ({"kured": "/var/run/reboot-required"}, Slot(kured="/var/run/reboot-required")),
    ):
        assert settings.parse(given) == settings.parse(slot.plain) == slot
    for parse in (settings.parse, window.parse, request.parse_alerts):
        assert parse(None) is None and parse({}) is None


MAPPING = "it must be a mapping"
NO_ADDRESS = "fleetlock is no address such as https://fleetlock.example.com"
NOT_ALONE = "fleetlock has more in it than an address: leave out a user, a password, ? and #"
KURED = "kured must be the path of its sentinel below /run or /var/run"
QUERY = "query must be one of PromQL, such as"
OF_ALERTS = {"prometheus": "http://p:9090", "query": "up"}


@pytest.mark.parametrize(
    ("parse", "given", "said"),
    [
        *((settings.parse, one, MAPPING) for one in (URL, {"fleetlock": URL, "kured": "/run/x"}, {"acquire": ["a"]})),
        (settings.parse, {"acquire": "a --now", "release": ["b"]}, "acquire must be a list of texts"),
        (settings.parse, {"acquire": ["a"], "release": []}, "release must be a list of texts"),
        *((settings.parse, {"fleetlock": one}, NO_ADDRESS) for one in ("ftp://l", 1, "http://l:port", "http://l/a b")),
        *((settings.parse, {"fleetlock": f"https://{one}"}, NOT_ALONE) for one in ("jo:secret@l", "l?token=secret")),
        *((settings.parse, {"kured": one}, KURED) for one in ("/etc/reboot-required", "/run/../etc/x", "reboot")),
        (request.parse_alerts, {"prometheus": "http://p:9090"}, MAPPING),
        *((request.parse_alerts, {**OF_ALERTS, "query": one}, QUERY) for one in (" ", ["up"], "x" * 2001)),
        (request.parse_alerts, {**OF_ALERTS, "prometheus": "p:9090"}, "prometheus is no address such as"),
        (request.parse_alerts, {**OF_ALERTS, "prometheus": "http://me:secret@p"}, "prometheus has more in it than an"),
        *((window.parse, one, MAPPING) for one in ({"from": "02:00"}, {**FROM_2_TO_5, "zone": "UTC"})),
        *((window.parse, {"from": one, "to": "02:00"}, "it begins when it ends") for one in ("02:00", "24:00")),
        *((window.parse, {**FROM_2_TO_5, "from": one}, "its from must be a time of UTC") for one in (True, "2am")),
        (window.parse, {**FROM_2_TO_5, "to": "25:00"}, "its to must be a time of UTC"),
        *((window.parse, {**FROM_2_TO_5, "days": one}, "its days must be a list") for one in ([], ["saturday"], "sat")),
    ],
)
def test_what_is_none_is_refused_and_not_shown(parse, given, said):
    with pytest.raises(SlotError) as raised:
        parse(given)
    assert said in str(raised.value) and "secret" not in str(raised.value)


def test_names_that_a_server_does_not_take():
    groups = [(one, "a", "smt_policy_group is ") for one in ("db_1", "", "x" * 254, "db\n")]
    for group, host, said in [*groups, *(("db", one, "the host's name ") for one in ("a b", ""))]:
        with pytest.raises(SlotError, match=said):
            settings.check(Slot(fleetlock=URL), group, host)
        settings.check(Slot(acquire=("a",), release=("b",)), group, host)
    settings.check(Slot(fleetlock=URL), "eu-1.db", "web_01:2222")


def test_the_command_that_releases_is_whole():
    plain = settings.release_command(Slot(fleetlock=URL), "db", "web01.example.com")
    assert '"' not in plain and "\\" not in plain
    *words, last = shlex.split(plain)
    assert words == ["ansible", "localhost", "-m", "threadwise.smt.smt_slot", "-a"]
    assert last == f"state=released slot=fleetlock={URL} group=db host=web01.example.com"
    for url, host in ((URL, "it's"), ("http://[::1]:8080", "a"), (URL, "a=b,c=d")):
        given = json.loads(shlex.split(settings.release_command(Slot(fleetlock=url), "db", host))[5])
        assert given == {"state": "released", "slot": {"fleetlock": url}, "group": "db", "host": host}
    pair = Slot(acquire=("a",), release=("consul lock", "$(id)"))
    assert shlex.split(settings.release_command(pair, "db", "h")) == list(pair.release)


@pytest.mark.parametrize(
    ("given", "moment", "hours"),
    [
        ({"days": ["sat", "sun"], **FROM_2_TO_5}, "2026-11-28 02:00", 0),
        ({"days": ["sat", "sun"], **FROM_2_TO_5}, "2026-11-28 05:00", 21),
        ({"days": ["Sat"], "from": "22:00", "to": "04:00"}, "2026-11-29 03:59", 0),
        ({"days": ["sat"], "from": "22:00", "to": "04:00"}, "2026-11-28 03:00", 19),
        ({"days": ["sun"], "from": "00:00", "to": "24:00"}, "2026-11-30 00:00", 6 * 24),
        ({"from": "9:30", "to": "10:00"}, "2026-11-30 09:00", 0.5),
        # 22:00 and 6:00 without quotes in YAML 1.1.
        ({"from": 22 * 60, "to": 6 * 60}, "2026-11-30 06:00", 16),
    ],
)
def test_when_a_window_is_open(given, moment, hours):
    assert window.parse(given).opens_in(calendar.timegm(time.strptime(moment, "%Y-%m-%d %H:%M"))) == hours * 3600
