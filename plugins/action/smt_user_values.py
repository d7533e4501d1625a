# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take values from what the user wrote for a host, whatever the host says of itself,
and refuse a host whose facts would be settings, or whose variables are misspelt or cannot be used.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import place
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

ARGUMENTS: dict[str, dict[str, t.Any]] = {"given": {"type": "dict", "default": {}}}


class ActionModule(ControllerAction):
    """The action of smt_user_values; makes no call on the host."""

    arguments = ARGUMENTS
    from_user = tuple(ARGUMENTS)

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the values."""
        host = str(play["inventory_hostname"])
        of_host, specs = self._user.variables_of(host), variables.known()
        settings: list[variables.Setting] = []
        for name, raw in {**self._user.of_play, **of_host}.items():
            if variables.is_ours(name, specs):
                # That those of this role are defined is Ansible's own check; others may need what is not known here.
                with contextlib.suppress(AnsibleError):
                    value = self._user.templated(play.get(name, raw), dict(play))
                    settings.append(variables.Setting(host, str(name), value, place(raw) or place(name)))
        problems = variables.problems(settings, specs, fleet=1) + variables.slot_problems(settings, fleet=1)
        if problems:
            raise AnsibleActionFail(f"{text.line(host, 100)}: {'; '.join(problems)}")
        return {"changed": False, **vars(options)}
