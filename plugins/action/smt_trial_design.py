# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the design of a trial, announce it, and write it down before the first switch."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import OF_A_HOST
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.options.smt_trial_design import ARGUMENTS, RANGES
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    announcement,
    arm_states,
    directory,
    looking,
    overlap,
    settings,
)

# Between the design and the first period: Ansible starts a process for each host.
START_SECONDS = 10.0
START_SECONDS_A_HOST = 0.3
MAX_SEED = 2**31

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_trial_design; makes no call on any host."""

    once_for_all = True
    arguments = ARGUMENTS
    from_user = tuple({*ARGUMENTS} - {name.removeprefix("smt_trial_") for name in OF_A_HOST})

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Draw the design of a trial, announce it, and write it down before the first switch."""
        try:
            files = directory.TrialDirectory(places.run_directory(options.dest, options.run))
            files.see_that_none_exists()
            trial, longest = self._trial(options, play)
            for sentence in announcement.sentences(
                trial, longest, settings.guardrails(options.guardrails), options.check
            ):
                display.display(sentence)
            content = records.written(trial, 1)
            if not self._task.check_mode:
                files.create(content)
        except (design.DesignError, settings.TrialSettingsError, arm_states.ArmStateError, text.BorderError) as error:
            raise AnsibleActionFail(str(error)) from None
        begin = time.monotonic() + START_SECONDS + START_SECONDS_A_HOST * len(trial.design.schedule)
        digest = hashlib.sha256(content.encode("utf-8")).hexdigest()
        return {
            "changed": not self._task.check_mode,
            "begin": begin,
            "hosts": list(trial.design.schedule),
            "digest": digest,
        }

    def _trial(self, options: Options, play: dict[str, t.Any]) -> tuple[records.Trial, overlap.Longest]:
        """Return the trial that is asked for, and how far back its metrics count."""
        period = settings.whole("smt_trial_period", options.period, *RANGES["period"])
        settings.whole("smt_trial_check", options.check, *RANGES["check"])
        periods = settings.whole("smt_trial_periods", options.periods, *RANGES["periods"])
        before = options.periods_before if options.design == design.PARALLEL else 0
        if options.design == design.PARALLEL and not 1 <= before < periods:
            raise settings.TrialSettingsError(
                f"smt_trial_periods_before is {before}: it must be from 1 to one less than the {periods} periods of"
                " smt_trial_periods"
            )
        metrics = settings.metrics(options.metrics)
        traffic = options.traffic or None
        if traffic and traffic not in {metric.name for metric in metrics}:
            raise settings.TrialSettingsError(
                f"smt_trial_traffic is {text.line(traffic, 60)}, which is none of smt_trial_metrics"
            )
        members, longest, left_out = self._members(options.results, play)
        # A guardrail may look back further: it is about the service, not about one period.
        overlap.refuse(longest, period, options.settle)
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(MAX_SEED)
        arms = tuple(arm_states.names(options.arms, with_boots=options.design == design.PARALLEL))
        booted = [name for name in arms if catalogue.takes_reboot(name)]
        if booted and not options.reboot_ok:
            raise settings.TrialSettingsError(
                f"{' and '.join(booted)}: each host of such an arm would be rebooted into it and back: allow it with"
                " smt_boot_reboot_ok=true, or leave it out"
            )
        most = settings.most_switched(options.most_switched, len(members))
        drawn = design.draw(options.design, members, design.Wanted(arms, periods, before, most, seed))
        self._see_that_all_run_at_once(len(members), play)
        trial = records.Trial(
            run=options.run,
            created=looking.now(),
            compared=tuple(records.Arm(name, catalogue.get(name).title) for name in arms),
            metrics=tuple(metric.written for metric in metrics),
            traffic=traffic,
            guardrails=tuple(announcement.guardrail(limit) for limit in settings.guardrails(options.guardrails)),
            margin=options.margin,
            period_seconds=period,
            settle_seconds=options.settle,
            seed=seed,
            looks_back_seconds=longest.seconds,
            **records.of_design(dataclasses.replace(drawn, left_out={**left_out, **drawn.left_out})),
        )
        return trial, longest

    def _members(
        self, results: str, play: dict[str, t.Any]
    ) -> tuple[list[design.Member], overlap.Longest, dict[str, str]]:
        """Return the hosts that can take part, how far back their metrics count at most, and why others cannot."""
        members, left_out = [], {}
        longest = overlap.Longest(0, "")
        for host in play["ansible_play_hosts"]:
            described = self._user.registered(results, host) or {}
            obstacle = (
                _why_not_this_name(str(host))
                or described.get("obstacle")
                or (None if "online" in described else "nothing is known of it")
            )
            if obstacle:
                name = text.line(host, schema.MAX_NAME)
                left_out[name] = text.line(obstacle, records.MAX_SAID)
                display.display(f"{name} is left out: {left_out[name]}")
                continue
            group = self._user.value("smt_policy_group", host)
            members.append(
                design.Member(
                    str(host),
                    described["hardware_class"],
                    described["load"],
                    None if group is None else text.line(group, 200),
                )
            )
            longest = max(longest, overlap.Longest(**described["looks_back"]), key=lambda window: window.seconds)
        return members, longest, left_out

    @staticmethod
    def _see_that_all_run_at_once(hosts: int, play: dict[str, t.Any]) -> None:
        """Refuse fewer forks than hosts: a host whose turn comes late would miss its periods."""
        forks = int(play.get("ansible_forks") or 5)
        if forks < hosts:
            raise settings.TrialSettingsError(
                f"{hosts} hosts take part, and Ansible has {forks} forks: give it as many, with -f {hosts}"
            )


def _why_not_this_name(host: str) -> str | None:
    """Return why a host's name would be another one when it is read from a file, None where it would not."""
    if len(host) > schema.MAX_NAME:
        return f"its name has {len(host)} characters, more than {schema.MAX_NAME}"
    return None if "\n" not in host and text.showable(host) == host else "its name has characters that cannot be shown"
