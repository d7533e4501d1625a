# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan looks at its data: at planned places, also where blocks are done several at a time,
and never twice at the same ones.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import schedule


def taken(total, step=1):
    """After how many blocks a plan of a fixed number looks, when so many are done at a time."""
    planned = schedule.Schedule()
    return [done for done in range(step, total + 1, step) if planned.take(done, total - done)], planned.looks


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
    found, looks = taken(total, step)
    assert found == places
    assert [look.blocks for look in looks] == places
    assert [look.share for look in looks] == pytest.approx([place / total for place in places])


def test_the_same_blocks_are_not_looked_at_again():
    planned = schedule.Schedule()
    assert planned.take(6, 0)
    assert not planned.take(6, 0)
    assert not planned.take(5, 3)
