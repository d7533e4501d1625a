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
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import cache as sibling_cache, source
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings import rounds, workers
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.inference import APART, SHARES, groups
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.workers import ProbeError, Workers
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
from fake_host import Host
from fake_kernel import numbered_cores

HERE = sorted(os.sched_getaffinity(0))


class SimulatedMachine:
    """Simulation of `Workers`: each further active thread of a core adds ``cost`` times the slowness alone to that of
    the others; a share ``stolen`` of the samples is up to ten times slower, and a CPU is twice as slow for many rounds
    in a row in a share ``bursts`` of the time; ``spread`` is the standard deviation of the logarithm of a sample.
    """

    def __init__(self, cores, cost=0.6, spread=0.03, stolen=0.0, bursts=0.0, seed=0):
        self.core = {cpu: core for core in cores for cpu in core}
        self.cost, self.spread, self.stolen, self.bursts = cost, spread, stolen, bursts
        self.chance = random.Random(seed)
        self.pace = {cpu: self.chance.uniform(0.5, 1.5) for cpu in self.core}
        self.burst = dict.fromkeys(self.core, False)
        self.now = 0.0

    def __call__(self, cpus):
        assert set(cpus) == set(self.core)
        return contextlib.nullcontext(self)

    def check_pins(self):
        self.is_checked = True

    def clock(self):
        return self.now

    def measure(self, active, seconds):
        self.now += seconds
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


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_wrong_core_is_claimed_on_a_very_noisy_machine(threads):
    for seed in range(night.number(8, 25)):
        machine = machine_of(4, threads, order=seed, cost=0.5, spread=0.3, stolen=0.3, bursts=0.4, seed=seed)
        cores, result = measured(machine, 6.0, seed)
        assert cores.issubset(machine.core.values()), seed
        named = [cpu for core in cores for cpu in core] + list(cpulist.parse(result["unclear"]))
        assert sorted(named) == sorted(machine.core), seed


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
        ([], "0,2", "", True),
        (["0,2", "1,3"], "", "", False),
        ([], "", "0-3", None),
        ([], "0", "1-3", False),
    ],
)
def test_the_kernel_agrees_or_disagrees_or_it_is_unknown(pairs, singles, unclear, agrees):
    cpus = "0,2" if singles == "0,2" else "0-3"
    result = {"cpus": cpus, "pairs": pairs, "singles": singles, "unclear": unclear}
    assert rounds.compare_with_kernel(result, Topology(cores=((0, 1), (2, 3)))) is agrees
    assert rounds.compare_with_kernel(result, Topology(cores=())) is None


@pytest.mark.parametrize(
    ("mode", "threads", "online", "wanted"),
    [("auto", 1, "0-3", True), ("auto", 2, "0-3", False), ("auto", 1, "0", False), ("never", 1, "0-3", False)],
)
def test_when_it_is_wanted(mode, threads, online, wanted):
    facts = {"hypervisor": "kvm", "threads_per_core": {"max": threads}, "cpus": {"online": online}}
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_was_killed_or_does_not_reply_is_detected(number, monkeypatch):
    before = children()
    with Workers(HERE[:1]) as machine:
        # Only now, for the stopped worker: on a busy machine the start may take longer.
        monkeypatch.setattr(workers, "_TIME_LIMIT", 0.3)
        os.kill(int((children() - before).pop()), number)
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
    while any(os.path.exists("/proc/" + pid) for pid in pids):
        time.sleep(0.02)


RATIO = {"pair": "0-1", "result": "shares", "ratio": 0.5, "low": 0.4, "high": None}
RESULT = {"cpus": "0-3", "pairs": ["0-1", "2-3"], "singles": "", "unclear": "", "rounds": 80, "seconds": 4.5}
RESULT.update(confidence=0.999, agrees_with_kernel=False, ratios=[RATIO])


@pytest.mark.parametrize("damage", [{"pairs": ["<b>"]}, {"pairs": "x"}, {"rounds": 10**400}, {"ratios": [1]}])
def test_a_damaged_sibling_cache_is_noted_and_ignored(misled, damage):
    host = HostFs(misled.sysroot)
    data = json.loads(host.read(sibling_cache.PATH))
    data["measured"].update(damage)
    host.write(sibling_cache.PATH, json.dumps(data))
    assert sibling_cache.load(host) is None
    assert "cannot be used" in host.problems[0]


@pytest.mark.parametrize(
    ("agrees", "pairs", "expected"),
    [
        (False, ["0-1", "2-3"], "By measuring, CPUs 0-1 and 2-3 share a core; the kernel says otherwise."),
        (False, [], "By measuring, no two CPUs share a core; the kernel says otherwise."),
        (False, ["0-1", "2-3"] * 500, "(and 992 more)"),
        (False, ["0," * 1000 + "0"], "..."),
        (True, [], None),
        (None, ["0-1"], None),
    ],
)
def test_a_disagreement_is_one_short_sentence(agrees, pairs, expected):
    sentence = sibling_cache.disagreement(agrees, pairs)
    assert sentence is None if expected is None else expected in sentence and len(sentence) < 300
    assert sentence is None or sentence.isprintable()


IDS = (0, 1, 2, 3)
FOUR = Topology(present=IDS, online=IDS, cores=((0,), (1,), (2,), (3,)), source="sysfs", complete=True)


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ("kernel", FOUR.cores),
        ([[2, 3], [0, 1]], ((0, 1), (2, 3))),
        (["0,2", "1,3"], ((0, 2), (1, 3))),
        ([["0", "3"]], ((0, 3), (1,), (2,))),
    ],
)
def test_what_can_be_asked_for(given, cores):
    found = source.applied(FOUR, given, RESULT)
    kind = given if isinstance(given, str) else "declared"
    assert found.cores == cores and found.complete and found.source == {"kernel": "sysfs"}.get(kind, kind)
    method = "auto" if kind == "kernel" else "cpu_online"
    assert (source.method(found), source.described(found) is None) == (method, kind == "kernel")


@pytest.mark.parametrize(
    ("given", "found", "reason"),
    [
        ("guessed", None, "siblings is 'guessed': give kernel, measured, or the CPUs of each core"),
        ([[0, 1], [1, 2]], None, "siblings names CPU 1 in more than one core"),
        ([[0, 1], []], None, "siblings has a core without CPUs"),
        (["0-4095"] * 4096, None, "lists more than 64 CPUs"),
        ([[0, 9]], None, "siblings names CPU 9, which this host does not have: it has CPUs 0-3"),
        ("measured", None, "were not measured since it booted.*measure again on an idle host.*or name the siblings"),
        ("measured", dict(RESULT, pairs=["0-1"], unclear="2-3"), "not clear which CPUs share a core with CPUs 2-3"),
        ("measured", dict(RESULT, pairs=["0-1"], cpus="0-1"), "the siblings of CPUs 2-3 were not measured"),
    ],
)
def test_what_is_not_valid_or_not_sure_is_refused(given, found, reason):
    with pytest.raises(source.SiblingsError, match=reason):
        source.applied(FOUR, given, found)


@pytest.fixture(name="misled")
def host_whose_kernel_shows_no_siblings(tmp_path):
    host = Host(tmp_path, numbered_cores(4, 1, "adjacent"), control="notsupported")
    sibling_cache.save(HostFs(tmp_path), RESULT)
    return host


def test_disabled_and_restored_by_measured_siblings(misled):
    before = smt_state.read(files=misled)
    with pytest.raises(SmtError, match="no core has a second thread"):
        misled.ask(threads=2)
    assert misled.ask("disabled", siblings="measured", check=True)["after"]["online"] == "0,2"
    assert smt_state.read(files=misled) == before
    assert misled.ask("disabled", siblings="measured")["changed"]
    assert smt_state.read(files=misled)["online"] == [0, 2]
    assert not misled.ask("disabled", siblings="measured")["changed"]
    seen = smt_snapshot.seen_cores(HostFs(misled.sysroot))
    assert seen == [[0], [1], [2], [3]], "what is saved is what the kernel shows"
    assert misled.ask("enabled", siblings=[[0, 1], [2, 3]])["changed"]
    assert smt_state.read(files=misled) == before
    misled.ask("disabled", siblings=["0,2", "1,3"])
    assert smt_state.read(files=misled)["online"] == [0, 1]
    assert misled.ask("restored", siblings="measured")["changed"]
    assert (smt_state.read(files=misled), misled.saved()) == (before, None)


def test_restoring_needs_no_siblings(misled):
    misled.ask("disabled", siblings="measured")
    misled.boot("another")
    with pytest.raises(source.SiblingsError, match="were not measured since it booted"):
        misled.ask("disabled", siblings="measured")
    misled.boot("first")
    misled.put(sibling_cache.PATH, "damaged")
    misled.ask("restored", siblings="measured")
    assert smt_state.read(files=misled)["online"] == [0, 1, 2, 3]


def test_the_kernels_control_is_not_used_for_other_siblings(tmp_path):
    host = Host(tmp_path)
    with pytest.raises(SmtError, match="these are declared: use the method auto or cpu_online"):
        host.ask("disabled", siblings=[[0, 2], [1, 3]], method="smt_control")
    host.ask("disabled", siblings=[[0, 2], [1, 3], [4, 6], [5, 7]])
    state = smt_state.read(files=host)
    assert (state["control"], state["online"]) == ("on", [0, 1, 4, 5])
    host.ask("disabled")
    assert smt_state.read(files=host)["online"] == [0, 2, 4, 6], "one thread of each of the kernel's cores"
    host.ask("restored")
    assert smt_state.read(files=host)["online"] == list(range(8))


def test_facts_arms_and_placements_follow_them(misled):
    filesystem = HostFs(misled.sysroot)
    kernels = smt_facts.gather(filesystem)
    assert (kernels["source"], kernels["supported"], kernels["cores"]) == ("sysfs", False, 4)
    facts = smt_facts.gather(filesystem, "measured")
    wanted = {"source": "measured", "supported": True, "active": True, "cores": 2, "sibling_groups": ["0-1", "2-3"]}
    wanted.update(numbering="adjacent", complete=True)
    assert {name: facts[name] for name in wanted} == wanted
    assert facts["hardware_class"] == kernels["hardware_class"]
    assert "smt_control" in facts["methods"]["runtime"]["impossible"]
    assert not topology_cache.save(filesystem, source.read(filesystem, "measured")), "only what the kernel shows is"
