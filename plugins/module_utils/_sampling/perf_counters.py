# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cycles and instructions of CPUs and cores, counted by ``perf stat -j`` where the host has a performance monitoring unit."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes

EVENTS = ("cycles", "instructions")
PROBE = ["perf", "stat", "-j", "-a", "-A", "-e", ",".join(EVENTS), "true"]
PATIENCE = 30
OUTPUT_LIMIT = 4 * 1024 * 1024
REASON_LENGTH = 300


def why_not():
    """Why CPUs' cycles and instructions cannot be counted on this host, or None."""
    try:
        done = subprocess.run(
            PROBE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, env=_environment()
        )
    except FileNotFoundError:
        return "perf is not installed"
    except (OSError, subprocess.SubprocessError) as error:
        return f"perf cannot be run: {error}"
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode != 0:
        return "perf stat failed: %s" % (" ".join(said.split())[:REASON_LENGTH] or "it said nothing")
    return None if parse(said) else "this host has no performance monitoring unit that perf may read (cycles and instructions: not supported)"


class Counting:
    """Counts from ``with`` to its end; ``text`` is then what perf said.

    Args:
        cpus: the CPUs (int) to count on.
    """

    def __init__(self, cpus):
        self._argv = ["perf", "stat", "-j", "-A", "-C", ",".join(map(str, cpus)), "-e", ",".join(EVENTS)]
        self._perf = None
        self.text = ""

    def __enter__(self):
        self._perf = subprocess.Popen(
            self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(), preexec_fn=_die_with_plan
        )
        return self

    def __exit__(self, *_raised):
        # perf prints what it has counted when it is interrupted.
        self._perf.send_signal(signal.SIGINT)
        try:
            self.text = self._perf.communicate(timeout=PATIENCE)[1][:OUTPUT_LIMIT].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            self._perf.kill()
            self._perf.communicate()


def _die_with_plan():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    processes.die_with_parent(signal.SIGKILL)


def _environment():
    return {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}


def parse(text):
    """The counts in what ``perf stat -j -A`` printed.

    perf prints a JSON object a line; a count that is not there reads ``<not supported>`` or ``<not counted>``. Hybrid processors name an
    event once for each kind of core (``cpu_core/cycles/``), of which a CPU counts one.

    Returns:
        {CPU number as str: {"cycles": float, "instructions": float}} for the CPUs that have both above zero.
    """
    counts = {}
    for line in text.splitlines():
        try:
            told = json.loads(line)
            cpu, event, value = str(int(told["cpu"])), _event(str(told["event"])), float(told["counter-value"])
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        if event and math.isfinite(value) and value > 0:
            counts.setdefault(cpu, {})[event] = value
    return {cpu: found for cpu, found in counts.items() if len(found) == len(EVENTS)}


def _event(name):
    return next((event for event in EVENTS if name.split(":")[0] == event or f"/{event}/" in name), None)


def by_core(counts, cores):
    """What is kept of the counts: of each CPU and of each core.

    The cycles of a core are those of its busiest thread: perf counts the cycles in which a thread runs, so with both threads busy each
    count is the core's, and their sum would be twice as much.

    Args:
        counts: as ``parse`` returns them.
        cores: CPU tuples, one a core.

    Returns:
        {"cpus": {cpu: {cycles, instructions, ipc, cpi}}, "cores": {"0,4": the same}}.
    """
    found = {}
    for core in cores:
        threads = [counts[str(cpu)] for cpu in core if str(cpu) in counts]
        if threads:
            found[",".join(map(str, core))] = _rates(max(one["cycles"] for one in threads), sum(one["instructions"] for one in threads))
    return {"cpus": {cpu: _rates(**one) for cpu, one in counts.items()}, "cores": found}


def _rates(cycles, instructions):
    return {"cycles": cycles, "instructions": instructions, "ipc": round(instructions / cycles, 4), "cpi": round(cycles / instructions, 4)}
