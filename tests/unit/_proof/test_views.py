# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other sources say of CPUs: what tools print, and what does not look like it."""

from __future__ import annotations

import pathlib

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._proof import recording, views
from ansible_collections.threadwise.smt.plugins.module_utils._topology import topology
from sysfs_tree import Machine

RECORDED = pathlib.Path(__file__).with_name("recorded")
MACHINE = Machine(packages=1, cores=2)


def tools(**output):
    """Run nothing, and answer for the tools that are installed: name -> output, or (status, output)."""

    def run(argv, _seconds):
        found = output.get(argv[0].partition("-")[0])
        if found is None:
            return 127, "", f"{argv[0]} cannot be run"
        return (*found, "") if isinstance(found, tuple) else (0, found, "")

    return run


def read(root, run, **tree):
    fs = host_files.HostFs(sysfs_tree.write(root, {**sysfs_tree.files(MACHINE), **tree}))
    shown = topology.read_topology(fs)
    return shown, {view.source: view for view in views.read(fs, shown.online, run)}


def test_a_recording_names_no_serial_number(tmp_path):
    text = (
        "processor\t: 0\nmodel name\t: X\nSerial\t\t: 10000000abcdef01\n\n"
        "processor 0: version = FF,  identification = 1A2B3C,  machine = 2964\n"
    )
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, {"proc/cpuinfo": text}))
    kept = recording.read(fs)["proc/cpuinfo"]
    assert "model name" in kept and "machine = 2964" in kept and "Serial" not in kept and "1A2B3C" not in kept


def test_a_recording_of_more_than_anybody_reads_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 100)
    assert recording.read(host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE)))) == {}


def test_the_cores_of_a_real_hwloc(tmp_path):
    printed = (RECORDED / "hwloc-2.9.0.xml").read_text()
    _shown, found = read(tmp_path, tools(lstopo=printed))
    cores = found["hwloc"].cores
    assert len(cores) == 32 and cores[0] == (0, 32) and cores[-1] == (31, 63)


def test_a_tool_that_differs_is_named_with_both(tmp_path):
    shown, found = read(
        tmp_path,
        tools(
            lscpu="# comment\n0,0,0\n1,0,0\n2,1,0\n3,1,0\n",
            ppc64_cpu="Core   0:    0*    2*\nCore   1:    1*    3 \nno core: 7\n",
        ),
    )
    assert views.differences(shown, found["lscpu"]) == [
        "lscpu has CPUs 0-1 on one core, and the facts have 0,2",
        "lscpu has CPUs 0-1 on one core, and the facts have 1,3",
        "lscpu has CPUs 2-3 on one core, and the facts have 0,2",
        "lscpu has CPUs 2-3 on one core, and the facts have 1,3",
    ]
    assert views.differences(shown, found["ppc64_cpu"]) == ["ppc64_cpu has CPUs 0-2 online, and the facts have 0-3"]
    assert found["hwloc"].reason == "it is not installed"


def test_the_kernels_own_files_are_each_asked(tmp_path):
    """The two lists of siblings have other names since Linux 5.3, and could say different things."""
    shown, found = read(
        tmp_path,
        tools(),
        **{
            "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0-1\n",
            "proc/stat": "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\n",
        },
    )
    said = [one for view in found.values() for one in views.differences(shown, view)]
    assert "topology/thread_siblings_list has CPUs 0-1 on one core, and the facts have 0,2" in said
    assert "/proc/stat has CPUs 0-1 online, and the facts have 0-3" in said


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "\x1b[31m0,0,0\x1b[0m\n",
        "0,x\n" * 1000,
        '<object type="Core" cpuset="0xffffffff,,0x1zz"/>',
        '<object type="Core" cpuset="' + "0xffffffff," * 100_000 + '"/>',
        "Core 0: " + "9" * 100_000,
        (1, "0,0,0\n"),
        "x" * (views.MAX_OUTPUT + 1),
    ],
)
def test_what_no_tool_prints_says_nothing(printed, tmp_path):
    shown, found = read(tmp_path, tools(lscpu=printed, lstopo=printed, ppc64_cpu=printed))
    for name in ("lscpu", "hwloc", "ppc64_cpu"):
        assert found[name].reason is not None and views.differences(shown, found[name]) == []


def test_a_large_machine_that_differs_everywhere_is_said_in_a_few_sentences(tmp_path):
    machine = Machine(packages=2, cores=64)
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(machine)))
    shown = topology.read_topology(fs)
    printed = "".join(f"{cpu},{cpu // 2},0\n" for cpu in shown.online)
    found = next(view for view in views.read(fs, shown.online, tools(lscpu=printed)) if view.source == "lscpu")
    said = views.differences(shown, found)
    assert len(said) == views.MAX_NAMED + 1 and said[-1] == "lscpu differs in 251 more cores"
