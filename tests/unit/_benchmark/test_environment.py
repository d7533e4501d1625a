# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of this machine."""

from __future__ import annotations

import pathlib

from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas


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
