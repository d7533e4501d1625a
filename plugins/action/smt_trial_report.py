# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the report of a trial from its files on the controller."""

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import trial as page
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import answer, evidence, trial_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import directory, looking

PAGE = "index.html"
RESULTS = "results.json"

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_trial_report; makes no call on any host."""

    from_user = ("trial_dir",)
    once_for_all = True
    arguments: t.ClassVar[t.Mapping[str, dict[str, t.Any]]] = {"trial_dir": {"type": "path", "required": True}}

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Build the report of a trial from its files on the controller."""
        try:
            files = directory.TrialDirectory(places.directory(options.trial_dir))
            trial = files.trial()
            looks = looking.looks_of(files)
            seen = looking.known(files, trial)
            comparisons = evidence.by_hosts(trial, seen.complete, evidence.compare(trial, seen.complete, looks.taken))
            sentences = answer.sentences(trial, comparisons, looks)
            further = [*answer.disagreements(trial, comparisons), *answer.lost(trial, seen.periods)]
            refused = [f"{host} counts for nothing: {reason}." for host, reason in seen.unreadable.items()]
            dry_run = bool(self._task.check_mode)
            results = {
                "schema": trial_report.SCHEMA_NAME,
                "schema_version": trial_report.SCHEMA_VERSION,
                "trial": parts.plain(trial),
                "answer": sentences,
                "others": [*answer.others(trial, comparisons), *further, *refused],
                "comparisons": [comparison.described() for comparison in comparisons],
            }
            changed = result_files.write_page(
                files.path / PAGE, page.render(trial, seen.periods, seen.ends, looks, seen.unreadable), dry_run
            )
            changed |= result_files.write_text(
                files.path / RESULTS, json.dumps(results, allow_nan=False, indent=1) + "\n", dry_run
            )
        except (text.BorderError, paired.SampleError) as error:
            raise AnsibleActionFail(str(error)) from None
        for sentence in [*sentences, *further]:
            display.display(text.line(sentence, 2000))
        display.display(f"The report: {files.path / PAGE}")
        result = {"changed": changed, "page": str(files.path / PAGE), "answer": sentences}
        return {**result, "warnings": refused} if refused else result
