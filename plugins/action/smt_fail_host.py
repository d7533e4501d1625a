# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fail one host, or count it as unreachable, as its status says."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_NAME, Status

MAX_MESSAGE = 4000
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str"},
    "not_contacted": {"type": "list", "elements": "str", "default": []},
    "drifted_ok": {"type": "bool", "default": False},
    "shown": {"type": "str"},
}


class ActionModule(ControllerAction):
    """The action of smt_fail_host; makes no call on the host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Fail one host, or count it as unreachable, as its status says."""
        host = str(play["inventory_hostname"])
        if options["shown"]:
            failure = self._user.registered_by_any(options["shown"])["failing"].get(host)
            return {"changed": False} if failure is None else _found(BY_NAME[failure["status"]], failure["sentence"])
        registered = self.registered(options["results"], host)
        if host in options["not_contacted"]:
            return _ended(compliance.NOT_CONTACTED, unreachable=True)
        if "error" in registered:
            return (
                _ended(registered["error"], bool(registered.get("unreachable_host")))
                if registered["error"] is not None
                else {"changed": False}
            )
        if self.facts(options["results"], host):
            return {"changed": False}
        result = compliance.from_registered(registered)
        status = result.status
        if status.row.is_fine or (status is Status.DRIFTED and options["drifted_ok"]):
            return {"changed": False}
        return _found(status, result.sentence)


def _found(status: Status, sentence: str) -> dict[str, t.Any]:
    return _ended(f"{status.words}: {sentence}", status is Status.UNREACHABLE)


def _ended(reason: t.Any, unreachable: bool) -> dict[str, t.Any]:
    """Return the result that fails a host, or counts it as unreachable."""
    return {"changed": False, "unreachable" if unreachable else "failed": True, "msg": text.line(reason, MAX_MESSAGE)}
