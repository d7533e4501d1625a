# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays of examples/studies: short, with their question at the top, and with variables that the playbook takes."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDIES = sorted((ROOT / "examples" / "studies").glob("*.yml"))
MAX_LINES = 30
# What all must have time for.
MAX_SECONDS = 540


def test_there_is_one_for_each_study():
    assert [path.stem for path in STUDIES] == [
        "arm-neoverse",
        "hp-2004",
        "hyperthread-2014",
        "overhead-2016",
        "pythian-2014",
    ]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_is_one_short_play_with_its_question(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    title = text.partition("\n#\n")[0]
    assert (
        len(lines) <= MAX_LINES
        and title.startswith("---\n# ")
        and title.endswith("?")
        and f"examples/studies/{path.name}" in text
    )
    (play,) = yaml.safe_load(text)
    assert play["ansible.builtin.import_playbook"] == "threadwise.smt.smt_eval" and play["name"].endswith("?")
    assert play["vars"]["smt_eval_budget"] <= MAX_SECONDS
    settings = [variables.Setting("h", name, value) for name, value in play["vars"].items()]
    assert variables.problems(settings, variables.known(), 1) == []


@pytest.mark.parametrize("page", ["README.md", "docs/studies.md"])
def test_readers_find_each_of_them(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert all(f"examples/studies/{path.name}" in text for path in STUDIES)
