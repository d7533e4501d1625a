# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's mitigations of CPU vulnerabilities, by the boot argument ``mitigations``: what they cost here."""

from ansible_collections.threadwise.smt.plugins.module_utils._boot_arms.base import BootArm, Request


class Auto(BootArm):
    """All mitigations that leave SMT on, the kernel's default."""

    pattern = "mitigations_auto"
    _value = "auto"

    @property
    def argument(self) -> str:
        """The boot argument."""
        return f"mitigations={self._value.replace('_', ',')}"

    @property
    def request(self) -> Request:
        """What smt_boot_args is asked for."""
        return Request(mitigations=self._value)


class AutoNoSmt(Auto):
    """The same, and SMT off where the processor's vulnerabilities need it."""

    pattern = "mitigations_auto_nosmt"
    _value = "auto_nosmt"


class Off(Auto):
    """No mitigation that can be left out."""

    pattern = "mitigations_off"
    allowed_by = "smt_eval_allow_mitigations_off"
    leaves_open = "every vulnerability of the processor that the kernel can leave open"
    _value = "off"

    @property
    def title(self) -> str:
        """The boot argument, and what it leaves open."""
        return "mitigations=off (every CPU vulnerability open)"


ARMS = (Auto, AutoNoSmt, Off)
