# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a guest: sockets, cores a socket, threads a core; and which host CPU runs which of its CPUs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from common import LabError

# An xAPIC id is one byte and 255 is the broadcast address.
HIGHEST_APIC_ID = 254


@dataclasses.dataclass(frozen=True)
class Shape:
    """``sockets`` x ``cores`` a socket x ``threads`` a core."""

    sockets: int
    cores: int
    threads: int

    @property
    def cpus(self) -> int:
        """Number of logical CPUs."""
        return self.sockets * self.cores * self.threads

    @property
    def memory(self) -> int:
        """Memory in MB that boots this shape comfortably:
        per-CPU areas and kernel threads grow with the number of CPUs.
        """
        return 640 + 16 * self.cpus

    @property
    def smp(self) -> str:
        """The value of QEMU's ``-smp``."""
        return f"{self.cpus},sockets={self.sockets},cores={self.cores},threads={self.threads}"

    def __str__(self) -> str:
        return f"{self.sockets}x{self.cores}x{self.threads}"

    def siblings(self, numbering: str) -> list[list[int]]:
        """The CPU numbers of each core, as the guest's kernel has to show them; sorted by first CPU."""
        cores = self.sockets * self.cores
        if numbering == "split":
            return [[core + cores * thread for thread in range(self.threads)] for core in range(cores)]
        return [[core * self.threads + thread for thread in range(self.threads)] for core in range(cores)]


def field_width(count: int) -> int:
    """Bits that ``count`` values take in an APIC id: each level of the topology is rounded up to a power of two."""
    return (count - 1).bit_length()


def parse_shape(text: str) -> Shape:
    """``2x9x2`` -> Shape(2, 9, 2).

    Raises:
        LabError: not three positive numbers, or more than APIC ids can tell apart.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,2})x([1-9][0-9]{0,2})", text, flags=re.ASCII)
    if not match:
        raise LabError(
            f"shape {text!r} is not SOCKETSxCORESxTHREADS: for example 2x2x2, two sockets of two cores with two threads"
            " each"
        )
    shape = Shape(*(int(number) for number in match.groups()))
    highest = ((shape.sockets - 1) << field_width(shape.cores) | (shape.cores - 1)) << field_width(shape.threads) | (
        shape.threads - 1
    )
    if highest > HIGHEST_APIC_ID:
        raise LabError(
            f"shape {text!r} needs APIC ids up to {highest}, and {HIGHEST_APIC_ID} is the highest: take fewer CPUs"
        )
    return shape


def parse_pins(text: str, shape: Shape, host_cpus: Iterable[int]) -> list[int]:
    """``0,0,1,1`` -> the host CPU for each CPU of the guest, in the guest's own numbering.

    Raises:
        LabError: not a list of numbers, not one a CPU, or a CPU that this host does not have.
    """
    if not re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5})*", text, flags=re.ASCII):
        raise LabError(f"pin list {text!r} is not a list of host CPUs: for example 0,0,1,1")
    pins = [int(number) for number in text.split(",")]
    if len(pins) != shape.cpus:
        raise LabError(
            f"pin list {text!r} names {len(pins)} host CPUs, and shape {shape} has {shape.cpus} CPUs: name one for each"
        )
    unknown = sorted(set(pins) - set(host_cpus))
    if unknown:
        raise LabError(f"pin list {text!r}: this process may not run on host CPU {', '.join(map(str, unknown))}")
    return pins
