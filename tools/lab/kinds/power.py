# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""POWER, little endian: a partition as under IBM's hypervisor, and the bare machine.

Only here smt/control takes numbers.
"""

from __future__ import annotations

import pathlib

from kinds.base import DEVICES
from kinds.direct import Direct
from rootfs import escaped
from shape import Shape


class Power(Direct):
    """A partition (LPAR) of a POWER10, of up to eight threads a core."""

    name = "power"
    title = "POWER10, a partition (pseries)"
    debian_architecture = "ppc64el"
    architecture = "ppc64"
    kernel_package = "linux-image-powerpc64le"
    console = "hvc0"
    # Has ppc64_cpu.
    packages = ("powerpc-ibm-utils",)
    threads = (1, 2, 4, 8)
    # QEMU 10.0 writes the memory of these machines, and what it then loads stands still.
    snapshots = False

    def machine(self, shape: Shape, memory: int) -> list[str]:
        return ["-machine", "pseries", "-accel", "tcg,thread=multi", "-smp", shape.smp, "-m", str(memory), *DEVICES]


class PowerBare(Power):
    """A bare POWER9, of up to four threads a core, with the image of the partition.

    QEMU 10.0: a store to a virtio device is a machine check now and then, and each reboot ends in one.
    """

    name = "power-bare"
    title = "POWER9, bare (powernv); dies on a reboot, and of a machine check now and then"
    image_name = "power"
    # As QEMU demands for this machine.
    least_memory = 1024
    threads = (1, 2, 4)

    def machine(self, shape: Shape, memory: int) -> list[str]:
        # With -nodefaults it has no PCI at all, and no way to power off.
        without = ["-monitor", "none", "-vga", "none", "-audio", "none", "-display", "none"]
        devices = ["-device", "virtio-net-pci,netdev=net,romfile=,bus=pcie.0"]
        return [
            "-machine",
            "powernv9",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            shape.smp,
            "-m",
            str(memory),
            *without,
            *devices,
        ]

    def drive(self, disk: pathlib.Path, form: str = "qcow2") -> list[str]:
        drive = f"file={escaped(disk)},format={form},if=none,id=disk,cache=unsafe,discard=unmap"
        return ["-drive", drive, "-device", "virtio-blk-pci,drive=disk,bus=pcie.1"]


KINDS = (Power(), PowerBare())
