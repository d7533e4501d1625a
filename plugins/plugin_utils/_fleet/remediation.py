# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about a host that is not as its policy wants it: the command to give, or the variable to set."""

from __future__ import annotations

import dataclasses
import shlex

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, rollout
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance import ComplianceResult


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a playbook.

    Attributes:
        limit: what ``--limit`` said; None without it.
        inventory: its sources, as they were given.
        error: why it checked no host; None where it did.
    """

    limit: str | None = None
    inventory: tuple[str, ...] = ()
    error: str | None = None

    def of(self, host: str, program: str, *more: str) -> str:
        """Return the command for one host with the same inventory."""
        sources = [word for source in self.inventory for word in ("-i", source)]
        return border_text.line(shlex.join([program, *sources, *more, "--limit", host]), 2000)


def text(host: str, result: ComplianceResult, call: Call) -> str | None:
    """Return what to do about a host; None where nothing is to be done.

    Args:
        host: its name.
        result: its status.
        call: the call that found it.
    """

    def play(name: str) -> str:
        return call.of(host, "ansible-playbook", "-b", f"threadwise.smt.{name}")

    enforce = play("smt_enforce")
    pending = result["pending_rollback"] is not None and not result["pending_change"]
    again = f"Measure its hardware class again: {play('smt_eval')}" if (result["decision"] or {}).get("stale") else None
    return {
        compliance.COMPLIANT: f"Have the interrupted rollout finished: {enforce}" if pending else again,
        compliance.WAIVED: (
            f"Nothing before its waiver ends. Then remove smt_policy_waiver, and put the policy in force: {enforce}"
        ),
        compliance.DRIFTED: _of_drift(result, enforce),
        compliance.BAD_POLICY: "Set the variable that the reason names, for the host or its group in the inventory.",
        compliance.UNKNOWN: (
            f"Evaluate a host of its class ({play('smt_eval')}), or set smt_policy to a state for it."
            if result["undecided"]
            else f"See what it says of itself: {play('smt_survey')}"
        ),
        compliance.UNREACHABLE: (
            f"See why it does not answer: {call.of(host, 'ansible', 'all', '-m', 'ansible.builtin.ping')}"
        ),
    }[result["status"]]


def _of_drift(result: ComplianceResult, enforce: str) -> str:
    if result["pending_change"]:
        return "Confirm the change that waits, or wait until it is rolled back; then check again."
    blocked = rollout.blocked_by(result, reboot_ok=True)
    if blocked:
        return f"It cannot be changed ({blocked}): set another smt_policy for it, or waive it by smt_policy_waiver."
    reboot = " -e smt_policy_reboot_ok=true" if result["change"] and result["change"]["reboot"] else ""
    return f"Put the policy in force{', with a reboot' if reboot else ''}: {enforce}{reboot}"
