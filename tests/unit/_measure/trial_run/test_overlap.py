# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Periods that count samples of each other are refused, with times that work; a whole trial of it is in
molecule/smt_trial.
"""

from __future__ import annotations

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import overlap, settings

RATE = {"name": "rate", "query": "job:rate:2m", "better": "higher", "primary": True}
COMMAND = {"name": "rate", "command": ["x"], "better": "higher", "primary": True}
RULES = [{"name": "x", "interval": "2s", "rules": [{"record": "job:rate:2m", "expr": "sum(rate(load[2m]))"}]}]


def longest(given, url=None):
    source = None if url is None else prometheus.Prometheus(server.access({"url": url}.get))
    return overlap.of_metrics(settings.metrics(given), source, 10)


def test_the_metric_of_a_real_server_that_counts_most_is_the_one_of_a_trial(tmp_path):
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = "load 1\n"
    load = {"name": "load", "query": "load", "better": "lower", "primary": True}
    with (
        prometheus_server.serving(exporter.answer) as address,
        prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")], rules=RULES) as url,
    ):
        exporter.wait(4)
        for metrics in ([RATE, {**load, "primary": False}], [{**load, "per": "rate"}, {**RATE, "primary": False}]):
            assert longest(metrics, url) == overlap.Longest(
                123.0,
                "rate counts samples from up to 2 min 3 s before (the rule job:rate:2m is evaluated every 2 s and looks"
                " back 2 min; load has a sample every 1 s)",
            )
        with pytest.raises(
            lineage.NotKnownError, match=r"other:rate.*Say it as looks_back of rate in smt_trial_metric"
        ):
            longest([{**RATE, "query": "other:rate"}], url)
        assert longest([{**RATE, "query": "other:rate", "looks_back": "2m"}], url).seconds == 120


def test_what_is_read_on_the_host_counts_since_the_check_before():
    assert longest([COMMAND]).seconds == 0 and longest([{**COMMAND, "counter": True}]).seconds == 10
    assert longest([{**COMMAND, "counter": True, "looks_back": "1m"}]) == overlap.Longest(
        60.0, "rate counts samples from up to 1 min before (it is read on the host)"
    )


@pytest.mark.parametrize(
    ("seconds", "period", "settle", "said"),
    [
        (
            123.0,
            60,
            26,
            "Set smt_trial_settle to 123 or more, and smt_trial_period to 157 to count as much of each per",
        ),
        (123.0, 157, 122, "smt_trial_settle is 122, and rate: a period would count what was in the one before."),
        (0.0, 60, 60, "smt_trial_settle is 60, all of a period of 60 s: set smt_trial_period to more than that"),
        (lineage.ENDLESS, 60, 10, "No period is long enough for that: take a metric that looks back less"),
        (0.2, 60, 0, "Set smt_trial_settle to 1 or more, and smt_trial_period to 61 "),
        (700_000.0, 60, 10, "No period is long enough"),
    ],
)
def test_times_that_count_the_period_before_are_refused_with_times_that_work(seconds, period, settle, said):
    with pytest.raises(settings.TrialSettingsError) as caught:
        overlap.refuse(overlap.Longest(seconds, "rate"), period, settle)
    assert said in str(caught.value)
    assert overlap.refuse(overlap.Longest(123.0, "rate"), 157, 123) is None
