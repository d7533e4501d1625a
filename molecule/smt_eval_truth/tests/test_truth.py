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
# Nothing is switched: what siblings share is told by the placements.
SETTINGS = {"smt_bench_dest": str(RESULTS), "smt_bench_budget": 150, "smt_bench_workloads": ["gzip", "sysbench_cpu"], "smt_eval_switch": False,
            "smt_bench_placements": ["single", "siblings", "cores", "one_per_core", "all_threads"]}
# Guest -> effect -> what it is, and what it would be on the guest of the other kind. This machine's CPUs are two.
TRUTH = {
    "smt-truth-shared": {"cost_of_sharing": (0.5, 0.0), "smt_yield": (1.0, 2.0)},
    "smt-truth-apart": {"cost_of_sharing": (0.0, 0.5)},
    "smt-truth-one-core": {"cost_of_sharing_alone": (0.0, 0.5), "smt_yield": (2.0, 1.0)},
}
# What the other processes of this machine, the emulators' own threads among them, take from one side more than from the other; and an interval of 95 %
# misses by a little once in twenty times.
LEEWAY = 0.05


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


def test_the_intervals_hold_the_truth(guest):
    command = ["ansible-playbook", "--inventory", str(EPHEMERAL / "inventory"), "--limit", guest, "threadwise.smt.smt_eval",
               "--extra-vars", json.dumps(dict(SETTINGS, smt_eval_run=guest))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    comparisons = json.loads((RESULTS / guest / "results.json").read_text(encoding="utf-8"))["hosts"][0]["comparisons"]
    seen = {}
    for effect, (truth, other) in TRUTH[guest].items():
        for one in [one for one in comparisons if one["effect"] == effect]:
            measure = derived.of_comparison(effect, one)
            holds = measure["low"] - LEEWAY <= truth <= measure["high"] + LEEWAY and not measure["low"] <= other <= measure["high"]
            seen[effect, one["workload"], measure["low"], measure["value"], measure["high"], one["n"]] = holds
    print(guest, *seen.items(), sep="\n")
    assert len(seen) == len(TRUTH[guest]) * len(SETTINGS["smt_bench_workloads"]) and all(seen.values()), seen
