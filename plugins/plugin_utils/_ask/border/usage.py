# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What smt_usage answers, field by field: for the border, and for the published schemas of files that have it."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema

MAX_REASON = 4000
_SHARE: schema.Schema = {"type": "number", "minimum": 0, "maximum": 1.000001}
_ROOM: schema.Schema = {"type": "number", "minimum": 0, "maximum": 1e9}
_REASON = schema.or_null(schema.text(MAX_REASON, schema.ONE_LINE))
# Whoever starts a task can choose the name of its cgroup.
_UNIT = schema.or_null(schema.text(300))


def _two(entry: schema.Schema) -> schema.Schema:
    return {**schema.items(entry, 2), "minItems": 2}


_SPAN = _two(_SHARE)
_UNIT_SECONDS = "of an hour, in seconds of CPU time"

USE = schema.whole(
    usage=schema.about(_SHARE, "Share of the time of its CPUs in which they were busy."),
    busy=schema.about(_SPAN, "Share of the time of its cores with at least one busy thread, between two limits."),
    several=schema.about(_SPAN, "Share of it with at least two busy threads, between two limits."),
    work=schema.about(_SPAN, "Share that the host does of the work it can do, between two limits."),
    room=schema.about(
        schema.or_null(_two(_ROOM)),
        "How much more it could do, as a share of what it does, between two limits; null for an idle host.",
    ),
    by_usage=schema.about(schema.or_null(_ROOM), "What its usage says of that; null for an idle host."),
    bound=schema.about(
        {"type": "number", "minimum": 0, "maximum": 10},
        "Share of its work by which SMT off could change it at most, under the load that was seen.",
    ),
    gain=schema.about(
        _two(_ROOM),
        "What second threads give: work of a core with all threads busy in that of one, between two limits.",
    ),
)
# The fields of an answer; Ansible's own are not among them.
FIELDS: dict[str, schema.Schema] = {
    "method": schema.about(
        schema.one_of(look.SWITCHES, look.COUNTERS),
        "switches where windows of the scheduler's switches were taken, counters where only counters were read.",
    ),
    "reason": schema.about(_REASON, "Why there are no windows."),
    "use_reason": schema.about(_REASON, "Why it is not known how the host is used."),
    "source": schema.about(
        schema.one_of(look.STAT, look.PURR, look.ONE_THREAD),
        "What true use rests on: proc_stat, the kernel's busy times of each CPU and the windows; purr, what a partition"
        " of POWER counts of the use of its cores; one_thread_active, the time in which one of two threads ran alone,"
        " as processors of Intel and IBM Z count it.",
    ),
    "source_reason": schema.about(_REASON, "Why such a counter was not used although the processor has it."),
    "seconds": schema.about(schema.SECONDS, "How long was looked."),
    "windows": schema.about(schema.count(10_000), "Number of windows."),
    "watched_seconds": schema.about(schema.SECONDS, "How long they were together."),
    "cut": schema.about(schema.count(10_000), "Number of windows that ended early because a buffer was full."),
    "switches_a_second": schema.about(
        schema.or_null(schema.count()), "Switches of all CPUs a second; null without windows."
    ),
    "guessed": schema.about(schema.BOOL, "Whether it was guessed what second threads give."),
    "cores": schema.about(
        schema.items(
            schema.whole(
                cpus=schema.about(schema.items(schema.count(schema.MAX_CPUS), 64), "Its online CPUs."),
                usage=schema.about(_SHARE, "Mean share of the time in which they were busy."),
                busy=schema.about(_SPAN, "Share of the time in which at least one was busy, between two limits."),
                several=schema.about(
                    _SPAN,
                    "Share of the time in which at least two were busy, between two limits; with windows those of a"
                    " 95 % interval.",
                ),
            ),
            schema.MAX_CPUS,
        ),
        "Each core with an online CPU.",
    ),
    "use": schema.about(schema.or_null(USE), "Use of the whole host; null where that is not known."),
    "units": schema.about(
        schema.items(
            schema.whole(
                unit=schema.about(_UNIT, "The cgroup; null for tasks that could not be looked up."),
                ran=schema.about(schema.SECONDS, f"What it ran {_UNIT_SECONDS}."),
                beside=schema.about(schema.SECONDS, f"Of it, beside a busy sibling {_UNIT_SECONDS}."),
                apart=schema.about(schema.SECONDS, f"Of that, beside a sibling that ran another unit {_UNIT_SECONDS}."),
            ),
            100,
        ),
        "The cgroups that ran most in the windows.",
    ),
    "pairs": schema.about(
        schema.items(
            schema.whole(
                units=schema.about(_two(_UNIT), "The two units."),
                seconds=schema.about(schema.SECONDS, "Seconds of an hour in which both ran on one core."),
            ),
            100,
        ),
        "The pairs of units that shared cores most.",
    ),
}
RATIOS: dict[str, schema.Schema] = dict.fromkeys(("busy_ratio", "shared_ratio"), schema.or_null(_SPAN))


def where_looked(name: str) -> schema.Schema:
    """Return the schema of a field of a file that has it only of hosts with a look."""
    field = FIELDS[name]
    description = field["description"].removesuffix(".")
    return schema.about(
        field if "null" in field.get("type", ()) else schema.or_null(field), f"{description}; null without a look."
    )
