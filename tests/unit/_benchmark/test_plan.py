# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: its order, budget and failures, with real workloads on this machine.

Switching is tested in guests (molecule/smt_eval).
"""

from __future__ import annotations

import json
import os
import pwd
import re
import types
import typing

import pytest
import time_limit
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._arms import base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import (
    plan,
    run_directory,
    selection,
    settings as plan_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas, settling, telemetry
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import goals, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._topology.placement import PlacementError
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import (
    catalogue,
    declaration,
    prepared,
    sample_length,
)
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import WorkloadError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from fake_kernel import FakeKernel

HERE = tuple(sorted(os.sched_getaffinity(0)))[:2]
TWO_CPUS = pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs as siblings")
SETTINGS = {
    "arms": ["smt_on", "smt_off"],
    "workloads": ["gzip"],
    "placements": ["single", "siblings", "all_threads"],
    "streams": [],
    "cpus": [],
    "siblings": "kernel",
    "response_limit": {},
    "budget": 3600,
    "shared_by": 1,
    "blocks": 3,
    "sample_seconds": 0.05,
    "settle_seconds": 0,
    "affinity_conflicts": "warn",
    "affinity_conflicts_of": [],
    "overcommit_ratio": None,
    "custom": [],
    "goal": "precision",
    "margin": 0.01,
    "sources": {},
}
ORIGIN = {"control": "on", "active": True, "online": list(HERE), "present": list(HERE)}
FACTS = {
    "control": "on",
    "supported": True,
    "complete": True,
    "source": "sysfs",
    "threads_per_core": {"max": 2},
    "methods": {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}}},
}


def facts(**changed):
    return dict(FACTS, **changed)


def outline(settings, host_facts=None, cores=(HERE,), isolated=(), allowed=HERE, online=HERE, files=None):
    cpus = tuple(sorted(cpu for core in cores for cpu in core))
    topology = Topology(
        present=cpus, online=online, isolated=isolated, cores=cores, packages=(cpus,), source="sysfs", complete=True
    )
    origin = dict(ORIGIN, online=list(online), present=list(cpus))
    arms = selection.Arms(
        settings["arms"], base.Host(host_facts or FACTS, topology, origin, **({"files": files} if files else {}))
    )
    return plan.Outline(arms, topology, allowed, plan_settings.placement_names(settings))


RATE = {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9.]+)"}


def own(name, line, **changed):
    """Return a user's own command that runs in a shell."""
    return dict({"name": name, "argv": ["sh", "-c", line], "metric": RATE}, **changed)


@pytest.fixture(name="toggles")
def recorded_toggles(monkeypatch):
    """Record how the plan switches SMT, without switching this machine."""
    wanted = []
    monkeypatch.setattr(
        smt_transition, "enable", lambda sysroot, cores, method, origin, files: wanted.append(("on", origin))
    )
    monkeypatch.setattr(
        smt_transition,
        "set_threads_per_core",
        lambda sysroot, cores, threads, method, origin, files, only: wanted.append(("off", origin)),
    )
    monkeypatch.setattr(smt_transition, "predict", lambda state, *wanted, **only: state)
    return wanted


def measured(tmp_path, settings, **kwargs):
    files = RunDirectory(str(tmp_path), "r")
    files.create()
    done = plan.Plan(files, outline(settings, **kwargs), settings)
    done.outline.arms.begin(done.outline.arms.save())
    done.measure()
    return done, files.read_lines("samples.jsonl"), files


@TWO_CPUS
def test_arms_alternate_and_every_second_block_is_reversed(tmp_path, toggles):
    _done, samples, _files = measured(tmp_path, SETTINGS)
    order = [(sample["block"], sample["arm"], sample["placement"]) for sample in samples]
    assert order == [
        (0, "smt_on", "single"),
        (0, "smt_on", "siblings"),
        (0, "smt_off", "single"),
        (1, "smt_off", "single"),
        (1, "smt_on", "siblings"),
        (1, "smt_on", "single"),
        (2, "smt_on", "single"),
        (2, "smt_on", "siblings"),
        (2, "smt_off", "single"),
    ]
    assert toggles == [("on", ORIGIN), ("off", ORIGIN), ("on", ORIGIN), ("off", ORIGIN)]
    assert [sample["index"] for sample in samples] == list(range(9))
    assert all(sample["ok"] and sample["metrics"]["throughput"]["value"] > 0 for sample in samples)


@TWO_CPUS
def test_samples_say_how_many_co_runners_ran_on_siblings_of_the_arm(tmp_path, toggles):
    busy = own("busy", "echo rate 1", co_runners=1, co_runners_on="sibling")
    settings = dict(SETTINGS, workloads=[], custom=[busy, own("alone", "echo rate 1")], placements=["single"], blocks=1)
    _done, samples, _files = measured(tmp_path, settings)
    assert [(sample["workload"], sample["arm"], sample["co_runners"]) for sample in samples] == [
        ("busy", "smt_on", 1),
        ("alone", "smt_on", None),
        ("busy", "smt_off", 0),
        ("alone", "smt_off", None),
    ]


def test_samples_that_a_cpu_quota_stopped_are_not_counted(tmp_path, monkeypatch):
    """The command itself says what the kernel would say: that its tasks were stopped for a second."""
    host = tmp_path / "host"
    group = host / "sys/fs/cgroup/app.slice"
    group.mkdir(parents=True)
    (host / "proc/self").mkdir(parents=True)
    (host / "proc/self/cgroup").write_text("0::/app.slice\n")
    (host / "proc/self/mountinfo").write_text("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (group / "cpu.max").write_text("100000 100000\n")
    (group / "cpu.stat").write_text("throttled_usec 0\n")
    read = quotas.read
    monkeypatch.setattr(quotas, "read", lambda _files: read(HostFs(str(host))))
    count = (
        f"read name count < {group}/cpu.stat; echo throttled_usec $((count + 1000000)) > {group}/cpu.stat; echo rate 1"
    )
    settings = dict(
        SETTINGS, arms=["as_found"], workloads=[], custom=[own("stopped", count), own("free", "echo rate 1")], blocks=4
    )
    done, samples, _files = measured(tmp_path / "run", dict(settings, placements=["single"]))
    assert [(sample["workload"], sample["ok"]) for sample in samples if sample["workload"] == "free"] == [
        ("free", True)
    ] * 4
    errors = [sample["error"] for sample in samples if sample["workload"] == "stopped"]
    assert len(errors) == 3 and all(
        error.startswith("the CPU quota of the cgroup /app.slice, 1 CPU, stopped the workers") for error in errors
    )
    assert "given up after 3 failures in a row: the CPU quota" in done.skipped[0]["reason"]


@TWO_CPUS
def test_reserved_huge_pages_may_be_those_of_one_arm_and_without_any_nothing_runs(tmp_path, toggles, monkeypatch):
    monkeypatch.setattr(prepared, "_meminfo", lambda: {"Hugepagesize": 2048, "MemAvailable": 10**9})
    one = dict(catalogue.BUILT_IN["random_access_reserved"])
    settings = dict(SETTINGS, workloads=["random_access_reserved"], placements=["single"], sources=sources())

    def chosen(name):
        planned = plan.Plan(RunDirectory(str(tmp_path), name), outline(settings), settings)
        planned.files.create()
        planned.outline.arms.arms[1].settings["vm.nr_hugepages"] = int(name)
        workload = prepared.PreparedWorkload(one, planned.files, sources(), 0.05, 2)
        planned._choose_placements(workload)
        return [len(items) for items in planned.items.values()]

    assert chosen("128") == [3, 3]
    with pytest.raises(WorkloadError, match="needs 128 huge pages of 2048 kB for 1 worker, and 127 are reserved: "):
        chosen("127")


@TWO_CPUS
def test_lengths_are_chosen_by_the_first_runs_and_recorded(tmp_path, toggles, monkeypatch):
    monkeypatch.setattr(
        settling, "runner", types.SimpleNamespace(cpu_times=dict, cpu_usage=lambda _before, _after: ({"0": 0.0}, 0.0))
    )
    monkeypatch.setattr(settling, "FIRST_SECONDS", 0.05)
    starts = []
    monkeypatch.setattr(sample_length, "enough", lambda start: starts.append(start) or 0.05)
    settings = dict(SETTINGS, sample_seconds=None, settle_seconds=None, blocks=2)
    done, samples, files = measured(tmp_path, settings)
    header = done.header({}, {}, "r")
    assert header["plan"]["sample_seconds"] is None and header["plan"]["settle_seconds"] is None
    assert files.read("header.json", {})["plan"]["settle_seconds"] == done.settling.seconds == settling.MIN_SECONDS
    assert len(starts) == 1 and all(sample["ok"] for sample in samples)


class Dial(base.RuntimeArm):
    """An arm whose host is a dict that somebody turns back while the second sample is taken."""

    pattern = "dial_[0-9]"
    lever = "dial"
    shown: typing.ClassVar = {"dial": 0}

    def switch(self):
        self.shown["dial"] = int(self.name[-1])

    def prove(self):
        if self.shown["dial"] != int(self.name[-1]):
            raise base.ArmError(f"the dial shows {self.shown['dial']}")

    def save(self):
        return dict(self.shown)

    def restore(self, saved):
        self.shown.update(saved["dial"])
        return []

    @classmethod
    def states(cls, files, saved):
        return saved, cls.shown


@pytest.fixture(name="dial")
def a_dial(monkeypatch):
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, (Dial,)))
    monkeypatch.setattr(Dial, "shown", {"dial": 0})


def test_an_arm_is_proved_after_each_switch_and_after_its_samples(tmp_path, dial, monkeypatch):
    proofs = []
    prove = selection.Arms.prove
    monkeypatch.setattr(selection.Arms, "prove", lambda arms, name: (proofs.append(name), prove(arms, name)))
    measured(tmp_path, dict(SETTINGS, arms=["dial_1", "dial_2"], placements=["single"], blocks=2))
    # The last arm of a block is the first of the next one: it is not switched between them.
    assert proofs == ["dial_1", "dial_1", "dial_2", "dial_2", "dial_2", "dial_1", "dial_1"]


@pytest.mark.night(after=3)
@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (1, "the host is not in the arm dial 1 any more: the dial shows 7"),
        (3, "somebody .* while as found .* dial was 0, is 7"),
    ],
)
def test_somebody_who_changes_the_host_in_the_middle_ends_the_plan(tmp_path, dial, monkeypatch, sample, words):
    add = goals.Goal.add
    taken = []

    def turned(precision, *arguments):
        taken.append(1)
        if len(taken) == sample:
            Dial.shown["dial"] = 7
        return add(precision, *arguments)

    monkeypatch.setattr(goals.Goal, "add", turned)
    with pytest.raises(base.ArmError, match=words):
        measured(tmp_path, dict(SETTINGS, arms=["dial_1", "dial_2", "as_found"], placements=["single"], blocks=2))
    files = RunDirectory(str(tmp_path), "r")
    assert [
        re.match(words, event["detail"]) is not None
        for event in files.read_lines("events.jsonl")
        if event["event"] == "not_proved"
    ] == [True]
    assert len(files.read_lines("samples.jsonl")) == sample, "samples before it are kept"


@pytest.fixture(name="kernel")
def a_kernel_of_this_machine(tmp_path):
    """A fake kernel whose CPUs are those that the plan uses here."""
    return FakeKernel(tmp_path / "kernel", [HERE], control="notimplemented")


def unplug(kernel):
    kernel.write(f"{smt_state.CPU_DIRECTORY}/cpu{HERE[-1]}/online", "0")


def remove(kernel):
    kernel.online.discard(HERE[-1])
    kernel.put_present(kernel.present - {HERE[-1]})


def add(kernel):
    kernel.put_present(kernel.present | {HERE[-1] + 1})


@pytest.mark.night(after=3)
@TWO_CPUS
@pytest.mark.parametrize(
    ("arms", "change", "words"),
    [
        (
            ["as_found"],
            unplug,
            f"somebody has changed the host while as found was measured: CPU {HERE[-1]} was online, is offline",
        ),
        (
            ["as_found"],
            remove,
            f"somebody has changed the host while as found was measured: CPU {HERE[-1]} is no longer present",
        ),
        (
            ["as_found"],
            add,
            f"somebody has changed the host while as found was measured: CPU {HERE[-1] + 1} is new to this host",
        ),
        (
            ["dial_1", "dial_2"],
            unplug,
            f"somebody has changed the host while dial 1 was measured: CPU {HERE[-1]} was online, is offline",
        ),
    ],
)
def test_hot_plug_ends_a_plan_and_samples_since_the_last_proof_do_not_count(
    tmp_path, dial, monkeypatch, kernel, arms, change, words
):
    keep = goals.Goal.add
    taken = []

    def plugged(goal, sample, value):
        taken.append(sample["index"])
        if sample["block"] == 1 and sample["arm"] == arms[0]:
            change(kernel)
        return keep(goal, sample, value)

    monkeypatch.setattr(goals.Goal, "add", plugged)
    settings = dict(SETTINGS, arms=arms, placements=["single"], blocks=4)
    with pytest.raises(base.ArmError) as ended:
        measured(tmp_path, settings, files=kernel)
    assert str(ended.value) == words
    files = RunDirectory(str(tmp_path), "r")
    files.write("header.json", {"plan": {}, "arms": []})
    samples = files.result()["samples"]
    assert [sample["index"] for sample in samples] == taken, "no sample is lost"
    assert [sample["ok"] for sample in samples] == [True] * (len(taken) - 1) + [False]
    assert samples[-1]["error"] == words and samples[-1]["block"] == 1


def test_nothing_is_switched_with_one_arm(tmp_path, toggles):
    settings = dict(SETTINGS, arms=["as_found"], placements=["single"], blocks=2)
    _done, samples, _files = measured(tmp_path, settings)
    assert toggles == []
    assert [sample["arm"] for sample in samples] == ["as_found"] * 2


def test_the_budget_ends_a_plan_after_a_complete_block(tmp_path):
    settings = dict(SETTINGS, arms=["as_found"], placements=["single", "all_threads"], blocks=None, budget=1)
    done, samples, files = measured(tmp_path, settings)
    assert done.block >= 1
    assert len(samples) == done.block * len({sample["placement"] for sample in samples})
    assert files.read("progress.json")["last"]["workload"] == "gzip"


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("shared_by", "blocks"), [(1, 8), (10000, 6)])
def test_a_host_that_shares_the_work_of_one_ends_after_its_part_of_it_and_has_the_blocks_of_a_verdict(
    tmp_path, monkeypatch, shared_by, blocks
):
    monkeypatch.setattr(plan.Plan, "elapsed", lambda _self: 2.0)
    settings = dict(SETTINGS, arms=["as_found"], placements=["single"], blocks=8, shared_by=shared_by)
    done, _samples, files = measured(tmp_path, settings)
    assert done.block == blocks
    assert done.header({}, {}, "r")["plan"]["seconds_budget"] == {1: 3600, 10000: 1}[shared_by]
    assert files.read("progress.json")["seconds_left"] == {1: 3598, 10000: 0}[shared_by]


def test_a_block_that_takes_much_longer_than_the_budget_ends_the_plan_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "OVERTIME", 0)
    slow = own("slow", "sleep 0.4; echo rate 1")
    settings = dict(
        SETTINGS,
        arms=["as_found"],
        workloads=[],
        custom=[slow, dict(slow, name="slower")],
        placements=["single"],
        budget=1,
        blocks=None,
    )
    with pytest.raises(
        plan.PlanError, match=r"block 0 was not done 0 s after the end of the budget of 1 s: give this host more time"
    ):
        measured(tmp_path, settings)
    assert len(RunDirectory(str(tmp_path), "r").read_lines("samples.jsonl")) < 2


@pytest.mark.parametrize(
    ("host_facts", "text"),
    [
        (facts(control="notsupported", supported=False), "no SMT to switch .smt/control reads notsupported"),
        (facts(threads_per_core={"max": 1}), "no core of this host has a second thread by the kernel's topology"),
        (
            facts(
                methods={
                    "runtime": {"chosen": None, "possible": [], "impossible": {"smt_control": "only root may write it"}}
                }
            ),
            "only root may write it",
        ),
        (
            facts(
                control="forceoff",
                methods={"runtime": {"chosen": None, "possible": [], "impossible": {"smt_control": "reboot"}}},
            ),
            "cannot be switched at run time",
        ),
    ],
)
def test_the_reason_for_no_comparison(host_facts, text):
    found = outline(SETTINGS, host_facts)
    assert not found.arms.compared and found.arms.names == ["as_found"]
    assert re.search(text, found.arms.reason)


def test_smt_off_as_found_is_still_compared():
    assert outline(SETTINGS, facts(control="off"), cores=((0, 1),), online=(0,), allowed=(0,)).arms.compared


def test_placements_in_each_arm():
    found = outline(
        dict(SETTINGS, placements=["siblings", "one_per_core", "all_threads"]),
        cores=((0, 2), (1, 3)),
        allowed=(0, 1, 2, 3),
        online=(0, 1, 2, 3),
    )
    on, off = found.placements("smt_on"), found.placements("smt_off")
    assert on["all_threads"]["workers"] == [[0], [1], [2], [3]]
    assert off["siblings"]["workers"] is None and off["siblings"]["reason"]
    assert off["all_threads"] == {"workers": [[0], [1]], "memory_node": None, "same_as": "one_per_core", "reason": None}


def test_streams_and_explicit_cpus_are_further_placements_each_once():
    names = plan_settings.placement_names(
        dict(SETTINGS, placements=["single", "free_2"], streams=["1-3", "8"], cpus=[[0, 1], ["0", "1"], [1, 0]])
    )
    assert names == ["single", "free_2", "free_1", "free_3", "free_8", "cpus_0_1", "cpus_1_0"]
    plan_settings.check_settings(dict(SETTINGS, placements=[], streams=["4"]))


@pytest.mark.parametrize(
    ("cores", "cpus", "counts"),
    [
        (1, 1, [1, 2]),
        (1, 2, [1, 2, 3]),
        # HP's machine, with the numbers that the study has.
        (4, 8, list(range(1, 13))),
        (8, 8, list(range(1, 13))),
        (6, 12, [1, 3, 6, 7, 9, 10, 12, 18]),
        (32, 64, [1, 16, 32, 40, 48, 56, 64, 96]),
        (16, 128, [1, 8, 16, 44, 72, 100, 128, 192]),
        (64, 64, [1, 32, 64, 96]),
        (512, 1024, [1, 256, 512, 640, 768, 896, 1024, 1024]),
    ],
)
def test_numbers_of_streams_that_are_chosen_have_those_between_cores_and_cpus(cores, cpus, counts):
    names = plan_settings.placement_names(dict(SETTINGS, placements=[], streams=["auto"]), cores, cpus)
    assert names == [f"free_{count}" for count in dict.fromkeys(counts)]
    plan_settings.check_settings(dict(SETTINGS, placements=[], streams=["auto", "4"]))


def test_as_many_streams_run_in_each_arm_on_the_cpus_that_it_has():
    found = outline(
        dict(SETTINGS, placements=[], streams=["1-5"]),
        cores=((0, 2), (1, 3)),
        allowed=(0, 1, 2, 3),
        online=(0, 1, 2, 3),
    )
    assert found.placements("smt_on")["free_5"]["workers"] == [[0, 1, 2, 3]] * 5
    assert found.placements("smt_off")["free_5"]["workers"] == [[0, 1]] * 5


def test_siblings_that_are_offline_as_found_are_measured_when_online():
    found = outline(SETTINGS, facts(control="off"), cores=((0, 2), (1, 3)), online=(0, 1), allowed=(0, 1))
    assert found.placements("smt_on")["all_threads"]["workers"] == [[0], [1], [2], [3]]
    assert found.placements("smt_off")["all_threads"]["workers"] == [[0], [1]]


def test_a_sibling_that_is_offline_on_purpose_is_not_used():
    found = outline(
        dict(SETTINGS, placements=["all_threads"]), cores=((0, 2), (1, 3)), online=(0, 1, 2), allowed=(0, 1, 2)
    )
    assert found.placements("smt_on")["all_threads"]["workers"] == [[0], [1], [2]]


def test_isolated_and_forbidden_cpus_are_not_used():
    found = outline(SETTINGS, cores=((0, 2), (1, 3)), isolated=(3,), allowed=(1, 2, 3), online=(0, 1, 2, 3))
    assert found.placements("smt_on")["all_threads"]["workers"] == [[1], [2]]


def test_failing_workloads_are_given_up_and_do_not_affect_others(tmp_path, monkeypatch):
    """Each works during preparation, and then fails, hangs, prints no number, or leaves children."""
    time_limit.not_before(monkeypatch, lambda: list(tmp_path.glob(f"*/{prepared.SCRATCH}.*/hanging")))
    second = f"[ -e {tmp_path}/%s ] || {{ touch {tmp_path}/%s; echo rate 1; exit; }}; "
    custom = [
        own("fails", second % ("f", "f") + "echo no paper; exit 3"),
        own("hangs", second % ("h", "h") + "echo waiting; touch hanging; sleep 300", timeout=1),
        own("babbles", second % ("b", "b") + "echo rate of what"),
        own("leaves", f"setsid sleep 300 & echo $! >> {tmp_path}/children; echo rate 2"),
    ]
    settings = dict(SETTINGS, arms=["as_found"], workloads=["gzip"], custom=custom, placements=["single"], blocks=5)
    done, samples, files = measured(tmp_path, settings)
    errors = {
        name: [sample["error"] for sample in samples if sample["workload"] == name]
        for name in ("fails", "hangs", "babbles", "leaves", "gzip")
    }
    for name, text in (
        ("fails", "failed with exit status 3: no paper"),
        ("hangs", "did not end within 1 s and was ended: waiting"),
        ("babbles", "printed no rate: rate of what"),
    ):
        assert len(errors[name]) == plan.FAILURES_ALLOWED + 1 and all(text in error for error in errors[name])
    assert errors["leaves"] == errors["gzip"] == [None] * 5
    assert sorted(skip["workload"] for skip in done.skipped) == ["babbles", "fails", "hangs"]
    assert all("given up after 3 failures in a row" in skip["reason"] for skip in done.skipped)
    assert len([event for event in files.read_lines("events.jsonl") if event["event"] == "skipped"]) == 3
    assert not [pid for pid in (tmp_path / "children").read_text().split() if os.path.exists(f"/proc/{pid}")]


def test_no_sample_counts_of_a_command_of_which_one_number_cannot_be_read(tmp_path):
    """Those that could be read are below 1,000, which is no fair choice of them."""
    line = f"[ -e {tmp_path}/three ] && echo rate 1,002 || echo rate 998; mkdir {tmp_path}/one || mkdir {tmp_path}/two"
    custom = [own("grows", f"{line} || mkdir {tmp_path}/three; true")]
    settings = dict(SETTINGS, arms=["as_found"], workloads=["gzip"], custom=custom, placements=["single"], blocks=5)
    done, samples, files = measured(tmp_path, settings)
    of_command = [sample for sample in samples if sample["workload"] == "grows"]
    assert [sample["ok"] for sample in of_command] == [True, True, False]
    assert "One with a separator, such as 12,345, can be read in two ways" in done.skipped[0]["reason"]
    files.write("header.json", {"plan": {}, "arms": []})
    kept = files.result()["samples"]
    assert [sample["ok"] for sample in kept if sample["workload"] == "grows"] == [False] * 3
    assert [sample["ok"] for sample in kept if sample["workload"] == "gzip"] == [True] * 5


def test_a_server_ends_with_the_plan(tmp_path, monkeypatch):
    server = {
        "folders": [],
        "commands": {"sh": None},
        "files": [],
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "prepare": [],
        "fill": [],
        "end": [],
        "in_each_arm": False,
        "has_own_cores": False,
        "stop": "SIGINT",
        "kill": "SIGQUIT",
        "serve": ["sh", "-c", "trap 'exit 0' INT; echo rate $$ > {server}/up; while :; do sleep 0.05; done"],
        "ready": ["test", "-s", "{server}/up"],
    }
    served = dict(
        declaration.PLAIN,
        name="served",
        title="served",
        argv=["cat", "{server}/up"],
        metrics=[dict(RATE, aggregate="sum")],
        server=server,
    )
    monkeypatch.setitem(catalogue.BUILT_IN, "served", served)
    _done, samples, files = measured(
        tmp_path, dict(SETTINGS, arms=["as_found"], workloads=["served"], placements=["single"], blocks=2)
    )
    pids = {int(sample["metrics"]["rate"]["value"]) for sample in samples}
    assert len(samples) == 2 and len(pids) == 1
    assert not os.path.exists(f"/proc/{pids.pop()}") and not os.path.exists(files.file("served.server"))


def test_a_workload_with_a_parameter_is_sampled_for_each_value(tmp_path, monkeypatch):
    levels = dict(
        declaration.PLAIN,
        name="levels",
        title="levels",
        argv=["echo", "rate", "{parameter}"],
        metrics=[dict(RATE, aggregate="sum")],
        package="coreutils",
        placements=["single"],
        parameter={"name": "load", "unit": "of one CPU", "values": [0.5, 1.0]},
    )
    monkeypatch.setitem(catalogue.BUILT_IN, "levels", levels)
    done, samples, files = measured(
        tmp_path,
        dict(SETTINGS, arms=["as_found"], workloads=["levels"], placements=["single", "all_threads"], blocks=2),
    )
    assert [
        (sample["block"], sample["placement"], sample["parameter"], sample["metrics"]["rate"]["value"])
        for sample in samples
    ] == [
        (0, "single", 0.5, 0.5),
        (0, "single", 1.0, 1.0),
        (1, "single", 1.0, 1.0),
        (1, "single", 0.5, 0.5),
    ]
    assert done.skipped == []
    files.write("header.json", done.header({}, {}, "r"))
    assert files.read("header.json")["plan"]["workloads"][0]["parameter"] == {
        "name": "load",
        "unit": "of one CPU",
        "values": [0.5, 1.0],
        "per_worker": False,
    }


@TWO_CPUS
def test_placements_with_the_same_cpus_are_measured_under_the_first_name(tmp_path, monkeypatch):
    whole = dict(
        declaration.PLAIN,
        name="whole",
        title="whole",
        argv=["echo", "rate 1"],
        metrics=[dict(RATE, aggregate="sum")],
        package="coreutils",
        placements=["all_threads"],
    )
    monkeypatch.setitem(catalogue.BUILT_IN, "whole", whole)
    settings = dict(SETTINGS, arms=["as_found"], workloads=["whole"], blocks=1)
    assert [sample["placement"] for sample in measured(tmp_path, settings)[1]] == ["siblings"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(
        plan.PlanError,
        match=r"whole needs one of the placements all_threads: none of them is both in this plan and possible",
    ):
        measured(elsewhere, dict(settings, placements=["single"]))


def test_a_recorded_sample_matches_the_schema(tmp_path):
    done, samples, files = measured(tmp_path, dict(SETTINGS, arms=["as_found"], placements=["single"], blocks=1))
    assert samples[0]["parameter"] is None
    assert set(samples[0]["telemetry"]["core_usage"]) == {",".join(map(str, HERE))}
    assert "reason" in samples[0]["telemetry"]["perf"] or samples[0]["telemetry"]["perf"]["cpus"]
    files.write("header.json", done.header(smt_facts.gather(HostFs("/")), {}, "r"))
    files.amend(environment={"busy": {"others": done.others}}, plan={"stopped": "blocks"})
    found = results.parse(json.dumps(dict(files.result(), host="h")), "h")
    assert found.plan.stopped == "blocks" and 0 <= found.environment.busy.others <= 1


def test_the_state_of_the_host_is_recorded_before_each_block(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry, "load_by_others", lambda: 0.64)
    _done, _samples, files = measured(tmp_path, dict(SETTINGS, arms=["as_found"], placements=["single"], blocks=2))
    events = files.read_lines("events.jsonl")
    assert [event["detail"]["block"] for event in events if event["event"] == "block"] == [0, 1]
    assert set(events[1]["detail"]) == {"block", "governor", "microcode", "control", "others"}
    busy = [event["detail"] for event in events if event["event"] == "busy"]
    assert busy[1].startswith("block 1: others used 64 % of the CPU time before this block")
    assert files.read("header.json")["environment"]["busy"] == {"others": 0.64}


@TWO_CPUS
def test_a_plan_stops_when_it_is_precise_whatever_the_effect(tmp_path, toggles):
    """Equal rates and half the rate stop at the same block, long before the end of the budget."""
    for name, line in (
        ("even", "echo rate 100"),
        ("halved", f"[ $(taskset -cp $$ | sed 's/.*: //') = {HERE[0]} ] && echo rate 50 || echo rate 100"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        settings = dict(
            SETTINGS,
            workloads=[],
            custom=[own(name, line)],
            placements=["one_per_core", "all_threads"],
            blocks=verdicts.MIN_BLOCKS_RANKED + 3,
            budget=600,
        )
        done, _samples, files = measured(folder, settings)
        assert done.block == verdicts.MIN_BLOCKS_RANKED
        assert files.read("header.json")["plan"]["stopped"] == "precise"


def test_a_missing_workload_is_skipped_and_a_plan_without_workloads_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(plan.PlanError, match=r"no workload can be run here: gzip is not installed .package gzip."):
        measured(tmp_path, dict(SETTINGS, arms=["as_found"]))


def test_a_plan_stops_before_its_result_is_too_large_for_the_controller(tmp_path, monkeypatch):
    settings = dict(
        SETTINGS, arms=["as_found"], workloads=[], custom=[own("own", "echo rate 1")], placements=["single"], blocks=50
    )
    monkeypatch.setattr(plan, "MAX_BYTES", 12000)
    # Other processes would add an event to some of the blocks.
    monkeypatch.setattr(plan.telemetry, "load_by_others", lambda: 0.0)
    done, samples, files = measured(tmp_path, settings)
    assert files.read("header.json")["plan"]["stopped"] == "size" and 1 < len(samples) == done.block < 50
    assert 12000 - 2 * plan.NEXT_BLOCK * done.largest < files.size() <= 12000


def test_a_single_block_that_is_too_large_is_given_up_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "MAX_BYTES", 2000)
    custom = [own(f"own_{number}", "echo rate 1") for number in range(6)]
    with pytest.raises(
        plan.PlanError, match=r"block 0 was not done, and the samples so far already have the maximum size of a result"
    ):
        measured(
            tmp_path, dict(SETTINGS, arms=["as_found"], workloads=[], custom=custom, placements=["single"], blocks=1)
        )


def test_the_file_on_the_controller_is_not_larger_than_counted_by_the_plan(tmp_path):
    settings = dict(
        SETTINGS, arms=["as_found"], workloads=[], custom=[own("own", "echo rate 1")], placements=["single"], blocks=9
    )
    done, _samples, files = measured(tmp_path, settings)
    files.write("header.json", done.header(smt_facts.gather(HostFs("/")), {"cpu_model": "\u00e9\u4e2d"}, "r"))
    path, _new, _result = result_files.save(tmp_path / "controller", dict(files.result(), host="h"))
    # The ending and the host's name are not counted.
    assert 0.8 * files.size() < os.path.getsize(path) < files.size() + 500
    assert run_directory.MAX_BYTES < 0.95 * results.MAX_BYTES


RATE_COMMAND = own("own", "echo rate 1")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"arms": []}, "arms has 0 names: give 1 to 8, the baseline first"),
        ({"arms": ["smt_on", "smt_off"] * 5}, "arms has 10 names"),
        ({"arms": ["smt_on", "smt_on"]}, "arms has a name twice"),
        ({"arms": ["smt_on", "smt_of"]}, "there is no arm .smt_of.: choose from as_found, "),
        ({"budget": 0}, "budget is 0: it must be from 1 to"),
        ({"shared_by": 0}, "shared_by is 0: it must be from 1 to"),
        ({"blocks": 0}, "blocks is 0"),
        ({"sample_seconds": float("nan")}, "sample_seconds is nan"),
        ({"settle_seconds": -1}, "settle_seconds is -1"),
        ({"placements": []}, "no placement is given"),
        ({"placements": ["x"]}, "there is no placement 'x'"),
        ({"streams": ["3-1"]}, "streams is not a list of numbers of streams: "),
        ({"streams": ["1-12", "many"]}, "give for example 1-12, .1, 2, 4, 8. or auto"),
        ({"streams": ["0-4"]}, "streams has numbers that are not from 1 to 1024"),
        ({"streams": ["1025"]}, "streams has numbers that are not from 1 to 1024"),
        ({"cpus": [[0, 1], []]}, "cpus has the entry ..: give the CPUs of one placement"),
        ({"cpus": [[0, "../x"]]}, "cpus has the entry .0, '../x'."),
        (
            {"response_limit": {"gzip": "2 s"}},
            "response_limit names 'gzip': it can be set for workloads of this plan that are measured at several loads",
        ),
        (
            {"workloads": ["oltp"], "response_limit": {"oltp": "2"}},
            "response_limit of oltp is '2': give a time with its unit",
        ),
        ({"workloads": ["oltp"], "response_limit": {"oltp": "0 ms"}}, "response_limit of oltp is '0 ms'"),
        ({"workloads": ["oltp"], "response_limit": {"oltp": "nan s"}}, "such as 2.0 s or 500 ms"),
        ({"cpus": [list(range(17))]}, "at most 16 CPUs"),
        ({"workloads": ["x"]}, "there is no workload x"),
        ({"workloads": []}, "no workload is given"),
        ({"workloads": ["gzip", "gzip"]}, "workloads has a name twice: gzip, gzip"),
        ({"margin": 0}, "margin is 0"),
        ({"margin": 1}, "margin is 1: it must be from 0.0001 to 0.5"),
        ({"custom": [dict(RATE_COMMAND, name="A b")]}, "is not a valid name"),
    ],
)
def test_invalid_settings_are_refused(changed, error):
    with pytest.raises(
        (base.ArmError, plan_settings.SettingsError, PlacementError, declaration.WorkloadError), match=error
    ):
        plan_settings.check_settings(dict(SETTINGS, **changed))


# Goes to the background, as Flink's start-cluster.sh does, and says on which CPUs and for whom.
BACKGROUND = (
    "(setsid sleep 1000 >/dev/null 2>&1 &); touch {server}/up; echo start {cpus} {threads} $(awk"
    " '/^Cpus_allowed_list/{print $2}' /proc/self/status) $WHO"
)


def with_hooks(log, **changed):
    return own(
        "served",
        f"test -e {{server}}/up && echo $WHO rate {{parameter}} >> {log} && echo rate {{parameter}}",
        **{
            "start": ["sh", "-c", f"{BACKGROUND} >> {log}"],
            "ready": ["test", "-e", "{server}/up"],
            "stop": ["sh", "-c", f"echo stop >> {log}"],
            "environment": {"WHO": "me"},
            "parameters": {"name": "clients", "values": [1, 2.5]},
            "placements": ["single"],
            **changed,
        },
    )


def left_running(pid_of_plan):
    """Return whether a process of the server is left below this process."""
    with open(f"/proc/{pid_of_plan}/task/{pid_of_plan}/children", encoding="ascii") as children:
        return children.read().split()


@TWO_CPUS
def test_a_server_of_ones_own_is_started_in_each_arm_on_its_cpus(tmp_path, toggles):
    log = tmp_path / "log"
    settings = dict(SETTINGS, workloads=[], custom=[with_hooks(log)], blocks=3)
    done, samples, files = measured(tmp_path, settings)
    assert done.skipped == [] and len(samples) == 12 and all(sample["ok"] for sample in samples)
    assert {sample["parameter"] for sample in samples} == {1, 2.5} and {sample["placement"] for sample in samples} == {
        "single"
    }
    assert [sample["metrics"]["rate"]["value"] for sample in samples if sample["block"] == 0] == [1, 2.5] * 2
    of_both = f"start {HERE[0]}-{HERE[1]} 2 {HERE[0]}-{HERE[1]} me"
    of_one = f"start {HERE[0]} 1 {HERE[0]} me"
    lines = log.read_text(encoding="utf-8").splitlines()
    # For the trial run, then on, off, off, on, on, off: without a restart between blocks that follow each other in the
    # same arm.
    assert [line for line in lines if line.startswith("start")] == [of_both, of_both, of_one, of_both, of_one]
    assert [line for line in lines if line == "stop"] == ["stop"] * 5 and lines[-1] == "stop"
    assert not os.path.exists(files.file("served.server")) and not left_running(os.getpid())


def test_a_server_that_does_not_start_in_an_arm_ends_its_workload_alone(tmp_path, toggles):
    log = tmp_path / "log"
    once = f"test ! -e {log} && touch {log} {{server}}/up"
    broken = with_hooks(tmp_path / "other", start=["sh", "-c", once + " || { echo no port >&2; exit 3; }"])
    done, samples, _files = measured(
        tmp_path, dict(SETTINGS, workloads=[], custom=[broken, own("fine", "echo rate 1")], blocks=1)
    )
    assert {sample["workload"] for sample in samples} == {"fine"}
    assert [(one["workload"], one["arm"], one["reason"]) for one in done.skipped] == [
        ("served", "smt_on", "the server sh did not start: no port")
    ]


def test_only_the_server_of_the_workload_that_is_sampled_runs(tmp_path, toggles):
    """Two servers at once would disturb each other, or want the same port."""
    log, running = tmp_path / "log", tmp_path / "running"
    alone = {
        "start": ["sh", "-c", f"mkdir {running} && touch {{server}}/up"],
        "stop": ["rmdir", str(running)],
        "parameters": None,
    }
    custom = [
        {**with_hooks(log, **alone), "name": name, "argv": ["sh", "-c", f"test -d {running} && echo rate 1"]}
        for name in ("one", "other")
    ]
    custom.append(own("without", f"test ! -d {running} && echo rate 1", placements=["single"]))
    done, samples, _files = measured(tmp_path, dict(SETTINGS, workloads=[], custom=custom, blocks=2))
    assert done.skipped == [] and {sample["error"] for sample in samples} == {None}
    assert {sample["workload"] for sample in samples} == {"one", "other", "without"} and not running.exists()


# Verdicts and budgets


# One worker for each core against both CPUs of the core that this machine is said to have.
DECIDING = dict(
    SETTINGS, goal="decision", workloads=[], placements=["one_per_core", "all_threads"], blocks=None, budget=600
)


@TWO_CPUS
def test_a_plan_stops_at_the_verdict_and_a_decided_workload_rests(tmp_path, toggles, monkeypatch):
    wild = iter([1, 30, 2, 20, 3, 25, 1, 40] * 100)
    add = goals.Goal.add

    def noisy(goal, sample, value):
        add(goal, sample, value * (next(wild) if sample["workload"] == "wild" else 1))

    monkeypatch.setattr(goals.Goal, "add", noisy)
    settings = dict(DECIDING, custom=[own("even", "echo rate 100"), own("wild", "echo rate 100")], blocks=6)
    done, samples, files = measured(tmp_path, settings)
    written = files.read("header.json")["plan"]
    assert done.block == 6 and written["stopped"] == "blocks"
    assert [(look["blocks"], look["share"]) for look in written["looks"]] == [
        (4, pytest.approx(4 / 6)),
        (5, pytest.approx(5 / 6)),
        (6, 1),
    ]
    assert [(one["workload"], one["blocks"]) for one in written["decided"]] == [("even", 4)]
    assert max(sample["block"] for sample in samples if sample["workload"] == "even") == 3
    assert max(sample["block"] for sample in samples if sample["workload"] == "wild") == 5
    assert [event["detail"] for event in files.read_lines("events.jsonl") if event["event"] == "decided"] == [
        f"even, smt_off, all_threads: {written['decided'][0]['outcome']} after 4 blocks"
    ]


@TWO_CPUS
def test_a_plan_whose_comparisons_have_all_ended_stops_with_the_last_outcome(tmp_path, toggles):
    done, _samples, files = measured(tmp_path, dict(DECIDING, custom=[own("even", "echo rate 100")]))
    written = files.read("header.json")["plan"]
    assert done.block == 4
    assert written["stopped"] in ("gain", "loss")
    assert written["stopped"] == written["decided"][0]["outcome"]
    assert {arm: one["count"] for arm, one in written["switches"].items()} == {"smt_on": 3, "smt_off": 2}
    files.write(
        "header.json",
        dict(done.header(smt_facts.gather(HostFs("/")), {}, "r"), plan={**done.header({}, {}, "r")["plan"], **written}),
    )
    found = results.parse(json.dumps(dict(files.result(), host="h")), "h")
    assert parts.plain(found.plan.looks) == written["looks"]


@TWO_CPUS
def test_a_budget_that_is_too_short_for_a_verdict_is_refused_before_anything_is_switched(
    tmp_path, toggles, monkeypatch
):
    monkeypatch.setattr(prepared.PreparedWorkload, "least_seconds", lambda workload, workers: 0.1)
    settings = dict(DECIDING, custom=[own("even", "echo rate 100")], settle_seconds=5, budget=10)
    with pytest.raises(
        plan.PlanError,
        match=r"at least 5.2 s here, so 4 blocks, .*, need 21 s and 10 blocks 52 s: .* nothing was switched",
    ):
        measured(tmp_path, settings)
    assert toggles == []


@TWO_CPUS
@pytest.mark.parametrize(
    "unasked", [{"goal": "precision", "blocks": 1}, {"blocks": 3}, {"placements": ["single"], "blocks": 1}]
)
def test_a_budget_is_not_refused_where_no_verdict_is_asked_for(tmp_path, toggles, unasked):
    settings = {**DECIDING, "custom": [own("even", "echo rate 100")], "settle_seconds": 0.3, "budget": 1, **unasked}
    done, _samples, _files = measured(tmp_path, settings)
    assert done.block >= 1


@TWO_CPUS
@pytest.mark.parametrize(
    ("budget", "left"), [(25_000, set()), (15_000, {("same_cpu", "smt_on"), ("same_cpu", "smt_off")})]
)
def test_what_does_not_decide_is_left_out_where_the_budget_is_short(tmp_path, toggles, monkeypatch, budget, left):
    # What a sample takes depends on what else the machine does. Here each is said to take 1,000 s: four blocks take
    # 20,000 s, 12,000 s without same_cpu.
    monkeypatch.setattr(prepared.PreparedWorkload, "least_seconds", lambda workload, workers: 1000.0)
    placements = ["single", "same_cpu", "siblings", "one_per_core", "all_threads"]
    settings = {
        **DECIDING,
        "custom": [own("even", "echo rate 100")],
        "placements": placements,
        "blocks": 4,
        "budget": budget,
    }
    done, samples, _files = measured(tmp_path, settings)
    assert {(skip["placement"], skip["arm"]) for skip in done.skipped} == left
    assert all("4 blocks of what decides fit into the budget" in skip["reason"] for skip in done.skipped)
    # On one core siblings are all threads, and single is one per core.
    measured_here = {
        ("single", "smt_on"),
        ("same_cpu", "smt_on"),
        ("siblings", "smt_on"),
        ("single", "smt_off"),
        ("same_cpu", "smt_off"),
    }
    assert {(sample["placement"], sample["arm"]) for sample in samples} == measured_here - left
