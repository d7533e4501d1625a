# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet, which counts the CPUs at its start, and whose CPU manager may keep them: it reads its state as
pkg/kubelet/cm/cpumanager/policy_static.go (1.33). The scenario smt_node does it with a real one.
"""

import json
import shutil

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find, history, settings
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts, follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError

STATE, ONLINE = "var/lib/kubelet/cpu_manager_state", "sys/devices/system/cpu/online"
RESTART = settings.Settings({"kubelet": "restart"})
STATIC = "--cpu-manager-policy=static"
STEP = "kubelet.service: systemctl restart kubelet.service"
WITHOUT = f"{STEP} without /{STATE}"


def state(default, entries=(), policy="static"):
    return json.dumps({"policyName": policy, "defaultCpuSet": default, "entries": dict(entries), "checksum": 1})


class Node(fake_host.Host):
    """A host with a kubelet, which starts only with the CPUs of its state."""

    def __init__(self, sysroot, *arguments, kept=None):
        super().__init__(sysroot)
        self.processes, self.arguments, self.before_command = counting.Processes(sysroot), arguments, self.obey
        self.put(STATE, kept or state("0,2,4-7", {"a": {"app": "1,3"}}))
        self.run_kubelet(0)

    def run_kubelet(self, started=None):
        arguments = ["/usr/bin/kubelet", *self.arguments]
        started = history.ticks() if started is None else started
        self.processes.start(100, arguments, "kubelet", unit="kubelet.service", mask="0-7", started=started)

    def obey(self, command):
        words = command[1:2] if command[-1] == "kubelet.service" else []
        if words in (["stop"], ["restart"]):
            shutil.rmtree(self.processes.folder / "proc/100", ignore_errors=True)
        if words in (["start"], ["restart"]):
            self.run_kubelet()
            if self.read(STATE) is None and STATIC in self.arguments:
                self.put(STATE, state(self.read(ONLINE)))

    def kept(self):
        return cpulist.parse(json.loads(self.read(STATE))["defaultCpuSet"])

    def known(self, name="consumers"):
        return facts.gather(host_files.HostFs(self.sysroot))[name]

    def words(self):
        of_kubelet = [command[1] for command in self.commands if command[-1] == "kubelet.service"]
        return [word for word in of_kubelet if word != "is-active"]

    def would_do(self, **options):
        return self.ask("disabled", consumers=RESTART, check=True, **options)["consumers"]

    def end(self, unit="kubelet.service"):
        """The kubelet ends at each start, and systemd starts it again."""
        shutil.rmtree(self.processes.folder / "proc/100")
        links = self.processes.folder / "etc/systemd/system/multi-user.target.wants"
        links.mkdir(parents=True)
        (links / unit).symlink_to(f"/lib/systemd/system/{unit}")


@pytest.fixture(name="quick", autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", ())
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setitem(find.KINDS, "kubelet", find.KINDS["kubelet"]._replace(settle_seconds=0.05))


@pytest.fixture(name="node")
def a_node(tmp_path):
    return Node(tmp_path, STATIC)


@pytest.fixture(name="plain")
def a_plain_node(tmp_path):
    """With the default CPU manager."""
    return Node(tmp_path, kept=state("", policy="none"))


def test_it_is_started_without_the_state_that_does_not_fit_and_back_again(node):
    assert node.ask("disabled", consumers=RESTART)["consumers"] == [WITHOUT] and node.kept() == (0, 2, 4, 6)
    # It fits now, and is left alone.
    assert node.ask("disabled", consumers=RESTART)["changed"] is False
    node.ask("restored")
    assert node.kept() == tuple(range(8)) and node.words() == ["stop", "start"] * 2


@pytest.mark.parametrize("is_killed", [False, True])
def test_one_that_does_not_come_back_ends_the_change_and_is_started(tmp_path, node, is_killed):
    def obey(command):
        is_off = len(cpulist.parse(node.read(ONLINE))) == 4
        if is_killed and command[:2] == ["systemctl", "start"] and is_off:
            raise KeyboardInterrupt
        if command[:2] != ["systemctl", "start"] or not is_off:
            node.obey(command)
        node.status["is-active"] = 0 if (tmp_path / "proc/100").exists() else 3

    node.before_command = obey
    with pytest.raises(KeyboardInterrupt if is_killed else SmtError):
        node.ask("disabled", consumers=RESTART)
    assert (tmp_path / "proc/100").exists() and node.kept() == cpulist.parse(node.read(ONLINE)) == tuple(range(8))


@pytest.mark.parametrize(
    ("default", "arguments", "does"),
    [
        *(("0,2,4,6", (STATIC,), []), ("0-7", (STATIC,), [WITHOUT]), ("x", (STATIC,), [WITHOUT])),
        # With strict-cpu-reservation the state lacks what is reserved.
        *(("4,6", (STATIC, "--reserved-cpus=0,2"), []), ("4,6", (STATIC, "--reserved-cpus=0"), [WITHOUT])),
        # With no policy it keeps no CPUs, but their number.
        *((None, (STATIC,), [STEP]), (None, (), [STEP]), ("0,2,4,6", (), [])),
    ],
)
def test_a_state_fits_where_it_has_the_cpus_of_the_host(tmp_path, default, arguments, does):
    node = Node(tmp_path, *arguments)
    node.ask("disabled", affinity_conflicts="warn")
    if default is None:
        (tmp_path / STATE).unlink()
    else:
        node.put(STATE, state(default))
    assert node.would_do() == does


@pytest.mark.parametrize("unit", ["kubelet.service", "k3s.service"])
def test_one_that_is_down_because_of_its_state_is_found_and_made_right(node, unit):
    node.end(unit)
    assert node.known() == []
    node.put(STATE, state("0,2,4,6"))
    (wrong,) = node.known()
    assert (wrong["unit"], wrong["is_service"], wrong["counted"], wrong["cpus"]) == (unit, True, 4, 8)
    done = node.ask("enabled", consumers=RESTART, check=True)["consumers"]
    assert done == [WITHOUT.replace("kubelet.service", unit)]
    if unit == "kubelet.service":
        node.ask("enabled", consumers=RESTART)
        assert node.kept() == tuple(range(8)) and node.known() == []


@pytest.mark.parametrize("is_enabled", [True, False])
def test_one_that_somebody_has_stopped_stays_as_it_is(tmp_path, node, is_enabled):
    if is_enabled:
        node.end()
        node.outputs["is-active"] = "inactive\n"
    else:
        shutil.rmtree(tmp_path / "proc/100")
    node.put(STATE, state("0,2,4,6"))
    # That it will not start is said all the same.
    assert len(node.known()) == is_enabled
    assert node.ask("enabled", consumers=RESTART)["consumers"] == [] and node.kept() == (0, 2, 4, 6)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000, state({}), state("", [["a", 7]])])
def test_a_state_of_any_kind_is_read_as_far_as_it_goes(node, text):
    node.put(STATE, text)
    assert node.would_do()


@pytest.mark.parametrize(
    "last", ["--cpu-manager-policy-options=a=true,full-pcpus-only=true", "--config=/etc/kubelet.yaml"]
)
def test_whole_cores_need_cores_of_the_same_size(tmp_path, last):
    node = Node(tmp_path, STATIC, last)
    node.put("etc/kubelet.yaml", 'cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  full-pcpus-only: "true"\n')
    with pytest.raises(ChangeRefusedError, match="1 and 2 threads"):
        node.ask("disabled", cores={"cpus": "0-3"}, consumers=RESTART)
    assert node.would_do()


def test_the_cpusets_of_its_pods_are_its_own_business(node):
    node.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    pod = "kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"
    own, above = {pod: "1", "system.slice/db.service": "3"}, ["kubepods.slice/kubepods-pod1.slice", "kubepods.slice"]
    for path in ("", "system.slice", *above, *own):
        files = {"cpuset.cpus": own.get(path, ""), "cpuset.cpus.effective": own.get(path, "0-7")}
        for name, text in {**files, "cgroup.controllers": "cpuset\n"}.items():
            node.put(f"sys/fs/cgroup/{path}/{name}", text)
    with pytest.raises(ChangeRefusedError, match="3 affinity conflict"):
        node.ask("disabled")
    # That of another service counts.
    with pytest.raises(ChangeRefusedError, match=r"1 affinity conflict(.|\n)*db\.service"):
        node.ask("disabled", consumers=RESTART)


@pytest.mark.parametrize(
    "arguments", [(), ("--cpu-manager-policy=none", "--reserved-cpus=0"), ("--config=/etc/k.yaml",)]
)
def test_kubernetes_124650_each_kubelet_is_named_before_a_change(tmp_path, plain, arguments):
    plain.arguments = arguments
    shutil.rmtree(tmp_path / "proc/100")
    plain.run_kubelet(0)
    plain.put("etc/k.yaml", "cpuManagerPolicy: none\nreservedSystemCPUs: 0,2\n")
    (coming,) = plain.known("consumers_after_switch")
    assert [coming[key] for key in ("program", "unit", "counted", "cpus")] == ["kubelet", "kubelet.service", 8, 4]
    for check in (True, False):
        result = plain.ask("disabled", check=check)
        assert result["consumers"] == [] and any(one.startswith("kubelet.service has ") for one in result["warnings"])
        assert len(plain.known()) == (not check)


def test_kubernetes_67500_a_kubelet_follows_there_and_back(plain):
    assert plain.would_do() == [STEP] and plain.commands == []
    assert plain.ask("disabled", consumers=RESTART)["consumers"] == [STEP]
    assert plain.known() == [] and plain.ask("disabled", consumers=RESTART)["consumers"] == []
    plain.ask("restored")
    assert plain.words() == ["restart"] * 2 and plain.known() == []


def test_one_that_is_stopped_counts_when_it_starts(plain):
    plain.end()
    assert plain.known("consumers_after_switch") == [] and plain.ask("disabled", consumers=RESTART)["consumers"] == []
