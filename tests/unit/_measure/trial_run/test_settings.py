# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a trial, and periods that count samples of each other: what is not valid gets a sentence."""

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import arm_states, overlap, settings

P99 = {"name": "p99", "query": "p99", "better": "lower", "primary": True}
RATE = {"name": "rate", "command": ["cat", "/run/rate"], "better": "higher"}
ERRORS = {"name": "errors", "query": "e"}


def test_the_primary_metric_comes_first():
    p99, rate = settings.metrics([RATE, P99])
    assert (p99.name, p99.origin.asked, p99.origin.command) == ("p99", "p99", [])
    assert (rate.name, rate.origin.command) == ("rate", ["cat", "/run/rate"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "smt_trial_metrics is empty"),
        ([{**P99, "primary": False}], "has 0 primary metrics"),
        ([P99, P99], "has p99 twice"),
        ([{**P99, "command": ["x"]}], "p99 has 2 sources"),
        ([{**P99, "counter": True}], "counter is true or false, and not for a query"),
        ([{**P99, "per": "rate"}], "p99 is given per rate, which is not another of its metrics"),
        ([{**P99, "colour": "red"}], "smt_trial_metrics[0] has colour: it may have name"),
        ([{**P99, "\x1b[31m": 1}], r"has \x1b[31m"),
        ([{**P99, "looks_back": -1}], "looks_back is -1: it must be a duration such as 30s or 2m"),
    ],
)
def test_metrics_that_are_not_valid(given, said):
    with pytest.raises(settings.TrialSettingsError) as caught:
        settings.metrics(given)
    assert said in str(caught.value)


def test_how_far_back_a_metric_counts_as_the_user_says_it():
    assert settings.metrics([P99])[0].looks_back is None
    for given, seconds in (("2m", 120.0), ("500 ms", 0.5), (135, 135.0), ("1.5 h", 5400.0)):
        assert settings.metrics([{**P99, "looks_back": given}])[0].looks_back == seconds


def test_a_guardrail():
    (one,) = settings.guardrails([{**ERRORS, "above": "0.01", "for": "30s"}])
    assert one == settings.Limit("errors", 0.01, None, 30.0, settings.Origin(one.origin.source, "e"))


def test_guardrails_that_are_not_valid():
    for given, said in (
        ({}, "give the value that errors may not be above, or the one that it may not be below"),
        ({"above": "many"}, "above is many: it must be a number"),
        ({"above": 1, "for": "long"}, "for is long: it must be a duration"),
    ):
        with pytest.raises(settings.TrialSettingsError, match=said):
            settings.guardrails([{**ERRORS, **given}])


def test_how_many_hosts_may_be_switched():
    for given, hosts, most in (("50%", 8, 4), ("50%", 1, 1), (3, 8, 3), ("100%", 8, 8), ("1", 8, 1)):
        assert settings.most_switched(given, hosts) == most
    for given in ("0", "0%", "101%", "half", "-1", ""):
        with pytest.raises(settings.TrialSettingsError, match="it must be a number of hosts, 1 or more, or a share"):
            settings.most_switched(given, 8)


def test_arms_as_options_of_modules():
    for given, options in (
        ("smt_off", {"state": "disabled"}),
        ("threads_per_core_2", {"threads_per_core": 2}),
        ({"smt_off_on": {"node": 0}}, {"state": "disabled", "cores": {"node": 0}}),
        # With a reboot, options of smt_boot_args.
        ("nosmt", {"smt": "disabled"}),
    ):
        assert arm_states.options(arm_states.names(["smt_on", given], with_boots=True)[1]) == options


@pytest.mark.parametrize(
    ("given", "with_boots", "said"),
    [
        (["smt_on", "thp_never"], False, "thp_never is not an arm of a trial: choose from .*smt_on, smt_off"),
        (["smt_on", "nosmt"], False, "nosmt takes a reboot.*set smt_trial_design to parallel"),
        (["nosmt", "smt_on"], True, "nosmt takes a reboot, and the baseline is what all hosts run first"),
        (["smt_on", "mitigations_off"], True, "mitigations_off .*: live hosts would leave open every vulnerability"),
    ],
)
def test_arms_that_a_live_host_cannot_be_held_in(given, with_boots, said):
    with pytest.raises(arm_states.ArmStateError, match=said):
        arm_states.names(given, with_boots)


RULE = {"name": "rate", "query": "job:rate:2m", "better": "higher", "primary": True}
COMMAND = {"name": "rate", "command": ["x"], "better": "higher", "primary": True}
RULES = [{"name": "x", "interval": "2s", "rules": [{"record": "job:rate:2m", "expr": "sum(rate(load[2m]))"}]}]


def longest(given, url=None):
    servers = {} if url is None else {one: one.connect({"url": url}.get) for one in prometheus.SOURCES}
    return overlap.of_metrics(settings.metrics(given), servers, 10)


def test_the_metric_of_a_real_server_that_counts_most_is_the_one_of_a_trial(tmp_path):
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = "load 1\n"
    load = {"name": "load", "query": "load", "better": "lower", "primary": True}
    with (
        prometheus_server.serving(exporter.answer) as address,
        prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")], rules=RULES) as url,
    ):
        exporter.wait(4)
        for metrics in ([RULE, {**load, "primary": False}], [{**load, "per": "rate"}, {**RULE, "primary": False}]):
            found = longest(metrics, url)
            assert found.seconds == 123.0 and "the rule job:rate:2m is evaluated every 2 s and looks" in str(found)
        with pytest.raises(lineage.NotKnownError, match=r"other:rate.*Say it as looks_back of rate in smt_"):
            longest([{**RULE, "query": "other:rate"}], url)
        assert longest([{**RULE, "query": "other:rate", "looks_back": "2m"}], url).seconds == 120


def test_what_is_read_on_the_host_counts_since_the_check_before():
    assert longest([COMMAND]).seconds == 0 and longest([{**COMMAND, "counter": True}]).seconds == 10
    assert longest([{**COMMAND, "counter": True, "looks_back": "1m"}]).seconds == 60


@pytest.mark.parametrize(
    ("seconds", "period", "settle", "said"),
    [
        (123.0, 60, 26, "Set smt_trial_settle to 123 or more, and smt_trial_period to 157 to count as much of each "),
        (0.0, 60, 60, "smt_trial_settle is 60, all of a period of 60 s: set smt_trial_period to more than that"),
        (lineage.ENDLESS, 60, 10, "No period is long enough for that: take a metric that looks back less"),
    ],
)
def test_times_that_count_the_period_before_are_refused_with_times_that_work(seconds, period, settle, said):
    with pytest.raises(settings.TrialSettingsError) as caught:
        overlap.refuse(overlap.Longest(seconds, "rate"), period, settle)
    assert said in str(caught.value)
    assert overlap.refuse(overlap.Longest(123.0, "rate"), 157, 123) is None
