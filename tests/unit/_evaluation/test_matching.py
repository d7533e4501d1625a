# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether any host takes part in a play, and what is said where none does."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import matching

GROUPS = {"all": ["db1", "db2", "web1"], "ungrouped": [], "db": ["db1", "db2"], "web": ["web1"]}


def refusal(pattern="all", limit=None, groups=None):
    manager = smt_hosts.inventory(GROUPS if groups is None else groups, DataLoader())
    return matching.refusal(manager, pattern, "smt_eval_hosts", limit)


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("all", None),
        ("web,nobody", None),
        ("db:!db1", None),
        ("~db.", "db2,web1"),
        ("db", "all:!db1"),
        ("localhost", None),
    ],
)
def test_where_a_host_takes_part_there_is_nothing_to_say(pattern, limit):
    assert refusal(pattern, limit) is None


def test_this_machine_is_taken_by_its_name_without_an_inventory():
    assert refusal("localhost", groups={"all": [], "ungrouped": []}) is None


@pytest.mark.parametrize("groups", [{}, {"all": [], "ungrouped": []}])
def test_without_an_inventory_the_sentence_names_the_option(groups):
    assert refusal(groups=groups).endswith(
        "name it with -i FILE, or take this machine alone with -i localhost, -c local"
    )


@pytest.mark.parametrize("pattern", ["web2", "db:!db", "db:&web"])
def test_a_pattern_without_hosts_is_named_with_its_variable(pattern):
    assert refusal(pattern).startswith(f"no host of the inventory matches smt_eval_hosts={pattern}:")


def test_a_limit_that_leaves_no_host_is_named(tmp_path):
    assert refusal("db", "web").startswith("no host matches both smt_eval_hosts=db and --limit web:")
    (tmp_path / "failed").write_text("web1\n")
    assert f"--limit @{tmp_path}/failed:" in refusal("db", f"@{tmp_path}/failed")
    assert refusal("web", f"@{tmp_path}/failed") is None


def test_a_long_pattern_is_cut():
    assert len(refusal("x" * 5000)) < 400
