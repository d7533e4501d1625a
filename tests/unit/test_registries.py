# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools/registries.py writes: registries of folders of alternatives, and what says which options there are. That
it is written as it was is a step of `make lint`.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.options import ranges

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/registries.py"
sys.path.insert(0, str(TOOL.parent))
option_files = importlib.import_module("option_files")
registries = importlib.import_module("registries")

FOLDER = registries.Folder("_toys/built_in", "TOY", "TOYS", "toys")


def test_a_registry_imports_the_symbol_of_each_file_and_the_check_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registries, "ROOT", tmp_path)
    monkeypatch.setattr(registries, "FOLDERS", (FOLDER,))
    folder = tmp_path / "plugins/module_utils" / FOLDER.path
    folder.mkdir(parents=True)
    for name, text in {
        "base.py": "class Toy: pass\n",
        "ball.py": "from x._toys.built_in.base import Toy\nTOY = Toy()\n",
        "car_2.py": "from x._toys.built_in import base\nTOY: base.Toy = base.Toy()\n",
        "car_2.c": "int main;\n",
    }.items():
        (folder / name).write_text(text)
    assert registries.main([]) == 0
    text = (folder / "registry.py").read_text()
    package = "ansible_collections.threadwise.smt.plugins.module_utils._toys.built_in"
    assert [line for line in text.splitlines() if line.startswith("from a")] == [
        f"from {package}.ball import TOY as BALL",
        f"from {package}.car_2 import TOY as CAR_2",
    ]
    assert text.endswith("\nTOYS = (\n    BALL,\n    CAR_2,\n)\n") and registries.main(["--check"]) == 0
    (folder / "doll.py").write_text("TOY = 1\n")
    assert registries.main(["--check"]) == 1 and f"{FOLDER.path}/registry.py" in capsys.readouterr().err
    assert (folder / "registry.py").read_text() == text


SPEC = "roles/smt_eval/meta/argument_specs.yml"
HAND_EDITS = [
    (SPEC, "      smt_eval_dest:\n", "      smt_eval_destination:\n"),
    ("roles/smt_eval/defaults/main.yml", "smt_eval_settle_seconds: auto", "smt_eval_settle_seconds: 1"),
    ("plugins/modules/smt_state.py", "    choices: [none, tmpfiles, systemd]\n", "    choices: [none, systemd]\n"),
    ("plugins/modules/smt_report.py", "Price of one licence", "Price of a licence"),
    (
        "plugins/module_utils/_host/options/smt_benchmark.py",
        '"settle_seconds": (0, 600)',
        '"settle_seconds": (0, 6000)',
    ),
    ("plugins/modules/smt_memory.py", "      description: Persistent huge pages", "      description: Huge pages"),
    ("roles/smt_eval/tasks/measure.yml", "smt_eval_metric | default(omit)", "smt_eval_metric"),
    ("roles/smt_policy/tasks/status.yml", "        nr_hugepages: smt_memory_nr_hugepages\n", ""),
    ("plugins/plugin_utils/_ask/options/smt_trial_host.py", '"default": 600', '"default": 60'),
    ("plugins/plugin_utils/_ask/options/variables.py", '"smt_trial_check": (1, 600)', '"smt_trial_check": (1, 60)'),
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


@pytest.mark.parametrize("family", option_files.families(), ids=lambda family: family.role)
def test_a_role_passes_on_each_option_that_its_modules_have(family):
    # What several roles want of reboots is read where they are made.
    places = [
        *(ROOT / "roles" / family.role / "tasks").glob("*.yml"),
        ROOT / "plugins/plugin_utils/_measure/boots/reboot.py",
    ]
    tasks = "".join(path.read_text(encoding="utf-8") for path in places)
    shared = [one for one in family.options if len(family.placed(one)) > 1 and option_files.ROLE in family.placed(one)]
    assert [name for name in shared if family.variable(name) not in tasks] == []


def test_a_reference_to_no_option_and_a_number_out_of_its_range_are_errors_that_name_it():
    with pytest.raises(option_files.OptionError, match=r"O\(prize\) is none"):
        option_files.families()[0].referred("See O(prize).", option_files.ROLE)
    for value, limits in ((None, (1, 10)), (1, (1, 10)), (10, (1, 10)), (10**9, (0, None))):
        assert ranges.problem(value, limits) is None, value
    for value, limits, said in ((0.5, (1, 10), "1 to 10"), (float("nan"), (1, 10), "1 to 10"), (-1, (0, None), "0 or")):
        assert said in ranges.problem(value, limits), value
