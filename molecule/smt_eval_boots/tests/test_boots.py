# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluation over real boots: each in its state, all of them in one result, and the guest boots as it did."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons as host_comparisons

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RUN = EPHEMERAL / "results" / "converge"


@pytest.fixture(name="result", scope="module")
def result_of_converge():
    return parts.plain(result_files.load(RUN / "smt-eval-boots.json"))


def test_each_boot_was_measured_in_its_state(result):
    assert result["outcome"] == "completed" and result["plan"]["boots"] == 2 and result["plan"]["confounded"] is False
    seen = {
        (sample["boot"], sample["pair"], sample["arm"], len(sample["telemetry"]["cpu_usage"]))
        for sample in result["samples"]
        if sample["ok"]
    }
    assert seen == {(1, 0, "smt_on", 4), (2, 0, "smt_off", 2), (3, 1, "smt_off", 2), (4, 1, "smt_on", 4)}
    details = [event["detail"] for event in result["events"] if event["event"] == "boot"]
    assert ["nosmt" in one for one in details] == [False, True, True, False]


def test_two_pairs_are_compared_and_not_judged(result):
    one = host_comparisons.of_smt(host_comparisons.compare_host(results.accept(result, "the guest")))[0]
    assert one["n"] == 2 and one["verdict"] == "inconclusive"
    assert "needs at least 4" in (RUN / "summary.md").read_text(encoding="utf-8")


def test_the_guest_boots_as_it_did(host, result):
    assert result["restored"]["ok"]
    assert "nosmt" not in host.check_output("cat /proc/cmdline")
    assert host.check_output("cat /sys/devices/system/cpu/smt/control") == "on"
    assert host.run("sha256sum --check --quiet /root/boot-files").rc == 0
    assert host.check_output("find /etc/default -type f | wc -l") == host.check_output(
        "grep -c ' /etc/default' /root/boot-files"
    )
    assert host.run("ls /var/lib/threadwise-smt/runs").stdout == ""


def test_without_leave_to_reboot_nothing_is_done(host):
    arguments = {"smt_eval_boots": 1, "smt_eval_run": "refused", "smt_eval_dest": str(EPHEMERAL / "results")}
    done = subprocess.run(
        [
            "ansible-playbook",
            "--inventory",
            str(EPHEMERAL / "inventory"),
            "threadwise.smt.smt_eval",
            "--extra-vars",
            json.dumps(arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "would be rebooted 3 times" in " ".join(done.stdout.split()), done.stdout
    assert not (EPHEMERAL / "results" / "refused").exists()
