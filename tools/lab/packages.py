# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Further Debian packages in a guest, which reaches no archive itself: this machine fetches what the guest lacks,
and the guest unpacks it.
"""

from __future__ import annotations

import io
import pathlib
import re
import tarfile
import tempfile
from collections.abc import Sequence

import archives
from common import LabError, step
from guest import Guest

# Of a Debian package name, see Debian's policy 5.6.1.
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+", flags=re.ASCII)
# On an emulated CPU a package of 20 MB takes a minute to unpack, and more beside other work.
INSTALL_SECONDS = 2700


def install(guest: Guest, names: Sequence[str]) -> None:
    """Install packages, with what they depend on, in a running guest; no harm when they are there.

    Raises:
        LabError: a name is none, the archives have no such package or cannot be reached, or the guest cannot install
            it.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise LabError(f"{name!r} is no name of a Debian package")
    with step(f"{guest.name}: packages {' '.join(names)}"), tempfile.TemporaryDirectory() as work:
        configuration = guest.configuration
        has = guest.login.run("cat /var/lib/dpkg/status")
        files = archives.missing(
            configuration.suite, configuration.kind.debian_architecture, has, names, pathlib.Path(work)
        )
        if files:
            # What pre-depends on a package that comes with it is refused at first (Debian's policy 7.2).
            guest.login.run(
                "rm -rf /root/debs && mkdir /root/debs && tar -xC /root/debs && export DEBIAN_FRONTEND=noninteractive"
                " && { dpkg -i /root/debs/*.deb || { dpkg -iE /root/debs/*.deb && dpkg --configure -a; }; } && rm -r"
                " /root/debs",
                _archive(files),
                INSTALL_SECONDS,
            )


def _archive(files: Sequence[pathlib.Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in files:
            archive.add(path, path.name)
    return packed.getvalue()
