# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has the workers of work.py do half of what they can and all of it in turns, and prints the pieces a second of both,
a line for each turn. At the end they do half.

usage: turns.py FOLDER HALF TURNS SECONDS CPU...

HALF is `stopped`, where the second half of the workers stops, or `pauses`, where all of them pause. Each worker has a
CPU for itself.
"""

import os
import signal
import sys
import time

folder, half, turns, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
cpus = [int(cpu) for cpu in sys.argv[5:]]
pids = sorted(int(name) for name in os.listdir(folder))
for pid, cpu in zip(pids, cpus):
    os.sched_setaffinity(pid, {cpu})


def work(is_full):
    """Have the workers do all they can, or half of it."""
    if half == "stopped":
        for pid in pids[len(pids) // 2 :]:
            os.kill(pid, signal.SIGCONT if is_full else signal.SIGSTOP)
    elif is_full:
        open(f"{folder}.full", "w").close()
    elif os.path.exists(f"{folder}.full"):
        os.unlink(f"{folder}.full")
    # What was begun before is done.
    time.sleep(0.3)


def done():
    """The pieces of all workers, and when they were counted."""
    found = 0
    for pid in pids:
        with open(os.path.join(folder, str(pid)), encoding="ascii") as file:
            found += int(file.read() or 0)
    return found, time.monotonic()


def rate():
    """The pieces a second."""
    before, begun = done()
    time.sleep(seconds)
    after, ended = done()
    return (after - before) / (ended - begun)


work(False)
for _turn in range(turns):
    rates = [rate()]
    work(True)
    rates.append(rate())
    work(False)
    print(f"{rates[0]:.3f} {rates[1]:.3f}")
