# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the compliance of a play's hosts and write it to files on the controller."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

display = Display()

FORMATS = {"json": compliance_report.document, "metrics": compliance_report.metrics, "page": compliance_report.page}
ARGUMENTS: dict[str, dict[str, t.Any]] = {"results": {"type": "str", "required": True}, **{name: {"type": "path"} for name in FORMATS}}


class ActionModule(ControllerAction):
    """The action of smt_compliance; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(FORMATS)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do what the task is for."""
        judged = [(host, compliance.from_registered(self._user.registered(options["results"], host))) for host in sorted(play["ansible_play_hosts_all"])]
        for line in compliance_report.table(judged):
            display.display(line)
        now = datetime.datetime.now(datetime.UTC)
        changed = {options[name]: self._write(options[name], make(judged, now)) for name, make in FORMATS.items() if options[name]}
        if changed and not self._task.check_mode:
            display.display(f"The files: {', '.join(str(places.file(path)) for path in changed)}")
        return {
            "changed": any(changed.values()),
            "files": list(changed),
            "compliant": not compliance_report.exit_worthy(judged),
            "counts": compliance_report.counts(judged),
            "summary": compliance_report.sentence(judged),
        }

    def _write(self, dest: str, text: str) -> bool:
        """Write a file, but not in check mode; return whether anything but its times changes."""
        try:
            return result_files.write_page(places.file(dest), text, self._task.check_mode)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_compliance: {error}") from None
