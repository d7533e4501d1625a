# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read a processor's counters, the kernel's counters of energy, and the CPUs that a
process may use, each tried on ours.
"""

from __future__ import annotations

import json

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import energy, perf_counters, quotas

WHOLE = {"topdown-retiring": 150.0, "topdown-bad-spec": 30.0, "topdown-fe-bound": 120.0, "topdown-be-bound": 300.0}
SHARES = {"retiring": 0.25, "bad_speculation": 0.05, "frontend_bound": 0.2, "backend_bound": 0.5}
WAITED = {"stalled-cycles-backend": 196.0, "stalled-cycles-frontend": 20.0}


@pytest.mark.parametrize(
    ("counts", "key", "expected"),
    [
        pytest.param({"slots": 600.0, **WHOLE}, "topdown", SHARES, id="the whole"),
        # Shares above one are no shares.
        *(
            pytest.param({"slots": slots, **WHOLE}, "topdown", None, id="pmu_tools_47")
            for slots in (6000.0, 306.0, 200.0)
        ),
        pytest.param(WAITED, "stalls", {"frontend_stalled": 0.2}, id="pmu_tools_47_stalls"),
        # Every share zero is an event that was not counted, and not a thread that did nothing.
        *(
            pytest.param({"slots": slots, **dict.fromkeys(WHOLE, 0.0)}, "topdown", None, id="intel_perfmon_318")
            for slots in (0.0, 600.0)
        ),
        *(
            pytest.param({"slots": 600.0, **WHOLE, one: "<not counted>"}, "topdown", None, id="pmu_tools_125")
            for one in WHOLE
        ),
    ],
)
def test_what_a_thread_did_by_what_perf_printed(counts, key, expected):
    printed = {"cycles": 100.0, "instructions": 50.0, **counts}
    lines = [json.dumps({"cpu": "0", "counter-value": str(value), "event": event}) for event, value in printed.items()]
    found = perf_counters.by_core(perf_counters.parse("\n".join(lines)), [(0, 1)])["cpus"]["0"]
    assert found["ipc"] == 0.5 and found.get(key) == expected


BEFORE_ICE_LAKE = ["topdown-total-slots", "topdown-slots-retired", "topdown-fetch-bubbles", "topdown-recovery-bubbles"]


@pytest.mark.parametrize("names", [BEFORE_ICE_LAKE, list(WHOLE)], ids=["before Ice Lake", "a core without slots"])
def test_intel_perfmon_78_shares_of_a_core_are_not_those_of_a_thread(tmp_path, names):
    root = sysfs_tree.write(
        tmp_path, {f"sys/bus/event_source/devices/cpu/events/{one}": "event=0x00\n" for one in names}
    )
    assert "topdown" not in perf_counters.events(HostFs(root))


# Counters of 32 bits of 61 and of 15.3 microjoules.
WIDE, NARROW = 262_143_328_850, 65_712_999_613


@pytest.mark.parametrize(
    ("before", "after", "seconds", "ranges", "joules"),
    [
        # It begins again. Also codecarbon 322, scaphandre 280 and EnergiBridge 17.
        pytest.param([WIDE - 2_000_000], [1_000_000], 10, [WIDE], 3.0, id="powerjoular_45"),
        # A range that cannot be read, also of one of two packages.
        pytest.param([4_000_000_000], [10_000], 10, [None], None, id="codecarbon_1309"),
        pytest.param([1_000_000] * 2, [2_000_000] * 2, 10, [WIDE, None], None, id="codecarbon_1309"),
        # Nothing says how often it went round, also where it ended above its beginning. Also zeus 91.
        pytest.param([1_000_000_000], [31_811_100_000], 1795, [WIDE], None, id="likwid_646"),
        pytest.param([1_000_000_000], [31_811_100_000], 60, [WIDE], 30_811.1, id="likwid_646"),
        # The narrowest decides.
        pytest.param([1_000_000] * 2, [9_000_000] * 2, 70, [WIDE, NARROW], None, id="likwid_13"),
    ],
)
def test_the_joules_between_two_counts_of_packages(tmp_path, before, after, seconds, ranges, joules):
    readings = []
    for moment, counts in ((0.0, before), (seconds, after)):
        for number, (count, most) in enumerate(zip(counts, ranges, strict=True)):
            files = {"name": f"package-{number}\n", "energy_uj": f"{count}\n"}
            files |= {"max_energy_range_uj": f"{most}\n"} if most else {}
            sysfs_tree.write(tmp_path / energy.ZONES / f"intel-rapl:{number}", files)
        readings.append(energy.Energy(HostFs(str(tmp_path))).read()._replace(seconds=moment))
    assert energy.Energy(HostFs(str(tmp_path))).joules(*readings) == joules


V2 = "{number} 23 0:26 {root} {mount} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "{number} 23 0:29 {root} {mount} rw,relatime master:11 - cgroup cgroup rw,{controllers}\n"


def smallest(directory, own, mounts, cgroups):
    """The CPUs that a process in this cgroup may use, by the files of these cgroups, from the root of the host."""
    own_files = {"proc/self/cgroup": own, "proc/self/mountinfo": mounts}
    in_groups = {f"{place}/{name}": text for place, files in cgroups.items() for name, text in files.items()}
    sysfs_tree.write(directory, {**own_files, **in_groups})
    for place in cgroups:
        (directory / place).mkdir(parents=True, exist_ok=True)
    return min((quota.cpus for quota in quotas.read(HostFs(str(directory)))), default=None)


def unified(own, cgroups):
    mounts = V2.format(number=31, root="/", mount="/sys/fs/cgroup")
    files = {f"sys/fs/cgroup/{place}": {"cpu.max": text} if text else {} for place, text in cgroups.items()}
    return f"0::{own}\n", mounts, files


def v1(quota):
    return {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}


# The mount point is the container's own cgroup, whose name in /proc/self/cgroup is the host's.
KUBE = "/kubepods/burstable/pod1/0a1b"
CPU = {"number": 40, "root": "/", "mount": "/sys/fs/cgroup/cpu", "controllers": "cpu"}
IN_POD = {**CPU, "root": KUBE, "mount": "/sys/fs/cgroup/cpu,cpuacct", "controllers": "cpu,cpuacct"}
POD = "kubepods.slice/pod7.slice"
GPDB = {"sys/fs/cgroup/cpu/gpdb/1": v1(-1), "sys/fs/cgroup/cpu/gpdb": v1(360000)}
# Systemd's hybrid layout: version 2 has no controllers.
HYBRID = V2.format(number=31, root="/", mount="/sys/fs/cgroup/unified") + V1.format(**CPU)
OF_HYBRID = {"sys/fs/cgroup/unified/a": {}, "sys/fs/cgroup/cpu/a": v1(50000)}
QUOTAS = {
    # A quota above a cgroup without one. Also lxcfs 688, spiceai 12299, cadvisor 3682 and JDK-8322420.
    "ninja_2805": (unified(f"/{POD}/1.scope", {f"{POD}/1.scope": "max 100000\n", POD: "400000 100000\n"}), 4),
    "ninja_2805 none": (unified(f"/{POD}/1.scope", {f"{POD}/1.scope": None, POD: "400000 100000\n"}), 4),
    # A larger quota below a smaller one.
    "sysbox_582": (unified("/a/b", {"a/b": "200000 100000\n", "a": "25000 100000\n"}), 0.25),
    # A unit whose controller is not handed down.
    "systemd_9623": (unified("/system.slice/x.slice", {"system.slice/x.slice": None, "system.slice": None}), None),
    "omr_6479": (unified("/a", {"a": "150000 50000\n"}), 3),
    "automaxprocs_92": (
        (f"5:cpuacct,cpu:{KUBE}\n", V1.format(**IN_POD), {"sys/fs/cgroup/cpu,cpuacct": v1(350000)}),
        3.5,
    ),
    "gpdb_5942": (("2:cpu:/gpdb/1\n", V1.format(**CPU), GPDB), 3.6),
    "both versions": (("2:cpu:/a\n0::/a\n", HYBRID, OF_HYBRID), 0.5),
}


@pytest.mark.parametrize(("files", "cpus"), QUOTAS.values(), ids=QUOTAS)
def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path, files, cpus):
    assert smallest(tmp_path, *files) == cpus
