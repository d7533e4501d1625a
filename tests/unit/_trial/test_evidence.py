# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the periods of a trial say: units, comparisons, looks, and the tests of what was assumed."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import json
import math
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import spending
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import answer, assumptions, design, evidence, units
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial.records import Metric, Reading, Trial, WrittenPeriod

ON, OFF = "smt_on", "smt_off"
RATE = Metric("rate", "1/s", "higher", True, None)
P99 = Metric("p99", "s", "lower", False, None)
REQUESTS = Metric("requests", "1/s", "higher", False, None)


def trial(hosts=8, periods=24, name=design.SWITCHBACK, metrics=(RATE,), seed=3, traffic=None, arms=(ON, OFF)):
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(hosts)]
    drawn = design.draw(name, members, design.Wanted(arms, periods, periods // 2, hosts, seed))
    return Trial(
        "r",
        "2026-11-23T12:00:00Z",
        arms,
        {arm: arm for arm in arms},
        metrics,
        traffic,
        (),
        0.01,
        300.0,
        60.0,
        drawn,
        seed,
    )


def measured(one, value, periods=24):
    """Periods of all hosts; ``value(host number, period, arm)`` returns the metrics."""
    return {
        host: [
            units.Period(number, arms[number], value(place, number, arms[number]))
            for number in range(min(periods, len(arms)))
        ]
        for place, (host, arms) in enumerate(one.design.schedule.items())
    }


def noisy(effect, scatter=0.03, seed=1, level=0.5):
    """A rate with differences between hosts, a rhythm, noise, and an effect of SMT off."""
    source = random.Random(seed)

    def value(host, period, arm):
        log = level * host + math.sin(period / 4) + source.gauss(0, scatter) + math.log1p(effect) * (arm == OFF)
        return {"rate": math.exp(log), "p99": math.exp(-log), "requests": math.exp(log)}

    return value


def test_a_unit_is_a_block_of_a_group_each_host_with_itself():
    one = trial(hosts=2, periods=12)
    periods = measured(one, lambda host, period, arm: {"rate": (10.0 + host) * (0.5 if arm == OFF else 1.0)})
    found = units.of_metric(one.design, (ON, OFF), periods, "rate")
    assert [(unit.group, unit.block) for unit in found] == [(0, block) for block in range(6)]
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.5] * 6)


def test_a_host_without_a_value_is_left_out_of_its_block_alone():
    one = trial(hosts=2, periods=12)
    periods = measured(
        one, lambda host, period, arm: {} if (host, period) == (1, 4) else {"rate": 2.0 if arm == OFF else 1.0}
    )
    found = units.of_metric(one.design, (ON, OFF), periods, "rate")
    assert [len(unit.hosts) for unit in found] == [2, 2, 1, 2, 2, 2]


def test_a_metric_per_another_one():
    one = trial(hosts=2, periods=12)
    periods = measured(
        one,
        lambda host, period, arm: {"cpu": 3.0 * (period + 1), "requests": float(period + 1) * (2 if arm == OFF else 1)},
    )
    found = units.of_metric(one.design, (ON, OFF), periods, "cpu", per="requests")
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.5] * 6)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e300])
def test_a_value_without_a_logarithm_makes_no_unit(value):
    one = trial(hosts=2, periods=12)
    assert units.of_metric(one.design, (ON, OFF), measured(one, lambda *_where: {"rate": value}), "rate") == []


def test_parallel_is_the_difference_of_differences():
    one = trial(hosts=12, name=design.PARALLEL)
    periods = measured(
        one,
        lambda host, period, arm: {"rate": (1 + host) * (3.0 if period >= 12 else 1.0) * (0.8 if arm == OFF else 1.0)},
    )
    found = units.of_metric(one.design, (ON, OFF), periods, "rate")
    assert len(found) == 6
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.8] * 6)


def test_levels_of_hosts_and_times_do_not_widen_an_interval():
    one = trial()
    (calm,) = evidence.compare(one, measured(one, noisy(-0.1, level=0.0)))
    (wide,) = evidence.compare(one, measured(one, noisy(-0.1, level=2.0)))
    assert wide["ci_low"] == pytest.approx(calm["ci_low"]) and wide["verdict"] == "loss"
    assert wide["ci_low"] < 0.9 < wide["ci_high"]


def test_the_primary_metric_is_a_family_of_its_own_and_the_direction_counts():
    one = trial(metrics=(P99, RATE, REQUESTS))
    rate, p99, requests = evidence.compare(one, measured(one, noisy(-0.1)))
    assert [(found["metric"], found["family"], found["verdict"]) for found in (rate, p99, requests)] == [
        ("rate", 1, "loss"),
        ("p99", 2, "loss"),
        ("requests", 2, "loss"),
    ]
    rate, p99 = evidence.by_hosts(one, measured(one, noisy(-0.1)), [rate, p99])
    assert answer.sentences(one, [rate, p99], evidence.Looks())[0].startswith(
        "With smt_off instead of smt_on, rate changes by −10"
    )
    assert "p99 changes by +1" in answer.others(one, [rate, p99])[0]


@pytest.mark.parametrize(
    ("metrics", "reason", "why"),
    [
        ({}, "the switch took so long", "the switch took so long"),
        ({"rate": {"value": None, "reason": "1 of 5 points"}}, None, "1 of 5 points"),
        (
            {"rate": {"value": 2.0, "reason": None}, "requests": {"value": None, "reason": "no points"}},
            None,
            "no points",
        ),
        (
            {"rate": {"value": 0.0, "reason": None}, "requests": {"value": 1.0, "reason": None}},
            None,
            "rate was not above 0",
        ),
    ],
)
def test_the_first_period_without_a_value_is_named_with_its_reason(metrics, reason, why):
    one = trial(hosts=2, periods=12, metrics=(Metric("rate", "1/s", "higher", True, "requests"), REQUESTS))
    whole = {"rate": {"value": 2.0, "reason": None}, "requests": {"value": 1.0, "reason": None}}

    def record(number, metrics, reason=None):
        at = datetime.datetime(2026, 3, 1, 12, number, tzinfo=datetime.UTC)
        readings = {name: Reading(**one) for name, one in metrics.items()}
        return WrittenPeriod(number, ON, at, at, at, reason is None, reason, readings, {}, ())

    written = {
        "web0": [record(0, whole), record(1, whole), record(2, metrics, reason)],
        "web1": [record(0, whole), record(1, metrics, reason)],
    }
    assert answer.lost(one, written) == [
        f"2 of 5 periods of hosts have no value of rate and count for nothing, first period 2 of web1: {why}."
    ]
    assert answer.lost(one, {"web0": [record(0, whole), record(1, {}, "each arm is decided: SMT off: worse")]}) == []


def test_looks_correct_the_metric_that_they_are_at_and_no_other():
    one = trial(metrics=(P99, RATE, REQUESTS))
    periods = measured(one, noisy(-0.1, scatter=0.3, level=0.0))
    looks = [spending.Look(units, units / 24) for units in (4, 6, 8, 11, 15, 19, 23, 24)]
    fixed, looked = (evidence.compare(one, periods, taken) for taken in ((), looks))
    assert [after["metric"] for before, after in zip(fixed, looked) if after["ratio"] != before["ratio"]] == ["rate"]


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
    one = trial()
    found, periods = followed(one, noisy(-0.3))
    assert found.decided == {OFF: "loss"} and periods < 8
    # Four groups are done at a time.
    assert [look.blocks for look in found.taken] == [4 * number for number in range(1, periods // 2 + 1)]


@pytest.mark.parametrize("seed", range(1, 41))
def test_the_interval_of_the_primary_metric_agrees_with_what_a_look_decided(seed):
    one = trial(
        hosts=4,
        metrics=(
            RATE,
            P99,
            REQUESTS,
            *(Metric(f"of_nothing_{number}", "1", "lower", False, None) for number in range(3)),
        ),
        seed=seed,
    )
    effect = noisy(-0.1, scatter=0.08, seed=seed)

    # Noise that is drawn once: what was looked at is what is compared.
    @functools.cache
    def value(host, period, arm):
        found = effect(host, period, arm)
        return {**found, **{f"of_nothing_{number}": found["requests"] for number in range(3)}}

    found, periods = followed(one, value)
    decided = found.decided.get(OFF, "inconclusive")
    if decided != "futile":
        assert evidence.compare(one, measured(one, value, periods), found.taken)[0]["verdict"] == decided


def test_where_nothing_is_to_be_found_the_trial_ends_before_its_end():
    outcomes = [
        followed(trial(seed=seed), noisy(0.0, scatter=0.1, seed=seed))[0].decided.get(OFF) for seed in range(40)
    ]
    assert sum(outcome in ("gain", "loss") for outcome in outcomes) <= 5
    assert sum(outcome in ("futile", "equivalent") for outcome in outcomes) >= 25


def test_hosts_that_left_do_not_hold_up_a_look():
    one = trial(hosts=4, periods=12)
    periods = measured(one, noisy(-0.3), 12)
    periods["web3"] = periods["web3"][:3]
    assert units.blocks_over(one.design, periods, ()) == {0: 6, 1: 1}
    assert units.blocks_over(one.design, periods, {"web3"}) == {0: 6, 1: 6}


def test_nothing_is_looked_at_once_all_is_decided_and_lost_units_are_no_evidence():
    one = trial(hosts=4, periods=12)
    periods = measured(one, noisy(-0.3), 4)
    found = evidence.look(one, periods, {0: 2, 1: 2}, evidence.Looks())
    assert [look.blocks for look in found.taken] == [4] and found.decided == {OFF: "loss"}
    # The hosts have left because of that: all units are over, and none is new.
    assert evidence.look(one, periods, {0: 6, 1: 6}, found) == found
    # Two hosts were lost before their first block.
    alone = {host: of_host for host, of_host in measured(one, noisy(-0.3), 10).items() if host in one.design.groups[0]}
    lost = evidence.look(one, alone, {0: 5, 1: 6}, evidence.Looks())
    assert [look.blocks for look in lost.taken] == [5] and lost.taken[0].share == pytest.approx(5 / 6)


def test_without_the_traffic_swapping_two_arms_changes_the_sign_of_one_residual_alone():
    source = random.Random(2)
    logs, traffic = [source.gauss(0, 1) for _unit in range(9)], [source.gauss(0, 1) for _unit in range(9)]
    before = evidence.without_traffic(logs, traffic)
    logs[4], traffic[4] = -logs[4], -traffic[4]
    after = evidence.without_traffic(logs, traffic)
    assert after == pytest.approx([-one if place == 4 else one for place, one in enumerate(before)])


def test_traffic_explains_what_goes_along_with_it():
    one = trial(metrics=(RATE, REQUESTS), traffic="requests")
    source = random.Random(5)
    asked = {(host, period): source.gauss(0, 0.3) for host, period in itertools.product(range(8), range(24))}

    def value(host, period, arm):
        log = asked[host, period]
        return {
            "rate": math.exp(log + source.gauss(0, 0.01) + (math.log(0.95) if arm == OFF else 0)),
            "requests": math.exp(log),
        }

    rate, _requests = evidence.compare(one, measured(one, value))
    assert rate["adjusted"]["verdict"] == "loss"
    assert rate["adjusted"]["ci_high"] - rate["adjusted"]["ci_low"] < (rate["ci_high"] - rate["ci_low"]) / 3


def carried(cost):
    """The p-value of carry-over where each change of arm costs so much in the next period."""
    one = trial()
    schedule = list(one.design.schedule.values())

    def value(host, period, arm):
        changed = period > 0 and schedule[host][period - 1] != arm
        return {"rate": math.exp(random.Random(f"{host} {period}").gauss(0, 0.02) - cost * changed)}

    return assumptions.carry_over(one.design, (ON, OFF), measured(one, value), "rate")


def test_what_an_arm_leaves_behind_is_seen():
    assert carried(0.1).is_seen and carried(0.1).log_ratio == pytest.approx(-0.1, abs=0.04)
    assert not carried(0.0).is_seen


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_the_correlation_of_neighbouring_periods(rho):
    one, source = trial(hosts=20, periods=100), random.Random(4)
    levels = []
    for _host in range(20):
        series = [source.gauss(0, 1)]
        for _period in range(99):
            series.append(rho * series[-1] + source.gauss(0, math.sqrt(1 - rho * rho)))
        levels.append(series)
    periods = measured(
        one,
        lambda host, period, arm: {"rate": math.exp(0.1 * levels[host][period] + math.sin(period) + (arm == OFF))},
        100,
    )
    assert assumptions.autocorrelation(one.design, periods, "rate") == pytest.approx(rho, abs=0.1)


@pytest.mark.parametrize("name", design.DESIGNS)
@pytest.mark.parametrize("liars", [1, 2])
def test_a_host_with_numbers_beyond_all_sense_stops_neither_the_looks_nor_the_report(name, liars):
    one = trial(
        hosts=12, name=name, metrics=(RATE, dataclasses.replace(P99, per="requests"), REQUESTS), traffic="requests"
    )
    honest = noisy(-0.3)

    def value(host, period, arm):
        if host >= liars:
            return honest(host, period, arm)
        # As far apart as can be between hosts, arms, and before and after.
        most = units.MOST if (arm == OFF) == (host == 0) else units.LEAST
        return {"rate": most, "p99": 1 / most, "requests": 1 / most}

    periods = measured(one, value)
    over = dict.fromkeys(range(len(one.design.groups)), 1 if name == design.PARALLEL else 12)
    looks = evidence.look(one, periods, over, evidence.Looks())
    assert looks.taken
    found = evidence.by_hosts(one, periods, evidence.compare(one, periods, looks.taken))
    assert [comparison["metric"] for comparison in found] == ["rate", "p99", "requests"]
    json.dumps(found, allow_nan=False)
    assert answer.sentences(one, found, looks) and answer.rests_on(one, found, periods)


# ---- one host alone --------------------------------------------------------------------------------------------------


def lied(hosts, lie, name=design.SWITCHBACK, liar=0, effect=0.0):
    """A trial without an effect in which one host's rate is another one with SMT off;
    return the comparison and its sentence.
    """
    one, honest = trial(hosts=hosts, name=name), noisy(effect)

    def value(host, period, arm):
        found = honest(host, period, arm)
        return {metric: rate * (1 + lie * (host == liar and arm == OFF)) for metric, rate in found.items()}

    periods = measured(one, value)
    (found,) = evidence.by_hosts(one, periods, evidence.compare(one, periods))
    return found, answer.sentences(one, [found], evidence.Looks())[0], list(one.design.schedule)[liar]


@pytest.mark.parametrize(("hosts", "lie"), [(2, -0.5), (4, -0.5), (6, -0.76)])
@pytest.mark.parametrize("liar", [0, 1])
def test_a_host_that_alone_turns_a_trial_is_named_with_how_many_more_it_takes(hosts, lie, liar):
    found, sentence, host = lied(hosts, lie, liar=liar)
    assert (found["verdict"], found["hosts"], list(found["turned_by"])) == ("loss", hosts, [host])
    others = "the other host says" if hosts == 2 else f"the other {hosts - 1} say"
    assert sentence.endswith(
        f"{host} alone turns this: without it {others} not decided; it takes about {found['more_hosts']} more hosts."
    )
    assert found["more_hosts"] > 1


def test_a_liar_among_pairs_of_hosts_is_named():
    found, _sentence, _host = lied(12, 0.0, design.PARALLEL, effect=-0.2)
    assert found["verdict"] == "loss" and set(found["turned_by"].values()) <= {"inconclusive"}
    assert units.without_each(trial(hosts=12, name=design.PARALLEL).design, (ON, OFF), {}, "rate") == {}


@pytest.mark.parametrize("hosts", [2, 6, 12])
def test_where_all_hosts_say_the_same_none_is_named(hosts):
    found, sentence, _host = lied(hosts, 0.0, effect=-0.3)
    assert (found["verdict"], found["turned_by"], found["more_hosts"]) == ("loss", {}, None) and sentence.endswith(
        "observations."
    )


def test_a_trial_of_one_host_says_that_it_is_one():
    found, sentence, host = lied(1, -0.5)
    assert found["turned_by"] == {host: "inconclusive"} and f"{host} alone says this; it takes about " in sentence


def test_nothing_is_asked_of_what_is_not_decided():
    found, sentence, _host = lied(4, 0.0)
    assert (found["verdict"], found["turned_by"], found["more_hosts"]) == (
        "inconclusive",
        {},
        None,
    ) and "alone" not in sentence


def test_the_units_without_a_host_are_those_of_a_trial_that_never_had_its_values():
    for name in design.DESIGNS:
        one = trial(hosts=7 if name == design.SWITCHBACK else 12, name=name, periods=24)
        periods = measured(
            one,
            lambda host, period, arm: (
                {} if (host, period) == (1, 4) else {"rate": 2.0 + host + period % 3 + (arm == OFF)}
            ),
        )
        found = units.without_each(one.design, (ON, OFF), periods, "rate")
        assert set(found) == set(periods)
        for host, log_ratios in found.items():
            rest = {other: of_host for other, of_host in periods.items() if other != host}
            assert log_ratios == pytest.approx(
                [unit.log_ratio for unit in units.of_metric(one.design, (ON, OFF), rest, "rate")]
            )


def compared(*metrics, **changes):
    """Comparisons of metrics, each of which SMT off changes by a factor."""
    one = trial(metrics=metrics, traffic="requests")

    def value(host, period, arm):
        noise = 1 + 0.004 * ((host + 3 * period) % 5)
        return {name: noise * (factor if arm == OFF else 1.0) for name, factor in changes.items()}

    return one, evidence.compare(one, measured(one, value))


MEDIAN, TAIL = Metric("median_response", "", "lower", True, None), Metric("p99_response", "", "lower", False, None)
MEAN = Metric("mean_response", "", "lower", False, None)


def test_the_median_and_the_tail_of_one_thing_that_point_different_ways_are_named():
    one, found = compared(MEDIAN, TAIL, MEAN, median_response=0.97, p99_response=1.4, mean_response=1.0)
    (said,) = answer.disagreements(one, found)
    assert said.startswith(f"Metrics of the same thing point different ways with {OFF}: median_response −3.0 % (")
    assert "), better; p99_response +40" in said and "), worse; mean_response " in said and said.endswith("difference.")


@pytest.mark.parametrize(
    ("metrics", "changes"),
    [
        # They agree, or one of them points nowhere.
        ((MEDIAN, TAIL), {"median_response": 0.97, "p99_response": 0.6}),
        ((MEDIAN, TAIL), {"median_response": 0.97, "p99_response": 1.0}),
        # They are of different things: another name, unit or direction, or the traffic.
        ((MEDIAN, Metric("p99_wait", "", "lower", False, None)), {"median_response": 0.97, "p99_wait": 1.4}),
        ((MEDIAN, Metric("p99_response", "s", "lower", False, None)), {"median_response": 0.97, "p99_response": 1.4}),
        (
            (Metric("rate", "1/s", "higher", True, None), Metric("requests", "1/s", "higher", False, None)),
            {"rate": 1.2, "requests": 0.8},
        ),
    ],
)
def test_metrics_that_agree_or_are_of_different_things_are_not(metrics, changes):
    one, found = compared(*metrics, **changes)
    assert len(found) == 2 and answer.disagreements(one, found) == []
