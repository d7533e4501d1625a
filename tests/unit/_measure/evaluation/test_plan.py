# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: its order, budget and failures, with real workloads on this machine.

Switching is tested in guests (molecule/smt_eval).
"""

from __future__ import annotations

import json
import os
import pathlib
import typing

import pytest
import time_limit
import yaml
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
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import declaration, prepared
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from fake_kernel import FakeKernel
from plans import SETTINGS, own

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
        return done, files._lines("samples.jsonl")[0], files

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


DIALS = ["dial_1", "dial_2"]


@pytest.mark.night(after=4)
@needs_two
@pytest.mark.parametrize(
    ("arms", "unplugs", "block", "words"),
    [
        (["dial_1", "dial_2", "as_found"], False, 0, "the host is not in the arm dial 1 any more: the dial shows 7"),
        (["as_found", *DIALS], False, 1, "somebody has changed the host while as found was measured: dial was 0, is 7"),
        (DIALS, True, 1, f"while dial 1 was measured: CPU {HERE[-1]} was online, is offline"),
        (["as_found"], True, 1, f"while as found was measured: CPU {HERE[-1]} was online, is offline"),
    ],
)
def test_a_change_of_somebody_ends_a_plan_and_samples_since_the_last_proof_do_not_count(
    run, dial, monkeypatch, kernel, arms, unplugs, block, words
):
    keep, taken = goals.Goal.add, []

    def changed(goal, sample, value):
        taken.append(sample["index"])
        if sample["block"] == block and sample["arm"] == arms[0]:
            if unplugs:
                kernel.write(f"{smt_state.CPU_DIRECTORY}/cpu{HERE[-1]}/online", "0")
            else:
                Dial.shown["dial"] = 7
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
    ("cores", "cpus", "counts"), [(1, 1, [1, 2]), (6, 12, [1, 3, 6, 7, 9, 10, 12, 18]), (64, 64, [1, 32, 64, 96])]
)
def test_numbers_of_streams_that_are_chosen_have_those_between_cores_and_cpus(cores, cpus, counts):
    names = plan_settings.placement_names({**SETTINGS, "placements": [], "streams": ["auto"]}, cores, cpus)
    assert names == [f"free_{count}" for count in counts]


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
    assert len([event for event in files._lines("events.jsonl")[0] if event["event"] == "skipped"]) == 3
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


def children():
    """The processes that this one has started, and those that became its own."""
    return set(pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@needs_two
def test_a_server_of_ones_own_is_started_in_each_arm_on_its_cpus(run, toggles, tmp_path):
    log, before = tmp_path / "log", children()
    done, samples, files = run(**SMT, custom=[with_hooks(log)], blocks=3)
    assert done.skipped == [] and len(samples) == 12 and all(sample["ok"] for sample in samples)
    first = [sample["metrics"]["rate"]["value"] for sample in samples if sample["block"] == 0]
    assert first == [1, 2.5] * 2 == [sample["parameter"] for sample in samples[:4]]
    both, one = f"start {HERE[0]}-{HERE[1]} 2 {HERE[0]}-{HERE[1]} me", f"start {HERE[0]} 1 {HERE[0]} me"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("st")]
    # For the trial run, then on, off, off, on, on, off: without a restart between blocks in the same arm.
    assert lines == [word for start in (both, both, one, both, one) for word in (start, "stop")]
    assert not os.path.exists(files.file("served.server")) and children() <= before


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
    # A CPU for which the kernel has counted nothing in so short a sample is not there.
    cores = {core for sample in samples for core in sample["telemetry"]["core_usage"]}
    assert cores and cores <= {",".join(map(str, HERE)), *map(str, HERE)}
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
- [{arms: [smt_on, smt_on]}, "arms has a name twice"]
- [{arms: [smt_on, smt_of]}, "smt_of"]
- [{budget: 0}, "budget is 0: it must be from 1 to"]
- [{placements: [x]}, "there is no placement 'x'"]
- [{cpus: [[0, 1], []]}, "cpus has the entry []"]
- [{workloads: [gzip], response_limit: {gzip: 2 s}}, "response_limit names 'gzip'"]
- [{workloads: [oltp], response_limit: {oltp: nan s}}, "response_limit of oltp is 'nan s'"]
- [{workloads: [], custom: []}, "no workload is given"]
- [{margin: 1}, "margin is 1: it must be from 0.0001 to 0.5"]
""")


@pytest.mark.parametrize(("changed", "error"), INVALID)
def test_invalid_settings_are_refused(changed, error):
    refusals = (base.ArmError, plan_settings.SettingsError, PlacementError, declaration.WorkloadError)
    with pytest.raises(refusals) as refused:
        plan_settings.check_settings({**SETTINGS, **changed})
    assert error in str(refused.value)


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
    (said,) = [event["detail"] for event in files._lines("events.jsonl")[0] if event["event"] == "decided"]
    assert said == f"even, smt_off, all_threads: {written['decided'][0]['outcome']} after 4 blocks"


@needs_two
def test_a_plan_whose_comparisons_have_all_ended_stops_with_the_last_outcome(run, toggles):
    done, _samples, files = run(**DECIDING, custom=[own("even", "echo rate 100")])
    written = files.read("header.json")["plan"]
    assert done.block == 4 and written["stopped"] in ("gain", "loss")
    assert written["stopped"] == written["decided"][0]["outcome"]
    assert {arm: one["count"] for arm, one in written["switches"].items()} == {"smt_on": 3, "smt_off": 2}


@needs_two
@pytest.mark.parametrize("unasked", [{"goal": "precision", "blocks": 1}, {"blocks": 1}])
def test_a_budget_that_is_too_short_for_a_verdict_is_refused_before_anything_is_switched(
    run, toggles, monkeypatch, unasked
):
    monkeypatch.setattr(prepared.PreparedWorkload, "least_seconds", lambda workload, workers: 0.1)
    with pytest.raises(plan.PlanError, match=r"at least 5.2 s here, so 4 blocks, .*, need 21 s"):
        run(**DECIDING, settle_seconds=5, budget=10)
    assert toggles == []
    assert run(**{**DECIDING, "settle_seconds": 0, "budget": 1, **unasked})[0].block >= 1


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
