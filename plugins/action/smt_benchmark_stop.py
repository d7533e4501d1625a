# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End the plans that are running on a host, and fetch their samples to the controller."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.module_utils._host.options.smt_benchmark_stop import ARGUMENTS
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.fetching import (
    Fetched,
    FetchingAction,
    report_call,
    say_left,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import StopAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files

display = terminal.Terminal()


class ActionModule(FetchingAction):
    """The action of smt_benchmark_stop."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """End the plans that are running on a host, and fetch their samples to the controller."""
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            return self._stop(task_vars or {})
        except HostFailedError as failure:
            return failure.answer
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None

    def _stop(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        host = str(task_vars["inventory_hostname"])
        result_files.see_that_it_can_be_written(self.directory("any").parent)
        stopped = self.ask(StopAnswer, "smt_benchmark_stop", self._task.args, task_vars)
        if stopped.probe:
            display.display(
                f"{text.line(host)}: it was measuring which CPUs share a core, with which an evaluation begins: that"
                f" {'would be' if self._task.check_mode else 'was'} ended, and nothing was switched."
            )
        elif not stopped.runs and not stopped.uncollected:
            display.display(f"{text.line(host)}: no evaluation is running here, and none waits to be fetched.")
        if self._task.check_mode:
            for run in stopped.runs:
                display.display(f"{text.line(host)}: run {run} would be ended.")
            return {"changed": stopped.changed, "runs": list(stopped.runs), "paths": []}
        # Those that ran first: of the others only so many are fetched.
        fetched, left = self.fetch_waiting(
            task_vars, host, sorted(stopped.uncollected, key=lambda run: (run not in stopped.runs, run))
        )
        for collected in fetched:
            self._say(host, collected, collected.result.run in stopped.runs)
        say_left(host, left)
        ended = {
            "changed": stopped.changed,
            "runs": list(stopped.runs),
            "paths": [collected.path for collected in fetched],
        }
        failed = [f"{run}: {reason}" for run, reason in left.items() if run in stopped.runs]
        return (
            dict(ended, failed=True, msg=text.line(f"what was measured stays on the host: {'; '.join(failed)}", 2000))
            if failed
            else ended
        )

    @staticmethod
    def _say(host: str, fetched: Fetched, was_running: bool) -> None:
        result, restored = fetched.result, fetched.result.restored
        state = (
            ""
            if restored is None
            else (
                " The host is as it was before."
                if restored.ok
                else f" Not restored: {text.line('; '.join(restored.differences or ()))}."
            )
        )
        what = "was ended" if was_running else "had ended before"
        display.display(
            f"{text.line(host)}: run {result.run} {what}; {len(result.samples)} samples: {fetched.path}.{state}"
            f" Its report: {report_call(fetched)}"
        )
