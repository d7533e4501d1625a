# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the report of a run on the controller."""

from __future__ import annotations

import math
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.options.smt_report import ARGUMENTS
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import terminal_table

# Most hosts whose numbers are shown as a table.
MAX_TABLES = 3
# Most hosts, and hardware classes, whose conclusion is shown.
MAX_SHOWN = 20

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_report; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Build the report of a run on the controller."""
        missing = libraries.sentence("smt_report", [schema.MISSING_LIBRARY])
        if missing:
            raise AnsibleActionFail(missing)
        try:
            run_dir = places.directory(options.run_dir)
            if (
                options._evaluated
                and not options.results
                and not (run_dir.is_dir() and result_files.result_paths(run_dir))
            ):
                # In check mode, and where no host could be evaluated, which each host says itself.
                return {"changed": False, "skipped": True, "skip_reason": "there is no result"}
            if options._evaluated and not terminal.is_read(terminal.STDOUT):
                # The evaluation was ended for the same reason; smt_report.yml builds its report.
                return {"changed": False, "skipped": True, "skip_reason": terminal.NOBODY_READS}
            return self._build(run_dir, options)
        except (BorderError, paired.SampleError) as error:
            raise AnsibleActionFail(f"smt_report: {error}") from error

    def _build(self, run_dir: Path, arguments: Options) -> dict[str, t.Any]:
        """Build the report; return the task's result."""
        paths = [Path(path) for path in arguments.results] if arguments.results else result_files.result_paths(run_dir)
        if not paths:
            raise AnsibleActionFail(
                f"smt_report: {run_dir} has no result of a host (HOST.json): run the evaluation first, or set another"
                " run_dir"
            )
        built = build.build(paths, run_dir, self._settings(arguments), dry_run=self._task.check_mode)
        result: dict[str, t.Any] = {
            "changed": bool(built.written),
            "index": str(run_dir / "index.html"),
            "files": built.written,
            "refused": [{"file": refusal.file, "reason": refusal.reason} for refusal in built.refused],
            "hosts": [
                {"host": row.host, "recommendation": row.recommendation, "sentence": row.sentence}
                for row in built.hosts
            ],
            "classes": [
                {
                    **{name: getattr(hardware_class, name) for name in ("hardware_class", "hosts", "recommendation")},
                    "sentence": hardware_class.line,
                }
                for hardware_class in built.classes
                if hardware_class.hosts > 1
            ],
        }
        self._show(result, {row.host: list(row.workloads.values()) for row in built.hosts[:MAX_TABLES]})
        if self._task.diff:
            path = str(run_dir / "summary.md")
            result["diff"] = [
                {"before_header": path, "after_header": path, "before": built.summary[0], "after": built.summary[1]}
            ]
        if built.refused or built.missing:
            result["warnings"] = [
                *(f"not in the report: {refusal.reason}" for refusal in built.refused),
                *built.missing,
            ]
        if len(built.refused) == len(paths):
            result.update(failed=True, msg=f"none of {len(paths)} results could be used: {built.refused[0].reason}")
        return result

    @staticmethod
    def _show(result: dict[str, t.Any], workloads: dict[str, list[Comparison]]) -> None:
        """Say on the terminal what the report says of each host, and where it is; of few hosts with their numbers."""
        hosts = result["hosts"]
        for row in hosts[:MAX_SHOWN]:
            for line in terminal_table.lines(workloads[row["host"]], display.width) if len(hosts) <= MAX_TABLES else ():
                display.display(line)
            display.display(f"{row['host']}: {row['sentence']}")
        if len(hosts) > MAX_SHOWN:
            display.display(f"... and {len(hosts) - MAX_SHOWN} more hosts.")
        classes = result["classes"]
        for hardware_class in classes[:MAX_SHOWN]:
            display.display(hardware_class["sentence"])
        if len(classes) > MAX_SHOWN:
            display.display(f"... and {len(classes) - MAX_SHOWN} more hardware classes.")
        display.display(f"The report: {result['index']}")

    @staticmethod
    def _settings(arguments: Options) -> build.Settings:
        price = arguments.licence_price
        if (price is None) != (arguments.licence_per is None):
            raise AnsibleActionFail("smt_report: licence_per and licence_price belong to each other: give both or none")
        if price is not None and not 0 < price < math.inf:
            raise AnsibleActionFail(f"smt_report: licence_price is {price}: it must be a number above zero")
        before = tuple(result_files.result_paths(arguments.before)) if arguments.before else ()
        other_runs = tuple(tuple(result_files.result_paths(directory)) for directory in arguments.other_runs)
        licence = None if price is None else recommendation.Licence(arguments.licence_per, price)
        return build.Settings(arguments.margin, arguments.confidence, licence, before, other_runs, arguments.compare)
