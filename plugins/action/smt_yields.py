# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read evaluations on the controller, and return what second threads give on each host's hardware class."""

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions, yields

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "facts": {"type": "str", "required": True},
    "directory": {"type": "path"},
}
# Of a directory with many files that cannot be used the first ones say enough.
MAX_WARNINGS = 5


class ActionModule(ControllerAction):
    """The action of smt_yields; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("directory",)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Read evaluations, and return the yields of each host's hardware class."""
        known = {
            host: facts.hardware_class
            for host in play["ansible_play_hosts_all"]
            if (facts := self.facts(options.facts, host))
        }
        by_class, refused = self._read(options.directory, known) if options.directory else ({}, [])
        return {
            "changed": False,
            "by_host": {
                host: [
                    {"workload": entry.workload, "low": entry.low, "high": entry.high}
                    for entry in by_class.get(known.get(host) or "", [])
                ]
                for host in play["ansible_play_hosts_all"]
            },
            "refused": refused,
            "warnings": [
                f"an evaluation is not used, in {text.line(Path(refusal['file']).parent)}: {refusal['reason']}"
                for refusal in refused[:MAX_WARNINGS]
            ],
        }

    @staticmethod
    def _read(
        directory: str, known: dict[str, str | None]
    ) -> tuple[dict[str, list[yields.Yield]], list[dict[str, str]]]:
        """Return the yields by hardware class, and the files that could not be used."""
        try:
            paths = decisions.result_files_below(directory)
        except result_files.ResultError as error:
            raise AnsibleActionFail(f"smt_yields: {error}") from None
        conclusions, refused = decisions.read_all(paths, datetime.datetime.now(datetime.UTC))
        return yields.by_class(conclusions, known), refused
