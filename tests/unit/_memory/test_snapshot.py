# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is saved of a host's policy before a change, and how it is restored."""

from __future__ import annotations

import json
import os
import stat

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    facts as memory_facts,
    policy as memory_policy,
    snapshot as memory_snapshot,
)
from ansible_collections.threadwise.smt.plugins.module_utils._memory.policy import HUGEPAGES, KBYTES, OVERCOMMIT, RATIO
from hypothesis import given, strategies as st
from memory_tree import put, tree

KEPT = "var/lib/threadwise-smt/memory.json"
NOTHING = {"sysctls": {}, "units": {}}
# In the kernel at least one of ratio and kbytes is 0.
AMOUNTS = st.one_of(st.tuples(st.integers(0, 200), st.just(0)), st.tuples(st.just(0), st.integers(1, 10**7)))
POLICIES = st.builds(
    lambda overcommit, amount, *others: dict(zip(memory_policy.SYSCTLS, (overcommit, *amount, *others), strict=True)),
    *(st.integers(0, 2), AMOUNTS, st.integers(0, 2), st.integers(-1, 30), st.integers(0, 9)),
)


@given(present=POLICIES, saved=POLICIES)
def test_restoring_gives_the_saved_settings(present, saved):
    assert memory_policy.resulting(present, memory_snapshot.settings_to_restore(present, saved)) == saved
    assert memory_snapshot.settings_to_restore(saved, saved) == {}


def test_the_first_value_is_kept_and_ratio_and_kbytes_are_saved_as_a_pair(tmp_path):
    fs = HostFs(tree(tmp_path, overcommit_ratio=55))
    first = memory_snapshot.with_present(NOTHING, memory_facts.read_settings(fs), [RATIO])
    assert first["sysctls"] == {RATIO: 55, KBYTES: 0}
    memory_snapshot.save(fs, first)
    put(tmp_path, "proc/sys/vm/overcommit_ratio", "90\n")
    second = memory_snapshot.with_present(memory_snapshot.load(fs), memory_facts.read_settings(fs), [OVERCOMMIT, RATIO])
    assert second["sysctls"] == {RATIO: 55, KBYTES: 0, OVERCOMMIT: 2}


def test_the_snapshot_is_for_root_only_and_removed_when_nothing_is_left(tmp_path):
    fs = HostFs(str(tmp_path))
    memory_snapshot.save(fs, {"sysctls": {OVERCOMMIT: 0}, "units": {}})
    assert stat.S_IMODE(os.stat(tmp_path / KEPT).st_mode) == 0o600
    for _again in range(2):
        memory_snapshot.save(fs, NOTHING)
        assert not (tmp_path / KEPT).exists() and memory_snapshot.load(fs) == NOTHING


GOOD = {"schema": "threadwise.smt/memory", "schema_version": 1, "sysctls": {OVERCOMMIT: 0}, "units": {"a.service": 0}}
DAMAGES = [
    *({"schema": "other"}, {"schema_version": 2}, {"units": 5}),
    *({"sysctls": one} for one in ([1], {"kernel.core_pattern": 0}, {OVERCOMMIT: "|/bin/sh"}, {OVERCOMMIT: True})),
    *({"units": one} for one in ({"../x": 0}, {"*.service": 0}, {"a.service": "0"}, {"a.service": None})),
]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100000, *(json.dumps({**GOOD, **damage}) for damage in DAMAGES)], ids=len
)
def test_a_damaged_snapshot_is_refused_with_a_way_out(tmp_path, text):
    put(tmp_path, KEPT, json.dumps(GOOD))
    assert memory_snapshot.load(HostFs(str(tmp_path))) == {name: GOOD[name] for name in ("sysctls", "units")}
    put(tmp_path, KEPT, text)
    with pytest.raises(memory_snapshot.MemorySnapshotError, match=r"memory.json cannot be used.*[Rr]emove it"):
        memory_snapshot.load(HostFs(str(tmp_path)))


def test_a_write_is_read_back(tmp_path):
    fs = HostFs(tree(tmp_path))
    memory_snapshot.write(fs, {RATIO: 60, OVERCOMMIT: 2})
    assert memory_facts.read_settings(fs)[RATIO] == 60
    os.unlink(tmp_path / "proc/sys/vm/nr_hugepages")
    os.symlink("/dev/null", tmp_path / "proc/sys/vm/nr_hugepages")
    with pytest.raises(memory_snapshot.MemorySnapshotError, match=r"after 99 was written.*fragmented"):
        memory_snapshot.write(fs, {HUGEPAGES: 99})
