# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services protected from the OOM killer, what is saved of a policy, and what this machine does with requests."""

from __future__ import annotations

import json
import os
import stat
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    overcommit_test,
    policy as memory_policy,
    snapshot as memory_snapshot,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.overcommit_test import MIB
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.policy import (
    HUGEPAGES,
    KBYTES,
    OVERCOMMIT,
    RATIO,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score
from fake_memory import Systemd, process
from hypothesis import given, strategies as st
from memory_tree import put, tree

DROP_IN = "etc/systemd/system/db.service.d/zz-threadwise-smt-memory.conf"


@pytest.fixture(name="booted", autouse=True)
def booted_with_systemd(tmp_path):
    put(tmp_path, "run/systemd/system/README", "")


def score(root, pid):
    return int((root / f"proc/{pid}/oom_score_adj").read_text())


def protect(root, run, names, saved=None):
    """Do what the transaction does, but return the scores to save instead of writing them to a file."""
    fs, saved = HostFs(str(root)), saved or {}
    work = oom_score.work_out(fs, run, names, saved)
    files = oom_score.files(work)
    config_files.apply(fs, config_files.changes(fs, files))
    if files:
        oom_score.remove_empty_folders(fs, files)
        oom_score.reload_units(run)
    oom_score.set_scores(fs, run, work)
    return {unit: one for unit, one in oom_score.to_save(saved, work).items() if unit not in work["release"]}


def converged(root, run, names, saved):
    work = oom_score.work_out(HostFs(str(root)), run, names, saved)
    return not work["protect"] and not work["release"]


def test_protect_and_restore(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 10, "score": 100})
    for pid in (10, 11):
        process(tmp_path, pid, 100)
    process(tmp_path, 12, 7)
    # A drop-in of the administrator stays.
    put(tmp_path, "etc/systemd/system/db.service.d/own.conf", "[Service]\n")
    kept = protect(tmp_path, run, ["db"])
    assert (tmp_path / DROP_IN).read_text().endswith("[Service]\nOOMScoreAdjust=-900\n")
    # Process 12 has set its own score.
    assert [score(tmp_path, pid) for pid in (10, 11, 12)] == [-900, -900, 7]
    assert converged(tmp_path, run, ["db.service"], kept)
    # A child that was forked later has inherited the score.
    process(tmp_path, 13, -900)
    assert protect(tmp_path, run, [], kept) == {} and os.listdir((tmp_path / DROP_IN).parent) == ["own.conf"]
    assert [score(tmp_path, pid) for pid in (10, 11, 12, 13)] == [100, 100, 7, 100] and run.reloads == 2


def test_who_sets_scores_itself_is_left_alone(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 10}, dbus={"main": 20, "score": -900})
    assert converged(tmp_path, run, ["dbus"], {})
    process(tmp_path, 10, 0)
    kept = protect(tmp_path, run, ["db"])
    # A backend that resets its score.
    process(tmp_path, 11, 0)
    assert converged(tmp_path, run, ["db"], kept) and score(tmp_path, 11) == 0


def test_what_cannot_be_protected_is_refused_before_anything_is_done(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 0})
    with pytest.raises(oom_score.UnitError, match=r"nosuch\.service"):
        protect(tmp_path, run, ["db", "nosuch"])
    (tmp_path / "run/systemd/system/README").unlink()
    (tmp_path / "run/systemd/system").rmdir()
    with pytest.raises(oom_score.UnitError, match=r"protect names db.service, and systemd, .* does not run"):
        protect(tmp_path, run, ["db"])
    assert protect(tmp_path, run, []) == {} and os.listdir(tmp_path) == ["run"]


def test_a_drop_in_that_overrides_ours_is_named(tmp_path):
    run = Systemd(str(tmp_path), db={"main": 0, "score": -100})
    (sentence,) = oom_score.overrides(oom_score.shown_scores(run, ["db.service"]))
    assert "db.service: another drop-in sets OOMScoreAdjust to -100" in sentence
    protect(tmp_path, run, ["db"])
    assert oom_score.overrides(oom_score.shown_scores(run, ["db.service"])) == []


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("sshd", "sshd.service"),
        ("postgresql@15-main.service", "postgresql@15-main.service"),
        ("a\\x2db:c_d.e", "a\\x2db:c_d.e.service"),
        *((name, None) for name in ("", "../../etc/passwd", "a b", "a\n[Service]", "$(x)", "a@.service", "@b")),
        *((name, None) for name in ("a" * 256, "a\0b", "\u00e4", ".service")),
    ],
)
def test_names_of_services(name, full):
    if full is None:
        with pytest.raises(oom_score.UnitError, match="is not a valid name"):
            oom_score.check_name(name)
    else:
        assert oom_score.check_name(name) == full


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


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_allocatable_measures_what_one_process_can_allocate():
    measured = overcommit_test.allocatable()
    assert measured["largest_bytes"] > 0 and measured["largest_bytes"] % MIB == 0
    assert measured["total_limited"] in (True, False)


@pytest.mark.parametrize(
    ("length", "touch", "outcome", "touched"),
    [(1 << 60, False, "enomem", 0), (4 * MIB, False, "granted", 0), (20 * MIB, True, "survived", 20 * MIB)],
)
def test_what_becomes_of_a_request(length, touch, outcome, touched):
    assert overcommit_test.run(length, touch) == {"outcome": outcome, "touched_bytes": touched}


def test_what_has_no_result_or_hangs_is_an_error():
    with pytest.raises(overcommit_test.OvercommitTestError, match="without a result"):
        overcommit_test.run(0)
    begun = time.monotonic()
    with pytest.raises(overcommit_test.OvercommitTestError, match="was killed"):
        overcommit_test._in_child(lambda _report: (time.sleep(20), os._exit(0)), 0.1)
    assert time.monotonic() - begun < 15
