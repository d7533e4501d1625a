# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of a memory policy: what a host could promise under it, whether it may be put in force, and in which order. No files.

A *memory* is plain data in bytes, as ``memory_facts.read_memory`` gives it: ``{"total", "available", "swap", "hugetlb", "hugepage", "committed",
"commit_limit", "admin_reserve"}``, each int or None. *Settings* are sysctl values by name, ``{"vm.overcommit_memory": 2, ...}``, ints.

The formulas are the kernel's: mm/util.c, vm_commit_limit() and __vm_enough_memory(); Documentation/mm/overcommit-accounting.rst.
"""

from __future__ import annotations

OVERCOMMIT = "vm.overcommit_memory"
RATIO = "vm.overcommit_ratio"
KBYTES = "vm.overcommit_kbytes"
ON_OOM = "vm.panic_on_oom"
PANIC = "kernel.panic"
HUGEPAGES = "vm.nr_hugepages"
SYSCTLS = (OVERCOMMIT, RATIO, KBYTES, ON_OOM, PANIC, HUGEPAGES)
# The kernel sets each to 0 when the other is written.
TWINS = {RATIO: KBYTES, KBYTES: RATIO}

HEURISTIC, ALWAYS, STRICT = "heuristic", "always", "strict"
OVERCOMMIT_NAMES = (HEURISTIC, ALWAYS, STRICT)
ON_OOM_NAMES = ("kill", "panic", "panic_always")
NEVER = "never"
STRICT_NUMBER = OVERCOMMIT_NAMES.index(STRICT)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
LONGEST_PANIC = 86400
# What the kernel's int and unsigned long take everywhere; larger ratios than this are typing errors.
LIMITS = {"overcommit_ratio": (1, 1000), "overcommit_kbytes": (1, 2**40), "nr_hugepages": (0, 2**31 - 1), "margin": (0, 1000)}


class PolicyError(Exception):
    """What is wanted contradicts itself or is no policy; the text names the option and what it may be."""


def overcommit_name(number):
    """The name (str) of a value of vm.overcommit_memory, or None when it is none."""
    return OVERCOMMIT_NAMES[number] if number in range(len(OVERCOMMIT_NAMES)) else None


def on_oom_name(number):
    """The name (str) of a value of vm.panic_on_oom, or None when it is none."""
    return ON_OOM_NAMES[number] if number in range(len(ON_OOM_NAMES)) else None


def size(number):
    """Bytes as a person reads them: ``3.1 GiB``, ``360 MiB``, ``12 KiB``."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{round(number / MIB)} MiB" if number >= MIB else f"{number // KIB} KiB"


def settings(options, present):
    """The sysctl values that a policy stands for.

    Args:
        options: dict with ``overcommit``, ``overcommit_ratio``, ``overcommit_kbytes``, ``on_oom``, ``panic_reboot_after``, ``nr_hugepages``;
            each may be None: what is not named stays as it is.
        present: the host's settings; strict without a ratio or kbytes keeps the present one.

    Returns:
        dict: settings, in the order in which they may be written one after the other.

    Raises:
        PolicyError: options that contradict each other or are out of range.
    """
    for name, (least, most) in LIMITS.items():
        value = options.get(name)
        if value is not None and not least <= value <= most:
            raise PolicyError(f"{name} is {value}: it must be from {least} to {most}")
    wanted = {}
    wanted.update(_overcommit_settings(options, present))
    wanted.update(_oom_settings(options))
    if options.get("nr_hugepages") is not None:
        wanted[HUGEPAGES] = options["nr_hugepages"]
    return in_order(wanted)


def _overcommit_settings(options, present):
    policy, ratio, kbytes = options.get("overcommit"), options.get("overcommit_ratio"), options.get("overcommit_kbytes")
    if ratio is not None and kbytes is not None:
        raise PolicyError("overcommit_ratio and overcommit_kbytes are both given, and the kernel sets one to 0 when the other is written: choose one")
    if policy != STRICT and (ratio is not None or kbytes is not None):
        raise PolicyError(
            "overcommit_ratio and overcommit_kbytes say how much a strict policy may promise: name overcommit strict with them, or leave them out"
        )
    if policy is None:
        return {}
    wanted = {OVERCOMMIT: OVERCOMMIT_NAMES.index(policy)}
    if policy == STRICT:
        if ratio is None and kbytes is None:
            wanted.update(_present_amount(present))
        elif ratio is not None:
            wanted[RATIO] = ratio
        else:
            wanted[KBYTES] = kbytes
    return wanted


def _present_amount(present):
    """The one of ratio and kbytes that counts now: kbytes unless it is 0 (vm_commit_limit)."""
    for name in (KBYTES, RATIO):
        if present.get(name):
            return {name: present[name]}
    raise PolicyError("the host has neither an overcommit_ratio nor overcommit_kbytes to keep: name one of them for a strict policy")


def _oom_settings(options):
    on_oom, seconds = options.get("on_oom"), options.get("panic_reboot_after")
    wanted = {}
    if seconds is not None:
        wanted[PANIC] = _panic_seconds(seconds)
    if on_oom is not None:
        if on_oom != "kill" and seconds is None:
            raise PolicyError(
                f"on_oom is {on_oom} without panic_reboot_after: after a panic the host might hang until somebody comes. Name the seconds after "
                "which it reboots, or say 'never' if that is what you want"
            )
        wanted[ON_OOM] = ON_OOM_NAMES.index(on_oom)
    return wanted


def _panic_seconds(text):
    if text == NEVER:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= LONGEST_PANIC):
        raise PolicyError(f"panic_reboot_after is {text!r:.40}: it must be a number of seconds from 1 to {LONGEST_PANIC}, or '{NEVER}'")
    return int(text)


def in_order(values):
    """Settings in an order in which no step in between is worse than what is before and after.

    The amount comes before the strictness, which judges by it, and after its end; the reboot time before the panic, and after its end.
    """
    strict, panics = values.get(OVERCOMMIT) == STRICT_NUMBER, bool(values.get(ON_OOM))
    order = [HUGEPAGES] + ([RATIO, KBYTES, OVERCOMMIT] if strict else [OVERCOMMIT, RATIO, KBYTES])
    order += [PANIC, ON_OOM] if panics else [ON_OOM, PANIC]
    return {name: values[name] for name in order if name in values}


def resulting(present, wanted):
    """The settings (dict) of a host after the wanted ones are written, the kernel's zeroing of the twin included."""
    result = dict(present)
    for name, value in wanted.items():
        result[name] = value
        if name in TWINS:
            result[TWINS[name]] = 0
    return result


def memory_with(memory, present, wanted):
    """The memory of a host as it would be with the wanted number of huge pages (of the default size)."""
    if HUGEPAGES not in wanted or None in (memory["hugetlb"], memory["hugepage"], present.get(HUGEPAGES)):
        return memory
    return dict(memory, hugetlb=memory["hugetlb"] + (wanted[HUGEPAGES] - present[HUGEPAGES]) * memory["hugepage"])


def commit_limit(memory, values, page=4096):
    """CommitLimit: how many bytes a strict policy promises to all processes together, or None when something is not known.

    (RAM - hugetlb) x ratio / 100 + swap, or kbytes + swap; in whole pages, as the kernel counts (vm_commit_limit).

    Args:
        memory: a memory.
        values: settings with the ratio and the kbytes.
        page: bytes a page.
    """
    ratio, kbytes = values.get(RATIO), values.get(KBYTES)
    if None in (memory["total"], memory["hugetlb"], memory["swap"], ratio, kbytes):
        return None
    allowed = kbytes * KIB // page if kbytes else (memory["total"] - memory["hugetlb"]) // page * ratio // 100
    return allowed * page + memory["swap"]


def headroom(memory, values, page=4096):
    """What can still be promised, in bytes: ``{"bytes", "unprivileged_bytes", "largest_request_bytes"}``.

    ``bytes`` is CommitLimit less Committed_AS under a strict policy (below 0: exceeded), and None under the others, which have no limit on
    the sum. ``unprivileged_bytes`` is that less what the kernel keeps for root (vm.admin_reserve_kbytes). ``largest_request_bytes`` is the largest
    single mapping: under the heuristic RAM and swap together (5.1 and later), None without a limit.
    """
    nothing = {"bytes": None, "unprivileged_bytes": None, "largest_request_bytes": None}
    policy = overcommit_name(values.get(OVERCOMMIT))
    if policy == HEURISTIC and None not in (memory["total"], memory["swap"]):
        return dict(nothing, largest_request_bytes=memory["total"] + memory["swap"])
    limit = commit_limit(memory, values, page)
    if policy != STRICT or None in (limit, memory["committed"]):
        return nothing
    left = limit - memory["committed"]
    return {"bytes": left, "unprivileged_bytes": left - (memory["admin_reserve"] or 0), "largest_request_bytes": max(left, 0)}


def needed(memory, margin):
    """Bytes that a strict policy has to allow: what is promised, and the margin in percent of it, at least what the kernel keeps for root.

    A process that is not root's gets ENOMEM when less than admin_reserve_kbytes is left (__vm_enough_memory).
    """
    return memory["committed"] + max(-(-memory["committed"] * margin // 100), memory["admin_reserve"] or 0)


def refusal(memory, present, wanted, margin, page=4096, way_out=None):
    """Why the wanted settings must not be put in force, in one sentence with the figures, or None when they may.

    Under a strict policy whose limit is exceeded every next fork and malloc fails, sshd's included. A host that is strict already loses nothing by
    a limit that is not lower than its present one, so that is not refused.

    Args:
        memory: the host's memory now.
        present, wanted: settings; wanted as ``settings`` returns them.
        margin: percent of what is promised that must be left.
        way_out: what to advise (str) where the wanted settings are not the user's choice; None advises other settings.
    """
    return _hugepages_refusal(memory, present, wanted, way_out) or _strict_refusal(memory, present, wanted, margin, page, way_out)


def _hugepages_refusal(memory, present, wanted, way_out):
    if not wanted.get(HUGEPAGES):
        return None
    if None in (memory["hugepage"], memory["available"], present.get(HUGEPAGES)):
        return f"this kernel does not tell about huge pages, so {wanted[HUGEPAGES]} of them cannot be promised: leave nr_hugepages out"
    more = (wanted[HUGEPAGES] - present[HUGEPAGES]) * memory["hugepage"]
    if more <= memory["available"]:
        return None
    most = present[HUGEPAGES] + memory["available"] // memory["hugepage"]
    return "%d huge pages would take %s more, and %s are available: %s" % (
        wanted[HUGEPAGES],
        size(more),
        size(memory["available"]),
        way_out or "name %d or fewer" % most,
    )


def _strict_refusal(memory, present, wanted, margin, page, way_out):
    after = resulting(present, wanted)
    if after.get(OVERCOMMIT) != STRICT_NUMBER or not wanted:
        return None
    later = memory_with(memory, present, wanted)
    limit = commit_limit(later, after, page)
    if limit is None or memory["committed"] is None:
        return "/proc/meminfo does not tell what a strict policy would allow here or what is promised already: it cannot be said that the host would survive it"
    if present.get(OVERCOMMIT) == STRICT_NUMBER and limit >= (commit_limit(memory, present, page) or 0):
        return None
    required = needed(later, margin)
    if limit >= required:
        return None
    reserve = memory["admin_reserve"] or 0
    least = f" (at least the {size(reserve)} that the kernel keeps for root)" if reserve > memory["committed"] * margin / 100 else ""
    return "would allow %s, %s are promised already, margin %d %%%s: %s" % (
        size(limit),
        size(memory["committed"]),
        margin,
        least,
        way_out or _way_out(later, after, required, page),
    )


def _way_out(memory, values, required, page):
    amount = max(required - memory["swap"], 1)
    if values.get(KBYTES):
        return f"raise the kbytes to {-(-amount // page) * page // KIB} or more"
    pages = (memory["total"] - memory["hugetlb"]) // page
    if pages <= 0:
        return "huge pages leave no memory for anything else: name fewer of them"
    return "raise the ratio to %d or more" % -(-(-(-amount // page)) * 100 // pages)
