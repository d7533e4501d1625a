# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the facts of the play's hosts as a table and write them to a page on the controller."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.registered import why
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, survey
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use

display = terminal.Terminal()

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    "usage": {"type": "str"},
    "not_contacted": {"type": "list", "elements": "str", "default": []},
    "dest": {"type": "path", "required": True},
}


class ActionModule(ControllerAction):
    """The action of smt_survey; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("dest",)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show the facts of the play's hosts as a table and write them to a page on the controller."""
        rows = [self._row(host, options) for host in sorted(play["ansible_play_hosts_all"])]
        for line in survey.table(rows):
            display.display(line)
        return {
            "changed": self._write(options.dest, rows),
            "dest": options.dest,
            "summary": survey.sentence(rows),
        }

    def _row(self, host: str, options: Options) -> survey.Row:
        if host in options.not_contacted:
            return survey.unreached(host, compliance.NOT_CONTACTED)
        facts = self.facts(options.results, host)
        if facts is None:
            reason = why(self.registered(options.results, host))
            return survey.unreached(host, reason or "it was not checked: an earlier task failed on it")
        usage = self.registered(options.usage, host) if options.usage else {}
        return survey.looked_at(survey.row(host, facts), cores_in_use.if_looked(host, usage, facts))

    def _write(self, dest: str, rows: t.Sequence[survey.Row]) -> bool:
        """Write the page, but not in check mode, and show its path; return whether anything but its time changes."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        try:
            path = places.file(dest, places.PAGE)
            changed = result_files.write_page(path, survey.page(rows, now), self._task.check_mode)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_survey: {error}") from None
        if not self._task.check_mode:
            display.display(f"The page: {path}")
        return changed
