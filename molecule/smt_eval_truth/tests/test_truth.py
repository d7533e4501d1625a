# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations of guests of which it is known what their siblings share: the intervals have to hold that."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from ansible_collections.threadwise.smt.plugins.plugin_utils import derived

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
SETTINGS = {"smt_bench_dest": str(RESULTS), "smt_bench_budget": 150, "smt_bench_workloads": ["gzip", "sysbench_cpu"],
            "smt_bench_placements": ["single", "siblings", "cores", "one_per_core", "all_threads"]}
# Guest -> effect -> what it is. This machine's CPUs are two.
TRUTH = {
    "smt-truth-shared": {"cost_of_sharing": 0.5, "smt_yield": 1.0, "smt_off": 0.0, "second_core": 2.0},
    "smt-truth-apart": {"cost_of_sharing": 0.0, "smt_yield": 1.0, "smt_off": 0.0, "second_core": 2.0},
    "smt-truth-one-core": {"cost_of_sharing_alone": 0.0, "smt_yield": 2.0, "smt_off": -0.5},
}
# What the other processes of this machine, the emulators' own threads among them, take from one side more than from the other; and an interval of 95 %
# misses by a little once in twenty times.
LEEWAY = 0.05
# An interval that holds everything holds the truth as well.
WIDEST = 0.25


def emulators():
    """The process that emulates each guest of this scenario: name -> pid."""
    lab = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "lab" / "lab.py"
    told = subprocess.run([sys.executable, str(lab), "status"], capture_output=True, text=True, check=True).stdout
    return {name: int(pid) for name, pid in re.findall(r"^(\S+): up, process (\d+)", told, re.MULTILINE) if name in TRUTH}


@pytest.fixture(name="guest", scope="module", params=sorted(TRUTH))
def alone(request):
    """A guest's name, while the others stand still: also an idle guest takes time from this machine's CPUs."""
    others = [pid for name, pid in emulators().items() if name != request.param]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    yield request.param
    for pid in others:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(name="comparisons", scope="module")
def evaluated(guest):
    """A guest's name and its comparisons of whole machines, as the report has them."""
    command = ["ansible-playbook", "--inventory", str(EPHEMERAL / "inventory"), "--limit", guest, "threadwise.smt.smt_eval",
               "--extra-vars", json.dumps(dict(SETTINGS, smt_eval_run=guest))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((RESULTS / guest / "results.json").read_text(encoding="utf-8"))["hosts"][0]["comparisons"]
    return guest, [one for one in found if one["effect"] != "smt_off" or one["placement"] == "all_threads"]


def test_the_intervals_hold_the_truth(comparisons):
    guest, found = comparisons
    seen = {}
    for effect, truth in TRUTH[guest].items():
        measured = [derived.of_comparison(effect, one) if effect in derived.EFFECTS else one for one in found if one["effect"] == effect]
        assert len(measured) == len(SETTINGS["smt_bench_workloads"]), (effect, measured)
        for one in measured:
            low, high = (one["low"], one["high"]) if "low" in one else (one["ci_low"], one["ci_high"])
            seen[effect, low, high] = low - LEEWAY <= truth <= high + LEEWAY and high - low <= WIDEST
    print(guest, *seen.items(), sep="\n")
    assert all(seen.values()), seen


def test_the_answer_is_what_the_truth_asks_for(comparisons):
    """Where the second threads add a whole CPU, SMT stays on; where they add nothing, no verdict says that they do."""
    guest, found = comparisons
    verdicts = {one["verdict"] for one in found if one["effect"] == "smt_off"}
    if guest == "smt-truth-one-core":
        assert verdicts == {"loss"}
    else:
        assert verdicts <= {"equivalent", "inconclusive"} or all(abs(one["ratio"] - 1) <= LEEWAY for one in found if one["effect"] == "smt_off"), found
