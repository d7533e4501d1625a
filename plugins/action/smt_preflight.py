# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out on the controller, before any connection, which hosts it cannot reach."""

from __future__ import annotations

import shutil
import typing as t

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import transport

display = Display()


class ActionModule(ActionBase):
    """The action of smt_preflight; makes no call on any host."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        # The default for hosts without a setting of their own: `--connection`, or the configuration.
        connection = self._task.connection or constants.config.get_config_value("DEFAULT_TRANSPORT")
        executable = constants.config.get_config_value("ssh_executable", plugin_type="connection", plugin_name="ssh")
        connections: list[transport.Connection] = []
        play = task_vars or {}
        for host in play["ansible_play_hosts_all"]:
            known = play["hostvars"][host]
            connections.append(
                transport.Connection(host, str(known.get("ansible_connection") or connection), str(known.get("ansible_ssh_executable") or executable))
            )
        lost = transport.unreachable(connections, shutil.which)
        reason = transport.sentence(lost, len(connections))
        if reason:
            display.warning(reason)
        return {"changed": False, "unreachable_hosts": list(lost), "reason": reason}
