# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file for node_exporter's textfile collector beside those of others, and while a look is under way."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.commands import PullError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, program, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

PLAN = look.Plan(1.0, 10, 0.1)
SEEN = {"busy_ratio": [0.8, 0.9], "shared_ratio": [0.1, 0.2], "reason": None, "use_reason": None}
GUESS = [("guess", 1.0, 1.3)]
OF_PULL = "# HELP threadwise_smt_compliant x\nthreadwise_smt_compliant 1\n# EOF\n"


def host(*cores):
    online = tuple(cpu for core in cores for cpu in core)
    return Topology(online=online, cores=cores, packages=(online,), nodes={0: online})


@pytest.fixture(name="shown")
def a_topology(monkeypatch):
    shown = [host((0, 1), (2, 3))]
    monkeypatch.setattr(program.topology, "read_topology", lambda _fs: shown[0])
    return shown


@pytest.fixture(name="path")
def in_a_folder_of_its_own(tmp_path):
    (tmp_path / "collector").mkdir()
    return "/collector/usage.prom"


def content(tmp_path, path):
    return (tmp_path / path.lstrip("/")).read_text()


def test_an_earlier_look_counts_while_the_next_one_looks(monkeypatch, tmp_path, shown, path):
    fs, before = HostFs(str(tmp_path)), []

    def take(*_arguments):
        before.append(content(tmp_path, path))
        return SEEN

    monkeypatch.setattr(program.look, "take", take)
    for _turn in range(2):
        program.record(fs, PLAN, [], path)
    assert "shared_ratio" not in before[0] and "shared_ratio" in before[1]
    # Of other cores it says nothing.
    shown[0] = host((0,), (2,))
    program.record(fs, PLAN, [], path)
    assert "shared_ratio" not in before[2] and 'cpu="1"' not in before[2]


@pytest.mark.parametrize(
    ("reason", "windows", "why"),
    [
        ("CPUs 1 went offline", 10, "CPUs 1 went offline"),
        (None, 10, "nothing ran"),
        (None, 0, "no windows were asked for"),
    ],
)
def test_why_nothing_was_seen_is_said(monkeypatch, tmp_path, shown, path, reason, windows, why):
    found = {"busy_ratio": None, "shared_ratio": None, "reason": None, "use_reason": reason}
    monkeypatch.setattr(program.look, "take", lambda *_arguments: found)
    said = program.record(HostFs(str(tmp_path)), look.Plan(1.0, windows, 0.1), [], path)
    assert said == f"it was not seen how long siblings were busy together: {why}"


def test_neither_this_nor_the_pull_takes_the_others_file_for_its_own(tmp_path, shown, path, capsys):
    fs, file = HostFs(str(tmp_path)), tmp_path / path.lstrip("/")
    ours = textfile.text(shown[0], GUESS, textfile.Ratios(Span(0.8, 0.9), Span(0.1, 0.2)), 1.0)
    file.write_text(OF_PULL)
    for is_dry in (True, False):
        with pytest.raises(textfile.TextfileError, match="is there, and smt_usage did not write it"):
            textfile.write(fs, path, ours, is_dry)
    # The program of the unit fails with that.
    given = {"seconds": 1, "windows": 0, "window_seconds": 0.1, "yields": [], "textfile": path}
    (tmp_path / "settings.json").write_text(json.dumps(given))
    assert program.main(str(tmp_path), str(tmp_path / "settings.json")) == 1 and "smt_usage" in capsys.readouterr().err
    assert program.main(str(tmp_path), str(tmp_path / "none.json")) == 1 and "smt_usage" in capsys.readouterr().err
    file.write_text(ours)
    with pytest.raises(PullError, match="is there, and smt_pull did not write it"):
        metrics.write(str(file), OF_PULL)
    assert file.read_text() == ours
    # Without known cores it begins otherwise.
    file.write_text(textfile.text(host(), GUESS, None, 1.0))
    assert textfile.write(fs, path, ours)


def test_no_folder_is_made_and_no_second_file_of_the_same_series(tmp_path, shown, path):
    fs, ours = HostFs(str(tmp_path)), textfile.text(shown[0], GUESS, None, 1.0)
    with pytest.raises(textfile.TextfileError, match="there is no /nowhere"):
        textfile.write(fs, "/nowhere/a.prom", "x")
    textfile.write(fs, path, ours)
    with pytest.raises(
        textfile.TextfileError, match=r"/collector/usage\.prom has the same series as /collector/b\.prom"
    ):
        textfile.write(fs, "/collector/b.prom", ours)
    assert [one.name for one in tmp_path.rglob("*.prom")] == ["usage.prom"]


def test_names_of_workloads_are_escaped_and_cpus_that_are_offline_left_out():
    text = textfile.text(host((0, 1))._replace(online=(0,)), [('a"} 1\n\\', 1.0, 1.3)], None, 1.0)
    assert 'workload="a\\"} 1\\\\",limit="low"} 1\n' in text and 'cpu="0"' in text and 'cpu="1"' not in text
