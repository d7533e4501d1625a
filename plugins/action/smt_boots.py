# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combine a host's results of several boots into one result on the controller."""

from __future__ import annotations

import json
import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import boot_plan, boots, places, result_files

ARGUMENTS = {
    "run_dir": {"type": "path", "required": True},
    "run": {"type": "str", "required": True},
    "arms": {"type": "raw", "required": True},
    "boots": {"type": "int", "required": True},
    "left_out": {"type": "list", "elements": "dict", "default": []},
    "done": {"type": "int", "required": True},
    "mitigations": {"type": "list", "elements": "list", "default": []},
    "before": {"type": "dict", "required": True},
    "after": {"type": "dict"},
    "error": {"type": "str"},
}


class ActionModule(ControllerAction):
    """The action of smt_boots: reads one file per boot and writes one file; makes no call on the host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Combine a host's results of several boots into one result on the controller."""
        stem = result_files.file_stem(play["inventory_hostname"])
        try:
            run_dir = places.directory(options["run_dir"])
            plan = boot_plan.make(boot_plan.names(options["arms"]), options["boots"], options["left_out"])
            measured: list[boots.BootResult] = []
            for number, arm in enumerate(plan.order[: options["done"]], 1):
                path = run_dir / "boots" / f"{options['run']}-boot-{number}" / f"{stem}.json"
                # A boot without any measurement has no file.
                if path.exists():
                    measured.append(boots.BootResult(number, arm, parts.plain(result_files.load(path))))
            if not measured:
                return {
                    "changed": False,
                    "path": None,
                    "samples": 0,
                    "restored": None,
                    "outcome": "failed",
                    "error": options["error"],
                }
            # Any module called on the host can have changed Ansible's facts of it: validate them.
            before = facts.accept(json.loads(json.dumps(options["before"])))
            after = None if options["after"] is None else facts.accept(json.loads(json.dumps(options["after"])))
            joined = boots.join(options["run"], measured, plan, before, after, options["error"], options["mitigations"])
            path, written = run_dir / f"{stem}.json", False
            if not self._task.check_mode:
                path, written, _result = result_files.save(run_dir, joined)
        except (BorderError, boot_plan.BootPlanError) as error:
            raise AnsibleActionFail(f"smt_boots: {error}") from error
        return {
            "changed": written,
            "path": str(path),
            "samples": len(joined["samples"]),
            "restored": joined["restored"],
            "outcome": joined["outcome"],
            "error": options["error"],
        }
