# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published schemas: what they say of each field, that they are those of the code, and what they refuse."""

from __future__ import annotations

import copy
import datetime
import json
import pathlib
import re

import jsonschema_rs
import looks
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_files import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import json_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import document as history
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use, exposure_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document as proof
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import base
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import trial_report

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
# Each published schema: who writes files of it, and the schema of the code.
WRITTEN = {
    "host": (results, results.SCHEMA),
    "results": (base, None),
    "compliance": (json_text, json_text.SCHEMA),
    "history": (history, history.SCHEMA),
    "proof": (proof, proof.SCHEMA),
    "exposure": (exposure_report, exposure_report.SCHEMA),
    "trial": (trials, trials.SCHEMA),
    "trial-report": (trial_report, trial_report.SCHEMA),
}


def published(name):
    return json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8"))


def checked(name):
    return jsonschema_rs.Draft202012Validator(published(name))


def properties(part, place=""):
    """Yield each field that a schema declares, at any depth, as its place and its schema."""
    if isinstance(part, dict):
        for name, one in part.get("properties", {}).items():
            yield f"{place}.{name}", one
        for key, one in part.items():
            yield from properties(one, f"{place}.{key}")
    elif isinstance(part, list):
        for one in part:
            yield from properties(one, place)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_schema_is_that_of_the_code_and_says_what_it_is_of(name):
    assert {path.name for path in DOCS.glob("*.schema.json")} == {f"{one}.schema.json" for one in WRITTEN}
    schema, (module, of_code) = published(name), WRITTEN[name]
    kind, version = module.SCHEMA_NAME, module.SCHEMA_VERSION
    assert of_code in (None, schema)
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:threadwise-smt:schema:{kind.rpartition('/')[2]}/{version}"
    assert (schema["properties"]["schema"]["const"], schema["properties"]["schema_version"]["const"]) == (kind, version)
    assert {"schema", "schema_version"} <= set(schema["required"])
    found = [("", schema), *properties(schema)]
    assert schema["title"] and len(found) > 15
    assert [place for place, field in found if not field.get("description")] == []
    # The pages name the version that is written.
    lines = (DOCS / "files.md").read_text(encoding="utf-8").splitlines()
    file = f"{name}.schema.json"
    rows = [line for line in lines if line.startswith("|") and f"`{kind}`" in line]
    assert rows and all(f"| `{kind}` | {version} | [{file}]({file}) |" in row for row in rows)
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert set(re.findall(rf"`{kind}`, version ([0-9]+)", pages)) <= {str(version)}


def test_what_a_metric_of_a_result_can_be_is_what_that_of_a_report_can_be():
    of_host, of_report = (dict(properties(published(name))) for name in ("host", "results"))
    (declared,) = [one["enum"] for place, one in of_host.items() if place.endswith(".aggregate") and "enum" in one]
    (compared,) = [one["enum"] for place, one in of_report.items() if place.endswith(".aggregate") and "enum" in one]
    assert sorted(compared) == sorted(declared) == sorted(workload_metrics.AGGREGATES)


def facts(**known):
    return dict(copy.deepcopy(result_maker.result(blocks=1)["facts"]), **known)


WAIVER = {"until": "2026-03-01", "reason": "measured by the vendor", "owner": "jo"}
RECHECK = {"host": "a", "run": "r", "day": None, "age_days": 3, "kernel": "6.12", "mitigations": [], "state": "holds"}


def judged():
    """Return a host of each kind that the check knows."""
    off = policy.desired_state("disabled", None, None, None, None, False)
    rests_on = basis.together([basis.Basis("6.1.0", "0x1", ("mds: Mitigation: x",), "1.0.0", None, True)], [NOW])
    decision = {"rests_on": rests_on, "rechecks": [RECHECK], "stale": ["it is old"], "measure": ["a"]}
    return [
        ("a", {**compliance.judge(facts(), off, "both"), "decision": decision}),
        ("b", compliance.judge(facts(supported=None, active=None, control="absent"), off, "both")),
        ("c", compliance.judge("no facts", off, "runtime")),
        ("d", compliance.refused("no policy is set", compliance.BAD_POLICY)),
        ("e", compliance.from_registered({"unreachable": True, "msg": "no route"})),
        ("f", compliance.from_registered(None)),
        ("h", compliance.refused("its last word is old", compliance.SILENT)),
        ("i", compliance.refused("the server has no word of it", compliance.UNKNOWN_TO_SERVER)),
        ("g", waivers.applied(compliance.judge(facts(), off, "both"), waivers.parse(WAIVER), NOW)),
    ]


def test_what_compliance_writes_is_as_its_schema_says():
    seen = {"a": looks.looked(), "b": cores_in_use.host("b", {"msg": "no route"}, []), "c": looks.looked(use=None)}
    document = json.loads(json_text.document(Check(judged(), NOW, looks=seen)))
    assert {host["status"] for host in document["hosts"]} == set(compliance.STATUSES) - {"compliant"}
    without = json.loads(json_text.document(Check((), NOW, call=Call(error="smt_polciy is no variable"))))
    for one in (document, without):
        checked("compliance").validate(one)


# As version 3 wrote it. A change that makes it invalid needs another version.
COMPLIANCE_3 = json.loads(
    '{"schema":"threadwise.smt/compliance","schema_version":3,"at":"2026-11-22T12:00:00Z","error":null,'
    '"call":{"limit":null,"inventory":["hosts.yml"]},"counts":{"compliant":1,"waived":0,"drifted":0,"bad_policy":0,'
    '"unknown":0,"unreachable":0,"silent":0,"unknown_to_server":0},"hosts":[{"host":"db1","status":"compliant",'
    '"sentence":"","wanted":"disabled","scope":"runtime","hardware_class":"x86_64-1s2c4t-split-00000000",'
    '"decided_by":null,"reboot_pending":false,"stale":null,"waiver":null,"pending_rollback":false,"remediation":null,'
    '"running":{"status":"compliant","reasons":[]},"configured":null,"memory":null,"memory_configured":null}],'
    '"decisions":[]}'
)
HOST = COMPLIANCE_3["hosts"][0]


def test_a_file_of_this_version_stays_valid_and_a_wrong_one_is_refused():
    checked("compliance").validate(COMPLIANCE_3)
    for name, value in (
        ("schema_version", 2),
        ("schema_version", "3"),
        ("at", "2026-11-22 12:00"),
        ("counts", {"compliant": 1}),
        ("more", 1),
        ("hosts", [{"host": "db1", "status": "compliant"}]),
        ("hosts", [dict(HOST, status="fine")]),
        ("hosts", [dict(HOST, running={"status": "drifted", "reasons": "x"})]),
        ("hosts", [dict(HOST, look={"reason": None})]),
    ):
        assert not checked("compliance").is_valid({**COMPLIANCE_3, name: value}), name


def test_what_exposure_writes_is_as_its_schema_says_and_a_wrong_one_is_not():
    idle = looks.looked(use=dict(looks.USE, room=None, by_usage=None), switches_a_second=None, units=[], pairs=[])
    hosts = [looks.looked(), idle, looks.looked(use=None), cores_in_use.host("web02", {"msg": "no route"}, [])]
    document = exposure_report.document(hosts, "2026-03-01T12:00:00Z")
    checked("exposure").validate(document)
    seen = next(host for host in document["hosts"] if host["use"])
    for wrong in (
        {"schema_version": 2},
        {"version": 1},
        {"hosts": [dict(seen, use=dict(looks.USE, work=[0.5]))]},
        {"hosts": [dict(seen, method="guess")]},
        {"hosts": [{"host": "web01"}]},
    ):
        assert not checked("exposure").is_valid({**document, **wrong}), wrong


def test_a_result_is_as_its_schema_says_and_a_wrong_one_is_not():
    document = result_maker.result(blocks=2)
    checked("host").validate(document)
    wrong = {
        "schema_version": 1,
        "samples": None,
        "more": 1,
        "outcome": "fine",
        "environment": {"more": 1},
        "facts": {},
    }
    for name, value in wrong.items():
        assert not checked("host").is_valid({**document, name: value}), name
