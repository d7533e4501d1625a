# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read evaluations on the controller, and return what second threads give on each host's hardware class."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import decisions, fields, yields

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "facts": {"type": "str", "required": True},
    "directory": {"type": "path"},
}


class ActionModule(ControllerAction):
    """The action of smt_yields; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("directory",)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Read evaluations, and return the yields of each host's hardware class."""
        by_class, refused = self._read(options["directory"]) if options["directory"] else ({}, [])
        of_host = {}
        for host in play["ansible_play_hosts_all"]:
            facts = fields.smt_facts(self._user.registered(options["facts"], host))
            found = by_class.get(fields.line(facts.get("hardware_class"), 200) or "", [])
            of_host[host] = [{"workload": one.workload, "low": one.low, "high": one.high} for one in found]
        return {"changed": False, "by_host": of_host, "refused": refused}

    @staticmethod
    def _read(directory: str) -> tuple[dict[str, list[yields.Yield]], list[str]]:
        """Return the yields by hardware class, and why some files could not be used."""
        now = datetime.datetime.now(datetime.UTC)
        conclusions: list[decisions.Conclusion] = []
        refused: list[str] = []
        try:
            paths = decisions.result_files_below(directory)
        except result_files.ResultError as error:
            raise AnsibleActionFail(f"smt_yields: {error}") from None
        for path in paths:
            try:
                found = decisions.read(path, now)
            except (result_files.ResultError, paired.SampleError, decisions.DecisionError) as error:
                refused.append(str(error))
            else:
                conclusions += [found] if found else []
        return yields.by_class(conclusions), refused
