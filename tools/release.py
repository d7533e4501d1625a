# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the archive of a release, .cache/release/threadwise-smt-VERSION.tar.gz, and its checksum.

usage: release.py IMPORTER REPOSITORY        REPOSITORY: the https address where the collection's repository is, which
the archive names

The version is that of galaxy.yml. Before anything is built: everything is committed, the changelog has the version and
no fragment waits for it. Then the archive is tried as `make archive` does. Nothing is published.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import yaml
from archive import ROOT, ArchiveError, build_and_try

RELEASE = ROOT / ".cache" / "release"
# A host name and a path, as an address in a browser has them: no user, no password, nothing that YAML or a page could
# take for something else.
ADDRESS = re.compile(r"https://[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]{1,100}){1,10}/?")


def main(words: list[str]) -> int:
    """Make the archive of a release."""
    if len(words) != 2:
        print("usage: release.py IMPORTER REPOSITORY", file=sys.stderr)
        return 2
    importer, repository = words
    faults = list(reasons_against(repository))
    for fault in faults:
        print(f"release: {fault}", file=sys.stderr)
    if faults:
        return 1
    try:
        archive = build_and_try(pathlib.Path(importer).resolve(), repository)
    except ArchiveError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    placed = place(archive)
    print(f"release: {placed.relative_to(ROOT)} names {repository}; SHA256SUMS is beside it")
    print(
        f"release: next, git tag v{version()} {commit()[:12]}, push the tag, and ansible-galaxy collection publish"
        f" {placed.relative_to(ROOT)}"
    )
    return 0


def reasons_against(repository: str) -> Iterator[str]:
    """Yield a sentence for each thing that has to be done before the release."""
    if not ADDRESS.fullmatch(repository):
        # It is not shown: it may hold a password.
        yield (
            "REPOSITORY is not the https address of a repository, without user and password: make release"
            " REPOSITORY=https://HOST/PATH"
        )
    elif re.match(r"https://([^/:]*\.)?(invalid|example|test|localhost)(:|/)", repository):
        yield f"REPOSITORY {repository} is an address that nobody can have"
    changed = git("status", "--porcelain").splitlines()
    if changed:
        yield f"{len(changed)} files are not committed, such as {changed[0][3:]!a}: commit them, or put them away"
    changelog = ROOT / "changelogs/changelog.yaml"
    released = yaml.safe_load(changelog.read_text(encoding="utf-8"))["releases"] if changelog.exists() else {}
    if version() not in released:
        yield (
            f"the changelog has no release {version()}, the version of galaxy.yml: antsibull-changelog release, and"
            " commit what it writes"
        )
    waiting = sorted(path.name for path in (ROOT / "changelogs/fragments").glob("*.y*ml"))
    if waiting:
        yield (
            f"{len(waiting)} fragments are in no release of the changelog, such as {waiting[0]}: raise the version in"
            " galaxy.yml, antsibull-changelog release"
        )


def version() -> str:
    """Return the version of galaxy.yml."""
    return str(yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"])


def git(*words: str) -> str:
    """Return what a command of git printed."""
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def commit() -> str:
    """Return the commit of which the archive was made."""
    return git("rev-parse", "HEAD").strip()


def place(archive: pathlib.Path) -> pathlib.Path:
    """Put the archive, and its checksum in the form of sha256sum, where releases are; returns its path there."""
    RELEASE.mkdir(parents=True, exist_ok=True)
    placed = RELEASE / archive.name
    shutil.copyfile(archive, placed.with_suffix(".new"))
    os.replace(placed.with_suffix(".new"), placed)
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(RELEASE.glob("*.tar.gz"))
    )
    (RELEASE / "SHA256SUMS").write_text(sums, encoding="ascii")
    return placed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
