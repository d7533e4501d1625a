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
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import places, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import libraries, result_files, transport

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:
    # Before ansible-core 2.19 only what comes from YAML knows where it is from, and says so in another way.
    Origin = None

ARGUMENTS = {"run": {"type": "str"}, "dest": {"type": "path", "default": "smt_eval_results"}}

display = Display()


# Functions, because a test replaces what the modules say of their libraries.
def _of_answers() -> list[ImportError | None]:
    return [schema.MISSING_LIBRARY, text.MISSING_LIBRARY]


def _of_reports() -> list[ImportError | None]:
    return [paired.MISSING_LIBRARY, hardware_classes.MISSING_LIBRARY, charts.MISSING_LIBRARY]


class ActionModule(ControllerAction):
    """The action of smt_preflight; makes no call on any host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        evaluates = options["run"] is not None
        needed = [*_of_answers(), *(_of_reports() if evaluates else ())]
        missing = libraries.sentence("an evaluation with its report" if evaluates else "reading what hosts answer", needed)
        if missing:
            raise AnsibleActionFail(missing)
        self._check_variables(play)
        lost, reason = self._unreachable(play)
        refused = self._refused(options["dest"], options["run"], play["ansible_play_hosts_all"]) if evaluates else {}
        return {"changed": False, "unreachable_hosts": list(lost), "reason": reason, "refused": refused}

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
        return value, _place(value) or _place(name)


def _place(value: t.Any) -> str | None:
    """Return the file and line where a value was set, or another word for its origin; None if Ansible does not know it."""
    if Origin is None:
        path, line, _column = getattr(value, "ansible_pos", None) or (None, None, None)
    else:
        origin = Origin.get_tag(value)
        path, line = (origin.path or origin.description, origin.path and origin.line_num) if origin else (None, None)
    return f"{path}:{line}" if path and line else path
