# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints how many pieces a second the workers of work.py do.

usage: rate.py FOLDER SECONDS
"""

import os
import sys
import time

folder, seconds = sys.argv[1], float(sys.argv[2])


def done():
    """The pieces of all workers, and when they were counted."""
    found = 0
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            found += int(file.read() or 0)
    return found, time.monotonic()


before, begun = done()
time.sleep(seconds)
after, ended = done()
print(f"{(after - before) / (ended - begun):.3f} pieces/s")
