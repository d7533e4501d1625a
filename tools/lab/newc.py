# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives in the format newc, as the kernel unpacks them from an initrd
(Documentation/driver-api/early-userspace/buffer-format.rst).
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Iterator

DIRECTORY = 0o040755
FILE = 0o100644
PROGRAM = 0o100755


def archive(members: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Pack members in their order: name without a leading slash, mode with the type of file, content.

    A directory comes before what is in it.
    """
    packed = bytearray()
    for number, (name, mode, content) in enumerate(members, start=1):
        packed += _member(number, name, mode, content)
    packed += _member(0, "TRAILER!!!", 0, b"")
    return bytes(packed)


def tree(root: pathlib.Path) -> Iterator[tuple[str, int, bytes]]:
    """What is in a directory, as members: directories, files and symbolic links with their modes, owned by root."""
    for path in sorted(root.rglob("*")):
        content = b""
        if path.is_symlink():
            content = os.fsencode(os.readlink(path))
        elif path.is_file():
            content = path.read_bytes()
        yield str(path.relative_to(root)), path.lstat().st_mode, content


def _member(inode: int, name: str, mode: int, content: bytes) -> bytes:
    """A header of thirteen hexadecimal numbers, then name and content, each padded to four bytes."""
    encoded = name.encode("ascii") + b"\0"
    links, owner, group, time, major, minor, check = 1, 0, 0, 0, 0, 0, 0
    numbers = (inode, mode, owner, group, links, time, len(content), major, minor, 0, 0, len(encoded), check)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
    return header + b"\0" * (-len(header) % 4) + content + b"\0" * (-len(content) % 4)
