# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the compliance of a play's hosts and write it to files on the controller."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import command_line, terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, compliance_report, cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import checks

display = terminal.Terminal()

FORMATS = registry.formats()
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    "usage": {"type": "str"},
    "history": {"type": "path"},
    **{name: {"type": "path"} for name in FORMATS},
}
# The custom statistic with the numbers of hosts, as `set_stats` makes one, for AWX and ansible-runner.
STATISTIC = "smt_compliance_counts"


class ActionModule(ControllerAction):
    """The action of smt_compliance; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("history", *FORMATS)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show the compliance of a play's hosts and write it to files on the controller."""
        judged = [
            (text.line(host), compliance.from_registered(self._user.registered(options["results"], host)))
            for host in sorted(play["ansible_play_hosts_all"])
        ]
        looks = {
            text.line(host): cores_in_use.if_looked(host, self._user.registered(options["usage"], host))
            for host in play["ansible_play_hosts_all"]
            if options["usage"]
        }
        left_out = [text.line(host) for host in self._user.other_hosts()]
        for line in compliance_report.table(judged, left_out):
            display.display(line)
        now, call = datetime.datetime.now(datetime.UTC), Call(*command_line.call(self._loader))
        try:
            # All of them before the first is written.
            paths = {name: places.file(options[name], one.suffixes) for name, one in FORMATS.items() if options[name]}
            changed = [
                result_files.write_page(
                    path,
                    FORMATS[name].make(Check(judged, now, left_out, call, result_files.read_text(path), looks)),
                    self._task.check_mode,
                )
                for name, path in paths.items()
            ]
            if paths and not self._task.check_mode:
                display.display(f"The files: {', '.join(map(str, paths.values()))}")
            # What it found is in them, also where this cannot be kept.
            if options["history"]:
                statuses = {host: result["status"] for host, result in judged}
                checks.add(places.directory(options["history"]), statuses, left_out, now, self._task.check_mode)
        except text.BorderError as error:
            raise AnsibleActionFail(f"smt_compliance: {error}") from None
        counts = compliance_report.counts(judged)
        return {
            "changed": any(changed),
            "files": [options[name] for name in paths],
            "compliant": not compliance_report.exit_worthy(judged),
            "counts": counts,
            "summary": compliance_report.sentence(judged, left_out),
            "ansible_stats": {"data": {STATISTIC: counts}, "per_host": False, "aggregate": False},
        }
