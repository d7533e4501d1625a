# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out on the controller, before any connection, what it lacks: packages, usable variables, a place for results, the way to some hosts."""

from __future__ import annotations

import shutil
import typing as t

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import places, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import libraries, result_files, transport

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:
    # Before ansible-core 2.19 a value does not know where it is from.
    Origin = None

ARGUMENTS = {"run": {"type": "str"}, "dest": {"type": "path", "default": "smt_eval_results"}}

display = Display()


class ActionModule(ControllerAction):
    """The action of smt_preflight; makes no call on any host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        evaluates = options["run"] is not None
        if evaluates:
            self._check_libraries()
        self._check_variables(play)
        lost, reason = self._unreachable(play)
        refused = self._refused(options["dest"], options["run"], play["ansible_play_hosts_all"]) if evaluates else {}
        return {"changed": False, "unreachable_hosts": list(lost), "reason": reason, "refused": refused}

    @staticmethod
    def _check_libraries() -> None:
        """Fail without the packages that an evaluation needs; warn of what its report lacks without the recommended ones."""
        missing = libraries.sentence("an evaluation with its report", [paired.MISSING_LIBRARY, hardware_classes.MISSING_LIBRARY])
        if missing:
            raise AnsibleActionFail(missing)
        lacks = build.left_out()
        if lacks:
            display.warning(lacks)

    @staticmethod
    def _refused(dest: str, run: str, hosts: t.Iterable[str]) -> dict[str, str]:
        """Return the hosts whose results a run would overwrite, each with the sentence.

        Raises:
            AnsibleActionFail: no result can be written.
        """
        try:
            directory = places.run_directory(dest, run)
            result_files.see_that_it_can_be_written(directory)
        except text.BorderError as error:
            raise AnsibleActionFail(str(error)) from None
        refused: dict[str, str] = {}
        for host in hosts:
            try:
                result_files.see_that_none_exists(directory, str(host))
            except text.BorderError as error:
                refused[str(host)] = str(error)
        return refused

    def _unreachable(self, play: dict[str, t.Any]) -> tuple[dict[str, str], str | None]:
        """Return the hosts that cannot be reached, and one sentence about them all, which is also a warning."""
        # The default for hosts without a setting of their own: `--connection`, or the configuration.
        connection = self._task.connection or constants.config.get_config_value("DEFAULT_TRANSPORT")
        executable = constants.config.get_config_value("ssh_executable", plugin_type="connection", plugin_name="ssh")
        connections: list[transport.Connection] = []
        for host in play["ansible_play_hosts_all"]:
            known = play["hostvars"][host]
            connections.append(
                transport.Connection(host, str(known.get("ansible_connection") or connection), str(known.get("ansible_ssh_executable") or executable))
            )
        lost = transport.unreachable(connections, shutil.which)
        reason = transport.sentence(lost, len(connections))
        if reason:
            display.warning(reason)
        return lost, reason

    def _check_variables(self, task_vars: dict[str, t.Any]) -> None:
        """Fail, with a sentence for each, where variables are misspelt or have a value that cannot be used."""
        specs = variables.known()
        hosts = task_vars["ansible_play_hosts_all"]
        ours: dict[str, bool] = {}
        settings: list[variables.Setting] = []
        for host in hosts:
            of_host = task_vars["hostvars"][host]
            names = [name for name in of_host if ours.setdefault(name, variables.is_ours(name, specs))]
            settings += [variables.Setting(host, str(name), *self._value(lambda name=name, known=of_host: known[name], name)) for name in names]
        # Variables of the play, which no host has.
        first = task_vars["inventory_hostname"]
        of_play = [name for name in task_vars if name not in task_vars["hostvars"][first] and variables.is_ours(name, specs)]
        for name in of_play:
            value, where = self._value(lambda name=name: self._templar.template(task_vars[name]), name)
            settings += [variables.Setting(host, str(name), value, where) for host in hosts]
        found = variables.problems(settings, specs, len(hosts))
        if found:
            raise AnsibleActionFail("\n".join(found))

    @staticmethod
    def _value(get: t.Callable[[], t.Any], name: str) -> tuple[t.Any, str | None]:
        """Return a value, None where it needs something that is not known yet, and the place where it was set, None if unknown."""
        try:
            value = get()
        except AnsibleError:
            value = None
        origin = Origin and (Origin.get_tag(value) or Origin.get_tag(name))
        if not origin:
            return value, None
        line = f":{origin.line_num}" if origin.path and origin.line_num else ""
        return value, f"{origin.path or origin.description}{line}"
