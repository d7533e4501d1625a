# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps one CPU busy for a part of each period, by the clock that all of these share.

usage: duty.py CPU PERIOD BUSY OFFSET
"""

import os
import sys
import time

cpu, period, busy, offset = int(sys.argv[1]), *map(float, sys.argv[2:])
os.sched_setaffinity(0, {cpu})
# Its name says in the text of a trace that the CPU goes idle.
with open("/proc/self/comm", "w", encoding="ascii") as name:
    name.write("==> next_pid=0")
while True:
    place = (time.time() - offset) % period
    if place >= busy:
        time.sleep(period - place)
        continue
    end = time.time() + busy - place
    while time.time() < end:
        pass
