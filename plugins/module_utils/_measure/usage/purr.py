# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of what its cores can do a partition of POWER used, as the processor itself counts it.

The PURR (Processor Utilization of Resources Register) counts the ticks of the time base, shared out among the threads
of a core by what each of them uses of it: one busy thread of four is not a quarter of a core, but about 62 % of a
POWER7. Linux gives it, and the part of it in which a thread was idle, for each CPU to root, the latter from 5.8 on and
in partitions (Documentation/ABI/testing/sysfs-devices-system-cpu, arch/powerpc/kernel/sysfs.c). lparstat -E divides it
likewise. /proc/powerpc/lparcfg has no idle part, so it tells what a partition was given, and not what it used. The
SPURR is the same by frequency, of which room for more work does not depend.
"""

import re
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

SYSFS = "sys/devices/system/cpu"
# What shares out no more than there is errs by the time between two reads. An emulator gives all of it to each thread.
TOLERANCE = 0.05
_COUNT = re.compile("[0-9a-f]{1,16}")


class Ticks(t.NamedTuple):
    """Ticks of the time base that a CPU was given of its core.

    Attributes:
        busy: in which it was not idle.
        total: all.
    """

    busy: int
    total: int


class PurrError(Exception):
    """The host has such counters, and they cannot be used; the message says why."""


class Counting:
    """Context manager that counts while its body runs, where the host has such counters.

    Args:
        fs: the host's files.
        cores: the online CPUs of each core.

    Attributes:
        used: after its end, the share that was used of what all cores can do; None where that was not counted.
        reason: why a processor that counts it could not be used; None where it was, and where it does not count it.
    """

    def __init__(self, fs: HostFs, cores: "t.Sequence[tuple[int, ...]]") -> None:
        self._fs, self._cores = fs, cores
        self.used: t.Optional[float] = None
        self.reason: t.Optional[str] = None

    def __enter__(self) -> "Counting":
        """Read the counters."""
        self._before, self._begun = self._read(), time.monotonic()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Read them again, and keep what was used."""
        after, seconds = self._read(), time.monotonic() - self._begun
        if self._before is None or after is None:
            return
        try:
            self.used = used(self._fs, self._cores, self._before, after, seconds)
        except PurrError as error:
            self.reason = str(error)

    def _read(self) -> "dict[int, Ticks] | None":
        try:
            return read(self._fs, [cpu for core in self._cores for cpu in core])
        except PurrError as error:
            self.reason = str(error)
            return None


def read(fs: HostFs, cpus: "t.Iterable[int]") -> "dict[int, Ticks] | None":
    """Return the ticks of CPUs, or None for a host without such counters.

    Args:
        fs: the host's files.
        cpus: its online CPUs.

    Raises:
        PurrError: one of them cannot be read.
    """
    ticks: t.Dict[int, Ticks] = {}
    for cpu in cpus:
        directory = f"{SYSFS}/cpu{cpu}"
        if not ticks and not {"purr", "idle_purr"}.issubset(fs.names(directory)):
            return None
        # The idle part first: it is never more than the whole then.
        texts = [fs.read(f"{directory}/{name}") for name in ("idle_purr", "purr")]
        if None in texts:
            raise PurrError(f"/{directory}/purr and idle_purr cannot be read: only root can (run with become)")
        counts = [int(text, 16) for text in map(str.strip, filter(None, texts)) if _COUNT.fullmatch(text)]
        if len(counts) != len(texts) or counts[0] > counts[1]:
            raise PurrError(f"/{directory}/purr and idle_purr are no counts")
        idle, total = counts
        ticks[cpu] = Ticks(total - idle, total)
    return ticks or None


def used(
    fs: HostFs,
    cores: "t.Sequence[t.Sequence[int]]",
    before: "t.Mapping[int, Ticks]",
    after: "t.Mapping[int, Ticks]",
    seconds: float,
) -> float:
    """Return the share of what all cores can do that was used between two reads (0..1).

    Args:
        fs: the host's files.
        cores: the online CPUs of each core.
        before: the first read.
        after: the second one.
        seconds: the time between them.

    Raises:
        PurrError: these counters do not share out the time of a core.
    """
    # It follows the last CPU.
    known = cpuinfo.read(fs)
    frequency = next(
        filter(None, (cpuinfo.number(block, "timebase") for block in (known.common, *known.blocks.values()))), 0
    )
    if not frequency or seconds <= 0:
        raise PurrError("/proc/cpuinfo has no time base")
    whole = frequency * seconds
    busy = 0.0
    for core in cores:
        if any(cpu not in before or cpu not in after for cpu in core):
            raise PurrError(f"CPUs of the core of CPU {core[0]} went offline or came back while they were counted")
        total = sum(after[cpu].total - before[cpu].total for cpu in core)
        if not 0 <= total <= whole * (1 + TOLERANCE):
            raise PurrError(
                f"the PURRs of the core of CPU {core[0]} counted {total / whole:.2f} of its time, so they are no shares"
                " of it"
            )
        busy += sum(max(0, after[cpu].busy - before[cpu].busy) for cpu in core)
    return min(1.0, busy / (whole * len(cores)))
