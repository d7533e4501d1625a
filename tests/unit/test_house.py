# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the house: imports downward only, packages that one can look over, a plan that names each file."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
SIDES = ("module_utils", "plugin_utils")
NAME = "ansible_collections.threadwise.smt.plugins."
MAX_FILES, MAX_LINES = 12, 2400
PLAN = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")


def files(side):
    """The Python files of a side, at whatever depth."""
    found = sorted((PLUGINS / side).rglob("*.py"))
    assert found, f"no file below {side}: the test looks in the wrong place"
    return found


def packages(side):
    return sorted({path.parent for path in files(side)})


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
    """The package that a file belongs to; folders of alternatives in it, such as loaders, are parts of it."""
    return PLUGINS.joinpath(*path.relative_to(PLUGINS).parts[:2])


def planned_order(side):
    """The packages of a side as docs/development.md lists them, from the top down."""
    part = PLAN[PLAN.index(f"`plugins/{side}/` runs") :]
    listed = re.findall(
        r"^\| `(_[a-z_]+)/` ?[^|]*\|", part.partition("\n`plugins/")[0].partition("\n## ")[0], re.MULTILINE
    )
    return [PLUGINS / side / name for name in listed]


def test_imports_run_downward_only_and_in_no_circle():
    """One test, because reading them takes seconds."""
    graph = {path: imported(path) for side in SIDES for path in files(side)}
    for side in SIDES:
        order = planned_order(side)
        assert set(order) == {room(path) for path in files(side)}
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


@pytest.mark.parametrize("side", SIDES)
def test_packages_can_be_looked_over(side):
    for package in packages(side):
        own = sorted(package.glob("*.py"))
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own)
        # Alternatives are read one by one: one more is one file, not a new order of the house.
        registry = package / "registry.py"
        number = len(set(own) - (imported(registry) if registry.exists() else set()))
        assert number <= MAX_FILES and lines <= MAX_LINES, package


@pytest.mark.parametrize("side", SIDES)
def test_nothing_lies_beside_the_packages(side):
    assert [path.name for path in (PLUGINS / side).iterdir() if not (path.is_dir() and path.name.startswith("_"))] == []


def alternatives(package):
    """The files that a registry imports, where it is generated, or finds by their symbol."""
    found = {
        path
        for path in package.glob("*.py")
        if re.search(r"^(FORMAT|SOURCE) = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    return found or imported(package / "registry.py")


@pytest.mark.parametrize("side", SIDES)
def test_the_plan_names_each_file(side):
    part = PLAN[PLAN.index(f"`plugins/{side}/` runs") :].partition("\n## ")[0]
    unnamed = []
    for package in packages(side):
        name = f"| `{package.relative_to(PLUGINS / side)}/`"
        rows = part[part.index(name) :].splitlines()
        own = [
            rows[0],
            *(
                row
                for row, more in zip(rows[1:], range(99), strict=False)
                if all(line.startswith("| |") for line in rows[1 : more + 2])
            ),
        ]
        # The alternatives of a folder are those that its registry imports or finds; the plan says what each of them is.
        listed = alternatives(package) if "one file each" in own[0] else set()
        unnamed += [
            str(path.relative_to(PLUGINS))
            for path in set(package.glob("*.py")) - listed
            if f"`{path.name}`" not in "".join(own)
        ]
    assert unnamed == []


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
