# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about nodes of Kubernetes that were drained and changed, and about kubelets that did not come back."""

from __future__ import annotations

import copy
import json

import cluster
import counting
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes import kubectl
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes.node import Node, NodeError
from fake_host import Host

RESTART = consumer_settings.Settings({"kubelet": "restart"})
STATE = "var/lib/kubelet/cpu_manager_state"


@pytest.fixture(name="state")
def a_cluster():
    return copy.deepcopy(cluster.NEW)


def node(state):
    seconds = iter(range(10_000))
    return Node("worker", lambda argv, _limit: cluster.answer(state, argv[1:]), lambda _s: None, lambda: next(seconds))


@pytest.mark.parametrize("source", ["kubespray_6545", "kubernetes_37592"])
def test_a_node_that_could_not_be_drained_is_not_left_cordoned_nor_one_of_an_earlier_call(state, source):
    if source == "kubernetes_37592":
        node(state).drain([], 60, check=False)
    state["stuck"] = ["lone" if source == "kubernetes_37592" else "with-a-budget"]
    with pytest.raises(NodeError, match="gets pods as before"):
        node(state).drain([], 60, check=False)
    assert state["node"] == cluster.NODE


def test_kured_63_whose_cordon_it_is_is_known_after_everything_was_killed(state):
    node(state).drain([], 60, check=False)
    # The time of the cordon, and nothing of a process, is with the node.
    (when,) = state["node"]["metadata"]["annotations"].values()
    assert when.startswith("20") and node(state).ready(60, check=False)
    state["node"]["spec"]["unschedulable"] = True
    assert not node(state).ready(60, check=False) and state["node"]["spec"] == {"unschedulable": True}


def test_kured_886_a_node_that_is_not_ready_gets_no_pods(state):
    node(state).drain([], 60, check=False)
    state["node"]["status"]["conditions"][1]["status"] = "Unknown"
    with pytest.raises(NodeError, match="stays cordoned"):
        node(state).ready(60, check=False)
    assert state["node"]["spec"] == {"unschedulable": True}


def test_draino_48_a_kubelet_that_does_not_speak_ends_no_pod_and_is_not_waited_for(state):
    state["node"]["status"]["conditions"][1]["status"] = "Unknown"
    node(state).drain([], 60, check=False)
    assert any(call.startswith("drain") and "--skip-wait-for-delete-timeout" in call for call in state["calls"])


def test_draino_17_what_an_administrator_has_uncordoned_meanwhile_stays_so(state):
    node(state).drain([], 60, check=False)
    state["node"]["spec"].clear()
    assert node(state).ready(60, check=False) and state["node"] == cluster.NODE


def test_openshift_24379_a_drain_that_hangs_ends_and_the_node_gets_pods_as_before(state):
    """The call ends by its own limit, or is ended."""

    def hanging(argv, limit):
        if argv[1] == "drain":
            assert "--timeout=60s" in argv and limit > 60
            raise kubectl.KubectlError("kubectl drain worker did not end")
        return cluster.answer(state, argv[1:])

    with pytest.raises(NodeError, match="gets pods as before: kubectl drain worker did not end"):
        Node("worker", hanging).drain([], 60, check=False)
    assert state["node"] == cluster.NODE


def test_kubectl_1830_check_mode_asks_no_server_to_delete(state):
    node(state).drain(["--disable-eviction"], 60, check=True)
    (drained,) = [call.split() for call in state["calls"] if call.startswith("drain")]
    assert "--dry-run=client" in drained and state["pods"] == ["app"]


def kubelet(host, default, *arguments):
    words = ["kubelet", "--cpu-manager-policy=static", *arguments]
    counting.Processes(host.sysroot).start(100, words, "kubelet", unit="kubelet.service", mask="0-7")
    host.put(STATE, json.dumps({"policyName": "static", "defaultCpuSet": default, "entries": {}, "checksum": 1}))


def test_kubernetes_124066_a_state_of_more_cpus_than_there_are_keeps_kubelet_from_starting(tmp_path):
    host = Host(tmp_path)
    kubelet(host, "0-7")
    with pytest.raises(ChangeRefusedError, match="kubelet does not start when CPUs recorded there are offline"):
        host.ask("disabled")
    assert f"without /{STATE}" in host.ask("disabled", consumers=RESTART, check=True)["consumers"][0]


def test_kubernetes_84333_and_so_does_one_of_fewer(tmp_path):
    """CPUs that come back are no affinity conflict, and kubelet does not start with them either."""
    host = Host(tmp_path)
    host.ask("disabled")
    kubelet(host, "0,2,4,6")
    assert f"without /{STATE}" in host.ask("enabled", consumers=RESTART, check=True)["consumers"][0]
    assert any("CPU manager's state for 4 CPUs, and will have 8" in one for one in host.ask("enabled")["warnings"])


def test_kubernetes_98121_cpus_that_are_reserved_have_to_stay(tmp_path):
    host = Host(tmp_path)
    kubelet(host, "0-7", "--reserved-cpus=0-1")
    with pytest.raises(ChangeRefusedError, match=r"CPU 1: kubelet reserves 0-1 for the system"):
        host.ask("disabled", consumers=RESTART)
