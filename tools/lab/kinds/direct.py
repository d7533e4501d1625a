# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kinds share that have no boot loader: QEMU starts a kernel of Debian's with a small initrd, and the root
file system is made in the first boot.

An architecture that this machine cannot run is unpacked here and configured there, by both stages of debootstrap.
"""

from __future__ import annotations

import lzma
import pathlib
import re
import tempfile
from typing import ClassVar

import archives
import newc
from common import RECIPE, LabError, run, step
from emulator import Emulator, newer
from kinds.base import Kind
from machine import GUESTS, Machine
from rootfs import GIVEN, as_root, empty_disk, packages, quoted, unpack_to_disk
from shape import Shape

# What the initrd loads, with what these need, as far as the kernel has it as modules.
MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_net", "virtio_rng")
# Configuring two hundred packages takes minutes on an emulated processor.
FIRST_BOOT_SECONDS = 3600


class Direct(Kind):
    """A guest whose kernel is on QEMU's command line.

    Attributes:
        architecture: as QEMU names it.
        console: the serial console, as the kernel names it.
    """

    architecture: ClassVar[str]
    console: ClassVar[str]
    recipe = "direct"
    host_packages = ("kmod",)

    def emulator(self, suite: str) -> Emulator:
        del suite
        return newer(self.architecture)

    def beginning(self, image: pathlib.Path) -> list[str]:
        return [
            "-kernel",
            str(image / "kernel"),
            "-initrd",
            str(image / "initrd"),
            "-append",
            f"console={self.console}",
        ]

    def build(self, suite: str, work: pathlib.Path) -> None:
        with (
            step(f"kernel and initrd for {self.debian_architecture}"),
            tempfile.TemporaryDirectory(dir=work) as unpacked,
        ):
            self._make_initrd(suite, work, pathlib.Path(unpacked))
        with step(f"root file system of {suite} for {self.debian_architecture} by debootstrap"):
            empty_disk(work)
            wanted = ",".join([*packages("common", self.recipe), *self.packages])
            given = quoted(
                *(work / name for name in GIVEN),
                RECIPE / "common" / "customize.sh",
                RECIPE / self.recipe / "second-stage.sh",
            )
            as_root(
                f"debootstrap --foreign --arch={self.debian_architecture} --variant=minbase --include={wanted} {suite}"
                f" root {archives.first_archive(suite)}\nmkdir root/root/lab; cp {given} root/root/lab;"
                f" {unpack_to_disk(0, 'root')}",
                work,
            )
        with step("second stage of debootstrap, by one boot of the disk"):
            self._second_stage(suite, work)

    def _second_stage(self, suite: str, work: pathlib.Path) -> None:
        beginning = self.beginning(work)
        beginning[-1] += " lab.init=/root/lab/second-stage.sh"
        hardware = self.machine(Shape(1, 2, 1), 1024)
        Machine(GUESTS / f".image-{work.name}").run_once(
            [*self.emulator(suite).command, *hardware, "-no-reboot", *self.drive(work / "disk.img", "raw"), *beginning],
            "lab: the second stage is done",
            timeout=FIRST_BOOT_SECONDS,
        )

    def _make_initrd(self, suite: str, work: pathlib.Path, unpacked: pathlib.Path) -> None:
        """Unpack the kernel and busybox, and pack an initrd that loads modules and goes over to the disk."""
        loaded = members(self._unpack_kernel(suite, work, unpacked, ["busybox-static"]))
        # There is no other shell than busybox in it.
        init = self._init(loaded, "/busybox insmod").replace("#!/bin/sh\n", "#!/busybox sh\n", 1)
        busybox = next(path for path in unpacked.glob("**/bin/busybox")).read_bytes()
        (work / "initrd").write_bytes(
            newc.archive(
                [
                    *((name, newc.DIRECTORY, b"") for name in ("dev", "modules", "proc", "root", "sys")),
                    ("busybox", newc.PROGRAM, busybox),
                    ("init", newc.PROGRAM, init.encode("ascii")),
                    *loaded,
                ]
            )
        )

    def _unpack_kernel(self, suite: str, work: pathlib.Path, unpacked: pathlib.Path, others: list[str]) -> pathlib.Path:
        """Unpack a kernel, which goes to ``work``, and other packages; return the directory of its modules."""
        meta = self._fetched(suite, [self.kernel_package], unpacked / "meta")[0]
        name = re.search(r"linux-image-[0-9][\w.+-]*", run(["dpkg-deb", "--field", str(meta), "Depends"]).stdout)
        if not name:
            raise LabError(f"{meta.name} does not say which kernel it stands for")
        for package in self._fetched(suite, [name.group(), *others], unpacked / "packages"):
            run(["dpkg-deb", "--extract", str(package), str(unpacked)])
        run(["mv", str(next((unpacked / "boot").glob("vmlinu[xz]-*"))), str(work / "kernel")])
        return next((unpacked / "lib" / "modules").iterdir())

    def _fetched(self, suite: str, names: list[str], target: pathlib.Path) -> list[pathlib.Path]:
        return archives.single(f"{suite}-backports", self.debian_architecture, names, target)

    def _init(self, loaded: list[tuple[str, int, bytes]], insmod: str) -> str:
        """The recipe's init, which loads these members of the initrd."""
        init = (RECIPE / self.recipe / "init.sh").read_text(encoding="utf-8")
        return init.replace("@LOAD@\n", "".join(f"{insmod} /{name}\n" for name, _mode, _content in loaded))


def members(modules: pathlib.Path) -> list[tuple[str, int, bytes]]:
    """The modules that an initrd loads, as its members, in the order in which they can be loaded."""
    return [
        (
            f"modules/{path.name.removesuffix('.xz')}",
            newc.FILE,
            lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes(),
        )
        for path in in_order(modules)
    ]


def in_order(modules: pathlib.Path) -> list[pathlib.Path]:
    """The files of :data:`MODULES` below lib/modules/VERSION, each after those that it needs;
    what is built in has none.
    """
    # .../lib/modules/VERSION
    run(["depmod", "--basedir", str(modules.parents[2]), modules.name])
    needs = {}
    for line in (modules / "modules.dep").read_text(encoding="ascii").splitlines():
        name, _colon, those = line.partition(":")
        needs[name] = those.split()
    by_name = {pathlib.PurePath(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    ordered: dict[str, None] = {}
    for name in MODULES:
        if name in by_name:
            # modules.dep has what is needed first at the end.
            ordered.update(dict.fromkeys([*reversed(needs[by_name[name]]), by_name[name]]))
    return [modules / path for path in ordered]
