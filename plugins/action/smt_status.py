# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a host's facts and judges them on the controller. Only the verdict is kept, however long the facts are."""

from __future__ import annotations

import json

from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import HostAction, HostFailed
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, policy

ARGUMENTS = {
    "policy": {"type": "raw"},
    "scope": {"type": "str", "default": policy.RUNTIME},
    "classes": {"type": "raw"},
    "evidence": {"type": "dict"},
    "memory": {"type": "dict"},
    "protect": {"type": "list", "elements": "str"},
    "sysroot": {"type": "path", "default": "/"},
}


class ActionModule(HostAction):
    """Thin: arguments in, one module call on the host (another one for memory), a verdict out."""

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _dummy, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            facts = self.ask("smt_facts", "smt_facts", {"sysroot": options["sysroot"]}, task_vars)["ansible_facts"]["smt"]
            memory = self._memory(options, task_vars)
        except HostFailed as failure:
            return failure.answer
        return {"changed": False, "verdict": self._judge(facts, options, memory)}

    @staticmethod
    def _judge(facts, options, memory):
        known = facts["hardware_class"]
        evidence = options["evidence"] or {}
        try:
            scope = policy.scope(options["scope"])
            wish = policy.wish(_plain(options["policy"]), _plain(options["classes"]), known, evidence.get("classes"), evidence.get("trouble"))
        except policy.PolicyError as error:
            return compliance.refused(str(error), hardware_class=known)
        return compliance.judge(facts, wish, scope, memory)

    def _memory(self, options, task_vars):
        """The verdict's aspects of memory; None where no memory policy is asked for."""
        if not options["memory"] and options["protect"] is None:
            return None
        arguments = dict(options["memory"] or {}, sysroot=options["sysroot"])
        if options["protect"] is not None:
            arguments["protect"] = options["protect"]
        answer = self.ask("smt_memory_facts", "smt_memory_facts", arguments, task_vars)
        return compliance.memory_aspects(answer["ansible_facts"]["smt_memory"])


def _plain(value):
    """Without Ansible's tags and lazy containers."""
    return None if value is None else json.loads(json.dumps(value))
