# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools/registries.py writes: registries of folders of alternatives, and what says which options there are."""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._options import ranges

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/registries.py"
sys.path.insert(0, str(TOOL.parent))
option_files = importlib.import_module("option_files")
registries = importlib.import_module("registries")

FOLDER = registries.Folder("_toys/built_in", "TOY", "TOYS", "toys")


@pytest.fixture(name="folder")
def toys(tmp_path, monkeypatch):
    """A folder with two alternatives, their base and a file in another language, and the tool for it."""
    monkeypatch.setattr(registries, "ROOT", tmp_path)
    monkeypatch.setattr(registries, "FOLDERS", (FOLDER,))
    folder = tmp_path / "plugins/module_utils" / FOLDER.path
    folder.mkdir(parents=True)
    (folder / "base.py").write_text("class Toy: pass\n")
    (folder / "ball.py").write_text("from x._toys.built_in.base import Toy\nTOY = Toy()\n")
    (folder / "car_2.py").write_text("from x._toys.built_in import base\nTOY: base.Toy = base.Toy()\n")
    (folder / "car_2.c").write_text("int main;\n")
    return folder


def test_a_registry_imports_the_symbol_of_each_file(folder):
    assert registries.main([]) == 0
    text = (folder / "registry.py").read_text()
    package = "ansible_collections.threadwise.smt.plugins.module_utils._toys.built_in"
    assert [line for line in text.splitlines() if line.startswith("from a")] == [
        f"from {package}.ball import TOY as BALL",
        f"from {package}.car_2 import TOY as CAR_2",
    ]
    assert text.endswith("\nTOYS = (\n    BALL,\n    CAR_2,\n)\n")
    assert registries.main(["--check"]) == 0


def test_the_check_says_what_to_run_and_writes_nothing(folder, capsys):
    registries.main([])
    before = (folder / "registry.py").read_text()
    (folder / "doll.py").write_text("TOY = 1\n")
    assert registries.main(["--check"]) == 1
    assert (
        capsys.readouterr().err
        == "Not current: plugins/module_utils/_toys/built_in/registry.py. Run `make registries`, and commit what it"
        " writes.\n"
    )
    assert (folder / "registry.py").read_text() == before
    assert registries.main([]) == 0 and "DOLL" in (folder / "registry.py").read_text()
    (folder / "doll.py").unlink()
    assert registries.main(["--check"]) == 1


HAND_EDITS = [
    (
        "roles/smt_eval/meta/argument_specs.yml",
        "type: raw\n        default: kernel",
        "type: str\n        default: kernel",
    ),
    ("roles/smt_eval/meta/argument_specs.yml", "      smt_eval_dest:\n", "      smt_eval_destination:\n"),
    ("roles/smt_eval/defaults/main.yml", "smt_eval_settle_seconds: auto", "smt_eval_settle_seconds: 1"),
    ("roles/smt_pull/defaults/main.yml", "smt_pull_spread: 900\n", ""),
    ("plugins/modules/smt_state.py", "    choices: [none, tmpfiles, systemd]\n", "    choices: [none, systemd]\n"),
    ("plugins/modules/smt_report.py", "Price of one licence", "Price of a licence"),
    ("plugins/module_utils/_options/smt_benchmark.py", '"settle_seconds": (0, 600)', '"settle_seconds": (0, 6000)'),
    ("plugins/plugin_utils/_options/smt_trial_host.py", '"default": 600', '"default": 60'),
    ("plugins/plugin_utils/_options/variables.py", '"smt_trial_check": (1, 600)', '"smt_trial_check": (1, 60)'),
]


@pytest.mark.parametrize(("name", "old", "new"), HAND_EDITS)
def test_a_hand_edit_of_a_generated_part_is_found(name, old, new):
    present = (ROOT / name).read_text(encoding="utf-8")
    assert present.count(old) == 1
    edited = present.replace(old, new)
    # The tool compares a file with what it makes of it.
    assert option_files.written()[name](edited) == present != edited


def test_a_hand_edit_of_a_roles_table_is_found():
    for name, table in option_files.tables().items():
        page = (ROOT / name).read_text(encoding="utf-8")
        edited = page.replace("\n| `smt_", "\n| `smt__", 1)
        assert registries.with_table(edited, name, table()) == page != edited


def test_what_is_written_by_hand_around_the_options_stays():
    name = "plugins/modules/smt_state.py"
    present = (ROOT / name).read_text(encoding="utf-8")
    edited = present.replace("Threads per core of a running host", "Threads").replace("module: smt_facts", "module: x")
    assert option_files.written()[name](edited) == edited != present


@pytest.mark.parametrize("family", option_files.families(), ids=lambda family: family.role)
def test_a_role_passes_on_each_option_that_its_modules_have(family):
    # What several roles want of reboots is read where they are made.
    places = [*(ROOT / "roles" / family.role / "tasks").glob("*.yml"), ROOT / "plugins/plugin_utils/_boots/reboot.py"]
    tasks = "".join(path.read_text(encoding="utf-8") for path in places)
    shared = [
        name for name in family.options if len(family.placed(name)) > 1 and option_files.ROLE in family.placed(name)
    ]
    assert [name for name in shared if family.variable(name) not in tasks] == []


TOY = """\
in: [role, toy_module]
options:
  speed:
    summary: Speed of V(ball), {range}, docs/toys.md#speed says more. See O(colour=red).
    details:
      - Everywhere.
      - role: In the role, O(step).
        toy_module: In the module, O(price).
    type: int
    default: 3
    range: [1, 10]
    but:
      toy_module: {default: null, range: [2, null]}
  colour:
    summary: Colour.
    type: str
    choices: ['on', red]
    unset: white
  price:
    summary: Price.
    type: float
    required: true
    in: [role]
  step:
    like: toy.colour
    in: [toy_module]
"""


@pytest.fixture(name="toy")
def declared_toy(tmp_path, monkeypatch):
    """A function that declares the options of a role `toy` and of a module, and returns them."""

    def declare(text=TOY):
        (tmp_path / "tools/options").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tools/options/toy.yml").write_text(text)
        option_files.families.cache_clear()
        return option_files.families()[0]

    monkeypatch.setattr(option_files, "ROOT", tmp_path)
    yield declare
    option_files.families.cache_clear()


def test_a_place_has_its_own_options_names_and_texts(toy):
    family = toy()
    role = option_files.described(family, "role", "options")
    module = option_files.described(family, "toy_module", "suboptions")
    assert list(role) == ["toy_speed", "toy_colour", "toy_price"] and list(module) == ["speed", "colour", "step"]
    assert role["toy_speed"] == {
        "description": [
            "Speed of V(ball), from 1 to 10, docs/toys.md says more. See O(main:toy_colour=red).",
            "Everywhere.",
            "In the role, O(threadwise.smt.toy_module#module:step).",
        ],
        "type": "int",
        "default": 3,
    }
    assert module["speed"] == {
        "description": [
            "Speed of V(ball), 2 or more, docs/toys.md says more. See O(colour=red).",
            "Everywhere.",
            "In the module, O(threadwise.smt.toy#role:main:toy_price).",
        ],
        "type": "int",
    }
    assert module["step"] == {"description": ["Colour."], "type": "str", "choices": ["on", "red"]}
    assert yaml.safe_load(option_files.documentation(module, "  ")) == module


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unset: white", "unsett: white", r"toy.yml: colour needs .* may not have unsett"),
        ("    type: float\n", "", r"toy.yml: price needs a summary and a type"),
        ("like: toy.colour", "like: toy.color", r"toy.yml: step is like toy.color, which is not declared"),
        ("O(price)", "O(prize)", r"toy.yml: O\(prize\) is none of its options"),
        ("summary: Colour.", "summary: 'Colour: red.'", r"colour, step: write it without a colon"),
    ],
)
def test_a_wrong_declaration_is_an_error_that_names_it(toy, old, new, message):
    assert TOY.count(old) == 1
    with pytest.raises(option_files.OptionError, match=message):
        option_files.documentation(option_files.described(toy(TOY.replace(old, new)), "toy_module", "suboptions"), "  ")


@pytest.mark.parametrize(
    ("value", "limits", "said"),
    [
        (None, (1, 10), None),
        (1, (1, 10), None),
        (10, (1, 10), None),
        (0.5, (1, 10), "it must be from 1 to 10"),
        (float("nan"), (1, 10), "it must be from 1 to 10"),
        (-1, (0, None), "it must be 0 or more"),
        (10**9, (0, None), None),
    ],
)
def test_a_number_out_of_its_range_says_what_it_has_to_be(value, limits, said):
    assert ranges.problem(value, limits) == said
