# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs that maxcpus=N leaves online, compared with what guests did with Linux 6.1 (serial) and 6.12 (parallel)."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import bringup
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.bringup import PARALLEL, SERIAL

ADJACENT = Topology(present=tuple(range(8)), cores=((0, 1), (2, 3), (4, 5), (6, 7)), complete=True)
SPLIT = Topology(present=tuple(range(8)), cores=((0, 4), (1, 5), (2, 6), (3, 7)), complete=True)


@pytest.mark.parametrize(
    ("topology", "count", "mode", "left"),
    [
        (ADJACENT, 4, SERIAL, (0, 1, 2, 3)),
        (ADJACENT, 4, PARALLEL, (0, 2, 4, 6)),
        (SPLIT, 4, SERIAL, (0, 1, 2, 3)),
        (SPLIT, 4, PARALLEL, (0, 1, 2, 3)),
        (ADJACENT, 5, PARALLEL, (0, 1, 2, 4, 6)),
        (ADJACENT, 99, SERIAL, tuple(range(8))),
    ],
)
def test_the_cpus_that_are_left_online(topology, count, mode, left):
    assert bringup.left_online(topology, count, mode) == left


def test_a_miscount_by_adjacent_numbering_names_the_cpus():
    text = bringup.miscount(ADJACENT, 4, SERIAL)
    parts = ("maxcpus=4 leaves CPUs 0-3", "2 of 4 cores have more than one thread (0-1; 2-3)", "have none (4-5; 6-7)")
    assert [part in text for part in parts] == [True] * 3


def test_exactly_one_thread_of_each_core_is_required():
    cases = [(SPLIT, 4, SERIAL), (ADJACENT, 4, PARALLEL), (SPLIT, 3, SERIAL), (SPLIT, 5, SERIAL), (ADJACENT, 8, SERIAL)]
    assert [bringup.miscount(*case) is None for case in cases] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("kernel", "arguments", "architecture", "expected"),
    [
        ("6.4.9", [], "x86_64", SERIAL),
        ("6.5.0-9-generic", [], "x86_64", PARALLEL),
        ("6.12.3", ["cpuhp.parallel=0"], "x86_64", SERIAL),
        ("6.12.3", ["cpuhp.parallel=0", "cpuhp.parallel=1"], "x86_64", PARALLEL),
        ("6.12.3", [], "aarch64", SERIAL),
        ("strange", [], "x86_64", SERIAL),
    ],
)
def test_the_bringup_mode_by_version(tmp_path, kernel, arguments, architecture, expected):
    assert bringup.bringup_mode(host_files.HostFs(str(tmp_path)), kernel, arguments, architecture) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CONFIG_SMP=y\nCONFIG_HOTPLUG_PARALLEL=y\n", PARALLEL),
        ("CONFIG_SMP=y\n# CONFIG_HOTPLUG_PARALLEL is not set\n", SERIAL),
    ],
)
def test_the_build_configuration_takes_precedence_over_the_version(tmp_path, text, expected):
    (tmp_path / "boot").mkdir()
    for kernel in ("5.14.0-427.el9.x86_64", "6.12.3"):
        (tmp_path / "boot" / ("config-" + kernel)).write_text(text)
        assert bringup.bringup_mode(host_files.HostFs(str(tmp_path)), kernel, [], "x86_64") == expected


def test_the_hotplug_states_are_used_only_for_the_running_kernel(tmp_path):
    states = tmp_path / "sys/devices/system/cpu/hotplug/states"
    states.parent.mkdir(parents=True)
    states.write_text("  0: offline\n 91: cpu:kick_ap\n")
    fs = host_files.HostFs(str(tmp_path))
    assert bringup.bringup_mode(fs, "5.14.0-427", [], "x86_64", running="5.14.0-427") == PARALLEL
    assert bringup.bringup_mode(fs, "5.14.0-427", [], "x86_64", running="5.14.0-428") == SERIAL
