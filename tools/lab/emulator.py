# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The QEMU that runs a guest: that of Debian's packages, or a newer one that lies beside them."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import archives
from common import CACHE, locked, run, say, step

PROGRAM = "qemu-system-"
HOST_PACKAGES = ("qemu-system-x86", "qemu-utils")
# QEMU 7.2 of bookworm has no SMT for POWER, and hangs in two of three warm reboots under OVMF. The 10.0 of its
# backports has neither fault. Installed, it would replace the other one; unpacked beside it, it runs with the same
# libraries.
NEWER_SUITE = "bookworm-backports"
NEWER_PACKAGES = {"x86_64": "qemu-system-x86", "ppc64": "qemu-system-ppc", "aarch64": "qemu-system-arm"}
NEWER_SHARED = ("qemu-system-data", "qemu-system-common")
# Where Debian's packages put what a machine begins with.
FIRMWARE = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe/qemu")

# A disk whose boot sector writes 0x10 to the debug-exit port: QEMU then ends with (0x10 << 1) | 1. Firmware ignores
# smaller disks.
BOOT_DISK = (bytes.fromhex("b010e6f4ebfe").ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")
BOOT_SECTOR_RAN = 0x10 << 1 | 1


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A program and the directories in which it looks for firmware."""

    program: str
    data: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The beginning of a command line."""
        return [self.program, *(word for directory in self.data for word in ("-L", directory))]

    @property
    def version(self) -> str:
        """What it says of itself; a machine's memory is only read by the version that wrote it."""
        return run([self.program, "--version"]).stdout.splitlines()[0]


def installed() -> Emulator:
    """The QEMU of Debian's package for x86-64."""
    return Emulator(f"{PROGRAM}x86_64")


def newer(architecture: str) -> Emulator:
    """QEMU 10 for an architecture as QEMU names it, unpacked into the cache first when it is not there.

    Raises:
        LabError: the archives do not have it.
    """
    directory = CACHE / f"qemu-{NEWER_SUITE}-{architecture}"
    if not directory.exists():
        with locked(directory.with_suffix(".lock"), f"the newer QEMU for {architecture}"):
            if not directory.exists():
                with step(f"the newer QEMU for {architecture}, fetched once"):
                    _unpack(architecture, directory)
    return Emulator(
        str(directory / "usr" / "bin" / f"{PROGRAM}{architecture}"),
        (str(directory / "usr" / "share" / "qemu"), *FIRMWARE),
    )


def _unpack(architecture: str, directory: pathlib.Path) -> None:
    """Unpack beside and rename, as it is there whole or not at all."""
    work = directory.with_name(f"{directory.name}.building")
    shutil.rmtree(work, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory() as packages:
            host = run(["dpkg", "--print-architecture"]).stdout.strip()
            for package in archives.single(
                NEWER_SUITE, host, [NEWER_PACKAGES[architecture], *NEWER_SHARED], pathlib.Path(packages)
            ):
                run(["dpkg-deb", "--extract", str(package), str(work)])
        os.rename(work, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@functools.cache
def accelerator() -> str:
    """``kvm`` where the processor's module is loaded and code really runs, else ``tcg``.

    /dev/kvm can exist and open and still not run a stock kernel, so neither it nor the module alone is believed.
    """
    loaded = any(os.path.isdir(f"/sys/module/{module}") for module in ("kvm_intel", "kvm_amd"))
    if loaded and trial_start("kvm"):
        return "kvm"
    say(
        "software emulation: "
        + ("a trial start under KVM failed" if loaded else "neither kvm_intel nor kvm_amd is loaded")
    )
    return "tcg"


def trial_start(accel: str) -> bool:
    """Whether firmware and a boot sector run to their end under this accelerator."""
    with tempfile.NamedTemporaryFile() as disk:
        disk.write(BOOT_DISK)
        disk.flush()
        command = [
            *installed().command,
            "-machine",
            "q35",
            "-accel",
            accel,
            "-display",
            "none",
            "-nodefaults",
            "-no-reboot",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=1",
            "-drive",
            f"file={disk.name},format=raw,if=virtio,readonly=on",
        ]
        try:
            return (
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
                ).returncode
                == BOOT_SECTOR_RAN
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
