# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot entries from the boot loader's files: which kernels can be booted, and with which arguments. No program is run and nothing is written."""

from __future__ import annotations

import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.threadwise.smt.plugins.module_utils._boot.arguments import split_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

GRUB_DEBIAN, GRUBBY, GRUB_SUSE, SYSTEMD_BOOT = "grub_debian", "grubby", "grub_suse", "systemd_boot"
NONE = "none"

BLS_DIRECTORIES = ("boot/loader/entries", "efi/loader/entries", "boot/efi/loader/entries")
GRUBENV = ("boot/grub2/grubenv", "boot/grub/grubenv")
KERNEL_CMDLINE = "etc/kernel/cmdline"
MAX_ENTRIES = 1000

_GRUB_CFG = {GRUB_DEBIAN: "boot/grub/grub.cfg", GRUB_SUSE: "boot/grub2/grub.cfg", GRUBBY: "boot/grub2/grub.cfg"}
_MKCONFIG = ("usr/sbin/grub-mkconfig", "usr/bin/grub-mkconfig")
_MKCONFIG2 = ("usr/sbin/grub2-mkconfig", "usr/bin/grub2-mkconfig")
_GRUBBY = ("usr/sbin/grubby", "usr/bin/grubby", "sbin/grubby")
_SUSE_TOOLS = ("usr/sbin/update-bootloader", "sbin/update-bootloader", "usr/sbin/pbl", "sbin/pbl")
_LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_LINUX = ("linux", "linux16", "linuxefi")
_SECTION = re.compile(r"### (BEGIN|END) (\S+) ###")

# Systems that no method supports, by the file that identifies them.
_UNSUPPORTED_SYSTEMS = (
    ("run/ostree-booted", "this system is managed by rpm-ostree: use rpm-ostree kargs"),
    ("etc/kernel/proxmox-boot-uuids", "proxmox-boot-tool copies the boot configuration to partitions of its own: set the argument in its files"),
    ("usr/sbin/transactional-update", "transactional-update changes this system in a new snapshot: set the argument with transactional-update grub.cfg"),
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
        title: title in the boot menu.
        kernel: path of the kernel image as the boot loader sees it.
        arguments: boot arguments.
        generated: whether it was generated from the host's settings; False when it was written by hand or belongs to another system.
        initrd: whether it loads an initial RAM disk.
    """

    title: str
    kernel: str
    arguments: tuple[str, ...]
    generated: bool = True
    initrd: bool = True

    @property
    def release(self) -> str:
        """The kernel's release from the name of its image: ``6.1.0-13-amd64`` of ``/boot/vmlinuz-6.1.0-13-amd64``; empty when the name has none."""
        match = re.search(r"(?:^|[-/])([0-9]+\.[0-9][^/]*?)(?:/[^/]*)?$", self.kernel)
        return "" if match is None else match.group(1)


@dataclass(frozen=True)
class Loader:
    """The boot loader of a host.

    Attributes:
        name: one of the methods (`GRUB_DEBIAN` ...), or `NONE`.
        blocked_by: why its configuration cannot be changed, with the file that shows this; None when it can.
        tool: path, below the sysroot, of the program that generates the configuration, with systemd-boot of the directory with its entries; empty
            with `NONE`.
    """

    name: str
    blocked_by: str | None = None
    tool: str = ""


def find_loader(fs: host_files.HostFs) -> Loader:
    """Return the boot loader, detected from what is installed and not from the name of the distribution.

    Args:
        fs: the host's files.

    Returns:
        The boot loader, or one named `NONE` with the reason why none is supported.
    """
    for path, reason in _UNSUPPORTED_SYSTEMS:
        if fs.status(path) is not None:
            return Loader(NONE, f"{fs.path(path)} exists: {reason}")
    for name, tool in _candidates(fs):
        if tool is not None:
            return Loader(name, tool=tool)
    found = next((f"{fs.path(path)} was found: {what}" for path, what in _OTHER_LOADERS if fs.status(path) is not None), None)
    return Loader(
        NONE,
        (found or f"no boot loader was found in {fs.path('boot')}, as is usual in a container") + ". Supported are grub on Debian and Ubuntu, "
        "grubby, grub on SUSE, and systemd-boot. Without one of these use smt_runtime_persist of the role smt_runtime",
    )


def _candidates(fs: host_files.HostFs) -> t.Iterator[tuple[str, str | None]]:
    # When several boot loaders are installed, this firmware variable names the one that started the system.
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


def _first(fs: host_files.HostFs, paths: tuple[str, ...]) -> str | None:
    return next((path for path in paths if fs.status(path) is not None), None)


def bls_directory(fs: host_files.HostFs) -> str | None:
    """Return the directory with boot loader entries (Boot Loader Specification, type 1), or None when there are no entries."""
    return next((path for path in BLS_DIRECTORIES if any(name.endswith(".conf") for name in fs.names(path))), None)


def grub_cfg(name: str) -> str:
    """Return the path of grub.cfg for the name of a boot loader."""
    return _GRUB_CFG[name]


def read_entries(fs: host_files.HostFs, loader: Loader) -> list[Entry]:
    """Return the entries that boot Linux.

    Args:
        fs: the host's files.
        loader: the host's boot loader.

    Returns:
        The entries; empty when the files cannot be read or contain none.
    """
    if loader.name in (GRUBBY, SYSTEMD_BOOT):
        entries = [entry for dummy, entry in read_bls(fs)]
        if entries or loader.name == SYSTEMD_BOOT:
            return entries
    if loader.name not in _GRUB_CFG:
        return []
    return parse_grub_cfg(fs.read(_GRUB_CFG[loader.name], host_files.LARGE) or "")


# ---- grub.cfg -------------------------------------------------------------------------------------------------------------------------------------


def parse_grub_cfg(text: str) -> list[Entry]:
    """Return the entries of a grub.cfg from grub-mkconfig. Those of `10_linux` scripts count as generated from the host's settings."""
    entries: list[Entry] = []
    script, title = "", ""
    for line in text.split("\n"):
        section = _SECTION.match(line)
        if section is not None:
            script = section.group(2).rpartition("/")[2] if section.group(1) == "BEGIN" else ""
            continue
        fields = line.split(None, 1)
        if len(fields) < 2:
            continue
        if fields[0] == "menuentry":
            title = (_shell_fields(fields[1]) or [""])[0]
        elif fields[0] in _LINUX:
            kernel, arguments = _kernel_and_arguments(fields[1])
            entries.append(Entry(title, kernel, arguments, script.startswith("10_linux"), initrd=False))
        elif fields[0].startswith("initrd") and entries:
            last = entries[-1]
            entries[-1] = Entry(last.title, last.kernel, last.arguments, last.generated, True)
    return entries[:MAX_ENTRIES]


def complete_sections(text: str) -> set[str]:
    """Return the names of the scripts whose section of a grub.cfg has a beginning and an end."""
    found = _SECTION.findall(text)
    return {script for what, script in found if what == "BEGIN" and ("END", script) in found}


def has_xen(text: str) -> bool:
    """Return whether a grub.cfg boots the Xen hypervisor, which has its own `smt=` argument."""
    return re.search(r"^\s*(multiboot2?|xen_hypervisor)\s+\S*xen", text, re.MULTILINE) is not None


def _shell_fields(text: str) -> list[str] | None:
    """Split a line as a shell does, which suits what grub-mkconfig writes; return None when a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _kernel_and_arguments(text: str) -> tuple[str, tuple[str, ...]]:
    fields = _shell_fields(text)
    if fields is None:
        fields = text.split()
    arguments = fields[1:]
    return fields[0], tuple(arguments[: arguments.index("--")] if "--" in arguments else arguments)


# ---- entries of the Boot Loader Specification -----------------------------------------------------------------------------------------------------


def read_bls(fs: host_files.HostFs) -> list[tuple[str, Entry]]:
    """Return the entries of type 1 that boot Linux, each with its path. The value of ``$kernelopts`` comes from grub's environment block."""
    directory = bls_directory(fs)
    if directory is None:
        return []
    kernelopts = read_kernelopts(fs) or ""
    found = []
    for name in fs.names(directory)[:MAX_ENTRIES]:
        path = directory + "/" + name
        text = fs.read(path) if name.endswith(".conf") else None
        entry = None if text is None else parse_bls(text, kernelopts)
        if entry is not None:
            found.append((path, entry))
    return found


def parse_bls(text: str, kernelopts: str = "") -> Entry | None:
    """Return the entry of an entry file, or None when it does not boot Linux."""
    values: dict[str, list[str]] = {}
    for line in text.split("\n"):
        fields = line.strip().split(None, 1)
        if len(fields) == 2 and not fields[0].startswith("#"):
            values.setdefault(fields[0], []).append(fields[1])
    if "linux" not in values:
        return None
    options = " ".join(values.get("options", []))
    options = re.sub(r"\$\{?kernelopts\b\}?", lambda dummy: kernelopts, options)
    return Entry(values.get("title", [""])[-1], values["linux"][-1], tuple(split_arguments(options)), True, "initrd" in values)


def read_kernelopts(fs: host_files.HostFs) -> str | None:
    """Return the variable `kernelopts` of grub's environment block (grub2-editenv), or None when it is not set."""
    for path in GRUBENV:
        for line in (fs.read(path) or "").split("\n"):
            if line.startswith("kernelopts="):
                return line[len("kernelopts=") :]
    return None
