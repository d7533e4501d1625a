# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""POWER's numbers of threads at run time, by smt/control, on a real kernel.

The tests of a guest build on one another.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from guest import CPUS, SAVED, call, control, cores_of, firsts, online, smt_state

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")
# Between all threads and one of each core.
LEVELS = {4: [3, 2, 1], 8: [6, 4, 2, 1]}


@pytest.fixture(name="cores")
def cores_of_the_shape(host):
    return cores_of(host)


def facts(host):
    """The facts, which testinfra's own call of a module leaves out."""
    command = [
        "ansible",
        "-i",
        str(EPHEMERAL / "inventory"),
        host.backend.get_hostname(),
        "-m",
        "threadwise.smt.smt_facts",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env=PLAIN)
    return json.loads(done.stdout.partition("=> ")[2])["ansible_facts"]["smt"]


def judged(host, threads):
    return call(host, "smt_status", False, {"policy": {"threads_per_core": threads}})["compliance"]


def reads(threads, of):
    """What smt/control reads with some of a core's threads."""
    return {1: "off", of: "on"}.get(threads, str(threads))


def test_each_level_and_back(host, cores):
    most = len(cores[0])
    for threads in LEVELS[most]:
        done = smt_state(host, threads_per_core=threads)
        assert done["changed"] is True, done
        assert (online(host), control(host)) == (firsts(cores, threads), reads(threads, most))
        assert smt_state(host, threads_per_core=threads)["changed"] is False, "the second call"
        found = facts(host)
        assert found["threads_per_core"] == {"min": most, "max": most, "online_max": threads}
        assert found["sibling_groups"] == [f"{core[0]}-{core[-1]}" for core in cores], (
            "also of threads that are offline"
        )
        assert found["ppc64_cpu"] == ("SMT is off" if threads == 1 else f"SMT={threads}"), (
            "IBM's own tool sees the same"
        )
    done = smt_state(host, state="restored")
    assert (done["changed"], done["not_restored"]) == (True, [])
    assert (online(host), control(host)) == (firsts(cores, most), "on")
    assert not host.file(SAVED).exists
    assert smt_state(host, state="restored")["changed"] is False


def test_check_mode_tells_what_would_be_and_changes_nothing(host, cores):
    done = smt_state(host, True, threads_per_core=2)
    assert (done["changed"], done["after"]["control"]) == (True, "2")
    assert (online(host), control(host)) == (firsts(cores, 99), "on")


def test_a_cpu_that_was_off_on_purpose_stays_off(host, cores):
    off = cores[-1][-1]
    host.check_output(f"echo 0 >{CPUS}/cpu{off}/online")
    try:
        for threads in (2, 1):
            smt_state(host, threads_per_core=threads)
            assert online(host) == firsts(cores, threads)
        assert smt_state(host, state="enabled")["changed"] is True
        assert off not in online(host)
        done = smt_state(host, state="restored")
        assert done["not_restored"] == []
        assert online(host) == sorted(set(firsts(cores, 99)) - {off})
    finally:
        host.check_output(f"echo 1 >{CPUS}/cpu{off}/online")


def test_compliance_sees_a_change_by_hand(host, cores):
    smt_state(host, threads_per_core=2)
    assert judged(host, 2)["status"] == "compliant"
    host.check_output(f"echo on >{CPUS}/smt/control")
    found = judged(host, 2)
    assert found["status"] == "drifted" and found["change"]["running"] == {"threads_per_core": 2}
    assert smt_state(host, threads_per_core=2)["changed"] is True
    assert judged(host, 2)["status"] == "compliant"
    smt_state(host, state="restored")
    assert online(host) == firsts(cores, 99)


@pytest.fixture(name="evaluated", scope="module")
def an_evaluation_of_three_arms():
    """The partition with four threads a core, evaluated at three levels, by a playbook."""
    variables = {
        "smt_eval_arms": ["smt_on", "threads_per_core_2", "smt_off"],
        "smt_eval_workloads": ["gzip"],
        "smt_eval_placements": ["all_threads"],
        "smt_eval_budget": 180,
        "smt_eval_dest": str(EPHEMERAL / "results"),
        "smt_eval_run": "power",
    }
    command = [
        "ansible-playbook",
        "-i",
        str(EPHEMERAL / "inventory"),
        "--limit",
        "smt-power",
        "threadwise.smt.smt_eval",
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=PLAIN)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return json.loads((EPHEMERAL / "results/power/smt-power.json").read_text())


def test_the_arms_between_on_and_off_are_measured_and_nothing_is_left(host, cores, evaluated):
    if host.backend.get_hostname() != "smt-power":
        pytest.skip("one of the guests is evaluated")
    assert [arm["name"] for arm in evaluated["arms"]] == ["smt_on", "threads_per_core_2", "smt_off"]
    measured = {
        arm["name"] for arm in evaluated["arms"] if any(sample["arm"] == arm["name"] for sample in evaluated["samples"])
    }
    assert measured == {"smt_on", "threads_per_core_2", "smt_off"}
    counts = {
        sample["arm"]: len(sample["workers"]) for sample in evaluated["samples"] if sample["placement"] == "all_threads"
    }
    assert counts == {"smt_on": 8, "threads_per_core_2": 4, "smt_off": 2}
    assert evaluated["restored"]["ok"] is True
    assert (online(host), control(host)) == (firsts(cores, 99), "on")


def test_forceoff_is_named_with_the_way_out(host, cores):
    """The last test of a guest: only a boot brings the siblings back."""
    host.check_output(f"echo forceoff >{CPUS}/smt/control")
    assert online(host) == firsts(cores, 1)
    done = smt_state(host, threads_per_core=2)
    assert "forceoff" in done["msg"] and "reboot" in done["msg"], done
    assert facts(host)["methods"]["runtime"]["possible"] == []
