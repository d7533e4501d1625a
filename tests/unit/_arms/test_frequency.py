# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Governor, boost and turbo on the files of kernels that have them; guests have none."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._arms import base, catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology

CPU = "sys/devices/system/cpu"
FILES = {
    f"{CPU}/online": "0-1",
    f"{CPU}/cpufreq/boost": "1",
    f"{CPU}/intel_pstate/no_turbo": "0",
    **{f"{CPU}/cpu{cpu}/online": "1" for cpu in range(2)},
    **{f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "schedutil" for cpu in range(2)},
    **{f"{CPU}/cpu{cpu}/cpufreq/scaling_available_governors": "performance schedutil" for cpu in range(2)},
}
ORIGIN = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}


@pytest.fixture(name="root")
def make_root(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    return tmp_path


def examined(name, root):
    arm = catalogue.get(name)
    arm.examine(base.Host({}, Topology(), ORIGIN, files=KernelFiles(str(root))))
    return arm


@pytest.mark.parametrize(
    ("name", "path", "title", "written", "found"),
    [
        ("boost_off", "cpufreq/boost", "boost off", "0", "1"),
        ("turbo_off", "intel_pstate/no_turbo", "turbo off", "1", "0"),
        ("governor_performance", "cpu1/cpufreq/scaling_governor", "frequency governor: performance", "performance", ""),
    ],
)
def test_each_is_switched_proved_and_restored(name, path, title, written, found, root):
    arm = examined(name, root)
    assert arm.reason is None and not arm.is_as_found and arm.title == title
    saved = {arm.lever: arm.save()}
    arm.switch()
    arm.prove()
    assert pathlib.Path(root, CPU, path).read_text().strip() == written
    assert arm.restore(saved) == []
    assert pathlib.Path(root, CPU, path).read_text().strip() == (found or "schedutil")


@pytest.mark.parametrize("name", ["boost_on", "turbo_on", "governor_schedutil"])
def test_the_host_as_it_was_found_is_known(name, root):
    assert examined(name, root).is_as_found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("governor_ondemand", "does not take ondemand: the kernel has performance, schedutil"),
        ("boost_off", "this kernel has no boost (no /sys/devices/system/cpu/cpufreq/boost)"),
        ("turbo_off", "this kernel has no turbo"),
    ],
)
def test_what_the_kernel_does_not_have_is_said(name, reason, root):
    for path in ("cpufreq/boost", "intel_pstate/no_turbo"):
        (root / CPU / path).unlink()
    assert reason in examined(name, root).reason
