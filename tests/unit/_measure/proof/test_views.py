# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other sources say of CPUs, tools and what does not look like one; and what there is to measure with."""

from __future__ import annotations

import pathlib

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, processes
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import instruments, recording, views
from sysfs_tree import Machine

RECORDED = pathlib.Path(__file__).with_name("recorded")
MACHINE = Machine(packages=1, cores=2)
CPU = "sys/devices/system/cpu/"


def tools(**output):
    """Run nothing, and answer for the tools that are installed: name -> output, or (status, output)."""

    def run(argv, _seconds):
        found = output.get(argv[0].partition("-")[0])
        if found is None:
            return 127, "", f"{argv[0]} is not installed"
        return (*found, "") if isinstance(found, tuple) else (0, found, "")

    return run


def read(root, run, machine=MACHINE, **tree):
    files = {**sysfs_tree.files(machine), **tree}
    fs = host_files.HostFs(sysfs_tree.write(root, {name: text for name, text in files.items() if text is not None}))
    shown = topology.read_topology(fs)
    return shown, {view.source: view for view in views.read(fs, shown.online, run)}


def test_a_recording_names_no_serial_number_and_is_left_out_where_nobody_reads_so_much(tmp_path, monkeypatch):
    text = "processor\t: 0\nmodel name\t: X\nSerial\t\t: 10000000abcdef01\n\n"
    text += "processor 0: version = FF,  identification = 1A2B3C,  machine = 2964\n"
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, {"proc/cpuinfo": text}))
    kept = recording.read(fs)["proc/cpuinfo"]
    assert "model name" in kept and "machine = 2964" in kept and "Serial" not in kept and "1A2B3C" not in kept
    monkeypatch.setattr(recording, "MAX_CHARACTERS", 50)
    assert recording.read(fs) == {}


def test_the_cores_of_a_real_hwloc(tmp_path):
    _shown, found = read(tmp_path, tools(lstopo=(RECORDED / "hwloc-2.9.0.xml").read_text()))
    cores = found["hwloc"].cores
    assert len(cores) == 32 and cores[0] == (0, 32) and cores[-1] == (31, 63)


def test_a_source_that_differs_is_named_with_both(tmp_path):
    """The two lists of siblings have other names since Linux 5.3, and could say different things."""
    lscpu = "# comment\n0,0,0\n1,0,0\n2,1,0\n3,1,0\n"
    ppc64_cpu = "Core   0:    0*    2*\nCore   1:    1*    3 \nno core: 7\n"
    files = {f"{CPU}cpu0/topology/thread_siblings_list": "0-1\n", "proc/stat": "cpu  1\ncpu0 1 2 3\ncpu1 1 2 3\n"}
    shown, found = read(tmp_path, tools(lscpu=lscpu, ppc64_cpu=ppc64_cpu), **files)
    said = {name: views.differences(shown, view) for name, view in found.items()}
    assert said["lscpu"] == [
        f"lscpu has CPUs {theirs} on one core, and the facts have {ours}"
        for theirs in ("0-1", "2-3")
        for ours in ("0,2", "1,3")
    ]
    assert said["ppc64_cpu"] == ["ppc64_cpu has CPUs 0-2 online, and the facts have 0-3"]
    assert said["/proc/stat"] == ["/proc/stat has CPUs 0-1 online, and the facts have 0-3"]
    name = "topology/thread_siblings_list"
    assert f"{name} has CPUs 0-1 on one core, and the facts have 0,2" in said[name]
    assert found["hwloc"].reason == "it is not installed"


ONLINE = f"/{CPU}online"
CORE = f"{CPU}cpu2/topology/core_cpus_list"


@pytest.mark.parametrize(
    ("source", "path", "text", "reason"),
    [
        ("/proc/stat", "proc/stat", None, "it does not exist"),
        ("/proc/cpuinfo", "proc/cpuinfo", "nothing\n", "it names no CPUs"),
        (ONLINE, ONLINE[1:], "garbage\n", "it is no list of CPUs"),
        (ONLINE, ONLINE[1:], "\n", "it names no CPUs"),
        ("topology/core_cpus_list", CORE, "xx\n", "of CPUs 2 it is no list of CPUs"),
        ("topology/core_cpus_list", CORE, None, "of CPUs 2 it does not exist"),
    ],
)
def test_a_source_that_says_nothing_has_a_reason(source, path, text, reason, tmp_path):
    tree = {**sysfs_tree.files(MACHINE), "proc/stat": "cpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n", path: text}
    root = sysfs_tree.write(tmp_path, {name: was for name, was in tree.items() if was is not None})
    found = {view.source: view for view in views.read(host_files.HostFs(root), range(4), tools())}
    assert {name: view.reason for name, view in found.items() if "/" in name and view.reason} == {source: reason}
    # What is known of other CPUs is compared all the same.
    assert (found[source].cores == ((0, 2), (1, 3))) == source.startswith("topology")


def test_a_tool_that_hangs_or_may_not_be_run_is_not_one_that_is_missing(tmp_path, monkeypatch):
    for name, script, mode in (("lscpu", "#!/bin/sh\nexec sleep 9\n", 0o755), ("ppc64_cpu", "#!/bin/sh\n", 0o644)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(mode)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(views, "SECONDS", 0.3)
    found = {view.source: view.reason for view in views.read(host_files.HostFs(str(tmp_path)), [0], processes.run)}
    for name, why in (("lscpu", "timed out"), ("ppc64_cpu", "Permission denied")):
        assert found[name].startswith("it cannot be run: ") and why in found[name]
    assert found["hwloc"] == "it is not installed"


@pytest.mark.parametrize(
    "printed",
    [
        "\x1b[31m0,0,0\x1b[0m\n",
        '<object type="Core" cpuset="0xffffffff,,0x1zz"/>',
        '<object type="Core" cpuset="' + "0xffffffff," * 100_000 + '"/>',
        "Core 0: " + "9" * 100_000,
        (1, "0,0,0\n"),
        "0,0,0\nCore 0: 0*\n" + "x" * (views.MAX_OUTPUT + 1),
    ],
    ids=range(6),
)
def test_what_no_tool_prints_says_nothing(printed, tmp_path):
    shown, found = read(tmp_path, tools(lscpu=printed, lstopo=printed, ppc64_cpu=printed))
    for name in ("lscpu", "hwloc", "ppc64_cpu"):
        assert found[name].reason is not None and views.differences(shown, found[name]) == []


def test_a_large_machine_that_differs_everywhere_is_said_in_a_few_sentences(tmp_path):
    printed = "".join(f"{cpu},{cpu // 2},0\n" for cpu in range(64))
    shown, found = read(tmp_path, tools(lscpu=printed), Machine(packages=2, cores=16))
    said = views.differences(shown, found["lscpu"])
    assert len(said) == views.MAX_NAMED + 1 and said[-1] == "lscpu differs in 59 more cores"


def test_what_is_coarse_or_switched_off_is_no_instrument(tmp_path, monkeypatch):
    fs = host_files.HostFs(str(tmp_path))
    assert "CONFIG_SCHEDSTATS" in instruments._schedstat(fs).reason and instruments._clock(fs).reason is None
    for switch, reason in (("1\n", None), ("0\n", "kernel.sched_schedstats is 0")):
        sysfs_tree.write(tmp_path, {"proc/schedstat": "version 15\n", "proc/sys/kernel/sched_schedstats": switch})
        assert instruments._schedstat(fs).reason == reason
    monkeypatch.setattr(instruments, "MAX_STEP_SECONDS", 1e-12)
    reason = instruments._clock(fs).reason
    assert reason.startswith("it is coarse, ") and "times as long" in reason
