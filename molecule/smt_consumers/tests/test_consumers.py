# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that count CPUs when they start: smt_state says which of them will be wrong, they are, what it says puts
them right, and where it is asked to they follow each change, and follow it back.
"""

from __future__ import annotations

import shlex
import sys
import time

import calls
import pytest

GUEST = "smt-consumers"
TIMES = 20
HAPROXY = """\
global
    master-worker
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend here
    bind 127.0.0.1:8404
"""
# The JVM has a program without source that stays: the registry of RMI.
JVM = """\
[Service]
ExecStart=/usr/bin/java -XX:+UseParallelGC -XX:-UseDynamicNumberOfGCThreads -m java.rmi/sun.rmi.registry.RegistryImpl
"""
# A service of one's own, as a user declares it.
OWN = """\
[Service]
ExecStart=/bin/sh -c 'nproc > /run/ingest.number && exec sleep infinity'
"""
INGEST = {
    "unit": "inge*.service",
    "number": ["cat", "/run/ingest.number"],
    "remedy": ["systemctl", "restart", "{unit}"],
}
# PostgreSQL counts no CPUs: a setting that was written for their number, as docs/runtime.md has it.
AS_POSTGRES = ["runuser", "-u", "postgres", "--"]
WORKERS = [*AS_POSTGRES, "psql", "-Atqc", "show max_parallel_workers"]
SET_WORKERS = 'psql -qc "alter system set max_parallel_workers = $(nproc)" -c "select pg_reload_conf()"'
POSTGRESQL = {
    "unit": "postgresql@15-main.service",
    "number": WORKERS,
    "remedy": [*AS_POSTGRES, "sh", "-c", SET_WORKERS],
}
# A service -> how many CPUs it works with now, and its sentence about a change from one number to another.
NUMBER = {
    "nginx": "pgrep -cf '^nginx: worker process$'",
    # The worker of the master that reads the configuration now is the youngest process.
    "haproxy": "ls /proc/$(pgrep -n haproxy)/task | wc -l",
    "registry": "cat /proc/$(pgrep -n java)/task/*/comm | grep -c '^GC Thread#'",
    "ingest": "cat /run/ingest.number",
    "postgresql@15-main": shlex.join(WORKERS),
}
SENTENCE = {
    "nginx": "nginx.service has {0} worker processes for {0} CPUs, and will have {1}: restart it",
    "haproxy": "haproxy.service has {0} threads for {0} CPUs, and will have {1}: reload it",
    "registry": "registry.service has a JVM with its garbage collector and pools for {0} CPUs, and will have {1}:",
}
REMEDY = {"haproxy": "systemctl reload haproxy"}
FOLLOW = {
    "consumers": {"nginx": "restart", "haproxy": "reload", "java": "restart"},
    "consumers_custom": [INGEST, POSTGRESQL],
}


@pytest.fixture(scope="module", autouse=True)
def the_services(host):
    packages = ("nginx-light", "haproxy", "openjdk-17-jre-headless", "postgresql-15")
    calls.output(sys.executable, str(calls.LAB), "install", GUEST, *packages)
    files = {
        "/etc/haproxy/haproxy.cfg": HAPROXY,
        "/etc/systemd/system/registry.service": JVM,
        "/etc/systemd/system/ingest.service": OWN,
    }
    for path, text in files.items():
        host.ansible("ansible.builtin.copy", f"content={text!r} dest={path}", check=False)
    # Packages start nothing on a guest.
    host.check_output("systemctl daemon-reload; systemctl start postgresql@15-main")
    as_at_first(host)


@pytest.fixture(autouse=True)
def as_it_was(host, the_services):
    """Each test begins with services that are right, on a guest that is as it was."""
    yield
    host.run("rm -rf /run/systemd/system/*.service.d; systemctl daemon-reload")
    state("restored")
    as_at_first(host)


def as_at_first(host):
    host.check_output(shlex.join(POSTGRESQL["remedy"]))
    for name in NUMBER:
        host.check_output(f"systemctl restart {name}")
        settled(host, name, 4)


def state(wanted, *words, **options):
    return calls.state(GUEST, wanted, *words, **options)


def settled(host, name, number):
    """Wait until a service works with so many CPUs: processes of the configuration before end in their own time."""
    for _attempt in range(100):
        found = int(host.run(NUMBER[name]).stdout or 0)
        if found == number:
            return
        time.sleep(0.3)
    raise AssertionError(f"{name} works with {found} CPUs, not {number}")


def online(host):
    return host.check_output("cat /sys/devices/system/cpu/online")


def drop_in(host, service, text):
    host.check_output(f"mkdir -p /run/systemd/system/{service}.service.d")
    path = f"/run/systemd/system/{service}.service.d/test.conf"
    host.ansible("ansible.builtin.copy", f"content={text!r} dest={path}", check=False)
    host.check_output("systemctl daemon-reload")


@pytest.mark.parametrize("words", [("--check",), ()], ids=["check mode", "for real"])
def test_who_will_be_wrong_is_said_before(host, words):
    said = state("disabled", *words)
    for sentence in SENTENCE.values():
        assert sentence.format(4, 2) in said
    if not words:
        # Siblings that come back are no more counted than those that go.
        for name in SENTENCE:
            host.check_output(f"systemctl restart {name}")
            settled(host, name, 2)
        said = state("enabled")
        for sentence in SENTENCE.values():
            assert sentence.format(2, 4) in said


@pytest.mark.parametrize("name", SENTENCE)
def test_it_is_wrong_then_and_what_is_said_puts_it_right(host, name):
    settled(host, name, 4)
    state("disabled")
    settled(host, name, 4)
    if name == "nginx":
        host.check_output("systemctl reload nginx")
        time.sleep(3)
        settled(host, name, 4)
    host.check_output(REMEDY.get(name, f"systemctl restart {name}"))
    settled(host, name, 2)
    # Who is right is not named.
    assert f"{name}.service" not in state("disabled")


def numbers(host):
    return {name: int(host.run(command).stdout or 0) for name, command in NUMBER.items()}


def test_twenty_times_without_us_each_is_wrong(host):
    for _time in range(TIMES):
        state("disabled")
        assert (online(host), set(numbers(host).values())) == ("0,2", {4})
        state("restored")
        assert (online(host), set(numbers(host).values())) == ("0-3", {4})


def test_twenty_times_each_follows_and_follows_back(host):
    for _time in range(TIMES):
        said = state("disabled", **FOLLOW)
        assert "will have" not in said
        for name in NUMBER:
            assert f"{name}.service: " in said
            settled(host, name, 2)
        assert online(host) == "0,2"
        # Whoever followed is known: nobody has to be named again.
        state("restored")
        for name in NUMBER:
            settled(host, name, 4)
        assert online(host) == "0-3"


def test_a_reload_that_hangs_ends_the_change_and_the_host_is_as_it_was(host):
    drop_in(host, "haproxy", "[Service]\nTimeoutStartSec=infinity\nExecReload=\nExecReload=/bin/sleep 1000\n")
    begun = time.monotonic()
    done = calls.asked(GUEST, "disabled", **FOLLOW)
    assert done.returncode != 0 and time.monotonic() - begun < 300
    said = " ".join(f"{done.stdout} {done.stderr}".split())
    assert "haproxy.service does not follow: systemctl reload haproxy.service" in said
    assert "The host is as it was before" in said
    assert online(host) == "0-3"
    for name in NUMBER:
        settled(host, name, 4)
    host.check_output("systemctl kill haproxy; systemctl stop haproxy")


def test_a_module_that_is_killed_while_a_service_restarts_leaves_the_host_as_it_was(host):
    drop_in(host, "nginx", "[Service]\nExecStartPre=/bin/sh -c 'touch /run/begun && sleep 30'\n")
    calls.killed(host, GUEST, "/run/begun", "disabled", **FOLLOW)
    assert online(host) == "0-3"
    for name in NUMBER:
        settled(host, name, 4)


def test_a_change_that_nobody_confirms_takes_its_services_back(host):
    state("disabled", rollback_after=20, **FOLLOW)
    for name in NUMBER:
        settled(host, name, 2)
    calls.ended(host, "systemctl is-active threadwise-smt-rollback.service")
    assert online(host) == "0-3"
    for name in NUMBER:
        settled(host, name, 4)


def test_processes_of_a_user_are_named_and_left_alone(host):
    host.check_output("id someone || useradd -m someone")
    host.run("cp /bin/sleep /tmp/java; runuser -u someone -- /tmp/java 600 >/dev/null 2>&1 &")
    try:
        said = state("disabled", **FOLLOW)
        assert "it is no service of the system, and is left alone: restart it" in said
        assert host.run("pgrep -u someone java").rc == 0
    finally:
        host.run("pkill -u someone java")
