# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known before anything is measured: nothing is overwritten or measured in vain; and plans that say nothing."""

from __future__ import annotations

import itertools
import json
import types

import answer_maker
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark, smt_benchmark_stop
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import fetching, progress
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions

LISTS = ("announcement", "arms", "arms_left_out", "workloads_left_out", "missing_packages", "obstacles", "uncollected")
DESCRIBED = {**{name: [] for name in LISTS}, "workloads": ["gzip"], "directory": "/runs"}
DESCRIBED |= {"hides_siblings": False, "busy": 0.0}


class Benchmark(smt_benchmark.ActionModule):
    """The action with a host that answers what a test says. ``asked`` has what reached the host."""

    def __init__(self, dest, run="one", check_mode=False, kept=(), options=(), busy=(), **described):
        self._task = types.SimpleNamespace(args={"run": run, "dest": str(dest), **dict(options)}, check_mode=check_mode)
        self.kept = {document["run"]: document for document in kept}
        self.described = parts.converted(
            {**DESCRIBED, "uncollected": list(self.kept), **described}, answers.Description
        )
        self.busy, self.asked = list(busy), []

    def _step(self, task_vars, step, kind):
        self.asked.append(step)
        return parts.changed(self.described, busy=self.busy.pop(0) if self.busy else 0.0)

    def ask(self, kind, module, arguments, task_vars, **how):
        self.asked.append(
            f"probe {arguments['seconds']}" if module == "smt_probe" else f"{arguments['_step']} {arguments['run']}"
        )
        return answers.Collected(result=self.kept[arguments["run"]]) if kind is answers.Collected else None

    def _measure(self, task_vars, host, directory, lines):
        self.asked.append("measure")
        self.kept["one"] = made("one")
        return {"message": None}

    def evaluate(self):
        hosts = ["web01"]
        return self._evaluate(
            {"inventory_hostname": "web01", "ansible_play_hosts_all": hosts, "ansible_play_batch": hosts}
        )


class Ended(Benchmark):
    """The action of a controller that is lost, or whose task ends, while the host measures."""

    error: type[BaseException] = KeyboardInterrupt

    def _measure(self, task_vars, host, directory, lines):
        raise self.error


def made(run, **fields):
    return result_maker.result(run=run, blocks=1, **fields)


def lose(dest, run):
    with pytest.raises(KeyboardInterrupt):
        Ended(dest, run=run).evaluate()


@pytest.mark.parametrize("place", ["one/web01.json", "one/boots/one-boot-1/web01.json"])
def test_a_run_of_the_same_name_or_that_cannot_be_written_is_refused_before_the_host_is_asked(
    tmp_path, monkeypatch, place
):
    earlier = tmp_path / place
    earlier.parent.mkdir(parents=True)
    earlier.write_text("", encoding="utf-8")
    for check_mode in (False, True):
        again = Benchmark(tmp_path, check_mode=check_mode)
        with pytest.raises(text.BorderError, match=f"{earlier} exists: .*smt_eval_run"):
            again.evaluate()
        assert again.asked == [] and earlier.read_text(encoding="utf-8") == ""
    monkeypatch.chdir(earlier.parent)
    for dest in ("/proc/results", "web01.json/results"):
        lost = Benchmark(dest)
        with pytest.raises(text.BorderError, match="smt_eval_dest"):
            lost.evaluate()
        assert lost.asked == [] and [path.name for path in earlier.parent.iterdir()] == ["web01.json"]


def test_a_result_that_no_controller_collected_is_fetched_and_not_measured_again(tmp_path):
    """Its controller was lost, and its user starts the same run again. What the host says was fetched is no matter."""
    again = Benchmark(tmp_path, kept=[made("one", fetched=["two"]), made("zero")])
    ended = again.evaluate()
    assert ended["path"] == str(tmp_path / "one/web01.json") and not ended["failed"]
    assert again.asked == ["describe", "collect zero", "forget zero", "collect one", "forget one"]
    assert fetched_before(tmp_path)["one"] == ["zero"]


def fetched_before(directory):
    """Run -> the earlier runs that its result names."""
    paths = directory.glob("*/web01.json")
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8"))["fetched"] for path in paths}


def test_the_run_of_a_lost_controller_comes_to_where_it_was_started_for(tmp_path, capsys):
    lose(tmp_path, "zero")
    lose(tmp_path / "booted" / "boots", "booted-boot-1")
    result_files.save(tmp_path / "zero", made("zero", host="db01"))
    Benchmark(tmp_path, kept=[made("zero"), made("booted-boot-1")]).evaluate()
    written = {"one/web01.json", "zero/web01.json", "zero/db01.json", "booted/boots/booted-boot-1/web01.json"}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")} == written
    assert "smt_report_run_dir=" + str(tmp_path / "zero") in capsys.readouterr().out
    assert not list(tmp_path.rglob(".started/*")), "what is collected is not expected any more"


@pytest.mark.parametrize("name", ["old", "future", "ZERO", "zero"])
def test_a_run_that_the_controller_did_not_start_on_this_host_joins_no_other(tmp_path, name):
    """Neither one that other hosts took part in, nor one that somebody will start,
    nor one whose record is of another host.
    """
    result_files.save(tmp_path / "old", made("old", host="db01"))
    lose(tmp_path, "zero")
    (tmp_path / "zero/.started/web01").rename(tmp_path / "zero/.started/db01")
    Benchmark(tmp_path, kept=[made(name)]).evaluate()
    assert not (tmp_path / name / "web01.json").exists()
    own = tmp_path / "_collected/web01" / name / "web01.json"
    assert json.loads(own.read_text(encoding="utf-8"))["run"] == name
    assert [path.parent.name for path in decisions.result_files_below(tmp_path)] == ["old", "one"]


def test_what_is_fetched_is_limited_by_task_and_in_a_hosts_own_place_and_one_that_fails_holds_no_other_up(
    tmp_path, capsys
):
    flooding = Benchmark(tmp_path, kept=[made(f"r{number:02d}") for number in range(12)])
    flooding.evaluate()
    assert len([asked for asked in flooding.asked if asked.startswith("collect r")]) == fetching.MAX_RUNS
    said = " ".join(capsys.readouterr().err.split())
    assert "8 runs stay (r04, r05, r06, r07, r08 and 3 more)" in said and "smt_eval_stop" in said
    for number in range(fetching.MAX_KEPT):
        Benchmark(tmp_path, run=f"run{number}", kept=[made(f"s{number}"), made(f"run{number}")]).evaluate()
    assert len(list((tmp_path / "_collected/web01").iterdir())) == fetching.MAX_KEPT
    assert f"holds {fetching.MAX_KEPT} runs" in " ".join(capsys.readouterr().err.split())
    other = tmp_path / "other"
    Benchmark(other, kept=[{**made("a"), "samples": "none"}, made("b")]).evaluate()
    assert (other / "_collected/web01/b/web01.json").is_file() and "run a stays" in capsys.readouterr().err


@pytest.mark.parametrize("started", [None, "2020-01-01T00:00:00Z"])
def test_a_result_that_was_saved_and_not_yet_removed_is_fetched_again_and_that_of_another_start_stays(
    tmp_path, started, capsys
):
    """The controller was lost between the two."""
    lose(tmp_path, "zero")
    path, _written, _result = result_files.save(tmp_path / "zero", made("zero", collected="2026-01-01T00:00:00Z"))
    before = path.read_bytes()
    following = Benchmark(tmp_path, kept=[made("zero", **({"started": started} if started else {}))])
    following.evaluate()
    assert ("forget zero" in following.asked) is (started is None)
    assert following.asked[-3:] == ["measure", "collect one", "forget one"]
    if started:
        assert path.read_bytes() == before and f"start at {started}" in " ".join(capsys.readouterr().err.split())
    else:
        assert fetched_before(tmp_path) == {"one": ["zero"], "zero": []}


def test_a_role_that_only_asks_shows_nothing_and_starts_nothing(tmp_path, capsys):
    """Neither what it will show when it measures, nor a fetched result."""
    known = {"announcement": ["CPUs 1 go offline."], "missing_packages": ["sysbench"], "obstacles": ["it is busy"]}
    asking = Benchmark(tmp_path, kept=[made("one")], options={"_step": "describe"}, **known)
    assert asking.evaluate() == {
        **{name: parts.plain(getattr(asking.described, name)) for name in smt_benchmark.ANNOUNCED},
        "changed": False,
    }
    assert asking.asked == ["describe"] and capsys.readouterr() == ("", "")


def test_only_what_begins_is_promised_and_once(tmp_path, capsys):
    promise = "The plan goes on until about"
    Benchmark(tmp_path, obstacles=["it is busy"]).evaluate()
    Benchmark(tmp_path, check_mode=True).evaluate()
    assert promise not in capsys.readouterr().out and not (tmp_path / "one").exists()
    for run in ("one", "zero"):
        for count in (1, 0):
            lose(tmp_path, run)
            assert capsys.readouterr().out.count(promise) == count


def test_a_time_limit_of_the_task_says_what_becomes_of_the_plan(tmp_path):
    # Ansible has one of this name in different places.
    limited = Ended(tmp_path)
    limited.error = type("TaskTimeoutError", (BaseException,), {})
    with pytest.raises(smt_benchmark.HostFailedError, match=r"goes on and restores the host.*smt_eval_stop"):
        limited.evaluate()


def test_a_host_is_waited_for_until_it_is_quiet(tmp_path, monkeypatch, capsys):
    paused = []
    monkeypatch.setattr(smt_benchmark.terminal, "wait_while_read", paused.append)
    waiting = Benchmark(tmp_path, busy=[3.5, 0.11, 0.1], options={"wait_quiet": "10m", "probe": "always"})
    waiting.evaluate()
    assert waiting.asked[:6] == ["describe"] * 3 + ["probe 30", "describe", "measure"] and len(paused) == 2
    assert "for up to 600 s more: other work wants 350 %" in capsys.readouterr().out
    # A host that was booted into its arm hears of its controller while it waits.
    away = Benchmark(tmp_path / "away", busy=[3.5, 0.11, 0.1], options={"wait_quiet": "10m"})
    away._visit = types.SimpleNamespace(renew=lambda: away.asked.append("renew"))
    away.evaluate()
    assert away.asked[:6] == ["describe", "renew", "describe", "renew", "describe", "measure"]
    for options in ({}, {"wait_quiet": "0"}):
        going_on = Benchmark(tmp_path / str(len(options)), busy=[3.5], options=options)
        going_on.evaluate()
        assert going_on.asked[:2] == ["describe", "measure"]
    in_vain = Benchmark(tmp_path, run="two", busy=[3.5] * 9999, options={"wait_quiet": "0.001s"})
    with pytest.raises(smt_benchmark.HostFailedError, match=r"did not become quiet in 0 s .* 350 %"):
        in_vain.evaluate()
    assert "measure" not in in_vain.asked and not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("described", "options", "asked"),
    [
        ({"hides_siblings": True}, {}, ["describe", "probe 15", "describe", "measure"]),
        # Where nothing could be measured after it, or nothing is hidden, there is none.
        ({"hides_siblings": True, "obstacles": ["it is busy"]}, {}, ["describe"]),
        ({}, {}, ["describe", "measure", "collect one", "forget one"]),
        ({}, {"siblings": "measured"}, ["probe 120", "describe", "measure", "collect one"]),
    ],
)
def test_the_measurement_of_siblings_is_announced_and_a_part_of_the_budget(tmp_path, described, options, asked, capsys):
    probing = Benchmark(tmp_path, options={"probe": "auto", "budget": 45, **options}, **described)
    probing.evaluate()
    is_probed = any(one.startswith("probe") for one in asked)
    assert probing.asked[:4] == asked and ("which CPUs share a core" in capsys.readouterr().out) is is_probed
    assert (probing._budget() < 45) is is_probed


def test_obstacles_are_told_before_anything_starts(tmp_path):
    for check_mode in (False, True):
        stopped = Benchmark(tmp_path, check_mode=check_mode, obstacles=["it is being changed", "root is needed"])
        answer = stopped.evaluate()
        assert answer["failed"] and "it is being changed; root is needed" in answer["msg"]
        assert stopped.asked == ["describe"]
    # A host without any of the commands; in check mode nothing is installed.
    lacking = {"workloads": [], "workloads_left_out": [{"name": "gzip", "reason": "gzip is not installed"}]}
    stopped = Benchmark(tmp_path, **lacking)
    assert "gzip is not installed" in stopped.evaluate()["msg"] and stopped.asked == ["describe"]
    assert "failed" not in Benchmark(tmp_path, check_mode=True, **lacking).evaluate()


class Stop(smt_benchmark_stop.ActionModule):
    """The action that ends evaluations, with a host that answers what a test says."""

    def __init__(self, dest, kept, runs=()):
        self._task = types.SimpleNamespace(args={"dest": str(dest)}, check_mode=False)
        self.kept = {document["run"]: document for document in kept}
        uncollected = list(self.kept)
        self.stopped = answer_maker.made("smt_benchmark_stop", runs=list(runs), uncollected=uncollected, probe=False)

    def ask(self, kind, module, arguments, task_vars, **how):
        if module == "smt_benchmark_stop":
            return self.stopped
        return answers.Collected(result=self.kept[arguments["run"]]) if kind is answers.Collected else None


def test_what_is_ended_is_fetched_first_and_only_so_much_of_the_rest(tmp_path, capsys):
    kept = [made(f"r{number:02d}") for number in range(12)] + [made("running")]
    ended = Stop(tmp_path, kept, runs=["running"])._stop({"inventory_hostname": "web01"})
    # Another controller began it, so it is in the host's own place.
    assert ended["paths"][0] == str(tmp_path / "_collected/web01/running/web01.json") and not ended.get("failed")
    assert len(ended["paths"]) == fetching.MAX_RUNS
    shown = capsys.readouterr()
    assert "run running was ended" in shown.out and "9 runs stay (r03, r04, " in " ".join(shown.err.split())


MEASURING, LATE = (progress.Progress(phase="measuring"), True), (None, False)


class Watched(smt_benchmark.ActionModule):
    """An action whose host gives these looks at the plan (progress, whether its process is there), and Ansible's record
    of a job that ends at a time, if at all.
    """

    def __init__(self, clock, looks, ends=float("inf")):
        self.clock, self.looks, self.ends, self.asked = clock, iter(looks), ends, []
        self._task = type("Task", (), {"args": {}})()

    def _look(self, directory):
        return next(self.looks)

    def _status(self, task_vars, job_id):
        return {"finished": int(self.clock[0] > self.ends)}

    def ask(self, kind, module, arguments, task_vars, **how):
        self.asked.append(module)
        self.ends = self.clock[0]

    def watch(self):
        return self._watch({}, "h1", "/run", "1", progress.Shown(3))


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the pauses between two looks move."""
    seconds = itertools.count(0, smt_benchmark.LOOK_SECONDS)
    now = [0]
    monkeypatch.setattr(smt_benchmark.time, "sleep", lambda _seconds: now.__setitem__(0, next(seconds)))
    monkeypatch.setattr(smt_benchmark.time, "monotonic", lambda: now[0])
    return now


STARTING = smt_benchmark.STARTING_SECONDS


def test_a_plan_that_never_says_a_word_is_lost_and_one_whose_process_is_gone_is_given_up_soon(clock):
    """The host lost its power before the plan wrote anything."""
    lost = Watched(clock, [MEASURING] + [(progress.Progress(phase="measuring"), False)] * 9).watch()
    assert lost["failed"] and clock[0] < 60
    begun = clock[0]
    assert Watched(clock, itertools.repeat(LATE)).watch() == {"failed": True, "msg": smt_benchmark.LOST}
    assert STARTING < clock[0] - begun < STARTING + 60


def test_a_plan_that_begins_late_is_waited_for(clock):
    late = [LATE] * (STARTING // smt_benchmark.LOOK_SECONDS) + [(progress.Progress(phase="ended"), True)] * 100
    assert Watched(clock, late, ends=STARTING).watch() == {"finished": 1}
    assert clock[0] > STARTING


def test_a_plan_whose_reader_is_gone_is_ended_once(clock, monkeypatch):
    monkeypatch.setattr(smt_benchmark.terminal, "is_read", lambda _descriptor: False)
    watched = Watched(clock, [MEASURING] * 9)
    assert watched.watch() == {"finished": 1} and watched.asked == ["smt_benchmark_stop"]
