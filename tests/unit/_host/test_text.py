# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody else wrote is seen as it is: no character hides, moves others or covers them."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import text

# Default_Ignorable_Code_Point of Unicode 15.1 (DerivedCoreProperties.txt), which Python does not know.
IGNORABLE = [
    0xAD,
    0x34F,
    0x61C,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
]
IGNORABLE += [
    0x3164,
    *range(0xFE00, 0xFE10),
    0xFEFF,
    0xFFA0,
    *range(0xFFF0, 0xFFF9),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
]
# What sets a direction (Bidi_Control), ends a line, or has no glyph.
OTHERS = [
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0x2028,
    0x2029,
    0x85,
    0x2800,
    *range(0x20),
    *range(0x7F, 0xA0),
]
OTHERS += [0xD800, 0xDFFF, 0xE000, 0xF8FF, 0xFFFE, 0x10FFFF, 0x13430, 0x110BD]


def test_what_hides_is_seen():
    for number in [*IGNORABLE, *OTHERS]:
        seen = text.visible(f"a{chr(number)}b")
        assert seen.isascii() and seen.isprintable() and text.may_hide(chr(number))
        assert seen.encode().decode("unicode_escape") == f"a{chr(number)}b"
        assert text.visible(seen) == seen


def test_no_character_of_any_kind_hides():
    kinds = {character: unicodedata.category(character) for character in map(chr, range(sys.maxunicode + 1))}
    hiding = [character for character, kind in kinds.items() if kind[0] == "C" or kind in ("Zl", "Zp")]
    for begin in range(0, len(hiding), 1000):
        some = hiding[begin : begin + 1000]
        assert not set(some).intersection(text.visible("ab".join(["", *some, ""])))


@pytest.mark.parametrize(
    "written",
    [
        "postgresql@16-main.service",
        "Größe µs ± 5 %",
        "データベース",
        "база данных",
        "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd",
        "Vie\u0302\u0323t",
        "\u0e01\u0e33\u0e25\u0e31\u0e07",
        "\U0001f680 5\u00a0% 1\u202f000",
        "a\\b",
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


def test_it_stays_as_short_as_it_may_be():
    assert text.printable("a" + "\u202e" * 500, 10) == "a\\u202e\\u2"
