# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action of smt_trial_host asks of a host, and that a host which is lost keeps the reason that its part ended with."""

from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.action import smt_trial_host
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostAction, HostFailedError


def test_what_cannot_be_removed_from_a_lost_host_is_not_its_result(monkeypatch):
    asked = []

    def lost(_self, force=False):
        asked.append(force)
        raise AnsibleConnectionFailure("no route")

    monkeypatch.setattr(HostAction, "cleanup", lost, raising=False)
    # Without a task: Ansible calls this one after the task has its result.
    smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule).cleanup()
    assert asked == [False]


def test_an_arm_is_asked_for_with_its_rollback_timer_before_the_trial(monkeypatch):
    """In check mode, smt_state says so where a host has no systemd: not in the first period with that arm."""
    action = smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule)
    action._task, action._vars = types.SimpleNamespace(check_mode=False), {}
    action._options = {"affinity_conflicts": "fail", "affinity_conflicts_of": ["services"]}
    asked = []

    def ask(_self, module, _kind, arguments, _task_vars):
        asked.append((module, arguments["rollback_after"] > 0, action._task.check_mode))
        raise HostFailedError({"failed": True, "msg": "rollback_after needs systemd"})

    monkeypatch.setattr(HostAction, "ask", ask)
    assert action._conflicts("smt_off") == "smt_off is refused: rollback_after needs systemd"
    assert asked == [("smt_state", True, True)] and action._task.check_mode is False


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (None, []),
        ("each arm is decided: smt_off: loss", []),
        ("CPUs 0-2 are online instead of 0-3: somebody else changed them", ["web1: left the trial, and is in its own state: CPUs 0-2 are online"]),
    ],
)
def test_a_host_that_left_is_named_and_one_whose_trial_was_decided_is_not(monkeypatch, reason, shown):
    action = smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule)
    action._name, action._options = "web1", {"on_breach": "end"}
    said = []
    monkeypatch.setattr(smt_trial_host.display, "display", said.append)
    result = action._result(None, reason, True)
    assert result == {"changed": True, "reason": reason, "msg": reason or "its schedule is done"}
    assert [line[: len(start)] for line, start in zip(said, shown, strict=True)] == shown
