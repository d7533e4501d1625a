# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of the Boot Loader Specification: with grubby (a fake that behaves like the real one) and with
systemd-boot.
"""

from __future__ import annotations

import re

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import systemd_boot
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files


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
    return [
        line for line in (log.read_text().split("\n") if log.exists() else []) if line and not line.startswith("--info")
    ]


# ---- grubby ----------------------------------------------------------------------------------------------------------


def test_every_entry_and_future_kernels_get_the_argument(tmp_path):
    boot_maker.grubby_tree(tmp_path)
    result = run(tmp_path, "disabled")
    assert result["loader"] == "grubby" and result["configured"] == ["nosmt"]
    assert all(
        sorted(arguments) == sorted(["root=/dev/sda2", "ro", "quiet", "nosmt"]) for arguments in options(tmp_path)
    )
    assert "nosmt" in (tmp_path / "etc/kernel/cmdline").read_text().split()
    assert not run(tmp_path, "disabled")["changed"]


def test_one_entry_without_the_argument_is_enough_for_a_change(tmp_path):
    boot_maker.grubby_tree(
        tmp_path, ("root=/dev/sda2 nosmt", "root=/dev/sda2 nosmt", "root=/dev/sda2"), cmdline="root=/dev/sda2 nosmt\n"
    )
    result = run(tmp_path, "disabled", check=True)
    assert result["changed"] and result["configured_before"] == [] and calls(tmp_path) == []
    run(tmp_path, "disabled")
    assert all(arguments.count("nosmt") == 1 for arguments in options(tmp_path))


def test_arguments_are_replaced(tmp_path):
    boot_maker.grubby_tree(
        tmp_path,
        ("root=/dev/sda2 nosmt=force", "maxcpus=4 root=/dev/sda2", "root=/dev/sda2 nosmt nosmt"),
        cmdline="nosmt=force ro\n",
    )
    run(tmp_path, "disabled")
    assert all(sorted(arguments) == ["nosmt", "root=/dev/sda2"] for arguments in options(tmp_path))
    assert (tmp_path / "etc/kernel/cmdline").read_text() == "nosmt ro\n"


def test_enabled_reports_where_each_argument_was_found(tmp_path):
    boot_maker.grubby_tree(
        tmp_path, ("root=/dev/sda2 nosmt", "root=/dev/sda2 mds=full,nosmt"), cmdline="maxcpus=2 ro\n"
    )
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


@pytest.mark.parametrize("variable", ["$kernelopts", "${kernelopts}"])
def test_both_forms_of_kernelopts_are_read_by_grubby(tmp_path, variable):
    boot_maker.grubby_tree(tmp_path, (variable, f"{variable} quiet"), kernelopts="root=/dev/sda2 nosmt", cmdline=None)
    result = run(tmp_path, "disabled", check=True)
    assert result["configured_before"] == ["nosmt"] and not result["changed"]
    assert [(entry["argument"], entry["where"]) for entry in run(tmp_path, "enabled", check=True)["found"]] == [
        ("nosmt", "boot entry Linux 5.14.0-1")
    ]


def test_a_variable_whose_name_only_begins_with_kernelopts_is_another_one(tmp_path):
    boot_maker.grubby_tree(tmp_path, ("$kernelopts2 ro",), kernelopts="nosmt", cmdline=None)
    assert run(tmp_path, "enabled", check=True)["configured_before"] == []


# Arguments of the kernel whose bytes have to stay, with what separates them.
QUOTED = [
    'root=UUID=1  dyndbg="file a.c  +p; file b.c\t+p" ro\n',
    '"dyndbg=file nosmt  a.c" ro quiet',
    'ro\tacpi_osi="Windows\u00a02009" a=\u00a0b\n',
    'ro x="nosmt" -- nosmt  maxcpus=2\n',
    'ro a="open  ',
]


@pytest.mark.parametrize("cmdline", QUOTED)
@pytest.mark.parametrize("tree", [boot_maker.systemd_tree, boot_maker.grubby_tree])
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


@pytest.mark.parametrize("tree", [boot_maker.systemd_tree, boot_maker.grubby_tree])
def test_a_quoted_argument_that_turns_smt_off_is_removed(tmp_path, tree):
    tree(tmp_path, cmdline='"nosmt" ro  maxcpus="4" mds="full,nosmt" a="b c" "nosmt=force"\n')
    result = run(tmp_path, "enabled")
    assert {entry["argument"] for entry in result["found"]} == {"nosmt", "maxcpus=4", "mds=full,nosmt", "nosmt=force"}
    assert (tmp_path / "etc/kernel/cmdline").read_text() == 'ro  mds=full a="b c"\n'
    assert not run(tmp_path, "enabled")["changed"]


def test_quoted_options_of_an_entry_keep_their_bytes(tmp_path):
    options = 'root=UUID=1  dyndbg="file a.c  +p"\nx="nosmt  b" nosmt -- nosmt'.replace("\n", "\noptions ")
    boot_maker.systemd_tree(tmp_path, options=options)
    path = tmp_path / ENTRIES / "m-6.1.0-13.conf"
    before = path.read_text()
    run(tmp_path, "forced_off")
    assert path.read_text() == before.replace("options root", "options nosmt=force root").replace(
        'b" nosmt --', 'b" --'
    )


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
    with pytest.raises(
        backend_base.BootLoaderError, match=r"'a=1 mds=full,nosmt' instead of 'nosmt a=1 mds=full,nosmt'"
    ):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before


def test_no_entry_at_all_is_an_error(tmp_path):
    boot_maker.grubby_tree(tmp_path, ())
    with pytest.raises(backend_base.BootLoaderError, match=r"no entry that boots Linux"):
        run(tmp_path, "disabled")


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
        "title A\nlinux /v\ninitrd /i",
        "title A\nlinux /v\ninitrd /i\noptions\n",
        "title A\nlinux /v\ninitrd /i\noptions \n",
        "title A\nlinux /v\noptions root=UUID=1\ninitrd /i\noptions ro quiet\n",
        "title A\r\nlinux /v\r\ninitrd /i\r\noptions root=UUID=1 ro\r\n",
        "  title A\n\tlinux /v\n  initrd /i\n\toptions  root=UUID=1 ro",
        "title A\nlinux /v\ninitrd /i\n#options nosmt\noptions\troot=UUID=1\n",
        "title A\nlinux /v\noptions a=1 -- init=/x\noptions nosmt\n",
        'title A\nlinux /v\noptions a="1\noptions nosmt\n',
        'title A\nlinux /v\noptions "root=UUID=1 ro"\n',
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
    (entry,) = [
        entry for entry in systemd_boot.LOADER.read_entries(host_files.HostFs(str(tmp_path))) if entry.title == "A"
    ]
    assert (
        entry.kernel == "/6.1.0-13/linux"
        and entry.arguments == ("nosmt", "root=UUID=1", "ro")
        and entry.release == "6.1.0-13"
    )


@pytest.mark.parametrize("text", ["title Memory test\nefi /memtest.efi\n", "LINUX /m/linux\noptions root=1\n"])
def test_entries_of_which_none_boots_linux_are_an_error(tmp_path, text):
    boot_maker.systemd_tree(tmp_path)
    (tmp_path / ENTRIES / "m-6.1.0-13.conf").write_text(text)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(
        backend_base.BootLoaderError,
        match=r"None of the entries in .*/efi/loader/entries boots Linux\. Nothing was changed",
    ):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before


def test_entries_of_another_partition_that_systemd_boot_shows_too_are_named(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    assert run(tmp_path, "disabled", check=True)["warnings"] == []
    boot_maker.write(tmp_path, "boot/efi/loader/entries/old.conf", "title Old\nlinux /old\noptions ro\n")
    (warning,) = run(tmp_path, "disabled")["warnings"]
    assert re.match(
        r".*/boot/efi/loader/entries also has entries, which keep their arguments: those of .*/efi/loader/entries are"
        r" changed",
        warning,
    )
    assert (tmp_path / "boot/efi/loader/entries/old.conf").read_text() == "title Old\nlinux /old\noptions ro\n"


def test_a_partition_that_is_mounted_twice_is_no_other_one(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    (tmp_path / "boot/efi").symlink_to("../efi")
    assert run(tmp_path, "disabled")["warnings"] == []


def test_systemd_boot_finds_arguments_of_the_administrator(tmp_path):
    boot_maker.systemd_tree(tmp_path, options="maxcpus=2 ro", cmdline="ro nosmt\n")
    assert [entry["argument"] for entry in run(tmp_path, "enabled")["found"]] == ["nosmt", "maxcpus=2"]
    assert options(tmp_path, ENTRIES) == [["ro"]]


def test_systemd_boot_restores_files_when_a_write_fails(tmp_path, monkeypatch):
    boot_maker.systemd_tree(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    real = transaction.replace

    def second_fails(fs, path, text):
        if path.startswith("efi"):
            raise backend_base.BootLoaderError("No space left on device")
        real(fs, path, text)

    monkeypatch.setattr(transaction, "replace", second_fails)
    with pytest.raises(backend_base.BootLoaderError, match=r"No space"):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before


def test_without_etc_kernel_cmdline_it_is_refused(tmp_path):
    boot_maker.systemd_tree(tmp_path, cmdline=None)
    boot_maker.write(
        tmp_path,
        "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",
        "\6\0\0\0" + "\0".join("systemd-boot 252"),
    )
    with pytest.raises(backend_base.BootLoaderError, match=r"etc/kernel/cmdline is missing"):
        run(tmp_path, "disabled")


def test_unified_kernel_images_are_refused(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, "efi/EFI/Linux/linux-6.1.efi", "")
    with pytest.raises(backend_base.BootLoaderError, match=r"unified kernel images \(linux-6\.1\.efi\)"):
        run(tmp_path, "disabled")
