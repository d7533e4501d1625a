# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of this machine."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo


@pytest.mark.parametrize(
    ("fields", "model", "microcode"),
    [
        ({"model name": "A CPU", "cpu": "other", "microcode": "0x1"}, "A CPU", "0x1"),
        ({"cpu": "POWER9"}, "POWER9", None),
        ({"Processor": "ARMv7", "model name": ""}, "ARMv7", None),
        ({}, None, None),
    ],
)
def test_the_model_has_another_field_on_each_architecture(monkeypatch, fields, model, microcode):
    monkeypatch.setattr(cpuinfo, "read_first", lambda _fs: fields)
    found = environment.read("kvm")
    assert (found["cpu_model"], found["microcode"], found["hypervisor"]) == (model, microcode, "kvm")


def test_the_kernel_that_runs():
    found = environment.read()
    assert found["cmdline"] == pathlib.Path("/proc/cmdline").read_text(encoding="utf-8").strip()
    assert environment.read_changing() == {name: found[name] for name in ("governor", "microcode")}
