# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot entries from the boot loader's files: which kernels can be booted, and with which arguments.

No program is run and nothing is written.
"""

import re
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.arguments import (
    DesiredArguments,
    rewritten_text,
    split_arguments,
    without_arguments,
)

BLS_DIRECTORIES = ("boot/loader/entries", "efi/loader/entries", "boot/efi/loader/entries")
GRUB_CFG = "boot/grub/grub.cfg"
GRUB2_CFG = "boot/grub2/grub.cfg"
GRUB_CFGS = (GRUB_CFG, GRUB2_CFG)
GRUBENV = ("boot/grub2/grubenv", "boot/grub/grubenv")
KERNEL_CMDLINE = "etc/kernel/cmdline"
MAX_ENTRIES = 1000

LINE_END = re.compile(r"(?:\r\n|\r|\n)")
_LINUX = ("linux", "linux16", "linuxefi")
_INITRD = ("initrd", "initrd16", "initrdefi")
# The script of grub-mkconfig that makes entries for this host's kernels, and what grub-customizer makes of it.
_OF_THIS_HOST = re.compile(r"10_linux.*|[0-9]+_linux_proxy")
_ID = re.compile(r"(?:\$menuentry_id_option|--id)[ =]+(?:'([^']*)'|\"([^\"]*)\"|(\S+))")
# A variable of GRUB with which TuneD's plug-in `bootloader` puts arguments into all entries (00_tuned).
TUNED = "tuned_params"
_TUNED_INITRD = "tuned_initrd"
_TUNED_SET = re.compile(rf"^\s*set\s+{TUNED}=(.*)$", re.MULTILINE)
_TUNED_USED = re.compile(rf"\$(?:{TUNED}\b|\{{{TUNED}\}})")
# Without it a submenu, which is a context of its own, has no value of the variable: TuneD exports it since 2.25.
_TUNED_EXPORTED = re.compile(rf"^\s*export\s[^\n]*\b{TUNED}\b", re.MULTILINE)
_DEFAULT = re.compile(r"^\s*set\s+default=([^\n]*)$", re.MULTILINE)
# What the titles of entries have that do not boot by default.
RESCUE_TITLE = re.compile(r"recovery|rescue", re.IGNORECASE)
# What tells an entry for recovery where its title is in another language.
_RESCUE_ARGUMENTS = frozenset({"single", "recovery", "rescue", "emergency", "systemd.unit=rescue.target"})
_SECTION = re.compile(r"### (BEGIN|END) (\S+) ###")


class Entry(t.NamedTuple):
    """One boot entry.

    Attributes:
        title: title in the boot menu.
        kernel: path of the kernel image as the boot loader sees it.
        arguments: boot arguments.
        generated: whether it was generated from the host's settings; False when it was written by hand or belongs to
            another system.
        initrd: whether it loads an initial RAM disk.
        identifier: the name that GRUB knows it by, whatever language its title is in; empty without one.
        borrowed: arguments that it has from a variable of another tool, beside `arguments`.
    """

    title: str
    kernel: str
    arguments: "tuple[str, ...]"
    generated: bool = True
    initrd: bool = True
    identifier: str = ""
    borrowed: "tuple[str, ...]" = ()

    @property
    def is_rescue(self) -> bool:
        """Whether it is for recovery, so that it does not boot by default."""
        return bool(
            "-recovery-" in self.identifier
            or RESCUE_TITLE.search(self.title)
            or "-0-rescue" in self.kernel
            or _RESCUE_ARGUMENTS.intersection(self.arguments)
        )

    @property
    def release(self) -> str:
        """The kernel's release from the name of its image: ``6.1.0-13-amd64`` of ``/boot/vmlinuz-6.1.0-13-amd64``;
        empty when the name has none.
        """
        match = re.search(r"(?:^|[-/])([0-9]+\.[0-9][^/]*?)(?:/[^/]*)?$", self.kernel)
        return "" if match is None else match.group(1)


def cmdline_arguments(text: str) -> "list[str]":
    """Return the arguments in the text of /etc/kernel/cmdline: kernel-install of systemd takes lines that begin with a
    ``#`` for comments (90-loaderentry.install).
    """
    return split_arguments("\n".join(line for line in text.split("\n") if not is_comment(line)))


def is_comment(line: str) -> bool:
    """Return whether a line of /etc/kernel/cmdline is a comment."""
    return line.lstrip().startswith("#")


def rewritten_cmdline(text: str, desired: DesiredArguments) -> str:
    """Return the text of /etc/kernel/cmdline as it should be; comments, and what stays, keep their bytes.

    Args:
        text: the file's text.
        desired: the desired boot arguments.
    """
    lines = text.split("\n")
    if not any(map(is_comment, lines)):
        return rewritten_text(text, desired)
    own = [number for number, line in enumerate(lines) if not is_comment(line)]
    # The first line with arguments gets ours; the empty one after the last line end is none.
    first = next((number for number in own if lines[number].strip()), own[0] if own else None)
    if first is None:
        return "\n".join([*lines, " ".join(desired.arguments), ""])
    for number in own:
        lines[number] = rewritten_text(lines[number], desired if number == first else without_arguments(desired))
    return "\n".join(lines)


# ---- grub.cfg --------------------------------------------------------------------------------------------------------


def parse_grub_cfg(text: str) -> "list[Entry]":
    """Return the entries of a grub.cfg from grub-mkconfig.

    Those of `10_linux` scripts count as generated from the host's settings.
    """
    entries: list[Entry] = []
    script, title, identifier = "", "", ""
    tuned = _tuned_params(text)
    reaches_submenus = _TUNED_EXPORTED.search(text) is not None or not _boots_from_submenu(text)
    # The blocks that a line is in, by the word with which each begins.
    blocks: list[str] = []
    for line in text.split("\n"):
        section = _SECTION.match(line)
        if section is not None:
            script = section.group(2).rpartition("/")[2] if section.group(1) == "BEGIN" else ""
            continue
        fields = line.split(None, 1)
        if fields == ["}"]:
            del blocks[-1:]
        if len(fields) < 2:
            continue
        if line.rstrip().endswith("{"):
            blocks.append(fields[0])
        if fields[0] == "menuentry":
            title = entry_title(fields[1])
            identifier = next(filter(None, (_ID.findall(fields[1]) or [("",)])[0]), "")
        elif fields[0] in _LINUX:
            kernel, arguments = _kernel_and_arguments(fields[1])
            generated = _OF_THIS_HOST.fullmatch(script) is not None
            is_reached = reaches_submenus or "submenu" not in blocks
            borrowed = tuned if is_reached and _TUNED_USED.search(fields[1]) else ()
            entries.append(Entry(title, kernel, arguments, generated, False, identifier, borrowed))
        elif fields[0].startswith("initrd") and entries:
            entries[-1] = entries[-1]._replace(initrd=True)
    return entries[:MAX_ENTRIES]


def entry_title(text: str) -> str:
    """Return the title of an entry from what follows ``menuentry`` in a grub.cfg."""
    return (_shell_fields(text) or [""])[0]


def _boots_from_submenu(text: str) -> bool:
    """Return whether an entry of a submenu may boot by default: grub names it by the way to it, with ``>``, or has it
    from its environment block. The one for the next boot alone does not count.
    """
    values = [value for value in _DEFAULT.findall(text) if "next_entry" not in value]
    return any(">" in value or "$" in value for value in values)


def with_tuned_of(old: str, new: str) -> str:
    """Return a new grub.cfg whose entries have the variables of TuneD that those of the old one have.

    TuneD itself puts them into grub.cfg, and into /etc/default/grub, after which another file may set the same value
    anew: they would be missing until the start of TuneD after the next boot.

    Args:
        old: text of the present grub.cfg.
        new: text of the one that grub-mkconfig has made.
    """
    entries = parse_grub_cfg(old)
    known = {entry.title for entry in entries}
    users = {entry.title for entry in entries if f"${TUNED}" in entry.arguments}
    if not users or not _TUNED_SET.search(new):
        return new
    lines, title = [], ""
    for line in new.split("\n"):
        fields = line.split(None, 1)
        word = fields[0] if len(fields) > 1 else ""
        if word == "menuentry":
            title = entry_title(fields[1])
        variable = f"${TUNED}" if word in _LINUX else f"${_TUNED_INITRD}" if word in _INITRD else ""
        is_user = title in users or (title not in known and not RESCUE_TITLE.search(title))
        is_missing = bool(variable) and is_user and variable in old and variable not in line
        lines.append(f"{line.rstrip()} {variable}" if is_missing else line)
    return "\n".join(lines)


def read_grub_cfg(fs: host_files.HostFs, path: str) -> "list[Entry]":
    """Return the entries of a host's grub.cfg; empty when it cannot be read."""
    return parse_grub_cfg(fs.read(path, host_files.LARGE) or "")


def read_tuned(fs: host_files.HostFs, options: str) -> "tuple[str, ...]":
    """Return the arguments that the options of an entry have from TuneD, by the variable that GRUB's configuration
    sets.
    """
    if not _TUNED_USED.search(options):
        return ()
    return next(filter(None, (_tuned_params(fs.read(path, host_files.LARGE) or "") for path in GRUB_CFGS)), ())


def _tuned_params(text: str) -> "tuple[str, ...]":
    values = _TUNED_SET.findall(text)
    fields = _shell_fields(values[-1]) if values else None
    return tuple(split_arguments(" ".join(fields))) if fields else ()


def complete_sections(text: str) -> "set[str]":
    """Return the names of the scripts whose section of a grub.cfg has a beginning and an end."""
    sections = _SECTION.findall(text)
    return {script for what, script in sections if what == "BEGIN" and ("END", script) in sections}


def has_xen(text: str) -> bool:
    """Return whether a grub.cfg boots the Xen hypervisor, which has its own `smt=` argument."""
    return re.search(r"^\s*(multiboot2?|xen_hypervisor)\s+\S*xen", text, re.MULTILINE) is not None


def _shell_fields(text: str) -> "list[str] | None":
    """Split a line as a shell does, which suits what grub-mkconfig writes; return None when a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _kernel_and_arguments(text: str) -> "tuple[str, tuple[str, ...]]":
    fields = _shell_fields(text)
    if fields is None:
        fields = text.split()
    arguments = fields[1:]
    return fields[0], tuple(arguments[: arguments.index("--")] if "--" in arguments else arguments)


# ---- entries of the Boot Loader Specification ------------------------------------------------------------------------


def unified_images(fs: host_files.HostFs, directory: str) -> "str | None":
    """Return why unified kernel images beside a directory of entries cannot be changed; None without any."""
    images = directory.replace("loader/entries", "EFI/Linux")
    names = [name for name in fs.names(images) if name.lower().endswith(".efi")]
    if not names:
        return None
    where = f"{fs.path(images)} contains unified kernel images ({', '.join(names[:3])})"
    return f"{where}, in which the arguments are embedded: set the argument where the images are built"


def bls_directory(fs: host_files.HostFs) -> "str | None":
    """Return the directory with boot loader entries (Boot Loader Specification, type 1),
    or None when there are no entries.
    """
    for path in BLS_DIRECTORIES:
        if bls_names(fs, path):
            return path
    return None


def bls_names(fs: host_files.HostFs, directory: str) -> "list[str]":
    """Return the names of the entry files of a directory.

    On the EFI system partition, a FAT file system, a name may be in capitals.
    """
    return [name for name in fs.names(directory) if name.lower().endswith(".conf") and not name.startswith(".")][
        :MAX_ENTRIES
    ]


def read_bls(fs: host_files.HostFs, unquotes: bool = False) -> "list[tuple[str, Entry]]":
    """Return the entries of type 1 that boot Linux, each with its path.

    The value of ``$kernelopts`` comes from grub's environment block.

    Args:
        fs: the host's files.
        unquotes: see `parse_bls`.
    """
    directory = bls_directory(fs)
    if directory is None:
        return []
    kernelopts = read_kernelopts(fs) or ""
    entries = []
    for name in bls_names(fs, directory):
        path = directory + "/" + name
        text = fs.read(path)
        entry = None if text is None else parse_bls(text, kernelopts, unquotes)
        if entry is not None:
            entries.append((path, entry._replace(borrowed=read_tuned(fs, " ".join(entry.arguments)))))
    return entries


def parse_bls(text: str, kernelopts: str = "", unquotes: bool = False) -> "Entry | None":
    """Return the entry of an entry file, or None when it does not boot Linux.

    Args:
        text: the file's text. A carriage return ends a line, too.
        kernelopts: the value of ``$kernelopts``.
        unquotes: whether a value in double quotes is what is between them: systemd-boot reads it so (line_get_key_value
            in its boot.c), grub does not.
    """
    values: dict[str, list[str]] = {}
    for line in LINE_END.split(text):
        fields = line.strip().split(None, 1)
        if len(fields) == 2 and not fields[0].startswith("#"):
            values.setdefault(fields[0], []).append(fields[1][1:-1] if unquotes and is_quoted(fields[1]) else fields[1])
    if "linux" not in values:
        return None
    options = expand_kernelopts(" ".join(values.get("options", [])), kernelopts)
    return Entry(
        values.get("title", [""])[-1], values["linux"][-1], tuple(split_arguments(options)), True, "initrd" in values
    )


def is_quoted(value: str) -> bool:
    """Return whether a value begins and ends with a double quote, which systemd-boot takes away,
    whatever is between them.
    """
    return len(value) > 1 and value[0] == value[-1] == '"'


def expand_kernelopts(options: str, kernelopts: str) -> str:
    """Return the options of an entry with the value of grub's variable `kernelopts`,
    which is written ``$kernelopts`` or ``${kernelopts}``.
    """
    return re.sub(r"\$(kernelopts\b|\{kernelopts\})", lambda dummy: kernelopts, options)


def read_kernelopts(fs: host_files.HostFs) -> "str | None":
    """Return the variable `kernelopts` of grub's environment block (grub2-editenv), or None when it is not set."""
    for path in GRUBENV:
        for line in (fs.read(path) or "").split("\n"):
            if line.startswith("kernelopts="):
                return line[len("kernelopts=") :]
    return None
