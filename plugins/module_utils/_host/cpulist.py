# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's two text formats for a set of CPUs: lists (`0-3,8`) and hexadecimal masks (`ff,00000001`).

`bitmap_print_to_pagebuf` in the kernel's `lib/bitmap.c` writes both. An empty text is the empty set. An invalid text
raises an error that names the invalid part; nothing is skipped or repaired.
"""

import re
import typing as t

from .errors import HostError

MAX_CPU = 65535
"""Highest CPU number accepted.

Kernels support at most 8192 CPUs; a larger number is corrupt or malicious, and would use much memory.
"""

MAX_TEXT = 1 << 19
"""Longest text accepted, in characters: a list of every second CPU up to MAX_CPU has 0.4 million."""

_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_MASK_CHUNK = re.compile(r"[0-9a-fA-F]+")
_BLANK = " \t\r\n\0"


class CpuListError(HostError, ValueError):
    """A text is not a valid CPU list or CPU mask, or a value is not a valid CPU number."""


def parse(text: object, most: int = MAX_CPU + 1) -> "tuple[int, ...]":
    """Parse a CPU list.

    Args:
        text: such as ``0-3,8``; whitespace and NUL bytes around the list and whitespace around its parts are allowed.
        most: maximum number of CPUs; a longer list is an error before it takes memory.

    Returns:
        the CPU numbers, sorted and without duplicates.

    Raises:
        CpuListError: the text is not a valid CPU list; the message names the invalid part and the reason.
    """
    text = _checked(text, "CPU list")
    if not text:
        return ()
    cpus: list[int] = []
    ascending = True
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        start = -1 if match is None else int(match.group(1))
        end = start if match is None or match.group(2) is None else int(match.group(2))
        if not 0 <= start <= end <= MAX_CPU:
            raise CpuListError(
                f"{quoted(text)} is not a valid CPU list: "
                + (
                    f"{quoted(part)} is neither a CPU number nor a range such as 0-3"
                    if start < 0
                    else f"the range {quoted(part)} runs backwards"
                    if end < start
                    else f"{quoted(part)} is above {MAX_CPU}, the highest CPU number accepted"
                )
            )
        if cpus and start <= cpus[-1]:
            ascending = False
        if len(cpus) + end + 1 - start > most:
            raise CpuListError(
                f"{quoted(text)} is not a valid CPU list here: it lists more than {most} CPUs, the maximum accepted"
            )
        cpus.extend(range(start, end + 1))
    return tuple(cpus) if ascending else tuple(sorted(set(cpus)))


def parse_or_empty(text: object) -> "frozenset[int]":
    """Return the CPUs of a CPU list; none when the text is missing or not valid.

    For texts that are not worth an error.
    """
    try:
        return frozenset(parse(text or ""))
    except CpuListError:
        return frozenset()


def is_cpus(value: object) -> bool:
    """Return whether ``value``, for example from a file, is a list of CPU numbers."""
    return (
        isinstance(value, list)
        and len(value) <= MAX_CPU + 1
        and all(isinstance(cpu, int) and not isinstance(cpu, bool) and 0 <= cpu <= MAX_CPU for cpu in value)
    )


def parse_mask(text: object) -> "tuple[int, ...]":
    """Parse a CPU mask: comma-separated hexadecimal chunks of 32 bits,
    the highest first (`00000001,00000000` is CPU 32).

    A single chunk may be longer, as in ``0xffff`` on command lines.

    Args:
        text: the mask; whitespace and NUL bytes around it are allowed.

    Returns:
        the CPU numbers, sorted.

    Raises:
        CpuListError: the text is not a valid CPU mask; the message names the invalid part and the reason.
    """
    text = _checked(text, "CPU mask")
    if not text:
        return ()
    chunks = (text[2:] if text[:2] in ("0x", "0X") else text).split(",")
    for position, chunk in enumerate(chunks):
        if (
            not _MASK_CHUNK.fullmatch(chunk)
            or (len(chunks) > 1 and len(chunk) > 8)
            or (position > 0 and len(chunk) != 8)
        ):
            raise CpuListError(
                f"{quoted(text)} is not a valid CPU mask: {quoted(chunk)} is not a 32-bit hexadecimal number"
            )
    digits = "".join(chunks).lstrip("0")
    if len(digits) > (MAX_CPU + 1) // 4:
        raise CpuListError(
            f"{quoted(text)} is not a valid CPU mask: it contains a CPU above {MAX_CPU}, the highest CPU number"
            " accepted"
        )
    bits = bin(int(digits, 16))[:1:-1] if digits else ""
    return tuple(cpu for cpu, bit in enumerate(bits) if bit == "1")


def render(cpus: "t.Iterable[int]") -> str:
    """Format CPU numbers as the shortest CPU list, as the kernel does.

    Args:
        cpus: CPU numbers in any order; duplicates are allowed.

    Returns:
        such as ``0-3,8``; the empty text when there are no CPUs.

    Raises:
        CpuListError: a value is not a valid CPU number.
    """
    numbers = set()
    for cpu in cpus:
        if isinstance(cpu, bool) or not isinstance(cpu, int) or not 0 <= cpu <= MAX_CPU:
            raise CpuListError(f"{quoted(cpu)} is not a valid CPU number: expected an integer from 0 to {MAX_CPU}")
        numbers.add(cpu)
    ranges, start = [], 0
    for cpu in sorted(numbers):
        if cpu - 1 not in numbers:
            start = cpu
        if cpu + 1 not in numbers:
            ranges.append(f"{start}-{cpu}" if start < cpu else f"{cpu}")
    return ",".join(ranges)


def _checked(text: object, kind: str) -> str:
    if not isinstance(text, str):
        raise CpuListError(f"{quoted(text)} is not a valid {kind}: expected a string, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise CpuListError(
            f"{quoted(text)} is not a valid {kind}: it has {len(text)} characters, more than any machine needs"
        )
    return text.strip(_BLANK)


def quoted(value: object) -> str:
    """Return a short, printable form of any value for a message: control characters are escaped,
    the text is cut after 40 characters.
    """
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 40 else text[:37] + "..."
