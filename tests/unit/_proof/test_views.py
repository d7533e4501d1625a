# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other sources say of CPUs: what tools print, and what does not look like it."""

from __future__ import annotations

import pathlib

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, processes
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
            return 127, "", f"{argv[0]} is not installed"
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


@pytest.mark.parametrize(
    ("source", "path", "text", "reason"),
    [
        ("/proc/stat", "proc/stat", None, "it does not exist"),
        ("/proc/stat", "proc/stat", "intr 1 2 3\n", "it names no CPUs"),
        ("/proc/cpuinfo", "proc/cpuinfo", "nothing\n", "it names no CPUs"),
        ("/sys/devices/system/cpu/online", "sys/devices/system/cpu/online", None, "it does not exist"),
        ("/sys/devices/system/cpu/online", "sys/devices/system/cpu/online", "garbage\n", "it is no list of CPUs"),
        ("/sys/devices/system/cpu/online", "sys/devices/system/cpu/online", "\n", "it names no CPUs"),
        (
            "topology/core_cpus_list",
            "sys/devices/system/cpu/cpu2/topology/core_cpus_list",
            "xx\n",
            "of CPUs 2 it is no list of CPUs",
        ),
        (
            "topology/core_cpus_list",
            "sys/devices/system/cpu/cpu2/topology/core_cpus_list",
            None,
            "of CPUs 2 it does not exist",
        ),
    ],
)
def test_a_source_that_says_nothing_has_a_reason(source, path, text, reason, tmp_path):
    tree = {**sysfs_tree.files(MACHINE), "proc/stat": "cpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n"}
    fs = host_files.HostFs(
        sysfs_tree.write(tmp_path, {name: was for name, was in {**tree, path: text}.items() if was is not None})
    )
    found = {view.source: view for view in views.read(fs, range(4), tools())}
    assert found[source].reason == reason
    assert [view.source for view in found.values() if "/" in view.source and view.reason] == [source]
    # What is known of other CPUs is compared all the same.
    assert (found[source].cores == ((0, 2), (1, 3))) == source.startswith("topology")


def test_a_tool_that_hangs_or_may_not_be_run_is_not_one_that_is_missing(tmp_path, monkeypatch):
    for name, script, mode in (("lscpu", "#!/bin/sh\nexec sleep 9\n", 0o755), ("ppc64_cpu", "#!/bin/sh\n", 0o644)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(mode)
    (tmp_path / "lstopo-no-graphics").write_text("#!/no/such/interpreter\n")
    (tmp_path / "lstopo-no-graphics").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(views, "SECONDS", 0.3)
    found = {view.source: view.reason for view in views.read(host_files.HostFs(str(tmp_path)), [0], processes.run)}
    assert found["lscpu"].startswith("it cannot be run: ") and "timed out" in found["lscpu"]
    assert found["ppc64_cpu"].startswith("it cannot be run: ") and "Permission denied" in found["ppc64_cpu"]
    assert found["hwloc"].startswith("it cannot be run: ")
    assert processes.run(["no-such-command"]) == (127, "", "no-such-command is not installed")


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
