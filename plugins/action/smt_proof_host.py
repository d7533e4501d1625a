# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what will be done to the host, call smt_proof_host there and validate its answer."""

from __future__ import annotations

import contextlib
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ModuleAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import findings

display = terminal.Terminal()
# Ansible's own function has no type hints.
_TRUTH: t.Callable[..., bool] = boolean


class ActionModule(ModuleAction):
    """The action of smt_proof_host: a sentence, and one module call with the task's arguments."""

    module = "smt_proof_host"
    from_user = ("switch",)

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Say what will be done, and do it."""
        if _TRUTH(self._task.args.get("switch", True), strict=False):
            host = text.line((task_vars or {})["inventory_hostname"], 100)
            known = None
            with contextlib.suppress(text.BorderError):
                known = facts.of_answer(task_vars)
            display.display(f"{host}: {findings.announcement(known, check=self._task.check_mode)}")
        return super().run(tmp, task_vars)
