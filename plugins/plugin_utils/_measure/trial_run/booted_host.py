# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live host of a trial with arms that take a reboot."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import Calls, HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import arm_states, host_check, live_host


class BootedHost(live_host.AnsibleHost):
    """The host of a task, as :class:`live_host.AnsibleHost`.

    Args:
        calls, more: as there.
        run: the trial's name.
        reboot_seconds: the time limit of a reboot.
        wanted: what the user wants of reboots.
    """

    def __init__(self, calls: Calls, *more: t.Any, run: str, reboot_seconds: int, wanted: reboot.Wanted) -> None:
        super().__init__(calls, *more)
        self._visit = visit.Visit(calls, "trial", run, reboot_seconds, wanted)

    @property
    def is_booted(self) -> bool:
        """Whether the host was rebooted into its arm, or is about to be."""
        return self._visit.is_begun

    @property
    def _renew(self) -> str:
        return visit.RENEW if self.is_booted else host_check.RENEW

    def switch(self, arm: str, timer_seconds: int) -> tuple[int, ...]:
        """Put the host into an arm, by a reboot where that is what it takes, and return its online CPUs.

        Raises:
            SwitchError: the arguments cannot be set, or have not the effect that they should.
            HostLostError: it does not answer, or did not come back.
        """
        if not catalogue.takes_reboot(arm):
            return super().switch(arm, timer_seconds)
        # A rollback that is pending belongs to the boot that ends.
        super().restore()
        self._visit.enter(arm_states.options(arm), timer_seconds)
        return self.check().online

    def restore(self) -> tuple[int, ...]:
        """Put the host back into its own state, by a reboot where it was rebooted, and return its online CPUs.

        Raises:
            HostLostError: it does not answer, did not come back, or what it says is not valid.
        """
        try:
            self._visit.back()
        except reboot.SwitchError as error:
            raise HostLostError(str(error)) from error
        return super().restore()
