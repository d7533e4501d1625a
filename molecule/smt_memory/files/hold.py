# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks for so many MiB in one request, says whether they were granted, uses them all,
and holds them for so many seconds.
"""

from __future__ import annotations

import mmap
import sys
import time

MIB = 1 << 20
length, seconds = int(sys.argv[1]) * MIB, int(sys.argv[2])
try:
    area = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError as refused:
    print(f"refused: {refused.strerror}", flush=True)
    sys.exit(12)
print("granted", flush=True)
for offset in range(0, length, MIB):
    area[offset : offset + MIB] = b"x" * MIB
print("used", flush=True)
time.sleep(seconds)
