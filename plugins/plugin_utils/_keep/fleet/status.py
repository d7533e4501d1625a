# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The statuses of a host under its policy: the one table that all who list or tell apart statuses read."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing as t


@dataclasses.dataclass(frozen=True)
class Row:
    """What is known of a status.

    Attributes:
        name: in files.
        order: its place among those that need action, the worst first.
        meaning: for people.
        mark: the CSS class of its cells.
        is_fine: whether nobody has to do anything.
        is_seen: whether it says something of the host itself.
        is_asked: whether the host was asked, and not others about it.
        in_history: as what a history counts the host; None where that is as wanted.
        color: in Grafana; None for any.
        junit: the element of JUnit XML that says so; None for a test that has passed.
        level: of a result in SARIF; None where the host is none.
        rule: title and text of its rule there.
        remedy: what to do about the host; None where that differs from host to host.
    """

    name: str
    order: int
    meaning: str
    _: dataclasses.KW_ONLY
    mark: str
    is_fine: bool = False
    is_seen: bool = True
    is_asked: bool = True
    in_history: str | None = None
    color: str | None = None
    junit: str | None = None
    level: str | None = None
    rule: tuple[str, str] = ("", "")
    remedy: str | None = None


_wrong = functools.partial(Row, mark="loss", junit="failure", level="error", in_history="drifted")
_not_known = functools.partial(Row, mark="inconclusive", junit="error", level="warning", in_history="not known")
_not_asked = functools.partial(_not_known, is_seen=False, is_asked=False)


class Status(enum.StrEnum):
    """A status, by its name in files.

    Attributes:
        row: what is known of it.
    """

    def __new__(cls, row: Row) -> t.Self:
        """Make a text of the name."""
        status = str.__new__(cls, row.name)
        status._value_ = row.name
        return status

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    def words(self) -> str:
        """The name for people."""
        return self.replace("_", " ")

    COMPLIANT = Row("compliant", 7, "The host is as its policy wants it.", mark="gain", is_fine=True, color="green")
    WAIVED = Row(
        "waived",
        6,
        "The host differs from its policy, and somebody allowed that until the day that is named (smt_policy_waiver).",
        mark="equivalent",
        is_fine=True,
        color="blue",
        junit="skipped",
    )
    DRIFTED = _wrong(
        "drifted",
        0,
        "Something that the policy covers is otherwise: the running system, the arguments of the next boot, or the"
        " memory policy, now or at\nthe next boot.",
        rule=("SMT drifted", "The host differs from its SMT policy, or will after its next boot."),
        color="red",
    )
    BAD_POLICY = _wrong(
        "bad_policy",
        1,
        "No policy is set for the host, or what is set is not valid.",
        rule=("Bad SMT policy", "No SMT policy is set for the host, or what is set is not valid."),
        remedy="Set the variable that the reason names, for the host or its group in the inventory.",
        color="purple",
    )
    UNKNOWN = _not_known(
        "unknown",
        5,
        "The host answered, and it cannot be said: reading its facts failed, no evaluation decides, or the kernel does"
        " not tell.",
        rule=("SMT unknown", "The host answered, and whether it complies cannot be said."),
        color="yellow",
    )
    UNREACHABLE = _not_known(
        "unreachable",
        2,
        "The host did not answer.",
        rule=("Unreachable", "The host did not answer, so nobody knows its SMT."),
        is_seen=False,
        color="orange",
    )
    SILENT = _not_asked(
        "silent",
        3,
        "What the host last said of itself is too old (smt_compliance_max_age). Nobody asked it.",
        rule=("Silent", "What the host last said of itself is too old to judge it by."),
        remedy="See on the host why it says nothing: systemctl status threadwise-smt-pull.timer"
        " threadwise-smt-pull.service. Where it does not pull, repeat the check that wrote the file.",
    )
    UNKNOWN_TO_SERVER = _not_asked(
        "unknown_to_server",
        4,
        "The metrics server that was asked knows no host of this name.",
        rule=("Unknown to the server", "The metrics server knows no such host."),
        remedy="See that the host has smt_pull, that its node_exporter reads the file of the metrics, and that the"
        " server scrapes it; where it has another name there, set smt_compliance_label or smt_compliance_names.",
    )


BY_NAME: t.Mapping[str, Status] = {status.value: status for status in Status}
# What needs action comes first, the hosts that nobody could judge before those that are well.
BY_ATTENTION = tuple(sorted(Status, key=lambda status: status.row.order))
