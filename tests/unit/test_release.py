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
OURS = "https://git.example.org/threadwise/smt"


@pytest.fixture(scope="module", name="release")
def _release():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("release")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(name="repository")
def _repository(tmp_path, monkeypatch, release):
    """A repository in which everything is ready for release 1.2.3."""
    (tmp_path / "changelogs/fragments").mkdir(parents=True)
    (tmp_path / "galaxy.yml").write_text(
        "namespace: n\nversion: 1.2.3\nrepository: https://n.invalid\n", encoding="utf-8"
    )
    (tmp_path / "changelogs/changelog.yaml").write_text("releases: {1.2.3: {}}\n", encoding="utf-8")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "1"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "address",
    [
        "",
        "git@git.example.org:threadwise/smt.git",
        "http://git.example.org/threadwise/smt",
        "https://user:secret@git.example.org/threadwise/smt",
        "https://git.example.org/",
        "https://git.example.org/a b",
        "https://git.example.org/a\nversion: 9.9.9",
        "https://git.example.org/$(id)",
        "https://git.example.org/\x1b[31m",
        "https://" + "a" * 300 + ".org/x",
    ],
)
def test_what_is_no_address_is_refused(release, repository, address):
    (reason,) = release.reasons_against(address)
    assert (
        reason == "REPOSITORY is not the https address of a repository, without user and password: make release"
        " REPOSITORY=https://HOST/PATH"
    )


def test_what_was_left_undone_is_named(release, repository):
    (repository / "galaxy.yml").write_text("version: 1.2.4\n", encoding="utf-8")
    (repository / "changelogs/fragments/1.yml").write_text("bugfixes: [one]\n", encoding="utf-8")
    changed, missing, waiting = release.reasons_against(OURS)
    assert changed == "2 files are not committed, such as 'galaxy.yml': commit them, or put them away"
    assert missing.startswith("the changelog has no release 1.2.4, the version of galaxy.yml")
    assert waiting.startswith("1 fragments are in no release of the changelog, such as 1.yml")


def test_the_archive_names_the_repository_and_the_tree_does_not(release, tmp_path, monkeypatch):
    archive = sys.modules["archive"]
    monkeypatch.setattr(archive, "WORK", tmp_path / "work")
    place = tmp_path / "place"
    place.mkdir()
    with tarfile.open(archive.build(place, OURS)) as built:
        described = yaml.safe_load(built.extractfile("MANIFEST.json").read())["collection_info"]
        names = built.getnames()
    assert described["repository"] == OURS and described["version"] == release.version()
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"].endswith(".invalid")
    assert not any(name.startswith(("tests", "tools", "lab", "molecule", ".")) for name in names)


def test_a_release_is_refused_before_anything_is_built(release, repository, monkeypatch, capsys):
    monkeypatch.setattr(release, "build_and_try", lambda *_: pytest.fail("it was built"))
    assert release.main(["importer", "x"]) == 1
    assert capsys.readouterr().err.startswith("release: REPOSITORY is not")
    assert release.main([]) == 2


def test_the_archive_is_placed_with_its_checksum(release, tmp_path, monkeypatch):
    monkeypatch.setattr(release, "RELEASE", tmp_path / "release")
    made = tmp_path / "threadwise-smt-1.2.3.tar.gz"
    made.write_bytes(b"archive")
    release.place(made)
    assert (
        subprocess.run(
            ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "release", check=False
        ).returncode
        == 0
    )
