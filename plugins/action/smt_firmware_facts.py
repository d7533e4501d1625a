# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call smt_firmware_facts where the BMC can be reached, and validate its answer."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ModuleAction


class ActionModule(ModuleAction):
    """The action of smt_firmware_facts: one module call with the task's arguments.

    Where a password is sent, and how that is protected, no fact of a host decides.
    """

    module = "smt_firmware_facts"
    from_user = (
        "auth_method",
        "auth_token",
        "baseuri",
        "ca_path",
        "password",
        "timeout",
        "username",
        "validate_certs",
    )
