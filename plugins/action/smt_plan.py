# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the plan under async, shows its progress while it measures, and brings the result to the controller."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils import patience, progress, result_files

MODULE = "threadwise.smt.smt_plan"
# A look at the progress is one command on the host. More often would disturb what is measured.
LOOK_SECONDS = 5
# The names of a boot and of a process as RunDirectory writes them: JSON, so the first is in quotes.
LOOK = """cat progress.json && echo && \\
test "\\"$(cat /proc/sys/kernel/random/boot_id)\\"" = "$(cat boot.json)" && test -d "/proc/$(cat pid.json)" && echo lives"""
# Each so many looks Ansible is asked whether the job has ended; that starts Python on the host.
LOOKS_PER_STATUS = 6
# Ansible does not notice when both the plan and its own process beside it are killed. A plan that has just ended is still reported by Ansible.
LOOKS_WITHOUT_PROCESS = 3
# One call that takes so long has lost its host.
ANSWER_SECONDS = 60
# A host that does not answer for so long is given up; its plan goes on and puts the host back without us. A large server takes minutes to restart.
LOST_SECONDS = 900
# A plan may end later than its budget by its last block and by putting the host back. Only one that hangs takes longer than this.
EXTRA_SECONDS = 900
DEFAULT_BUDGET = 300

display = Display()


# What workloads compile on the host.
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "plugin_utils" / "native"


def sources():
    """{file name: C source} of the workloads that are compiled on the host."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.c"))}


class StepFailed(Exception):
    """The module failed on the host; holds what it answered, with its own words and traceback."""

    def __init__(self, answer):
        super().__init__(answer.get("msg") or "the module smt_plan broke on the host")
        self.answer = answer


class ActionModule(ActionBase):
    """The controller's side of smt_plan."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        try:
            return self._evaluate(task_vars)
        except StepFailed as failure:
            return dict(failure.answer, changed=False)

    def _evaluate(self, task_vars):
        host = task_vars["inventory_hostname"]
        described = self._step(task_vars, "describe")
        told = {key: described[key] for key in ("announcement", "compared", "reason", "missing_packages")}
        for sentence in described["announcement"]:
            display.display("%s: %s" % (host, result_files.showable(sentence)))
        if self._task.check_mode:
            return dict(told, changed=False)
        for earlier in described["uncollected"]:
            self._bring_home_earlier(task_vars, host, earlier)
        job = self._measure(task_vars, host, os.path.join(described["directory"], self._task.args["run"]))
        # What the plan answered: where the disk was full it could not leave word of its end.
        trouble = (job.get("msg") or "the module smt_plan broke on the host") if job.get("failed") else job.get("message")
        result = self._bring_home(task_vars, host, self._task.args["run"], trouble)
        ended = {key: result[key] for key in ("outcome", "restored", "path")}
        if "exception" in job:
            ended["exception"] = job["exception"]
        return dict(told, **ended, samples=len(result["samples"]), changed=False, failed=result["outcome"] != "completed",
                    msg=result["message"] or "%d samples: %s" % (len(result["samples"]), result["path"]))

    def _step(self, task_vars, step, **arguments):
        """One call of the module on the host; the task fails as the module does."""
        answer = self._execute_module(MODULE, dict(self._task.args, step=step, **arguments), task_vars=task_vars)
        if answer.get("failed"):
            raise StepFailed(answer)
        return answer

    def _measure(self, task_vars, host, directory):
        """Start the plan, show its progress until it has ended. Returns what its job answered."""
        self._task.async_val = int(self._task.args.get("budget") or DEFAULT_BUDGET) + EXTRA_SECONDS
        started = self._execute_module(MODULE, dict(self._task.args, step="measure", sources=sources()), task_vars=task_vars, wrap_async=True)
        self._task.async_val = 0
        if "ansible_job_id" not in started:
            raise AnsibleActionFail(started.get("msg", "the plan could not be started"), result=started)
        job = self._watch(task_vars, host, directory, started["ansible_job_id"])
        self._job(task_vars, started["ansible_job_id"], mode="cleanup")
        return job

    def _watch(self, task_vars, host, directory, job_id):
        seen_at = time.monotonic()
        shown = None
        gone = 0
        for look in range(1, 1 << 30):
            time.sleep(LOOK_SECONDS)
            try:
                with patience.within(ANSWER_SECONDS):
                    told, lives = self._look(directory)
                gone = 0 if lives else gone + 1
                if look % LOOKS_PER_STATUS == 0 or gone or told is None or told.get("phase") == "ended":
                    with patience.within(ANSWER_SECONDS):
                        job = self._job(task_vars, job_id)
                    if job.get("finished") or job.get("failed"):
                        return job
                if told is not None and gone >= LOOKS_WITHOUT_PROCESS:
                    return {"failed": True, "msg": "the plan's process is gone without a word: it was killed, or the host was restarted"}
                seen_at = time.monotonic()
            except AnsibleConnectionFailure as error:
                if time.monotonic() - seen_at > LOST_SECONDS:
                    raise AnsibleConnectionFailure(
                        "%s: no answer for %d s (%s). Its plan goes on alone, puts the host back, and keeps its samples: the next run of smt_plan "
                        "fetches them" % (host, LOST_SECONDS, error)) from error
                # What is kept open between calls leads nowhere.
                self._connection.reset()
                continue
            if told is not None and told != shown:
                display.display("%s: %s" % (host, progress.line(told)))
                shown = told
        return {}

    def _look(self, directory):
        """Returns the plan's progress, or None before there is any, and whether its process is there."""
        answer = self._low_level_execute_command("cd %s && %s" % (shlex.quote(directory), LOOK))
        told, dummy, rest = answer.get("stdout", "").partition("\n")
        return progress.parse(told), rest.strip() == "lives"

    def _job(self, task_vars, job_id, mode="status"):
        # As Ansible's own action async_status asks; that one takes its arguments from a task of its own.
        where = self.get_shell_option("async_dir", default="~/.ansible_async")
        return self._execute_module("ansible.legacy.async_status", {"jid": job_id, "mode": mode, "_async_dir": where}, task_vars=task_vars)

    def _bring_home(self, task_vars, host, run, trouble=None):
        """Fetch a run, keep it on the controller, and only then let the host forget it."""
        try:
            result = self._step(task_vars, "collect", run=run)["result"]
        except StepFailed as failure:
            if trouble:
                raise AnsibleActionFail("%s (%s)" % (trouble, failure)) from failure
            raise
        result.update(host=host, message=trouble or result["message"])
        dest = os.path.join(self._task.args.get("dest", "smt_eval_results"), run)
        try:
            # Through its text, because Ansible's own strings and containers are not the plain ones that a schema knows.
            path, _written = result_files.save(dest, result_files.parse(json.dumps(result), host))
        except result_files.ResultError as error:
            raise AnsibleActionFail("%s: %s" % (host, error)) from error
        self._step(task_vars, "forget", run=run)
        return dict(result, path=str(path))

    def _bring_home_earlier(self, task_vars, host, run):
        try:
            result = self._bring_home(task_vars, host, run)
        except (StepFailed, AnsibleActionFail) as error:
            display.warning("%s: the earlier run %s stays on the host: %s" % (host, run, error))
        else:
            display.display("%s: fetched %d samples of run %s, which no controller had collected: %s" % (host, len(result["samples"]), run, result["path"]))
