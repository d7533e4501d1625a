# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether any host takes part in a play, and what is said where none does."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import matching

NOBODY = {"all": [], "ungrouped": []}
GROUPS = {"all": ["db1", "db2", "web1"], "ungrouped": [], "db": ["db1", "db2"], "web": ["web1"]}
WITHOUT = "this call has no inventory, or one without hosts: name it with -i FILE, or take this machine alone"


@pytest.mark.parametrize(
    ("pattern", "limit", "groups", "said"),
    [
        ("all", None, GROUPS, None),
        ("web,nobody", None, GROUPS, None),
        ("db:!db1", None, GROUPS, None),
        ("~db.", "db2,web1", GROUPS, None),
        ("db", "all:!db1", GROUPS, None),
        ("localhost", None, GROUPS, None),
        ("localhost", None, NOBODY, None),
        ("all", None, {}, WITHOUT),
        ("all", None, NOBODY, WITHOUT),
        ("web2", None, GROUPS, "no host of the inventory matches smt_eval_hosts=web2: name hosts or groups"),
        ("db:!db", None, GROUPS, "no host of the inventory matches smt_eval_hosts=db:!db:"),
        ("x" * 5000, None, GROUPS, f"no host of the inventory matches smt_eval_hosts={'x' * 200}...: "),
        ("db", "web", GROUPS, "no host matches both smt_eval_hosts=db and --limit web: change one of them"),
        ("db", "@failed", GROUPS, "no host matches both smt_eval_hosts=db and --limit @failed: "),
        ("web", "@failed", GROUPS, None),
    ],
)
def test_where_no_host_takes_part_it_is_said_why(tmp_path, monkeypatch, pattern, limit, groups, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failed").write_text("web1\n")
    found = matching.refusal(smt_hosts.inventory(groups, DataLoader()), pattern, "smt_eval_hosts", limit)
    assert found is None if said is None else found.startswith(said)
