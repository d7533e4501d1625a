# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cycles and instructions of CPUs and cores, and why a thread waited, counted by ``perf stat -j`` where the host has a
performance monitoring unit.

Sources: the kernel's include/uapi/linux/perf_event.h for stalled cycles, tools/perf/Documentation/topdown.txt for the
shares of slots.
"""

import json
import math
import signal
import subprocess
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner

EVENTS = ("cycles", "instructions")
# Event -> the share of its cycles in which a thread waited, by name. A kernel that has none says "not supported".
STALLS = {"stalled-cycles-frontend": "frontend_stalled", "stalled-cycles-backend": "backend_stalled"}
# Event -> what became of the slots of a thread, by name: Top-Down at its first level. The events count only together
# with slots, which leads them; processors without slots have events of the same kind that are those of a whole core.
SLOTS = "slots"
TOPDOWN = {
    "topdown-retiring": "retiring",
    "topdown-bad-spec": "bad_speculation",
    "topdown-fe-bound": "frontend_bound",
    "topdown-be-bound": "backend_bound",
}
# The names of a processor's performance monitoring unit; a hybrid one has the latter for its cores with two threads.
UNITS = ("cpu", "cpu_core")
# How far the shares of all slots may be from 1 together.
SLOTS_TOLERANCE = 0.05
TEST_COMMAND = ["perf", "stat", "-j", "-a", "-A"]
TIME_LIMIT = 30
OUTPUT_LIMIT = 4 * 1024 * 1024
REASON_LENGTH = 300


class Counts(TypedDict):
    """Counted events of one CPU; the first two are above zero."""

    cycles: float
    instructions: float
    # Names of STALLS -> share of the cycles, and of TOPDOWN -> share of the slots; empty where they were not counted.
    stalls: "dict[str, float]"
    topdown: "dict[str, float]"


class Rates(TypedDict):
    """Counted events of a CPU or a core, with instructions per cycle (``ipc``) and cycles per instruction (``cpi``).
    A CPU has ``stalls`` and ``topdown``, as :class:`Counts` has them, where they were counted.
    """

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
    return refusal(",".join(EVENTS), parse)


def refusal(wanted: str, read: "t.Callable[[str], object]") -> "str | None":
    """Return why this host cannot count events of its CPUs, or None when it can.

    Args:
        wanted: the events, as ``perf stat -e`` takes them.
        read: returns something true for output of perf that has their counts.
    """
    try:
        done = subprocess.run(
            [*TEST_COMMAND, "-e", wanted, "true"],
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
        if read(output)
        else "this host has no performance monitoring unit that perf may read"
        f" ({wanted.replace(',', ' and ')}: not supported)"
    )


def events(files: HostFs) -> str:
    """Return the events to count on a host, as ``perf stat -e`` takes them.

    Args:
        files: the host's files.
    """
    known = [set(files.names(f"sys/bus/event_source/devices/{unit}/events")) for unit in UNITS]
    together = [SLOTS, *TOPDOWN]
    group = [f"{{{','.join(together)}}}"] if any(names.issuperset(together) for names in known) else []
    return ",".join([*EVENTS, *STALLS, *group])


class Counting:
    """Context manager that counts events while its body runs.

    Args:
        cpus: the CPUs to count on.
        wanted: the events, from :func:`events`.

    Attributes:
        text: what perf printed; empty until the context is left, and when perf did not end in time.
    """

    def __init__(self, cpus: "Iterable[int]", wanted: str) -> None:
        self._argv = ["perf", "stat", "-j", "-A", "-C", ",".join(map(str, cpus)), "-e", wanted]
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
        CPU number -> counts, for the CPUs whose cycles and instructions were both counted and are above zero.
    """
    known = (*EVENTS, *STALLS, SLOTS, *TOPDOWN)
    return {
        cpu: {
            "cycles": counts["cycles"],
            "instructions": counts["instructions"],
            "stalls": _stalls(counts),
            "topdown": _topdown(counts),
        }
        for cpu, counts in counted(text, known).items()
        if all(counts.get(event) for event in EVENTS)
    }


def counted(text: str, names: "Sequence[str]") -> "dict[str, dict[str, float]]":
    """Read the counts of some events from what :func:`parse` reads, whatever they are.

    Returns:
        CPU number -> event -> count, of what was counted.
    """
    counts: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            cpu, value = str(int(entry["cpu"])), float(entry["counter-value"])
            event = _event(str(entry["event"]), names)
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        if event and math.isfinite(value) and value >= 0:
            counts.setdefault(cpu, {})[event] = value
    return counts


def _event(name: str, known: "Sequence[str]") -> "str | None":
    return next((event for event in known if name.split(":", maxsplit=1)[0] == event or f"/{event}/" in name), None)


def _stalls(counts: "Mapping[str, float]") -> "dict[str, float]":
    """Return the share of a thread's cycles in which it waited, where that can be: counters of a core say more."""
    shares = {name: counts[event] / counts["cycles"] for event, name in STALLS.items() if event in counts}
    return {name: round(share, 4) for name, share in shares.items() if share <= 1}


def _topdown(counts: "Mapping[str, float]") -> "dict[str, float]":
    """Return the shares of a thread's slots, nothing unless they are shares of one whole."""
    slots = counts.get(SLOTS)
    shares = {name: counts[event] / slots for event, name in TOPDOWN.items() if event in counts} if slots else {}
    whole = len(shares) == len(TOPDOWN) and abs(sum(shares.values()) - 1) <= SLOTS_TOLERANCE
    return {name: round(share, 4) for name, share in shares.items()} if whole else {}


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
                max(thread["cycles"] for thread in threads), sum(thread["instructions"] for thread in threads)
            )
    return {"cpus": {cpu: _of_thread(count) for cpu, count in counts.items()}, "cores": rates}


def _of_thread(counted: Counts) -> Rates:
    shares = {"stalls": counted["stalls"], "topdown": counted["topdown"]}
    return t.cast(
        Rates,
        {
            **_rates(counted["cycles"], counted["instructions"]),
            **{key: value for key, value in shares.items() if value},
        },
    )


def _rates(cycles: float, instructions: float) -> Rates:
    return {
        "cycles": cycles,
        "instructions": instructions,
        "ipc": round(instructions / cycles, 4),
        "cpi": round(cycles / instructions, 4),
    }
