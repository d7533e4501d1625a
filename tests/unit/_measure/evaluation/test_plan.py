# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: its order, budget and failures, with real workloads on this machine.

Switching is tested in guests (molecule/smt_eval).
"""

from __future__ import annotations

import json
import os
import pwd
import types
import typing

import pytest
import time_limit
import yaml
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.placement import PlacementError
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import (
    plan,
    run_directory,
    selection,
    settings as plan_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas, settling, telemetry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    catalogue,
    declaration,
    prepared,
    sample_length,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import WorkloadError
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from fake_kernel import FakeKernel
from plans import RATE, SETTINGS, own

HERE = tuple(sorted(os.sched_getaffinity(0)))[:2]
needs_two = pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs as siblings")
SMT = {"arms": ["smt_on", "smt_off"], "placements": ["single", "siblings", "all_threads"]}
ORIGIN = {"control": "on", "active": True, "online": list(HERE), "present": list(HERE)}
METHODS = {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}}}
FACTS = {"control": "on", "supported": True, "complete": True, "source": "sysfs", "threads_per_core": {"max": 2}}
FACTS["methods"] = METHODS


def outline(settings, facts=None, cores=(HERE,), isolated=(), allowed=HERE, online=HERE, files=None):
    cpus = tuple(sorted(cpu for core in cores for cpu in core))
    options = {"cores": cores, "packages": (cpus,), "source": "sysfs", "complete": True}
    topology = Topology(present=cpus, online=online, isolated=isolated, **options)
    origin = {**ORIGIN, "online": list(online), "present": list(cpus)}
    host = base.ArmHost(FACTS if facts is None else facts, topology, origin, **({"files": files} if files else {}))
    return plan.Outline(
        selection.Arms(settings["arms"], host), topology, allowed, plan_settings.placement_names(settings)
    )


@pytest.fixture(name="toggles")
def recorded_toggles(monkeypatch):
    """Record how the plan switches SMT, without switching this machine."""
    wanted = []

    def enable(_sysroot, _cores, _method, origin, files):
        wanted.append(("on", origin))

    def fewer(_sysroot, _cores, _threads, _method, origin, files, only):
        wanted.append(("off", origin))

    monkeypatch.setattr(smt_transition, "enable", enable)
    monkeypatch.setattr(smt_transition, "set_threads_per_core", fewer)
    monkeypatch.setattr(smt_transition, "predict", lambda state, *wanted, **only: state)
    return wanted


@pytest.fixture(name="run")
def a_run(tmp_path):
    """What measures with some settings: the plan, its samples, and its directory."""

    def run(outlined=None, **changed):
        settings = {**SETTINGS, **changed}
        files = RunDirectory(str(tmp_path / "runs"), f"r{len(os.listdir(tmp_path))}")
        run.files = files
        files.create()
        os.makedirs(tmp_path / files.run)
        done = plan.Plan(files, outline(settings, **(outlined or {})), settings)
        done.outline.arms.begin(done.outline.arms.save())
        done.measure()
        return done, files.read_lines("samples.jsonl"), files

    return run


def columns(samples, *names):
    return [tuple(sample[name] for name in names) for sample in samples]


@needs_two
def test_arms_alternate_and_every_second_block_is_reversed(run, toggles):
    _done, samples, _files = run(**SMT, blocks=3)
    first = [("smt_on", "single"), ("smt_on", "siblings"), ("smt_off", "single")]
    order = [(block, *one) for block in range(3) for one in (first[::-1] if block == 1 else first)]
    assert columns(samples, "block", "arm", "placement") == order
    assert toggles == [("on", ORIGIN), ("off", ORIGIN)] * 2
    assert [sample["index"] for sample in samples] == list(range(9))
    assert all(sample["ok"] and sample["metrics"]["rate"]["value"] > 0 for sample in samples)


@needs_two
def test_samples_say_how_many_co_runners_ran_on_siblings_of_the_arm(run, toggles):
    custom = [own("busy", co_runners=1, co_runners_on="sibling"), own("alone")]
    _done, samples, _files = run(arms=SMT["arms"], custom=custom, blocks=1)
    on, off = [("busy", "smt_on", 1), ("alone", "smt_on", None)], [("busy", "smt_off", 0), ("alone", "smt_off", None)]
    assert columns(samples, "workload", "arm", "co_runners") == on + off


def test_samples_that_a_cpu_quota_stopped_are_not_counted(run, tmp_path, monkeypatch):
    """The command itself says what the kernel would say: that its tasks were stopped for a second."""
    host = tmp_path / "host"
    group = host / "sys/fs/cgroup/app.slice"
    mounted = "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    for path, text in (("proc/self/cgroup", "0::/app.slice\n"), ("proc/self/mountinfo", mounted)):
        (host / path).parent.mkdir(parents=True, exist_ok=True)
        (host / path).write_text(text)
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("100000 100000\n")
    (group / "cpu.stat").write_text("throttled_usec 0\n")
    read = quotas.read
    monkeypatch.setattr(quotas, "read", lambda _files: read(HostFs(str(host))))
    count = f"read name n < {group}/cpu.stat; echo throttled_usec $((n + 1000000)) > {group}/cpu.stat; echo rate 1"
    done, samples, _files = run(custom=[own("stopped", count), own("free")], blocks=4)
    assert [one["ok"] for one in samples if one["workload"] == "free"] == [True] * 4
    errors = [one["error"] for one in samples if one["workload"] == "stopped"]
    assert len(errors) == 3 and all("the CPU quota of the cgroup /app.slice" in error for error in errors)
    assert [skip["workload"] for skip in done.skipped] == ["stopped"]


@needs_two
def test_reserved_huge_pages_may_be_those_of_one_arm_and_without_any_nothing_runs(tmp_path, toggles, monkeypatch):
    monkeypatch.setattr(prepared, "_meminfo", lambda: {"Hugepagesize": 2048, "MemAvailable": 10**9})
    settings = {**SETTINGS, **SMT, "workloads": ["random_access_reserved"], "placements": ["single"], "custom": []}
    settings["sources"] = sources()

    def chosen(name):
        planned = plan.Plan(RunDirectory(str(tmp_path), name), outline(settings), settings)
        planned.files.create()
        planned.outline.arms.arms[1].settings["vm.nr_hugepages"] = int(name)
        one = dict(catalogue.BUILT_IN["random_access_reserved"])
        planned._choose_placements(prepared.PreparedWorkload(one, planned.files, sources(), 0.05, 2))
        return [len(items) for items in planned.items.values()]

    assert chosen("128") == [3, 3]
    with pytest.raises(WorkloadError, match="needs 128 huge pages of 2048 kB for 1 worker, and 127 are"):
        chosen("127")


@pytest.mark.night
@needs_two
def test_lengths_are_chosen_by_the_first_runs_and_recorded(run, toggles, monkeypatch):
    idle = types.SimpleNamespace(cpu_times=dict, cpu_usage=lambda _before, _after: ({"0": 0.0}, 0.0))
    monkeypatch.setattr(settling, "runner", idle)
    monkeypatch.setattr(settling, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(settling, "MIN_SECONDS", 0.1)
    starts = []
    monkeypatch.setattr(sample_length, "enough", lambda start: starts.append(start) or 0.05)
    lengths = {"sample_seconds": None, "settle_seconds": None}
    done, samples, files = run(arms=SMT["arms"], workloads=["gzip"], custom=[], **lengths)
    header = done.header({}, {}, "r")["plan"]
    assert {name: header[name] for name in lengths} == lengths
    assert files.read("header.json", {})["plan"]["settle_seconds"] == done.settling.seconds == 0.1
    assert len(starts) == 1 and all(sample["ok"] for sample in samples)


# ---- somebody else -------------------------------------------------------------------------------------------------


class Dial(base.RuntimeArm):
    """An arm whose host is a dict that somebody turns."""

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


def test_an_arm_is_proved_after_each_switch_and_after_its_samples(run, dial, monkeypatch):
    proofs = []
    prove = selection.Arms.prove
    monkeypatch.setattr(selection.Arms, "prove", lambda arms, name: (proofs.append(name), prove(arms, name)))
    run(arms=["dial_1", "dial_2"])
    # The last arm of a block is the first of the next one: it is not switched between them.
    assert proofs == ["dial_1", "dial_1", "dial_2", "dial_2", "dial_2", "dial_1", "dial_1"]


@pytest.fixture(name="kernel")
def a_kernel_of_this_machine(tmp_path):
    """A fake kernel whose CPUs are those that the plan uses here."""
    return FakeKernel(tmp_path / "kernel", [HERE], control="notimplemented")


def turn(_kernel):
    Dial.shown["dial"] = 7


def unplug(kernel):
    kernel.write(f"{smt_state.CPU_DIRECTORY}/cpu{HERE[-1]}/online", "0")


def remove(kernel):
    kernel.online.discard(HERE[-1])
    kernel.put_present(kernel.present - {HERE[-1]})


def add(kernel):
    kernel.put_present(kernel.present | {HERE[-1] + 1})


DIALS = ["dial_1", "dial_2"]


@pytest.mark.night(after=4)
@needs_two
@pytest.mark.parametrize(
    ("arms", "change", "block", "words"),
    [
        (["dial_1", "dial_2", "as_found"], turn, 0, "the host is not in the arm dial 1 any more: the dial shows 7"),
        (["as_found", *DIALS], turn, 1, "somebody has changed the host while as found was measured: dial was 0, is 7"),
        (["as_found"], remove, 1, f"while as found was measured: CPU {HERE[-1]} is no longer present"),
        (DIALS, unplug, 1, f"while dial 1 was measured: CPU {HERE[-1]} was online, is offline"),
        (["as_found"], unplug, 1, f"while as found was measured: CPU {HERE[-1]} was online, is offline"),
        (["as_found"], add, 1, f"while as found was measured: CPU {HERE[-1] + 1} is new to this host"),
    ],
)
def test_a_change_of_somebody_ends_a_plan_and_samples_since_the_last_proof_do_not_count(
    run, dial, monkeypatch, kernel, arms, change, block, words
):
    keep, taken = goals.Goal.add, []

    def changed(goal, sample, value):
        taken.append(sample["index"])
        if sample["block"] == block and sample["arm"] == arms[0]:
            change(kernel)
        return keep(goal, sample, value)

    monkeypatch.setattr(goals.Goal, "add", changed)
    with pytest.raises(base.ArmError) as ended:
        run({"files": kernel}, arms=arms, blocks=4)
    assert str(ended.value).endswith(words)
    run.files.write("header.json", {"plan": {}, "arms": []})
    result = run.files.result()
    assert [one["event"] for one in result["events"]].count("not_proved") == 1
    assert [sample["index"] for sample in result["samples"]] == taken, "no sample is lost"
    assert [sample["ok"] for sample in result["samples"]] == [True] * (len(taken) - 1) + [False]
    assert result["samples"][-1]["error"] == str(ended.value)


# ---- the budget ----------------------------------------------------------------------------------------------------


def test_the_budget_ends_a_plan_after_a_complete_block_and_nothing_is_switched_with_one_arm(run, toggles):
    done, samples, files = run(placements=["single", "all_threads"], blocks=None, budget=1)
    assert done.block >= 1 and toggles == []
    assert len(samples) == done.block * len({sample["placement"] for sample in samples})
    assert files.read("progress.json")["last"]["workload"] == "own"


@pytest.mark.parametrize(("shared_by", "blocks", "share", "left"), [(1, 8, 3600, 3598), (10000, 6, 1, 0)])
def test_a_host_that_shares_the_work_of_one_ends_after_its_part_of_it_and_has_the_blocks_of_a_verdict(
    run, monkeypatch, shared_by, blocks, share, left
):
    monkeypatch.setattr(plan.Plan, "elapsed", lambda _self: 2.0)
    done, _samples, files = run(blocks=8, shared_by=shared_by)
    assert done.block == blocks and done.header({}, {}, "r")["plan"]["seconds_budget"] == share
    progress = files.read("progress.json")
    assert progress["seconds_left"] == left and progress["fraction"] >= (blocks - 1) / 8


def test_a_block_that_takes_much_longer_than_the_budget_ends_the_plan_with_the_reason(run, monkeypatch):
    monkeypatch.setattr(plan, "OVERTIME", -0.8)
    with pytest.raises(plan.PlanError, match="block 0 was not done"):
        run(custom=[own("slow", "sleep 0.2; echo rate 1"), own("slower")], budget=1, blocks=None)
    assert len(run.files.read_lines("samples.jsonl")) < 2


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"control": "notsupported", "supported": False}, "no SMT to switch (smt/control reads notsupported)"),
        ({"threads_per_core": {"max": 1}}, "no core of this host has a second thread"),
        ({"methods": {"runtime": {"chosen": None, "impossible": {"smt_control": "only root"}}}}, "only root"),
    ],
)
def test_the_reason_for_no_comparison(facts, text):
    found = outline({**SETTINGS, **SMT}, {**FACTS, **facts})
    assert not found.arms.compared and found.arms.names == ["as_found"] and text in found.arms.reason


ALL = {"cores": ((0, 2), (1, 3)), "allowed": (0, 1, 2, 3), "online": (0, 1, 2, 3)}
row = pytest.param


@pytest.mark.parametrize(
    ("changed", "control", "name", "on", "off"),
    [
        row({}, "on", "all_threads", [[0], [1], [2], [3]], [[0], [1]]),
        row({}, "on", "siblings", [[0], [2]], None),
        row({}, "on", "free_5", [[0, 1, 2, 3]] * 5, [[0, 1]] * 5),
        # Siblings that are offline as found are measured when online, but not one that is offline on purpose.
        row({"online": (0, 1), "allowed": (0, 1)}, "off", "all_threads", [[0], [1], [2], [3]], [[0], [1]]),
        row({"online": (0, 1, 2), "allowed": (0, 1, 2)}, "on", "all_threads", [[0], [1], [2]], [[0], [1]]),
        # Isolated and forbidden ones are not used.
        row({"isolated": (3,), "allowed": (1, 2, 3)}, "on", "all_threads", [[1], [2]], [[1]]),
    ],
)
def test_placements_in_each_arm(changed, control, name, on, off):
    settings = {**SETTINGS, **SMT, "placements": ["siblings", "one_per_core", "all_threads"], "streams": ["1-5"]}
    found = outline(settings, {**FACTS, "control": control}, **{**ALL, **changed})
    assert found.arms.compared
    assert [found.placements(arm)[name]["workers"] for arm in ("smt_on", "smt_off")] == [on, off]
    assert found.placements("smt_off")["siblings"]["reason"]
    if name == "all_threads" and not changed:
        assert found.placements("smt_off")[name]["same_as"] == "one_per_core"


@pytest.mark.parametrize(
    ("cores", "cpus", "counts"),
    [
        (1, 1, [1, 2]),
        # HP's machine, with the numbers that the study has.
        (4, 8, list(range(1, 13))),
        (6, 12, [1, 3, 6, 7, 9, 10, 12, 18]),
        (64, 64, [1, 32, 64, 96]),
        (512, 1024, [1, 256, 512, 640, 768, 896, 1024]),
    ],
)
def test_numbers_of_streams_that_are_chosen_have_those_between_cores_and_cpus(cores, cpus, counts):
    names = plan_settings.placement_names({**SETTINGS, "placements": [], "streams": ["auto"]}, cores, cpus)
    assert names == [f"free_{count}" for count in counts]


def test_streams_and_explicit_cpus_are_further_placements_each_once():
    cpus = [[0, 1], ["0", "1"], [1, 0]]
    given = {**SETTINGS, "placements": ["single", "free_2"], "streams": ["1-3", "8"], "cpus": cpus}
    names = ["single", "free_2", "free_1", "free_3", "free_8", "cpus_0_1", "cpus_1_0"]
    assert plan_settings.placement_names(given) == names
    plan_settings.check_settings({**given, "streams": ["auto", "4"]})


# ---- workloads that fail, and servers ------------------------------------------------------------------------------


def test_failing_workloads_are_given_up_and_do_not_affect_others(run, tmp_path, monkeypatch):
    """Each works during preparation, and then fails, hangs, prints no number, or leaves children."""
    time_limit.not_before(monkeypatch, lambda: list((tmp_path / "runs").glob(f"*/{prepared.SCRATCH}.*/hanging")))
    second = f"[ -e {tmp_path}/%s ] || {{ touch {tmp_path}/%s; echo rate 1; exit; }}; "
    custom = [
        own("fails", second % ("f", "f") + "echo no paper; exit 3"),
        own("hangs", second % ("h", "h") + "echo waiting; touch hanging; sleep 300", timeout=1),
        own("babbles", second % ("b", "b") + "echo rate of what"),
        # Failures in a row count.
        own("limps", f"[ -e {tmp_path}/l ] && rm {tmp_path}/l || {{ touch {tmp_path}/l; echo rate 1; }}"),
        own("leaves", f"setsid sleep 300 & echo $! >> {tmp_path}/children; echo rate 2"),
    ]
    done, samples, files = run(custom=custom, blocks=5)
    errors = {one["name"]: [s["error"] for s in samples if s["workload"] == one["name"]] for one in custom}
    for name, text in (("fails", "exit status 3: no paper"), ("hangs", "waiting"), ("babbles", "rate of what")):
        assert len(errors[name]) == plan.FAILURES_ALLOWED + 1 and all(text in error for error in errors[name])
    assert errors["leaves"] == [None] * 5 and len(errors["limps"]) == 5
    assert sorted(skip["workload"] for skip in done.skipped) == ["babbles", "fails", "hangs"]
    assert len([event for event in files.read_lines("events.jsonl") if event["event"] == "skipped"]) == 3
    assert not [pid for pid in (tmp_path / "children").read_text().split() if os.path.exists(f"/proc/{pid}")]


def test_no_sample_counts_of_a_command_of_which_one_number_cannot_be_read(run, tmp_path):
    """Those that could be read are below 1,000, which is no fair choice of them."""
    line = f"[ -e {tmp_path}/three ] && echo rate 1,002 || echo rate 998; mkdir {tmp_path}/one || mkdir {tmp_path}/two"
    grows = own("grows", f"{line} || mkdir {tmp_path}/three; true")
    done, samples, files = run(custom=[grows, own("own")], blocks=5)
    assert [one["ok"] for one in samples if one["workload"] == "grows"] == [True, True, False]
    assert "12,345" in done.skipped[0]["reason"]
    files.write("header.json", {"plan": {}, "arms": []})
    kept = columns(files.result()["samples"], "workload", "ok")
    assert sorted(kept) == [("grows", False)] * 3 + [("own", True)] * 5


def built_in(monkeypatch, name, argv, **changed):
    metrics = [{**RATE, "aggregate": "sum"}]
    made = {**declaration.PLAIN, "name": name, "title": name, "argv": argv, "metrics": metrics, **changed}
    monkeypatch.setitem(catalogue.BUILT_IN, name, made)
    return {"workloads": [name], "custom": []}


def test_a_server_ends_with_the_plan(run, monkeypatch):
    serve = "trap 'exit 0' INT; echo rate $$ > {server}/up; while :; do sleep 0.05; done"
    server = {**{key: [] for key in ("folders", "files", "prepare", "fill", "end")}, "commands": {"sh": None}}
    server.update(in_each_arm=False, has_own_cores=False, stop="SIGINT", kill="SIGQUIT", serve=["sh", "-c", serve])
    server.update(user=pwd.getpwuid(os.geteuid()).pw_name, ready=["test", "-s", "{server}/up"])
    _done, samples, files = run(**built_in(monkeypatch, "served", ["cat", "{server}/up"], server=server))
    pids = {int(sample["metrics"]["rate"]["value"]) for sample in samples}
    assert len(samples) == 2 and len(pids) == 1
    assert not os.path.exists(f"/proc/{pids.pop()}") and not os.path.exists(files.file("served.server"))


def test_a_workload_with_a_parameter_is_sampled_for_each_value(run, monkeypatch):
    about = {"name": "load", "unit": "of one CPU", "values": [0.5, 1.0]}
    one = built_in(monkeypatch, "levels", ["echo", "rate", "{parameter}"], placements=["single"], parameter=about)
    done, samples, _files = run(**one, placements=["single", "all_threads"])
    assert columns(samples, "block", "placement", "parameter") == [
        *((0, "single", value) for value in (0.5, 1.0)),
        *((1, "single", value) for value in (1.0, 0.5)),
    ]
    assert all(sample["metrics"]["rate"]["value"] == sample["parameter"] for sample in samples)
    (written,) = done.header({}, {}, "r")["plan"]["workloads"]
    assert done.skipped == [] and written["parameter"] == {**about, "per_worker": False}


@needs_two
def test_placements_with_the_same_cpus_are_measured_under_the_first_name(run, monkeypatch):
    whole = built_in(monkeypatch, "whole", ["echo", "rate 1"], placements=["all_threads"])
    assert columns(run(**whole, placements=SMT["placements"], blocks=1)[1], "placement") == [("siblings",)]
    with pytest.raises(plan.PlanError, match="whole needs one of the placements all_threads"):
        run(**whole, blocks=1)


def test_a_missing_workload_is_skipped_and_a_plan_without_workloads_is_an_error(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(plan.PlanError, match="gzip is not installed"):
        run(workloads=["gzip"], custom=[])


BACKGROUND = (
    "(setsid sleep 1000 >/dev/null 2>&1 &); touch {server}/up; echo start {cpus} {threads} $(awk"
    " '/^Cpus_allowed_list/{print $2}' /proc/self/status) $WHO"
)


def with_hooks(log, **changed):
    """A server that goes to the background, as Flink's start-cluster.sh does, and says on which CPUs and for whom."""
    line = f"test -e {{server}}/up && echo $WHO rate {{parameter}} >> {log} && echo rate {{parameter}}"
    hooks = {"start": ["sh", "-c", f"{BACKGROUND} >> {log}"], "ready": ["test", "-e", "{server}/up"]}
    hooks.update(stop=["sh", "-c", f"echo stop >> {log}"], environment={"WHO": "me"}, placements=["single"])
    return own("served", line, parameters={"name": "clients", "values": [1, 2.5]}, **{**hooks, **changed})


@needs_two
def test_a_server_of_ones_own_is_started_in_each_arm_on_its_cpus(run, toggles, tmp_path):
    log = tmp_path / "log"
    done, samples, files = run(**SMT, custom=[with_hooks(log)], blocks=3)
    assert done.skipped == [] and len(samples) == 12 and all(sample["ok"] for sample in samples)
    first = [sample["metrics"]["rate"]["value"] for sample in samples if sample["block"] == 0]
    assert first == [1, 2.5] * 2 == [sample["parameter"] for sample in samples[:4]]
    both, one = f"start {HERE[0]}-{HERE[1]} 2 {HERE[0]}-{HERE[1]} me", f"start {HERE[0]} 1 {HERE[0]} me"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("st")]
    # For the trial run, then on, off, off, on, on, off: without a restart between blocks in the same arm.
    assert lines == [word for start in (both, both, one, both, one) for word in (start, "stop")]
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as children:
        assert not os.path.exists(files.file("served.server")) and not children.read().split()


@needs_two
def test_a_server_that_does_not_start_in_an_arm_ends_its_workload_alone(run, toggles, tmp_path):
    once = f"test ! -e {tmp_path}/log && touch {tmp_path}/log {{server}}/up"
    broken = with_hooks(tmp_path / "other", start=["sh", "-c", once + " || { echo no port >&2; exit 3; }"])
    done, samples, _files = run(**SMT, custom=[broken, own("fine")], blocks=1)
    assert {sample["workload"] for sample in samples} == {"fine"}
    assert columns(done.skipped, "workload", "arm") == [("served", "smt_on")] and "no port" in done.skipped[0]["reason"]


@needs_two
def test_only_the_server_of_the_workload_that_is_sampled_runs(run, toggles, tmp_path):
    """Two servers at once would disturb each other, or want the same port."""
    log, running = tmp_path / "log", tmp_path / "running"
    alone = {"start": ["sh", "-c", f"mkdir {running} && touch {{server}}/up"], "stop": ["rmdir", str(running)]}
    used = {"parameters": None, "argv": ["sh", "-c", f"test -d {running} && echo rate 1"]}
    custom = [{**with_hooks(log, **alone), **used, "name": name} for name in ("one", "other")]
    custom.append(own("without", f"test ! -d {running} && echo rate 1", placements=["single"]))
    done, samples, _files = run(**SMT, custom=custom)
    assert done.skipped == [] and {sample["error"] for sample in samples} == {None}
    assert {sample["workload"] for sample in samples} == {"one", "other", "without"} and not running.exists()


# ---- what is written -----------------------------------------------------------------------------------------------


def test_the_state_of_the_host_is_recorded_before_each_block(run, monkeypatch):
    monkeypatch.setattr(telemetry, "load_by_others", lambda: 0.64)
    _done, _samples, files = run()
    events = files.read_lines("events.jsonl")
    blocks = [event["detail"] for event in events if event["event"] == "block"]
    assert [one["block"] for one in blocks] == [0, 1]
    assert set(blocks[0]) == {"block", "governor", "microcode", "control", "others"}
    busy = [event["detail"] for event in events if event["event"] == "busy"]
    assert busy[1].startswith("block 1: ") and "64 %" in busy[1]
    assert files.read("header.json")["environment"]["busy"] == {"others": 0.64}


def test_a_plan_stops_before_its_result_is_too_large_for_the_controller(run, monkeypatch):
    monkeypatch.setattr(plan, "MAX_BYTES", 12000)
    # Other processes would add an event to some of the blocks.
    monkeypatch.setattr(plan.telemetry, "load_by_others", lambda: 0.0)
    done, samples, files = run(blocks=20)
    assert files.read("header.json")["plan"]["stopped"] == "size" and 1 < len(samples) == done.block < 20
    assert 12000 - 2 * plan.NEXT_BLOCK * done.largest < files.size() <= 12000
    monkeypatch.setattr(plan, "MAX_BYTES", 2000)
    with pytest.raises(plan.PlanError, match="block 0 was not done"):
        run(custom=[own(f"own_{number}") for number in range(6)], blocks=1)


def test_the_result_fits_its_schema_and_the_file_on_the_controller_is_not_larger_than_counted(run, tmp_path):
    done, samples, files = run(blocks=5)
    assert samples[0]["parameter"] is None
    assert set(samples[0]["telemetry"]["core_usage"]) == {",".join(map(str, HERE))}
    files.write("header.json", done.header(smt_facts.gather(HostFs("/")), {"cpu_model": "\u00e9\u4e2d"}, "r"))
    files.amend(environment={"busy": {"others": done.others}}, plan={"stopped": "blocks"})
    result = {**files.result(), "host": "h"}
    assert 0 <= results.parse(json.dumps(result), "h").environment.busy.others <= 1
    path, _new, _result = result_files.save(tmp_path / "controller", result)
    # The ending and the host's name are not counted.
    assert 0.8 * files.size() < os.path.getsize(path) < files.size() + 500
    assert run_directory.MAX_BYTES < 0.95 * results.MAX_BYTES


INVALID = yaml.safe_load("""
- [{arms: []}, "arms has 0 names"]
- [{arms: [smt_on, smt_off, smt_on, smt_off, smt_on, smt_off, smt_on, smt_off, smt_on]}, "arms has 9 names"]
- [{arms: [smt_on, smt_on]}, "arms has a name twice"]
- [{arms: [smt_on, smt_of]}, "smt_of"]
- [{budget: 0}, "budget is 0: it must be from 1 to"]
- [{shared_by: 0}, "shared_by is 0"]
- [{blocks: 0}, "blocks is 0"]
- [{sample_seconds: .nan}, "sample_seconds is nan"]
- [{settle_seconds: -1}, "settle_seconds is -1"]
- [{placements: []}, "no placement is given"]
- [{placements: [x]}, "there is no placement 'x'"]
- [{streams: [3-1]}, "streams is not a list of numbers of streams: "]
- [{streams: [1-12, many]}, "give for example 1-12, [1, 2, 4, 8] or auto"]
- [{streams: [0-4]}, "streams has numbers that are not from 1 to 1024"]
- [{streams: ["1025"]}, "streams has numbers that are not from 1 to 1024"]
- [{cpus: [[0, 1], []]}, "cpus has the entry []"]
- [{cpus: [[0, ../x]]}, "cpus has the entry [0, '../x']"]
- [{cpus: [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]]}, "at most 16 CPUs"]
- [{workloads: [gzip], response_limit: {gzip: 2 s}}, "response_limit names 'gzip'"]
- [{workloads: [oltp], response_limit: {oltp: "2"}}, "response_limit of oltp is '2': give a time with its unit"]
- [{workloads: [oltp], response_limit: {oltp: 0 ms}}, "response_limit of oltp is '0 ms'"]
- [{workloads: [oltp], response_limit: {oltp: nan s}}, "response_limit of oltp is 'nan s'"]
- [{workloads: [x]}, "there is no workload x"]
- [{workloads: [], custom: []}, "no workload is given"]
- [{workloads: [gzip, gzip]}, "workloads has a name twice: gzip, gzip"]
- [{margin: 0}, "margin is 0"]
- [{margin: 1}, "margin is 1: it must be from 0.0001 to 0.5"]
- [{goal: fame}, "goal is fame"]
- [{custom: [{name: A b, argv: [x]}]}, "is not a valid name"]
""")


@pytest.mark.parametrize(("changed", "error"), INVALID)
def test_invalid_settings_are_refused(changed, error):
    refusals = (base.ArmError, plan_settings.SettingsError, PlacementError, declaration.WorkloadError)
    with pytest.raises(refusals) as refused:
        plan_settings.check_settings({**SETTINGS, **changed})
    assert error in str(refused.value)


# ---- verdicts and budgets ------------------------------------------------------------------------------------------

# One worker for each core against both CPUs of the core that this machine is said to have.
DECIDING = {"arms": SMT["arms"], "goal": "decision", "placements": ["one_per_core", "all_threads"], "blocks": None}


@needs_two
@pytest.mark.night(after=1)
@pytest.mark.parametrize("line", ["[ {} = {} ] && echo rate 50 || echo rate 100", "echo rate 100"])
def test_a_plan_stops_when_it_is_precise_whatever_the_effect(run, toggles, line):
    """Equal rates and half the rate stop at the same block, long before the end of the budget."""
    custom = [own("effect", line.format("$(taskset -cp $$ | sed 's/.*: //')", HERE[0]))]
    done, _samples, files = run(**{**DECIDING, "goal": "precision"}, custom=custom, budget=600)
    assert (done.block, files.read("header.json")["plan"]["stopped"]) == (verdicts.MIN_BLOCKS_RANKED, "precise")


@needs_two
def test_a_plan_stops_at_the_verdict_and_a_decided_workload_rests(run, toggles, monkeypatch):
    wild, add = iter([1, 30, 2, 20, 3, 25, 1, 40] * 100), goals.Goal.add

    def noisy(goal, sample, value):
        add(goal, sample, value * (next(wild) if sample["workload"] == "wild" else 1))

    monkeypatch.setattr(goals.Goal, "add", noisy)
    done, samples, files = run(**{**DECIDING, "blocks": 6}, custom=[own("even"), own("wild")])
    written = files.read("header.json")["plan"]
    assert done.block == 6 and written["stopped"] == "blocks"
    looks = [(blocks, pytest.approx(blocks / 6)) for blocks in (4, 5, 6)]
    assert columns(written["looks"], "blocks", "share") == looks
    assert columns(written["decided"], "workload", "blocks") == [("even", 4)]
    last = {name: max(one["block"] for one in samples if one["workload"] == name) for name in ("even", "wild")}
    assert last == {"even": 3, "wild": 5}
    (said,) = [event["detail"] for event in files.read_lines("events.jsonl") if event["event"] == "decided"]
    assert said == f"even, smt_off, all_threads: {written['decided'][0]['outcome']} after 4 blocks"


@needs_two
def test_a_plan_whose_comparisons_have_all_ended_stops_with_the_last_outcome(run, toggles):
    done, _samples, files = run(**DECIDING, custom=[own("even", "echo rate 100")])
    written = files.read("header.json")["plan"]
    assert done.block == 4 and written["stopped"] in ("gain", "loss")
    assert written["stopped"] == written["decided"][0]["outcome"]
    assert {arm: one["count"] for arm, one in written["switches"].items()} == {"smt_on": 3, "smt_off": 2}
    header = done.header(smt_facts.gather(HostFs("/")), {}, "r")
    files.write("header.json", {**header, "plan": {**header["plan"], **written}})
    found = results.parse(json.dumps({**files.result(), "host": "h"}), "h")
    assert parts.plain(found.plan.looks) == written["looks"]


@needs_two
@pytest.mark.parametrize(
    ("unasked", "budget"),
    [
        (None, 10),
        ({"goal": "precision", "blocks": 1}, 1),
        ({"blocks": 1}, 1),
        ({"placements": ["single"], "blocks": 1}, 1),
    ],
)
def test_a_budget_that_is_too_short_for_a_verdict_is_refused_before_anything_is_switched(
    run, toggles, monkeypatch, unasked, budget
):
    monkeypatch.setattr(prepared.PreparedWorkload, "least_seconds", lambda workload, workers: 0.1)
    settings = {**DECIDING, "settle_seconds": 0 if unasked else 5, "budget": budget, **(unasked or {})}
    if unasked:
        assert run(**settings)[0].block >= 1
        return
    with pytest.raises(plan.PlanError, match=r"at least 5.2 s here, so 4 blocks, .*, need 21 s"):
        run(**settings)
    assert toggles == []


@needs_two
@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("budget", "left"), [(15_000, {("same_cpu", "smt_on"), ("same_cpu", "smt_off")}), (25_000, set())]
)
def test_what_does_not_decide_is_left_out_where_the_budget_is_short(run, toggles, monkeypatch, budget, left):
    # What a sample takes depends on what else the machine does. Here each is said to take 1,000 s: four blocks take
    # 20,000 s, 12,000 s without same_cpu.
    monkeypatch.setattr(prepared.PreparedWorkload, "least_seconds", lambda workload, workers: 1000.0)
    placements = ["single", "same_cpu", "siblings", "one_per_core", "all_threads"]
    done, samples, _files = run(**{**DECIDING, "placements": placements, "blocks": 4, "budget": budget})
    assert set(columns(done.skipped, "placement", "arm")) == left
    # On one core siblings are all threads, and single is one per core.
    here = {(place, arm) for place in ("single", "same_cpu") for arm in SMT["arms"]} | {("siblings", "smt_on")}
    assert set(columns(samples, "placement", "arm")) == here - left
