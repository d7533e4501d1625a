# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of memory policies, compared with what the kernel reported in guests (recorded_memory) and with its
own rules; facts from a host's files; which file decides at boot.
"""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    policy as memory_policy,
    sysctl_files,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.policy import (
    GIB,
    HUGEPAGES,
    KBYTES,
    MIB,
    ON_OOM,
    OVERCOMMIT,
    PANIC,
    RATIO,
)
from hypothesis import given, strategies as st
from memory_tree import put, tree

RECORDED = pathlib.Path(__file__).parents[2] / "support" / "recorded_memory"
DEFAULTS = {OVERCOMMIT: 0, RATIO: 50, KBYTES: 0, ON_OOM: 0, PANIC: 0, HUGEPAGES: 0}


def recorded(name):
    """Return the memory and the settings of a guest."""
    text = (RECORDED / (name + ".txt")).read_text()
    sysctls = {key: int(value) for key, value in re.findall(r"^(vm\.\w+) = (\d+)$", text, re.MULTILINE)}
    reserve = sysctls.pop("vm.admin_reserve_kbytes") * 1024
    return dict(memory_facts.parse_meminfo(text), admin_reserve=reserve), dict(DEFAULTS, **sysctls)


MADE = {"total": 8 * GIB, "available": 6 * GIB, "swap": 0, "hugetlb": 0, "hugepage": 2 * MIB}
MADE |= {"committed": GIB, "commit_limit": None, "admin_reserve": 8 * MIB}


def made(**changes):
    return {**MADE, **changes}


def strict(ratio=None, **options):
    return {"overcommit": "strict", "overcommit_ratio": ratio, **options}


@pytest.mark.parametrize("guest", ["hugepages", "swap", "kbytes"])
def test_commit_limit_is_the_kernels(guest):
    memory, present = recorded(guest)
    assert memory_policy.commit_limit(memory, present) == memory["commit_limit"]


def headroom(memory, present):
    found = memory_policy.headroom(memory, present)
    return tuple(found[name] for name in ("bytes", "unprivileged_bytes", "largest_request_bytes"))


def test_headroom():
    memory, present = recorded("hugepages")
    left = (563268 - 24188) * 1024
    assert headroom(memory, present) == (left, left - 8192 * 1024, left)
    assert headroom(made(committed=None), present) == headroom(made(), {**present, OVERCOMMIT: 7}) == (None,) * 3
    memory, present = recorded("swap")
    assert headroom(memory, {**present, OVERCOMMIT: 0}) == (None, None, (736856 + 204796) * 1024)
    assert headroom(memory, {**present, OVERCOMMIT: 1}) == (None,) * 3


FULL = {"total": int(4.1 * GIB), "committed": int(2.9 * GIB)}
IN_KBYTES = {"overcommit": "strict", "overcommit_kbytes": 1024}
SHORT = "would allow {}, but {} are already committed, margin {}: raise the {} or more".format
RESERVE = "0 % (at least the 8 MiB that the kernel reserves for root)"
HUGE = "51 huge pages would take another 102 MiB, but only 100 MiB are available: set 50 or fewer"
NO_HUGE = "this kernel does not report huge pages, so it is unknown whether 1 of them would fit: leave nr_hugepages out"
UNKNOWN = "/proc/meminfo does not report what a strict policy would allow on this host or what is already committed: "
UNKNOWN += "it is unknown whether the host would keep working"


@pytest.mark.parametrize(
    ("memory", "options", "margin", "present", "said"),
    [
        (FULL, strict(76), 10, {}, SHORT("3.1 GiB", "2.9 GiB", "10 %", "ratio to 78")),
        (FULL, strict(78), 10, {}, None),
        ({"swap": 512 * MIB}, IN_KBYTES, 0, {}, SHORT("513 MiB", "1.0 GiB", RESERVE, "kbytes to 532480")),
        # Huge pages lower the limit of a host that is strict already. It is not refused what it has.
        (
            {"committed": 3 * GIB},
            {"nr_hugepages": 1024},
            10,
            {OVERCOMMIT: 2},
            SHORT(*["3.0 GiB"] * 2, "10 %", "ratio to 56"),
        ),
        ({"committed": int(3.9 * GIB)}, strict(50), 10, {OVERCOMMIT: 2}, None),
        ({"committed": int(3.9 * GIB)}, strict(60), 50, {OVERCOMMIT: 2}, None),
        (
            {"committed": int(3.9 * GIB)},
            strict(49),
            10,
            {OVERCOMMIT: 2},
            SHORT(*["3.9 GiB"] * 2, "10 %", "ratio to 54"),
        ),
        ({"available": 100 * MIB}, {"nr_hugepages": 51}, 10, {}, HUGE),
        ({"available": 100 * MIB}, {"nr_hugepages": 50}, 10, {}, None),
        ({"hugepage": None}, {"nr_hugepages": 1}, 10, {}, NO_HUGE),
        ({"committed": None}, strict(90), 10, {}, UNKNOWN),
        ({"committed": None}, {"overcommit": "heuristic"}, 10, {}, None),
    ],
)
def test_a_refusal_has_the_figures_and_the_way_out(memory, options, margin, present, said):
    present = {**DEFAULTS, **present}
    assert memory_policy.refusal(made(**memory), present, memory_policy.settings(options, present), margin) == said


@given(
    total=st.integers(64 * MIB, 64 * 1024 * GIB),
    promised=st.floats(0, 3),
    swap=st.integers(0, 64 * GIB),
    huge=st.floats(0, 0.99),
    ratio=st.integers(1, 200),
    margin=st.integers(0, 100),
    page=st.sampled_from([4096, 65536]),
)
def test_advised_ratio_is_enough_and_the_least(total, promised, swap, huge, ratio, margin, page):
    memory = made(total=total, committed=int(total * promised), swap=swap, hugetlb=int(total * huge))
    text = memory_policy.refusal(memory, DEFAULTS, {RATIO: ratio, OVERCOMMIT: 2}, margin, page)
    if text is None:
        return
    advised = int(re.search(r"raise the ratio to (\d+) or more", text).group(1))
    assert advised > ratio
    assert memory_policy.refusal(memory, DEFAULTS, {RATIO: advised, OVERCOMMIT: 2}, margin, page) is None
    assert memory_policy.refusal(memory, DEFAULTS, {RATIO: advised - 1, OVERCOMMIT: 2}, margin, page) is not None


@pytest.mark.parametrize(
    ("options", "present", "written"),
    [
        # In the order in which no state on the way is worse. Without an amount the present one stays.
        (
            strict(80, nr_hugepages=3, on_oom="panic", panic_reboot_after="5"),
            {},
            {HUGEPAGES: 3, RATIO: 80, OVERCOMMIT: 2, PANIC: 5, ON_OOM: 1},
        ),
        (strict(), {}, {RATIO: 50, OVERCOMMIT: 2}),
        (strict(), {RATIO: 0, KBYTES: 7000}, {KBYTES: 7000, OVERCOMMIT: 2}),
        ({"on_oom": "panic", "panic_reboot_after": "never"}, {}, {PANIC: 0, ON_OOM: 1}),
        ({"on_oom": "kill"}, {}, {ON_OOM: 0}),
    ],
)
def test_what_is_written_in_which_order(options, present, written):
    found = memory_policy.settings(options, {**DEFAULTS, **present})
    assert list(found.items()) == list(written.items())
    # What is restored is written the other way round.
    written = memory_policy.in_order({PANIC: 0, ON_OOM: 0, RATIO: 50, OVERCOMMIT: 0})
    assert list(written) == [OVERCOMMIT, RATIO, ON_OOM, PANIC]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (strict(80, overcommit_kbytes=80), "the kernel sets one to 0 when the other is written: choose one"),
        ({"overcommit": "heuristic", "overcommit_ratio": 80}, "limit what a strict policy allows: set overcommit to"),
        ({"overcommit_kbytes": 80}, "limit what a strict policy allows: set overcommit to"),
        (strict(0), "overcommit_ratio is 0: it must be from 1 to 1000"),
        (strict(10**30), "it must be from 1 to 1000"),
        ({"nr_hugepages": -1}, "it must be from 0"),
        ({"on_oom": "panic"}, "on_oom is panic without panic_reboot_after"),
        ({"on_oom": "panic_always"}, "'never'"),
        *(
            ({"on_oom": "panic", "panic_reboot_after": text}, "it must be a number of seconds from 1 to 86400")
            for text in ("0", "-1", "5; reboot", "\u0665", "9" * 5000)
        ),
        ({"margin": -1}, "margin"),
        (strict(), "neither overcommit_ratio nor overcommit_kbytes set"),
    ],
)
def test_contradictions_are_refused(options, said):
    with pytest.raises(memory_policy.PolicyError, match=re.escape(said)) as caught:
        memory_policy.settings(options, {**DEFAULTS, RATIO: 0})
    assert len(str(caught.value)) < 300


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
