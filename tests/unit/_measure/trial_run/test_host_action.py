# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action of smt_trial_host asks of a host, and that a host which is lost keeps the reason that its part ended
with.
"""

from __future__ import annotations

import signal
import types

import pytest
import trial_maker
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.action import smt_trial_design, smt_trial_host
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostAction, HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    directory,
    follower,
    host_check,
    live_host,
    looking,
)

SWITCHES = {"affinity_conflicts": "fail", "consumers": {"nginx": "restart"}, "consumers_custom": []}


def bare(**fields):
    action = smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule)
    vars(action).update(_name="web1", _vars={}, **fields)
    return action


@pytest.mark.parametrize("refused", [True, False])
def test_an_arm_is_asked_for_with_its_rollback_timer_before_the_trial_and_what_it_warns_of_is_said(
    monkeypatch, refused
):
    """In check mode, smt_state says so where a host has no systemd: not in the first period with that arm."""
    action = bare(_task=types.SimpleNamespace(check_mode=False), _options={**SWITCHES, "affinity_conflicts_of": []})
    asked, said = [], []

    def ask(_self, module, _kind, arguments, _task_vars):
        asked.append((module, arguments["consumers"], arguments["rollback_after"] > 0, action._task.check_mode))
        if refused:
            raise HostFailedError({"failed": True, "msg": "rollback_after needs systemd"})
        return {"changed": True, "warnings": ["nginx.service has 4 worker processes"]}

    monkeypatch.setattr(HostAction, "ask", ask)
    found = action._conflicts("smt_off", said), said
    assert found == (
        ("smt_off is refused: rollback_after needs systemd", [])
        if refused
        else (None, ["nginx.service has 4 worker processes"])
    )
    assert asked == [("smt_state", {"nginx": "restart"}, True, True)] and action._task.check_mode is False


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (None, []),
        ("each arm is decided: SMT off: worse", []),
        ("CPUs 0-2 are online", ["web1: left the trial, and is in its own state: CPUs 0-2 are online"]),
    ],
)
def test_a_host_that_left_is_named_and_one_whose_trial_was_decided_is_not(monkeypatch, reason, shown):
    said = []
    monkeypatch.setattr(smt_trial_host.display, "display", said.append)
    result = bare(_options={"on_breach": "end"})._result(None, reason, True)
    assert result == {"changed": True, "reason": reason, "msg": reason or "its schedule is done"}
    assert [line[: len(start)] for line, start in zip(said, shown, strict=True)] == shown


# A clock that stands still.
CLOCK = types.SimpleNamespace(now=lambda: 0.0, wall=lambda: trial_maker.BEGIN)


@pytest.fixture(name="action")
def an_action(tmp_path, monkeypatch):
    """The action of web1 in a trial that has just been drawn; the signal is this process's own again afterwards."""
    files, trial = trial_maker.begun(tmp_path / "trials" / "october")
    where = {"dest": str(tmp_path / "trials"), "run": "october", "digest": trial_maker.digest(files)}
    times = {"check": 10, "begin": 0.0, "on_breach": "continue", "design": "switchback", "after_switch": []}
    options = {**SWITCHES, **times, **where, "affinity_conflicts_of": [], "arms": list(trial.arms)}
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    return bare(_options=options, _readings=types.SimpleNamespace(commands=[])), files, trial


def carry_out(action, first_check):
    """Carry out the host's part, whose first check returns or raises this. Returns what came of it."""

    def check(_self):
        if isinstance(first_check, BaseException):
            raise first_check
        return first_check

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_host.AnsibleHost, "check", check)
        try:
            with action._end_written():
                return action._follow(CLOCK)
        except BaseException as error:
            return error


CHECKED = host_check.Checked((0, 1), True, ())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (follower.HostLostError("no answer in 3 attempts"), "no answer in 3 attempts"),
        (AnsibleConnectionFailure("no route"), "no route"),
        (KeyboardInterrupt(), "the controller was interrupted"),
        (ValueError("x" * 10**6), "x" * 1997 + "..."),
        (RecursionError(), "the controller was interrupted"),
    ],
)
def test_a_host_that_is_lost_before_its_first_check_has_an_end_and_is_not_waited_for(action, error, reason):
    action, files, trial = action
    assert carry_out(action, error) is error
    end = looking.known(files, trial).ends["web1"]
    assert end == records.WrittenEnd(restored=True, before=None, after=None, reason=reason)
    for host in list(trial.design.schedule)[1:]:
        part = looking.HostFiles(files, trial, host, lambda _line: None)
        for number in range(4):
            part.period(trial_maker.record(number, trial.design.schedule[host][number]))
    assert looking.looks_of(files).taken


def test_a_host_without_a_design_has_an_end_too_and_one_that_is_left_out_has_none(action):
    action, files, trial = action
    path, contacted = files.path / "trial.json", AssertionError("it was contacted")
    written = path.read_text()
    path.write_text(written.replace("0.01", "0.02", 1))
    error = carry_out(action, contacted)
    path.write_text(written)
    assert isinstance(error, directory.TrialFileError)
    assert looking.known(files, trial).ends["web1"].reason == str(error)
    action._name = "web9"
    assert carry_out(action, contacted) == {"changed": False, "msg": "it does not take part"}
    assert not files.ended_file("web9").exists()


@pytest.mark.parametrize("restored", [True, False])
def test_a_record_that_cannot_be_written_is_the_hosts_failure_and_its_state_is_named(action, monkeypatch, restored):
    action, files, trial = action
    warned = []
    monkeypatch.setattr(smt_trial_host.display, "warning", warned.append)

    def follow(part, *_schedule):
        part.online_after = (0, 1) if restored else None
        files.host_file("web1").symlink_to("/dev/full")
        files.ended_file("web1").mkdir()
        action._in_trial.period(trial_maker.record(0, trial.design.schedule["web1"][0]))

    monkeypatch.setattr(follower.Follower, "follow", follow)
    result = carry_out(action, CHECKED)
    assert result["failed"] and result["changed"]
    state = "it left the trial, and is in its own state: " if restored else "it may not be in its own state: "
    assert result["msg"].startswith(f"web1: {state}") and (not restored or "web1.periods.jsonl" in result["msg"])
    assert len(warned) == 1 and "web1.ended.jsonl" in warned[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("web1", None),
        ("wéb-1", None),
        ("x" * 5000, "its name has 5000 characters, more than 255"),
        *[(f"web{hidden}1", "its name has characters that cannot be shown") for hidden in "\u200e\x1b\n\ud800"],
    ],
    ids=repr,
)
def test_names_of_hosts_that_could_not_be_read_again_are_left_out(name, reason):
    assert smt_trial_design._why_not_this_name(name) == reason
