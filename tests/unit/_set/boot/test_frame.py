# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot arguments of a host as data, and put back as they were: files byte for byte,
whatever they were and whoever set them.
"""

from __future__ import annotations

import itertools
import json

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change, frame as boot_frame
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base

COMBINED = "nosmt=force mitigations=auto,nosmt maxcpus=4"
DEBIAN = {"settings": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="audit=1"\n'}
OWN = {"10-own.cfg": f'GRUB_CMDLINE_LINUX_DEFAULT="quiet {COMBINED} mds=full,nosmt"\n'}
DIFFER = ("root=/dev/sda2 ro quiet", f"root=/dev/sda2 {COMBINED} ro", "root=/dev/sda2 nosmt ro")
KERNELOPTS = {"options": ("$kernelopts $tuned_params",) * 2, "release": 40, "cmdline": None}
GRUB, GRUBBY, SYSTEMD = boot_maker.grub_tree, boot_maker.grubby_tree, boot_maker.systemd_tree


def without_a_cmdline_yet(root):
    GRUBBY(root, DIFFER[2:] * 3, cmdline=None)
    (root / "etc/kernel").mkdir()


TREES = {
    "debian": (GRUB, DEBIAN),
    "debian, an administrator's": (GRUB, {"drop_ins": OWN}),
    "suse": (GRUB, {"suse": True, **DEBIAN}),
    "suse, an administrator's": (GRUB, {"suse": True, "settings": f'GRUB_CMDLINE_LINUX="audit=1 {COMBINED}"'}),
    "grubby": (GRUBBY, {}),
    "grubby, entries that differ": (GRUBBY, {"options": DIFFER, "cmdline": f"root=/dev/sda2  ro {COMBINED}\n"}),
    "grubby, kernelopts": (GRUBBY, {**KERNELOPTS, "kernelopts": f"root=/dev/sda2 {COMBINED} ro"}),
    "grubby, ours first": (GRUBBY, {**KERNELOPTS, "kernelopts": "nosmt root=/dev/sda2 ro"}),
    "grubby, no cmdline yet": (without_a_cmdline_yet, {}),
    "systemd": (SYSTEMD, {}),
    "systemd, theirs": (SYSTEMD, {"options": f"root=1 {COMBINED} ro  quiet", "cmdline": f"root=1 ro {COMBINED}\n"}),
    "systemd, nothing else": (SYSTEMD, {"options": "nosmt", "cmdline": "nosmt\n"}),
}


def make(root, name):
    maker, options = TREES[name]
    maker(root, **options)


REQUESTS = [("enabled",), ("disabled",), ("forced_off", "enabled"), ("mitigations_nosmt",)]
EARLIER = [None, "disabled", "forced_off", "mitigations_nosmt"]


def ask(root, smt=None, mitigations=None):
    request = boot_change.Request(smt, None, False, False, mitigations)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def frame(root):
    """The present arguments, as they come back from a file."""
    return boot_frame.checked(json.loads(json.dumps(boot_frame.present(host_files.HostFs(str(root))))))


def put_back(root, before, check=False):
    return boot_frame.put_back(host_files.HostFs(str(root)), before, check)


def state(root):
    """All files of the configuration, and our record of what is ours."""
    record = root / "var/lib/threadwise-smt/boot-mitigations.json"
    return boot_maker.snapshot(root), record.read_text() if record.exists() else None


# By day each of these trees with other requests.
DAY = ["debian, an administrator's", "suse", "grubby, entries that differ", "systemd, theirs"]
WAVES = [
    *zip(DAY, EARLIER, REQUESTS, strict=True),
    *itertools.product(TREES, EARLIER[:1], REQUESTS),
    *itertools.product(TREES, EARLIER[1:], REQUESTS[:1]),
]


@pytest.mark.night(after=4)
@pytest.mark.parametrize(("name", "earlier", "wave"), WAVES)
def test_arguments_are_put_back_byte_for_byte(tmp_path, name, earlier, wave):
    """Those of others, and what this collection had set."""
    make(tmp_path, name)
    if earlier:
        ask(tmp_path, earlier)
    before, saved = state(tmp_path), frame(tmp_path)
    for smt in wave:
        ask(tmp_path, smt)
    changed = state(tmp_path) != before
    now = state(tmp_path)
    # Check mode says the same and writes nothing.
    assert put_back(tmp_path, saved, check=True)["changed"] == changed and state(tmp_path) == now
    result = put_back(tmp_path, saved)
    assert (result["not_back"], result["changed"], bool(result["diff"])) == ([], changed, changed)
    assert state(tmp_path) == before
    assert put_back(tmp_path, saved)["changed"] is False, "once is enough"


@pytest.mark.night(after=2)
@pytest.mark.parametrize("name", ["grubby", "debian", "suse", "systemd"])
def test_mitigations_of_ours_are_ours_again(tmp_path, name):
    make(tmp_path, name)
    ask(tmp_path, "disabled", "off")
    before, saved = state(tmp_path), frame(tmp_path)
    ask(tmp_path, "enabled")
    assert state(tmp_path)[1] is None
    put_back(tmp_path, saved)
    assert state(tmp_path) == before
    ask(tmp_path, "enabled")
    # It is known as ours, and goes when it is not asked for.
    assert boot_frame.present(host_files.HostFs(str(tmp_path)))["entries"][0][1] == []


def test_a_reboot_is_required_where_the_kernel_runs_with_other_arguments_than_before(tmp_path):
    boot_maker.grub_tree(tmp_path, drop_ins={"10-own.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt=force"\n'})
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro nosmt=force\n")
    saved = frame(tmp_path)
    ask(tmp_path, "enabled")
    assert put_back(tmp_path, saved)["reboot_required"] is False, "it was not rebooted"
    ask(tmp_path, "enabled")
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro\n")
    assert put_back(tmp_path, saved, check=True)["reboot_required"] is True
    assert put_back(tmp_path, saved)["reboot_required"] is True and put_back(tmp_path, saved)["reboot_required"] is True
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro nosmt=force\n")
    # Also with entries for recovery, which have no such argument.
    assert put_back(tmp_path, saved)["reboot_required"] is False


def test_an_interrupted_run_is_finished_once_the_tools_work(tmp_path):
    boot_maker.grub_tree(tmp_path)
    before, saved = state(tmp_path), frame(tmp_path)
    ask(tmp_path, "disabled")
    # As if it had been killed between the settings and grub.cfg.
    (tmp_path / "etc/default/grub.d/zz-threadwise-smt.cfg").unlink()
    assert put_back(tmp_path, saved, check=True)["changed"] is True
    now = state(tmp_path)
    boot_maker.write(tmp_path, "mkconfig-fails", "")
    with pytest.raises(backend_base.BootLoaderError, match=r"grub-probe: error: cannot find a device"):
        put_back(tmp_path, saved)
    assert state(tmp_path) == now
    (tmp_path / "mkconfig-fails").unlink()
    assert put_back(tmp_path, saved)["changed"] is True and state(tmp_path) == before


def test_a_kernel_that_was_installed_since_stays_and_is_named(tmp_path):
    boot_maker.systemd_tree(tmp_path, "root=UUID=1 ro nosmt", "root=UUID=1 ro nosmt\n")
    saved = frame(tmp_path)
    ask(tmp_path, "enabled")
    newer = "title Newer\nlinux /m/6.6.0/linux\noptions root=UUID=1 ro\n"
    boot_maker.write(tmp_path, "efi/loader/entries/m-6.6.0.conf", newer)
    boot_maker.write(tmp_path, "etc/kernel/cmdline", "root=UUID=1 ro audit=1\n")
    result = put_back(tmp_path, saved)
    assert result["not_back"] == ["the boot entry Newer has no argument for SMT instead of nosmt"]
    assert (tmp_path / "efi/loader/entries/m-6.1.0-13.conf").read_text().endswith("options root=UUID=1 ro nosmt\n")
    # Somebody has changed this line otherwise.
    assert (tmp_path / "etc/kernel/cmdline").read_text() == "root=UUID=1 ro audit=1\n"


def test_an_environment_block_keeps_its_size_and_its_other_variables(tmp_path):
    make(tmp_path, "grubby, ours first")
    content = "# GRUB Environment Block\nsaved_entry=m-5.14.0-0\nkernelopts=root=/dev/sda2 ro nosmt\nboot_success=0\n"
    boot_maker.write(tmp_path, "boot/grub2/grubenv", content + "#" * (1024 - len(content)))
    saved = frame(tmp_path)
    now = content.replace(" nosmt", "").replace("success=0", "success=1")
    boot_maker.write(tmp_path, "boot/grub2/grubenv", now + "#" * (1024 - len(now)))
    assert put_back(tmp_path, saved)["not_back"] == []
    text = (tmp_path / "boot/grub2/grubenv").read_text()
    assert len(text) == 1024 and text.rstrip("#") == content.replace("success=0", "success=1")


def test_settings_that_the_administrator_changed_since_stay_and_the_difference_is_named(tmp_path):
    boot_maker.grub_tree(tmp_path, settings='GRUB_CMDLINE_LINUX="nosmt"\n')
    saved = frame(tmp_path)
    ask(tmp_path, "enabled")
    boot_maker.write(tmp_path, "etc/default/grub", 'GRUB_CMDLINE_LINUX="audit=1"\n')
    result = put_back(tmp_path, saved)
    assert len(result["not_back"]) == 4 and "Debian, with Linux 6.1.0-12-amd64" in result["not_back"][0]
    assert (tmp_path / "etc/default/grub").read_text() == 'GRUB_CMDLINE_LINUX="audit=1"\n'


def test_another_boot_loader_is_refused(tmp_path):
    saved = frame(boot_maker.grub_tree(tmp_path / "one"))
    with pytest.raises(backend_base.BootLoaderError, match=r"is systemd-boot.*were saved from grub_debian"):
        put_back(boot_maker.systemd_tree(tmp_path / "other"), saved)


@pytest.mark.parametrize(
    "damage", [{"loader": 1}, {"texts": {"etc/x": 1}}, {"entries": [["a", [1]]]}, {"running": [None]}, {"own": ["x=1"]}]
)
def test_a_frame_of_other_things_is_refused(tmp_path, damage):
    with pytest.raises((ValueError, TypeError, KeyError)):
        boot_frame.checked({**frame(boot_maker.grub_tree(tmp_path)), **damage})


def test_no_other_file_is_written_whatever_a_frame_names(tmp_path):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, "etc/shadow", "root:x\n")
    saved = frame(tmp_path)
    saved["texts"].update({"etc/shadow": "root:\n", "etc/new": "x\n", "../out": "x\n"})
    before = state(tmp_path)
    assert put_back(tmp_path, saved)["changed"] is False and state(tmp_path) == before
    assert not (tmp_path.parent / "out").exists()


def test_it_is_described_in_a_few_words(tmp_path):
    boot_maker.grub_tree(tmp_path, settings=f'GRUB_CMDLINE_LINUX="{COMBINED}"\n')
    assert boot_frame.described(frame(tmp_path)) == f"boot arguments {COMBINED}"
    ask(tmp_path, "enabled")
    assert boot_frame.described(frame(tmp_path)) == "no boot arguments for SMT"
    boot_maker.grubby_tree(tmp_path / "other", ("root=/dev/sda2", "root=/dev/sda2 nosmt"))
    assert boot_frame.described(frame(tmp_path / "other")) == "boot arguments that differ from entry to entry"
