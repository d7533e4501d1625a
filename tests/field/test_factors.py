# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about two settings at once, and about one setting that is compared with itself."""

from __future__ import annotations

import itertools

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import selection

CPU = "sys/devices/system/cpu"
ORIGIN = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}
FOUND = "schedutil"


class Kernel(KernelFiles):
    """Two CPUs with cpufreq: one that is offline refuses to say its governor, and has the same one when it is back."""

    def is_online(self, path):
        return int(path.split("/")[4][3:]) in cpulist.parse(self.read(f"{CPU}/online"))

    def read(self, path):
        return None if "cpufreq" in path and not self.is_online(path) else super().read(path)

    def governors(self):
        return [super(Kernel, self).read(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in (0, 1)]


class Siblings(base.RuntimeArm):
    """Takes CPU 1 offline, or brings it online."""

    pattern = "sibling_(?:on|off)"
    lever = "sibling"
    switches_cpus = True

    @property
    def wanted(self):
        return "0" if self.name.endswith("off") else "0-1"

    def switch(self):
        self.host.files.write(f"{CPU}/online", self.wanted)

    def prove(self):
        assert self.host.files.read(f"{CPU}/online") == self.wanted

    def save(self):
        return {"online": self.host.files.read(f"{CPU}/online")}

    def restore(self, saved):
        self.host.files.write(f"{CPU}/online", saved["sibling"]["online"])
        return []


@pytest.fixture(name="kernel")
def make_kernel(tmp_path, monkeypatch):
    of_cpu = {"cpufreq/scaling_available_governors": "performance powersave schedutil", "online": "1"}
    of_cpu["cpufreq/scaling_governor"] = FOUND
    files = {f"{CPU}/cpu{cpu}/{name}": text for cpu in (0, 1) for name, text in of_cpu.items()}
    sysfs_tree.write(tmp_path, {f"{CPU}/online": "0-1", f"{CPU}/present": "0-1", **files})
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, (Siblings,)))
    return Kernel(str(tmp_path))


FACTORS = (("sibling_on", "sibling_off"), ("governor_performance", "governor_powersave"))
PAIRS = ["__".join(pair) for pair in itertools.product(*FACTORS)]
TURNED = ["__".join(reversed(name.split("__"))) for name in PAIRS]


@pytest.mark.night(after=6)
@pytest.mark.parametrize("names", [PAIRS, TURNED, [*PAIRS[:1], PAIRS[3], "sibling_on", "governor_performance"]])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_google_benchmark_1686_siblings_that_come_back_have_the_frequency_setting_of_the_arm(names, order, kernel):
    """Whichever comes first in a name: a governor that was set while a sibling was offline is none of the sibling."""
    arms = selection.Arms(names, base.ArmHost({}, Topology(), ORIGIN, files=kernel))
    assert arms.left_out == []
    saved = arms.save()
    arms.begin(saved)
    for place in (*order, order[0]):
        name = names[place]
        arms.switch(name)
        for one in arms[name].made_of:
            one.prove()
        if "governor" not in name:
            assert kernel.governors() == [FOUND] * 2
    assert arms.restore(saved) == []
    assert kernel.governors() == [FOUND] * 2 and kernel.read(f"{CPU}/online") == "0-1"
