# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that counted the CPUs of a host when they started; real ones are in molecule/smt_consumers."""

from __future__ import annotations

import math

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._set import follow

ALL, FIRST = range(4), (0, 2)
NGINX = (
    "nginx.service has {} worker processes for {} CPUs, and {} have {}: restart it, as a reload keeps the number, or"
    " edit worker_processes where that is a number"
)
JVM = "{} has a JVM with its garbage collector and pools for {}, and will have {}: restart it"


class Host(counting.Processes):
    """What is said of its processes."""

    def said(self, before=ALL, after=FIRST):
        change = base.Online(frozenset(after), ((math.inf, frozenset(before)),))
        return follow.Consumers(self.files, consumer_settings.NOTHING, None).warnings(change, True)


@pytest.fixture(name="host")
def a_host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("workers", "before", "after", "gets"),
    # Siblings that come back are not used either; a number that was chosen is nobody's mistake.
    [(4, ALL, FIRST, 2), (4, ALL, ALL, None), (2, FIRST, ALL, 4), (3, ALL, FIRST, None), (8, ALL, FIRST, None)],
)
def test_nginx_keeps_a_worker_for_each_cpu_of_its_start(host, workers, before, after, gets):
    host.nginx(workers)
    assert host.said(before, after) == ([NGINX.format(workers, workers, "will", gets)] if gets else [])


def test_other_processes_of_nginx_are_no_workers(host):
    host.nginx(4, kind="nginx: cache manager process")
    assert host.said() == []


def test_a_jvm_counts_the_cpus_that_it_may_run_on(host):
    host.start(200, ["/usr/bin/java", "-jar", "app.jar"], "java", unit="app.service")
    host.start(201, ["java"], "java", unit="bound.service", mask="0,2")
    host.start(202, ["java", "-XX:ActiveProcessorCount=4"], "java", unit="given.service")
    host.start(203, ["java"], "java", mask="1-3")
    # Bound to CPUs that go offline: an affinity conflict.
    host.start(204, ["java"], "java", mask="1,3")
    assert host.said() == [JVM.format("app.service", "4 CPUs", 2), JVM.format("java (pid 203)", "3 CPUs", 1)]
    assert JVM.format("java (pid 203)", "1 CPU", 3) in host.said(before=FIRST, after=ALL)


def test_a_jvm_counts_no_more_cpus_than_the_smallest_quota_of_its_cgroups_has(host):
    (host.folder / "proc" / "self").mkdir(parents=True)
    (host.folder / "proc" / "self" / "mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    above = host.folder / "sys/fs/cgroup/system.slice"
    limits = {"two.service": "200000 100000", "half.service": "250000 100000", "none.service": "max 100000"}
    for pid, (unit, limit) in enumerate(limits.items(), 200):
        host.start(pid, ["java"], "java", unit=unit)
        (above / unit).mkdir(parents=True)
        (above / unit / "cpu.max").write_text(f"{limit}\n")
    (above / "cpu.max").write_text("2000000 100000\n")
    # Two CPUs are two before and after; two and a half are three.
    assert host.said() == [JVM.format("half.service", "3 CPUs", 2), JVM.format("none.service", "4 CPUs", 2)]


def test_haproxy_has_a_thread_for_each_cpu(host):
    host.start(300, ["/usr/sbin/haproxy", "-Ws"], "haproxy", unit="haproxy.service")
    host.start(301, ["/usr/sbin/haproxy", "-Ws"], "haproxy", 300, "haproxy.service", threads=4)
    # Those that are no children of each other are distinguished by their units.
    host.start(399, ["haproxy"], "haproxy", unit="edge.service", threads=4)
    host.start(400, ["haproxy"], "haproxy", unit="chosen.service", threads=3)
    remedy = "reload it, or edit nbthread where that is a number"
    each = [f"{unit}.service has 4 threads for 4 CPUs, and will have 2: {remedy}" for unit in ("haproxy", "edge")]
    assert host.said() == each


def test_whatever_a_process_calls_itself_is_one_line_and_many_are_counted(host):
    host.start(1, ["java"], "java", unit="\x1b[31mred\x07.service")
    host.start(2, [], "java")
    (host.folder / "proc" / "3").mkdir()
    (host.folder / "proc" / "3" / "comm").write_text("nginx\n")
    for pid in range(100, 140):
        host.start(pid, ["java"], "java", unit=f"app-{pid}.service")
    said = host.said()
    assert len(said) == follow.MAX_SENTENCES + 1 and said[-1] == "22 more programs count CPUs when they start"
    assert all(sentence.isprintable() for sentence in said)


@pytest.mark.parametrize("check", [True, False])
def test_a_change_says_who_will_be_wrong_and_check_mode_says_it_too(tmp_path, check):
    host = fake_host.Host(tmp_path)
    Host(tmp_path).nginx(8)

    def said(*asked, **options):
        return [one for one in host.ask(*asked, **options)["warnings"] if "nginx" in one]

    assert said("disabled", check=check) == [NGINX.format(8, 8, "will", 4)]
    # What changes nothing says who is wrong since.
    assert (
        said("enabled" if check else "disabled")
        == [NGINX.format(8, 8, "now", 4).replace("now have", "now has")][check:]
    )
