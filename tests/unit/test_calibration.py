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


def load_evaluate():
    """The script beside the recordings; it imports its co_runners by name, as it does when it is run."""
    sys.path.insert(0, str(CALIBRATION))
    try:
        return importlib.import_module("evaluate")
    finally:
        sys.path.remove(str(CALIBRATION))


evaluate = load_evaluate()
# Half-overlapping windows: a third of the comparisons that the full table makes.
STEP = evaluate.WINDOW // 2


@pytest.fixture(name="recording", scope="module")
def fixture_recording():
    return evaluate.load([CALIBRATION / "data" / "co_runners.json.gz"])


def test_at_most_one_in_twenty_equal_pairs_is_called_and_nine_in_ten_slowdowns_are_found(recording):
    total = evaluate.overall(evaluate.rates(recording, "interleaved", {"ours": evaluate.ours}, STEP))
    false_calls, found = total["methods"]["ours"]
    assert total["same"] >= 150 and total["slower"] >= 50
    assert false_calls <= 0.05
    assert found >= 0.90


def test_a_busy_machine_is_no_reason_for_false_calls():
    recording = evaluate.load([CALIBRATION / "data" / "background_load.json.gz"])
    same = [
        evaluate.interleaved(window)
        for window in evaluate.windows(recording, "background_load", "same", evaluate.WINDOW)
    ]
    assert len(same) >= 100
    assert sum(evaluate.ours(*sides) != 0 for sides in same) <= 0.05 * len(same)


def test_measuring_before_then_after_would_not_do(recording):
    false_calls, _found = evaluate.overall(
        evaluate.rates(recording, "before-then-after", {"ours": evaluate.ours}, evaluate.WINDOW)
    )["methods"]["ours"]
    assert false_calls > 0.05
