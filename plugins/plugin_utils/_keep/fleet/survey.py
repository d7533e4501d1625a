# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A survey of many hosts' facts: a terminal table and an HTML page.

Texts of hosts are cut, the page is rendered by Jinja with automatic escaping and loads nothing, and the terminal gets
no control characters.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame, terminal_table, wording

MAX_TEXT = 200

ON, PARTLY, OFF, FORCED_OFF, NONE, UNKNOWN = "on", "partly on", "off", "forced off", "no SMT", "unknown"
STATES = (ON, PARTLY, OFF, FORCED_OFF, NONE, UNKNOWN)

COLUMNS = ("host", "class", "shape", "SMT", "next boot", "vulnerable by SMT", "not known")


@dataclasses.dataclass(frozen=True)
class Row:
    """One host's row of the survey.

    Attributes:
        host: its name in the inventory.
        reached: False for a host without facts; `unknowns` then contains only the reason.
        state: one of `STATES`.
        shape: packages, cores and threads per core, as text; empty when unknown.
        hardware_class: of the host, or None.
        hypervisor: its name, or None.
        running: SMT-related boot arguments of the running kernel, None where unknown.
        configured: SMT-related boot arguments of the next boot, None where unknown.
        drift: True when the next boot has other SMT-related arguments than the running kernel; None where unknown.
        open_to: vulnerabilities that are open because siblings are online.
        guest_unknown: vulnerabilities that a guest cannot determine.
        method: the method for a change at run time, or None.
        consumers: programs that would believe in another number of CPUs after SMT was switched, a sentence each.
        unknowns: sentences about missing or inconsistent facts.
        look: how its CPUs are used; None where nobody looked.
    """

    host: str
    reached: bool = True
    state: str = UNKNOWN
    shape: str = ""
    hardware_class: str | None = None
    hypervisor: str | None = None
    running: tuple[str, ...] | None = None
    configured: tuple[str, ...] | None = None
    drift: bool | None = None
    open_to: tuple[str, ...] = ()
    guest_unknown: tuple[str, ...] = ()
    method: str | None = None
    consumers: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    look: cores_in_use.HostLook | None = None


def unreached(host: str, reason: str) -> Row:
    """Return the row of a host without facts."""
    return Row(host=_text(host) or "?", reached=False, unknowns=(text.line(reason, MAX_TEXT),))


def row(host: str, facts: Facts) -> Row:
    """Return the row of a host."""
    return Row(
        host=_text(host) or "?",
        state=_state(facts),
        shape=_shape(facts),
        hardware_class=facts.hardware_class,
        hypervisor=_text(facts.hypervisor),
        running=_texts(facts.boot.running),
        configured=_texts(facts.boot.configured),
        drift=facts.boot.reboot_required,
        open_to=facts.open_by_smt(),
        guest_unknown=facts.open_by_smt("unknown"),
        method=facts.methods.runtime.chosen,
        consumers=tuple(consumer.sentence("would have") for consumer in facts.consumers_after_switch or ()),
        unknowns=_unknowns(facts),
    )


def looked_at(row: Row, look: cores_in_use.HostLook | None) -> Row:
    """Return the row of a host that was also looked at."""
    if not look or not row.reached:
        return row
    missing = () if look.use else (f"how its CPUs are used: {cores_in_use.unknown(look)}",)
    return dataclasses.replace(row, look=look, unknowns=(*row.unknowns, *missing))


def _state(facts: Facts) -> str:
    if facts.supported is False:
        return NONE
    if facts.supported is None or facts.active is None:
        return UNKNOWN
    if not facts.active:
        return FORCED_OFF if facts.control == "forceoff" else OFF
    return PARTLY if facts.cpus.offline else ON


def _shape(facts: Facts) -> str:
    cores, least, most = facts.cores, facts.threads_per_core.min, facts.threads_per_core.max
    if cores is None or least is None or most is None:
        return ""
    each = str(most) if least == most else f"{least}-{most}"
    return ", ".join(
        [
            *([] if facts.sockets is None else [wording.counted(facts.sockets, "package")]),
            f"{wording.counted(cores, 'core')} x {each}",
        ]
    )


def _unknowns(facts: Facts) -> tuple[str, ...]:
    unknowns = []
    if not facts.complete:
        offline = _text(facts.cpus.offline)
        unknowns.append(
            f"the cores of CPUs {offline}: they are offline, and there is no topology cache from when all were online"
            if offline
            else "which CPUs share a core"
        )
    if facts.source == "cpuinfo":
        unknowns.append("the kernel's sibling lists: cores are from /proc/cpuinfo")
    if facts.disagreement:
        unknowns.append(facts.disagreement)
    return tuple(unknowns) + (_texts(facts.problems) or ())


def _text(value: str | None) -> str | None:
    return text.line(value, MAX_TEXT) or None if value else None


def _texts(values: t.Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(filter(None, map(_text, values[:MAX_TEXT])))


# The terminal


def table(rows: t.Sequence[Row]) -> list[str]:
    """Format the hosts as lines of a table, and a last line with counts."""
    ordered, with_room = _ordered(rows), bool(_looks(rows))
    # Before the last column, which may be wide.
    columns = (*COLUMNS[:-1], *(cores_in_use.ROOM_COLUMNS if with_room else ()), COLUMNS[-1])
    cells = (
        (*(row := _cells(host_row))[:-1], *(cores_in_use.cells(host_row.look) if with_room else ()), row[-1])
        for host_row in ordered
    )
    return terminal_table.of_hosts(columns, cells, sentence(rows))


def _looks(rows: t.Iterable[Row]) -> list[cores_in_use.HostLook]:
    return [row.look for row in rows if row.look]


def _ordered(rows: t.Sequence[Row]) -> list[Row]:
    """Return the hosts with what needs action first: no facts, a state that is not known, open vulnerabilities, another
    next boot, other things that are not known.
    """
    return sorted(
        rows,
        key=lambda row: (
            *(not flag for flag in (not row.reached, row.state == UNKNOWN, row.open_to, row.drift, row.unknowns)),
            row.host,
        ),
    )


def _cells(row: Row) -> tuple[str, ...]:
    if not row.reached:
        return (row.host, "", "", "no facts", "", "", row.unknowns[0])
    return (
        row.host,
        row.hardware_class or "unknown",
        row.shape or "unknown",
        row.state,
        _drift_text(row),
        ", ".join(row.open_to) or "-",
        "; ".join(row.unknowns) or "-",
    )


def _drift_text(row: Row) -> str:
    if row.drift is None:
        return "unknown"
    return (" ".join(row.configured or ()) or "without SMT arguments") if row.drift else "as now"


def sentence(rows: t.Sequence[Row]) -> str:
    """Describe the fleet in one sentence."""
    reached = [row for row in rows if row.reached]
    counts = [
        (
            sum(1 for row in reached if row.state == state),
            f"with SMT {state}" if state not in (NONE, UNKNOWN) else state,
        )
        for state in STATES
    ]
    counts += [
        (sum(1 for row in reached if row.drift), "would boot with other SMT arguments"),
        (sum(1 for row in reached if row.open_to), "vulnerable because siblings are online"),
        (sum(1 for row in reached if row.consumers), "with programs that would not follow a switch"),
        (sum(1 for row in reached if row.unknowns), "with something not known"),
        (sum(1 for row in reached if row.drift is None), "whose next boot is not known"),
        (len(rows) - len(reached), "without facts"),
    ]
    parts = ", ".join(f"{count} {words}" for count, words in counts if count)
    summary = f"{wording.counted(len(rows), 'host')}: {parts or 'none'}."
    looks = _looks(rows)
    return f"{summary} Use of CPUs: {cores_in_use.summary(looks)}" if looks else summary


# The page


def page(rows: t.Sequence[Row], at: str) -> str:
    """Render the survey as one self-contained HTML page.

    Args:
        rows: of all hosts.
        at: time of the facts, as text.
    """
    reached = [row for row in _ordered(rows) if row.reached]
    return frame.render(
        "survey.html.j2",
        at=at,
        states=STATES,
        rows=reached,
        missing=[row for row in rows if not row.reached],
        choices=[(state, count) for state in STATES if (count := sum(1 for row in reached if row.state == state))],
        classes=classes(reached),
        sentence=sentence(rows),
        drift=_drift_text,
        with_consumers=any(row.consumers for row in reached),
        looks=_looks(rows),
        room_columns=cores_in_use.ROOM_COLUMNS,
        room_cells=cores_in_use.cells,
    )


def classes(rows: t.Sequence[Row]) -> list[tuple[str | None, list[Row]]]:
    """Group hosts by hardware class, the largest class first, hosts without one last."""
    by_class: dict[str | None, list[Row]] = {}
    for row in rows:
        by_class.setdefault(row.hardware_class, []).append(row)
    return sorted(by_class.items(), key=lambda pair: (pair[0] is None, -len(pair[1]), pair[0] or ""))
