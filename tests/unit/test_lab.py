# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the laboratory that need no guest."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import pathlib
import shlex
import struct
import subprocess
import sys

import pytest
import yaml
from hypothesis import given, strategies

# The laboratory is a program of its own: its files find each other as they do under `python tools/lab/lab.py`.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/lab"))
NAMES = ["archives", "common", "guest", "image", "inventory", "login", "lab", "machine", "madt", "kinds.registry"]
archives, common, guest, image, inventory, login, lab, machine, madt, registry = map(importlib.import_module, NAMES)
shape, snapshot = importlib.import_module("shape"), importlib.import_module("snapshot")

SHAPES = strategies.builds(shape.Shape, strategies.integers(1, 4), strategies.integers(1, 9), strategies.integers(1, 4))


def test_shapes_and_pins_that_do_not_fit_are_refused():
    """Also a shape beyond the APIC ids, of which 9 cores take 16 a socket."""
    assert shape.parse_shape("1x127x2").cpus == 254
    for text in ("", "0x2x2", "2x2x2\n", "٢x٢x٢", "9" * 5000 + "x1x1", "1x128x2", "9x9x2"):
        with pytest.raises(common.LabError, match="shape "):
            shape.parse_shape(text)
    assert shape.parse_pins("0,0,1,1", shape.Shape(1, 2, 2), {0, 1}) == [0, 0, 1, 1]
    for text in ("", "0,,1,1", "0-3", "0,0,1,1\n", "0,0,1,99999999", "0,0,1", "0,0,1,1,1", "0,0,1,7"):
        with pytest.raises(common.LabError, match="pin list"):
            shape.parse_pins(text, shape.Shape(1, 2, 2), {0, 1})


def qemu_madt(of: shape.Shape) -> bytes:
    """A MADT as QEMU lays it out: local APICs with siblings side by side, an I/O APIC, an override and an NMI line."""
    core_bits, thread_bits = shape.field_width(of.cores), shape.field_width(of.threads)
    places = itertools.product(range(of.sockets), range(of.cores), range(of.threads))
    ids = [(socket << core_bits | core) << thread_bits | thread for socket, core, thread in places]
    entries = [struct.pack("<BBBBI", 0, 8, uid, apic_id, 1) for uid, apic_id in enumerate(ids)]
    entries += map(bytes.fromhex, ("010c00000000c0fe00000000", "020a0000020000000000", "0406ff000001"))
    body = struct.pack("<II", 0xFEE00000, 1) + b"".join(entries)
    header = struct.pack("<4sIBB6s8sI4sI", b"APIC", 36 + len(body), 1, 0, b"BOCHS ", b"BXPC    ", 1, b"BXPC", 1)
    table = bytearray(header + body)
    table[9] = -sum(table) % 256
    return bytes(table)


def apic_ids(table: bytes) -> list[int]:
    """APIC ids in the order in which Linux numbers the CPUs."""
    ids, offset = [], 44
    while offset < len(table):
        if table[offset] == 0:
            ids.append(table[offset + 3])
        offset += table[offset + 1]
    return ids


@given(SHAPES)
def test_split_numbering_puts_first_threads_first_in_a_sound_newer_table_with_the_same_entries(of):
    table = qemu_madt(of)
    result = madt.split_numbering(table, of.threads)
    by_core: dict[int, list[int]] = {}
    for cpu, apic_id in enumerate(apic_ids(result)):
        by_core.setdefault(apic_id >> shape.field_width(of.threads), []).append(cpu)
    assert sorted(by_core.values()) == of.siblings("split")

    assert len(result) == len(table)
    assert sum(result) % 256 == 0
    assert struct.unpack_from("<I", result, 24)[0] == struct.unpack_from("<I", table, 24)[0] + 1
    assert sorted(apic_ids(result)) == sorted(apic_ids(table))
    assert result[-28:] == table[-28:], "the entries behind the local APICs"


def with_byte(table, place, value):
    """A table with another byte, and a right checksum."""
    changed = bytearray(table)
    changed[place] = value
    changed[9] = 0
    changed[9] = -sum(changed) % 256
    return bytes(changed)


def test_a_broken_table_is_refused():
    table = qemu_madt(shape.Shape(2, 2, 2))
    wrong_sum, no_length, beyond_the_end = table[:50] + b"\xff" + table[51:], (45, 0), (-5, 200)
    cut = (b"", table[:40], table[:-1], b"FACP" + table[4:])
    for broken in (*cut, wrong_sum, *(with_byte(table, *one) for one in (no_length, beyond_the_end))):
        with pytest.raises(common.LabError, match="/sys/firmware/acpi/tables/APIC"):
            madt.split_numbering(broken, 2)


MIRROR, VENDOR = "http://mirror.example/debian", "https://vendor.example/apt"


def test_sources_come_from_this_machines_debian_and_no_other_archive():
    lines = ("{0}/ bookworm main", "{0}/ bookworm contrib", "{0}-security/ bookworm-security main")
    targets = [
        *(line.format(MIRROR) for line in (lines[0], *lines)),
        f"{VENDOR} nodistro main",
        f"{VENDOR} x-pgdg main",
    ]
    for machine_suite, suite, expected in (
        ("bookworm", "trixie", ("{0}/ trixie main", "{0}-security/ trixie-security main")),
        ("bookworm", "bookworm-backports", (lines[0], "{0}/ bookworm-backports main", lines[2])),
        ("noble", "bookworm", ()),
    ):
        sources = "".join(f"deb {line.format(MIRROR)}\n" for line in expected)
        assert archives.suite_sources("\n".join([*targets, "nonsense"]), machine_suite, suite) == sources


@pytest.fixture(name="guests")
def a_directory_of_guests(tmp_path, monkeypatch):
    """A laboratory with a directory for one guest."""
    for module in (guest, machine):
        monkeypatch.setattr(module, "GUESTS", tmp_path / "guests")
    (tmp_path / "guests/one").mkdir(parents=True)
    return tmp_path / "guests"


@pytest.fixture(name="process")
def a_process(tmp_path):
    """Start a process with this name and a further argument; it ends with the test."""
    with contextlib.ExitStack() as ends:

        def start(name, argument):
            command = [name, "-c", "print('up', flush=True); input()", argument]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            one = ends.enter_context(subprocess.Popen(command, executable=sys.executable, cwd=tmp_path, **pipes))
            ends.callback(one.kill)
            assert one.stdout.readline() == b"up\n"
            return one

        yield start


def test_a_machine_is_found_and_ended_by_its_pid_file_and_a_process_that_got_its_id_since_is_left_alone(
    guests, process
):
    one = machine.Machine(guests / "one")
    running = process("qemu-system-x86_64", str(one.pidfile))
    one.pidfile.write_text(f"{running.pid}\n", encoding="ascii")
    assert one.pid() == running.pid and one.stop() is True and running.wait() != 0
    for name, its_pid_file in (("an-editor", "one/pid"), ("qemu-system-x86_64", "another/pid")):
        other_process = process(name, str(guests / its_pid_file))
        one.pidfile.write_text(f"{other_process.pid}\n", encoding="ascii")
        assert one.pid() is None and one.stop() is False and other_process.poll() is None


def test_the_inventory_is_yaml_that_says_how_to_reach_each_guest(monkeypatch):
    monkeypatch.setattr(image, "CACHE", pathlib.Path('/a b/"c": {{ d }}'))
    grub = registry.kind_of("grub")
    of_guest = snapshot.Configuration(grub, "bookworm", "grub-bookworm-1", shape.Shape(2, 2, 2), "split", 768)
    guests = [guest.Guest("one", of_guest, (), 4711), guest.Guest("two", of_guest, (), 4712)]
    hosts = yaml.safe_load(inventory.inventory(guests))["lab"]["hosts"]
    assert {name: variables["ansible_port"] for name, variables in hosts.items()} == {"one": 4711, "two": 4712}
    place = image.CACHE / "grub-bookworm-1"
    asked = {"ansible_host": "127.0.0.1", "lab_kind": "grub", "lab_shape": "2x2x2", "lab_numbering": "split"}
    assert {name: hosts["one"][name] for name in asked} == asked
    assert hosts["one"]["ansible_ssh_private_key_file"] == str(place / "id_ed25519")
    assert shlex.split(hosts["one"]["ansible_ssh_common_args"]) == login.ssh_options(place)


@pytest.mark.parametrize(
    "arguments",
    [
        *("up --shape 2x2", "up --kind power --suite trixie", "up --kind arm64 --numbering split", "up --name ../x"),
        *("up --name A", "up --name a-", "up --pin 0", "up --memory 12", "up --kind power-bare --memory 768"),
        *("reset --name nobody", "down --name /", "console nobody", "forward nobody 80", "install nobody nginx-light"),
        # Its record is damaged.
        "reset --name one",
    ],
)
def test_a_wrong_command_line_ends_with_a_sentence(guests, arguments, capsys):
    (guests / "one/guest.json").write_text("{}", encoding="utf-8")
    assert lab.main(arguments.split()) == 1
    assert capsys.readouterr().err.startswith("lab: ")
    assert [one.directory.name for one in machine.machines()] == ["one"]
