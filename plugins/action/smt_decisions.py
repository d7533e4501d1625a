# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read evaluations on the controller and return their decision for each hardware class."""

from __future__ import annotations

import datetime
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions

# The variable with the directory of evaluations; hosts of one play may have several.
VARIABLE = "smt_policy_results"
# Results that are named in warnings, each by so many characters.
MAX_REFUSED = 5
MAX_WARNING = 500
ARGUMENTS: dict[str, dict[str, t.Any]] = {"facts": {"type": "str"}, "before": {"type": "dict"}}

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_decisions; makes no call on any host."""

    arguments = ARGUMENTS
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Read evaluations on the controller and return their decision for each hardware class."""
        if options.before is None:
            paths = {
                str(path)
                for host in play["ansible_play_hosts_all"]
                if (path := self._user.value(VARIABLE, host)) is not None
            }
            by_path = {path: self._read(path, {}) for path in sorted(paths)}
        else:
            by_path = {
                path: self._for_facts(path, options.facts, before) for path, before in options.before["by_path"].items()
            }
        return {
            "changed": False,
            "by_path": by_path,
            # A result may be of a host that the play is not about.
            "evaluated": sorted(
                {host for evaluation in by_path.values() for host in evaluation["evaluated"]} & set(self._user.hosts)
            ),
        }

    def _for_facts(self, path: str, facts: str, before: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return what evaluations decide when hosts count for the class that their facts show."""
        facts_by_host = {host: self.facts(facts, host) for host in before["evaluated"]}
        known = {host: of_host.hardware_class for host, of_host in facts_by_host.items() if of_host}
        return (
            before
            if all(before["evaluated"][host] == name for host, name in known.items())
            else self._read(path, known)
        )

    @staticmethod
    def _read(path_of_runs: str, known: dict[str, str | None]) -> dict[str, t.Any]:
        """Return what the evaluations in a directory decide; ``known`` are the classes that facts show, by host."""
        nothing: dict[str, t.Any] = {"classes": {}, "error": None, "refused": [], "evaluated": {}}
        missing = libraries.sentence("reading evaluations", [schema.MISSING_LIBRARY])
        if missing:
            return {**nothing, "error": missing}
        try:
            paths = decisions.result_files_below(os.path.expanduser(path_of_runs))
        except result_files.ResultError as error:
            return {**nothing, "error": str(error)}
        now = datetime.datetime.now(datetime.UTC)
        conclusions, refused = decisions.read_all(paths, now)
        # Once, and not again with the classes that facts show.
        for refusal in refused[:MAX_REFUSED] if not known else ():
            display.warning(text.line(f"{refusal['file']} does not count: {refusal['reason']}", MAX_WARNING))
        if len(refused) > MAX_REFUSED and not known:
            display.warning(f"{len(refused) - MAX_REFUSED} more results in {text.line(path_of_runs)} do not count")
        classes = decisions.decisions(conclusions, now, known)
        return {"classes": classes, "error": None, "refused": refused, "evaluated": decisions.classes_of(conclusions)}
