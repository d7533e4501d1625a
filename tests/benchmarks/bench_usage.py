# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading a window of the scheduler's switches costs: CPU time by switch, beside that of decoding alone.

Pages are made as the kernel makes them (usage/test_switches.py), two busy tasks a CPU. Prints a table, and
the share of a CPU of a look of 60 windows in ten minutes with as many switches as may be; asserts nothing.
"""

import argparse
import importlib.util
import os
import pathlib
import time

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, shared, tracing

HERE = pathlib.Path(__file__).resolve().parents[1]
# Bytes of entries in a page of the ring buffer.
ROOM = 4000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--switches", type=int, default=look.MAX_SWITCHES)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("pages", HERE / "unit/_measure/usage/test_switches.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    by_cpu = {cpu: made(pages, options.switches // options.cpus) for cpu in range(options.cpus)}
    cores = [(cpu, cpu + 1) for cpu in range(0, options.cpus, 2)]
    decoding, whole = [], []
    for _round in range(options.rounds):
        reader = pages.reader()
        begun = time.process_time()
        found = {cpu: [one for page in of_cpu for one in reader.page(page).switches] for cpu, of_cpu in by_cpu.items()}
        decoding.append(time.process_time() - begun)
        window = tracing.Window(0, max(one[-1].at for one in found.values()), found, {}, {}, False)
        spent = shared.Spent()
        for core in cores:
            shared.of_core(window, core, {}, str, spent)
        whole.append(time.process_time() - begun)
    count = sum(map(len, found.values()))
    load = f"{len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}"
    print(f"{load}, {count} switches a window; us a switch: decoding {1e6 * min(decoding) / count:.2f}", end=", ")
    print(f"in all {1e6 * min(whole) / count:.2f}")
    print(f"a look of 60 windows in 600 s: {100 * 60 * min(whole) / 600:.2f} % of a CPU")


def made(pages, count):
    """Pages of so many switches between two tasks and the idle one."""
    found, entries, size, tasks = [], [], 0, (0, 41, 42)
    for number in range(count):
        one = pages.entry(pages.switch(tasks[number % 3], tasks[(number + 1) % 3]), 2500)
        if size + len(one) > ROOM:
            found.append(pages.page(*entries, at=2500 * (number - len(entries))))
            entries, size = [], 0
        entries.append(one)
        size += len(one)
    return [*found, pages.page(*entries, at=2500 * (count - len(entries)))]


if __name__ == "__main__":
    main()
