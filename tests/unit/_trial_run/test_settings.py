# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a trial: what is valid becomes typed, and all else gets a sentence that names it."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._arms import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import arm_states, settings

P99 = {"name": "p99", "query": "p99", "better": "lower", "primary": True}
RATE = {"name": "rate", "command": ["cat", "/run/rate"], "better": "higher"}


def test_the_primary_metric_comes_first():
    found = settings.metrics([RATE, P99])
    assert [one.name for one in found] == ["p99", "rate"]
    assert found[0].origin == settings.Origin(query="p99") and not found[0].origin.is_on_host
    assert found[1].origin == settings.Origin(command=("cat", "/run/rate")) and found[1].origin.is_on_host


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "smt_trial_metrics is empty"),
        ("p99", "must be a list"),
        ([7], r"smt_trial_metrics\[0\] is 7: it must be a mapping"),
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
        ([{**P99, "colour": "red"}], r"smt_trial_metrics\[0\] has colour: it may have name"),
        ([{**P99, "\x1b[31m": 1}], r"has \\x1b\[31m"),
        ([P99] * 51, "a list of at most 50"),
    ],
)
def test_metrics_that_are_not_valid(given, sentence):
    with pytest.raises(settings.TrialSettingsError, match=sentence):
        settings.metrics(given)


def test_how_far_back_a_metric_counts_as_the_user_says_it():
    assert [
        settings.metrics([{**P99, **more}])[0].looks_back
        for more in ({}, {"looks_back": None}, {"looks_back": "2m"}, {"looks_back": 135})
    ] == [
        None,
        None,
        120.0,
        135.0,
    ]
    with pytest.raises(
        settings.TrialSettingsError,
        match=r"smt_trial_metrics\[0\]: looks_back is -1: it must be a duration such as 30s or 2m",
    ):
        settings.metrics([{**P99, "looks_back": -1}])


def test_a_guardrail():
    (one,) = settings.guardrails([{"name": "errors", "query": "e", "above": "0.01", "for": "30s"}])
    assert one == settings.Limit("errors", 0.01, None, 30.0, settings.Origin(query="e"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([{"name": "errors", "query": "e"}], "give the value that errors may not be above"),
        ([{"name": "errors", "query": "e", "above": 1, "below": 0}], "give the value that errors may not be above"),
        ([{"name": "errors", "query": "e", "above": "many"}], "above is many: it must be a number"),
        ([{"name": "errors", "query": "e", "above": float("nan")}], "above is nan: it must be a number"),
        (
            [{"name": "errors", "query": "e", "above": 1, "for": "long"}],
            "for is long: it must be a duration such as 30s or 2m",
        ),
        ([{"name": "errors", "query": "e", "above": 1, "for": -3}], "for is -3: it must be a duration"),
    ],
)
def test_guardrails_that_are_not_valid(given, sentence):
    with pytest.raises(settings.TrialSettingsError, match=sentence):
        settings.guardrails(given)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(30, 30.0), ("30", 30.0), ("2m", 120.0), ("500 ms", 0.5), ("1.5 h", 5400.0), ("2 min", 120.0)],
)
def test_durations(given, seconds):
    assert settings.seconds("for", given) == seconds


@pytest.mark.parametrize(
    ("given", "hosts", "most"), [("50%", 8, 4), ("50%", 1, 1), (3, 8, 3), ("100%", 8, 8), ("1", 8, 1)]
)
def test_how_many_hosts_may_be_switched(given, hosts, most):
    assert settings.most_switched(given, hosts) == most


@pytest.mark.parametrize("given", ["0", "0%", "101%", "half", "-1", ""])
def test_a_number_of_hosts_that_is_none(given):
    with pytest.raises(settings.TrialSettingsError, match="it must be a number of hosts, 1 or more, or a share"):
        settings.most_switched(given, 8)


def test_arms_as_options_of_smt_state():
    names = arm_states.names(["smt_on", "smt_off", "threads_per_core_2", {"smt_off_on": {"node": 0}}], with_boots=False)
    assert [arm_states.options(name) for name in names] == [
        {"state": "enabled"},
        {"state": "disabled"},
        {"threads_per_core": 2},
        {"state": "disabled", "cores": {"node": 0}},
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["smt_on"], "a trial compares at least two arms"),
        (["smt_on", "thp_never"], "thp_never is not an arm of a trial"),
        (["smt_on", "nosmt"], "nosmt takes a reboot.*set smt_trial_design to parallel"),
        (["smt_on", "smt_on"], "twice"),
        (["smt_on", "of"], "there is no arm 'of'"),
    ],
)
def test_arms_that_a_live_host_cannot_be_held_in(given, sentence):
    with pytest.raises(arm_states.ArmStateError, match=sentence):
        arm_states.names(given, with_boots=False)


def test_arms_that_take_a_reboot_as_options_of_smt_boot_args():
    names = arm_states.names(["smt_on", "nosmt", "maxcpus_4", "mitigations_auto_nosmt"], with_boots=True)
    assert [catalogue.takes_reboot(name) for name in names] == [False, True, True, True]
    assert [arm_states.options(name) for name in names[1:]] == [
        {"smt": "disabled"},
        {"maxcpus": "4"},
        {"mitigations": "auto_nosmt"},
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["nosmt", "smt_on"], "nosmt takes a reboot, and the baseline is what all hosts run first"),
        (
            ["smt_on", "mitigations_off"],
            "mitigations_off is not an arm of a trial: live hosts would leave open every vulnerability",
        ),
    ],
)
def test_arms_that_a_live_host_is_not_booted_into(given, sentence):
    with pytest.raises(arm_states.ArmStateError, match=sentence):
        arm_states.names(given, with_boots=True)
