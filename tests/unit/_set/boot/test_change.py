# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests as a whole: computed numbers of CPUs, and the differences of the running system.

The CPUs that maxcpus=N leaves online were compared with what guests did with Linux 6.1 (serial) and 6.12 (parallel).
"""

import json

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import bringup, change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.bringup import PARALLEL, SERIAL

CPU = "sys/devices/system/cpu/"
BUILT = "CONFIG_SMP=y\nCONFIG_HOTPLUG_PARALLEL=y\n"


def run(root, smt=None, maxcpus=None, force=False, check=False):
    request = boot_change.Request(smt, maxcpus, force, check)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def grub(root, numbering="adjacent"):
    boot_maker.running(boot_maker.grub_tree(root), numbering=numbering)
    return root


MISCOUNT = r"leaves CPUs 0-3.*2 of 4 cores have more than one thread.*smt: disabled \(nosmt\).*force: true"
NOT_KNOWN = "the cores of CPUs 4-7 are not known"
NEWER = {"boot/config-6.1.0-13-amd64": BUILT}


@pytest.mark.parametrize(
    ("numbering", "value", "force", "files", "expected"),
    [
        *(("split", "4", False, {}, ["maxcpus=4"]), ("split", "one_per_core", False, {}, ["maxcpus=4"])),
        *(("adjacent", "4", False, {}, MISCOUNT), ("adjacent", "3", True, {}, ["maxcpus=3"])),
        # Each kernel that can be booted is checked.
        ("adjacent", "4", False, NEWER, "with Linux 6.1.0-12-amd64"),
        ("adjacent", "4", False, {**NEWER, "boot/config-6.1.0-12-amd64": BUILT}, ["maxcpus=4"]),
        # Siblings are offline, and nothing is known of them.
        *(
            ("adjacent", value, force, {CPU + "online": "0-3\n"}, NOT_KNOWN)
            for value, force in (("4", False), ("one_per_core", False), ("one_per_core", True))
        ),
        ("split", "4; reboot", False, {}, "maxcpus is "),
    ],
)
def test_the_number_of_cpus_of_a_boot(tmp_path, numbering, value, force, files, expected):
    grub(tmp_path, numbering)
    for path, text in files.items():
        boot_maker.write(tmp_path, path, text)
    before = boot_maker.snapshot(tmp_path)
    if isinstance(expected, str):
        with pytest.raises(boot_change.ERRORS, match=expected):
            run(tmp_path, maxcpus=value, force=force)
        assert boot_maker.snapshot(tmp_path) == before
    else:
        result = run(tmp_path, maxcpus=value, force=force)
        assert result["arguments"] == result["configured"] == expected


def test_after_the_boot_the_topology_cache_is_used_and_nothing_changes(tmp_path):
    run(grub(tmp_path, "split"), maxcpus="one_per_core")
    for path, text in (("proc/cmdline", "ro maxcpus=4"), (CPU + "online", "0-3"), (CPU + "smt/active", "0")):
        boot_maker.write(tmp_path, path, f"{text}\n")
    for cpu in range(4):
        for path in (tmp_path / f"{CPU}cpu{cpu + 4}/topology").iterdir():
            path.unlink()
        boot_maker.write(tmp_path, f"{CPU}cpu{cpu}/topology/core_cpus_list", f"{cpu}\n")
    result = run(tmp_path, maxcpus="one_per_core")
    assert (result["changed"], result["reboot_required"], result["differences"]) == (False, False, [])


BEFORE_THE_BOOT = [
    "/proc/cmdline: nosmt is missing",
    "smt/control reads 'on', expected is off or forceoff",
    "smt/active reads 1, expected is 0",
    "CPUs 0-7 are online, expected are 0,2,4,6",
]
BOOTED = {"cmdline": "root=UUID=1 ro nosmt quiet"}
IN_FORCE = {**BOOTED, "online": "0,2,4,6", "active": "0"}


@pytest.mark.parametrize(
    ("running", "differences", "reboot"),
    [
        ({}, BEFORE_THE_BOOT, True),
        *(({**IN_FORCE, "control": control}, [], False) for control in ("off", "notsupported")),
        # The argument is without effect.
        (BOOTED, BEFORE_THE_BOOT[1:], False),
    ],
)
def test_differences_of_the_running_system(tmp_path, running, differences, reboot):
    run(grub(tmp_path), "disabled")
    boot_maker.running(tmp_path, **running)
    result = run(tmp_path, "disabled")
    assert (result["differences"], result["reboot_required"]) == (differences, reboot)
    assert result["running"] == (["nosmt"] if running else []) and json.loads(json.dumps(result)) == result


def test_a_second_run_at_the_same_time_is_refused_after_a_while(tmp_path, monkeypatch):
    grub(tmp_path)
    monkeypatch.setattr(locks, "CHANGE_SECONDS", 0.01)
    with locks.HostLock(str(tmp_path), "another"):
        with pytest.raises(locks.HostLockError, match=r"changed by another"):
            run(tmp_path, "disabled")
        assert run(tmp_path, "disabled", check=True)["changed"]


ADJACENT = Topology(present=tuple(range(8)), cores=((0, 1), (2, 3), (4, 5), (6, 7)), complete=True)
SPLIT = Topology(present=tuple(range(8)), cores=((0, 4), (1, 5), (2, 6), (3, 7)), complete=True)


@pytest.mark.parametrize(
    ("topology", "count", "mode", "left", "is_one_per_core"),
    [
        (ADJACENT, 4, SERIAL, [0, 1, 2, 3], False),
        (ADJACENT, 4, PARALLEL, [0, 2, 4, 6], True),
        (SPLIT, 4, SERIAL, [0, 1, 2, 3], True),
        (SPLIT, 3, SERIAL, [0, 1, 2], False),
        (ADJACENT, 5, PARALLEL, [0, 1, 2, 4, 6], False),
        (ADJACENT, 99, SERIAL, [*range(8)], False),
    ],
)
def test_the_cpus_that_are_left_online(topology, count, mode, left, is_one_per_core):
    assert list(bringup.left_online(topology, count, mode)) == left
    assert (bringup.miscount(topology, count, mode) is None) == is_one_per_core


STATES = {"sys/devices/system/cpu/hotplug/states": "  0: offline\n 91: cpu:kick_ap\n"}
NOT_BUILT = "CONFIG_SMP=y\n# CONFIG_HOTPLUG_PARALLEL is not set\n"


@pytest.mark.parametrize(
    ("kernel", "arguments", "architecture", "files", "expected"),
    [
        ("6.4.9", [], "x86_64", {}, SERIAL),
        ("6.5.0-9-generic", [], "x86_64", {}, PARALLEL),
        ("6.12.3", ["cpuhp.parallel=0"], "x86_64", {}, SERIAL),
        ("6.12.3", ["cpuhp.parallel=0", "cpuhp.parallel=1"], "x86_64", {}, PARALLEL),
        *(("6.12.3", [], "aarch64", {}, SERIAL), ("strange", [], "x86_64", {}, SERIAL)),
        # The build configuration takes precedence over the version.
        ("5.14.0-427", [], "x86_64", {"boot/config-5.14.0-427": BUILT}, PARALLEL),
        ("6.12.3", [], "x86_64", {"boot/config-6.12.3": NOT_BUILT}, SERIAL),
        # The states of hotplug are those of the running kernel, 5.14.0-427, alone.
        *(("5.14.0-427", [], "x86_64", STATES, PARALLEL), ("5.14.0-428", [], "x86_64", STATES, SERIAL)),
    ],
)
def test_the_bringup_mode(tmp_path, kernel, arguments, architecture, files, expected):
    for path, text in files.items():
        boot_maker.write(tmp_path, path, text)
    fs = host_files.HostFs(str(tmp_path))
    assert bringup.bringup_mode(fs, kernel, arguments, architecture, running="5.14.0-427") == expected
