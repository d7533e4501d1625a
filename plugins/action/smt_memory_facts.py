# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the answer of smt_memory_facts through the border."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import HostAction


class ActionModule(HostAction):
    """Thin: the task's arguments in, one module call on the host, its checked answer out."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        return self.pass_on("smt_memory_facts", task_vars or {})
