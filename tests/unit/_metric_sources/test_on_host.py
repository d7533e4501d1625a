# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that are read on a host: of commands, of files in Prometheus' text format, and rates of counters."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import on_host

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
