# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of boot arguments on hosts as they are out there, each rebuilt on a small tree. A test is named
after its source.
"""

from __future__ import annotations

import re
import subprocess

import boot_maker
import counting
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import (
    change,
    detection,
    entries as boot_entries,
    facts as boot_facts,
    frame as boot_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._boot.backends import base as backend_base, grub_debian
from ansible_collections.threadwise.smt.plugins.module_utils._host import state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

RUNNING = {
    boot_maker.grub_tree: "6.1.0-13-amd64",
    boot_maker.grubby_tree: "5.14.0-0",
    boot_maker.systemd_tree: "6.1.0-13",
}
GRUB_CFG = "boot/grub/grub.cfg"


def run(root, smt, check=False, architecture="x86_64", kernel="6.1.0-13-amd64"):
    return change.run(HostFs(str(root)), change.Request(smt, None, False, check), architecture, kernel)


def facts(root):
    fs = HostFs(str(root))
    return boot_facts.read(fs, detection.find_loader(fs))


def refused(root, smt="disabled", **options):
    """The sentence of a refusal, which is the same in check mode, and leaves everything as it was."""
    before = boot_maker.snapshot(root)
    said = []
    for check in (True, False):
        with pytest.raises(change.ERRORS) as caught:
            run(root, smt, check, **options)
        said.append(str(caught.value))
    assert said[0] == said[1] and boot_maker.snapshot(root) == before
    return said[0]


def value_in_shell(root):
    path = root / "etc/default/grub"
    return subprocess.run(
        ["/bin/sh", "-ec", f'. {path}; printf %s "$GRUB_CMDLINE_LINUX"'], check=True, capture_output=True, text=True
    ).stdout


# ---- Ubuntu's cloud images -----------------------------------------------------------------------------------------


def test_lp_1870189_an_entry_that_tries_without_an_initial_ram_disk_first():
    """Also LP 1875400."""
    text = """### BEGIN /etc/grub.d/10_linux ###
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-1' {
        if [ "${initrdfail}" = 1 ]; then
          linux   /boot/vmlinuz-5.4.0 root=PARTUUID=1 ro nosmt
          initrd  /boot/initrd.img-5.4.0
        else
          linux   /boot/vmlinuz-5.4.0 root=PARTUUID=1 ro nosmt panic=-1
        fi
        initrdfail
}
### END /etc/grub.d/10_linux ###
"""
    first, second = boot_entries.parse_grub_cfg(text)
    assert (first.initrd, second.initrd) == (True, False)
    assert all("nosmt" in entry.arguments and entry.generated for entry in (first, second))


def test_lp_1875400_both_lines_get_the_argument_and_no_initial_ram_disk_is_lost(tmp_path):
    boot_maker.grub_tree(tmp_path)
    tool = tmp_path / "usr/sbin/grub-mkconfig"
    end = '    printf "\\tinitrd\\t/boot/initrd.img-%s\\n}\\n" "$2"\n'
    line = "\\tlinux\\t/boot/vmlinuz-%s root=UUID=1 ro %s\\n"
    once_more = end.replace('}\\n" "$2"', line + '}\\n" "$2" "$2" "$3"')
    assert end in tool.read_text()
    tool.write_text(tool.read_text().replace(end, once_more))
    subprocess.run([tool, "-o", tmp_path / GRUB_CFG], check=True)
    assert run(tmp_path, "disabled", check=True)["changed"] and run(tmp_path, "disabled")["changed"]
    entries = boot_entries.read_grub_cfg(HostFs(str(tmp_path)), GRUB_CFG)
    assert len(entries) == 8 and all("nosmt" in entry.arguments for entry in entries)
    tool.write_text(tool.read_text().replace("\\tinitrd\\t/boot/initrd.img-%s\\n\\tlinux", "\\tlinux", 1))
    with pytest.raises(change.ERRORS, match=r"would lose .*the initial RAM disk"):
        run(tmp_path, "enabled")


# ---- TuneD ---------------------------------------------------------------------------------------------------------


def tuned(root, params="skew_tick=1 nosmt", uses='GRUB_CMDLINE_LINUX_DEFAULT="quiet \\$tuned_params"\n'):
    """A host of Debian with TuneD's plug-in `bootloader`."""
    boot_maker.grub_tree(root, settings=uses)
    cfg = root / GRUB_CFG
    section = f'set tuned_params="{params}"\nset tuned_initrd=""\n'
    tool = root / "usr/sbin/grub-mkconfig"
    marks = [f"echo '### {what} /etc/grub.d/00_tuned ###'\n" for what in ("BEGIN", "END")]
    with_tuned = f"{{\n{marks[0]}cat <<'EOF'\n{section}EOF\n{marks[1]}"
    tool.write_text(tool.read_text().replace("\n{\n", "\n" + with_tuned))
    subprocess.run([tool, "-o", cfg], check=True)
    assert "$tuned_params" in cfg.read_text() and section in cfg.read_text()
    boot_maker.write(root, "etc/tuned/active_profile", "realtime\n")
    return root


def test_tuned_704_an_argument_by_tuned_is_found_as_configured(tmp_path):
    tuned(tmp_path)
    boot_maker.running(tmp_path, "root=UUID=1 ro quiet skew_tick=1 nosmt", online="0,2,4,6", control="off", active="0")
    found = facts(tmp_path)
    assert (found["configured"], found["reboot_required"]) == (["nosmt"], False)
    result = run(tmp_path, "disabled")
    assert (result["changed"], result["reboot_required"], result["configured"]) == (False, False, ["nosmt"])
    assert result["differences"] == []
    assert result["warnings"] == [
        "nosmt is set by TuneD's profile realtime, and by nothing else: it goes with the profile."
    ]


def test_tuned_706_what_tuned_sets_is_not_removed_behind_its_back(tmp_path):
    said = refused(tuned(tmp_path), "enabled")
    assert said.startswith("TuneD sets nosmt at each start, by its profile realtime") and "tuned-adm profile" in said


def test_tuned_706_on_a_host_with_entries_of_the_boot_loader_specification(tmp_path):
    boot_maker.grubby_tree(tmp_path, ("root=/dev/sda2 ro $tuned_params",) * 2)
    boot_maker.write(tmp_path, "boot/grub2/grub.cfg", 'set tuned_params="nosmt=force"\n')
    assert facts(tmp_path)["configured"] == ["nosmt=force"]
    assert not run(tmp_path, "forced_off", kernel="5.14.0-0")["changed"]
    assert "TuneD sets nosmt=force" in refused(tmp_path, "disabled", kernel="5.14.0-0")


def test_tuned_without_smt_arguments_is_in_nobodys_way(tmp_path):
    tuned(tmp_path, "skew_tick=1")
    result = run(tmp_path, "disabled")
    assert result["changed"] and result["configured"] == ["nosmt"] and result["warnings"] == []


def with_submenu(root, default="0", exported=""):
    """What Debian's grub-mkconfig writes: one entry by itself, and all of them in a submenu."""
    tool = root / "usr/sbin/grub-mkconfig"
    loop = "for kernel in"
    first = """entry 'Debian GNU/Linux' 6.1.0-13-amd64 "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"\n"""
    submenu = """echo "submenu 'Advanced options for Debian' \\$menuentry_id_option 'advanced' {"\n"""
    header = f"cat <<'EOF'\nset default={default}\n{exported}EOF\n"
    text = tool.read_text().replace(
        "done\nfi\necho '### END /etc/grub.d/10_linux", "done\nfi\necho '}'\necho '### END /etc/grub.d/10_linux"
    )
    tool.write_text(text.replace(f'{loop} "$root"/boot', f'{header}{first}{submenu}{loop} "$root"/boot'))
    subprocess.run([tool, "-o", root / GRUB_CFG], check=True)
    assert "submenu 'Advanced options" in (root / GRUB_CFG).read_text()
    return root


@pytest.mark.parametrize(
    ("default", "exported", "configured"),
    [
        ('"0"', "", ["nosmt"]),
        ('"${next_entry}"', "", ["nosmt"]),
        ('"1>2"', "", None),
        ('"${saved_entry}"', "", None),
        ('"1>2"', "export tuned_params\n", ["nosmt"]),
    ],
)
def test_tuned_738_a_submenu_has_no_value_of_a_variable_that_is_not_exported(tmp_path, default, exported, configured):
    with_submenu(tuned(tmp_path, "nosmt"), default, exported)
    assert facts(tmp_path)["configured"] == configured
    result = run(tmp_path, "disabled")
    assert (result["changed"], result["configured"][:1]) == (configured is None, ["nosmt"])
    assert result["reboot_required"] and not run(tmp_path, "disabled")["changed"]


def test_stackhpc_29_tuneds_variable_stays_where_cloud_images_set_the_value_anew(tmp_path):
    """TuneD writes it into grub.cfg, and into /etc/default/grub, which is read before the file of cloud images."""
    boot_maker.write(
        tmp_path, "etc/default/grub.d/50-cloudimg-settings.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0"\n'
    )
    tuned_by_hand(tmp_path, "skew_tick=1 nosmt")
    before = (tmp_path / GRUB_CFG).read_text()
    assert before.count("$tuned_params") == 2
    for request in (change.Request("disabled", None, False, False), change.Request(None, None, False, False, "auto")):
        change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")
        text = (tmp_path / GRUB_CFG).read_text()
        assert text.count("$tuned_params") == text.count("$tuned_initrd") == 2
        assert facts(tmp_path)["configured"] == ["nosmt"]
    # Ours goes, and what is TuneD's stays.
    run(tmp_path, "disabled")
    assert "mitigations=auto" in text and (tmp_path / GRUB_CFG).read_text() == before


def tuned_by_hand(root, params):
    """What TuneD's plug-in does to a grub.cfg in which its variable is not used."""
    boot_maker.grub_tree(root, settings='GRUB_CMDLINE_LINUX_DEFAULT="quiet \\$tuned_params"\n')
    tool = root / "usr/sbin/grub-mkconfig"
    begin, end = (f"### {what} /etc/grub.d/00_tuned ###" for what in ("BEGIN", "END"))
    lines = (begin, f'set tuned_params="{params}"', 'set tuned_initrd=""', end)
    section = "".join(f"echo '{line}'\n" for line in lines)
    tool.write_text(tool.read_text().replace("\n{\n", f"\n{{\n{section}"))
    cfg = root / GRUB_CFG
    subprocess.run([tool, "-o", cfg], check=True)
    variables = {"linux": "$tuned_params", "initrd": "$tuned_initrd"}
    entries = re.compile(r"^menuentry '(?![^']*recovery).*?^}", re.DOTALL | re.MULTILINE)
    booting = re.compile(r"^(\t(linux|initrd)\t.*?) *$", re.MULTILINE)
    cfg.write_text(
        entries.sub(
            lambda entry: booting.sub(lambda line: f"{line[1]} {variables[line[2]]}", entry[0]), cfg.read_text()
        )
    )
    boot_maker.write(root, "etc/tuned/active_profile", "realtime\n")


def test_stackhpc_36_an_argument_that_is_there_twice_needs_no_reboot(tmp_path):
    """It was set here, and later by TuneD as well."""
    run(boot_maker.grub_tree(tmp_path / "before"), "disabled")
    root = tuned(tmp_path / "now", "nosmt")
    boot_maker.write(root, grub_debian.DROP_IN, (tmp_path / "before" / grub_debian.DROP_IN).read_text())
    subprocess.run([root / "usr/sbin/grub-mkconfig", "-o", root / GRUB_CFG], check=True)
    off = {"online": "0,2,4,6", "control": "off", "active": "0"}
    for running in ("nosmt root=UUID=1 ro quiet", "nosmt root=UUID=1 ro quiet nosmt"):
        boot_maker.running(root, running, **off)
        found = facts(root)
        assert (found["configured"], found["running"], found["reboot_required"]) == (["nosmt"], ["nosmt"], False)
        result = run(root, "disabled")
        assert (result["changed"], result["reboot_required"], result["differences"]) == (False, False, [])
        assert result["warnings"] == []
    assert (root / grub_debian.DROP_IN).exists()


def booted(root, boot, cmdline="root=UUID=1 ro quiet"):
    boot_maker.running(root, cmdline)
    boot_maker.write(root, "proc/sys/kernel/random/boot_id", f"{boot}\n")


def test_tuned_704_a_host_that_boots_without_what_is_configured_is_not_rebooted_at_each_run(tmp_path):
    boot_maker.grub_tree(tmp_path)
    booted(tmp_path, "first")
    first = run(tmp_path, "disabled")
    assert first["reboot_required"] and first["reboot_in_vain"] is None
    assert run(tmp_path, "disabled")["reboot_in_vain"] is None
    booted(tmp_path, "second")
    for check in (True, False, True):
        again = run(tmp_path, "disabled", check)
        assert (
            again["reboot_required"] and "has booted since these arguments were configured" in again["reboot_in_vain"]
        )
    # Another request is a new one, and one that is in force leaves nothing.
    assert run(tmp_path, "forced_off")["reboot_in_vain"] is None
    booted(tmp_path, "third", "root=UUID=1 ro nosmt=force")
    assert not run(tmp_path, "forced_off")["reboot_required"]
    assert not (tmp_path / "var/lib/threadwise-smt/boot-awaited.json").exists()


def test_arguments_that_were_taken_away_by_hand_and_set_again_wait_for_a_boot_of_their_own(tmp_path):
    boot_maker.grub_tree(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    booted(tmp_path, "first")
    run(tmp_path, "disabled")
    for path in boot_maker.snapshot(tmp_path):
        (tmp_path / path).unlink()
    for path, (mode, data) in before.items():
        boot_maker.write(tmp_path, path, data.decode(), executable=bool(mode & 0o100))
    booted(tmp_path, "second")
    for _time in range(2):
        again = run(tmp_path, "disabled")
        assert again["reboot_required"] and again["reboot_in_vain"] is None


@pytest.mark.parametrize("check", [True, False])
def test_a_record_that_cannot_be_used_ends_the_run_before_anything_is_changed(tmp_path, check):
    boot_maker.grub_tree(tmp_path)
    booted(tmp_path, "first")
    boot_maker.write(tmp_path, "var/lib/threadwise-smt/boot-awaited.json", "{}")
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(state_file.StateFileError, match=r"boot-awaited\.json cannot be used"):
        run(tmp_path, "disabled", check)
    assert boot_maker.snapshot(tmp_path) == before


# ---- /etc/default/grub of hosts with grubby ------------------------------------------------------------------------

FORMS = {
    "RHEL8-CIS 84, a newline in quotes": 'GRUB_CMDLINE_LINUX="ro\nnosmt quiet"\n',
    "PMSS 476, a backslash at the end of a line": 'GRUB_CMDLINE_LINUX="ro \\\nnosmt quiet"\n',
    "exported": 'export GRUB_CMDLINE_LINUX="ro nosmt quiet"\n',
    "a value of its own and more": 'GRUB_CMDLINE_LINUX="ro"\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt"\n',
    "a comment behind it": 'GRUB_CMDLINE_LINUX="ro nosmt quiet" # for security\n',
    "in single quotes": "GRUB_CMDLINE_LINUX='ro nosmt quiet'\n",
    "without quotes": "GRUB_CMDLINE_LINUX=nosmt\n",
    "twice": 'GRUB_CMDLINE_LINUX="ro nosmt"\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\n',
    "unraid 2613, with carriage returns": 'GRUB_TIMEOUT=5\r\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\r\n',
    "parts in quotes of their own": 'GRUB_CMDLINE_LINUX="ro"" nosmt"\n',
    "a command": 'GRUB_CMDLINE_LINUX="ro $(echo nosmt)"\n',
    "a default": ': "${GRUB_CMDLINE_LINUX:=ro nosmt}"\n',
    "not valid": 'GRUB_CMDLINE_LINUX="ro nosmt\n',
}


@pytest.mark.parametrize("smt", ["disabled", "enabled", "forced_off"])
@pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)
def test_settings_are_valid_and_have_what_was_asked_for_or_nothing_was_changed(tmp_path, settings, smt):
    boot_maker.grubby_tree(tmp_path, ("root=/dev/sda2 ro quiet",) * 2)
    boot_maker.write(tmp_path, "etc/default/grub", settings)
    before = boot_maker.snapshot(tmp_path)
    outcomes = []
    for check in (True, False):
        try:
            outcomes.append(run(tmp_path, smt, check, kernel="5.14.0-0")["changed"])
        except backend_base.BootLoaderError as error:
            outcomes.append(str(error))
        if check:
            assert boot_maker.snapshot(tmp_path) == before
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], str):
        assert boot_maker.snapshot(tmp_path) == before and "/etc/default/grub" in outcomes[0]
    else:
        wanted = {"disabled": ["nosmt"], "enabled": [], "forced_off": ["nosmt=force"]}[smt]
        assert [word for word in value_in_shell(tmp_path).split() if word.startswith("nosmt")] == wanted
        assert not run(tmp_path, smt, kernel="5.14.0-0")["changed"]


CLOUD = "etc/default/grub.d/50-cloudimg-settings.cfg"
LATER = "etc/default/grub.d/zzz.cfg"
# On Debian: the settings, and another file.
DEBIAN_FORMS = {
    "stackhpc 18, no value for normal entries": ('GRUB_CMDLINE_LINUX="nosmt"\n', None),
    "augeasproviders_grub 38, in both": ('GRUB_CMDLINE_LINUX="nosmt"\nGRUB_CMDLINE_LINUX_DEFAULT="nosmt"\n', None),
    "stackhpc 29, a cloud image": ("", (CLOUD, 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 nosmt"\n')),
    "QubesOS 5340, more of the same": (
        'GRUB_CMDLINE_LINUX="nosmt nosmt"\n',
        ("etc/default/grub.d/30-qubes.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt"\n'),
    ),
    "addon-context-linux 100, read after ours": ("", (LATER, 'GRUB_CMDLINE_LINUX="nosmt=force"\n')),
    "read after ours, with the same": ("", (LATER, 'GRUB_CMDLINE_LINUX="nosmt"\n')),
    "read after ours, with more": ("", (LATER, 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX quiet"\n')),
    "it ends the shell": ("exit 0\n", None),
    "it forbids a change": ("readonly GRUB_CMDLINE_LINUX=nosmt\n", None),
    "it fails": ("GRUB_CMDLINE_LINUX=nosmt\nfalse\n", None),
}


@pytest.mark.parametrize("smt", ["disabled", "enabled", "forced_off"])
@pytest.mark.parametrize(("settings", "other"), DEBIAN_FORMS.values(), ids=DEBIAN_FORMS)
def test_check_mode_agrees_with_the_change_on_debian(tmp_path, settings, other, smt):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, "etc/default/grub", settings)
    if other:
        boot_maker.write(tmp_path, *other)
    subprocess.run([tmp_path / "usr/sbin/grub-mkconfig", "-o", tmp_path / "made"], check=False)
    if (tmp_path / "made").exists():
        (tmp_path / "made").rename(tmp_path / GRUB_CFG)
    before = boot_maker.snapshot(tmp_path)
    outcomes = []
    for check in (True, False):
        try:
            outcomes.append(run(tmp_path, smt, check)["changed"])
        except backend_base.BootLoaderError as error:
            outcomes.append(str(error))
        if check or isinstance(outcomes[-1], str):
            assert boot_maker.snapshot(tmp_path) == before
    assert outcomes[0] == outcomes[1]
    if not isinstance(outcomes[0], str):
        wanted = {"disabled": ["nosmt"], "enabled": [], "forced_off": ["nosmt=force"]}[smt]
        entries = boot_entries.read_grub_cfg(HostFs(str(tmp_path)), GRUB_CFG)
        assert all([word for word in entry.arguments if "nosmt" in word] == wanted for entry in entries)
        assert not run(tmp_path, smt)["changed"]


@pytest.mark.parametrize("smt", ["disabled", "enabled"])
def test_slimbootloader_154_carriage_returns_on_debian(tmp_path, smt):
    boot_maker.grub_tree(tmp_path, settings='GRUB_TIMEOUT=5\r\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\r\n')
    run(tmp_path, smt)
    entries = boot_entries.read_grub_cfg(HostFs(str(tmp_path)), GRUB_CFG)
    wanted = ["nosmt"] if smt == "disabled" else []
    assert all([word for word in entry.arguments if "nosmt" in word] == wanted for entry in entries if entry.generated)


# ---- /etc/kernel/cmdline -------------------------------------------------------------------------------------------


def test_systemd_34008_comments_are_neither_read_nor_merged(tmp_path):
    """Also systemd 41146."""
    text = "# no nosmt here: see the ticket\nroot=UUID=1 ro\n# maxcpus=2 was tried\nquiet\n"
    boot_maker.systemd_tree(tmp_path, cmdline=text)
    assert run(tmp_path, "disabled", kernel="6.1.0-13")["found"] == []
    written = (tmp_path / "etc/kernel/cmdline").read_text()
    assert written == text.replace("root=UUID=1 ro", "nosmt root=UUID=1 ro")
    run(tmp_path, "enabled", kernel="6.1.0-13")
    assert (tmp_path / "etc/kernel/cmdline").read_text() == text


def test_systemd_34008_a_file_of_comments_alone(tmp_path):
    boot_maker.systemd_tree(tmp_path, cmdline="# nosmt\n")
    assert run(tmp_path, "disabled", kernel="6.1.0-13")["changed"]
    assert boot_entries.cmdline_arguments((tmp_path / "etc/kernel/cmdline").read_text()) == ["nosmt"]


# ---- who else writes entries ---------------------------------------------------------------------------------------

STUB_INFO = "sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
OWNERS = {
    "kernel-ark MR 2175": (STUB_INFO, "unified kernel image"),
    "pop 680": ("etc/kernelstub/configuration", "kernelstub --add-options"),
    "NixOS": ("etc/NIXOS", "boot.kernelParams"),
    "Proxmox": ("etc/kernel/proxmox-boot-uuids", "proxmox-boot-tool"),
    "rpm-ostree": ("run/ostree-booted", "rpm-ostree kargs"),
}


@pytest.mark.parametrize("tree", [boot_maker.grub_tree, boot_maker.grubby_tree, boot_maker.systemd_tree])
@pytest.mark.parametrize(("path", "said"), OWNERS.values(), ids=OWNERS)
def test_entries_that_somebody_else_writes_are_left_alone_and_the_tool_is_named(tmp_path, tree, path, said):
    tree(tmp_path)
    boot_maker.write(tmp_path, path, "")
    assert said in refused(tmp_path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("usr/sbin/grub-mkconfig", "check that the file system with /boot is mounted"),
        ("usr/sbin/grub2-mkconfig", "check that the file system with /boot is mounted"),
        ("etc/zfsbootmenu/config.yaml", "org.zfsbootmenu:commandline"),
        ("etc/default/u-boot", "U_BOOT_PARAMETERS"),
        ("sys/firmware/devicetree/base/ibm,opal/name", "petitboot"),
    ],
)
def test_a_loader_that_is_not_changed_is_named(tmp_path, path, said):
    boot_maker.running(tmp_path)
    boot_maker.write(tmp_path, path, "")
    assert said in refused(tmp_path)


def test_unified_images_in_capitals_on_fat(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, "efi/EFI/Linux/DEBIAN.EFI", "")
    assert "unified kernel images (DEBIAN.EFI)" in refused(tmp_path, kernel="6.1.0-13")


def test_grub_customizer_1355_its_scripts_are_those_of_this_host(tmp_path):
    boot_maker.grub_tree(tmp_path)
    cfg = tmp_path / GRUB_CFG
    cfg.write_text(cfg.read_text().replace("/etc/grub.d/10_linux ", "/etc/grub.d/11_linux_proxy "))
    assert facts(tmp_path)["configured"] == []


def test_xen_entries_are_none_of_this_host():
    text = "### BEGIN /etc/grub.d/20_linux_xen ###\nmenuentry 'x' {\n  linux /vmlinuz-1.2 ro\n}\n"
    assert [entry.generated for entry in boot_entries.parse_grub_cfg(text)] == [False]


@pytest.mark.parametrize(
    "entry",
    [
        "menuentry 'Debian (Rettung)' $menuentry_id_option 'gnulinux-6.1-recovery-1' {\n  linux /vmlinuz-6.1 ro",
        "menuentry 'Debian, avec Linux 6.1 (mode de secours)' {\n  linux /vmlinuz-6.1 ro single",
        'menuentry "x" --id "gnulinux-6.1-recovery-1" {\n  linux /vmlinuz-6.1 ro',
        "menuentry 'Fedora' {\n  linux /vmlinuz-0-rescue-0a1b ro",
    ],
)
def test_entries_for_recovery_are_told_in_any_language(entry):
    normal = "menuentry 'Debian' $menuentry_id_option 'gnulinux-simple-1' {\n  linux /vmlinuz-6.1 ro nosmt\n}\n"
    text = f"### BEGIN /etc/grub.d/10_linux ###\n{normal}{entry}\n}}\n### END /etc/grub.d/10_linux ###\n"
    assert [one.is_rescue for one in boot_entries.parse_grub_cfg(text)] == [False, True]


# ---- what the kernel knows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("aarch64", "since Linux 6.15"),
        ("ppc64le", "smt-enabled=off"),
        ("riscv64", "in later kernels at best"),
        ("s390x", "in later kernels at best"),
        ("loongarch64", "in later kernels at best"),
    ],
)
@pytest.mark.parametrize("shown", ["notimplemented\n", None])
def test_linuxppc_201_a_kernel_that_knows_no_nosmt(tmp_path, architecture, words, shown):
    boot_maker.grub_tree(tmp_path)
    for config in (tmp_path / "boot").glob("config-*"):
        config.unlink()
    control = tmp_path / "sys/devices/system/cpu/smt/control"
    control.write_text(shown) if shown else control.unlink()
    for path in (tmp_path / "boot").glob("vmlinuz-6.1.0-12*"):
        path.unlink()
    subprocess.run([tmp_path / "usr/sbin/grub-mkconfig", "-o", tmp_path / GRUB_CFG], check=True, capture_output=True)
    said = refused(tmp_path, architecture=architecture)
    assert "is built without CONFIG_HOTPLUG_SMT" in said and words in said


def test_a_kernel_whose_configuration_says_that_it_knows_nosmt(tmp_path):
    boot_maker.grub_tree(tmp_path)
    (tmp_path / "sys/devices/system/cpu/smt/control").unlink()
    assert run(tmp_path, "disabled", architecture="aarch64")["changed"]


@pytest.mark.parametrize("fails", [False, True])
def test_leapp_421_the_boot_record_of_s390x_is_written_after_the_entries(tmp_path, fails):
    """Also sap-preconfigure 146."""
    boot_maker.grubby_tree(tmp_path)
    log = tmp_path / "zipl.log"
    ends = "echo 'no device' >&2; exit 1" if fails else f"cat {tmp_path}/boot/loader/entries/*0.conf > {log}"
    boot_maker.write(tmp_path, "usr/sbin/zipl", f"#!/bin/sh\n{ends}\n", executable=True)
    before = boot_maker.snapshot(tmp_path)
    if fails:
        with pytest.raises(backend_base.BootLoaderError, match=r"zipl.*no device.*All changed files were restored"):
            run(tmp_path, "disabled", architecture="s390x", kernel="5.14.0-0")
        assert boot_maker.snapshot(tmp_path) == before
    else:
        assert run(tmp_path, "disabled", architecture="s390x", kernel="5.14.0-0")["changed"]
        assert "nosmt" in log.read_text()


def test_nothing_waits_for_a_boot_after_the_arguments_were_put_back(tmp_path):
    boot_maker.grub_tree(tmp_path)
    booted(tmp_path, "first")
    before = boot_frame.present(HostFs(str(tmp_path)))
    run(tmp_path, "disabled")
    assert (tmp_path / "var/lib/threadwise-smt/boot-awaited.json").exists()
    boot_frame.put_back(HostFs(str(tmp_path)), before, False)
    assert not (tmp_path / "var/lib/threadwise-smt/boot-awaited.json").exists()


# ---- who will suffer after the boot, and who will undo it ----------------------------------------------------------


@pytest.mark.parametrize("check", [True, False])
def test_kubernetes_124066_what_will_not_start_after_the_reboot_is_named_before_the_change(tmp_path, check):
    """Also kubernetes 98121 and moby 16141."""
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, "var/lib/kubelet/cpu_manager_state", '{"policyName":"static"}')
    boot_maker.write(tmp_path, "etc/cron.d/smt", "@reboot root echo on > /sys/devices/system/cpu/smt/control\n")
    result = run(tmp_path, "disabled", check)
    assert result["changed"] and "kubelet does not start" in result["affinity_conflicts"][0]
    said = " ".join(result["warnings"])
    assert (
        "1 affinity conflict(s) with a boot without CPUs 1,3,5,7" in said and "/etc/cron.d/smt sets the state" in said
    )


def test_kubernetes_124066_a_boot_without_these_cpus_can_be_refused(tmp_path):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, "var/lib/kubelet/cpu_manager_state", '{"policyName":"static"}')
    before = boot_maker.snapshot(tmp_path)
    for check in (True, False):
        request = change.Request("disabled", None, False, check, affinity_conflicts="fail")
        with pytest.raises(
            backend_base.BootLoaderError, match=r"1 affinity conflict\(s\).*set affinity_conflicts to warn"
        ):
            change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")
    assert boot_maker.snapshot(tmp_path) == before
    # With all CPUs nothing is lost.
    request = change.Request("enabled", None, False, False, affinity_conflicts="fail")
    assert change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")["affinity_conflicts"] == []


def test_kubernetes_124066_what_is_made_right_after_the_boot_is_no_conflict(tmp_path):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, "var/lib/kubelet/cpu_manager_state", '{"policyName":"static"}')
    request = change.Request(
        "disabled", None, False, False, affinity_conflicts="fail", consumers={"kubelet": "restart"}
    )
    result = change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")
    assert result["changed"] and result["affinity_conflicts"] == [] and "kubelet" not in " ".join(result["warnings"])


def test_kubernetes_124066_a_boot_with_more_cpus_keeps_kubelet_from_starting_too(tmp_path):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, "var/lib/kubelet/cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0,2,4,6"}')
    counting.Processes(tmp_path).start(100, ["kubelet"], "kubelet", unit="kubelet.service", mask="0-7")
    said = " ".join(run(tmp_path, "enabled", True)["warnings"])
    assert "kubelet.service has its CPU manager's state for 4 CPUs, and will have 8 after the boot: drain" in said
    request = change.Request("enabled", None, False, True, consumers={"kubelet": "restart"})
    assert not change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")["warnings"]


# ---- dracut 236, systemd-rhel 125, cluster-node-tuning-operator 1618: udev brings every CPU online at boot ----------

ONLINES = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"\n'
BY_PROGRAM = """SUBSYSTEM=="cpu", ACTION=="add", RUN+="/bin/sh -c 'echo 1 > /sys$devpath/online'"\n"""
RULES_OF_MAXCPUS = {
    "of a package": ({"usr/lib/udev/rules.d/40-redhat.rules": ONLINES}, "/usr/lib/udev/rules.d/40-redhat.rules"),
    "of an old package": ({"lib/udev/rules.d/40-redhat.rules": ONLINES}, "/lib/udev/rules.d/40-redhat.rules"),
    "by hand": ({"etc/udev/rules.d/99-cpu-hotplug.rules": BY_PROGRAM}, "/etc/udev/rules.d/99-cpu-hotplug.rules"),
    "until a boot": ({"run/udev/rules.d/80-hotplug.rules": ONLINES}, "/run/udev/rules.d/80-hotplug.rules"),
    "overridden": (
        {"usr/lib/udev/rules.d/40-redhat.rules": ONLINES, "etc/udev/rules.d/40-redhat.rules": "# none\n"},
        None,
    ),
    "masked": ({"usr/lib/udev/rules.d/40-redhat.rules": ONLINES, "etc/udev/rules.d/40-redhat.rules": None}, None),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("rules", "named"), RULES_OF_MAXCPUS.values(), ids=RULES_OF_MAXCPUS)
def test_dracut_236_a_rule_that_undoes_maxcpus_is_named_before_the_boot(tmp_path, rules, named, check):
    boot_maker.grub_tree(tmp_path)
    boot_maker.running(tmp_path, numbering="split")
    for path, text in rules.items():
        if text is None:
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).symlink_to("/dev/null")
        else:
            boot_maker.write(tmp_path, path, text)

    def said(smt, maxcpus, force=False):
        request = change.Request(smt, maxcpus, force, check)
        result = change.run(HostFs(str(tmp_path)), request, "x86_64", "6.1.0-13-amd64")
        return [warning for warning in result["warnings"] if "udev" in warning]

    assert [named in warning for warning in said(None, "one_per_core")] == [True] * (named is not None)
    # No CPU is left for them, or the kernel refuses it.
    assert said(None, "8", force=True) == said("disabled", None) == []


@pytest.mark.parametrize("online", ["0-7", "0-3"])
def test_who_undoes_maxcpus_is_named_whether_it_is_in_force_or_not(tmp_path, online):
    boot_maker.grub_tree(tmp_path)
    boot_maker.running(tmp_path, numbering="split")
    run_maxcpus = change.Request(None, "one_per_core", False, False)
    change.run(HostFs(str(tmp_path)), run_maxcpus, "x86_64", "6.1.0-13-amd64")
    boot_maker.write(tmp_path, "usr/lib/udev/rules.d/40-redhat.rules", ONLINES)
    boot_maker.write(tmp_path, "etc/cron.d/cpus", "@reboot root chcpu -e 4-7\n")
    boot_maker.write(tmp_path, "sys/devices/system/cpu/online", f"{online}\n")
    said = change.run(HostFs(str(tmp_path)), run_maxcpus, "x86_64", "6.1.0-13-amd64")["warnings"]
    assert [word in " ".join(said) for word in ("40-redhat.rules", "/etc/cron.d/cpus sets")] == [True, True]
