# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot arguments of a wish about SMT: which are to be there, and which of all others have to go.

Sources: Documentation/admin-guide/kernel-parameters.txt, kernel/cpu.c (`nosmt` with whatever value turns SMT off), arch/x86/kernel/cpu/bugs.c
(the `nosmt` parts, and `l1tf=full`, which includes `nosmt`), Documentation/admin-guide/hw-vuln/attack_vector_controls.rst and kernel/cpu.c
of 6.17 and later (parts of `mitigations=` that take an attack vector out).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

ENABLED, DISABLED, FORCED_OFF, MITIGATIONS_NOSMT = "enabled", "disabled", "forced_off", "mitigations_nosmt"
ONE_PER_CORE = "one_per_core"
MOST_CPUS = 8192
"""The highest number that `maxcpus` takes: CONFIG_NR_CPUS is at most 8192 on every architecture."""

SWITCHES = ("nosmt", "maxcpus", "smt", "smt_enabled")
"""Arguments that say how many threads of a core run, whatever their value (`smt` is s390's, `smt-enabled` is POWER's): one of them at most."""

OURS = "mitigations=auto,nosmt"
"""Goes as a whole when another state is wanted: without it the kernel takes mitigations=auto by itself."""

LIMITS = ("nr_cpus", "possible_cpus", "nosmp")
"""Arguments that keep CPUs from ever starting, siblings among them."""

_ARGUMENT = re.compile(r"[a-z0-9_.-]+(=[a-z0-9_.,-]+)?")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_NOSMT_PART = re.compile(r",nosmt(?=[,;]|\Z)")

GLOBAL_PARTS = ("", "auto", "off", "nosmt")
"""Parts of `mitigations=` that say how all attack vectors are treated; any other one takes one vector out."""

NO_CROSS_THREAD = "no_cross_thread"
"""The part that takes out the vector for which SMT would be turned off."""


class BootArgsError(Exception):
    """A value that cannot be a boot argument; the text says the rule it broke."""


@dataclass(frozen=True)
class Wanted:
    """What the boot arguments should be like.

    Attributes:
        arguments: arguments to be there, each once (tuple of str).
        dropped: names, with underscores, of arguments that go whatever their value (tuple of str).
        without_parts: also the ``nosmt`` parts of other arguments go (``mds=full,nosmt``), and ``l1tf=full``.
        keeps_vectors: of another ``mitigations=`` the attack vectors that it takes out stay out, in a `mitigations=auto,nosmt,...` of its own behind
            ours: the kernel adds them up, and kernels before 6.17, which take no such parts, still heed ours.
    """

    arguments: tuple
    dropped: tuple
    without_parts: bool
    keeps_vectors: bool = False


def without_arguments(wanted):
    """What drops the same and adds nothing."""
    return replace(wanted, arguments=())


_NOTHING = Wanted((), SWITCHES + LIMITS, True)


def wanted_smt(smt):
    """What `enabled`, `disabled`, `forced_off` or `mitigations_nosmt` takes.

    Returns:
        Wanted.

    Raises:
        BootArgsError: for another value.
    """
    if smt == ENABLED:
        return _NOTHING
    if smt == DISABLED:
        return Wanted(("nosmt",), SWITCHES, False)
    if smt == FORCED_OFF:
        return Wanted(("nosmt=force",), SWITCHES, False)
    if smt == MITIGATIONS_NOSMT:
        return Wanted((OURS,), SWITCHES, False, keeps_vectors=True)
    raise BootArgsError(f"smt is {smt!r:.60}: it has to be one of {', '.join((ENABLED, DISABLED, FORCED_OFF, MITIGATIONS_NOSMT))}")


def wanted_maxcpus(count):
    """What ``maxcpus=count`` takes: also every other way that turns SMT off has to go, for the two are never combined (see docs/boot.md)."""
    argument = f"maxcpus={count}"
    if not 1 <= count <= MOST_CPUS or not _ARGUMENT.fullmatch(argument):
        raise BootArgsError(f"maxcpus is {count}: it has to be a whole number from 1 to {MOST_CPUS}")
    return Wanted((argument,), SWITCHES, True)


def maxcpus_value(text):
    """A value of an inventory as a number, or `ONE_PER_CORE`.

    Args:
        text: str.

    Raises:
        BootArgsError: for anything but digits alone from 1 to `MOST_CPUS`, and ``one_per_core``.
    """
    if text == ONE_PER_CORE:
        return text
    if not _COUNT.fullmatch(text) or int(text) > MOST_CPUS:
        raise BootArgsError(f"maxcpus is {text!r:.60}: it has to be a whole number from 1 to {MOST_CPUS}, in digits alone, or {ONE_PER_CORE}")
    return int(text)


def remainder(argument, wanted):
    """What is left of an argument that is there: itself, a shorter one, or None.

    Args:
        argument: one boot argument as the kernel sees it, such as ``mds=full,nosmt``.
    """
    name, equals, value = argument.partition("=")
    # The kernel takes dashes and underscores in names as the same (kernel/params.c, parameq).
    if name.replace("-", "_") in wanted.dropped or argument == OURS:
        return None
    if name == "mitigations" and wanted.keeps_vectors:
        vectors = [part for part in re.split("[,;]", value) if part not in (*GLOBAL_PARTS, NO_CROSS_THREAD)]
        return ",".join([OURS, *vectors]) if vectors else None
    if not wanted.without_parts:
        return argument
    if name == "l1tf" and value.split(",")[0] == "full":
        return None
    return name + equals + _NOSMT_PART.sub("", value)


def smt_arguments(arguments):
    """Those of the boot arguments that bear on SMT, in order: switches and limits, mitigations with a `nosmt` part (``mds=full,nosmt``), ``l1tf=full``.

    Args:
        arguments: iterable of str, such as `split_arguments` gives.

    Returns:
        list of str.
    """
    return [argument for argument in arguments if remainder(argument, _NOTHING) != argument]


def split_arguments(text):
    """Split a kernel command line as the kernel does (lib/cmdline.c): at blanks, double quotes keep blanks together, ``--`` ends the kernel's part.

    Returns:
        list of str with the quotes taken off.
    """
    arguments = []
    current = []
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


def applied(arguments, wanted):
    """The arguments as they should be: ours first, so that a ``--`` further on does not hide them, then what remains of the others, in order.

    Args:
        arguments: iterable of str.

    Returns:
        list of str; the arguments as they are when nothing has to change.
    """
    arguments = list(arguments)
    if not faults(arguments, wanted):
        return arguments
    remainders = (remainder(argument, wanted) for argument in arguments)
    return list(wanted.arguments) + [argument for argument in remainders if argument is not None]


def rewritten_text(text, wanted):
    """The same for a whole command line as text, in which quoted arguments keep their quotes.

    Args:
        text: str; its words are parted by blanks outside double quotes.
    """
    words = re.findall(r'(?:[^\s"]|"[^"]*(?:"|$))+', text)
    rests = [word if '"' in word else remainder(word, wanted) for word in words]
    return " ".join(list(wanted.arguments) + [rest for rest in rests if rest is not None])


def superfluous(arguments, wanted):
    """Arguments (list of str) that have to go or to be shortened."""
    others = list(arguments)
    for argument in wanted.arguments:
        if argument in others:
            others.remove(argument)
    return [argument for argument in others if remainder(argument, wanted) != argument]


def faults(arguments, wanted):
    """What is not as wanted (list of short sentences without a full stop; empty when all is right)."""
    arguments = list(arguments)
    missing = [f"{argument} is missing" for argument in wanted.arguments if argument not in arguments]
    return missing + [f"{argument} is still there" for argument in superfluous(arguments, wanted)]
