# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a real Prometheus counts what was before a step of its series,
against what is worked out for each query before it is asked.
"""

from __future__ import annotations

import datetime
import json
import time

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server

INTERVAL = 15
RULES = [
    {"record": "rate:2m", "expr": "sum(rate(requests_total[2m]))"},
    {"record": "late:1m", "expr": "sum(rate(requests_total[1m] offset 45s))"},
    {"record": "mean", "expr": "avg(load)"},
]
OVER_RULES = [{"record": "over:2m", "expr": "avg_over_time(rate:2m[1m])"}]
QUERIES = [
    "over:2m",
    "min_over_time((load offset 20s)[1m:10s])",
    "rate:2m / on () group_left () scalar(load)",
    "load",
    "avg_over_time(load[1m])",
    "load offset 40s",
    "rate(requests_total[2m] offset 30s)",
    "min_over_time(rate(requests_total[1m])[3m:5s])",
    "mean",
    "late:1m",
    "avg_over_time(rate:2m[5m])",
    "avg_over_time(rate:2m[1m] offset -30s)",
    '{__name__=~"rate:.*"}',
]


def group(rules):
    return {"name": "x", "interval": f"{INTERVAL}s", "rules": rules}


@pytest.fixture(name="stepped", scope="module")
def a_server_whose_series_have_a_step(tmp_path_factory):
    """A server with two hours of samples, in whose middle a load and a rate double: (its source,
    the moment of the step).
    """
    directory = tmp_path_factory.mktemp("prometheus")
    # What is younger is wanted for the time between two samples.
    end = int(time.time()) // INTERVAL * INTERVAL + 120
    step = end - 3600
    moments = range(end - 7200, end, INTERVAL)
    text = "# TYPE load gauge\n" + "".join(f"load {1 + (at > step)} {at}\n" for at in moments)
    text += "# TYPE requests counter\n"
    text += "".join(f"requests_total {at - moments[0] + max(0, at - step)} {at}\n" for at in moments)
    (directory / "samples.txt").write_text(text + "# EOF\n")
    prometheus_server.backfilled(directory, "openmetrics", "samples.txt", "data")
    for number, rules in enumerate((RULES, OVER_RULES)):
        # One that runs reads its blocks when it starts.
        (directory / f"{number}.yml").write_text(json.dumps({"groups": [group(rules)]}))
        with prometheus_server.prometheus(directory, []) as url:
            times = [f"--start={moments[0]}", f"--end={end - 60}", f"--eval-interval={INTERVAL}s"]
            words = [f"--url={url}", *times, "--output-dir=data", f"{number}.yml"]
            prometheus_server.backfilled(directory, "rules", *words)
    with prometheus_server.prometheus(directory, [], rules=[group(RULES + OVER_RULES)]) as url:
        yield prometheus.Prometheus(server.access({"url": url}.get)), step


@pytest.mark.night(after=3)
@pytest.mark.parametrize("query", QUERIES)
def test_no_value_counts_what_is_older_than_was_worked_out(stepped, query):
    source, step = stepped
    known = lineage.Lineage(source).of(query).seconds
    begin = datetime.datetime.fromtimestamp(step, datetime.UTC)
    found = source.over(query, begin, begin + datetime.timedelta(seconds=1800), 1)
    last = found.points[-1][1]
    counted = max((at - step for at, value in found.points if abs(value - last) > 1e-9 * abs(last)), default=0.0)
    # A few scrapes and evaluations longer, because nobody knows when they come.
    assert counted <= known <= counted + 7 * INTERVAL
