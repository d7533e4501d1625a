# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of this machine."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import environment
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas


def test_what_the_kernel_says_of_the_processor(monkeypatch):
    monkeypatch.setattr(
        cpuinfo, "read_first", lambda _fs: {"CPU implementer": "0x41", "CPU part": "0xd49", "microcode": ""}
    )
    found = environment.read("kvm")
    assert (found["cpu_model"], found["microcode"], found["hypervisor"]) == ("Arm Neoverse-N2", None, "kvm")


def test_the_kernel_that_runs():
    found = environment.read()
    assert found["cmdline"] == pathlib.Path("/proc/cmdline").read_text(encoding="utf-8").strip()
    assert environment.read_changing() == {name: found[name] for name in ("governor", "microcode")}


def test_the_smallest_quota_is_what_the_run_may_use(monkeypatch):
    assert environment.read()["cpu_quota"] is None or environment.read()["cpu_quota"] > 0
    found = [quotas.Quota("/pod", 4.0, 0.0), quotas.Quota("/pod/one", 2.5, 0.0)]
    monkeypatch.setattr(quotas, "read", lambda _files: found)
    assert environment.read()["cpu_quota"] == 2.5


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("intel_pstate/no_turbo", "0", True),
        ("intel_pstate/no_turbo", "1", False),
        ("cpufreq/boost", "1", True),
        ("x", "1", None),
    ],
)
def test_the_boost_is_read(tmp_path, path, text, expected):
    place = tmp_path / "sys/devices/system/cpu" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text + "\n")
    assert environment.boost(files.HostFs(str(tmp_path))) is expected
