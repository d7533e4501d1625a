# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot entries as the loader's files give them: what would be booted next, and with which arguments. No program is run, nothing is written."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from ansible_collections.threadwise.smt.plugins.module_utils._boot.arguments import split_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

GRUB_DEBIAN, GRUBBY, GRUB_SUSE, SYSTEMD_BOOT = "grub_debian", "grubby", "grub_suse", "systemd_boot"
NONE = "none"

BLS_DIRECTORIES = ("boot/loader/entries", "efi/loader/entries", "boot/efi/loader/entries")
GRUBENV = ("boot/grub2/grubenv", "boot/grub/grubenv")
KERNEL_CMDLINE = "etc/kernel/cmdline"
MOST_ENTRIES = 1000

_GRUB_CFG = {GRUB_DEBIAN: "boot/grub/grub.cfg", GRUB_SUSE: "boot/grub2/grub.cfg", GRUBBY: "boot/grub2/grub.cfg"}
_MKCONFIG = ("usr/sbin/grub-mkconfig", "usr/bin/grub-mkconfig")
_MKCONFIG2 = ("usr/sbin/grub2-mkconfig", "usr/bin/grub2-mkconfig")
_GRUBBY = ("usr/sbin/grubby", "usr/bin/grubby", "sbin/grubby")
_SUSE_TOOLS = ("usr/sbin/update-bootloader", "sbin/update-bootloader", "usr/sbin/pbl", "sbin/pbl")
_LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_LINUX = ("linux", "linux16", "linuxefi")
_SECTION = re.compile(r"### (BEGIN|END) (\S+) ###")

# What is in the way of every method below, by the file that shows it.
_STRANGERS = (
    ("run/ostree-booted", "this system is managed by rpm-ostree: use rpm-ostree kargs"),
    ("etc/kernel/proxmox-boot-uuids", "proxmox-boot-tool copies the boot configuration to partitions of its own: set the argument in its files"),
    ("usr/sbin/transactional-update", "this system is changed by transactional-update, in a new snapshot: set the argument by transactional-update grub.cfg"),
)
_OTHER_LOADERS = (
    ("boot/extlinux/extlinux.conf", "extlinux"),
    ("boot/firmware/cmdline.txt", "the boot loader of the Raspberry Pi"),
    ("boot/cmdline.txt", "the boot loader of the Raspberry Pi"),
    ("etc/zipl.conf", "zipl without grubby"),
    ("etc/lilo.conf", "LILO"),
    ("boot/refind_linux.conf", "rEFInd"),
    ("boot/grub/menu.lst", "GRUB legacy"),
    ("boot/grub2/grub.cfg", "GRUB without grubby and without the tools of SUSE"),
    ("boot/grub/grub.cfg", "GRUB without a grub-mkconfig that reads /etc/default/grub.d"),
)


@dataclass(frozen=True)
class Entry:
    """One boot entry.

    Attributes:
        title: as the menu shows it.
        kernel: path of the kernel's image as the loader sees it.
        arguments: its boot arguments (tuple of str).
        generated: True when it is made from the host's settings, False for a hand-written one or another system's.
        initrd: True when it loads an initial RAM disk.
    """

    title: str
    kernel: str
    arguments: tuple
    generated: bool = True
    initrd: bool = True

    @property
    def release(self):
        """The kernel's release (str), as its image is named: ``/boot/vmlinuz-6.1.0-13-amd64`` is 6.1.0-13-amd64; empty when it is not named so."""
        match = re.search(r"(?:^|[-/])([0-9]+\.[0-9][^/]*?)(?:/[^/]*)?$", self.kernel)
        return "" if match is None else match.group(1)


@dataclass(frozen=True)
class Loader:
    """The boot loader that was found.

    Attributes:
        name: one of the methods (`GRUB_DEBIAN` ...), or `NONE`.
        hindrance: why its configuration cannot be changed, a sentence naming what was found; None when it can.
        tool: path, below the sysroot, of the program that makes the configuration; None when there is none.
    """

    name: str
    hindrance: str = None
    tool: str = None


def find_loader(fs):
    """The boot loader, by what is installed; the name of the distribution is not asked.

    Args:
        fs: `host_files.HostFs`.

    Returns:
        Loader.
    """
    for path, reason in _STRANGERS:
        if fs.status(path) is not None:
            return Loader(NONE, f"there is {fs.path(path)}: {reason}")
    for name, tool in _candidates(fs):
        if tool is not None:
            return Loader(name, tool=tool)
    found = next((f"{fs.path(path)} was found: {what}" for path, what in _OTHER_LOADERS if fs.status(path) is not None), None)
    return Loader(
        NONE,
        (found or f"no boot loader was found in {fs.path('boot')}, as in a container") + ". What is known here: grub on Debian and Ubuntu, "
        "grubby, grub on SUSE, systemd-boot. Without one of these use smt_runtime_persist of the role smt_runtime",
    )


def _candidates(fs):
    # The firmware's variable tells which loader started this system, where several are installed.
    if "systemd-boot" in (fs.head(_LOADER_INFO, 256) or "").replace("\0", ""):
        yield SYSTEMD_BOOT, bls_directory(fs)
    yield GRUBBY, _first(fs, _GRUBBY)
    if _first(fs, _SUSE_TOOLS) and fs.status(_GRUB_CFG[GRUB_SUSE]) is not None:
        yield GRUB_SUSE, _first(fs, _MKCONFIG2)
    mkconfig = _first(fs, _MKCONFIG)
    if mkconfig and fs.status(_GRUB_CFG[GRUB_DEBIAN]) is not None and "default/grub.d" in (fs.read(mkconfig) or ""):
        yield GRUB_DEBIAN, mkconfig
    if not any(fs.status(path) for path in _GRUB_CFG.values()) and fs.status(KERNEL_CMDLINE) is not None:
        yield SYSTEMD_BOOT, bls_directory(fs)


def _first(fs, paths):
    return next((path for path in paths if fs.status(path) is not None), None)


def bls_directory(fs):
    """The directory with boot loader entries (Boot Loader Specification, type 1), or None when none has any."""
    return next((path for path in BLS_DIRECTORIES if any(name.endswith(".conf") for name in fs.names(path))), None)


def grub_cfg(name):
    """The path of grub.cfg for a loader's name."""
    return _GRUB_CFG[name]


def read_entries(fs, loader):
    """The entries that boot Linux.

    Args:
        loader: Loader.

    Returns:
        list of Entry; empty when the files cannot be read or hold none.
    """
    if loader.name in (GRUBBY, SYSTEMD_BOOT):
        entries = [entry for dummy, entry in read_bls(fs)]
        if entries or loader.name == SYSTEMD_BOOT:
            return entries
    if loader.name not in _GRUB_CFG:
        return []
    return parse_grub_cfg(fs.read(_GRUB_CFG[loader.name], host_files.LARGE) or "")


# ---- grub.cfg -------------------------------------------------------------------------------------------------------------------------------------


def parse_grub_cfg(text):
    """The entries of a grub.cfg that grub-mkconfig made. Those from `10_linux` scripts are generated from the host's settings.

    Returns:
        list of Entry.
    """
    entries = []
    script, title = "", ""
    for line in text.split("\n"):
        section = _SECTION.match(line)
        if section is not None:
            script = section.group(2).rpartition("/")[2] if section.group(1) == "BEGIN" else ""
            continue
        words = line.split(None, 1)
        if len(words) < 2:
            continue
        if words[0] == "menuentry":
            title = (_words(words[1]) or [""])[0]
        elif words[0] in _LINUX:
            kernel, arguments = _kernel_and_arguments(words[1])
            entries.append(Entry(title, kernel, arguments, script.startswith("10_linux"), initrd=False))
        elif words[0].startswith("initrd") and entries:
            last = entries[-1]
            entries[-1] = Entry(last.title, last.kernel, last.arguments, last.generated, True)
    return entries[:MOST_ENTRIES]


def complete_sections(text):
    """Names of the scripts whose part of a grub.cfg has a beginning and an end (set of str)."""
    found = _SECTION.findall(text)
    return {script for what, script in found if what == "BEGIN" and ("END", script) in found}


def has_xen(text):
    """Whether a grub.cfg boots the Xen hypervisor, which has its own `smt=` argument."""
    return re.search(r"^\s*(multiboot2?|xen_hypervisor)\s+\S*xen", text, re.MULTILINE) is not None


def _words(text):
    """Words as grub's script language parts them, which for what grub-mkconfig writes is as a shell does; None when a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _kernel_and_arguments(text):
    words = _words(text)
    if words is None:
        words = text.split()
    arguments = words[1:]
    return words[0], tuple(arguments[: arguments.index("--")] if "--" in arguments else arguments)


# ---- entries of the Boot Loader Specification -----------------------------------------------------------------------------------------------------


def read_bls(fs):
    """Entries of type 1 that boot Linux: list of (path, Entry). ``$kernelopts`` is taken from grub's environment block."""
    directory = bls_directory(fs)
    if directory is None:
        return []
    kernelopts = read_kernelopts(fs) or ""
    found = []
    for name in fs.names(directory)[:MOST_ENTRIES]:
        path = directory + "/" + name
        text = fs.read(path) if name.endswith(".conf") else None
        entry = None if text is None else parse_bls(text, kernelopts)
        if entry is not None:
            found.append((path, entry))
    return found


def parse_bls(text, kernelopts=""):
    """One entry's file as Entry, or None when it boots no Linux."""
    values = {}
    for line in text.split("\n"):
        words = line.strip().split(None, 1)
        if len(words) == 2 and not words[0].startswith("#"):
            values.setdefault(words[0], []).append(words[1])
    if "linux" not in values:
        return None
    options = " ".join(values.get("options", []))
    options = re.sub(r"\$\{?kernelopts\b\}?", lambda dummy: kernelopts, options)
    return Entry(values.get("title", [""])[-1], values["linux"][-1], tuple(split_arguments(options)), True, "initrd" in values)


def read_kernelopts(fs):
    """The variable `kernelopts` of grub's environment block (grub2-editenv), or None when there is none."""
    for path in GRUBENV:
        for line in (fs.read(path) or "").split("\n"):
            if line.startswith("kernelopts="):
                return line[len("kernelopts=") :]
    return None
