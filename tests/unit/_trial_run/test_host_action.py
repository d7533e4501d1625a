# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is lost during a trial keeps the reason that its part ended with."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.action import smt_trial_host
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import HostAction


def test_what_cannot_be_removed_from_a_lost_host_is_not_its_result(monkeypatch):
    asked = []

    def lost(_self, force=False):
        asked.append(force)
        raise AnsibleConnectionFailure("no route")

    monkeypatch.setattr(HostAction, "cleanup", lost, raising=False)
    # Without a task: Ansible calls this one after the task has its result.
    smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule).cleanup()
    assert asked == [False]
