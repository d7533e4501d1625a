# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the report of a trial from its files on the controller."""

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import places, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import trial as page
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import answer, evidence, records, trial_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import directory, looking

PAGE = "index.html"
RESULTS = "results.json"

display = Display()


class ActionModule(ControllerAction):
    """The action of smt_trial_report; makes no call on any host."""

    arguments: t.ClassVar[t.Mapping[str, dict[str, t.Any]]] = {"trial_dir": {"type": "path", "required": True}}

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        try:
            files = directory.TrialDirectory(places.file(options["trial_dir"]))
            trial = records.read_trial(files.path / directory.TRIAL)
            looks = looking.looks_of(files)
            periods, ends = looking.periods_of(files, trial)
            complete = {host: records.complete(of_host) for host, of_host in periods.items()}
            found = evidence.by_hosts(trial, complete, evidence.compare(trial, complete, looks.taken))
            said = answer.sentences(trial, found, looks)
            lost = answer.lost(trial, periods)
            dry_run = bool(self._task.check_mode)
            results = {
                "schema": trial_report.SCHEMA_NAME,
                "schema_version": trial_report.SCHEMA_VERSION,
                "trial": trial.document(),
                "answer": said,
                "others": [*answer.others(trial, found), *lost],
                "comparisons": found,
            }
            changed = result_files.write_page(files.path / PAGE, page.render(trial, periods, ends, looks), dry_run)
            changed |= result_files.write_text(files.path / RESULTS, json.dumps(results, allow_nan=False, indent=1) + "\n", dry_run)
        except (text.BorderError, result_files.ResultError) as error:
            raise AnsibleActionFail(str(error)) from None
        for sentence in [*said, *lost]:
            display.display(text.line(sentence, 2000))
        display.display(f"The report: {files.path / PAGE}")
        return {"changed": changed, "page": str(files.path / PAGE), "answer": said}
