# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The energy that the processor's packages used, by the kernel's counters.

Source: Documentation/power/powercap/powercap.rst of the kernel, and drivers/powercap/intel_rapl_common.c for the names
of zones (AMD's processors are in it, too). Only root may read the counters, which begin again at 0 after
``max_energy_range_uj``.
"""

import re
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

ZONES = "sys/class/powercap"
# A zone of the processor and not one within it, such as its cores (intel-rapl:0:0), which is a part of the same energy.
# The zone of the whole platform (psys) has its packages in it, and intel-rapl-mmio:0 is a package by another way.
_ZONE = re.compile(r"intel-rapl:\d+\Z")
_PACKAGE = re.compile(r"package-\d+(-die-\d+)?\Z")

# More than any package draws. A counter of 32 bits of 15.3 microjoules, as servers have for their memory, is through
# its range in 65 s then; one of 61 microjoules in 262 s.
MAX_WATTS = 1000


class Reading(t.NamedTuple):
    """The counters at one moment."""

    # Of a clock that only goes forward.
    seconds: float
    # Zone -> microjoules so far.
    counts: t.Dict[str, int]


class Energy:
    """The counters of one host.

    Args:
        files: the host's files.
    """

    def __init__(self, files: HostFs) -> None:
        self._files = files
        zones = [
            zone
            for zone in files.names(ZONES)
            if _ZONE.match(zone) and _PACKAGE.match((files.read(f"{ZONES}/{zone}/name") or "").strip())
        ]
        most = {zone: self._number(zone, "max_energy_range_uj") for zone in zones}
        self._most = {zone: value for zone, value in most.items() if value is not None}
        self._complete = len(self._most) == len(zones)

    def read(self) -> Reading:
        """Return the count of each package; nothing where one of them cannot be read."""
        counts = {zone: self._number(zone, "energy_uj") for zone in self._most} if self._complete else {}
        known = {zone: count for zone, count in counts.items() if count is not None}
        return Reading(time.monotonic(), known if len(known) == len(counts) else {})

    def joules(self, before: Reading, after: Reading) -> "float | None":
        """Return the energy of all packages between two readings, in joules, or None where it is not known.

        That is also where a counter could have gone through its whole range: it does not say how often it did.
        """
        if not before.counts or before.counts.keys() != after.counts.keys():
            return None
        if (after.seconds - before.seconds) * MAX_WATTS * 1e6 >= min(self._most.values()):
            return None
        used = [
            count - before.counts[zone] + (0 if count >= before.counts[zone] else self._most[zone])
            for zone, count in after.counts.items()
        ]
        return round(sum(used) / 1e6, 6) if min(used) >= 0 else None

    def _number(self, zone: str, name: str) -> "int | None":
        text = (self._files.read(f"{ZONES}/{zone}/{name}") or "").strip()
        return int(text) if text.isdigit() else None
