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

# The laboratory is a program beside the collection: its files find each other as they do under `python lab/lab.py`.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))
NAMES = ["archives", "common", "guest", "image", "inventory", "login", "lab", "machine", "madt", "kinds.registry"]
archives, common, guest, image, inventory, login, lab, machine, madt, registry = map(importlib.import_module, NAMES)
shape, snapshot = importlib.import_module("shape"), importlib.import_module("snapshot")

SHAPES = strategies.builds(shape.Shape, strategies.integers(1, 4), strategies.integers(1, 9), strategies.integers(1, 4))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "for example 2x2x2") for text in ("", "2x2", "0x2x2", "axbxc", "2x2x2\n", "1e9x1x1", "٢x٢x٢")),
        ("9" * 5000 + "x1x1", "for example 2x2x2"),
        ("1x128x2", "APIC ids up to 255"),
        # 9 cores take 16 ids a socket, so this is out of reach although 162 CPUs would not be.
        ("9x9x2", "take fewer CPUs"),
    ],
)
def test_what_is_no_shape_is_refused(text, reason):
    assert shape.parse_shape("1x127x2").cpus == 254
    with pytest.raises(common.LabError, match=reason):
        shape.parse_shape(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "is not a list") for text in ("", "0,,1,1", "0-3", "0,0,1,x", "0,0,1,1\n", "0,0,1,99999999")),
        ("0,0,1", "names 3 host CPUs"),
        ("0,0,1,1,1", "names 5 host CPUs"),
        ("0,0,1,7", "host CPU 7"),
    ],
)
def test_pins_that_do_not_fit_are_refused(text, reason):
    with pytest.raises(common.LabError, match=reason):
        shape.parse_pins(text, shape.Shape(1, 2, 2), {0, 1})


def qemu_madt(of: shape.Shape) -> bytes:
    """A MADT as QEMU lays it out: local APICs with siblings side by side, then an I/O APIC,
    an override and an NMI line.
    """
    core_bits, thread_bits = shape.field_width(of.cores), shape.field_width(of.threads)
    places = itertools.product(range(of.sockets), range(of.cores), range(of.threads))
    entries = [
        struct.pack("<BBBBI", 0, 8, uid, (socket << core_bits | core) << thread_bits | thread, 1)
        for uid, (socket, core, thread) in enumerate(places)
    ]
    entries += [
        bytes.fromhex("010c00000000c0fe00000000"),
        bytes.fromhex("020a0000020000000000"),
        bytes.fromhex("0406ff000001"),
    ]
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


def test_a_machine_is_found_and_ended_by_its_pid_file(guests, process):
    one = machine.Machine(guests / "one")
    running = process("qemu-system-x86_64", str(one.pidfile))
    one.pidfile.write_text(f"{running.pid}\n", encoding="ascii")
    assert one.pid() == running.pid and one.stop() is True and running.wait() != 0


@pytest.mark.parametrize(
    ("talks", "silence", "timeout", "reason"),
    [(True, 3600, 0.3, "no ssh within 0 s"), (False, 0.3, 3600, "neither ssh nor a word on its console for 0.3 s")],
)
def test_a_guest_that_stands_still_is_given_up_before_one_that_only_takes_long(
    guests, process, monkeypatch, talks, silence, timeout, reason
):
    one = machine.Machine(guests / "one")
    one.pidfile.write_text(f"{process('qemu-system-x86_64', str(one.pidfile)).pid}\n", encoding="ascii")
    one.console.write_text("a boot\n", encoding="ascii")

    def no_answer(_login, command, timeout):
        if talks:
            with open(one.console, "a", encoding="ascii") as console:
                console.write(f"{command}, {timeout}\n")
        raise common.LabError("no answer")

    monkeypatch.setattr(login, "SILENCE", silence)
    monkeypatch.setattr(login.Login, "run", no_answer)
    with pytest.raises(common.LabError, match=f"did not come up: {reason}(?s:.*)a boot"):
        login.Login(one, guests, 1).wait(timeout)


@pytest.mark.parametrize(("name", "its_pid_file"), [("an-editor", "one/pid"), ("qemu-system-x86_64", "another/pid")])
def test_a_process_that_got_the_id_of_a_machine_since_is_left_alone(guests, process, name, its_pid_file):
    one = machine.Machine(guests / "one")
    other_process = process(name, str(guests / its_pid_file))
    one.pidfile.write_text(f"{other_process.pid}\n", encoding="ascii")
    assert one.pid() is None and one.stop() is False and other_process.poll() is None


@pytest.mark.parametrize("content", ["", "nonsense", "-1", "0", "99999999999999999999"])
def test_a_pid_file_that_says_nothing_is_no_machine(guests, content):
    one = machine.Machine(guests / "one")
    one.pidfile.write_text(content, encoding="ascii")
    assert one.pid() is None and one.stop() is False


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a-", "A", "a\n", "ä", "a" * 51])
def test_a_name_that_is_no_host_name_is_refused(name):
    with pytest.raises(common.LabError, match="is no host name"):
        guest.check_name(name)


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"kind": "grub", "suite": "bookworm", "image": "i", "shape": 7}'])
def test_a_damaged_record_names_its_file_and_the_way_out(guests, record):
    (guests / "one" / "guest.json").write_text(record, encoding="utf-8")
    with pytest.raises(common.LabError, match=r"guest\.json is damaged.*lab\.py down --name one"):
        guest.load("one")


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
        ["up", "--shape", "2x2"],
        ["up", "--kind", "power", "--suite", "trixie"],
        ["up", "--kind", "arm64", "--numbering", "split"],
        ["up", "--name", "../x"],
        ["up", "--pin", "0"],
        ["up", "--memory", "12"],
        ["up", "--kind", "power-bare", "--memory", "768"],
        ["reset", "--name", "nobody"],
        ["down", "--name", "/"],
        ["console", "nobody"],
        ["forward", "nobody", "80"],
        ["forward", "nobody", "65536"],
        ["install", "nobody", "nginx-light"],
    ],
)
def test_a_wrong_command_line_ends_with_a_sentence(guests, arguments, capsys):
    assert lab.main(arguments) == 1
    assert capsys.readouterr().err.startswith("lab: ")
    assert [one.directory.name for one in machine.machines()] == ["one"]
