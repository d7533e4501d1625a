# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registries of the folders of alternatives, which tools/registries.py writes."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/registries.py"
SPECIFICATION = importlib.util.spec_from_file_location("threadwise_registries", TOOL)
registries = importlib.util.module_from_spec(SPECIFICATION)
sys.modules[SPECIFICATION.name] = registries
SPECIFICATION.loader.exec_module(registries)

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


def test_the_registries_are_current():
    """The same check as in `make lint`, with the words that say what to run."""
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_registry_lists_each_alternative_once():
    for folder in registries.FOLDERS:
        module = importlib.import_module(".".join([registries.PACKAGE, *folder.path.split("/"), "registry"]))
        files = [path.read_text() for path in sorted((ROOT / "plugins/module_utils" / folder.path).glob("*.py"))]
        assert len(getattr(module, folder.list_name)) == sum(f"\n{folder.symbol} = " in text or f"\n{folder.symbol}: " in text for text in files) > 0


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
    assert capsys.readouterr().err == "Not current: plugins/module_utils/_toys/built_in/registry.py. Run `make registries`, and commit what it writes.\n"
    assert (folder / "registry.py").read_text() == before
    assert registries.main([]) == 0 and "DOLL" in (folder / "registry.py").read_text()
    (folder / "doll.py").unlink()
    assert registries.main(["--check"]) == 1


def test_a_file_without_the_symbol_is_an_error_unless_others_import_it(folder, capsys):
    (folder / "doll.py").write_text("TOYS = 1\n")
    assert registries.main([]) == registries.main(["--check"]) == 1
    assert f"{folder / 'doll.py'}: define TOY in it." in capsys.readouterr().err
    assert not (folder / "registry.py").exists()


def test_the_registry_is_written_as_the_linters_want_it(folder):
    registries.main([])
    for command in (["check"], ["format", "--check"]):
        subprocess.run(
            [pathlib.Path(sys.executable).parent / "ruff", *command, "--config", ROOT / "ruff.toml", "--no-cache", folder / "registry.py"], check=True
        )
