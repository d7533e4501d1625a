# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a guest against what util-linux's lscpu, another reader of the same kernel, says there."""

from __future__ import annotations

import collections

import pytest


def cpus(cpulist: str) -> list[int]:
    """``0-2,4`` -> [0, 1, 2, 4]."""
    ranges = [part.partition("-") for part in cpulist.split(",") if part]
    return [cpu for first, _dash, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def gather(host) -> dict:
    """The facts as a play gets them."""
    return host.ansible("threadwise.smt.smt_facts", check=True)["ansible_facts"]["smt"]


def lscpu(host) -> dict[str, str]:
    """The fields of lscpu."""
    lines = [line.partition(":") for line in host.check_output("LC_ALL=C lscpu").splitlines()]
    return {field.strip(): value.strip() for field, _colon, value in lines}


def cores(host) -> list[list[int]]:
    """The online CPUs of each core, as lscpu groups them."""
    grouped = collections.defaultdict(list)
    for line in host.check_output("lscpu --parse=CPU,CORE").splitlines():
        if not line.startswith("#"):
            cpu, core = line.split(",")
            grouped[core].append(int(cpu))
    return sorted(sorted(core) for core in grouped.values())


@pytest.fixture
def smt_off(host):
    """SMT switched off for a test, by the kernel's own file."""
    host.check_output("echo off >/sys/devices/system/cpu/smt/control")
    yield
    host.check_output("echo on >/sys/devices/system/cpu/smt/control")


def test_with_smt_on_each_core_shows_its_siblings(host):
    facts = gather(host)
    shown = lscpu(host)
    threads = int(shown["Thread(s) per core"])
    assert threads > 1
    assert facts["sockets"] == int(shown["Socket(s)"])
    assert facts["cores"] == int(shown["Socket(s)"]) * int(shown["Core(s) per socket"])
    assert facts["threads_per_core"] == {"min": threads, "max": threads, "online_max": threads}
    assert [cpus(group) for group in facts["sibling_groups"]] == cores(host)
    assert facts["cpus"]["online"] == shown["On-line CPU(s) list"]
    assert facts["control"] == host.check_output("cat /sys/devices/system/cpu/smt/control")
    assert facts["active"] is True


def test_the_numbering_is_the_one_the_guest_was_built_with(host):
    facts = gather(host)
    assert facts["numbering"] == host.ansible.get_variables()["lab_numbering"]
    assert cpus(facts["primaries"]) == [core[0] for core in cores(host)]


def test_with_smt_off_facts_say_what_is_online_and_invent_no_sibling(host, smt_off):
    facts = gather(host)
    shown = lscpu(host)
    assert shown["Thread(s) per core"] == "1"
    assert facts["active"] is False
    assert facts["control"] == "off"
    assert facts["cpus"]["online"] == shown["On-line CPU(s) list"]
    assert facts["cpus"]["offline"] == shown["Off-line CPU(s) list"]
    assert facts["threads_per_core"]["online_max"] == 1
    # Where an offline CPU's core is known it is told, and only where all are known the facts call themselves complete.
    known = [cpu for group in facts["sibling_groups"] for cpu in cpus(group)]
    assert facts["complete"] == (sorted(known) == cpus(facts["cpus"]["present"]))
    assert cpus(facts["cpus"]["online"]) == sorted(core[0] for core in cores(host))


MAP = "/var/lib/threadwise-smt/topology.json"


@pytest.fixture
def siblings_offline(host):
    """Each sibling taken offline by itself, with no map saved before; yields the facts from when all were online."""
    host.check_output(f"rm -f {MAP}")
    before = gather(host)
    for cpu in cpus(before["secondaries"]):
        host.check_output(f"echo 0 >/sys/devices/system/cpu/cpu{cpu}/online")
    yield before
    for cpu in cpus(before["secondaries"]):
        host.check_output(f"echo 1 >/sys/devices/system/cpu/cpu{cpu}/online")


def test_siblings_offline_without_a_map_are_not_known_and_not_denied(host, siblings_offline):
    facts = gather(host)
    assert facts["cpus"]["offline"] == siblings_offline["secondaries"] != ""
    assert (facts["complete"], facts["source"], facts["secondaries"], facts["hardware_class"]) == (False, "sysfs", "", None)
    assert facts["supported"] is True
    assert facts["sibling_groups"] == [str(cpu) for cpu in cpus(siblings_offline["primaries"])]


@pytest.fixture
def disabled(host):
    """SMT turned off by smt_state, which saves the map first; yields the facts from before."""
    before = gather(host)
    host.ansible("threadwise.smt.smt_state", "state=disabled", check=False)
    yield before
    host.ansible("threadwise.smt.smt_state", "state=restored", check=False)


KNOWN_EITHER_WAY = ("sibling_groups", "primaries", "secondaries", "numbering", "sockets", "cores", "hardware_class", "complete")


def test_after_smt_state_the_siblings_are_named_from_the_map(host, disabled):
    facts = gather(host)
    assert host.file(MAP).user == "root"
    assert (facts["source"], facts["active"], facts["cpus"]["offline"]) == ("saved", False, disabled["secondaries"])
    assert {name: facts[name] for name in KNOWN_EITHER_WAY} == {name: disabled[name] for name in KNOWN_EITHER_WAY}
    assert facts["threads_per_core"] == dict(disabled["threads_per_core"], online_max=1)


DAMAGES = ("chmod 666 {0}", "chown nobody {0}", "echo nothing >{0}", "sed -i 's/\"key\": \"/&0/' {0}", "sed -i 's/\"0-7\"/\"0-6\"/' {0}")


def test_a_map_that_cannot_be_trusted_is_not_used(host, disabled):
    for damage in DAMAGES:
        host.check_output(f"cp -p {MAP} {MAP}.kept && {damage.format(MAP)}")
        facts = gather(host)
        host.check_output(f"mv {MAP}.kept {MAP}")
        assert (facts["source"], facts["complete"], facts["secondaries"]) == ("sysfs", False, ""), damage
        assert any(MAP in problem for problem in facts["problems"]), damage
