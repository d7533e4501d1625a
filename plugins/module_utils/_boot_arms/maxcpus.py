# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number of CPUs that are started at boot, by the boot argument ``maxcpus``."""

from ansible_collections.threadwise.smt.plugins.module_utils._boot_arms.base import BootArm, Request


class MaxCpus(BootArm):
    """One thread of each core; smt_boot_args refuses a number that would leave others."""

    pattern = "maxcpus_[1-9][0-9]{0,3}"

    @classmethod
    def shown_pattern(cls) -> str:
        """Return the pattern as people read it."""
        return "maxcpus_N"

    @property
    def argument(self) -> str:
        """The boot argument."""
        return self.name.replace("_", "=")

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        return Request(maxcpus=self.name.partition("_")[2])


ARMS = (MaxCpus,)
