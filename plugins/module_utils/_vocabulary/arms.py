# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of arms, which both the host and the controller know;
every arm but those of SMT brings its title along in the result.
"""

import re
import typing as t

SMT_ON, SMT_OFF, AS_FOUND = "smt_on", "smt_off", "as_found"
TITLES = {SMT_ON: "SMT on", SMT_OFF: "SMT off", AS_FOUND: "as found"}

# Arms of a part of the host, which users also write as mappings: {smt_off_on: {node: 0}} is smt_off_on_node_0.
SMT_OFF_ON, ONE_THREAD = "smt_off_on", "one_thread_per_core"
PARTS = {SMT_OFF_ON: ("node", "package", "cpus", "unit"), ONE_THREAD: ("unit",)}

# Names of units without the characters that systemd escapes: the name of an arm is read by people, and is part of paths
# and pages.
_UNIT = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:@[A-Za-z0-9_.-]{1,99})?[.](?:service|slice|scope)"
_VALUES = {"node": "[0-9]{1,5}", "package": "[0-9]{1,5}", "cpus": "[0-9]{1,5}(?:[,-][0-9]{1,5}){0,31}", "unit": _UNIT}
_EXAMPLES = {"node": "0", "package": "1", "cpus": "0-7", "unit": "postgresql.service"}
LONGEST_NAME = 240
# What is written in a name between the parts of a CPU list instead of a comma, which separates arms on a command line.
_COMMA = "_"
NAME = r"^[a-z][a-z0-9_]{0,59}(_cpus_[0-9][0-9_-]{0,199}|_unit_[A-Za-z0-9_][A-Za-z0-9_.@-]{0,219})?$"


def name_of(given: t.Any) -> str:
    """Return the name of an arm as results have it.

    Args:
        given: a name, or a mapping such as ``{"smt_off_on": {"node": 0}}``.

    Raises:
        ValueError: it is neither; the message says what is wrong with it, and what is right.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(f"{given!r:.80} is not an arm: give a name, or one of {_forms()}")
    ((arm, where),) = given.items()
    if arm not in PARTS:
        raise ValueError(
            f"{given!r:.80} is not an arm: only {' and '.join(PARTS)} are of a part of the host; give one of {_forms()}"
        )
    if not isinstance(where, dict) or len(where) != 1 or next(iter(where)) not in PARTS[arm]:
        raise ValueError(f"{given!r:.120} does not say which part of the host: give one of {_forms(arm)}")
    ((kind, value),) = where.items()
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if re.fullmatch(_VALUES[kind], text) is None:
        raise ValueError(f"{value!r:.120} is no {kind} that an arm can have: give for example {_form(arm, kind)}")
    return f"{arm}_{kind}_{text.replace(',', _COMMA)}"


def pattern_of(arm: str) -> str:
    """Return a regular expression of the names of an arm of a part of the host."""
    values = dict(_VALUES, cpus=_VALUES["cpus"].replace("[,-]", f"[{_COMMA}-]"))
    return f"{arm}_(?:{'|'.join(f'{kind}_{values[kind]}' for kind in PARTS[arm])})"


def part_of(name: str) -> "tuple[str, str]":
    """Return the kind and the value of the part of the host in the name of an arm that ``pattern_of`` matches:
    ``node`` and ``0``.
    """
    arm = next(arm for arm in PARTS if name.startswith(arm + "_"))
    kind, _separator, value = name[len(arm) + 1 :].partition("_")
    return kind, value.replace(_COMMA, ",") if kind == "cpus" else value


def _form(arm: str, kind: str) -> str:
    return f"{{{arm}: {{{kind}: {_EXAMPLES[kind]}}}}}"


def _forms(*named: str) -> str:
    return ", ".join(_form(arm, kind) for arm in named or PARTS for kind in PARTS[arm])
