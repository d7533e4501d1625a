# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of the Boot Loader Specification: with grubby (a fake that behaves like the real one) and with
systemd-boot.
"""

import json
import pathlib
import re
import subprocess

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change, change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import systemd_boot


def run(root, smt, check=False):
    request = boot_change.Request(smt, None, False, check)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "5.14.0-0")


def options(root, where="boot/loader/entries"):
    texts = [path.read_text() for path in sorted((root / where).glob("*.conf"))]
    return [line.split()[1:] for text in texts for line in text.split("\n") if line.startswith("options ")]


def calls(root):
    """The calls that asked the fake grubby for a change."""
    return [line for line in (root / "grubby.log").read_text().splitlines() if not line.startswith("--info")]


def test_enabled_reports_where_each_argument_was_found(tmp_path):
    entries = ("root=/dev/sda2 nosmt", "root=/dev/sda2 mds=full,nosmt")
    boot_maker.grubby_tree(tmp_path, entries, cmdline="maxcpus=2 ro\n")
    result = run(tmp_path, "enabled")
    assert [(entry["argument"], entry["where"].replace(str(tmp_path), "")) for entry in result["found"]] == [
        ("mds=full,nosmt", "boot entry Linux 5.14.0-1"),
        ("nosmt", "boot entry Linux 5.14.0-0"),
        ("maxcpus=2", "/etc/kernel/cmdline"),
    ]
    assert options(tmp_path) == [["root=/dev/sda2"], ["root=/dev/sda2", "mds=full"]]
    assert (tmp_path / "etc/kernel/cmdline").read_text() == "ro\n"
    assert not run(tmp_path, "enabled")["changed"]


TREES = [boot_maker.systemd_tree, boot_maker.grubby_tree]
# Arguments of the kernel whose bytes have to stay, with what separates them.
QUOTED = [
    'root=UUID=1  dyndbg="file a.c  +p; file b.c\t+p" ro\n',
    '"dyndbg=file nosmt  a.c" ro quiet',
    'ro\tacpi_osi="Windows\u00a02009" a=\u00a0b\n',
    'ro x="nosmt" -- nosmt  maxcpus=2\n',
    'ro a="open  ',
]


@pytest.mark.night(after=4)
@pytest.mark.parametrize(
    ("cmdline", "tree"), [*zip(QUOTED, TREES * 3, strict=False), *zip(QUOTED, TREES[::-1] * 3, strict=False)]
)
def test_etc_kernel_cmdline_keeps_its_bytes(tmp_path, tree, cmdline):
    tree(tmp_path, cmdline=cmdline)
    path = tmp_path / "etc/kernel/cmdline"
    before = path.read_bytes()
    shown = [change for change in run(tmp_path, "disabled", check=True)["diff"] if change["before_header"] == str(path)]
    assert [(change["before"], change["after"]) for change in shown] == [(cmdline, "nosmt " + cmdline)]
    for smt, after in (("disabled", b"nosmt " + before), ("enabled", before)):
        assert [run(tmp_path, smt)["changed"] for _time in range(2)] == [True, False]
        assert path.read_bytes() == after


@pytest.mark.parametrize(
    ("fault", "release", "message"),
    [
        ("grubby-fails-at-0", 69, "exit code 1: grubby: cannot write"),
        ("grubby-fails-at-1", 69, "exit code 1: grubby: cannot write"),
        ("grubby-skips-1", 69, "exit code 0, but the entry 'Linux 5.14.0-1'"),
        # It takes a part of an argument for the whole.
        ("", 18, "instead of 'nosmt b=2 mds=full,nosmt'"),
    ],
)
def test_all_files_are_restored_when_grubby_fails(tmp_path, fault, release, message):
    boot_maker.grubby_tree(tmp_path, ("a=1 nosmt=force", "b=2 mds=full,nosmt", "c=3"), release)
    (tmp_path / fault).touch()
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match=message):
        run(tmp_path, "disabled")
    assert calls(tmp_path) and boot_maker.snapshot(tmp_path) == before


ENTRIES = "efi/loader/entries"


HEAD, ENTRY = "title A\nlinux /v\n", f"{ENTRIES}/m-6.1.0-13.conf"
FORMS = [
    *(HEAD + "initrd /i\n", HEAD + "options \n", HEAD + "options root=UUID=1\ninitrd /i\noptions ro quiet\n"),
    "title A\r\nlinux /v\r\ninitrd /i\r\noptions root=UUID=1 ro\r\n",
    "  title A\n\tlinux /v\n  initrd /i\n\toptions  root=UUID=1 ro",
    HEAD + "#options nosmt\noptions\troot=UUID=1\n",
    HEAD + "options a=1 -- init=/x\noptions nosmt\n",
    HEAD + 'options a="1\noptions nosmt\n',
    HEAD + 'options "a b" c="d e" \n',
    HEAD + 'options a\noptions "b c=\\"\r\n',
    "title A\rlinux /v\roptions ro\r",
]


@pytest.mark.parametrize("written", FORMS)
def test_an_entry_of_any_form_gets_its_bytes_back(tmp_path, written):
    path = boot_maker.systemd_tree(tmp_path) / ENTRY
    path.write_bytes(written.encode())
    assert run(tmp_path, "disabled")["configured"] == ["nosmt"] and not run(tmp_path, "disabled")["changed"]
    assert run(tmp_path, "enabled")["configured"] == [] and not run(tmp_path, "enabled")["changed"]
    assert path.read_bytes() == written.encode()


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (HEAD + "\toptions root=UUID=1 nosmt ro\n", HEAD + "\toptions root=UUID=1 ro\n"),
        (HEAD + "options nosmt\ninitrd /i\n", HEAD + "initrd /i\n"),
        (HEAD + "options ro\n  options nosmt=force maxcpus=2\n", HEAD + "options ro\n"),
        ("title A\r\nlinux /v\r\noptions nosmt\r\noptions ro nosmt\r\n", "title A\r\nlinux /v\r\noptions ro\r\n"),
        (HEAD + "options nosmt", HEAD.rstrip()),
        # systemd-boot takes the first and the last quote of a value away, whatever is between them.
        (HEAD + 'options "root=UUID=1 nosmt ro"\n', HEAD + 'options "root=UUID=1 ro"\n'),
        *((HEAD + 'options "nosmt"\n', HEAD), (HEAD + 'options "nosmt "\n', HEAD)),
        (HEAD + 'options nosmt "a b" c="d e"\n', HEAD + 'options ""a b" c="d e""\n'),
        # A carriage return ends a line, so there are no options after it.
        (HEAD + "options ro\r nosmt\n", HEAD + "options ro\r nosmt\n"),
    ],
)
def test_arguments_of_the_administrator_are_found_wherever_they_stand(tmp_path, written, left):
    path = boot_maker.systemd_tree(tmp_path) / ENTRY
    path.write_bytes(written.encode())
    assert run(tmp_path, "enabled")["configured"] == []
    assert path.read_bytes() == left.encode()


def test_entries_are_those_that_systemd_boot_shows(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    text = 'title "A"\nlinux "/6.1.0-13/linux"\noptions "root=UUID=1 ro"\n'
    boot_maker.write(tmp_path, f"{ENTRIES}/OTHER.CONF", text)
    boot_maker.write(tmp_path, f"{ENTRIES}/.hidden.conf", text)
    run(tmp_path, "disabled")
    assert (tmp_path / ENTRIES / "OTHER.CONF").read_text() == text.replace("root", "nosmt root")
    assert (tmp_path / ENTRIES / ".hidden.conf").read_text() == text
    found = systemd_boot.LOADER.read_entries(host_files.HostFs(str(tmp_path)))
    (entry,) = [entry for entry in found if entry.title == "A"]
    assert (entry.kernel, entry.release) == ("/6.1.0-13/linux", "6.1.0-13")
    assert entry.arguments == ("nosmt", "root=UUID=1", "ro")


def test_entries_of_another_partition_that_systemd_boot_shows_too_are_named(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    assert run(tmp_path, "disabled", check=True)["warnings"] == []
    boot_maker.write(tmp_path, "boot/efi/loader/entries/old.conf", "title Old\nlinux /old\noptions ro\n")
    (warning,) = run(tmp_path, "disabled")["warnings"]
    assert "/boot/efi/loader/entries also has entries, which keep their arguments" in warning
    assert (tmp_path / "boot/efi/loader/entries/old.conf").read_text() == "title Old\nlinux /old\noptions ro\n"


LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def started_by_systemd_boot(root):
    boot_maker.systemd_tree(root, cmdline=None)
    boot_maker.write(root, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252"))


def systemd_with(path, text):
    return lambda root: boot_maker.write(boot_maker.systemd_tree(root), path, text)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: boot_maker.grubby_tree(root, ()), "no entry that boots Linux"),
        (
            systemd_with(ENTRY, "title Memory test\nefi /memtest.efi\n"),
            "/efi/loader/entries boots Linux. Nothing was changed",
        ),
        (
            systemd_with(ENTRY, "LINUX /m/linux\noptions root=1\n"),
            "/efi/loader/entries boots Linux. Nothing was changed",
        ),
        (started_by_systemd_boot, "etc/kernel/cmdline is missing"),
        (systemd_with("efi/EFI/Linux/linux-6.1.efi", ""), "unified kernel images (linux-6.1.efi)"),
    ],
)
def test_what_is_refused(tmp_path, make, sentence):
    make(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError) as refused:
        run(tmp_path, "disabled")
    assert sentence in str(refused.value) and boot_maker.snapshot(tmp_path) == before


RECORDED = json.loads((pathlib.Path(__file__).parent / "data/grubby.json").read_text(encoding="utf-8"))
CALLS, REQUESTS = ([(of, one) for one in RECORDED[kind] for of in one["releases"]] for kind in ("calls", "requests"))
FILES = {"cmdline": "etc/kernel/cmdline", "settings": "etc/default/grub"}


def host(root, release, before):
    boot_maker.grubby_tree(root, tuple(before["options"]), release, before.get("kernelopts"), before.get("cmdline"))
    (root / "etc/kernel").mkdir(parents=True, exist_ok=True)
    if "settings" in before:
        boot_maker.write(root, FILES["settings"], before["settings"])


def now(root):
    """What is recorded of a host."""
    entries = [path.read_text() for path in sorted((root / "boot/loader/entries").glob("*.conf"))]
    found = {"options": [re.findall("^options ?(.*)$", text, re.MULTILINE)[0] for text in entries]}
    found |= {name: (root / path).read_text() for name, path in FILES.items() if (root / path).exists()}
    grubenv = root / "boot/grub2/grubenv"
    kernelopts = re.findall("^kernelopts=(.*)$", grubenv.read_text() if grubenv.exists() else "", re.MULTILINE)
    return {**found, **({"kernelopts": kernelopts[0]} if kernelopts else {})}


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("release", "call"), CALLS)
def test_the_stand_in_does_what_real_ones_did(tmp_path, release, call):
    host(tmp_path, release, call["before"])
    printed = subprocess.check_output([tmp_path / "usr/sbin/grubby", *call["arguments"]], text=True)
    assert (now(tmp_path), printed) == (call.get("after", call["before"]), call.get("printed", ""))


def asked(root, smt, maxcpus=None, check=False):
    return change.run(HostFs(str(root)), change.Request(smt, maxcpus, True, check), "x86_64", "5.14.0-0")["changed"]


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("release", "one"), REQUESTS)
def test_requests_make_of_a_host_what_they_made_of_one_with_a_real_grubby(tmp_path, release, one):
    host(tmp_path, release, one["before"])
    for request in one["requests"]:
        try:
            changed = asked(tmp_path, request["smt"], request["maxcpus"])
        except change.ERRORS:
            changed = None
        assert (changed, now(tmp_path)) == (request["changed"], request["after"]), request


def test_it_is_asked_for_its_entries_once_and_after_each_change(tmp_path):
    """A real one takes seconds for them where many kernels are installed."""
    log = tmp_path / "grubby.log"
    host(tmp_path, 69, {"options": ["root=/dev/sda1 quiet"]})
    asked(tmp_path, "disabled", check=True)
    asked(tmp_path, "disabled")
    assert log.read_text().splitlines() == ["--info=ALL"] * 2 + ["--update-kernel=ALL --args=nosmt", "--info=ALL"]
