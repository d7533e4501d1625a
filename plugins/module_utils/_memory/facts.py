# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible_facts['smt_memory']`: what a host promises, what is left, what happens when it runs out, as plain data. Nothing is written or run."""

from __future__ import annotations

import os
import re

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import policy as memory_policy, sysctl_files

# Names in /proc/meminfo (proc(5)), all in KiB.
MEMINFO = {
    "total": "MemTotal",
    "available": "MemAvailable",
    "swap": "SwapTotal",
    "hugetlb": "Hugetlb",
    "hugepage": "Hugepagesize",
    "committed": "Committed_AS",
    "commit_limit": "CommitLimit",
}
ADMIN_RESERVE = "proc/sys/vm/admin_reserve_kbytes"
# 18 digits are less than 2^63 bytes in KiB and more than any memory; a longer number is none.
_KIB_LINE = re.compile(r"^(\w+):\s+([0-9]{1,15})(?: kB)?\s*$", re.MULTILINE)
_NUMBER = re.compile(r"\A-?[0-9]{1,18}\Z")
# A service's processes may be in cgroups below its own.
_UNIT = re.compile(r"/([^/\n]+\.service)(?:/|$)", re.MULTILINE)
MOST_PROCESSES = 100000


def gather(fs, options=None):
    """Read the facts of a host, and work out what a wanted policy would mean.

    Args:
        fs: ``files.HostFs``.
        options: as for ``memory_policy.settings``, and ``margin`` (percent); None when only what is there is asked for.

    Returns:
        dict of plain data as smt_memory_facts documents it.

    Raises:
        PolicyError: the options contradict each other.
    """
    memory, present, page = read_memory(fs), read_settings(fs), page_size(fs)
    room = memory_policy.headroom(memory, present, page)
    return {
        "overcommit": memory_policy.overcommit_name(present[memory_policy.OVERCOMMIT]),
        "overcommit_ratio": present[memory_policy.RATIO],
        "overcommit_kbytes": present[memory_policy.KBYTES],
        "total_bytes": memory["total"],
        "swap_bytes": memory["swap"],
        "hugetlb_bytes": memory["hugetlb"],
        "nr_hugepages": present[memory_policy.HUGEPAGES],
        "commit_limit_bytes": memory["commit_limit"],
        "committed_bytes": memory["committed"],
        "headroom": room,
        "on_oom": memory_policy.on_oom_name(present[memory_policy.ON_OOM]),
        "panic_reboot_after": present[memory_policy.PANIC],
        "oom_kills": read_oom_kills(fs),
        "protected_units": protected_units(fs),
        "wanted": None if options is None else _wanted(fs, memory, present, options, page),
        "problems": fs.problems,
    }


def _wanted(fs, memory, present, options, page):
    settings = memory_policy.settings(options, present)
    later = memory_policy.memory_with(memory, present, settings)
    after = memory_policy.resulting(present, settings)
    boot_differences, boot_hindrance = sysctl_files.boot_differences(fs, settings)
    return {
        "overcommit": memory_policy.overcommit_name(after[memory_policy.OVERCOMMIT]),
        "commit_limit_bytes": memory_policy.commit_limit(later, after, page),
        "headroom": memory_policy.headroom(later, after, page),
        "refusal": memory_policy.refusal(memory, present, settings, options["margin"], page),
        "sysctls": sysctl_lines(settings),
        "differences": [
            f"{name} reads {'nothing' if present[name] is None else present[name]} instead of {value}"
            for name, value in settings.items()
            if present[name] != value
        ],
        "boot_differences": boot_differences,
        "boot_hindrance": boot_hindrance,
        "overrides": sysctl_files.overrides(fs, settings),
    }


def sysctl_lines(settings):
    """The lines of our file, ``[{"name", "value", "state"}]`` as ansible.posix.sysctl takes them.

    The twin of a line that is wanted is taken out: in the file it would zero what is wanted, by the order of the lines.
    """
    lines = [{"name": memory_policy.TWINS[name], "value": "", "state": "absent"} for name in settings if name in memory_policy.TWINS]
    return lines + [{"name": name, "value": str(value), "state": "present"} for name, value in settings.items()]


def parse_meminfo(text):
    """The memory (bytes by the names of ``MEMINFO``) in the text of /proc/meminfo; None for what it does not tell.

    ``hugetlb`` is of kernels from 4.16 on; before, it is the huge pages of the default size.
    """
    lines = {name: int(number) for name, number in _KIB_LINE.findall(text)}
    memory = {key: lines[name] * 1024 if name in lines else None for key, name in MEMINFO.items()}
    if memory["hugetlb"] is None and memory["hugepage"] is not None and "HugePages_Total" in lines:
        memory["hugetlb"] = lines["HugePages_Total"] * memory["hugepage"]
    if memory["hugetlb"] is None and memory["hugepage"] is None and memory["total"] is not None:
        # A kernel without huge pages has none of these lines.
        memory["hugetlb"] = 0
    return memory


def read_memory(fs):
    """A memory, as memory_policy describes it."""
    reserve = _number(fs, ADMIN_RESERVE)
    return dict(parse_meminfo(fs.read("proc/meminfo") or ""), admin_reserve=None if reserve is None else reserve * 1024)


def read_settings(fs):
    """The host's settings: ``{name: int or None}`` for each of ``memory_policy.SYSCTLS``."""
    return {name: _number(fs, sysctl_path(name)) for name in memory_policy.SYSCTLS}


def sysctl_path(name):
    """The file of a sysctl below the sysroot."""
    return "proc/sys/" + name.replace(".", "/")


def _number(fs, path):
    text = (fs.read(path) or "").strip()
    return int(text) if _NUMBER.match(text) else None


def page_size(fs):
    """Bytes a page on this host; a recorded tree does not tell, and is taken for one with 4096."""
    return os.sysconf("SC_PAGE_SIZE") if fs.is_host else 4096


def read_oom_kills(fs):
    """How many processes the OOM killer has killed since boot (int; kernels from 4.13 on), or None."""
    found = re.search(r"^oom_kill ([0-9]{1,18})$", fs.read("proc/vmstat") or "", re.MULTILINE)
    return int(found.group(1)) if found else None


def protected_units(fs):
    """The services of which some process is less likely to be killed than others: ``[{"unit": str, "oom_score_adj": int}]``, by name.

    What the kernel says of the processes that run, not what files ask for; the lowest score of a unit's processes.
    """
    scores = {}
    # A process that ends while it is looked at is no problem of the host's: a reader of its own, whose problems nobody is told.
    reader = HostFs(fs.sysroot)
    pids = [name for name in reader.names("proc") if name.isdigit()]
    for pid in pids[:MOST_PROCESSES]:
        score = _number(reader, f"proc/{pid}/oom_score_adj")
        if score is not None and score < 0:
            unit = _UNIT.search(reader.read(f"proc/{pid}/cgroup") or "")
            if unit:
                scores[unit.group(1)] = min(score, scores.get(unit.group(1), 0))
    return [{"unit": unit, "oom_score_adj": score} for unit, score in sorted(scores.items())]
