# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of dashboards, of limits that leave everybody, of ansible-rulebook, of ansible-runner (each on
examples/grafana, examples/eda and examples/runner), and of calls of playbooks. A test is named after its source.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
import yaml

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
BOARD = json.loads((EXAMPLES / "grafana" / "threadwise-smt.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
(RULES,) = yaml.safe_load((EXAMPLES / "eda" / "rulebook.yml").read_text(encoding="utf-8"))


@pytest.mark.night(after=1)
@pytest.mark.parametrize("limit", ["--limit=,", "--limit=:", "--limit=", None])
def test_ansible_85278_83264_and_awx_3223_a_limit_that_leaves_all_hosts(limit, tmp_path):
    """Also ansible-runner-service 60."""
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"h1": None, "h2": None}}}))
    program = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", "inventory.yml", str(EXAMPLES / "eda" / "enforce.yml"), *filter(None, [limit])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "Find the hosts that do not comply" not in done.stdout, done.stdout + done.stderr
    assert "nothing was changed: --limit has to be the name of one host" in done.stdout


def test_ansible_runner_808_1143_and_1358_calls_side_by_side_that_share_a_directory(tmp_path, monkeypatch):
    """Also 694, and ansible-runner-service 47."""
    found = importlib.util.spec_from_file_location("slices", EXAMPLES / "runner" / "slices.py")
    slices = importlib.util.module_from_spec(found)
    found.loader.exec_module(slices)
    calls = []

    def run(**given):
        calls.append(given)
        return types.SimpleNamespace(rc=0)

    monkeypatch.setattr(slices.ansible_runner, "run", run)
    monkeypatch.setattr(slices, "hosts_of", lambda _inventory: [f"h{number}" for number in range(9)])
    assert slices.main(["--directory", str(tmp_path), "--slices", "4", "inventory.yml"]) == 1
    directories = {call["private_data_dir"] for call in calls}
    assert len(directories) == len(calls) == 4 and all(pathlib.Path(one).is_dir() for one in directories)
    # What each of them writes is its own, too.
    written = [path for call in calls for path in call["extravars"].values()]
    assert len(set(written)) == len(written) == 12


def test_grafana_19408_21157_6173_12688_and_52026_all_includes_what_has_no_label_and_rows_are_merged():
    choices = [one for one in BOARD["templating"]["list"] if one.get("includeAll")]
    assert {one["name"] for one in choices} == {"job", "hardware_class", "host"}
    assert all(re.fullmatch(one["allValue"], "") for one in choices)
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    for one in choices:
        # A choice of several is a pattern.
        assert not any(f'="${one["name"]}"' in expression.replace("=~", "~") for expression in asked)
    tables = [panel for panel in PANELS if panel["type"] == "table" and len(panel["targets"]) > 1]
    assert tables
    for panel in tables:
        assert panel["transformations"][0]["id"] == "merge"
        # Without the name of their metric, and all of the same machines.
        parts = [target["expr"].partition(" and on (job, instance) ") for target in panel["targets"]]
        assert all(head.startswith("max by (job, instance) (") for head, _and, _rest in parts)
        assert len({rest for _head, _and, rest in parts}) == 1
        include = [one["options"]["include"] for one in panel["transformations"] if "include" in one["options"]]
        assert [one["names"][1:] for one in include] == [[f"Value #{target['refId']}" for target in panel["targets"]]]


def test_grafana_8616_9899_10524_12587_60769_and_85606_values_of_what_is_gone_and_sources_of_another_grafana():
    # Also 6366, 17376.
    for panel in PANELS:
        for target in panel["targets"]:
            assert target["range"] is (panel["type"] == "timeseries"), panel["title"]
            assert "vector(0)" not in target["expr"], panel["title"]
    # Also 10786.
    (source,) = (one for one in BOARD["templating"]["list"] if one["type"] == "datasource")
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    text = json.dumps(BOARD)
    assert set(re.findall(r'"uid": "(.*?)"', text)) == {"${datasource}", BOARD["uid"]}
    assert "__inputs" not in text and "DS_" not in text


def test_node_exporter_713_and_ansible_rulebook_361_files_that_nobody_writes_and_events_that_are_not_told_apart():
    queries = {panel["title"]: " ".join(target["expr"] for target in panel["targets"]) for panel in PANELS}
    ages = [title for title, text in queries.items() if "time() - " in text and "checked_timestamp" in text]
    assert ages == ["Silent hosts", "Age of the last check", "Longest without a check"]
    for rule in RULES["rules"]:
        assert rule["throttle"]["once_within"] and rule["throttle"]["group_by_attributes"]


ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(directory, *arguments, **environment):
    program = pathlib.Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", ROOT / "tools/this-machine.yml", *arguments],
        cwd=directory,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.night
@pytest.mark.parametrize("callback", ["ansible.posix.jsonl", "ansible.posix.json", "community.general.null"])
def test_ansible_17122_and_41381_lines_between_what_a_callback_prints_for_programs(tmp_path, callback):
    """One playbook imports two, so it is one call: a table of each, and what a plan announces."""
    imported = [f"- import_playbook: threadwise.smt.{name}\n" for name in ("smt_compliance", "smt_eval")]
    (tmp_path / "site.yml").write_text("".join(imported))
    given = ["site.yml", "--check", "-e", "smt_policy=enabled"]
    code, seen, errors = call(tmp_path, *given, ANSIBLE_STDOUT_CALLBACK=callback)
    assert code in (0, 2), (seen, errors)
    lines = seen.splitlines() if callback.endswith("jsonl") else [seen]
    if callback.endswith("null"):
        assert seen == ""
    else:
        assert all(isinstance(json.loads(line), dict) for line in lines) and "smt_compliance" in seen, seen


@pytest.mark.night(after=1)
@pytest.mark.parametrize("playbook", ["smt_compare", "smt_survey"])
def test_ansible_16098_56106_and_mac_ansible_13_a_tag_that_leaves_out_everything(tmp_path, playbook):
    (tmp_path / "smt_survey.html").write_text("<!-- Made by the Ansible collection threadwise.smt -->")
    code, seen, errors = call(tmp_path, f"threadwise.smt.{playbook}", "-t", "i_dont_exist")
    assert code == 2 and f"{playbook} has no tags" in seen + errors, seen + errors
    (tmp_path / "smt_survey.html").unlink(missing_ok=playbook == "smt_survey")
    assert not list(tmp_path.iterdir())
