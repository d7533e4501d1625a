# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named guests: up, back to the clean state, down."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import time

from common import LabError, locked, say, step, write_atomic
from image import image
from kinds.registry import kind_of
from login import Login
from machine import GUESTS, Machine
from qmp import Monitor, monitor
from shape import parse_shape
from snapshot import TAG, Configuration, check_siblings, copy, overlay, snapshot

# A guest from its snapshot answers within seconds. On a machine that much other work keeps busy it takes minutes.
RESTORED_SECONDS = 600
# The niceness of pinned CPUs: nine times the weight of other work, which goes on, slowly.
PREFERENCE = -10


@dataclasses.dataclass(frozen=True)
class Guest:
    """A named guest as it was asked for, and the loopback port that leads to its ssh."""

    name: str
    configuration: Configuration
    pins: tuple[int, ...] = ()
    port: int = 0

    @property
    def machine(self) -> Machine:
        """Its QEMU process."""
        return Machine(GUESTS / self.name)

    @property
    def login(self) -> Login:
        """The way into it."""
        return Login(self.machine, image(self.configuration.image), self.port)


def check_name(name: str) -> str:
    """A name that can be a host name, a directory and a word in a command line.

    Raises:
        LabError: it is not.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?", name, flags=re.ASCII):
        raise LabError(f"guest name {name!r} is no host name: lower case letters, digits and hyphens, 50 at most")
    return name


def up(wanted: Guest) -> Guest:
    """Bring a guest up, and return it with its port; one that runs as it was asked for is left as it is.

    Raises:
        LabError: it did not come up.
    """
    with _locked(wanted.name):
        running = load(wanted.name)
        if running and running.machine.pid() and dataclasses.replace(running, port=0) == wanted:
            running.login.wait(timeout=RESTORED_SECONDS)
            say(f"{wanted.name} is up already: {wanted.configuration}, port {running.port}")
            return running
        return _start(wanted)


def reset(name: str) -> Guest:
    """Put a guest back to the clean state it was brought up with, reachable as before.

    Raises:
        LabError: there is no such guest, or it did not come up.
    """
    with _locked(name):
        guest = load(name)
        if not guest:
            raise LabError(f"there is no guest {name!r} to reset: `lab.py up --name {name}` makes one")
        return _start(guest)


def down(name: str) -> None:
    """End a guest and forget it; no harm when there is none."""
    with _locked(name):
        machine = Machine(GUESTS / name)
        if machine.stop():
            say(f"{name} is down")
        machine.remove()


def cut(name: str) -> Guest:
    """Cut a guest's power, and boot it again from its own disk, reachable as before.

    Raises:
        LabError: there is no such guest, or it did not come up.
    """
    with _locked(name):
        guest = load(name)
        if not guest:
            raise LabError(f"there is no guest {name!r} whose power could be cut: `lab.py up --name {name}` makes one")
        guest.machine.cut()
        return _run(guest, [], guest.configuration.time_limit)


def forward(name: str, port: int) -> int:
    """Return a loopback port that leads to a TCP port of a running guest, until it is reset, cut or down.

    Raises:
        LabError: there is no such guest, or it is not running.
    """
    with _locked(name):
        guest = load(name)
        if not guest or not guest.machine.pid():
            raise LabError(f"there is no running guest {name!r}: `lab.py status` shows those that are")
        return guest.machine.forward(port)


def load(name: str) -> Guest | None:
    """The guest of that name as it was last brought up, or None."""
    try:
        record = json.loads((GUESTS / name / "guest.json").read_text(encoding="utf-8"))
        configuration = Configuration(
            kind_of(record["kind"]),
            record["suite"],
            record["image"],
            parse_shape(record["shape"]),
            record["numbering"],
            record["memory"],
        )
        return Guest(name, configuration, tuple(record["pins"]), record["port"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, LabError) as error:
        raise LabError(
            f"{GUESTS / name / 'guest.json'} is damaged ({error}): `lab.py down --name {name}` clears it away"
        ) from error


def _locked(name: str):
    return locked(GUESTS.parent / f"{name}.lock", f"guest {name}")


def _start(guest: Guest) -> Guest:
    """Start a guest anew from its snapshot, or by a boot; the port it had before is kept,
    so that an inventory goes on to hold.
    """
    configuration = guest.configuration
    saved = snapshot(configuration) if configuration.kind.snapshots else None
    machine = guest.machine
    machine.stop()
    with step(f"{guest.name}: {configuration} {'from its snapshot' if saved else 'boots'}"):
        machine.directory.mkdir(parents=True, exist_ok=True)
        disk, base = machine.directory / "disk.qcow2", image(configuration.image)
        if saved:
            copy(saved, base, disk)
            guest = _run(guest, ["-loadvm", TAG], RESTORED_SECONDS)
        else:
            if configuration.kind.drive(disk):
                overlay(base, disk)
            guest = _booted(guest)
            check_siblings(configuration, guest.login)
        # The snapshot knows neither its name nor what time it is now.
        guest.login.run(
            f"date -s @{time.time():.0f} && echo {guest.name} >/etc/hostname && hostname {guest.name}"
            f" && sed -i 's/^127.0.1.1 .*/127.0.1.1 {guest.name}/' /etc/hosts"
        )
    return guest


def _booted(guest: Guest) -> Guest:
    """Run a guest by a boot, which is tried again where it stands still."""
    kind = guest.configuration.kind
    for left in range(kind.attempts(guest.configuration.suite) if kind.boot_seconds else 0, 0, -1):
        try:
            return _run(guest, [], kind.boot_seconds)
        except LabError as error:
            say(f"{error}\nlab: {left} further attempts")
            guest.machine.stop()
    return _run(guest, [], guest.configuration.time_limit)


def _run(guest: Guest, more: list[str], time_limit: float) -> Guest:
    """Run a guest from its own disk, and return it with its port once it answers."""
    machine = guest.machine
    command = [*guest.configuration.command(machine.directory / "disk.qcow2"), *more]
    guest = dataclasses.replace(guest, port=machine.start(command, guest.port))
    remember(guest)
    if guest.pins:
        with monitor(machine.directory / "qmp.sock") as qemu:
            _pin(guest, qemu)
    guest.login.wait(timeout=time_limit)
    return guest


def remember(guest: Guest) -> None:
    """Write down how a guest was brought up, for the commands to come."""
    record = {
        "kind": guest.configuration.kind.name,
        "suite": guest.configuration.suite,
        "image": guest.configuration.image,
        "shape": str(guest.configuration.shape),
        "numbering": guest.configuration.numbering,
        "memory": guest.configuration.memory,
        "pins": list(guest.pins),
        "port": guest.port,
    }
    write_atomic(guest.machine.directory / "guest.json", json.dumps(record) + "\n")


def _pin(guest: Guest, qemu: Monitor) -> None:
    """Bind the host thread of each CPU to its host CPU; pins are given in the guest's own numbering."""
    vcpus = sorted(qemu.execute("query-cpus-fast"), key=lambda vcpu: vcpu["cpu-index"])
    if guest.configuration.numbering == "split":
        vcpus.sort(key=lambda vcpu: vcpu["props"]["thread-id"])
    for vcpu, host_cpu in zip(vcpus, guest.pins, strict=True):
        os.sched_setaffinity(vcpu["thread-id"], {host_cpu})
    _prefer(guest.machine, [vcpu["thread-id"] for vcpu in vcpus])


def _prefer(machine: Machine, threads: list[int]) -> None:
    """Put threads before what else this machine does, where this user may:
    only then pinned CPUs share a host CPU with each other, and with nobody else.

    Nice counts among the threads of one session alone where the kernel groups tasks by session
    (CONFIG_SCHED_AUTOGROUP), so the session's gets it, too.
    """
    with contextlib.suppress(OSError):
        for thread in threads:
            os.setpriority(os.PRIO_PROCESS, thread, PREFERENCE)
        pathlib.Path(f"/proc/{machine.pid()}/autogroup").write_text(str(PREFERENCE), encoding="ascii")
