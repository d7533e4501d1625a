# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages from the archives that this machine's own Debian uses: for another suite, and for another architecture."""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Sequence

from common import CACHE, LabError, locked, run

# The parts of apt's configuration that decide how an archive is reached; the rest is the machine's own business.
APT_OPTIONS = re.compile(r'Acquire::(https?|Check-Valid-Until|Check-Date|ForceIPv[46]|Retries)\b.* ".+";')
BACKPORTS = "-backports"


def machine_sources(suite: str) -> str:
    """This machine's apt sources for the suite; read without the package lists, which a fresh machine has not got."""
    targets = run(
        [
            "apt-get",
            "indextargets",
            "--no-release-info",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
        ]
    )
    release = re.search(
        r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return suite_sources(targets.stdout, release.group(1) if release else "", suite)


def apt_options(dump: str) -> str:
    """Those lines of ``apt-config dump`` that say how an archive is reached: proxies, certificates, checks."""
    return "".join(f"{line}\n" for line in dump.splitlines() if APT_OPTIONS.fullmatch(line))


def suite_sources(targets: str, machine_suite: str, suite: str) -> str:
    """sources.list for ``suite`` from the archives that serve this machine's own Debian; empty when there are none.

    Args:
        targets: lines ``URI RELEASE COMPONENT``, as apt lists them.
        machine_suite: the codename of the Debian that this machine runs.
        suite: the codename wanted; NAME-backports is NAME with its backports.
    """
    lines = []
    base = suite.removesuffix(BACKPORTS)
    for line in targets.splitlines():
        fields = line.split()
        if (
            len(fields) == 3
            and fields[2] == "main"
            and fields[1] in (machine_suite, f"{machine_suite}-updates", f"{machine_suite}-security")
        ):
            lines.append(f"deb {fields[0]} {base}{fields[1][len(machine_suite) :]} main\n")
            if base != suite and fields[1] == machine_suite:
                lines.append(f"deb {fields[0]} {suite} main\n")
    return "".join(dict.fromkeys(lines))


def first_archive(suite: str) -> str:
    """The address of the archive from which this machine's own Debian comes, for a tool that takes only one.

    Raises:
        LabError: this machine's apt names none.
    """
    for line in machine_sources(suite).splitlines():
        _type, address, release, _component = line.split()
        if release == suite:
            return address
    raise LabError(
        f"this machine's apt has no archive of Debian's {suite}: the laboratory's guests are made on a Debian"
    )


def missing(
    suite: str, architecture: str, status: bytes, names: Sequence[str], target: pathlib.Path
) -> list[pathlib.Path]:
    """Fetch packages, and what they depend on, for a system that has what dpkg's ``status`` says.

    Raises:
        LabError: the archives have no such package, or cannot be reached.
    """
    return _apt(
        suite, architecture, status, target, ["--yes", "--no-install-recommends", "--download-only", "install", *names]
    )


def single(suite: str, architecture: str, names: Sequence[str], target: pathlib.Path) -> list[pathlib.Path]:
    """Fetch packages alone; errors as ``missing``."""
    return _apt(suite, architecture, b"", target, ["download", *names])


def _apt(
    suite: str, architecture: str, status: bytes, target: pathlib.Path, words: Sequence[str]
) -> list[pathlib.Path]:
    """Have apt-get put packages into ``target``, with lists that are kept for the next time."""
    kept = CACHE / f"apt-{suite}-{architecture}"
    (target / "partial").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "status").write_bytes(status)
        (work / "sources.list").write_text(machine_sources(suite), encoding="utf-8")
        (work / "apt.conf").write_text(
            apt_options(run(["apt-config", "dump"]).stdout)
            + f'Dir::State "{kept}/state";\nDir::State::status "{work}/status";\nDir::Cache'
            f' "{kept}/cache";\nDir::Cache::archives "{target}";\nDir::Etc::sourcelist'
            f' "{work}/sources.list";\nDir::Etc::sourceparts "-";\nDir::Etc::parts "-";\nDebug::NoLocking "true";\n'
            # Where root asks, packages are to be written below a directory of root's alone.
            f'APT::Sandbox::User "root";\nAPT::Architecture "{architecture}";\nAPT::Architectures {{ "{architecture}";'
            " };\n",
            encoding="utf-8",
        )
        apt = ["env", f"APT_CONFIG={work / 'apt.conf'}", "apt-get", "--quiet"]
        if suite.endswith(BACKPORTS):
            apt += ["--target-release", suite]
        fetch = [*apt, *words]
        with locked(CACHE / f"apt-{suite}-{architecture}.lock", f"the package lists of {suite} for {architecture}"):
            for part in ("state/lists/partial", "cache"):
                (kept / part).mkdir(parents=True, exist_ok=True)
            try:
                run(fetch, cwd=target)
            except LabError:
                # There are no lists yet, or they are older than the archives.
                _update([*apt, "update"], fetch, target)
    return sorted(target.glob("*.deb"))


def _update(update: Sequence[str], fetch: Sequence[str], target: pathlib.Path) -> None:
    """Update the lists and fetch.

    A mirror that is being written can have wrong lists of an archive from which nothing is wanted.
    """
    of_lists = ""
    try:
        run(update)
    except LabError as error:
        of_lists = f"\n{error}"
    try:
        run(fetch, cwd=target)
    except LabError as error:
        raise LabError(f"{error}{of_lists}") from error
