# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that counted the CPUs of a host when they started."""

from __future__ import annotations

import math
import subprocess
import time

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._consumers import (
    find,
    follow,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

ALL, FIRST = range(4), (0, 2)
NAMES = ("consumers", "consumers_after_switch")
NGINX = (
    "nginx.service has 4 worker processes for 4 CPUs, and will have 2: restart it, as a reload keeps the number, or"
    " edit worker_processes where that is a number"
)
JVM = " has a JVM with its garbage collector and pools for {} CPUs, and will have {}: restart it"


class Host(counting.Processes):
    """What is said of its processes."""

    def said(self, before=ALL, after=FIRST):
        change = base.Online(frozenset(after), ((math.inf, frozenset(before)),))
        return follow.Consumers(self.files, consumer_settings.NOTHING, None).warnings(change, True)


@pytest.fixture(name="host")
def a_host(tmp_path):
    return Host(tmp_path)


def test_nginx_keeps_a_worker_for_each_cpu_of_its_start(host):
    host.nginx(4)
    assert host.said() == [NGINX]
    assert host.said(after=ALL) == []


def test_siblings_that_come_back_are_not_used_either(host):
    host.nginx(2)
    (sentence,) = host.said(before=FIRST, after=ALL)
    assert sentence.startswith("nginx.service has 2 worker processes for 2 CPUs, and will have 4: restart it")


def test_facts_have_who_would_be_wrong_before_anybody_switches_and_who_is_afterwards(tmp_path):
    host = fake_host.Host(tmp_path)
    counting.Processes(tmp_path).nginx(8)

    def known():
        found = facts.gather(host_files.HostFs(str(tmp_path)))
        return [[(one["unit"], one["counted"], one["cpus"]) for one in found[name]] for name in NAMES]

    assert known() == [[], [("nginx.service", 8, 4)]]
    host.ask("disabled")
    assert known() == [[("nginx.service", 8, 4)], []]


@pytest.mark.parametrize(
    ("workers", "kind"),
    [(3, "nginx: worker process"), (8, "nginx: worker process"), (4, "nginx: cache manager process")],
)
def test_a_number_that_was_chosen_is_nobodys_mistake(host, workers, kind):
    host.nginx(workers, kind=kind)
    assert host.said() == []


def test_a_jvm_counts_the_cpus_that_it_may_run_on(host):
    host.start(200, ["/usr/bin/java", "-jar", "app.jar"], "java", unit="app.service")
    host.start(201, ["java"], "java", unit="bound.service", mask="0,2")
    host.start(202, ["java", "-XX:ActiveProcessorCount=4"], "java", unit="given.service")
    host.start(203, ["java"], "java", mask="1-3")
    # Bound to CPUs that go offline: an affinity conflict.
    host.start(204, ["java"], "java", mask="1,3")
    assert host.said() == ["app.service" + JVM.format(4, 2), "java (pid 203)" + JVM.format(3, 1)]
    assert "java (pid 203)" + JVM.format(1, 3).replace("1 CPUs", "1 CPU") in host.said(before=FIRST, after=ALL)


def test_a_jvm_counts_no_more_cpus_than_the_quota_of_its_cgroup_has(host):
    (host.folder / "proc" / "self").mkdir(parents=True)
    (host.folder / "proc" / "self" / "mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    for pid, (unit, limit) in enumerate(
        (("two", "200000 100000"), ("half", "250000 100000"), ("none", "max 100000")), 200
    ):
        host.start(pid, ["java"], "java", unit=f"{unit}.service")
        group = host.folder / "sys/fs/cgroup/system.slice" / f"{unit}.service"
        group.mkdir(parents=True)
        (group / "cpu.max").write_text(f"{limit}\n")
    # Two CPUs are two before and after; two and a half are three.
    assert host.said() == ["half.service" + JVM.format(3, 2), "none.service" + JVM.format(4, 2)]


def test_haproxy_has_a_thread_for_each_cpu(host):
    host.start(300, ["/usr/sbin/haproxy", "-Ws"], "haproxy", unit="haproxy.service")
    host.start(301, ["/usr/sbin/haproxy", "-Ws"], "haproxy", 300, "haproxy.service", threads=4)
    host.start(400, ["haproxy"], "haproxy", unit="chosen.service", threads=3)
    assert host.said() == [
        "haproxy.service has 4 threads for 4 CPUs, and will have 2: reload it, or edit nbthread where that is a number"
    ]


def test_whatever_a_process_calls_itself_is_one_line_and_many_are_counted(host):
    host.start(1, ["java"], "java", unit="\x1b[31mred\x07.service")
    host.start(2, [], "java")
    (host.folder / "proc" / "3").mkdir()
    (host.folder / "proc" / "3" / "comm").write_text("nginx\n")
    for pid in range(100, 200):
        host.start(pid, ["java"], "java", unit=f"app-{pid}.service")
    said = host.said()
    assert len(said) == follow.MAX_SENTENCES + 1 and said[-1] == "82 more programs count CPUs when they start"
    assert all(sentence.isprintable() for sentence in said)


@pytest.mark.parametrize("check", [True, False])
def test_a_change_says_who_will_be_wrong_and_check_mode_says_it_too(tmp_path, check):
    host = fake_host.Host(tmp_path)
    Host(tmp_path).nginx(8)
    warnings = host.ask("disabled", check=check)["warnings"]
    assert any(one.startswith("nginx.service has 8 worker processes for 8 CPUs, and will have 4") for one in warnings)
    # What changes nothing says who is wrong since.
    later = host.ask("enabled" if check else "disabled")["warnings"]
    still = NGINX.replace("4", "8").replace("2", "4").replace("will have", "now has")
    assert [one for one in later if "nginx" in one] == ([] if check else [still])


def test_a_real_nginx_is_recognised_and_not_while_it_has_another_number(tmp_path):
    config = tmp_path / "nginx.conf"
    pid_file = tmp_path / "pid"

    def serve(workers):
        config.write_text(
            f"worker_processes {workers}; pid {pid_file}; error_log {tmp_path}/log; events {{ }}\n"
            f"http {{ access_log off; server {{ listen unix:{tmp_path}/socket; }} }}\n"
        )
        command = ["nginx", "-c", str(config), "-g", "daemon off;"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def workers_of(process):
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(children, encoding="ascii") as file:
            return len(file.read().split())

    for workers, is_found in ((4, True), (3, False)):
        process = serve(workers)
        try:
            while workers_of(process) < workers:
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
            # A worker has its title a moment after it was started.
            mine = []
            for _attempt in range(100):
                # Of its own: other tests have nginx at work, too.
                change = base.Online(frozenset(FIRST), ((math.inf, frozenset(ALL)),))
                found = find.wrong(counting.Processes("/").files, change)
                mine = [one.counted for one in found if one.consumer.process.pid == process.pid]
                if mine or not is_found:
                    break
                time.sleep(0.05)
            assert mine == ["4 worker processes for 4 CPUs"] * is_found
        finally:
            process.terminate()
            process.wait()
