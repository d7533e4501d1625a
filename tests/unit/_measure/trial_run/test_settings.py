# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a trial: what is valid becomes typed, and all else gets a sentence that names it."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import arm_states, settings

P99 = {"name": "p99", "query": "p99", "better": "lower", "primary": True}
RATE = {"name": "rate", "command": ["cat", "/run/rate"], "better": "higher"}
ERRORS = {"name": "errors", "query": "e"}


def test_the_primary_metric_comes_first():
    p99, rate = settings.metrics([RATE, P99])
    assert (p99.name, p99.origin, p99.origin.is_on_host) == ("p99", settings.Origin(query="p99"), False)
    assert (rate.name, rate.origin.command, rate.origin.is_on_host) == ("rate", ("cat", "/run/rate"), True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "smt_trial_metrics is empty"),
        ("p99", "must be a list of at most 50"),
        ([P99] * 51, "must be a list of at most 50"),
        ([7], "smt_trial_metrics[0] is 7: it must be a mapping"),
        ([{**P99, "primary": False}], "has 0 primary metrics"),
        ([P99, {**P99, "name": "other"}], "has 2 primary metrics"),
        ([P99, P99], "has p99 twice"),
        ([{**P99, "better": "larger"}], "better is larger: it must be higher or lower"),
        ([{**P99, "name": "P 99"}], "name is P 99: it must be a word"),
        ([{**P99, "query": ""}], "p99 has 0 sources"),
        ([{**P99, "command": ["x"]}], "p99 has 2 sources"),
        ([{**P99, "query": None, "file": "/run/x"}], "file and sample belong together"),
        ([{**P99, "counter": True}], "counter is true or false, and not for a query"),
        ([{**P99, "query": None, "command": "uptime"}], "command is uptime: it must be a list of arguments"),
        ([{**P99, "per": "rate"}], "p99 is given per rate, which is not another of its metrics"),
        ([{**P99, "primary": "yes"}], "primary is yes: it must be true or false"),
        ([{**P99, "colour": "red"}], "smt_trial_metrics[0] has colour: it may have name"),
        ([{**P99, "\x1b[31m": 1}], r"has \x1b[31m"),
        ([{**P99, "looks_back": -1}], "looks_back is -1: it must be a duration such as 30s or 2m"),
    ],
)
def test_metrics_that_are_not_valid(given, said):
    with pytest.raises(settings.TrialSettingsError) as caught:
        settings.metrics(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, None),
        ({"looks_back": None}, None),
        ({"looks_back": "2m"}, 120.0),
        ({"looks_back": 135}, 135.0),
        ({"looks_back": "30"}, 30.0),
        ({"looks_back": "500 ms"}, 0.5),
        ({"looks_back": "1.5 h"}, 5400.0),
        ({"looks_back": "2 min"}, 120.0),
    ],
)
def test_how_far_back_a_metric_counts_as_the_user_says_it(given, seconds):
    assert settings.metrics([{**P99, **given}])[0].looks_back == seconds


def test_a_guardrail():
    (one,) = settings.guardrails([{**ERRORS, "above": "0.01", "for": "30s"}])
    assert one == settings.Limit("errors", 0.01, None, 30.0, settings.Origin(query="e"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give the value that errors may not be above, or the one that it may not be below"),
        ({"above": 1, "below": 0}, "give the value that errors may not be above"),
        ({"above": "many"}, "above is many: it must be a number"),
        ({"above": float("nan")}, "above is nan: it must be a number"),
        ({"above": 1, "for": "long"}, "for is long: it must be a duration"),
        ({"above": 1, "for": -3}, "for is -3: it must be a duration"),
    ],
)
def test_guardrails_that_are_not_valid(given, said):
    with pytest.raises(settings.TrialSettingsError, match=said):
        settings.guardrails([{**ERRORS, **given}])


@pytest.mark.parametrize(
    ("given", "hosts", "most"), [("50%", 8, 4), ("50%", 1, 1), (3, 8, 3), ("100%", 8, 8), ("1", 8, 1)]
)
def test_how_many_hosts_may_be_switched(given, hosts, most):
    assert settings.most_switched(given, hosts) == most


@pytest.mark.parametrize("given", ["0", "0%", "101%", "half", "-1", ""])
def test_a_number_of_hosts_that_is_none(given):
    with pytest.raises(settings.TrialSettingsError, match="it must be a number of hosts, 1 or more, or a share"):
        settings.most_switched(given, 8)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("smt_on", {"state": "enabled"}),
        ("smt_off", {"state": "disabled"}),
        ("threads_per_core_2", {"threads_per_core": 2}),
        ({"smt_off_on": {"node": 0}}, {"state": "disabled", "cores": {"node": 0}}),
        # With a reboot, options of smt_boot_args.
        ("nosmt", {"smt": "disabled"}),
        ("maxcpus_4", {"maxcpus": "4"}),
        ("mitigations_auto_nosmt", {"mitigations": "auto_nosmt"}),
    ],
)
def test_arms_as_options_of_modules(given, options):
    baseline = "smt_off" if given == "smt_on" else "smt_on"
    assert arm_states.options(arm_states.names([baseline, given], with_boots=True)[1]) == options


@pytest.mark.parametrize(
    ("given", "with_boots", "said"),
    [
        (["smt_on"], False, "a trial compares at least two arms"),
        (["smt_on", "thp_never"], False, "thp_never is not an arm of a trial: choose from .*smt_on, smt_off"),
        (["smt_on", "nosmt"], False, "nosmt takes a reboot.*set smt_trial_design to parallel"),
        (["smt_on", "smt_on"], False, "twice"),
        (["smt_on", "of"], False, "there is no arm 'of'"),
        (["nosmt", "smt_on"], True, "nosmt takes a reboot, and the baseline is what all hosts run first"),
        (["smt_on", "mitigations_off"], True, "mitigations_off .*: live hosts would leave open every vulnerability"),
    ],
)
def test_arms_that_a_live_host_cannot_be_held_in(given, with_boots, said):
    with pytest.raises(arm_states.ArmStateError, match=said):
        arm_states.names(given, with_boots)
