# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc/cpuinfo as data; the recorded machines in `_topology` have its layouts."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files as host_files

X86 = "processor\t: 0\nmodel name\t: One\nphysical id\t: 0\n\nprocessor\t: 3\nmodel name\t: Other\n"
POWER = "processor : 0\ncpu : POWER8\n\nprocessor : 8\ncpu : POWER8\n\nplatform : pSeries\nmachine : CHRP\n"
OLD_ARM = "Processor\t: ARMv7\nBogoMIPS\t: 3\n"


@pytest.mark.parametrize(
    ("text", "common", "blocks"),
    [
        (X86, {}, {0: {"model name": "One", "physical id": "0"}, 3: {"model name": "Other"}}),
        (POWER, {}, {0: {"cpu": "POWER8"}, 8: {"cpu": "POWER8", "platform": "pSeries", "machine": "CHRP"}}),
        (OLD_ARM, {"Processor": "ARMv7", "BogoMIPS": "3"}, {}),
        ("", {}, {}),
    ],
)
def test_the_whole_file(tmp_path, text, common, blocks):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text, encoding="utf-8")
    assert cpuinfo.read(host_files.HostFs(str(tmp_path))) == (common, blocks)


def test_the_model_is_that_of_the_first_cpu_and_needs_only_the_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(host_files, "LARGE", 100)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("vendor_id : V\n" + X86 + "x" * 100, encoding="utf-8")
    fs = host_files.HostFs(str(tmp_path))
    assert cpuinfo.read_first(fs) == {"vendor_id": "V", "model name": "One", "physical id": "0"}
    assert fs.problems == []
