# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check as JUnit XML, for Jenkins, GitLab and others that show tests: each host is a test.

The elements and attributes are those that all readers of this format share; GitLab tells tests apart by class name and
name, so a host keeps both whatever is found.
"""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check, Format
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance import Compliance

CLASS = "threadwise.smt.compliance"


class _Outcome(t.NamedTuple):
    name: str
    element: str | None
    kind: str
    message: str
    body: str


def _text(check: Check) -> str:
    outcomes = [_of_host(check, host, result) for host, result in check.judged]
    if check.call.error:
        outcomes = [_Outcome("the call", "error", "failed", check.call.error, check.call.error)]
    elements = [outcome.element for outcome in outcomes]
    counted = {
        "tests": str(len(outcomes)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
    }
    skipped = str(elements.count("skipped"))
    root = ElementTree.Element("testsuites", {"name": CLASS, **counted, "time": "0"})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": CLASS,
            "hostname": "controller",
            "timestamp": check.written.removesuffix("Z"),
            **counted,
            "skipped": skipped,
            "time": "0",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(check).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": text.showable(value)})
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": CLASS, "name": text.showable(outcome.name), "time": "0"}
        )
        if outcome.element:
            detail = ElementTree.SubElement(case, outcome.element, {"message": text.showable(outcome.message)})
            if outcome.element != "skipped":
                detail.set("type", outcome.kind)
            detail.text = text.showable(outcome.body)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _of_host(check: Check, host: str, result: Compliance) -> _Outcome:
    status = result.status
    return _Outcome(
        host, status.row.junit, status, compliance_report.how(result) or status, check.explanation(host, result)
    )


def _properties(check: Check) -> dict[str, str]:
    """Return what the call was about; a property without a value is left out."""
    properties = {"limit": check.call.limit or "", "inventory": ", ".join(check.call.sources)}
    if not check.call.error:
        properties["summary"] = compliance_report.sentence(check.judged, check.left_out)
    return {name: value for name, value in properties.items() if value}


FORMAT = Format("junit", places.TESTS, _text)
