# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of a policy over simulated hosts: rollout, rollback, going on, compliance, decisions from evidence."""

import collections
import datetime
import json
import os
import re
import shlex
import signal
import time

import pytest
import result_maker
from simulated_fleet import Fleet
from this_machine import GONE, line

HOSTS = ["h1", "h2", "h3", "h4", "h5"]
COMPLIANCE = {"smt_policy": "disabled", "smt_policy_scope": "both"}
WAVES = {**COMPLIANCE, "smt_enforce_waves": [1, 2, 3]}
SICK = {**WAVES, "smt_enforce_health_check": "health.yml"}
DONE = ["smt false", 'configured ["nosmt"]']
HEALTH = """
- ansible.builtin.fail: {msg: the service is down}
  when: inventory_hostname in (sick | default([]))
"""
# Leaves word that a host's change is done and its health not yet known, and waits there for ever.
HELD = """
- ansible.builtin.file: {path: '{{ held }}/{{ inventory_hostname }}', state: touch, mode: '0600'}
- ansible.builtin.wait_for: {path: '{{ held }}/never', timeout: 3600}
  when: inventory_hostname in waiting
"""
KINDS = [f"x86_64-1s2c4t-split-{number:08x}" for number in range(4)]
TODAY = datetime.datetime.now(datetime.UTC).date()
WAIVED = {"until": TODAY, "reason": "{{ 'the vendor ' ~ 'counts' }}", "owner": "jo"}
ENDED = {**WAIVED, "until": TODAY - datetime.timedelta(days=2)}


def table(seen):
    """The last table of verdicts: host -> status."""
    lines = seen[seen.rindex("host  ") :].splitlines()[2:]
    return {line.split()[0]: line.split()[1] for line in lines[: lines.index("")]}


def recap(seen, counter):
    """The hosts that the last recap counts so."""
    return set(re.findall(rf"^(\S+) +:.* {counter}=[1-9]", seen[seen.rindex("PLAY RECAP") :], re.MULTILINE))


def written(fleet):
    """The document of the last check, and what it has of each host."""
    document = json.loads((fleet.directory / "smt_compliance.json").read_text())
    return document, {one["host"]: one for one in document["hosts"] or ()}


def evaluated(directory, host, run, hardware_class, off):
    """A result on disk, of a host that is so many times as fast with SMT off."""
    result = result_maker.result(host=host, run=run, noise=0.0005, shape=(1, 2, 2))
    result["facts"].update(hardware_class=hardware_class, numbering="split")
    for sample in result["samples"]:
        sample["metrics"]["throughput"]["value"] *= off if sample["arm"] == "smt_off" else 1
    path = directory / "results" / run / f"{host}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))


@pytest.fixture(name="fleet")
def _fleet(tmp_path):
    fleet = Fleet(tmp_path, {name: {} for name in HOSTS})
    (tmp_path / "health.yml").write_text(HEALTH)
    return fleet


def test_each_host_has_its_status_fails_itself_alone_and_gets_the_command_that_mends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    hosts = {
        "h1": {"smt_policy": "disabled"},
        "h2": {"smt_policy": "enabled"},
        "h3": {"smt_policy": "disabledd"},
        "h4": {"smt_policy": "auto", "simulated_class": KINDS[1]},
        "h5": {"smt_policy": "auto", "simulated_class": KINDS[2]},
        "h6": dict(GONE, smt_policy="enabled"),
        "h7": {"smt_policy": "disabled", "smt_policy_waiver": WAIVED},
        "h8": {"smt_policy": "disabled", "smt_policy_waiver": ENDED},
    }
    fleet = Fleet(tmp_path, hosts)
    evaluated(tmp_path, "e1", "r1", KINDS[1], 4.0)
    statuses = {"h1": "drifted", "h2": "compliant", "h3": "bad_policy", "h4": "drifted"}
    statuses |= {"h5": "unknown", "h6": "unreachable", "h7": "waived", "h8": "drifted"}
    failing = {"h1", "h3", "h4", "h5", "h8"}
    code, seen = fleet.play("smt_compliance", smt_policy_results="results")
    assert code == 4 and table(seen) == statuses, seen
    assert recap(seen, "failed") == failing and recap(seen, "unreachable") == {"h6"}, seen
    document, found = written(fleet)
    assert {host: one["status"] for host, one in found.items()} == statuses
    assert {status: count for status, count in document["counts"].items() if count} == dict(
        collections.Counter(statuses.values())
    )
    assert (found["h4"]["wanted"], found["h7"]["running"]["status"]) == ("disabled", "drifted")
    assert "e1 in run r1" in found["h4"]["decided_by"]
    assert 'compliant{host="h1"' in (tmp_path / "smt_compliance.prom").read_text()
    # What is known beforehand takes no call, and nothing was changed.
    assert fleet.calls() == {**dict.fromkeys(hosts, 1), "h3": 0, "h6": 0} and fleet.changes() == {}
    words = shlex.split(found["h1"]["remediation"].partition(": ")[2])
    assert words[:5] == ["ansible-playbook", "-i", "inventory.yml", "-b", "threadwise.smt.smt_enforce"]
    # That it does what it says is shown by the rollout below.
    code, seen = fleet.play("smt_enforce", *words[5:], "--check")
    assert code == 0 and table(seen) == {"h1": "drifted"} and recap(seen, "changed") == {"h1"}, seen
    assert "wave 1: h1\n" in seen and fleet.changes() == {}


def test_a_wave_that_fails_is_brought_back_and_ends_the_rollout(tmp_path):
    fleet = Fleet(tmp_path, {name: {} for name in HOSTS[:3]})
    (tmp_path / "health.yml").write_text(HEALTH)
    waves = {"smt_policy": "disabled", "smt_enforce_waves": [2, 1], "smt_enforce_health_check": "health.yml"}
    code, seen = fleet.play("smt_enforce", **waves, sick=["h2"])
    assert code != 0 and "wave 1: h1, h2\nwave 2: h3\n" in seen, seen
    assert "h2 was brought back to the state before the wave (smt true): the service is down" in seen
    assert "h1 was brought back to the state before the wave (smt true): too many hosts" in seen
    assert fleet.changes() == {host: ["smt false", "smt true"] for host in ("h1", "h2")}


# Variables of hosts -> what is said of them.
MISSPELT = {
    "h1": ({"smt_policy_scop": "both"}, r"smt_policy_scop \(set in \S+inventory.yml:\d+\).* smt_policy_scope \[h1\]"),
    "h2": ({"smt_memory_overcommit": "strickt"}, r"smt_memory_overcommit is 'strickt' \(set in .*\[h2\]"),
}


@pytest.mark.night(after=1)
@pytest.mark.parametrize("playbook", ["smt_compliance", "smt_enforce", "smt_survey", "smt_eval"])
def test_misspelt_and_malformed_variables_stop_each_playbook_before_any_host_is_touched(tmp_path, playbook):
    of_hosts = {host: variables for host, (variables, _said) in MISSPELT.items()}
    # What needs another variable is judged when it is used.
    fleet = Fleet(tmp_path, {**of_hosts, "h3": {"smt_policy_scope": "{{ not_there }}"}})
    code, seen = fleet.play(playbook, smt_eval_swich=False, smt_policy="disabled")
    is_check = playbook == "smt_compliance"  # whose code 2 is for hosts that do not comply
    assert code == (1 if is_check else 2) and "smt_eval_swich" in seen, seen
    assert all(re.search(said, line(seen)) for _variables, said in MISSPELT.values()), seen
    assert "[h3]" not in seen and set(fleet.calls().values()) == {0}
    # What a program reads says the same, and is no result.
    assert "smt_policy_scop " in written(fleet)[0]["error"] if is_check else list(tmp_path.glob("smt_*")) == []


def test_a_fact_waives_nothing(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}})
    fact = {"smt_policy_waiver": {**WAIVED, "until": str(TODAY)}}
    plays = [
        {"hosts": "h1", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": fact}]},
        {"ansible.builtin.import_playbook": "threadwise.smt.smt_compliance"},
    ]
    (tmp_path / "site.yml").write_text(json.dumps(plays))
    code, seen = fleet.play("site.yml", smt_policy="disabled")
    # No host is left that can be checked.
    assert code == 1 and "h1 is refused: " in line(seen) and fleet.calls() == {"h1": 0}, seen


@pytest.mark.night
def test_a_waiver_is_said_and_kept_to_everywhere(tmp_path):
    waivers = {"h1": WAIVED, "h2": ENDED, "h3": {**WAIVED, "until": "soon"}, "h4": "{{ no_such }}", "h5": {}}
    hosts = {host: {"smt_policy_waiver": waiver} for host, waiver in waivers.items()}
    # As chef's inspec_7391 had it: a day of YAML where none was expected.
    hosts |= {"h6": dict(GONE, smt_policy_waiver=WAIVED), "h7": {"smt_policy_classes": {"c": TODAY}}}
    fleet = Fleet(tmp_path, hosts)
    bad = dict.fromkeys(["h3", "h4", "h7"], "bad_policy")
    code, seen = fleet.play("smt_compliance", smt_policy="disabled")
    assert code == 4, seen
    assert table(seen) == {"h1": "waived", "h2": "drifted", "h5": "drifted", "h6": "unreachable", **bad}, seen
    shown = line(seen)
    assert f"{TODAY} (UTC, its last day) by jo: the vendor counts" in shown
    assert f"Waivers that ended: h2 ({ENDED['until']})" in shown and "within 30 days: h1" in shown
    assert "smt_policy_waiver has until 'soon'" in shown and "'no_such' is undefined" in shown
    assert written(fleet)[1]["h1"]["waiver"]["state"] == "ending"
    assert 'status="waived"} 1' in (tmp_path / "smt_compliance.prom").read_text()
    code, seen = fleet.play("smt_enforce", "--limit", "h1,h2,h5", smt_policy="disabled")
    assert code == 0 and table(seen) == {"h1": "waived", "h2": "compliant", "h5": "compliant"}, seen
    assert "h1 is left out: " in line(seen) and set(fleet.changes()) == {"h2", "h5"}
    (tmp_path / "role.yml").write_text("- {hosts: h1, gather_facts: false, roles: [threadwise.smt.smt_policy]}\n")
    code, seen = fleet.play("role.yml", smt_policy="disabled")
    assert code == 0 and "h1 is left as it is: " in line(seen) and fleet.changes() == {}, seen


def kill_in_wave_of(fleet, *hosts):
    """A rollout that is killed when these are changed and the health of the last is not known."""
    (fleet.directory / "held.yml").write_text(HELD)
    held = fleet.directory / "held"
    held.mkdir()
    more = {"smt_enforce_health_check": "held.yml", "held": str(held), "waiting": [hosts[-1]]}
    with fleet.start("smt_enforce", **WAVES, **more) as process:
        while not all((held / host).exists() for host in hosts):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    # Ansible's workers have sessions of their own and outlive that; what they wait for on the host comes now, and they
    # have nobody to tell.
    (held / "never").touch()
    while fleet.at_work():
        time.sleep(0.1)


@pytest.mark.night
def test_a_rollout_is_done_once_also_when_it_is_killed_and_kept(fleet):
    kill_in_wave_of(fleet, "h2", "h3")
    code, seen = fleet.play("smt_compliance", **COMPLIANCE)
    assert re.search("h2 +compliant .* changed by a rollout that was interrupted", seen), seen
    assert not re.search("h1 .*interrupted", seen), seen
    code, seen = fleet.play("smt_enforce", **SICK)
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen
    assert fleet.changes() == dict.fromkeys(HOSTS, DONE), "nothing is done twice"
    code, seen = fleet.play("smt_enforce", **SICK, sick=HOSTS)
    assert code == 0 and fleet.changes() == {}, "nobody waits for a health check any more"
    fleet.calls()

    fleet.set("h2", smt=True)
    fleet.set("h5", configured=[])
    code, seen = fleet.play("smt_compliance", **COMPLIANCE)
    drifted = {"h2": "drifted", "h5": "drifted"}
    assert code == 2 and table(seen) == {**dict.fromkeys(HOSTS, "compliant"), **drifted}, seen
    aspects = {host: one["configured"]["status"] for host, one in written(fleet)[1].items()}
    assert (aspects["h2"], aspects["h5"]) == ("compliant", "drifted")
    assert set(fleet.calls().values()) == {1}, "a host costs one module call"
    code, seen = fleet.play("smt_enforce", **WAVES)
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen
    assert fleet.changes() == {"h2": ["smt false"], "h5": ['configured ["nosmt"]']}
    assert {host: calls for host, calls in fleet.calls().items() if calls > 1} == {"h2": 3, "h5": 3}


@pytest.mark.night
def test_a_killed_wave_that_then_fails_is_what_it_was_before_the_first_rollout(fleet):
    fleet.set("h3", configured=["nosmt"])
    kill_in_wave_of(fleet, "h2", "h3")
    assert fleet.get("smt") == {name: name in ("h4", "h5") for name in HOSTS}
    fleet.changes()
    code, seen = fleet.play("smt_enforce", **SICK, sick=["h2"])
    assert code != 0 and "h2 was brought back" in seen and set(fleet.changes()) == {"h2", "h3"}, seen
    assert fleet.get("smt") == {name: name != "h1" for name in HOSTS}
    assert fleet.get("configured") == {host: ["nosmt"] if host in ("h1", "h3") else [] for host in HOSTS}


@pytest.mark.night
def test_few_failures_of_a_wave_stop_nothing_but_those_of_the_same_group(tmp_path):
    hosts = [*HOSTS, "h6"]
    fleet = Fleet(tmp_path, {name: {"smt_policy_group": "db"} if name in ("h1", "h3", "h4") else {} for name in hosts})
    (tmp_path / "health.yml").write_text(HEALTH)
    options = {**SICK, "smt_policy_scope": "runtime", "smt_enforce_waves": [2], "smt_enforce_max_fail_percentage": 60}
    code, seen = fleet.play("smt_enforce", **options, sick=["h1"])
    assert "wave 1: h1, h2\nwave 2: h3, h5\nwave 3: h4, h6\n" in seen, "hosts of a group are never in one wave"
    assert code != 0 and fleet.get("smt") == {name: name in ("h1", "h3", "h4") for name in hosts}, seen
    assert table(seen)["h1"] == "drifted" and set(fleet.changes()) == {"h1", "h2", "h5", "h6"}
    for host, failed in (("h3", "h1"), ("h4", "h3")):
        assert f"{host} was left as it was: {failed} of its smt_policy_group db failed" in seen


FILES = {"json": "c.json", "page": "c.html", "junit": "c.xml", "sarif": "c.sarif"}
NAMED = {f"smt_compliance_{name}": file for name, file in FILES.items()}


def left(fleet):
    return {path.name: path.read_bytes() for path in fleet.directory.glob("[cs].*")}


@pytest.mark.night
def test_a_call_that_checks_nothing_says_so_and_leaves_no_answer_of_another(tmp_path, monkeypatch):
    # What AWX and ansible-runner keep of a call.
    monkeypatch.setenv("ANSIBLE_SHOW_CUSTOM_STATS", "1")
    # The inventory names the files: where no host takes part, Ansible has not read its variables.
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "enabled", "smt_survey_page": "s.html", **NAMED}})
    # Where nothing drifted there is no wave, and no warning of that.
    code, seen = fleet.play("smt_enforce")
    assert code == 0 and "WARNING" not in seen and "no hosts matched" in seen, seen
    code, seen = fleet.play("smt_compliance", "--limit", "h1")
    assert code == 0 and fleet.play("smt_survey")[0] == 0, seen
    assert '"compliant": 1,' in line(seen[seen.index("CUSTOM STATS") :]), seen
    document = json.loads((tmp_path / "c.json").read_text())
    assert (document["error"], document["call"]["limit"]) == (None, "h1")
    before = left(fleet)
    assert set(before) == {*FILES.values(), "s.html"}
    # What changes nothing changes no file.
    for words in (("--check", "-e", "smt_compliance_hosts=nosuch"), ("--list-hosts",)):
        fleet.play("smt_compliance", *words)
    assert left(fleet) == before
    # Alerts live by metrics, which have their own time.
    for words, codes, reason in (
        (("--tags", "web"), {1}, "the tags of this call leave out all that it does"),
        (("-e", "smt_compliance_hosts=nosuch"), {1, 4}, "no host of the inventory matches smt_compliance_hosts=nosuch"),
    ):
        code, seen = fleet.play("smt_compliance", *words)
        assert code in codes, seen
        for name in FILES.values():
            text = (tmp_path / name).read_text()
            assert reason in text and '"h1"' not in text and ">h1<" not in text, name
    assert fleet.play("smt_survey", smt_survey_hosts="nosuch")[0] in (1, 4) and not (tmp_path / "s.html").exists()
    # The file of somebody else is theirs.
    (tmp_path / "c.xml").write_text("mine")
    code, seen = fleet.play("smt_compliance", "--limit", "h1")
    assert code in (1, 4) and (tmp_path / "c.xml").read_text() == "mine", seen
    assert "this collection did not write it" in line(seen), seen
    assert [path.name for path in tmp_path.glob("smt_*")] == ["smt_compliance.prom"]


AUTO = {"smt_policy": "auto", "smt_policy_results": "results"}


@pytest.mark.night
def test_auto_takes_the_decision_of_the_same_class(tmp_path):
    fleet = Fleet(tmp_path, {f"h{number}": {"simulated_class": KINDS[number]} for number in (1, 2, 3)})
    evaluated(tmp_path, "e1", "r1", KINDS[1], 0.5)
    evaluated(tmp_path, "e2", "r1", KINDS[2], 4.0)
    code, seen = fleet.play("smt_enforce", **AUTO)
    assert code != 0 and table(seen)["h3"] == "unknown" and f"hardware class {KINDS[3]}" in seen, seen
    assert fleet.get("smt") == {"h1": True, "h2": False, "h3": True}, seen
    fleet.set("h1", kernel="6.1.0-40-amd64")
    fleet.set("h2", kernel="6.12.9-1-amd64")
    code, seen = fleet.play("smt_compliance", **AUTO, smt_policy_max_age=9999)
    assert code == 2 and table(seen) == {"h1": "compliant", "h2": "compliant", "h3": "unknown"}, seen
    assert line(seen).count("is stale: it was measured on Linux 6.1, and the host runs 6.12") == 1
    assert f"Decisions to measure again: {KINDS[2]}." in line(seen)
    hosts = written(fleet)[1]
    assert hosts["h2"]["wanted"] == "disabled" and "e2 in run r1" in hosts["h2"]["decided_by"]


@pytest.mark.night
def test_a_host_decides_for_the_class_that_it_has_and_no_other(tmp_path):
    classes = {"h1": KINDS[1], "h2": KINDS[2], "liar": KINDS[3]}
    fleet = Fleet(tmp_path, {host: {"simulated_class": kind} for host, kind in classes.items()})
    # It says that each class is better off without SMT, by a run for each; the playbook asks it for its class.
    for run, number in (("r1", 3), ("r2", 1), ("r3", 2)):
        evaluated(tmp_path, "liar", run, KINDS[number], 4.0)
    evaluated(tmp_path, "h1", "r4", KINDS[1], 0.5)
    code, seen = fleet.play("smt_enforce", **AUTO)
    assert fleet.get("smt") == {"h1": True, "h2": True, "liar": False}, seen
    assert code != 0 and table(seen) == {"h1": "compliant", "h2": "unknown", "liar": "compliant"}, seen
    assert f"liar does not count by run r3: its facts show hardware class {KINDS[3]}" in line(seen), seen
    fleet.calls()
    code, seen = fleet.play("smt_compliance", **AUTO)
    hosts = written(fleet)[1]
    assert "which alone decides" in hosts["liar"]["decided_by"], seen
    assert "liar does not count by run r2" in hosts["h1"]["decided_by"]
    assert fleet.calls() == {"h1": 2, "h2": 1, "liar": 2}, "a host that was evaluated is asked once more"
