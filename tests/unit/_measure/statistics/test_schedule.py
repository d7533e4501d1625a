# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan looks at its data: at planned places, also where blocks are done several at a time, never twice at the
same ones.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import run_directory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import schedule


@pytest.mark.parametrize(
    ("total", "step", "places"),
    [
        (28, 1, [4, 5, 6, 8, 11, 15, 19, 23, 28]),
        (30, 1, [4, 5, 6, 8, 11, 15, 19, 23, 28, 30]),
        (48, 4, [4, 8, 12, 16, 20, 24, 28, 36, 44, 48]),
        (12, 3, [6, 9, 12]),
        (3, 1, []),
    ],
)
def test_looks_are_at_the_first_number_of_blocks_from_each_place_on(total, step, places):
    planned = schedule.Schedule()
    assert [done for done in range(step, total + 1, step) if planned.take(done, total - done)] == places
    assert [look.blocks for look in planned.looks] == places
    assert [look.share for look in planned.looks] == pytest.approx([place / total for place in places])


def test_the_same_blocks_are_not_looked_at_again():
    planned = schedule.Schedule()
    assert [planned.take(6, 0), planned.take(6, 0), planned.take(5, 3)] == [True, False, False]


def test_the_share_ends_at_1_however_the_forecast_changed():
    planned = schedule.Schedule()
    assert all(planned.take(*done) for done in ((4, 24), (5, 23), (6, 60), (8, 58), (11, 2), (13, 0)))
    shares = [look.share for look in planned.looks]
    assert shares == sorted(set(shares)) and shares[2] == pytest.approx(5 / 28 + 23 / 28 / 61) and shares[-1] == 1


def test_there_are_enough_places_for_the_longest_plan():
    """A result has room for so many blocks of samples of a hundred bytes; the last block of a plan is a look too."""
    assert schedule.places()[-1] > run_directory.MAX_BYTES / 100
    assert len(schedule.places()) + 1 == schedule.MAX_LOOKS
