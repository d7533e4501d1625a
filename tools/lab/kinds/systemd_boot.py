# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""x86 with UEFI and systemd-boot, whose entries are files of the Boot Loader Specification on the EFI system
partition.
"""

from __future__ import annotations

import pathlib

from common import RECIPE, step
from emulator import Emulator, newer
from kinds.x86 import X86
from rootfs import as_root, bootstrap, empty_disk, partition, unpack_to_disk

FIRMWARE = "/usr/share/ovmf/OVMF.fd"
ESP_OFFSET_MB = 1
# Room for three kernels with their initrds.
ESP_MB = 128


class SystemdBoot(X86):
    """x86 with OVMF and systemd-boot."""

    name = "systemd-boot"
    title = "x86, UEFI, systemd-boot with BLS entries"
    host_packages = ("ovmf", "mtools", "dosfstools")
    recipe = "systemd-boot"

    def emulator(self, suite: str) -> Emulator:
        del suite
        # Warm reboots under OVMF hang in two of three in QEMU 7.2.
        return newer("x86_64")

    def beginning(self, image: pathlib.Path) -> list[str]:
        del image
        return ["-bios", FIRMWARE]

    def build(self, suite: str, work: pathlib.Path) -> None:
        with step(f"root file system of {suite} by mmdebstrap"):
            bootstrap(suite, work, self.recipe)
        with step("disk by sfdisk, mtools and mke2fs"):
            sizes = f"start={ESP_OFFSET_MB}MiB, size={ESP_MB}MiB, type=uefi\ntype=linux\n"
            partition(empty_disk(work), f"label: gpt\n{sizes}")
            script = (RECIPE / self.recipe / "esp.sh").read_text(encoding="utf-8")
            begin = f"ESP_MB={ESP_MB}; ESP_OFFSET_MB={ESP_OFFSET_MB}; mkdir root; tar -xf root.tar -C root; rm root.tar"
            as_root(f"{begin}\n{script}\n{unpack_to_disk(ESP_OFFSET_MB + ESP_MB, 'root')}", work)


KINDS = (SystemdBoot(),)
