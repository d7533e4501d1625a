# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive that is published: built, installed elsewhere without a network, and run from there."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema_rs
import pytest
import sysfs_tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


def call(place, *words):
    return subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=place,
        env=dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(place / "installed")),
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture(scope="module", name="place")
def _place(tmp_path_factory):
    """A directory below which the archive is installed."""
    place = tmp_path_factory.mktemp("archive")
    built = call(place, "ansible-galaxy", "collection", "build", "--output-path", str(place), str(ROOT))
    assert built.returncode == 0, built.stderr
    (archive,) = place.glob("threadwise-smt-*.tar.gz")
    # --force, because this environment has it as the working tree.
    done = call(
        place,
        "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        "--no-deps",
        "--force",
        "-p",
        str(place / "installed"),
        str(archive),
    )
    assert done.returncode == 0, done.stderr
    return place


def test_what_is_only_for_development_is_not_in_it(place):
    installed = place / "installed/ansible_collections/threadwise/smt"
    assert {path.name for path in installed.iterdir()} == {
        "CHANGELOG.rst",
        "FILES.json",
        "LICENSE",
        "MANIFEST.json",
        "README.md",
        "SECURITY.md",
        "changelogs",
        "docs",
        "examples",
        "execution-environment.yml",
        "meta",
        "playbooks",
        "plugins",
        "requirements-minimal.txt",
        "requirements.txt",
        "roles",
    }


def test_the_changelog_is_in_it_without_its_fragments(place):
    assert {path.name for path in (place / "installed/ansible_collections/threadwise/smt/changelogs").iterdir()} == {
        "changelog.yaml"
    }


def test_its_pages_lead_to_what_is_in_it(place):
    installed = place / "installed/ansible_collections/threadwise/smt"
    pages = list(installed.rglob("*.md"))
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in link
    ]
    assert len(links) > 50
    assert [f"{page.relative_to(installed)}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_its_playbooks_run_from_there(place):
    listed = json.loads(call(place, "ansible-doc", "--json", "threadwise.smt.smt_status").stdout)
    assert listed["threadwise.smt.smt_status"]["doc"]["filename"].startswith(str(place / "installed"))
    tree = sysfs_tree.write(place / "tree", sysfs_tree.files(sysfs_tree.Machine()))
    done = call(
        place,
        "ansible-playbook",
        "-i",
        "h1,",
        "-c",
        "local",
        "threadwise.smt.smt_compliance",
        "-e",
        json.dumps(
            {"smt_policy": "enabled", "smt_facts_sysroot": str(tree), "ansible_python_interpreter": sys.executable}
        ),
    )
    assert done.returncode == 0 and "1 host: 1 compliant." in done.stdout, done.stdout + done.stderr
    written = json.loads((place / "smt_compliance.json").read_text())
    assert written["counts"]["compliant"] == 1
    schema = json.loads(
        (place / "installed/ansible_collections/threadwise/smt/docs/compliance.schema.json").read_text()
    )
    jsonschema_rs.Draft202012Validator(schema).validate(written)
