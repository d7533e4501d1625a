# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps one CPU busy for a part of each period, by the clock that all of these share, and writes down when it was:
begin and end in seconds, a line each.

usage: duty.py CPU PERIOD BUSY OFFSET FILE
"""

import os
import sys
import time

cpu, period, busy, offset = int(sys.argv[1]), *map(float, sys.argv[2:5])
os.sched_setaffinity(0, {cpu})
# Its name says in the text of a trace that the CPU goes idle.
with open("/proc/self/comm", "w", encoding="ascii") as name:
    name.write("==> next_pid=0")
with open(sys.argv[5], "w", buffering=1, encoding="ascii") as log:
    while True:
        begin = time.monotonic()
        place = (begin - offset) % period
        if place >= busy:
            time.sleep(period - place)
            continue
        end = begin + busy - place
        while time.monotonic() < end:
            pass
        log.write(f"{begin} {time.monotonic()}\n")
