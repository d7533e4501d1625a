# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks that look, as users call them: on this machine, beside a host that is gone, or without any host."""

import datetime
import functools
import json
import pathlib
import re

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.history import checks
from this_machine import HOSTS, call, line, start

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted({path.stem for path in (ROOT / "playbooks").glob("*.yml")})
# A report needs no hosts, and neither do two files.
NEED_HOSTS = [one for one in PLAYBOOKS if one not in ("smt_report", "smt_compare", "smt_history")]


def test_a_survey_shows_a_table_and_leaves_a_page(tmp_path):
    code, seen = call(tmp_path, "smt_survey", hosts=HOSTS)
    assert code == 4 and re.search(r"^here +\S", seen, re.MULTILINE) and "2 hosts: " in seen, seen
    # Who asks for no look sees nothing of it but one line.
    assert "of its work" not in seen and "[WARNING]" not in seen, seen
    page = (tmp_path / "smt_survey.html").read_text()
    assert all(re.search(rf"\b{host}\b", page) for host in HOSTS)


def test_a_look_at_this_machine_and_a_host_that_is_gone(tmp_path):
    seconds, textfile = {"smt_exposure_seconds": 1}, {"smt_exposure_textfile": str(tmp_path / "smt.prom")}
    code, seen = call(tmp_path, "smt_exposure", hosts=HOSTS, **seconds, **textfile)
    assert code == 4 and f"The page: {tmp_path}/smt_exposure.html" in seen, seen
    gone, here = json.loads((tmp_path / "smt_exposure.json").read_text())["hosts"]
    assert (gone["host"], here["host"]) == ("gone", "here") and "onnect" in gone["reason"]
    # A virtual machine that sees no siblings is not judged.
    use, why = here["use"], here["use_reason"] or ""
    assert here["reason"] is None and ("virtual machine" in why if use is None else use["work"][0] <= use["work"][1])
    assert 'threadwise_smt_sibling_info{cpu="' in (tmp_path / "smt.prom").read_text()
    assert ">here<" in (tmp_path / "smt_exposure.html").read_text()


@pytest.mark.night
def test_a_look_replaces_no_file_of_somebody_else_and_in_check_mode_none(tmp_path):
    asked = {"hosts": ["here"], "smt_exposure_seconds": 1, "smt_exposure_textfile": str(tmp_path / "smt.prom")}
    code, seen = call(tmp_path, "smt_exposure", "--check", **asked)
    assert code == 0 and "here: CPU usage is " in seen, seen
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.yml"]
    (tmp_path / "smt.prom").write_text("mine\n")
    run = tmp_path / "results" / "2026-11-01\x1b[31m"
    run.mkdir(parents=True)
    (run / "here.json").write_text("{")
    code, seen = call(tmp_path, "smt_exposure", **asked, smt_exposure_results="results")
    assert code == 2 and (tmp_path / "smt.prom").read_text() == "mine\n", seen
    # An evaluation that cannot be read is named, and the page is made.
    assert r"2026-11-01\x1b[31m: here.json" in line(seen) and "\x1b" not in seen
    assert (tmp_path / "smt_exposure.html").exists()


@pytest.mark.night
def test_a_proof_in_check_mode_asks_the_kernel_and_its_tools_and_measures_nothing(tmp_path):
    code, seen = call(tmp_path, "smt_proof", "--check", hosts=HOSTS)
    assert code == 4 and "here: facts: holds." in seen and "lscpu" in seen, seen
    assert "here: equal arms: not known." in seen and "2 hosts: 1 on which" in seen, seen
    # What would be done to siblings is said before; of a machine without them, that there is nothing to do.
    said = re.search("here: (would take its second threads offline once|no second thread is online)", seen)
    assert said is not None and said.start() < seen.index("here: switch: "), seen
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.yml"]


START = datetime.datetime(2026, 1, 30, 6, tzinfo=datetime.UTC)


@pytest.mark.night
def test_a_history_says_and_writes_what_drifted(tmp_path):
    checks.add(tmp_path / "checks", {"a": "drifted", "b\x1b[2J": "compliant"}, (), START)
    checks.add(tmp_path / "checks", {"a": "compliant"}, ["b\x1b[2J"], START + datetime.timedelta(days=3))
    code, seen = call(tmp_path, "smt_history", smt_history_checks="checks")
    assert code == 0 and "1 host drifted" in seen and "\x1b" not in seen, seen
    assert json.loads((tmp_path / "smt_history.json").read_text())["drifts"][0]["seconds"] == 3 * 86400
    assert "3 days" in (tmp_path / "smt_history.html").read_text()


@pytest.mark.night
def test_a_check_of_compliance_leaves_its_line_and_in_check_mode_none(tmp_path):
    asked = {"smt_policy": "disabled", "smt_policy_scope": "boot", "smt_compliance_history": "checks"}
    check = functools.partial(call, tmp_path, "smt_compliance", **asked)
    check("--check", hosts=HOSTS)
    assert not (tmp_path / "checks").exists()
    for hosts in (["here", "gone"], ["here"]):
        code, seen = check(hosts=hosts)
        assert code == (4 if "gone" in hosts else 2), seen
    found = checks.read(tmp_path / "checks")
    # A host that is in the inventory and not in the call is as it was; one that left it is gone.
    assert [sum(one.counts.values()) for one in found.checks] == [2, 1] and list(found.statuses) == ["here"]
    (tmp_path / "checks" / "checks-2099-01.jsonl").write_text("mine\n")
    for words in (("--check",), ()):
        code, seen = check(*words, hosts=["here"])
        # Before a host is asked, and not as if one of them had drifted.
        assert code == 1 and "checks-2099-01.jsonl" in line(seen), seen
    assert "is no check" in json.loads((tmp_path / "smt_compliance.json").read_text())["error"]


def test_two_files_are_compared_without_a_host(tmp_path):
    for name, times in {"b.json": [16.1, 16.2, 16.0, 16.3, 16.1], "a.json": [12.4, 12.5, 12.3, 12.6]}.items():
        results = [{"command": "{{ 1 + 1 }}\x1b[1m", "times": times}]
        (tmp_path / name).write_text(json.dumps({"results": results}), encoding="utf-8")
    code, seen = call(tmp_path, "smt_compare", before="b.json", after="a.json")
    assert code == 0 and "{{ 1 + 1 }}" in seen and "\x1b" not in seen and "better, n = 4" in seen, seen
    (found,) = json.loads((tmp_path / "smt_compare.json").read_text(encoding="utf-8"))["comparisons"]
    assert (found["verdict"], found["n"], found["better"]) == ("gain", 4, "lower")


WRONG = [
    ("smt_exposure", {"smt_exposure_second": 5, "smt_exposure_windows": 5000}, ["second (set in", "windows is 5000"]),
    ("smt_compare", {}, ["missing required arguments: after, before"]),
    ("smt_history", {}, ["smt_history_checks", "smt_history_results"]),
    ("smt_compare", {"before": "none.txt", "after": "none.txt"}, ["none.txt", "No such file"]),
    ("smt_history", {"smt_history_results": ".", "smt_history_margin": 3}, ["smt_history_margin is 3"]),
    ("smt_proof", {"smt_proof_run": "../x"}, ["../x"]),
]


@pytest.mark.night
@pytest.mark.parametrize(("playbook", "variables", "said"), WRONG)
def test_wrong_values_are_named_before_anything_is_written(tmp_path, playbook, variables, said):
    code, seen = call(tmp_path, playbook, hosts=["here"] if playbook in NEED_HOSTS else (), **variables)
    assert code == 2 and all(one in line(seen) for one in said), seen
    assert {path.name for path in tmp_path.iterdir()} <= {"inventory.yml"}


@pytest.mark.night
@pytest.mark.parametrize("playbook", NEED_HOSTS)
def test_without_an_inventory_a_playbook_says_so_and_fails(tmp_path, monkeypatch, playbook):
    # This machine's own configuration may name an inventory.
    (tmp_path / "ansible.cfg").write_text("")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    code, seen = call(tmp_path, playbook)
    assert code != 0 and "-i localhost, -c local" in line(seen) and "PLAY" not in seen, seen


@pytest.mark.night
@pytest.mark.parametrize(
    ("playbook", "asked"),
    # The look itself would take a day.
    [
        ("smt_survey", {}),
        ("smt_compliance", {"smt_policy": "enabled"}),
        ("smt_exposure", {"smt_exposure_seconds": 86400}),
    ],
)
def test_a_reader_that_is_gone_after_the_first_line_keeps_no_playbook_waiting(tmp_path, playbook, asked):
    """As with ``| head -1``: Ansible itself would wait for ever once one of our lines could not be printed."""
    with start(tmp_path, playbook, hosts=["here"], **asked) as process:
        process.stdout.readline()
        process.stdout.close()
        try:
            # Of a machine that is busy; without the care it never ends.
            process.wait(600)
        finally:
            process.kill()
