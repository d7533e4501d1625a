# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations of guests of which it is known what their siblings share: the intervals have to hold that."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import smt_metrics

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
# Nothing is switched: what siblings share shows in the placements.
SETTINGS = {
    "smt_eval_dest": str(RESULTS),
    "smt_eval_budget": 80,
    "smt_eval_workloads": ["sysbench_cpu"],
    "smt_eval_arms": ["as_found"],
    "smt_eval_placements": ["single", "siblings", "cores", "one_per_core", "all_threads"],
}
# Guest -> effect -> what it is, and what it would be on the guest of the other kind, where two CPUs of this machine do
# so many times the work of one: two, or less where they are siblings themselves and no hypervisor says so.
TRUTH = {
    "smt-truth-shared": lambda two: {"cost_of_sharing": (1 - 1 / two, 0.0), "smt_yield": (1.0, two)},
    "smt-truth-apart": lambda two: {"cost_of_sharing": (0.0, 1 - 1 / two)},
    "smt-truth-one-core": lambda two: {"cost_of_sharing_alone": (1 - two / 2, 0.5), "smt_yield": (two, 1.0)},
}
# Guest -> numbers of streams, and from how many on SMT helps: None where the siblings have no CPU of this machine for
# themselves.
STREAMS = {
    "smt-truth-shared": ("2,4,6", None),
    "smt-truth-apart": ("2,4,6", None),
    "smt-truth-one-core": ("1,2,4", 2),
}
# Before and after each evaluation: other work on this machine comes and goes, and takes part of what its CPUs do.
ROUNDS = 5
# With less, one CPU and two of them are too much alike to tell the guests apart.
MIN_OF_TWO = 1.25
# What the other processes of this machine, the emulators' own threads among them, take from one side more than from the
# other; and an interval of 95 % misses by a little once in twenty times.
LEEWAY = 0.05


def emulators():
    """The process that emulates each guest of this scenario: name -> pid."""
    lab = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "tools" / "lab" / "lab.py"
    status = subprocess.run([sys.executable, str(lab), "status"], capture_output=True, text=True, check=True).stdout
    return {
        name: int(pid) for name, pid in re.findall(r"^(\S+): up, process (\d+)", status, re.MULTILINE) if name in TRUTH
    }


def rates(*cpus):
    """Events a second of sysbench on each of these CPUs of this machine, all at once."""
    command = ["sysbench", "cpu", "--threads=1", "--cpu-max-prime=10000", "--time=1", "run"]
    running = [
        subprocess.Popen(["taskset", "--cpu-list", str(cpu), *command], stdout=subprocess.PIPE, text=True)
        for cpu in cpus
    ]
    return [float(re.search(r"events per second:\s+([0-9.]+)", process.communicate()[0])[1]) for process in running]


def work_of_two_cpus(guest):
    """How many times the work of one of this machine's CPUs two of them do,
    while this guest stands still as well as the others.
    """
    pid = emulators()[guest]
    os.kill(pid, signal.SIGSTOP)
    try:
        found = statistics.median(sum(rates(0, 1)) / statistics.fmean(rates(0) + rates(1)) for _round in range(ROUNDS))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert found >= MIN_OF_TWO, f"other work leaves two CPUs of this machine {found:.2f} times the work of one of them"
    return found


@pytest.fixture(name="guest", scope="module", params=sorted(TRUTH))
def alone(request):
    """A guest's name, while the others stand still: also an idle guest takes time from this machine's CPUs."""
    others = [pid for name, pid in emulators().items() if name != request.param]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    yield request.param
    for pid in others:
        os.kill(pid, signal.SIGCONT)


def evaluated(guest, run, **changed):
    """The report's part of a guest that was evaluated."""
    command = [
        "ansible-playbook",
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "--limit",
        guest,
        "threadwise.smt.smt_eval",
        "--extra-vars",
        json.dumps({**SETTINGS, **changed, "smt_eval_run": run}),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return json.loads((RESULTS / run / "results.json").read_text(encoding="utf-8"))["hosts"][0]


def test_the_intervals_hold_the_truth(guest):
    before = work_of_two_cpus(guest)
    comparisons = evaluated(guest, guest)["comparisons"]
    plan = json.loads((RESULTS / guest / f"{guest}.json").read_text(encoding="utf-8"))["plan"]
    # It stopped at a look, before its budget was spent; what it stopped at has to hold all the same.
    assert plan["stopped"] in ("gain", "loss", "equivalent", "futile") and plan["looks"][-1]["share"] < 1, plan
    truths = [TRUTH[guest](two) for two in (before, work_of_two_cpus(guest))]
    seen = {}
    for effect in truths[0]:
        true, others = zip(*(one[effect] for one in truths), strict=True)
        for one in [one for one in comparisons if one["effect"] == effect and one["primary"]]:
            measure = smt_metrics.of_comparison(effect, one)
            # A yield is of two workers, a cost of one: the same samples have to pass as both.
            leeway = 2 * LEEWAY if effect == "smt_yield" else LEEWAY
            holds = measure["low"] - leeway <= max(true) and min(true) <= measure["high"] + leeway
            excludes = all(not measure["low"] <= other <= measure["high"] for other in others)
            seen[effect, one["workload"], measure["low"], measure["value"], measure["high"], one["n"]] = (
                holds and excludes
            )
    print(guest, *truths, *seen.items(), sep="\n")
    assert len(seen) == len(truths[0]) and all(seen.values()), (truths, seen)


def test_from_how_many_streams_on_smt_helps(guest):
    numbers, truth = STREAMS[guest]
    report = evaluated(
        guest,
        f"{guest}-streams",
        smt_eval_arms=["smt_on", "smt_off"],
        smt_eval_placements=[],
        smt_eval_streams=numbers,
        smt_eval_budget=120,
    )
    (found,) = report["crossovers"]
    print(guest, found, report["conclusion"]["sentence"], sep="\n")
    if truth is None:
        assert found["status"] in ("never", "undecided"), found
    else:
        assert found["status"] == "found" and found["low"] <= truth <= found["high"], found


def test_usage_promises_room_that_is_not_there():
    """One core whose siblings share one CPU of this machine: with one of them busy usage says half,
    and there is no room at all.
    """
    report = evaluated(
        "smt-truth-shared",
        "headroom",
        smt_eval_workloads=["load_levels"],
        smt_eval_placements=["one_per_core", "all_threads"],
        smt_eval_budget=150,
    )
    (found,) = [
        one
        for one in report["usage"]
        if (one["arm"], one["placement"], one["parameter"]) == ("as_found", "one_per_core", 1.0)
    ]
    print(found)
    assert found["by_usage"]["low"] <= 1 + LEEWAY and found["by_usage"]["high"] >= 1 - LEEWAY, found
    assert found["real"]["low"] <= LEEWAY and found["real"]["high"] >= -LEEWAY, found
