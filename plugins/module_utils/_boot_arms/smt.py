# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT on and off by reboots, where nothing else is compared: a boot without arguments and one with ``nosmt``."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._boot_arms.base import BootArm, Request
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms


class SmtOn(BootArm):
    """A boot without arguments."""

    pattern = arms.SMT_ON
    runs_too = True
    _smt, _argument = "enabled", ""

    @property
    def argument(self) -> str:
        """The boot argument that it sets."""
        return self._argument

    @property
    def title(self) -> str:
        """The name for people."""
        return arms.TITLES[self.name]

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        return Request(smt=self._smt)

    @property
    def settings(self) -> "dict[str, t.Any]":
        """The state of SMT."""
        return {"smt": self.name.partition("_")[2]}


class SmtOff(SmtOn):
    """A boot with ``nosmt``."""

    pattern = arms.SMT_OFF
    _smt, _argument = "disabled", "nosmt"


class AsFound(SmtOn):
    """A boot without arguments, as the baseline of arms that are not about SMT."""

    pattern = arms.AS_FOUND

    @property
    def settings(self) -> "dict[str, t.Any]":
        """Nothing is set."""
        return {}


ARMS = (SmtOn, SmtOff, AsFound)
