# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arms over real boots, on both numberings: each in its state or left out with its reason,
and the guests boot as they did.
"""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons as host_comparisons

RESULTS = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"
PRIMARIES = {"split": "0-3", "adjacent": "0,2,4,6"}


@pytest.fixture(name="numbering")
def numbering_of_the_guest(host):
    return host.ansible.get_variables()["lab_numbering"]


@pytest.fixture(name="load")
def load_results(host):
    return lambda run: parts.plain(
        result_files.load(RESULTS / run / f"{host.ansible.get_variables()['inventory_hostname']}.json")
    )


def test_each_arm_was_booted_in_its_state(load, numbering):
    result = load("booted")
    assert result["outcome"] == "completed" and result["restored"]["ok"]
    observed = {one["arm"]: one for one in result["observations"]}
    arguments = {
        "smt_on": None,
        "maxcpus_4": "maxcpus=4",
        "nosmt": "nosmt",
        "mitigations_auto_nosmt": "mitigations=auto,nosmt",
    }
    expected = {name: argument for name, argument in arguments.items() if name != "maxcpus_4" or numbering == "split"}
    assert set(observed) == set(expected)
    for name, argument in expected.items():
        given = set(observed[name]["cmdline"].split())
        assert given & set(filter(None, arguments.values())) == ({argument} if argument else set()), name
        assert observed[name]["vulnerabilities"]
    assert observed["smt_on"]["smt"]["online"] == "0-7" and observed["nosmt"]["smt"] == {
        "control": "off",
        "active": False,
        "online": PRIMARIES[numbering],
    }
    cpus = {sample["arm"]: len(sample["telemetry"]["cpu_usage"]) for sample in result["samples"] if sample["ok"]}
    assert cpus["smt_on"] == 8 and cpus["nosmt"] == 4 and cpus.get("maxcpus_4", 4) == 4


def test_a_number_that_does_not_leave_whole_cores_is_left_out_with_its_reason(load, numbering):
    result = load("booted")
    left_out = {one["name"]: one["reason"] for one in result["arms_left_out"]}
    if numbering == "split":
        online = next(one["smt"] for one in result["observations"] if one["arm"] == "maxcpus_4")
        assert left_out == {} and online == {"control": "on", "active": False, "online": "0-3"}
    else:
        assert set(left_out) == {"maxcpus_4"} and "numbering of siblings is adjacent" in left_out["maxcpus_4"]


def test_run_time_arms_rest_on_blocks_within_the_boots_of_the_baseline(load, numbering):
    result = load("mixed")
    assert result["plan"]["booted"] == ["smt_on", "nosmt"] and result["restored"]["ok"]
    seen = {
        (sample["boot"], sample["arm"], len(sample["telemetry"]["cpu_usage"]))
        for sample in result["samples"]
        if sample["ok"]
    }
    assert seen == {(1, "smt_on", 8), (1, "smt_off", 4), (2, "nosmt", 4)}
    basis = {
        one["effect"]: (one["basis"], one["confounded"])
        for one in host_comparisons.compare_host(results.accept(result, "the guest"))
        if one["kind"] == "arm"
    }
    assert basis == {"smt_off": ("blocks", False), "nosmt": ("boots", True)}


def test_the_guest_boots_as_it_did(host):
    assert host.run("grep -E 'nosmt|maxcpus|mitigations' /proc/cmdline /boot/grub/grub.cfg").rc == 1
    assert host.check_output("cat /sys/devices/system/cpu/smt/control /sys/devices/system/cpu/online") == "on\n0-7"
    assert host.run("sha256sum --check --quiet /root/boot-files").rc == 0
    assert host.check_output("find /etc/default -type f | wc -l") == host.check_output(
        "grep -c ' /etc/default' /root/boot-files"
    )
    assert (
        host.check_output(
            "find /var/lib/threadwise-smt /run/threadwise-smt -name 'boot-mitigations*' 2>/dev/null | wc -l"
        )
        == "0"
    )
    assert host.run("ls /var/lib/threadwise-smt/runs").stdout == ""
