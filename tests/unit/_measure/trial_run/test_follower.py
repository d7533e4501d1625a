# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part of a trial: the schedule, the checks, that it goes back whatever happens; files of others."""

import datetime
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import types

import answer_maker
import pytest
import trial_maker
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.action import smt_trial_design, smt_trial_host, smt_trial_report
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    directory,
    follower,
    host_check,
    live_host,
    looking,
)

TIMES = follower.Times(period=60.0, settle=10.0, check=10.0)
OWN, HALF = (0, 1, 2, 3), (0, 2)
SCHEDULE = ("smt_on", "smt_off", "smt_off", "smt_on")


class World:
    """A host, its metrics and the clocks, which move only when somebody waits."""

    def __init__(self):
        self.time = 100.0
        self.started = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
        self.done, self.records = [], []
        self.online, self.armed = OWN, False
        self.at = {}
        self.stop = None

    def now(self):
        return self.time

    def wall(self):
        return self.started + datetime.timedelta(seconds=self.time)

    def sleep(self, seconds):
        assert 0 < seconds <= TIMES.check
        self.time += seconds
        for moment in sorted(one for one in self.at if one <= self.time):
            self.at.pop(moment)()

    is_booted = False

    def switch(self, arm, timer_seconds):
        self.done.append((round(self.time - 100), arm))
        assert timer_seconds == 60
        self.online, self.armed = (HALF if arm == "smt_off" else OWN), True
        return self.online

    def after_switch(self, before):
        return None

    def check(self):
        return host_check.Checked(self.online, self.armed, ())

    def restore(self):
        self.done.append((round(self.time - 100), "own"))
        self.online, self.armed = OWN, False
        return OWN

    def start_period(self):
        pass

    def watch(self, now, checked):
        return None

    def of_period(self, begin, end):
        return {"p99": records.Reading((end - begin).total_seconds(), 4, 4, None)}, {}

    def period(self, record):
        self.records.append(record)

    def stopped(self):
        return self.stop

    def follow(self, schedule=SCHEDULE):
        return follower.Follower(self, self, self, self, TIMES, OWN).follow(schedule, 0, 100.0)


@pytest.fixture(name="world")
def a_world():
    return World()


def test_each_period_is_in_its_arm_and_the_host_goes_back(world):
    assert world.follow() is None
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (180, "smt_on"), (240, "own")]
    found = [(one.number, one.arm, one.complete) for one in world.records]
    assert found == [(number, arm, True) for number, arm in enumerate(SCHEDULE)]
    # What is counted is the period without what settles.
    assert {one.metrics["p99"].value for one in world.records} == {50.0}
    assert [one.started for one in world.records] == [f"2026-11-23T12:0{1 + number}:40Z" for number in range(4)]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"watch": lambda now, checked: "p99 is above 0.5"}, "p99 is above 0.5"),
        ({"online": (0, 1, 2)}, "CPUs 0-2 are online instead of 0,2: somebody else changed them"),
        ({"armed": False}, "the timer that brings it back is gone"),
        ({"stop": "another host's guardrail was breached"}, "another host's guardrail was breached"),
    ],
)
def test_a_host_goes_back_at_the_next_check(world, what, reason):
    world.at[100 + 85.0] = lambda: vars(world).update(what)
    assert world.follow() == reason
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (90, "own")]
    assert [(one.complete, one.reason) for one in world.records] == [(True, None), (False, reason)]
    assert world.records[1].metrics == {}


def raising(error):
    def act(*_given):
        raise error

    return act


def test_what_a_lost_host_did_before_is_kept(world):
    world.at[100 + 85.0] = lambda: vars(world).update(check=raising(follower.HostLostError("no answer for 60 s")))
    assert world.follow() == "no answer for 60 s"
    assert [one.complete for one in world.records] == [True] and world.done[-1] == (90, "own")


@pytest.mark.parametrize(("seconds", "counted"), [(5.0, 45.0), (20.0, 30.0), (40.0, None)])
def test_what_settles_begins_when_a_switch_has_ended(world, seconds, counted):
    switch = world.switch

    def slow(arm, timer_seconds):
        world.time += seconds
        return switch(arm, timer_seconds)

    world.switch = slow
    world.follow()
    # The third period follows its own arm, and needs no switch.
    values = [one.metrics["p99"].value if one.metrics else None for one in world.records]
    assert values == [
        counted,
        counted,
        50.0,
        counted,
    ]
    said = "the switch took so long that 10 s of the period were left to count: give it longer"
    assert [said in (one.reason or "") for one in world.records] == [not counted, not counted, False, not counted]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), OSError()])
def test_the_host_goes_back_when_the_controller_ends(world, error):
    world.at[100 + 85.0] = raising(error)
    with pytest.raises(type(error)):
        world.follow()
    assert world.done[-1] == (90, "own")


def test_a_host_that_cannot_be_switched_leaves(world):
    world.switch = raising(follower.SwitchError("3 affinity conflict(s)"))
    assert world.follow() == "3 affinity conflict(s)"
    assert world.done == [(0, "own")]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_period_in_which_the_clock_was_set_has_no_numbers_and_the_next_one_has(world, hours):
    world.at[100 + 85.0] = lambda: setattr(world, "started", world.started + datetime.timedelta(hours=hours))
    assert world.follow() is None
    said = f"the controller's clock was set by {3600 * hours} s in this period"
    assert [one.reason for one in world.records] == [None, said, None, None]
    assert world.done == [(0, "smt_on"), (60, "smt_off"), (180, "smt_on"), (240, "own")]


def test_a_host_that_was_rebooted_needs_its_timer_also_with_all_cpus_online(world):
    world.switch = lambda arm, timer_seconds: OWN
    world.is_booted = True
    assert world.follow(["mitigations_auto"]) == "the timer that brings it back is gone"
    world.armed = True
    assert world.follow(["mitigations_auto"]) is None


PRINTS = ["sh", "-c", "printf 'two\\nlines'; exit 3"]
COMMANDS = [["echo", "1.5"], ["false"], PRINTS, ["printf", "%s", "$(id) `id` ; '"], ["no-such-command"], ["yes", "0-7"]]


def shell(line, folder=None, systemctl=""):
    """What a line prints, with this systemctl where a folder is given."""
    if folder:
        (folder / "systemctl").write_text(f"#!/bin/sh\n{systemctl}\n")
        (folder / "systemctl").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}" if folder else os.environ["PATH"]
    return subprocess.run(["sh", "-c", line], check=False, stdout=-1, text=True, env={"PATH": path}).stdout


def test_a_check_in_a_shell():
    found = host_check.parse(shell(host_check.check(COMMANDS)), len(COMMANDS))
    with open("/sys/devices/system/cpu/online", encoding="ascii") as online:
        assert found.online == cpulist.parse(online.read())
    assert found.printed[:5] == ("1.5\n", "", "two\nlines", "$(id) `id` ; '", "")
    assert len(found.printed[5]) == host_check.MAX_OF_ONE, "what is printed without end is cut off"


def test_an_answer_that_is_none():
    for printed, about in (
        ("", "0 lines instead of 3"),
        ("all\n0\nMQ==\n", "online CPUs"),
        ("0-99999\n0\nMQ==\n", "online CPUs"),
        ("0-3\n0\n\x1b[31m\n", "its commands printed"),
        (None, "instead of 3"),
    ):
        with pytest.raises(host_check.CheckError, match=about):
            host_check.parse(printed, 1)


def test_whether_what_undoes_a_boot_waits(tmp_path):
    for reload, state, is_armed in ((0, "active", True), (1, "activating", True), (1, "failed", False)):
        systemctl = f'[ "$1" = is-active ] && echo {state} && exit 3\nexit {reload}'
        assert host_check.parse(shell(host_check.check((), visit.RENEW), tmp_path, systemctl), 0).is_armed is is_armed


def test_whether_the_timer_runs():
    assert [host_check.parse(f"0-3\n{line}\n", 0).is_armed for line in ("0", "5", "", "x")] == [True] + [False] * 3


RESTART = ("systemctl", "restart", "nginx")


class Calls:
    """A host whose nginx has four workers, or as many as its last start found."""

    def __init__(self, workers=4, code=0):
        self.workers, self.code, self.ran, self.asked = workers, code, [], []

    def ask(self, _kind, module, arguments, _seconds):
        self.asked.append(arguments["cpus"])
        if arguments["cpus"] != self.workers:
            return answer_maker.made(module, workers=[], consumers=[])
        ingest = {"unit": "ingest.service", "name": "ingest", "kind": "processes"}
        nginx = {"unit": "nginx.service", "has": "4 worker processes for 4 CPUs"}
        return answer_maker.made(module, workers=[ingest], consumers=[nginx])

    def run(self, command, _most):
        self.ran.append(command)
        return {"rc": self.code, "stdout": "", "stderr": "no such unit"}


NAMED = "nginx.service (4 worker processes for 4 CPUs), ingest.service (4 processes ingest)"
THESE = "these still run as with the CPUs from before,"


@pytest.mark.parametrize(
    ("hook", "calls", "said"),
    [
        ((), Calls(), f"{THESE} and smt_trial_consumers does not make them follow: {NAMED}"),
        (RESTART, Calls(), f"{THESE} although systemctl restart nginx was run: {NAMED}"),
        (RESTART, Calls(code=5), "systemctl restart nginx ended with 5: no such unit"),
        (RESTART, Calls(workers=2), None),
    ],
)
def test_services_that_did_not_count_their_cpus_again_are_named_once(hook, calls, said):
    host = live_host.AnsibleHost(calls, {}, hook)
    assert host.after_switch(4) == said
    if not calls.code:
        # Back to four CPUs: nobody believes in two, unless the service has just been started.
        host.after_switch(2)
        assert host.after_switch(4) is None and calls.asked == [4, 2] and calls.ran == [" ".join(hook)] * 3 * bool(hook)


SWITCHES = {"affinity_conflicts": "fail", "consumers": {"nginx": "restart"}, "consumers_custom": []}


def bare(**fields):
    action = smt_trial_host.ActionModule.__new__(smt_trial_host.ActionModule)
    vars(action).update(_name="web1", _vars={}, **fields)
    return action


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
    return bare(_options=types.SimpleNamespace(**options), _readings=types.SimpleNamespace(commands=[])), files, trial


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
    assert end == records.End(host="web1", ended=end.ended, restored=True, before=None, after=None, reason=reason)
    for host in list(trial.design.schedule)[1:]:
        part = looking.HostFiles(files, trial, host, lambda _line: None)
        for number in range(4):
            part.period(trial_maker.record(number, trial.design.schedule[host][number]))
    assert looking.looks_of(files).taken


def test_a_host_that_is_left_out_is_not_contacted_and_has_no_end(action):
    action, files, _trial = action
    action._name = "web9"
    assert carry_out(action, AssertionError()) == {"changed": False, "msg": "it does not take part"}
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


def test_names_of_hosts_that_could_not_be_read_again_are_left_out():
    why = smt_trial_design._why_not_this_name
    assert (why("wéb-1"), why("x" * 5000)) == (None, "its name has 5000 characters, more than 255")
    found = {why(f"web{hidden}1") for hidden in "\u200e\x1b\n\ud800"}
    assert found == {"its name has characters that cannot be shown"}


DEEP = '{"reason":' * 50_000 + "1" + "}" * 50_000
AT = "2026-11-23T12:00:00Z"


@pytest.fixture(name="followed", scope="module")
def a_followed_trial(tmp_path_factory):
    files, trial, *_rest = trial_maker.followed(tmp_path_factory.mktemp("trials") / "october", effect=0.0)
    assert files.ended() is None
    return files, trial


@pytest.fixture(name="made")
def its_copy(followed, tmp_path):
    files, trial = followed
    return directory.TrialDirectory(pathlib.Path(shutil.copytree(files.path, tmp_path / "trials" / "october"))), trial


def report(files):
    """Build the report. Returns what the task returns, and the page."""
    action = smt_trial_report.ActionModule.__new__(smt_trial_report.ActionModule)
    action._task = types.SimpleNamespace(check_mode=False)
    result = action.act(types.SimpleNamespace(trial_dir=str(files.path)), {})
    return result, (files.path / "index.html").read_text(encoding="utf-8")


def changed(number, **fields):
    """Change fields of a line of a file."""

    def damage(path):
        found = path.read_text().splitlines()
        found[number] = json.dumps({**json.loads(found[number]), **fields})
        path.write_text("\n".join(found) + "\n")

    return damage


def replaced(content):
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def added(content):
    return lambda path: path.write_bytes(path.read_bytes() + content.encode())


def instead(make):
    return lambda path: (path.unlink(), make(path))


DAMAGES = {
    "not UTF-8": replaced(b'{"period": "\xff"}\n'),
    "nested deeply": added(DEEP + "\n"),
    "larger than any": lambda path: os.truncate(path, 2**40),
    "a period that the design does not have": changed(8, period=24),
    "a day that there is not": changed(3, started="2026-13-45T99:99:99Z"),
    "a link": lambda path: path.rename(path.with_name("x")) and path.symlink_to("x"),
    "a pipe": instead(os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_host_whose_file_is_damaged_is_left_out_and_named_and_the_others_count(made, damage):
    files, trial = made
    damage(files.host_file("web2"))
    seen = looking.known(files, trial)
    assert list(seen.unreadable) == ["web2"] and len(seen.unreadable["web2"]) < 500
    assert seen.unreadable["web2"].startswith("hosts/web2.periods.jsonl: ")
    assert [host for host, of_host in seen.periods.items() if of_host] == ["web1", "web3", "web4"]


def test_the_report_names_a_host_whose_file_is_damaged_and_counts_the_others(made):
    files, _trial = made
    assert "warnings" not in report(files)[0]
    DAMAGES["a day that there is not"](files.host_file("web2"))
    result, page = report(files)
    (warning,) = result["warnings"]
    assert warning.startswith("web2 counts for nothing: hosts/web2.periods.jsonl: period 4: ")
    assert "p99 changes by " in result["answer"][0] and "Not over yet" not in page
    assert "web2: its files cannot be read, so it counts for nothing" in " ".join(page.split())
    results = json.loads((files.path / "results.json").read_text())
    assert warning in results["others"] and results["comparisons"]


END = {"host": "web2", "ended": AT, "reason": None, "restored": True, "before": "0-3", "after": "0-3"}


def test_a_report_replaces_links_and_pipes_and_does_not_write_through_them(made, tmp_path):
    files, _trial = made
    (tmp_path / "precious").write_text("precious")
    os.mkfifo(files.path / "index.html")
    (files.path / "results.json").symlink_to(tmp_path / "precious")
    report(files)
    assert (tmp_path / "precious").read_text() == "precious"
    assert all(stat.S_ISREG((files.path / name).lstat().st_mode) for name in ("index.html", "results.json"))


def test_looks_that_cannot_be_read_end_the_trial_and_are_named(made):
    files, trial = made
    (files.path / "looks.jsonl").write_text("{}\n")
    looking.HostFiles(files, trial, "web1", lambda _line: None).ended(records.End(**{**END, "host": "web1"}))
    assert files.ended().startswith("its looks cannot be read: looks.jsonl: ")
    with pytest.raises(Exception, match=r"^looks\.jsonl: "):
        report(files)


STOPS = {
    "deep": replaced(DEEP),
    "no text": replaced('{"reason": 1}'),
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("make", STOPS.values(), ids=STOPS)
def test_whatever_has_the_name_of_the_end_ends_the_trial_and_says_so(made, make):
    files, _trial = made
    make(files.path / "ended.json")
    reason = files.ended()
    assert reason.startswith("somebody else ended the trial by ended.json, ") and len(reason) < 500
    files.end("a guardrail")
    assert files.ended() == reason


EDITS = {
    "no document": lambda _document: {},
    "no host": lambda document: {**document, "hosts": {}, "groups": [], "waves": []},
    "lone hosts": lambda document: {**document, "design": "parallel", "groups": [[one] for one in document["hosts"]]},
    "a traffic that is not there": lambda document: {**document, "traffic": "none"},
}


@pytest.mark.parametrize("content", [*EDITS, DEEP, "x", b"\xff"], ids=[*EDITS, "deep", "no JSON", "not UTF-8"])
def test_a_design_that_no_lot_draws_or_that_cannot_be_read_is_refused(made, content):
    files, trial = made
    replaced(json.dumps(EDITS[content](parts.plain(trial))) if content in EDITS else content)(files.path / "trial.json")
    with pytest.raises(text.BorderError, match=r"^trial\.json: "):
        files.trial()


def test_nobody_is_switched_by_a_design_that_was_changed(made):
    files, trial = made
    digest = trial_maker.digest(files)
    assert files.trial(digest) == trial
    path = files.path / "trial.json"
    path.write_text(path.read_text().replace("smt_off", "threads_per_core_1"))
    assert files.trial().arms == ("smt_on", "threads_per_core_1")
    with pytest.raises(text.BorderError, match=r"trial\.json: somebody has changed it since the schedule was drawn"):
        files.trial(digest)


@pytest.mark.parametrize("name", ["trial.json", "hosts", "looks.jsonl", "ended.json"])
def test_a_trial_does_not_begin_with_what_another_left(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "nothing")
    files = directory.TrialDirectory(tmp_path / "run")
    for begin in (files.see_that_none_exists, lambda: files.create("{}")):
        with pytest.raises(directory.TrialFileError, match="a run never overwrites another"):
            begin()


@pytest.mark.parametrize("place", ["run", "run/.lock"])
def test_a_trial_does_not_begin_through_a_link(tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("precious")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / ("elsewhere" if place == "run" else "elsewhere/precious"))
    with pytest.raises(directory.TrialFileError, match="it is a link"):
        directory.TrialDirectory(tmp_path / "run").create("{}")
    assert [path.read_text() for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]
