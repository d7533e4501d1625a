# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot loader has to offer.

A boot loader is one file of this folder with a ``LOADER``. `tools/registries.py` writes the registry of all of them.
"""

import enum
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries

if t.TYPE_CHECKING:
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base

    Backend = backend_base.Backend

# The script that makes GRUB's menu, as upstream and as Fedora and SUSE call it.
GRUB_MKCONFIG = ("usr/sbin/grub-mkconfig", "usr/bin/grub-mkconfig")
GRUB2_MKCONFIG = ("usr/sbin/grub2-mkconfig", "usr/bin/grub2-mkconfig")


class Evidence(enum.IntEnum):
    """How a boot loader was found. Of several that are installed the one with the highest evidence is used."""

    ONLY_ONE = 1
    """Its files exist, and those of no other boot loader."""
    GENERATOR = 2
    """The program that generates its configuration is installed, with a configuration."""
    DISTRIBUTION = 3
    """The same, and the tools of the distribution that manages it in this way."""
    MANAGER = 4
    """The program with which the distribution manages all boot entries is installed."""
    FIRMWARE = 5
    """The firmware says that it started this system."""


class Loader(t.NamedTuple):
    """A boot loader that can be changed.

    Attributes:
        name: its name in facts and results: lower-case letters, digits and underscores.
        title: its name in sentences.
        chosen: what has to be there for it, for the documentation, as are the next two.
        written: the files that it writes.
        tested: what tests show of it.
        evidence: how it is found where all of the signs that follow are there.
        tools: paths of which the first that exists is the program that its backend uses; empty where that is the
            directory with the entries of the Boot Loader Specification.
        helpers: paths of which one has to exist, too.
        lacks: paths of which none may exist.
        file: path that has to exist, too.
        text: what the program has to contain.
        firmware: what the firmware says where it started the system: no other sign is needed then.
        read_entries: returns a host's boot entries from files alone, without running a program; empty when they cannot
            be read.
        backend: makes the backend from a host's files and the `tool` of `detection.DetectedLoader`.
        keeps_settings: whether the administrator's own arguments stay in files that are not written, so that they are
            back when ours are removed. Otherwise arguments are written into the entries themselves.
    """

    name: str
    title: str
    chosen: str
    written: str
    tested: str
    evidence: Evidence
    read_entries: "t.Callable[[host_files.HostFs], list[boot_entries.Entry]]"
    backend: "t.Callable[[host_files.HostFs, str], Backend]"
    tools: "tuple[str, ...]" = ()
    helpers: "tuple[str, ...]" = ()
    lacks: "tuple[str, ...]" = ()
    file: str = ""
    text: str = ""
    firmware: str = ""
    keeps_settings: bool = False
