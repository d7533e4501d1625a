# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Periods that count samples of each other are refused, with times that work; a whole trial of it is in
tests/playbooks/test_trial_rules.py.
"""

from __future__ import annotations

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import lineage, prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import overlap, settings

RATE = {"name": "rate", "query": "job:rate:2m", "better": "higher", "primary": True}
RULES = [{"name": "x", "interval": "2s", "rules": [{"record": "job:rate:2m", "expr": "sum(rate(load[2m]))"}]}]


def longest(given, url=None, check=10):
    source = None if url is None else prometheus.Prometheus(server.access({"url": url}.get))
    return overlap.of_metrics(settings.metrics(given), source, check)


@pytest.fixture(name="url", scope="module")
def a_server_with_a_rule(tmp_path_factory):
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = "load 1\n"
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        prometheus_server.serving(exporter.answer) as address,
        prometheus_server.prometheus(directory, [address.removeprefix("http://")], rules=RULES) as url,
    ):
        exporter.wait(4)
        yield url


def test_the_metric_that_counts_most_is_the_one_of_a_trial(url):
    load = {"name": "load", "query": "load", "better": "lower"}
    said = (
        "rate counts samples from up to 2 min 3 s before (the rule job:rate:2m is evaluated every 2 s and looks back 2"
        " min; load has a sample every 1 s)"
    )
    for metrics in (
        [RATE, load],
        [{**load, "primary": True}, {**RATE, "primary": False}],
        [{**load, "primary": True, "per": "rate"}, {**RATE, "primary": False}],
    ):
        assert longest(metrics, url) == overlap.Longest(123.0, said)


def test_what_is_read_on_the_host_counts_since_the_check_before():
    command = {"name": "rate", "command": ["x"], "better": "higher", "primary": True}
    assert longest([command]).seconds == 0
    assert longest([{**command, "counter": True}]).seconds == 10
    said = "rate counts samples from up to 1 min before (it is read on the host)"
    assert longest([{**command, "counter": True, "looks_back": "1m"}]) == overlap.Longest(60.0, said)


def test_what_is_not_known_names_the_way_out(url):
    with pytest.raises(lineage.NotKnownError) as caught:
        longest([{**RATE, "query": "other:rate"}], url)
    assert (
        str(caught.value)
        == "how far back rate counts is not known: other:rate has the name of a rule's series, and no rule of the"
        " metrics server makes it. Say it as looks_back of rate in smt_trial_metrics, such as looks_back: 2m"
    )
    assert longest([{**RATE, "query": "other:rate", "looks_back": "2m"}], url).seconds == 120


def test_times_that_count_the_period_before_are_refused_with_times_that_work(url):
    found = longest([RATE], url)
    with pytest.raises(settings.TrialSettingsError) as caught:
        overlap.refuse(found, 60, 26)
    assert (
        str(caught.value)
        == f"smt_trial_settle is 26, and {found.said}: a period would count what was in the one before. "
        "Set smt_trial_settle to 123 or more, and smt_trial_period to 157 to count as much of each period as with 60"
    )
    overlap.refuse(found, 157, 123)
    with pytest.raises(settings.TrialSettingsError, match="smt_trial_settle is 122, and rate counts"):
        overlap.refuse(found, 157, 122)


@pytest.mark.parametrize(
    ("seconds", "period", "settle", "said"),
    [
        (0.0, 60, 60, "smt_trial_settle is 60, all of a period of 60 s: set smt_trial_period to more than that"),
        (lineage.ENDLESS, 60, 10, "rate. No period is long enough for that: take a metric that looks back less"),
        (0.2, 60, 0, "Set smt_trial_settle to 1 or more, and smt_trial_period to 61 "),
        (700_000.0, 60, 10, "No period is long enough"),
    ],
)
def test_other_times_that_are_refused(seconds, period, settle, said):
    with pytest.raises(settings.TrialSettingsError) as caught:
        overlap.refuse(overlap.Longest(seconds, "rate"), period, settle)
    assert said.replace("rate. ", "rate: a period would count what was in the one before. ") in str(caught.value)
