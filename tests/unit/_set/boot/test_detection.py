# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot loader of a host: which of several is used."""

from __future__ import annotations

import itertools
import re

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import detection, entries as boot_entries

LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def install(root, names):
    """Put the signs of boot loaders into one tree."""
    boot_maker.running(root)
    makers = {
        "grub_debian": lambda: boot_maker.grub_tree(root),
        "grub_suse": lambda: boot_maker.grub_tree(root, suse=True),
        "grubby": lambda: boot_maker.grubby_tree(root),
        "systemd_boot": lambda: (
            boot_maker.systemd_tree(root),
            boot_maker.write(root, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252")),
        ),
        "leftover of systemd-boot": lambda: boot_maker.systemd_tree(root),
    }
    for name in names:
        makers[name]()
    return detection.find_loader(host_files.HostFs(str(root)))


ORDER = ("systemd_boot", "grubby", "grub_suse", "grub_debian", "leftover of systemd-boot")


# By day each pair that stands side by side, and all of them.
SEVERAL = [ORDER, *itertools.pairwise(ORDER), *((name,) for name in ORDER)]
SEVERAL += [names for size in (2, 3, 4) for names in itertools.combinations(ORDER, size) if names not in SEVERAL]


@pytest.mark.night(after=10)
@pytest.mark.parametrize("names", SEVERAL)
def test_of_several_loaders_the_one_with_the_highest_evidence_is_used(tmp_path, names):
    assert install(tmp_path, names).name == ("systemd_boot" if names[0] == ORDER[-1] else names[0])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "none of .*/boot/efi/loader/entries has an entry of it: mount the EFI system partition"),
        ("boot/efi/EFI/Linux/debian.efi", r"boot/efi/EFI/Linux contains unified kernel images \(debian.efi\)"),
    ],
)
def test_what_systemd_boot_started_is_not_left_to_another_loader(tmp_path, path, reason):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252"))
    if path is not None:
        boot_maker.write(tmp_path, path, "")
    found = detection.find_loader(host_files.HostFs(str(tmp_path)))
    assert found.name == detection.NONE and re.search(reason, found.blocked_by)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("cfg", boot_entries.GRUB_CFGS)
def test_entries_beside_a_grub_that_nothing_manages_are_not_systemd_boots(tmp_path, cfg):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, cfg, "")
    assert "GRUB without" in detection.find_loader(host_files.HostFs(str(tmp_path))).blocked_by
