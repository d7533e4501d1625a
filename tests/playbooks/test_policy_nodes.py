# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout over nodes of Kubernetes: drained, changed, and with pods again, whatever fails in between."""

import json
import os
import pathlib
import sys

import pytest
from simulated_fleet import Fleet
from this_machine import GONE, line

SUPPORT = pathlib.Path(__file__).parents[1] / "unit" / "support"
sys.path.insert(0, str(SUPPORT))
import cluster  # it is beside the unit tests

POLICY = {"smt_policy": "disabled", "smt_policy_kubernetes": True, "smt_policy_kubernetes_node": "worker"}
DRAINED = ["patch", "drain", "patch"]


class Nodes(Fleet):
    """One host, which is a node, and kubectl on the controller."""

    def __init__(self, directory):
        super().__init__(directory, {"h1": {}})
        self.state_file = directory / "cluster.json"
        self.change(**cluster.NEW)
        (directory / "bin").mkdir()
        program = directory / "bin/kubectl"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {SUPPORT}/cluster.py {self.state_file} "$@"\n')
        program.chmod(0o755)

    @property
    def state(self):
        return json.loads(self.state_file.read_text()) if self.state_file.exists() else {}

    def change(self, **state):
        self.state_file.write_text(json.dumps({**self.state, **state}))

    def asked(self):
        """What kubectl was asked to change since the last call, with what happened on the host."""
        calls = [call.split()[0] for call in self.state["calls"] if not call.startswith("get")]
        self.change(calls=[])
        return calls

    @property
    def labels(self):
        return self.state["node"]["metadata"]["labels"]


@pytest.fixture(name="nodes")
def a_node(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Nodes(tmp_path)


def test_a_node_is_drained_before_its_cpus_change_and_gets_pods_again(nodes):
    code, seen = nodes.play("smt_enforce", **POLICY)
    assert code == 0 and "h1: drains node worker" in seen, seen
    assert nodes.asked() == DRAINED and nodes.state["node"] == cluster.NODE
    assert nodes.changes() == {"h1": ['consumers {"kubelet": "restart"}', "smt false"]}


@pytest.mark.night
def test_what_changes_no_cpu_drains_no_node(nodes):
    code, seen = nodes.play("smt_enforce", "--check", **POLICY)
    assert code == 0 and nodes.asked() == ["drain"] and nodes.changes() == {}, seen
    code, seen = nodes.play("smt_enforce", **{**POLICY, "smt_policy_scope": "boot"})
    assert code == 0 and nodes.asked() == [] and nodes.get("configured") == {"h1": ["nosmt"]}, seen


@pytest.mark.night
@pytest.mark.parametrize("playbook", ["smt_enforce", "play.yml"])
def test_a_node_whose_host_cannot_be_changed_gets_pods_as_before(nodes, playbook):
    (nodes.directory / "play.yml").write_text(
        "- {hosts: h1, gather_facts: false, roles: [threadwise.smt.smt_policy]}\n"
    )
    nodes.set("h1", refuses=True)
    code, seen = nodes.play(playbook, **POLICY)
    assert code != 0 and "the kernel refuses CPU 3" in line(seen.rpartition("RECAP")[0]), seen
    # Drained once: there is nothing to put back.
    assert nodes.asked() == DRAINED and nodes.state["node"] == cluster.NODE


@pytest.mark.night
def test_a_node_that_does_not_come_back_is_rolled_back_and_cordoned_until_it_does(nodes):
    nodes.change(speaks=False)
    code, seen = nodes.play("smt_enforce", **POLICY, smt_policy_kubernetes_timeout=10)
    assert code != 0 and "node worker stays cordoned: its kubelet did not say within 10 s" in line(seen), seen
    assert nodes.get("smt") == {"h1": True} and nodes.state["node"]["spec"] == {"unschedulable": True}
    # It is well again: the next rollout takes it on.
    nodes.change(speaks=True)
    code, seen = nodes.play("smt_enforce", **POLICY)
    assert code == 0 and nodes.get("smt") == {"h1": False} and nodes.state["node"] == cluster.NODE, seen


@pytest.mark.night
def test_a_node_has_labels_of_its_state_where_they_are_asked_for(nodes):
    policy = {**POLICY, "smt_policy_kubernetes_labels": True}
    for words in (["--check"], []):
        assert nodes.labels == {}
        code, seen = nodes.play("smt_enforce", *words, **policy)
        assert code == 0, seen
    off = {"threadwise-smt/threads-per-core": "1", "threadwise-smt/status": "compliant"}
    assert nodes.labels == off and nodes.asked()[-1] == "patch"
    code, seen = nodes.play("smt_enforce", **policy)
    assert code == 0 and nodes.asked() == [] and "changed=0" in seen, seen
    # Somebody has removed them, and the host is as wanted.
    nodes.change(node={**nodes.state["node"], "metadata": cluster.NODE["metadata"]})
    code, seen = nodes.play("smt_enforce", **policy)
    assert code == 0 and nodes.labels == off and nodes.asked() == ["patch"], seen
    code, seen = nodes.play("smt_enforce", **GONE, **policy)
    assert code == 4 and nodes.asked() == ["patch"], seen
    assert nodes.labels == {"threadwise-smt/threads-per-core": "unknown", "threadwise-smt/status": "unreachable"}
    # What is rolled back has the labels of what it is, under the policy that it does not have.
    (nodes.directory / "health.yml").write_text("- name: Fail\n  ansible.builtin.fail:\n")
    health = {"smt_policy": "enabled", "smt_enforce_health_check": "health.yml"}
    code, seen = nodes.play("smt_enforce", **{**policy, **health})
    assert code != 0 and nodes.labels == {**off, "threadwise-smt/status": "drifted"}, seen
