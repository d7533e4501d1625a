# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk image that all guests of a kind and suite stand on,
built once and kept under the name of what it is made of.
"""

from __future__ import annotations

import os
import pathlib
import shutil

from common import CACHE, locked, step
from kinds.base import Kind
from rootfs import make_keys


def image(key: str) -> pathlib.Path:
    """The directory of an image: disk.img, the keys id_ed25519 and known_hosts,
    and later the snapshots that stand on it.
    """
    return CACHE / key


def need_image(kind: Kind, suite: str) -> str:
    """The key of the suite's image for a kind, which is built first when it is not there.

    Raises:
        LabError: it could not be built.
    """
    key = kind.key(suite)
    directory = image(key)
    if not directory.exists():
        with locked(CACHE / f"{key}.lock", f"the image {key}"):
            if not directory.exists():
                with step(f"image {key}, built once"):
                    _build(kind, suite, directory)
    return key


def _build(kind: Kind, suite: str, directory: pathlib.Path) -> None:
    """Build beside and rename: an image is there whole or not at all. What an interrupted build left goes first."""
    work = directory.with_name(f"{directory.name}.building")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        make_keys(work)
        kind.build(suite, work)
        os.rename(work, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
