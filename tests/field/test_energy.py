# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read the kernel's counters of energy, each tried on ours. A test is named after its
source.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import energy

# Counters of 32 bits of 61 and of 15.3 microjoules.
WIDE, NARROW = 262_143_328_850, 65_712_999_613


def counted(root, before, after, seconds, ranges=(WIDE,)):
    """The joules between these counts of packages, so many seconds apart."""
    for number, most in enumerate(ranges):
        place = root / energy.ZONES / f"intel-rapl:{number}"
        place.mkdir(parents=True)
        (place / "name").write_text(f"package-{number}\n")
        if most:
            (place / "max_energy_range_uj").write_text(f"{most}\n")
    readings = []
    for moment, counts in ((0.0, before), (seconds, after)):
        for number, count in enumerate(counts):
            (root / energy.ZONES / f"intel-rapl:{number}" / "energy_uj").write_text(f"{count}\n")
        readings.append(energy.Energy(HostFs(str(root))).read()._replace(seconds=moment))
    return energy.Energy(HostFs(str(root))).joules(*readings)


def test_powerjoular_45_a_counter_that_begins_again(tmp_path):
    """Also codecarbon 322, scaphandre 280 and EnergiBridge 17."""
    assert counted(tmp_path, [WIDE - 2_000_000], [1_000_000], 10) == 3.0


def test_codecarbon_1309_a_range_that_cannot_be_read(tmp_path):
    assert counted(tmp_path, [4_000_000_000], [10_000], 10, ranges=(None,)) is None


def test_codecarbon_1309_a_range_of_one_of_two_packages_that_cannot_be_read(tmp_path):
    assert counted(tmp_path, [1_000_000] * 2, [2_000_000] * 2, 10, ranges=(WIDE, None)) is None


@pytest.mark.parametrize(("seconds", "known"), [(1795.0, False), (60.0, True)])
def test_likwid_646_a_sample_in_which_the_counter_goes_round_more_than_once(tmp_path, seconds, known):
    """Also zeus 91: nothing says how often it did, also where it ended above its beginning."""
    joules = counted(tmp_path, [1_000_000_000], [31_811_100_000], seconds)
    assert joules == (30_811.1 if known else None)


def test_likwid_13_the_narrowest_counter_decides(tmp_path):
    assert counted(tmp_path, [1_000_000] * 2, [9_000_000] * 2, 70, ranges=(WIDE, NARROW)) is None
