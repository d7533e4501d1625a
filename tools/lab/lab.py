# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The laboratory's command line: guests with real SMT, grub and reboots,
on a machine that need not have any of them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys

import emulator
import rootfs
from common import STATE, LabError, need_packages, say, write_atomic
from guest import Guest, check_name, cut, down, forward, load, reset, up
from image import need_image
from inventory import inventory
from kinds.registry import DEFAULT, KINDS, kind_of
from machine import machines
from packages import install
from shape import parse_pins, parse_shape
from snapshot import Configuration


def main(arguments: list[str]) -> int:
    """Run one command; the exit code is 0, or 1 with a message."""
    options = parser().parse_args(arguments)
    # As Ctrl-C: what is under way is cleaned up on the way out.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        options.command(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; `lab.py status` shows what is up", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    result = argparse.ArgumentParser(prog="lab.py", description=__doc__)
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("up", help="bring guests up and write their inventory")
    command.set_defaults(command=bring_up)
    command.add_argument(
        "--name", action="append", default=[], help="a guest (repeatable); default: smt-adjacent and smt-split"
    )
    command.add_argument("--shape", default="2x2x2", help="SOCKETSxCORESxTHREADS (default %(default)s)")
    command.add_argument(
        "--numbering",
        choices=sorted({numbering for kind in KINDS.values() for numbering in kind.numberings}),
        help=(
            "how CPUs are numbered: siblings side by side, or first threads first; default: as smt-adjacent and"
            " smt-split say, adjacent for other names"
        ),
    )
    command.add_argument(
        "--kind",
        choices=KINDS,
        default=DEFAULT,
        help="the kind of machine (default %(default)s): "
        + "; ".join(f"{kind.name}: {kind.title}" for kind in KINDS.values()),
    )
    command.add_argument("--suite", help="Debian suite; default: the first of those that the kind has")
    command.add_argument("--memory", type=int, metavar="MB", help="default: 640 MB and 16 MB a CPU")
    command.add_argument(
        "--pin",
        metavar="LIST",
        help="the host CPU for each CPU of the guest, e.g. 0,0,1,1: those on one host CPU contend as siblings do",
    )
    command.add_argument(
        "--inventory",
        type=pathlib.Path,
        default=STATE / "inventory.yml",
        metavar="FILE",
        help="where to write the inventory of these guests (default .lab/inventory.yml)",
    )

    command = commands.add_parser("reset", help="put guests back to the clean state they were brought up with")
    command.set_defaults(command=restore)
    command.add_argument("--name", action="append", required=True)

    command = commands.add_parser("cut", help="cut guests' power, and boot them again from their own disks")
    command.set_defaults(command=cut_power)
    command.add_argument("--name", action="append", required=True)

    command = commands.add_parser("install", help="install further Debian packages in a guest")
    command.set_defaults(command=install_packages)
    command.add_argument("name")
    command.add_argument("package", nargs="+")

    command = commands.add_parser(
        "forward", help="print a loopback port that leads to a TCP port of a guest, until it is reset, cut or down"
    )
    command.set_defaults(command=open_port)
    command.add_argument("name")
    command.add_argument("port", type=int)

    command = commands.add_parser("down", help="end guests")
    command.set_defaults(command=take_down)
    command.add_argument("--name", action="append", help="a guest (repeatable); default: all of this working tree")

    command = commands.add_parser("status", help="show the guests")
    command.set_defaults(command=show_status)

    command = commands.add_parser("console", help="print what a guest's console said since its start")
    command.set_defaults(command=show_console)
    command.add_argument("name")
    return result


def bring_up(options: argparse.Namespace) -> None:
    """The command ``up``."""
    shape = parse_shape(options.shape)
    pins = tuple(parse_pins(options.pin, shape, os.sched_getaffinity(0))) if options.pin else ()
    names = [check_name(name) for name in options.name or ["smt-adjacent", "smt-split"]]
    kind = kind_of(options.kind)
    if options.memory is not None and options.memory < kind.least_memory:
        raise LabError(f"--memory {options.memory}: a guest of kind {kind.name} needs {kind.least_memory} MB to boot")
    suite = options.suite or kind.suites[0]
    numberings = {name: options.numbering or ("split" if name == "smt-split" else "adjacent") for name in names}
    kind.check(suite, shape, numberings.values())
    need_packages(*emulator.HOST_PACKAGES, *rootfs.HOST_PACKAGES, *kind.host_packages)
    image = need_image(kind, suite)
    memory = options.memory or max(shape.memory, kind.least_memory)
    guests = [
        up(Guest(name, Configuration(kind, suite, image, shape, numberings[name], memory), pins)) for name in names
    ]
    write_atomic(options.inventory, inventory(guests))
    say(f"inventory: {options.inventory}")


def restore(options: argparse.Namespace) -> None:
    """The command ``reset``."""
    for name in options.name:
        reset(check_name(name))


def cut_power(options: argparse.Namespace) -> None:
    """The command ``cut``."""
    for name in options.name:
        cut(check_name(name))


def install_packages(options: argparse.Namespace) -> None:
    """The command ``install``."""
    install(load_or_fail(options.name), options.package)


def open_port(options: argparse.Namespace) -> None:
    """The command ``forward``."""
    if not 0 < options.port < 65536:
        raise LabError(f"{options.port} is no TCP port: 1 to 65535")
    print(forward(check_name(options.name), options.port))


def take_down(options: argparse.Namespace) -> None:
    """The command ``down``."""
    # Machines that are being prepared have names that no guest can have, and belong to "all".
    for name in (
        [check_name(name) for name in options.name]
        if options.name
        else [machine.directory.name for machine in machines()]
    ):
        down(name)


def show_status(_options: argparse.Namespace) -> None:
    """The command ``status``."""
    for machine in machines():
        guest = load(machine.directory.name)
        pid = machine.pid()
        state = f"up, process {pid}" if pid else "not running"
        print(
            f"{machine.directory.name}: {state}"
            + (f", {guest.configuration}, ssh port {guest.port}" if guest else ", being prepared")
        )


def show_console(options: argparse.Namespace) -> None:
    """The command ``console``."""
    sys.stdout.write(load_or_fail(options.name).machine.console_text())


def load_or_fail(name: str) -> Guest:
    """The guest of that name.

    Raises:
        LabError: there is none.
    """
    guest = load(check_name(name))
    if not guest:
        raise LabError(f"there is no guest {name!r}: `lab.py status` shows those that are")
    return guest


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
