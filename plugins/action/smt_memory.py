# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call smt_memory on the host and validate its answer."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ModuleAction


class ActionModule(ModuleAction):
    """The action of smt_memory: one module call with the task's arguments."""

    module = "smt_memory"
