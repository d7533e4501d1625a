# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT off by the boot arguments ``nosmt`` and ``nosmt=force``."""

from ansible_collections.threadwise.smt.plugins.module_utils._boot_arms.base import BootArm, Request


class NoSmt(BootArm):
    """Siblings are offline, and can be brought back at run time."""

    pattern = "nosmt"

    @property
    def argument(self) -> str:
        """The boot argument."""
        return "nosmt"

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        return Request(smt="disabled")


class NoSmtForce(NoSmt):
    """Siblings are offline until another boot."""

    pattern = "nosmt_force"

    @property
    def argument(self) -> str:
        """The boot argument."""
        return "nosmt=force"

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        return Request(smt="forced_off")


ARMS = (NoSmt, NoSmtForce)
