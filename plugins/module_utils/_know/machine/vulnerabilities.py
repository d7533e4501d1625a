# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`/sys/devices/system/cpu/vulnerabilities/*`: the kernel's status of each vulnerability,
and the part of it that depends on SMT.
"""

import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict

DIRECTORY = "sys/devices/system/cpu/vulnerabilities"

# Texts of the kernel's arch/x86/kernel/cpu/bugs.c. With STIBP always on retbleed shows `SMT enabled with STIBP
# protection`, which holds in a guest too. A guest shows `SMT Host state unknown`, as it cannot see what runs on the
# sibling, but of most vulnerabilities what it sees itself: that closes none.
_SMT_PART = re.compile(r"\bSMT (vulnerable|mitigated|disabled|Host state unknown|enabled with STIBP protection)")
_MEANINGS = {"Host state unknown": "unknown", "enabled with STIBP protection": "mitigated"}
_BY_SIBLINGS = ("disabled", "mitigated")
# Of a guest's l1tf it is only that, whatever it says.
_BLIND_IN_GUESTS = "l1tf"
# Its text never mentions SMT. The kernel warns (cpu_bugs_smt_update) where SMT is active and STIBP not always on.
_BY_STIBP = "vmscape"
# spectre_v2 has STIBP as a part, except with Intel's enhanced IBRS, which is as good as STIBP always on; with AMD's
# automatic IBRS, of the same name, the part is there (stibp_state). Where unprivileged eBPF makes it useless, the text
# ends before that part, so which of both it is cannot be seen.
_STIBP = re.compile(r"\bSTIBP: ([a-z-]+)")
_IMPLIES_STIBP = re.compile(r"Mitigation: Enhanced (/ Automatic )?IBRS\b")
_HIDES_STIBP = re.compile(r"Vulnerable: eIBRS\b")
_MEANINGS_OF_STIBP = {"always-on": "mitigated", "forced": "mitigated", "disabled": "vulnerable", "hidden": "unknown"}


class Vulnerability(TypedDict):
    """The status of a vulnerability.

    ``smt`` is ``vulnerable``, ``mitigated``, ``disabled``, ``unknown`` (in a guest, or with unprivileged eBPF), or None
    if the status does not mention SMT.
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
    vulnerabilities: dict[str, Vulnerability] = {}
    for name in fs.names(DIRECTORY):
        status = fs.read(f"{DIRECTORY}/{name}")
        if status is not None:
            match = _SMT_PART.search(status)
            smt = match and _MEANINGS.get(match[1], match[1])
            if match and is_guest and (match[1] in _BY_SIBLINGS or name == _BLIND_IN_GUESTS):
                smt = "unknown"
            vulnerabilities[name] = {"status": " ".join(status.split()), "smt": smt}
    if active is None:
        return vulnerabilities
    stibp = _stibp(vulnerabilities["spectre_v2"]["status"]) if "spectre_v2" in vulnerabilities else None
    # Of ``conditional`` it depends on the processes, which ask for it or not.
    left = _MEANINGS_OF_STIBP.get(stibp or "") if active else "unknown" if is_guest else "disabled"
    if stibp is not None:
        vulnerabilities["spectre_v2"]["smt"] = left
    if _BY_STIBP in vulnerabilities and vulnerabilities[_BY_STIBP]["status"].startswith("Mitigation"):
        vulnerabilities[_BY_STIBP]["smt"] = left or "vulnerable"
    return vulnerabilities


def _stibp(spectre_v2: str) -> "str | None":
    """Return in which way STIBP is on by the status of spectre_v2; ``hidden`` where the status ends before it."""
    match = _STIBP.search(spectre_v2)
    if match is not None:
        return match[1]
    if _IMPLIES_STIBP.match(spectre_v2):
        return "always-on"
    return "hidden" if _HIDES_STIBP.match(spectre_v2) else None
