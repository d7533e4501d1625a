# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processors that count themselves how their cores are used: a partition of POWER as files, and a perf."""

import os

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

# Ticks of POWER's time base a second.
TIMEBASE = 512_000_000
# As Linux prints it there: what holds for all CPUs follows the last one.
CPUINFO = f"processor\t: 0\ncpu\t\t: POWER9 (architected)\n\ntimebase\t: {TIMEBASE}\nplatform\t: pSeries\n"


class Partition:
    """A partition of POWER, as files below a directory."""

    def __init__(self, root, cores):
        self.fs, self.root = HostFs(str(root)), root
        self.threads = [thread for core in cores for thread in core]
        numbers = iter(range(len(self.threads)))
        self.cores = [tuple(next(numbers) for _thread in core) for core in cores]
        # Since boot: ticks busy and idle, and seconds.
        self.since_boot = [(0x1A2B3C4D5E, 0xC0FFEE, 1000.0) for _thread in self.threads]
        self.seconds = 5000.0
        (root / "proc").mkdir()
        (root / "proc/cpuinfo").write_text(CPUINFO)
        self.write()

    def pass_time(self, seconds):
        self.seconds += seconds
        ticks = TIMEBASE * seconds
        self.since_boot = [
            (busy + round(ticks * is_busy), idle + round(ticks * is_idle), ran + seconds * usage)
            for (busy, idle, ran), (is_busy, is_idle, usage) in zip(self.since_boot, self.threads, strict=True)
        ]
        self.write()

    def write(self):
        """Write the files (idle_purr_show in the kernel's arch/powerpc/kernel/sysfs.c: "%llx")."""
        stat = ""
        for cpu, (busy, idle, ran) in enumerate(self.since_boot):
            directory = self.root / f"sys/devices/system/cpu/cpu{cpu}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "purr").write_text(f"{busy + idle:x}\n")
            (directory / "idle_purr").write_text(f"{idle:x}\n")
            stat += f"cpu{cpu} {round(100 * ran)} 0 0 {round(100 * (self.seconds - ran))} 0 0 0 0 0 0\n"
        (self.root / "proc/stat").write_text(stat)


def perf(directory, monkeypatch, text, pair):
    """Put a perf first in the search path that knows the events of one pair, and prints a text of them."""
    known = f"*{pair.other}*" if pair else "nothing"
    (directory / "counts").write_text(text)
    (directory / "perf").write_text(
        f'#!/bin/sh\ncase "$*" in {known}) ;; *) echo "event syntax error: \'$*\'" >&2; exit 129;; esac\n'
        f'case "$*" in *true) cat {directory}/counts >&2; exit;; esac\n'
        f"trap 'cat {directory}/counts >&2; exit 0' INT\nwhile :; do sleep 0.02; done\n"
    )
    (directory / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
