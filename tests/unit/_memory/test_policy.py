# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of memory policies, compared with what the kernel reported in guests (recorded_memory) and with its
own rules.
"""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    facts as memory_facts,
    policy as memory_policy,
)
from ansible_collections.threadwise.smt.plugins.module_utils._memory.policy import (
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

RECORDED = pathlib.Path(__file__).parents[1] / "support" / "recorded_memory"
DEFAULTS = {OVERCOMMIT: 0, RATIO: 50, KBYTES: 0, ON_OOM: 0, PANIC: 0, HUGEPAGES: 0}


def recorded(name):
    """Return the memory and the settings of a guest."""
    text = (RECORDED / (name + ".txt")).read_text()
    sysctls = {key: int(value) for key, value in re.findall(r"^(vm\.\w+) = (\d+)$", text, re.MULTILINE)}
    reserve = sysctls.pop("vm.admin_reserve_kbytes") * 1024
    return dict(memory_facts.parse_meminfo(text), admin_reserve=reserve), dict(DEFAULTS, **sysctls)


def made(**changes):
    memory = {
        "total": 8 * GIB,
        "available": 6 * GIB,
        "swap": 0,
        "hugetlb": 0,
        "hugepage": 2 * MIB,
        "committed": GIB,
        "commit_limit": None,
        "admin_reserve": 8 * MIB,
    }
    return dict(memory, **changes)


def wanted(present=None, **options):
    return memory_policy.settings(options, DEFAULTS if present is None else present)


@pytest.mark.parametrize("guest", ["hugepages", "swap", "kbytes"])
def test_commit_limit_is_the_kernels(guest):
    memory, present = recorded(guest)
    assert memory_policy.commit_limit(memory, present) == memory["commit_limit"]


def test_headroom_of_a_strict_guest():
    memory, present = recorded("hugepages")
    assert memory_policy.headroom(memory, present) == {
        "bytes": (563268 - 24188) * 1024,
        "unprivileged_bytes": (563268 - 24188 - 8192) * 1024,
        "largest_request_bytes": (563268 - 24188) * 1024,
    }


def test_headroom_without_a_limit_on_the_sum():
    memory, present = recorded("swap")
    assert memory_policy.headroom(memory, dict(present, **{OVERCOMMIT: 0})) == {
        "bytes": None,
        "unprivileged_bytes": None,
        "largest_request_bytes": (736856 + 204796) * 1024,
    }
    assert set(memory_policy.headroom(memory, dict(present, **{OVERCOMMIT: 1})).values()) == {None}


def test_headroom_of_an_unknown_policy_is_unknown():
    assert set(memory_policy.headroom(made(), dict(DEFAULTS, **{OVERCOMMIT: 7})).values()) == {None}
    assert set(memory_policy.headroom(made(committed=None), dict(DEFAULTS, **{OVERCOMMIT: 2})).values()) == {None}


def test_refusal_has_the_figures_and_the_way_out():
    memory = made(total=int(4.1 * GIB), committed=int(2.9 * GIB))
    assert (
        memory_policy.refusal(memory, DEFAULTS, wanted(overcommit="strict", overcommit_ratio=76), 10)
        == "would allow 3.1 GiB, but 2.9 GiB are already committed, margin 10 %: raise the ratio to 78 or more"
    )
    assert memory_policy.refusal(memory, DEFAULTS, wanted(overcommit="strict", overcommit_ratio=78), 10) is None


def test_refusal_in_kbytes():
    memory = made(committed=GIB, swap=512 * MIB)
    refusal = memory_policy.refusal(memory, DEFAULTS, wanted(overcommit="strict", overcommit_kbytes=1024), 0)
    assert (
        refusal
        == "would allow 513 MiB, but 1.0 GiB are already committed, margin 0 % (at least the 8 MiB that the kernel"
        " reserves for root): raise the kbytes to 532480 or more"
    )


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


def test_a_strict_host_is_not_refused_what_it_has():
    present = dict(DEFAULTS, **{OVERCOMMIT: 2, RATIO: 50})
    full = made(committed=int(3.9 * GIB))
    assert memory_policy.refusal(full, present, wanted(present, overcommit="strict", overcommit_ratio=50), 10) is None
    assert memory_policy.refusal(full, present, wanted(present, overcommit="strict", overcommit_ratio=60), 50) is None
    assert (
        memory_policy.refusal(full, present, wanted(present, overcommit="strict", overcommit_ratio=49), 10) is not None
    )


def test_huge_pages_lower_the_limit_of_a_host_that_is_strict_already():
    present = dict(DEFAULTS, **{OVERCOMMIT: 2, RATIO: 50})
    text = memory_policy.refusal(made(committed=3 * GIB), present, wanted(present, nr_hugepages=1024), 10)
    assert text == "would allow 3.0 GiB, but 3.0 GiB are already committed, margin 10 %: raise the ratio to 56 or more"


def test_more_huge_pages_than_there_is_memory_are_refused():
    text = memory_policy.refusal(made(available=100 * MIB), DEFAULTS, wanted(nr_hugepages=51), 10)
    assert text == "51 huge pages would take another 102 MiB, but only 100 MiB are available: set 50 or fewer"
    assert memory_policy.refusal(made(available=100 * MIB), DEFAULTS, wanted(nr_hugepages=50), 10) is None
    assert "does not report huge pages" in memory_policy.refusal(
        made(hugepage=None), DEFAULTS, wanted(nr_hugepages=1), 10
    )


def test_a_policy_whose_effect_is_unknown_is_refused():
    assert "it is unknown whether" in memory_policy.refusal(
        made(committed=None), DEFAULTS, wanted(overcommit="strict", overcommit_ratio=90), 10
    )
    assert memory_policy.refusal(made(committed=None), DEFAULTS, wanted(overcommit="heuristic"), 10) is None


def test_strict_without_an_amount_keeps_the_present_one():
    assert wanted(overcommit="strict") == {RATIO: 50, OVERCOMMIT: 2}
    assert wanted(dict(DEFAULTS, **{RATIO: 0, KBYTES: 7000}), overcommit="strict") == {KBYTES: 7000, OVERCOMMIT: 2}
    with pytest.raises(memory_policy.PolicyError, match="neither"):
        wanted(dict(DEFAULTS, **{RATIO: 0}), overcommit="strict")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"overcommit": "strict", "overcommit_ratio": 80, "overcommit_kbytes": 80}, "choose one"),
        ({"overcommit": "heuristic", "overcommit_ratio": 80}, "set overcommit to strict"),
        ({"overcommit_kbytes": 80}, "set overcommit to strict"),
        ({"overcommit": "strict", "overcommit_ratio": 0}, "from 1 to 1000"),
        ({"overcommit": "strict", "overcommit_ratio": 10**30}, "from 1 to 1000"),
        ({"nr_hugepages": -1}, "from 0"),
        ({"on_oom": "panic"}, "panic_reboot_after"),
        ({"on_oom": "panic_always"}, "'never'"),
        ({"on_oom": "panic", "panic_reboot_after": "0"}, "number of seconds"),
        ({"on_oom": "panic", "panic_reboot_after": "-1"}, "number of seconds"),
        ({"on_oom": "panic", "panic_reboot_after": "5; reboot"}, "number of seconds"),
        ({"on_oom": "panic", "panic_reboot_after": "\u0665"}, "number of seconds"),
        ({"panic_reboot_after": "9" * 5000}, "number of seconds"),
        ({"margin": -1}, "margin"),
    ],
)
def test_contradictions_are_refused(options, text):
    with pytest.raises(memory_policy.PolicyError, match=re.escape(text)) as caught:
        wanted(**options)
    assert len(str(caught.value)) < 300


def test_a_panic_without_reboot_when_explicitly_wanted():
    assert wanted(on_oom="panic", panic_reboot_after="never") == {PANIC: 0, ON_OOM: 1}
    assert wanted(on_oom="kill") == {ON_OOM: 0}


def test_no_intermediate_state_is_worse():
    assert list(
        wanted(overcommit="strict", overcommit_ratio=80, nr_hugepages=3, on_oom="panic", panic_reboot_after="5")
    ) == [
        HUGEPAGES,
        RATIO,
        OVERCOMMIT,
        PANIC,
        ON_OOM,
    ]
    assert list(memory_policy.in_order({PANIC: 0, ON_OOM: 0, RATIO: 50, OVERCOMMIT: 0})) == [
        OVERCOMMIT,
        RATIO,
        ON_OOM,
        PANIC,
    ]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 KiB"), (1023, "0 KiB"), (5 * MIB, "5 MiB"), (int(3.14 * GIB), "3.1 GiB")]
)
def test_sizes_are_readable(number, text):
    assert memory_policy.size(number) == text
