# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction on a fake kernel: cases that a guest does not have (refusal on the k-th CPU, POWER,
incomplete writes), and many sequences.
"""

from __future__ import annotations

import errno
import json
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    state as smt_state,
    transition as smt_transition,
)
from fake_kernel import FakeKernel, numbered_cores

SHAPES = [(4, 2, "adjacent"), (4, 2, "split"), (2, 4, "adjacent"), (2, 4, "split"), (2, 8, "adjacent")]
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.night) for seed in range(2, 9))]
KERNELS = {
    "old": {},
    "modern": {"modern": True},
    "power": {"numeric": True},
    "no control": {"control": None},
    "not implemented": {"control": "notimplemented"},
}


@pytest.fixture(params=SHAPES, ids="{0[0]}x{0[1]}-{0[2]}".format)
def cores(request):
    return numbered_cores(*request.param)


@pytest.fixture(params=KERNELS.values(), ids=KERNELS.keys())
def kernel(request, tmp_path, cores):
    return FakeKernel(tmp_path, cores, **request.param)


def first(cores, count):
    return sorted(cpu for core in cores for cpu in core[:count])


def every(cores):
    return first(cores, 99)


def test_state_is_plain_json(kernel):
    state = smt_state.read(kernel.sysroot)
    assert json.loads(json.dumps(state)) == state
    assert sorted(state) == ["active", "control", "online", "present"]


def test_disable_leaves_first_threads(kernel, cores):
    after = smt_transition.disable(kernel.sysroot, cores, files=kernel)
    assert after["online"] == first(cores, 1)
    assert after["control"] == ("off" if kernel.control == "off" else after["control"])


@pytest.mark.night(after=3)
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 6, 8])
def test_threads_per_core(kernel, cores, threads):
    if threads > len(cores[0]):
        with pytest.raises(smt_state.StateError, match=f"at most {len(cores[0])}"):
            smt_transition.set_threads_per_core(kernel.sysroot, cores, threads, files=kernel)
        return
    smt_transition.disable(kernel.sysroot, cores, files=kernel)
    after = smt_transition.set_threads_per_core(kernel.sysroot, cores, threads, files=kernel)
    assert after["online"] == first(cores, threads)
    written = len(kernel.writes)
    assert smt_transition.set_threads_per_core(kernel.sysroot, cores, threads, files=kernel) == after
    assert len(kernel.writes) == written


def test_power_takes_a_number_in_one_write(tmp_path):
    cores = numbered_cores(2, 8, "adjacent")
    kernel = FakeKernel(tmp_path, cores, numeric=True)
    assert smt_transition.set_threads_per_core("", cores, 4, files=kernel)["control"] == "4"
    assert kernel.writes == [(smt_state.CONTROL, "4")]
    assert smt_transition.set_threads_per_core("", cores, 6, files=kernel)["online"] == first(cores, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_sequences(tmp_path, seed):
    """Fifty sequences: after each step exactly the right CPUs, at the end the state before the first change,
    with CPUs that were offline.
    """
    chance = random.Random(seed)
    for number in range(50):
        shape = chance.choice(SHAPES)
        cores = numbered_cores(*shape)
        all_cpus = every(cores)
        offline = chance.sample(all_cpus[1:], chance.choice([0, 0, 1, 2]))
        sysroot = tmp_path / str(number)
        kernel = FakeKernel(sysroot, cores, offline=offline, **chance.choice(list(KERNELS.values())))
        origin = smt_state.read(sysroot)
        online = set(origin["online"])
        in_use = [core for core in cores if online.intersection(core)]
        for _step in range(chance.randint(1, 6)):
            step = chance.choice(["enabled", "disabled", "restored", *list(range(1, shape[1] + 1))])
            if step == "enabled":
                smt_transition.enable(sysroot, cores, origin=origin, files=kernel)
                expected = sorted(online)
            elif step in ("disabled", 1):
                smt_transition.disable(sysroot, cores, origin=origin, files=kernel)
                expected = sorted(min(online.intersection(core)) for core in in_use)
            elif step == "restored":
                assert smt_transition.restore(sysroot, origin, files=kernel) == []
                expected = sorted(online)
            else:
                smt_transition.set_threads_per_core(sysroot, cores, step, origin=origin, files=kernel)
                expected = first(in_use, step)
            assert smt_state.read(sysroot)["online"] == expected, (number, shape, offline, step)
        assert smt_transition.restore(sysroot, origin, files=kernel) == []
        assert smt_state.read(sysroot) == origin


@pytest.mark.night(after=3)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO])
def test_refused_on_the_kth_cpu(kernel, cores, code):
    before = smt_state.read(kernel.sysroot)
    for cpu in sorted(set(every(cores)) - set(first(cores, 1))):
        kernel.refusals = {(cpu, False): code}
        with pytest.raises(
            smt_state.StateError, match=f"CPU {cpu}: {errno.errorcode[code]}: .*the previous state was restored"
        ):
            smt_transition.disable(kernel.sysroot, cores, files=kernel)
        assert smt_state.read(kernel.sysroot) == before


@pytest.mark.night(after=3)
def test_refused_on_the_way_up(kernel, cores):
    smt_transition.disable(kernel.sysroot, cores, files=kernel)
    before = smt_state.read(kernel.sysroot)
    for cpu in sorted(set(every(cores)) - set(first(cores, 1))):
        kernel.refusals = {(cpu, True): errno.ENOSPC}
        with pytest.raises(
            smt_state.StateError,
            match=f"CPU {cpu}: ENOSPC: the other CPUs have no free interrupt vectors.*the previous state was restored",
        ):
            smt_transition.enable(kernel.sysroot, cores, files=kernel)
        assert smt_state.read(kernel.sysroot) == before


@pytest.mark.parametrize("modern", [False, True])
def test_an_off_that_is_reported_but_not_done(tmp_path, modern):
    cores = numbered_cores(4, 2, "split")
    kernel = FakeKernel(tmp_path, cores, modern=modern)
    kernel.swallow_off = 1
    assert smt_transition.disable("", cores, files=kernel)["online"] == first(cores, 1)
    assert kernel.control == "off"


@pytest.mark.parametrize("goal", ["disable", "enable"])
def test_an_incomplete_off_from_before(tmp_path, goal):
    """6.6 and later: an earlier off was not completed, control reads 1, and another off changes nothing."""
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores, modern=True)
    kernel.swallow_off = 1
    kernel.write(smt_state.CONTROL, "off")
    assert smt_state.read(tmp_path)["control"] == "1"
    after = getattr(smt_transition, goal)("", cores, files=kernel)
    assert (after["control"], after["online"]) == (
        ("off", first(cores, 1)) if goal == "disable" else ("on", every(cores))
    )


def test_off_that_never_works_is_rolled_back(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores, modern=True)
    kernel.swallow_off = 99
    before = smt_state.read(tmp_path)
    with pytest.raises(
        smt_state.StateError, match=r"the kernel accepted the writes, but afterwards CPU 1 is online|smt/control"
    ):
        smt_transition.disable("", cores, method="smt_control", files=kernel)
    assert smt_state.read(tmp_path) == before


def test_read_only(kernel, cores):
    kernel.read_only = True
    before = smt_state.read(kernel.sysroot)
    with pytest.raises(smt_state.StateError, match=r"EROFS: sysfs is mounted read-only"):
        smt_transition.disable(kernel.sysroot, cores, files=kernel)
    assert smt_state.read(kernel.sysroot) == before


def test_forceoff(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores, control="forceoff")
    assert smt_transition.disable("", cores, files=kernel)["control"] == "forceoff"
    with pytest.raises(smt_state.StateError, match=r"forceoff is final until a reboot"):
        smt_transition.enable("", cores, files=kernel)
    assert kernel.writes == []


def test_no_smt(tmp_path):
    cores = [(0,), (1,)]
    kernel = FakeKernel(tmp_path, cores, control="notsupported")
    smt_transition.disable("", cores, files=kernel)
    for change in (
        lambda: smt_transition.enable("", cores, files=kernel),
        lambda: smt_transition.set_threads_per_core("", cores, 2, files=kernel),
    ):
        with pytest.raises(smt_state.StateError, match=r"no core has a second thread .smt/control: notsupported"):
            change()
    assert kernel.writes == []


@pytest.mark.parametrize("modern", [False, True])
def test_siblings_of_unknown_cores(tmp_path, modern):
    """Booted with nosmt, no topology cache: the cores of the siblings are known only once they are online.

    CPU 6 and its core were off on purpose.
    """
    known = numbered_cores(4, 2, "split")
    kernel = FakeKernel(tmp_path, known, control="off", modern=modern, offline=[3])
    after = smt_transition.enable("", [(0,), (1,), (2,)], files=kernel)
    assert after["online"] == [0, 1, 2, 4, 5, 6]


def test_unknown_core_of_one_thread_of_four(tmp_path):
    kernel = FakeKernel(tmp_path, numbered_cores(2, 4, "adjacent"), control="off", modern=True)
    assert smt_transition.set_threads_per_core("", [(0,), (4,)], 2, files=kernel)["online"] == [0, 1, 4, 5]


@pytest.mark.parametrize("control", ["on", None])
def test_unknown_core_with_a_number_of_threads(tmp_path, control):
    """No topology cache, one sibling off on purpose: enabled leaves it, a number of threads brings it online;
    3 and 7 are a core that is offline.
    """
    kernel = FakeKernel(tmp_path, numbered_cores(4, 2, "split"), control=control, offline=[5, 3, 7])
    cores = [(0, 4), (1,), (2, 6)]
    assert smt_transition.enable("", cores, files=kernel)["online"] == [0, 1, 2, 4, 6]
    assert kernel.writes == []
    learned = []
    assert smt_transition.set_threads_per_core("", cores, 2, files=kernel, learned=learned)["online"] == [
        0,
        1,
        2,
        4,
        5,
        6,
    ]
    assert smt_state.join_cores(cores, learned) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_siblings_taken_offline_one_at_a_time(tmp_path):
    kernel = FakeKernel(tmp_path, numbered_cores(4, 2, "split"), offline=[4, 5, 6, 7])
    assert smt_transition.enable("", [(0,), (1,), (2,), (3,)], files=kernel)["online"] == list(range(8))


def test_unknown_cores_are_not_explored_without_smt(tmp_path):
    kernel = FakeKernel(tmp_path, [(0,), (1,)], control="notsupported", offline=[1])
    with pytest.raises(smt_state.StateError, match=r"notsupported"):
        smt_transition.enable("", [(0,)], files=kernel)
    assert kernel.writes == []


def test_core_whose_first_thread_is_off_keeps_a_thread(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores, offline=[2])
    assert smt_transition.disable("", cores, files=kernel)["online"] == [0, 3, 4, 6]
    assert kernel.control == "on", "off would have taken CPU 3 as well"


def test_only_the_requested_method(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores)
    smt_transition.disable("", cores, method="cpu_online", files=kernel)
    assert not [path for path, text in kernel.writes if path == smt_state.CONTROL]
    bare = FakeKernel(tmp_path / "bare", cores, control=None)
    with pytest.raises(smt_state.StateError, match=r"method smt_control cannot be used here"):
        smt_transition.disable("", cores, method="smt_control", files=bare)


def test_restore_reports_what_remains(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores)
    state = smt_state.read(tmp_path)
    smt_transition.disable("", cores, files=kernel)
    kernel.refusals = {(5, True): errno.EIO}
    left = smt_transition.restore("", state, files=kernel)
    assert [line for line in left if line.startswith("CPU 5 was online, is offline (CPU 5: EIO")]
    assert smt_state.read(tmp_path)["online"] == [
        0,
        1,
        2,
        3,
        4,
        6,
        7,
    ], "one CPU that refuses does not keep others offline"


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-", "-3", "0-99999999", "1,,b"])
def test_hostile_lists(tmp_path, text):
    FakeKernel(tmp_path, [(0, 1)])
    (tmp_path / smt_state.CPU_DIRECTORY / "online").write_text(text)
    with pytest.raises(smt_state.StateError, match=r"cpu/online"):
        smt_state.read(tmp_path)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"control": "on", "active": True, "online": ["0"], "present": [0]},
        {"control": "on", "active": True, "online": [0], "present": [True]},
        {"control": 3, "active": None, "online": [], "present": []},
        {"control": "on", "online": [0, 1], "present": [0, 1]},
        {"control": "on", "active": "1", "online": [0, 1], "present": [0, 1]},
        {"control": "on", "active": 1, "online": [0, 1], "present": [0, 1]},
    ],
)
def test_hostile_state(tmp_path, state):
    kernel = FakeKernel(tmp_path, [(0, 1)])
    with pytest.raises(smt_state.StateError, match=r"not a saved SMT state"):
        smt_transition.restore("", state, files=kernel)
    assert kernel.writes == []


def test_prediction_equals_the_result(kernel, cores):
    for threads in (1, None, len(cores[0])):
        predicted = smt_transition.predict(smt_state.read(files=kernel), cores, threads)
        if threads is None:
            assert predicted == smt_transition.enable("", cores, files=kernel)
        else:
            assert predicted == smt_transition.set_threads_per_core("", cores, threads, files=kernel)


@pytest.mark.parametrize(
    ("machine", "numeric"), [("ppc64le", True), ("ppc64", True), ("x86_64", False), ("s390x", False)]
)
def test_prediction_of_a_number_of_threads(tmp_path, machine, numeric):
    cores = numbered_cores(2, 4, "adjacent")
    kernel = FakeKernel(tmp_path, cores, modern=True, numeric=numeric)
    before = smt_state.read(files=kernel)
    predicted = smt_transition.predict(before, cores, 2, numeric=smt_transition.takes_numbers(machine))
    assert (kernel.writes, predicted["control"]) == ([], "2" if numeric else "on")
    assert predicted == smt_transition.set_threads_per_core("", cores, 2, files=kernel)


# Part of the machine --------------------------------------------------------------------------------------------------


def part_of(cores, named, threads):
    """What has to be online when only the cores with a CPU in ``named`` get this many threads."""
    return sorted(cpu for core in cores for cpu in (core[:threads] if named.intersection(core) else core))


@pytest.mark.night(after=3)
@pytest.mark.parametrize("start", ["on", "off", "the other part"])
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_part_of_the_machine(kernel, cores, start, threads):
    """The state is described completely: it is the same, whatever was before, and naming one thread names its core."""
    if threads > len(cores[0]):
        return
    origin = smt_state.read(kernel.sysroot)
    if start == "off":
        smt_transition.disable(kernel.sysroot, cores, files=kernel, origin=origin)
    elif start == "the other part":
        smt_transition.disable(kernel.sysroot, cores, files=kernel, origin=origin, only=frozenset(cores[0]))
        assert smt_state.read(kernel.sysroot)["online"] == part_of(cores, set(cores[0]), 1)
    named = frozenset({cores[-1][-1]})
    predicted = smt_transition.predict(smt_state.read(files=kernel), cores, threads, origin=origin, only=named)
    after = smt_transition.set_threads_per_core(kernel.sysroot, cores, threads, files=kernel, origin=origin, only=named)
    assert after["online"] == part_of(cores, named, threads)
    assert after["control"] not in smt_state.OFF
    assert predicted == after
    written = len(kernel.writes)
    assert (
        smt_transition.set_threads_per_core(kernel.sysroot, cores, threads, files=kernel, origin=origin, only=named)
        == after
    )
    assert len(kernel.writes) == written
    assert smt_transition.restore(kernel.sysroot, origin, files=kernel) == []
    assert smt_state.read(kernel.sysroot) == origin


def test_all_cores_are_the_whole_machine(kernel, cores):
    whole = smt_transition.predict(smt_state.read(files=kernel), cores, 1)
    only = frozenset(core[-1] for core in cores)
    assert smt_transition.disable(kernel.sysroot, cores, files=kernel, only=only) == whole
    assert smt_transition.predict(smt_state.read(files=kernel), cores, 1, only=frozenset(every(cores))) == whole


@pytest.mark.parametrize("seed", SEEDS)
def test_random_parts(tmp_path, seed):
    """Fifty sequences of parts, with CPUs that were offline on purpose: after each step exactly the right CPUs,
    at the end the state before it.
    """
    chance = random.Random(seed)
    for number in range(50):
        shape = chance.choice(SHAPES)
        cores = numbered_cores(*shape)
        all_cpus = every(cores)
        offline = chance.sample(all_cpus[1:], chance.choice([0, 0, 1, 2]))
        kernel = FakeKernel(tmp_path / str(number), cores, offline=offline, **chance.choice(list(KERNELS.values())))
        origin = smt_state.read(files=kernel)
        online = set(origin["online"])
        smt_was_on = smt_state.smt_in_use(online, cores)
        for _step in range(chance.randint(1, 5)):
            named = frozenset(chance.sample(all_cpus, chance.randint(1, 4)))
            threads = chance.randint(1, shape[1])
            expected = set()
            for core in [core for core in cores if online.intersection(core)]:
                kept = sorted(online.intersection(core)) if smt_was_on else core
                limited = kept[:1] if threads == 1 else core[:threads]
                expected.update(limited if named.intersection(core) else kept)
            smt_transition.set_threads_per_core("", cores, threads, origin=origin, files=kernel, only=named)
            assert smt_state.read(files=kernel)["online"] == sorted(expected), (number, shape, offline, named, threads)
        assert smt_transition.restore("", origin, files=kernel) == []
        assert smt_state.read(files=kernel) == origin


@pytest.mark.night(after=3)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO])
@pytest.mark.parametrize("start", ["on", "off"])
def test_part_refused_at_each_cpu(kernel, cores, start, code):
    if start == "off" and not any(kernel.control == value for value in ("on", "off")):
        return
    origin = smt_state.read(kernel.sysroot)
    if start == "off":
        smt_transition.disable(kernel.sysroot, cores, files=kernel)
    before = smt_state.read(kernel.sysroot)
    named = frozenset({cores[-1][0]})
    ways = (
        [(cpu, False) for cpu in cores[-1][1:]]
        if start == "on"
        else [(cpu, True) for core in cores for cpu in core[1:]]
    )
    for way in ways:
        kernel.refusals = {way: code}
        with pytest.raises(
            smt_state.StateError, match=f"CPU {way[0]}: {errno.errorcode[code]}: .*the previous state was restored"
        ):
            smt_transition.disable(kernel.sysroot, cores, files=kernel, origin=origin, only=named)
        assert smt_state.read(kernel.sysroot) == before


def test_part_with_forceoff(tmp_path):
    cores = numbered_cores(4, 2, "adjacent")
    kernel = FakeKernel(tmp_path, cores, control="forceoff")
    with pytest.raises(smt_state.StateError, match=r"forceoff is final until a reboot"):
        smt_transition.disable("", cores, files=kernel, only=frozenset({0}))
    assert kernel.writes == []
    assert smt_transition.disable("", cores, files=kernel, only=frozenset({0, 2, 4, 6}))["control"] == "forceoff"


def test_part_with_the_control_alone(kernel, cores):
    expected = (
        "cannot be used here" if kernel.control in (None, "notimplemented") else "switches the siblings of all cores"
    )
    with pytest.raises(smt_state.StateError, match=expected):
        smt_transition.disable("", cores, method="smt_control", files=kernel, only=frozenset(cores[0]))
    assert kernel.writes == []


def test_part_of_a_machine_without_smt(tmp_path):
    kernel = FakeKernel(tmp_path, [(0,), (1,), (2,)], control="notsupported", offline=[2])
    smt_transition.disable("", [(0,), (1,)], files=kernel, only=frozenset({1}))
    assert kernel.writes == []


def test_part_whose_siblings_are_unknown(tmp_path):
    """Booted with nosmt, no topology cache: the siblings of the other cores have to come online,
    so all of them do first.
    """
    kernel = FakeKernel(tmp_path, numbered_cores(4, 2, "split"), control="off", offline=[3])
    learned = []
    after = smt_transition.disable("", [(0,), (1,), (2,)], files=kernel, only=frozenset({1}), learned=learned)
    assert (after["control"], after["online"]) == ("on", [0, 1, 2, 4, 6])
    assert smt_state.join_cores([], learned) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_part_named_by_a_sibling_of_unknown_core(tmp_path):
    kernel = FakeKernel(tmp_path, numbered_cores(4, 2, "split"), control="off")
    assert smt_transition.disable("", [(0,), (1,), (2,), (3,)], files=kernel, only=frozenset({5}))["online"] == [
        0,
        1,
        2,
        3,
        4,
        6,
        7,
    ]


def test_part_leaves_siblings_of_unknown_core_that_are_off_on_purpose(tmp_path):
    kernel = FakeKernel(tmp_path, numbered_cores(4, 2, "split"), offline=[7])
    assert smt_transition.disable("", [(0, 4), (1, 5), (2, 6), (3,)], files=kernel, only=frozenset({1}))["online"] == [
        0,
        1,
        2,
        3,
        4,
        6,
    ]


def test_part_keeps_the_wider_cores_of_a_hybrid(tmp_path):
    """Cores with and without a sibling: all cores with one are named,
    and the control still does not decide for the others.
    """
    cores = [(0, 1), (2, 3), (4,), (5,)]
    kernel = FakeKernel(tmp_path, cores, modern=True)
    after = smt_transition.disable("", cores, files=kernel, only=frozenset({0, 2}))
    assert (after["control"], after["active"], after["online"]) == ("on", False, [0, 2, 4, 5])


def test_a_state_from_what_files_read():
    assert smt_state.of(None, None, "0-1,4", None) == {
        "control": "absent",
        "active": None,
        "online": [0, 1, 4],
        "present": [0, 1, 4],
    }
    assert smt_state.of("off", False, "0", "0-1") == {
        "control": "off",
        "active": False,
        "online": [0],
        "present": [0, 1],
    }
    for online, present in ((None, "0-1"), ("", "0-1"), ("0-", "0-1"), ("0", "x")):
        with pytest.raises(smt_state.StateError, match=r"cpu/(online|present): "):
            smt_state.of("on", True, online, present)
