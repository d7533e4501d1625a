# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a guest, in each state through which files/walk.py took it, against what util-linux's lscpu, another
reader of the same kernel, said there.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
MAP = "/var/lib/threadwise-smt/topology.json"


def cpus(cpulist: str) -> list[int]:
    """``0-2,4`` -> [0, 1, 2, 4]."""
    ranges = [part.partition("-") for part in cpulist.split(",") if part]
    return [cpu for first, _dash, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def lscpu(state: dict) -> dict[str, str]:
    """The fields of lscpu."""
    lines = [line.partition(":") for line in state["lscpu"].splitlines()]
    return {field.strip(): value.strip() for field, _colon, value in lines}


def cores(state: dict) -> list[list[int]]:
    """The online CPUs of each core, as lscpu groups them."""
    grouped = collections.defaultdict(list)
    for line in state["parse"].splitlines():
        if not line.startswith("#"):
            cpu, core = line.split(",")
            grouped[core].append(int(cpu))
    return sorted(sorted(core) for core in grouped.values())


@pytest.fixture(name="seen", scope="module")
def what_was_seen(host) -> dict[str, dict]:
    """State -> what was seen in it."""
    return json.loads((EPHEMERAL / f"{host.backend.get_hostname()}.json").read_text(encoding="utf-8"))


def test_with_smt_on_each_core_shows_its_siblings(seen):
    facts, shown = seen["on"]["facts"], lscpu(seen["on"])
    threads = int(shown["Thread(s) per core"])
    assert threads > 1
    assert facts["sockets"] == int(shown["Socket(s)"])
    assert facts["cores"] == int(shown["Socket(s)"]) * int(shown["Core(s) per socket"])
    assert facts["threads_per_core"] == {"min": threads, "max": threads, "online_max": threads}
    assert [cpus(group) for group in facts["sibling_groups"]] == cores(seen["on"])
    assert facts["cpus"]["online"] == shown["On-line CPU(s) list"]
    assert facts["control"] == seen["on"]["control"]
    assert facts["active"] is True


def test_the_numbering_is_the_one_the_guest_was_built_with(host, seen):
    facts = seen["on"]["facts"]
    assert facts["numbering"] == host.ansible.get_variables()["lab_numbering"]
    assert cpus(facts["primaries"]) == [core[0] for core in cores(seen["on"])]


def test_with_smt_off_facts_say_what_is_online_and_invent_no_sibling(seen):
    facts, shown = seen["off"]["facts"], lscpu(seen["off"])
    assert shown["Thread(s) per core"] == "1"
    assert facts["active"] is False
    assert facts["control"] == "off"
    assert facts["cpus"]["online"] == shown["On-line CPU(s) list"]
    assert facts["cpus"]["offline"] == shown["Off-line CPU(s) list"]
    assert facts["threads_per_core"]["online_max"] == 1
    # Where an offline CPU's core is known it is shown, and only where all are known the facts call themselves complete.
    known = [cpu for group in facts["sibling_groups"] for cpu in cpus(group)]
    assert facts["complete"] == (sorted(known) == cpus(facts["cpus"]["present"]))
    assert cpus(facts["cpus"]["online"]) == sorted(core[0] for core in cores(seen["off"]))


def test_siblings_offline_without_a_map_are_not_known_and_not_denied(seen):
    facts, before = seen["siblings offline, no map"]["facts"], seen["on"]["facts"]
    assert facts["cpus"]["offline"] == before["secondaries"] != ""
    assert (facts["complete"], facts["source"], facts["secondaries"], facts["hardware_class"]) == (
        False,
        "sysfs",
        "",
        None,
    )
    assert facts["supported"] is True
    assert facts["sibling_groups"] == [str(cpu) for cpu in cpus(before["primaries"])]


KNOWN_EITHER_WAY = (
    "sibling_groups",
    "primaries",
    "secondaries",
    "numbering",
    "sockets",
    "cores",
    "hardware_class",
    "complete",
)


def test_after_smt_state_the_siblings_are_named_from_the_map(seen):
    facts, before = seen["disabled"]["facts"], seen["on"]["facts"]
    assert seen["disabled"]["map_owner"] == 0
    assert (facts["source"], facts["active"], facts["cpus"]["offline"]) == ("saved", False, before["secondaries"])
    assert {name: facts[name] for name in KNOWN_EITHER_WAY} == {name: before[name] for name in KNOWN_EITHER_WAY}
    assert facts["threads_per_core"] == dict(before["threads_per_core"], online_max=1)


def test_a_map_that_cannot_be_trusted_is_not_used(seen):
    damages = {
        state: shown["facts"] for state, shown in seen.items() if "{0}" in state and not state.startswith("seen cores")
    }
    assert len(damages) == 5
    for damage, facts in damages.items():
        assert (facts["source"], facts["complete"], facts["secondaries"]) == ("sysfs", False, ""), damage
        assert any(MAP in problem for problem in facts["problems"]), damage


def test_what_a_change_saw_names_the_siblings_without_the_map(seen):
    before = seen["on"]["facts"]
    found = [shown["facts"] for state, shown in seen.items() if state.startswith("seen cores")]
    assert len(found) == 5
    for facts in found:
        assert (facts["source"], facts["complete"], facts["sibling_groups"]) == (
            "saved",
            True,
            before["sibling_groups"],
        )
        assert any(MAP in problem for problem in facts["problems"])


def test_the_guest_is_left_as_it_was_found(host, seen):
    assert host.check_output("cat /sys/devices/system/cpu/online") == seen["on"]["facts"]["cpus"]["present"]
    assert host.check_output("cat /sys/devices/system/cpu/smt/control") == seen["on"]["control"]
