# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the compliance of a play's hosts and write it to files on the controller."""

from __future__ import annotations

import datetime
import pathlib
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, compliance_report, cores_in_use

display = terminal.Terminal()

# Option -> how the name of its file has to end.
FORMATS = {"json": places.DOCUMENT, "metrics": places.METRICS, "page": places.PAGE}
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    "usage": {"type": "str"},
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
        looks = {
            text.line(host): cores_in_use.if_looked(host, self._user.registered(options["usage"], host))
            for host in play["ansible_play_hosts_all"]
            if options["usage"]
        }
        left_out = [text.line(host) for host in self._user.other_hosts()]
        for line in compliance_report.table(judged, left_out):
            display.display(line)
        now = datetime.datetime.now(datetime.UTC)
        try:
            # All of them before the first is written.
            paths = {name: places.file(options[name], suffixes) for name, suffixes in FORMATS.items() if options[name]}
            changed = [
                result_files.write_page(path, _content(name, path, judged, now, left_out, looks), self._task.check_mode)
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
            "summary": compliance_report.sentence(judged, left_out),
        }


def _content(
    name: str,
    path: pathlib.Path,
    judged: t.Sequence[compliance_report.Judged],
    now: datetime.datetime,
    left_out: t.Sequence[str],
    looks: t.Mapping[str, cores_in_use.Host | None],
) -> str:
    """Return the text of the file of an option."""
    if name == "metrics":
        return compliance_report.metrics(judged, now, left_out, result_files.read_text(path))
    make = compliance_report.document if name == "json" else compliance_report.page
    return make(judged, now, left_out, looks)
