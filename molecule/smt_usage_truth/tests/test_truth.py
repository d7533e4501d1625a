# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look promises, and what is there: the rate of a host that is used to the full, forecast from half of its load,
and what SMT off changes where a look says that it can hardly change anything.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import random
import statistics

import calls
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
FILES = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]) / "files"
GUEST = "smt-usage-truth"
FOLDER = "/run/work"
PIECE = 20_000
# Where a worker pauses between pieces, each takes many times what a CPU takes to wake up, which counts as busy: with
# pieces of 10 ms a guest did more at full load than was forecast (docs/usage.md).
LONG_PIECE = 10 * PIECE
# The forecast of the rate, as a share of it.
NEAR = 0.10
# The machine under the guest is twice as fast in one second as in the next: both are measured in so many turns, of so
# many seconds each.
TURNS, TURN_SECONDS = 90, 1.5
# First those of two cores.
IN_ORDER = (0, 2, 1, 3)
# Loads of as many hosts, of each of which a look says that SMT cannot matter; what that means, as a share.
HOSTS, HARDLY = 20, 0.02
CPUS = 4


@contextlib.contextmanager
def load(host, workers, pause=0.0, seed=0, piece=PIECE):
    """A service at work."""
    host.check_output(
        f"rm -rf {FOLDER}*; systemd-run --quiet --unit=load python3 /root/work.py {FOLDER} {workers} {piece}"
        f" {pause} {seed}"
    )
    try:
        host.check_output(f"while [ $(ls {FOLDER} 2>/dev/null | wc -l) -lt {workers} ]; do sleep 0.2; done")
        yield
    finally:
        host.check_output("systemctl stop load")


def turns(host, half, number):
    """The pieces a second at half and at full load, number times; the load is half afterwards."""
    cpus = " ".join(map(str, IN_ORDER))
    said = host.check_output(f"python3 /root/turns.py {FOLDER} {half} {number} {TURN_SECONDS} {cpus}")
    return [tuple(map(float, line.split())) for line in said.splitlines()]


@pytest.fixture(name="yields", scope="module")
def measure_what_second_threads_give(host):
    """What an evaluation, as a user calls it, says of this hardware class."""
    for name in ("work.py", "rate.py", "turns.py"):
        host.ansible("ansible.builtin.copy", f"src={FILES / name} dest=/root/{name} mode=0644", check=False)
    variables = {
        "smt_eval_run": "first",
        "smt_eval_dest": str(RESULTS),
        "smt_eval_workloads": ["python_loop"],
        "smt_eval_placements": ["all_threads"],
        "smt_eval_goal": "precision",
        "smt_eval_margin": 0.02,
        "smt_eval_budget": 300,
    }
    done = calls.play("threadwise.smt.smt_eval", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((RESULTS / "first" / "results.json").read_text())
    (one,) = [
        one
        for one in report["hosts"][0]["comparisons"]
        if one["workload"] == "python_loop" and one["primary"] and one["placement"] == "all_threads"
    ]
    found = {"workload": "python_loop", "low": 1 / one["ci_high"], "high": 1 / one["ci_low"]}
    print(f"second threads give {found}")
    return [found]


def look(where, **options):
    """The playbook of a look, and what it says of the guest."""
    variables = {f"smt_exposure_{name}": value for name, value in options.items()}
    done = calls.play("threadwise.smt.smt_exposure", cwd=where, smt_exposure_results=str(RESULTS), **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads((where / "smt_exposure.json").read_text())["hosts"]
    return found, done.stdout


@pytest.mark.parametrize(
    ("half", "piece", "pause"), [("stopped", PIECE, 0.0), ("pauses", LONG_PIECE, 0.25)], ids=["one_per_core", "pauses"]
)
def test_the_rate_at_full_load_is_forecast_from_half_of_it(host, yields, half, piece, pause, tmp_path):
    with load(host, CPUS, pause, piece=piece):
        turns(host, half, 0)
        found, said = look(tmp_path, seconds=40, windows=30)
        rates = turns(host, half, TURNS)
    use = found["use"]
    assert found["yields"] == ["python_loop"] and not found["reason"], found
    # How much more it does, by what is measured, by the forecast, and by usage.
    measured = statistics.median(full / part for part, full in rates)
    low, high, by_usage = (1 + part for part in (*use["room"], use["by_usage"]))
    print(
        f"{half}: usage {use['usage']:.0%}, work {use['work'][0]:.0%} to {use['work'][1]:.0%}; at full load"
        f" {measured:.2f} times as much in the median of {len(rates)} turns, forecast {low:.2f} to {high:.2f}, by usage"
        f" {by_usage:.2f}"
    )
    assert (low + high) / 2 == pytest.approx(measured, rel=NEAR)
    if half == "stopped":
        assert by_usage > 1.5 * measured and "as usage says" in " ".join(said.split())


def loads():
    """What each of ever more hosts has to do."""
    chance = random.Random(20261127)
    while True:
        workers = chance.choice((1, 2, 2, 3, 4, 6))
        # The more workers, the less each of them has to do.
        yield workers, 0.0 if workers <= 2 and chance.random() < 0.5 else round(chance.uniform(0.02, 0.1) * workers, 3)


def watched(run_name):
    """What an evaluation of the service says of SMT off: its rate, in that with SMT on, with its interval."""
    calls.module(
        GUEST,
        "threadwise.smt.smt_benchmark",
        run=run_name,
        dest=str(RESULTS / "watched"),
        arms=["smt_on", "smt_off"],
        workloads=[],
        custom=[
            {
                "name": "service",
                "argv": ["python3", "/root/rate.py", FOLDER, "2"],
                "metric": {
                    "name": "throughput",
                    "unit": "pieces/s",
                    "better": "higher",
                    "pattern": "([0-9.]+) pieces/s",
                },
            }
        ],
        placements=["single"],
        blocks=8,
        budget=240,
        settle_seconds=0.5,
        probe="never",
    )
    result = result_files.load(RESULTS / "watched" / run_name / f"{GUEST}.json")
    (comparison,) = comparisons.compare_host(result, HARDLY)
    return comparison["ratio"], comparison["ci_low"], comparison["ci_high"]


@pytest.mark.parametrize("measured", [True, False], ids=["measured", "guessed"])
def test_where_smt_cannot_matter_an_evaluation_finds_nothing_beyond_the_bound(host, yields, measured):
    """Where it is not known what second threads give, that is said only of hosts whose work hardly shares cores."""
    beyond, said = [], 0
    for number, (workers, pause) in enumerate(itertools.islice(loads(), 6 * HOSTS)):
        with load(host, workers, pause, seed=number):
            options = {"yields": yields} if measured else {}
            bound = calls.module(GUEST, "threadwise.smt.smt_usage", seconds=15, windows=20, **options)["use"]["bound"]
            name = f"{'measured' if measured else 'guessed'}{number:02}: {workers} workers, pause {pause} s"
            if bound > HARDLY:
                print(f"{name}: bound {bound:.1%}")
                continue
            said += 1
            ratio, low, high = watched(name.partition(":")[0])
        print(f"{name}: bound {bound:.1%}; SMT off {ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})")
        beyond += [name] if low > 1 + bound or high < 1 - bound else []
        if said == HOSTS // 2:
            break
    assert said == HOSTS // 2 and not beyond, (said, beyond)
