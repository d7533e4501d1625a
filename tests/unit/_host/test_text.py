# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists and masks of CPUs, and what somebody else wrote: no character hides, moves others or covers them."""

from __future__ import annotations

import sys
import tracemalloc
import unicodedata

import night
import pytest
import sysfs_tree
from ansible.errors import AnsibleFilterError
from ansible_collections.threadwise.smt.plugins.filter import cpulist as cpulist_filter
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, text
from hypothesis import given, settings, strategies as st

# Default_Ignorable_Code_Point of Unicode 15.1 (DerivedCoreProperties.txt), which Python does not know.
RANGES = """AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8
    1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"""
# What sets a direction (Bidi_Control), ends a line, or has no glyph.
RANGES += " 2066-2069 2028-2029 85 2800 0-1F 7F-9F D800 DFFF E000 F8FF FFFE 10FFFF 13430 110BD"
HIDING = [
    number
    for first, dash, last in (one.partition("-") for one in RANGES.split())
    for number in range(int(first, 16), int(last if dash else first, 16) + 1)
]


def test_what_hides_is_seen():
    for number in HIDING:
        seen = text.visible(f"a{chr(number)}b")
        assert seen.isascii() and seen.isprintable() and text.may_hide(chr(number))
        assert seen.encode().decode("unicode_escape") == f"a{chr(number)}b"
        assert text.visible(seen) == seen


def test_no_character_of_any_kind_hides():
    some_of_all = map(chr, range(0, sys.maxunicode + 1, night.number(23, 1)))
    kinds = ((character, unicodedata.category(character)) for character in some_of_all)
    hiding = [character for character, kind in kinds if kind[0] == "C" or kind in ("Zl", "Zp")]
    for begin in range(0, len(hiding), 1000):
        some = hiding[begin : begin + 1000]
        assert not set(some).intersection(text.visible("ab".join(["", *some, ""])))


@pytest.mark.parametrize(
    "written",
    [
        "postgresql@16-main.service a\\b",
        "Größe µs ± 5 % データベース база данных",
        "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd Vie\u0302\u0323t \u0e01\u0e33\u0e25\u0e31\u0e07",
        "\U0001f680 5\u00a0% 1\u202f000",
    ],
)
def test_what_people_write_stays(written):
    assert text.visible(written) == written == text.printable(written)


@pytest.mark.parametrize("before", ["", " ", "\n", "\u200b", "x "])
def test_a_mark_stands_on_something_of_its_own_text(before):
    """At the beginning it would change the character before the text: U+0338 makes an equals sign unequal."""
    assert text.visible(before + "\u0338a", "\n") == text.visible(before, "\n") + "\\u0338a"


def test_marks_do_not_cover_other_lines():
    seen = text.visible("e" + "\u0301" * 500 + "f\u0301")
    assert seen == "e" + "\u0301" * text.MAX_MARKS + "\\u0301" * (500 - text.MAX_MARKS) + "f\u0301"
    assert text.printable("a" + "\u202e" * 500, 10) == "a\\u202e\\u2"


cpu_sets = st.sets(st.integers(0, cpulist.MAX_CPU), max_size=60)
damaged = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="0123456789-,\n \0x", max_size=40),
    st.text(alphabet="0123456789abcdefABCDEF,x\0 ", max_size=80),
)


@pytest.mark.parametrize(
    ("text", "cpus"), [("\n", ()), (" 0-1 , 3 ", (0, 1, 3)), ("0-3,2-5\0", (0, 1, 2, 3, 4, 5)), ("65535,8", (8, 65535))]
)
def test_a_list_is_read(text, cpus):
    assert cpulist.parse(text) == cpus


INVALID = [(text, repr(text)) for text in ("0-", "-3", "9" * 11, "1.5")] + [("0\x001", "neither"), ("²", "neither")]
INVALID += [("3-1", "backwards"), ("0-99999", "highest"), ("0,,1", "''"), ("1" * 600000, "characters")]


@pytest.mark.parametrize(("text", "reason"), [*INVALID, (None, "NoneType"), (7, "int"), (b"0", "bytes")])
def test_an_invalid_list_is_rejected_and_the_invalid_part_is_named(text, reason):
    with pytest.raises(cpulist.CpuListError, match=r"is not a valid CPU list") as refusal:
        cpulist.parse(text)
    assert reason in str(refusal.value) and len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("text", "cpus"), [("00000001,00000000\n", (32,)), ("80000000,00000000,00000001\0", (0, 95)), ("0xf", (0, 1, 2, 3))]
)
def test_a_mask_is_read(text, cpus):
    assert cpulist.parse_mask(text) == cpus


@pytest.mark.parametrize("text", ["g", "0-3", "1,1", "100000000,00000000", "f" * 20000, "0x", "1,", "٣", None])
def test_an_invalid_mask_is_rejected(text):
    with pytest.raises(cpulist.CpuListError, match=r"is not a valid CPU mask"):
        cpulist.parse_mask(text)


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
