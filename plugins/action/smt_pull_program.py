# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call smt_pull_program on the host and validate its answer."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostAction


class ActionModule(HostAction):
    """The action of smt_pull_program: one module call with the task's arguments."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Leave the program on the host."""
        super().run(tmp, task_vars)
        return self.pass_on("smt_pull_program", task_vars or {})
