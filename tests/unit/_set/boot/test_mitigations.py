# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`mitigations=` as this collection sets it, and as it was found: with each boot loader it is undone byte for byte,
or not touched.
"""

from __future__ import annotations

import json

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    change as boot_change,
    mitigations,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction

SETTINGS = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="%s"\n'


def killed(*_dummy):
    raise KeyboardInterrupt


def run(root, smt=None, chosen=None, maxcpus=None, check=False):
    request = boot_change.Request(smt, maxcpus, False, check, chosen)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def grub(root, own="", suse=False):
    return boot_maker.grub_tree(root, SETTINGS % own, suse=suse)


TREES = {
    "grub_debian": grub,
    "grub_suse": lambda root: grub(root, suse=True),
    "grubby": boot_maker.grubby_tree,
    "grubby with kernelopts": lambda root: boot_maker.grubby_tree(
        root, ("$kernelopts",) * 2, kernelopts="root=/dev/sda2 ro", cmdline=None
    ),
    "systemd_boot": boot_maker.systemd_tree,
}


# By day each choice with another tree.
CASES = [
    (chosen, list(TREES.values())[(2 * number + turn) % len(TREES)])
    for turn in range(len(TREES))
    for number, chosen in enumerate(mitigations.ARGUMENTS)
]


def booted(root):
    """The running system after a boot of the first entry."""
    fs = host_files.HostFs(str(root))
    first = boot_change.detection.find_loader(fs).loader.read_entries(fs)[0]
    boot_maker.write(root, "proc/cmdline", " ".join(first.arguments) + "\n")
    (root / mitigations.REMOVED.path).unlink(missing_ok=True)


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("chosen", "tree"), CASES)
def test_it_is_set_proved_replaced_and_undone_byte_for_byte(tmp_path, tree, chosen):
    before = boot_maker.snapshot(tree(tmp_path))
    argument = mitigations.ARGUMENTS[chosen]
    done = run(tmp_path, chosen=chosen)
    assert (done["changed"], done["reboot_required"], done["configured"]) == (True, True, [argument])
    assert done["differences"] == [f"/proc/cmdline: {argument} is missing"]
    booted(tmp_path)
    again = run(tmp_path, chosen=chosen)
    assert (again["changed"], again["reboot_required"], again["differences"]) == (False, False, [])
    assert again["running"] == [argument]
    other = run(tmp_path, chosen="auto" if chosen == "off" else "off")
    assert len(other["configured"]) == 1 and other["configured"] != [argument] and other["reboot_required"]
    undone = run(tmp_path, "enabled")
    # The running kernel still has it, whatever the files say.
    assert (undone["configured"], undone["running"], undone["reboot_required"]) == ([], [argument], True)
    assert run(tmp_path, "enabled")["reboot_required"]
    booted(tmp_path)
    last = run(tmp_path, "enabled")
    assert (last["changed"], last["reboot_required"], last["differences"]) == (False, False, [])
    assert boot_maker.snapshot(tmp_path) == before
    assert not (tmp_path / mitigations.RECORD.path).exists()


@pytest.mark.night(after=3)
@pytest.mark.parametrize("suse", [False, True])
@pytest.mark.parametrize("own", ["mitigations=auto;no_user_kernel", "mitigations=off", "mitigations=auto quiet"])
def test_the_hosts_own_is_back_after_ours_with_grub(tmp_path, own, suse):
    # In grub's own files a semicolon has to be quoted; the settings of this tree are read by a shell, in quotes.
    before = boot_maker.snapshot(grub(tmp_path, own, suse))
    for chosen in mitigations.ARGUMENTS:
        done = run(tmp_path, chosen=chosen)
        assert mitigations.ARGUMENTS[chosen] in done["configured"]
    assert [one["argument"] for one in done["found"]] == [own.split()[0]]
    run(tmp_path, "enabled")
    assert boot_maker.snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("own", "chosen", "expected"),
    [
        (
            "mitigations=auto;no_user_kernel",
            "auto_nosmt",
            "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel",
        ),
        ("mitigations=auto;no_user_kernel", "auto", "mitigations=auto mitigations=auto,no_user_kernel"),
        ("mitigations=auto,no_cross_thread", "auto_nosmt", "mitigations=auto,nosmt"),
        ("mitigations=auto,no_user_user", "off", "mitigations=off"),
        ("mitigations=off mitigations=auto mitigations", "auto", "mitigations=auto"),
        ("mitigations=auto quiet mitigations=off,no_user_user", "off", "mitigations=off quiet"),
        ("nomitigations=auto xmitigations=off", "off", "mitigations=off nomitigations=auto xmitigations=off"),
        ("mitigations=*,?,$HOME", "auto", "mitigations=auto mitigations=auto,*,?,$HOME"),
        ("nosmt mds=full,nosmt", "off", "mitigations=off nosmt mds=full,nosmt"),
    ],
)
def test_attack_vectors_are_kept_and_what_goes_is_named(own, chosen, expected):
    desired = mitigations.combined(None, chosen, is_smt_on=False)
    assert " ".join(boot_arguments.applied(own.split(), desired)) == expected
    assert boot_arguments.rewritten_text(own, desired) == expected
    assert boot_arguments.differences(expected.split(), desired) == []


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("tree", "own"),
    [
        (boot_maker.systemd_tree, "mitigations=auto"),
        (boot_maker.grubby_tree, 'mitigations="auto;no_user_kernel"'),
        (boot_maker.systemd_tree, "mitigations=off mitigations=auto"),
    ],
)
def test_a_loader_that_could_not_put_the_hosts_own_back_refuses(tmp_path, tree, own):
    if tree is boot_maker.grubby_tree:
        tree(tmp_path, (f"root=/dev/sda2 ro {own}",) * 2)
    else:
        tree(tmp_path, f"root=UUID=1 ro {own}")
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match=r"has 'mitigations=.*' of its own"):
        run(tmp_path, chosen="auto_nosmt")
    assert run(tmp_path, "disabled")["changed"] and run(tmp_path, "enabled")["changed"]
    assert boot_maker.snapshot(tmp_path) == before and not (tmp_path / mitigations.RECORD.path).exists()


@pytest.mark.parametrize(("smt", "maxcpus"), [("disabled", None), ("enabled", None), (None, "4")])
def test_it_is_set_beside_the_arguments_for_smt(tmp_path, smt, maxcpus):
    grub(tmp_path, "nosmt")
    boot_maker.running(tmp_path, numbering="split")
    done = run(tmp_path, smt, "off", maxcpus)
    assert done["configured"] == [
        *{"disabled": ["nosmt"], "forced_off": ["nosmt=force"], "enabled": []}.get(smt, ["maxcpus=4"]),
        "mitigations=off",
    ]
    booted(tmp_path)
    assert not any(one.startswith("/proc/cmdline") for one in run(tmp_path, smt, "off", maxcpus)["differences"])


@pytest.mark.parametrize(
    ("smt", "chosen"), [("enabled", "auto_nosmt"), ("disabled", "auto_nosmt"), ("mitigations_nosmt", "off")]
)
def test_what_contradicts_is_refused(tmp_path, smt, chosen):
    before = boot_maker.snapshot(grub(tmp_path))
    with pytest.raises(boot_arguments.BootArgsError, match=r"cannot be combined with .*Give one of them"):
        run(tmp_path, smt, chosen)
    assert boot_maker.snapshot(tmp_path) == before


def test_another_value_is_refused(tmp_path):
    with pytest.raises(boot_arguments.BootArgsError, match="it must be one of auto, auto_nosmt, off"):
        run(grub(tmp_path), chosen="auto,nosmt")


def test_a_host_whose_own_differs_from_the_running_one_is_not_asked_to_reboot(tmp_path):
    grub(tmp_path)
    boot_maker.running(tmp_path, "root=UUID=1 ro mitigations=off")
    done = run(tmp_path, "enabled")
    assert not done["changed"] and not done["reboot_required"] and done["running"] == []


def test_a_change_that_fails_leaves_no_record_of_it(tmp_path):
    boot_maker.grubby_tree(tmp_path)
    boot_maker.write(tmp_path, "grubby-fails-at-1", "")
    with pytest.raises(backend_base.BootLoaderError):
        run(tmp_path, chosen="off")
    assert not (tmp_path / mitigations.RECORD.path).exists()


KILLED = {"before": (transaction.Undo, "__enter__"), "after": (mitigations.OwnArguments, "settle")}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("earlier", [None, "auto"])
@pytest.mark.parametrize("made", KILLED)
@pytest.mark.parametrize("tree", [TREES["grubby"], TREES["systemd_boot"], TREES["grub_debian"], TREES["grub_suse"]])
def test_a_run_that_was_killed_can_be_undone(tmp_path, monkeypatch, tree, made, earlier):
    before = boot_maker.snapshot(tree(tmp_path))
    fs = host_files.HostFs(str(tmp_path))
    if earlier:
        run(tmp_path, chosen=earlier)
    with monkeypatch.context() as patch:
        patch.setattr(*KILLED[made], killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, chosen="off")
    assert "mitigations=off" in mitigations.OwnArguments(fs).configured
    assert run(tmp_path, "enabled")["configured"] == []
    assert boot_maker.snapshot(tmp_path) == before and mitigations.OwnArguments(fs).configured == ()


def test_a_record_that_nobody_here_wrote_is_refused(tmp_path):
    grub(tmp_path)
    document = {"schema": "threadwise.smt/boot-mitigations", "schema_version": 1, "arguments": ["quiet"]}
    boot_maker.write(tmp_path, mitigations.RECORD.path, json.dumps(document))
    with pytest.raises(state_file.StateFileError, match="an argument that this collection does not set"):
        run(tmp_path, "enabled")
