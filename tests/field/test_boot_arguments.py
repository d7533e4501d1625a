# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of boot arguments on hosts as they are out there, each rebuilt on a small tree."""

import re
import subprocess

import counting
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    change,
    detection,
    entries as boot_entries,
    frame as boot_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_debian
from boot_maker import grub_tree, grubby_tree, running, snapshot, systemd_tree, write

GRUB_CFG, MKCONFIG, AWAITED = "boot/grub/grub.cfg", "usr/sbin/grub-mkconfig", "var/lib/threadwise-smt/boot-awaited.json"
OFF = {"online": "0,2,4,6", "control": "off", "active": "0"}
WANTED = {"disabled": ["nosmt"], "enabled": [], "forced_off": ["nosmt=force"]}
REDHAT = {"kernel": "5.14.0-0"}


def run(root, smt=None, check=False, architecture="x86_64", kernel="6.1.0-13-amd64", maxcpus=None, **more):
    force = more.pop("force", False)
    return change.run(HostFs(str(root)), change.Request(smt, maxcpus, force, check, **more), architecture, kernel)


def facts(root):
    fs = HostFs(str(root))
    return detection.facts(fs, detection.find_loader(fs))


def refused(root, smt="disabled", **options):
    """The sentence of a refusal, which is the same in check mode, and leaves everything as it was."""
    said = outcome(root, smt, **options)
    assert isinstance(said, str)
    return said


def outcome(root, smt, **options):
    """Whether something was changed, or the sentence of a refusal: the same in check mode, which changes nothing."""
    before, outcomes = snapshot(root), []
    for check in (True, False):
        try:
            outcomes.append(run(root, smt, check, **options)["changed"])
        except change.ERRORS as error:
            outcomes.append(str(error))
        if check or isinstance(outcomes[-1], str):
            assert snapshot(root) == before
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def mkconfig(root, *changes):
    tool = root / MKCONFIG
    for old, new in changes:
        assert old in tool.read_text()
        tool.write_text(tool.read_text().replace(old, new))
    subprocess.run([tool, "-o", root / GRUB_CFG], check=True, capture_output=True)


def generated(root):
    return boot_entries.read_grub_cfg(HostFs(str(root)), GRUB_CFG)


def smt_words(entry):
    return [word for word in entry.arguments if "nosmt" in word]


def test_lp_1870189_and_1875400_entries_that_try_without_an_initial_ram_disk_first(tmp_path):
    # Also LP 1875400.
    line = "linux /boot/vmlinuz-5.4.0 root=PARTUUID=1 ro nosmt"
    text = f"""### BEGIN /etc/grub.d/10_linux ###
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-1' {{
        if [ "${{initrdfail}}" = 1 ]; then
          {line}
          initrd  /boot/initrd.img-5.4.0
        else
          {line} panic=-1
        fi
        initrdfail
}}
### END /etc/grub.d/10_linux ###
"""
    found = boot_entries.parse_grub_cfg(text)
    assert [(one.initrd, smt_words(one), one.generated) for one in found] == [
        (x, ["nosmt"], True) for x in (True, False)
    ]
    grub_tree(tmp_path)
    end = '    printf "\\tinitrd\\t/boot/initrd.img-%s\\n}\\n" "$2"\n'
    line = "\\tlinux\\t/boot/vmlinuz-%s root=UUID=1 ro %s\\n"
    mkconfig(tmp_path, (end, end.replace('}\\n" "$2"', line + '}\\n" "$2" "$2" "$3"')))
    assert outcome(tmp_path, "disabled") is True
    assert [smt_words(entry) for entry in generated(tmp_path)] == [["nosmt"]] * 8
    tool = tmp_path / MKCONFIG
    tool.write_text(tool.read_text().replace("\\tinitrd\\t/boot/initrd.img-%s\\n\\tlinux", "\\tlinux", 1))
    with pytest.raises(change.ERRORS, match="the initial RAM disk"):
        run(tmp_path, "enabled")


def tuned(root, params="skew_tick=1 nosmt", by_hand=False):
    """A host of Debian with TuneD's plug-in `bootloader`, which may have put its variables into grub.cfg by itself."""
    grub_tree(root, settings='GRUB_CMDLINE_LINUX_DEFAULT="quiet \\$tuned_params"\n')
    lines = ("### BEGIN /etc/grub.d/00_tuned ###", f'set tuned_params="{params}"', 'set tuned_initrd=""')
    section = "".join(f"echo '{line}'\n" for line in (*lines, "### END /etc/grub.d/00_tuned ###"))
    mkconfig(root, ("\n{\n", f"\n{{\n{section}"))
    write(root, "etc/tuned/active_profile", "realtime\n")
    if by_hand:
        variables = {"linux": "$tuned_params", "initrd": "$tuned_initrd"}
        entries = re.compile(r"^menuentry '(?![^']*recovery).*?^}", re.DOTALL | re.MULTILINE)
        booting = re.compile(r"^(\t(linux|initrd)\t.*?) *$", re.MULTILINE)
        cfg = root / GRUB_CFG
        added = entries.sub(lambda one: booting.sub(lambda li: f"{li[1]} {variables[li[2]]}", one[0]), cfg.read_text())
        cfg.write_text(added)
    return root


def test_tuned_704_an_argument_by_tuned_is_found_as_configured(tmp_path):
    tuned(tmp_path)
    running(tmp_path, "root=UUID=1 ro quiet skew_tick=1 nosmt", **OFF)
    found, result = facts(tmp_path), run(tmp_path, "disabled")
    assert (found["configured"], found["reboot_required"]) == (["nosmt"], False)
    assert (result["changed"], result["reboot_required"], result["configured"]) == (False, False, ["nosmt"])
    assert result["differences"] == [] and ["TuneD's profile realtime" in one for one in result["warnings"]] == [True]


def test_tuned_706_what_tuned_sets_is_not_removed_behind_its_back(tmp_path):
    said = refused(tuned(tmp_path / "debian"), "enabled")
    assert "TuneD sets nosmt" in said and "realtime" in said and "tuned-adm profile" in said
    # On a host with entries of the boot loader specification.
    root = tmp_path / "redhat"
    grubby_tree(root, ("root=/dev/sda2 ro $tuned_params",) * 2)
    write(root, "boot/grub2/grub.cfg", 'set tuned_params="nosmt=force"\n')
    assert facts(root)["configured"] == ["nosmt=force"] and not run(root, "forced_off", **REDHAT)["changed"]
    assert "TuneD sets nosmt=force" in refused(root, "disabled", **REDHAT)
    # Without arguments for SMT it is in nobody's way.
    result = run(tuned(tmp_path / "other", "skew_tick=1"), "disabled")
    assert (result["changed"], result["configured"], result["warnings"]) == (True, ["nosmt"], [])


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
    """Debian's grub-mkconfig writes one entry by itself, and all of them in a submenu."""
    tuned(tmp_path, "nosmt")
    loop, end = 'for kernel in "$root"/boot', "echo '### END /etc/grub.d/10_linux"
    first = """entry 'Debian GNU/Linux' 6.1.0-13-amd64 "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"\n"""
    submenu = """echo "submenu 'Advanced options for Debian' \\$menuentry_id_option 'advanced' {"\n"""
    header = f"cat <<'EOF'\nset default={default}\n{exported}EOF\n"
    mkconfig(tmp_path, (f"done\nfi\n{end}", f"done\nfi\necho '}}'\n{end}"), (loop, f"{header}{first}{submenu}{loop}"))
    assert facts(tmp_path)["configured"] == configured
    result = run(tmp_path, "disabled")
    assert (result["changed"], result["configured"][:1]) == (configured is None, ["nosmt"])
    assert result["reboot_required"] and not run(tmp_path, "disabled")["changed"]


CLOUD = "etc/default/grub.d/50-cloudimg-settings.cfg"


def test_stackhpc_29_tuneds_variable_stays_where_cloud_images_set_the_value_anew(tmp_path):
    """TuneD writes it into grub.cfg, and into /etc/default/grub, which is read before the file of cloud images."""
    write(tmp_path, CLOUD, 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0"\n')
    tuned(tmp_path, by_hand=True)
    before = (tmp_path / GRUB_CFG).read_text()
    assert before.count("$tuned_params") == 2
    for smt, more in (("disabled", {}), (None, {"mitigations": "auto"})):
        run(tmp_path, smt, **more)
        text = (tmp_path / GRUB_CFG).read_text()
        assert text.count("$tuned_params") == text.count("$tuned_initrd") == 2
        assert facts(tmp_path)["configured"] == ["nosmt"]
    # Ours goes, and what is TuneD's stays.
    run(tmp_path, "disabled")
    assert "mitigations=auto" in text and (tmp_path / GRUB_CFG).read_text() == before


def test_stackhpc_36_an_argument_that_is_there_twice_needs_no_reboot(tmp_path):
    run(grub_tree(tmp_path / "before"), "disabled")
    root = tuned(tmp_path / "now", "nosmt")
    write(root, grub_debian.DROP_IN, (tmp_path / "before" / grub_debian.DROP_IN).read_text())
    mkconfig(root)
    for cmdline in ("nosmt root=UUID=1 ro quiet", "nosmt root=UUID=1 ro quiet nosmt"):
        running(root, cmdline, **OFF)
        found, result = facts(root), run(root, "disabled")
        assert (found["configured"], found["running"], found["reboot_required"]) == (["nosmt"], ["nosmt"], False)
        assert (result["changed"], result["reboot_required"]) == (False, False)
        assert result["differences"] == result["warnings"] == []
    assert (root / grub_debian.DROP_IN).exists()


def booted(root, boot, cmdline="root=UUID=1 ro quiet"):
    running(root, cmdline)
    write(root, "proc/sys/kernel/random/boot_id", f"{boot}\n")


def test_tuned_704_a_host_that_boots_without_what_is_configured_is_not_rebooted_at_each_run(tmp_path):
    grub_tree(tmp_path)
    before, present = snapshot(tmp_path), boot_frame.present(HostFs(str(tmp_path)))
    booted(tmp_path, "first")
    for _time in range(2):
        first = run(tmp_path, "disabled")
        assert first["reboot_required"] and first["reboot_in_vain"] is None
    booted(tmp_path, "second")
    for check in (True, False, True):
        again = run(tmp_path, "disabled", check)
        assert again["reboot_required"] and again["reboot_in_vain"]
    # Another request is a new one, and one that is in force leaves nothing.
    assert run(tmp_path, "forced_off")["reboot_in_vain"] is None
    booted(tmp_path, "third", "root=UUID=1 ro nosmt=force")
    assert not run(tmp_path, "forced_off")["reboot_required"] and not (tmp_path / AWAITED).exists()
    # Those that were taken away by hand and are set again wait for a boot of their own.
    booted(tmp_path, "fourth")
    run(tmp_path, "disabled")
    for path in snapshot(tmp_path):
        (tmp_path / path).unlink()
    for path, (mode, data) in before.items():
        write(tmp_path, path, data.decode(), executable=bool(mode & 0o100))
    booted(tmp_path, "fifth")
    again = run(tmp_path, "disabled")
    assert again["reboot_required"] and again["reboot_in_vain"] is None and (tmp_path / AWAITED).exists()
    # Nothing waits after they were put back.
    boot_frame.put_back(HostFs(str(tmp_path)), present, False)
    assert not (tmp_path / AWAITED).exists()


@pytest.mark.parametrize("check", [True, False])
def test_a_record_that_cannot_be_used_ends_the_run_before_anything_is_changed(tmp_path, check):
    grub_tree(tmp_path)
    booted(tmp_path, "first")
    write(tmp_path, AWAITED, "{}")
    before = snapshot(tmp_path)
    with pytest.raises(state_file.StateFileError, match=r"boot-awaited\.json"):
        run(tmp_path, "disabled", check)
    assert snapshot(tmp_path) == before


# On hosts with grubby.
FORMS = {
    "RHEL8-CIS_84, a newline in quotes": 'GRUB_CMDLINE_LINUX="ro\nnosmt quiet"\n',
    "PMSS_476, a backslash at the end of a line": 'GRUB_CMDLINE_LINUX="ro \\\nnosmt quiet"\n',
    "a value of its own and more": 'GRUB_CMDLINE_LINUX="ro"\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt"\n',
    "a comment behind it": 'GRUB_CMDLINE_LINUX="ro nosmt quiet" # for security\n',
    "twice": 'GRUB_CMDLINE_LINUX="ro nosmt"\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\n',
    "unraid_2613, with carriage returns": 'GRUB_TIMEOUT=5\r\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\r\n',
    "parts in quotes of their own": 'GRUB_CMDLINE_LINUX="ro"" nosmt"\n',
    "a command": 'GRUB_CMDLINE_LINUX="ro $(echo nosmt)"\n',
    "not valid": 'GRUB_CMDLINE_LINUX="ro nosmt\n',
}


@pytest.mark.night(after=9)
@pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("smt", WANTED)
def test_settings_are_valid_and_have_what_was_asked_for_or_nothing_was_changed(tmp_path, settings, smt):
    grubby_tree(tmp_path, ("root=/dev/sda2 ro quiet",) * 2)
    path = write(tmp_path, "etc/default/grub", settings)
    said = outcome(tmp_path, smt, **REDHAT)
    if isinstance(said, str):
        assert "/etc/default/grub" in said
    else:
        shell = ["/bin/sh", "-ec", f'. {path}; printf %s "$GRUB_CMDLINE_LINUX"']
        value = subprocess.run(shell, check=True, capture_output=True, text=True).stdout
        assert [word for word in value.split() if word.startswith("nosmt")] == WANTED[smt]
        assert not run(tmp_path, smt, **REDHAT)["changed"]


LATER = "etc/default/grub.d/zzz.cfg"
# On Debian: the settings, and another file.
DEBIAN_FORMS = {
    "stackhpc_18, no value for normal entries": ('GRUB_CMDLINE_LINUX="nosmt"\n',),
    "augeasproviders_grub_38, in both": ('GRUB_CMDLINE_LINUX="nosmt"\nGRUB_CMDLINE_LINUX_DEFAULT="nosmt"\n',),
    "stackhpc_29, a cloud image": ("", CLOUD, 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 nosmt"\n'),
    "QubesOS_5340, more of the same": (
        'GRUB_CMDLINE_LINUX="nosmt nosmt"\n',
        *("etc/default/grub.d/30-qubes.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt"\n'),
    ),
    "addon-context-linux_100, read after ours": ("", LATER, 'GRUB_CMDLINE_LINUX="nosmt=force"\n'),
    "read after ours, with more": ("", LATER, 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX quiet"\n'),
    "it ends the shell": ("exit 0\n",),
    "it forbids a change": ("readonly GRUB_CMDLINE_LINUX=nosmt\n",),
    "slimbootloader_154, carriage returns": ('GRUB_TIMEOUT=5\r\nGRUB_CMDLINE_LINUX="ro nosmt quiet"\r\n',),
}


@pytest.mark.night(after=9)
@pytest.mark.parametrize("settings", DEBIAN_FORMS.values(), ids=DEBIAN_FORMS)
@pytest.mark.parametrize("smt", WANTED)
def test_check_mode_agrees_with_the_change_on_debian(tmp_path, settings, smt):
    grub_tree(tmp_path)
    write(tmp_path, "etc/default/grub", settings[0])
    if settings[1:]:
        write(tmp_path, *settings[1:])
    subprocess.run([tmp_path / MKCONFIG, "-o", tmp_path / "made"], check=False)
    if (tmp_path / "made").exists():
        (tmp_path / "made").rename(tmp_path / GRUB_CFG)
    if not isinstance(outcome(tmp_path, smt), str):
        assert all(smt_words(entry) == WANTED[smt] for entry in generated(tmp_path))
        assert not run(tmp_path, smt)["changed"]


def test_systemd_34008_and_grub_customizer_1355_comments_are_not_read_and_scripts_of_others_are_this_hosts(tmp_path):
    root = tmp_path / "root"
    # Also systemd 41146.
    text = "# no nosmt here: see the ticket\nroot=UUID=1 ro\n# maxcpus=2 was tried\nquiet\n"
    systemd_tree(root, cmdline=text)
    path = root / "etc/kernel/cmdline"
    assert run(root, "disabled", kernel="6.1.0-13")["found"] == []
    assert path.read_text() == text.replace("root=UUID=1 ro", "nosmt root=UUID=1 ro")
    run(root, "enabled", kernel="6.1.0-13")
    assert path.read_text() == text
    path.write_text("# nosmt\n")
    assert run(root, "disabled", kernel="6.1.0-13")["changed"]
    assert boot_entries.cmdline_arguments(path.read_text()) == ["nosmt"]
    grub_tree(tmp_path)
    cfg = tmp_path / GRUB_CFG
    cfg.write_text(cfg.read_text().replace("/etc/grub.d/10_linux ", "/etc/grub.d/11_linux_proxy "))
    assert facts(tmp_path)["configured"] == []
    text = "### BEGIN /etc/grub.d/20_linux_xen ###\nmenuentry 'x' {\n  linux /vmlinuz-1.2 ro\n}\n"
    assert [entry.generated for entry in boot_entries.parse_grub_cfg(text)] == [False]


OWNERS = {
    "kernel-ark_MR_2175": ("sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "unified kernel"),
    "pop_680": ("etc/kernelstub/configuration", "kernelstub --add-options"),
    "NixOS": ("etc/NIXOS", "boot.kernelParams"),
    "Proxmox": ("etc/kernel/proxmox-boot-uuids", "proxmox-boot-tool"),
    "rpm-ostree": ("run/ostree-booted", "rpm-ostree kargs"),
}
NOT_CHANGED = {
    "a tool alone": ("usr/sbin/grub-mkconfig", "the file system with /boot"),
    "ZFSBootMenu": ("etc/zfsbootmenu/config.yaml", "org.zfsbootmenu:commandline"),
    "U-Boot": ("etc/default/u-boot", "U_BOOT_PARAMETERS"),
}


@pytest.mark.parametrize(("path", "said"), {**OWNERS, **NOT_CHANGED}.values(), ids={**OWNERS, **NOT_CHANGED})
def test_entries_that_somebody_else_writes_are_left_alone_and_the_tool_is_named(tmp_path, path, said):
    for tree in [grub_tree, grubby_tree, systemd_tree] if (path, said) in OWNERS.values() else [running]:
        root = tmp_path / tree.__name__
        root.mkdir()
        tree(root)
        write(root, path, "")
        assert said in refused(root), tree


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


LATER_KERNELS = dict.fromkeys(["riscv64", "s390x", "loongarch64"], "in later kernels")


@pytest.mark.parametrize("shown", ["notimplemented\n", None])
def test_linuxppc_201_a_kernel_that_knows_no_nosmt(tmp_path, shown):
    grub_tree(tmp_path)
    control = tmp_path / "sys/devices/system/cpu/smt/control"
    control.write_text(shown) if shown else control.unlink()
    # Its configuration may say that it knows it.
    assert run(tmp_path, "disabled", check=True, architecture="aarch64")["changed"] or shown
    for path in [*(tmp_path / "boot").glob("config-*"), *(tmp_path / "boot").glob("vmlinuz-6.1.0-12*")]:
        path.unlink()
    mkconfig(tmp_path)
    for architecture, words in {"aarch64": "since Linux 6.15", "ppc64le": "smt-enabled=off", **LATER_KERNELS}.items():
        said = refused(tmp_path, architecture=architecture)
        assert "CONFIG_HOTPLUG_SMT" in said and words in said


@pytest.mark.parametrize("fails", [False, True])
def test_leapp_421_the_boot_record_of_s390x_is_written_after_the_entries(tmp_path, fails):
    """Also sap-preconfigure 146."""
    grubby_tree(tmp_path)
    log = tmp_path / "zipl.log"
    ends = "echo 'no device' >&2; exit 1" if fails else f"cat {tmp_path}/boot/loader/entries/*0.conf > {log}"
    write(tmp_path, "usr/sbin/zipl", f"#!/bin/sh\n{ends}\n", executable=True)
    before = snapshot(tmp_path)
    if fails:
        with pytest.raises(change.ERRORS, match=r"zipl.*no device.*All changed files were restored"):
            run(tmp_path, "disabled", architecture="s390x", **REDHAT)
        assert snapshot(tmp_path) == before
    else:
        assert run(tmp_path, "disabled", architecture="s390x", **REDHAT)["changed"] and "nosmt" in log.read_text()


STATE, RESTART = "var/lib/kubelet/cpu_manager_state", {"consumers": {"kubelet": "restart"}}


@pytest.mark.parametrize("check", [True, False])
def test_kubernetes_124066_what_will_not_start_after_the_reboot_is_named_before_the_change(tmp_path, check):
    """Also kubernetes 98121 and moby 16141."""
    grub_tree(tmp_path)
    write(tmp_path, STATE, '{"policyName":"static"}')
    write(tmp_path, "etc/cron.d/smt", "@reboot root echo on > /sys/devices/system/cpu/smt/control\n")
    # It can be refused; with all CPUs nothing is lost, nor is what is made right after the boot.
    before = snapshot(tmp_path)
    with pytest.raises(change.ERRORS, match=r"1 affinity conflict\(s\).*affinity_conflicts"):
        run(tmp_path, "disabled", check, affinity_conflicts="fail")
    assert snapshot(tmp_path) == before
    assert run(tmp_path, "enabled", check, affinity_conflicts="fail")["affinity_conflicts"] == []
    made = run(tmp_path, "disabled", True, affinity_conflicts="fail", **RESTART)
    assert made["changed"] and made["affinity_conflicts"] == [] and "kubelet" not in " ".join(made["warnings"])
    result = run(tmp_path, "disabled", check)
    assert result["changed"] and "kubelet does not start" in result["affinity_conflicts"][0]
    said = " ".join(result["warnings"])
    assert "1 affinity conflict(s) with a boot without CPUs 1,3,5,7" in said and "/etc/cron.d/smt sets" in said


def test_kubernetes_124066_a_boot_with_more_cpus_keeps_kubelet_from_starting_too(tmp_path):
    grub_tree(tmp_path)
    write(tmp_path, STATE, '{"policyName":"static","defaultCpuSet":"0,2,4,6"}')
    counting.Processes(tmp_path).start(100, ["kubelet"], "kubelet", unit="kubelet.service", mask="0-7")
    said = " ".join(run(tmp_path, "enabled", True)["warnings"])
    assert "kubelet.service has its CPU manager's state for 4 CPUs, and will have 8" in said
    assert not run(tmp_path, "enabled", True, **RESTART)["warnings"]


# dracut 236, systemd-rhel 125, cluster-node-tuning-operator 1618: udev brings every CPU online at boot.
ONLINES = 'SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}=="0", ATTR{online}="1"\n'
BY_PROGRAM = """SUBSYSTEM=="cpu", ACTION=="add", RUN+="/bin/sh -c 'echo 1 > /sys$devpath/online'"\n"""
USR, ETC = "usr/lib/udev/rules.d/40-redhat.rules", "etc/udev/rules.d/40-redhat.rules"
RULES_OF_MAXCPUS = {
    "of a package": ({USR: ONLINES}, f"/{USR}"),
    "of an old package": ({"lib/udev/rules.d/40-redhat.rules": ONLINES}, "/lib/udev/rules.d/40-redhat.rules"),
    "by hand": ({"etc/udev/rules.d/99-cpu-hotplug.rules": BY_PROGRAM}, "/etc/udev/rules.d/99-cpu-hotplug.rules"),
    "until a boot": ({"run/udev/rules.d/80-hotplug.rules": ONLINES}, "/run/udev/rules.d/80-hotplug.rules"),
    "overridden": ({USR: ONLINES, ETC: "# none\n"}, None),
    "masked": ({USR: ONLINES, ETC: None}, None),
}


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("rules", "named"), RULES_OF_MAXCPUS.values(), ids=RULES_OF_MAXCPUS)
@pytest.mark.parametrize("check", [True, False])
def test_dracut_236_a_rule_that_undoes_maxcpus_is_named_before_the_boot(tmp_path, rules, named, check):
    running(grub_tree(tmp_path), numbering="split")
    for path, text in rules.items():
        if text is None:
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).symlink_to("/dev/null")
        else:
            write(tmp_path, path, text)

    def said(smt, **more):
        return [warning for warning in run(tmp_path, smt, check, **more)["warnings"] if "udev" in warning]

    assert [named in warning for warning in said(None, maxcpus="one_per_core")] == [True] * (named is not None)
    # No CPU is left for them, or the kernel refuses it.
    assert said(None, maxcpus="8", force=True) == said("disabled") == []
