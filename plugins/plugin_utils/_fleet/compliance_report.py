# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of many hosts -> a table for the terminal, JSON, metrics for node_exporter's textfile collector, and a page.

A verdict's texts come from hosts: they are shown as data, escaped for where they go.
"""

from __future__ import annotations

import datetime
import json
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance import Verdict
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import frame

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/compliance", 1
COLUMNS = ("host", "status", "wanted", "class", "how")
KEPT = ("status", "sentence", "wanted", "scope", "hardware_class", "evidence", "reboot_pending")

# In a larger fleet compliant hosts are counted on the terminal; the files have them all.
MOST_COMPLIANT_LINES = 50
MOST_WIDTH = 48

# Name -> what it tells. Gauges only and no time stamps: the textfile collector takes nothing else.
METRICS = {
    "threadwise_smt_compliant": "1 when the host is as its SMT policy wants it, 0 when not or not known",
    "threadwise_smt_status": "1 for the status of the host: compliant, drifted, unknown or unreachable",
    "threadwise_smt_drifted": "1 when an aspect (running, configured, memory, memory_configured) of the host is not as wanted, 0 when it is",
    "threadwise_smt_reboot_pending": "1 when the next boot has other arguments that bear on SMT than the running kernel",
    "threadwise_smt_checked_timestamp_seconds": "when the host was judged, in seconds since 1970",
}

Judged = tuple[str, Verdict]


def exit_worthy(judged: t.Iterable[Judged]) -> bool:
    """Whether a pipeline has to stop: some host is anything but compliant."""
    return any(verdict["status"] != compliance.COMPLIANT for dummy, verdict in judged)


def counts(judged: t.Sequence[Judged]) -> dict[str, int]:
    """Hosts by status, all statuses named."""
    return {status: sum(1 for dummy, verdict in judged if verdict["status"] == status) for status in compliance.STATUSES}


def sentence(judged: t.Sequence[Judged]) -> str:
    """What the fleet is like, in one sentence."""
    told = ", ".join(f"{number} {status}" for status, number in counts(judged).items() if number)
    return f"{len(judged)} host{'' if len(judged) == 1 else 's'}: {told or 'none'}."


def table(judged: t.Sequence[Judged]) -> list[str]:
    """Hosts as lines of a table, those first that need somebody, and a last line that counts."""
    ordered = sorted(judged, key=lambda one: (one[1]["status"] == compliance.COMPLIANT, one[0]))
    fine = sum(1 for dummy, verdict in judged if verdict["status"] == compliance.COMPLIANT)
    shown = ordered if fine <= MOST_COMPLIANT_LINES else ordered[: len(ordered) - fine]
    cells = [COLUMNS] + [_cells(host, verdict) for host, verdict in shown]
    widths = [min(MOST_WIDTH, max(len(line[column]) for line in cells)) for column in range(len(COLUMNS) - 1)]
    lines = ["  ".join([text[:width].ljust(width) for text, width in zip(line, widths)] + [line[-1]]).rstrip() for line in cells]
    return [lines[0], "-" * len(lines[0]), *lines[1:], "", sentence(judged)]


def _cells(host: str, verdict: Verdict) -> tuple[str, ...]:
    texts = (host, verdict["status"], verdict["wanted"] or "", verdict["hardware_class"] or "", how(verdict) or "-")
    return tuple("".join(character if character.isprintable() else "?" for character in text) for text in texts)


def how(verdict: Verdict) -> str:
    """What a person should know of a host; empty where there is nothing."""
    waiting = verdict["unconfirmed"] is not None
    return ". ".join(filter(None, [verdict["sentence"], "changed by a rollout that was interrupted before the host was found healthy" if waiting else None]))


def document(judged: t.Sequence[Judged], at: datetime.datetime) -> str:
    """The verdicts as JSON text for other programs: ``{schema, schema_version, at, counts, hosts: [{host, status, ...}]}``."""
    hosts = [
        {
            "host": host,
            **{key: verdict[key] for key in KEPT},
            "unconfirmed": verdict["unconfirmed"] is not None,
            **{aspect: verdict[aspect] and {key: verdict[aspect][key] for key in ("status", "reasons")} for aspect in compliance.ASPECTS},
        }
        for host, verdict in judged
    ]
    told = {"schema": SCHEMA_NAME, "schema_version": SCHEMA_VERSION, "at": _written(at), "counts": counts(judged), "hosts": hosts}
    return json.dumps(told, indent=1, allow_nan=False) + "\n"


def metrics(judged: t.Sequence[Judged], at: datetime.datetime) -> str:
    """The verdicts as OpenMetrics text, which the textfile collector takes too. What is not known has no line."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def tell(name: str, value: float, **labels: str) -> None:
        told = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
        lines[name].append(f"{name}{{{told}}} {value}\n")

    for host, verdict in judged:
        known = {"host": host, "hardware_class": verdict["hardware_class"] or ""}
        tell("threadwise_smt_compliant", int(verdict["status"] == compliance.COMPLIANT), **known)
        tell("threadwise_smt_status", 1, **known, status=verdict["status"])
        for aspect in compliance.ASPECTS:
            state = verdict[aspect] and verdict[aspect]["status"]
            if state in (compliance.COMPLIANT, compliance.DRIFTED):
                tell("threadwise_smt_drifted", int(state == compliance.DRIFTED), **known, aspect=aspect)
        if verdict["reboot_pending"] is not None:
            tell("threadwise_smt_reboot_pending", int(verdict["reboot_pending"]), **known)
        if verdict["status"] != compliance.UNREACHABLE:
            tell("threadwise_smt_checked_timestamp_seconds", int(at.timestamp()), **known)
    return "".join(f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n{''.join(found)}" for name, found in lines.items() if found) + "# EOF\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _written(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def page(judged: t.Sequence[Judged], at: datetime.datetime) -> str:
    """The verdicts as one HTML page that needs nothing else."""
    return frame.render(
        "compliance.html.j2",
        at=_written(at),
        judged=judged,
        how=how,
        classes=_classes(judged),
        statuses=compliance.STATUSES,
        aspects=compliance.ASPECTS,
        sentence=sentence(judged),
    )


def _classes(judged: t.Sequence[Judged]) -> list[tuple[str, dict[str, int]]]:
    """Counts by hardware class, the class with most hosts first."""
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one[1]["hardware_class"] or "unknown", []).append(one)
    return sorted(((name, counts(hosts)) for name, hosts in found.items()), key=lambda pair: (-sum(pair[1].values()), pair[0]))
