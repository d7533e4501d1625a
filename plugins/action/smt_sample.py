# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the hosts of each hardware class that are measured."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import sample

display = terminal.Terminal()


class ActionModule(ControllerAction):
    """The action of smt_sample; makes no call on any host."""

    from_user = ("size", "shared")
    once_for_all = True
    arguments: t.ClassVar[t.Mapping[str, dict[str, t.Any]]] = {
        "results": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "shared": {"type": "bool", "default": True},
    }

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Choose the hosts of each hardware class that are measured."""
        known = {host: self.facts(options.results, host) for host in play["ansible_play_hosts"]}
        classes = {host: facts.hardware_class if facts else None for host, facts in known.items()}
        shares = sample.choose(classes, options.size)
        for share in shares:
            display.display(sample.sentence(share, options.shared))
        measured = {host: share.shared_by if options.shared else 1 for share in shares for host in share.measured}
        return {"changed": False, "measured": list(measured), "shared_by": measured}
