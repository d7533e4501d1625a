# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked before a host is rebooted, of whom and for whom, as options say it. Pure rules, without what asks:
facts of hosts read records of it.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import settings, window
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError

MAX_QUERY = 2000


class Alerts(t.NamedTuple):
    """Where alerts are asked for.

    Attributes:
        prometheus: the address of the server, without a slash at its end.
        query: of which each result is an alert.
    """

    prometheus: str
    query: str


def parse_alerts(given: t.Any) -> "Alerts | None":
    """Return what `smt_reboot_alerts` says, None where it is empty.

    Raises:
        SlotError: nobody can be asked so.
    """
    if not given:
        return None
    if not isinstance(given, dict) or sorted(given) != ["prometheus", "query"]:
        raise SlotError("it must be a mapping with prometheus, the address of the server, and query")
    query = given["query"]
    if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY:
        raise SlotError('query must be one of PromQL, such as ALERTS{alertstate="firing", severity="critical"}')
    return Alerts(settings.address("prometheus", given["prometheus"]), query.strip())


class Asked(t.NamedTuple):
    """For what a slot is asked.

    Attributes:
        slot: where; None where the window alone decides.
        group: the group of the host.
        host: its name.
        owner: who asks: only it, or whoever comes after it, gives the slot back.
        window: the hours in which the host may be rebooted; None for all.
        alerts: those that forbid a reboot; None for none.
    """

    slot: "settings.Slot | None"
    group: str
    host: str
    owner: str = ""
    window: "window.Window | None" = None
    alerts: "Alerts | None" = None


def of_options(options: "t.Mapping[str, t.Any]", owner: str = "") -> Asked:
    """Return what options of smt_slot ask for; raise SlotError where they cannot be used."""
    return Asked(
        settings.parse(options["slot"]),
        options["group"],
        options["host"],
        owner,
        window.parse(options["window"]),
        parse_alerts(options.get("alerts")),
    )
