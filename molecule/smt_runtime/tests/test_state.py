# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run-time changes on every numbering, seen from outside: sysfs, lscpu, the mask of a pinned service.

The tests build on one another, and on what the playbooks of the scenario left: no other file of tests comes before
this one by its name.
"""

from __future__ import annotations

import itertools
import re

import pytest
from guest import RECORD, SAVED, TMPFILES, control, cores_of, cpus, firsts, mark, online, pinned, smt_state


@pytest.fixture(name="cores")
def cores_of_the_shape(host):
    return cores_of(host)


def test_every_step_after_every_other(host, cores):
    """What walk.py has gone through; CPU 5 was off on purpose before the first step."""
    found = firsts(cores, 99)
    found.remove(5)
    wanted = {"enabled": found, "restored": found, "disabled": [min(set(core) & set(found)) for core in cores]}
    wanted["1"] = wanted["disabled"]
    walked = [line.split() for line in host.file("/root/walked").content_string.splitlines()]
    for step, seen in walked:
        assert cpus(seen) == sorted(wanted[step] if step in wanted else firsts(cores, int(step))), (step, seen)
    pairs = {(first[0], second[0]) for first, second in itertools.pairwise(walked)}
    assert len(pairs) == (3 + len(cores[0])) ** 2


def test_one_thread_of_each_core(host, cores):
    assert online(host) == firsts(cores, 1)
    assert control(host) == "off"
    lscpu = host.check_output("LC_ALL=C lscpu")
    assert re.search(r"^Thread\(s\) per core: +1$", lscpu, re.MULTILINE), lscpu
    assert host.file(SAVED).mode == 0o600
    assert not host.file(RECORD).exists, "the role has confirmed the change"
    assert host.run("systemctl is-active threadwise-smt-rollback.service").rc == 3
    assert "- - - - off" in host.file(TMPFILES).content_string


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_converged_host_is_not_written_to(host, check_mode):
    before = mark(host)
    assert smt_state(host, check_mode, state="disabled", persist="tmpfiles")["changed"] is False
    assert mark(host) == before


def test_restored(host, cores):
    done = smt_state(host, state="restored")
    assert (done["changed"], done["not_restored"]) == (True, [])
    assert online(host) == firsts(cores, 99)
    assert control(host) == "on"
    assert pinned(host) == "7", "the service has its mask again"
    assert not host.file(SAVED).exists
    assert not host.file(TMPFILES).exists
    assert smt_state(host, state="restored")["changed"] is False


@pytest.mark.parametrize("check_mode", [True, False])
def test_affinity_conflicts_are_refused(host, check_mode):
    before = mark(host)
    done = smt_state(host, check_mode, state="disabled")
    assert re.search(
        r"CPU 7: pid \d+ \w+ \(user root, uid 0, unit pinned.service\) is pinned to 7 alone", done["msg"]
    ), done
    assert len(done["affinity_conflicts"]) == 1
    assert mark(host) == before


def test_check_mode_shows_and_changes_nothing(host, cores):
    before = mark(host)
    done = smt_state(host, True, state="disabled", affinity_conflicts="warn", persist="systemd", rollback_after=60)
    assert (done["changed"], cpus(done["after"]["online"]), done["after"]["control"]) == (True, firsts(cores, 1), "off")
    assert len(done["affinity_conflicts"]) == 1
    assert mark(host) == before
