# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of a trial: those of an evaluation that smt_state can hold on a live host, as options of that module."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms import base
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import selection
from ansible_collections.threadwise.smt.plugins.module_utils._smt import scope
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms

_LEVEL = re.compile(r"threads_per_core_([1-9][0-9]?)")


class ArmStateError(Exception):
    """An arm that a trial cannot have; the message names it and those that it can."""


def names(given: t.Sequence[t.Any]) -> list[str]:
    """Return the names of a trial's arms, the baseline first.

    Args:
        given: names, or mappings of arms of a part of a host, as users write them.

    Raises:
        ArmStateError: an arm is not valid, or a live host cannot be held in it.
    """
    try:
        found = selection.check(given)
    except base.ArmError as error:
        raise ArmStateError(str(error)) from error
    if len(found) < 2:
        raise ArmStateError("a trial compares at least two arms: give for example smt_on, smt_off")
    for name in found:
        options(name)
    return found


def options(name: str) -> dict[str, t.Any]:
    """Return the options of smt_state that put a host into an arm.

    Raises:
        ArmStateError: a live host cannot be held in this arm.
    """
    level = _LEVEL.fullmatch(name)
    if name == arms.SMT_ON:
        return {"state": "enabled"}
    if name == arms.SMT_OFF:
        return {"state": "disabled"}
    if level:
        return {"threads_per_core": int(level[1])}
    if name.startswith(f"{arms.SMT_OFF_ON}_"):
        return {"state": "disabled", "cores": scope.parse(dict([arms.part_of(name)])).given}
    raise ArmStateError(f"{name} is not an arm of a trial: it holds hosts in smt_on, smt_off, threads_per_core_N and smt_off_on by smt_state")
