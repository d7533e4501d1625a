# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that are read on a host: of commands, of files, rates of counters; and queries: which series they count, and
from how far back.
"""

from __future__ import annotations

import contextlib
import random

import hypothesis
import night
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import on_host, promql
from hypothesis import strategies as st

FILE = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{code="200",method="get"} 1027 1395066363000
requests_total{method="post", code="200"} 3
 load   0.5
escaped{path="C:\\\\DIR\\"x"} 7
broken NaN
"""


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ('requests_total{method="get",code="200"}', 1027.0),
        ('requests_total{code="200", method="post"}', 3.0),
        ("load", 0.5),
        ('escaped{path="C:\\\\DIR\\"x"}', 7.0),
        ("broken", None),
        ("requests_total", None),
        ('requests_total{code="200"}', None),
        ("no such {sample", None),
    ],
)
def test_a_sample_of_a_file(sample, value):
    assert on_host.of_file(FILE, sample) == value


@pytest.mark.parametrize("printed", ["", "1 2", "NaN", "inf", "1e308", "\x1b[31m1", "many"])
def test_what_a_command_prints(printed):
    assert (on_host.of_command("1.5\n"), on_host.of_command(printed)) == (1.5, None)


def test_a_counter_has_a_rate_but_not_over_a_reset_or_a_gap():
    rate = on_host.Rate()
    readings = [(0, 100.0), (10, 150.0), (20, 30.0), (30, 60.0), (40, None), (50, 90.0), (60, 95.0)]
    assert [rate.feed(now, value) for now, value in readings] == [None, 5.0, None, 3.0, None, None, 0.5]
    assert rate.resets == 1


USES = {
    "load": [("load", 0)],
    "rate(requests[1h30m])": [("requests", 5400)],
    "rate(requests[90])": [("requests", 90)],
    "avg_over_time(load[500ms])": [("load", 0.5)],
    "max_over_time(rate(a[30s])[5m:10s])": [("a", 330)],
    "a offset -1m": [("a", 0)],
    # One moment is the same in each period.
    "rate(a[5m] @ 1609746000)": [("a", schema.MAX_SECONDS)],
    "rate(a[1m] @ end())": [("a", 60)],
    'load{path="[9h]"}': [("load", 0)],
    "a[2m]\n  # a line\n offset 1m": [("a", 180)],
    "sum by (le, instance) (rate(a[1m])) / on (le) group_left (x) b": [("a", 60), ("b", 0)],
    "SUM(a) BY (x) > bool 0.5e-3 and ON () b unless c": [("a", 0), ("b", 0), ("c", 0)],
    'label_replace(a, "__name__", "b", "c", "[5m]")': [("a", 0)],
    "histogram_quantile(0.99, sum(rate(a_bucket[1m])) without (x,))": [("a_bucket", 60)],
    '{__name__="a:b", x="y"}': [("a:b", 0)],
    '{"a.b", "x.y"=~"z"}': [("a.b", 0)],
    '{__name__=~"a|b"}': [(None, 0)],
    # Only the server reads escapes.
    '{__name__="\\x61"}': [(None, 0)],
    '{x="y"}': [(None, 0)],
    "vector(1) + time()": [],
}


@pytest.mark.parametrize("query", USES)
def test_which_series_a_query_counts_and_how_far_it_looks_back(query):
    assert [(one.selector.name, one.seconds) for one in promql.uses(query)] == USES[query]


def test_a_selector_stands_for_itself_without_range_and_offset():
    (one,) = promql.uses('rate(a{b="c", d!="e", f=~"g", } [5m] offset 1m)')
    assert one.selector == promql.Selector('a{b="c", d!="e", f=~"g", }', "a", {"b": "c"}, {"d": "e"})


NO_DURATION = " where a duration such as 5m is known here"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate(a)", "has rate without a range, which a server chooses: write it, such as [1m]"),
        *((f"rate(a[{one}])", f"has {one}{NO_DURATION}") for one in ("5i", "$__interval", "1m * 2", "")),
        ("rate(a[" + "9" * 5000 + "s])", NO_DURATION),
        ("a offset", NO_DURATION),
        ("WITH (r = 5m) rate(a[r])", "is not followed from '=' on, at character 9"),
        ('{a="b" or c="d"}', "is not followed from 'or' on"),
        *((one, "is not followed from 'its end' on") for one in ("sum(a", "a{", "")),
        ("a)", "is not followed from ')' on"),
        ("a @ b", "is not followed from 'b' on"),
        ('a{b="c', "is not followed from"),
        ("\x1b[31m", "is not followed from '\\x1b[31m' on, at character 1"),
        ("(" * 10_000, "is nested more than 100 times"),
        ("a" * 100_001, "has 100001 characters, more than 100000"),
        ("ALERTS_FOR_STATE", "is about ALERTS_FOR_STATE, which depends on how long alerts have lasted"),
    ],
)
def test_what_is_not_followed_is_named(query, said):
    with pytest.raises(promql.QueryError) as caught:
        promql.uses(query)
    assert said in str(caught.value) and len(str(caught.value)) < 400 and "\x1b" not in str(caught.value)


PIECES = [
    *("a", "sum", "by", "(", ")", "{", "}", "[5m]", "[1m:]", "offset", "5m", "-", "@", "1"),
    *('"x"', "=", "=~", ",", "and", "on", "bool", "\\", "'", "`", "#", "\n"),
]
QUERIES = st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=60)


@hypothesis.given(QUERIES)
@hypothesis.settings(max_examples=night.number(100, 500))
def test_whatever_a_query_is_it_is_followed_or_refused(query):
    with contextlib.suppress(promql.QueryError):
        assert all(one.seconds >= 0 for one in promql.uses(query))


def test_a_long_query_takes_no_longer_than_its_length():
    lot = random.Random(1)
    for _turn in range(night.number(2, 20)):
        with contextlib.suppress(promql.QueryError):
            promql.uses("".join(lot.choice(PIECES) for _piece in range(20_000)))
