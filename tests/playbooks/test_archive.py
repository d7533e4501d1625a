# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the archive that is published; `make archive` installs it and calls its playbooks."""

import pathlib
import re
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOR_USERS = """CHANGELOG.rst FILES.json LICENSE MANIFEST.json README.md SECURITY.md changelogs docs examples
    meta playbooks plugins requirements requirements.txt roles"""


@pytest.mark.night
def test_the_archive_has_what_is_for_users_and_its_pages_lead_to_what_is_in_it(tmp_path):
    command = ["ansible-galaxy", "collection", "build", "--output-path", str(tmp_path), str(ROOT)]
    subprocess.run([pathlib.Path(sys.executable).with_name(command[0]), *command[1:]], check=True, cwd=tmp_path)
    (archive,) = tmp_path.glob("threadwise-smt-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "built", filter="data")
    built = tmp_path / "built"
    assert {path.name for path in built.iterdir()} == set(FOR_USERS.split())
    assert [path.name for path in (built / "changelogs").iterdir()] == ["changelog.yaml"]
    pages = [(page, page.read_text(encoding="utf-8")) for page in built.rglob("*.md")]
    links = [(page, link) for page, text in pages for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert len(links) > 50
    assert [f"{page.relative_to(built)}: {link}" for page, link in links if not (page.parent / link).exists()] == []
