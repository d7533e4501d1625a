# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the compliance of a play's hosts and write it to files on the controller."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, compliance_report

display = terminal.Terminal()

# Option -> what makes the text of its file, and how the file's name has to end.
FORMATS = {
    "json": (compliance_report.document, places.DOCUMENT),
    "metrics": (compliance_report.metrics, places.METRICS),
    "page": (compliance_report.page, places.PAGE),
}
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    **{name: {"type": "path"} for name in FORMATS},
}


class ActionModule(ControllerAction):
    """The action of smt_compliance; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(FORMATS)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show the compliance of a play's hosts and write it to files on the controller."""
        judged = [
            (text.line(host), compliance.from_registered(self._user.registered(options["results"], host)))
            for host in sorted(play["ansible_play_hosts_all"])
        ]
        for line in compliance_report.table(judged):
            display.display(line)
        now = datetime.datetime.now(datetime.UTC)
        try:
            # All of them before the first is written.
            paths = {
                name: places.file(options[name], suffixes)
                for name, (_make, suffixes) in FORMATS.items()
                if options[name]
            }
            changed = [
                result_files.write_page(path, FORMATS[name][0](judged, now), self._task.check_mode)
                for name, path in paths.items()
            ]
        except text.BorderError as error:
            raise AnsibleActionFail(f"smt_compliance: {error}") from None
        if paths and not self._task.check_mode:
            display.display(f"The files: {', '.join(map(str, paths.values()))}")
        return {
            "changed": any(changed),
            "files": [options[name] for name in paths],
            "compliant": not compliance_report.exit_worthy(judged),
            "counts": compliance_report.counts(judged),
            "summary": compliance_report.sentence(judged),
        }
