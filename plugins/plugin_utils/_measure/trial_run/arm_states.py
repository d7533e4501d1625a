# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of a trial: those of an evaluation that smt_state can hold on a live host,
and those that a host boots into, as options of the modules.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue


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
        arm_names = catalogue.check(given, with_boots=True)
    except base.ArmError as error:
        raise ArmStateError(str(error)) from error
    if len(arm_names) < 2:
        raise ArmStateError("a trial compares at least two arms: give for example smt_on, smt_off")
    for place, name in enumerate(arm_names):
        options(name)
        if catalogue.takes_reboot(name) and not with_boots:
            raise ArmStateError(
                f"{name} takes a reboot, and a host that changes its arm from period to period cannot: set"
                " smt_trial_design to parallel"
            )
        if catalogue.takes_reboot(name) and place == 0:
            raise ArmStateError(
                f"{name} takes a reboot, and the baseline is what all hosts run first: name an arm such as smt_on"
                " before it"
            )
    return arm_names


def options(name: str) -> dict[str, t.Any]:
    """Return the options by which a live host is held in an arm: of smt_boot_args where it takes a reboot,
    otherwise of smt_state.

    Raises:
        ArmStateError: a live host cannot be held in this arm, or is not to be.
    """
    arm = catalogue.get(name)
    if arm.allowed_by:
        raise ArmStateError(f"{name} is not an arm of a trial: live hosts would leave open {arm.leaves_open}")
    arm_options = arm.boot.options if arm.takes_reboot else arm.trial
    if arm_options is None:
        held = [
            choice for kind in catalogue.kinds() if catalogue.asked_by_trials(kind) for choice in catalogue.shown(kind)
        ]
        raise ArmStateError(f"{name} is not an arm of a trial: choose from {', '.join(held)}")
    return dict(arm_options)
