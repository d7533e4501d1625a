# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes more than one answer: files of results that decide for others, where users want their files,
and a host that really evaluates.
"""

from __future__ import annotations

import dataclasses
import json
import stat
import sys

import arena
import judge
import named
import pytest
import recorded
import result_maker
from this_machine import this_machine

AUTO = dataclasses.replace(
    recorded.COMPLIANCE, variables={**recorded.FILES, "smt_policy": "auto", "smt_policy_results": "evidence"}
)
# Each takes runs of its own.
pytestmark = pytest.mark.night


def honest():
    return [arena.Host(name) for name in arena.HONEST]


def evaluation(recordings, host, run, factor, **changes):
    """The result of a host of the recorded tree, on which switching SMT off makes the whole machine so many times as
    fast.
    """
    document = result_maker.result(host=host, run=run, noise=0.0005)
    for sample in document["samples"]:
        if sample["arm"] == "smt_off":
            sample["metrics"]["throughput"]["value"] *= factor
    facts = recordings.answer(recorded.COMPLIANCE, "smt_facts")["ansible_facts"]["smt"]
    return {**document, "facts": facts, **changes}


def test_one_host_does_not_overrule_the_evaluations_of_four_by_a_time_that_has_not_come(tmp_path, recordings):
    times = {"started": "9999-01-01T00:00:00Z", "finished": "9999-12-31T23:59:59Z"}
    evidence = [evaluation(recordings, f"e{number}", "r1", 4.0) for number in range(4)]
    liar = evaluation(recordings, "third", "r2", 0.25, **times)

    def judged(name, documents):
        def place(project):
            for document in documents:
                path = project / "evidence" / document["run"] / f"{document['host']}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(document))

        return arena.play(tmp_path / name, recordings.folder(AUTO), AUTO, honest(), place=place)

    without, beside = judged("without", evidence), judged("beside", [*evidence, liar])
    wanted = [one["wanted"] for one in json.loads((without.out / "smt.json").read_text())["hosts"]]
    assert wanted == ["disabled", "disabled"], without.text()
    assert [one["wanted"] for one in json.loads((beside.out / "smt.json").read_text())["hosts"]] == wanted, (
        beside.text()
    )


def test_files_are_for_whom_the_umask_lets_in(tmp_path, recordings):
    for play in (recorded.COMPLIANCE, recorded.SURVEY):
        run = arena.play(
            tmp_path / play.name, recordings.folder(play), dataclasses.replace(play, umask=0o027), honest()
        )
        modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in run.out.iterdir()}
        assert set(modes.values()) == {"0o640"}, modes


@pytest.mark.parametrize("dest", ["inventory/host_vars", "out/../group_vars", "filter_plugins"])
def test_results_are_not_written_where_ansible_reads(dest, tmp_path, recordings):
    play = dataclasses.replace(recorded.EVALUATION, variables={**recorded.SHORT, "smt_eval_dest": dest})
    run = arena.play(tmp_path / "run", recordings.folder(play), play, honest())
    assert run.code != 0 and run.changed == [], run.text()


def test_a_host_that_really_evaluates_beside_one_that_lies(tmp_path, recordings):
    """What is kept is what the host said, whole, and the report tells of both."""
    third = arena.Host("third", {"smt_benchmark.collect": arena.of({"result": named.collected()})})
    with this_machine():
        run = arena.play(
            tmp_path / "run",
            recordings.folder(recorded.EVALUATION),
            recorded.EVALUATION,
            [third, arena.Host("real", python=sys.executable)],
        )
    assert run.code == 0 and run.changed == [], run.text()
    assert not judge.STEERS.search(run.text())
    kept = json.loads((run.out / "results" / arena.RUN / "real.json").read_text())
    said = json.loads((run.directory / "hosts/real/said/smt_benchmark.collect.1").read_text())["result"]
    # The controller says whose it is and when it came.
    assert {key: value for key, value in kept.items() if key not in ("host", "collected", "fetched")} == said and kept[
        "host"
    ] == "real"
    index = (run.out / "results" / arena.RUN / "index.html").read_text()
    assert 'href="real.html"' in index and 'href="third.html"' in index
