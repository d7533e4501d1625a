# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make release`: what has to be done before it builds anything, and what it changes in the archive."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
import tarfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
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
    for address in (
        "",
        "git@git.example.org:threadwise/smt.git",
        "http://git.example.org/threadwise/smt",
        "https://user:secret@git.example.org/threadwise/smt",
        "https://git.example.org/",
        "https://git.example.org/a\nversion: 9.9.9",
        "https://git.example.org/$(id)",
        "https://git.example.org/\x1b[31m",
        "https://" + "a" * 300 + ".org/x",
    ):
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
