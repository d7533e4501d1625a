# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction on a fake kernel: cases that a guest does not have (refusal on the k-th CPU, POWER,
incomplete writes), and many sequences.
"""

from __future__ import annotations

import errno
import itertools
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    state as smt_state,
    transition as smt_transition,
)
from fake_kernel import FakeKernel, numbered_cores

SHAPES = [(4, 2, "adjacent"), (4, 2, "split"), (2, 4, "adjacent"), (2, 4, "split"), (2, 8, "adjacent")]
KERNELS = {
    "old": {},
    "modern": {"modern": True},
    "power": {"numeric": True},
    "no control": {"control": None},
    "not implemented": {"control": "notimplemented"},
}
# By day each kernel and each shape once.
MACHINES = [
    pytest.param(kernel, shape, id=f"{kernel}-{shape}", marks=[pytest.mark.night] if number % 6 else [])
    for number, (kernel, shape) in enumerate(itertools.product(KERNELS, SHAPES))
]
ADJACENT, SPLIT = numbered_cores(4, 2, "adjacent"), numbered_cores(4, 2, "split")


@pytest.fixture(name="machine")
def a_machine(tmp_path):
    return lambda kernel, shape: FakeKernel(tmp_path, numbered_cores(*shape), **KERNELS[kernel])


def change(kernel, threads, cores=None, **options):
    """Set a number of threads a core, or None: enable."""
    cores = kernel.cores if cores is None else cores
    if threads is None:
        return smt_transition.enable("", cores, files=kernel, **options)
    return smt_transition.set_threads_per_core("", cores, threads, files=kernel, **options)


def test_random_sequences(tmp_path):
    """After each step exactly the right CPUs, as predicted, and none is written twice; at the end the state before the
    first change, with CPUs that were offline on purpose.
    """
    for number in range(night.number(10, 400)):
        chance = random.Random(number)
        kernels, shape = list(KERNELS.values()), chance.choice(SHAPES)
        cores = numbered_cores(*shape)
        all_cpus = sorted(cpu for core in cores for cpu in core)
        offline = chance.sample(all_cpus[1:], chance.choice([0, 0, 1, 2]))
        kernel = FakeKernel(tmp_path / str(number), cores, offline=offline, **kernels[number % len(kernels)])
        origin = smt_state.read(files=kernel)
        online = set(origin["online"])
        for _step in range(chance.randint(1, 6)):
            threads = chance.choice([None, *range(1, shape[1] + 1)])
            named = frozenset(chance.choice([all_cpus, chance.sample(all_cpus, chance.randint(1, 4))]))
            options = {"origin": origin, **({} if threads is None else {"only": named})}
            before = smt_state.read(files=kernel)
            predicted = smt_transition.predict(before, cores, threads, numeric=kernel.numeric, **options)
            after = change(kernel, threads, **options)
            written = len(kernel.writes)
            assert after == predicted == change(kernel, threads, **options) and len(kernel.writes) == written
            right = set()
            for core in [core for core in cores if online.intersection(core)]:
                kept = sorted(online.intersection(core))
                limited = {None: kept, 1: kept[:1]}.get(threads, core[:threads])
                right.update(limited if named.intersection(core) else kept)
            assert after["online"] == sorted(right), (number, shape, offline, threads, named)
        assert smt_transition.restore("", origin, files=kernel) == []
        assert smt_state.read(files=kernel) == origin


@pytest.mark.parametrize("part", [False, True], ids=["all cores", "one core"])
@pytest.mark.parametrize("up", [False, True], ids=["down", "up"])
@pytest.mark.parametrize(("kernel", "shape"), MACHINES)
def test_a_refusal_at_any_cpu_is_undone(machine, kernel, shape, up, part):
    kernel = machine(kernel, shape)
    cores, origin = kernel.cores, smt_state.read(files=kernel)
    if up:
        change(kernel, 1)
    before = smt_state.read(files=kernel)
    only = {"only": frozenset({cores[-1][0]})} if part else {}
    switched = cores if not part else cores[:-1] if up else cores[-1:]
    cpus = sorted(cpu for core in switched for cpu in core[1:])
    for cpu in cpus[:: night.number(max(1, len(cpus) - 1), 1)]:
        kernel.refusals = {(cpu, up): errno.ENOSPC if up else errno.EBUSY}
        with pytest.raises(smt_state.StateError, match=f"CPU {cpu}: {'ENOSPC' if up else 'EBUSY'}: "):
            change(kernel, None if up and not part else 1, origin=origin, **only)
        assert smt_state.read(files=kernel) == before


@pytest.mark.parametrize(("threads", "control", "online"), [(1, "off", [0, 2, 4, 6]), (None, "on", list(range(8)))])
def test_an_incomplete_off_from_before(tmp_path, threads, control, online):
    """6.6 and later: an earlier off was not completed, control reads 1, and another off changes nothing."""
    kernel = FakeKernel(tmp_path, ADJACENT, modern=True)
    kernel.swallow_off = 1
    kernel.write(smt_state.CONTROL, "off")
    assert smt_state.read(tmp_path)["control"] == "1"
    after = change(kernel, threads)
    assert (after["control"], after["online"]) == (control, online)


def swallows_each_off(kernel):
    kernel.swallow_off = 99


def is_read_only(kernel):
    kernel.read_only = True


def refuses(code, up=False):
    return lambda kernel: kernel.refusals.update({(5, up): code})


PART = frozenset({0})
# The kernel, what is asked for, and what is said; with what happens in between, the state before is back.
REFUSED = [
    ({}, {"threads": 0}, None, "0 threads per core are not possible: the minimum is 1"),
    ({}, {"threads": 3}, None, "3 threads per core are not possible: the cores of this host have at most 2"),
    ({"control": "forceoff"}, {"threads": None}, None, "forceoff is final until a reboot without nosmt=force"),
    ({"control": None}, {"threads": 1, "method": "smt_control"}, None, "the method smt_control cannot be used here"),
    ({"modern": True}, {"threads": 1, "method": "smt_control"}, swallows_each_off, "the kernel accepted the writes"),
    ({}, {"threads": 1}, is_read_only, "EROFS: sysfs is mounted read-only"),
    ({}, {"threads": 1}, refuses(errno.EBUSY), "CPU 5: EBUSY: SCHED_DEADLINE bandwidth would not fit"),
    ({"control": None}, {"threads": 1}, refuses(errno.EIO), "EIO: the CPU did not come up or go down"),
    ({"control": "off"}, {"threads": None}, refuses(errno.ENOSPC, up=True), "the other CPUs have no free interrupt"),
    ({"control": "off"}, {"threads": 2}, refuses(errno.ENOMEM, up=True), "ENOMEM: the kernel is out of memory"),
]


@pytest.mark.parametrize(("options", "asked", "happens", "sentence"), REFUSED)
def test_what_is_refused(tmp_path, options, asked, happens, sentence):
    kernel = FakeKernel(tmp_path, ADJACENT, **options)
    before = smt_state.read(tmp_path)
    if happens:
        happens(kernel)
    with pytest.raises(smt_state.StateError) as refused:
        change(kernel, **asked)
    assert sentence in str(refused.value)
    assert smt_state.read(tmp_path) == before and (happens or kernel.writes == [])


def test_a_machine_without_smt(tmp_path):
    cores = [(0,), (1,)]
    kernel = FakeKernel(tmp_path, cores, control="notsupported")
    for threads in (None, 2):
        with pytest.raises(smt_state.StateError, match=r"no core has a second thread .smt/control: notsupported"):
            change(kernel, threads, cores)
    change(kernel, 1, cores)
    assert kernel.writes == []


NOSMT, UNKNOWN = {"control": "off"}, [(0,), (1,), (2,), (3,)]
NOSMT_3, SOME = {**NOSMT, "offline": [3]}, [(0, 4), (1,), (2, 6)]
HYBRID = [(0, 1), (2, 3), (4,), (5,)]
OFF_ON_PURPOSE = {"offline": [3, 5, 7]}
# The machine, the cores that are known, threads, cores that are named, and what is to be online.
SOME_CORES = {
    "booted with nosmt": (SPLIT, NOSMT_3, UNKNOWN[:3], None, None, "0-2,4-6"),
    "two threads of four": (numbered_cores(2, 4, "adjacent"), NOSMT, [(0,), (4,)], 2, None, "0-1,4-5"),
    "enabled leaves one that is off on purpose": (SPLIT, OFF_ON_PURPOSE, SOME, None, None, "0-2,4,6"),
    "a number brings it online": (SPLIT, OFF_ON_PURPOSE, SOME, 2, None, "0-2,4-6"),
    "and so without the control": (SPLIT, {**OFF_ON_PURPOSE, "control": None}, SOME, 2, None, "0-2,4-6"),
    "siblings went offline one at a time": (SPLIT, {"offline": [4, 5, 6, 7]}, UNKNOWN, None, None, "0-7"),
    "the siblings of the others come online": (SPLIT, NOSMT_3, UNKNOWN[:3], 1, {1}, "0-2,4,6"),
    "a sibling names an unknown core": (SPLIT, NOSMT, UNKNOWN, 1, {5}, "0-4,6-7"),
    "a sibling is off on purpose": (SPLIT, {"offline": [7]}, [(0, 4), (1, 5), (2, 6), (3,)], 1, {1}, "0-4,6"),
    # The control would have taken the only thread of this core as well.
    "the first thread is off": (ADJACENT, {"offline": [2]}, ADJACENT, 1, None, "0,3-4,6"),
    "with and without a sibling, not by the control": (HYBRID, {"modern": True}, HYBRID, 1, {0, 2}, "0,2,4-5"),
}
NAMES = ("cores", "options", "known", "threads", "only", "online")


@pytest.mark.parametrize(NAMES, SOME_CORES.values(), ids=SOME_CORES)
def test_cores_that_are_not_like_the_others(tmp_path, cores, options, known, threads, only, online):
    kernel = FakeKernel(tmp_path, cores, **options)
    learned = []
    options = {"learned": learned, **({"only": frozenset(only)} if only else {})}
    after = change(kernel, threads, known, **options)
    assert (cpulist.render(after["online"]), after["control"]) == (online, "absent" if kernel.control is None else "on")
    assert set(smt_state.join_cores(known, learned)) <= {*cores, *known}
    if {3, 7}.isdisjoint(after["online"]) and threads == 2 and cores is SPLIT:
        assert smt_state.join_cores(known, learned) == SPLIT, "the core that is off as a whole is learned, too"


def test_restore_reports_what_remains(tmp_path):
    """One CPU that refuses does not keep others offline."""
    kernel = FakeKernel(tmp_path, ADJACENT)
    state = smt_state.read(tmp_path)
    change(kernel, 1)
    kernel.refusals = {(5, True): errno.EIO}
    left = smt_transition.restore("", state, files=kernel)
    assert [line for line in left if line.startswith("CPU 5 was online, is offline (CPU 5: EIO")]
    assert smt_state.read(tmp_path)["online"] == [0, 1, 2, 3, 4, 6, 7]


GOOD = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}


@pytest.mark.parametrize("state", [None, {}, {"online": ["0"]}, {"present": [True]}, {"control": 3}, {"active": 1}])
def test_hostile_state(tmp_path, state):
    kernel = FakeKernel(tmp_path, [(0, 1)])
    damaged = {**GOOD, **state} if isinstance(state, dict) and state else state
    with pytest.raises(smt_state.StateError, match="not a saved SMT state"):
        smt_transition.restore("", damaged, files=kernel)
    assert kernel.writes == []


@pytest.mark.parametrize("online", [None, "", "3-1", "0-99999999"])
def test_a_state_from_what_files_read(tmp_path, online):
    absent = {"control": "absent", "active": None, "online": [0, 1, 4], "present": [0, 1, 4]}
    place = tmp_path / "sys/devices/system/cpu/online"
    place.parent.mkdir(parents=True)
    place.write_text("0-1,4\n")
    assert smt_state.read(str(tmp_path)) == absent
    place.unlink()
    if online is not None:
        place.write_text(online)
    with pytest.raises(smt_state.StateError, match="cpu/online: "):
        smt_state.read(str(tmp_path))
