# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts from a host's files, damaged files included."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import facts as memory_facts, sysctl_files
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


WANTED = {"vm.overcommit_ratio": 80, "vm.overcommit_memory": 2}
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
TUNED = {"etc/tuned/tuned-main.conf": "reapply_sysctl = 0\n", "etc/tuned/active_profile": "mine\n"}
PROFILE = "[main]\ninclude=throughput, mine\n[sysctl]\nvm.overcommit_memory = 1\n"
INCLUDED = "[sysctl]\nvm.overcommit_ratio=>40\nvm.overcommit_memory=0\n"
PROFILES = {"etc/tuned/mine/tuned.conf": PROFILE, "usr/lib/tuned/profiles/throughput/tuned.conf": INCLUDED}
OF_ZZ = "/usr/lib/sysctl.d/99-zz.conf sets "


def boot_files(root, files):
    for path, text in files.items():
        put(root, path, text)
    return sysctl_files.BootFiles(HostFs(str(root)))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {
                "etc/sysctl.d/50-db.conf": "vm.overcommit_memory = 1\n",
                "etc/sysctl.d/99-sysctl.conf": "vm.overcommit_memory=0\n",
            },
            [],
        ),
        ({"usr/lib/sysctl.d/99-zz.conf": "# x\n; y\nvm.overcommit_memory = 0"}, [OF_ZZ + "vm.overcommit_memory to 0"]),
        ({"usr/lib/sysctl.d/99-zz.conf": "-vm/overcommit_memory=1\n"}, [OF_ZZ + "vm.overcommit_memory to 1"]),
        ({"usr/lib/sysctl.d/99-zz.conf": "vm.overcommit_kbytes = 5000\n"}, [OF_ZZ + "vm.overcommit_ratio to 0"]),
        # Hidden by one of the same name.
        ({"usr/lib/sysctl.d/99-zz.conf": "vm.overcommit_memory = 0\n", "etc/sysctl.d/99-zz.conf": ""}, []),
        ({"etc/sysctl.d/zz.conf": "vm.over* = 0\n#vm.overcommit_memory=0\nvm.overcommit_memory\n= 5\n"}, []),
        # systemd-sysctl writes the ratio first and the kbytes after it: the ratio is reset to 0 although our file is
        # read last.
        (
            {"etc/sysctl.d/1.conf": "vm.overcommit_ratio = 80\n", "etc/sysctl.d/2.conf": "vm.overcommit_kbytes = 50\n"},
            ["/etc/sysctl.d/2.conf sets vm.overcommit_ratio to 0"],
        ),
        # procps reads it last.
        ({"etc/sysctl.conf": "vm.overcommit_memory = 0\n"}, ["/etc/sysctl.conf sets vm.overcommit_memory to 0"]),
        ({**PROFILES, "etc/tuned/active_profile": "mine\n"}, []),
        (
            {**PROFILES, **TUNED},
            ["profile throughput sets vm.overcommit_ratio to 40", "profile mine sets vm.overcommit_memory to 1"],
        ),
        *(
            ({**TUNED, "etc/tuned/active_profile": name, "secret/tuned.conf": "[sysctl]\nvm.overcommit_memory=0\n"}, [])
            for name in ("../../secret", "/etc", "-x", "a" * 5000)
        ),
    ],
)
def test_what_overrides_our_file_is_named(tmp_path, files, said):

    found = boot_files(tmp_path, files).overrides(WANTED)
    assert len(found) == len(said) and all(one in sentence for one, sentence in zip(said, found, strict=True)), found


BOTH = "vm.overcommit_memory=2\nvm.overcommit_ratio=80\n"


@pytest.mark.parametrize(
    ("files", "differs", "is_blocked"),
    [
        ({}, ["no file sets vm.overcommit_ratio at boot", "no file sets vm.overcommit_memory at boot"], False),
        # A file of the administrator counts too.
        ({"etc/sysctl.d/50-db.conf": BOTH}, [], False),
        (
            {"etc/sysctl.d/50-db.conf": BOTH, OURS: "vm.overcommit_memory=0\n"},
            [f"{OURS} sets vm.overcommit_memory to 0 instead of 2 at boot"],
            False,
        ),
        (
            {OURS: BOTH, "etc/sysctl.d/99-zz.conf": "vm.overcommit_memory=0\n"},
            ["99-zz.conf sets vm.overcommit_memory to 0 instead of 2 at boot"],
            True,
        ),
        (
            {OURS: BOTH, **TUNED, "etc/tuned/mine/tuned.conf": "[sysctl]\nvm.overcommit_ratio=50\n"},
            ["the TuneD profile mine sets vm.overcommit_ratio to 50"],
            True,
        ),
    ],
)
def test_the_values_at_boot_are_compared_with_the_wanted_ones(tmp_path, files, differs, is_blocked):
    found, blocked_by = boot_files(tmp_path, files).differences(WANTED)
    assert len(found) == len(differs) and all(one in said for one, said in zip(differs, found, strict=True)), found
    assert (blocked_by is not None) == is_blocked
