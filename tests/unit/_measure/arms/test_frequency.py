# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Governor, boost and turbo on the files of kernels that have them; guests have none."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue

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
    arm.examine(base.ArmHost({}, Topology(), ORIGIN, files=KernelFiles(str(root))))
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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("governor_ondemand", "does not take ondemand: the kernel has performance, schedutil"),
        ("boost_off", "this kernel has no boost"),
        ("turbo_off", "this kernel has no turbo"),
    ],
)
def test_what_the_kernel_does_not_have_is_said(name, reason, root):
    for path in ("cpufreq/boost", "intel_pstate/no_turbo"):
        (root / CPU / path).unlink()
    assert reason in examined(name, root).reason


TUNABLE = f"{CPU}/cpufreq/ondemand/up_threshold"


class Kernel(KernelFiles):
    """A kernel that forgets the settings of a governor with its last CPU, and begins with its defaults."""

    def write(self, path, text):
        super().write(path, text)
        if path.endswith("scaling_governor"):
            tunable = pathlib.Path(self.sysroot, TUNABLE)
            if "ondemand" not in {self.read(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in range(2)}:
                tunable.unlink(missing_ok=True)
            elif not tunable.exists():
                tunable.write_text("80\n")


def test_a_governor_comes_back_with_its_own_settings(root):
    for cpu in range(2):
        folder = root / CPU / f"cpu{cpu}/cpufreq"
        (folder / "scaling_governor").write_text("ondemand\n")
        (folder / "scaling_available_governors").write_text("performance ondemand\n")
    (root / TUNABLE).parent.mkdir()
    (root / TUNABLE).write_text("95\n")
    arm = catalogue.get("governor_performance")
    files = Kernel(str(root))
    arm.examine(base.ArmHost({}, Topology(), ORIGIN, files=files))
    saved = {arm.lever: arm.save()}
    arm.switch()
    arm.prove()
    assert not (root / TUNABLE).exists()
    assert arm.restore(saved) == [] and (root / TUNABLE).read_text().strip() == "95"
    was, now = arm.states(files, saved[arm.lever])
    assert was == now and len(was) == 1
    (root / TUNABLE).write_text("70\n")
    was, now = arm.states(files, saved[arm.lever])
    assert (was[TUNABLE], now[TUNABLE]) == (95, 70)


def test_a_value_that_a_cpu_does_not_take_is_taken_back_from_the_others(root, monkeypatch):
    write = KernelFiles.write

    def refuse(files, path, text):
        if "cpu1/" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        write(files, path, text)

    monkeypatch.setattr(KernelFiles, "write", refuse)
    with pytest.raises(base.ArmError, match=r"cpu1/.*: the kernel does not accept performance"):
        examined("governor_performance", root).switch()
    assert {(root / CPU / f"cpu{cpu}/cpufreq/scaling_governor").read_text() for cpu in range(2)} == {"schedutil\n"}


def test_each_cpu_has_its_own_value(root):
    (root / CPU / "cpu0/cpufreq/scaling_governor").write_text("performance\n")
    arm = examined("governor_performance", root)
    saved, files = arm.save(), KernelFiles(str(root))
    (said,) = arm.announcement()
    assert "is switched from performance (CPUs 0), schedutil (CPUs 1) to performance" in said
    arm.switch()
    was, now = arm.states(files, saved)
    assert was != now
    with pytest.raises(base.ArmError, match=r"schedutil \(CPUs 1\), not performance"):
        (root / CPU / "cpu1/cpufreq/scaling_governor").write_text("schedutil\n")
        arm.prove()


@pytest.mark.parametrize(("flags", "possible"), [("fpu ida arat", True), ("fpu arat", False)])
def test_turbo_that_the_firmware_has_switched_off_is_left_out(flags, possible, root):
    (root / CPU / "intel_pstate/no_turbo").write_text("1\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    reason = examined("turbo_on", root).reason
    assert (reason is None) == possible and (possible or "off in the firmware" in reason)
