# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all files of a check: what a format has to offer, and what it is given. Texts in results come from hosts:
each format escapes them for its readers.

A format is one file of this folder with a ``FORMAT``; the registry finds it.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, remediation
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call

if t.TYPE_CHECKING:
    # Each playbook loads this module, and few what these need.
    from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance_report import Judged
    from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use


@dataclasses.dataclass(frozen=True)
class Check:
    """What a format is given of one call.

    Attributes:
        judged: the hosts of the play, by name.
        at: time of the check, UTC.
        left_out: the other hosts of the inventory.
        call: what the call was about, and why it checked no host.
        earlier: what the file holds of earlier checks, None where there is none.
        looks: how the CPUs of hosts are used, where somebody looked.
        strangers: names that a source of results has, and the inventory has not.
        notes: what else is to be said of that source, a sentence each.
    """

    judged: t.Sequence[Judged]
    at: datetime.datetime
    left_out: t.Sequence[str] = ()
    call: Call = dataclasses.field(default_factory=Call)
    earlier: str | None = None
    looks: t.Mapping[str, cores_in_use.HostLook | None] = dataclasses.field(default_factory=dict)
    strangers: t.Sequence[str] = ()
    notes: t.Sequence[str] = ()

    @property
    def written(self) -> str:
        """The time as files have it."""
        return compliance.stamp(self.at)

    def explanation(self, host: str, result: compliance.Compliance) -> str:
        """Return why a host is not as wanted and what to do, in lines."""
        lines = [
            result.sentence,
            f"Wanted: {result.wanted}." if result.wanted else "",
            f"Evidence: {result.decided_by}" if result.decided_by else "",
            f"To do: {remedy}" if (remedy := remediation.text(host, result, self.call)) else "",
        ]
        return "\n".join(filter(None, lines))


@dataclasses.dataclass(frozen=True)
class Format:
    """A file of a check.

    Attributes:
        name: of the option that names the file: ``smt_compliance_NAME`` and that of the module.
        suffixes: how the name of the file has to end.
        make: makes the text of the file.
        is_kept: whether it stays as it is beside a call that checks nothing: it has the time of each check in it.
    """

    name: str
    suffixes: tuple[str, ...]
    make: t.Callable[[Check], str]
    is_kept: bool = False
