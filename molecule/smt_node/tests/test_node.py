# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes whose CPU manager is static: without us its kubelet does not start after siblings went offline;
with us it comes back each time, its pods have CPUs of their own that are online, and whatever is killed leaves it as it
was, or to the next call.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import calls
import control_plane
import kube
import pytest

GUEST = "smt-node"
TIMES = 10
STATE = "/var/lib/kubelet/cpu_manager_state"
FOLLOW = {"consumers": {"kubelet": "restart"}}
ANNOTATION = "threadwise-smt/drained"
UNIT = """\
[Service]
ExecStart=/usr/bin/kubelet --config=/etc/kubelet.yaml --kubeconfig=/etc/kubeconfig --node-ip=10.0.2.15
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
# All pods are in the host's network; a node without any other is not ready.
NETWORK = {"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "loopback"}]}
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "systemd",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "failSwapOn": False,
    "staticPodPath": "/etc/pods",
    "evictionHard": {"memory.available": "10Mi"},
    "makeIPTablesUtilChains": False,
    # A node reports itself at least as often as it renews its lease.
    "nodeStatusUpdateFrequency": "5s",
}
# The policy of the CPU manager is read as YAML.
POLICY = 'cpuManagerPolicy: static\nreservedSystemCPUs: "0"\n'


def pod(name, **more):
    """A pod with a CPU for itself; without a node it is a static one."""
    container = {
        "name": "app",
        "image": kube.IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {"cpu": "1", "memory": "32Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **more,
        },
    }


CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


@pytest.fixture(name="cluster", scope="module")
def a_cluster(tmp_path_factory):
    with control_plane.ControlPlane(tmp_path_factory.mktemp("cluster")) as cluster, cluster.at_loopback_of(GUEST):
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def the_node(host, cluster, tmp_path_factory):
    packages = ("containerd", "busybox-static", "containernetworking-plugins")
    calls.output(sys.executable, str(calls.LAB), "install", GUEST, *packages)
    folder = tmp_path_factory.mktemp("node")
    host.ansible("ansible.builtin.fetch", f"src=/bin/busybox dest={folder}/busybox flat=true", check=False)
    (folder / "image.tar").write_bytes(kube.image((folder / "busybox").read_bytes()))
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in CONFIG.items())
    texts = {
        "/etc/kubelet.yaml": lines + POLICY,
        "/etc/systemd/system/kubelet.service": UNIT,
        "/etc/containerd/config.toml": CONTAINERD.format(kube.IMAGE),
        "/etc/cni/net.d/lab.conflist": json.dumps(NETWORK),
        "/etc/kubeconfig": cluster.config,
        "/etc/pods/exclusive.json": json.dumps(pod("exclusive")),
    }
    host.check_output("mkdir -p /etc/pods /etc/containerd /etc/cni/net.d")
    for path, text in texts.items():
        host.ansible("ansible.builtin.copy", f"content={text!r} dest={path}", check=False)
    for source, path in ((kube.built("kubelet"), "/usr/bin/kubelet"), (folder / "image.tar", "/root/image.tar")):
        host.ansible("ansible.builtin.copy", f"src={source} dest={path} mode=0755", check=False)
    host.check_output("systemctl daemon-reload; systemctl restart containerd")
    host.check_output("ctr -n k8s.io images import /root/image.tar")
    host.check_output("systemctl enable --now kubelet")
    settled(host, {0, 1, 2, 3})


@pytest.fixture(autouse=True)
def as_it_was(host, cluster, the_node):
    yield
    cluster.kubectl("delete", "pod", "app", "--ignore-not-found", "--wait=false")
    state("restored", affinity_conflicts="warn")
    if kept(host)[0] != {0, 1, 2, 3}:
        host.check_output(f"systemctl stop kubelet; rm -f {STATE}; systemctl start kubelet")
    settled(host, {0, 1, 2, 3})


def state(wanted, *words, **options):
    return calls.state(GUEST, wanted, *words, **options)


def cpus(text):
    found = set()
    for part in filter(None, text.split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def kept(host):
    """All CPUs of the CPU manager's state, and those that pods have for themselves."""
    document = json.loads(host.run(f"cat {STATE}").stdout or "{}")
    own = [cpus(one) for pod in (document.get("entries") or {}).values() for one in pod.values()]
    return cpus(document.get("defaultCpuSet", "")).union(*own), set().union(*own)


def is_healthy(host):
    look = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:10248/healthz').read())"
    return "ok" in host.run(f'python3 -c "{look}"').stdout


def settled(host, online, pods=1):
    """Wait until kubelet is healthy with these CPUs, and its pods have one of them each for itself, as the kernel sees
    it.
    """
    for _attempt in range(200):
        known, own = kept(host)
        files = "find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name cpuset.cpus.effective"
        shown = host.run(f"cat $({files})")
        of_pods = [cpus(line) for line in shown.stdout.split()]
        seen = all({cpu} in of_pods for cpu in own)
        if is_healthy(host) and known == online and len(own) == pods and own < online and seen:
            return own
        time.sleep(1)
    raise AssertionError((known, own, shown.stdout, host.run("journalctl -u kubelet -n 30 --no-pager").stdout))


def online(host):
    return cpus(host.check_output("cat /sys/devices/system/cpu/online"))


def test_without_being_asked_it_is_a_conflict(host):
    for words in (["--check"], []):
        done = calls.asked(GUEST, "disabled", *words)
        assert done.returncode != 0 and f"kubelet is static ({STATE})" in done.stdout + done.stderr
    assert online(host) == {0, 1, 2, 3}


def test_without_us_it_does_not_start_again(host):
    state("disabled", affinity_conflicts="warn")
    host.check_output("systemctl restart kubelet")
    for _attempt in range(100):
        said = host.run("journalctl -u kubelet -n 200 --no-pager").stdout
        if "doesn't match with CPUs in state" in said:
            break
        time.sleep(1)
    else:
        raise AssertionError(said)
    assert not is_healthy(host)


def test_with_us_it_comes_back_each_time(host):
    assert "without /var/lib/kubelet/cpu_manager_state" in state("disabled", "--check", **FOLLOW)
    for _time in range(TIMES):
        assert "kubelet.service: systemctl restart kubelet.service without" in state("disabled", **FOLLOW)
        assert online(host) == {0, 2} and settled(host, {0, 2}) == {2}
        state("restored")
        assert online(host) == {0, 1, 2, 3}
        settled(host, {0, 1, 2, 3})


@pytest.mark.parametrize("step", ["ExecStopPost", "ExecStartPre", "ExecStartPost"])
def test_a_module_that_is_killed_leaves_it_as_it_was(host, step):
    """Each step is held while the module is killed in it."""
    held = f"[Service]\nTimeoutSec=infinity\n{step}=/bin/sh -c 'touch /run/held && sleep 30'\n"
    host.check_output("mkdir -p /run/systemd/system/kubelet.service.d")
    path = "/run/systemd/system/kubelet.service.d/test.conf"
    host.ansible("ansible.builtin.copy", f"content={held!r} dest={path}", check=False)
    host.check_output("systemctl daemon-reload")
    try:
        calls.killed(host, GUEST, "/run/held", "disabled", **FOLLOW)
        assert online(host) == {0, 1, 2, 3}
        settled(host, {0, 1, 2, 3})
    finally:
        host.run("rm -rf /run/systemd/system/kubelet.service.d; systemctl daemon-reload")


def test_one_that_is_down_is_found_and_made_right(host):
    state("disabled", affinity_conflicts="warn")
    host.run("systemctl restart kubelet")
    calls.ended(host, "pgrep -x kubelet")
    (wrong,) = calls.module(GUEST, "threadwise.smt.smt_facts")["ansible_facts"]["smt"]["consumers"]
    assert (wrong["unit"], wrong["counted"], wrong["cpus"]) == ("kubelet.service", 4, 2)
    state("unchanged", **FOLLOW)
    assert settled(host, {0, 2}) == {2}
    # One that somebody has stopped stays so.
    host.check_output(f"systemctl stop kubelet; sed -i s/0,2/0-2/ {STATE}")
    state("unchanged", **FOLLOW)
    assert host.run("systemctl is-active kubelet").stdout.strip() == "inactive"
    host.check_output(f"rm {STATE}; systemctl start kubelet")


def test_a_boot_with_other_cpus_is_made_right(host):
    def boot(wanted, *words):
        role = {"role": "threadwise.smt.smt_boot", "smt_boot_smt": wanted, "smt_boot_reboot_ok": True}
        role["smt_boot_consumers"] = {"kubelet": "restart"}
        book = calls.INVENTORY.parent / "boot.yml"
        book.write_text(json.dumps([{"hosts": "lab", "gather_facts": False, "become": True, "roles": [role]}]))
        done = calls.play(book, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    boot("forced_off", "--check")
    boot("forced_off")
    assert online(host) == {0, 2} and settled(host, {0, 2}) == {2}
    boot("enabled")
    assert online(host) == {0, 1, 2, 3}
    settled(host, {0, 1, 2, 3})


# ---- through the API server ------------------------------------------------------------------------------------------


def enforce(cluster, policy, *words, drain=("--force",), **more):
    """Start a rollout over the node."""
    variables = {
        "smt_policy": policy,
        "smt_policy_scope": "runtime",
        "smt_policy_kubernetes": True,
        "smt_policy_kubernetes_drain": ["--ignore-daemonsets", *drain],
        **more,
    }
    environment = {**os.environ, "PATH": f"{cluster.folder}/bin:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "true"}
    command = ["ansible-playbook", "-i", str(calls.INVENTORY), "threadwise.smt.smt_enforce", "-b", *words]
    return subprocess.Popen(
        [*command, "-e", json.dumps(variables)],
        env={**environment, "KUBECONFIG": str(cluster.kubeconfig)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process):
    """What a rollout said, in one line, and how it ended."""
    output = process.communicate(timeout=1200)[0]
    return process.returncode, " ".join(output.split())


def kill(process):
    """Kill a rollout with all that it has started."""
    pids = [process.pid]
    for pid in pids:
        pids += map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, check=False).stdout.split())
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def node(cluster):
    found = json.loads(cluster.kubectl("get", "node", GUEST, "-o", "json"))
    ready = next(one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready")
    return ready, found["spec"].get("unschedulable", False), ANNOTATION in found["metadata"].get("annotations", {})


def labels(cluster):
    found = json.loads(cluster.kubectl("get", "node", GUEST, "-o", "json"))["metadata"]["labels"]
    return {name: value for name, value in found.items() if name.startswith("threadwise-smt/")}


WELL, OURS = ("True", False, False), ("True", True, True)


@pytest.fixture(name="api")
def the_kubectl_of_the_controller(cluster):
    """One that can be held: it waits where a file says of which words."""
    folder = cluster.folder / "bin"
    folder.mkdir(exist_ok=True)
    hold = f"test ! -e {cluster.folder}/hold-$1 || {{ touch {cluster.folder}/held; exec sleep 600; }}"
    (folder / "kubectl").write_text(f'#!/bin/sh\n{hold}\nexec {kube.built("kubectl")} "$@"\n')
    (folder / "kubectl").chmod(0o755)
    yield cluster
    for file in cluster.folder.glob("h[eo]ld*"):
        file.unlink()
    said(enforce(cluster, "enabled"))


def with_a_pod(cluster, host):
    """Give the node a pod of its own, with a CPU for itself, which no controller brings back."""
    cluster.kubectl("apply", "-f", "-", given=json.dumps(pod("app", nodeName=GUEST)))
    settled(host, online(host), pods=2)


def pods(cluster):
    return sorted(cluster.kubectl("get", "pods", "-o", "name").split())


STATIC = f"pod/exclusive-{GUEST}"


def test_a_rollout_drains_the_node_changes_it_and_gives_it_pods_again(host, api):
    with_a_pod(api, host)
    assert node(api) == WELL and pods(api) == ["pod/app", STATIC]
    for words in (["--check"], []):
        code, output = said(enforce(api, "disabled", *words, drain=()))
        assert code != 0 and "cannot delete" in output and "declare no controller" in output, output
        assert node(api) == WELL and online(host) == {0, 1, 2, 3} and pods(api) == ["pod/app", STATIC]
    code, output = said(enforce(api, "disabled", "--check"))
    assert code == 0 and node(api) == WELL and pods(api) == ["pod/app", STATIC], output
    code, output = said(enforce(api, "disabled", smt_policy_kubernetes_labels=True))
    assert code == 0 and f"drains node {GUEST}" in output, output
    assert node(api) == WELL and pods(api) == [STATIC]
    assert labels(api) == {"threadwise-smt/threads-per-core": "1", "threadwise-smt/status": "compliant"}
    assert online(host) == {0, 2} and settled(host, {0, 2}) == {2}
    code, output = said(enforce(api, "enabled"))
    assert code == 0 and node(api) == WELL, output
    settled(host, {0, 1, 2, 3})
    with_a_pod(api, host)


@pytest.mark.parametrize("word", ["drain", "get"])
def test_a_controller_that_is_killed_leaves_a_node_to_the_next_one(host, api, word):
    """While it drains, or while it waits for the kubelet."""
    mark = api.folder / f"hold-{word}"
    if word == "drain":
        mark.touch()
    rollout = enforce(api, "disabled")
    if word == "get":
        wait_for(lambda: online(host) == {0, 2})
        mark.touch()
    wait_for((api.folder / "held").exists)
    kill(rollout)
    mark.unlink()
    assert node(api)[1:] == OURS[1:]
    code, output = said(enforce(api, "disabled"))
    assert code == 0 and node(api) == WELL and online(host) == {0, 2}, output
    assert settled(host, {0, 2}) == {2}


def test_a_node_whose_kubelet_is_down_is_brought_back(host, api):
    with_a_pod(api, host)
    state("disabled", affinity_conflicts="warn")
    host.run("systemctl restart kubelet")
    calls.ended(host, "pgrep -x kubelet")
    # What the node controller says after 40 seconds.
    unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    patch = json.dumps({"status": {"conditions": unknown}})
    api.kubectl("patch", "node", GUEST, "--subresource=status", "--patch", patch)
    code, output = said(enforce(api, "disabled"))
    assert code == 0 and node(api) == WELL, output
    assert settled(host, {0, 2}) == {2}


def wait_for(holds):
    for _attempt in range(600):
        if holds():
            return
        time.sleep(0.5)
    raise AssertionError(holds)
