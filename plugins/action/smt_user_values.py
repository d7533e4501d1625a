# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take values from what the user wrote for a host, whatever the host says of itself,
and refuse a host whose facts would be settings.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import ControllerAction

ARGUMENTS: dict[str, dict[str, t.Any]] = {"given": {"type": "dict", "default": {}}}


class ActionModule(ControllerAction):
    """The action of smt_user_values; makes no call on the host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)

    def act(self, options: dict[str, t.Any], play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the values."""
        return {"changed": False, **options}
