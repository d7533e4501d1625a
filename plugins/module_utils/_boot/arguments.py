# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments of a desired SMT state: which ones it needs, and which of the others have to be removed.

Sources: Documentation/admin-guide/kernel-parameters.txt, kernel/cpu.c (`nosmt` turns SMT off with any value), arch/x86/kernel/cpu/bugs.c
(the `nosmt` parts, and `l1tf=full`, which includes `nosmt`), Documentation/admin-guide/hw-vuln/attack_vector_controls.rst and kernel/cpu.c
of 6.17 and later (parts of `mitigations=` that exclude an attack vector).
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

ENABLED, DISABLED, FORCED_OFF, MITIGATIONS_NOSMT = "enabled", "disabled", "forced_off", "mitigations_nosmt"
ONE_PER_CORE = "one_per_core"
MAX_CPUS = 8192
"""The highest number that `maxcpus` accepts: CONFIG_NR_CPUS is at most 8192 on every architecture."""

SWITCHES = ("nosmt", "maxcpus", "smt", "smt_enabled")
"""Arguments that set how many threads of a core run, with any value (`smt` on s390, `smt-enabled` on POWER). At most one of them may be set."""

OURS = "mitigations=auto,nosmt"
"""The argument of the state `mitigations_nosmt`. Another state removes it as a whole, because mitigations=auto is the kernel's default."""

LIMITS = ("nr_cpus", "possible_cpus", "nosmp")
"""Arguments that prevent CPUs, including siblings, from ever starting."""

_ARGUMENT = re.compile(r"[a-z0-9_.-]+(=[a-z0-9_.,-]+)?")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_NOSMT_PART = re.compile(r",nosmt(?=[,;]|\Z)")

GLOBAL_PARTS = ("", "auto", "off", "nosmt")
"""Parts of `mitigations=` that apply to all attack vectors; any other part excludes one vector."""

NO_CROSS_THREAD = "no_cross_thread"
"""The part that excludes the attack vector for which the kernel would turn SMT off."""


class BootArgsError(Exception):
    """An invalid value for a boot argument; the text states the rule that it violates."""


@dataclass(frozen=True)
class Wanted:
    """The desired boot arguments.

    Attributes:
        arguments: arguments that have to be set, each exactly once.
        dropped: names, with underscores, of arguments that are removed, with any value.
        drops_parts: whether the ``nosmt`` parts of other arguments are removed too (``mds=full,nosmt``), and ``l1tf=full``.
        keeps_vectors: whether attack vectors that another ``mitigations=`` excludes stay excluded, in a separate `mitigations=auto,nosmt,...` after
            ours. The kernel combines the two, and kernels before 6.17, which do not know such parts, still obey ours.
    """

    arguments: tuple[str, ...]
    dropped: tuple[str, ...]
    drops_parts: bool
    keeps_vectors: bool = False


def without_arguments(wanted: Wanted) -> Wanted:
    """Return a copy that removes the same arguments and adds none."""
    return replace(wanted, arguments=())


_WANTED_ENABLED = Wanted((), SWITCHES + LIMITS, True)


def wanted_smt(smt: str | None) -> Wanted:
    """Return the desired boot arguments of an SMT state.

    Args:
        smt: `enabled`, `disabled`, `forced_off` or `mitigations_nosmt`.

    Returns:
        The arguments to set and to remove.

    Raises:
        BootArgsError: The state is not one of these.
    """
    if smt == ENABLED:
        return _WANTED_ENABLED
    if smt == DISABLED:
        return Wanted(("nosmt",), SWITCHES, False)
    if smt == FORCED_OFF:
        return Wanted(("nosmt=force",), SWITCHES, False)
    if smt == MITIGATIONS_NOSMT:
        return Wanted((OURS,), SWITCHES, False, keeps_vectors=True)
    raise BootArgsError(f"smt is {smt!r:.60}: it must be one of {ENABLED}, {DISABLED}, {FORCED_OFF}, {MITIGATIONS_NOSMT}")


def wanted_maxcpus(count: int) -> Wanted:
    """Return the desired boot arguments for ``maxcpus=count``.

    All other arguments that turn SMT off are removed, because the two are never combined (see docs/boot.md).

    Args:
        count: number of CPUs to start.

    Returns:
        The arguments to set and to remove.

    Raises:
        BootArgsError: The number is not from 1 to `MAX_CPUS`.
    """
    argument = f"maxcpus={count}"
    if not 1 <= count <= MAX_CPUS or not _ARGUMENT.fullmatch(argument):
        raise BootArgsError(f"maxcpus is {count}: it must be a whole number from 1 to {MAX_CPUS}")
    return Wanted((argument,), SWITCHES, True)


def maxcpus_value(text: str) -> int | str:
    """Return the option `maxcpus` as a number, or `ONE_PER_CORE`.

    Args:
        text: the value as the user wrote it.

    Returns:
        The number of CPUs, or `ONE_PER_CORE`.

    Raises:
        BootArgsError: The value is neither a number from 1 to `MAX_CPUS` in plain digits nor ``one_per_core``.
    """
    if text == ONE_PER_CORE:
        return text
    if not _COUNT.fullmatch(text) or int(text) > MAX_CPUS:
        raise BootArgsError(f"maxcpus is {text!r:.60}: it must be a whole number from 1 to {MAX_CPUS}, in digits only, or {ONE_PER_CORE}")
    return int(text)


def remainder(argument: str, wanted: Wanted) -> str | None:
    """Return what remains of an existing argument: the same one, a shorter one, or None when it has to be removed.

    Args:
        argument: one boot argument as the kernel sees it, such as ``mds=full,nosmt``.
        wanted: the desired boot arguments.

    Returns:
        The remaining argument, or None.
    """
    name, equals, value = argument.partition("=")
    # The kernel treats dashes and underscores in names as equal (kernel/params.c, parameq).
    if name.replace("-", "_") in wanted.dropped or argument == OURS:
        return None
    if name == "mitigations" and wanted.keeps_vectors:
        vectors = [part for part in re.split("[,;]", value) if part not in (*GLOBAL_PARTS, NO_CROSS_THREAD)]
        return ",".join([OURS, *vectors]) if vectors else None
    if not wanted.drops_parts:
        return argument
    if name == "l1tf" and value.split(",")[0] == "full":
        return None
    return name + equals + _NOSMT_PART.sub("", value)


def smt_arguments(arguments: t.Iterable[str]) -> list[str]:
    """Return the boot arguments that affect SMT, in order.

    These are switches and limits, mitigations with a `nosmt` part (``mds=full,nosmt``), and ``l1tf=full``.

    Args:
        arguments: boot arguments as `split_arguments` returns them.

    Returns:
        The arguments that affect SMT.
    """
    return [argument for argument in arguments if remainder(argument, _WANTED_ENABLED) != argument]


def split_arguments(text: str) -> list[str]:
    """Split a kernel command line as the kernel does (lib/cmdline.c).

    Arguments are separated by whitespace outside double quotes, and ``--`` ends the kernel's part.

    Args:
        text: the command line.

    Returns:
        The arguments without their quotes.
    """
    arguments: list[str] = []
    current: list[str] = []
    quoted = False
    for character in text + " ":
        if character == '"':
            quoted = not quoted
        elif character in " \t\n\0" and not quoted:
            if current:
                arguments.append("".join(current))
            current = []
        else:
            current.append(character)
    if current:
        arguments.append("".join(current))
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def applied(arguments: t.Iterable[str], wanted: Wanted) -> list[str]:
    """Return the arguments as they should be: ours first, so that a later ``--`` does not hide them, then what remains of the others, in order.

    Args:
        arguments: existing boot arguments.
        wanted: the desired boot arguments.

    Returns:
        The new arguments; the existing ones when nothing has to change.
    """
    arguments = list(arguments)
    if not faults(arguments, wanted):
        return arguments
    remainders = (remainder(argument, wanted) for argument in arguments)
    return list(wanted.arguments) + [argument for argument in remainders if argument is not None]


def rewritten_text(text: str, wanted: Wanted) -> str:
    """Return a command line as it should be; unlike with `applied`, quoted arguments keep their quotes.

    Args:
        text: the command line; its arguments are separated by whitespace outside double quotes.
        wanted: the desired boot arguments.

    Returns:
        The new command line.
    """
    arguments = re.findall(r'(?:[^\s"]|"[^"]*(?:"|$))+', text)
    remainders = [argument if '"' in argument else remainder(argument, wanted) for argument in arguments]
    return " ".join(list(wanted.arguments) + [argument for argument in remainders if argument is not None])


def superfluous(arguments: t.Iterable[str], wanted: Wanted) -> list[str]:
    """Return the arguments that have to be removed or shortened."""
    others = list(arguments)
    for argument in wanted.arguments:
        if argument in others:
            others.remove(argument)
    return [argument for argument in others if remainder(argument, wanted) != argument]


def faults(arguments: t.Iterable[str], wanted: Wanted) -> list[str]:
    """Return the deviations from the desired arguments as short sentences without a full stop; empty when there are none."""
    arguments = list(arguments)
    missing = [f"{argument} is missing" for argument in wanted.arguments if argument not in arguments]
    return missing + [f"{argument} is still there" for argument in superfluous(arguments, wanted)]
