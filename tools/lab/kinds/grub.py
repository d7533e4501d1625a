# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""x86 with a BIOS and grub, as most servers of the last decade boot."""

from __future__ import annotations

import pathlib

import madt
from common import RECIPE, step
from emulator import Emulator, installed, newer
from kinds.x86 import X86
from login import Login
from machine import GUESTS, Machine
from rootfs import as_root, bootstrap, empty_disk, partition, quoted, unpack_to_disk
from shape import Shape

PARTITION_OFFSET_MB = 1


class Grub(X86):
    """x86 with grub; split numbering by another MADT."""

    name = "grub"
    title = "x86, BIOS, grub"
    suites = ("bookworm", "trixie")
    numberings = ("adjacent", "split")
    recipe = "grub"

    def emulator(self, suite: str) -> Emulator:
        # In the emulation of QEMU 7.2 boots of trixie's kernel 6.12 die now and then in a double fault.
        return newer("x86_64") if suite == "trixie" else installed()

    def sources(self) -> list[pathlib.Path]:
        return [*super().sources(), pathlib.Path(madt.__file__)]

    def attempts(self, suite: str) -> int:
        del suite
        # In QEMU 7.2's emulation one boot of bookworm's 6.1 in many stands still for ever.
        return 3

    def build(self, suite: str, work: pathlib.Path) -> None:
        with step(f"root file system of {suite} by mmdebstrap"):
            bootstrap(
                suite, work, self.recipe, f"copy-in {quoted(RECIPE / self.recipe / 'install-grub.sh')} /usr/local/sbin"
            )
        with step("disk by sfdisk and mke2fs"):
            partition(empty_disk(work), f"label: dos\nstart={PARTITION_OFFSET_MB}MiB, type=83, bootable\n")
            # Kernel and initrd stay in boot/ for the first boot.
            unpack = (
                "mkdir root; tar -xf root.tar -C root; mkdir boot; cp -L root/vmlinuz root/initrd.img boot; rm"
                " root.tar;"
            )
            as_root(f"{unpack} {unpack_to_disk(PARTITION_OFFSET_MB, 'root')}", work)
        with step("grub by one boot of the disk"):
            self._install(suite, work)
        as_root("rm -r boot", work)

    def _install(self, suite: str, work: pathlib.Path) -> None:
        """Boot the disk once with a kernel from outside; its init installs grub and powers off."""
        machine = Machine(GUESTS / f".image-{work.name}")
        beginning = ["-kernel", str(work / "boot" / "vmlinuz"), "-initrd", str(work / "boot" / "initrd.img")]
        append = ["-append", "root=/dev/vda1 console=ttyS0 init=/usr/local/sbin/install-grub.sh"]
        hardware = self.machine(Shape(1, 1, 1), 1024)
        machine.run_once(
            [
                *self.emulator(suite).command,
                *hardware,
                "-no-reboot",
                *self.drive(work / "disk.img", "raw"),
                *beginning,
                *append,
            ],
            "lab: grub is installed",
            timeout=300,
        )

    def prepare(self, login: Login, boot: str, shape: Shape, numbering: str, time_limit: float) -> None:
        if numbering != "split":
            return
        with step(f"{shape}: MADT in split order, reboot"):
            table = login.run("cat /sys/firmware/acpi/tables/APIC")
            packed = madt.early_initrd(madt.split_numbering(table, shape.threads))
            login.run(
                "cat >/boot/acpi.cpio && echo GRUB_EARLY_INITRD_LINUX_CUSTOM=acpi.cpio"
                " >/etc/default/grub.d/20-lab-madt.cfg",
                sent=packed,
            )
            login.run("update-grub && sync && systemctl --no-block reboot", timeout=time_limit)
            login.wait(time_limit, but_not_boot=boot)


KINDS = (Grub(),)
