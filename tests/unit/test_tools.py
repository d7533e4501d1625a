# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs beside the collection: the tour and its page, the results of the Makefile's targets, and a release."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import tour

PAGE = """# A page

```console
$ echo one
what was there before
```

<!-- exit code 2 -->
```console
$ echo two; exit 2
```
"""


@pytest.fixture(name="page")
def page_of_its_own(tmp_path, monkeypatch):
    """A page in a directory of its own, and no guest that would be ended."""
    page = tmp_path / "tour.md"
    page.write_text(PAGE, encoding="utf-8")
    for name, value in {"PAGE": page, "ROOT": tmp_path, "GUESTS": ()}.items():
        monkeypatch.setattr(tour, name, value)
    return page


def png_size(content):
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_each_command_gets_what_it_prints_unless_one_ends_otherwise_than_the_page_says(page):
    for code in (0, 3):
        with pytest.raises(tour.TourError, match=f"exit code {code} instead of 2"):
            tour.make(PAGE.replace("exit 2", f"exit {code}"))
        assert page.read_text(encoding="utf-8") == PAGE
    tour.make(PAGE)
    made = PAGE.replace("what was there before", "one").replace("exit 2\n", "exit 2\ntwo\n")
    assert page.read_text(encoding="utf-8") == made


def test_the_page_is_whole():
    """Each command with what it printed, each picture in its size, nothing of the machine where it was made."""
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    commands = [part for part in tour.parts(text) if isinstance(part, tour.Command)]
    pictures = [part for part in tour.parts(text) if isinstance(part, tour.Picture)]
    assert len(commands) == text.count("```console") > 5 and len(pictures) == text.count("![") == 5
    assert [part.command for part in commands if not text[slice(*part.span)].strip()] == []
    for part in pictures:
        content = (ROOT / "docs" / part.file).read_bytes()
        assert png_size(content) == (part.width, part.height) and len(content) < 250_000, part.file
    assert {f"tour/{path.name}" for path in (ROOT / "docs" / "tour").iterdir()} == {part.file for part in pictures}
    assert not re.search(r"/(root|home|tmp|work|dev/shm)\b", text)


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


archive, release = map(importlib.import_module, ["archive", "release"])
OURS = "https://git.example.org/threadwise/smt"


@pytest.fixture(name="repository")
def _repository(tmp_path, monkeypatch):
    """A repository in which everything is ready for release 1.2.3."""
    (tmp_path / "changelogs/fragments").mkdir(parents=True)
    (tmp_path / "galaxy.yml").write_text("version: 1.2.3\nrepository: https://n.invalid\n", encoding="utf-8")
    (tmp_path / "changelogs/changelog.yaml").write_text("releases: {1.2.3: {}}\n", encoding="utf-8")
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "1"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_what_is_no_address_is_refused(repository):
    odd = "https://git.example.org/", "https://git.example.org/a\nversion: 9.9.9", "https://git.example.org/$(id)"
    secret, long = "https://user:secret@git.example.org/threadwise/smt", "https://" + "a" * 300 + ".org/x"
    for address in ("", "git@git.example.org:a/b.git", "http://git.example.org/a/b", secret, long, *odd):
        (reason,) = release.reasons_against(address)
        # A password in it is not shown.
        assert reason.startswith("REPOSITORY is not ") and "secret" not in reason, address
    assert list(release.reasons_against(OURS)) == []


def test_a_release_is_refused_before_anything_is_built(repository, monkeypatch, capsys):
    monkeypatch.setattr(release, "build_and_try", lambda *_: pytest.fail("it was built"))
    (repository / "galaxy.yml").write_text("version: 1.2.4\n", encoding="utf-8")
    (repository / "changelogs/fragments/1.yml").write_text("bugfixes: [one]\n", encoding="utf-8")
    assert release.main(["importer", OURS]) == 1
    changed, missing, waiting = capsys.readouterr().err.splitlines()
    assert "'galaxy.yml'" in changed and "no release 1.2.4" in missing and "1.yml" in waiting
    assert release.main([]) == 2


@pytest.mark.night
def test_the_archive_names_the_repository_and_the_tree_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "WORK", tmp_path / "work")
    place = tmp_path / "place"
    place.mkdir()
    with tarfile.open(archive.build(place, OURS)) as built:
        described = yaml.safe_load(built.extractfile("MANIFEST.json").read())["collection_info"]
        names = built.getnames()
    assert described["repository"] == OURS and described["version"] == release.version()
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"].endswith(".invalid")
    assert not any(name.startswith(("tests", "tools", "lab", "molecule", ".")) for name in names)


def test_the_archive_is_placed_with_its_checksum(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "RELEASE", tmp_path / "release")
    made = tmp_path / "threadwise-smt-1.2.3.tar.gz"
    made.write_bytes(b"archive")
    release.place(made)
    assert "/" not in (tmp_path / "release/SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "release", check=True)
