# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out on the controller, before any host is asked, which ones cannot be reached from it."""

from __future__ import annotations

import shutil
import typing as t

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import transport

display = Display()


class ActionModule(ActionBase):
    """The controller's side of smt_preflight; no host is asked anything."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        # What holds for a host that does not say: `--connection`, or the configuration.
        connection = self._task.connection or constants.config.get_config_value("DEFAULT_TRANSPORT")
        executable = constants.config.get_config_value("ssh_executable", plugin_type="connection", plugin_name="ssh")
        ways = []
        play = task_vars or {}
        for host in play["ansible_play_hosts_all"]:
            known = play["hostvars"][host]
            ways.append(transport.Way(host, str(known.get("ansible_connection") or connection), str(known.get("ansible_ssh_executable") or executable)))
        lost = transport.unreachable(ways, shutil.which)
        reason = transport.sentence(lost, len(ways))
        if reason:
            display.warning(reason)
        return {"changed": False, "unreachable_hosts": list(lost), "reason": reason}
