# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook of compliance where it asks no host: files of other calls, and what a metrics server has."""

import datetime
import json
import re
import time

import compliance_maker
import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import json_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from simulated_fleet import Fleet
from test_policy_fleet import recap, table
from this_machine import GONE

HOSTS = ["h1", "h2", "h3", "h4"]
NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)


@pytest.fixture(name="fleet")
def _fleet(tmp_path):
    fleet = Fleet(tmp_path, {name: {} for name in HOSTS} | {"h5": GONE})
    for host in ("h1", "h2"):
        fleet.set(host, smt=False)
    return fleet


def document(fleet):
    return json.loads((fleet.directory / "smt_compliance.json").read_text())


def of_hosts(fleet):
    """What the document has of each host, without what depends on the call and the moment."""
    return {
        one["host"]: {name: one[name] for name in one if name not in ("remediation", "checked")}
        for one in document(fleet)["hosts"]
    }


@pytest.mark.night
def test_slices_are_the_check_of_all_and_nobody_is_asked(fleet):
    common = {"smt_policy": "disabled"}
    assert fleet.play("smt_compliance", **common)[0] == 4
    whole, checked = of_hosts(fleet), {one["host"]: one["checked"] for one in document(fleet)["hosts"]}
    assert checked["h1"] is not None and checked["h5"] is None
    for number, limit in enumerate(("h1,h3", "h2,h4,h5")):
        fleet.play("smt_compliance", "--limit", limit, smt_compliance_json=f"slices/{number}.json", **common)
    fleet.calls()
    merge = {"smt_compliance_source": "files", "smt_compliance_files": ["slices"]}
    code, seen = fleet.play("smt_compliance", smt_compliance_history="history", **merge)
    # As where they are asked: h5 could not be reached.
    hosts = {"h1": "compliant", "h2": "compliant", "h3": "drifted", "h4": "drifted", "h5": "unreachable"}
    assert code == 4 and table(seen) == hosts, seen
    assert of_hosts(fleet) == whole and set(fleet.calls().values()) == {0}
    assert recap(seen, "failed") == {"h3", "h4"} and recap(seen, "unreachable") == {"h5"}, seen
    assert list((fleet.directory / "history").glob("checks-*.jsonl"))
    code, seen = fleet.play("smt_compliance", "--limit", "h1", **merge)
    assert code == 0 and table(seen) == {"h1": "compliant"}, seen
    assert document(fleet)["left_out"] == ["h2", "h3", "h4", "h5"] and document(fleet)["not_in_inventory"] == []
    code, seen = fleet.play("smt_compliance", "--limit", "h1,h3", **merge)
    assert code == 2, seen


def test_what_hosts_say_on_a_server_is_judged_and_its_credentials_are_not_shown(fleet):
    heads, now = [], time.time()
    said = {"h1": ("compliant", 60), "h2": ("drifted", 60), "h3": ("compliant", 40_000), "web9": ("compliant", 60)}

    def answer(handler):
        heads.append(handler.headers["Authorization"])
        labels = [(host, {"host": host, "status": said[host][0], "instance": f"{host}:9100"}) for host in said]
        values = {host: [now, str(now - ago)] for host, (_status, ago) in said.items()}
        result = [{"metric": {**of_host, "wanted": "disabled"}, "value": values[host]} for host, of_host in labels]
        data = {"resultType": "vector", "result": result}
        prometheus_server.send(handler, json.dumps({"status": "success", "data": data}))

    with prometheus_server.serving(answer) as url:
        asked = {"smt_compliance_source": "prometheus", "smt_compliance_metrics_url": url}
        asked["smt_compliance_metrics_token"] = "s3cret-token"
        code, seen = fleet.play("smt_compliance", "-vvv", **asked)
        statuses = {"h1": "compliant", "h2": "drifted", "h3": "silent"}
        statuses |= dict.fromkeys(("h4", "h5"), "unknown_to_server")
        assert code == 2 and table(seen) == statuses, seen
        assert recap(seen, "failed") == {"h2", "h3", "h4", "h5"} and "Not in the inventory: web9." in seen, seen
        assert set(fleet.calls().values()) == {0} and heads and set(heads) == {"Bearer s3cret-token"}
        written = [path.read_text() for path in fleet.directory.glob("smt_compliance.*")]
        printed = [seen.replace(json.dumps(asked), ""), *written]
        assert len(written) == 3 and not any("s3cret" in text for text in printed)
        code, seen = fleet.play("smt_compliance", "--limit", "h1", **asked)
        assert code == 0 and recap(seen, "ok") == {"h1"}, seen
    code, seen = fleet.play("smt_compliance", **asked)
    assert code == 1 and "cannot be reached" in seen, seen
    assert document(fleet)["counts"] is None and "cannot be reached" in document(fleet)["error"]
    # What was known before is still there for the collector, each with its time.
    assert 'status="drifted"' in (fleet.directory / "smt_compliance.prom").read_text()


def made(fleet, statuses):
    """The file of another check."""
    judged = [(name, compliance_maker.found(status, "as found")) for name, status in statuses.items()]
    (fleet.directory / "other.json").write_text(json_text.document(Check(judged, NOW)))
    return {"smt_compliance_source": "files", "smt_compliance_files": ["other.json"]}


@pytest.mark.night
def test_its_play_has_one_host_and_is_about_all_that_a_pattern_names(fleet):
    asked = made(fleet, dict.fromkeys([*HOSTS, "h5"], "drifted"))
    # All of them fail: the pattern of the second play is that of all.
    code, seen = fleet.play("smt_compliance", **asked)
    assert code == 2 and recap(seen, "failed") == {*HOSTS, "h5"}, seen
    code, seen = fleet.play("smt_compliance", "--limit", "h3,h4", smt_compliance_hosts=["h1", "h3"], **asked)
    assert code == 2 and set(table(seen)) == recap(seen, "failed") == {"h3"}, seen
    assert document(fleet)["left_out"] == ["h1", "h2", "h4", "h5"]


@pytest.mark.night
def test_the_one_host_of_its_play_may_be_a_refused_one(fleet):
    poison = {"smt_compliance_hosts": "h1", "smt_compliance_page": "other.html", "cacheable": True}
    plays = [
        {"hosts": "h1", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": poison}]},
        {"ansible.builtin.import_playbook": "threadwise.smt.smt_compliance"},
    ]
    (fleet.directory / "site.yml").write_text(json.dumps(plays))
    code, seen = fleet.play("site.yml", **made(fleet, dict.fromkeys(HOSTS, "drifted")))
    assert code == 2 and set(table(seen)) == {*HOSTS, "h5"}, seen
    assert "h1 is refused" in " ".join(seen.split()) and not (fleet.directory / "other.html").exists(), seen


@pytest.mark.night(after=1)
@pytest.mark.parametrize("source", ["files", "push"])
def test_two_checks_in_one_call_each_fail_their_own_hosts(fleet, source):
    asked = made(fleet, {"h1": "compliant", "h3": "drifted"}) if source == "files" else {"smt_policy": "disabled"}
    plays = [
        {"ansible.builtin.import_playbook": "threadwise.smt.smt_compliance", "vars": {"smt_compliance_hosts": host}}
        for host in ("h1", "h3")
    ]
    (fleet.directory / "site.yml").write_text(json.dumps(plays))
    code, seen = fleet.play("site.yml", **asked)
    assert code == 2 and recap(seen, "failed") == {"h3"}, seen


@pytest.mark.night
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"smt_compliance_source": "graphite"}, "it must be files, prometheus or push"),
        ({"smt_compliance_source": "files"}, "smt_compliance_files is not set"),
        ({"smt_compliance_source": "files", "smt_compliance_files": ["nowhere.json"]}, "No such file or directory"),
        ({"smt_compliance_source": "prometheus", "smt_compliance_max_age": 0}, "smt_compliance_max_age is 0"),
    ],
)
def test_what_cannot_be_asked_ends_the_call_before_any_host_is_contacted(fleet, variables, said):
    code, seen = fleet.play("smt_compliance", **variables)
    assert code == 1 and said in " ".join(seen.split()), seen
    assert set(fleet.calls().values()) == {0} and said in document(fleet)["error"]
    assert not re.search("Traceback|Unexpected", seen), seen
