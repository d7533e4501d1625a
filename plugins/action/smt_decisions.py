# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read evaluations on the controller and return their decision for each hardware class."""

from __future__ import annotations

import datetime
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import libraries, result_files

# The variable with the directory of evaluations; hosts of one play may have several.
VARIABLE = "smt_policy_results"


class ActionModule(ControllerAction):
    """The action of smt_decisions; makes no call on any host."""

    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        asked = {str(path) for host in play["ansible_play_hosts_all"] if (path := self._user.value(VARIABLE, host)) is not None}
        return {"changed": False, "by_path": {path: self._read(path) for path in sorted(asked)}}

    def _read(self, path_of_runs: str) -> dict[str, t.Any]:
        """Return what the evaluations in a directory decide."""
        missing = libraries.sentence("reading evaluations", [paired.MISSING_LIBRARY])
        if missing:
            return self._nothing(missing)
        try:
            paths = decisions.result_files_below(os.path.expanduser(path_of_runs))
        except result_files.ResultError as error:
            return self._nothing(str(error))
        conclusions: list[decisions.Conclusion | None] = []
        refused: list[dict[str, str]] = []
        now = datetime.datetime.now(datetime.UTC)
        for path in paths:
            try:
                conclusions.append(decisions.conclude(result_files.load(path), now))
            except (result_files.ResultError, paired.SampleError, decisions.DecisionError) as error:
                refused.append({"file": str(path), "reason": str(error)})
        classes = decisions.decisions(filter(None, conclusions), now)
        return {"classes": classes, "error": None, "refused": refused}

    @staticmethod
    def _nothing(error: str) -> dict[str, t.Any]:
        return {"classes": {}, "error": error, "refused": []}
