# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the plan under async, shows its progress while it measures, and brings the result to the controller."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import pathlib
import shlex
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import places, results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import HostAction, HostFailed
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import progress, result_files, time_limits

MODULE = "smt_benchmark"
ASYNC_STATUS = "ansible.legacy.async_status"
DEST = "smt_eval_results"
# A look at the progress is one command on the host. More often would disturb what is measured.
LOOK_SECONDS = 5
# The names of a boot and of a process as RunDirectory writes them: JSON, so the first is in quotes.
LOOK = """cat progress.json && echo && \\
test "\\"$(cat /proc/sys/kernel/random/boot_id)\\"" = "$(cat boot.json)" && test -d "/proc/$(cat pid.json)" && echo lives"""
# Each so many looks Ansible is asked whether the job has ended; that starts Python on the host.
LOOKS_PER_STATUS = 6
# Ansible does not notice when both the plan and its own process beside it are killed. A plan that has just ended is still reported by Ansible.
LOOKS_WITHOUT_PROCESS = 3
# So long may a job take, on a busy host, until its plan has said a first word. Before that nothing tells a plan that is late from one that was lost.
STARTING_SECONDS = 300
# One call that takes so long has lost its host.
ANSWER_SECONDS = 60
# A host that does not answer for so long is given up; its plan goes on and puts the host back without us. A large server takes minutes to restart.
LOST_SECONDS = 900
# A plan may end later than its budget by its last block and by putting the host back. Only one that hangs takes longer than this.
EXTRA_SECONDS = 900
DEFAULT_BUDGET = 300
# Of what a host sends as its progress: a few hundred bytes are expected.
MOST_LOOKED_AT = 2 * progress.MAX_BYTES

display = Display()


# What workloads compile on the host.
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "module_utils" / "_workloads" / "native"


def sources():
    """{file name: C source} of the workloads that are compiled on the host."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.c"))}


class ActionModule(HostAction):
    """The controller's side of smt_benchmark."""

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        try:
            return self._evaluate(task_vars)
        except HostFailed as failure:
            return failure.answer
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None

    def _evaluate(self, task_vars):
        # Ansible's own strings are not the plain ones that a schema knows.
        host, run = json.loads(json.dumps([task_vars["inventory_hostname"], self._task.args.get("run")]))
        # Before anything is measured: what cannot be kept on the controller is not worth the host's time.
        self._directory(run)
        described = self._step(task_vars, "describe")
        told = {key: described[key] for key in ("announcement", "compared", "reason", "missing_packages")}
        for sentence in described["announcement"]:
            display.display(f"{host}: {text.line(sentence)}")
        if self._task.check_mode:
            return dict(told, changed=False)
        for earlier in described["uncollected"]:
            self._bring_home_earlier(task_vars, host, earlier)
        job = self._measure(task_vars, host, os.path.join(described["directory"], run))
        # What the plan answered: where the disk was full it could not leave word of its end.
        trouble = job["msg"] if job.get("failed") else job.get("message")
        result = self._bring_home(task_vars, host, run, trouble)
        ended = {key: result[key] for key in ("outcome", "restored", "path")}
        if "exception" in job:
            ended["exception"] = job["exception"]
        return dict(
            told,
            **ended,
            samples=len(result["samples"]),
            changed=False,
            failed=result["outcome"] != "completed",
            msg=result["message"] or f"{len(result['samples'])} samples: {result['path']}",
        )

    def _directory(self, run):
        """Where the files of a run lie on the controller.

        Raises:
            BorderError: the name is not one of a run, or no file of a host belongs there.
        """
        return places.run_directory(self._task.args.get("dest") or DEST, run)

    def _step(self, task_vars, step, **arguments):
        """One call of the module on the host; the task fails as the module does."""
        return self.ask(step, MODULE, dict(self._task.args, step=step, **arguments), task_vars)

    def _measure(self, task_vars, host, directory):
        """Start the plan, show its progress until it has ended. Returns what its job answered."""
        self._task.async_val = int(self._task.args.get("budget") or DEFAULT_BUDGET) + EXTRA_SECONDS
        try:
            job_id = self.ask("job_started", MODULE, dict(self._task.args, step="measure", sources=sources()), task_vars, wrap_async=True)["ansible_job_id"]
        finally:
            self._task.async_val = 0
        job = self._watch(task_vars, host, directory, job_id)
        with contextlib.suppress(HostFailed):
            self._job(task_vars, "job_cleanup", job_id)
        return job

    def _watch(self, task_vars, host, directory, job_id):
        begun = seen_at = alive_at = time.monotonic()
        # A host that only says that its plan goes on must not hold up the others for ever.
        longest = int(self._task.args.get("budget") or DEFAULT_BUDGET) + EXTRA_SECONDS + LOST_SECONDS
        shown = None
        gone = 0
        for look in itertools.count(1):
            time.sleep(LOOK_SECONDS)
            if time.monotonic() - begun > longest:
                raise HostFailed(
                    {
                        "msg": "%s: its plan has not ended %d s after its start, which is %d s more than its budget: it was left alone. The next run "
                        "of smt_benchmark fetches its samples" % (host, longest, EXTRA_SECONDS + LOST_SECONDS)
                    }
                )
            try:
                with time_limits.within(ANSWER_SECONDS):
                    told, lives = self._look(directory)
                gone = 0 if lives else gone + 1
                alive_at = time.monotonic() if lives else alive_at
                if look % LOOKS_PER_STATUS == 0 or gone or told is None or told.get("phase") == "ended":
                    with time_limits.within(ANSWER_SECONDS):
                        job = self._status(task_vars, job_id)
                    if job.get("finished") or job.get("failed"):
                        return job
                # After a restart Ansible's record of the job, if there is one, says for ever that it goes on.
                if gone >= LOOKS_WITHOUT_PROCESS and (told is not None or time.monotonic() - alive_at > STARTING_SECONDS):
                    return {"failed": True, "msg": "the plan's process is gone without a word: it was killed, or the host was restarted"}
                seen_at = time.monotonic()
            except AnsibleConnectionFailure as error:
                if time.monotonic() - seen_at > LOST_SECONDS:
                    raise AnsibleConnectionFailure(
                        "%s: no answer for %d s (%s). Its plan goes on alone, puts the host back, and keeps its samples: the next run of smt_benchmark "
                        "fetches them" % (host, LOST_SECONDS, error)
                    ) from error
                # What is kept open between calls leads nowhere.
                self._connection.reset()
                continue
            if told is not None and told != shown:
                display.display(f"{host}: {progress.line(told)}")
                shown = told

    def _look(self, directory):
        """Returns the plan's progress, or None before there is any, and whether its process is there."""
        answer = self._low_level_execute_command(f"cd {shlex.quote(directory)} && {LOOK}")
        told, _dummy, rest = answer.get("stdout", "")[:MOST_LOOKED_AT].partition("\n")
        return progress.parse(told), rest.strip() == "lives"

    def _status(self, task_vars, job_id):
        """What the plan's job says: how it ended, when it has, or how it failed."""
        try:
            return self._job(task_vars, "job_status", job_id)
        except HostFailed as failure:
            return failure.answer

    def _job(self, task_vars, kind, job_id):
        # As Ansible's own action async_status asks; that one takes its arguments from a task of its own.
        where = self.get_shell_option("async_dir", default="~/.ansible_async")
        return self.ask(kind, ASYNC_STATUS, {"jid": job_id, "mode": kind.partition("_")[2], "_async_dir": where}, task_vars)

    def _bring_home(self, task_vars, host, run, trouble=None):
        """Fetch a run, keep it on the controller, and only then let the host forget it."""
        directory = self._directory(run)
        try:
            document = self._step(task_vars, "collect", run=run)["result"]
        except HostFailed as failure:
            if trouble:
                raise HostFailed({"msg": f"{trouble} ({failure})"}) from failure
            raise
        result = results.accept(dict(document, host=host, collected=_now(), **({"message": text.showable(trouble)} if trouble else {})), host)
        if result["run"] != run:
            raise results.ResultError(f"{host}: it was asked for run {run} and sent run {result['run']}")
        path, _written = result_files.save(directory, result)
        self._step(task_vars, "forget", run=run)
        return dict(result, path=str(path))

    def _bring_home_earlier(self, task_vars, host, run):
        try:
            result = self._bring_home(task_vars, host, run)
        except (HostFailed, text.BorderError) as error:
            display.warning(f"{host}: the earlier run {run} stays on the host: {text.line(error)}")
        else:
            display.display(f"{host}: fetched {len(result['samples'])} samples of run {run}, which no controller had collected: {result['path']}")


def _now():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
