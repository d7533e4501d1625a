# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check for programs; docs/compliance.schema.json says what is in it."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema, usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import rechecks
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check, Format
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance,
    compliance_report,
    policy,
    remediation,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/compliance", 3

_ENCODE = json.JSONEncoder(allow_nan=False, default=parts.fields).encode

_TEXT = {"type": "string"}
_TEXT_OR_NULL = schema.or_null(_TEXT)
_TEXTS = {"type": "array", "items": _TEXT}
_STATUSES = [status.value for status in Status]
# The fields of a host that the file takes from its result as they are.
KEPT = {
    "status": schema.about(schema.one_of(*_STATUSES), "What the check found."),
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
            schema.one_of(*(status.value for status in compliance.OF_ASPECTS)),
            "What the check found of this aspect.",
        ),
        reasons=schema.about(_TEXTS, "A sentence for each difference; the last one may only count the rest."),
    )
)
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
_RECHECK = schema.whole(
    host=schema.about(_TEXT, "Name of the host in the inventory."),
    run=schema.about(_TEXT, "Name of the run."),
    day=schema.about(_DAY_OR_NULL, "Its day, of UTC; null when unknown."),
    age_days=schema.about(schema.or_null({"type": "integer", "minimum": 0}), "Its age in days; null when unknown."),
    kernel=schema.about(_TEXT_OR_NULL, "Release of the kernel; null when unknown."),
    mitigations=schema.about(
        schema.or_null(_TEXTS), "The mitigations that were in force, as above; null where the kernel listed none."
    ),
    state=schema.about(
        schema.one_of(series.HOLDS, series.CHANGED, series.NOT_DECIDED, rechecks.NOT_COMPARED),
        "Whether what the host said in the run that decides holds, has changed, or neither is known.",
    ),
)
_WAIVER = schema.or_null(
    schema.whole(
        until=schema.about(schema.DAY, "Its last day, of UTC."),
        state=schema.about(
            schema.one_of(*t.get_args(waivers.State)),
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
                    _TEXTS,
                    "The sources of the inventory: a path below the working directory as from there.",
                ),
            ),
            "What the call was about.",
        ),
        counts=schema.about(
            schema.or_null(
                schema.whole(
                    **{
                        status: schema.about({"type": "integer", "minimum": 0}, f"Number of hosts that are {status}.")
                        for status in _STATUSES
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
                            ),
                            "services": schema.about(
                                _TEXTS,
                                "The programs that believe in the number of CPUs from before a change, a sentence each."
                                " Files of earlier releases lack it.",
                            ),
                            "checked": schema.about(
                                schema.or_null(schema.MOMENT),
                                "When the host was checked, UTC, where that is another time than that of the file or"
                                " may be one; null where nothing was heard of it.",
                            ),
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
                    rechecks=schema.about(
                        {"type": "array", "items": _RECHECK},
                        "What re-checks of its hosts have said since then, the latest first. They do not decide.",
                    ),
                ),
            },
            "The decisions of evaluations to which hosts of this check are held, by hardware class.",
        ),
        left_out=schema.about(
            _TEXTS,
            "The other hosts of the inventory, by name: this check was not about them, because of --limit or of the"
            " pattern of its hosts. Files of earlier releases lack it.",
        ),
        not_in_inventory=schema.about(
            _TEXTS,
            "Names that the files or the metrics server have (smt_compliance_source), and that the inventory has not.",
        ),
        notes=schema.about(
            _TEXTS,
            "What else is to be said of these files or of this server, a sentence each, such as files that count not.",
        ),
    ),
)


class CheckedHost(parts.Excerpt, frozen=True, kw_only=True):
    """A host of a check."""

    host: parts.HostLine
    status: Status
    sentence: parts.Text
    wanted: parts.Line | None
    scope: t.Literal["runtime", "boot", "both"] | None
    hardware_class: parts.Line | None
    decided_by: parts.Text | None
    reboot_pending: bool | None
    stale: parts.Texts | None
    waiver: waivers.Leave | None
    pending_rollback: bool
    running: compliance.Aspect | None
    configured: compliance.Aspect | None
    memory: compliance.Aspect | None
    memory_configured: compliance.Aspect | None
    services: parts.Texts = ()
    checked: parts.Moment | None = None


class RestsOn(parts.Excerpt, frozen=True):
    """What the evaluations rest on that decided."""

    kernels: parts.Lines
    microcode: parts.Lines
    mitigations: t.Annotated[tuple[parts.Lines, ...], parts.at_most(parts.MAX_ITEMS)]
    collection_versions: parts.Lines
    governors: parts.Lines
    boost: t.Annotated[tuple[bool, ...], parts.at_most(parts.MAX_ITEMS)]
    first_day: parts.Day | None
    last_day: parts.Day | None


class Recheck(parts.Excerpt, frozen=True):
    """A re-check of a host."""

    host: parts.Line
    run: parts.Line
    day: parts.Day | None
    age_days: parts.Count | None
    kernel: parts.Line | None
    mitigations: parts.Lines | None
    state: t.Literal["holds", "changed", "not decided", "not compared"]


class DecisionOfClass(parts.Excerpt, frozen=True):
    """The decision of evaluations for a hardware class."""

    hardware_class: parts.Line
    rests_on: RestsOn
    rechecks: t.Annotated[tuple[Recheck, ...], parts.at_most(parts.MAX_ITEMS)]


class CheckFile(parts.Excerpt, frozen=True):
    """A file of a check.

    Attributes:
        at: UTC.
        error: why it checked no host; None where it did.
        hosts: None where it checked none.
        decisions: to which hosts are held.
    """

    schema: t.Literal["threadwise.smt/compliance"]
    schema_version: t.Literal[2, 3]
    at: parts.Moment
    error: parts.Text | None
    hosts: t.Annotated[tuple[CheckedHost, ...], parts.at_most(parts.MAX_HOSTS)] | None
    decisions: t.Annotated[tuple[DecisionOfClass, ...], parts.at_most(parts.MAX_ITEMS)] = ()


def document(check: Check) -> str:
    """Format the results as JSON text that matches :data:`SCHEMA`."""
    call = check.call
    hosts = [
        {
            "host": host,
            **{key: getattr(result, key) for key in KEPT},
            "stale": result.decision and result.decision.stale,
            "waiver": result.waiver,
            "pending_rollback": result.pending_rollback is not None,
            "remediation": remediation.text(host, result, call),
            **{
                name: aspect and {"status": aspect.status, "reasons": aspect.reasons}
                for name, aspect in result.aspects.items()
            },
            "services": result.services,
            "checked": result.checked,
            "look": cores_in_use.described(look) if (look := check.looks.get(host)) else None,
        }
        for host, result in check.judged
    ]
    content = {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "at": check.written,
        "error": call.error,
        "call": {"limit": call.limit, "inventory": call.sources},
        # No number of a call that failed can be taken for that of a fleet without drift.
        "counts": None if call.error else compliance_report.counts(check.judged),
        "hosts": None if call.error else hosts,
        "decisions": compliance_report.decisions(check.judged),
        "left_out": list(check.left_out),
        "not_in_inventory": list(check.strangers),
        "notes": list(check.notes),
    }
    parts = ",\n".join(f" {_ENCODE(name)}: {_lines(value)}" for name, value in content.items())
    return f"{{\n{parts}\n}}\n"


def _lines(value: t.Any) -> str:
    """Return a value as JSON text, each part of a list on a line of its own. The library's own lines would take almost
    three times as long.
    """
    if not isinstance(value, list) or not value:
        return _ENCODE(value)
    return "[\n  " + ",\n  ".join(map(_ENCODE, value)) + "\n ]"


FORMAT = Format("json", places.DOCUMENT, document)
