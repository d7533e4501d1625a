# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about CPU usage of machines with SMT, and about traces of the scheduler."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re

import own_counters
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._usage import (
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
    "pages_of_switches", pathlib.Path(__file__).resolve().parents[1] / "unit/_usage/test_switches.py"
)
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)


class Stat:
    """A host whose /proc/stat is a text."""

    def __init__(self, *lines):
        self.text = "".join(f"{line}\n" for line in lines)

    def read(self, path):
        return self.text if path == "proc/stat" else None


def usage(before, after):
    return counters.shares(counters.read(Stat(*before)), counters.read(Stat(*after)))


def test_vivien_i3blocks_240_two_busy_threads_on_two_cores_are_not_half_of_the_machine():
    used = room.use([cores.bounded((0, 2), {0: 1.0, 2: 0.0}), cores.bounded((1, 3), {1: 1.0, 3: 0.0})])
    assert used.usage == 0.5 and used.work == pytest.approx((1 / 1.3, 1.0)) and used.by_usage == 1.0
    assert used.room == pytest.approx((0.0, 0.3))


def test_prometheus_13700_siblings_that_went_offline_in_the_middle_are_no_usage():
    before = ["cpu0 100 0 0 900 0 0 0 0 0 0", "cpu1 100 0 0 900 0 0 0 0 0 0"]
    assert usage(before, ["cpu0 150 0 0 950 0 0 0 0 0 0"]) == {0: 0.5}
    # One that is back has the counters of before, or others.
    assert usage(before, ["cpu0 150 0 0 950 0 0 0 0 0 0", "cpu1 0 0 0 10 0 0 0 0 0 0"]) == {0: 0.5}


def test_qnapexporter_10_times_of_threads_are_not_divided_by_cores():
    every = dict.fromkeys(range(8), 1.0)
    assert room.use([cores.bounded((core, core + 4), every) for core in range(4)]).usage == 1.0


def test_netdata_729_guest_time_is_in_user_time_already():
    assert usage(["cpu0 0 0 0 0 0 0 0 0 0 0"], ["cpu0 60 20 0 20 0 0 0 0 60 20"]) == {0: 0.8}


def test_waybar_2681_waiting_for_a_disk_is_idle():
    assert usage(["cpu0 0 0 0 0 0 0 0 0 0 0"], ["cpu0 5 0 5 10 80 0 0 0 0 0"]) == {0: 0.1}


def test_nomad_18804_waiting_time_that_goes_back_is_no_negative_usage():
    assert usage(["cpu0 100 0 0 100 900 0 0 0 0 0"], ["cpu0 101 0 0 1100 880 0 0 0 0 0"]) == {
        0: pytest.approx(1 / 1001)
    }
    assert usage(["cpu0 100 0 0 100 900 0 0 0 0 0"], ["cpu0 100 0 0 200 850 0 0 0 0 0"]) == {0: 0.0}


def test_psutil_1210_stolen_time_that_jumps_back_is_not_all_of_it():
    found = usage(["cpu0 100 0 0 100 0 0 0 5000 0 0"], ["cpu0 150 0 0 6000 0 0 0 10 0 0"])
    assert all(0 <= share <= 1 for share in found.values())


def test_lf_edge_eve_4402_cores_have_numbers_that_need_not_follow_each_other():
    host = Topology(
        online=(0, 1, 8, 9), cores=((0, 8), (1, 9)), packages=((0, 8), (1, 9)), nodes={0: (0, 8), 3: (1, 9)}
    )
    lines = textfile.text(host, [], None, 0.0).splitlines()
    assert 'threadwise_smt_sibling_info{cpu="9",core="1",package="1",node="3"} 1' in lines


def test_tracy_1468_a_kernel_with_longer_heads_of_events_moves_all_fields():
    """PREEMPT_RT and vendors' kernels have further common fields; a fixed place reads other numbers."""
    moved = made.SWITCH.replace(
        made.COMMON, made.COMMON + "\tfield:unsigned char common_preempt_lazy_count;\toffset:8;\tsize:1;\n"
    )
    for old in (56, 40, 32, 28, 24):
        moved = moved.replace(f"offset:{old};", f"offset:{old + 4};")
    found = switches.event_format(moved, ("prev_pid", "next_pid"))
    assert (found.fields["prev_pid"], found.fields["next_pid"]) == ((28, "=i"), (60, "=i"))
    event = made.switch(7, 8)
    longer = event[:8] + b"\1\0\0\0" + event[8:]
    reader = switches.Reader(
        made.HEADER,
        found,
        switches.event_format(made.FORK, ("parent_pid", "child_pid")),
        switches.event_format(made.RUNTIME, ("pid",)),
    )
    assert [one[1:] for one in reader.page(made.page(made.entry(longer))).switches] == [(7, 8)]


def test_ros_realtime_33_a_window_ends_where_events_were_lost():
    window = tracing.Window(0, 400, {0: [switches.Switch(0, 0, 1)], 1: [switches.Switch(100, 0, 2)]}, {}, {}, True)
    assert shared.of_core(window, (0, 1), {}, str, shared.Spent()) == pytest.approx((1.75, 1.0, 0.75))


def test_windows_exporter_787_bands_of_siblings_leave_less_room_than_their_mean_says():
    """Threads at 85 % with siblings at 35 %: usage 60 %."""
    used = room.use([cores.bounded((core, core + 8), {core: 0.85, core + 8: 0.35}) for core in range(8)])
    assert used.usage == pytest.approx(0.6) and used.work.low > 0.7 and used.room.high < used.by_usage


def test_telegraf_17667_a_server_has_the_numbers_of_its_cores_cpus_and_sockets():
    pairs = tuple((core, core + 128) for core in range(128))
    sockets = (tuple(range(64)) + tuple(range(128, 192)), tuple(range(64, 128)) + tuple(range(192, 256)))
    host = Topology(online=tuple(range(256)), cores=pairs, packages=sockets, nodes={})
    lines = [line for line in textfile.text(host, [], None, 0.0).splitlines() if line.startswith("threadwise_smt_sib")]
    labels = [dict(pair.split("=") for pair in re.search("{(.*)}", line)[1].split(",")) for line in lines]
    assert [len({one[name] for one in labels}) for name in ("core", "cpu", "package")] == [128, 256, 2]


def test_pcp_2471_four_siblings_are_as_many_of_one_core():
    host = Topology(online=(0, 1, 2, 3), cores=((0, 1, 2, 3),), packages=((0, 1, 2, 3),), nodes={})
    assert textfile.text(host, [], None, 0.0).count('core="0"') == 4


def used(partition, seconds=2.0):
    """What a partition of POWER says of its cores, of a time with the shares with which it was made."""
    cpus = range(len(partition.threads))
    before = purr.read(partition.fs, cpus)
    partition.pass_time(seconds)
    return purr.used(partition.fs, partition.cores, before, purr.read(partition.fs, cpus), seconds)


@pytest.mark.parametrize(("running", "of_core"), [(1, 0.62), (2, 0.88), (4, 1.0)])
def test_ksun_oracle_2015_threads_of_a_power7_core_are_more_than_their_number_says(tmp_path, running, of_core):
    """Also zoltannyiri, "the power of POWER7": the system shows 25, 50 and 100 %."""
    idle = (0.0, (1 - of_core) / max(1, 4 - running), 0.0)
    partition = own_counters.Partition(tmp_path, [[(of_core / running, 0.0, 1.0)] * running + [idle] * (4 - running)])
    assert used(partition) == pytest.approx(of_core)
    busy = dict.fromkeys(range(running), 1.0)
    by_usage = room.use([cores.bounded(range(4), {**dict.fromkeys(range(4), 0.0), **busy})], None, None, of_core)
    assert by_usage.usage == running / 4 and by_usage.work == pytest.approx((of_core, of_core))


def test_powerpc_utils_103_a_partition_is_never_busier_than_it_can_be(tmp_path):
    """Lparstat said 101.54 % busy and -1.54 % idle of 12 CPUs, six threads a core."""
    assert used(own_counters.Partition(tmp_path, [[(1.0154 / 6, 0.0, 1.0)] * 6] * 2)) == 1.0


def test_powerpc_utils_64_all_eight_threads_of_one_virtual_processor_count(tmp_path):
    """A shared partition that hardly does anything: lparstat took it for one CPU."""
    partition = own_counters.Partition(tmp_path, [[(0.0823 / 8, 0.0, 0.08)] * 8])
    assert len(partition.cores[0]) == 8 and used(partition) == pytest.approx(0.0823)


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


def test_sysstat_188_counters_that_began_anew_are_no_usage_above_100_percent():
    """A boot between two reads; also of one CPU alone, as after it was offline."""
    before = ["cpu0 90000 0 900 500000 0 0 0 0 0 0", "cpu1 500 0 0 900 0 0 0 0 0 0"]
    assert usage(before, ["cpu0 30 0 0 170 0 0 0 0 0 0", "cpu1 600 0 0 1200 0 0 0 0 0 0"]) == {1: 0.25}


def test_node_exporter_873_threads_that_are_offline_share_no_core():
    """SMT=2 of eight threads on a POWER8: the others stand for nothing."""
    whole = tuple(tuple(range(core, core + 8)) for core in (0, 8))
    host = Topology(online=(0, 1, 8, 9), cores=whole, packages=(tuple(range(16)),), nodes={})
    lines = [line for line in textfile.text(host, [], None, 0.0).splitlines() if "sibling_info{" in line]
    assert [re.search('cpu="([0-9]+)",core="([0-9]+)"', line).groups() for line in lines] == [
        ("0", "0"),
        ("1", "0"),
        ("8", "8"),
        ("9", "8"),
    ]
