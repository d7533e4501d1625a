# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what drifted when and what SMT did over months, and write it to a page and a document on the controller."""

from __future__ import annotations

import datetime
import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks, document, effects

display = terminal.Terminal()

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "checks": {"type": "path"},
    "results": {"type": "path"},
    "margin": {"type": "float", "default": 0.01},
    "dest": {"type": "path", "required": True},
}


class ActionModule(ControllerAction):
    """The action of smt_history; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Say what drifted when and what SMT did over months, and write it down."""
        margin = options.margin
        if not options.checks and not options.results:
            raise AnsibleActionFail(
                "smt_history: name the directory of checks (smt_history_checks), that of evaluations"
                " (smt_history_results), or both"
            )
        if not 0 <= margin < 1:
            raise AnsibleActionFail(f"smt_history: margin is {margin}: it must be from 0 to below 1")
        now = datetime.datetime.now(datetime.UTC)
        try:
            history = checks.read(options.checks) if options.checks else None
            effects_found, left_out = effects.read(options.results, now) if options.results else ({}, [])
            record = document.joined(history, effects_found, left_out, margin)
            path = places.file(options.dest, places.PAGE)
            data = places.file(str(path.with_suffix(".json")), places.DOCUMENT)
            dry = self._task.check_mode
            changed = result_files.write_page(path, document.page(record, now, margin), dry)
            result_files.write_text(data, json.dumps(document.document(record, now), indent=1) + "\n", dry)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_history: {error}") from None
        sentences = document.sentences(record)
        for sentence in sentences:
            display.display(sentence)
        if not dry:
            display.display(f"The page: {path}")
            display.display(f"The same as data: {data}")
        return {
            "changed": changed,
            "dest": options.dest,
            "summary": document.summary(record),
            "sentences": sentences,
        }
