# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that count CPUs when they start: smt_state says which of them will be wrong, they are, and what it says puts
them right.
"""

from __future__ import annotations

import sys
import time

import calls
import pytest

GUEST = "smt-consumers"
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
# A service -> how many CPUs it works with now, and its sentence about a change from one number to another.
NUMBER = {
    "nginx": "pgrep -cf '^nginx: worker process$'",
    # The worker of the master that reads the configuration now is the youngest process.
    "haproxy": "ls /proc/$(pgrep -n haproxy)/task | wc -l",
}
SENTENCE = {
    "nginx": "nginx.service has {0} worker processes for {0} CPUs, and will have {1}: restart it",
    "haproxy": "haproxy.service has {0} threads for {0} CPUs, and will have {1}: reload it",
}
REMEDY = {"nginx": "systemctl restart nginx", "haproxy": "systemctl reload haproxy"}


@pytest.fixture(scope="module", autouse=True)
def the_services(host):
    calls.output(sys.executable, str(calls.LAB), "install", GUEST, "nginx-light", "haproxy")
    host.ansible("ansible.builtin.copy", f"content={HAPROXY!r} dest=/etc/haproxy/haproxy.cfg", check=False)
    for name in NUMBER:
        host.check_output(f"systemctl restart {name}")


@pytest.fixture(autouse=True)
def as_it_was(host, the_services):
    """Each test begins with services that are right, on a guest that is as it was."""
    yield
    state("restored")
    for name in NUMBER:
        host.check_output(f"systemctl restart {name}")
        settled(host, name, 4)


def state(wanted, *words):
    """Change the state; returns what the terminal shows, as one line."""
    done = calls.run(
        *("ansible", "-i", str(calls.INVENTORY), GUEST, "-b", "-m", "threadwise.smt.smt_state"),
        *("-a", f"state={wanted}", *words),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(f"{done.stdout} {done.stderr}".split())


def settled(host, name, number):
    """Wait until a service works with so many CPUs: processes of the configuration before end in their own time."""
    for _attempt in range(100):
        found = int(host.run(NUMBER[name]).stdout or 0)
        if found == number:
            return
        time.sleep(0.3)
    raise AssertionError(f"{name} works with {found} CPUs, not {number}")


@pytest.mark.parametrize("words", [("--check",), ()], ids=["check mode", "for real"])
def test_who_will_be_wrong_is_said_before(host, words):
    said = state("disabled", *words)
    for sentence in SENTENCE.values():
        assert sentence.format(4, 2) in said
    if not words:
        # Siblings that come back are no more counted than those that go.
        for name in NUMBER:
            host.check_output(f"systemctl restart {name}")
            settled(host, name, 2)
        said = state("enabled")
        for sentence in SENTENCE.values():
            assert sentence.format(2, 4) in said


@pytest.mark.parametrize("name", NUMBER)
def test_it_is_wrong_then_and_what_is_said_puts_it_right(host, name):
    settled(host, name, 4)
    state("disabled")
    settled(host, name, 4)
    if name == "nginx":
        host.check_output("systemctl reload nginx")
        time.sleep(3)
        settled(host, name, 4)
    host.check_output(REMEDY[name])
    settled(host, name, 2)
    # Who is right is not named.
    assert name not in state("disabled")
