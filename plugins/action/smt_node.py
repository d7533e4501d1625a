# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain a node of Kubernetes before a change of its host, let it have pods again after it, or label it, by kubectl."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes.node import Node, NodeError

display = terminal.Terminal()

DRAINED, READY, LABELLED = "drained", "ready", "labelled"
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "node": {"type": "str", "required": True},
    "state": {"type": "str", "choices": [DRAINED, READY, LABELLED], "required": True},
    "drain": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 600},
    "labels": {"type": "dict", "default": {}},
}


class ActionModule(ControllerAction):
    """The action of smt_node; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("node", "drain", "timeout")

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Drain the node, or let it have pods again."""
        host, check = text.line(play["inventory_hostname"], 100), self._task.check_mode
        try:
            node = Node(options.node)
            if options.state == DRAINED:
                if not check:
                    display.display(f"{host}: drains node {node.name}, which may take {options.timeout} s")
                changed = node.drain(options.drain, options.timeout, check)
                message = f"node {node.name} is drained"
            elif options.state == READY:
                changed = node.ready(options.timeout, check)
                message = f"node {node.name} is ready, and gets pods again"
            else:
                labels = {name: text.line(value, 63) for name, value in options.labels.items()}
                changed = not check and node.label(labels)
                shown = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
                message = f"node {node.name} has the labels {shown}"
        except NodeError as error:
            raise AnsibleActionFail(f"{host}: {error}") from None
        return {"changed": changed, "msg": message if changed else ""}
