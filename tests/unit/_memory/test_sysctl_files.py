# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has the last word on a sysctl at boot."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import sysctl_files
from hypothesis import given, strategies as st
from memory_tree import put

WANTED = {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"


def overrides(root, wanted=None):
    return sysctl_files.overrides(HostFs(str(root)), WANTED if wanted is None else wanted)


def test_earlier_files_do_not_override(tmp_path):
    put(tmp_path, "etc/sysctl.d/50-db.conf", "vm.overcommit_memory = 1\nvm.overcommit_kbytes = 5000\n")
    put(tmp_path, "etc/sysctl.d/99-sysctl.conf", "vm.overcommit_memory=0\n")
    put(tmp_path, OURS, "vm.overcommit_memory=2\n")
    assert overrides(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vm.overcommit_memory = 0", "vm.overcommit_memory 0"),
        ("-vm/overcommit_memory=1", "vm.overcommit_memory 1"),
        ("vm.overcommit_kbytes = 5000", "vm.overcommit_ratio 0"),
    ],
)
def test_a_later_file_is_named(tmp_path, line, name):
    put(tmp_path, "usr/lib/sysctl.d/99-zz.conf", f"# ours\n; theirs\n{line}\n")
    (sentence,) = overrides(tmp_path)
    assert "/usr/lib/sysctl.d/99-zz.conf makes " + name in sentence


def test_a_hidden_file_does_not_count(tmp_path):
    put(tmp_path, "usr/lib/sysctl.d/99-zz.conf", "vm.overcommit_memory = 0\n")
    put(tmp_path, "etc/sysctl.d/99-zz.conf", "")
    assert overrides(tmp_path) == []


def test_patterns_and_comments_do_not_count(tmp_path):
    put(tmp_path, "etc/sysctl.d/zz.conf", "vm.over* = 0\n#vm.overcommit_memory=0\nvm.overcommit_memory\n= 5\n")
    assert overrides(tmp_path) == []


def test_an_equal_value_keeps_its_earlier_place(tmp_path):
    # systemd-sysctl writes the ratio first and the kbytes after it: the ratio is zeroed although our file is read last.
    put(tmp_path, "etc/sysctl.d/10-a.conf", "vm.overcommit_ratio = 80\n")
    put(tmp_path, "etc/sysctl.d/20-b.conf", "vm.overcommit_kbytes = 5000\n")
    (sentence,) = overrides(tmp_path)
    assert "/etc/sysctl.d/20-b.conf makes vm.overcommit_ratio 0" in sentence


def test_sysctl_conf_is_read_last_by_procps(tmp_path):
    put(tmp_path, "etc/sysctl.conf", "vm.overcommit_memory = 0\n")
    (sentence,) = overrides(tmp_path)
    assert "sysctl --system" in sentence and "/etc/sysctl.conf" in sentence


def test_tuned_counts_only_where_it_does_not_reapply(tmp_path):
    put(tmp_path, "etc/tuned/active_profile", "mine\n")
    put(tmp_path, "etc/tuned/mine/tuned.conf", "[main]\ninclude=throughput, mine\n[sysctl]\nvm.overcommit_memory = 1\n")
    put(tmp_path, "usr/lib/tuned/profiles/throughput/tuned.conf", "[sysctl]\nvm.overcommit_ratio=>40\nvm.overcommit_memory=0\n")
    assert overrides(tmp_path) == []
    put(tmp_path, "etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n")
    assert [" ".join(sentence.split()[3:7]) for sentence in overrides(tmp_path)] == [
        "throughput makes vm.overcommit_ratio 40",
        "mine makes vm.overcommit_memory 1",
    ]


@pytest.mark.parametrize("profile", ["../../secret", "/etc", "-x", "a" * 5000])
def test_hostile_profile_names_lead_nowhere(tmp_path, profile):
    put(tmp_path, "etc/tuned/tuned-main.conf", "reapply_sysctl=0\n")
    put(tmp_path, "etc/tuned/active_profile", profile)
    put(tmp_path, "secret/tuned.conf", "[sysctl]\nvm.overcommit_memory=0\n")
    assert overrides(tmp_path) == []


@given(st.text())
def test_any_text_is_read(text):
    for name, value in sysctl_files.assignments(text):
        assert name and "\n" not in name + value
    sysctl_files.at_boot([("a", text)])


def boot_differences(root):
    return sysctl_files.boot_differences(HostFs(str(root)), WANTED)


def test_what_the_files_make_at_boot_is_held_against_what_is_wanted(tmp_path):
    differences, hindrance = boot_differences(tmp_path)
    assert (differences, hindrance) == (["no file sets vm.overcommit_ratio at boot", "no file sets vm.overcommit_memory at boot"], None)
    put(tmp_path, "etc/sysctl.d/50-db.conf", "vm.overcommit_memory = 2\nvm.overcommit_ratio = 80\n")
    assert boot_differences(tmp_path) == ([], None), "whoever wrote it"
    put(tmp_path, OURS, "vm.overcommit_memory=0\n")
    (sentence,), hindrance = boot_differences(tmp_path)
    assert sentence.endswith(f"{OURS} makes vm.overcommit_memory 0 instead of 2 at boot") and hindrance is None


def test_a_file_that_would_beat_ours_hinders(tmp_path):
    put(tmp_path, OURS, "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n")
    put(tmp_path, "etc/sysctl.d/99-zz.conf", "vm.overcommit_memory=0\n")
    (sentence,), hindrance = boot_differences(tmp_path)
    assert "99-zz.conf makes vm.overcommit_memory 0 instead of 2" in sentence and "take the line out of it" in hindrance


def test_tuned_hinders(tmp_path):
    put(tmp_path, OURS, "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n")
    put(tmp_path, "etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n")
    put(tmp_path, "etc/tuned/active_profile", "db\n")
    put(tmp_path, "etc/tuned/db/tuned.conf", "[sysctl]\nvm.overcommit_ratio=50\n")
    (sentence,), hindrance = boot_differences(tmp_path)
    assert "tuned profile db makes vm.overcommit_ratio 50" in sentence and hindrance == sentence
