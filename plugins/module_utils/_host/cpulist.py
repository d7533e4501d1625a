# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's ways to write a set of CPUs, to and from Python: lists (`0-3,8`) and hex masks (`ff,00000001`).

Both are what `bitmap_print_to_pagebuf` of the kernel's `lib/bitmap.c` writes. An empty text is the empty set. A text that is neither is an
error that names the offending part; nothing is ever skipped or repaired.
"""

from __future__ import annotations

import re

MAX_CPU = 65535
"""Highest CPU number that is believed. Kernels are built for at most 8192 CPUs; a larger number is damage or malice, and would cost memory."""

MAX_TEXT = 1 << 19
"""Longest text that is looked at, in characters: every second CPU up to MAX_CPU takes 0.4 million."""

_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_MASK_WORD = re.compile(r"[0-9a-fA-F]+")
_BLANK = " \t\r\n\0"


class CpuListError(ValueError):
    """A text that is no CPU list or no CPU mask, or a number that is no CPU number."""


def parse(text, most=MAX_CPU + 1):
    """Read a CPU list.

    Args:
        text: such as ``0-3,8``; blanks, newlines and NUL bytes around the list and blanks around its parts are allowed.
        most: a list of more CPUs is an error, before memory is taken for them.

    Returns:
        the CPU numbers as a sorted tuple of int without repetition.

    Raises:
        CpuListError: with the part that is wrong and why.
    """
    text = _checked(text, "CPU list")
    if not text:
        return ()
    cpus = []
    ascending = True
    for part in text.split(","):
        first, last = _bounds(part, text)
        if cpus and first <= cpus[-1]:
            ascending = False
        if len(cpus) + last + 1 - first > most:
            raise CpuListError(f"{quoted(text)} is no CPU list here: it names more CPUs than the {most} that can be")
        cpus.extend(range(first, last + 1))
    return tuple(cpus) if ascending else tuple(sorted(set(cpus)))


def _bounds(part, text):
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise CpuListError(f"{quoted(text)} is no CPU list: {quoted(part)} is neither a CPU number nor a range such as 0-3")
    first = int(match.group(1))
    last = first if match.group(2) is None else int(match.group(2))
    if last < first:
        raise CpuListError(f"{quoted(text)} is no CPU list: the range {quoted(part)} runs backwards")
    if last > MAX_CPU:
        raise CpuListError(f"{quoted(text)} is no CPU list: {quoted(part)} is above {MAX_CPU}, the highest CPU number accepted")
    return first, last


def parse_mask(text):
    """Read a CPU mask: words of 32 bits in hexadecimal, the highest first, parted by commas (`00000001,00000000` is CPU 32).

    A single word may be longer, as in ``0xffff`` of command lines.

    Returns:
        the CPU numbers as a sorted tuple of int.

    Raises:
        CpuListError: with the part that is wrong and why.
    """
    text = _checked(text, "CPU mask")
    if not text:
        return ()
    words = (text[2:] if text[:2] in ("0x", "0X") else text).split(",")
    for position, word in enumerate(words):
        if not _MASK_WORD.fullmatch(word) or (len(words) > 1 and len(word) > 8) or (position > 0 and len(word) != 8):
            raise CpuListError(f"{quoted(text)} is no CPU mask: {quoted(word)} is no word of 32 bits in hexadecimal")
    digits = "".join(words).lstrip("0")
    if len(digits) > (MAX_CPU + 1) // 4:
        raise CpuListError(f"{quoted(text)} is no CPU mask: it holds a CPU above {MAX_CPU}, the highest CPU number accepted")
    bits = bin(int(digits, 16))[:1:-1] if digits else ""
    return tuple(cpu for cpu, bit in enumerate(bits) if bit == "1")


def render(cpus):
    """Write CPU numbers as the shortest CPU list, as the kernel does.

    Args:
        cpus: iterable of int, in any order, repetitions allowed.

    Returns:
        such as ``0-3,8``; the empty text for no CPU.

    Raises:
        CpuListError: when something in it is no CPU number.
    """
    numbers = sorted({_cpu_number(cpu) for cpu in cpus})
    parts = []
    start = previous = None
    for cpu in numbers:
        if previous is not None and cpu == previous + 1:
            previous = cpu
            continue
        if start is not None:
            parts.append(_range_text(start, previous))
        start = previous = cpu
    if start is not None:
        parts.append(_range_text(start, previous))
    return ",".join(parts)


def _cpu_number(value):
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CPU:
        raise CpuListError(f"{quoted(value)} is no CPU number: a whole number from 0 to {MAX_CPU} is wanted")
    return int(value)


def _range_text(first, last):
    return str(first) if first == last else f"{first}-{last}"


def _checked(text, what):
    if not isinstance(text, str):
        raise CpuListError(f"{quoted(text)} is no {what}: a text is wanted, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise CpuListError(f"{quoted(text)} is no {what}: it has {len(text)} characters, more than any machine needs")
    return text.strip(_BLANK)


def quoted(value):
    """A short, printable form of any value for a message: control characters escaped, cut after 40 characters."""
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."
