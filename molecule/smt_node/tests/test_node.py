# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet whose CPU manager is static: without us it does not start after siblings went offline; with us it comes
back each time, its pods have CPUs of their own that are online, and a module that is killed leaves it as it was.
"""

from __future__ import annotations

import json
import sys
import time

import calls
import kubelet
import pytest

GUEST = "smt-node"
TIMES = 10
STATE = "/var/lib/kubelet/cpu_manager_state"
FOLLOW = {"consumers": {"kubelet": "restart"}}
UNIT = """\
[Service]
ExecStart=/usr/bin/kubelet --config=/etc/kubelet.yaml --hostname-override=smt-node
Restart=always
RestartSec=2
"""
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
}
# The policy of the CPU manager is read as YAML.
POLICY = 'cpuManagerPolicy: static\nreservedSystemCPUs: "0"\n'
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "exclusive", "namespace": "default"},
    "spec": {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "app",
                "image": kubelet.IMAGE,
                "imagePullPolicy": "Never",
                "resources": {"limits": {"cpu": "1", "memory": "32Mi"}},
            }
        ],
    },
}
CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


@pytest.fixture(scope="module", autouse=True)
def the_node(host, tmp_path_factory):
    calls.output(sys.executable, str(calls.LAB), "install", GUEST, "containerd", "busybox-static")
    folder = tmp_path_factory.mktemp("node")
    host.ansible("ansible.builtin.fetch", f"src=/bin/busybox dest={folder}/busybox flat=true", check=False)
    (folder / "image.tar").write_bytes(kubelet.image((folder / "busybox").read_bytes()))
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in CONFIG.items())
    texts = {
        "/etc/kubelet.yaml": lines + POLICY,
        "/etc/systemd/system/kubelet.service": UNIT,
        "/etc/containerd/config.toml": CONTAINERD.format(kubelet.IMAGE),
        "/etc/pods/exclusive.json": json.dumps(POD),
    }
    host.check_output("mkdir -p /etc/pods /etc/containerd")
    for path, text in texts.items():
        host.ansible("ansible.builtin.copy", f"content={text!r} dest={path}", check=False)
    for source, path in ((kubelet.built("kubelet"), "/usr/bin/kubelet"), (folder / "image.tar", "/root/image.tar")):
        host.ansible("ansible.builtin.copy", f"src={source} dest={path} mode=0755", check=False)
    host.check_output("systemctl daemon-reload; systemctl restart containerd")
    host.check_output("ctr -n k8s.io images import /root/image.tar")
    host.check_output("systemctl start kubelet")
    settled(host, {0, 1, 2, 3})


@pytest.fixture(autouse=True)
def as_it_was(host, the_node):
    yield
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


def settled(host, online):
    """Wait until kubelet is healthy with these CPUs, and its pod has one of them for itself, as the kernel sees it."""
    for _attempt in range(200):
        known, own = kept(host)
        files = "find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name cpuset.cpus.effective"
        shown = host.run(f"cat $({files})")
        of_pods = [cpus(line) for line in shown.stdout.split()]
        if is_healthy(host) and known == online and len(own) == 1 and own < online and own in of_pods:
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
