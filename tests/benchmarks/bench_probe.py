# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many rounds the probe takes on simulated machines, and the CPU time to weigh their evidence."""

import statistics
import time

import test_siblings

SHAPES = ((2, 1), (2, 2), (4, 1), (4, 2), (8, 2), (16, 2), (64, 1), (64, 2), (64, 4), (256, 2))


def main():
    """Print one line a shape."""
    print("CPUs  threads  rounds (median)  unclear  CPU seconds a run")
    for count, threads in SHAPES:
        runs = 5 if count < 64 else 1
        begun = time.process_time()
        machines = (
            test_siblings.machine_of(count, threads, order=one, cost=0.6, spread=0.02, seed=one) for one in range(runs)
        )
        results = [test_siblings.measured(machine, 60.0, seed)[1] for seed, machine in enumerate(machines)]
        rounds = statistics.median(result["rounds"] for result in results)
        unclear = sum(bool(result["unclear"]) for result in results)
        seconds = (time.process_time() - begun) / runs
        print(f"{count:4}  {threads:7}  {rounds:15}  {unclear:7}  {seconds:17.1f}", flush=True)


if __name__ == "__main__":
    main()
