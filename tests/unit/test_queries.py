# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/queries.md: each example is run as the page has it, on files that the collection wrote,
and prints what the page shows.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build

ROOT = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(sys.executable).parent
PAGE = (ROOT / "docs" / "queries.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", PAGE, re.DOTALL)
PLAYBOOKS = re.findall(r"```yaml\n(.*?)```\n[^`]*```json\n(.*?)```", PAGE, re.DOTALL)
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module", name="project")
def project_fixture(tmp_path_factory):
    """A directory with a run of two hosts and with the compliance of three."""
    directory = tmp_path_factory.mktemp("project")
    run = directory / "smt_eval_results" / "RUN"
    even = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
    first = result_maker.result(workloads={"gzip": result_maker.GZIP, "sysbench_cpu": even}, blocks=6, shape=(1, 2, 2))
    first["samples"][5].update(ok=False, error="exit status 1", metrics={})
    for document in (
        first,
        result_maker.result(host="web02", workloads={"sysbench_cpu": even}, blocks=6, noise=0.001, shape=(1, 2, 2)),
    ):
        result_files.save(run, document)
    build.build(result_files.result_paths(run), run)
    judged = [
        (
            "web01",
            compliance.refused(
                "SMT is enabled, and the policy wants disabled",
                compliance.DRIFTED,
                wanted="disabled",
                hardware_class="c1",
                reboot_pending=False,
            ),
        ),
        (
            "web02",
            compliance.refused(
                "SMT is as the policy wants",
                compliance.COMPLIANT,
                wanted="disabled",
                hardware_class="c1",
                reboot_pending=False,
            ),
        ),
        ("db1", compliance.refused("no route to host", "unreachable")),
    ]
    (directory / "smt_compliance.json").write_text(
        registry.formats()["json"].make(Check(judged, NOW)), encoding="utf-8"
    )
    return directory


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_an_example_prints_what_the_page_shows(project, command, output):
    call = shlex.split(command)
    done = subprocess.run(
        [sys.executable, str(BIN / call[0]), *call[1:]], cwd=project, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (output, "")


def play(directory, plays):
    """Run plays; returns what the last task shows."""
    (directory / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    call = [
        sys.executable,
        str(BIN / "ansible-playbook"),
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        "play.yml",
    ]
    done = subprocess.run(
        call,
        cwd=directory,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    shown = done.stdout[done.stdout.rindex("ok: [localhost] => ") :].partition(" => ")[2]
    return json.JSONDecoder().raw_decode(shown)[0]


def test_the_filter_gives_what_the_command_gives(project):
    calls = [shlex.split(command) for command, _output in EXAMPLES]
    asked = [
        f"(lookup('ansible.builtin.file', '{project}/{call[2]}') | from_json) |"
        f" community.general.json_query(queries[{number}])"
        for number, call in enumerate(calls)
    ]
    tasks = [
        {
            "ansible.builtin.debug": {"msg": "{{ [" + ", ".join(asked) + "] }}"},
            "vars": {"queries": [call[3] for call in calls]},
        }
    ]
    shown = play(project, [{"hosts": "all", "gather_facts": False, "tasks": tasks}])
    assert shown["msg"] == [json.loads(output) for _command, output in EXAMPLES]
