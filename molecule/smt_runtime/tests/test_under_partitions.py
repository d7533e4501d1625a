# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cpuset partition of cgroup v2 takes CPUs away from all other tasks: what is a conflict then,
what the change takes away, and what comes back.
"""

from __future__ import annotations

import re

import pytest
from guest import cores_of, pinned, smt_state

OWN = "/sys/fs/cgroup/own.slice"


def effective(host, cgroup=""):
    return host.check_output("cat /sys/fs/cgroup%s/cpuset.cpus.effective", cgroup)


def kind(host):
    return host.check_output("cat %s/cpuset.cpus.partition", OWN)


def masks(host):
    """Of process 1 and the processes of services and of the partition, which live longer than the test."""
    pids = "1 $(for u in cron ssh systemd-journald owned; do systemctl show -p MainPID --value $u; done)"
    return re.findall(
        r"Cpus_allowed_list:\s*(\S+)", host.check_output(f"for p in {pids}; do cat /proc/$p/status; done")
    )


def mask(host, unit):
    pid = host.check_output("systemctl show -p MainPID --value %s", unit)
    return re.search(r"Cpus_allowed_list:\s*(\S+)", host.check_output("cat /proc/%s/status", pid)).group(1)


@pytest.fixture(name="core")
def core_that_is_not_of_the_first_cpu(host):
    smt_state(host, state="restored")
    return cores_of(host)[1]


@pytest.fixture(name="partition")
def partition_with_a_task(host):
    """Make a partition of CPUs and return them as the kernel writes them. Without it the host is as before."""

    def make(cpus):
        host.check_output("systemd-run --collect --unit=owned --slice=own.slice sleep infinity")
        host.check_output("systemctl set-property --runtime own.slice AllowedCPUs=%s", ",".join(map(str, cpus)))
        host.check_output("echo root >%s/cpuset.cpus.partition", OWN)
        assert kind(host) == "root"
        # Linux before 6.2 forgets the masks of all tasks whose cgroup gets or loses a cpuset.
        host.check_output("systemctl restart pinned")
        return effective(host, "/own.slice")

    yield make
    smt_state(host, state="restored")
    host.check_output("systemctl stop owned own.slice; systemctl revert own.slice; systemctl restart pinned")


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_partition_is_one_conflict_and_binds_nobody_outside(host, core, partition, check_mode):
    cpus = partition(core)
    refused = smt_state(host, check_mode, state="disabled")
    of_partition, of_task = refused["affinity_conflicts"]
    what = re.escape(f"{OWN} (cgroup v2 cpuset, CPUs {cpus}) is a partition (root) and would shrink to {core[0]}")
    assert re.fullmatch(
        rf"CPU {core[1]}: {what}, as /run/systemd/system\.control/own\.slice\.d/\S+ sets AllowedCPUs=[0-9 -]+",
        of_partition,
    ), of_partition
    assert re.fullmatch(
        r"CPU 7: pid \d+ .*unit pinned\.service\) is pinned to 7 alone, by sched_setaffinity\(2\) as with taskset",
        of_task,
    ), of_task


def test_a_partition_that_keeps_a_cpu_comes_back(host, core, partition):
    cpus = partition(core)
    before = effective(host), masks(host)
    assert len(set(before[1])) == 2, "inside and outside"
    smt_state(host, state="disabled", affinity_conflicts="warn")
    assert (kind(host), effective(host, "/own.slice")) == ("root", str(core[0]))
    assert smt_state(host, state="restored")["not_restored"] == []
    assert (kind(host), effective(host, "/own.slice"), (effective(host), masks(host)), pinned(host)) == (
        "root",
        cpus,
        before,
        "7",
    )


def test_a_partition_that_loses_all_its_cpus_comes_back(host, core, partition):
    partition(core[1:])
    before = effective(host), masks(host)
    assert "would become invalid, and its tasks run among all others" in smt_state(host, state="disabled")["msg"]
    smt_state(host, state="disabled", affinity_conflicts="warn")
    assert kind(host).startswith("root invalid") and effective(host, "/own.slice") == effective(host)
    assert smt_state(host, state="restored")["not_restored"] == []
    assert (kind(host), effective(host, "/own.slice"), (effective(host), masks(host))) == ("root", str(core[1]), before)


def test_a_partition_that_leaves_siblings_to_all_others_loses_its_cpus(host, core, partition):
    partition([core[0] for core in cores_of(host)])
    before = effective(host), masks(host)
    done = smt_state(host, state="disabled")
    assert (
        "would become invalid, because what is outside of it would have no CPU" in done["msg"]
        and len(done["affinity_conflicts"]) == 2
    ), done
    smt_state(host, state="disabled", affinity_conflicts="warn")
    assert kind(host).startswith("root invalid")
    assert smt_state(host, state="restored")["not_restored"] == []
    assert (kind(host), (effective(host), masks(host))) == ("root", before)


def test_pins_to_cpus_that_stay_and_to_whole_cores(host, core, partition):
    """Linux before 6.2 takes the pin of each task whose cpuset loses a CPU or gets one;
    which CPUs it is pinned to does not matter.
    """
    first, second = cores_of(host)[2]
    partition(core)
    for unit, cpus in (("stays", str(first)), ("whole", f"{first},{second}")):
        host.check_output("systemd-run --collect --unit=%s taskset -c %s sleep infinity", unit, cpus)
    before = [mask(host, unit) for unit in ("stays", "whole")]
    done = smt_state(host, state="disabled", affinity_conflicts="warn")
    assert not any("stays.service" in conflict for conflict in done["affinity_conflicts"]), done
    assert [mask(host, unit) for unit in ("stays", "whole")] == [str(first)] * 2
    assert smt_state(host, state="restored")["not_restored"] == []
    after = [mask(host, unit) for unit in ("stays", "whole")]
    host.check_output("systemctl stop stays whole")
    assert after == before


def test_a_partition_that_somebody_gave_up_stays_so(host, core, partition):
    partition(core)
    smt_state(host, state="disabled", affinity_conflicts="warn")
    host.check_output("echo member >%s/cpuset.cpus.partition", OWN)
    smt_state(host, state="restored")
    assert kind(host) == "member"
    assert set(masks(host)) == {effective(host), effective(host, "/own.slice")}, "nobody has a mask of its own"


@pytest.mark.parametrize("check_mode", [True, False])
def test_an_owner_of_conflicts_with_a_slip_in_it(host, core, check_mode):
    refused = smt_state(host, check_mode, state="disabled", affinity_conflicts_of=["services", "deamon"])
    assert "affinity_conflicts_of names deamon, and this host knows no such user" in refused["msg"]
    refused = smt_state(host, check_mode, state="disabled", affinity_conflicts_of=["services", "1"])
    assert "affinity_conflicts_of names 1, and this user has a name here, daemon: give that" in refused["msg"]
    assert (
        "affinity conflict(s)"
        in smt_state(host, check_mode, state="disabled", affinity_conflicts_of=["services", "daemon"])["msg"]
    )
