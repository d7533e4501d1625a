# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that is never asked for more than it does: each of its workers does a piece of work, pauses, and writes
down how many it has done.

usage: work.py FOLDER WORKERS PIECE PAUSE SEED

A piece is so many turns of a loop; a pause is of this many seconds on average, 0 for none. There is none while there
is a file FOLDER.full.
"""

import os
import random
import sys
import time

folder, workers, piece, pause, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
os.makedirs(folder, exist_ok=True)
number = next((number for number in range(1, workers) if os.fork() == 0), 0)
chance = random.Random(f"{seed} {number}")
log = os.open(os.path.join(folder, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
done = 0
while True:
    for _turn in range(piece):
        pass
    done += 1
    os.pwrite(log, b"%d\n" % done, 0)
    if pause and not os.path.exists(f"{folder}.full"):
        time.sleep(chance.expovariate(1 / pause))
