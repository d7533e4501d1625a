# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet, which counts the CPUs at its start, and whose CPU manager may keep them, as
pkg/kubelet/cm/cpumanager/policy_static.go (1.33) reads its state: a stand-in for what the scenario smt_node does with a
real one.
"""

from __future__ import annotations

import json
import shutil

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._consumers import (
    find,
    follow,
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._smt.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._smt.errors import SmtError

STATE = "var/lib/kubelet/cpu_manager_state"
RESTART = consumer_settings.Settings({"kubelet": "restart"})
PODS = {"a": {"app": "1,3"}}


class Node(fake_host.Host):
    """A host with a kubelet, which starts only with the CPUs of its state."""

    def __init__(self, sysroot, arguments=("--cpu-manager-policy=static",)):
        super().__init__(sysroot)
        self.processes, self.arguments, self.before_command = counting.Processes(sysroot), arguments, self.obey
        self.starts = True
        self.put(STATE, state("0,2,4-7", PODS))
        self.run_kubelet(0)

    def run_kubelet(self, started=None):
        arguments = ["/usr/bin/kubelet", *self.arguments]
        started = history.ticks() if started is None else started
        self.processes.start(100, arguments, "kubelet", unit="kubelet.service", mask="0-7", started=started)

    def obey(self, command):
        if command[1:2] in (["stop"], ["restart"]) and command[-1] == "kubelet.service":
            shutil.rmtree(self.processes.folder / "proc/100", ignore_errors=True)
        if command[:2] in (["systemctl", "start"], ["systemctl", "restart"]) and self.starts:
            self.run_kubelet()
            if self.read(STATE) is None and "--cpu-manager-policy=static" in self.arguments:
                self.put(STATE, state(self.read("sys/devices/system/cpu/online"), {}))


def state(default, entries):
    return json.dumps({"policyName": "static", "defaultCpuSet": default, "entries": entries, "checksum": 1})


@pytest.fixture(name="quick", autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", ())
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setitem(find.KINDS, "kubelet", find.KINDS["kubelet"]._replace(settle_seconds=0.1))


def kept(host):
    return cpulist.parse(json.loads(host.read(STATE))["defaultCpuSet"])


def test_without_being_asked_a_static_kubelet_is_a_conflict(tmp_path):
    host = Node(tmp_path)
    with pytest.raises(ChangeRefusedError, match="the CPU manager policy of kubelet is static"):
        host.ask("disabled")
    warnings = host.ask("disabled", affinity_conflicts="warn")["warnings"]
    assert any("(/var/lib/kubelet/cpu_manager_state): kubelet does not start" in one for one in warnings)


def test_it_is_started_without_the_state_that_does_not_fit_and_back_again(tmp_path):
    host = Node(tmp_path)
    result = host.ask("disabled", consumers=RESTART)
    assert result["consumers"] == [
        "kubelet.service: systemctl restart kubelet.service without /var/lib/kubelet/cpu_manager_state"
    ]
    assert kept(host) == (0, 2, 4, 6)
    # It fits now, and is left alone.
    assert host.ask("disabled", consumers=RESTART)["changed"] is False
    host.ask("restored")
    assert kept(host) == tuple(range(8))
    words = [command[1] for command in host.commands if command[-1] == "kubelet.service" and command[1] != "is-active"]
    assert words == ["stop", "start"] * 2


def test_one_that_does_not_come_back_ends_the_change(tmp_path):
    host = Node(tmp_path)

    def obey(command):
        host.starts = len(host.read("sys/devices/system/cpu/online").split(",")) == 8
        host.obey(command)
        host.status["is-active"] = 0 if (tmp_path / "proc/100").exists() else 3

    host.before_command = obey
    with pytest.raises(SmtError, match=r"kubelet.service does not follow: 0.1 s after systemctl restart"):
        host.ask("disabled", consumers=RESTART)
    assert len(host.read("sys/devices/system/cpu/online").split(",")) == 8


def test_one_that_was_stopped_and_not_started_when_the_change_died_is_started(tmp_path):
    host = Node(tmp_path)

    def obey(command):
        if command[:2] == ["systemctl", "start"] and len(host.read("sys/devices/system/cpu/online").split(",")) == 4:
            raise KeyboardInterrupt
        host.obey(command)
        host.status["is-active"] = 0 if (tmp_path / "proc/100").exists() else 3

    host.before_command = obey
    with pytest.raises(KeyboardInterrupt):
        host.ask("disabled", consumers=RESTART)
    assert (tmp_path / "proc/100").exists() and kept(host) == tuple(range(8))


KEEPS, REMOVES, STARTS = "nothing", "a restart without the file", "a restart"


@pytest.mark.parametrize(
    ("default", "arguments", "does"),
    [
        ("0,2,4,6", (), KEEPS),
        ("0,2,4,6", ("--cpu-manager-policy=static",), KEEPS),
        # With strict-cpu-reservation the state lacks what is reserved.
        ("4,6", ("--cpu-manager-policy=static", "--reserved-cpus=0,2"), KEEPS),
        ("4,6", ("--cpu-manager-policy=static", "--reserved-cpus=0"), REMOVES),
        ("0-7", ("--cpu-manager-policy=static",), REMOVES),
        ("x", ("--cpu-manager-policy=static",), REMOVES),
        (None, ("--cpu-manager-policy=static",), STARTS),
        # With no policy it keeps no CPUs, but their number.
        (None, (), STARTS),
    ],
)
def test_a_state_fits_where_it_has_the_cpus_of_the_host(tmp_path, default, arguments, does):
    host = Node(tmp_path, arguments)
    host.ask("disabled", affinity_conflicts="warn")
    if default is None:
        (tmp_path / STATE).unlink()
    else:
        host.put(STATE, state(default, {}))
    restart = "kubelet.service: systemctl restart kubelet.service"
    expected = {KEEPS: [], STARTS: [restart], REMOVES: [f"{restart} without /{STATE}"]}[does]
    assert host.ask("disabled", consumers=RESTART, check=True)["consumers"] == expected


def test_a_change_of_somebody_else_is_made_right_too(tmp_path):
    """Nothing is known of earlier CPUs then; the state says by itself that it does not fit."""
    host = Node(tmp_path)
    host.put(STATE, state("0-5", {}))
    assert host.ask("enabled", consumers=RESTART)["consumers"] and kept(host) == tuple(range(8))


def stopped(host, sysroot, unit="kubelet.service"):
    """The kubelet ends at each start, and systemd starts it again."""
    shutil.rmtree(sysroot / "proc/100")
    links = sysroot / "etc/systemd/system/multi-user.target.wants"
    links.mkdir(parents=True)
    (links / unit).symlink_to(f"/lib/systemd/system/{unit}")


def known(sysroot):
    return facts.gather(host_files.HostFs(str(sysroot)))


@pytest.mark.parametrize("unit", ["kubelet.service", "k3s.service"])
def test_one_that_is_down_because_of_its_state_is_found_and_made_right(tmp_path, unit):
    host = Node(tmp_path)
    stopped(host, tmp_path, unit)
    assert known(tmp_path)["consumers"] == []
    host.put(STATE, state("0,2,4,6", {}))
    (wrong,) = known(tmp_path)["consumers"]
    assert (wrong["unit"], wrong["is_service"], wrong["counted"], wrong["cpus"]) == (unit, True, 4, 8)
    done = host.ask("enabled", consumers=RESTART, check=True)["consumers"]
    assert done == [f"{unit}: systemctl restart {unit} without /{STATE}"]
    if unit == "kubelet.service":
        host.ask("enabled", consumers=RESTART)
        assert kept(host) == tuple(range(8)) and known(tmp_path)["consumers"] == []


@pytest.mark.parametrize("is_enabled", [True, False])
def test_one_that_somebody_has_stopped_stays_as_it_is(tmp_path, is_enabled):
    host = Node(tmp_path)
    if is_enabled:
        stopped(host, tmp_path)
        host.outputs["is-active"] = "inactive\n"
    else:
        shutil.rmtree(tmp_path / "proc/100")
    host.put(STATE, state("0,2,4,6", {}))
    # That it will not start is said all the same.
    assert len(known(tmp_path)["consumers"]) == is_enabled
    assert host.ask("enabled", consumers=RESTART)["consumers"] == [] and kept(host) == (0, 2, 4, 6)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 5000, '{"policyName": "static", "defaultCpuSet": {}, "entries": []}']
)
def test_a_state_of_any_kind_is_read_as_far_as_it_goes(tmp_path, text):
    host = Node(tmp_path)
    host.put(STATE, text)
    assert host.ask("disabled", consumers=RESTART, check=True)["consumers"]


def test_cpus_that_it_reserves_and_that_go_are_a_conflict_all_the_same(tmp_path):
    host = Node(tmp_path, ("--cpu-manager-policy=static", "--reserved-cpus=0-1"))
    with pytest.raises(ChangeRefusedError, match=r"CPU 1: kubelet reserves 0-1 .*does not start without them"):
        host.ask("disabled", consumers=RESTART)


@pytest.mark.parametrize("where", ["argument", "file"])
def test_whole_cores_need_cores_of_the_same_size(tmp_path, where):
    arguments = ["--cpu-manager-policy=static"]
    if where == "argument":
        arguments.append("--cpu-manager-policy-options=distribute-cpus-across-numa=true,full-pcpus-only=true")
    else:
        arguments.append("--config=/etc/kubelet.yaml")
    host = Node(tmp_path, arguments)
    host.put("etc/kubelet.yaml", 'cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  full-pcpus-only: "true"\n')
    with pytest.raises(ChangeRefusedError, match="some cores would have 1 and 2 threads"):
        host.ask("disabled", cores={"cpus": "0-3"}, consumers=RESTART)
    assert host.ask("disabled", consumers=RESTART, check=True)["consumers"]


def test_the_cpusets_of_its_pods_are_its_own_business(tmp_path):
    host = Node(tmp_path)
    host.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    for path, cpus in (
        ("kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope", "1"),
        ("system.slice/db.service", "3"),
    ):
        folder = "sys/fs/cgroup"
        for part in ("", *path.split("/")):
            folder = f"{folder}/{part}".rstrip("/")
            last = folder.endswith(path)
            host.put(f"{folder}/cpuset.cpus", cpus if last else "")
            host.put(f"{folder}/cpuset.cpus.effective", cpus if last else "0-7")
            host.put(f"{folder}/cgroup.controllers", "cpuset\n")
    with pytest.raises(ChangeRefusedError, match="3 affinity conflict"):
        host.ask("disabled")
    # That of another service counts.
    with pytest.raises(ChangeRefusedError, match=r"1 affinity conflict(.|\n)*db\.service"):
        host.ask("disabled", consumers=RESTART)


class Plain(Node):
    """With the default CPU manager."""

    def __init__(self, sysroot, *arguments):
        super().__init__(sysroot, arguments)
        self.put(STATE, json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1}))


CONFIGURED = {
    "by default": ((), None),
    "by its arguments": (("--cpu-manager-policy=none", "--reserved-cpus=0"), None),
    "by its file": (("--config=/etc/k.yaml",), "cpuManagerPolicy: none\nreservedSystemCPUs: 0,2\n"),
    "by a file that is not there": (("--config=/etc/k.yaml",), None),
}


@pytest.mark.parametrize(("arguments", "text"), CONFIGURED.values(), ids=CONFIGURED)
@pytest.mark.parametrize("check", [True, False])
def test_kubernetes_124650_each_kubelet_is_named_before_a_change(tmp_path, check, arguments, text):
    host = Plain(tmp_path, *arguments)
    if text:
        host.put("etc/k.yaml", text)
    (coming,) = known(tmp_path)["consumers_after_switch"]
    found = [coming[key] for key in ("program", "unit", "counted", "cpus")]
    assert found == ["kubelet", "kubelet.service", 8, 4]
    result = host.ask("disabled", check=check)
    assert result["consumers"] == [] and any(one.startswith("kubelet.service has ") for one in result["warnings"])
    assert len(known(tmp_path)["consumers"]) == (not check)


def test_kubernetes_67500_a_kubelet_follows_there_and_back(tmp_path):
    host = Plain(tmp_path)
    restart = "kubelet.service: systemctl restart kubelet.service"
    assert host.ask("disabled", consumers=RESTART, check=True)["consumers"] == [restart] and host.commands == []
    assert host.ask("disabled", consumers=RESTART)["consumers"] == [restart]
    assert known(tmp_path)["consumers"] == [] and host.ask("disabled", consumers=RESTART)["consumers"] == []
    host.ask("restored")
    words = [command[1] for command in host.commands if command[-1] == "kubelet.service" and command[1] != "is-active"]
    assert words == ["restart"] * 2 and known(tmp_path)["consumers"] == []


def test_one_that_is_restarted_and_counts_the_cpus_of_before_ends_the_change(tmp_path):
    host = Plain(tmp_path)
    host.before_command = lambda command: None
    with pytest.raises(SmtError, match=r"kubelet.service does not follow: 0.1 s after systemctl restart"):
        host.ask("disabled", consumers=RESTART)


def test_one_that_is_stopped_counts_when_it_starts(tmp_path):
    host = Plain(tmp_path)
    stopped(host, tmp_path)
    assert known(tmp_path)["consumers_after_switch"] == []
    assert host.ask("disabled", consumers=RESTART)["consumers"] == []
