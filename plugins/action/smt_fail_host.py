# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail one host, or count it as unreachable, as its status says."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance

ARGUMENTS: dict[str, dict[str, t.Any]] = {"results": {"type": "str", "required": True}, "drifted_ok": {"type": "bool", "default": False}}


class ActionModule(ActionBase):
    """The action of smt_fail_host; makes no call on the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task."""
        super().run(tmp, task_vars)
        _dummy, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        result = compliance.from_registered((task_vars or {}).get(options["results"]))
        status = result["status"]
        if status == compliance.COMPLIANT or (status == compliance.DRIFTED and options["drifted_ok"]):
            return {"changed": False}
        ending = "unreachable" if status == compliance.UNREACHABLE else "failed"
        return {"changed": False, ending: True, "msg": f"{status.replace('_', ' ')}: {result['sentence']}"}
