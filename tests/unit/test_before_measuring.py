# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known before anything is measured: nothing is overwritten, nothing measured in vain,
and what no controller collected is fetched.
"""

from __future__ import annotations

import json
import pathlib
import types

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark, smt_benchmark_stop
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import fetching, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions

DESCRIBED = {
    **{
        name: []
        for name in (
            "announcement",
            "arms",
            "arms_left_out",
            "workloads_left_out",
            "missing_packages",
            "obstacles",
            "uncollected",
        )
    },
    "workloads": ["gzip"],
    "directory": "/runs",
    "hides_siblings": False,
    "busy": 0.0,
}


class Benchmark(smt_benchmark.ActionModule):
    """The action with a host that answers what a test says. ``asked`` has the steps that reached the host."""

    def __init__(self, dest, run="one", check_mode=False, kept=(), **described):
        self._task = type("Task", (), {"args": {"run": run, "dest": str(dest)}, "check_mode": check_mode})()
        self.kept = {document["run"]: document for document in kept}
        self.described = {**DESCRIBED, "uncollected": list(self.kept), **described}
        self.asked = []

    def _step(self, task_vars, step, run=None, **arguments):
        self.asked.append(f"{step} {run}" if run else step)
        return {"describe": self.described, "forget": {}, "collect": {"result": self.kept.get(run)}}[step]

    def ask(self, kind, module, arguments, task_vars, **how):
        return self._step(task_vars, kind, run=arguments["run"])

    def _measure(self, task_vars, host, directory, lines):
        self.asked.append("measure")
        self.kept["one"] = made("one")
        return {"message": None}

    def evaluate(self):
        return self._evaluate(
            {"inventory_hostname": "web01", "ansible_play_hosts_all": ["web01"], "ansible_play_batch": ["web01"]}
        )

    def describe(self):
        self._task.args["_step"] = "describe"
        return self.evaluate()


def made(run, **fields):
    return result_maker.result(run=run, blocks=1, **fields)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("place", ["one/web01.json", "one/boots/one-boot-1/web01.json"])
@pytest.mark.parametrize("content", ["", "{}", json.dumps(made("one"))])
def test_a_run_of_the_same_name_is_refused_before_the_host_is_asked(tmp_path, place, content, check_mode):
    earlier = tmp_path / place
    earlier.parent.mkdir(parents=True)
    earlier.write_text(content, encoding="utf-8")
    again = Benchmark(tmp_path, check_mode=check_mode)
    with pytest.raises(
        text.BorderError,
        match=f"{earlier} exists: a run never overwrites another.*another name.*smt_eval_run.*or move that file away",
    ):
        again.evaluate()
    assert again.asked == [] and earlier.read_text(encoding="utf-8") == content


def test_a_result_that_no_controller_collected_is_fetched_and_not_measured_again(tmp_path, capsys):
    """Its controller was lost, and its user starts the same run again."""
    again = Benchmark(tmp_path, kept=[made("one"), made("zero")])
    ended = again.evaluate()
    assert ended["path"] == str(tmp_path / "one/web01.json") and not ended["failed"]
    assert again.asked == ["describe", "collect zero", "forget zero", "collect one", "forget one"]
    assert "no controller collected it: it is fetched, and nothing is measured again" in capsys.readouterr().out


class Lost(Benchmark):
    """The action of a controller that is lost while the host measures."""

    def _measure(self, task_vars, host, directory, lines):
        raise KeyboardInterrupt


def lose(dest, run):
    with pytest.raises(KeyboardInterrupt):
        Lost(dest, run=run).evaluate()


def test_the_run_of_a_lost_controller_comes_to_where_it_was_started_for(tmp_path, capsys):
    lose(tmp_path, "zero")
    lose(tmp_path / "booted" / "boots", "booted-boot-1")
    result_files.save(tmp_path / "zero", made("zero", host="db01"))
    Benchmark(tmp_path, kept=[made("zero"), made("booted-boot-1")]).evaluate()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")} == {
        "one/web01.json",
        "zero/web01.json",
        "zero/db01.json",
        "booted/boots/booted-boot-1/web01.json",
    }
    assert "smt_report_run_dir=" + str(tmp_path / "zero") in capsys.readouterr().out
    assert not list(tmp_path.rglob(".started/*")), "what is collected is not expected any more"


@pytest.mark.parametrize("name", ["old", "future", "ZERO", "zero"])
def test_a_run_that_the_controller_did_not_start_on_this_host_joins_no_other(tmp_path, name, capsys):
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
    assert f"smt_report_run_dir={own.parent}" in capsys.readouterr().out
    assert [path.parent.name for path in decisions.result_files_below(tmp_path)] == ["old", "one"]


def test_one_task_fetches_so_many_runs_of_a_host(tmp_path, capsys):
    runs = [f"r{number:02d}" for number in range(12)]
    flooding = Benchmark(tmp_path, kept=[made(run) for run in runs])
    flooding.evaluate()
    fetched = [asked for asked in flooding.asked if asked.startswith("collect r")]
    assert len(fetched) == fetching.MAX_RUNS
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "8 runs stay (r04, r05, r06, r07, r08 and 3 more) on the host: one task fetches up to 4 runs" in said
        and "smt_eval_stop" in said
    )


def test_a_hosts_own_place_is_limited_over_all_tasks(tmp_path, monkeypatch, capsys):
    for number in range(fetching.MAX_KEPT + 2):
        Benchmark(tmp_path, run=f"run{number}", kept=[made(f"r{number}"), made(f"run{number}")]).evaluate()
    assert len(list((tmp_path / "_collected/web01").iterdir())) == fetching.MAX_KEPT
    assert "holds 10 runs that this controller has no record of: move away what you have seen" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_run_that_cannot_be_fetched_holds_no_other_up(tmp_path, capsys):
    broken = {**made("a"), "samples": "none"}
    following = Benchmark(tmp_path, kept=[broken, made("b")])
    following.evaluate()
    assert (
        tmp_path / "_collected/web01/b/web01.json"
    ).is_file() and "the run a stays on the host: " in capsys.readouterr().err


def test_a_result_that_was_saved_and_not_yet_removed_from_the_host_is_fetched_again(tmp_path):
    """The controller was lost between the two."""
    lose(tmp_path, "zero")
    result_files.save(tmp_path / "zero", made("zero", collected="2026-01-01T00:00:00Z"))
    following = Benchmark(tmp_path, kept=[made("zero")])
    following.evaluate()
    assert following.asked == ["describe", "collect zero", "forget zero", "measure", "collect one", "forget one"]
    assert fetched_before(tmp_path) == {"one": ["zero"], "zero": []}


def fetched_before(directory):
    """Run -> the earlier runs that its result names."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))["fetched"]
        for path in directory.glob("*/web01.json")
    }


def test_a_host_does_not_say_itself_what_was_fetched(tmp_path):
    again = Benchmark(tmp_path, kept=[{**made("one"), "fetched": ["zero"]}])
    again.evaluate()
    assert fetched_before(tmp_path) == {"one": []}


def test_what_a_host_kept_of_another_start_stays_there(tmp_path, capsys):
    lose(tmp_path, "zero")
    path, _written, _result = result_files.save(tmp_path / "zero", made("zero"))
    before = path.read_bytes()
    following = Benchmark(tmp_path, kept=[made("zero", started="2020-01-01T00:00:00Z")])
    following.evaluate()
    assert path.read_bytes() == before and "forget zero" not in following.asked
    assert "which is not overwritten by its start at 2020-01-01T00:00:00Z" in " ".join(capsys.readouterr().err.split())


def test_a_role_that_only_asks_shows_nothing_and_starts_nothing(tmp_path, capsys):
    """Neither what it will show when it measures, nor a fetched result."""
    asking = Benchmark(
        tmp_path,
        kept=[made("one")],
        announcement=["CPUs 1 go offline."],
        missing_packages=["sysbench"],
        obstacles=["it is busy"],
    )
    assert asking.describe() == {**{name: asking.described[name] for name in smt_benchmark.ANNOUNCED}, "changed": False}
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
    class TaskTimeoutError(BaseException):
        """As Ansible's own."""

    class Limited(Benchmark):
        """A task whose time ends while the host measures."""

        def _measure(self, task_vars, host, directory, lines):
            raise TaskTimeoutError

    with pytest.raises(smt_benchmark.HostFailedError, match=r"plan, which goes on and restores the host.*_stop"):
        Limited(tmp_path).evaluate()


class Guest(Benchmark):
    """A host that is busy as a test says, and whose siblings can be measured."""

    def __init__(self, dest, busy=(), **described):
        super().__init__(dest, **described)
        self.busy, self.probed = list(busy), []
        self._task.args.update(budget=45)

    def _step(self, task_vars, step, run=None, **arguments):
        self.described = {**self.described, "busy": self.busy.pop(0) if self.busy else 0.0}
        return super()._step(task_vars, step, run, **arguments)

    def ask(self, kind, module, arguments, task_vars, **how):
        if kind != "smt_probe":
            return super().ask(kind, module, arguments, task_vars, **how)
        self.asked.append(kind)
        self.probed.append(arguments["seconds"])
        return {}

    def with_options(self, **options):
        self._task.args.update(options)
        return self


def test_a_host_is_waited_for_until_it_is_quiet(tmp_path, monkeypatch, capsys):
    paused = []
    monkeypatch.setattr(smt_benchmark.terminal, "wait_while_read", paused.append)
    waiting = Guest(tmp_path, busy=[3.5, 0.11, 0.1]).with_options(wait_quiet="10m", probe="always")
    waiting.evaluate()
    assert waiting.asked[:6] == ["describe", "describe", "describe", "smt_probe", "describe", "measure"]
    assert len(paused) == 2
    assert "web01: waiting until it is quiet, for up to 600 s more: other work wants 350 %" in capsys.readouterr().out
    # A host that was booted into its arm hears of its controller while it waits.
    away = Guest(tmp_path / "away", busy=[3.5, 0.11, 0.1]).with_options(wait_quiet="10m")
    away._visit = types.SimpleNamespace(renew=lambda: away.asked.append("renew"))
    away.evaluate()
    assert away.asked[:6] == ["describe", "renew", "describe", "renew", "describe", "measure"]
    for options in ({}, {"wait_quiet": "0"}):
        going_on = Guest(tmp_path / str(len(options)), busy=[3.5]).with_options(**options)
        going_on.evaluate()
        assert going_on.asked[:2] == ["describe", "measure"]
    in_vain = Guest(tmp_path, run="two", busy=[3.5] * 9999).with_options(wait_quiet="0.001s")
    with pytest.raises(smt_benchmark.HostFailedError, match=r"web01 did not become quiet in 0 s .* wants 350 %"):
        in_vain.evaluate()
    assert "measure" not in in_vain.asked and not (tmp_path / "two").exists()


def test_the_measurement_of_siblings_is_announced_and_a_part_of_the_budget(tmp_path, capsys):
    probing = Guest(tmp_path, hides_siblings=True).with_options(probe="auto")
    probing.evaluate()
    assert probing.asked[:4] == ["describe", "smt_probe", "describe", "measure"] and probing.probed == [15]
    assert "web01: measuring which CPUs share a core, for up to 15 s" in capsys.readouterr().out
    assert probing._budget() < 45
    # Not where nothing could be measured after it, or nothing is hidden.
    for run, described in (("two", {"hides_siblings": True, "obstacles": ["it is busy"]}), ("three", {})):
        none = Guest(tmp_path / run, **described).with_options(probe="auto")
        none.evaluate()
        assert none.probed == [] and none._budget() == 45
    measured = Guest(tmp_path / "four").with_options(probe="auto", siblings="measured")
    measured.evaluate()
    assert measured.asked[:3] == ["smt_probe", "describe", "measure"] and measured.probed == [120]


def test_obstacles_are_told_before_anything_starts(tmp_path):
    for check_mode in (False, True):
        stopped = Benchmark(
            tmp_path, check_mode=check_mode, obstacles=["this host is being changed by smt_state", "root is needed"]
        )
        answer = stopped.evaluate()
        assert (
            answer["failed"]
            and answer["msg"] == "nothing was measured: this host is being changed by smt_state; root is needed"
        )
        assert stopped.asked == ["describe"]


def test_a_host_without_any_of_the_commands_is_not_measured(tmp_path):
    lacking = {
        "workloads": [],
        "workloads_left_out": [{"name": "gzip", "reason": "gzip is not installed (package gzip)"}],
    }
    stopped = Benchmark(tmp_path, **lacking)
    assert (
        stopped.evaluate()["msg"]
        == "nothing was measured: none of the workloads can be measured here: gzip is not installed (package gzip)"
    )
    assert stopped.asked == ["describe"]
    assert "failed" not in Benchmark(tmp_path, check_mode=True, **lacking).evaluate(), (
        "in check mode nothing is installed"
    )


@pytest.mark.parametrize("dest", ["/proc/results", "file/results"])
def test_a_destination_that_cannot_be_written_is_refused_before_the_host_is_asked(tmp_path, monkeypatch, dest):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    lost = Benchmark(dest)
    with pytest.raises(
        text.BorderError, match=r"results cannot be written here .*: choose another directory \(smt_eval_dest\)"
    ):
        lost.evaluate()
    assert lost.asked == [] and [path.name for path in tmp_path.iterdir()] == ["file"]


class Stop(smt_benchmark_stop.ActionModule):
    """The action that ends evaluations, with a host that answers what a test says."""

    def __init__(self, dest, kept, runs=()):
        self._task = type("Task", (), {"args": {"dest": str(dest)}, "check_mode": False})()
        self.kept = {document["run"]: document for document in kept}
        self.stopped = {"changed": bool(runs), "runs": list(runs), "uncollected": list(self.kept), "probe": False}

    def ask(self, kind, module, arguments, task_vars, **how):
        return {
            "smt_benchmark_stop": self.stopped,
            "forget": {},
            "collect": {"result": self.kept.get(arguments.get("run"))},
        }[kind]

    def stop(self):
        return self._stop({"inventory_hostname": "web01"})


def test_what_is_ended_is_fetched_first_and_only_so_much_of_the_rest(tmp_path, capsys):
    lose(tmp_path, "running")
    kept = [made(f"r{number:02d}") for number in range(12)] + [made("running")]
    ended = Stop(tmp_path, kept, runs=["running"]).stop()
    assert (
        ended["paths"][0] == str(tmp_path / "running/web01.json")
        and len(ended["paths"]) == fetching.MAX_RUNS
        and not ended.get("failed")
    )
    assert {path.parts[-4] for path in map(pathlib.Path, ended["paths"][1:])} == {"_collected"}
    shown = capsys.readouterr()
    assert (
        "run running was ended" in shown.out
        and "9 runs stay (r03, r04, r05, r06, r07 and 4 more) on the host" in " ".join(shown.err.split())
    )
