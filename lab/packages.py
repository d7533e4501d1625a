# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Further Debian packages in a guest, which reaches no archive itself: this machine fetches what the guest lacks, and the guest unpacks it."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import tarfile
import tempfile
from collections.abc import Sequence

from common import CACHE, LabError, locked, run, step
from guest import Guest
from image import apt_options, machine_sources

# Of a Debian package name, see Debian's policy 5.6.1.
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+", flags=re.ASCII)
# On an emulated CPU a package of 20 MB takes a minute to unpack.
INSTALL_SECONDS = 900


def install(guest: Guest, names: Sequence[str]) -> None:
    """Install packages, with what they depend on, in a running guest; no harm when they are there.

    Raises:
        LabError: a name is none, the archives have no such package or cannot be reached, or the guest cannot install it.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise LabError(f"{name!r} is no name of a Debian package")
    with step(f"{guest.name}: packages {' '.join(names)}"), tempfile.TemporaryDirectory() as work:
        files = _fetch(guest.kind.image.partition("-")[0], guest.login.run("cat /var/lib/dpkg/status"), names, pathlib.Path(work))
        if files:
            guest.login.run(
                "rm -rf /root/debs && mkdir /root/debs && tar -xC /root/debs && DEBIAN_FRONTEND=noninteractive dpkg -i /root/debs/*.deb && rm -r /root/debs",
                _archive(files),
                INSTALL_SECONDS,
            )


def _fetch(suite: str, status: bytes, names: Sequence[str], work: pathlib.Path) -> list[pathlib.Path]:
    """Fetch the packages that a guest lacks, by the list of those that it has."""
    kept = CACHE / f"apt-{suite}"
    (work / "status").write_bytes(status)
    (work / "sources.list").write_text(machine_sources(suite), encoding="utf-8")
    (work / "apt.conf").write_text(
        apt_options(run(["apt-config", "dump"]).stdout)
        + f'Dir::State "{kept}/state";\nDir::State::status "{work}/status";\nDir::Cache "{kept}/cache";\nDir::Cache::archives "{work}/archives";\n'
        f'Dir::Etc::sourcelist "{work}/sources.list";\nDir::Etc::sourceparts "-";\nDir::Etc::parts "-";\nDebug::NoLocking "true";\n',
        encoding="utf-8",
    )
    (work / "archives" / "partial").mkdir(parents=True)
    apt = ["env", f"APT_CONFIG={work / 'apt.conf'}", "apt-get", "--quiet", "--yes"]
    install_command = [*apt, "--no-install-recommends", "--download-only", "install", *names]
    with locked(CACHE / f"apt-{suite}.lock", f"the package lists of {suite}"):
        for part in ("state/lists/partial", "cache"):
            (kept / part).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(LabError):
            run(install_command)
            return sorted((work / "archives").glob("*.deb"))
        # There are no lists yet, or they are older than the archives.
        run([*apt, "update"])
        run(install_command)
    return sorted((work / "archives").glob("*.deb"))


def _archive(files: Sequence[pathlib.Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in files:
            archive.add(path, path.name)
    return packed.getvalue()
