# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluation of a guest, seen from outside: what it found, what it left, and what remains when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
CONTROL = "/sys/devices/system/cpu/smt/control"
RUNS = "/var/lib/threadwise-smt/runs"
PLAN = "[s]mt_benchmark"
# Only there to end what hangs: no state below passes by itself.
TIME_LIMIT = 1200
HOLD, HELD = "/run/hold", "/run/held"
# A workload that stands still while HOLD is there, with SMT off, and leaves word that it does.
HELD_WORKLOAD = {
    "name": "held",
    "timeout": 3600,
    "metric": {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9]+)"},
    "argv": [
        "sh",
        "-c",
        (
            f'if [ "$(cat {CONTROL})" = off ] && [ -e {HOLD} ]; then touch {HELD}; while [ -e {HOLD} ]; do sleep 0.2;'
            " done; fi; echo rate 100"
        ),
    ],
}
# However long it is held, the plan has time left, and it ends as soon as it knows enough.
HELD_PLAN = {
    "smt_eval_workloads": [],
    "smt_eval_custom": [HELD_WORKLOAD],
    "smt_eval_placements": ["one_per_core", "all_threads"],
    "smt_eval_budget": 7200,
    "smt_eval_settle_seconds": 0.2,
    "smt_eval_probe": "never",
}


def smt_state(host):
    return host.check_output("cat " + CONTROL), host.check_output("cat /sys/devices/system/cpu/online")


def wait_until(what, log):
    """Wait until something is true that then stays true."""
    end = time.monotonic() + TIME_LIMIT
    while not what():
        assert time.monotonic() < end, log.read_text(encoding="utf-8")
        time.sleep(1)


def plans(host):
    """Pids of the plan's processes on the guest."""
    return host.run("pgrep -f %s", PLAN).stdout.split()


def log_of(run):
    return EPHEMERAL / f"{run}.log"


def start(run, playbook="threadwise.smt.smt_eval", *arguments, **variables):
    """An evaluation in the background, in a process group of its own."""
    command = [
        "ansible-playbook",
        "--inventory",
        str(EPHEMERAL / "inventory"),
        playbook,
        *arguments,
        "--extra-vars",
        json.dumps(dict(variables, smt_eval_dest=str(RESULTS), smt_eval_run=run)),
    ]
    with log_of(run).open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )


def workers(pid):
    """Pids of a process's descendants: Ansible's workers have sessions of their own and outlive a kill of the process
    group.
    """
    children = [
        int(child)
        for child in subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split()
    ]
    return [one for child in children for one in [*workers(child), child]]


def kill(controller):
    for pid in [*workers(controller.pid), controller.pid]:
        # A worker may end by itself between the look and the kill.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    controller.wait()


@contextlib.contextmanager
def held_with_smt_off(host, run):
    """An evaluation that stands still in the middle, with SMT off, until the block is left; gives its controller."""
    host.check_output(f"rm -f {HELD} && touch {HOLD}")
    controller = start(run, **HELD_PLAN)
    try:
        wait_until(lambda: host.file(HELD).exists or controller.poll() is not None, log_of(run))
        assert controller.poll() is None and smt_state(host)[0] == "off", log_of(run).read_text(encoding="utf-8")
        yield controller
    except BaseException:
        kill(controller)
        raise
    finally:
        host.check_output("rm " + HOLD)


def result(run, name="smt-eval"):
    return json.loads((RESULTS / run / (name + ".json")).read_text(encoding="utf-8"))


@pytest.fixture(scope="module", name="before")
def state_before(host):
    """The SMT state before all tests; no test leaves another."""
    state = smt_state(host)
    assert state == ("on", "0-3")
    return state


@pytest.fixture(scope="module", name="lost")
def controller_lost(host, before):
    """An evaluation whose controller was killed in the middle, with SMT off.

    Gives what was seen of the guest after that.
    """
    with held_with_smt_off(host, "lost") as controller:
        kill(controller)
        alive = plans(host)
    wait_until(lambda: not plans(host), log_of("lost"))
    return {"plans after the kill": alive, "state at the end": smt_state(host)}


@pytest.fixture(scope="module", name="evaluated")
def evaluated_whole(host, lost):
    """The evaluation of converge.yml, the first after one whose controller was lost. Gives what it printed."""
    controller = start("converge", os.environ["MOLECULE_SCENARIO_DIRECTORY"] + "/converge.yml")
    code, seen = controller.wait(), log_of("converge").read_text(encoding="utf-8")
    assert code == 0, seen
    return seen


def test_a_controller_that_is_killed_leaves_the_guest_to_put_itself_back(lost, before):
    """Kill -9 of ansible-playbook and all its processes, in the middle, with SMT off."""
    assert lost["plans after the kill"], "the plan does not need its controller"
    assert lost["state at the end"] == before


def test_the_next_evaluation_fetches_what_no_controller_had_collected(host, evaluated, before):
    assert "fetched" in evaluated
    fetched = result("lost")
    assert fetched["outcome"] == "completed" and fetched["restored"]["ok"]
    assert result("converge")["restored"]["ok"] and smt_state(host) == before


def test_the_known_truth_is_found(evaluated):
    """Two vCPUs that share one CPU of this machine get half of it each, and the evaluation says so.

    On an idle machine the ratio is 0.5. With k other busy tasks on each of its CPUs the two get (1 + k) / (2 + k) of
    what two alone would, so what is asserted here holds beside other steps of `make test`; smt_eval_truth holds the
    figure itself.
    """
    found = json.loads((RESULTS / "converge" / "results.json").read_text(encoding="utf-8"))
    sharing = [
        one
        for one in found["hosts"][0]["comparisons"]
        if one["primary"] and (one["baseline"]["placement"], one["candidate"]["placement"]) == ("cores", "siblings")
    ]
    assert sharing and all(one["ratio"] < 0.9 for one in sharing), sharing


def test_both_arms_were_measured_and_the_state_was_restored(evaluated):
    measured = result("converge")
    assert measured["outcome"] == "completed" and len(measured["arms"]) == 2
    assert {sample["arm"] for sample in measured["samples"]} == {"smt_on", "smt_off"}
    assert all(sample["ok"] for sample in measured["samples"])
    assert measured["restored"]["ok"] and measured["restored"]["before"] == measured["restored"]["after"]
    off = next(sample for sample in measured["samples"] if sample["arm"] == "smt_off")
    assert set(off["telemetry"]["cpu_usage"]) == {
        "0",
        "2",
    }, "with SMT off only the primaries may be online while it is timed"


def test_the_report_is_there_in_all_its_forms(evaluated):
    for name in ("index.html", "results.json", "results.csv", "summary.md"):
        assert (RESULTS / "converge" / name).stat().st_size > 0


def test_nothing_is_left_on_the_guest(host, evaluated, before):
    assert plans(host) == []
    assert host.run("ls " + RUNS).stdout == ""
    assert smt_state(host) == before


def test_check_mode_says_what_it_would_do_and_does_nothing(host, evaluated, before):
    controller = start("checked", "threadwise.smt.smt_eval", "--check")
    code, seen = controller.wait(), log_of("checked").read_text(encoding="utf-8")
    assert code == 0, seen
    assert re.search(r"CPUs 1,3", seen)
    assert not (RESULTS / "checked").exists()
    assert host.run("ls " + RUNS).stdout == ""
    assert smt_state(host) == before


def test_a_plan_that_is_killed_is_restored_by_its_watchdog(host, evaluated, before):
    """Kill -9 of the plan itself, with SMT off: the samples taken so far come home,
    and the task fails with the reason.
    """
    with held_with_smt_off(host, "killed") as controller:
        for pid in plans(host):
            host.run("kill -9 %s", pid)
        wait_until(lambda: smt_state(host) == before, log_of("killed"))
    assert controller.wait() != 0
    assert result("killed")["outcome"] == "interrupted" and result("killed")["restored"]["ok"]
