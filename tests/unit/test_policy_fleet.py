# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of a policy over simulated hosts: rollout, rollback, going on, compliance, decisions from evidence."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

import result_maker
from simulated_fleet import Fleet

HOSTS = ["h1", "h2", "h3", "h4", "h5", "h6"]
WAVES = {"smt_policy": "disabled", "smt_enforce_waves": [1, 2, 3]}
HEALTH = "- name: Look\n  ansible.builtin.fail:\n    msg: the service is down\n  when: inventory_hostname in (sick | default([]))\n"
SLOW = "- name: Wait\n  ansible.builtin.wait_for:\n    path: never\n    timeout: 30\n  when: inventory_hostname == 'h2'\n"


def table(seen):
    """The last table of verdicts: host -> status."""
    lines = seen[seen.rindex("host  "):].splitlines()[2:]
    return {line.split()[0]: line.split()[1] for line in lines[:lines.index("")]}


@pytest.fixture(name="fleet")
def _fleet(tmp_path):
    fleet = Fleet(tmp_path, {name: {} for name in HOSTS})
    (tmp_path / "health.yml").write_text(HEALTH)
    return fleet


def test_a_rollout_is_checked_done_once_and_kept(fleet):
    code, seen = fleet.play("smt_enforce", "--check", **WAVES, smt_policy_scope="both")
    assert code == 2 and set(table(seen).values()) == {"drifted"}, seen
    assert fleet.changes() == {} and "changed=0" not in seen.split("PLAY RECAP")[1]

    code, seen = fleet.play("smt_enforce", **WAVES, smt_policy_scope="both")
    assert code == 0, seen
    assert "wave 1: h1\nwave 2: h2, h3\nwave 3: h4, h5, h6\n" in seen
    assert fleet.changes() == {name: ["smt false", 'configured ["nosmt"]'] for name in HOSTS}
    fleet.calls()

    fleet.set("h2", smt=True)
    fleet.set("h5", configured=[])
    code, seen = fleet.play("smt_compliance", smt_policy="disabled", smt_policy_scope="both")
    assert code == 2 and {host for host, status in table(seen).items() if status == "drifted"} == {"h2", "h5"}, seen
    assert "running: smt/control reads 'on', wanted is off; CPUs 2-3 are online" in seen and "configured: nosmt is missing" in seen
    assert json.loads((fleet.directory / "smt_compliance.json").read_text())["counts"]["drifted"] == 2
    assert 'threadwise_smt_drifted{host="h5",hardware_class="x86_64-1s2c4t-split-00000000",aspect="configured"} 1' in (
        fleet.directory / "smt_compliance.prom").read_text()
    assert fleet.changes() == {}
    assert set(fleet.calls().values()) == {1}, "a host costs one module call"

    code, seen = fleet.play("smt_enforce", **WAVES, smt_policy_scope="both")
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen
    assert fleet.changes() == {"h2": ["smt false"], "h5": ['configured ["nosmt"]']}
    assert {host: calls for host, calls in fleet.calls().items() if calls > 1} == {"h2": 3, "h5": 3}

    code, seen = fleet.play("smt_enforce", "--check", **WAVES, smt_policy_scope="both")
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen


def test_a_wave_that_fails_is_rolled_back_and_the_next_run_goes_on(fleet):
    fleet.set("h3", configured=["nosmt"])
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=["h3"], smt_policy_scope="both")
    assert code != 0 and "h3 was brought back to the state before the wave: the service is down" in seen, seen
    assert "h2 was brought back to the state before the wave: too many hosts of its wave failed: h3" in seen
    assert fleet.get("smt") == {name: name != "h1" for name in HOSTS}
    assert fleet.get("configured") == dict(dict.fromkeys(HOSTS, []), h1=["nosmt"], h3=["nosmt"]), "what was there before is back, not a guess"
    assert set(fleet.changes()) == {"h1", "h2", "h3"}

    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", smt_policy_scope="both")
    assert code == 0 and "wave 1: h2, h3\nwave 2: h4, h5, h6\n" in seen, seen
    assert set(fleet.get("smt").values()) == {False}
    assert "h1" not in fleet.changes(), "nothing is done twice"


@pytest.mark.parametrize("text", [None, "- name: [", "tasks: []", "- nosuch.collection.module: {}"], ids=["missing", "no YAML", "no list", "no module"])
def test_a_health_check_that_cannot_be_run_ends_the_rollout_before_any_change(fleet, text):
    if text is not None:
        (fleet.directory / "odd.yml").write_text(text)
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="odd.yml")
    assert code != 0 and fleet.changes() == {} and "odd.yml" in seen, seen


def kill_in_wave_2(fleet):
    """A rollout that is killed when h1 is done, and h2 and h3 are changed and their health checks not yet over."""
    (fleet.directory / "slow.yml").write_text(SLOW)
    with fleet.start("smt_enforce", **WAVES, smt_enforce_health_check="slow.yml", smt_policy_scope="both") as process:
        while not all(fleet.get("configured")[host] for host in ("h2", "h3")) and process.poll() is None:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)


def test_after_the_controller_was_killed_the_next_run_finishes_and_does_nothing_twice(fleet):
    kill_in_wave_2(fleet)
    code, seen = fleet.play("smt_compliance", smt_policy="disabled", smt_policy_scope="both")
    assert re.search("h2 +compliant .* changed by a rollout that was interrupted", seen) and not re.search("h1 .*interrupted", seen), seen
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", smt_policy_scope="both")
    assert code == 0 and set(table(seen).values()) == {"compliant"} and "interrupted" not in seen.rpartition("wave 1: h2, h3")[2], seen
    assert fleet.changes() == dict.fromkeys(HOSTS, ["smt false", 'configured ["nosmt"]'])
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=HOSTS, smt_policy_scope="both")
    assert code == 0 and fleet.changes() == {}, "nobody waits for a health check any more"


def test_a_host_that_is_sick_after_the_controller_was_killed_is_still_brought_back(fleet):
    fleet.set("h3", configured=["nosmt"])
    kill_in_wave_2(fleet)
    fleet.changes()
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=["h2"], smt_policy_scope="both")
    assert code != 0 and "h2 was brought back to the state before the wave: the service is down" in seen, seen
    assert fleet.get("smt") == {name: name != "h1" for name in HOSTS}
    assert fleet.get("configured") == dict(dict.fromkeys(HOSTS, []), h1=["nosmt"], h3=["nosmt"]), "what was there before the first rollout"
    assert set(fleet.changes()) == {"h2", "h3"}


def test_few_failures_of_a_wave_stop_nothing(fleet):
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=["h3"], smt_enforce_max_fail_percentage=50)
    assert code != 0, seen
    assert fleet.get("smt") == {name: name == "h3" for name in HOSTS}
    assert table(seen)["h3"] == "drifted" and "h2 was brought back" not in seen


def test_hosts_of_a_group_are_never_in_one_wave(tmp_path):
    fleet = Fleet(tmp_path, {name: {"smt_policy_group": "db" if name in ("h1", "h3", "h4") else name} for name in HOSTS})
    code, seen = fleet.play("smt_enforce", smt_policy="disabled", smt_enforce_waves=["100%"])
    assert code == 0 and "wave 1: h1, h2, h5, h6\nwave 2: h3\nwave 3: h4\n" in seen, seen


def test_a_group_waits_for_its_host_that_failed(tmp_path):
    fleet = Fleet(tmp_path, {name: {"smt_policy_group": "db"} if name in ("h1", "h3", "h4") else {} for name in HOSTS})
    (tmp_path / "health.yml").write_text(HEALTH)
    code, seen = fleet.play("smt_enforce", smt_policy="disabled", smt_enforce_waves=[2], smt_enforce_health_check="health.yml", sick=["h1"],
                            smt_enforce_max_fail_percentage=60)
    assert code != 0 and fleet.get("smt") == {name: name in ("h1", "h3", "h4") for name in HOSTS}, seen
    assert "h3 was left as it was: h1 of its smt_policy_group db failed before it" in seen
    assert "h4 was left as it was: h3 of its smt_policy_group db failed before it" in seen and set(fleet.changes()) == {"h1", "h2", "h5", "h6"}


def test_a_group_waits_for_its_host_that_is_gone(tmp_path):
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    fleet = Fleet(tmp_path, {"h1": dict(gone, smt_policy_group="db"), "h2": {"smt_policy_group": "db"}, "h3": {"smt_policy_group": ""}, "h4": gone})
    code, seen = fleet.play("smt_enforce", smt_policy="disabled")
    assert code != 0 and table(seen) == {"h1": "unreachable", "h2": "drifted", "h3": "compliant", "h4": "unreachable"}, seen
    assert "h2 is left out: h1 of its smt_policy_group db cannot be reached" in seen
    code, seen = fleet.play("smt_enforce", "--limit", "h2,h3", smt_policy="disabled")
    assert code == 0, seen


def test_a_host_that_is_gone_is_told_and_costs_the_others_nothing(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}})
    code, seen = fleet.play("smt_enforce", smt_policy="disabled")
    assert code != 0 and table(seen) == {"h2": "unreachable", "h1": "compliant"}, seen


def test_results_that_are_not_there_concern_auto_alone(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "enabled"}, "h2": {"smt_policy": "auto"}})
    code, seen = fleet.play("smt_compliance", smt_policy_evidence="nowhere")
    assert code == 2 and table(seen) == {"h2": "unknown", "h1": "compliant"}, seen
    assert "the results cannot be read: nowhere: cannot be listed: No such file or directory" in seen


def test_auto_takes_the_decision_of_the_same_class(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {"simulated_class": "big"}, "h2": {"simulated_class": "small"}, "h3": {"simulated_class": "other"}})
    run = tmp_path / "results/r1"
    run.mkdir(parents=True)
    for host, hardware_class, factor in (("e1", "big", 0.5), ("e2", "small", 4.0)):
        result = result_maker.result(host=host, run="r1", noise=0.0005)
        result["facts"]["hardware_class"] = hardware_class
        for sample in result["samples"]:
            if sample["condition"] == "smt_off":
                sample["metric"]["value"] *= factor
        (run / f"{host}.json").write_text(json.dumps(result))
    code, seen = fleet.play("smt_enforce", smt_policy="auto", smt_policy_evidence="results")
    assert code != 0 and table(seen)["h3"] == "unknown" and "no evaluation of hardware class other" in seen, seen
    assert fleet.get("smt") == {"h1": True, "h2": False, "h3": True}, seen
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_evidence="results")
    hosts = {host["host"]: host for host in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    assert hosts["h2"]["wanted"] == "disabled" and "evaluation of e2 in run r1" in hosts["h2"]["evidence"]
