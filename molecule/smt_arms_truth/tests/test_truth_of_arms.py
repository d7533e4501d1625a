# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three arms of which it is known what they do: one does nothing, and is not called; one makes 10 % more work,
and is found.
"""

from __future__ import annotations

import collections
import os
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons, paired

RESULT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results" / "truth" / "smt-arms-truth.json"
IDLE, PLANTED = "overcommit_heuristic", "thp_never"
WINDOWS, BLOCKS = 100, 10
# Of 100.
MAX_CALLS, MIN_FINDS = 5, 95


@pytest.fixture(scope="module", name="result")
def result_of_the_evaluation():
    return parts.plain(result_files.load(RESULT))


def judged(result, blocks):
    """The comparison of each arm with the baseline from some blocks alone."""
    samples = [sample for sample in result["samples"] if sample["block"] in blocks]
    part = results.accept({**result, "samples": samples}, "the guest")
    return {one["effect"]: one for one in comparisons.compare_host(part)}


def test_an_arm_that_does_nothing_is_not_called_and_a_planted_effect_is_found(result):
    windows = [judged(result, range(first, first + BLOCKS)) for first in range(0, WINDOWS * BLOCKS, BLOCKS)]
    whole = judged(result, range(WINDOWS * BLOCKS))
    verdicts = {arm: collections.Counter(window[arm]["verdict"] for window in windows) for arm in (IDLE, PLANTED)}
    for arm, counts in verdicts.items():
        one = whole[arm]
        print(
            f"{arm}: {dict(counts)} in {len(windows)} comparisons of {BLOCKS} blocks; in all blocks {one['ratio']}"
            f" ({one['ci_low']} to {one['ci_high']})"
        )
    assert all(window[arm]["n"] == BLOCKS for window in windows for arm in verdicts)
    assert verdicts[IDLE][paired.GAIN] + verdicts[IDLE][paired.LOSS] <= MAX_CALLS, verdicts
    assert verdicts[PLANTED][paired.LOSS] >= MIN_FINDS, verdicts


def test_the_evaluation_was_carried_out_as_planned_and_left_nothing(host, result):
    assert result["outcome"] == "completed" and result["restored"]["ok"] and result["plan"]["stopped"] == "blocks"
    assert host.check_output("sysctl -n vm.overcommit_memory") == "0"
