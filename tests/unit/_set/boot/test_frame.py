# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot arguments of a host as data, and put back as they were: files byte for byte, whatever they were and whoever
set them. `mitigations=` as this collection sets it, and as it was found: it is undone byte for byte, or not touched.
"""

import itertools
import json
from unittest import mock

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    change as boot_change,
    detection,
    frame as boot_frame,
    mitigations,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction

COMBINED = "nosmt=force mitigations=auto,nosmt maxcpus=4"
DEBIAN = {"settings": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="audit=1"\n'}
OWN = {"10-own.cfg": f'GRUB_CMDLINE_LINUX_DEFAULT="quiet {COMBINED} mds=full,nosmt"\n'}
DIFFER = ("root=/dev/sda2 ro quiet", f"root=/dev/sda2 {COMBINED} ro", "root=/dev/sda2 nosmt ro")
KERNELOPTS = {"options": ("$kernelopts $tuned_params",) * 2, "release": 40, "cmdline": None}
GRUB, GRUBBY, SYSTEMD = boot_maker.grub_tree, boot_maker.grubby_tree, boot_maker.systemd_tree
LINE = 'GRUB_CMDLINE_LINUX="{}"\n'.format


TREES = {
    "debian": (GRUB, DEBIAN),
    "debian, an administrator's": (GRUB, {"drop_ins": OWN}),
    "suse": (GRUB, {"suse": True, **DEBIAN}),
    "suse, an administrator's": (GRUB, {"suse": True, "settings": LINE(f"audit=1 {COMBINED}")}),
    "grubby": (GRUBBY, {}),
    "grubby, entries that differ": (GRUBBY, {"options": DIFFER, "cmdline": f"root=/dev/sda2  ro {COMBINED}\n"}),
    "grubby, kernelopts": (GRUBBY, {**KERNELOPTS, "kernelopts": f"root=/dev/sda2 {COMBINED} ro"}),
    "grubby, ours first": (GRUBBY, {**KERNELOPTS, "kernelopts": "nosmt root=/dev/sda2 ro"}),
    "grubby, no cmdline yet": (GRUBBY, {"options": DIFFER[2:] * 3, "cmdline": None}),
    "systemd": (SYSTEMD, {}),
    "systemd, theirs": (SYSTEMD, {"options": f"root=1 {COMBINED} ro  quiet", "cmdline": f"root=1 ro {COMBINED}\n"}),
    "systemd, nothing else": (SYSTEMD, {"options": "nosmt", "cmdline": "nosmt\n"}),
}


REQUESTS = [("enabled",), ("disabled",), ("forced_off", "enabled"), ("mitigations_nosmt",)]
EARLIER = [None, ("disabled",), ("forced_off",), ("mitigations_nosmt",)]


def ask(root, smt=None, chosen=None, maxcpus=None):
    request = boot_change.Request(smt, maxcpus, False, False, chosen)
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
    # Mitigations of ours are ours again.
    *((name, ("disabled", "off"), ("enabled",)) for name in ("grubby", "debian", "suse", "systemd")),
    *itertools.product(TREES, EARLIER[:1], REQUESTS),
    *itertools.product(TREES, EARLIER[1:], REQUESTS[:1]),
]


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("name", "earlier", "wave"), WAVES)
def test_arguments_are_put_back_byte_for_byte(tmp_path, name, earlier, wave):
    """Those of others, and what this collection had set."""
    maker, options = TREES[name]
    maker(tmp_path, **options)
    if name == "grubby, no cmdline yet":
        (tmp_path / "etc/kernel").mkdir()
    if earlier:
        ask(tmp_path, *earlier)
    before, saved = state(tmp_path), frame(tmp_path)
    for smt in wave:
        ask(tmp_path, smt)
    now = state(tmp_path)
    changed = now != before
    # Check mode says the same and writes nothing.
    assert put_back(tmp_path, saved, check=True)["changed"] == changed and state(tmp_path) == now
    result = put_back(tmp_path, saved)
    assert (result["not_back"], result["changed"], bool(result["diff"])) == ([], changed, changed)
    assert state(tmp_path) == before
    assert put_back(tmp_path, saved)["changed"] is False, "once is enough"


def test_an_interrupted_run_is_finished_once_the_tools_work(tmp_path):
    GRUB(tmp_path)
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


def test_an_environment_block_keeps_its_size_and_its_other_variables(tmp_path):
    GRUBBY(tmp_path, **KERNELOPTS, kernelopts="nosmt root=/dev/sda2 ro")
    content = "# GRUB Environment Block\nsaved_entry=m-5.14.0-0\nkernelopts=root=/dev/sda2 ro nosmt\nboot_success=0\n"
    boot_maker.write(tmp_path, "boot/grub2/grubenv", content + "#" * (1024 - len(content)))
    saved = frame(tmp_path)
    now = content.replace(" nosmt", "").replace("success=0", "success=1")
    boot_maker.write(tmp_path, "boot/grub2/grubenv", now + "#" * (1024 - len(now)))
    assert put_back(tmp_path, saved)["not_back"] == []
    text = (tmp_path / "boot/grub2/grubenv").read_text()
    assert len(text) == 1024 and text.rstrip("#") == content.replace("success=0", "success=1")


def test_what_others_have_changed_since_stays_and_nothing_but_boot_files_is_written(tmp_path):
    boot_maker.grub_tree(tmp_path / "grub", settings=LINE("nosmt"))
    saved = frame(tmp_path / "grub")
    ask(tmp_path / "grub", "enabled")
    boot_maker.write(tmp_path / "grub", "etc/default/grub", LINE("audit=1"))
    result = put_back(tmp_path / "grub", saved)
    assert len(result["not_back"]) == 4 and "Debian, with Linux 6.1.0-12-amd64" in result["not_back"][0]
    assert (tmp_path / "grub" / "etc/default/grub").read_text() == LINE("audit=1")
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, "etc/shadow", "root:x\n")
    saved = frame(tmp_path)
    saved["texts"].update({"etc/shadow": "root:\n", "etc/new": "x\n", "../out": "x\n"})
    before = state(tmp_path)
    assert put_back(tmp_path, saved)["changed"] is False and state(tmp_path) == before
    assert not (tmp_path.parent / "out").exists()


@pytest.mark.parametrize(
    "damage", [{"loader": 1}, {"texts": {"etc/x": 1}}, {"entries": [["a", [1]]]}, {"running": [None]}, {"own": ["x=1"]}]
)
def test_a_frame_of_other_things_or_of_another_loader_is_refused(tmp_path, damage):
    saved = frame(boot_maker.grub_tree(tmp_path / "one"))
    with pytest.raises((ValueError, TypeError, KeyError)):
        boot_frame.checked({**saved, **damage})
    with pytest.raises(backend_base.BootLoaderError, match=r"is systemd-boot.*were saved from grub_debian"):
        put_back(boot_maker.systemd_tree(tmp_path / "other"), saved)


def grub(root, own="", suse=False):
    return boot_maker.grub_tree(root, f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{own}"\n', suse=suse)


def has_record(root):
    return (root / mitigations.RECORD.path).exists()


LOADERS = {
    "grub_debian": grub,
    "grub_suse": lambda root: grub(root, suse=True),
    "grubby": GRUBBY,
    "grubby with kernelopts": lambda root: GRUBBY(root, **KERNELOPTS, kernelopts="root=/dev/sda2 ro"),
    "systemd_boot": SYSTEMD,
}
# By day each choice with another tree.
CHOICES = [
    (chosen, list(LOADERS.values())[(2 * number + turn) % len(LOADERS)])
    for turn in range(len(LOADERS))
    for number, chosen in enumerate(mitigations.ARGUMENTS)
]


def booted(root):
    """The running system after a boot of the first entry."""
    fs = host_files.HostFs(str(root))
    first = detection.find_loader(fs).loader.read_entries(fs)[0]
    boot_maker.write(root, "proc/cmdline", " ".join(first.arguments) + "\n")
    (root / mitigations.REMOVED.path).unlink(missing_ok=True)


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("chosen", "tree"), CHOICES)
def test_it_is_set_proved_replaced_and_undone_byte_for_byte(tmp_path, tree, chosen):
    before = boot_maker.snapshot(tree(tmp_path))
    argument = mitigations.ARGUMENTS[chosen]
    done = ask(tmp_path, chosen=chosen)
    assert (done["changed"], done["reboot_required"], done["configured"]) == (True, True, [argument])
    assert done["differences"] == [f"/proc/cmdline: {argument} is missing"]
    booted(tmp_path)
    again = ask(tmp_path, chosen=chosen)
    assert (again["changed"], again["reboot_required"], again["differences"]) == (False, False, [])
    assert again["running"] == [argument]
    other = ask(tmp_path, chosen="auto" if chosen == "off" else "off")
    assert len(other["configured"]) == 1 and other["configured"] != [argument] and other["reboot_required"]
    undone = ask(tmp_path, "enabled")
    # The running kernel still has it, whatever the files say.
    assert (undone["configured"], undone["running"], undone["reboot_required"]) == ([], [argument], True)
    assert ask(tmp_path, "enabled")["reboot_required"]
    booted(tmp_path)
    last = ask(tmp_path, "enabled")
    assert (last["changed"], last["reboot_required"], last["differences"]) == (False, False, [])
    assert boot_maker.snapshot(tmp_path) == before and not has_record(tmp_path)


@pytest.mark.night(after=2)
@pytest.mark.parametrize("own", ["mitigations=auto;no_user_kernel", "mitigations=off", "mitigations=auto quiet"])
@pytest.mark.parametrize("suse", [False, True])
def test_the_hosts_own_is_back_after_ours_with_grub(tmp_path, own, suse):
    # In grub's own files a semicolon has to be quoted; the settings of this tree are read by a shell, in quotes.
    before = boot_maker.snapshot(grub(tmp_path, own, suse))
    for chosen in mitigations.ARGUMENTS:
        done = ask(tmp_path, chosen=chosen)
        assert mitigations.ARGUMENTS[chosen] in done["configured"]
    assert [one["argument"] for one in done["found"]] == [own.split()[0]]
    ask(tmp_path, "enabled")
    assert boot_maker.snapshot(tmp_path) == before


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("tree", "own"),
    [
        (SYSTEMD, "mitigations=auto"),
        (GRUBBY, 'mitigations="auto;no_user_kernel"'),
        (SYSTEMD, "mitigations=off mitigations=auto"),
    ],
)
def test_a_loader_that_could_not_put_the_hosts_own_back_refuses(tmp_path, tree, own):
    line = f"root=/dev/sda2 ro {own}"
    tree(tmp_path, (line,) * 2 if tree is GRUBBY else line)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match=r"has 'mitigations=.*' of its own"):
        ask(tmp_path, chosen="auto_nosmt")
    assert ask(tmp_path, "disabled")["changed"] and ask(tmp_path, "enabled")["changed"]
    assert boot_maker.snapshot(tmp_path) == before and not has_record(tmp_path)


@pytest.mark.parametrize(
    ("smt", "maxcpus", "configured"), [("disabled", None, ["nosmt"]), ("enabled", None, []), (None, "4", ["maxcpus=4"])]
)
def test_it_is_set_beside_the_arguments_for_smt(tmp_path, smt, maxcpus, configured):
    grub(tmp_path, "nosmt")
    boot_maker.running(tmp_path, numbering="split")
    assert ask(tmp_path, smt, "off", maxcpus=maxcpus)["configured"] == [*configured, "mitigations=off"]
    booted(tmp_path)
    assert not any(one.startswith("/proc/cmdline") for one in ask(tmp_path, smt, "off", maxcpus=maxcpus)["differences"])


@pytest.mark.parametrize(
    ("smt", "chosen"),
    [("enabled", "auto_nosmt"), ("disabled", "auto_nosmt"), ("mitigations_nosmt", "off"), (None, "auto,nosmt")],
)
def test_what_contradicts_is_refused(tmp_path, smt, chosen):
    before = boot_maker.snapshot(grub(tmp_path))
    with pytest.raises(boot_arguments.BootArgsError, match=r"cannot be combined with|must be one of"):
        ask(tmp_path, smt, chosen)
    assert boot_maker.snapshot(tmp_path) == before


def test_a_host_whose_own_differs_is_not_asked_to_reboot_but_one_that_runs_with_others_than_before_is(tmp_path):
    boot_maker.running(grub(tmp_path / "own"), "root=UUID=1 ro mitigations=off")
    done = ask(tmp_path / "own", "enabled")
    assert not done["changed"] and not done["reboot_required"] and done["running"] == []
    GRUB(tmp_path, drop_ins={"10-own.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt=force"\n'})
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro nosmt=force\n")
    saved = frame(tmp_path)
    ask(tmp_path, "enabled")
    assert put_back(tmp_path, saved)["reboot_required"] is False, "it was not rebooted"
    ask(tmp_path, "enabled")
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro\n")
    assert [put_back(tmp_path, saved, check)["reboot_required"] for check in (True, False, False)] == [True] * 3
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro nosmt=force\n")
    # Also with entries for recovery, which have no such argument.
    assert put_back(tmp_path, saved)["reboot_required"] is False


def test_a_change_that_fails_leaves_no_record_of_it_and_a_record_of_others_is_refused(tmp_path):
    GRUBBY(tmp_path)
    boot_maker.write(tmp_path, "grubby-fails-at-1", "")
    with pytest.raises(backend_base.BootLoaderError):
        ask(tmp_path, chosen="off")
    assert not has_record(tmp_path)
    document = {"schema": "threadwise.smt/boot-mitigations", "schema_version": 1, "arguments": ["quiet"]}
    boot_maker.write(tmp_path, mitigations.RECORD.path, json.dumps(document))
    with pytest.raises(state_file.StateFileError):
        ask(tmp_path, "enabled")


KILLED = {"before": (transaction.Undo, "__enter__"), "after": (mitigations.OwnArguments, "settle")}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("earlier", [None, "auto"])
@pytest.mark.parametrize("made", KILLED)
@pytest.mark.parametrize("tree", ["grubby", "systemd_boot", "grub_debian", "grub_suse"])
def test_a_run_that_was_killed_can_be_undone(tmp_path, monkeypatch, tree, made, earlier):
    before = boot_maker.snapshot(LOADERS[tree](tmp_path))
    fs = host_files.HostFs(str(tmp_path))
    if earlier:
        ask(tmp_path, chosen=earlier)
    with monkeypatch.context() as patch:
        patch.setattr(*KILLED[made], mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path, chosen="off")
    assert "mitigations=off" in mitigations.OwnArguments(fs).configured
    assert ask(tmp_path, "enabled")["configured"] == []
    assert boot_maker.snapshot(tmp_path) == before and mitigations.OwnArguments(fs).configured == ()
