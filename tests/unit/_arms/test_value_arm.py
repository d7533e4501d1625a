# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An arm of a kernel file in one file of its own: the energy preference, which the collection does not have.

The registry finds it, an evaluation measures it between others that take CPUs offline, and everybody else knows it from
the catalogue.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pathlib
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._arms import base, catalogue, registry
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import plan, run_directory, selection
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import read_topology
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import arm_states
from fake_kernel import FakeKernel
from plans import SETTINGS

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCE = '''"""The energy preference."""

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import ValueArm


class Preference(ValueArm):
    """Documentation/admin-guide/pm/intel_pstate.rst."""

    pattern = "epp_(?:performance|power|default)"
    written = ("epp_performance", "epp_power", "epp_default")
    path = "sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference"
    choices = "energy_performance_available_preferences"
    setting = "energy preference"
    summary = "the energy preference of each online CPU"


ARMS = (Preference,)
'''
PREFERENCE = "sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_preference"
AVAILABLE = PREFERENCE.replace("performance_p", "performance_available_p") + "s"
HERE = tuple(sorted(os.sched_getaffinity(0)))[:2]
FACTS = {"control": "on", "supported": True, "complete": True, "source": "sysfs", "threads_per_core": {"max": 2}}
FACTS["methods"] = {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}}}


class PreferringKernel(FakeKernel):
    """A kernel whose CPUs have energy preferences while they are online."""

    def __init__(self, sysroot, cores):
        self.preferences = dict.fromkeys((cpu for core in cores for cpu in core), "power")
        super().__init__(sysroot, cores)

    def _show(self):
        super()._show()
        for cpu, preference in self.preferences.items():
            path = PREFERENCE.format(cpu)
            self._shown.pop(path, None)
            if cpu in self.online:
                self._put(path, preference)
                self._put(AVAILABLE.format(cpu), "performance power")
            else:
                pathlib.Path(self.sysroot, path).unlink(missing_ok=True)

    def write(self, path, text):
        if not path.endswith("energy_performance_preference"):
            super().write(path, text)
            return
        cpu = int(path.split("/cpu")[2].split("/")[0])
        if (cpu, text) in self.refusals:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        assert cpu in self.online
        self.preferences[cpu] = text
        self._show()


def loaded(path, name):
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    # Where dataclasses look for it.
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _an_arm_more(tmp_path_factory, monkeypatch):
    path = tmp_path_factory.mktemp("arm") / "preference.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, loaded(path, "preference").ARMS))


@pytest.fixture(name="kernel")
def a_kernel_with_preferences(tmp_path):
    return PreferringKernel(tmp_path / "root", [HERE[:2], (1000, 1001)])


def host(kernel):
    return base.Host(FACTS, read_topology(HostFs(kernel.sysroot)), smt_state.read(files=kernel), files=kernel)


def chosen(kernel, *names):
    found = selection.Arms(names, host(kernel))
    saved = json.loads(json.dumps(found.save()))
    found.begin(saved)
    return found, saved


def test_its_file_is_all_that_the_registry_the_documentation_and_a_trial_need(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    registries = loaded(ROOT / "tools/registries.py", "registries_with_preferences")
    folder = next(folder for folder in registries.FOLDERS if folder.path == "_arms")
    for path in (ROOT / "plugins/module_utils/_arms").glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "preference.py").write_text(SOURCE)
    assert "_arms.preference import ARMS as PREFERENCE\n" in registries.registry(tmp_path, folder)
    assert "| `epp_performance`, `epp_power`, `epp_default` | the energy" in registries.TABLES["docs/arms.md"]()
    (listing,) = (one for one in registries.LISTS if one.start == "Switched at run time are")
    assert "V(epp_power)" in registries.with_list((ROOT / listing.path).read_text(), listing)
    with pytest.raises(arm_states.ArmStateError, match="not an arm of a trial"):
        arm_states.names(["smt_on", "epp_performance"], with_boots=False)
    monkeypatch.setattr(type(catalogue.get("epp_performance")), "trial", {"state": "enabled"}, raising=False)
    assert arm_states.names(["smt_on", "epp_performance"], with_boots=False) == ["smt_on", "epp_performance"]
    assert arm_states.options("epp_performance") == {"state": "enabled"}


@pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs as siblings")
def test_an_evaluation_measures_it_among_others_and_restores_the_host(tmp_path, kernel):
    names = ["as_found", "epp_performance", "smt_off"]
    arms, saved = chosen(kernel, *names)
    seen, prove = {}, arms.prove

    def proved(name):
        prove(name)
        seen.setdefault(name, []).append((sorted(kernel.online), dict(kernel.preferences)))

    arms.prove = proved
    before = kernel.preferences.copy(), kernel.online.copy()
    files = run_directory.RunDirectory(str(tmp_path), "r")
    files.create()
    plan.Plan(files, plan.Outline(arms, host(kernel).topology, HERE, SETTINGS["placements"]), SETTINGS).measure()
    samples = files.read_lines("samples.jsonl")
    assert all(sample["ok"] for sample in samples) and {sample["arm"] for sample in samples} == set(names)
    everything, one_thread = [*HERE, 1000, 1001], [HERE[0], 1000]
    assert seen["epp_performance"][0] == (everything, dict.fromkeys(everything, "performance"))
    assert seen["smt_off"][0] == (one_thread, dict.fromkeys(everything, "power"))
    assert arms.restore(saved) == [] and (kernel.preferences, kernel.online) == before
    assert selection.differences(saved, files=kernel)["ok"]


def test_values_of_cpus_that_are_offline_are_nobodys_change(kernel):
    arms, saved = chosen(kernel, "as_found", "epp_performance", "smt_off")
    arms.switch("smt_off")
    arms.prove("smt_off")
    kernel.write(PREFERENCE.format(HERE[0]), "performance")
    with pytest.raises(base.ArmError, match=r"was power, is performance \(CPUs 0\)"):
        arms.prove("smt_off")
    assert arms.restore(saved) == [] and selection.differences(saved, files=kernel)["ok"]


def test_another_process_restores_each_cpu_to_its_own_value(kernel):
    kernel.write(PREFERENCE.format(1000), "performance")
    arms, saved = chosen(kernel, "as_found", "epp_performance")
    before = kernel.preferences.copy()
    said = " ".join(arms.announcement(60))
    assert "is switched from power (CPUs 0-1,1001), performance (CPUs 1000) to performance" in said
    arms.switch("epp_performance")
    arms.prove("epp_performance")
    assert len(selection.differences(saved, files=kernel)["differences"]) == 1
    kernel.write(PREFERENCE.format(1001), "power")
    with pytest.raises(base.ArmError, match=r"power \(CPUs 1001\), not performance"):
        arms.prove("epp_performance")
    assert selection.Arms(["as_found", "epp_performance"], host(kernel)).restore(saved) == []
    assert kernel.preferences == before and selection.differences(saved, files=kernel)["ok"]


def test_a_value_that_a_cpu_does_not_take_is_taken_back_from_the_others(kernel):
    arms, _saved = chosen(kernel, "as_found", "epp_performance")
    kernel.refusals[(1001, "performance")] = True
    with pytest.raises(base.ArmError, match=r"cpu1001/.*: the kernel does not accept performance"):
        arms.switch("epp_performance")
    assert set(kernel.preferences.values()) == {"power"}
