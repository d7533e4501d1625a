# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a host's facts and compare them with its policy on the controller. Only the result is kept, not the facts."""

from __future__ import annotations

import datetime
import json
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import command_line
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import (
    HostAction,
    HostFailedError,
    Options,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.registered import why
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts, Slot
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis, rechecks
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import json_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance, Decision
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.errors import FleetError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "policy": {"type": "raw"},
    "scope": {"type": "str", "default": policy.RUNTIME},
    "classes": {"type": "raw"},
    "decisions": {"type": "str", "default": ""},
    "results": {"type": "str", "default": ""},
    "max_age": {"type": "int", "default": basis.MAX_AGE_DAYS},
    "memory": {"type": "dict"},
    "consumers": {"type": "dict"},
    "kubernetes": {"type": "bool", "default": False},
    "protect": {"type": "list", "elements": "str"},
    "sysroot": {"type": "path", "default": "/"},
    "unreachable": {"type": "list", "elements": "str"},
}
# Extra variable, so no fact of a host: a file for the result, by which the timer of the role smt_pull sees that its
# playbook came to a verdict.
STATUS_FILE = "__smt_pull_status_file"

# A reason of a result that cannot be used.
MAX_REASON = 300

# Ansible loads this once, and forks a process for each host.
parts.prepare(answers.FactsAnswer)


class ActionModule(HostAction):
    """The action of smt_status: one module call on the host, and another one for a memory policy."""

    says_undefined = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Read a host's facts and compare them with its policy on the controller."""
        super().run(tmp, task_vars)
        names = self._task.args.pop("variables", None) or {}
        if self._undefined is not None:
            names = {option: name for option, name in names.items() if option == "unreachable"}
        self._task.args = {**self._values(names, task_vars or {}), **self._task.args}
        options = self.validated(ARGUMENTS)
        host = (task_vars or {})["inventory_hostname"]
        now = datetime.datetime.now(datetime.UTC)
        try:
            # Who may differ is what the user wrote, and no fact of a host.
            waiver = waivers.parse(self._user.value(waivers.VARIABLE, host))
        except (waivers.WaiverError, AnsibleActionFail) as error:
            result = _refused(str(error))
        else:
            result = self._status(options, task_vars or {})
            found = result["compliance"].under(waiver, now)
            if not result.get("failed") and found.status is not Status.UNREACHABLE:
                found = parts.changed(found, checked=compliance.stamp(now))
            result["compliance"] = found
        wanted = self._user.extra.get(STATUS_FILE)
        if wanted is not None:
            judged = [(text.line(host), result["compliance"])]
            try:
                path = places.file(str(wanted), places.DOCUMENT)
                content = json_text.document(Check(judged, now, call=Call(*command_line.call(self._loader))))
                result_files.write_page(path, content, self._task.check_mode)
            except text.BorderError as error:
                raise AnsibleActionFail(f"smt_status: {error}") from None
        return {**result, "compliance": result["compliance"].described()}

    def _values(self, names: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the values of variables in the place of their names, without those that are not set or omitted."""
        values = {
            option: self._values(name, task_vars)
            if isinstance(name, dict)
            else self._user.templated(task_vars.get(name), task_vars)
            for option, name in names.items()
        }
        return {option: value for option, value in values.items() if value is not None}

    def _status(self, options: Options, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the task's result, whose `compliance` is an object."""
        host = task_vars["inventory_hostname"]
        is_gone = host in (options.unreachable or ())
        try:
            if self._undefined is not None:
                raise policy.PolicyError(self._undefined)
            scope = policy.scope(options.scope)
            value, classes = _plain(options.policy), _plain(options.classes)
            policy.check(value, classes)
        except FleetError as error:
            # Known without the host, which is not asked.
            return _gone(compliance.NOT_CONTACTED) if is_gone else _refused(str(error))
        wanted = policy.of_all_classes(value, classes)
        if is_gone:
            return _gone(compliance.NOT_CONTACTED, wanted)
        try:
            asked = {"sysroot": options.sysroot}
            facts = self.ask(answers.FactsAnswer, "smt_facts", asked, task_vars).ansible_facts.smt
            memory = self._memory(options, task_vars)
        except HostFailedError as failure:
            return {**failure.answer, "compliance": compliance.refused(why(failure.answer) or "", wanted=wanted)}
        except AnsibleConnectionFailure as error:
            return {**_gone(str(error), wanted), "unreachable": True, "msg": str(error)}
        return {
            "changed": False,
            "compliance": self._judge(host, facts, options, scope, memory),
            "threads_per_core": facts.threads_per_core.online_max,
        }

    def _judge(
        self, host: str, facts: Facts, options: Options, scope: str, memory: compliance.MemoryAspects | None
    ) -> Compliance:
        known = facts.hardware_class
        decided = self._user.registered(options.decisions, host) or {}
        decisions = (decided.get("by_path") or {}).get(options.results) or {}
        consumers = {**(options.consumers or {}), **({"kubelet": "restart"} if options.kubernetes else {})}
        try:
            desired = policy.desired_state(
                _plain(options.policy),
                _plain(options.classes),
                known,
                decisions.get("classes"),
                decisions.get("error"),
                facts.without_smt,
            )
        except policy.UndecidedError as error:
            without = _not_counted(decisions.get("refused") or [])
            return compliance.refused(f"{error}{without}", hardware_class=known, undecided=True)
        except FleetError as error:
            return compliance.refused(str(error), Status.BAD_POLICY, hardware_class=known)
        slot = self._slot(host, facts.reboot_slot) if facts.reboot_slot else None
        judged = compliance.judge(facts, desired, scope, memory, consumers, slot)
        if desired.decided_by:
            of_class = decisions["classes"][known]
            stale = rechecks.stale(of_class, facts, options.max_age)
            measure = rechecks.to_measure(host, of_class, facts, stale, options.max_age)
            decision = Decision(of_class["rests_on"], tuple(of_class["rechecks"]), tuple(stale), tuple(measure))
            return parts.changed(judged, decision=decision)
        return judged

    def _slot(self, host: str, slot: Slot) -> str:
        """Return the sentence about the slot for a reboot that a host says it holds."""
        try:
            of_user = reboot.wanted(self._user, host)
        except (SlotError, AnsibleActionFail):
            # Whatever reboots the host says so.
            of_user = reboot.NOTHING
        return reboot.held(of_user, host, slot)

    def _memory(self, options: Options, task_vars: dict[str, t.Any]) -> compliance.MemoryAspects | None:
        """Return the memory aspects of the result, or None without a memory policy."""
        if not options.memory and options.protect is None:
            return None
        arguments = dict(options.memory or {}, sysroot=options.sysroot)
        if options.protect is not None:
            arguments["protect"] = options.protect
        answer = self.ask(answers.MemoryFactsAnswer, "smt_memory_facts", arguments, task_vars)
        return compliance.memory_aspects(answer.ansible_facts.smt_memory)


def _refused(reason: str) -> dict[str, t.Any]:
    """Return the task's result for a policy that no host could have."""
    return {"changed": False, "compliance": compliance.refused(reason, Status.BAD_POLICY)}


def _gone(reason: str, wanted: str | None = None) -> dict[str, t.Any]:
    """Return the task's result for a host that cannot be reached."""
    return {"changed": False, "compliance": compliance.refused(reason, Status.UNREACHABLE, wanted=wanted)}


def _plain(value: t.Any) -> t.Any:
    """Convert a value to plain data without Ansible's tags and lazy containers; days of YAML become texts.

    Raises:
        PolicyError: it has keys that are no texts, or is not finite.
    """
    try:
        return None if value is None else json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise policy.PolicyError(f"the policy cannot be read: {text.line(error, 200)}") from None


def _not_counted(refused: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Return what is to be said of results that could not be used; empty without any."""
    if not refused:
        return ""
    first = text.line(f"{refused[0]['file']}: {refused[0]['reason']}", MAX_REASON)
    such = "" if len(refused) == 1 else "such as "
    return f" ({wording.counted(len(refused), 'result')} cannot be used: {such}{first})"
