# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read evaluations on the controller and return their decision for each hardware class."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import decisions, fields
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import libraries, result_files

ARGUMENTS: dict[str, dict[str, t.Any]] = {"path": {"type": "path", "required": True}, "facts": {"type": "str"}, "before": {"type": "dict"}}


class ActionModule(ControllerAction):
    """The action of smt_decisions; makes no call on any host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        before = options["before"] or {}
        facts = {host: fields.smt_facts(play["hostvars"][host].get(options["facts"])) for host in before.get("evaluated", ()) if host in play["hostvars"]}
        known = {host: fields.line(found.get("hardware_class"), 200) for host, found in facts.items() if found}
        if before and all(before["evaluated"][host] == name for host, name in known.items()):
            return {name: before[name] for name in ("changed", "classes", "error", "refused", "evaluated")}
        missing = libraries.sentence("reading evaluations", [paired.MISSING_LIBRARY])
        if missing:
            return self._nothing(missing)
        try:
            paths = decisions.result_files_below(options["path"])
        except result_files.ResultError as error:
            return self._nothing(str(error))
        conclusions: list[decisions.Conclusion] = []
        refused: list[dict[str, str]] = []
        now = datetime.datetime.now(datetime.UTC)
        for path in paths:
            try:
                found = decisions.read(path, now)
            except (result_files.ResultError, paired.SampleError, decisions.DecisionError) as error:
                refused.append({"file": str(path), "reason": str(error)})
            else:
                conclusions += [found] if found else []
        classes = decisions.decisions(conclusions, now, known)
        return {"changed": False, "classes": classes, "error": None, "refused": refused, "evaluated": decisions.classes_of(conclusions)}

    @staticmethod
    def _nothing(error: str) -> dict[str, t.Any]:
        return {"changed": False, "classes": {}, "error": error, "refused": [], "evaluated": {}}
