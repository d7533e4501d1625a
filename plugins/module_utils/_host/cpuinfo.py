# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc/cpuinfo as data, for the architectures whose layout differs: blocks of `processor : N` (x86, arm, ppc, riscv, mips, loongarch, ia64),
one line a CPU (sparc: `CPU0: online`; s390: `processor 0: version = ...`, later in the file blocks of `cpu number : 0`), or no CPU number at all
(old arm, m68k).
"""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist

_PROCESSOR = (re.compile(r"processor[ \t]*:[ \t]*([0-9]{1,6})[ \t\r]*"), re.compile(r"CPU([0-9]{1,6})[ \t]*:[ \t]*online[ \t\r]*"))
# Only on s390: on ia64 each block has a field `cpu number` that reads 0.
_S390_PROCESSOR = (re.compile(r"processor[ \t]+([0-9]{1,6})[ \t]*:.*"), re.compile(r"cpu number[ \t]*:[ \t]*([0-9]{1,6})[ \t\r]*"))

_S390_PAIR = re.compile(r"(version|identification|machine) = (\w+)")


def parse(text):
    """Read the text of /proc/cpuinfo.

    Returns:
        (common, blocks): `common` has the fields that stand before the first CPU (dict of str to str); `blocks` has CPU number (int) ->
            fields (dict of str to str) in the order of the file. Numbers above the highest CPU number accepted are left out.
    """
    common = {}
    blocks = {}
    fields = common
    patterns = _PROCESSOR
    for line in text.split("\n"):
        if line.startswith(("processor", "CPU", "cpu number")):
            cpu = _cpu(line, patterns)
            if cpu is not None:
                fields = blocks.setdefault(cpu, {})
                fields.update(_S390_PAIR.findall(line))
                continue
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip(" \t\r\0"))
            if not blocks and common.get("vendor_id") == "IBM/S390":
                patterns = _S390_PROCESSOR
    return common, blocks


def _cpu(line, patterns):
    match = next(filter(None, (pattern.fullmatch(line) for pattern in patterns)), None)
    cpu = -1 if match is None else int(match.group(1))
    return cpu if 0 <= cpu <= cpulist.MAX_CPU else None


def first(text):
    """The fields (dict of str to str) that tell the processor's model: those of the first CPU and those before and, on s390, of all."""
    common, blocks = parse(text)
    return dict(common, **next(iter(blocks.values()), {}))


def number(fields, name):
    """The field as a number (int), or None when it is missing or something else."""
    value = fields.get(name, "")
    return int(value) if value.isdigit() and len(value) <= 10 and value.isascii() else None
