# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail one host, or count it as unreachable, as its status says."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance

MOST_MESSAGE = 4000
ARGUMENTS: dict[str, dict[str, t.Any]] = {"results": {"type": "str", "required": True}, "drifted_ok": {"type": "bool", "default": False}}


class ActionModule(ControllerAction):
    """The action of smt_fail_host; makes no call on the host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        registered = play.get(options["results"])
        if isinstance(registered, dict) and "error" in registered:
            return self._of_an_evaluation(registered)
        result = compliance.from_registered(registered)
        status = result["status"]
        if status == compliance.COMPLIANT or (status == compliance.DRIFTED and options["drifted_ok"]):
            return {"changed": False}
        ending = "unreachable" if status == compliance.UNREACHABLE else "failed"
        return {"changed": False, ending: True, "msg": f"{status.replace('_', ' ')}: {result['sentence']}"}

    @staticmethod
    def _of_an_evaluation(registered: dict[str, t.Any]) -> dict[str, t.Any]:
        if registered["error"] is None:
            return {"changed": False}
        ending = "unreachable" if registered.get("unreachable_host") else "failed"
        return {"changed": False, ending: True, "msg": text.line(registered["error"], MOST_MESSAGE)}
