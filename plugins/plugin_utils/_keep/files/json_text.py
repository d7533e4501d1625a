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
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_NAME, Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/compliance", 3

_ENCODE = json.JSONEncoder(allow_nan=False, default=parts.fields).encode

_TEXTS = {"type": "array", "items": {"type": "string"}}
# The fields of a host that the file takes from its result as they are.
KEPT = ("status", "sentence", "wanted", "scope", "hardware_class", "decided_by", "reboot_pending")
_LOOK = schema.or_null(
    schema.whole(
        reason=schema.about(
            {"type": ["string", "null"]},
            "Why it is not known how the host's CPUs are used; null where it is known.",
        ),
        **{name: usage.where_looked(name) for name in cores_in_use.KEPT},
    )
)
_CALL = schema.whole(
    limit=schema.about({"type": ["string", "null"]}, "What --limit said; null without it."),
    inventory=schema.about(_TEXTS, "The sources of the inventory: a path below the working directory as from there."),
)
_NUMBER = {"type": "integer", "minimum": 0}
_COUNTS = schema.or_null(
    schema.whole(**{name: schema.about(_NUMBER, f"Number of hosts that are {name}.") for name in BY_NAME})
)


class CheckedHost(parts.Excerpt, frozen=True, kw_only=True):
    """A host of a check.

    Attributes of the file:
        host: name of the host in the inventory.
        status: what the check found.
        sentence: why, in one sentence; empty where there is nothing to say.
        wanted: the state that the policy wants, also of a host that did not answer, unless its hardware class decides;
            null where no policy is set, or no state follows from it.
        scope: what the policy covers: the running system, the next boot or both; null where nothing was compared.
        hardware_class: hardware class of the host; null when unknown.
        decided_by: the run that decided under the policy auto, in words; null where none did.
        reboot_pending: whether the next boot has other SMT-related arguments than the running kernel; null when
            unknown.
        stale: why the decision that it is held to is to be measured again, a sentence for each reason; it counts as
            before. Null where no evaluation decided.
        waiver: what the user wrote of the host that may differ (smt_policy_waiver); null without it.
        pending_rollback: whether an interrupted rollout changed the host and did not find it healthy.
        remediation: the command to give or the variable to set; null where nothing is to be done.
        running: the running system; null where the policy does not cover it.
        configured: the next boot; null where the policy does not cover it.
        memory: the kernel's memory policy and the protected services; null where the policy does not cover it.
        memory_configured: the memory policy of the next boot; null where the policy does not cover it.
        look: how its CPUs are used; null where nobody looked (smt_compliance_usage_seconds). Files of earlier releases
            lack it.
        services: the programs that believe in the number of CPUs from before a change, a sentence each. Files of
            earlier releases lack it.
        checked: when the host was checked, UTC, where that is another time than that of the file or may be one; null
            where nothing was heard of it.
    """

    host: parts.HostLine
    status: t.Annotated[Status, parts.listed(*Status)]
    sentence: parts.Text
    wanted: parts.Line | None
    scope: t.Annotated[policy.Scope, parts.in_order(policy.Scope)] | None
    hardware_class: parts.Line | None
    decided_by: parts.Text | None
    reboot_pending: bool | None
    stale: parts.Texts | None
    waiver: waivers.Leave | None
    pending_rollback: bool
    remediation: t.Annotated[t.Any, parts.unread({"type": ["string", "null"]}), parts.WRITTEN] = None
    running: compliance.WrittenAspect | None
    configured: compliance.WrittenAspect | None
    memory: compliance.WrittenAspect | None
    memory_configured: compliance.WrittenAspect | None
    look: t.Annotated[t.Any, parts.unread(_LOOK)] = None
    services: parts.Texts = ()
    checked: parts.Moment | None = None


class RestsOn(parts.Excerpt, frozen=True):
    """What the evaluations rest on that decided.

    Attributes of the file:
        kernels: releases of the kernels.
        microcode: versions of the microcode.
        mitigations: the mitigations that were in force, each as the vulnerability and what the kernel does; a list for
            each set of them.
        collection_versions: versions of this collection.
        governors: frequency governors.
        boost: whether CPUs could run faster than their nominal frequency.
        first_day: day of the first of the evaluations, of UTC; null when unknown.
        last_day: day of the last of them.
    """

    kernels: parts.Lines
    microcode: parts.Lines
    mitigations: t.Annotated[tuple[parts.Lines, ...], parts.at_most(parts.MAX_ITEMS)]
    collection_versions: parts.Lines
    governors: parts.Lines
    boost: t.Annotated[tuple[bool, ...], parts.at_most(parts.MAX_ITEMS)]
    first_day: parts.Day | None
    last_day: parts.Day | None


class Recheck(parts.Excerpt, frozen=True):
    """A re-check of a host.

    Attributes of the file:
        host: name of the host in the inventory.
        run: name of the run.
        day: its day, of UTC; null when unknown.
        age_days: its age in days; null when unknown.
        kernel: release of the kernel; null when unknown.
        mitigations: the mitigations that were in force, as above; null where the kernel listed none.
        state: whether what the host said in the run that decides holds, has changed, or neither is known.
    """

    host: parts.Line
    run: parts.Line
    day: parts.Day | None
    age_days: parts.Count | None
    kernel: parts.Line | None
    mitigations: parts.Lines | None
    state: t.Annotated[rechecks.State, parts.in_order(rechecks.State)]


class DecisionOfClass(parts.Excerpt, frozen=True, kw_only=True):
    """The decision of evaluations for a hardware class.

    Attributes of the file:
        hardware_class: the hardware class.
        stale_hosts: number of hosts of the check for which it is stale.
        rests_on: what its evaluations rest on: each different value once.
        rechecks: what re-checks of its hosts have said since then, the latest first. They do not decide.
    """

    hardware_class: parts.Line
    stale_hosts: t.Annotated[t.Any, parts.unread(_NUMBER), parts.WRITTEN] = None
    rests_on: RestsOn
    rechecks: t.Annotated[tuple[Recheck, ...], parts.at_most(parts.MAX_ITEMS)]


class CheckFile(parts.Excerpt, frozen=True, kw_only=True):
    """A file of a check.

    Attributes of the file:
        at: time of the check, UTC.
        error: why the call checked no host, or that it has not ended; null where it checked them.
        call: what the call was about.
        counts: number of hosts by status; each status is listed. Null where no host was checked.
        hosts: the hosts of the play, by name. Null where none was checked.
        decisions: the decisions of evaluations to which hosts of this check are held, by hardware class.
        left_out: the other hosts of the inventory, by name: this check was not about them, because of --limit or of the
            pattern of its hosts. Files of earlier releases lack it.
        not_in_inventory: names that the files or the metrics server have (smt_compliance_source), and that the
            inventory has not.
        notes: what else is to be said of these files or of this server, a sentence each, such as files that count not.
    """

    schema: t.Literal["threadwise.smt/compliance"]
    schema_version: t.Literal[2, 3]
    at: parts.Moment
    error: parts.Text | None
    call: t.Annotated[t.Any, parts.unread(_CALL), parts.WRITTEN] = None
    counts: t.Annotated[t.Any, parts.unread(_COUNTS), parts.WRITTEN] = None
    hosts: t.Annotated[tuple[CheckedHost, ...], parts.at_most(parts.MAX_HOSTS)] | None
    decisions: t.Annotated[tuple[DecisionOfClass, ...], parts.at_most(parts.MAX_ITEMS), parts.WRITTEN] = ()
    left_out: t.Annotated[t.Any, parts.unread(_TEXTS)] = ()
    not_in_inventory: t.Annotated[t.Any, parts.unread(_TEXTS)] = ()
    notes: t.Annotated[t.Any, parts.unread(_TEXTS)] = ()


SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "Which hosts comply with their SMT policy",
    "smt_compliance.json on the controller, and /var/lib/threadwise-smt-pull/smt_compliance.json on a host with"
    " smt_pull, which lists that host alone.",
    parts.without_limits(parts.schema_of(CheckFile)),
)


def document(check: Check) -> str:
    """Format the results as JSON text that matches :data:`SCHEMA`."""
    call = check.call
    content = {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "at": check.written,
        "error": call.error,
        "call": {"limit": call.limit, "inventory": call.sources},
        # No number of a call that failed can be taken for that of a fleet without drift.
        "counts": None if call.error else compliance_report.counts(check.judged),
        "hosts": None if call.error else [_written(check, host, result) for host, result in check.judged],
        "decisions": compliance_report.decisions(check.judged),
        "left_out": list(check.left_out),
        "not_in_inventory": list(check.strangers),
        "notes": list(check.notes),
    }
    lines = ",\n".join(f" {_ENCODE(name)}: {_lines(value)}" for name, value in content.items())
    return f"{{\n{lines}\n}}\n"


def _written(check: Check, host: str, result: Compliance) -> dict[str, t.Any]:
    look = check.looks.get(host)
    return {
        "host": host,
        **{name: getattr(result, name) for name in KEPT},
        "stale": result.decision and result.decision.stale,
        "waiver": result.waiver,
        "pending_rollback": result.pending_rollback is not None,
        "remediation": remediation.text(host, result, check.call),
        **{
            name: aspect and compliance.WrittenAspect(aspect.status, aspect.reasons)
            for name, aspect in result.aspects.items()
        },
        "services": result.services,
        "checked": result.checked,
        "look": look and cores_in_use.described(look),
    }


def _lines(value: t.Any) -> str:
    """Return a value as JSON text, each part of a list on a line of its own. The library's own lines would take almost
    three times as long.
    """
    if not isinstance(value, list) or not value:
        return _ENCODE(value)
    return "[\n  " + ",\n  ".join(map(_ENCODE, value)) + "\n ]"


FORMAT = Format("json", places.DOCUMENT, document)
