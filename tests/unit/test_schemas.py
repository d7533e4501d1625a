# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published schemas: what they say and refuse; and docs/queries.md, whose examples print what the page shows."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import runpy
import shlex
import sys

import facts_maker
import jsonschema_rs
import looks
import pytest
import result_maker
from ansible_collections.community.general.plugins.filter import json_query
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import json_text, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import document as history
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use, exposure_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document as proof
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import base
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records, trial_report

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
    "trial": (records, records.SCHEMA),
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
    for name in ("host", "results"):
        of_schema = dict(properties(published(name)))
        (allowed,) = [one["enum"] for place, one in of_schema.items() if place.endswith(".aggregate") and "enum" in one]
        assert sorted(allowed) == sorted(workload_metrics.AGGREGATES)


RECHECK = {"host": "a", "run": "r", "day": None, "age_days": 3, "kernel": "6.12", "mitigations": [], "state": "holds"}


def judged():
    """Return a host of each kind that the check knows."""
    off, facts = policy.desired_state("disabled", None, None, None, None, False), result_maker.result(blocks=1)["facts"]
    unknown = facts_maker.made(facts, supported=None, active=None, control="absent")
    facts = facts_maker.made(facts)
    rests_on = basis.together([basis.Basis("6.1.0", "0x1", ("mds: Mitigation: x",), "1.0.0", None, True)], [NOW])
    decision = compliance.Decision(rests_on, (RECHECK,), ("it is old",), ("a",))
    waiver = waivers.parse({"until": "2026-03-01", "reason": "measured by the vendor", "owner": "jo"})
    return [
        ("a", parts.changed(compliance.judge(facts, off, "both"), decision=decision)),
        ("b", compliance.judge(unknown, off, "both")),
        ("c", compliance.refused("it returned no facts", wanted="disabled", scope="runtime")),
        ("d", compliance.refused("no policy is set", Status.BAD_POLICY)),
        ("e", compliance.from_registered({"unreachable": True, "msg": "no route"})),
        ("h", compliance.refused("its last word is old", Status.SILENT)),
        ("i", compliance.refused("the server has no word of it", Status.UNKNOWN_TO_SERVER)),
        ("g", compliance.judge(facts, off, "both").under(waiver, NOW)),
    ]


def test_what_compliance_writes_is_as_its_schema_says():
    seen = {"a": looks.looked(), "b": cores_in_use.host("b", {"msg": "no route"}, []), "c": looks.looked(use=None)}
    document = json.loads(json_text.document(Check(judged(), NOW, looks=seen)))
    assert {host["status"] for host in document["hosts"]} == set(Status) - {"compliant"}
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


def assert_refused(name, document, *wrong):
    checked(name).validate(document)
    for one in wrong:
        assert not checked(name).is_valid({**document, **one}), one


def test_a_file_of_this_version_stays_valid_and_a_wrong_one_is_refused():
    versions = {"schema_version": 2}, {"schema_version": "3"}, {"at": "2026-11-22 12:00"}, {"more": 1}
    drifted, no_look = {"status": "drifted", "reasons": "x"}, {"reason": None}
    odd = dict(HOST, status="fine"), dict(HOST, running=drifted), dict(HOST, look=no_look), {"host": "db1"}
    hosts = [{"counts": {"compliant": 1}}, *({"hosts": [one]} for one in odd)]
    assert_refused("compliance", COMPLIANCE_3, *versions, *hosts)


def test_what_exposure_writes_is_as_its_schema_says_and_a_wrong_one_is_not():
    idle = looks.looked(use=dict(looks.USE, room=None, by_usage=None), switches_a_second=None, units=[], pairs=[])
    hosts = [looks.looked(), idle, looks.looked(use=None), cores_in_use.host("web02", {"msg": "no route"}, [])]
    document = exposure_report.document(hosts, "2026-03-01T12:00:00Z")
    seen = next(host for host in document["hosts"] if host["use"])
    odd = dict(seen, use=dict(looks.USE, work=[0.5])), dict(seen, method="guess"), {"host": "web01"}
    assert_refused("exposure", document, {"schema_version": 2}, {"version": 1}, *({"hosts": [one]} for one in odd))


def test_a_result_is_as_its_schema_says_and_a_wrong_one_is_not():
    odd = {"schema_version": 1, "samples": None, "more": 1, "outcome": "fine", "environment": {"more": 1}, "facts": {}}
    assert_refused("host", result_maker.result(blocks=2), *({name: value} for name, value in odd.items()))


PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", PAGE, re.DOTALL)
KNOWN = {"wanted": "disabled", "hardware_class": "c1", "reboot_pending": False}
JUDGED = [
    ("web01", compliance.refused("SMT is enabled, and the policy wants disabled", Status.DRIFTED, **KNOWN)),
    ("web02", compliance.refused("SMT is as the policy wants", Status.COMPLIANT, **KNOWN)),
    ("db1", compliance.refused("no route to host", Status.UNREACHABLE)),
]


@pytest.fixture(scope="module", name="project")
def project_fixture(tmp_path_factory):
    """A directory with a run of two hosts and with the compliance of three."""
    directory = tmp_path_factory.mktemp("project")
    run = directory / "smt_eval_results" / "RUN"
    even = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
    shared = {"blocks": 6, "shape": (1, 2, 2)}
    first = result_maker.result(workloads={"gzip": result_maker.GZIP, "sysbench_cpu": even}, **shared)
    first["samples"][5].update(ok=False, error="exit status 1", metrics={})
    second = result_maker.result(host="web02", workloads={"sysbench_cpu": even}, noise=0.001, **shared)
    for document in (first, second):
        result_files.save(run, document)
    build.build(result_files.result_paths(run), run)
    (directory / "smt_compliance.json").write_text(registry.formats()["json"].make(Check(JUDGED, NOW)))
    return directory


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_an_example_prints_what_the_page_shows_and_the_filter_gives_the_same(
    project, command, output, monkeypatch, capsys
):
    monkeypatch.chdir(project)
    program, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(pathlib.Path(sys.executable).with_name(program)), run_name="__main__")
    assert not ended.value.code and capsys.readouterr() == (output, "")
    _option, file, expression = words
    found = json_query.json_query(json.loads((project / file).read_text(encoding="utf-8")), expression)
    assert found == json.loads(output)
