# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of the Boot Loader Specification: with grubby (a fake that behaves like the real one) and with
systemd-boot.
"""

from __future__ import annotations

import shutil

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import systemd_boot


def run(root, smt, check=False):
    return boot_change.run(
        host_files.HostFs(str(root)), boot_change.Request(smt, None, False, check), "x86_64", "5.14.0-0"
    )


def options(root, where="boot/loader/entries"):
    return [
        line.split()[1:]
        for path in sorted((root / where).glob("*.conf"))
        for line in path.read_text().split("\n")
        if line.startswith("options ")
    ]


def calls(root):
    """Return the calls that asked the fake grubby for a change."""
    log = root / "grubby.log"
    return [line for line in log.read_text().splitlines() if not line.startswith("--info")] if log.exists() else []


# ---- grubby ----------------------------------------------------------------------------------------------------------


def test_every_entry_and_future_kernels_get_the_argument(tmp_path):
    boot_maker.grubby_tree(tmp_path)
    result = run(tmp_path, "disabled")
    assert result["loader"] == "grubby" and result["configured"] == ["nosmt"]
    assert [sorted(arguments) for arguments in options(tmp_path)] == [["nosmt", "quiet", "ro", "root=/dev/sda2"]] * 3
    assert "nosmt" in (tmp_path / "etc/kernel/cmdline").read_text().split()
    assert not run(tmp_path, "disabled")["changed"]


def test_arguments_are_replaced_and_one_entry_without_them_is_enough(tmp_path):
    entries = ("root=/dev/sda2 nosmt=force", "maxcpus=4 root=/dev/sda2", "root=/dev/sda2 nosmt nosmt", "root=/dev/sda2")
    boot_maker.grubby_tree(tmp_path, entries, cmdline="nosmt=force ro\n")
    result = run(tmp_path, "disabled", check=True)
    assert result["changed"] and result["configured_before"] == [] and calls(tmp_path) == []
    run(tmp_path, "disabled")
    assert [sorted(arguments) for arguments in options(tmp_path)] == [["nosmt", "root=/dev/sda2"]] * 4
    assert (tmp_path / "etc/kernel/cmdline").read_text() == "nosmt ro\n"


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


def test_entries_with_kernelopts_change_with_that_variable(tmp_path):
    boot_maker.grubby_tree(tmp_path, ("$kernelopts", "$kernelopts"), kernelopts="root=/dev/sda2 ro", cmdline=None)
    assert run(tmp_path, "disabled")["changed"]
    assert "kernelopts=root=/dev/sda2 ro nosmt\n" in (tmp_path / "boot/grub2/grubenv").read_text()
    assert options(tmp_path) == [["$kernelopts"]] * 2
    assert not run(tmp_path, "disabled")["changed"]


@pytest.mark.parametrize("variable", ["$kernelopts", "${kernelopts}", "$kernelopts2"])
def test_which_variable_is_kernelopts(tmp_path, variable):
    boot_maker.grubby_tree(tmp_path, (variable, f"{variable} quiet"), kernelopts="root=/dev/sda2 nosmt", cmdline=None)
    known = [] if variable.endswith("2") else ["nosmt"]
    result = run(tmp_path, "enabled", check=True)
    assert result["configured_before"] == known


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
    planned = run(tmp_path, "disabled", check=True)["diff"]
    assert run(tmp_path, "disabled")["changed"]
    assert path.read_bytes() == b"nosmt " + before
    shown = [change for change in planned if change["before_header"] == str(path)]
    assert [(change["before"], change["after"]) for change in shown] == [(cmdline, "nosmt " + cmdline)]
    assert not run(tmp_path, "disabled")["changed"]
    assert run(tmp_path, "enabled")["changed"]
    assert path.read_bytes() == before
    assert not run(tmp_path, "enabled")["changed"]


@pytest.mark.parametrize("tree", TREES)
def test_a_quoted_argument_that_turns_smt_off_is_removed(tmp_path, tree):
    tree(tmp_path, cmdline='"nosmt" ro  maxcpus="4" mds="full,nosmt" a="b c" "nosmt=force"\n')
    result = run(tmp_path, "enabled")
    assert {entry["argument"] for entry in result["found"]} == {"nosmt", "maxcpus=4", "mds=full,nosmt", "nosmt=force"}
    assert (tmp_path / "etc/kernel/cmdline").read_text() == 'ro  mds=full a="b c"\n'
    assert not run(tmp_path, "enabled")["changed"]


def test_settings_are_changed_as_shown_and_named_where_they_turn_smt_off(tmp_path):
    settings = "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX='ro nosmt  quiet' \nGRUB_CMDLINE_LINUX_DEFAULT='splash'\n"
    boot_maker.grubby_tree(tmp_path)
    path = boot_maker.write(tmp_path, "etc/default/grub", settings)
    planned = run(tmp_path, "enabled", check=True)
    assert [(one["argument"], one["where"]) for one in planned["found"]] == [("nosmt", str(path))]
    run(tmp_path, "enabled")
    assert path.read_text() == settings.replace("nosmt  ", "")
    (shown,) = (one for one in planned["diff"] if one["before_header"] == str(path))
    assert (shown["before"], shown["after"]) == (settings, path.read_text())
    assert not run(tmp_path, "enabled")["changed"]


def test_no_place_for_the_arguments_of_future_kernels_gives_a_warning(tmp_path):
    boot_maker.grubby_tree(tmp_path, cmdline=None)
    assert any("a kernel that is installed later" in warning for warning in run(tmp_path, "disabled")["warnings"])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("grubby-fails-at-0", "exit code 1: grubby: cannot write"),
        ("grubby-fails-at-1", "exit code 1: grubby: cannot write"),
        ("grubby-skips-1", "exit code 0, but the entry 'Linux 5.14.0-1'"),
    ],
)
def test_all_files_are_restored_when_grubby_fails(tmp_path, fault, message):
    boot_maker.grubby_tree(tmp_path, ("a=1 nosmt", "b=2", "c=3"))
    (tmp_path / fault).touch()
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match=message):
        run(tmp_path, "forced_off")
    assert calls(tmp_path) and boot_maker.snapshot(tmp_path) == before


def test_a_grubby_that_takes_a_substring_for_the_argument_is_detected(tmp_path):
    boot_maker.grubby_tree(tmp_path, ("a=1 mds=full,nosmt", "b=2"), release=18)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match=r"instead of 'nosmt a=1 mds=full,nosmt'"):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before


# ---- systemd-boot ----------------------------------------------------------------------------------------------------

ENTRIES = "efi/loader/entries"


def test_systemd_boot_changes_entries_and_future_kernels_and_back(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    result = run(tmp_path, "disabled")
    assert result["loader"] == "systemd_boot"
    assert options(tmp_path, ENTRIES) == [["nosmt", "root=UUID=1", "ro"]]
    assert (tmp_path / "etc/kernel/cmdline").read_text() == "nosmt root=UUID=1 ro\n"
    assert not run(tmp_path, "disabled")["changed"]
    run(tmp_path, "enabled")
    assert boot_maker.snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "written",
    [
        "title A\nlinux /v\ninitrd /i\n",
        "title A\nlinux /v\ninitrd /i\noptions \n",
        "title A\nlinux /v\noptions root=UUID=1\ninitrd /i\noptions ro quiet\n",
        "title A\r\nlinux /v\r\ninitrd /i\r\noptions root=UUID=1 ro\r\n",
        "  title A\n\tlinux /v\n  initrd /i\n\toptions  root=UUID=1 ro",
        "title A\nlinux /v\ninitrd /i\n#options nosmt\noptions\troot=UUID=1\n",
        "title A\nlinux /v\noptions a=1 -- init=/x\noptions nosmt\n",
        'title A\nlinux /v\noptions a="1\noptions nosmt\n',
        'title A\nlinux /v\noptions "a b" c="d e" \n',
        'title A\nlinux /v\noptions a\noptions "b c=\\"\r\n',
        "title A\rlinux /v\roptions ro\r",
    ],
)
def test_an_entry_of_any_form_gets_its_bytes_back(tmp_path, written):
    boot_maker.systemd_tree(tmp_path)
    path = tmp_path / ENTRIES / "m-6.1.0-13.conf"
    path.write_bytes(written.encode())
    assert run(tmp_path, "disabled")["configured"] == ["nosmt"] and not run(tmp_path, "disabled")["changed"]
    assert run(tmp_path, "enabled")["configured"] == [] and not run(tmp_path, "enabled")["changed"]
    assert path.read_bytes() == written.encode()


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("title A\nlinux /v\n\toptions root=UUID=1 nosmt ro\n", "title A\nlinux /v\n\toptions root=UUID=1 ro\n"),
        ("title A\nlinux /v\noptions nosmt\ninitrd /i\n", "title A\nlinux /v\ninitrd /i\n"),
        ("title A\nlinux /v\noptions ro\n  options nosmt=force maxcpus=2\n", "title A\nlinux /v\noptions ro\n"),
        ("title A\r\nlinux /v\r\noptions nosmt\r\noptions ro nosmt\r\n", "title A\r\nlinux /v\r\noptions ro\r\n"),
        ("title A\nlinux /v\noptions nosmt", "title A\nlinux /v"),
        # systemd-boot takes the first and the last quote of a value away, whatever is between them.
        ('title A\nlinux /v\noptions "root=UUID=1 nosmt ro"\n', 'title A\nlinux /v\noptions "root=UUID=1 ro"\n'),
        ('title A\nlinux /v\noptions "nosmt"\n', "title A\nlinux /v\n"),
        ('title A\nlinux /v\noptions nosmt "a b" c="d e"\n', 'title A\nlinux /v\noptions ""a b" c="d e""\n'),
        # A carriage return ends a line, so there are no options after it.
        ("title A\nlinux /v\noptions ro\r nosmt\n", "title A\nlinux /v\noptions ro\r nosmt\n"),
    ],
)
def test_arguments_of_the_administrator_are_found_wherever_they_stand(tmp_path, written, left):
    boot_maker.systemd_tree(tmp_path)
    path = tmp_path / ENTRIES / "m-6.1.0-13.conf"
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

    shutil.rmtree(tmp_path / "boot/efi")
    (tmp_path / "boot/efi").symlink_to("../efi")
    assert run(tmp_path, "disabled")["warnings"] == [], "a partition that is mounted twice is no other one"


LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def started_by_systemd_boot(root):
    boot_maker.systemd_tree(root, cmdline=None)
    boot_maker.write(root, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252"))


def with_an_image(root):
    boot_maker.systemd_tree(root)
    boot_maker.write(root, "efi/EFI/Linux/linux-6.1.efi", "")


def entry(text):
    def make(root):
        boot_maker.systemd_tree(root)
        (root / ENTRIES / "m-6.1.0-13.conf").write_text(text)

    return make


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: boot_maker.grubby_tree(root, ()), "no entry that boots Linux"),
        (entry("title Memory test\nefi /memtest.efi\n"), "/efi/loader/entries boots Linux. Nothing was changed"),
        (entry("LINUX /m/linux\noptions root=1\n"), "/efi/loader/entries boots Linux. Nothing was changed"),
        (started_by_systemd_boot, "etc/kernel/cmdline is missing"),
        (with_an_image, "unified kernel images (linux-6.1.efi)"),
    ],
)
def test_what_is_refused(tmp_path, make, sentence):
    make(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError) as refused:
        run(tmp_path, "disabled")
    assert sentence in str(refused.value) and boot_maker.snapshot(tmp_path) == before
