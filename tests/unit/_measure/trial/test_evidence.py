# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the periods of a trial say: units, comparisons, looks, tests of what was assumed, and sentences of it all."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import spending
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import (
    answer,
    assumptions,
    design,
    evidence,
    units,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import (
    Metric,
    Reading,
    Trial,
    WrittenPeriod,
)

ON, OFF = "smt_on", "smt_off"
RATE = Metric("rate", "1/s", "higher", True, None)
P99 = Metric("p99", "s", "lower", False, None)
REQUESTS = Metric("requests", "1/s", "higher", False, None)


def trial(hosts=8, periods=24, name=design.SWITCHBACK, metrics=(RATE,), seed=3, traffic=None, looks_back=None):
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(hosts)]
    drawn = design.draw(name, members, design.Wanted((ON, OFF), periods, periods // 2, hosts, seed))
    about = ("r", "2026-11-23T12:00:00Z", (ON, OFF), {ON: ON, OFF: OFF}, metrics, traffic, ())
    return Trial(*about, 0.01, 300.0, 60.0, drawn, seed, looks_back)


def measured(one, value, periods=24):
    """Periods of all hosts; ``value(host number, period, arm)`` returns the metrics."""
    return {
        host: [units.Period(number, arm, value(place, number, arm)) for number, arm in enumerate(arms[:periods])]
        for place, (host, arms) in enumerate(one.design.schedule.items())
    }


def noisy(effect, scatter=0.03, seed=1, level=0.5):
    """A rate with differences between hosts, a rhythm, noise, and an effect of SMT off, drawn once."""
    source = random.Random(seed)

    @functools.cache
    def value(host, period, arm):
        log = level * host + math.sin(period / 4) + source.gauss(0, scatter) + math.log1p(effect) * (arm == OFF)
        return {"rate": math.exp(log), "p99": math.exp(-log), "requests": math.exp(log)}

    return value


@pytest.mark.parametrize(
    ("value", "ratio", "hosts"),
    [
        # Each host is compared with itself.
        (lambda host, period, arm: {"rate": (10.0 + host) * (0.5 if arm == OFF else 1.0)}, 0.5, [2] * 6),
        # A host without a value, or with one that has no logarithm, is left out of its block alone.
        (
            lambda host, period, arm: {} if (host, period) == (1, 4) else {"rate": 2.0 if arm == OFF else 1.0},
            2.0,
            [2, 2, 1, 2, 2, 2],
        ),
        (lambda host, period, arm: {"rate": -1.0 if (host, period) == (1, 4) else 1.0}, 1.0, [2, 2, 1, 2, 2, 2]),
        (lambda host, period, arm: {"rate": 0.0 if host == 0 else 1.0}, 1.0, [1] * 6),
        (lambda host, period, arm: {"rate": 1e300}, 1.0, []),
    ],
)
def test_a_unit_is_a_block_of_a_group(value, ratio, hosts):
    one = trial(hosts=2, periods=12)
    found = units.of_metric(one.design, (ON, OFF), measured(one, value), "rate")
    assert [len(unit.hosts) for unit in found] == hosts
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([ratio] * len(hosts))
    assert [(unit.group, unit.block) for unit in found] == [(0, block) for block in range(len(hosts))]


def test_a_metric_per_another_one_and_per_nothing():
    def value(_host, period, arm):
        return {
            "cpu": 3.0 * (period + 1),
            "requests": 0.0 if period == 11 else (period + 1.0) * (2 if arm == OFF else 1),
        }

    one = trial(hosts=2, periods=12)
    found = units.of_metric(one.design, (ON, OFF), measured(one, value), "cpu", per="requests")
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.5] * 5)


def test_parallel_is_the_difference_of_differences():
    def value(host, period, arm):
        return {"rate": (1 + host) * (3.0 if period >= 12 else 1.0) * (0.8 if arm == OFF else 1.0)}

    one = trial(hosts=12, name=design.PARALLEL)
    found = units.of_metric(one.design, (ON, OFF), measured(one, value), "rate")
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.8] * 6)


@pytest.mark.parametrize(("name", "hosts"), [(design.SWITCHBACK, 7), (design.PARALLEL, 12)])
def test_the_units_without_a_host_are_those_of_a_trial_that_never_had_its_values(name, hosts):
    def value(host, period, arm):
        return {} if (host, period) == (1, 4) else {"rate": 2.0 + host + period % 3 + (arm == OFF)}

    one = trial(hosts=hosts, name=name)
    periods = measured(one, value)
    found = units.without_each(one.design, (ON, OFF), periods, "rate")
    assert set(found) == set(periods) and units.without_each(one.design, (ON, OFF), {}, "rate") == {}
    for host, log_ratios in found.items():
        rest = units.of_metric(one.design, (ON, OFF), {**periods, host: []}, "rate")
        assert log_ratios == pytest.approx([unit.log_ratio for unit in rest])


def test_hosts_that_left_do_not_hold_up_a_look():
    one = trial(hosts=4, periods=12)
    periods = measured(one, noisy(-0.3), 12)
    periods["web3"] = periods["web3"][:3]
    assert units.blocks_over(one.design, periods, ()) == {0: 6, 1: 1}
    assert units.blocks_over(one.design, periods, {"web3"}) == {0: 6, 1: 6}


def test_levels_of_hosts_and_times_do_not_widen_an_interval():
    one = trial()
    (calm,), (wide,) = (evidence.compare(one, measured(one, noisy(-0.1, level=level))) for level in (0.0, 2.0))
    assert wide["ci_low"] == pytest.approx(calm["ci_low"]) and wide["verdict"] == "loss"
    assert wide["ci_low"] < 0.9 < wide["ci_high"]


def test_the_primary_metric_is_a_family_of_its_own_and_looks_correct_it_alone():
    one = trial(metrics=(P99, RATE, REQUESTS))
    periods = measured(one, noisy(-0.1, scatter=0.3, level=0.0))
    looks = [spending.Look(count, count / 24) for count in (4, 6, 8, 11)]
    fixed, looked = (evidence.compare(one, periods, taken) for taken in ((), looks))
    assert [(found["metric"], found["family"]) for found in fixed] == [("rate", 1), ("p99", 2), ("requests", 2)]
    assert [after["metric"] for before, after in zip(fixed, looked) if after["ratio"] != before["ratio"]] == ["rate"]
    # Whichever way the metric points.
    assert [one["ratio"] < 1 for one in fixed] == [True] * 3


def followed(one, value):
    """A trial with its looks after each block of periods: (looks, periods done)."""
    found = evidence.Looks()
    for periods in range(2, 25, 2):
        known = measured(one, value, periods)
        found = evidence.look(one, known, units.blocks_over(one.design, known, ()), found)
        if found.decided:
            break
    return found, periods


def test_a_large_effect_ends_the_trial_at_a_look():
    found, periods = followed(trial(), noisy(-0.3))
    assert found.decided == {OFF: "loss"} and periods < 8
    # Four groups are done at a time.
    assert [look.blocks for look in found.taken] == [4 * number for number in range(1, periods // 2 + 1)]


def test_the_interval_of_the_primary_metric_agrees_with_what_a_look_decided():
    for seed in range(night.number(4, 41)):
        one, value = trial(hosts=4, metrics=(RATE, P99, REQUESTS), seed=seed), noisy(-0.1, scatter=0.08, seed=seed)
        found, periods = followed(one, value)
        decided = found.decided.get(OFF, "inconclusive")
        assert decided in ("futile", evidence.compare(one, measured(one, value, periods), found.taken)[0]["verdict"]), (
            seed
        )


def test_where_nothing_is_to_be_found_the_trial_ends_before_its_end():
    trials = night.number(10, 40)
    outcomes = [
        followed(trial(seed=seed), noisy(0.0, scatter=0.1, seed=seed))[0].decided.get(OFF) for seed in range(trials)
    ]
    assert sum(outcome in ("gain", "loss") for outcome in outcomes) <= trials / 8, outcomes
    assert sum(outcome in ("futile", "equivalent") for outcome in outcomes) >= trials / 2, outcomes


def test_nothing_is_looked_at_once_all_is_decided_and_units_that_are_lost_or_not_over_are_no_evidence():
    one = trial(hosts=4, periods=12)
    periods = measured(one, noisy(-0.3), 4)
    found = evidence.look(one, periods, {0: 2, 1: 2}, evidence.Looks())
    assert [look.blocks for look in found.taken] == [4] and found.decided == {OFF: "loss"}
    # The hosts have left because of that: all units are over, and none is new.
    assert evidence.look(one, periods, {0: 6, 1: 6}, found) == found
    assert evidence.look(one, periods, {0: 2, 1: 1}, evidence.Looks()) == evidence.Looks()
    # Two hosts were lost before their first block.
    alone = {host: of_host for host, of_host in measured(one, noisy(-0.3), 10).items() if host in one.design.groups[0]}
    lost = evidence.look(one, alone, {0: 5, 1: 6}, evidence.Looks())
    assert [look.blocks for look in lost.taken] == [5] and lost.taken[0].share == pytest.approx(5 / 6)


def test_traffic_explains_what_goes_along_with_it():
    source = random.Random(5)

    def value(_host, _period, arm):
        asked = source.gauss(0, 0.3)
        rate = math.exp(asked + source.gauss(0, 0.01) + (math.log(0.95) if arm == OFF else 0))
        return {"rate": rate, "requests": math.exp(asked)}

    one = trial(metrics=(RATE, REQUESTS), traffic="requests")
    rate, _requests = evidence.compare(one, measured(one, value))
    rest = rate["adjusted"]
    assert rest["verdict"] == "loss" and rest["ci_high"] - rest["ci_low"] < (rate["ci_high"] - rate["ci_low"]) / 3


@pytest.mark.parametrize("cost", [0.0, 0.1])
def test_what_an_arm_leaves_behind_is_seen(cost):
    """Each change of arm costs so much in the next period."""
    one = trial()
    schedule = list(one.design.schedule.values())

    def value(host, period, arm):
        changed = period > 0 and schedule[host][period - 1] != arm
        return {"rate": math.exp(random.Random(f"{host} {period}").gauss(0, 0.02) - cost * changed)}

    found = assumptions.carry_over(one.design, (ON, OFF), measured(one, value), "rate")
    assert (found.is_seen, found.log_ratio) == (cost > 0, pytest.approx(-cost, abs=0.04))


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_correlation_of_neighbouring_periods(rho):
    one, source = trial(hosts=20, periods=100), random.Random(4)
    levels = [[source.gauss(0, 1)] for _host in range(20)]
    for series in levels:
        for _period in range(99):
            series.append(rho * series[-1] + source.gauss(0, math.sqrt(1 - rho * rho)))

    def value(host, period, arm):
        return {"rate": math.exp(0.1 * levels[host][period] + math.sin(period) + (arm == OFF))}

    found = assumptions.autocorrelation(one.design, measured(one, value, 100), "rate")
    assert found == pytest.approx(rho, abs=0.1)


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("name", "liars"), [(design.PARALLEL, 2), (design.SWITCHBACK, 1), (design.SWITCHBACK, 2), (design.PARALLEL, 1)]
)
def test_a_host_with_numbers_beyond_all_sense_stops_neither_the_looks_nor_the_report(name, liars):
    metrics, honest = (RATE, dataclasses.replace(P99, per="requests"), REQUESTS), noisy(-0.3)

    def value(host, period, arm):
        if host >= liars:
            return honest(host, period, arm)
        # As far apart as can be between hosts, arms, and before and after.
        most = units.MOST if (arm == OFF) == (host == 0) else units.LEAST
        return {"rate": most, "p99": 1 / most, "requests": 1 / most}

    one = trial(hosts=12, name=name, metrics=metrics, traffic="requests")
    periods = measured(one, value)
    over = dict.fromkeys(range(len(one.design.groups)), 1 if name == design.PARALLEL else 12)
    looks = evidence.look(one, periods, over, evidence.Looks())
    found = evidence.by_hosts(one, periods, evidence.compare(one, periods, looks.taken))
    assert looks.taken and [comparison["metric"] for comparison in found] == ["rate", "p99", "requests"]
    json.dumps(found, allow_nan=False)
    assert answer.sentences(one, found, looks) and answer.rests_on(one, found, periods)


def lied(hosts, lie, name=design.SWITCHBACK, liar=0, effect=0.0, better="higher"):
    """What is said where one host's rate is another one with SMT off: (comparison, sentence, that host)."""
    one, honest = trial(hosts=hosts, name=name, metrics=(dataclasses.replace(RATE, better=better),)), noisy(effect)

    def value(host, period, arm):
        return {"rate": honest(host, period, arm)["rate"] * (1 + lie * (host == liar and arm == OFF))}

    periods = measured(one, value)
    (found,) = evidence.by_hosts(one, periods, evidence.compare(one, periods))
    return found, answer.sentences(one, [found], evidence.Looks())[0], list(one.design.schedule)[liar]


@pytest.mark.parametrize(("hosts", "lie"), [(2, -0.5), (4, -0.5), (6, -0.76), (1, -0.5)])
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_host_that_alone_turns_a_trial_is_named_with_how_many_more_it_takes(hosts, lie, better):
    found, sentence, host = lied(hosts, lie, liar=hosts // 2, better=better)
    decided = "loss" if better == "higher" else "gain"
    assert (found["verdict"], found["hosts"], found["turned_by"]) == (decided, hosts, {host: "inconclusive"})
    assert found["more_hosts"] >= 1 and f"{host} alone" in sentence and f"{found['more_hosts']} more host" in sentence


@pytest.mark.parametrize(
    ("hosts", "effect", "verdict"), [(2, -0.3, "loss"), (6, -0.3, "loss"), (4, 0.0, "inconclusive")]
)
def test_where_all_hosts_say_the_same_or_nothing_is_decided_none_is_named(hosts, effect, verdict):
    found, sentence, _host = lied(hosts, 0.0, effect=effect)
    assert (found["verdict"], found["turned_by"], found["more_hosts"]) == (
        verdict,
        {},
        None,
    ) and "alone" not in sentence


def said_of(one, value, looks=None, periods=24):
    known = measured(one, value, periods)
    found = evidence.by_hosts(one, known, evidence.compare(one, known))
    looks = looks or evidence.Looks()
    return (
        *answer.sentences(one, found, looks),
        *answer.others(one, found),
        *answer.disagreements(one, found),
        *answer.rests_on(one, found, known),
    )


def stepped(**factors):
    """Metrics that SMT off changes by a factor, with a little noise that is always the same."""

    def value(host, period, arm):
        noise = 1 + 0.004 * ((host + 3 * period) % 5)
        return {name: noise * (factor if arm == OFF else 1.0) for name, factor in factors.items()}

    return value


MEDIAN, TAIL = (Metric(f"{name}_response", "", "lower", name == "median", None) for name in ("median", "p99"))
OF_RATE = said_of(trial(), stepped(rate=0.8))
OF_PAIRS = said_of(trial(hosts=12, name=design.PARALLEL), stepped(rate=0.8))
OF_TWO = said_of(trial(metrics=(MEDIAN, TAIL)), stepped(median_response=0.97, p99_response=1.4))
LOADED = trial(metrics=(RATE, REQUESTS), traffic="requests", looks_back=50.0)
WITH_TRAFFIC = said_of(LOADED, stepped(rate=1.2, requests=0.8))
FUTILE = evidence.Looks((), {OFF: "futile"})


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            said_of(trial(), lambda *_where: {}),
            "Nothing can be said: no host has a value of rate in both arms of a com",
        ),
        (
            said_of(trial(hosts=1), noisy(-0.3), periods=4),
            "2 of 12 observations have a value of rate, and a verdict need",
        ),
        (
            OF_RATE,
            "With smt_off instead of smt_on, rate changes by −20.0 % (−20.0 to −20.0 %): worse, after 48 of 48 obs",
        ),
        (said_of(trial(), noisy(0.0), FUTILE), "The rest of the trial would hardly have decided it; an effect of "),
        (OF_TWO, "With smt_off instead of smt_on, p99_response changes by +40.0 % (+40.0 to +40.0 %): worse."),
        (
            OF_TWO,
            "point different ways with smt_off: median_response −3.0 % (−3.0 to −3.0 %), better; p99_response +40.0",
        ),
        (WITH_TRAFFIC, "rate with smt_off, without what goes along with requests: "),
        (WITH_TRAFFIC, "requests itself depends on the arm, so figures without it would hide a part of the effect."),
        (
            WITH_TRAFFIC,
            "A value counts samples from up to 50 s before it, and the first 60 s of a period are not counted:",
        ),
        (OF_RATE, "One observation is a block of periods of a group of hosts, never a scrape."),
        (OF_PAIRS, "One observation is a group of hosts before and after, never a scrape."),
        (OF_RATE, "drawn by lot (seed 3): verdicts hold however much neighbouring periods resemble each other."),
        (OF_RATE, "take for granted that an arm leaves nothing behind for the counted part of the next period."),
        (OF_RATE, "What a change of arm leaves behind does not show in rate with smt_off (p = "),
        (OF_RATE, "Neighbouring periods of a host have a correlation of "),
    ],
)
def test_each_sentence(said, sentence):
    assert any(sentence in one for one in said), said


def test_traffic_is_no_other_side_of_what_is_measured():
    assert not any("different ways" in one for one in WITH_TRAFFIC)


RATE_GIVEN = {"rate": {"value": 2.0, "reason": None}}


@pytest.mark.parametrize(
    ("metrics", "reason", "why"),
    [
        ({}, "the switch took so long", "the switch took so long"),
        ({"rate": {"value": None, "reason": "1 of 5 points"}}, None, "1 of 5 points"),
        ({**RATE_GIVEN, "requests": {"value": None, "reason": "no points"}}, None, "no points"),
        ({**RATE_GIVEN, "requests": {"value": 0.0, "reason": None}}, None, "rate was not above 0"),
    ],
)
def test_the_first_period_without_a_value_is_named_with_its_reason(metrics, reason, why):
    one = trial(hosts=2, periods=12, metrics=(Metric("rate", "1/s", "higher", True, "requests"), REQUESTS))
    whole = {**RATE_GIVEN, "requests": {"value": 1.0, "reason": None}}

    def record(number, metrics, reason=None):
        at = datetime.datetime(2026, 3, 1, 12, number, tzinfo=datetime.UTC)
        readings = {name: Reading(**one) for name, one in metrics.items()}
        return WrittenPeriod(number, ON, at, at, at, reason is None, reason, readings, {}, ())

    web0 = [record(0, whole), record(1, whole), record(2, metrics, reason)]
    assert answer.lost(one, {"web0": web0, "web1": [record(0, whole), record(1, metrics, reason)]}) == [
        f"2 of 5 periods of hosts have no value of rate and count for nothing, first period 2 of web1: {why}."
    ]
    assert answer.lost(one, {"web0": [record(0, whole), record(1, {}, "each arm is decided: SMT off: worse")]}) == []
