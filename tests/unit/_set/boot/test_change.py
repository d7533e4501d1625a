# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests as a whole: computed numbers of CPUs, and the differences of the running system."""

from __future__ import annotations

import json

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    change as boot_change,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base


def run(root, smt=None, maxcpus=None, force=False, check=False):
    return boot_change.run(
        host_files.HostFs(str(root)), boot_change.Request(smt, maxcpus, force, check), "x86_64", "6.1.0-13-amd64"
    )


def grub(root, numbering="adjacent"):
    boot_maker.grub_tree(root)
    boot_maker.running(root, numbering=numbering)
    return root


@pytest.mark.parametrize("value", ["4", "one_per_core"])
def test_one_per_core_works_with_split_numbering(tmp_path, value):
    result = run(grub(tmp_path, "split"), maxcpus=value)
    assert result["arguments"] == result["configured"] == ["maxcpus=4"]


def test_the_same_number_is_refused_with_adjacent_numbering(tmp_path):
    before = boot_maker.snapshot(grub(tmp_path))
    message = r"maxcpus=4 leaves CPUs 0-3.*2 of 4 cores have more than one thread.*smt: disabled \(nosmt\).*force: true"
    with pytest.raises(backend_base.BootLoaderError, match=message):
        run(tmp_path, maxcpus="4")
    assert boot_maker.snapshot(tmp_path) == before


def test_force_overrides(tmp_path):
    assert run(grub(tmp_path), maxcpus="3", force=True)["configured"] == ["maxcpus=3"]


def test_each_kernel_that_can_be_booted_is_checked(tmp_path):
    grub(tmp_path)
    boot_maker.write(tmp_path, "boot/config-6.1.0-13-amd64", "CONFIG_SMP=y\nCONFIG_HOTPLUG_PARALLEL=y\n")
    with pytest.raises(backend_base.BootLoaderError, match=r"with Linux 6.1.0-12-amd64"):
        run(tmp_path, maxcpus="4")
    boot_maker.write(tmp_path, "boot/config-6.1.0-12-amd64", "CONFIG_SMP=y\nCONFIG_HOTPLUG_PARALLEL=y\n")
    assert run(tmp_path, maxcpus="4")["configured"] == ["maxcpus=4"]


def test_no_number_is_accepted_with_siblings_offline_and_no_topology_cache(tmp_path):
    grub(tmp_path)
    boot_maker.write(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    for force, value in ((False, "4"), (False, "one_per_core"), (True, "one_per_core")):
        with pytest.raises(backend_base.BootLoaderError, match=r"the cores of CPUs 4-7 are not known"):
            run(tmp_path, maxcpus=value, force=force)


def test_after_the_boot_the_topology_cache_is_used_and_nothing_changes(tmp_path):
    run(grub(tmp_path, "split"), maxcpus="one_per_core")
    boot_maker.write(tmp_path, "proc/cmdline", "root=UUID=1 ro maxcpus=4\n")
    boot_maker.write(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    boot_maker.write(tmp_path, "sys/devices/system/cpu/smt/active", "0\n")
    for cpu in range(4, 8):
        for path in (tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology").iterdir():
            path.unlink()
    for cpu in range(4):
        boot_maker.write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{cpu}\n")
    result = run(tmp_path, maxcpus="one_per_core")
    assert (result["changed"], result["reboot_required"], result["differences"]) == (False, False, [])


def test_an_invalid_value_is_refused_first(tmp_path):
    with pytest.raises(boot_arguments.BootArgsError, match=r"maxcpus is "):
        run(tmp_path, maxcpus="4; reboot")


BEFORE_THE_BOOT = [
    "/proc/cmdline: nosmt is missing",
    "smt/control reads 'on', expected is off or forceoff",
    "smt/active reads 1, expected is 0",
    "CPUs 0-7 are online, expected are 0,2,4,6",
]
BOOTED = "root=UUID=1 ro nosmt quiet"


@pytest.mark.parametrize(
    ("running", "differences", "reboot"),
    [
        ({}, BEFORE_THE_BOOT, True),
        ({"cmdline": BOOTED, "online": "0,2,4,6", "control": "off", "active": "0"}, [], False),
        ({"cmdline": BOOTED, "online": "0,2,4,6", "control": "notsupported", "active": "0"}, [], False),
        # The argument is without effect.
        ({"cmdline": BOOTED}, BEFORE_THE_BOOT[1:], False),
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
    monkeypatch.setattr(locks, "CHANGE_SECONDS", 0.5)
    with locks.HostLock(str(tmp_path), "another"):
        with pytest.raises(locks.HostLockError, match=r"changed by another"):
            run(tmp_path, "disabled")
        assert run(tmp_path, "disabled", check=True)["changed"]
