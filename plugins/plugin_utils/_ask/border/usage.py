# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What smt_usage answers: for the border, and for the published schemas of files that have it."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    ChangedAnswer,
    Count,
    Part,
    Seconds,
    about,
    at_most,
    between,
    from_to,
    in_order,
    shown,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import MAX_CPUS, ONE_LINE

Share = t.Annotated[int, between(0, 1)] | t.Annotated[float, between(0, 1.000001)]
Room = t.Annotated[int, between(0, 1_000_000_000)] | t.Annotated[float, between(0, 1e9), shown(maximum=1e9)]
Span = t.Annotated[tuple[Share, ...], from_to(2, 2)]
RoomSpan = t.Annotated[tuple[Room, ...], from_to(2, 2)]
Reason = t.Annotated[str, text_of(4000, ONE_LINE)]
# Whoever starts a task can choose the name of its cgroup.
Unit = t.Annotated[str, at_most(300)]
Windows = t.Annotated[int, between(0, 10_000)]
Bound = t.Annotated[int, between(0, 10)] | t.Annotated[float, between(0, 10)]
_UNIT_SECONDS = "of an hour, in seconds of CPU time"
Method = t.Literal["switches", "counters"]
Source = t.Literal["proc_stat", "purr", "one_thread_active"]


class Use(Part, frozen=True):
    """The use of a host."""

    usage: t.Annotated[Share, about("Share of the time of its CPUs in which they were busy.")]
    busy: t.Annotated[Span, about("Share of the time of its cores with at least one busy thread, between two limits.")]
    several: t.Annotated[Span, about("Share of it with at least two busy threads, between two limits.")]
    work: t.Annotated[Span, about("Share that the host does of the work it can do, between two limits.")]
    room: t.Annotated[
        RoomSpan | None,
        about("How much more it could do, as a share of what it does, between two limits; null for an idle host."),
    ]
    by_usage: t.Annotated[Room | None, about("What its usage says of that; null for an idle host.")]
    bound: t.Annotated[
        Bound, about("Share of its work by which SMT off could change it at most, under the load that was seen.")
    ]
    gain: t.Annotated[
        RoomSpan,
        about("What second threads give: work of a core with all threads busy in that of one, between two limits."),
    ]


class CoreUse(Part, frozen=True):
    """The use of a core."""

    cpus: t.Annotated[tuple[t.Annotated[int, between(0, MAX_CPUS)], ...], at_most(64), about("Its online CPUs.")]
    usage: t.Annotated[Share, about("Mean share of the time in which they were busy.")]
    busy: t.Annotated[Span, about("Share of the time in which at least one was busy, between two limits.")]
    several: t.Annotated[
        Span,
        about(
            "Share of the time in which at least two were busy, between two limits; with windows those of a 95 %"
            " interval."
        ),
    ]


class UnitUse(Part, frozen=True):
    """What a unit ran."""

    unit: t.Annotated[Unit | None, about("The cgroup; null for tasks that could not be looked up.")]
    ran: t.Annotated[Seconds, about(f"What it ran {_UNIT_SECONDS}.")]
    beside: t.Annotated[Seconds, about(f"Of it, beside a busy sibling {_UNIT_SECONDS}.")]
    apart: t.Annotated[Seconds, about(f"Of that, beside a sibling that ran another unit {_UNIT_SECONDS}.")]


class Pair(Part, frozen=True):
    """Two units on one core."""

    units: t.Annotated[tuple[Unit | None, ...], from_to(2, 2), about("The two units.")]
    seconds: t.Annotated[Seconds, about("Seconds of an hour in which both ran on one core.")]


class UsageAnswer(ChangedAnswer, frozen=True, kw_only=True):
    """The answer of smt_usage."""

    busy_ratio: Span | None
    shared_ratio: Span | None
    method: t.Annotated[
        Method,
        in_order(Method),
        about("switches where windows of the scheduler's switches were taken, counters where only counters were read."),
    ]
    reason: t.Annotated[Reason | None, about("Why there are no windows.")]
    use_reason: t.Annotated[Reason | None, about("Why it is not known how the host is used.")]
    source: t.Annotated[
        Source,
        in_order(Source),
        about(
            "What true use rests on: proc_stat, the kernel's busy times of each CPU and the windows; purr, what a"
            " partition of POWER counts of the use of its cores; one_thread_active, the time in which one of two"
            " threads ran alone, as processors of Intel and IBM Z count it."
        ),
    ]
    source_reason: t.Annotated[Reason | None, about("Why such a counter was not used although the processor has it.")]
    seconds: t.Annotated[Seconds, about("How long was looked.")]
    windows: t.Annotated[Windows, about("Number of windows.")]
    watched_seconds: t.Annotated[Seconds, about("How long they were together.")]
    cut: t.Annotated[Windows, about("Number of windows that ended early because a buffer was full.")]
    switches_a_second: t.Annotated[Count | None, about("Switches of all CPUs a second; null without windows.")]
    guessed: t.Annotated[bool, about("Whether it was guessed what second threads give.")]
    cores: t.Annotated[tuple[CoreUse, ...], at_most(MAX_CPUS), about("Each core with an online CPU.")]
    use: t.Annotated[Use | None, about("Use of the whole host; null where that is not known.")]
    units: t.Annotated[tuple[UnitUse, ...], at_most(100), about("The cgroups that ran most in the windows.")]
    pairs: t.Annotated[tuple[Pair, ...], at_most(100), about("The pairs of units that shared cores most.")]


_FIELDS = parts.schema_of(UsageAnswer)["properties"]


def where_looked(name: str) -> schema.Schema:
    """Return the schema of a field of a file that has it only of hosts with a look."""
    field: schema.Schema = _FIELDS.get(name, schema.BOOL)
    description = field.get("description", "").removesuffix(".")
    return schema.about(
        field if "null" in field.get("type", ()) else schema.or_null(field), f"{description}; null without a look."
    )
