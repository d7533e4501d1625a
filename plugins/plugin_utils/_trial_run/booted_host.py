# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live host of a trial with arms that take a reboot: it boots into them,
and a service of its own undoes the boot arguments and reboots.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible_collections.threadwise.smt.plugins.module_utils._arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._boot.visit import record as boot_visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import (
    arm_states,
    follower,
    host_check,
    live_host,
)

# Time for a host to boot and for its controller to find it again, before it goes back by itself.
MIN_TIMER_SECONDS = 600


def options(arm: str, run: str, seconds: int = 0) -> dict[str, t.Any]:
    """Return the options of smt_boot_visit for an arm.

    Args:
        arm: its name.
        run: the trial's.
        seconds: of the trial's timers; the least where they are shorter.
    """
    return {**arm_states.options(arm), "owner": f"the trial {run}", "seconds": max(seconds, MIN_TIMER_SECONDS)}


class BootedHost(live_host.AnsibleHost):
    """The host of a task, as :class:`live_host.AnsibleHost`.

    Attributes:
        reboot_seconds: the time limit of a reboot.
        run: the trial's name.
    """

    reboot_seconds = 600
    run = ""

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
        self._asked_of("smt_boot_visit", options(arm, self.run, timer_seconds))
        self._renew = host_check.RENEW_BOOT_VISIT
        self._reboot()
        differences = self._asked_of("smt_boot_args", arm_states.options(arm), check_mode=True)["differences"]
        if differences:
            raise follower.SwitchError(f"it was rebooted into {arm}, and {text.line('; '.join(differences), 500)}")
        return self.check().online

    @property
    def is_booted(self) -> bool:
        """Whether the host was rebooted into its arm, or is about to be."""
        return self._renew == host_check.RENEW_BOOT_VISIT

    def restore(self) -> tuple[int, ...]:
        """Put the host back into its own state, by a reboot where it was rebooted, and return its online CPUs.

        Raises:
            HostLostError: it does not answer, did not come back, or what it says is not valid.
        """
        if self.is_booted:
            self._reboot(boot_visit.UNDO_NOW)
            self._renew = host_check.RENEW
        return super().restore()

    def _asked_of(self, module: str, arguments: dict[str, t.Any], check_mode: bool = False) -> dict[str, t.Any]:
        before, self._action._task.check_mode = self._action._task.check_mode, check_mode
        try:
            return self._reached(
                lambda: self._action.ask(module, module, arguments, self._task_vars), live_host.SWITCH_SECONDS
            )
        except HostFailedError as failure:
            raise follower.SwitchError(str(failure)) from None
        finally:
            self._action._task.check_mode = before

    def _reboot(self, command: str | None = None) -> None:
        """Reboot the host and wait for it, by Ansible's own action."""
        action = self._action
        task = action._task.copy()
        task.args = {
            "reboot_timeout": self.reboot_seconds,
            "msg": "Rebooted by Ansible for a trial of SMT",
            **({"reboot_command": command} if command else {}),
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
            answer = plugin.run(task_vars=self._task_vars)
        except AnsibleError as error:
            raise follower.HostLostError(f"it did not come back from a reboot: {text.line(error, 300)}") from error
        if answer.get("failed"):
            raise follower.HostLostError(f"it did not come back from a reboot: {text.line(answer.get('msg'), 300)}")
