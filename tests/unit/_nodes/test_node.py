# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes around a change of its host."""

from __future__ import annotations

import copy
import json

import cluster
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._nodes import kubectl
from ansible_collections.threadwise.smt.plugins.plugin_utils._nodes.node import ANNOTATION, Node, NodeError


class Cluster:
    def __init__(self):
        self.state = copy.deepcopy(cluster.NEW)
        self.seconds = 0.0
        self.node = Node("worker", self.run, self.pause, lambda: self.seconds)

    def run(self, argv, seconds):
        assert argv[0] == "kubectl" and seconds > 0
        return cluster.answer(self.state, argv[1:])

    def pause(self, seconds):
        self.seconds += seconds

    @property
    def spec(self):
        return self.state["node"]["spec"]

    @property
    def annotations(self):
        return self.state["node"]["metadata"]["annotations"]

    def calls(self, word):
        return [call for call in self.state["calls"] if call.startswith(word)]


@pytest.fixture(name="world")
def a_cluster():
    return Cluster()


def test_a_node_is_drained_and_gets_pods_again(world):
    assert world.node.drain(["--ignore-daemonsets"], 60, check=False) is True
    assert world.spec == {"unschedulable": True} and ANNOTATION in world.annotations and not world.state["pods"]
    assert world.calls("drain") == ["drain worker --ignore-daemonsets --timeout=60s"]
    assert world.node.ready(60, check=False) is True
    assert world.spec == {} and world.annotations == {}


def test_a_kubelet_that_does_not_speak_is_not_ready_whatever_the_condition_says(world):
    world.node.drain([], 60, check=False)
    world.state["speaks"] = False
    with pytest.raises(NodeError, match=r"stays cordoned: its kubelet did not say .* kubectl uncordon worker"):
        world.node.ready(60, check=False)
    assert world.spec == {"unschedulable": True} and world.seconds >= 60
    # The next call takes it on.
    world.state["speaks"] = True
    assert world.node.ready(60, check=False) is True and world.spec == {}


def test_a_kubelet_that_speaks_and_is_not_ready_is_waited_for(world):
    world.node.drain([], 60, check=False)
    world.state["node"]["status"]["conditions"][1]["status"] = "False"
    with pytest.raises(NodeError, match="did not say within 10 s"):
        world.node.ready(10, check=False)


def test_the_cordon_of_somebody_else_stays(world):
    world.spec["unschedulable"] = True
    assert world.node.drain([], 60, check=False) is False
    assert world.node.ready(60, check=False) is False
    assert world.spec == {"unschedulable": True} and world.annotations == {} and not world.calls("patch")


def test_a_controller_that_died_leaves_a_node_that_the_next_call_takes_on(world):
    world.node.drain([], 60, check=False)
    again = Node("worker", world.run, world.pause, lambda: world.seconds)
    assert again.drain([], 60, check=False) is False
    assert again.ready(60, check=False) is True and world.spec == {}


@pytest.mark.parametrize("check", [True, False])
def test_a_node_that_cannot_be_drained_gets_pods_as_before(world, check):
    world.state["stuck"] = ["lone"]
    words = "nothing was changed" if check else "gets pods as before"
    with pytest.raises(NodeError, match=rf"worker was not drained, and {words}: .*declare no controller: lone"):
        world.node.drain([], 60, check=check)
    assert world.spec == {} and world.annotations == {} and world.state["pods"] == ["app"]


def test_check_mode_asks_and_changes_nothing(world):
    assert world.node.drain([], 60, check=True) is True
    assert world.calls("drain") == ["drain worker --dry-run=client --timeout=60s"] and not world.calls("patch")
    assert world.spec == {} and world.node.ready(60, check=True) is False


def test_who_may_not_do_it_is_told_what_kubectl_said(world):
    world.state["fails"] = ["get node"]
    with pytest.raises(NodeError, match=r"kubectl get node worker -o json ended with 1: error: You must be logged in"):
        world.node.drain([], 60, check=False)
    world.state["fails"] = ["drain", "patch"]
    with pytest.raises(NodeError, match=r"was not drained, and stays cordoned \(kubectl patch"):
        world.node.drain([], 60, check=False)


@pytest.mark.parametrize("name", ["", "-n", "--all", "A", "a b", "a;b", "x" * 300, "a\n", "{{ a }}"])
def test_a_name_that_is_none_reaches_no_command(name):
    with pytest.raises(NodeError, match="is no name of a node"):
        Node(name)


@pytest.mark.parametrize("printed", ["", "[]", "{", "[" * 9999, "NaN"], ids=len)
def test_what_is_no_node_is_an_error(printed):
    with pytest.raises(NodeError, match="printed no JSON") as error:
        Node("worker", lambda _argv, _seconds: (0, printed, "")).status()
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "printed", ["{}", '{"spec": [], "status": {"conditions": {}}, "metadata": {"annotations": 1}}']
)
def test_what_says_nothing_is_a_node_that_is_not_ready(printed):
    status = Node("worker", lambda _argv, _seconds: (0, printed, "")).status()
    assert not (status.is_ready or status.is_ours or status.is_cordoned)


def test_kubectl_that_is_missing_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NodeError, match=r"kubectl is not installed on the controller: .* smt_policy_kubernetes"):
        Node("worker").status()


def test_kubectl_that_hangs_is_given_up(tmp_path, monkeypatch):
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(kubectl.KubectlError, match="did not end"):
        kubectl.ask(kubectl.run, "get", "node", seconds=0.2)
    program.write_text("#!/bin/sh\nprintf '\\033[31mred'; printf '\\033[2J' >&2; exit 3\n")
    with pytest.raises(kubectl.KubectlError) as error:
        kubectl.ask(kubectl.run, "get", "node")
    assert str(error.value).isprintable() and json.dumps(str(error.value))


def test_pods_of_a_kubelet_that_does_not_speak_are_not_waited_for(world):
    world.state["node"]["status"]["conditions"][1]["status"] = "Unknown"
    world.node.drain(["--force"], 60, check=False)
    assert world.calls("drain") == ["drain worker --force --skip-wait-for-delete-timeout=1 --timeout=60s"]


def test_labels_are_written_where_they_differ(world):
    labels = {"threadwise-smt/threads-per-core": "1", "threadwise-smt/status": "compliant"}
    world.state["node"]["metadata"]["labels"] = {"threadwise-smt/status": "compliant", "zone": "a"}
    assert world.node.label(labels) is True
    assert world.state["node"]["metadata"]["labels"] == {**labels, "zone": "a"} and world.spec == {}
    assert len(world.calls("patch")) == 1 and world.node.label(labels) is False
    world.state["fails"] = ["get node"]
    with pytest.raises(NodeError, match=r"worker has no labels of its SMT state: .*Unauthorized"):
        world.node.label(labels)
