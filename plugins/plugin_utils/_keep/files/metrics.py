# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check for node_exporter's textfile collector. A call that checks nothing leaves it: each metric has its time."""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import metrics as names
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check, Format
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import openmetrics

# Name -> help text. Gauges without time stamps: the textfile collector accepts nothing else.
METRICS = {
    **names.HELP,
    "threadwise_smt_drifted": (
        "1 when an aspect (running, configured, memory, memory_configured) of the host differs from its policy, 0 when"
        " it complies"
    ),
    "threadwise_smt_reboot_pending": "1 when the next boot has other SMT-related arguments than the running kernel",
    "threadwise_smt_services_wrong": (
        "number of programs on the host that believe in the number of CPUs from before a change, as far as it is known"
    ),
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


def metrics(check: Check) -> str:
    """Format the results as OpenMetrics text, which the textfile collector accepts; unknown values have no line.

    Metrics of the other hosts of the inventory stay as an earlier check left them: without them an alert about a host
    would end because somebody checked another one.
    """
    lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{key}="{openmetrics.label(value)}"' for key, value in labels.items())
        lines[name].append(f"{name}{{{pairs}}} {value}\n")

    for host, result in check.judged:
        known = {"host": host, "hardware_class": result.hardware_class or ""}
        checked = _checked(check, result)
        add(names.COMPLIANT, int(result.status is Status.COMPLIANT), **known)
        add(names.STATUS, 1, **known, status=result.status)
        # Who did not hear of a host has nothing to say of it: read again, it would be taken for what the host says.
        if result.status.row.is_asked:
            add(names.STATUS_TIME, checked, **known, **_found(result))
        for name, aspect in result.aspects.items():
            if aspect and aspect.status is not Status.UNKNOWN:
                add("threadwise_smt_drifted", int(aspect.is_drifted), **known, aspect=name)
        values = {
            "threadwise_smt_reboot_pending": result.reboot_pending,
            "threadwise_smt_services_wrong": None if result.running is None else len(result.services),
            "threadwise_smt_decision_stale": bool(result.decision.stale) if result.decision else None,
            "threadwise_smt_waiver_end_timestamp_seconds": result.waiver.end if result.waiver else None,
            "threadwise_smt_checked_timestamp_seconds": (
                None if not (result.status.row.is_seen or result.checked) else checked
            ),
        }
        for name, value in values.items():
            if value is not None:
                add(name, int(value), **known)
    kept = {openmetrics.label(host) for host in check.left_out}
    for line in (check.earlier or "").splitlines(keepends=True):
        match = _OF_HOST.match(line)
        if match and match["name"] in lines and match["host"] in kept:
            lines[match["name"]].append(line)
    return (
        "".join(
            f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n{''.join(of_name)}"
            for name, of_name in lines.items()
            if of_name
        )
        + "# EOF\n"
    )


def _checked(check: Check, result: Compliance) -> int:
    """Return when a host was checked, in seconds since 1970."""
    return int((text.moment(result.checked) if result.checked else check.at).timestamp())


def _found(result: Compliance) -> dict[str, str]:
    """Return the labels that say what a check found; an empty label is none."""
    pending = result.reboot_pending
    labels = {
        "status": result.status,
        "wanted": result.wanted,
        "scope": result.scope,
        "reboot_pending": None if pending is None else str(pending).lower(),
        **{name: aspect and aspect.status for name, aspect in result.aspects.items()},
        "sentence": text.line(compliance_report.how(result), names.MAX_SENTENCE),
    }
    return {name: value for name, value in labels.items() if value}


FORMAT = Format("metrics", places.METRICS, metrics, is_kept=True)
