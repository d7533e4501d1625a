# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report of a fleet costs: wall time, CPU time and peak memory of building it from its files alone.

Half of each host's samples are with SMT on, half with SMT off. Memory is the largest sum of the proportional shares
(PSS) of the process that builds and its children, looked at ten times a second. Prints a table; asserts nothing.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import result_maker

BUILD = """
import sys
from pathlib import Path
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
directory = Path(sys.argv[1])
built = build.build(result_files.result_paths(directory), directory)
assert not built.refused and not built.missing, built
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--workloads", type=int, default=8)
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args()
    each = f"{options.workloads} workloads x {options.samples} samples a host"
    print(f"{len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}, {each}")
    print(f"{'hosts':>7} {'wall s':>8} {'CPU s':>8} {'ms a host':>10} {'peak MB':>8} {'pages MB':>9}")
    for hosts in options.hosts:
        with tempfile.TemporaryDirectory(prefix="bench_report.") as directory:
            write(Path(directory), hosts, options.workloads, options.samples)
            wall, seconds, peak = build(directory)
            size = sum(path.stat().st_size for path in Path(directory).glob("*.html")) / 1e6
            numbers = f"{wall:>8.1f} {seconds:>8.1f} {1000 * wall / hosts:>10.1f} {peak:>8.0f} {size:>9.1f}"
            print(f"{hosts:>7} {numbers}", flush=True)


def write(directory, hosts, workloads, samples):
    """One result file a host, with values of its own."""
    one = {"unit": "MB/s", "title": "made up"}
    kinds = {
        f"workload_{number}": {"rate": 100.0 * (number + 1), "share": 0.47 + 0.03 * number, **one}
        for number in range(workloads)
    }
    made = result_maker.result(workloads=kinds, blocks=samples // 2)
    # With SMT off every online thread is one a core, and was measured as such.
    busy = {"smt_on": "all_threads", "smt_off": "one_per_core"}
    made["samples"] = [one for one in made["samples"] if one["placement"] == busy[one["arm"]]]
    for host in range(hosts):
        source, made["host"] = random.Random(host), f"host{host:05d}"
        made["facts"]["hardware_class"] = f"x86_64-2s4c8t-adjacent-{host % 7:08x}"
        for sample in made["samples"]:
            value = sum(worker["value"] for worker in sample["workers"]) * source.lognormvariate(0, 0.01)
            sample["metrics"]["throughput"]["value"] = value
        (directory / f"{made['host']}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def build(directory):
    """Wall seconds, CPU seconds and peak memory in MB."""
    before, begun, peak = sum(os.times()[2:4]), time.monotonic(), 0
    process = subprocess.Popen([sys.executable, "-c", BUILD, directory])
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit("the report was not built")
    return time.monotonic() - begun, sum(os.times()[2:4]) - before, peak / 1024


def memory(pid):
    """PSS of a process and its children, in kB; 0 for what has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return own + sum(memory(int(child)) for child in children)


if __name__ == "__main__":
    main()
