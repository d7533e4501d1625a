# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody else wrote is seen as it is: no character hides, moves others or covers them."""

from __future__ import annotations

import sys
import unicodedata

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import text

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


def test_tabs_and_line_ends_stay_where_they_lay_out():
    assert text.visible("a\tb\nc\rd", "\t\n") == "a\tb\nc\\x0dd"
    assert text.visible("a\tb\n") == "a\\x09b\\x0a"


@pytest.mark.parametrize("before", ["", " ", "\n", "\u200b", "x "])
def test_a_mark_stands_on_something_of_its_own_text(before):
    """At the beginning it would change the character before the text: U+0338 makes an equals sign unequal."""
    assert text.visible(before + "\u0338a", "\n") == text.visible(before, "\n") + "\\u0338a"


def test_marks_do_not_cover_other_lines():
    seen = text.visible("e" + "\u0301" * 500 + "f\u0301")
    assert seen == "e" + "\u0301" * text.MAX_MARKS + "\\u0301" * (500 - text.MAX_MARKS) + "f\u0301"
    assert text.printable("a" + "\u202e" * 500, 10) == "a\\u202e\\u2"
