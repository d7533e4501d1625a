# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`/sys/devices/system/cpu/vulnerabilities/*`: what the kernel says of each, and what of it hangs on SMT."""

from __future__ import annotations

import re

DIRECTORY = "sys/devices/system/cpu/vulnerabilities"

# The words of the kernel's arch/x86/kernel/cpu/bugs.c; `SMT Host state unknown` is what a guest shows: it cannot see who runs on the sibling.
_SMT_PART = re.compile(r"\bSMT (vulnerable|mitigated|disabled|Host state unknown)")


def read(fs):
    """Read them.

    Args:
        fs: `files.HostFs`.

    Returns:
        name (str) -> ``{'status': str, 'smt': str or None}``, sorted by name; `smt` is ``vulnerable``, ``mitigated``, ``disabled``, ``unknown``
            (a guest, that cannot know), or None when the line does not speak of SMT. Empty when the kernel has no such files (before Linux 4.15).
    """
    found = {}
    for name in fs.names(DIRECTORY):
        status = fs.read(f"{DIRECTORY}/{name}")
        if status is not None:
            found[name] = {"status": " ".join(status.split()), "smt": _smt_part(status)}
    return found


def _smt_part(status):
    match = _SMT_PART.search(status)
    if match is None:
        return None
    return "unknown" if match.group(1) == "Host state unknown" else match.group(1)
