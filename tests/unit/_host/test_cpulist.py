# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import tracemalloc

import night
import pytest
import sysfs_tree
from ansible.errors import AnsibleFilterError
from ansible_collections.threadwise.smt.plugins.filter import cpulist as cpulist_filter
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from hypothesis import given, settings, strategies as st

cpu_sets = st.sets(st.integers(0, cpulist.MAX_CPU), max_size=60)
damaged = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="0123456789-,\n \0x", max_size=40),
    st.text(alphabet="0123456789abcdefABCDEF,x\0 ", max_size=80),
)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("\n", ()),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        (" 0-1 , 3 ", (0, 1, 3)),
        ("0-63\n\0", tuple(range(64))),
        ("0-3,2-5", (0, 1, 2, 3, 4, 5)),
        ("65535,8,0-1", (0, 1, 8, 65535)),
    ],
)
def test_a_list_is_read(text, cpus):
    assert cpulist.parse(text) == cpus


INVALID = [(text, repr(text)) for text in ("0-", "-3", "9" * 11, "abc", "1.5")]
INVALID += [(text, "neither") for text in ("0\x001", "0-3:1/2", "²", "٣")]
INVALID += [("3-1", "backwards"), ("0-99999", "highest"), ("0,,1", "''"), (",", "''"), ("1" * 600000, "characters")]


@pytest.mark.parametrize(("text", "reason"), [*INVALID, (None, "NoneType"), (7, "int"), (b"0", "bytes")])
def test_an_invalid_list_is_rejected_and_the_invalid_part_is_named(text, reason):
    with pytest.raises(cpulist.CpuListError, match=r"is not a valid CPU list") as refusal:
        cpulist.parse(text)
    assert reason in str(refusal.value) and len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("00000001,00000000\n", (32,)),
        ("80000000,00000000,00000001\0", (0, 95)),
        ("0xf", (0, 1, 2, 3)),
        ("ffffffffffff", tuple(range(48))),
        ("", ()),
    ],
)
def test_a_mask_is_read(text, cpus):
    assert cpulist.parse_mask(text) == cpus


@pytest.mark.parametrize(
    "text", ["g", "0-3", "1,1", "100000000,00000000", "f" * 20000, "-1", "1 1", "0x", ",", "1,", "٣", None]
)
def test_an_invalid_mask_is_rejected(text):
    with pytest.raises(cpulist.CpuListError, match=r"is not a valid CPU mask"):
        cpulist.parse_mask(text)


@pytest.mark.parametrize("cpus", [(-1,), (65536,), (True,), ("1",), (1.0,), (None,)])
def test_an_invalid_cpu_number_is_rejected(cpus):
    with pytest.raises(cpulist.CpuListError, match=r"is not a valid CPU number"):
        cpulist.render(cpus)


@settings(max_examples=night.number(40, 400))
@given(cpu_sets)
def test_parse_inverts_render_in_the_shortest_form(cpus):
    wanted = tuple(sorted(cpus))
    assert cpulist.parse(cpulist.render(cpus)) == cpulist.parse(sysfs_tree.cpulist(cpus)) == wanted
    assert cpulist.parse_mask(sysfs_tree.mask(cpus)) == wanted
    assert cpulist.render([*cpus, *cpus]) == sysfs_tree.cpulist(cpus).strip()


@settings(max_examples=night.number(80, 2000))
@given(damaged)
def test_any_text_is_parsed_or_rejected(text):
    for parse in (cpulist.parse, cpulist.parse_mask):
        try:
            cpus = parse(text)
        except cpulist.CpuListError:
            continue
        assert list(cpus) == sorted(set(cpus))
        assert all(0 <= cpu <= cpulist.MAX_CPU for cpu in cpus)


def test_a_hostile_list_uses_little_memory():
    tracemalloc.start()
    try:
        with pytest.raises(cpulist.CpuListError, match=r"lists more than 65536 CPUs"):
            cpulist.parse(",".join(["0-65535"] * 60000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_the_filter_converts_in_both_directions_and_rejects_other_values():
    assert cpulist_filter.cpulist("0-3,8") == [0, 1, 2, 3, 8]
    assert cpulist_filter.cpulist([8, 3, 2, 1, 0]) == "0-3,8"
    assert cpulist_filter.cpulist("") == [] and cpulist_filter.cpulist([]) == ""
    for value in ("3-1", ["a"], [-1], None, 7, {"0": 1}):
        with pytest.raises(AnsibleFilterError, match=r"threadwise.smt.cpulist: "):
            cpulist_filter.cpulist(value)


def test_a_list_that_is_not_worth_an_error():
    assert cpulist.parse_or_empty("0-2,4") == {0, 1, 2, 4}
    assert [cpulist.parse_or_empty(text) for text in ("", None, "0-", 7, "99999999")] == [set()] * 5
