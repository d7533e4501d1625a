# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the report of a run on the controller."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.threadwise.smt.plugins.plugin_utils import charts, report, result_files, statistics

ARGUMENTS = {
    "run_dir": {"type": "path", "required": True},
    "results": {"type": "list", "elements": "path"},
    "margin": {"type": "float", "default": 0.01},
    "confidence": {"type": "float", "default": 0.95},
}


class ActionModule(ActionBase):
    """Thin: arguments in, the report's files out."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _checked, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        missing = [str(library) for library in (charts.MISSING_LIBRARY, result_files.MISSING_LIBRARY, statistics.MISSING_LIBRARY) if library]
        if missing:
            raise AnsibleActionFail(
                f"smt_report needs further Python packages on the controller ({'; '.join(missing)}): "
                "pip install altair jsonschema-rs scipy vl-convert-python"
            )
        try:
            return self._build(Path(arguments["run_dir"]), arguments)
        except (result_files.ResultError, statistics.SampleError) as error:
            raise AnsibleActionFail(f"smt_report: {error}") from error

    def _build(self, run_dir, arguments):
        paths = [Path(path) for path in arguments["results"]] if arguments["results"] else result_files.result_paths(run_dir)
        if not paths:
            raise AnsibleActionFail(f"smt_report: {run_dir} holds no result of a host (HOST.json): run the evaluation first, or name another run_dir")
        written, refused, diff, texts = [], [], [], {}
        for one in report.pages(paths, arguments["margin"], arguments["confidence"]):
            if isinstance(one, report.Refused):
                refused.append({"file": one.file, "reason": one.reason})
                continue
            name, text = one
            path = run_dir / name
            if name in ("summary.md", "results.json"):
                texts[name] = text
            if name == "summary.md":
                before = result_files.read_text(path) or ""
                diff = [{"before_header": str(path), "after_header": str(path), "before": before, "after": text}]
            if result_files.write_text(path, text, dry_run=self._task.check_mode):
                written.append(str(path))
        result = {
            "changed": bool(written), "index": str(run_dir / "index.html"), "files": written, "refused": refused,
            "hosts": [
                {"host": host["host"], "recommendation": host["answer"]["recommendation"], "sentence": host["answer"]["sentence"]}
                for host in json.loads(texts["results.json"])["hosts"]
            ],
        }
        if self._task.diff:
            result["diff"] = diff
        if refused:
            result["warnings"] = [f"not in the report: {one['reason']}" for one in refused]
        if len(refused) == len(paths):
            result.update(failed=True, msg=f"none of {len(paths)} results could be used: {refused[0]['reason']}")
        return result
