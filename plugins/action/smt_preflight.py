# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out on the controller, before any connection, what it lacks: packages, usable variables, a place for results, the way to some hosts."""

from __future__ import annotations

import re
import shutil
import typing as t

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import libraries, places, result_files, transport

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:
    # Before ansible-core 2.19 only what comes from YAML knows where it is from, and says so in another way.
    Origin = None

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "run": {"type": "str"},
    "dest": {"type": "path", "default": "smt_eval_results"},
    "report": {"type": "dict", "default": {}},
    "serial": {"type": "str"},
}
# They decide which tasks a playbook has, which Ansible reads before it knows the hosts' variables.
EXTRA_VARIABLES = ("smt_eval_boots", "smt_eval_install", "smt_eval_sample", "smt_survey_probe")

display = Display()


class ActionModule(ControllerAction):
    """The action of smt_preflight; makes no call on any host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        evaluates = options["run"] is not None
        if evaluates:
            self._check_libraries()
        self._check_variables(play, evaluates)
        lost, reason = self._unreachable(play)
        found = {"changed": False, "unreachable_hosts": list(lost), "reason": reason}
        if not evaluates:
            return found
        self._check_destination(options["dest"], options["run"])
        # Returned for later plays: results of modules can become facts of a host, and facts take precedence over a host's inventory variables.
        at_once = self._at_once(options["serial"], len(play["ansible_play_hosts_all"]))
        return {**found, "run": options["run"], "dest": options["dest"], "report": options["report"], "at_once": at_once}

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
        found = re.fullmatch(r"([1-9][0-9]{0,5})(%?)", serial or "1")
        if not found or (found[2] and int(found[1]) > 100):
            raise AnsibleActionFail(f"smt_eval_serial is {text.line(serial, 40)}: it must be a number of hosts, 1 or more, or a share of them such as 10%")
        number = int(found[1])
        return 0 if serial is None else max(1, hosts * number // 100) if found[2] else number

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

    def _check_variables(self, task_vars: dict[str, t.Any], evaluates: bool) -> None:
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
        found += variables.boot_problems(settings, len(hosts)) if evaluates else []
        extra = load_extra_vars(self._loader)
        in_inventory = [name for name in EXTRA_VARIABLES if name not in extra and any(name in task_vars["hostvars"][host] for host in hosts)]
        found += [
            f"{name} is set in the inventory: it has to be an extra variable (-e {name}=...), because it decides which tasks there are" for name in in_inventory
        ]
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
