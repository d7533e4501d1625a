# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read the kernel's counters of energy, each tried on ours."""

from __future__ import annotations

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import energy

# Counters of 32 bits of 61 and of 15.3 microjoules.
WIDE, NARROW = 262_143_328_850, 65_712_999_613


@pytest.mark.parametrize(
    ("before", "after", "seconds", "ranges", "joules"),
    [
        # It begins again. Also codecarbon 322, scaphandre 280 and EnergiBridge 17.
        pytest.param([WIDE - 2_000_000], [1_000_000], 10, [WIDE], 3.0, id="powerjoular_45"),
        # A range that cannot be read, also of one of two packages.
        pytest.param([4_000_000_000], [10_000], 10, [None], None, id="codecarbon_1309"),
        pytest.param([1_000_000] * 2, [2_000_000] * 2, 10, [WIDE, None], None, id="codecarbon_1309"),
        # Nothing says how often it went round, also where it ended above its beginning. Also zeus 91.
        pytest.param([1_000_000_000], [31_811_100_000], 1795, [WIDE], None, id="likwid_646"),
        pytest.param([1_000_000_000], [31_811_100_000], 60, [WIDE], 30_811.1, id="likwid_646"),
        # The narrowest decides.
        pytest.param([1_000_000] * 2, [9_000_000] * 2, 70, [WIDE, NARROW], None, id="likwid_13"),
    ],
)
def test_the_joules_between_two_counts_of_packages(tmp_path, before, after, seconds, ranges, joules):
    readings = []
    for moment, counts in ((0.0, before), (seconds, after)):
        for number, (count, most) in enumerate(zip(counts, ranges, strict=True)):
            files = {"name": f"package-{number}\n", "energy_uj": f"{count}\n"}
            files |= {"max_energy_range_uj": f"{most}\n"} if most else {}
            sysfs_tree.write(tmp_path / energy.ZONES / f"intel-rapl:{number}", files)
        readings.append(energy.Energy(HostFs(str(tmp_path))).read()._replace(seconds=moment))
    assert energy.Energy(HostFs(str(tmp_path))).joules(*readings) == joules
