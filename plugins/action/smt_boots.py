# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joins what a host measured in several boots into one result, on the controller."""

from __future__ import annotations

import json

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import boots, comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, places
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

ARGUMENTS = {
    "run_dir": {"type": "path", "required": True},
    "run": {"type": "str", "required": True},
    "conditions": {"type": "list", "elements": "str", "required": True, "choices": [host_comparisons.SMT_ON, host_comparisons.SMT_OFF]},
    "boots": {"type": "int", "required": True},
    "before": {"type": "dict", "required": True},
    "after": {"type": "dict"},
    "trouble": {"type": "str"},
}
# As smt_benchmark returns it: whoever asks for boots has two conditions.
COMPARED = {"compared": True, "reason": None}


class ActionModule(ActionBase):
    """Thin: files of one boot each in, one file out; the host is asked nothing."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _dummy, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        stem = result_files.file_stem(task_vars["inventory_hostname"])
        try:
            run_dir = places.file(given["run_dir"])
            legs = []
            for number, condition in enumerate(given["conditions"], 1):
                path = run_dir / "boots" / f"{given['run']}-boot-{number}" / f"{stem}.json"
                # A boot in which nothing could be measured left no file.
                if path.exists():
                    legs.append(boots.Leg(number, condition, result_files.load(path)))
            if not legs:
                return {"changed": False, "path": None, "samples": 0, "restored": None, "outcome": "failed", **COMPARED}
            # Any module that a role calls on the host can have changed what Ansible keeps as its facts.
            before, after = (None if given[name] is None else facts.accept(json.loads(json.dumps(given[name]))) for name in ("before", "after"))
            joined = boots.join(given["run"], legs, given["boots"], before, after, given["trouble"])
            path, written = result_files.save(run_dir, joined) if not self._task.check_mode else (run_dir / f"{stem}.json", False)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_boots: {error}") from error
        return {
            "changed": written,
            "path": str(path),
            "samples": len(joined["samples"]),
            "restored": joined["restored"],
            "outcome": joined["outcome"],
            **COMPARED,
        }
