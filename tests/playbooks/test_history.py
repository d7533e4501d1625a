# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""smt_history.yml as users call it: without an inventory, on what checks have left."""

from __future__ import annotations

import datetime
import functools
import json

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import checks
from this_machine import call

START = datetime.datetime(2026, 1, 30, 6, tzinfo=datetime.UTC)


def test_what_drifted_is_said_and_written(tmp_path):
    checks.add(tmp_path / "checks", {"a": "drifted", "b\x1b[2J": "compliant"}, (), START)
    checks.add(tmp_path / "checks", {"a": "compliant"}, ["b\x1b[2J"], START + datetime.timedelta(days=3))
    run = call(tmp_path, "smt_history", smt_history_checks="checks")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "In 2 checks since 2026-01-30 1 host drifted" in run.stdout and "\x1b" not in run.stdout
    assert json.loads((tmp_path / "smt_history.json").read_text())["drifts"][0]["seconds"] == 3 * 86400
    assert "3 days" in (tmp_path / "smt_history.html").read_text()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "name the directory of checks (smt_history_checks), that of evaluations (smt_history_results), or both"),
        ({"smt_history_checks": "nowhere"}, "nowhere"),
        ({"smt_history_results": "."}, "no report of a run has an effect of SMT"),
        ({"smt_history_check": "checks"}, "smt_history_check"),
        ({"smt_history_results": ".", "smt_history_margin": 3}, "smt_history_margin is 3"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(variables, said, tmp_path):
    run = call(tmp_path, "smt_history", **variables)
    assert run.returncode == 2 and said in run.stdout + run.stderr, run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_compliance_leaves_its_line_and_in_check_mode_none(tmp_path):
    check = functools.partial(
        call,
        tmp_path,
        "smt_compliance",
        smt_policy="disabled",
        smt_policy_scope="boot",
        smt_compliance_history="checks",
    )
    check("--check", hosts=["here", "gone"])
    assert not (tmp_path / "checks").exists()
    for hosts in (["here", "gone"], ["here", "gone"], ["here"]):
        run = check(hosts=hosts)
        assert run.returncode == (4 if "gone" in hosts else 2), run.stdout + run.stderr
    found = checks.read(tmp_path / "checks")
    assert [sum(one.counts.values()) for one in found.checks] == [2, 2, 1]
    # A host that is in the inventory and not in the call is as it was; one that left it is gone.
    assert list(found.statuses) == ["here"]
    # Check mode makes the checks of the change: here is a file that a check did not write.
    (tmp_path / "checks" / "checks-2099-01.jsonl").write_text("mine\n")
    for words in (("--check",), ()):
        run = check(*words, hosts=["here"])
        # Before a host is asked, and not as if one of them had drifted.
        assert run.returncode == 1 and "is no check of this collection" in run.stdout + run.stderr, run.stdout
        assert "PLAY RECAP" not in run.stdout or "ok=1" in run.stdout, run.stdout
    assert "is no check of this collection" in json.loads((tmp_path / "smt_compliance.json").read_text())["error"]
