# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT off by the boot arguments ``nosmt`` and ``nosmt=force``."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import OFFLINE, Boot, BootedArm


class NoSmt(BootedArm):
    """Siblings are offline, and can be brought back at run time."""

    pattern = "nosmt"
    summary = "`nosmt`: siblings are offline, and can be brought back at run time"
    boot = Boot("nosmt", smt="disabled")
    siblings = OFFLINE


class NoSmtForce(BootedArm):
    """Siblings are offline until another boot."""

    pattern = "nosmt_force"
    summary = "`nosmt=force`: siblings are offline until another boot"
    boot = Boot("nosmt=force", smt="forced_off")
    siblings = OFFLINE


ARMS = (NoSmt, NoSmtForce)
