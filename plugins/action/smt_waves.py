# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan and show the waves of a rollout on the controller."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, rollout
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot

display = terminal.Terminal()

MAX_NAMES = 20

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "results": {"type": "str", "required": True},
    "sizes": {"type": "list", "elements": "str", "required": True},
}


class ActionModule(ControllerAction):
    """The action of smt_waves; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("sizes",)
    once_for_all = True

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Plan and show the waves of a rollout on the controller."""
        members: list[rollout.Member] = []
        left_out: dict[str, str] = {}
        for host in play["ansible_play_hosts_all"]:
            result = compliance.from_registered(self._user.registered(options["results"], host))
            reboot_ok = boolean(self._user.value("smt_policy_reboot_ok", host) or False, strict=False)
            group = self._user.value("smt_policy_group", host)
            pending = rollout.is_pending(result, reboot_ok)
            reboots = pending and reboot_ok and result.needs_reboot
            members.append(
                rollout.Member(
                    host,
                    None if group in (None, "") else str(group),
                    pending,
                    result.status is not Status.UNREACHABLE,
                    self._slot(host) if reboots else None,
                )
            )
            if result.status is Status.DRIFTED and not pending:
                left_out[host] = f"it cannot be changed: {rollout.blocked_by(result, reboot_ok)}"
            leave = result.waiver
            if leave and result.status is Status.WAIVED:
                left_out[host] = f"it is {leave.sentence}"
            elif leave and leave.is_in_force and result.pending_rollback is not None:
                left_out[host] = f"a rollout of it was interrupted, and it is {leave.sentence}"
        groups = {member.host: member.group for member in members}
        waiting = rollout.waiting(members)
        left_out.update(
            {host: f"{gone} of its smt_policy_group {groups[host]} cannot be reached" for host, gone in waiting.items()}
        )
        members = [
            dataclasses.replace(member, pending=member.pending and member.host not in waiting) for member in members
        ]
        try:
            waves = rollout.waves(members, options["sizes"])
        except rollout.RolloutError as error:
            raise AnsibleActionFail(f"smt_waves: {error}") from error
        for number, hosts in enumerate(waves, 1):
            more = f" and {len(hosts) - MAX_NAMES} more" if len(hosts) > MAX_NAMES else ""
            display.display(f"wave {number}: {', '.join(map(text.line, hosts[:MAX_NAMES]))}{more}")
        for host, reason in left_out.items():
            display.warning(text.line(f"{host} is left out: {reason}", 2000))
        after = rollout.predecessors(waves, groups)
        placed = [
            {"host": host, "wave": number, "after": after.get(host)}
            for number, hosts in enumerate(waves, 1)
            for host in hosts
        ]
        return {"changed": False, "members": placed, "left_out": left_out}

    def _slot(self, host: str) -> str | None:
        """Return the group of the slot that a host asks for, None where it asks for none."""
        try:
            wanted = reboot.wanted(self._user, host)
        except SlotError as error:
            raise AnsibleActionFail(f"{text.line(host, 100)}: {error}") from None
        return wanted.group if wanted.slot is not None and not wanted.slot.kured else None
