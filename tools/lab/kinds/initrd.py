# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""x86 with a kernel of Debian's and a system that lies in its initrd: no disk, no boot loader, no other process than
an ssh server.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import archives
import newc
from common import run, step
from emulator import Emulator, installed
from kinds import direct
from kinds.x86 import X86
from rootfs import GIVEN, packages

# What of its packages it does not need: each MB is copied and unpacked in every boot.
LEFT_OUT = ("meta", "packages", "boot", "lib/modules", "usr/share", "usr/lib/x86_64-linux-gnu/gconv")


class Initrd(X86, direct.Direct):
    """The smallest guest that Ansible manages, and the one that is there soonest."""

    name = "initrd"
    title = "x86, a kernel and its initrd with Python and ssh, no disk"
    kernel_package = "linux-image-cloud-amd64"
    # Under emulation a timer may come too late for the check of timers, which then stands still, and page tables of the
    # kernel's own make each system call expensive.
    console = "ttyS0 quiet no_timer_check mitigations=off"
    recipe = "initrd"
    snapshots = False
    boot_seconds = 45

    def emulator(self, suite: str) -> Emulator:
        del suite
        return installed()

    def drive(self, disk: pathlib.Path, form: str = "qcow2") -> list[str]:
        del disk, form
        return []

    def sources(self) -> list[pathlib.Path]:
        return [*super().sources(), pathlib.Path(direct.__file__), pathlib.Path(newc.__file__)]

    def build(self, suite: str, work: pathlib.Path) -> None:
        with step("kernel and initrd"), tempfile.TemporaryDirectory(dir=work) as name:
            root = pathlib.Path(name)
            loaded = direct.members(self._unpack_kernel(suite, work, root, packages(self.recipe)))
            for part in LEFT_OUT:
                shutil.rmtree(root / part)
            (root / "bin/sh").symlink_to("busybox")
            # Under emulation it takes seconds to compile what a module of Ansible imports. Members have no time.
            python = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / "lib/x86_64-linux-gnu")]
            words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
            run(
                [*python, str(root / "usr/bin/python3"), *words, str(root / "usr/lib/python3.11")],
                env={"PYTHONHOME": str(root / "usr")},
            )
            for part in ("dev", "modules", "proc", "root/lab", "sys"):
                (root / part).mkdir(parents=True)
            for part in GIVEN:
                shutil.copy(work / part, root / "root/lab")
            init = ("init", newc.PROGRAM, self._init(loaded, "insmod").encode("ascii"))
            (work / "initrd").write_bytes(newc.archive([*newc.tree(root), *loaded, init]))

    def _fetched(self, suite: str, names: list[str], target: pathlib.Path) -> list[pathlib.Path]:
        return archives.single(suite, self.debian_architecture, names, target)


KINDS = (Initrd(),)
