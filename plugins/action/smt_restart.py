# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboot a host, with a slot where the user has it ask for one."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "reboot_timeout": {"type": "int", "default": reboot.MIN_SECONDS},
    "msg": {"type": "str", "default": "Rebooted by Ansible"},
    "verify": {"type": "dict"},
    "keeps_slot": {"type": "bool", "default": False},
}
# The extra variable by which the program of smt_pull names the file that tells it to reboot its host.
PULL_FILE = "__smt_pull_reboot_file"


class ActionModule(HostAction):
    """The action of smt_restart: reboots by Ansible's own action, and calls modules before and after it."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Reboot the host, and see what the boot has brought."""
        super().run(tmp, task_vars)
        play = task_vars or {}
        name = str(play["inventory_hostname"])
        host = text.line(name, 100)
        options = self.validated(ARGUMENTS)
        try:
            wanted = reboot.wanted(self._user, name)
        except SlotError as error:
            raise AnsibleActionFail(f"{host} is not rebooted: {error}") from None
        pull_file = self._user.value(PULL_FILE, name)
        if pull_file and wanted.slot is None:
            raise AnsibleActionFail(
                f"{host} is not rebooted: all hosts that pull would reboot within minutes of each other. Set smt_slot,"
                " which has them ask for it, or reboot the host yourself"
            )
        calls = time_limits.Calls(self, play)
        task = reboot.Reboot(calls, options.reboot_timeout, options.msg, wanted)
        return self._reboot(task, host, options, pull_file)

    def _reboot(self, host: reboot.Reboot, name: str, options: Options, pull_file: str | None) -> dict[str, t.Any]:
        result = {"changed": True, "rebooted": False, "by_pull": False, "msg": ""}
        try:
            if self._task.check_mode:
                return {**result, "msg": host.would_take()}
            if not host.take():
                return {**result, "msg": "kured reboots it"}
            if pull_file:
                # Not from within the play, which would be ended by it: the program reboots when it has written all
                # that it says of this pull.
                pathlib.Path(pull_file).touch()
                return {**result, "by_pull": True}
            try:
                host.run()
                if options.verify is not None:
                    host.verify(options.verify)
                if not options.keeps_slot:
                    host.give_back()
            except (reboot.SwitchError, time_limits.HostLostError) as error:
                raise type(error)(f"{name}: {error}{host.kept()}") from error
        except (reboot.SwitchError, time_limits.HostLostError) as error:
            # A failure, also where it does not answer: a rollout tries to bring it back.
            return {"failed": True, "changed": True, "msg": str(error)}
        return {**result, "rebooted": True}
