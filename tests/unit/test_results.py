# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Makefile's targets leave in tests/RESULTS.md, and that each is tried somewhere."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPECIFICATION = importlib.util.spec_from_file_location("threadwise_results", ROOT / "tools/results.py")
results = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(results)
TESTS = (
    "import pytest\ndef test_a(): pass\ndef test_b(): assert False\n@pytest.mark.skip('no b|ar')\ndef test_c(): pass\n"
)


@pytest.fixture(name="table")
def _table(tmp_path, monkeypatch):
    """The table, and nothing kept yet."""
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(results, "TABLE", tmp_path / "RESULTS.md")
    head = f"# Head\n\n| {' | '.join(results.COLUMNS)} |\n|{'---|' * len(results.COLUMNS)}\n"
    results.TABLE.write_text(f"{head}| `z` | earlier | | | 1 | 2 | |\n| `a` | earlier | | | 1 | 2 | |\n")
    return results.TABLE


def test_the_last_result_of_a_target_replaces_its_row(table, tmp_path, monkeypatch):
    (tmp_path / "test_three.py").write_text(TESTS)
    # Without the plugins, whose libraries take most of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    assert results.run("z", tests) == 1
    assert results.run("lint", ["sh", "-c", "exit 3"]) == 3
    results.write()
    lines = table.read_text().splitlines()
    assert [line.split("`")[1] for line in lines[4:]] == ["a", "lint", "z"]
    assert lines[4] == "| `a` | earlier | | | 1 | 2 | |"
    passed, _seconds, is_open = lines[6].strip(" |").split(" | ")[4:]
    assert (passed, is_open) == ("1", "failed: test_three::test_b; 1 skipped: no b ar")
    assert lines[5].strip(" |").split(" | ")[4] == "0" and "exit code 3" in lines[5]


@pytest.mark.parametrize("is_room", [True, False])
def test_tests_have_their_files_in_memory_where_there_is_room_and_nothing_stays_there(
    table, tmp_path, monkeypatch, is_room
):
    memory, seen = tmp_path / "memory", tmp_path / "seen"
    memory.mkdir()
    monkeypatch.setattr(results, "MEMORY", memory)
    monkeypatch.setattr(results, "MIN_MEMORY", 0 if is_room else 2**60)
    monkeypatch.setenv("TMPDIR", "/on/disk")
    assert results.run("z", ["sh", "-c", f'echo "$TMPDIR" >{seen}; touch "$TMPDIR/left" || :', "pytest"]) == 0
    assert pathlib.Path(seen.read_text().strip()).parent == (memory if is_room else pathlib.Path("/on"))
    assert list(memory.iterdir()) == []


def test_each_scenario_is_a_target_of_the_night():
    made = subprocess.run(["make", "--silent", "night-targets"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    assert {path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")} <= set(json.loads(made))
