# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads evaluations on the controller and says what they decide for each hardware class."""

from __future__ import annotations

import datetime

from ansible.plugins.action import ActionBase
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files


class ActionModule(ActionBase):
    """Thin: a directory in, decisions out; no host is asked anything."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _dummy, options = self.validate_argument_spec(argument_spec={"path": {"type": "path", "required": True}})
        missing = [str(library) for library in (result_files.MISSING_LIBRARY, paired.MISSING_LIBRARY) if library]
        if missing:
            return self._nothing(f"further Python packages are needed on the controller ({'; '.join(missing)}): pip install jsonschema-rs orjson scipy")
        try:
            paths = decisions.result_files_below(options["path"])
        except result_files.ResultError as error:
            return self._nothing(str(error))
        witnesses, refused, now = [], [], datetime.datetime.now(datetime.UTC)
        for path in paths:
            try:
                witnesses.append(decisions.witness(result_files.load(path), now))
            except (result_files.ResultError, paired.SampleError, decisions.EvidenceError) as error:
                refused.append({"file": str(path), "reason": str(error)})
        classes = decisions.decisions(filter(None, witnesses), now)
        return {"changed": False, "classes": classes, "trouble": None, "refused": refused}

    @staticmethod
    def _nothing(trouble):
        return {"changed": False, "classes": {}, "trouble": trouble, "refused": []}
