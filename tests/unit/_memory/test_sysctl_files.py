# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file decides the value of a sysctl at boot."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import sysctl_files
from hypothesis import given, strategies as st
from memory_tree import put

WANTED = {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"


def overrides(root, wanted=None):
    return sysctl_files.BootFiles(HostFs(str(root))).overrides(WANTED if wanted is None else wanted)


def test_earlier_files_do_not_override(tmp_path):
    put(tmp_path, "etc/sysctl.d/50-db.conf", "vm.overcommit_memory = 1\nvm.overcommit_kbytes = 5000\n")
    put(tmp_path, "etc/sysctl.d/99-sysctl.conf", "vm.overcommit_memory=0\n")
    put(tmp_path, OURS, "vm.overcommit_memory=2\n")
    assert overrides(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vm.overcommit_memory = 0", "vm.overcommit_memory to 0"),
        ("-vm/overcommit_memory=1", "vm.overcommit_memory to 1"),
        ("vm.overcommit_kbytes = 5000", "vm.overcommit_ratio to 0"),
    ],
)
def test_a_later_file_is_named(tmp_path, line, name):
    put(tmp_path, "usr/lib/sysctl.d/99-zz.conf", f"# ours\n; theirs\n{line}\n")
    (sentence,) = overrides(tmp_path)
    assert "/usr/lib/sysctl.d/99-zz.conf sets " + name in sentence


def test_a_hidden_file_does_not_count(tmp_path):
    put(tmp_path, "usr/lib/sysctl.d/99-zz.conf", "vm.overcommit_memory = 0\n")
    put(tmp_path, "etc/sysctl.d/99-zz.conf", "")
    assert overrides(tmp_path) == []


def test_patterns_and_comments_do_not_count(tmp_path):
    put(tmp_path, "etc/sysctl.d/zz.conf", "vm.over* = 0\n#vm.overcommit_memory=0\nvm.overcommit_memory\n= 5\n")
    assert overrides(tmp_path) == []


def test_an_equal_value_keeps_its_earlier_place(tmp_path):
    # systemd-sysctl writes the ratio first and the kbytes after it: the ratio is reset to 0 although our file is read
    # last.
    put(tmp_path, "etc/sysctl.d/10-a.conf", "vm.overcommit_ratio = 80\n")
    put(tmp_path, "etc/sysctl.d/20-b.conf", "vm.overcommit_kbytes = 5000\n")
    (sentence,) = overrides(tmp_path)
    assert "/etc/sysctl.d/20-b.conf sets vm.overcommit_ratio to 0" in sentence


def test_sysctl_conf_is_read_last_by_procps(tmp_path):
    put(tmp_path, "etc/sysctl.conf", "vm.overcommit_memory = 0\n")
    (sentence,) = overrides(tmp_path)
    assert "sysctl --system" in sentence and "/etc/sysctl.conf" in sentence


def test_tuned_counts_only_where_it_does_not_reapply(tmp_path):
    put(tmp_path, "etc/tuned/active_profile", "mine\n")
    put(tmp_path, "etc/tuned/mine/tuned.conf", "[main]\ninclude=throughput, mine\n[sysctl]\nvm.overcommit_memory = 1\n")
    put(
        tmp_path,
        "usr/lib/tuned/profiles/throughput/tuned.conf",
        "[sysctl]\nvm.overcommit_ratio=>40\nvm.overcommit_memory=0\n",
    )
    assert overrides(tmp_path) == []
    put(tmp_path, "etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n")
    assert [" ".join(sentence.split()[3:8]) for sentence in overrides(tmp_path)] == [
        "throughput sets vm.overcommit_ratio to 40",
        "mine sets vm.overcommit_memory to 1",
    ]


@pytest.mark.parametrize("profile", ["../../secret", "/etc", "-x", "a" * 5000])
def test_hostile_profile_names_are_not_followed(tmp_path, profile):
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
    return sysctl_files.BootFiles(HostFs(str(root))).differences(WANTED)


def test_the_values_at_boot_are_compared_with_the_wanted_ones(tmp_path):
    differences, blocked_by = boot_differences(tmp_path)
    assert (differences, blocked_by) == (
        ["no file sets vm.overcommit_ratio at boot", "no file sets vm.overcommit_memory at boot"],
        None,
    )
    put(tmp_path, "etc/sysctl.d/50-db.conf", "vm.overcommit_memory = 2\nvm.overcommit_ratio = 80\n")
    assert boot_differences(tmp_path) == ([], None), "a file of the administrator counts too"
    put(tmp_path, OURS, "vm.overcommit_memory=0\n")
    (sentence,), blocked_by = boot_differences(tmp_path)
    assert sentence.endswith(f"{OURS} sets vm.overcommit_memory to 0 instead of 2 at boot") and blocked_by is None


def test_a_file_that_overrides_ours_is_what_blocks_it(tmp_path):
    put(tmp_path, OURS, "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n")
    put(tmp_path, "etc/sysctl.d/99-zz.conf", "vm.overcommit_memory=0\n")
    (sentence,), blocked_by = boot_differences(tmp_path)
    assert (
        "99-zz.conf sets vm.overcommit_memory to 0 instead of 2" in sentence
        and "remove that line from the file" in blocked_by
    )


def test_a_tuned_profile_is_what_blocks_ours(tmp_path):
    put(tmp_path, OURS, "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n")
    put(tmp_path, "etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n")
    put(tmp_path, "etc/tuned/active_profile", "db\n")
    put(tmp_path, "etc/tuned/db/tuned.conf", "[sysctl]\nvm.overcommit_ratio=50\n")
    (sentence,), blocked_by = boot_differences(tmp_path)
    assert "TuneD profile db sets vm.overcommit_ratio to 50" in sentence and blocked_by == sentence
