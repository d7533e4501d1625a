# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot loader of a host: which of several is used, and one that is added to the registry."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pathlib
import re

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import (
    arguments as boot_arguments,
    change as boot_change,
    detection,
    entries as boot_entries,
    facts as boot_facts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border_facts

CMDLINE = "boot/toy/cmdline"
LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def read_toy(fs):
    return [
        boot_entries.Entry(
            "Linux", "/vmlinuz-6.1.0-13-amd64", tuple(boot_arguments.split_arguments(fs.read(CMDLINE) or ""))
        )
    ]


class Toy:
    """The backend of a boot loader with one text of arguments."""

    def __init__(self, fs, tool):
        self.fs, self.tool, self.warnings = fs, tool, []

    def entries(self):
        return read_toy(self.fs)

    def found(self, desired):
        return [
            {"argument": argument, "where": self.tool}
            for argument in boot_arguments.superfluous(self.entries()[0].arguments, desired)
        ]

    def pending(self, desired):
        text = transaction.read_exact(self.fs, CMDLINE)
        new = (
            boot_arguments.rewritten_text(text, desired)
            if boot_arguments.differences(self.entries()[0].arguments, desired)
            else text
        )
        return [] if new == text else [backend_base.TextChange(self.fs.path(CMDLINE), text, new)]

    def apply(self, desired):
        with transaction.Undo(self.fs) as undo:
            undo.back_up(CMDLINE)
            for change in self.pending(desired):
                transaction.replace(self.fs, CMDLINE, change.after)


def toy(evidence):
    finding = loader_base.Finding(evidence, CMDLINE)
    return loader_base.Loader(
        name="toy",
        title="the toy",
        chosen="",
        written="",
        tested="",
        find=lambda fs: finding if fs.status(CMDLINE) else None,
        read_entries=read_toy,
        backend=Toy,
    )


def test_a_loader_in_the_registry_is_found_and_used_everywhere(tmp_path, monkeypatch):
    """A new loader is one file: facts, the border, the change and its messages know it from the registry."""
    monkeypatch.setattr(registry, "LOADERS", (*registry.LOADERS, toy(loader_base.Evidence.ONLY_ONE)))
    boot_maker.running(tmp_path)
    fs = host_files.HostFs(str(tmp_path))
    assert f"{registry.LOADERS[-2].title} and the toy." in detection.find_loader(fs).blocked_by

    boot_maker.write(tmp_path, CMDLINE, "nosmt=force ro\n")
    seen = facts.gather(fs)
    assert seen["boot"] == {"running": [], "configured": ["nosmt=force"], "loader": "toy", "reboot_required": True}
    methods = boot_facts.methods(detection.find_loader(fs), None)
    assert (methods["chosen"], set(methods["impossible"])) == (
        "toy",
        {loader.name for loader in registry.LOADERS if loader.name != "toy"},
    )
    assert border_facts.accept(seen)["boot"]["loader"] == "toy"

    result = boot_change.run(fs, boot_change.Request("disabled", None, False, False), "x86_64", "6.1.0-13-amd64")
    assert (result["loader"], result["changed"], result["found"]) == (
        "toy",
        True,
        [{"argument": "nosmt=force", "where": CMDLINE}],
    )
    assert (tmp_path / CMDLINE).read_text() == "nosmt ro\n"


def install(root, names):
    """Put the signs of boot loaders into one tree."""
    boot_maker.running(root)
    makers = {
        "grub_debian": lambda: boot_maker.grub_tree(root),
        "grub_suse": lambda: boot_maker.grub_tree(root, suse=True),
        "grubby": lambda: boot_maker.grubby_tree(root),
        "systemd_boot": lambda: (
            boot_maker.systemd_tree(root),
            boot_maker.write(root, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252")),
        ),
        "leftover of systemd-boot": lambda: boot_maker.systemd_tree(root),
    }
    for name in names:
        makers[name]()
    return detection.find_loader(host_files.HostFs(str(root)))


ORDER = ("systemd_boot", "grubby", "grub_suse", "grub_debian", "leftover of systemd-boot")


@pytest.mark.parametrize("names", [names for size in (1, 2, 3, 4) for names in itertools.combinations(ORDER, size)])
def test_of_several_loaders_the_one_with_the_highest_evidence_is_used(tmp_path, names):
    assert install(tmp_path, names).name == ("systemd_boot" if names[0] == ORDER[-1] else names[0])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "none of .*/boot/efi/loader/entries has an entry of it: mount the EFI system partition"),
        ("boot/efi/EFI/Linux/debian.efi", r"boot/efi/EFI/Linux contains unified kernel images \(debian.efi\)"),
    ],
)
def test_what_systemd_boot_started_is_not_left_to_another_loader(tmp_path, path, reason):
    boot_maker.grub_tree(tmp_path)
    boot_maker.write(tmp_path, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252"))
    if path is not None:
        boot_maker.write(tmp_path, path, "")
    found = detection.find_loader(host_files.HostFs(str(tmp_path)))
    assert found.name == detection.NONE and re.search(reason, found.blocked_by)


@pytest.mark.parametrize("cfg", boot_entries.GRUB_CFGS)
def test_entries_beside_a_grub_that_nothing_manages_are_not_systemd_boots(tmp_path, cfg):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, cfg, "")
    assert "GRUB without" in detection.find_loader(host_files.HostFs(str(tmp_path))).blocked_by


def test_of_two_loaders_with_equal_evidence_the_first_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "LOADERS", (*registry.LOADERS, toy(loader_base.Evidence.MANAGER)))
    boot_maker.write(tmp_path, CMDLINE, "ro\n")
    assert install(tmp_path, ["grub_debian"]).name == "toy"
    assert install(tmp_path, ["grubby"]).name == "grubby"


def test_names_are_unique_and_fit_the_border():
    names = [loader.name for loader in registry.LOADERS]
    assert len(set(names)) == len(names) and detection.NONE not in names
    assert all(name.isidentifier() and name.islower() for name in names)


def test_the_errors_of_the_package_share_a_base_class():
    package = pathlib.Path(boot_arguments.__file__).parent
    name = boot_arguments.__name__.rpartition(".")[0]
    modules = [
        importlib.import_module(".".join([name, *path.relative_to(package).with_suffix("").parts]))
        for path in package.rglob("*.py")
    ]
    errors = {
        defined
        for module in modules
        for dummy, defined in inspect.getmembers(module, inspect.isclass)
        if issubclass(defined, Exception) and defined.__module__.startswith(name)
    }
    assert {backend_base.BootLoaderError, boot_arguments.BootArgsError} <= errors
    assert all(issubclass(error, boot_arguments.BootError) for error in errors)
    assert boot_arguments.BootError in boot_change.ERRORS
