# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes more than one answer: files of results that decide for others, where users want their files."""

import dataclasses
import json
import stat

import arena
import pytest
import recorded
import result_maker

AUTO = dataclasses.replace(
    recorded.COMPLIANCE, variables={**recorded.FILES, "smt_policy": "auto", "smt_policy_results": "evidence"}
)
# Each takes runs of its own.
pytestmark = pytest.mark.night


def honest():
    return [arena.Host(name) for name in arena.HONEST]


def evaluation(recordings, host, run, factor, **changes):
    """The result of a host of the recorded tree."""
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
        masked = dataclasses.replace(play, umask=0o027)
        run = arena.play(tmp_path / play.name, recordings.folder(play), masked, honest())
        modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in run.out.iterdir()}
        assert set(modes.values()) == {"0o640"}, modes


@pytest.mark.parametrize("dest", ["inventory/host_vars", "out/../group_vars", "filter_plugins"])
def test_results_are_not_written_where_ansible_reads(dest, tmp_path, recordings):
    play = dataclasses.replace(recorded.EVALUATION, variables={**recorded.SHORT, "smt_eval_dest": dest})
    run = arena.play(tmp_path / "run", recordings.folder(play), play, honest())
    assert run.code != 0 and run.changed == [], run.text()
