# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare two files of measurements on the controller."""

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files import measurements, verdict
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

display = terminal.Terminal()

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "before": {"type": "path", "required": True},
    "after": {"type": "path", "required": True},
    "better": {"type": "str", "choices": ["higher", "lower"]},
    "column": {"type": "str"},
    "margin": {"type": "float", "default": 0.01},
    "confidence": {"type": "float", "default": 0.95},
    "dest": {"type": "path", "default": "smt_compare.json"},
}


class ActionModule(ControllerAction):
    """The action of smt_compare; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show the comparisons and write them to a file on the controller."""
        try:
            path = places.file(options.dest, places.DOCUMENT)
            sides = [measurements.read(getattr(options, side), options.column) for side in ("before", "after")]
            result = verdict.compared(*sides, options.better, options.margin, options.confidence)
            document = result.described()
            written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
            changed = result_files.write_text(path, written, self._task.check_mode)
        except (BorderError, measurements.MeasurementsError, paired.SampleError) as error:
            raise AnsibleActionFail(f"smt_compare: {error}") from None
        for line in verdict.lines(result, wording.number):
            display.display(line)
        if not self._task.check_mode:
            display.display(f"The comparison: {path}")
        return {"changed": changed, "dest": str(path), "comparisons": document["comparisons"]}
