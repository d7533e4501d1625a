# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about nodes of Kubernetes that were drained and changed, about kubelets that did not come back, about
services that count CPUs, and about restarts that did not do what they said.
"""

import copy
import json
import math
import shutil

import cluster
import counting
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import (
    find,
    history,
    settings,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._set import follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
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


def test_kured_63_and_kubectl_1830_whose_a_cordon_is_is_with_the_node_and_check_mode_deletes_nothing(state):
    node(state).drain([], 60, check=False)
    # The time of the cordon, and nothing of a process, is with the node.
    (when,) = state["node"]["metadata"]["annotations"].values()
    assert when.startswith("20") and node(state).ready(60, check=False)
    state["node"]["spec"]["unschedulable"] = True
    assert not node(state).ready(60, check=False) and state["node"]["spec"] == {"unschedulable": True}
    state = copy.deepcopy(cluster.NEW)
    node(state).drain(["--disable-eviction"], 60, check=True)
    (drained,) = [call.split() for call in state["calls"] if call.startswith("drain")]
    assert "--dry-run=client" in drained and state["pods"] == ["app"]


def test_kured_886_draino_48_and_17_a_node_that_is_not_ready_or_was_uncordoned_by_others(state):
    node(state).drain([], 60, check=False)
    state["node"]["status"]["conditions"][1]["status"] = "Unknown"
    with pytest.raises(NodeError, match="stays cordoned"):
        node(state).ready(60, check=False)
    assert state["node"]["spec"] == {"unschedulable": True}
    state = copy.deepcopy(cluster.NEW)
    state["node"]["status"]["conditions"][1]["status"] = "Unknown"
    node(state).drain([], 60, check=False)
    assert any(call.startswith("drain") and "--skip-wait-for-delete-timeout" in call for call in state["calls"])
    state = copy.deepcopy(cluster.NEW)
    node(state).drain([], 60, check=False)
    state["node"]["spec"].clear()
    assert node(state).ready(60, check=False) and state["node"] == cluster.NODE


def test_openshift_24379_a_drain_that_hangs_ends_and_the_node_gets_pods_as_before(state):
    def hanging(argv, limit):
        if argv[1] == "drain":
            assert "--timeout=60s" in argv and limit > 60
            raise kubectl.KubectlError("kubectl drain worker did not end")
        return cluster.answer(state, argv[1:])

    with pytest.raises(NodeError, match="gets pods as before: kubectl drain worker did not end"):
        Node("worker", hanging).drain([], 60, check=False)
    assert state["node"] == cluster.NODE


def kubelet(host, default, *arguments):
    words = ["kubelet", "--cpu-manager-policy=static", *arguments]
    counting.Processes(host.sysroot).start(100, words, "kubelet", unit="kubelet.service", mask="0-7")
    host.put(STATE, json.dumps({"policyName": "static", "defaultCpuSet": default, "entries": {}, "checksum": 1}))


def test_kubernetes_124066_84333_and_98121_states_of_other_cpus_and_cpus_that_are_reserved(tmp_path):
    host = Host(tmp_path)
    kubelet(host, "0-7")
    with pytest.raises(ChangeRefusedError, match="kubelet does not start when CPUs recorded there are offline"):
        host.ask("disabled")
    assert f"without /{STATE}" in host.ask("disabled", consumers=RESTART, check=True)["consumers"][0]
    # CPUs that come back are no affinity conflict, and kubelet does not start with them either.
    host = Host(tmp_path / "fewer")
    host.ask("disabled")
    kubelet(host, "0,2,4,6")
    assert f"without /{STATE}" in host.ask("enabled", consumers=RESTART, check=True)["consumers"][0]
    assert any("CPU manager's state for 4 CPUs, and will have 8" in one for one in host.ask("enabled")["warnings"])
    host = Host(tmp_path / "reserved")
    kubelet(host, "0-7", "--reserved-cpus=0-1")
    with pytest.raises(ChangeRefusedError, match=r"CPU 1: kubelet reserves 0-1 for the system"):
        host.ask("disabled", consumers=RESTART)


NGINX = settings.Settings({"nginx": "restart"})


@pytest.fixture(name="host")
def a_host(tmp_path):
    return counting.Processes(tmp_path)


def wrong(host, before, after):
    change = base.Online(frozenset(after), ((math.inf, frozenset(before)),))
    found = [one.consumer for one in find.wrong(host.files, change)]
    return [(one.process.title, one.counted, one.gets) for one in found]


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_libjvm_136_a_jvm_may_be_given_its_number_by_a_variable(host, variable):
    given = f"{variable}=-Xss1m -XX:ActiveProcessorCount=8"
    host.start(200, ["java"], "java", unit="given.service", mask="0-7", variables=["HOME=/", given])
    nothing = ["NOTHING=-XX:ActiveProcessorCount=8"]
    host.start(201, ["java"], "java", unit="other.service", mask="0-7", variables=nothing)
    assert wrong(host, range(8), range(0, 8, 2)) == [("other.service", 8, 4)]
    # One whose variables nobody may read is not named.
    (host.folder / "proc/201/environ").unlink()
    assert wrong(host, range(8), range(0, 8, 2)) == []


def test_jdk_26351_a_jvm_that_does_not_look_at_its_quota_counts_all_cpus(host):
    (host.folder / "proc/self").mkdir(parents=True)
    (host.folder / "proc/self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    for pid, option in ((200, "-XX:-UseContainerSupport"), (201, "-XX:+UseContainerSupport")):
        host.start(pid, ["java", option], "java", unit="app.service", mask="0-7")
    group = host.folder / "sys/fs/cgroup/system.slice/app.service"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("300000 100000\n")
    assert wrong(host, range(8), range(0, 8, 2)) == [("app.service", 8, 4)]


def test_haproxy_1382_and_1955_it_counts_the_cpus_of_one_node_and_no_more_than_64(host):
    # From 2.4 on it binds itself to a node, and has no thread for the CPUs of the other ones.
    host.start(300, ["haproxy"], "haproxy", unit="haproxy.service", mask="0-127")
    host.start(301, ["haproxy"], "haproxy", 300, "haproxy.service", threads=32, mask="0-15,64-79")
    assert wrong(host, range(128), range(64)) == [("haproxy.service", 32, 16)]
    host.start(400, ["haproxy"], "haproxy", unit="edge.service", mask="0-255")
    host.start(401, ["haproxy"], "haproxy", 400, "edge.service", threads=64, mask="0-255")
    assert ("edge.service", 64, 128) not in wrong(host, range(256), range(128))
    assert ("edge.service", 64, 32) in wrong(host, range(128), range(32))


def test_haproxy_1998_the_worker_before_a_reload_is_not_the_one_that_counts(host):
    host.start(300, ["haproxy"], "haproxy", unit="haproxy.service", mask="0-7")
    # It has clients still, for hours.
    host.start(301, ["haproxy"], "haproxy", 300, "haproxy.service", threads=8, mask="0-7", started=10)
    host.start(302, ["haproxy"], "haproxy", 300, "haproxy.service", threads=4, mask="0-7", started=30)
    online = base.Online(frozenset(range(0, 8, 2)), ((20, frozenset(range(8))),))
    assert find.wrong(host.files, online) == []


class Services(Host):
    """A host with nginx, which a restart makes right after so many looks; None for never."""

    def __init__(self, sysroot, looks):
        super().__init__(sysroot)
        self.processes, self.looks = counting.Processes(sysroot), looks
        self.serve(8)

    def serve(self, workers):
        shutil.rmtree(self.processes.folder / "proc", ignore_errors=True)
        self.put("proc/self/mounts", "")
        self.boot("first")
        now = history.ticks()
        self.processes.start(100, ["nginx: master process"], "nginx", unit="nginx.service", started=now)
        for pid in range(101, 101 + workers):
            self.processes.start(pid, ["nginx: worker process"], "nginx", 100, "nginx.service", started=now)

    def run_command(self, command):
        answer = super().run_command(command)
        if command[:2] == ["systemctl", "is-active"] and self.looks is not None:
            self.looks -= 1
            if self.looks == 0:
                self.serve(len(self.read("sys/devices/system/cpu/online").split(",")))
        return answer


@pytest.mark.parametrize("looks", [1, 5])
def test_ansible_48786_a_service_is_right_some_time_after_its_restart(tmp_path, monkeypatch, looks):
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    host = Services(tmp_path, looks)
    host.ask("disabled", consumers=NGINX)
    assert len(list((tmp_path / "proc").glob("10[1-9]"))) == 4


def test_ansible_35231_a_restart_that_restarts_nothing_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setitem(find.KINDS, "nginx", find.KINDS["nginx"]._replace(settle_seconds=0.1))
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", ())
    host = Services(tmp_path, None)
    with pytest.raises(SmtError, match=r"nginx.service does not follow"):
        host.ask("disabled", consumers=NGINX)
    assert host.read("sys/devices/system/cpu/smt/control") == "on"


def test_docker_nginx_31_in_a_container_it_counts_the_cpus_of_the_host_and_is_left_alone(tmp_path):
    host, processes, unit = Host(tmp_path), counting.Processes(tmp_path), "docker-7a0a.scope"
    processes.start(100, ["nginx: master process"], "nginx", unit=unit, mask="0")
    for pid in range(101, 109):
        processes.start(pid, ["nginx: worker process"], "nginx", 100, unit, mask="0")
    result = host.ask("disabled", consumers=NGINX, affinity_conflicts="warn")
    assert result["consumers"] == [] and host.commands == []
    assert any(one.startswith(f"{unit} has 8 worker processes for 8 CPUs") for one in result["warnings"])
