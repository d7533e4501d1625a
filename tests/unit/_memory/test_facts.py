# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts from a host's files, damaged files included."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import facts as memory_facts
from hypothesis import given, strategies as st
from memory_tree import put, tree

OPTIONS = {"overcommit": "strict", "overcommit_ratio": 80, "margin": 10}


def test_facts_of_a_guest(tmp_path):
    facts = memory_facts.gather(HostFs(tree(tmp_path)))
    assert (facts["overcommit"], facts["on_oom"], facts["oom_kills"]) == ("strict", "kill", 3)
    assert facts["commit_limit_bytes"] == 563268 * 1024
    assert facts["headroom"]["bytes"] == (563268 - 24188) * 1024
    assert (facts["wanted"], facts["problems"]) == (None, [])


def test_protected_units_are_those_with_a_negative_score(tmp_path):
    root = tree(tmp_path)
    for pid, score, cgroup in [
        (10, -900, "/system.slice/dbus.service"),
        (11, -250, "/system.slice/dbus.service"),
        (12, 0, "/system.slice/cron.service"),
        (13, -1000, "/system.slice/systemd-udevd.service/udev"),
        (14, -500, "/user.slice"),
    ]:
        put(root, f"proc/{pid}/oom_score_adj", f"{score}\n")
        put(root, f"proc/{pid}/cgroup", f"0::{cgroup}\n")
    put(root, "proc/15/oom_score_adj", "nonsense\n")
    assert memory_facts.gather(HostFs(root))["protected_units"] == [
        {"unit": "dbus.service", "oom_score_adj": -900},
        {"unit": "systemd-udevd.service", "oom_score_adj": -1000},
    ]


def test_wanted_policy(tmp_path):
    root = tree(tmp_path, overcommit_memory=0, overcommit_ratio=50)
    wanted = memory_facts.gather(HostFs(root), OPTIONS)["wanted"]
    assert wanted["commit_limit_bytes"] == 563268 * 1024
    assert (wanted["refusal"], wanted["overrides"]) == (None, [])
    assert wanted["sysctls"] == {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
    assert wanted["differences"] == [
        "vm.overcommit_ratio reads 50 instead of 80",
        "vm.overcommit_memory reads 0 instead of 2",
    ]
    assert memory_facts.gather(HostFs(tree(tmp_path)), OPTIONS)["wanted"]["differences"] == []


def test_an_empty_host_is_unknown(tmp_path):
    facts = memory_facts.gather(HostFs(str(tmp_path)), OPTIONS)
    assert facts["overcommit"] is None and facts["commit_limit_bytes"] is None and facts["oom_kills"] is None
    assert facts["wanted"]["refusal"]


def test_huge_pages_before_4_16_are_counted_by_their_number():
    text = "MemTotal: 1000000 kB\nHugePages_Total: 5\nHugepagesize: 2048 kB\n"
    assert memory_facts.parse_meminfo(text)["hugetlb"] == 5 * 2048 * 1024
    assert memory_facts.parse_meminfo("MemTotal: 1000000 kB\n")["hugetlb"] == 0


@pytest.mark.parametrize("total", ["", " kB", " -5 kB", " 1e9 kB", " " + "9" * 5000 + " kB", "\0" * 100], ids=len)
def test_damaged_meminfo_is_unknown(total):
    assert memory_facts.parse_meminfo(f"MemTotal:{total}")["total"] is None


@given(st.text())
def test_any_text_is_parsed(text):
    memory_facts.parse_meminfo(text)
