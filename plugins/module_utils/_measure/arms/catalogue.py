# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All arms by their names: what both the host and the controller, the documentation and trials ask about an arm."""

import functools
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as vocabulary
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import combined, registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import Arm, ArmError
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.booted import registry as booted_registry

# Each arm multiplies the time of a block.
MAX_ARMS = 8


def kinds() -> "list[type[Arm]]":
    """Return all arms, those that take a reboot last."""
    return [kind for kinds in (*registry.ARMS, *booted_registry.ARMS) for kind in kinds]


def shown(kind: "type[Arm]") -> "tuple[str, ...]":
    """Return the names of an arm as people read them: ``hugepages_N``."""
    return kind.written or (kind.pattern,)


def asked_by_trials(kind: "type[Arm]") -> "str | None":
    """Return what holds the live hosts of a trial in an arm, for people; None where nothing does."""
    if kind.allowed_by:
        return None
    return "by a reboot" if kind.takes_reboot else "by smt_state" if kind.trial is not Arm.trial else None


def find(name: str) -> "Arm | None":
    """Return the arm with a name, or None where this collection has none."""
    arm = _alone(name)
    if arm is not None or not re.match(vocabulary.NAME, name):
        return arm
    # The name of a unit can have what separates two arms.
    for separator in re.finditer(f"(?={vocabulary.SEPARATOR})", name):
        parts = name[: separator.start()], name[separator.start() + len(vocabulary.SEPARATOR) :]
        both = combined.combined(name, *map(_alone, parts))
        if both is not None:
            return both
    return None


def _alone(name: str) -> "Arm | None":
    kind = _kind(name, (*registry.ARMS, *booted_registry.ARMS))
    return kind(name) if kind else None


@functools.lru_cache(maxsize=256)
def _kind(name: str, files: "tuple[tuple[type[Arm], ...], ...]") -> "type[Arm] | None":
    """Return the arm with a name; a report asks for the same few again and again."""
    return next((kind for kinds_of_file in files for kind in kinds_of_file if kind.matches(name)), None)


def get(name: str) -> Arm:
    """Return the arm with a name.

    Raises:
        ArmError: this collection has none; the message gives those that there are.
    """
    arm = find(name)
    if arm is None:
        known = ", ".join(choice for kind in kinds() for choice in shown(kind))
        raise ArmError(f"there is no arm {name[:80]!r}: choose from {known}")
    return arm


def title(name: str) -> "str | None":
    """Return the title of the arm with a name, or None where this collection has none."""
    arm = find(name)
    return arm.title if arm else None


def of_factors(given: t.Any) -> "list[str]":
    """Return the names of the arms of two factors: each level of the first with each of the second, the baseline of
    both first.

    Args:
        given: two lists of two arms each, as users write it: ``[[smt_on, smt_off], [thp_always, thp_never]]``.

    Raises:
        ArmError: it is something else, or two of them cannot be combined.
    """
    lists = isinstance(given, (list, tuple)) and all(isinstance(pair, (list, tuple)) for pair in given)
    if not lists or [len(pair) for pair in given] != [2, 2]:
        raise ArmError(
            f"{given!r:.120} are not two factors of two arms each: give for example [[smt_on, smt_off], [thp_always,"
            " thp_never]]"
        )
    names = []
    for first in map(name_of, given[0]):
        for second in map(name_of, given[1]):
            reason = combined.why_not(get(first), get(second))
            if reason is not None:
                raise ArmError(f"{first} and {second} cannot be combined: {reason}")
            names.append(first + vocabulary.SEPARATOR + second)
    return check(names)


def takes_reboot(name: str) -> bool:
    """Return whether a host can only be booted into the arm with a name."""
    arm = find(name)
    return arm is not None and arm.takes_reboot


def name_of(given: t.Any) -> str:
    """Return the name of an arm as results have it.

    Args:
        given: a name, or a mapping such as ``{"smt_off_on": {"node": 0}}``.

    Raises:
        ArmError: it is neither; the message says what is wrong with it, and what is right.
    """
    if isinstance(given, str):
        return given
    parts = {kind.key: kind.parts for kind in kinds() if kind.key}
    forms = {key: [_form(key, part) for part in of_key] for key, of_key in parts.items()}
    every = ", ".join(form for of_key in forms.values() for form in of_key)
    if not isinstance(given, dict) or len(given) != 1:
        raise ArmError(f"{given!r:.80} is not an arm: give a name, or one of {every}")
    ((key, where),) = given.items()
    if key not in parts:
        raise ArmError(
            f"{given!r:.80} is not an arm: only {' and '.join(parts)} are of a part of the host; give one of {every}"
        )
    if not isinstance(where, dict) or len(where) != 1 or next(iter(where)) not in parts[key]:
        raise ArmError(f"{given!r:.120} does not say which part of the host: give one of {', '.join(forms[key])}")
    ((part, value),) = where.items()
    name = vocabulary.name_of_part(key, part, value)
    if name is None:
        raise ArmError(f"{value!r:.120} is no {part} that an arm can have: give for example {_form(key, part)}")
    return name


def _form(key: str, part: str) -> str:
    return f"{{{key}: {{{part}: {vocabulary.EXAMPLES[part]}}}}}"


def check(given: "t.Sequence[t.Any]", with_boots: bool = False) -> "list[str]":
    """Check the arms of an evaluation, and return their names.

    Args:
        given: the arms, the baseline first, as ``name_of`` takes them.
        with_boots: whether arms that take a reboot are among the possible ones.

    Raises:
        ArmError: there is none, there are too many, one is named twice, or there is no such arm.
    """
    if not 1 <= len(given) <= MAX_ARMS:
        raise ArmError(
            f"arms has {len(given)} names: give 1 to {MAX_ARMS}, the baseline first, for example smt_on, smt_off"
        )
    names = [name_of(entry) for entry in given]
    for name in names:
        if get(name).takes_reboot and not with_boots:
            raise ArmError(
                f"{name} takes a reboot: it is measured by the role smt_eval with smt_eval_boots, not at run time"
            )
    if len(set(names)) < len(names):
        raise ArmError(f"arms has a name twice: {', '.join(names)}")
    return names
