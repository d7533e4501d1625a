# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of a memory policy: what a host could allocate under it, whether it is safe to apply,
and in which order to write it. No files.

The formulas are the kernel's: mm/util.c, vm_commit_limit() and __vm_enough_memory();
Documentation/mm/overcommit-accounting.rst.
"""

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError

OVERCOMMIT = "vm.overcommit_memory"
RATIO = "vm.overcommit_ratio"
KBYTES = "vm.overcommit_kbytes"
ON_OOM = "vm.panic_on_oom"
PANIC = "kernel.panic"
HUGEPAGES = "vm.nr_hugepages"
HEURISTIC, STRICT = "heuristic", "strict"
STRICT_NUMBER = 2
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class PolicyError(MemoryPolicyError):
    """The options contradict each other or are out of range, or the host would not survive the policy."""


class Sysctl(t.NamedTuple):
    """A sysctl of a memory policy: a row of `SYSCTLS`, whose option tools/options/smt_memory.yml describes.

    Attributes:
        name: in the kernel.
        option: what users ask for it by, and what facts call it.
        limits: the least and the greatest number that users may ask for; None where they ask by words alone.
        words: that users say for 0, 1, 2.
        number_of: what the number is, for a sentence.
        counterpart: the sysctl that the kernel sets to 0 when this one is written.
        risk: the least value that is safe only with others: they are written before it is, and after it is gone; 0
            for none.
        used_by: the sysctl whose risky values are safe with this one.
    """

    name: str
    option: str
    limits: "t.Optional[tuple[int, int]]" = None
    words: "tuple[str, ...]" = ()
    number_of: str = ""
    counterpart: str = ""
    risk: int = 0
    used_by: str = ""

    def number(self, asked: "str | int") -> int:
        """Return the value for what a user asks for.

        Raises:
            PolicyError: it is out of range.
        """
        if asked in self.words:
            return self.words.index(str(asked))
        words = "".join(f", or {word!r}" for word in self.words)
        return in_range(self.option, asked, self.limits or (0, 0), self.number_of, words)

    def said(self, number: "int | None") -> "str | int | None":
        """Return a value in the words of users, or None where it has none; a number where they ask for numbers."""
        if self.limits is not None:
            return number
        return self.words[number] if number is not None and number in range(len(self.words)) else None


def in_range(option: str, asked: "str | int", limits: "tuple[int, int]", what: str = "", words: str = "") -> int:
    """Return the number that a user asks for, in digits or as such.

    Raises:
        PolicyError: it is none within the limits.
    """
    least, most = limits
    if not re.fullmatch(r"[0-9]{1,15}", str(asked)) or not least <= int(asked) <= most:
        raise PolicyError(f"{option} is {asked!r:.40}: it must be {what}from {least} to {most}{words}")
    return int(asked)


# By name, in the order in which they are shown. What the kernel's int and unsigned long accept everywhere; a larger
# ratio is a typing error.
SYSCTLS = {
    sysctl.name: sysctl
    for sysctl in (
        Sysctl(OVERCOMMIT, "overcommit", words=(HEURISTIC, "always", STRICT), risk=STRICT_NUMBER),
        Sysctl(RATIO, "overcommit_ratio", (1, 1000), counterpart=KBYTES, used_by=OVERCOMMIT),
        Sysctl(KBYTES, "overcommit_kbytes", (1, 2**40), counterpart=RATIO, used_by=OVERCOMMIT),
        Sysctl(ON_OOM, "on_oom", words=("kill", "panic", "panic_always"), risk=1),
        Sysctl(PANIC, "panic_reboot_after", (1, 86400), ("never",), "a number of seconds ", used_by=ON_OOM),
        Sysctl(HUGEPAGES, "nr_hugepages", (0, 2**31 - 1)),
    )
}
COUNTERPARTS = {sysctl.name: sysctl.counterpart for sysctl in SYSCTLS.values() if sysctl.counterpart}
MARGINS = (0, 1000)

# What users ask for, by the options of `SYSCTLS`, and `margin`, percent of the committed memory that a strict policy
# must leave free; None and a missing key both leave the present value in place.
Options = t.Mapping[str, t.Any]
# A policy by the same options, with `commit_limit_bytes`, the limit of a strict policy, and `headroom`; None for what
# is not known.
InForce = t.Dict[str, t.Any]
# Sysctl values to write, by name, in the order in which they are written.
Settings = t.Dict[str, int]
# Sysctl values of a host, by name; None for a sysctl that the kernel does not have.
HostSettings = t.Mapping[str, t.Optional[int]]


class Memory(t.NamedTuple):
    """The memory of a host: values of /proc/meminfo, in bytes; None where the kernel does not report them.

    Attributes:
        total: MemTotal.
        available: MemAvailable.
        swap: SwapTotal.
        hugetlb: memory in huge pages of all sizes (Hugetlb).
        hugepage: default size of a huge page (Hugepagesize).
        committed: memory that the kernel has promised to all processes (Committed_AS).
        commit_limit: the most that a strict policy would promise (CommitLimit).
        admin_reserve: what the kernel reserves for root (vm.admin_reserve_kbytes), or None.
    """

    total: "t.Optional[int]" = None
    available: "t.Optional[int]" = None
    swap: "t.Optional[int]" = None
    hugetlb: "t.Optional[int]" = None
    hugepage: "t.Optional[int]" = None
    committed: "t.Optional[int]" = None
    commit_limit: "t.Optional[int]" = None
    admin_reserve: "t.Optional[int]" = None


class Headroom(TypedDict):
    """What can still be allocated, in bytes; None without a limit, or when it is not known.

    Attributes:
        bytes: CommitLimit minus Committed_AS under a strict policy; negative when the limit is exceeded.
        unprivileged_bytes: the same minus what the kernel reserves for root (vm.admin_reserve_kbytes).
        largest_request_bytes: the largest single mapping; under the heuristic policy RAM plus swap (Linux 5.1 and
            later).
    """

    bytes: "int | None"
    unprivileged_bytes: "int | None"
    largest_request_bytes: "int | None"


def size(number: int) -> str:
    """Format a number of bytes for people: ``3.1 GiB``, ``360 MiB``, ``12 KiB``."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{round(number / MIB)} MiB" if number >= MIB else f"{number // KIB} KiB"


def settings(options: Options, present: HostSettings) -> Settings:
    """Translate options into sysctl values.

    Args:
        options: the wanted policy.
        present: the host's settings; a strict policy without a ratio or kbytes keeps the present one.

    Returns:
        The values to write, in an order in which they can be written one after the other.

    Raises:
        PolicyError: Options contradict each other or are out of range.
    """
    wanted = {
        sysctl.name: sysctl.number(options[sysctl.option])
        for sysctl in SYSCTLS.values()
        if options.get(sysctl.option) is not None
    }
    in_range("margin", options.get("margin") or 0, MARGINS)
    if RATIO in wanted and KBYTES in wanted:
        raise PolicyError(
            "overcommit_ratio and overcommit_kbytes are both given, but the kernel sets one to 0 when the other is"
            " written: choose one"
        )
    if wanted.get(OVERCOMMIT) == STRICT_NUMBER:
        if RATIO not in wanted and KBYTES not in wanted:
            wanted.update(_present_amount(present))
    elif RATIO in wanted or KBYTES in wanted:
        raise PolicyError(
            "overcommit_ratio and overcommit_kbytes limit what a strict policy allows: set overcommit to strict as"
            " well, or leave them out"
        )
    if wanted.get(ON_OOM) and PANIC not in wanted:
        raise PolicyError(
            f"on_oom is {options['on_oom']} without panic_reboot_after: after a panic the host might hang until someone"
            " resets it. Set the seconds after which it reboots, or 'never' if you do not want a reboot"
        )
    return in_order(wanted)


def _present_amount(present: HostSettings) -> Settings:
    """Return the one of ratio and kbytes that is in effect: kbytes unless it is 0 (vm_commit_limit)."""
    for name in (KBYTES, RATIO):
        value = present.get(name)
        if value:
            return {name: value}
    raise PolicyError(
        "the host has neither overcommit_ratio nor overcommit_kbytes set: give one of them for a strict policy"
    )


def in_order(values: "Mapping[str, int]") -> Settings:
    """Sort settings so that no intermediate state is worse than the states before and after all of them are written.

    The ratio or kbytes are written before a strict policy that uses them, and after the end of one. The reboot time is
    written before a panic is switched on, and after it is switched off.

    Args:
        values: sysctl values by name.
    """

    def turn(name: str) -> "tuple[bool, str, bool]":
        sysctl = SYSCTLS[SYSCTLS[name].used_by or name]
        is_risky = values.get(sysctl.name, 0) >= sysctl.risk
        return bool(sysctl.risk), sysctl.name, (sysctl.name == name) == is_risky

    return {name: values[name] for name in sorted(SYSCTLS, key=turn) if name in values}


def resulting(present: HostSettings, wanted: "Mapping[str, int]") -> "dict[str, int | None]":
    """Return the settings of a host after the wanted ones are written;
    the kernel sets the counterpart of a written ratio or kbytes to 0.
    """
    result = dict(present)
    for name, value in wanted.items():
        result[name] = value
        if name in COUNTERPARTS:
            result[COUNTERPARTS[name]] = 0
    return result


def differences(present: HostSettings, wanted: "Mapping[str, int]") -> "list[str]":
    """List the settings that differ from the wanted ones, one sentence per setting."""
    return [
        f"{name} reads {'nothing' if present[name] is None else present[name]} instead of {value}"
        for name, value in wanted.items()
        if present[name] != value
    ]


def in_force(memory: Memory, present: HostSettings, values: HostSettings, page: int = 4096) -> InForce:
    """Describe the policy of a host with other settings than it has now, or with its present ones.

    Args:
        memory: the host's memory now.
        present: the host's settings now.
        values: the settings to describe.
        page: bytes per page.
    """
    pages = values.get(HUGEPAGES)
    later = memory if pages is None else memory_with(memory, present, {HUGEPAGES: pages})
    return {
        **{sysctl.option: sysctl.said(values.get(name)) for name, sysctl in SYSCTLS.items()},
        "commit_limit_bytes": commit_limit(later, values, page),
        "headroom": headroom(later, values, page),
    }


def memory_with(memory: Memory, present: HostSettings, wanted: "Mapping[str, int]") -> Memory:
    """Return the memory of a host as it would be with the wanted number of huge pages (of the default size)."""
    hugetlb, hugepage, pages = memory.hugetlb, memory.hugepage, present.get(HUGEPAGES)
    if HUGEPAGES not in wanted or hugetlb is None or hugepage is None or pages is None:
        return memory
    return memory._replace(hugetlb=hugetlb + (wanted[HUGEPAGES] - pages) * hugepage)


def commit_limit(memory: Memory, values: HostSettings, page: int = 4096) -> "int | None":
    """Compute CommitLimit: how much memory a strict policy allows all processes to allocate in total.

    (RAM - hugetlb) x ratio / 100 + swap, or kbytes + swap; in whole pages, as the kernel counts (vm_commit_limit).

    Args:
        memory: the host's memory.
        values: settings with the ratio and the kbytes.
        page: bytes per page.

    Returns:
        Bytes, or None when one of the values is not known.
    """
    total, hugetlb, swap = memory.total, memory.hugetlb, memory.swap
    ratio, kbytes = values.get(RATIO), values.get(KBYTES)
    if total is None or hugetlb is None or swap is None or ratio is None or kbytes is None:
        return None
    allowed = kbytes * KIB // page if kbytes else (total - hugetlb) // page * ratio // 100
    return allowed * page + swap


def headroom(memory: Memory, values: HostSettings, page: int = 4096) -> Headroom:
    """Compute what can still be allocated.

    Args:
        memory: the host's memory.
        values: the host's settings.
        page: bytes per page.
    """
    unknown: Headroom = {"bytes": None, "unprivileged_bytes": None, "largest_request_bytes": None}
    policy, total, swap = SYSCTLS[OVERCOMMIT].said(values.get(OVERCOMMIT)), memory.total, memory.swap
    if policy == HEURISTIC and total is not None and swap is not None:
        return {**unknown, "largest_request_bytes": total + swap}
    limit, committed = commit_limit(memory, values, page), memory.committed
    if policy != STRICT or limit is None or committed is None:
        return unknown
    left = limit - committed
    return {
        "bytes": left,
        "unprivileged_bytes": left - (memory.admin_reserve or 0),
        "largest_request_bytes": max(left, 0),
    }


def required_limit(committed: int, reserve: int, margin: int) -> int:
    """Compute the lowest safe CommitLimit: the committed memory and the margin,
    at least what the kernel reserves for root.

    A process of an ordinary user gets ENOMEM when less than admin_reserve_kbytes is left (__vm_enough_memory).

    Args:
        committed: bytes that are committed.
        reserve: bytes that the kernel reserves for root.
        margin: percent of the committed memory.

    Returns:
        Bytes.
    """
    return committed + max(_divide_up(committed * margin, 100), reserve)


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def refusal(
    memory: Memory,
    present: HostSettings,
    wanted: "Mapping[str, int]",
    margin: int,
    page: int = 4096,
    way_out: "str | None" = None,
) -> "str | None":
    """Return why it is not safe to apply the wanted settings, in one sentence with the figures,
    or None when it is safe.

    Under a strict policy whose limit is exceeded every fork and malloc fails, also those of sshd. A strict limit that
    is not lower than the present strict limit makes nothing worse, so it is not refused.

    Args:
        memory: the host's memory now.
        present: the host's settings.
        wanted: the values to write, as ``settings`` returns them.
        margin: percent of the committed memory that must be left free.
        page: bytes per page.
        way_out: what to advise when the user did not choose the wanted settings; None advises other settings.
    """
    return _hugepages_refusal(memory, present, wanted, way_out) or _strict_refusal(
        memory, present, wanted, margin, page, way_out
    )


def _hugepages_refusal(
    memory: Memory, present: HostSettings, wanted: "Mapping[str, int]", way_out: "str | None"
) -> "str | None":
    number = wanted.get(HUGEPAGES)
    if not number:
        return None
    hugepage, available, now = memory.hugepage, memory.available, present.get(HUGEPAGES)
    if hugepage is None or available is None or now is None:
        return (
            f"this kernel does not report huge pages, so it is unknown whether {number} of them would fit: leave"
            " nr_hugepages out"
        )
    more = (number - now) * hugepage
    if more <= available:
        return None
    advice = way_out or f"set {now + available // hugepage} or fewer"
    return f"{number:d} huge pages would take another {size(more)}, but only {size(available)} are available: {advice}"


def _strict_refusal(
    memory: Memory, present: HostSettings, wanted: "Mapping[str, int]", margin: int, page: int, way_out: "str | None"
) -> "str | None":
    after = resulting(present, wanted)
    if after.get(OVERCOMMIT) != STRICT_NUMBER or not wanted:
        return None
    later = memory_with(memory, present, wanted)
    limit, committed = commit_limit(later, after, page), memory.committed
    if limit is None or committed is None:
        return (
            "/proc/meminfo does not report what a strict policy would allow on this host or what is already committed: "
            "it is unknown whether the host would keep working"
        )
    if present.get(OVERCOMMIT) == STRICT_NUMBER and limit >= (commit_limit(memory, present, page) or 0):
        return None
    reserve = memory.admin_reserve or 0
    required = required_limit(committed, reserve, margin)
    if limit >= required:
        return None
    least = (
        f" (at least the {size(reserve)} that the kernel reserves for root)"
        if reserve > committed * margin / 100
        else ""
    )
    advice = way_out or _advice(later, after, required, page)
    return f"would allow {size(limit)}, but {size(committed)} are already committed, margin {margin} %{least}: {advice}"


def _advice(memory: Memory, values: HostSettings, required: int, page: int) -> str:
    """Return which setting would make the limit large enough, for a memory whose limit is known."""
    amount = max(required - (memory.swap or 0), 1)
    if values.get(KBYTES):
        return f"raise the kbytes to {_divide_up(amount, page) * page // KIB} or more"
    pages = ((memory.total or 0) - (memory.hugetlb or 0)) // page
    if pages <= 0:
        return "huge pages leave no memory for anything else: set fewer of them"
    return f"raise the ratio to {_divide_up(_divide_up(amount, page) * 100, pages)} or more"
