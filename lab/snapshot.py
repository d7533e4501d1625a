# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that hold a booted guest: made once for each kind of guest, then every start takes a copy and goes on from there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil

import madt
from common import LabError, locked, run, say, step
from image import escaped, image
from login import Login
from machine import GUESTS, QEMU, Machine, hardware
from qmp import monitor
from shape import Shape

TAG = "up"
NUMBERINGS = ("adjacent", "split")
# In QEMU 7.2's emulation boots of trixie's kernel 6.12 die now and then in a double fault; of bookworm's 6.1 one in many stands still for ever.
ATTEMPTS = {"trixie": 6, "bookworm": 3}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What decides how a booted guest looks."""

    image: str
    shape: Shape
    numbering: str
    memory: int

    @property
    def time_limit(self) -> float:
        """Seconds within which it boots, also while something else keeps this machine busy."""
        return 480 + 15 * self.shape.cpus

    def __str__(self) -> str:
        return f"{self.image} {self.shape} {self.numbering} {self.memory} MB"


def snapshot_key(kind: Kind, arguments: list[str], qemu_version: str) -> str:
    """A short name that changes whenever a snapshot would be another one, or its memory image would no longer fit."""
    made_by = [hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() for path in (__file__, madt.__file__)]
    made_of = [kind.image, str(kind.shape), kind.numbering, arguments, qemu_version, made_by]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]


def drive(disk: pathlib.Path) -> list[str]:
    """Arguments that give a machine its disk; what a crash of this machine would lose is no loss."""
    return ["-drive", f"file={escaped(disk)},format=qcow2,if=virtio,cache=unsafe,discard=unmap"]


def snapshot(kind: Kind) -> pathlib.Path:
    """The disk that holds the booted guest, made first when it is not there.

    Raises:
        LabError: the guest did not come up, or does not show the siblings it should.
    """
    version = run([QEMU, "--version"]).stdout.splitlines()[0]
    base = image(kind.image)
    if not base.exists():
        raise LabError(f"{base}, on which this guest was built, is gone: `lab.py up` builds what there has to be")
    key = snapshot_key(kind, hardware(kind.shape, kind.memory), version)
    disk = base / "snapshots" / f"{key}.qcow2"
    if not disk.exists():
        with locked(disk.with_suffix(".lock"), f"the snapshot of {kind}"):
            if not disk.exists():
                with step(f"snapshot of {kind}, made once"):
                    _make(kind, base, key, disk)
    return disk


def _make(kind: Kind, base: pathlib.Path, key: str, disk: pathlib.Path) -> None:
    for left in range(ATTEMPTS[kind.image.partition("-")[0]] - 1, -1, -1):
        machine = Machine(GUESTS / f".snapshot-{key}")
        machine.stop()
        machine.remove()
        building = disk.with_suffix(".building")
        try:
            _boot_and_save(kind, base, machine, building)
            os.rename(building, disk)
            return
        except LabError as error:
            if not left:
                raise
            say(f"{error}\nlab: {left} further attempts")
        finally:
            machine.stop()
            machine.remove()
            building.unlink(missing_ok=True)


def _boot_and_save(kind: Kind, base: pathlib.Path, machine: Machine, disk: pathlib.Path) -> None:
    machine.directory.mkdir(parents=True)
    overlay(base, disk)
    with step(f"{kind}: boot"):
        login = Login(machine, base, machine.start([*hardware(kind.shape, kind.memory), *drive(disk)]))
        boot = login.wait(kind.time_limit)
    if kind.numbering == "split":
        _renumber(kind, login, boot)
    # Until the boot's last jobs are done a restored guest would still be busy with them; "degraded" is done, too.
    login.run("systemctl is-system-running --wait || true", timeout=kind.time_limit)
    _check_siblings(kind, login)
    login.run("sync")
    with monitor(machine.directory / "qmp.sock") as qemu:
        qemu.execute("stop")
        qemu.human(f"savevm {TAG}")
        qemu.execute("quit")
    machine.wait(timeout=30)


def overlay(base: pathlib.Path, disk: pathlib.Path) -> None:
    """A disk that begins as the image and keeps its own changes."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base / "disk.img"), str(disk)])


def copy(disk: pathlib.Path, base: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a snapshot's disk; the working tree may have moved since it was made, so it gets the path of the image."""
    shutil.copyfile(disk, target)
    run(["qemu-img", "rebase", "-u", "-F", "raw", "-b", str(base / "disk.img"), str(target)])


def _renumber(kind: Kind, login: Login, boot: str) -> None:
    """Give the guest's kernel a MADT in split order by its initrd, and reboot it."""
    with step(f"{kind}: MADT in split order, reboot"):
        table = login.run("cat /sys/firmware/acpi/tables/APIC")
        packed = madt.early_initrd(madt.split_numbering(table, kind.shape.threads))
        login.run("cat >/boot/acpi.cpio && echo GRUB_EARLY_INITRD_LINUX_CUSTOM=acpi.cpio >/etc/default/grub.d/20-lab-madt.cfg", sent=packed)
        login.run("update-grub && sync && systemctl --no-block reboot", timeout=kind.time_limit)
        login.wait(kind.time_limit, but_not_boot=boot)


def _check_siblings(kind: Kind, login: Login) -> None:
    """A guest that lies about its shape is worth nothing: compare what its kernel shows with what was asked for."""
    shown = login.run("cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list | sort -u").decode(errors="replace").split()
    wanted = kind.shape.siblings(kind.numbering)
    if sorted(sorted(_numbers(text)) for text in shown) != wanted:
        raise LabError(f"a guest of {kind} shows the siblings {' '.join(shown)}: not the shape that was asked for")


def _numbers(cpulist: str) -> list[int]:
    """``0-1,4`` -> [0, 1, 4]; the kernel wrote it."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _dash, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
