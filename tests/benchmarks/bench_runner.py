# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pinning by the runner costs beside the bare command taskset: the ratio for docs/measuring.md.

Both start the same sysbench on the same CPU, in pairs A B, B A, ...; the rates are those that sysbench itself prints.
"""

import argparse
import os
import subprocess

from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired

SYSBENCH = BUILT_IN["sysbench_cpu"]
EVENTS = 500
MARGIN = 0.005


def rate(worker):
    """Events by second, as sysbench printed it."""
    return workload_metrics.read(dict(SYSBENCH, metrics=SYSBENCH["metrics"][:1]), EVENTS, [worker], "/")[1][0]


def by_runner(argv, cpu):
    return rate(runner.run(argv, [[cpu]])["workers"][0])


def by_taskset(argv, cpu):
    done = subprocess.run(["taskset", "--cpu-list", str(cpu), *argv], capture_output=True, text=True, check=True)
    return rate({"cpus": [cpu], "output": done.stdout, "errors": done.stderr, "exit_status": 0})


def main():
    """Print the ratio with its interval, on the last CPU this process may use."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=200)
    pairs = arguments.parse_args().pairs
    cpu = max(os.sched_getaffinity(0))
    argv = [word.replace("{work}", str(EVENTS)) for word in SYSBENCH["argv"]]
    bare, pinned = [], []
    for pair in range(pairs):
        for ours in (False, True) if pair % 2 == 0 else (True, False):
            (pinned if ours else bare).append((by_runner if ours else by_taskset)(argv, cpu))
    found = paired.compare(bare, pinned, better="higher", margin=MARGIN)
    interval = f"{found.ratio:.4f} ({found.ci_low:.4f} to {found.ci_high:.4f}, 95 %)"
    ends = f"with a margin of {100 * MARGIN:.1f} %"
    print(f"runner / taskset on CPU {cpu}, {found.n} pairs: {interval}, {found.verdict} {ends}")


if __name__ == "__main__":
    main()
