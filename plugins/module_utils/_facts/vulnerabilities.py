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
# the sibling. With STIBP always on retbleed shows `SMT enabled with STIBP protection`.
_SMT_PART = re.compile(r"\bSMT (vulnerable|mitigated|disabled|Host state unknown|enabled with STIBP protection)")
_MEANINGS = {"Host state unknown": "unknown", "enabled with STIBP protection": "mitigated"}
# Of a guest's l1tf the kernel says what it sees itself.
_BLIND_IN_GUESTS = frozenset({"l1tf"})
# Its text never mentions SMT. The kernel warns (cpu_bugs_smt_update) where SMT is active and STIBP not always on.
_BY_STIBP = "vmscape"
_STIBP = re.compile(r"\bSTIBP: ([a-z-]+)")
_ALWAYS_ON = ("always-on", "forced")


class Vulnerability(TypedDict):
    """The status of a vulnerability.

    ``smt`` is ``vulnerable``, ``mitigated``, ``disabled``, ``unknown`` (in a guest), or None if the status does not
    mention SMT.
    """

    status: str
    smt: "str | None"


def read(fs: host_files.HostFs, is_guest: bool = False, active: "bool | None" = None) -> "dict[str, Vulnerability]":
    """Read the status of each vulnerability.

    Args:
        fs: the host's files
        is_guest: whether a hypervisor runs this machine
        active: whether SMT is active; None if that is not known

    Returns:
        name -> status, sorted by name; empty if the kernel has no such files (before Linux 4.15)
    """
    found: dict[str, Vulnerability] = {}
    for name in fs.names(DIRECTORY):
        status = fs.read(f"{DIRECTORY}/{name}")
        if status is not None:
            found[name] = {"status": " ".join(status.split()), "smt": _smt_part(status)}
    for name in _BLIND_IN_GUESTS.intersection(found) if is_guest else ():
        if found[name]["smt"] is not None:
            found[name]["smt"] = "unknown"
    stibp = _STIBP.search(found["spectre_v2"]["status"]) if "spectre_v2" in found else None
    if stibp is not None and active is not None:
        found["spectre_v2"]["smt"] = _of_stibp(stibp[1], active)
    if _BY_STIBP in found and found[_BY_STIBP]["status"].startswith("Mitigation") and active is not None:
        is_on = stibp is not None and stibp[1] in _ALWAYS_ON
        found[_BY_STIBP]["smt"] = "disabled" if not active else "mitigated" if is_on else "vulnerable"
    return found


def _of_stibp(stibp: str, active: bool) -> "str | None":
    """Return what STIBP leaves of SMT: nothing where it is always on, all where it is off, and for processes that ask
    for it (``conditional``) it depends on them.
    """
    if not active:
        return "disabled"
    return "mitigated" if stibp in _ALWAYS_ON else "vulnerable" if stibp == "disabled" else None


def _smt_part(status: str) -> "str | None":
    match = _SMT_PART.search(status)
    return None if match is None else _MEANINGS.get(match[1], match[1])
