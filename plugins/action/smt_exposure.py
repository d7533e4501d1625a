# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show how the cores of the play's hosts are used, and write it to a page and a document on the controller."""

from __future__ import annotations

import datetime
import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use, exposure_report

display = terminal.Terminal()

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    "facts": {"type": "str"},
    "yields": {"type": "dict", "default": {}},
    "not_contacted": {"type": "list", "elements": "str", "default": []},
    "dest": {"type": "path", "required": True},
}
# Of more hosts the table alone is shown.
FEW_HOSTS = 5


class ActionModule(ControllerAction):
    """The action of smt_exposure; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("dest",)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show how the cores of the play's hosts are used, and write it to a page and a document."""
        hosts = [self._host(name, options) for name in sorted(play["ansible_play_hosts_all"])]
        for line in cores_in_use.table(hosts):
            display.display(line)
        for host in hosts if len(hosts) <= FEW_HOSTS else []:
            for sentence in cores_in_use.sentences(host):
                display.display(f"{host.name}: {sentence}")
        return {
            "changed": self._write(options.dest, hosts),
            "dest": options.dest,
            "summary": cores_in_use.summary(hosts),
        }

    def _host(self, name: str, options: Options) -> cores_in_use.HostLook:
        if name in options.not_contacted:
            return cores_in_use.HostLook(name, compliance.NOT_CONTACTED, None)
        yields = [entry["workload"] for entry in options.yields.get(name, [])]
        answer, facts = self.registered(options.results, name), None
        if options.facts:
            facts = self.facts(options.facts, name)
            # What failed before says why there is nothing.
            if not answer or answer.get("skipped") is True:
                answer = self.registered(options.facts, name)
        return cores_in_use.host(name, answer, yields, facts)

    def _write(self, dest: str, hosts: list[cores_in_use.HostLook]) -> bool:
        """Write the page and the document beside it, but not in check mode; return whether the page changes."""
        now = datetime.datetime.now(datetime.UTC)
        try:
            path = places.file(dest, places.PAGE)
            document = places.file(str(path.with_suffix(".json")), places.DOCUMENT)
            changed = result_files.write_page(
                path, exposure_report.page(hosts, now.strftime("%Y-%m-%d %H:%M UTC")), self._task.check_mode
            )
            content = json.dumps(exposure_report.document(hosts, now.strftime("%Y-%m-%dT%H:%M:%SZ")), indent=1) + "\n"
            result_files.write_text(document, content, self._task.check_mode)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_exposure: {error}") from None
        if not self._task.check_mode:
            display.display(f"The page: {path}")
            display.display(f"The same as data: {document}")
        return changed
