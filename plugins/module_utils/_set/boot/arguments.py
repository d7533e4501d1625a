# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments of a desired SMT state: which ones it needs, and which of the others have to be removed.

Sources: Documentation/admin-guide/kernel-parameters.txt, kernel/cpu.c (`nosmt` turns SMT off with any value),
arch/x86/kernel/cpu/bugs.c (the `nosmt` parts, and `l1tf=full`, which includes `nosmt`),
Documentation/admin-guide/hw-vuln/attack_vector_controls.rst and kernel/cpu.c of 6.17 and later (parts of `mitigations=`
that exclude an attack vector).
"""

import re
import typing as t

ENABLED, DISABLED, FORCED_OFF, MITIGATIONS_NOSMT = "enabled", "disabled", "forced_off", "mitigations_nosmt"
ONE_PER_CORE = "one_per_core"
MAX_CPUS = 8192
"""The highest number that `maxcpus` accepts: CONFIG_NR_CPUS is at most 8192 on every architecture."""

SWITCHES = ("nosmt", "maxcpus", "smt", "smt_enabled")
"""Arguments that set how many threads of a core run, with any value (`smt` on s390, `smt-enabled` on POWER).

At most one of them may be set."""

MITIGATIONS_NOSMT_ARGUMENT = "mitigations=auto,nosmt"
"""The argument of the state `mitigations_nosmt`.

Another state removes it as a whole, because mitigations=auto is the kernel's default.
"""

MITIGATIONS = "mitigations"
"""The argument that chooses the mitigations of all CPU vulnerabilities."""

LIMITS = ("nr_cpus", "possible_cpus", "nosmp")
"""Arguments that prevent CPUs, including siblings, from ever starting."""

_ARGUMENT = re.compile(r"[a-z0-9_.-]+(=[a-z0-9_.,-]+)?")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
# What separates arguments: the kernel's isspace(), of ASCII; and the end of a file of procfs.
_BLANKS = " \t\n\v\f\r\0"
# An argument or the blanks between two arguments, as `split_arguments` separates them.
_TOKEN = re.compile(rf'((?:[^{_BLANKS}"]|"[^"]*(?:"|\Z))+)|([{_BLANKS}]+)')
_BLANK = re.compile(f"[{_BLANKS}]")
# The variable that a line of a boot loader's settings sets to arguments.
_SETTING = re.compile(r"\A(kernelopts|GRUB_CMDLINE_LINUX\w*)=")
# What may be an argument in a line of a file, whatever quotes it.
_WORD = re.compile(rf"[^{_BLANKS}\"']+")
_NOSMT_PART = re.compile(r",nosmt(?=[,;]|\Z)")

GLOBAL_PARTS = ("", "auto", "off", "nosmt")
"""Parts of `mitigations=` that apply to all attack vectors; any other part excludes one vector."""

NO_CROSS_THREAD = "no_cross_thread"
"""The part that excludes the attack vector for which the kernel would turn SMT off."""


class BootError(Exception):
    """The base class of this package's errors."""


class BootArgsError(BootError):
    """An invalid value for a boot argument; the text states the rule that it violates."""


class DesiredArguments(t.NamedTuple):
    """The desired boot arguments.

    Attributes:
        arguments: arguments that have to be set, each exactly once.
        removed_names: names, with underscores, of arguments that are removed, with any value.
        removes_parts: whether the ``nosmt`` parts of other arguments are removed too (``mds=full,nosmt``), and
            ``l1tf=full``.
        keeps_vectors: whether attack vectors that another ``mitigations=`` excludes stay excluded, in a separate
            `mitigations=auto,nosmt,...` after ours, or `mitigations=auto,...`. The kernel combines the two, and kernels
            before 6.17, which do not know such parts, still obey ours.
        removed_arguments: whole arguments that are removed.
    """

    arguments: "tuple[str, ...]"
    removed_names: "tuple[str, ...]"
    removes_parts: bool
    keeps_vectors: bool = False
    removed_arguments: "tuple[str, ...]" = ()

    @property
    def mitigations(self) -> str:
        """The ``mitigations=`` argument among those to set; empty where there is none."""
        return next((argument for argument in self.arguments if argument.startswith(MITIGATIONS + "=")), "")

    @property
    def dropped_parts(self) -> "tuple[str, ...]":
        """Parts of another ``mitigations=`` that are not kept: the global ones, and the one that contradicts ours."""
        return (*GLOBAL_PARTS, NO_CROSS_THREAD) if self.mitigations == MITIGATIONS_NOSMT_ARGUMENT else GLOBAL_PARTS


def without_arguments(desired: DesiredArguments) -> DesiredArguments:
    """Return a copy that removes the same arguments and adds none."""
    return desired._replace(arguments=())


_DESIRED_ENABLED = DesiredArguments((), SWITCHES + LIMITS, True)


def desired_smt(smt: "str | None") -> DesiredArguments:
    """Return the desired boot arguments of an SMT state.

    Args:
        smt: `enabled`, `disabled`, `forced_off` or `mitigations_nosmt`.

    Returns:
        The arguments to set and to remove.

    Raises:
        BootArgsError: The state is not one of these.
    """
    if smt == ENABLED:
        return _DESIRED_ENABLED
    if smt == DISABLED:
        return DesiredArguments(("nosmt",), SWITCHES, False)
    if smt == FORCED_OFF:
        return DesiredArguments(("nosmt=force",), SWITCHES, False)
    if smt == MITIGATIONS_NOSMT:
        return DesiredArguments((MITIGATIONS_NOSMT_ARGUMENT,), SWITCHES, False, keeps_vectors=True)
    raise BootArgsError(
        f"smt is {smt!r:.60}: it must be one of {ENABLED}, {DISABLED}, {FORCED_OFF}, {MITIGATIONS_NOSMT}"
    )


def desired_maxcpus(count: int) -> DesiredArguments:
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
    return DesiredArguments((argument,), SWITCHES, True)


def maxcpus_value(text: str) -> "int | str":
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
        raise BootArgsError(
            f"maxcpus is {text!r:.60}: it must be a whole number from 1 to {MAX_CPUS}, in digits only, or"
            f" {ONE_PER_CORE}"
        )
    return int(text)


def remainder(argument: str, desired: DesiredArguments) -> "str | None":
    """Return what remains of an existing argument: the same one, a shorter one, or None when it has to be removed.

    Args:
        argument: one boot argument as the kernel sees it, such as ``mds=full,nosmt``.
        desired: the desired boot arguments.

    Returns:
        The remaining argument, or None.
    """
    name, equals, value = argument.partition("=")
    # The kernel treats dashes and underscores in names as equal (kernel/params.c, parameq).
    if name.replace("-", "_") in desired.removed_names or argument in (
        MITIGATIONS_NOSMT_ARGUMENT,
        *desired.removed_arguments,
    ):
        return None
    if name == MITIGATIONS and desired.keeps_vectors:
        vectors = [part for part in re.split("[,;]", value) if part not in desired.dropped_parts]
        return ",".join([desired.mitigations, *vectors]) if vectors else None
    if not desired.removes_parts:
        return argument
    if name == "l1tf" and value.split(",")[0] == "full":
        return None
    return name + equals + _NOSMT_PART.sub("", value)


def smt_arguments(arguments: "t.Iterable[str]") -> "list[str]":
    """Return the boot arguments that affect SMT, in order.

    These are switches and limits, mitigations with a `nosmt` part (``mds=full,nosmt``), and ``l1tf=full``.

    Args:
        arguments: boot arguments as `split_arguments` returns them.

    Returns:
        The arguments that affect SMT.
    """
    return [argument for argument in arguments if remainder(argument, _DESIRED_ENABLED) != argument]


_NONE_RELATED = _DESIRED_ENABLED._replace(removed_names=(*SWITCHES, *LIMITS, MITIGATIONS))


def related_arguments(arguments: "t.Iterable[str]") -> "list[str]":
    """Return the arguments that affect SMT, and every ``mitigations=``, in order."""
    return [argument for argument in arguments if remainder(argument, _NONE_RELATED) != argument]


def are_same(arguments: "t.Iterable[str]", others: "t.Iterable[str]") -> bool:
    """Return whether two lists have the same effect: the same arguments, however often, in whatever order."""
    return set(arguments) == set(others)


def with_related_of(text: str, earlier: str) -> str:
    """Return a file's text with the related arguments of an earlier one, and all else that was changed since.

    Args:
        text: the text of a configuration file or of boot entries.
        earlier: its text at an earlier time.

    Returns:
        The earlier text where the two differ in related arguments alone, else the text, each line of which that so
        differs from an earlier one is that line.
    """
    lines, earlier_lines = text.split("\n"), earlier.split("\n")
    if _unrelated(lines) == _unrelated(earlier_lines):
        return earlier
    known: dict[tuple[str, ...], list[str]] = {}
    for line in earlier_lines:
        known.setdefault(_unrelated_words(line), []).append(line)
    related = (known.get(_unrelated_words(line)) for line in lines)
    return "\n".join(same.pop(0) if same else line for line, same in zip(lines, related))


def _unrelated(lines: "t.Iterable[str]") -> "list[tuple[str, ...]]":
    # A line of options that has no others does not count: a boot loader's entry may lose it, or get one, with our
    # argument.
    return [words for words in map(_unrelated_words, lines) if words not in ((), ("options",))]


def _unrelated_words(line: str) -> "tuple[str, ...]":
    remainders = (remainder(word, _NONE_RELATED) for word in _WORD.findall(_SETTING.sub(r"\1 ", line)))
    return tuple(rest for rest in remainders if rest is not None)


def split_arguments(text: str) -> "list[str]":
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
        elif character in _BLANKS and not quoted:
            if current:
                arguments.append("".join(current))
            current = []
        else:
            current.append(character)
    if current:
        arguments.append("".join(current))
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def applied(arguments: "t.Iterable[str]", desired: DesiredArguments) -> "list[str]":
    """Return the arguments as they should be: ours first, so that a later ``--`` does not hide them,
    then what remains of the others, in order.

    Args:
        arguments: existing boot arguments.
        desired: the desired boot arguments.

    Returns:
        The new arguments; the existing ones when nothing has to change.
    """
    arguments = list(arguments)
    if not differences(arguments, desired):
        return arguments
    remainders = (remainder(argument, desired) for argument in arguments)
    return list(desired.arguments) + [argument for argument in remainders if argument is not None]


def rewritten_text(text: str, desired: DesiredArguments) -> str:
    """Return a command line as it should be.

    Unlike with `applied`, arguments that stay, and what separates them, keep their bytes.

    Args:
        text: the command line.
        desired: the desired boot arguments.

    Returns:
        The new command line.
    """
    tokens = _TOKEN.findall(text)
    end = tokens.pop()[1] if tokens and tokens[-1][1] else ""
    kept: list[str] = []
    is_kernels, was_removed = True, False
    for written, blanks in tokens:
        if blanks:
            # The blanks after a removed argument go with it.
            kept += [] if was_removed else [blanks]
            continue
        argument = written.replace('"', "")
        is_kernels = is_kernels and argument != "--"
        rest = remainder(argument, desired) if is_kernels else argument
        was_removed = rest is None
        if rest is not None:
            kept.append(written if rest == argument else f'"{rest}"' if _BLANK.search(rest) else rest)
    if was_removed:
        kept = kept[:-1]
    return " ".join([*desired.arguments, *(["".join(kept)] if kept else [])]) + end


def superfluous(arguments: "t.Iterable[str]", desired: DesiredArguments) -> "list[str]":
    """Return the arguments that have to be removed or shortened."""
    others = list(arguments)
    for argument in desired.arguments:
        if argument in others:
            others.remove(argument)
    return [argument for argument in others if remainder(argument, desired) != argument]


def differences(arguments: "t.Iterable[str]", desired: DesiredArguments) -> "list[str]":
    """Return the deviations from the desired arguments as short sentences without a full stop;
    empty when there are none.
    """
    arguments = list(arguments)
    missing = [f"{argument} is missing" for argument in desired.arguments if argument not in arguments]
    return missing + [f"{argument} is still there" for argument in superfluous(arguments, desired)]
