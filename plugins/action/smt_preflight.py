# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out on the controller, before any connection, what it lacks: packages, usable variables, a place for results,
the way to some hosts.
"""

from __future__ import annotations

import datetime
import itertools
import os
import pathlib
import re
import shutil
import typing as t

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import command_line, terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import (
    COLLECTION,
    ControllerAction,
    Options,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import (
    OF_A_HOST,
    Variables,
    is_for_all,
    place,
    unknown,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep import earlier_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import transport, variables

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "run": {"type": "str"},
    "dest": {"type": "path", "default": "smt_eval_results"},
    "report": {"type": "dict", "default": {}},
    "serial": {"type": "str"},
    "replaces": {"type": "list", "elements": "path", "default": []},
    "answers": {"type": "dict", "default": {}},
    "history": {"type": "path"},
    "needs": {"type": "list", "elements": "str", "default": []},
    "contacts_hosts": {"type": "bool", "default": True},
    "all_of": {"type": "str"},
}
# They decide which tasks a playbook has, which Ansible reads before it knows the hosts' variables.
EXTRA_VARIABLES = (
    "smt_compliance_source",
    "smt_compliance_usage_seconds",
    "smt_eval_boots",
    "smt_eval_install",
    "smt_eval_sample",
    "smt_survey_probe",
    "smt_survey_usage_seconds",
)
MAX_ORIGIN = 500
# What a file says until the play has written it.
UNFINISHED = "This call has not come to an answer: it is under way, or was ended."
# Of documentation, such as V(this).
_MARKUP, _INSIDE = re.compile(r"\b[A-Z]\((.*?)\)"), r"\1"

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_preflight; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)
    once_for_all = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task; its failure is a result, of which a playbook can make another exit code than that of hosts,
        and what the files say that the play would have written.
        """
        try:
            return super().run(tmp, task_vars)
        except AnsibleActionFail as error:
            reasons = [str(error)]
            # They may be what failed, or not be known yet, as where all hosts are refused.
            try:
                here = (task_vars or {})["inventory_hostname"]
                self._answer(self._user.arguments(["answers"], here).get("answers") or {}, reasons[0])
            except AnsibleActionFail as second:
                reasons += [str(second)] if str(second) not in reasons[0] else []
            return {"failed": True, "changed": False, "msg": "\n".join(reasons)}

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Fail with the controller's obstacles in one message; warn of what a report will lack."""
        if self._is_left_out(play):
            return {"changed": False, "skipped": True, "skip_reason": "the tags of this call leave out the play"}
        try:
            earlier_files.remove(options.replaces, self._task.check_mode)
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None
        self._answer(options.answers, UNFINISHED)
        self._check_tags(play)
        if options.history:
            self._check_history(options.history)
        evaluates = options.run is not None
        self._check_libraries(evaluates)
        # Only what the user wrote is looked at: a host that says of itself what is a setting fails alone, at its first
        # task.
        written = {host: self._user.variables_of(host) for host in self._user.hosts if self._user.refusal(host) is None}
        self._check_variables(written, play, evaluates, options.needs)
        lost, reason = self._unreachable(written) if options.contacts_hosts else ({}, None)
        result = {"changed": False, "unreachable_hosts": list(lost), "reason": reason}
        if not evaluates:
            return result
        self._check_destination(options.dest, options.run)
        # Returned for later plays: results of modules can become facts of a host, and facts take precedence over a
        # host's inventory variables.
        at_once = self._at_once(options.serial, len(self._user.hosts))
        return {
            **result,
            "run": options.run,
            "dest": options.dest,
            "report": options.report,
            "at_once": at_once,
        }

    def _is_left_out(self, play: dict[str, t.Any]) -> bool:
        """Return whether the user's playbook imports this one, and its call leaves out all tasks but this one."""
        return not self._is_called() and not self._is_chosen(play)

    def _check_tags(self, play: dict[str, t.Any]) -> None:
        """Refuse a call whose tags leave out all tasks but this one, which would succeed without doing anything.

        Raises:
            AnsibleActionFail: they do.
        """
        if self._is_called() and not self._is_chosen(play):
            name = pathlib.Path(self._file()).stem
            raise AnsibleActionFail(
                f"{name} has no tags, so the tags of this call leave out all that it does: call it without --tags and"
                f" --skip-tags (and without TAGS_RUN and TAGS_SKIP in Ansible's configuration), or import it in a"
                " playbook of your own and give the import tags"
            )

    def _is_chosen(self, play: dict[str, t.Any]) -> bool:
        """Return whether the tags of the call choose the other tasks of the play, which have those of the play."""
        of_play = self._task.get_play()
        # The block around the task has the tags of the play, and not the task's own.
        return bool(self._task._parent.evaluate_tags(of_play.only_tags, of_play.skip_tags, all_vars=play))

    def _is_called(self) -> bool:
        """Return whether the call names this playbook itself, and not one that imports it."""
        own = os.path.realpath(self._file())
        return any(
            os.path.realpath(named) == own or named.removesuffix(".yml") == f"{COLLECTION}{pathlib.Path(own).stem}"
            for named in context.CLIARGS.get("args") or ()
        )

    def _file(self) -> str:
        """Return the path of the playbook."""
        return str(self._task.get_path()).rpartition(":")[0]

    def _answer(self, files: t.Mapping[str, t.Any], reason: str) -> None:
        """Have the files of a check say why there is none.

        Raises:
            AnsibleActionFail: one of them is none of this collection's, or cannot be written.
        """
        try:
            earlier_files.answer(files, reason, self._loader, self._task.check_mode)
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None

    def _check_history(self, directory: str) -> None:
        """Refuse a history of checks to which this one could not be added.

        Raises:
            AnsibleActionFail: a file of it cannot be read, or has a later check.
        """
        try:
            now = datetime.datetime.now(datetime.UTC)
            checks.see_that_it_can_be_kept(places.directory(directory), now, self._task.check_mode)
        except text.BorderError as error:
            raise AnsibleActionFail(f"smt_compliance_history: {error}") from None

    @staticmethod
    def _check_libraries(evaluates: bool) -> None:
        """Fail without the packages that this play needs;
        warn of what the report of an evaluation lacks without the recommended ones.
        """
        purpose = "an evaluation with its report" if evaluates else "validating hosts' answers"
        missing = libraries.sentence(purpose, [schema.MISSING_LIBRARY])
        if missing:
            raise AnsibleActionFail(missing)
        lacks = registry.left_out() if evaluates else None
        if lacks:
            display.warning(lacks)

    @staticmethod
    def _check_destination(dest: str, run: str) -> None:
        """Refuse a run that cannot be saved.

        Raises:
            AnsibleActionFail: its name is not valid, or its results cannot be written.
        """
        try:
            result_files.see_that_it_can_be_written(places.run_directory(dest, run))
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None

    @staticmethod
    def _at_once(serial: str | None, hosts: int) -> int:
        """Return how many hosts are evaluated at a time, 0 for as many as Ansible has forks.

        Raises:
            AnsibleActionFail: it is neither a number nor a share.
        """
        match = re.fullmatch(r"([1-9][0-9]{0,5})(%?)", serial or "1")
        if not match or (match[2] and int(match[1]) > 100):
            raise AnsibleActionFail(
                f"smt_eval_serial is {text.line(serial, 40)}: it must be a number of hosts, 1 or more, or a share of"
                " them such as 10%"
            )
        number = int(match[1])
        return 0 if serial is None else max(1, hosts * number // 100) if match[2] else number

    def _unreachable(self, written: t.Mapping[str, Variables]) -> tuple[dict[str, str], str | None]:
        """Return the hosts that cannot be reached, and one sentence about them all, which is also a warning."""
        # The default for hosts without a setting of their own: `--connection`, or the configuration.
        default = {
            "ansible_connection": self._task.connection or constants.config.get_config_value("DEFAULT_TRANSPORT"),
            "ansible_ssh_executable": constants.config.get_config_value(
                "ssh_executable", plugin_type="connection", plugin_name="ssh"
            ),
        }
        connections: list[transport.Connection] = []
        for host, of_host in written.items():
            known = {
                name: self._user.templated(of_host[name], of_host) if name in of_host else None for name in default
            }
            connections.append(transport.Connection(host, *(str(known[name] or default[name]) for name in default)))
        lost = transport.unreachable(connections, shutil.which)
        reason = transport.sentence(lost, len(connections))
        if reason:
            display.warning(reason)
        return lost, reason

    def _check_variables(
        self, written: t.Mapping[str, Variables], play: dict[str, t.Any], evaluates: bool, needs: t.Sequence[str]
    ) -> None:
        """Fail, with a sentence for each, where variables are misspelt or have a value that cannot be used."""
        specs = variables.known()
        # Each name once: a fleet has the same ones at most of its hosts.
        every = set(itertools.chain.from_iterable(written.values()))
        ours = {name for name in every if variables.is_ours(name, specs)}
        of_hosts: list[variables.Setting] = []
        settings: list[variables.Setting] = []
        problems: list[str] = []
        origins: dict[str, list[str]] = {}
        for host, of_host in written.items():
            names = [name for name in of_host if name in ours]
            of_hosts += [variables.Setting(host, name, of_host[name]) for name in names]
            for name in names:
                settings.append(variables.Setting(host, str(name), *self._value(of_host, name, problems)))
                origins.setdefault(f"{name} is from {self._user.origin(name, of_host[name], of_host)}", []).append(host)
        # Variables of the play, which no host has.
        first = self._user.first_of_all()
        around = self._user.around(first)
        for name in (
            name for name in self._user.of_play if name not in written[first] and variables.is_ours(name, specs)
        ):
            value, where = self._value(around, name, problems)
            settings += [variables.Setting(host, str(name), value, where) for host in written]
            origins.setdefault(f"{name} is from {self._user.origin(name, around[name], written[first])}", list(written))
        # Ansible itself works these out, with the facts of hosts.
        by_ansible = {**around, "hostvars": play["hostvars"]}
        problems += [
            unknown(name, "the facts of a host give it another value")
            for name in (*(name for name in specs if name.endswith("_hosts")), "smt_enforce_max_fail_percentage")
            if name in self._user.of_play
            and self._value({**by_ansible, "vars": by_ansible}, name, [])[0] != self._value(around, name, [])[0]
        ]
        for sentence, hosts in sorted(origins.items()):
            display.v(text.line(f"{sentence} [{len(hosts)} of {len(self._user.hosts)} hosts]", MAX_ORIGIN))
        problems = list(dict.fromkeys(problems)) + variables.problems(settings, specs, len(written))
        problems += variables.differing(of_hosts, list(written))
        problems += [
            f"{name} has to be set (-e {name}=...): {_MARKUP.sub(_INSIDE, specs[name]['description'][0])}"
            for name in needs
            if all(setting.name != name for setting in settings)
        ]
        problems += variables.boot_problems(settings, len(written)) if evaluates else []
        problems += variables.slot_problems(settings, len(written))
        in_inventory = [
            name
            for name in EXTRA_VARIABLES
            if name not in self._user.extra and any(name in of_host for of_host in written.values())
        ]
        problems += [
            f"{name} is set in the inventory: it has to be an extra variable (-e {name}=...), because it decides which"
            " tasks there are"
            for name in in_inventory
        ]
        if problems:
            raise AnsibleActionFail("\n".join(problems))

    def _value(self, known: Variables, name: str, problems: list[str]) -> tuple[t.Any, str | None]:
        """Return a value, None where it needs something that is not known yet, and the place where it was set,
        None if unknown.

        What decides on the controller has to be known: a sentence about one that is not is added to what was found.
        """
        try:
            value = self._user.templated(known[name], known)
            if name in command_line.LINES:
                value = command_line.whole(name, value)
        except AnsibleError as error:
            value = None
            # What Ansible says of a template that fails repeats it, and it may be a credential.
            if is_for_all(name) and name not in (*OF_A_HOST, *variables.ACCESS, *variables.JUDGED_PER_HOST):
                problems.append(unknown(name, error))
        return value, place(value) or place(name)
