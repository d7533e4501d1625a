# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often verdicts are wrong on the recorded samples (tests/calibration):
a quick part of what `make calibrate` does in full.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

CALIBRATION = Path(__file__).parents[1] / "calibration"


sys.path.insert(0, str(CALIBRATION))
evaluate = importlib.import_module("evaluate")
sys.path.remove(str(CALIBRATION))
# Half-overlapping windows: a third of the comparisons that the full table makes.
STEP = evaluate.WINDOW // 2


@pytest.fixture(name="recording", scope="module")
def fixture_recording():
    return evaluate.load([CALIBRATION / "data" / "co_runners.json.gz"])


def test_at_most_one_in_twenty_equal_pairs_is_called_and_nine_in_ten_slowdowns_are_found(recording):
    total = evaluate.overall(evaluate.rates(recording, "interleaved", {"ours": evaluate.ours}, STEP))
    false_calls, found = total["methods"]["ours"]
    assert total["same"] >= 150 and total["slower"] >= 50
    assert false_calls <= 0.05 and found >= 0.90
    # Measuring before, and then after, would not do.
    rates = evaluate.rates(recording, "before-then-after", {"ours": evaluate.ours}, evaluate.WINDOW)
    assert evaluate.overall(rates)["methods"]["ours"][0] > 0.05


def test_a_busy_machine_is_no_reason_for_false_calls():
    recording = evaluate.load([CALIBRATION / "data" / "background_load.json.gz"])
    windows = evaluate.windows(recording, "background_load", "same", evaluate.WINDOW)
    same = [evaluate.interleaved(window) for window in windows]
    assert len(same) >= 100 and sum(evaluate.ours(*sides) != 0 for sides in same) <= 0.05 * len(same)
