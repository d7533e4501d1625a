# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of arms: balanced for drift and for what an arm leaves behind."""

from __future__ import annotations

import collections
import itertools

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order

ARMS = "abcdefgh"


@pytest.mark.parametrize("count", range(1, 9))
def test_each_arm_follows_each_other_one_equally_often_and_takes_each_place_equally_often(count):
    rows = [order.of_block(ARMS[:count], block) for block in range(count if count % 2 == 0 else 2 * count)]
    assert all(sorted(row) == sorted(ARMS[:count]) for row in rows)
    follows = collections.Counter(pair for row in rows for pair in itertools.pairwise(row))
    places = collections.Counter(place for row in rows for place in enumerate(row))
    assert len(follows) == count * (count - 1) and len(set(follows.values())) <= 1
    assert len(places) == count * count and len(set(places.values())) == 1


def test_two_arms_alternate_and_the_baseline_begins():
    assert [order.of_block("ab", block) for block in range(4)] == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
    assert order.of_block("abc", 0)[0] == "a"
