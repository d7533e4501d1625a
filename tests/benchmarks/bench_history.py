# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the history of a fleet costs: adding a check, reading a year of daily checks, and saying what drifted.

Each day a share of the hosts drifts, and those of the day before are mended. Prints a table; asserts nothing.
"""

import argparse
import datetime
import os
import random
import resource
import tempfile
import time
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document

START = datetime.datetime(2026, 1, 1, 6, tzinfo=datetime.UTC)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--drifting", type=float, default=0.002)
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}, {options.hosts} hosts")
    source = random.Random(1)
    names = [f"host{number:05d}.example.com" for number in range(options.hosts)]
    with tempfile.TemporaryDirectory(prefix="bench_history.") as directory:
        begun = time.process_time()
        for day in range(options.days):
            statuses = dict.fromkeys(names, "compliant")
            drifting = source.sample(names, int(options.drifting * options.hosts))
            statuses.update(dict.fromkeys(drifting, "drifted"))
            checks.add(directory, statuses, (), START + datetime.timedelta(days=day))
        added = time.process_time()
        found = checks.read(directory)
        record = document.joined(found, {}, [], 0.01)
        page = document.page(record, START, 0.01)
        read = time.process_time()
        size = sum(path.stat().st_size for path in Path(directory).glob("*.jsonl"))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        check = 1000 * (added - begun) / options.days
        print(f"a check: {check:.0f} ms of CPU; reading and saying all: {read - added:.2f} s; peak {most:.0f} MB")
        print(f"files: {size / 1e6:.1f} MB; page: {len(page) / 1e3:.0f} kB; {len(found.drifts)} drifts")
        print(document.sentences(record)[0])


if __name__ == "__main__":
    main()
