# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cycles and instructions of CPUs and cores, counted by ``perf stat -j`` where the host has a performance monitoring
unit.
"""

import json
import math
import signal
import subprocess
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.threadwise.smt.plugins.module_utils._compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import runner

EVENTS = ("cycles", "instructions")
TEST_COMMAND = ["perf", "stat", "-j", "-a", "-A", "-e", ",".join(EVENTS), "true"]
TIME_LIMIT = 30
OUTPUT_LIMIT = 4 * 1024 * 1024
REASON_LENGTH = 300


class Counts(TypedDict):
    """Counted events of one CPU; both are above zero."""

    cycles: float
    instructions: float


class Rates(TypedDict):
    """Counted events of a CPU or a core, with instructions per cycle (``ipc``) and cycles per instruction (``cpi``)."""

    cycles: float
    instructions: float
    ipc: float
    cpi: float


class CoreRates(TypedDict):
    """Rates by CPU number, and by the core's CPU numbers joined by commas (``0,4``)."""

    cpus: "dict[str, Rates]"
    cores: "dict[str, Rates]"


def unavailable_reason() -> "str | None":
    """Return why this host cannot count the cycles and instructions of its CPUs, or None when it can."""
    try:
        done = subprocess.run(
            TEST_COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIME_LIMIT,
            check=False,
            env=runner.environment(),
        )
    except FileNotFoundError:
        return "perf is not installed"
    except (OSError, subprocess.SubprocessError) as error:
        return f"perf cannot be run: {error}"
    output = done.stderr.decode("utf-8", "replace")
    if done.returncode != 0:
        return f"perf stat failed: {' '.join(output.split())[:REASON_LENGTH] or 'it printed no error message'}"
    return (
        None
        if parse(output)
        else "this host has no performance monitoring unit that perf may read (cycles and instructions: not supported)"
    )


class Counting:
    """Context manager that counts events while its body runs.

    Args:
        cpus: the CPUs to count on.

    Attributes:
        text: what perf printed; empty until the context is left, and when perf did not end in time.
    """

    def __init__(self, cpus: "Iterable[int]") -> None:
        self._argv = ["perf", "stat", "-j", "-A", "-C", ",".join(map(str, cpus)), "-e", ",".join(EVENTS)]
        self._perf: t.Optional[subprocess.Popen[bytes]] = None
        self.text = ""

    def __enter__(self) -> "Counting":
        """Start perf."""
        self._perf = subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=runner.environment(),
            preexec_fn=_die_with_plan,
        )
        return self

    def __exit__(self, *_raised: object) -> None:
        """Stop perf and keep what it printed."""
        if self._perf is None:
            return
        # perf prints its counts when it is interrupted.
        self._perf.send_signal(signal.SIGINT)
        try:
            self.text = self._perf.communicate(timeout=TIME_LIMIT)[1][:OUTPUT_LIMIT].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            self._perf.kill()
            self._perf.communicate()


def _die_with_plan() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    processes.die_with_parent(signal.SIGKILL)


def parse(text: str) -> "dict[str, Counts]":
    """Read the counts from the output of ``perf stat -j -A``.

    perf prints one JSON object per line; a missing count reads ``<not supported>`` or ``<not counted>``. Hybrid
    processors name an event once for each type of core (``cpu_core/cycles/``), and each CPU counts only one of them.

    Args:
        text: the output.

    Returns:
        CPU number -> counts, for the CPUs whose events were all counted and are above zero.
    """
    counts: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            cpu, event, value = str(int(entry["cpu"])), _event(str(entry["event"])), float(entry["counter-value"])
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        if event and math.isfinite(value) and value > 0:
            counts.setdefault(cpu, {})[event] = value
    return {
        cpu: {"cycles": found["cycles"], "instructions": found["instructions"]}
        for cpu, found in counts.items()
        if len(found) == len(EVENTS)
    }


def _event(name: str) -> "str | None":
    return next((event for event in EVENTS if name.split(":", maxsplit=1)[0] == event or f"/{event}/" in name), None)


def by_core(counts: "Mapping[str, Counts]", cores: "Iterable[Sequence[int]]") -> CoreRates:
    """Compute the rates of each CPU and of each core.

    The cycles of a core are those of its busiest thread: perf counts the cycles in which a thread runs, so with both
    threads busy each count equals the core's cycles, and their sum would be twice as much.

    Args:
        counts: the counts by CPU number.
        cores: the CPUs of each core.

    Returns:
        The rates of the counted CPUs, and of the cores with at least one of them.
    """
    rates = {}
    for core in cores:
        threads = [counts[str(cpu)] for cpu in core if str(cpu) in counts]
        if threads:
            rates[",".join(map(str, core))] = _rates(
                max(one["cycles"] for one in threads), sum(one["instructions"] for one in threads)
            )
    return {"cpus": {cpu: _rates(one["cycles"], one["instructions"]) for cpu, one in counts.items()}, "cores": rates}


def _rates(cycles: float, instructions: float) -> Rates:
    return {
        "cycles": cycles,
        "instructions": instructions,
        "ipc": round(instructions / cycles, 4),
        "cpi": round(cycles / instructions, 4),
    }
