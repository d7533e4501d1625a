# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT off on one of two sockets, on both numberings. test_state.py has gone before and left all CPUs online."""

from __future__ import annotations

import pytest
from guest import CPUS, SAVED, call, control, cores_of, cpus, firsts, mark, online, pinned, smt_state

PART = {"state": "disabled", "cores": {"package": 1}, "affinity_conflicts": "warn"}


@pytest.fixture(name="cores")
def cores_of_the_shape(host):
    return cores_of(host)


@pytest.fixture(name="siblings")
def siblings_of_package_1(host, cores):
    """The second threads of the cores whose first thread, which stays online, is in the other package than CPU 0."""
    packages = {core[0]: host.check_output(f"cat {CPUS}/cpu{core[0]}/topology/physical_package_id") for core in cores}
    return sorted(cpu for core in cores if packages[core[0]] != packages[0] for cpu in core[1:])


def judged(host):
    return call(host, "smt_status", False, {"policy": {"disabled_on": {"package": 1}}})["compliance"]


def test_check_mode_shows_the_siblings_of_one_package(host, cores, siblings):
    before = mark(host)
    done = smt_state(host, True, **PART)
    assert len(siblings) == 2
    assert (done["changed"], cpus(done["after"]["online"])) == (True, sorted(set(firsts(cores, 99)) - set(siblings)))
    assert mark(host) == before


def test_exactly_the_siblings_of_one_package_go_offline(host, cores, siblings):
    assert judged(host)["status"] == "drifted"
    done = smt_state(host, **PART)
    assert (done["changed"], len(done["affinity_conflicts"])) == (True, 1), "the pinned service"
    assert online(host) == sorted(set(firsts(cores, 99)) - set(siblings))
    assert control(host) == "on"
    assert judged(host)["status"] == "compliant"


def test_a_second_call_changes_nothing(host):
    before = mark(host)
    assert smt_state(host, **PART)["changed"] is False
    assert mark(host) == before


def test_compliance_sees_a_sibling_that_came_back(host, siblings):
    host.check_output(f"echo 1 >{CPUS}/cpu{siblings[0]}/online")
    found = judged(host)
    assert (found["status"], found["sentence"]) == ("drifted", f"running: CPUs {siblings[0]} are online")
    assert found["change"]["running"] == {"state": "disabled", "cores": {"package": 1}}
    assert smt_state(host, **PART)["changed"] is True
    assert judged(host)["status"] == "compliant"


def test_the_other_package_instead(host, cores, siblings):
    """The state is described completely: whatever was before, the cores that are not named have all their threads."""
    smt_state(host, **dict(PART, cores={"package": 0}))
    assert online(host) == sorted(set(firsts(cores, 1)) | set(siblings))
    smt_state(host, state="disabled", affinity_conflicts="warn")
    assert (online(host), control(host)) == (firsts(cores, 1), "off")
    smt_state(host, **PART)
    assert (online(host), control(host)) == (sorted(set(firsts(cores, 99)) - set(siblings)), "on")


def test_the_cores_of_a_unit(host, cores, siblings):
    """A service on the cores of one package by its cpuset,
    which loses its siblings and keeps its cores' first threads.
    """
    its_cpus = sorted({cpu for core in cores if set(core) & set(siblings) for cpu in core})
    allowed = ",".join(map(str, its_cpus))
    host.check_output("systemd-run --collect --unit=boxed --property=AllowedCPUs=%s sleep infinity", allowed)
    smt_state(host, state="restored")
    options = dict(PART, cores={"unit": "boxed.service"})
    done = smt_state(host, **options)
    assert any("boxed.service" in text and "would shrink" in text for text in done["affinity_conflicts"]), done
    assert online(host) == sorted(set(firsts(cores, 99)) - set(siblings))
    assert smt_state(host, **options)["changed"] is False
    assert smt_state(host, state="restored")["not_restored"] == []
    host.check_output("systemctl stop boxed")
    assert "unit boxed.service has no cgroup" in smt_state(host, **options)["msg"]
    # Linux before 6.2 forgets the masks of all tasks whose cgroup gets or loses a cpuset, as with the unit's
    # AllowedCPUs.
    host.check_output("systemctl restart pinned")


def test_restored_exactly(host, cores):
    smt_state(host, **PART)
    done = smt_state(host, state="restored")
    assert (done["changed"], done["not_restored"]) == (True, [])
    assert (online(host), control(host), pinned(host)) == (firsts(cores, 99), "on", "7")
    assert not host.file(SAVED).exists
    assert smt_state(host, state="restored")["changed"] is False


@pytest.mark.parametrize(
    ("cores", "reason"),
    [
        ({"node": 7}, "there is no node 7"),
        ({"package": 2}, "there is no package 2"),
        ({"unit": "pinned.servic"}, "give the full name"),
        ({"cpus": "9"}, "there is no CPU 9"),
    ],
)
def test_what_the_host_does_not_have(host, cores, reason):
    assert reason in smt_state(host, **dict(PART, cores=cores))["msg"]
    assert not host.file(SAVED).exists
