# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a program is that calls itself kubelet, and which of the files that it names are opened."""

import os

import counting
import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import programs
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import late_writers

STATIC = "--cpu-manager-policy=static"
OTHERS = {
    "a user": {"uid": 1000},
    "a user in a service": {"uid": 1000, "unit": "cron.service"},
    "root of a user namespace": {"uid": 100000, "group": "/user.slice/user-1000.slice/user@1000.service/app.slice/a"},
    "a system user": {"uid": 33, "unit": "apache2.service"},
    "a set-user-ID program": {"uid": 1000, "effective": 0, "unit": "cron.service"},
    "root in a login": {"group": "/user.slice/user-0.slice/session-3.scope"},
    "root in a login, cgroup v1": {"group": "/\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope"},
    "a pod": {"group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-1.scope"},
    "a pod, by cgroupfs": {"group": "/kubepods/besteffort/pod1/1"},
}
ROOTS = {
    "a service": {"unit": "kubelet.service"},
    "without systemd": {},
    "in a container of root": {"group": "/docker/1a2b"},
    "a unit with such a name": {"group": "/system.slice/the-user.slice/kubelet.service"},
}


@pytest.fixture(name="host")
def a_host(tmp_path):
    return counting.Processes(tmp_path)


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_a_kubelet_of_anybody_else_is_none_and_hides_none(host, others):
    arguments = ["kubelet", STATIC, "--cpu-manager-policy-options=full-pcpus-only=true", "--protect-kernel-defaults"]
    host.start(50, arguments, "kubelet", **others)
    fs = HostFs(str(host.folder))
    online = base.Online(frozenset(range(4)))
    assert programs.kubelet(host.files) == ("", frozenset())
    assert not programs.kubelet_gives_whole_cores(host.files)
    assert late_writers.find_kubelets(fs, late_writers.processes(fs)) == [] and find.wrong(host.files, online) == []
    # It is read before.
    host.start(700, ["kubelet", STATIC, "--reserved-cpus=1"], "kubelet", unit="kubelet.service")
    assert programs.kubelet(host.files) == ("of kubelet, which runs", frozenset({1}))
    assert late_writers.find_kubelets(fs, late_writers.processes(fs)) == [("kubelet", False)]
    assert [one.consumer.process.pid for one in find.wrong(host.files, online)] == [700]


@pytest.mark.parametrize("roots", ROOTS.values(), ids=ROOTS)
def test_a_kubelet_of_root_is_one_and_each_of_them_counts(host, roots):
    host.start(50, ["kubelet", "--protect-kernel-defaults"], "kubelet")
    host.start(51, ["kubelet", STATIC, "--reserved-cpus=2"], "kubelet", **roots)
    fs = HostFs(str(host.folder))
    assert programs.kubelet(host.files) == ("of kubelet, which runs", frozenset({2}))
    assert [one.protects for one in late_writers.find_kubelets(fs, late_writers.processes(fs))] == [True, False]
    # A program that runs as its owner is nobody's.
    (host.folder / "kubelet").touch(0o755)
    (host.folder / "kubelet").chmod(0o4755)
    for pid in (50, 51):
        (host.folder / f"proc/{pid}/exe").symlink_to(host.folder / "kubelet")
    assert programs.running(host.files, {"kubelet"}) == []


def test_a_haproxy_of_a_user_does_not_hide_that_of_a_service(host):
    host.start(300, ["haproxy"], "haproxy", 1, "haproxy.service", threads=4, started=10)
    host.start(301, ["haproxy"], "haproxy", 1, threads=3, started=20, uid=1000)
    found = find.wrong(host.files, base.Online(frozenset((0, 2)), ((30, frozenset(range(4))),)))
    assert [one.consumer.process.pid for one in found] == [300]


def test_any_number_of_programs_of_users_hides_no_service(host):
    for pid in range(100, 100 + find.MAX_FACTS):
        host.start(pid, ["java"], "java", uid=1000)
    host.nginx(4, pid=300)
    facts = find.facts(find.running(host.files), base.Online(frozenset(range(4))), (0, 2))
    assert facts.after_switch[0]["unit"] == "nginx.service" and len(facts.after_switch) == find.MAX_FACTS


def make(path, kind):
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "a directory":
        path.mkdir()
    elif kind == "of a user":
        path.write_text("cpuManagerPolicy: static\n")
        os.chown(path, 1000, 1000)
    else:
        path.write_text("cpuManagerPolicy: static\n")
        path.chmod({"that anybody may write": 0o646, "that a group may write": 0o664}.get(kind, 0o644))
        os.chown(path, -1, 1000 if kind == "that a group may write" else -1)


NOT_ROOTS = ["a FIFO", "a link to a device", "a directory", "of a user"]
NOT_ROOTS += ["that anybody may write", "that a group may write"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@needs_root
@pytest.mark.parametrize("sysroot", [False, True])
@pytest.mark.parametrize("kind", [*NOT_ROOTS, "of root"])
def test_of_what_a_kubelet_names_only_files_of_root_are_read(tmp_path, kind, sysroot):
    host = counting.Processes(tmp_path if sysroot else "/")
    make(tmp_path / "k.yaml", kind)
    path = "/k.yaml" if sysroot else str(tmp_path / "k.yaml")
    kubelet = programs.Program(1, "kubelet", ("kubelet", f"--config={path}"))
    setting = programs.kubelet_setting(host.files, kubelet, "cpu-manager-policy", "cpuManagerPolicy")
    assert setting == ("static" if kind == "of root" else None)
    fs = HostFs(host.files.sysroot)
    fs.of_root(path.lstrip("/"))
    assert bool(fs.problems) == (kind != "of root"), "it is said"


WORDS = yaml.safe_load("""
- ["--config=/a --config=/b", {a: none, b: static}, static]
- ["--config /b --config /a", {a: none, b: static}, none]
- ["--cpu-manager-policy=none --cpu-manager-policy static", {}, static]
- ["--config=/a --config-dir=/d", {a: none, d/1.conf: static}, static]
- ["--config-dir=/d/ --config=/a", {a: static, d/2.conf: none, d/1.conf: static}, none]
- ["--config-dir=/d", {d/1.yaml: static}, null]
- ["--config-dir=/d --config=/missing", {d/1.conf: static}, static]
- ["--config-dir=/d --cpu-manager-policy=none", {d/1.conf: static}, none]
""")


@pytest.mark.parametrize(("arguments", "files", "policy"), WORDS)
def test_which_of_the_words_to_a_kubelet_counts(host, arguments, files, policy):
    for path, value in files.items():
        place = host.folder / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"kind: KubeletConfiguration\ncpuManagerPolicy: {value}\n")
    kubelet = programs.Program(1, "kubelet", ("kubelet", *arguments.split()))
    assert programs.kubelet_setting(host.files, kubelet, "cpu-manager-policy", "cpuManagerPolicy") == policy
