# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""smt_exposure.yml, and a survey and a check with a look, as users call them: on this machine, beside a host that is
gone.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import this_machine
import yaml


@pytest.fixture(name="called")
def call_the_playbook(tmp_path):
    def called(*words, hosts=("here", "gone"), playbook="smt_exposure", **variables):
        seconds = f"{playbook}_{'' if playbook == 'smt_exposure' else 'usage_'}seconds"
        return this_machine.call(tmp_path, playbook, *words, hosts=hosts, **{seconds: 1, **variables})

    return called


def test_a_look_at_this_machine_and_a_host_that_is_gone(called, tmp_path):
    run = called(smt_exposure_textfile=str(tmp_path / "smt.prom"))
    assert run.returncode == 4, run.stdout + run.stderr
    assert "here: CPU usage is " in run.stdout and f"The page: {tmp_path}/smt_exposure.html" in run.stdout
    document = json.loads((tmp_path / "smt_exposure.json").read_text())
    gone, here = document["hosts"]
    assert (gone["host"], here["host"]) == ("gone", "here") and "onnect" in gone["reason"]
    # A virtual machine that sees no siblings is not judged.
    use, why = here["use"], here["use_reason"] or ""
    assert here["reason"] is None and ("virtual machine" in why if use is None else use["work"][0] <= use["work"][1])
    assert 'threadwise_smt_sibling_info{cpu="' in (tmp_path / "smt.prom").read_text()
    page = (tmp_path / "smt_exposure.html").read_text()
    assert "1 host could not be looked at" in page and "here" in page
    # What this collection wrote it replaces; what somebody else wrote it does not.
    (tmp_path / "smt.prom").write_text("mine\n")
    refused = called(smt_exposure_textfile=str(tmp_path / "smt.prom"), hosts=["here"])
    assert refused.returncode == 2 and "smt_usage did not write it" in refused.stdout.replace("\n", " ")
    assert (tmp_path / "smt.prom").read_text() == "mine\n"


def test_check_mode_looks_and_writes_nothing(called, tmp_path):
    run = called("--check", hosts=["here"], smt_exposure_textfile=str(tmp_path / "smt.prom"))
    assert run.returncode == 0 and "here: CPU usage is " in run.stdout, run.stdout + run.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inventory.yml"]


def test_an_evaluation_that_cannot_be_read_is_named_and_the_page_is_made(called, tmp_path):
    run_of_one = tmp_path / "results" / "2026-11-01\x1b[31m"
    run_of_one.mkdir(parents=True)
    (run_of_one / "here.json").write_text("{")
    run = called(hosts=["here"], smt_exposure_results="results")
    said = " ".join(run.stderr.split())
    assert run.returncode == 0 and (tmp_path / "smt_exposure.html").exists(), run.stdout + run.stderr
    assert "2026-11-01\\x1b[31m: here.json: not a complete JSON document" in said and "\x1b" not in said


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"smt_exposure_second": 5, "smt_exposure_windows": 5000, "smt_exposure_seconds": "long"},
            ["smt_exposure_second (set in", "smt_exposure_windows is 5000", "smt_exposure_seconds is 'long'"],
        ),
        ({"smt_exposure_results": "nowhere"}, ["nowhere"]),
        ({"smt_exposure_page": "page.txt"}, ["page.txt"]),
    ],
)
def test_wrong_values_are_named_before_anything_is_written(variables, said, called, tmp_path):
    run = called(hosts=["here"], **variables)
    whole = run.stdout + run.stderr
    assert run.returncode == 2 and all(one in whole for one in said), whole
    assert not list(tmp_path.glob("smt_exposure*"))


@pytest.mark.parametrize("playbook", ["smt_survey", "smt_compliance"])
def test_who_asks_for_no_look_sees_one_line_of_it_and_no_warning(playbook, called):
    run = called(playbook=playbook, smt_policy="disabled", **{f"{playbook}_usage_seconds": 0})
    said = run.stdout.partition("Leave out what is not asked for")[2].partition("TASK [")[0]
    assert said.count("skipping: ") == 1, run.stdout
    assert "[WARNING]" not in run.stdout + run.stderr, run.stdout + run.stderr


@pytest.mark.night
def test_a_survey_looks_in_check_mode_too(called, tmp_path):
    run = called("--check", playbook="smt_survey")
    assert run.returncode == 4, run.stdout + run.stderr
    assert "TASK [Look how the CPUs are used, for so many seconds - 1]" in run.stdout
    lines = run.stdout.splitlines()
    head, here = (next(line for line in lines if line.startswith(name)) for name in ("host ", "here "))
    assert "usage  of its work  room for" in head and " % " in here, run.stdout
    assert "Use of CPUs: 1 host: " in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.yml"]


def test_a_check_of_compliance_with_a_look(called, tmp_path):
    run = called(playbook="smt_compliance", smt_policy={"threads_per_core": 1}, smt_policy_scope="boot")
    assert run.returncode == 4, run.stdout + run.stderr
    gone, here = json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]
    assert gone["look"] is None and here["look"]["reason"] is None
    assert (here["look"]["method"], here["look"]["guessed"]) == ("counters", True)
    assert 0 <= here["look"]["use"]["work"][0] <= here["look"]["use"]["work"][1] <= 1
    assert 'data-head="of its work"' in (tmp_path / "smt_compliance.html").read_text()


ROLE = pathlib.Path(__file__).resolve().parents[2] / "roles/smt_usage/tasks"


def test_the_role_removes_its_own_file_and_no_other_whatever_its_name_is(tmp_path):
    """The task that looks for it: the others are for a host with systemd (molecule/smt_exposure)."""
    names = ["*.prom", "[ab].prom", "a,b.prom", "a.prom"]
    for name in (*names, "b.prom", "aXprom", "a.prom.old"):
        (tmp_path / name).write_text("# HELP threadwise_smt_sibling_info 1 for each\n")
    tasks = yaml.safe_load((ROLE / "forget_files.yml").read_text())[:-1]
    found = "{{ __smt_usage_textfiles.results | map(attribute='files') | flatten | map(attribute='path') | to_json }}"
    (tmp_path / "usage.json").write_text(json.dumps({"textfile": str(tmp_path / "b.prom")}))
    plays = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "vars": {
                "__smt_usage_given": [str(tmp_path / name)],
                "__smt_usage_kept": str(tmp_path / "b.prom") if number else "",
                "__smt_usage_settings": str(tmp_path / "usage.json"),
                "found": found,
                "ansible_python_interpreter": sys.executable,
            },
            "tasks": [
                *tasks,
                {"ansible.builtin.copy": {"dest": f"{tmp_path}/found-{number}", "content": "{{ found }}"}},
            ],
        }
        for number, name in enumerate(names)
    ]
    (tmp_path / "plays.yml").write_text(yaml.safe_dump(plays))
    command = [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "plays.yml"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    for number, name in enumerate(names):
        # The first time that of an earlier call, which the others keep.
        expected = [str(tmp_path / name), *([] if number else [str(tmp_path / "b.prom")])]
        assert sorted(json.loads((tmp_path / f"found-{number}").read_text())) == sorted(expected)
