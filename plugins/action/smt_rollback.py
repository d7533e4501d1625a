# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call smt_rollback on the host and validate its answer."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostAction


class ActionModule(HostAction):
    """The action of smt_rollback: one module call with the task's arguments."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        return self.pass_on("smt_rollback", task_vars or {})
