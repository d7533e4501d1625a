# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what each task came to, a JSON line each: whole for the hosts that are named, in brief for the others."""

DOCUMENTATION = """
name: keep_results
type: aggregate
short_description: Keeps the results of tasks for tests
description: One JSON line a task and host; C(broke) names the exception of Python that ended an action.
options:
  path: {description: The file., type: path, required: true, env: [{name: KEEP_RESULTS_PATH}]}
  whole: {description: Hosts kept whole., type: list, elements: str, default: [], env: [{name: KEEP_RESULTS_WHOLE}]}
"""

import json

from ansible._internal._errors import _error_utils
from ansible.errors import AnsibleError, AnsibleTaskError
from ansible.plugins.callback import CallbackBase

MOST = 2000
BROKE = "keep_results_broke"
_described = _error_utils.result_dict_from_exception


def _described_with_its_kind(exception, *arguments, **named):
    """Ansible tells a user the words of an exception alone: whether it was meant cannot be seen from these."""
    cause = exception.__cause__ if isinstance(exception, AnsibleTaskError) else exception
    kind = None if isinstance(cause, AnsibleError) else type(cause).__name__
    return dict(_described(exception, *arguments, **named), **({BROKE: kind} if kind else {}))


_error_utils.result_dict_from_exception = _described_with_its_kind


class CallbackModule(CallbackBase):
    """Writes as results come."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "keep_results"

    def _keep(self, status, result):
        host = result.host.get_name()
        returned = result.result
        line = {
            "host": host, "task": result.task.get_name(), "once": bool(result.task.run_once), "status": status,
            "msg": str(returned.get("msg"))[:MOST], "broke": returned.get(BROKE),
        }  # fmt: skip
        if host in self.get_option("whole"):
            line["result"] = {key: value for key, value in returned.items() if key != "exception"}
        with open(self.get_option("path"), "a", encoding="utf-8", errors="backslashreplace") as lines:
            lines.write(json.dumps(line, default=str, sort_keys=True, ensure_ascii=True) + "\n")

    def v2_runner_on_ok(self, result):
        self._keep("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._keep("failed", result)

    def v2_runner_on_unreachable(self, result):
        self._keep("unreachable", result)

    def v2_runner_on_skipped(self, result):
        self._keep("skipped", result)
