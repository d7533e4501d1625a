# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services protected from the OOM killer: names, drop-ins, processes, and how the protection is removed."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory.services import oom_score
from fake_memory import Systemd, process
from hypothesis import given, strategies as st
from memory_tree import put

DROP_IN = "etc/systemd/system/db.service.d/zz-threadwise-smt-memory.conf"


@pytest.fixture(name="booted", autouse=True)
def booted_with_systemd(tmp_path):
    put(tmp_path, "run/systemd/system/README", "")


def score(root, pid):
    return int((root / f"proc/{pid}/oom_score_adj").read_text())


def protect(root, run, names, saved=None, meanwhile=lambda: None):
    """Do what the transaction does, but return the scores to save instead of writing them to a file."""
    fs, saved = HostFs(str(root)), saved or {}
    work = oom_score.work_out(fs, run, names, saved)
    meanwhile()
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


def test_a_process_that_has_ended_is_not_an_error(tmp_path):
    for pid in (10, 11):
        process(tmp_path, pid, 0)

    def end():
        os.unlink(tmp_path / "proc/11/oom_score_adj")
        os.rmdir(tmp_path / "proc/11")

    protect(tmp_path, Systemd(str(tmp_path), db={"main": 10}), ["db"], meanwhile=end)
    assert score(tmp_path, 10) == -900


def test_a_service_that_was_removed_is_released(tmp_path):
    put(tmp_path, DROP_IN, oom_score.TEXT)
    assert protect(tmp_path, Systemd(str(tmp_path)), [], {"db.service": 0}) == {}
    assert not (tmp_path / DROP_IN).exists()


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


@given(st.text(max_size=300))
def test_no_name_leaves_the_directory_of_units(name):
    try:
        path = oom_score.drop_in_path(oom_score.check_name(name))
    except oom_score.UnitError:
        return
    assert os.path.normpath(path) == path and path.count("/") == 4 and path.isprintable()
