# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kind of guest has to offer: how its image is made, and which machine runs it."""

from __future__ import annotations

import abc
import hashlib
import pathlib
from collections.abc import Iterable
from typing import ClassVar

import rootfs
from common import RECIPE, LabError
from emulator import Emulator
from login import Login
from shape import Shape

# What each machine has. restrict: the guest reaches nothing, only forwarded ports reach it; the port is added when it
# is started.
DEVICES = (
    "-nodefaults",
    "-display",
    "none",
    "-device",
    "virtio-rng-pci",
    "-device",
    "virtio-net-pci,netdev=net,romfile=",
)


class Kind(abc.ABC):
    """A kind of guest; each file beside this one has one or several.

    Attributes:
        name: as ``lab.py up --kind`` takes it.
        image_name: the kind whose image it has; empty for one of its own.
        title: for people.
        suites: the suites of Debian that it can have, the default first.
        numberings: the ways in which its CPUs can be numbered, the default first.
        debian_architecture: as Debian's packages name it.
        host_packages: Debian packages that this machine needs for it, beside those of all kinds.
        kernel_package: the meta package of a kernel that QEMU starts; empty where the disk has its own.
        packages: Debian packages beside those of the recipe.
        recipe: the folder of tools/lab/recipe with its part of the image.
        threads: the numbers of threads a core that it can have; empty for any.
        least_memory: MB without which it does not start.
        snapshots: whether a booted guest can be saved and loaded; where not, each start is a boot.
        boot_seconds: after which a boot is taken to stand still and tried again, None for one try: the more CPUs and
            the busier the machine, the likelier is it that emulated timers leave a kernel time for nothing else.
    """

    name: ClassVar[str]
    image_name: ClassVar[str] = ""
    title: ClassVar[str]
    suites: ClassVar[tuple[str, ...]] = ("bookworm",)
    numberings: ClassVar[tuple[str, ...]] = ("adjacent",)
    debian_architecture: ClassVar[str] = "amd64"
    host_packages: ClassVar[tuple[str, ...]] = ()
    kernel_package: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    recipe: ClassVar[str]
    threads: ClassVar[tuple[int, ...]] = ()
    least_memory: ClassVar[int] = 256
    snapshots: ClassVar[bool] = True
    boot_seconds: ClassVar[float | None] = None

    @abc.abstractmethod
    def emulator(self, suite: str) -> Emulator:
        """The QEMU that runs it; made available first if it is not."""

    @abc.abstractmethod
    def build(self, suite: str, work: pathlib.Path) -> None:
        """Make disk.img, and what else the machine begins with, in a directory that has the keys of the image."""

    @abc.abstractmethod
    def machine(self, shape: Shape, memory: int) -> list[str]:
        """The part of the command line that is the hardware; memory in MB."""

    def beginning(self, image: pathlib.Path) -> list[str]:
        """The part of the command line from which the machine boots, where that is not its disk."""
        del image
        return []

    def drive(self, disk: pathlib.Path, form: str = "qcow2") -> list[str]:
        """Arguments that give the machine its disk, where it has one; what a crash here would lose is no loss."""
        return ["-drive", f"file={rootfs.escaped(disk)},format={form},if=virtio,cache=unsafe,discard=unmap"]

    def prepare(self, login: Login, boot: str, shape: Shape, numbering: str, time_limit: float) -> None:
        """Do in the first boot what the disk alone does not give; ``boot`` is that boot's id."""
        del login, boot, shape, numbering, time_limit

    def check(self, suite: str, shape: Shape, numberings: Iterable[str]) -> None:
        """Refuse what a guest of this kind cannot be.

        Raises:
            LabError: it does not have that suite, that many threads a core, or that numbering.
        """
        if suite not in self.suites:
            raise LabError(
                f"a guest of kind {self.name} cannot have the suite {suite}: choose from {', '.join(self.suites)}"
            )
        if self.threads and shape.threads not in self.threads:
            raise LabError(
                f"a guest of kind {self.name} cannot have {shape.threads} threads a core: choose from"
                f" {', '.join(map(str, self.threads))}"
            )
        for numbering in numberings:
            if numbering not in self.numberings:
                raise LabError(
                    f"a guest of kind {self.name} cannot have the numbering {numbering}: choose from"
                    f" {', '.join(self.numberings)}"
                )

    def attempts(self, suite: str) -> int:
        """How often a first boot is tried."""
        del suite
        return 2

    def sources(self) -> list[pathlib.Path]:
        """The files that decide what an image of this kind is: those of the recipe, and the code that builds it."""
        recipes = [path for folder in ("common", self.recipe) for path in sorted((RECIPE / folder).iterdir())]
        return [*recipes, pathlib.Path(rootfs.__file__), pathlib.Path(type(self).build.__code__.co_filename)]

    def key(self, suite: str) -> str:
        """A short name that changes whenever an image would: kind, suite, recipe files, and the code that builds it."""
        name = self.image_name or self.name
        digest = hashlib.sha256(
            repr((name, suite, self.debian_architecture, self.packages, self.kernel_package)).encode()
        )
        for path in self.sources():
            digest.update(f"\0{path.parent.name}/{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return f"{name}-{suite}-{digest.hexdigest()[:12]}"
