# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the laboratory that need no guest."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import types

import pytest
import yaml
from hypothesis import given, strategies

# The laboratory is a program beside the collection: its files find each other as they do under `python lab/lab.py`.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))
(
    archives,
    base,
    common,
    direct,
    emulator,
    guest,
    image,
    inventory,
    lab,
    login,
    machine,
    madt,
    newc,
    packages,
    registry,
    rootfs,
    shape,
    snapshot,
) = (
    importlib.import_module(name)
    for name in (
        "archives",
        "kinds.base",
        "common",
        "kinds.direct",
        "emulator",
        "guest",
        "image",
        "inventory",
        "lab",
        "login",
        "machine",
        "madt",
        "newc",
        "packages",
        "kinds.registry",
        "rootfs",
        "shape",
        "snapshot",
    )
)

SHAPES = strategies.builds(shape.Shape, strategies.integers(1, 4), strategies.integers(1, 9), strategies.integers(1, 4))


# Shapes and pins


def test_a_shape_is_three_numbers():
    assert shape.parse_shape("2x9x2") == shape.Shape(2, 9, 2)
    assert shape.parse_shape("2x9x2").smp == "36,sockets=2,cores=9,threads=2"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2x2",
        "2x2x2x2",
        "0x2x2",
        "2x-1x2",
        "axbxc",
        "2x2x2\n",
        " 2x2x2",
        "2X2X2",
        "1e9x1x1",
        "٢x٢x٢",
        "9" * 5000 + "x1x1",
    ],
)
def test_what_is_no_shape_is_refused_with_an_example(text):
    with pytest.raises(common.LabError, match="for example 2x2x2"):
        shape.parse_shape(text)


def test_a_shape_beyond_the_apic_ids_is_refused():
    assert shape.parse_shape("1x127x2").cpus == 254
    with pytest.raises(common.LabError, match="APIC ids up to 255"):
        shape.parse_shape("1x128x2")
    # 9 cores take 16 ids a socket, so this is out of reach although 162 CPUs would not be.
    with pytest.raises(common.LabError, match="take fewer CPUs"):
        shape.parse_shape("9x9x2")


def test_siblings_of_a_d2_8xl():
    assert shape.Shape(2, 9, 2).siblings("split") == [[cpu, cpu + 18] for cpu in range(18)]
    assert shape.Shape(2, 2, 2).siblings("adjacent") == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_pins_name_a_host_cpu_for_each_cpu():
    assert shape.parse_pins("0,0,1,1", shape.Shape(1, 2, 2), {0, 1}) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a list"),
        ("0,,1,1", "is not a list"),
        ("0-3", "is not a list"),
        ("0,0,1,x", "is not a list"),
        ("0,0,1,1\n", "is not a list"),
        ("0,0,1", "names 3 host CPUs"),
        ("0,0,1,1,1", "names 5 host CPUs"),
        ("0,0,1,7", "may not run on host CPU 7"),
        ("0,0,1,99999999", "is not a list"),
    ],
)
def test_pins_that_do_not_fit_are_refused(text, reason):
    with pytest.raises(common.LabError, match=reason):
        shape.parse_pins(text, shape.Shape(1, 2, 2), {0, 1})


# The MADT


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
def test_split_numbering_puts_first_threads_first_whatever_the_gaps_between_apic_ids(of):
    table = qemu_madt(of)
    result = madt.split_numbering(table, of.threads)
    by_core: dict[int, list[int]] = {}
    for cpu, apic_id in enumerate(apic_ids(result)):
        by_core.setdefault(apic_id >> shape.field_width(of.threads), []).append(cpu)
    assert sorted(by_core.values()) == of.siblings("split")


@given(SHAPES)
def test_split_numbering_leaves_a_sound_newer_table_with_the_same_entries(of):
    table = qemu_madt(of)
    result = madt.split_numbering(table, of.threads)
    assert len(result) == len(table)
    assert sum(result) % 256 == 0
    assert struct.unpack_from("<I", result, 24)[0] == struct.unpack_from("<I", table, 24)[0] + 1
    assert sorted(apic_ids(result)) == sorted(apic_ids(table))
    assert result[-28:] == table[-28:], "the entries behind the local APICs"


def mended(table: bytearray) -> bytes:
    """The table with a right checksum."""
    table[9] = 0
    table[9] = -sum(table) % 256
    return bytes(table)


def test_a_broken_table_is_refused():
    table = qemu_madt(shape.Shape(2, 2, 2))
    no_length = bytearray(table)
    no_length[45] = 0
    beyond_the_end = bytearray(table)
    beyond_the_end[-5] = 200
    for broken in (
        b"",
        table[:40],
        table[:-1],
        b"FACP" + table[4:],
        table[:50] + b"\xff" + table[51:],
        mended(no_length),
        mended(beyond_the_end),
    ):
        with pytest.raises(common.LabError, match="/sys/firmware/acpi/tables/APIC"):
            madt.split_numbering(broken, 2)


def members(archive: bytes) -> dict[str, bytes]:
    """What a reader of newc archives finds: names and contents up to the trailer."""
    found, offset = {}, 0
    while "TRAILER!!!" not in found:
        assert archive[offset : offset + 6] == b"070701"
        size, name_size = (int(archive[offset + start : offset + start + 8], 16) for start in (54, 94))
        name = archive[offset + 110 : offset + 110 + name_size]
        begin = offset + 110 + name_size + -(110 + name_size) % 4
        found[name.rstrip(b"\0").decode()] = archive[begin : begin + size]
        offset = begin + size + -size % 4
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4, 236])
def test_the_early_initrd_holds_the_table_where_the_kernel_looks(size):
    archive = madt.early_initrd(b"x" * size)
    assert members(archive)["kernel/firmware/acpi/apic.aml"] == b"x" * size
    assert len(archive) % 4 == 0


# Image and snapshot


GRUB = registry.kind_of("grub")


def configured(numbering="adjacent", key="grub-bookworm-1", threads=2):
    """A configuration of a grub guest."""
    return snapshot.Configuration(GRUB, "bookworm", key, shape.Shape(2, 2, threads), numbering, 768)


@pytest.fixture(name="recipe")
def a_recipe(tmp_path, monkeypatch):
    """A copy of the recipe that a test may change."""
    copied = pathlib.Path(shutil.copytree(common.RECIPE, tmp_path / "recipe"))
    monkeypatch.setattr(base, "RECIPE", copied)
    return copied


@pytest.mark.parametrize("kind", registry.KINDS.values(), ids=registry.KINDS)
def test_the_image_key_follows_what_the_image_is_made_of(recipe, kind):
    key = kind.key("bookworm")
    assert key == kind.key("bookworm") and key.startswith(f"{kind.image_name or kind.name}-bookworm-")
    assert key != kind.key("trixie")
    for folder in recipe.iterdir():
        for path in folder.iterdir():
            before = kind.key("bookworm")
            path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
            assert (kind.key("bookworm") != before) == (folder.name in ("common", kind.recipe)), path.name


def test_the_image_key_follows_the_code_that_builds_it():
    names = {kind.name: {path.name for path in kind.sources()} for kind in registry.KINDS.values()}
    assert {"grub.py", "madt.py", "rootfs.py", "install-grub.sh"} <= names["grub"]
    assert {"direct.py", "rootfs.py", "second-stage.sh"} <= names["power"]
    assert len({kind.key("bookworm") for kind in registry.KINDS.values()}) == len(registry.KINDS) - 1, (
        "two have one image"
    )


def test_the_package_lists_hold_names_only():
    names = rootfs.packages("common", "grub", "systemd-boot", "direct")
    assert {"grub-pc", "openssh-server", "sysbench", "systemd-boot"} <= set(names)
    assert not [name for name in names if "#" in name or " " in name or "," in name]


@pytest.mark.parametrize(
    ("kind", "suite", "wanted", "numbering", "reason"),
    [
        ("power", "trixie", "1x2x4", "adjacent", "cannot have the suite trixie: choose from bookworm"),
        ("power-bare", "bookworm", "1x2x8", "adjacent", "cannot have 8 threads a core: choose from 1, 2, 4"),
        ("power", "bookworm", "1x2x3", "adjacent", "cannot have 3 threads a core"),
        ("arm64", "bookworm", "1x2x2", "split", "cannot have the numbering split: choose from adjacent"),
    ],
)
def test_what_a_kind_cannot_be_is_refused_by_its_name(kind, suite, wanted, numbering, reason):
    with pytest.raises(common.LabError, match=f"a guest of kind {kind} {reason}"):
        registry.kind_of(kind).check(suite, shape.parse_shape(wanted), [numbering])


@pytest.mark.parametrize("kind", registry.KINDS.values(), ids=registry.KINDS)
def test_a_kind_says_what_it_is(kind):
    assert kind.title and kind.suites and kind.numberings[0] == "adjacent"
    command = kind.machine(shape.Shape(1, 2, 2), 1024)
    assert command[command.index("-smp") + 1] == "4,sockets=1,cores=2,threads=2" and "netdev=net" in " ".join(command)
    assert ",," in " ".join(kind.drive(pathlib.Path("/a,b/disk.qcow2")))


def test_a_kind_can_have_the_image_of_another_one():
    assert registry.kind_of("power-bare").key("bookworm") == registry.kind_of("power").key("bookworm")


def test_a_kind_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(common.LabError, match="choose from grub, systemd-boot, power, power-bare, arm64"):
        registry.kind_of("mips")


def test_modules_come_after_those_that_they_need(tmp_path, monkeypatch):
    modules = tmp_path / "lib" / "modules" / "6.12"
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text(
        "kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz"
        " kernel/fs/jbd2/jbd2.ko.xz\nkernel/lib/crc16.ko.xz:\n"
        "kernel/drivers/char/hw_random/virtio-rng.ko.xz:\nkernel/other.ko.xz:"
        " kernel/lib/crc16.ko.xz\n",
        encoding="ascii",
    )
    asked = []
    monkeypatch.setattr(direct, "run", asked.append)
    assert [str(path.relative_to(modules / "kernel")) for path in direct.in_order(modules)] == [
        "fs/jbd2/jbd2.ko.xz",
        "fs/mbcache.ko.xz",
        "lib/crc16.ko.xz",
        "fs/ext4/ext4.ko.xz",
        "drivers/char/hw_random/virtio-rng.ko.xz",
    ]
    assert asked == [["depmod", "--basedir", str(tmp_path), "6.12"]]


def test_sources_come_from_this_machines_debian_and_no_other_archive():
    targets = (
        "http://mirror.example/debian/ bookworm main\nhttp://mirror.example/debian/ bookworm"
        " main\nhttp://mirror.example/debian/ bookworm contrib\nhttp://mirror.example/debian-security/"
        " bookworm-security main\nhttps://vendor.example/apt bookworm-pgdg main\nhttps://vendor.example/apt nodistro"
        " main\nnonsense\n"
    )
    assert (
        archives.suite_sources(targets, "bookworm", "trixie")
        == "deb http://mirror.example/debian/ trixie main\ndeb http://mirror.example/debian-security/ trixie-security"
        " main\n"
    )
    assert archives.suite_sources(targets, "noble", "bookworm") == ""
    assert (
        archives.suite_sources(targets, "bookworm", "bookworm-backports")
        == "deb http://mirror.example/debian/ bookworm main\ndeb http://mirror.example/debian/ bookworm-backports"
        " main\n"
        "deb http://mirror.example/debian-security/ bookworm-security main\n"
    )


def test_a_tool_that_takes_one_archive_gets_the_one_of_the_suite(monkeypatch):
    monkeypatch.setattr(
        archives,
        "machine_sources",
        lambda suite: f"deb http://s.example/ {suite}-security main\ndeb http://m.example/ {suite} main\n",
    )
    assert archives.first_archive("trixie") == "http://m.example/"
    monkeypatch.setattr(archives, "machine_sources", lambda suite: "")
    with pytest.raises(common.LabError, match="made on a Debian"):
        archives.first_archive("trixie")


def test_only_options_that_reach_an_archive_go_into_the_build():
    dump = (
        'Acquire::Languages "none";\nAcquire::http::Proxy "http://proxy.example:3128";\nAcquire::https'
        ' "";\nAcquire::Check-Valid-Until "false";\nAcquire::IndexTargets::deb::Packages::ShortDescription'
        ' "Packages";\nDPkg::Post-Invoke:: "rm -f /x";\n'
    )
    assert (
        archives.apt_options(dump)
        == 'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Check-Valid-Until "false";\n'
    )


def test_a_snapshot_key_follows_everything_its_memory_depends_on():
    configurations = [configured("split"), configured("split", "grub-bookworm-2"), configured(), configured(threads=4)]
    keys = [snapshot.snapshot_key(one, ["-m", "768"], "7.2") for one in configurations]
    keys += [
        snapshot.snapshot_key(configurations[0], ["-m", "900"], "7.2"),
        snapshot.snapshot_key(configurations[0], ["-m", "768"], "7.3"),
    ]
    assert len(set(keys)) == len(keys)


# Guests, processes, files


@pytest.fixture(name="guests")
def a_directory_of_guests(tmp_path, monkeypatch):
    """An empty laboratory."""
    for module in (guest, machine):
        monkeypatch.setattr(module, "GUESTS", tmp_path / "guests")
    return tmp_path / "guests"


@pytest.fixture(name="process")
def a_process(tmp_path):
    """Start a process with this name and a further argument; it ends with the test."""
    started = []

    def start(name, argument):
        command = [name, "-c", "print('up', flush=True); input()", argument]
        started.append(
            subprocess.Popen(
                command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
            )
        )
        assert started[-1].stdout.readline() == b"up\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_machine_is_found_and_ended_by_its_pid_file(guests, process):
    one = machine.Machine(guests / "one")
    one.directory.mkdir(parents=True)
    running = process("qemu-system-x86_64", str(one.pidfile))
    one.pidfile.write_text(f"{running.pid}\n", encoding="ascii")
    assert one.pid() == running.pid
    assert one.stop() is True
    assert running.wait() != 0


@pytest.mark.parametrize(
    ("talks", "silence", "timeout", "reason"),
    [(True, 3600, 0.3, "no ssh within 0 s"), (False, 0.3, 3600, "neither ssh nor a word on its console for 0.3 s")],
)
def test_a_guest_that_stands_still_is_given_up_before_one_that_only_takes_long(
    guests, process, monkeypatch, talks, silence, timeout, reason
):
    one = machine.Machine(guests / "one")
    one.directory.mkdir(parents=True)
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


def test_a_boot_that_stands_still_is_tried_again(guests, monkeypatch):
    booted = []

    def boot(_kind, _base, its_machine, disk):
        its_machine.directory.mkdir(parents=True)
        booted.append(its_machine.directory)
        if len(booted) < 3:
            raise common.LabError("it stands still")
        disk.write_text("booted", encoding="ascii")

    monkeypatch.setattr(snapshot, "GUESTS", guests)
    monkeypatch.setattr(snapshot, "_boot_and_save", boot)
    monkeypatch.setattr(type(GRUB), "emulator", lambda self, suite: types.SimpleNamespace(version="QEMU 7.2"))
    monkeypatch.setattr(type(GRUB), "machine", lambda self, of, memory: [])
    monkeypatch.setattr(snapshot, "image", lambda key: guests / key)
    (guests / "grub-bookworm-1" / "snapshots").mkdir(parents=True)
    made = snapshot.snapshot(configured())
    assert made.read_text(encoding="ascii") == "booted" and len(booted) == 3 and not booted[0].exists()
    booted.clear()
    monkeypatch.setattr(type(GRUB), "attempts", lambda self, suite: 2)
    with pytest.raises(common.LabError, match="stands still"):
        snapshot.snapshot(configured("split"))
    assert len(booted) == 2


@pytest.mark.parametrize(("name", "its_pid_file"), [("an-editor", "one/pid"), ("qemu-system-x86_64", "another/pid")])
def test_a_process_that_got_the_id_of_a_machine_since_is_left_alone(guests, process, name, its_pid_file):
    one = machine.Machine(guests / "one")
    one.directory.mkdir(parents=True)
    other_process = process(name, str(guests / its_pid_file))
    one.pidfile.write_text(f"{other_process.pid}\n", encoding="ascii")
    assert one.pid() is None
    assert one.stop() is False
    assert other_process.poll() is None


@pytest.mark.parametrize("content", ["", "nonsense", "-1", "0", "99999999999999999999", "4194305"])
def test_a_pid_file_that_says_nothing_is_no_machine(guests, content):
    one = machine.Machine(guests / "one")
    one.directory.mkdir(parents=True)
    one.pidfile.write_text(content, encoding="ascii")
    assert one.pid() is None
    assert one.stop() is False


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a-", "A", "a b", "a\n", ".hidden", "ä", "a" * 51])
def test_a_name_that_is_no_host_name_is_refused(name):
    with pytest.raises(common.LabError, match="is no host name"):
        guest.check_name(name)


def test_a_guest_is_remembered_as_it_was_brought_up(guests):
    one = guest.Guest("one", configured("split"), (0, 0, 1, 1), 4711)
    assert guest.load("one") is None
    guest.remember(one)
    assert guest.load("one") == one
    assert [found.directory for found in machine.machines()] == [guests / "one"]


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[]",
        "{}",
        "null",
        json.dumps(
            {
                "kind": "grub",
                "suite": "bookworm",
                "image": "i",
                "shape": 7,
                "numbering": "split",
                "memory": 1,
                "pins": [],
                "port": 1,
            }
        ),
        json.dumps(
            {
                "kind": "grub",
                "suite": "bookworm",
                "image": "i",
                "shape": "x",
                "numbering": "split",
                "memory": 1,
                "pins": [],
                "port": 1,
            }
        ),
        json.dumps(
            {
                "kind": "mips",
                "suite": "bookworm",
                "image": "i",
                "shape": "2x2x2",
                "numbering": "split",
                "memory": 1,
                "pins": [],
                "port": 1,
            }
        ),
    ],
)
def test_a_damaged_record_names_its_file_and_the_way_out(guests, record):
    (guests / "one").mkdir(parents=True)
    (guests / "one" / "guest.json").write_text(record, encoding="utf-8")
    with pytest.raises(common.LabError, match=r"guest\.json is damaged.*lab\.py down --name one"):
        guest.load("one")


def test_the_inventory_is_yaml_that_says_how_to_reach_each_guest(monkeypatch):
    monkeypatch.setattr(image, "CACHE", pathlib.Path('/a b/"c": {{ d }}'))
    one = configured("split")
    hosts = yaml.safe_load(inventory.inventory([guest.Guest("one", one, (), 4711), guest.Guest("two", one, (), 4712)]))[
        "lab"
    ]["hosts"]
    assert {name: variables["ansible_port"] for name, variables in hosts.items()} == {"one": 4711, "two": 4712}
    assert hosts["one"]["ansible_host"] == "127.0.0.1"
    assert (
        hosts["one"]["lab_kind"] == "grub"
        and hosts["one"]["lab_shape"] == "2x2x2"
        and hosts["one"]["lab_numbering"] == "split"
    )
    assert hosts["one"]["ansible_ssh_private_key_file"] == str(image.CACHE / "grub-bookworm-1" / "id_ed25519")
    assert shlex.split(hosts["one"]["ansible_ssh_common_args"]) == login.ssh_options(image.CACHE / "grub-bookworm-1")


def test_one_run_at_a_time_holds_a_lock(tmp_path):
    order = []
    first_has_it = threading.Event()

    def first():
        with common.locked(tmp_path / "lock", "a test"):
            first_has_it.set()
            # The other one has begun to wait when it says so; it cannot be past the lock while this one is inside.
            waiting.wait(timeout=600)
            order.append("first")

    waiting = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    assert first_has_it.wait(timeout=600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "say", lambda text: waiting.set())
        with common.locked(tmp_path / "lock", "a test"):
            order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    common.write_atomic(tmp_path / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        common.write_atomic(tmp_path / "file", "\udcff")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("file", "old")]


def test_a_tool_that_fails_is_named_with_its_last_lines():
    with pytest.raises(common.LabError, match=r"sh failed with exit code 3:\n    why"):
        common.run(["sh", "-c", "echo why >&2; exit 3"])


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
    assert not machine.machines()


# Ports and packages of a running guest


class Qemu:
    """QEMU's user network, as its monitor shows it."""

    def __init__(self):
        self.forwards = [(22, 40022)]

    def human(self, line):
        if line.startswith("hostfwd_add"):
            assert line == "hostfwd_add net tcp:127.0.0.1:0-:80"
            self.forwards.append((80, 40080))
            return ""
        rows = "".join(
            f"  TCP[HOST_FORWARD]  {9 + port}       127.0.0.1 {host}      10.0.2.15  {port}     0     0\n"
            for port, host in self.forwards
        )
        return f"Hub -1 (net):\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n{rows}"


def test_a_port_of_a_guest_is_opened_once(monkeypatch, tmp_path):
    qemu = Qemu()

    @contextlib.contextmanager
    def monitor(_path):
        yield qemu

    monkeypatch.setattr(machine, "monitor", monitor)
    one = machine.Machine(tmp_path)
    assert [one.forward(port) for port in (80, 22, 80)] == [40080, 40022, 40080] and len(qemu.forwards) == 2


class Login:
    """A guest that has one package, and keeps what is sent to it."""

    def __init__(self):
        self.sent = []

    def run(self, command, sent=b"", timeout=120):
        self.sent.append((command, sent))
        return b"Package: base\nStatus: install ok installed\nVersion: 1\n\n"


@pytest.fixture(name="of_guest")
def a_guest(monkeypatch, tmp_path):
    """A guest, and what apt is asked for; the second time it fetches a package."""
    login_of_guest, asked = Login(), []

    def run(command, cwd=None):
        if command[0] == "apt-config":
            return types.SimpleNamespace(stdout="")
        configuration = pathlib.Path(command[1].partition("=")[2])
        assert (configuration.parent / "status").read_bytes().startswith(b"Package: base")
        asked.append(command[2:])
        if command[-1] != "update" and len(asked) == 1:
            raise common.LabError("no lists")
        if command[-1] != "update":
            (cwd / "nginx-light_1_amd64.deb").write_bytes(b"a package")
        return types.SimpleNamespace(stdout="")

    monkeypatch.setattr(archives, "run", run)
    monkeypatch.setattr(archives, "CACHE", tmp_path)
    monkeypatch.setattr(archives, "machine_sources", lambda suite: f"deb http://mirror.example/debian/ {suite} main\n")
    return types.SimpleNamespace(name="g", configuration=configured(), login=login_of_guest), asked


def test_packages_are_fetched_here_and_unpacked_there(of_guest):
    one, asked = of_guest
    packages.install(one, ["nginx-light"])
    fetch = ["apt-get", "--quiet", "--yes", "--no-install-recommends", "--download-only", "install", "nginx-light"]
    assert asked == [fetch, ["apt-get", "--quiet", "update"], fetch]
    command, sent = one.login.sent[-1]
    assert "dpkg -i" in command
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert archive.getnames() == ["nginx-light_1_amd64.deb"]


@pytest.mark.parametrize("name", ["-o=Dpkg::Pre-Invoke::=x", "a;b", "", "A", "a b"])
def test_what_is_no_name_of_a_package_is_refused(of_guest, name):
    one, asked = of_guest
    with pytest.raises(common.LabError, match="is no name of a Debian package"):
        packages.install(one, [name])
    assert asked == [] and one.login.sent == []
