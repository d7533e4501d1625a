# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser of /proc/cpuinfo for all architectures.

Three layouts exist: blocks that start with `processor : N` (x86, arm, ppc, riscv, mips, loongarch, ia64), one line per
CPU (sparc: `CPU0: online`; s390: `processor 0: version = ...`, followed by blocks that start with `cpu number : 0`),
and no CPU numbers at all (old arm, m68k).
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files

_PROCESSOR = (
    re.compile(r"processor[ \t]*:[ \t]*([0-9]{1,6})[ \t\r]*"),
    re.compile(r"CPU([0-9]{1,6})[ \t]*:[ \t]*online[ \t\r]*"),
)
# Only on s390: on ia64 each block has a field `cpu number` that reads 0.
_S390_PROCESSOR = (
    re.compile(r"processor[ \t]+([0-9]{1,6})[ \t]*:.*"),
    re.compile(r"cpu number[ \t]*:[ \t]*([0-9]{1,6})[ \t\r]*"),
)

_PATH = "proc/cpuinfo"
# Bytes of the file that hold the fields before the first CPU and those of the first CPU.
_HEAD = 16 << 10

_NUMBER = re.compile(r"[0-9]{1,10}")
_S390_PAIR = re.compile(r"(version|identification|machine) = (\w+)")
# Those that tell one model from another: what a hardware class and a saved topology go by.
MODEL_FIELDS = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "CPU implementer",
    "CPU part",
    "CPU variant",
    "CPU revision",
    "cpu",
    "machine",
    "isa",
    "uarch",
    "Model Name",
)


class CpuInfo(t.NamedTuple):
    """The fields of /proc/cpuinfo.

    Attributes:
        common: field -> value, of the fields before the first CPU.
        blocks: CPU number -> its fields, in the order of the file. CPU numbers above `cpulist.MAX_CPU` are ignored.
    """

    common: "dict[str, str]"
    blocks: "dict[int, dict[str, str]]"


def read(fs: files.HostFs) -> CpuInfo:
    """Read the whole file, which is slow on large hosts. Without the file there are no fields."""
    return parse(fs.read(_PATH, files.LARGE) or "")


def read_first(fs: files.HostFs) -> "dict[str, str]":
    """Read the fields that identify the CPU model from the beginning of the file:
    those before the first CPU (on s390 they hold for all) and its own.
    """
    common, blocks = parse(fs.head(_PATH, _HEAD) or "")
    return dict(common, **next(iter(blocks.values()), {}))


def parse(text: str) -> CpuInfo:
    """Parse the text of /proc/cpuinfo."""
    common: dict[str, str] = {}
    blocks: dict[int, dict[str, str]] = {}
    fields = common
    patterns = _PROCESSOR
    for line in text.split("\n"):
        if line.startswith(("processor", "CPU", "cpu number")):
            match = patterns[0].fullmatch(line) or patterns[1].fullmatch(line)
            if match is not None and int(match.group(1)) <= cpulist.MAX_CPU:
                fields = blocks.setdefault(int(match.group(1)), {})
                fields.update(_S390_PAIR.findall(line))
                continue
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip(" \t\r\0"))
            if not blocks and common.get("vendor_id") == "IBM/S390":
                patterns = _S390_PROCESSOR
    return CpuInfo(common, blocks)


def number(fields: "t.Mapping[str, str]", name: str) -> "int | None":
    """Return a field as a number, or None when it is missing or not a number.

    Args:
        fields: the fields of a CPU.
        name: the field's name.
    """
    value = fields.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None
