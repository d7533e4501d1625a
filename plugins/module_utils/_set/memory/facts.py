# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible_facts['smt_memory']`: how much memory a host commits, what is left, and what happens when it runs out.

Nothing is written or executed.
"""

import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import policy as memory_policy, sysctl_files

ADMIN_RESERVE = "proc/sys/vm/admin_reserve_kbytes"
# proc(5): all in KiB. 15 digits of KiB stay below 2^63 bytes and exceed any real memory; a longer number is ignored.
_KIB_LINE = re.compile(r"^(\w+):\s+([0-9]{1,15})(?: kB)?\s*$", re.MULTILINE)
_NUMBER = re.compile(r"\A-?[0-9]{1,18}\Z")
# The processes of a service may be in cgroups below its own.
_UNIT = re.compile(r"/([^/\n]+\.service)(?:/|$)", re.MULTILINE)
MAX_PROCESSES = 100000


class ProtectedUnit(TypedDict):
    """A service, and the lowest OOM score adjustment of its processes."""

    unit: str
    oom_score_adj: int


def gather(fs: HostFs, options: "memory_policy.Options | None" = None) -> "dict[str, t.Any]":
    """Read the facts of a host, and compute the effects of a wanted policy.

    Args:
        fs: the host's files.
        options: the wanted policy and its margin; None when only the present state is needed.

    Returns:
        Plain data as documented for the module smt_memory_facts, without ``protect_differences``.

    Raises:
        PolicyError: The options contradict each other.
    """
    memory, present, page = read_memory(fs), read_settings(fs), page_size(fs)
    return {
        **memory_policy.in_force(memory, present, present, page),
        "commit_limit_bytes": memory.commit_limit,
        "total_bytes": memory.total,
        "swap_bytes": memory.swap,
        "hugetlb_bytes": memory.hugetlb,
        "committed_bytes": memory.committed,
        "oom_kills": read_oom_kills(fs),
        "protected_units": protected_units(fs),
        "wanted": None if options is None else _wanted(fs, memory, present, options, page),
        "problems": fs.problems,
    }


def _wanted(
    fs: HostFs,
    memory: memory_policy.Memory,
    present: memory_policy.HostSettings,
    options: memory_policy.Options,
    page: int,
) -> "dict[str, t.Any]":
    settings = memory_policy.settings(options, present)
    after = memory_policy.in_force(memory, present, memory_policy.resulting(present, settings), page)
    boot = sysctl_files.BootFiles(fs)
    boot_differences, boot_blocked_by = boot.differences(settings)
    return {
        "overcommit": after["overcommit"],
        "commit_limit_bytes": after["commit_limit_bytes"],
        "headroom": after["headroom"],
        "refusal": memory_policy.refusal(memory, present, settings, options["margin"], page),
        "sysctls": settings,
        "differences": memory_policy.differences(present, settings),
        "boot_differences": boot_differences,
        "boot_blocked_by": boot_blocked_by,
        "overrides": boot.overrides(settings),
    }


def parse_meminfo(text: str, admin_reserve: "int | None" = None) -> memory_policy.Memory:
    """Parse the text of /proc/meminfo.

    Kernels before 4.16 have no line ``Hugetlb``; there the huge pages of the default size are counted.

    Args:
        text: the content of the file.
        admin_reserve: bytes that the kernel reserves for root; None when they are not known.
    """
    lines = {name: int(number) for name, number in _KIB_LINE.findall(text)}
    # A kernel without huge pages has none of these lines.
    pages = lines.get("HugePages_Total") if "Hugepagesize" in lines else 0 if "MemTotal" in lines else None
    if "Hugetlb" not in lines and pages is not None:
        lines["Hugetlb"] = pages * lines.get("Hugepagesize", 0)
    names = ("MemTotal", "MemAvailable", "SwapTotal", "Hugetlb", "Hugepagesize", "Committed_AS", "CommitLimit")
    values = [lines[name] * 1024 if name in lines else None for name in names]
    return memory_policy.Memory._make([*values, admin_reserve])


def read_memory(fs: HostFs) -> memory_policy.Memory:
    """Read the memory of a host.

    Args:
        fs: the host's files.
    """
    reserve = _number(fs, ADMIN_RESERVE)
    return parse_meminfo(fs.read("proc/meminfo") or "", None if reserve is None else reserve * 1024)


def read_settings(fs: HostFs) -> "dict[str, int | None]":
    """Read the values of all sysctls in ``memory_policy.SYSCTLS``; None for those that the kernel does not have.

    Args:
        fs: the host's files.
    """
    return {name: read_setting(fs, name) for name in memory_policy.SYSCTLS}


def read_setting(fs: HostFs, name: str) -> "int | None":
    """Read the value of one sysctl; None when the kernel does not have it."""
    return _number(fs, sysctl_path(name))


def sysctl_path(name: str) -> str:
    """Return the file of a sysctl, relative to the sysroot."""
    return "proc/sys/" + name.replace(".", "/")


def _number(fs: HostFs, path: str) -> "int | None":
    text = (fs.read(path) or "").strip()
    return int(text) if _NUMBER.match(text) else None


def page_size(fs: HostFs) -> int:
    """Return the bytes per page; a recorded tree does not contain the page size, so 4096 is assumed for it."""
    return os.sysconf("SC_PAGE_SIZE") if fs.is_host else 4096


def read_oom_kills(fs: HostFs) -> "int | None":
    """Return how many processes the OOM killer has killed since boot; None before Linux 4.13,
    which does not count them.
    """
    match = re.search(r"^oom_kill ([0-9]{1,18})$", fs.read("proc/vmstat") or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def protected_units(fs: HostFs) -> "list[ProtectedUnit]":
    """List the services with at least one running process that the OOM killer is less likely to kill than others.

    Args:
        fs: the host's files.

    Returns:
        The services by name. The kernel's values for running processes count, not the configuration files.
    """
    scores: dict[str, int] = {}
    # A process may end while it is examined, which is not a problem of the host: a separate reader keeps such problems
    # out of the facts.
    reader = HostFs(fs.sysroot)
    pids = [name for name in reader.names("proc") if name.isdigit()]
    for pid in pids[:MAX_PROCESSES]:
        score = _number(reader, f"proc/{pid}/oom_score_adj")
        if score is not None and score < 0:
            unit = _UNIT.search(reader.read(f"proc/{pid}/cgroup") or "")
            if unit:
                scores[unit.group(1)] = min(score, scores.get(unit.group(1), 0))
    return [{"unit": unit, "oom_score_adj": score} for unit, score in sorted(scores.items())]
