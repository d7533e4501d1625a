# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about CPU usage of machines with SMT, and about traces of the scheduler."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._usage import (
    cores,
    counters,
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
    assert usage(["cpu0 100 0 0 100 900 0 0 0 0 0"], ["cpu0 101 0 0 1100 880 0 0 0 0 0"]) == {0: pytest.approx(1 / 981)}
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
