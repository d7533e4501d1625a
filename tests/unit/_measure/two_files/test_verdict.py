# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two files compared: what belongs together, which way is better, and that the sign is that of the truth."""

import math
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.filter.smt_compare import smt_compare
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files import measurements, verdict
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files.measurements import (
    MeasurementsError,
    Series,
)

SLOW, FAST = (10.0, 10.1, 9.9, 10.2, 10.0), (8.0, 8.1, 7.9, 8.0, 8.2)


def compared(before, after, better=None):
    return verdict.compared(before, after, better, 0.01, 0.95)


def timed(*values, name="a", unit="s", better="lower"):
    return Series(name, unit, better, values)


def test_a_comparison_is_that_of_the_filter():
    (one,) = compared([timed(*SLOW)], [timed(*FAST)])["comparisons"]
    judged = smt_compare(list(SLOW), list(FAST), better="lower")
    assert {key: one[key] for key in judged} == judged
    assert one["verdict"] == "gain" and one["change"] < 0 and one["before_value"] > one["after_value"]
    # Of one measurement on each side the name does not matter.
    (one,) = compared([timed(*SLOW, name="on")], [timed(*FAST, name="off")])["comparisons"]
    assert one["name"] == "on -> off"


def test_what_a_terminal_shows():
    document = compared([timed(*SLOW, 9.0)], [timed(*FAST)])
    shown = verdict.lines(document, lambda value: f"{value:.1f}")
    assert shown[0].startswith("a: 10.1 -> 8.1 s, −19.9 % (") and shown[0].endswith("better, n = 5")
    assert shown[1:] == [verdict.ORDER, "a has 1 value more on one side, which is left out."]
    few = verdict.lines(compared([timed(1.0, 1.1)], [timed(2.0, 2.1)]), str)
    assert few[0].endswith("not decided, n = 2") and "2 blocks are too few" in few[1]


def test_several_are_compared_by_name_and_unit_as_one_family():
    before = [timed(*SLOW), timed(*SLOW, name="b"), timed(*SLOW, unit="B/op"), timed(0.0, unit="allocs/op")]
    after = [timed(*FAST, name="c"), timed(*FAST), timed(*FAST, unit="B/op"), timed(0.0, unit="allocs/op")]
    document = compared(before, after)
    assert [(one["name"], one["unit"], one["family"]) for one in document["comparisons"]] == [
        ("a", "s", 2),
        ("a", "B/op", 2),
    ]
    assert document["not_compared"] == ["b s", "a allocs/op", "c s"]


def go(*names, factor=1.0, unit="ns/op"):
    """Return what Go printed of benchmarks, with -count 5."""
    return "".join(f"Benchmark{name} 10 {factor * slow:.3f} {unit}\n" for slow in SLOW for name in names)


def csv(header, *rows, factor=1.0):
    """Return a CSV file in which each row is measured five times."""
    return "\n".join([header, *(f"{row},{factor * slow:.3f}" for slow in SLOW for row in rows)])


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        # -cpu 1,2,4
        (go("A", "A-2", "A-4"), go("A", "A-2", "A-4"), ["A", "A-2", "A-4"]),
        (go("A/n-8-16", "A/n-9-16"), go("A/n-8-8", "A/n-9-8"), ["A/n-8", "A/n-9"]),
        # Without SMT all of them run on fewer CPUs.
        (go("A-16", "B-16"), go("A-8", "B-8"), ["A", "B"]),
        # One side with -cpu 1,16.
        (go("A-16"), go("A", "A-16"), ["A-16"]),
        # A number at the end is a part of the name where GOMAXPROCS is 1.
        (go("A/8", "A/n-8", "A/n-9"), go("A/8", "A/n-8", "A/n-9"), ["A/8", "A/n-8", "A/n-9"]),
        (f"pkg: x\n{go('A-2')}pkg: y\n{go('A-2')}", f"pkg: x\n{go('A-2')}pkg: y\n{go('A-2')}", ["A pkg=x", "A pkg=y"]),
        (csv("n,threads,v", "a,1", "a,2"), csv("n,threads,v", "a,1", "a,2"), ["a threads=1", "a threads=2"]),
        (csv("threads,v", "1", "2", "4"), csv("threads,v", "1", "2"), ["v threads=1", "v threads=2"]),
        (csv("load,v", "0.5", "0.9"), csv("load,v", "0.5", "0.9"), ["v load=0.5", "v load=0.9"]),
        # What differs between the files alone is no setting of one.
        (csv("n,threads,v", "a,16", "b,16"), csv("n,threads,v", "a,8", "b,8"), ["a", "b"]),
        (csv("n,iterations,v", "a,10", "b,20"), csv("n,iterations,v", "a,5", "b,50"), ["a", "b"]),
        # Names that one file lacks, and a name that all rows have.
        (csv("n,v", "a", "b"), csv("n,v", "b", "c"), ["b"]),
        (csv("n,v", "on"), csv("n,v", "off"), ["on -> off"]),
        ("i,req,v\n1,10,5\n2,10,6\n3,11,5\n4,12,5", "i,req,v\n1,10,5\n2,10,6\n3,11,5\n4,12,5", ["v"]),
        ("size,v\n10,5\n20,6", "size,v\n10,5\n20,6", ["v size=10", "v size=20"]),
    ],
)
def test_what_tells_measurements_apart_makes_them_several(before, after, names, tmp_path):
    sides = []
    for name, content in (("before", before), ("after", after)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        sides.append(measurements.read(str(tmp_path / name), "v" if "v" in content.partition("\n")[0] else None))
    assert [one["name"] for one in compared(*sides, "lower")["comparisons"]] == names


def test_the_option_is_for_what_has_no_direction_of_its_own():
    before = [timed(*SLOW), timed(*SLOW, unit="req/s", better="higher"), timed(*SLOW, unit="p99", better=None)]
    after = [timed(*FAST), timed(*FAST, unit="req/s", better="higher"), timed(*FAST, unit="p99", better=None)]
    for better, last in (("lower", "gain"), ("higher", "loss")):
        found = compared(before, after, better)["comparisons"]
        assert [one["verdict"] for one in found] == ["gain", "loss", last]
        # What was taken from the option is shown, and nothing else.
        (said,) = compared(before, after, better)["cautions"][1:]
        assert better in said and "p99" in said and "req/s" not in said


UNKNOWN = timed(*SLOW, name="x", unit="", better=None)


@pytest.mark.parametrize(
    ("before", "after", "error", "reason"),
    [
        ([UNKNOWN], [UNKNOWN], MeasurementsError, "which way x is better: set smt_compare_better"),
        (
            [timed(1.0), timed(1.0, name="b")],
            [timed(1.0, name="c")],
            MeasurementsError,
            "a s, b s before, and c s after",
        ),
        ([timed(1.0)], [timed(1.0, unit="ms")], MeasurementsError, "different units: s and ms"),
        ([timed(1.0), timed(2.0)], [timed(1.0)], MeasurementsError, "a name twice"),
        ([timed(0.0)], [timed(0.0)], paired.SampleError, "has no ratio"),
    ],
)
def test_what_is_not_known_is_not_said(before, after, error, reason):
    with pytest.raises(error, match=reason):
        compared(before, after)


def test_truths_never_have_the_wrong_sign():
    source = random.Random(3)
    said, cases = 0, night.number(60, 200)
    for _case in range(cases):
        truth = math.exp(source.uniform(-0.5, 0.5))
        better, scale = source.choice(["higher", "lower"]), math.exp(source.uniform(-12, 12))
        sides = [
            timed(
                *(scale * factor * math.exp(source.gauss(0, 0.02)) for _run in range(source.randint(4, 15))),
                better=better,
            )
            for factor in (1.0, truth)
        ]
        (one,) = compared([sides[0]], [sides[1]])["comparisons"]
        if one["verdict"] in ("gain", "loss"):
            said += 1
            assert one["verdict"] == ("gain" if (truth > 1) == (better == "higher") else "loss")
    assert said > 0.6 * cases
