# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that hold a booted guest: made once for each kind of guest,
then every start takes a copy and goes on from there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil

from common import LabError, locked, run, say, step
from image import image
from kinds.base import Kind
from login import Login
from machine import GUESTS, Machine
from qmp import monitor
from shape import Shape

TAG = "up"


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What decides how a booted guest looks."""

    kind: Kind
    suite: str
    image: str
    shape: Shape
    numbering: str
    memory: int

    @property
    def time_limit(self) -> float:
        """Seconds within which it boots, also while something else keeps this machine busy."""
        return 480 + 15 * self.shape.cpus

    @property
    def hardware(self) -> list[str]:
        """The part of the command line that a snapshot depends on."""
        return [*self.kind.machine(self.shape, self.memory), *self.kind.beginning(image(self.image))]

    def command(self, disk: pathlib.Path) -> list[str]:
        """The command line of a machine with its own disk."""
        return [*self.kind.emulator(self.suite).command, *self.hardware, *self.kind.drive(disk)]

    def __str__(self) -> str:
        return f"{self.image} {self.shape} {self.numbering} {self.memory} MB"


def snapshot_key(configuration: Configuration, hardware: list[str], qemu_version: str) -> str:
    """A short name that changes whenever a snapshot would be another one, or its memory image would no longer fit."""
    made_by = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    made_of = [configuration.image, str(configuration.shape), configuration.numbering, hardware, qemu_version, made_by]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]


def snapshot(configuration: Configuration) -> pathlib.Path:
    """The disk that holds the booted guest, made first when it is not there.

    Raises:
        LabError: the guest did not come up, or does not show the siblings it should.
    """
    base = image(configuration.image)
    if not base.exists():
        raise LabError(f"{base}, on which this guest was built, is gone: `lab.py up` builds what there has to be")
    key = snapshot_key(configuration, configuration.hardware, configuration.kind.emulator(configuration.suite).version)
    disk = base / "snapshots" / f"{key}.qcow2"
    if not disk.exists():
        with locked(disk.with_suffix(".lock"), f"the snapshot of {configuration}"):
            if not disk.exists():
                with step(f"snapshot of {configuration}, made once"):
                    _make(configuration, base, key, disk)
    return disk


def _make(configuration: Configuration, base: pathlib.Path, key: str, disk: pathlib.Path) -> None:
    for left in range(configuration.kind.attempts(configuration.suite) - 1, -1, -1):
        machine = Machine(GUESTS / f".snapshot-{key}")
        machine.stop()
        machine.remove()
        building = disk.with_suffix(".building")
        try:
            _boot_and_save(configuration, base, machine, building)
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


def _boot_and_save(configuration: Configuration, base: pathlib.Path, machine: Machine, disk: pathlib.Path) -> None:
    machine.directory.mkdir(parents=True)
    overlay(base, disk)
    kind, time_limit = configuration.kind, configuration.time_limit
    with step(f"{configuration}: boot"):
        login = Login(machine, base, machine.start(configuration.command(disk)))
        boot = login.wait(time_limit)
    kind.prepare(login, boot, configuration.shape, configuration.numbering, time_limit)
    # Until the boot's last jobs are done a restored guest would still be busy with them; "degraded" is done, too.
    login.run("systemctl is-system-running --wait || true", timeout=time_limit)
    check_siblings(configuration, login)
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


def check_siblings(configuration: Configuration, login: Login) -> None:
    """A guest that lies about its shape is worth nothing: compare what its kernel shows with what was asked for."""
    shown = (
        login.run("cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list | sort -u")
        .decode(errors="replace")
        .split()
    )
    wanted = configuration.shape.siblings(configuration.numbering)
    if sorted(sorted(_numbers(text)) for text in shown) != wanted:
        raise LabError(
            f"a guest of {configuration} shows the siblings {' '.join(shown)}: not the shape that was asked for"
        )


def _numbers(cpulist: str) -> list[int]:
    """``0-1,4`` -> [0, 1, 4]; the kernel wrote it."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _dash, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
