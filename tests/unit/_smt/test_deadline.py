# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads of SCHED_DEADLINE: kernels divide by zero when a CPU goes offline on which one sleeps (seen with 6.1)."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    change as smt_change,
    restore as smt_restore,
    state as smt_state,
    transition as smt_transition,
)
from fake_host import CORES, Host

ALL, ONE_EACH = list(range(8)), [0, 2, 4, 6]
REQUESTS = {
    "one by one": {"state": "disabled", "method": "cpu_online"},
    "of some cores, in check mode": {"state": "disabled", "cores": {"cpus": "4-7"}, "check": True},
    "by a number": {"threads": 1},
    "with what overrides conflicts": {"state": "disabled", "affinity_conflicts": "warn", "conflicts_of": []},
    "with a rollback": {"state": "disabled", "rollback_after": 60},
}
# Folder below /proc, name, flags, policy (fields 9 and 41 of stat), and whether it counts.
THREADS = {
    "a later thread": ("500/task/512", "worker 2) S", 0x400000, 6, True),
    "a user's name for it": ("500/task/500", "sugov:0", 0x400000, 6, True),
    "another thread of the kernel": ("60/task/60", "irq/24-nvme0q1", 0x208040, 6, True),
    "schedutil's": ("60/task/60", "sugov:0", 0x208040, 6, False),
    "of SCHED_FIFO": ("500/task/500", "jackd", 0x400000, 1, False),
}


@pytest.fixture(name="host")
def fake_host(tmp_path):
    return Host(tmp_path)


def put(host, folder="500/task/500", name="cyclicdl", flags=0x400000, policy=6):
    thread = folder.rpartition("/")[2]
    fields = ["S", "1", *["0"] * 4, str(flags), *["0"] * 12, "1000", *["0"] * 18, str(policy), *["0"] * 11]
    host.put(f"proc/{folder}/stat", f"{thread} ({name}) {' '.join(fields)}\n")


def online(host):
    return smt_state.read(files=host)["online"]


@pytest.mark.parametrize("request_options", REQUESTS.values(), ids=REQUESTS)
def test_nothing_goes_offline_whatever_is_asked_for(host, request_options):
    put(host)
    with pytest.raises(smt_change.ChangeRefusedError, match=r"SCHED_DEADLINE.*pid 500 cyclicdl\. .*chrt"):
        host.ask(**request_options)
    assert (host.writes, host.saved(), host.pending()) == ([], None, None)


@pytest.mark.parametrize(("folder", "name", "flags", "policy", "counts"), THREADS.values(), ids=THREADS)
def test_which_threads_count(host, folder, name, flags, policy, counts):
    put(host, folder, name, flags, policy)
    if counts:
        with pytest.raises(smt_change.ChangeRefusedError, match=f"pid {folder.rpartition('/')[2]} "):
            host.ask("disabled")
    else:
        assert host.ask("disabled")["after"]["online"] == "0,2,4,6"


def test_what_only_brings_cpus_online_is_not_refused(host):
    host.ask("disabled")
    put(host)
    assert host.ask("disabled")["changed"] is False
    assert (host.ask("enabled")["changed"], online(host)) == (True, ALL)


def test_what_goes_back_by_itself_waits_for_the_last_of_them(tmp_path):
    """The rollback of a change that brought CPUs online, the watchdog, and the end of an evaluation."""
    host = Host(tmp_path, control="off")
    host.ask("enabled", rollback_after=60)
    put(host)
    left = smt_restore.left(smt_restore.restore(host, host.pending()))
    assert (["pid 500 cyclicdl" in one for one in left], online(host)) == ([True, True], ALL)
    shutil.rmtree(pathlib.Path(host.sysroot, "proc/500"))
    assert (smt_restore.restore(host, host.pending()), online(host)) == ([], ONE_EACH)


def test_one_that_begins_after_the_look_at_them_is_seen_before_the_write(host):
    put(host)
    with pytest.raises(smt_state.StateError, match="pid 500"):
        smt_transition.disable(host.sysroot, CORES, files=host)
    assert host.writes == []


def test_unknown_cores_are_not_looked_at(tmp_path):
    """Which of their CPUs would have to go offline again is known afterwards."""
    host = Host(tmp_path, control="off")
    put(host)
    with pytest.raises(smt_state.StateError, match="pid 500"):
        host.ask("disabled", cores={"cpus": "0"})
    assert (host.writes, online(host)) == ([], ONE_EACH)
