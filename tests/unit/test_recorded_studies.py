# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays of examples/studies; and how often verdicts are wrong on recorded samples, a part of `make calibrate`."""

from __future__ import annotations

import importlib
import pathlib
import sys
from pathlib import Path

import pytest
import result_maker
import studies
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import settings as plan_settings
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDIES = sorted((ROOT / "examples" / "studies").glob("*.yml"))
MAX_LINES = 30
# What all must have time for.
MAX_SECONDS = 540


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_is_one_short_play_with_its_question(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    title = text.partition("\n#\n")[0]
    assert len(lines) <= MAX_LINES and title.startswith("---\n# ") and title.endswith("?")
    assert f"examples/studies/{path.name}" in text
    (play,) = yaml.safe_load(text)
    assert play["ansible.builtin.import_playbook"] == "threadwise.smt.smt_eval" and play["name"].endswith("?")
    assert play["vars"]["smt_eval_budget"] <= MAX_SECONDS
    settings = [variables.Setting("h", name, value) for name, value in play["vars"].items()]
    assert variables.problems(settings, variables.known(), 1) == []


def test_streams_of_the_plays_are_always_among_those_between_cores_and_threads():
    (play,) = yaml.safe_load((ROOT / "examples" / "studies" / "hp-2004.yml").read_text(encoding="utf-8"))
    names = plan_settings.of_streams(play["vars"]["smt_eval_streams"], 4, 8)
    # HP's loss is at 5 to 7 streams on four cores.
    assert [int(name.rpartition("_")[2]) for name in names] == list(range(1, 13))


def test_a_busy_sibling_costs_what_the_study_says_and_offline_it_does_not():
    of_arms = {one["metric"]: one for one in result_maker.compared(studies.busy_2014()) if one["kind"] == "arm"}
    costs = {metric: round(1 / one["ratio"], 2) for metric, one in of_arms.items()}
    assert costs == {"wall_time": 0.66, "cpu_time": 0.64}
    assert {one["verdict"] for one in of_arms.values()} == {"gain"}


def test_readers_find_each_of_them():
    for page in ("README.md", "docs/studies.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [path.name for path in STUDIES if f"examples/studies/{path.name}" not in text] == []


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
