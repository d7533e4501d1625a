# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about CPU usage of machines with SMT, about traces of the scheduler, and about tools that
read a processor's counters, the kernel's counters of energy, and the CPUs that a process may use.
"""

import importlib.util
import json
import pathlib
import re

import own_counters
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import energy, perf_counters, quotas
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import (
    cores,
    counters,
    one_thread,
    purr,
    room,
    shared,
    switches,
    textfile,
    tracing,
)

_SPEC = importlib.util.spec_from_file_location(
    "pages_of_switches", pathlib.Path(__file__).resolve().parents[1] / "unit/_measure/usage/test_switches.py"
)
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)


class Stat:
    def __init__(self, cpus):
        self.text = "".join(
            f"cpu{cpu} {' '.join(map(str, [*of, *[0] * (10 - len(of))]))}\n" for cpu, of in cpus.items()
        )

    def read(self, path):
        return self.text if path == "proc/stat" else None


ZERO, OLD = {0: [0]}, {0: [100, 0, 0, 900], 1: [100, 0, 0, 900]}
WAITING = {0: [100, 0, 0, 100, 900]}


@pytest.mark.parametrize(
    ("before", "after", "shares"),
    [
        # Siblings that went offline in the middle are no usage; one that is back has the counters of before, or others.
        pytest.param(OLD, {0: [150, 0, 0, 950]}, {0: 0.5}, id="prometheus_13700"),
        pytest.param(OLD, {0: [150, 0, 0, 950], 1: [0, 0, 0, 10]}, {0: 0.5}, id="prometheus_13700"),
        # Guest time is in user time already.
        pytest.param(ZERO, {0: [60, 20, 0, 20, 0, 0, 0, 0, 60, 20]}, {0: 0.8}, id="netdata_729"),
        # Waiting for a disk is idle.
        pytest.param(ZERO, {0: [5, 0, 5, 10, 80]}, {0: 0.1}, id="waybar_2681"),
        # Waiting time that goes back is no negative usage.
        pytest.param(WAITING, {0: [101, 0, 0, 1100, 880]}, {0: pytest.approx(1 / 1001)}, id="nomad_18804"),
        pytest.param(WAITING, {0: [100, 0, 0, 200, 850]}, {0: 0.0}, id="nomad_18804"),
        # A boot between two reads; also of one CPU alone, as after it was offline.
        pytest.param(
            {0: [90000, 0, 900, 500000], 1: [500, 0, 0, 900]},
            {0: [30, 0, 0, 170], 1: [600, 0, 0, 1200]},
            {1: 0.25},
            id="sysstat_188",
        ),
    ],
)
def test_the_share_of_time_in_which_a_cpu_worked(before, after, shares):
    assert counters.shares(counters.read(Stat(before)), counters.read(Stat(after))) == shares


def test_psutil_1210_vivien_i3blocks_240_qnapexporter_10_windows_exporter_787_and_ksun_oracle_2015_usage_and_work():
    before, after = {0: [100, 0, 0, 100, 0, 0, 0, 5000]}, {0: [150, 0, 0, 6000, 0, 0, 0, 10]}
    found = counters.shares(counters.read(Stat(before)), counters.read(Stat(after)))
    assert all(0 <= share <= 1 for share in found.values())
    used = room.use([cores.bounded((0, 2), {0: 1.0, 2: 0.0}), cores.bounded((1, 3), {1: 1.0, 3: 0.0})])
    assert used.usage == 0.5 and used.work == pytest.approx((1 / 1.3, 1.0)) and used.by_usage == 1.0
    assert used.room == pytest.approx((0.0, 0.3))
    every = dict.fromkeys(range(8), 1.0)
    assert room.use([cores.bounded((core, core + 4), every) for core in range(4)]).usage == 1.0
    # Threads at 85 % with siblings at 35 %: usage 60 %.
    used = room.use([cores.bounded((core, core + 8), {core: 0.85, core + 8: 0.35}) for core in range(8)])
    assert used.usage == pytest.approx(0.6) and used.work.low > 0.7 and used.room.high < used.by_usage
    for running, of_core in ((1, 0.62), (2, 0.88), (4, 1.0)):
        busy = {cpu: float(cpu < running) for cpu in range(4)}
        by_usage = room.use([cores.bounded(range(4), busy)], None, None, of_core)
        assert by_usage.usage == running / 4 and by_usage.work == pytest.approx((of_core, of_core))


PAIRS = tuple((core, core + 128) for core in range(128))
SOCKETS = (tuple(range(64)) + tuple(range(128, 192)), tuple(range(64, 128)) + tuple(range(192, 256)))
EVE = {"cores": ((0, 8), (1, 9)), "packages": ((0, 8), (1, 9)), "nodes": {0: (0, 8), 3: (1, 9)}}


@pytest.mark.parametrize(
    ("online", "shape", "numbers"),
    [
        # Numbers of cores need not follow each other.
        pytest.param([0, 1, 8, 9], EVE, [(0, 0, 0, 0), (1, 1, 1, 3), (8, 0, 0, 0), (9, 1, 1, 3)], id="eve_4402"),
        pytest.param(range(256), {"cores": PAIRS, "packages": SOCKETS}, [256, 128, 2], id="telegraf_17667"),
        pytest.param(range(4), {"cores": ((0, 1, 2, 3),), "packages": ((0, 1, 2, 3),)}, [4, 1, 1], id="pcp_2471"),
        # SMT=2 of eight threads on a POWER8: the others stand for nothing.
        pytest.param(
            [0, 1, 8, 9],
            {"cores": (tuple(range(8)), tuple(range(8, 16))), "packages": (tuple(range(16)),)},
            [(0, 0, 0), (1, 0, 0), (8, 8, 0), (9, 8, 0)],
            id="node_exporter_873",
        ),
    ],
)
def test_which_threads_share_a_core(online, shape, numbers):
    host = Topology(online=tuple(online), **{"nodes": {}, **shape})
    lines = textfile.text(host, [], None, 0.0).splitlines()
    found = [tuple(map(int, re.findall('[a-z]="([0-9]+)"', line))) for line in lines if "sibling_info{" in line]
    assert numbers == (sorted(found) if isinstance(numbers[0], tuple) else [len(set(one)) for one in zip(*found)])


def test_tracy_1468_and_ros_realtime_33_longer_heads_of_events_and_windows_in_which_events_were_lost():
    # PREEMPT_RT and vendors' kernels have further common fields; a fixed place reads other numbers.
    field = "\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\n"
    moved = re.sub("(common_pid;[^\n]*\n+)", lambda found: found[1] + field, made.SWITCH)
    for old in (56, 40, 32, 28, 24):
        moved = moved.replace(f"offset:{old};", f"offset:{old + 4};")
    found = switches.event_format(moved, ("prev_pid", "next_pid"))
    assert (found.fields["prev_pid"], found.fields["next_pid"]) == ((28, "=i"), (60, "=i"))
    event = made.switch(7, 8)
    fork, runtime = (made.FORK, ("parent_pid", "child_pid")), (made.RUNTIME, ("pid",))
    reader = switches.Reader(made.HEADER, found, switches.event_format(*fork), switches.event_format(*runtime))
    page = made.page(made.entry(event[:8] + b"\1\0\0\0" + event[8:]))
    assert [one[1:] for one in reader.page(page).switches] == [(7, 8)]
    window = tracing.Window(0, 400, {0: [switches.Switch(0, 0, 1)], 1: [switches.Switch(100, 0, 2)]}, {}, {}, True)
    assert shared.of_core(window, (0, 1), {}, str, shared.Spent()) == pytest.approx((1.75, 1.0, 0.75))


def power7(running, of_core):
    idle = (0.0, (1 - of_core) / max(1, 4 - running), 0.0)
    return [[(of_core / running, 0.0, 1.0)] * running + [idle] * (4 - running)]


@pytest.mark.parametrize(
    ("threads", "used"),
    [
        # Threads of a core are more than their number says; also zoltannyiri: the system shows 25, 50 and 100 %.
        *(pytest.param(power7(*one), one[1], id="ksun_oracle_2015") for one in ((1, 0.62), (2, 0.88), (4, 1.0))),
        # Lparstat said 101.54 % busy and -1.54 % idle of 12 CPUs, six threads a core.
        pytest.param([[(1.0154 / 6, 0.0, 1.0)] * 6] * 2, 1.0, id="powerpc_utils_103"),
        # A shared partition that hardly does anything, with eight threads: lparstat took it for one CPU.
        pytest.param([[(0.0823 / 8, 0.0, 0.08)] * 8], 0.0823, id="powerpc_utils_64"),
    ],
)
def test_what_a_partition_of_power_used_of_its_cores(tmp_path, threads, used):
    partition = own_counters.Partition(tmp_path, threads)
    cpus = range(len(partition.threads))
    before = purr.read(partition.fs, cpus)
    partition.pass_time(2.0)
    assert purr.used(partition.fs, partition.cores, before, purr.read(partition.fs, cpus), 2.0) == pytest.approx(used)


@pytest.mark.parametrize(
    ("alone", "of_threads", "share"),
    [
        # A Sandy Bridge as a whole, and two programs of one thread on other machines, one of them with counters that
        # were read a little apart.
        (14_931_177, 43_003_170, 0.5155),
        (1_311_634_367, 1_312_820_545, 0.9995),
        (49_591_815, 49_562_300, 1.0),
    ],
)
def test_linux_perf_users_one_thread_active_beside_the_cycles_of_threads(alone, of_threads, share):
    """As `perf stat` printed it on the list (TopDownL1_SMT and tma_info_*): counts of all threads together."""
    pair = one_thread.INTEL[1]
    text = "".join(
        json.dumps({"cpu": cpu, "counter-value": str(value), "event": event}) + "\n"
        for event, count in ((pair.alone, alone), (pair.other, of_threads))
        for cpu, value in (("0", count), ("1", 0))
    )
    assert one_thread.shares(text, pair, [(0, 1)])[0, 1] == pytest.approx(share, abs=1e-4)


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
