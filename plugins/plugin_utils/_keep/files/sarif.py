# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check as SARIF 2.1.0, for code scanning of GitHub and others: each host that needs action is a result.

What such services refuse or take wrongly decides the form. A result needs a place that is a relative address: it is
the inventory's, and the host is its logical location. Results of one rule and place count as one without a fingerprint.
More than MAX_RESULTS are refused as a whole. Results that are suppressed or have passed become alerts, so hosts that
are waived or compliant are none. There is no automationDetails: its id is GitHub's category, which nobody can replace
at the upload, and a file of the same category closes the alerts of the one before, also those of other hosts.
"""

from __future__ import annotations

import hashlib
import json
import os
import typing as t
import urllib.parse

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check, Format
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_ATTENTION, Status

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
MAX_RESULTS = 25_000
TOOL = "threadwise.smt"
# Where no file of the working directory is the inventory.
NO_FILE = "inventory"
# The statuses of hosts that are results.
RULES = tuple(status for status in BY_ATTENTION if status.row.level)


def _text(check: Check) -> str:
    shown = (
        []
        if check.call.error
        else [entry for entry in compliance_report.ordered(check.judged) if entry[1].status in RULES]
    )
    reasons = [check.call.error] if check.call.error else []
    if len(shown) > MAX_RESULTS:
        reasons.append(
            f"{len(shown) - MAX_RESULTS} of {len(shown)} hosts that need action are left out: the format's readers"
            f" take {MAX_RESULTS}"
        )
    place = _place(check.call.inventory)
    run = {
        "tool": {"driver": _driver()},
        "invocations": [
            {
                "executionSuccessful": not check.call.error,
                "endTimeUtc": check.written,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": text.showable(reason)}} for reason in reasons
                ],
            }
        ],
        "properties": {
            "limit": check.call.limit,
            "inventory": check.call.sources,
            "counts": None if check.call.error else compliance_report.counts(check.judged),
        },
        "results": [_result(check, host, result, place) for host, result in shown[:MAX_RESULTS]],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _driver() -> dict[str, t.Any]:
    rules = [
        {
            "id": _id(status),
            "name": title.title().replace(" ", ""),
            "shortDescription": {"text": title},
            "fullDescription": {"text": meaning},
            "help": {"text": f"{meaning} Each result says what to do."},
            "defaultConfiguration": {"level": status.row.level},
        }
        for status in RULES
        for title, meaning in [status.row.rule]
    ]
    return {"name": TOOL, "version": COLLECTION_VERSION, "semanticVersion": COLLECTION_VERSION, "rules": rules}


def _id(status: Status) -> str:
    return f"smt-{status.replace('_', '-')}"


def _result(check: Check, host: str, result: Compliance, place: str) -> dict[str, t.Any]:
    status, name = result.status, text.showable(host)
    return {
        "ruleId": _id(status),
        "ruleIndex": RULES.index(status),
        "level": status.row.level,
        "message": {"text": text.showable(f"{host}: {check.explanation(host, result)}")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": place}, "region": {"startLine": 1}},
                "logicalLocations": [{"name": name, "fullyQualifiedName": name, "kind": "resource"}],
            }
        ],
        # The name that GitHub reads. The line says nothing: the host does.
        "partialFingerprints": {
            "primaryLocationLineHash": hashlib.sha256(f"{status} {host}".encode()).hexdigest()[:16]
        },
    }


def _place(inventory: t.Sequence[str]) -> str:
    """Return the relative address of the first inventory that is below the working directory."""
    here = os.path.realpath(os.curdir)
    for source in inventory:
        path = os.path.realpath(source)
        if "," not in source and path.startswith(f"{here}{os.sep}") and os.path.exists(path):
            return urllib.parse.quote(os.path.relpath(path, here))
    return NO_FILE


FORMAT = Format("sarif", places.FINDINGS, _text)
