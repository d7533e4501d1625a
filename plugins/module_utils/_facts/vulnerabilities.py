# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`/sys/devices/system/cpu/vulnerabilities/*`: the kernel's status of each vulnerability,
and the part of it that depends on SMT.
"""

import re

from ansible_collections.threadwise.smt.plugins.module_utils._compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

DIRECTORY = "sys/devices/system/cpu/vulnerabilities"

# Texts of the kernel's arch/x86/kernel/cpu/bugs.c. A guest shows `SMT Host state unknown`: it cannot see what runs on
# the sibling.
_SMT_PART = re.compile(r"\bSMT (vulnerable|mitigated|disabled|Host state unknown)")


class Vulnerability(TypedDict):
    """The status of a vulnerability.

    ``smt`` is ``vulnerable``, ``mitigated``, ``disabled``, ``unknown`` (in a guest), or None if the status does not
    mention SMT.
    """

    status: str
    smt: "str | None"


def read(fs: host_files.HostFs) -> "dict[str, Vulnerability]":
    """Read the status of each vulnerability.

    Args:
        fs: the host's files

    Returns:
        name -> status, sorted by name; empty if the kernel has no such files (before Linux 4.15)
    """
    found: dict[str, Vulnerability] = {}
    for name in fs.names(DIRECTORY):
        status = fs.read(f"{DIRECTORY}/{name}")
        if status is not None:
            found[name] = {"status": " ".join(status.split()), "smt": _smt_part(status)}
    return found


def _smt_part(status: str) -> "str | None":
    match = _SMT_PART.search(status)
    if match is None:
        return None
    return "unknown" if match.group(1) == "Host state unknown" else match.group(1)
