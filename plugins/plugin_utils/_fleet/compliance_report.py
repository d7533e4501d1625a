# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compliance results of many hosts as a terminal table, JSON, metrics for node_exporter's textfile collector,
and an HTML page.

Texts in results come from hosts: they are escaped for each output.
"""

from __future__ import annotations

import datetime
import json
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import schema, usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import (
    compliance,
    cores_in_use,
    fields,
    policy,
    remediation,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance import ComplianceResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import openmetrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import frame

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/compliance", 2
# What needs action comes first, the hosts that nobody could judge before those that are well.
ATTENTION = (
    compliance.DRIFTED,
    compliance.BAD_POLICY,
    compliance.UNREACHABLE,
    compliance.UNKNOWN,
    compliance.WAIVED,
    compliance.COMPLIANT,
)
COLUMNS = ("host", "status", "wanted", "class", "how")

_TEXT = {"type": "string"}
_TEXT_OR_NULL = schema.or_null(_TEXT)
_STATUS = schema.one_of(*compliance.STATUSES)
# The fields of a host that the file takes from its result as they are.
KEPT = {
    "status": schema.about(_STATUS, "What the check found."),
    "sentence": schema.about(_TEXT, "Why, in one sentence; empty where there is nothing to say."),
    "wanted": schema.about(
        _TEXT_OR_NULL,
        "The state that the policy wants, also of a host that did not answer, unless its hardware class decides; null"
        " where no policy is set, or no state follows from it.",
    ),
    "scope": schema.about(
        schema.one_of(*policy.SCOPES, None),
        "What the policy covers: the running system, the next boot or both; null where nothing was compared.",
    ),
    "hardware_class": schema.about(_TEXT_OR_NULL, "Hardware class of the host; null when unknown."),
    "decided_by": schema.about(
        _TEXT_OR_NULL, "The run that decided under the policy auto, in words; null where none did."
    ),
    "reboot_pending": schema.about(
        schema.or_null(schema.BOOL),
        "Whether the next boot has other SMT-related arguments than the running kernel; null when unknown.",
    ),
}
_ASPECT = schema.or_null(
    schema.whole(
        status=schema.about(
            schema.one_of(compliance.COMPLIANT, compliance.DRIFTED, compliance.UNKNOWN),
            "What the check found of this aspect.",
        ),
        reasons=schema.about(
            {"type": "array", "items": _TEXT}, "A sentence for each difference; the last one may only count the rest."
        ),
    )
)
_TEXTS = {"type": "array", "items": _TEXT}
_DAY_OR_NULL = schema.or_null(schema.DAY)
_RESTS_ON = schema.whole(
    kernels=schema.about(_TEXTS, "Releases of the kernels."),
    microcode=schema.about(_TEXTS, "Versions of the microcode."),
    mitigations=schema.about(
        {"type": "array", "items": _TEXTS},
        "The mitigations that were in force, each as the vulnerability and what the kernel does; a list for each set of"
        " them.",
    ),
    collection_versions=schema.about(_TEXTS, "Versions of this collection."),
    governors=schema.about(_TEXTS, "Frequency governors."),
    boost=schema.about(
        {"type": "array", "items": schema.BOOL}, "Whether CPUs could run faster than their nominal frequency."
    ),
    first_day=schema.about(_DAY_OR_NULL, "Day of the first of the evaluations, of UTC; null when unknown."),
    last_day=schema.about(_DAY_OR_NULL, "Day of the last of them."),
)
_WAIVER = schema.or_null(
    schema.whole(
        until=schema.about(schema.DAY, "Its last day, of UTC."),
        state=schema.about(
            schema.one_of(*waivers.STATES),
            f"Whether it is valid, ends within {waivers.NOTICE_DAYS} days, or is over and excuses nothing.",
        ),
        days_left=schema.about(
            {"type": "integer"}, "Whole days after that of the check: 0 on its last day, negative when it is over."
        ),
        reason=schema.about(_TEXT, "Why the host may differ."),
        owner=schema.about(_TEXT, "Who answers for it."),
    )
)
_LOOK = schema.or_null(
    schema.whole(
        reason=schema.about(_TEXT_OR_NULL, "Why it is not known how the host's CPUs are used; null where it is known."),
        **{name: usage.where_looked(name) for name in cores_in_use.KEPT},
    )
)
_ASPECT_OF = {
    "running": "The running system",
    "configured": "The next boot",
    "memory": "The kernel's memory policy and the protected services",
    "memory_configured": "The memory policy of the next boot",
}
SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "Which hosts comply with their SMT policy",
    "smt_compliance.json on the controller, and /var/lib/threadwise-smt-pull/smt_compliance.json on a host with"
    " smt_pull, which lists that host alone.",
    schema.strict(
        ("at", "error", "call", "counts", "hosts", "decisions"),
        at=schema.about(schema.MOMENT, "Time of the check, UTC."),
        error=schema.about(
            _TEXT_OR_NULL, "Why the call checked no host, or that it has not ended; null where it checked them."
        ),
        call=schema.about(
            schema.whole(
                limit=schema.about(_TEXT_OR_NULL, "What --limit said; null without it."),
                inventory=schema.about(
                    {"type": "array", "items": _TEXT}, "The sources of the inventory, as they were given."
                ),
            ),
            "What the call was about.",
        ),
        counts=schema.about(
            schema.or_null(
                schema.whole(
                    **{
                        status: schema.about({"type": "integer", "minimum": 0}, f"Number of hosts that are {status}.")
                        for status in compliance.STATUSES
                    }
                )
            ),
            "Number of hosts by status; each status is listed. Null where no host was checked.",
        ),
        hosts=schema.about(
            schema.or_null(
                {
                    "type": "array",
                    "items": schema.with_later(
                        {
                            "look": schema.about(
                                _LOOK,
                                "How its CPUs are used; null where nobody looked (smt_compliance_usage_seconds). Files"
                                " of earlier releases lack it.",
                            )
                        },
                        host=schema.about(_TEXT, "Name of the host in the inventory."),
                        **KEPT,
                        stale=schema.about(
                            schema.or_null(_TEXTS),
                            "Why the decision that it is held to is to be measured again, a sentence for each reason;"
                            " it counts as before. Null where no evaluation decided.",
                        ),
                        waiver=schema.about(
                            _WAIVER,
                            "What the user wrote of the host that may differ (smt_policy_waiver); null without it.",
                        ),
                        pending_rollback=schema.about(
                            schema.BOOL, "Whether an interrupted rollout changed the host and did not find it healthy."
                        ),
                        remediation=schema.about(
                            _TEXT_OR_NULL,
                            "The command to give or the variable to set; null where nothing is to be done.",
                        ),
                        **{
                            aspect: schema.about(
                                _ASPECT, f"{_ASPECT_OF[aspect]}; null where the policy does not cover it."
                            )
                            for aspect in compliance.ASPECTS
                        },
                    ),
                }
            ),
            "The hosts of the play, by name. Null where none was checked.",
        ),
        decisions=schema.about(
            {
                "type": "array",
                "items": schema.whole(
                    hardware_class=schema.about(_TEXT, "The hardware class."),
                    stale_hosts=schema.about(
                        {"type": "integer", "minimum": 0}, "Number of hosts of the check for which it is stale."
                    ),
                    rests_on=schema.about(_RESTS_ON, "What its evaluations rest on: each different value once."),
                ),
            },
            "The decisions of evaluations to which hosts of this check are held, by hardware class.",
        ),
        left_out=schema.about(
            {"type": "array", "items": _TEXT},
            "The other hosts of the inventory, by name: this check was not about them, because of --limit or of the"
            " pattern of its hosts. Files of earlier releases lack it.",
        ),
    ),
)

# With more compliant hosts the terminal shows their number only; the files list all.
MAX_COMPLIANT_LINES = 50
# Hosts that a sentence about many names.
MAX_NAMED = 5

# Name -> help text. Gauges without time stamps: the textfile collector accepts nothing else.
METRICS = {
    "threadwise_smt_compliant": "1 when the host complies with its SMT policy, 0 when it does not or is unknown",
    "threadwise_smt_status": ("1 for the status: compliant, waived, drifted, bad_policy, unknown or unreachable"),
    "threadwise_smt_drifted": (
        "1 when an aspect (running, configured, memory, memory_configured) of the host differs from its policy, 0 when"
        " it complies"
    ),
    "threadwise_smt_reboot_pending": "1 when the next boot has other SMT-related arguments than the running kernel",
    "threadwise_smt_decision_stale": (
        "1 when the decision of evaluations to which the host is held is to be measured again, 0 when not"
    ),
    "threadwise_smt_waiver_end_timestamp_seconds": (
        "when the waiver of the host ends or ended, in seconds since 1970; only of hosts that have one"
    ),
    "threadwise_smt_checked_timestamp_seconds": "time of the check, in seconds since 1970",
}

# A line of a metric, as `metrics` writes it.
_OF_HOST = re.compile(r'(?P<name>\w+)\{host="(?P<host>(?:[^"\\\n]|\\.)*)".*\} [0-9]+\n')

Judged = tuple[str, ComplianceResult]


def exit_worthy(judged: t.Iterable[Judged]) -> bool:
    """Return whether a pipeline must stop: some host is neither compliant nor waived."""
    return any(result["status"] not in compliance.FINE for dummy, result in judged)


def counts(judged: t.Sequence[Judged]) -> dict[str, int]:
    """Count the hosts by status; every status is listed."""
    return {status: sum(1 for dummy, result in judged if result["status"] == status) for status in compliance.STATUSES}


def sentence(judged: t.Sequence[Judged], left_out: t.Sequence[str] = ()) -> str:
    """Describe the fleet in a sentence, and in others which waivers end, what is to be measured again and what was
    not checked.
    """
    counted = ", ".join(f"{number} {status}" for status, number in _by_attention(judged))
    checked = f"{text.counted(len(judged), 'host')}: {counted or 'none'}."
    others = text.counted(len(left_out), "other host")
    not_checked = f"Not checked: {others} of the inventory." if left_out else ""
    return " ".join(filter(None, [checked, waivers.notice(judged, MAX_NAMED), _to_measure_again(judged), not_checked]))


def _to_measure_again(judged: t.Sequence[Judged]) -> str:
    """Return a sentence that names the hardware classes whose decision is stale; empty without one."""
    found = [one["hardware_class"] for one in _decisions(judged) if one["stale_hosts"]]
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"Decisions to measure again: {', '.join(found[:MAX_NAMED])}{more}." if found else ""


def _decisions(judged: t.Sequence[Judged]) -> list[dict[str, t.Any]]:
    """Return the decisions of evaluations to which hosts are held, by hardware class."""
    found: dict[str, dict[str, t.Any]] = {}
    for _host, result in judged:
        if result["decision"] is not None:
            name = result["hardware_class"] or "unknown"
            one = {"hardware_class": name, "stale_hosts": 0, "rests_on": result["decision"]["rests_on"]}
            found.setdefault(name, one)["stale_hosts"] += bool(result["decision"]["stale"])
    return [found[name] for name in sorted(found)]


def _by_attention(judged: t.Sequence[Judged]) -> list[tuple[str, int]]:
    """Return each status that occurs in words, and its number of hosts."""
    found = counts(judged)
    return [(status.replace("_", " "), found[status]) for status in ATTENTION if found[status]]


def ordered(judged: t.Sequence[Judged]) -> list[Judged]:
    """Return the hosts in the order of :data:`ATTENTION`, and by name."""
    return sorted(judged, key=lambda one: (ATTENTION.index(one[1]["status"]), one[0]))


def table(judged: t.Sequence[Judged], left_out: t.Sequence[str] = ()) -> list[str]:
    """Format the hosts as lines of a table, hosts that need attention first, and a last line with counts."""
    in_order = ordered(judged)
    fine = sum(1 for dummy, result in judged if result["status"] == compliance.COMPLIANT)
    shown = in_order if fine <= MAX_COMPLIANT_LINES else in_order[: len(in_order) - fine]
    return fields.table(COLUMNS, (_cells(host, result) for host, result in shown), sentence(judged, left_out))


def _cells(host: str, result: ComplianceResult) -> tuple[str, ...]:
    return (host, result["status"], result["wanted"] or "", result["hardware_class"] or "", how(result) or "-")


def how(result: ComplianceResult) -> str:
    """Describe what is wrong on a host; empty for a compliant one."""
    return ". ".join(filter(None, [result["sentence"], _waiting(result["pending_rollback"]), _stale(result)]))


def _stale(result: ComplianceResult) -> str:
    reasons = (result["decision"] or {}).get("stale")
    return f"the decision of its class is stale: {'; '.join(reasons)}" if reasons else ""


def _waiting(rollback: dict[str, str | None] | None) -> str:
    if rollback is None:
        return ""
    back = (
        f" (it can be brought back to {rollback['back_to']}, as of {rollback['since']})"
        if rollback["back_to"] and rollback["since"]
        else ""
    )
    return f"changed by a rollout that was interrupted before the host was found healthy{back}"


def document(
    judged: t.Sequence[Judged],
    at: datetime.datetime,
    left_out: t.Sequence[str] = (),
    call: Call | None = None,
    looks: t.Mapping[str, cores_in_use.Host | None] | None = None,
) -> str:
    """Format the results as JSON text that matches :data:`SCHEMA`.

    Args:
        judged: the hosts of the play.
        at: time of the check, UTC.
        left_out: the other hosts of the inventory.
        call: what the call was about, and why it checked no host.
        looks: how the CPUs of hosts are used, where somebody looked.
    """
    call, seen = call or Call(), looks or {}
    hosts = [
        {
            "host": host,
            **{key: result[key] for key in KEPT},
            "stale": result["decision"] and result["decision"]["stale"],
            "waiver": result["waiver"],
            "pending_rollback": result["pending_rollback"] is not None,
            "remediation": remediation.text(host, result, call),
            **{
                aspect: result[aspect] and {key: result[aspect][key] for key in ("status", "reasons")}
                for aspect in compliance.ASPECTS
            },
            "look": cores_in_use.described(look) if (look := seen.get(host)) else None,
        }
        for host, result in judged
    ]
    content = {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "at": _written(at),
        "error": call.error,
        "call": {"limit": call.limit, "inventory": list(call.inventory)},
        # No number of a call that failed can be taken for that of a fleet without drift.
        "counts": None if call.error else counts(judged),
        "hosts": None if call.error else hosts,
        "decisions": _decisions(judged),
        "left_out": list(left_out),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def metrics(
    judged: t.Sequence[Judged], at: datetime.datetime, left_out: t.Sequence[str] = (), earlier: str | None = None
) -> str:
    """Format the results as OpenMetrics text, which the textfile collector accepts; unknown values have no line.

    Args:
        judged: the hosts of the play.
        at: time of the check, UTC.
        left_out: the other hosts of the inventory, whose metrics of an earlier check stay as they are: without them an
            alert about a host would end because somebody checked another one.
        earlier: what the file holds of earlier checks, None where there is none.
    """
    lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{key}="{openmetrics.label(value)}"' for key, value in labels.items())
        lines[name].append(f"{name}{{{pairs}}} {value}\n")

    for host, result in judged:
        known = {"host": host, "hardware_class": result["hardware_class"] or ""}
        add("threadwise_smt_compliant", int(result["status"] == compliance.COMPLIANT), **known)
        add("threadwise_smt_status", 1, **known, status=result["status"])
        for aspect in compliance.ASPECTS:
            state = result[aspect] and result[aspect]["status"]
            if state in (compliance.COMPLIANT, compliance.DRIFTED):
                add("threadwise_smt_drifted", int(state == compliance.DRIFTED), **known, aspect=aspect)
        values = {
            "threadwise_smt_reboot_pending": result["reboot_pending"],
            "threadwise_smt_decision_stale": result["decision"] and bool(result["decision"]["stale"]),
            "threadwise_smt_waiver_end_timestamp_seconds": result["waiver"] and waivers.end(result["waiver"]),
            "threadwise_smt_checked_timestamp_seconds": (
                None if result["status"] == compliance.UNREACHABLE else at.timestamp()
            ),
        }
        for name, value in values.items():
            if value is not None:
                add(name, int(value), **known)
    kept = {openmetrics.label(host) for host in left_out}
    for line in (earlier or "").splitlines(keepends=True):
        found = _OF_HOST.match(line)
        if found and found["name"] in lines and found["host"] in kept:
            lines[found["name"]].append(line)
    return (
        "".join(
            f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n{''.join(of_name)}"
            for name, of_name in lines.items()
            if of_name
        )
        + "# EOF\n"
    )


def _written(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def page(
    judged: t.Sequence[Judged],
    at: datetime.datetime,
    left_out: t.Sequence[str] = (),
    call: Call | None = None,
    looks: t.Mapping[str, cores_in_use.Host | None] | None = None,
) -> str:
    """Render the results as one self-contained HTML page; the arguments are those of :func:`document`."""
    call = call or Call()
    remedies = {host: remediation.text(host, result, call) for host, result in judged}
    seen = {host: look for host, look in (looks or {}).items() if look}
    return frame.render(
        "compliance.html.j2",
        at=_written(at),
        judged=ordered(judged),
        call=call,
        how=how,
        remedies=remedies if any(remedies.values()) else {},
        classes=_classes(judged),
        statuses=ATTENTION,
        choices=_by_attention(judged),
        # A column that is empty on all hosts takes the room of the reason.
        aspects=[aspect for aspect in compliance.ASPECTS if any(result[aspect] for _host, result in judged)],
        decided=any(result["decided_by"] for _host, result in judged),
        sentence=sentence(judged, left_out),
        left_out=left_out,
        looks=seen,
        unseen=[(host, cores_in_use.unknown(look)) for host, look in sorted(seen.items()) if not look.use],
        room_columns=cores_in_use.ROOM_COLUMNS,
        room_cells=cores_in_use.cells,
    )


def _classes(judged: t.Sequence[Judged]) -> list[tuple[str, dict[str, int]]]:
    """Count the hosts by hardware class, the largest class first."""
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one[1]["hardware_class"] or "unknown", []).append(one)
    return sorted(
        ((name, counts(hosts)) for name, hosts in found.items()), key=lambda pair: (-sum(pair[1].values()), pair[0])
    )
