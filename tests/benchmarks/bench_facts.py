# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of reading a topology, beside lscpu's on the same tree. Prints a table; asserts nothing.

Each figure is the least of the repeats, user and system time together, in milliseconds: of `read_topology` and of all
facts, the first call in a fresh process each time without the start of Python, and of `lscpu -J` without its start.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import sysfs_tree

SHAPES = {2: (1, 1), 36: (2, 9), 256: (2, 64), 1024: (4, 128), 4096: (16, 128)}

CHILD = """
import sys, time
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
call = {'topology': topology.read_topology, 'facts': facts.gather}[sys.argv[1]]
before = time.process_time()
call(files.HostFs(sys.argv[2]))
print(time.process_time() - before)
"""


CALLS = ("topology", "facts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(SHAPES), choices=sorted(SHAPES))
    options = parser.parse_args()
    print(f"{'CPUs':>6} {'topology ms':>14} {'all facts ms':>14} {'lscpu -J ms':>14} {'topology us a CPU':>20}")
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="bench_facts.") as root:
            packages, cores = SHAPES[size]
            sysfs_tree.write(root, sysfs_tree.files(sysfs_tree.Machine(packages=packages, cores=cores)))
            ours, everything = (least(lambda call=call: our_seconds(call, root), options.repeats) for call in CALLS)
            theirs = least(lambda: lscpu_seconds(root), options.repeats)
        lscpu = "cannot read" if theirs is None else f"{theirs * 1e3:.2f}"
        print(f"{size:6d} {ours * 1e3:14.2f} {everything * 1e3:14.2f} {lscpu:>14} {ours / size * 1e6:20.1f}")


def least(measure, repeats):
    values = [measure() for dummy in range(repeats)]
    return None if None in values else min(values)


def our_seconds(call, root):
    command = [sys.executable, "-c", CHILD, call, root]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def lscpu_seconds(root):
    """None where there is no lscpu or it cannot read the tree."""
    commands = (["lscpu", "-J", "-s", root], ["lscpu", "--version"])
    reading, start = map(child_seconds, commands) if shutil.which("lscpu") else (None, None)
    return None if None in (reading, start) else max(0.0, reading - start)


def child_seconds(command):
    before = sum(os.times()[2:4])
    result = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return sum(os.times()[2:4]) - before if result.returncode == 0 else None


if __name__ == "__main__":
    main()
