# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's evaluation by boots: everything is checked before the first reboot, each boot is measured as an evaluation
of its own, and the host goes back whatever happens.

Results are combined and saved after each boot, so that they are kept where the host does not come back from the next.
"""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as names_of_arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import Arm
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal, time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import BootArgsAnswer, FactsAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import boot_plan, boot_results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.reboot import SwitchError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.visit import MIN_SECONDS, OWN, Visit

# Of each boot while `auto` chooses the length of a sample: verdicts come from all boots together, and each one is
# measured alike.
SAMPLE_SECONDS = 0.5

# Why a boot, or going back, ends in an error; Ansible's own errors are among them, as of a module that finds no room.
FAILURES = (SwitchError, HostFailedError, text.BorderError, time_limits.HostLostError, AnsibleError)

display = terminal.Terminal()


@dataclasses.dataclass(frozen=True)
class Asked:
    """What an evaluation by boots is asked for.

    Attributes:
        host: its name.
        directory: of the run on the controller.
        check_mode: whether only the checks are made.
        others: the options of smt_benchmark.
    """

    host: str
    directory: Path
    check_mode: bool
    run: str
    arms: list[t.Any]
    boots: int
    budget: int
    reboot_ok: bool
    reboot_timeout: int
    allow_mitigations_off: bool
    siblings: t.Any
    sample_seconds: str


class Evaluate(t.Protocol):
    """Evaluates the host as it is, or only describes it, with these options in place of the task's;
    returns the result of that task and raises its errors.
    """

    def __call__(self, **options: t.Any) -> dict[str, t.Any]: ...


class EvaluationByBoots:
    """The evaluation of a host.

    Args:
        asked: what for.
        calls: to the host.
        visit: of the host.
        evaluate: measures a boot.
    """

    def __init__(self, asked: Asked, calls: time_limits.Calls, visit: Visit, evaluate: Evaluate) -> None:
        self._asked, self._calls, self._visit, self._evaluate = asked, calls, visit, evaluate
        self._measured: list[boot_results.BootResult] = []

    def run(self) -> dict[str, t.Any]:
        """Evaluate the host, or in check mode see that it can be; return the result of the task.

        Raises:
            HostFailedError: it was not rebooted, and the reason.
            BorderError: a result is not valid, or cannot be written.
            AnsibleConnectionFailure: the host cannot be reached, and goes back by itself.
        """
        try:
            described = self._prepare()
        except time_limits.HostLostError as error:
            raise AnsibleConnectionFailure(str(error)) from error
        if self._asked.check_mode:
            display.display(f"{text.line(self._asked.host)}: {text.line(' '.join(described['announcement']), 4000)}")
            return described
        with time_limits.until_ended():
            try:
                return {**described, **self._back(self._measure())}
            except BaseException:
                # A measurement that goes on is not disturbed: the host waits for its end.
                self._visit.leave()
                raise

    def _prepare(self) -> dict[str, t.Any]:
        """Make all checks and the plan; return what is said of the host before the first reboot."""
        asked = self._asked
        self._plan = self._planned({})
        if asked.siblings != "kernel":
            self._refuse(
                f"smt_eval_boots is {asked.boots}, and smt_eval_siblings is not kernel. Boot arguments switch the"
                " siblings that the kernel knows: leave smt_eval_siblings out, or set smt_eval_boots=0"
            )
        baseline = self._plan.booted[0]
        described = self._evaluate(**self._options_of(baseline), _step="describe")
        without = described["workloads_left_out"]
        obstacles = [text.line(sentence, 2000) for sentence in described["obstacles"]]
        # In check mode nothing is installed, so what is missing now may be there when the plan runs.
        if not (described["workloads"] or obstacles or asked.check_mode):
            obstacles = ["None of the workloads can be measured here"]
        if obstacles:
            self._refuse("; ".join([*obstacles, *(workload["reason"] for workload in without)]))
        for workload in without:
            display.display(
                text.line(f"{asked.host}: the workload {workload['name']} is left out: {workload['reason']}", 2000)
            )
        self._before = self._facts()
        measured = (baseline.name, names_of_arms.AS_FOUND)
        left_out = {arm["name"]: arm["reason"] for arm in described["arms_left_out"] if arm["name"] not in measured}
        cannot = {**dict(self._cannot()), **left_out}
        self._mitigations = [self._own_mitigations()]
        # Only what this collection sets can be removed without a trace.
        self._visit.check(OWN)
        self._plan = self._planned(cannot)
        within = described["announcement"] if self._plan.within[1:] else []
        return {
            **described,
            "announcement": [*boot_plan.announcement(self._plan, asked.budget), *within],
            "arms": parts.plain(self._plan.arms),
            "arms_left_out": parts.plain(self._plan.left_out),
        }

    def _planned(self, cannot: t.Mapping[str, str]) -> boot_plan.BootPlan:
        asked = self._asked
        allowed = ["smt_eval_allow_mitigations_off"] if asked.allow_mitigations_off else []
        try:
            names = boot_plan.names(asked.arms)
            reason = boot_plan.refusal(names, asked.boots, asked.reboot_ok, allowed)
            if reason is None:
                return boot_plan.make(names, asked.boots, cannot)
        except boot_plan.BootPlanError as error:
            reason = str(error)
        return self._refuse(reason)

    def _refuse(self, reason: str) -> t.NoReturn:
        raise HostFailedError({"msg": f"{self._asked.host} was not rebooted: {reason}"})

    def _cannot(self) -> t.Iterator[tuple[str, str]]:
        """Yield the booted arms that the host cannot have, with the reason."""
        for arm in self._plan.booted:
            try:
                self._boot_args(arm.boot.options)
            except HostFailedError as failure:
                yield arm.name, str(failure)

    def _facts(self) -> Facts:
        return self._calls.ask(FactsAnswer, "smt_facts", {}, MIN_SECONDS).ansible_facts.smt

    def _own_mitigations(self) -> list[str]:
        return list(self._boot_args(OWN).mitigations_running)

    def _boot_args(self, options: t.Mapping[str, str]) -> BootArgsAnswer:
        return self._calls.ask(BootArgsAnswer, "smt_boot_args", dict(options), MIN_SECONDS, check_mode=True)

    def _options_of(self, arm: Arm) -> dict[str, t.Any]:
        """Return the options of smt_benchmark for the boots of an arm; verdicts come from all boots together."""
        return {
            "arms": self._plan.measured_in(arm.name),
            "budget": boot_plan.share(self._plan, self._asked.budget),
            "goal": "precision",
        }

    def _measure(self) -> str | None:
        """Boot and measure; return why it ended early, None where it did not."""
        order, asked = self._plan.order, self._asked
        sample_seconds = SAMPLE_SECONDS if asked.sample_seconds == "auto" else asked.sample_seconds
        for number, name in enumerate(order, 1):
            arm = self._plan.arm(name)
            where = f"boot {number} of {len(order)}, {name}"
            if not terminal.is_read(terminal.STDOUT):
                return f"{where}: {terminal.NOBODY_READS}"
            display.display(f"{text.line(asked.host)}: {where}.")
            try:
                self._visit.enter(arm.boot.options, MIN_SECONDS + asked.reboot_timeout)
                ended = self._evaluate(
                    **self._options_of(arm),
                    run=f"{asked.run}-boot-{number}",
                    dest=str(asked.directory / "boots"),
                    sample_seconds=sample_seconds,
                    # Once before the first boot.
                    probe="never",
                )
                error = ended["msg"] if ended.get("failed") else None
            except FAILURES as failure:
                error = str(failure)
            try:
                self._keep(number, name)
                self._save(error)
            except text.BorderError as failure:
                error = error or str(failure)
            if error is not None:
                return f"{where}: {error}"
        return None

    def _keep(self, number: int, arm: str) -> None:
        """Take what was measured in a boot; one without any measurement has no file."""
        asked = self._asked
        name = f"{result_files.file_stem(asked.host)}.json"
        path = asked.directory / "boots" / f"{asked.run}-boot-{number}" / name
        if path.exists():
            self._measured.append(boot_results.BootResult(number, arm, result_files.load(path)))

    def _save(self, error: str | None, after: Facts | None = None) -> dict[str, t.Any]:
        """Combine what was measured so far, and save it; return what the task's result has of it."""
        saved: dict[str, t.Any] = {"path": None, "samples": 0, "restored": None, "outcome": "failed"}
        if self._measured:
            joined = boot_results.join(
                self._asked.run, self._measured, self._plan, self._before, after, error, self._mitigations
            )
            path, _written, _result = result_files.save(self._asked.directory, joined)
            saved = {"path": str(path), "samples": len(joined["samples"])}
            saved.update({name: joined[name] for name in ("restored", "outcome")})
        return {**saved, "changed": False}

    def _back(self, error: str | None) -> dict[str, t.Any]:
        """Put the host back, and return the task's result."""
        after, is_lost = None, False
        try:
            display.display(f"{text.line(self._asked.host)}: back to its own boot arguments.")
            self._visit.back()
            after = self._facts()
            self._mitigations.append(self._own_mitigations())
        except FAILURES as failure:
            is_lost = isinstance(failure, time_limits.HostLostError)
            error = "; ".join(filter(None, (error, f"back to its own boot arguments: {failure}")))
        ended = self._save(error, after)
        if is_lost:
            raise AnsibleConnectionFailure(f"{self._asked.host}: {error}. It goes back by itself")
        message = error or f"{ended['samples']} samples: {ended['path']}"
        return {**ended, "failed": ended["outcome"] != "completed", "msg": message}
