# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc/cpuinfo as data, for the architectures whose layout differs: blocks of `processor : N` (x86, arm, ppc, riscv, mips, loongarch, ia64),
one line a CPU (s390: `processor 0: version = ...`, sparc: `CPU0: online`), or no CPU number at all (old arm, m68k)."""
from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils import cpulist

_PROCESSOR = re.compile(r'(?:processor|cpu number)[ \t]*:[ \t]*([0-9]{1,6})[ \t\r]*')
_S390_PROCESSOR = re.compile(r'processor[ \t]+([0-9]{1,6})[ \t]*:.*')
_SPARC_PROCESSOR = re.compile(r'CPU([0-9]{1,6})[ \t]*:[ \t]*online[ \t\r]*')


def parse(text):
    """Read the text of /proc/cpuinfo.

    :returns: (common, blocks): `common` has the fields that stand before the first CPU (dict of str to str); `blocks` has CPU number (int) ->
        fields (dict of str to str) in the order of the file. Numbers above the highest CPU number accepted are left out.
    """
    common = {}
    blocks = {}
    fields = common
    for line in text.split('\n'):
        number = _number(line)
        if number is not None:
            fields = blocks.setdefault(number, {})
            continue
        name, colon, value = line.partition(':')
        if colon:
            fields.setdefault(name.strip(), value.strip(' \t\r\0'))
    return common, blocks


def _number(line):
    if not line.startswith(('processor', 'cpu number', 'CPU')):
        return None
    for pattern in (_PROCESSOR, _S390_PROCESSOR, _SPARC_PROCESSOR):
        match = pattern.fullmatch(line)
        if match is not None:
            number = int(match.group(1))
            return number if number <= cpulist.MAX_CPU else None
    return None


def number(fields, name):
    """The field as a number (int), or None when it is missing or something else."""
    value = fields.get(name, '')
    return int(value) if value.isdigit() and len(value) <= 10 and value.isascii() else None
