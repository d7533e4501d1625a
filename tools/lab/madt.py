# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table from which a guest's kernel numbers its CPUs (ACPI's MADT, signature APIC),
reordered and packed for its initrd.

Linux numbers CPUs in the order of the MADT's local APIC entries, the boot CPU first. QEMU lists siblings side by side;
machines as EC2's d2.8xl list the first threads of all cores first. The layout is ACPI 6.5, section 5.2.12; that a
kernel takes tables from an uncompressed cpio at the head of its initrd is
Documentation/admin-guide/acpi/initrd_table_override.rst.
"""

from __future__ import annotations

import struct

import newc
from common import LabError

LENGTH_OFFSET = 4
CHECKSUM_OFFSET = 9
OEM_REVISION_OFFSET = 24
ENTRIES_OFFSET = 44
LOCAL_APIC = 0


def split_numbering(table: bytes, threads: int) -> bytes:
    """Reorder the local APIC entries so that thread 0 of every core comes first, then thread 1, and so on.

    Args:
        table: the MADT as the guest shows it.
        threads: threads a core.

    Returns:
        The table with a higher OEM revision (the kernel only takes a newer one) and a mended checksum.

    Raises:
        LabError: this is no sound MADT.
    """
    if (
        len(table) < ENTRIES_OFFSET
        or table[:4] != b"APIC"
        or struct.unpack_from("<I", table, LENGTH_OFFSET)[0] != len(table)
        or sum(table) % 256
    ):
        raise LabError("the guest's /sys/firmware/acpi/tables/APIC is no sound MADT (signature, length or checksum)")
    thread_mask = (1 << (threads - 1).bit_length()) - 1
    entries = _entries(table)
    # sorted() is stable: within a thread number the cores keep their order.
    ordered = iter(
        sorted((entry for entry in entries if entry[0] == LOCAL_APIC), key=lambda entry: entry[3] & thread_mask)
    )
    result = bytearray(table[:ENTRIES_OFFSET])
    for entry in entries:
        result += next(ordered) if entry[0] == LOCAL_APIC else entry
    revision = struct.unpack_from("<I", result, OEM_REVISION_OFFSET)[0]
    struct.pack_into("<I", result, OEM_REVISION_OFFSET, revision + 1)
    result[CHECKSUM_OFFSET] = 0
    result[CHECKSUM_OFFSET] = -sum(result) % 256
    return bytes(result)


def _entries(table: bytes) -> list[bytes]:
    """The table's entries: type, length, content."""
    entries = []
    offset = ENTRIES_OFFSET
    while offset < len(table):
        length = table[offset + 1] if offset + 1 < len(table) else 0
        entry = table[offset : offset + length]
        if length < 2 or len(entry) < length or (entry[0] == LOCAL_APIC and length < 8):
            raise LabError(f"the guest's /sys/firmware/acpi/tables/APIC has a broken entry at byte {offset}")
        entries.append(entry)
        offset += length
    return entries


def early_initrd(table: bytes) -> bytes:
    """Pack a table as ``kernel/firmware/acpi/apic.aml``, as the kernel looks for it at the head of its initrd."""
    directories = [(name, newc.DIRECTORY, b"") for name in ("kernel", "kernel/firmware", "kernel/firmware/acpi")]
    return newc.archive([*directories, ("kernel/firmware/acpi/apic.aml", newc.FILE, table)])
