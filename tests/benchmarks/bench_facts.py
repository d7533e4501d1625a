# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of reading a topology, beside lscpu's on the same tree. Prints a table; asserts nothing.

    PYTHONPATH=tests/unit .venv/bin/python tests/benchmarks/bench_facts.py [--repeats 9] [--sizes 2 36 256 1024 4096]

Each figure is the least of the repeats, user and system time together, in milliseconds. Ours is the time of
`read_topology` and of all facts (`facts.gather`), the first call in a fresh process each time; the start of Python is
left out. lscpu's is the time of `lscpu -J -s TREE`, less that of `lscpu --version`, which is the start of lscpu.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile

import sysfs_tree

SHAPES = {2: (1, 1), 36: (2, 9), 256: (2, 64), 1024: (4, 128), 4096: (16, 128)}

CHILD = """
import resource, sys
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
call = {'topology': topology.read_topology, 'facts': facts.gather}[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF)
call(files.HostFs(sys.argv[2]))
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


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
            ours = least(lambda: our_seconds("topology", root), options.repeats)
            everything = least(lambda: our_seconds("facts", root), options.repeats)
            theirs = least(lambda: lscpu_seconds(root), options.repeats)
        lscpu = "cannot read" if theirs is None else f"{theirs * 1e3:.2f}"
        print(f"{size:6d} {ours * 1e3:14.2f} {everything * 1e3:14.2f} {lscpu:>14} {ours / size * 1e6:20.1f}")


def least(measure, repeats):
    values = [measure() for dummy in range(repeats)]
    return None if None in values else min(values)


def our_seconds(call, root):
    return float(
        subprocess.run([sys.executable, "-c", CHILD, call, root], check=True, capture_output=True, text=True).stdout
    )


def lscpu_seconds(root):
    """None where there is no lscpu or it cannot read the tree."""
    if shutil.which("lscpu") is None:
        return None
    reading = child_seconds(["lscpu", "-J", "-s", root])
    start = child_seconds(["lscpu", "--version"])
    return None if reading is None or start is None else max(0.0, reading - start)


def child_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds if result.returncode == 0 else None


if __name__ == "__main__":
    main()
