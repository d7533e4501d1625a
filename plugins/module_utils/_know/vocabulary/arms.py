# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of arms, which both the host and the controller know: those with a meaning of their own in an analysis,
and the form of all. What an arm is, and its title, is in ``_arms``.
"""

import re
import typing as t

SMT_ON, SMT_OFF, AS_FOUND = "smt_on", "smt_off", "as_found"

# Names of units without the characters that systemd escapes: the name of an arm is read by people, and is part of paths
# and pages.
_UNIT = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:@[A-Za-z0-9_.-]{1,99})?[.](?:service|slice|scope)"
_VALUES = {"node": "[0-9]{1,5}", "package": "[0-9]{1,5}", "cpus": "[0-9]{1,5}(?:[,-][0-9]{1,5}){0,31}", "unit": _UNIT}
EXAMPLES = {"node": "0", "package": "1", "cpus": "0-7", "unit": "postgresql.service"}
LONGEST_NAME = 240
# What is written in a name between the parts of a CPU list instead of a comma, which separates arms on a command line.
_COMMA = "_"
# Between the names of two arms at once.
SEPARATOR = "__"
_ONE = r"[a-z][a-z0-9_]{0,59}(_cpus_[0-9][0-9_-]{0,199}|_unit_[A-Za-z0-9_][A-Za-z0-9_.@-]{0,219})?"
NAME = rf"^{_ONE}({SEPARATOR}{_ONE})?$"


def levels(names: "t.Sequence[str]") -> "tuple[tuple[str, str], tuple[str, str]] | None":
    """Return the levels of two factors, the baselines first, where arms are each level of one with each of the other,
    in this order; None where they are others.
    """
    parts = [name.split(SEPARATOR) for name in names]
    if [len(part) for part in parts] != [2] * 4:
        return None
    (first, second), (_first, other), (changed, _second), _both = parts
    wanted = [[level_of_first, level] for level_of_first in (first, changed) for level in (second, other)]
    return ((first, changed), (second, other)) if parts == wanted and first != changed and second != other else None


def name_of_part(key: str, kind: str, value: t.Any) -> "str | None":
    """Return the name of an arm of a part of the host, None where the value is none of its kind.

    Args:
        key: what the arm does, such as ``smt_off_on``.
        kind: of the part, one of ``EXAMPLES``.
        value: which one, as a user writes it.
    """
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return f"{key}_{kind}_{text.replace(',', _COMMA)}" if re.fullmatch(_VALUES[kind], text) else None


def pattern_of(key: str, kinds: "t.Sequence[str]") -> str:
    """Return a regular expression of the names that ``name_of_part`` gives for kinds of parts."""
    values = dict(_VALUES, cpus=_VALUES["cpus"].replace("[,-]", f"[{_COMMA}-]"))
    return f"{key}_(?:{'|'.join(f'{kind}_{values[kind]}' for kind in kinds)})"


def part_of(key: str, name: str) -> "tuple[str, str]":
    """Return the kind and the value of the part of the host in a name that ``pattern_of`` matches:
    ``node`` and ``0``.
    """
    kind, _separator, value = name[len(key) + 1 :].partition("_")
    return kind, value.replace(_COMMA, ",") if kind == "cpus" else value
