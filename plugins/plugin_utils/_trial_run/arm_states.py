# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of a trial: those of an evaluation that smt_state can hold on a live host,
and those that a host boots into, as options of the modules.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms import base
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import selection
from ansible_collections.threadwise.smt.plugins.module_utils._smt import scope
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import boot_plan

_LEVEL = re.compile(r"threads_per_core_([1-9][0-9]?)")


class ArmStateError(Exception):
    """An arm that a trial cannot have; the message names it and those that it can."""


def names(given: t.Sequence[t.Any], with_boots: bool) -> list[str]:
    """Return the names of a trial's arms, the baseline first.

    Args:
        given: names, or mappings of arms of a part of a host, as users write them.
        with_boots: whether hosts may be rebooted into an arm, as in a parallel design.

    Raises:
        ArmStateError: an arm is not valid, or a live host cannot be held in it.
    """
    try:
        found = selection.check(given, with_boots=True)
    except base.ArmError as error:
        raise ArmStateError(str(error)) from error
    if len(found) < 2:
        raise ArmStateError("a trial compares at least two arms: give for example smt_on, smt_off")
    for place, name in enumerate(found):
        if not takes_reboot(name):
            options(name)
        elif not with_boots:
            raise ArmStateError(
                f"{name} takes a reboot, and a host that changes its arm from period to period cannot: set"
                " smt_trial_design to parallel"
            )
        elif place == 0:
            raise ArmStateError(
                f"{name} takes a reboot, and the baseline is what all hosts run first: name an arm such as smt_on"
                " before it"
            )
        else:
            boot_request(name)
    return found


def takes_reboot(name: str) -> bool:
    """Return whether a host can only be put into an arm by a reboot."""
    return boot_plan.takes_reboot(name)


def boot_request(name: str) -> dict[str, t.Any]:
    """Return the options of smt_boot_args that put a host into an arm.

    Raises:
        ArmStateError: a live host is not to be in this arm.
    """
    arm = boot_plan.find(name)
    if arm is None:
        raise ArmStateError(f"{name} takes no reboot")
    if arm.allowed_by:
        raise ArmStateError(f"{name} is not an arm of a trial: live hosts would leave open {arm.leaves_open}")
    return {option: value for option, value in arm.request._asdict().items() if value is not None}


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
    raise ArmStateError(
        f"{name} is not an arm of a trial: it holds hosts in smt_on, smt_off, threads_per_core_N and smt_off_on by"
        " smt_state, and in arms that take a reboot"
    )
