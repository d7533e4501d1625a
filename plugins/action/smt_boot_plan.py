# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the boots of a host on the controller."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import boot_plan

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "arms": {"type": "raw", "required": True},
    "boots": {"type": "int", "required": True},
    "budget": {"type": "int", "required": True},
    "reboot_ok": {"type": "bool", "required": True},
    "allow_mitigations_off": {"type": "bool", "required": True},
    "left_out": {"type": "list", "elements": "dict", "default": []},
}


class ActionModule(ControllerAction):
    """The action of smt_boot_plan; makes no call on the host."""

    arguments = ARGUMENTS

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Plan the boots of a host on the controller."""
        host = play["inventory_hostname"]
        allowed = ["smt_eval_allow_mitigations_off"] if options["allow_mitigations_off"] else []
        try:
            asked = boot_plan.names(options["arms"])
            reason = boot_plan.refusal(asked, options["boots"], options["reboot_ok"], allowed)
            if reason:
                raise boot_plan.BootPlanError(reason)
            plan = boot_plan.make(asked, options["boots"], options["left_out"])
        except boot_plan.BootPlanError as error:
            raise AnsibleActionFail(f"{host} was not rebooted: {error}") from error
        return {
            "changed": False,
            "booted": plan.described(),
            "order": plan.order,
            "reboots": plan.reboots,
            "share": boot_plan.share(plan, options["budget"]),
            "announcement": boot_plan.announcement(plan, options["budget"]),
            "left_out": [dict(one) for one in plan.left_out],
        }
