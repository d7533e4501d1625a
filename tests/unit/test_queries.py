# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/queries.md: each example is run as the page has it, on files that the collection wrote,
and prints what the page shows.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import runpy
import shlex
import sys

import pytest
import result_maker
from ansible_collections.community.general.plugins.filter import json_query
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", PAGE, re.DOTALL)
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
KNOWN = {"wanted": "disabled", "hardware_class": "c1", "reboot_pending": False}
JUDGED = [
    ("web01", compliance.refused("SMT is enabled, and the policy wants disabled", compliance.DRIFTED, **KNOWN)),
    ("web02", compliance.refused("SMT is as the policy wants", compliance.COMPLIANT, **KNOWN)),
    ("db1", compliance.refused("no route to host", "unreachable")),
]


@pytest.fixture(scope="module", name="project")
def project_fixture(tmp_path_factory):
    """A directory with a run of two hosts and with the compliance of three."""
    directory = tmp_path_factory.mktemp("project")
    run = directory / "smt_eval_results" / "RUN"
    even = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
    shared = {"blocks": 6, "shape": (1, 2, 2)}
    first = result_maker.result(workloads={"gzip": result_maker.GZIP, "sysbench_cpu": even}, **shared)
    first["samples"][5].update(ok=False, error="exit status 1", metrics={})
    second = result_maker.result(host="web02", workloads={"sysbench_cpu": even}, noise=0.001, **shared)
    for document in (first, second):
        result_files.save(run, document)
    build.build(result_files.result_paths(run), run)
    (directory / "smt_compliance.json").write_text(registry.formats()["json"].make(Check(JUDGED, NOW)))
    return directory


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_an_example_prints_what_the_page_shows_and_the_filter_gives_the_same(
    project, command, output, monkeypatch, capsys
):
    monkeypatch.chdir(project)
    program, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(pathlib.Path(sys.executable).with_name(program)), run_name="__main__")
    assert not ended.value.code and capsys.readouterr() == (output, "")
    _option, file, expression = words
    found = json_query.json_query(json.loads((project / file).read_text(encoding="utf-8")), expression)
    assert found == json.loads(output)
