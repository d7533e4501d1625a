# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as tools print them: units that change, times, and parts of numbers."""

from __future__ import annotations

import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import UnreadableError
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.output import printed


def number(text, declared, before="", behind="", unit=None, scale=1.0):
    return printed.number(printed.Place(before, text, behind, unit), declared, scale)


UNITS = """
ms s 1e-3; us ms 1e-3; \u00b5s us 1; \u03bcs ns 1e3; msec us 1e3; seconds ms 1e3; m s 60; h min 60; us/op ns/op 1e3;
us ns/op 1e3; GB/s MB/s 1e3; kB/s MB/s 1e-3; MB/sec MB/s 1; MiB/s KiB/s 1024; GiB MiB/s 1024; MBps GB/s 1e-3;
Gbits/sec Mbit/s 1e3; Mbit/s MB/s 0.125; Kbytes/sec KB/s 1; kB/s KB/s 1; KB KiB/s 1; k requests/s 1e3; M kIOPS 1e3;
k keys/s 1e3; kreq/s req/s 1e3; ops/s Mops/s 1e-6; Mops/s kops/s 1e3; M MB/s 1
"""


@pytest.mark.parametrize(("unit", "declared", "factor"), map(str.split, UNITS.split(";")))
def test_a_unit_is_converted_to_that_of_the_metric(unit, declared, factor):
    assert printed.ratio(unit, declared) == pytest.approx(float(factor), rel=1e-12)
    assert number("2.5", declared, unit=unit) == pytest.approx(2.5 * float(factor), rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "declared"),
    [("KB/s", "MB/s"), ("MB/s", "KB/s"), ("k", "MB/s"), ("M", "B/s"), ("B/s", "KB/s"), ("Kb", "KB")],
)
def test_a_unit_with_two_meanings_is_refused(unit, declared):
    assert math.isnan(printed.ratio(unit, declared))
    for how in ({"unit": unit}, {"behind": unit + "\n"}):
        with pytest.raises(UnreadableError, match="is 1000 for some tools and 1024"):
            number("2.5", declared, **how)


@pytest.mark.parametrize(
    ("unit", "declared"),
    [("ms", "MB/s"), ("MB/min", "MB/s"), ("errors", "requests/s"), ("requests/s", "s"), ("apples", "ms"), ("", "ms")],
)
def test_a_unit_of_something_else_is_refused_where_it_was_asked_for(unit, declared):
    assert printed.ratio(unit, declared) is None
    with pytest.raises(UnreadableError, match="it is of something else"):
        number("2.5", declared, unit=unit)


@pytest.mark.parametrize(
    ("behind", "declared", "value"),
    [
        (" GB/s\n", "MB/s", 2500),
        ("ms\n", "us", 2500),
        (" [ms] (mean)", "s", 0.0025),
        ("k requests/s", "requests/s", 2500),
        ("", "ms", 2.5),
        (" ms", "ms", 2.5),
        # What is no unit of the same thing says nothing.
        (" MB read", "requests/s", 2.5),
        (" min: 0.22 max: 9", "s", 2.5),
        (" min 0.22", "s", 2.5),
        (" s: 7", "ms", 2.5),
        (" M of them", "requests", 2.5),
        (" (without initial connection time)", "transactions/s", 2.5),
        (".\n", "s", 2.5),
    ],
)
def test_a_unit_that_follows_the_number_counts(behind, declared, value):
    assert number("2.5", declared, behind=behind) == pytest.approx(value)


BESIDE = """
0m1.250s s 1.25; 1m2.5s ms 62500; 1h2m3s s 3723; 1s500ms s 1.5; 2ms10us us 2010; 0:01.50 s 1.5; 1:02:03 s 3723;
12.5ms, us 12500; 950\u00b5s) ms 0.95; 12.31k requests/s 12310; 1.1GB/s MB/s 1100; 1.5e+06 1/s 1.5e6; .5 1/s 0.5
"""


@pytest.mark.parametrize(("text", "declared", "value"), map(str.split, BESIDE.split(";")))
def test_what_a_group_may_have_beside_digits(text, declared, value):
    assert number(text, declared) == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize("text", ["none", "", "inf", "nan", "1.2.3", "0x1f", "-", "1_000x"])
def test_what_is_no_number(text):
    try:
        assert math.isnan(number(text, "1/s"))
    except UnreadableError:
        assert "_" in text or "x" in text


@pytest.mark.parametrize(
    ("before", "text", "behind", "declared"),
    [
        ("rate 12,", "345", " req/s", "req/s"),
        ("rate ", "12", ",345 req/s", "req/s"),
        ("rate ", "12,345", " req/s", "req/s"),
        ("", "1,234,567", "", "req/s"),
        ("", "12_345", "", "req/s"),
        ("", "12'345", "", "req/s"),
        ("12\u202f", "345", "", "req/s"),
        ("rate 12", "3", ".5 MB/s", "MB/s"),
        ("rate 123.", "5", " MB/s", "MB/s"),
        ("rate ", "1.5", "e+06", "1/s"),
        ("rate -", "5", "", "1/s"),
        ("=-", "5", "", "1/s"),
        ("total 1m", "2.5", "s", "s"),
        ("", "1", "m2.5s", "s"),
        ("elapsed 0:", "01.50", "", "s"),
        ("", "0", ":01.50", "s"),
    ],
)
def test_a_part_of_a_number_is_refused(before, text, behind, declared):
    with pytest.raises(UnreadableError, match=r"was matched in a longer number|cannot be converted"):
        number(text, declared, before, behind)


@pytest.mark.parametrize(
    ("before", "text", "behind", "declared"),
    [
        ("p99=", "12", ", p50=3", "ms"),
        ("+F:25:AES:", "12", "", "kB/s"),
        ("2024-05-", "12", "", "1"),
        ("x", "4", ".", "1"),
    ],
)
def test_what_stands_beside_a_number_is_not_always_a_part_of_it(before, text, behind, declared):
    assert number(text, declared, before, behind) == float(text)


def test_a_factor_beside_a_unit_that_is_converted():
    # The one says the same as the other.
    assert number("2.5", "us", behind=" ms", scale=1000.0) == pytest.approx(2500)
    # With the unit in the match it is the user's own.
    assert number("2.5", "us", unit="ms", scale=0.5) == pytest.approx(1250)
    # It is not known whether the factor was meant for another unit.
    for behind in (" us", " s"):
        with pytest.raises(UnreadableError, match="is followed by its unit"):
            number("2.5", "us", behind=behind, scale=1000.0)
