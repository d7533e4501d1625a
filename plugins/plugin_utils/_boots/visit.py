# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's visit in other boot arguments, as its controller leads it: into an arm, to the next, and back.

A service of the host undoes the arguments and reboots when it hears nothing of its controller for a while.
"""

from __future__ import annotations

import contextlib
import re
import time
import typing as t

from ansible.errors import AnsibleError
from ansible_collections.threadwise.smt.plugins.module_utils._boot.visit import record
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation.time_limits import HostLostError

# Time for a host to boot and for its controller to find it again, before it goes back by itself.
MIN_SECONDS = 600
# The options of smt_boot_args of a host without arguments of ours.
OWN = {"smt": "enabled"}
# What starts its time anew; one that is just being started has its time before it.
RENEW = (
    f"{{ systemctl reload {record.UNIT}.service || systemctl is-active {record.UNIT}.service | grep -qx"
    " activating; } >/dev/null 2>&1"
)
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SwitchError(Exception):
    """The host cannot be put into an arm, or is not in it."""


class Visit:
    """A host's visit.

    Args:
        calls: to the host.
        kind: what it is for: ``trial`` or ``evaluation``.
        run: the name of that.
        reboot_seconds: the time limit of a reboot, and of a call that changes boot arguments.

    Attributes:
        is_begun: whether the host was asked for other arguments, and is not seen without them since.
    """

    def __init__(self, calls: time_limits.Calls, kind: str, run: str, reboot_seconds: int = MIN_SECONDS) -> None:
        self._calls, self._kind, self._run, self._seconds = calls, kind, run, reboot_seconds
        self.is_begun = False

    def check(self, options: dict[str, str]) -> None:
        """See that the host can be put into an arm and can bring itself back; raises as `enter` does."""
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
        self.is_begun = True
        self._begin(options, seconds, check_mode=False)
        self._reboot()
        self._verify(options)

    def back(self) -> None:
        """Put the host back to its own arguments, by a reboot where its kernel has others; raises as `enter` does.

        One that cannot be put back at once goes on trying.
        """
        if not self.is_begun:
            return
        try:
            if self._asked("smt_boot_visit", {"state": "ended"})["reboot_required"]:
                self._reboot()
                self._verify(OWN)
                self._asked("smt_boot_visit", {"state": "ended"})
        except SwitchError:
            self.leave()
            raise
        self.is_begun = False

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
        self._asked("smt_boot_visit", asked, check_mode)

    def _asked(self, module: str, arguments: dict[str, t.Any], check_mode: bool = False) -> dict[str, t.Any]:
        try:
            return self._calls.ask(module, arguments, max(self._seconds, MIN_SECONDS), check_mode)
        except (HostFailedError, AnsibleError) as failure:
            raise SwitchError(text.line(failure, 2000)) from None

    def _verify(self, options: dict[str, str]) -> None:
        found = self._asked("smt_boot_args", dict(options), check_mode=True)
        if found["differences"] or found["reboot_required"] or found["changed"]:
            running, configured = (text.line(" ".join(found[one]) or "none", 300) for one in ("running", "configured"))
            raise SwitchError(
                "it was rebooted and does not have the requested state:"
                f" {text.line('; '.join(found['differences']) or 'another boot would', 500)}. The running kernel has"
                f" {running}, configured are {configured}. Check whether the host booted an entry that"
                f" {text.line(found['loader'])} did not write, or the kernel interpreted the arguments differently"
            )

    def _reboot(self) -> None:
        """Reboot the host by Ansible's own action, and wait until it is in another boot."""
        before, end = self._boot_id(), time.monotonic() + self._seconds
        action = self._calls.action
        task = action._task.copy()
        task.args = {
            "reboot_timeout": self._seconds,
            "msg": f"Rebooted by Ansible for the {self._kind} of SMT on this host",
        }
        plugin = action._shared_loader_obj.action_loader.get(
            "ansible.builtin.reboot",
            task=task,
            connection=action._connection,
            play_context=action._play_context,
            loader=action._loader,
            templar=action._templar,
            shared_loader_obj=action._shared_loader_obj,
        )
        try:
            answer = plugin.run(task_vars=self._calls.task_vars)
            # The directory of this task's modules may not have outlived the reboot.
            action.cleanup()
        except AnsibleError as error:
            raise HostLostError(f"it did not come back from a reboot: {text.line(error, 300)}") from error
        if answer.get("failed"):
            what = "did not come back from a reboot" if answer.get("rebooted") else "was not rebooted"
            raise HostLostError(f"it {what}: {text.line(answer.get('msg'), 300)}")
        # What a host says that shuts down can be taken for another boot.
        while self._boot_id() in (None, before):
            if time.monotonic() > end:
                raise HostLostError(
                    f"it did not come back from a reboot: it is in the same boot after {self._seconds} s"
                )
            time.sleep(time_limits.PAUSE_SECONDS)

    def _boot_id(self) -> str | None:
        with contextlib.suppress(HostLostError):
            found = _ID.search(str(self._calls.run(_BOOT_ID).get("stdout")))
            return found and found[0]
        return None
