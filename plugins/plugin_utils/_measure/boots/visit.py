# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's visit in other boot arguments, as its controller leads it: into an arm, to the next, and back.

A service of the host undoes the arguments and reboots when it hears nothing of its controller for a while.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import BootVisitAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.reboot import SwitchError

# Before a host goes back by itself.
MIN_SECONDS = reboot.MIN_SECONDS
# The options of smt_boot_args of a host without arguments of ours.
OWN = {"smt": "enabled"}
# What starts its time anew; one that is just being started has its time before it.
RENEW = (
    f"{{ systemctl reload {record.UNIT}.service || systemctl is-active {record.UNIT}.service | grep -qx"
    " activating; } >/dev/null 2>&1"
)


class Visit:
    """A host's visit.

    Args:
        calls: to the host.
        kind: what it is for: ``trial`` or ``evaluation``.
        run: the name of that.
        reboot_seconds: the time limit of a reboot, and of a call that changes boot arguments.
        wanted: what the user wants of reboots.

    Attributes:
        is_begun: whether the host was asked for other arguments, and is not seen without them since.
    """

    def __init__(
        self,
        calls: time_limits.Calls,
        kind: str,
        run: str,
        reboot_seconds: int = MIN_SECONDS,
        wanted: reboot.Wanted = reboot.NOTHING,
    ) -> None:
        self._calls, self._kind, self._run, self._wanted = calls, kind, run, wanted
        self._reboot = reboot.Reboot(
            calls, reboot_seconds, f"Rebooted by Ansible for the {kind} of SMT on this host", wanted
        )
        self.is_begun = False

    def check(self, options: dict[str, str]) -> None:
        """See that the host can be put into an arm and can bring itself back; raises as `enter` does."""
        if self._wanted.slot is not None and self._wanted.slot.kured:
            raise SwitchError(
                "smt_slot has kured reboot the host, at a time of its own: compare arms that take no reboot, or set"
                " another slot for this"
            )
        self._begin(options, 0, check_mode=True)

    def enter(self, options: dict[str, str], seconds: int = 0) -> None:
        """Reboot the host into an arm, and see that it is in it.

        Args:
            options: of smt_boot_args, of the arm.
            seconds: after so many without a sign of the controller it goes back; `MIN_SECONDS` where they are fewer.

        Raises:
            SwitchError: the arguments cannot be set, or have not the effect that they should.
            HostLostError: the host does not answer, or did not come back.
        """
        # While it waits, the host is as it was, or in the arm before.
        self._reboot.take(self.renew)
        self.is_begun = True
        try:
            self._begin(options, seconds, check_mode=False)
        except SwitchError:
            self._reboot.give_back()
            raise
        with self._in_slot():
            self._reboot.run()
            self._reboot.verify(options)

    def back(self) -> None:
        """Put the host back to its own arguments, by a reboot where its kernel has others; raises as `enter` does.

        One that cannot be put back at once goes on trying.
        """
        if not self.is_begun:
            return
        try:
            # Once it is ended the host may reboot at any time.
            if self._wanted.asked and self._ended(check_mode=True).reboot_required:
                self._reboot.take(self.renew)
            with self._in_slot():
                if self._ended().reboot_required:
                    self._reboot.run()
                    self._reboot.verify(OWN)
                    self._ended()
        except SwitchError:
            self.leave()
            raise
        self.is_begun = False

    def _ended(self, check_mode: bool = False) -> BootVisitAnswer:
        return self._reboot.ask(BootVisitAnswer, "smt_boot_visit", {"state": "ended"}, check_mode)

    @contextlib.contextmanager
    def _in_slot(self) -> t.Iterator[None]:
        """Give the slot back when all within went well; an error says that the host keeps it."""
        try:
            yield
        except (SwitchError, HostLostError) as error:
            raise type(error)(f"{error}{self._reboot.kept()}") from error
        self._reboot.give_back()

    def leave(self) -> None:
        """Have the host go back by itself, at once or when a measurement on it has ended, and do not wait for it."""
        self._signal(record.UNDO_NOW)

    def renew(self) -> None:
        """Start the time of the host anew."""
        self._signal(RENEW)

    def _signal(self, command: str) -> None:
        # Without it the host goes back when its time is over.
        if self.is_begun:
            with contextlib.suppress(HostLostError):
                self._calls.run(command)

    def _begin(self, options: dict[str, str], seconds: int, check_mode: bool) -> None:
        asked = {**options, "owner": f"the {self._kind} {self._run}", "seconds": max(seconds, MIN_SECONDS)}
        host = str(self._calls.task_vars.get("inventory_hostname"))
        slot = {"slot": {**self._wanted.asked, "host": host}} if self._wanted.asked else {}
        self._reboot.ask(BootVisitAnswer, "smt_boot_visit", {**asked, **slot}, check_mode)
