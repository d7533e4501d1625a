# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the compliance of a play's hosts and write it to files on the controller."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import command_line, terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep import earlier_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.base import Asked, SourceError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.registry import SOURCES
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use

display = terminal.Terminal()

FORMATS = registry.formats()
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "source": {"type": "str", "choices": list(SOURCES), "default": "push"},
    "results": {"type": "str"},
    "usage": {"type": "str"},
    "files": {"type": "list", "elements": "path"},
    "label": {"type": "str"},
    "names": {"type": "dict"},
    "max_age": {"type": "float"},
    "history": {"type": "path"},
    "all_of": {"type": "str"},
    **{name: {"type": "path"} for name in FORMATS},
}
# The custom statistic with the numbers of hosts, as `set_stats` makes one, for AWX and ansible-runner.
STATISTIC = "smt_compliance_counts"


class ActionModule(ControllerAction):
    """The action of smt_compliance; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("source", "files", "label", "names", "max_age", "history", *FORMATS)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show the compliance of a play's hosts and write it to files on the controller."""
        now, others = datetime.datetime.now(datetime.UTC), self._user.other_hosts()
        hosts, source = sorted(self._user.hosts), SOURCES[options["source"]]
        try:
            answer = source.read(Asked(hosts, others, now, options, self._user.registered, self._secret()))
        except SourceError as error:
            return self._without_answer(options, text.line(error, earlier_files.MAX_REASON))
        looks = {
            text.line(host): cores_in_use.if_looked(host, self._user.registered(options["usage"], host))
            for host in hosts
            if options["usage"]
        }
        check = Check(
            [(text.line(host), result) for host, result in answer.judged],
            now,
            [text.line(host) for host in others],
            Call(*command_line.call(self._loader)),
            looks=looks,
            strangers=[text.line(name) for name in answer.strangers],
            notes=[text.line(note) for note in answer.notes],
        )
        lines = (
            *compliance_report.table(check.judged, check.left_out),
            *compliance_report.notes(check.strangers, check.notes),
        )
        for line in lines:
            display.display(line)
        files, is_changed = self._written(check, options)
        counts = compliance_report.counts(check.judged)
        return {
            "changed": is_changed,
            "files": files,
            "compliant": not compliance_report.exit_worthy(check.judged),
            "counts": counts,
            "summary": compliance_report.sentence(check.judged, check.left_out),
            "ansible_stats": {"data": {STATISTIC: counts}, "per_host": False, "aggregate": False},
            "failing": _failing(answer.judged),
        }

    def _written(self, check: Check, options: dict[str, t.Any]) -> tuple[list[str], bool]:
        """Write the files and the history; return the names of the former, and whether one of them was changed."""
        try:
            # All of them before the first is written.
            paths = {
                name: places.file(options[name], file_format.suffixes)
                for name, file_format in FORMATS.items()
                if options[name]
            }
            changed = [
                result_files.write_page(
                    path,
                    FORMATS[name].make(dataclasses.replace(check, earlier=result_files.read_text(path))),
                    self._task.check_mode,
                )
                for name, path in paths.items()
            ]
            if paths and not self._task.check_mode:
                display.display(f"The files: {', '.join(map(str, paths.values()))}")
            # What it found is in them, also where this cannot be kept.
            if options["history"]:
                statuses = {host: result.status for host, result in check.judged}
                directory = places.directory(options["history"])
                checks.add(directory, statuses, check.left_out, check.at, self._task.check_mode)
        except text.BorderError as error:
            raise AnsibleActionFail(f"smt_compliance: {error}") from None
        return [options[name] for name in paths], any(changed)

    def _secret(self) -> t.Callable[[str], t.Any]:
        """Return what reads a variable of access to a server. None of them is an argument of the task, which Ansible
        shows when it cannot be templated.
        """
        written = self._user.around(self._user.first_of_all())
        return lambda name: self._user.templated(written.get(variables.OF_COMPLIANCE + name), written)

    def _without_answer(self, options: dict[str, t.Any], reason: str) -> dict[str, t.Any]:
        """Return the result where nothing was judged; the files say why."""
        reasons = [reason]
        try:
            earlier_files.answer({name: options[name] for name in FORMATS}, reason, self._loader, self._task.check_mode)
        except text.BorderError as error:
            reasons.append(str(error))
        return {"failed": True, "changed": False, "unavailable": True, "msg": "\n".join(reasons)}


def _failing(judged: t.Sequence[compliance_report.Judged]) -> dict[str, dict[str, str]]:
    """Return the hosts that are neither compliant nor waived."""
    return {
        host: {"status": result.status.value, "sentence": text.line(result.sentence)}
        for host, result in judged
        if compliance_report.exit_worthy([(host, result)])
    }
