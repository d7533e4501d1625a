# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes around a change of its host."""

from __future__ import annotations

import copy

import cluster
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes import kubectl
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes.node import ANNOTATION, Node, NodeError


class Cluster:
    def __init__(self):
        self.state = copy.deepcopy(cluster.NEW)
        self.seconds = 0.0
        self.node = Node("worker", self.run, self.pause, lambda: self.seconds)
        self.spec, self.metadata = self.state["node"]["spec"], self.state["node"]["metadata"]

    def run(self, argv, seconds):
        assert argv[0] == "kubectl" and seconds > 0
        return cluster.answer(self.state, argv[1:])

    def pause(self, seconds):
        self.seconds += seconds

    def calls(self, word):
        return [call for call in self.state["calls"] if call.startswith(word)]


@pytest.fixture(name="world")
def a_cluster():
    return Cluster()


def test_a_node_is_drained_and_gets_pods_again_whoever_takes_it_on(world):
    assert world.node.drain([], 60, check=True) is True
    assert world.calls("drain") == ["drain worker --dry-run=client --timeout=60s"] and not world.calls("patch")
    assert world.spec == {} and world.node.ready(60, check=True) is False
    assert world.node.drain(["--ignore-daemonsets"], 60, check=False) is True
    assert (
        world.spec == {"unschedulable": True}
        and ANNOTATION in world.metadata["annotations"]
        and not world.state["pods"]
    )
    assert world.calls("drain")[1:] == ["drain worker --ignore-daemonsets --timeout=60s"]
    # A controller that died leaves a node that the next call takes on.
    again = Node("worker", world.run, world.pause, lambda: world.seconds)
    assert again.drain([], 60, check=False) is False
    assert again.ready(60, check=False) is True and world.spec == {} and world.metadata["annotations"] == {}


def test_a_kubelet_that_does_not_speak_or_is_not_ready_is_waited_for(world):
    world.node.drain([], 60, check=False)
    world.state["speaks"] = False
    with pytest.raises(NodeError, match=r"stays cordoned: its kubelet did not say .* kubectl uncordon worker"):
        world.node.ready(60, check=False)
    assert world.spec == {"unschedulable": True} and world.seconds >= 60
    world.state["speaks"] = True
    condition = world.state["node"]["status"]["conditions"][1]
    condition["status"] = "False"
    with pytest.raises(NodeError, match="within 10 s"):
        world.node.ready(10, check=False)
    condition["status"] = "True"
    assert world.node.ready(60, check=False) is True and world.spec == {}


def test_who_may_not_do_it_is_told_what_kubectl_said(world):
    world.state["fails"] = ["get node"]
    with pytest.raises(NodeError, match=r"kubectl get node worker -o json ended with 1: error: You must be logged in"):
        world.node.drain([], 60, check=False)
    with pytest.raises(NodeError, match=r"worker has no labels of its SMT state: .*Unauthorized"):
        world.node.label({"a": "b"})
    world.state["fails"] = ["drain", "patch"]
    with pytest.raises(NodeError, match=r"was not drained, and stays cordoned \(kubectl patch"):
        world.node.drain([], 60, check=False)


def test_a_name_that_is_none_reaches_no_command_and_what_is_no_node_is_an_error():
    for name in ("", "-n", "--all", "A", "a b", "a;b", "x" * 300, "a\n", "{{ a }}"):
        with pytest.raises(NodeError, match="is no name of a node of Kubernetes: set smt_policy_kubernetes_node"):
            Node(name)
    for printed in ("", "[]", "{", "[" * 9999, "NaN"):
        with pytest.raises(NodeError, match="printed no JSON") as error:
            Node("worker", lambda _argv, _seconds, text=printed: (0, text, "")).status()
        assert str(error.value).isprintable() and len(str(error.value)) < 1000
    for printed in ("{}", '{"spec": [], "status": {"conditions": {}}, "metadata": 1}'):
        status = Node("worker", lambda _argv, _seconds, text=printed: (0, text, "")).status()
        assert not (status.is_ready or status.is_ours or status.is_cordoned)


def test_kubectl_that_is_missing_hangs_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NodeError, match=r"kubectl is not installed on the controller: .* smt_policy_kubernetes"):
        Node("worker").status()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "kubectl"
    for script, said in (
        ("exec sleep 60", "did not end"),
        ("echo 'E0101 10:00:00 log' >&2; printf 'no \\033[2J' >&2; exit 3", r" ended with 3: no \\x1b\[2J$"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with pytest.raises(kubectl.KubectlError, match=said):
            kubectl.ask(kubectl.run, "get", "node", seconds=0.4)


def test_labels_are_written_where_they_differ(world):
    labels = {"threadwise-smt/threads-per-core": "1", "threadwise-smt/status": "compliant"}
    world.metadata["labels"] = {"threadwise-smt/status": "compliant", "zone": "a"}
    assert world.node.label(labels) is True and world.metadata["labels"] == {**labels, "zone": "a"}
    (patch,) = world.calls("patch")
    assert "threads-per-core" in patch and "compliant" not in patch and world.node.label(labels) is False
