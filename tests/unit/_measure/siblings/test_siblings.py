# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the probe: its statistics on simulated machines with known cores, its workers as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import cache as sibling_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings import rounds, workers
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.inference import APART, SHARES, groups
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.workers import ProbeError, Workers

HERE = sorted(os.sched_getaffinity(0))


class SimulatedMachine:
    """Simulation of `Workers`: each further active thread of a core adds ``cost`` times the slowness alone to that of
    the others.

    A share ``stolen`` of the samples is up to ten times slower, and a CPU is twice as slow for many rounds in a row in
    a share ``bursts`` of the time; ``spread`` is the standard deviation of the logarithm of a sample.
    """

    def __init__(self, cores, cost=0.6, spread=0.03, stolen=0.0, bursts=0.0, seed=0):
        self.core = {cpu: core for core in cores for cpu in core}
        self.cost, self.spread, self.stolen, self.bursts = cost, spread, stolen, bursts
        self.chance = random.Random(seed)
        self.pace = {cpu: self.chance.uniform(0.5, 1.5) for cpu in self.core}
        self.burst = dict.fromkeys(self.core, False)
        self.now = 0.0
        self.most_active = 0

    def __call__(self, cpus):
        assert set(cpus) == set(self.core)
        return contextlib.nullcontext(self)

    def check_pins(self):
        self.is_checked = True

    def clock(self):
        return self.now

    def measure(self, active, seconds):
        self.now += seconds
        self.most_active = max(self.most_active, len(active))
        for cpu in self.burst:
            if self.chance.random() < 0.1:
                self.burst[cpu] = self.chance.random() < self.bursts
        return {cpu: self.sample(cpu, active) for cpu in active}

    def sample(self, cpu, active):
        slowness = self.pace[cpu] * (1 + self.cost * (len(active.intersection(self.core[cpu])) - 1))
        slowness *= self.chance.lognormvariate(0, self.spread)
        if self.chance.random() < self.stolen:
            slowness *= self.chance.uniform(1, 10)
        return slowness * 2 if self.burst[cpu] else slowness


def machine_of(count, threads, order=None, **noise):
    cpus = list(range(count))
    random.Random(order).shuffle(cpus)
    return SimulatedMachine([tuple(sorted(cpus[at : at + threads])) for at in range(0, count, threads)], **noise)


def measured(machine, seconds=30.0, seed=1):
    result = rounds.run(machine.core, seconds, machine, random.Random(seed), machine.clock)
    cores = {cpulist.parse(pair) for pair in result["pairs"]} | {(cpu,) for cpu in cpulist.parse(result["singles"])}
    return cores, result


SHAPES = [(8, 4, 0.5), (5, 2, 1.0), (3, 1, 0), (2, 1, 0), (2, 2, 0.5), (3, 2, 1.0), (4, 1, 0), (4, 2, 0.5), (4, 4, 0.4)]


@pytest.mark.night(after=3)
@pytest.mark.parametrize(
    ("count", "threads", "cost"), [*SHAPES, (8, 2, 0.6), (8, 8, 1.0), (16, 2, 0.6), (16, 4, 1.0), (36, 2, 0.6)]
)
def test_the_cores_of_a_quiet_machine_are_found(count, threads, cost):
    machine = machine_of(count, threads, order=count, cost=cost)
    cores, result = measured(machine)
    assert cores == set(machine.core.values()) and result["unclear"] == "" and machine.is_checked


def test_the_number_of_rounds_grows_with_the_logarithm_of_the_cpus():
    count = night.number(48, 128)
    machine = machine_of(count, 2, order=3, spread=0.01)
    cores, result = measured(machine)
    assert cores == set(machine.core.values()) and machine.most_active == count // 2
    # Testing all pairs one after the other would take 1128 rounds, or 8128.
    assert result["rounds"] <= 3 * count


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_wrong_core_is_claimed_on_a_very_noisy_machine(threads):
    for seed in range(night.number(8, 25)):
        machine = machine_of(4, threads, order=seed, cost=0.5, spread=0.3, stolen=0.3, bursts=0.4, seed=seed)
        cores, result = measured(machine, 6.0, seed)
        assert cores.issubset(machine.core.values()), seed
        named = [cpu for core in cores for cpu in core] + list(cpulist.parse(result["unclear"]))
        assert sorted(named) == sorted(machine.core), seed


def test_a_machine_that_only_makes_noise_is_unclear():
    machine = machine_of(6, 2, cost=0.0, spread=2.0)
    cores, result = measured(machine, 3.0)
    assert (cores, result["unclear"]) == (set(), "0-5")


def test_the_ratio_of_siblings_is_within_its_interval():
    _cores, result = measured(machine_of(4, 2, cost=1.0, spread=0.02))
    shared = [pair for pair in result["ratios"] if pair["result"] == SHARES]
    assert len(shared) == 2
    for pair in shared:
        assert pair["low"] < 0.5 < pair["high"] and pair["ratio"] == pytest.approx(0.5, abs=0.1)


def test_groups_are_claimed_only_when_everything_fits():
    assert groups(range(4), {(0, 1): SHARES, (0, 2): APART, (1, 3): APART, (2, 3): APART}) == ([(0, 1), (2,), (3,)], [])
    assert groups(range(4), {(0, 1): SHARES, (0, 2): APART, (2, 3): SHARES}) == ([(0, 1), (2, 3)], [])
    assert groups(range(3), {(0, 1): SHARES}) == ([], [0, 1, 2])
    assert groups(range(3), {(0, 1): SHARES, (1, 2): SHARES, (0, 2): APART}) == ([], [0, 1, 2])


@pytest.mark.parametrize(
    ("pairs", "singles", "unclear", "agrees"),
    [
        (["0-1", "2-3"], "", "", True),
        # Offline siblings are no contradiction.
        ([], "0,2", "", True),
        (["0,2", "1,3"], "", "", False),
        ([], "0-3", "", False),
        ([], "", "0-3", None),
        (["0-1"], "", "2-3", None),
        ([], "0", "1-3", False),
    ],
)
def test_the_kernel_agrees_or_disagrees_or_it_is_unknown(pairs, singles, unclear, agrees):
    cpus = "0,2" if singles == "0,2" else "0-3"
    result = {"cpus": cpus, "pairs": pairs, "singles": singles, "unclear": unclear}
    assert rounds.compare_with_kernel(result, Topology(cores=((0, 1), (2, 3)))) is agrees
    assert rounds.compare_with_kernel(result, Topology(cores=())) is None


@pytest.mark.parametrize(
    ("mode", "hypervisor", "threads", "online", "wanted"),
    [
        ("auto", "kvm", 1, "0-3", True),
        ("auto", "unknown", None, "0-3", True),
        ("auto", "kvm", 2, "0-3", False),
        ("auto", None, 1, "0-3", False),
        ("auto", "kvm", 1, "0", False),
        ("always", None, 2, "0-3", True),
        ("never", "kvm", 1, "0-3", False),
    ],
)
def test_when_it_is_wanted(mode, hypervisor, threads, online, wanted):
    facts = {"hypervisor": hypervisor, "threads_per_core": {"max": threads}, "cpus": {"online": online}}
    assert rounds.wanted(mode, facts) is wanted


def children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
        return set(listed.read().split())


def test_real_workers_work_only_on_request_and_leave_nothing_behind():
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    with Workers(HERE) as machine:
        assert set(machine.measure(HERE[:1], 0.05)) == set(HERE[:1])
        samples = [machine.measure(HERE, 0.2) for _round in range(5)]
        machine.check_pins()
    assert all(set(sample) == set(HERE) for sample in samples)
    assert all(value is None or value > 0 for sample in samples for value in sample.values())
    assert (children(), len(os.listdir("/proc/self/fd"))) == (before, descriptors)


def test_an_unusable_cpu_is_named_and_no_process_is_left():
    before = children()
    with pytest.raises(ProbeError, match="CPU 4095"), Workers([HERE[0], 4095]):
        pass
    assert children() == before
    with pytest.raises(ProbeError, match="nothing to compare"):
        rounds.measurable(HERE[:1])


def test_a_worker_that_was_moved_makes_the_results_invalid():
    before = children()
    with Workers(HERE[:1]) as machine:
        os.sched_setaffinity(int((children() - before).pop()), HERE)
        with pytest.raises(ProbeError, match="the results are not valid" if len(HERE) > 1 else ""):
            machine.check_pins()


def test_a_killed_worker_is_detected():
    before = children()
    with Workers(HERE[:1]) as machine:
        worker = int((children() - before).pop())
        os.kill(worker, signal.SIGKILL)
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProbeError, match=f"CPU {HERE[0]} "):
            machine.measure(HERE[:1], 0.05)


def test_a_worker_that_does_not_reply_is_detected(monkeypatch):
    before = children()
    with Workers(HERE[:1]) as machine:
        # Only now, for the stopped worker: on a busy machine the start may take longer.
        monkeypatch.setattr(workers, "_TIME_LIMIT", 0.3)
        os.kill(int((children() - before).pop()), signal.SIGSTOP)
        with pytest.raises(ProbeError, match=f"CPU {HERE[0]} "):
            machine.measure(HERE[:1], 0.05)


def test_workers_end_with_their_killed_parent():
    read, write = os.pipe()
    maker = os.fork()
    if maker == 0:
        with Workers(HERE) as machine:
            os.write(write, " ".join(children()).encode())
            machine.measure(HERE, 60)
        os._exit(0)
    pids = os.read(read, 1000).decode().split()
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    os.close(read)
    os.close(write)
    assert len(pids) == len(HERE)
    for _attempt in range(1500):
        if not any(os.path.exists("/proc/" + pid) for pid in pids):
            return
        time.sleep(0.02)
    pytest.fail(f"{pids} are still there")


RESULT = {
    "cpus": "0-3",
    "pairs": ["0-1", "2-3"],
    "singles": "",
    "unclear": "",
    "rounds": 80,
    "seconds": 4.5,
    "confidence": 0.999,
    "agrees_with_kernel": False,
    "ratios": [{"pair": "0-1", "result": "shares", "ratio": 0.5, "low": 0.4, "high": None}],
}


@pytest.fixture
def host(tmp_path):
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("one\n")
    return HostFs(str(tmp_path))


def test_the_sibling_cache_is_valid_for_one_boot(host):
    assert sibling_cache.load(host) is None
    kept = sibling_cache.save(host, RESULT)
    assert sibling_cache.load(host) == kept
    assert {name: kept[name] for name in RESULT} == RESULT
    host.write("proc/sys/kernel/random/boot_id", "two\n")
    assert sibling_cache.load(host) is None
    assert host.problems == []


@pytest.mark.parametrize(
    "damage",
    [
        {"pairs": ["<b>"]},
        {"pairs": "x"},
        {"unclear": None},
        {"rounds": "many"},
        {"rounds": 10**400},
        {"agrees_with_kernel": "yes"},
        {"ratios": [1]},
        {"seconds": float("nan")},
        {"measured_at": "<b>"},
        {"cpus": "0-99999999"},
    ],
)
def test_a_damaged_sibling_cache_is_noted_and_ignored(host, damage):
    sibling_cache.save(host, RESULT)
    data = json.loads(host.read(sibling_cache.PATH))
    data["measured"].update(damage)
    host.write(sibling_cache.PATH, json.dumps(data))
    assert sibling_cache.load(host) is None
    assert "cannot be used" in host.problems[0]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (RESULT, "By measuring, CPUs 0-1 and 2-3 share a core; the kernel says otherwise."),
        (dict(RESULT, pairs=[]), "By measuring, no two CPUs share a core; the kernel says otherwise."),
        (dict(RESULT, pairs=["0-1", "2-3"] * 500), "(and 992 more)"),
        (dict(RESULT, pairs=["\x1b[31m" * 1000, 5, None]), "..."),
        (dict(RESULT, pairs="0-1"), "no two CPUs"),
        *((one, None) for one in (None, [], "x", {}, dict(RESULT, agrees_with_kernel=True))),
        (dict(RESULT, agrees_with_kernel=None), None),
    ],
)
def test_a_disagreement_is_one_short_sentence(measured, expected):
    sentence = sibling_cache.disagreement(measured)
    assert sentence is None if expected is None else expected in sentence and len(sentence) < 300
    assert sentence is None or sentence.isprintable()
