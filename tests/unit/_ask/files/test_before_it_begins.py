# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said before an evaluation begins: of hosts, options, other work on a host, and missing libraries."""

from __future__ import annotations

import sys
import types

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import environment
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries, matching
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.fetching import FetchingAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure import quiet

NOBODY = {"all": [], "ungrouped": []}
GROUPS = {"all": ["db1", "db2", "web1"], "ungrouped": [], "db": ["db1", "db2"], "web": ["web1"]}
WITHOUT = "this call has no inventory, or one without hosts: name it with -i FILE, or take this machine alone"


@pytest.mark.parametrize(
    ("pattern", "limit", "groups", "said"),
    [
        ("all", None, GROUPS, None),
        ("web,nobody", None, GROUPS, None),
        ("db", "all:!db1", GROUPS, None),
        ("all", None, {}, WITHOUT),
        ("db:!db", None, GROUPS, "no host of the inventory matches smt_eval_hosts=db:!db:"),
        ("db", "web", GROUPS, "no host matches both smt_eval_hosts=db and --limit web: change one of them"),
        ("db", "@failed", GROUPS, "no host matches both smt_eval_hosts=db and --limit @failed: "),
    ],
)
def test_where_no_host_takes_part_it_is_said_why(tmp_path, monkeypatch, pattern, limit, groups, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failed").write_text("web1\n")
    found = matching.refusal(smt_hosts.inventory(groups, DataLoader()), pattern, "smt_eval_hosts", limit)
    assert found is None if said is None else found.startswith(said)


class Action(FetchingAction):
    def run(self, tmp=None, task_vars=None):
        """Its callers call its parts."""


def stated(**arguments):
    action = Action.__new__(Action)
    action._task = types.SimpleNamespace(args=arguments)
    return list(action.stated().values())


@pytest.mark.parametrize(
    ("name", "values"),
    [("price_per_hour", ["0", "nan"]), ("nominal_ghz", ["fast", 2749, [2.7], 10**400]), ("licence_per", ["socket"])],
)
def test_what_is_not_valid_is_named(name, values):
    for value in values:
        with pytest.raises(HostFailedError) as raised:
            stated(**{name: value})
        said = raised.value.answer["msg"]
        assert said.startswith(f"{name} is ") and "it must be " in said


@pytest.mark.parametrize(("given", "seconds"), [("10m", 600), ("90s", 90), ("1h", 3600), ("1.5 min", 90), (0, 0)])
def test_times(given, seconds):
    assert quiet.seconds(given) == seconds


@pytest.mark.parametrize("given", ["", "-1", "10x", "25h", "m", True, [10], {}, "1e3", "nan", "10m\n10"])
def test_what_is_no_time_is_refused(given):
    with pytest.raises(quiet.QuietError, match="it must be a time such as 90s, 10m or 1h, at most a day, or 0"):
        quiet.seconds(given)


def test_what_widens_intervals_is_said_before_the_budget_is_spent(monkeypatch):
    busy, governor = environment.announcement(7.0, 2, "powersave")
    assert "7.0 of 2 CPUs" in busy and "smt_eval_wait_quiet=10m" in busy and "powersave" in governor
    assert environment.announcement(0.2, 2, "performance") == environment.announcement(0.0, 2, None) == []
    assert quiet.is_busy(0.2) and not quiet.is_busy(0.05)
    # More processes than CPUs want more than the CPUs have.
    monkeypatch.setattr(environment.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(environment.files.HostFs, "read", lambda _self, _path: "cpu  1 2\nprocs_running 8\n")
    assert environment.wanted_by_others()[0] >= 7.0


def lost(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_all_missing_packages_are_in_one_sentence_by_the_names_that_pip_knows():
    said = libraries.sentence("an evaluation", [lost("duckdb.typing"), None, lost("jmespath"), lost("jmespath")])
    assert said == (
        "an evaluation needs Python packages that this controller does not have (No module named 'duckdb.typing'; No"
        f" module named 'jmespath'): {sys.executable} -m pip install duckdb jmespath"
    )
    assert libraries.sentence("an evaluation", [None]) is None is libraries.left_out("a report", {"without a": None})
    said = libraries.left_out("the report is made", {"without a": lost("duckdb"), "without c": None})
    assert said.startswith("the report is made without a, for which this controller lacks Python packages:")
