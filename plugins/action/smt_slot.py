# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call smt_slot on the host and validate its answer."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ModuleAction


class ActionModule(ModuleAction):
    """The action of smt_slot: one module call with the task's arguments."""

    module = "smt_slot"
