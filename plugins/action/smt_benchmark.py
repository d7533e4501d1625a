# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the plan under async, show its progress, and fetch the result to the controller."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import pathlib
import shlex
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.threadwise.smt.plugins.module_utils._host.options.smt_benchmark import ARGUMENTS, RANGES
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.settings import BY_BOOTS
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import (
    command_line,
    intake,
    progress,
    terminal,
    time_limits,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.fetching import (
    MODULE,
    STATED,
    FetchingAction,
    report_call,
    say_left,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure import quiet
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan, evaluation, reboot, visit

ASYNC_STATUS = "ansible.legacy.async_status"
# The step that reads the host and starts nothing; a task that asks for it alone shows nothing either.
DESCRIBE = "describe"
# What this action alone reads of the task's options.
OF_THE_ACTION = ("probe", "progress", "wait_quiet", "_fails_later", *STATED, *BY_BOOTS)
# The most seconds that the measurement of siblings takes which an evaluation follows; it ends as soon as they are
# clear. Where there is nothing to place workers by without it, it takes longer; else only a part of the budget.
PROBE_SECONDS = 120
MOST_OF_BUDGET, USUAL_PROBE_SECONDS, LEAST_PROBE_SECONDS = 1 / 3, 30, 5
# Seconds between two looks whether a host has become quiet.
QUIET_LOOK_SECONDS = 10
# In a play of more hosts than this, each host gets one line before the start and one of progress.
FEW_HOSTS = 10
PROGRESS_OF_FEW = 3
PROGRESS_OF_MANY = 1
# What the task returns of a host's description, whether it measures or not.
ANNOUNCED = (
    "announcement",
    "arms",
    "arms_left_out",
    "workloads",
    "workloads_left_out",
    "missing_packages",
    "obstacles",
)
# Seconds between reads of the progress, one command on the host each: shorter intervals would disturb the measurement.
LOOK_SECONDS = 5
# RunDirectory writes boot id and process id as JSON, so the boot id is in quotes.
LOOK = """cat progress.json && echo && \\
test "\\"$(cat /proc/sys/kernel/random/boot_id)\\"" = "$(cat boot.json)" && \\
test -d "/proc/$(cat pid.json)" && echo lives"""
# Polls of the progress per query of Ansible's job status, which starts Python on the host.
LOOKS_PER_STATUS = 6
# Polls without the plan's process until it counts as lost: Ansible does not notice when both the plan and its wrapper
# are killed.
LOOKS_WITHOUT_PROCESS = 3
LOST = (
    "the plan ended without a word: its process was killed (kill -9, or out of memory), it crashed, or the host was"
    " restarted. What it had measured until then, if anything, is kept; start the evaluation again."
)
# Time limit for a plan's first progress on a busy host: before that a late plan cannot be distinguished from a lost
# one.
STARTING_SECONDS = 300
# Time limit of a single call on the host.
ANSWER_SECONDS = 60
# Time without an answer until a host counts as lost; its plan continues and restores the host. A large server takes
# minutes to restart.
LOST_SECONDS = 900
# A plan may exceed its budget by its last block and by restoring the host; only a plan that hangs takes longer than
# this.
EXTRA_SECONDS = 900
# Longest progress that is read from a host: a few hundred bytes are expected.
MAX_LOOKED_AT = 2 * progress.MAX_BYTES

display = terminal.Terminal()


# What workloads compile on the host, and the files of their servers, lie beside their declarations.
CODE = (".py", ".pyc")
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "module_utils" / "_measure" / "workloads" / "built_in"


def sources() -> dict[str, str]:
    """Return the text of each file that a workload needs on the host, by file name."""
    paths = (path for path in sorted(SOURCES.iterdir()) if path.is_file() and path.suffix not in CODE)
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


class ActionModule(FetchingAction):
    """The action of smt_benchmark."""

    # Seconds of the budget that were spent before the plan.
    _spent = 0
    # Of an evaluation by boots.
    _visit: visit.Visit | None = None

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the plan under async, show its progress, and fetch the result to the controller."""
        super().run(tmp, task_vars)
        later = bool(self._task.args.get("_fails_later"))
        try:
            result = self._evaluated(task_vars or {})
        except HostFailedError as failure:
            result = failure.answer
        except text.BorderError as error:
            result = {"failed": True, "changed": False, "msg": str(error)}
        except AnsibleConnectionFailure as error:
            if not later:
                raise
            result = {"failed": True, "changed": False, "msg": str(error), "unreachable_host": True}
        result["error"] = result["msg"] if result.get("failed") else None
        # The playbook builds the report of the other hosts first, and fails this one at its end.
        return (
            {name: value for name, value in result.items() if name not in ("failed", "exception")} if later else result
        )

    def _evaluated(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Evaluate the host, by boots where that is asked for, and return the task's result."""
        # Convert Ansible's tagged strings to plain ones for the schema.
        typed = {
            option: command_line.whole(name, self._task.args[option])
            for name, option in command_line.LINES.items()
            if self._task.args.get(option)
        }
        given = self._task.args = {**self._task.args, **typed}
        if not self._checked("boots")["boots"]:
            return self._evaluate(task_vars)
        why = boot_plan.without_boots(self._task.args.get("factors"), self._task.args.get("goal"))
        if why:
            raise HostFailedError({"msg": f"{why}, and boots is set: leave out one of the two; nothing was done"})
        checked = self._checked(*BY_BOOTS, "run", "arms", "budget", "siblings", "sample_seconds")

        def evaluate(**options: t.Any) -> dict[str, t.Any]:
            # The budget of each boot is its own.
            self._task.args, self._spent = {**given, **options}, 0
            return self._evaluate(task_vars)

        host, directory = str(task_vars["inventory_hostname"]), self.directory(checked["run"])
        asked = evaluation.Asked(host=host, directory=directory, check_mode=self._task.check_mode, **checked)
        calls = time_limits.Calls(self, task_vars)
        self._visit = visit.Visit(calls, "evaluation", asked.run, asked.reboot_timeout, self._wanted(host))
        return evaluation.EvaluationByBoots(asked, calls, self._visit, evaluate).run()

    def _wanted(self, host: str) -> reboot.Wanted:
        try:
            return reboot.wanted(self._user, host)
        except SlotError as error:
            raise HostFailedError({"msg": f"{host} was not rebooted: {error}"}) from None

    def _checked(self, *names: str) -> dict[str, t.Any]:
        """Return some options of the task as plain data of their types; raises HostFailedError."""
        validated = ArgumentSpecValidator({name: ARGUMENTS[name] for name in names}).validate(
            {name: self._task.args[name] for name in names if name in self._task.args}
        )
        if validated.error_messages:
            raise HostFailedError({"msg": "; ".join(validated.error_messages)})
        plain: dict[str, t.Any] = json.loads(json.dumps(validated.validated_parameters))
        return plain

    def _evaluate(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Measure, collect, and return the task's result."""
        host, run = json.loads(json.dumps([task_vars["inventory_hostname"], self._task.args.get("run")]))
        _see_that_it_is_read()
        # Check the destination first: a result that cannot be saved is not worth measuring.
        directory = self.directory(run)
        result_files.see_that_none_exists(directory, host)
        result_files.see_that_it_can_be_written(directory)
        lines = self._lines_of_progress(task_vars)
        self.stated()
        described = self._described(task_vars, host)
        announced = {key: parts.plain(getattr(described, key)) for key in ANNOUNCED}
        if self._task.args.get("_step") == DESCRIBE:
            return dict(announced, changed=False)
        self._announce(host, described.announcement, task_vars)
        is_kept = run in described.uncollected
        if is_kept:
            display.display(
                f"{text.line(host)}: run {run} was measured before, and no controller collected it: it is fetched, and"
                " nothing is measured again."
            )
        obstacles = [text.line(sentence, 2000) for sentence in described.obstacles]
        # In check mode nothing is installed, so what is missing now may be there when the plan runs.
        if not described.workloads and not self._task.check_mode:
            obstacles.append(
                "none of the workloads can be measured here:"
                f" {'; '.join(workload.reason for workload in described.workloads_left_out)}"
            )
        fetched = (
            []
            if self._task.check_mode
            else self._fetch_earlier(task_vars, host, sorted(set(described.uncollected) - {run}))
        )
        if obstacles and not is_kept:
            return dict(announced, changed=False, failed=True, msg=f"nothing was measured: {'; '.join(obstacles)}")
        if self._task.check_mode:
            return dict(announced, changed=False)
        if not is_kept:
            _see_that_it_is_read()
            self._begin(run, host)
        job = {} if is_kept else self._measured(task_vars, host, os.path.join(described.directory, run), lines)
        # The job's own answer: with a full disk the plan could not write down how it ended.
        error = job["msg"] if job.get("failed") else job.get("message")
        result, path = self.fetch(task_vars, host, run, directory, error, fetched)
        ended: dict[str, t.Any] = {
            "outcome": result.outcome,
            "restored": parts.plain(result.restored),
            "path": path,
        }
        if "exception" in job:
            ended["exception"] = job["exception"]
        switched = recorded.restored(result) if len(described.arms) > 1 else "Nothing was switched."
        return dict(
            announced,
            **ended,
            samples=len(result.samples),
            changed=False,
            failed=result.outcome != "completed",
            msg=f"{LOST} {switched}" if error == LOST else result.message or f"{len(result.samples)} samples: {path}",
        )

    def _described(self, task_vars: dict[str, t.Any], host: str) -> answers.Description:
        """Return the host's description, once it is quiet and its siblings are measured, as far as that is asked for.

        Raises:
            HostFailedError: the host does not become quiet, or its siblings cannot be measured.
        """
        probe = str(self._task.args.get("probe") or "never")
        # Siblings that are to be measured are, also where the kernel shows some: the host cannot be described before.
        measured = self._task.args.get("siblings") == "measured" and probe != "never"
        if measured:
            self._probe(task_vars, host, PROBE_SECONDS)
        described = self._step(task_vars, DESCRIBE, answers.Description)
        if described.obstacles or self._task.args.get("run") in described.uncollected:
            return described
        described = self._quiet(task_vars, host, described)
        if measured or not (probe == "always" or (probe == "auto" and described.hides_siblings)):
            return described
        share = self._budget() / self._shared_by()
        self._probe(
            task_vars, host, max(LEAST_PROBE_SECONDS, min(USUAL_PROBE_SECONDS, math.floor(share * MOST_OF_BUDGET)))
        )
        return described if self._task.check_mode else self._step(task_vars, DESCRIBE, answers.Description)

    def _probe(self, task_vars: dict[str, t.Any], host: str, seconds: int) -> None:
        """Measure which CPUs share a core; its time is a part of the budget."""
        display.display(
            f"{text.line(host)}: {'would measure' if self._task.check_mode else 'measuring'} which CPUs share a core,"
            f" for up to {seconds} s, before anything else (smt_eval_probe)."
        )
        begun = time.monotonic()
        self.ask(answers.ProbeAnswer, "smt_probe", {"mode": "always", "seconds": seconds}, task_vars)
        self._spent += math.ceil(time.monotonic() - begun)

    def _quiet(self, task_vars: dict[str, t.Any], host: str, described: answers.Description) -> answers.Description:
        """Wait until the host is quiet, as long as is asked for; return its description then.

        Raises:
            HostFailedError: it does not become quiet.
        """
        try:
            wait = quiet.seconds(self._task.args.get("wait_quiet") or 0)
        except quiet.QuietError as error:
            raise HostFailedError({"msg": str(error)}) from None
        # A task that only asks, and one in check mode, say that the host is busy.
        wait = 0 if self._task.check_mode or self._task.args.get("_step") == DESCRIBE else wait
        end = time.monotonic() + wait
        while wait and quiet.is_busy(described.busy):
            if time.monotonic() > end:
                raise HostFailedError(
                    {
                        "msg": (
                            f"nothing was measured: {host} did not become quiet in {wait:.0f} s (smt_eval_wait_quiet);"
                            f" other work still wants {100 * described.busy:.0f} % of its CPUs. Wait longer, end"
                            " that work, or leave out smt_eval_wait_quiet to measure all the same"
                        )
                    }
                )
            display.display(
                f"{text.line(host)}: waiting until it is quiet, for up to {max(0, end - time.monotonic()):.0f} s more:"
                f" other work wants {100 * described.busy:.0f} % of its CPUs."
            )
            terminal.wait_while_read(QUIET_LOOK_SECONDS)
            _see_that_it_is_read()
            if self._visit is not None:
                self._visit.renew()
            described = self._step(task_vars, DESCRIBE, answers.Description)
        return described

    def _lines_of_progress(self, task_vars: dict[str, t.Any]) -> int:
        """Return how many lines of progress a host gets.

        Raises:
            HostFailedError: the option is not valid.
        """
        wanted = self._task.args.get("progress")
        if wanted is None:
            return PROGRESS_OF_FEW if len(task_vars["ansible_play_hosts_all"]) <= FEW_HOSTS else PROGRESS_OF_MANY
        try:
            number = int(wanted)
        except (TypeError, ValueError):
            number = -1
        least, most = RANGES["progress"]
        if not least <= number <= most:
            raise HostFailedError(
                {"msg": (f"progress is {text.line(wanted, 40)}: it must be a number of lines from {least} to {most}")}
            )
        return number

    def _announce(self, host: str, sentences: t.Sequence[str], task_vars: dict[str, t.Any]) -> None:
        """Say before the start what will be done."""
        lines = [text.line(sentence) for sentence in sentences]
        if len(task_vars["ansible_play_hosts_all"]) > FEW_HOSTS:
            # Without the host's shape, which the report shows.
            lines = [" ".join(lines[1:])]
        for line in lines:
            display.display(f"{text.line(host)}: {line}")

    def _begin(self, run: str, host: str) -> None:
        """Record that the run begins on a host, and with the first one say how long it goes on."""
        if self.begins(run):
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self._budget() / self._shared_by())
            display.display(
                f"The plan goes on until about {end:%H:%M} UTC, also after Ctrl-C. To end it and restore the hosts: "
                "ansible-playbook threadwise.smt.smt_eval_stop, with the same options."
            )
        self.record(run, host)

    def _budget(self) -> int:
        """Return the seconds that the plan may take: the budget without what was measured before it."""
        asked = int(self._task.args.get("budget") or ARGUMENTS["budget"]["default"])
        return max(1, asked - self._spent * self._shared_by())

    def _shared_by(self) -> int:
        return int(self._task.args.get("shared_by") or 1)

    def _step(
        self,
        task_vars: dict[str, t.Any],
        step: str,
        kind: type[answers.Kind],
        how: t.Mapping[str, t.Any] | None = None,
        **arguments: t.Any,
    ) -> answers.Kind:
        """Call one step of the module on the host."""
        of_the_module = {name: value for name, value in self._task.args.items() if name not in OF_THE_ACTION}
        return self.ask(
            kind,
            MODULE,
            dict(of_the_module, budget=self._budget(), _step=step, **arguments),
            task_vars,
            **(how or {}),
        )

    def _measured(self, task_vars: dict[str, t.Any], host: str, directory: str, lines: int) -> dict[str, t.Any]:
        """Return the answer of the plan's job; say what becomes of the plan where the task ends before it."""
        try:
            return self._measure(task_vars, host, directory, lines)
        except BaseException as error:
            # Releases of Ansible have it in different places, and it is no Exception. By boots the host goes back when
            # the plan has ended.
            if type(error).__name__ != "TaskTimeoutError" or self._visit is not None:
                raise
            raise HostFailedError(
                {
                    "msg": (
                        f"{host}: the time limit of the task (its timeout, or ANSIBLE_TASK_TIMEOUT) came before the end"
                        " of the plan, which goes on and restores the host: allow more time than smt_eval_budget. To"
                        " end it now, and fetch its samples: ansible-playbook threadwise.smt.smt_eval_stop"
                    )
                }
            ) from None

    def _measure(self, task_vars: dict[str, t.Any], host: str, directory: str, lines: int) -> dict[str, t.Any]:
        """Start the plan and show its progress until it ends; return the job's answer."""
        self._task.async_val = self._budget() + EXTRA_SECONDS
        try:
            job_id = self._step(
                task_vars, "measure", answers.JobStarted, {"wrap_async": True}, _sources=sources()
            ).ansible_job_id
        finally:
            self._task.async_val = 0
        job = self._watch(task_vars, host, directory, job_id, progress.Shown(lines))
        with contextlib.suppress(HostFailedError):
            self._job(task_vars, parts.Answer, "cleanup", job_id)
        return job

    def _watch(
        self, task_vars: dict[str, t.Any], host: str, directory: str, job_id: str, shown: progress.Shown
    ) -> dict[str, t.Any]:
        """Show the progress of a job until it ends; return its answer."""
        begun = seen_at = alive_at = time.monotonic()
        # A host that always reports a running plan must not block the play.
        longest = self._budget() + EXTRA_SECONDS + LOST_SECONDS
        gone = 0
        look = 0
        ended = False
        while True:
            look += 1
            read = terminal.wait_while_read(LOOK_SECONDS)
            if time.monotonic() - begun > longest:
                raise HostFailedError(
                    {
                        "msg": (
                            f"{host}: its plan has not ended {longest} s after its start,"
                            f" {EXTRA_SECONDS + LOST_SECONDS} s over its budget. It continues without supervision: the"
                            " next run of smt_benchmark fetches its samples"
                        )
                    }
                )
            try:
                if not read and not ended:
                    # As a program ends whose reader is gone: nobody would come to know how it goes on.
                    with time_limits.within(ANSWER_SECONDS), contextlib.suppress(HostFailedError):
                        self.ask(answers.StopAnswer, "smt_benchmark_stop", {}, task_vars)
                    ended = True
                with time_limits.within(ANSWER_SECONDS):
                    seen, lives = self._look(directory)
                gone = 0 if lives else gone + 1
                alive_at = time.monotonic() if lives else alive_at
                if look % LOOKS_PER_STATUS == 0 or gone or seen is None or seen.phase == "ended":
                    with time_limits.within(ANSWER_SECONDS):
                        job = self._status(task_vars, job_id)
                    if job.get("finished") or job.get("failed"):
                        return job
                # After a restart Ansible's job status, if any, stays at running.
                if gone >= LOOKS_WITHOUT_PROCESS and (
                    seen is not None or time.monotonic() - alive_at > STARTING_SECONDS
                ):
                    return {"failed": True, "msg": LOST}
                seen_at = time.monotonic()
            except AnsibleConnectionFailure as error:
                if time.monotonic() - seen_at > LOST_SECONDS:
                    raise AnsibleConnectionFailure(
                        f"{host}: no answer for {LOST_SECONDS} s ({error}). Its plan continues, restores the host, and"
                        " saves its samples: the next run of smt_benchmark fetches them"
                    ) from error
                # A persistent connection is dead: open a new one.
                self._connection.reset()
                continue
            if seen is not None and shown.is_due(seen):
                display.display(f"{text.line(host)}: {progress.line(seen)}")

    def _look(self, directory: str) -> tuple[progress.Progress | None, bool]:
        """Return the plan's progress (None before the first one), and whether its process exists."""
        with intake.at_most(MAX_LOOKED_AT):
            answer = self._low_level_execute_command(f"cd {shlex.quote(directory)} && {LOOK}")
        written, _dummy, rest = answer.get("stdout", "")[:MAX_LOOKED_AT].partition("\n")
        return progress.parse(written), rest.strip() == "lives"

    def _status(self, task_vars: dict[str, t.Any], job_id: str) -> dict[str, t.Any]:
        """Return the status of the plan's job, or its failure."""
        try:
            status: dict[str, t.Any] = parts.plain(self._job(task_vars, answers.JobStatus, "status", job_id))
            return status
        except HostFailedError as failure:
            # What Ansible's wrapper and its status say of a job without an answer.
            is_lost = str(failure).startswith(("Traceback ", "could not find job", "Could not parse job output"))
            return {"failed": True, "msg": LOST} if is_lost else failure.answer

    def _job(self, task_vars: dict[str, t.Any], kind: type[answers.Kind], mode: str, job_id: str) -> answers.Kind:
        """Call async_status as Ansible's own action does, which reads its arguments from its own task."""
        where = self.get_shell_option("async_dir", default="~/.ansible_async")
        return self.ask(kind, ASYNC_STATUS, {"jid": job_id, "mode": mode, "_async_dir": where}, task_vars)

    def _fetch_earlier(self, task_vars: dict[str, t.Any], host: str, runs: list[str]) -> list[str]:
        """Fetch earlier runs and return the names of those that were; a failure is a warning."""
        fetched, left = self.fetch_waiting(task_vars, host, runs)
        for collected in fetched:
            display.display(
                f"{text.line(host)}: fetched {len(collected.result.samples)} samples of run {collected.result.run},"
                f" which no controller had collected: {collected.path}. Its report: {report_call(collected)}"
            )
        say_left(host, left)
        return [collected.result.run for collected in fetched]


def _see_that_it_is_read() -> None:
    """Raise HostFailedError where nobody reads what Ansible prints: nothing is begun for nobody."""
    if not terminal.is_read(terminal.STDOUT):
        raise HostFailedError({"msg": f"nothing was measured: {terminal.NOBODY_READS}"})
