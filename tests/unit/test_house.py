# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the house: imports downward only, rooms that one can look over and that their wing names."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
NAME = "ansible_collections.threadwise.smt.plugins."
MAX_FILES, MAX_LINES = 12, 2400
# From the top down.
WINGS = {
    "module_utils": ("_keep", "_measure", "_set", "_know", "_host"),
    "plugin_utils": ("_preflight", "_keep", "_measure", "_page", "_ask"),
}


def files(side):
    """The Python files of a side, at whatever depth."""
    found = sorted((PLUGINS / side).rglob("*.py"))
    assert found, f"no file below {side}: the test looks in the wrong place"
    return found


def imported(path):
    """The files of the collection that a file imports, as paths below plugins/."""
    here = path.relative_to(PLUGINS).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        if node.level:
            module = NAME + ".".join([*here[: len(here) - node.level + 1], *([module] if module else [])])
        if module.startswith(NAME):
            base = PLUGINS.joinpath(*module.removeprefix(NAME).split("."))
            found |= {
                target
                for target in (base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names))
                if target.is_file()
            }
    return found


def room(path):
    """The folder or the file of a wing that a file belongs to; folders of alternatives, such as loaders, are parts."""
    return PLUGINS.joinpath(*path.relative_to(PLUGINS).parts[:3])


def rooms_in_order(side):
    """The rooms of a side from the top down, as the first file of each wing lists them."""
    return [
        PLUGINS / side / wing / name.rstrip("/")
        for wing in WINGS[side]
        for line in (PLUGINS / side / wing / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("- ")
        for name in re.findall(r"`([a-z_]+(?:/|\.py))`", line.partition(": ")[0])
    ]


def test_imports_run_downward_only_and_in_no_circle():
    """One test, because reading them takes seconds."""
    graph = {path: imported(path) for side in WINGS for path in files(side)}
    for side in WINGS:
        order = rooms_in_order(side)
        assert sorted(order) == sorted({room(path) for path in files(side)})
        upward = [
            f"{path.relative_to(PLUGINS)} imports {target.relative_to(PLUGINS)}"
            for path in files(side)
            for target in graph[path]
            if target.is_relative_to(PLUGINS / side) and order.index(room(target)) < order.index(room(path))
        ]
        assert upward == []
    targets = {target for path in files("module_utils") for target in graph[path]}
    assert [target for target in targets if not target.is_relative_to(PLUGINS / "module_utils")] == []
    while graph:
        free = [path for path, targets in graph.items() if not targets & graph.keys()]
        assert free, f"a circle: {sorted(str(path.relative_to(PLUGINS)) for path in graph)}"
        for path in free:
            del graph[path]


@pytest.mark.parametrize("side", WINGS)
def test_rooms_can_be_looked_over(side):
    assert {path.name for path in (PLUGINS / side).iterdir()} == set(WINGS[side])
    for package in sorted({path.parent for path in files(side)}):
        own = sorted(package.glob("*.py"))
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own)
        # Alternatives are read one by one: one more is one file, not a new order of the house.
        registry = package / "registry.py"
        number = len(set(own) - (imported(registry) if registry.exists() else set()))
        assert number <= MAX_FILES and lines <= MAX_LINES, package


# Words of earlier versions, by the standard term that took their place.
OLD_WORDS = {
    r"bystanders?|hurt": "affinity conflict",
    r"dead man": "rollback timer",
    r"restorers?|saved_state|way[ _]back|unconfirmed": "watchdog, restore, snapshot, pending rollback",
    r"saved_map|probe_kept": "topology cache, sibling cache",
    r"patience|meanwhile|sample_record": "time limit, telemetry",
    r"hindrances?|troubles?|wish(es)?|told|overreach(es)?": "blocked_by, error, desired state, overcommit test",
    r"twins?|crowd(ed|s)?|neighbours?": "paired rounds, co-runners, background load",
    r"smt_bench|smt_plan|smt_eval_(change|switch)": "smt_eval, smt_benchmark, smt_eval_arms",
}
TEXTS = {".py", ".md", ".yml", ".j2", ".js", ".css", ".c", ".sh", ".json", ""}
# This file names the words, and the fragments of the changelog name what they replaced.
NAME_THEM = ("tests/unit/test_house.py", "changelogs/", "LICENSE")


def test_words_of_earlier_versions_are_gone():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [path for path in listed if pathlib.PurePath(path).suffix in TEXTS and not path.startswith(NAME_THEM)]
    assert len(texts) > 300
    pattern = re.compile(rf"(?<![a-z_])({'|'.join(OLD_WORDS)})(?![a-z_])", re.IGNORECASE)
    found = [
        (path, one[0])
        for path in texts
        for one in pattern.finditer((ROOT / path).read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == [], OLD_WORDS
