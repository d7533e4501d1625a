# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the periods of a trial say: units, comparisons, looks, tests of what was assumed, and sentences of it all."""

import functools
import itertools
import json
import math
import random

import night
import pytest
import trial_maker
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import spending
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import (
    answer,
    assumptions,
    design,
    effects,
    evidence,
    guardrails,
    units,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import (
    Metric,
    Period,
    Reading,
)

ON, OFF = "smt_on", "smt_off"
RATE = Metric("rate", "1/s", "higher", True, None)
P99 = Metric("p99", "s", "lower", False, None)
REQUESTS = Metric("requests", "1/s", "higher", False, None)


def trial(hosts=8, periods=24, name=design.SWITCHBACK, metrics=(RATE,), seed=3, traffic=None, looks_back=None):
    members = [design.Member(f"web{number}", "x", float(number)) for number in range(hosts)]
    drawn = design.draw(name, members, design.Wanted((ON, OFF), periods, periods // 2, hosts, seed))
    made = trial_maker.of_design(drawn, {ON: ON, OFF: OFF}, metrics, traffic)
    return parts.changed(made, seed=seed, **{} if looks_back is None else {"looks_back_seconds": looks_back})


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


def test_a_unit_is_a_block_of_a_group():
    one = trial(hosts=2, periods=12)
    for value, ratio, hosts in (
        # Each host is compared with itself.
        (lambda host, period, arm: (10.0 + host) * (0.5 if arm == OFF else 1.0), 0.5, [2] * 6),
        # A host without a value, or with one that has no logarithm, is left out of its block alone.
        (lambda *at: None if at[:2] == (1, 4) else 2.0 if at[2] == OFF else 1.0, 2.0, [2, 2, 1, 2, 2, 2]),
        (lambda host, period, arm: -1.0 if (host, period) == (1, 4) else 1.0, 1.0, [2, 2, 1, 2, 2, 2]),
        (lambda host, period, arm: 0.0 if host == 0 else 1.0, 1.0, [1] * 6),
        (lambda host, period, arm: 1e300, 1.0, []),
    ):
        known = measured(one, lambda *at, value=value: {} if value(*at) is None else {"rate": value(*at)})
        found = units.of_metric(one.design, (ON, OFF), known, "rate")
        assert [len(unit.hosts) for unit in found] == hosts
        assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([ratio] * len(hosts))
        assert [(unit.group, unit.block) for unit in found] == [(0, block) for block in range(len(hosts))]


def test_a_metric_per_another_one_and_per_nothing():
    def value(_host, period, arm):
        requests = 0.0 if period == 11 else (period + 1.0) * (2 if arm == OFF else 1)
        return {"cpu": 3.0 * (period + 1), "requests": requests}

    one = trial(hosts=2, periods=12)
    found = units.of_metric(one.design, (ON, OFF), measured(one, value), "cpu", per="requests")
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.5] * 5)


def test_parallel_is_the_difference_of_differences():
    def value(host, period, arm):
        return {"rate": (1 + host) * (3.0 if period >= 12 else 1.0) * (0.8 if arm == OFF else 1.0)}

    one = trial(hosts=12, name=design.PARALLEL)
    found = units.of_metric(one.design, (ON, OFF), measured(one, value), "rate")
    assert [math.exp(unit.log_ratio) for unit in found] == pytest.approx([0.8] * 6)


def test_the_primary_metric_is_a_family_of_its_own_and_looks_correct_it_alone():
    one = trial(metrics=(P99, RATE, REQUESTS))
    periods = measured(one, noisy(-0.1, scatter=0.3, level=0.0))
    looks = [spending.Look(count, count / 24) for count in (4, 6, 8, 11)]
    fixed, looked = (evidence.compare(one, periods, taken) for taken in ((), looks))
    assert [(found.metric.name, found.judged.family) for found in fixed] == [("rate", 1), ("p99", 2), ("requests", 2)]
    assert [after.metric.name for before, after in zip(fixed, looked) if after.judged.ratio != before.judged.ratio] == [
        "rate"
    ]
    # Whichever way the metric points.
    assert [one.judged.ratio < 1 for one in fixed] == [True] * 3


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


def test_where_nothing_is_to_be_found_the_trial_ends_before_its_end():
    trials = night.number(10, 40)
    made = [followed(trial(seed=seed), noisy(0.0, scatter=0.1, seed=seed))[0] for seed in range(trials)]
    outcomes = [one.decided.get(OFF) for one in made]
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


def test_traffic_explains_what_goes_along_with_it():
    source = random.Random(5)

    def value(_host, _period, arm):
        asked = source.gauss(0, 0.3)
        rate = math.exp(asked + source.gauss(0, 0.01) + (math.log(0.95) if arm == OFF else 0))
        return {"rate": rate, "requests": math.exp(asked)}

    one = trial(metrics=(RATE, REQUESTS), traffic="requests")
    rate, _requests = evidence.compare(one, measured(one, value))
    rest, whole = rate.adjusted, rate.judged
    assert rest.verdict == "loss" and rest.ci_high - rest.ci_low < (whole.ci_high - whole.ci_low) / 3


@pytest.mark.parametrize("cost", [0.0, 0.1])
def test_what_each_change_of_arm_costs_in_the_next_period_is_seen(cost):
    one = trial()
    schedule = list(one.design.schedule.values())

    def value(host, period, arm):
        changed = period > 0 and schedule[host][period - 1] != arm
        return {"rate": math.exp(random.Random(f"{host} {period}").gauss(0, 0.02) - cost * changed)}

    found = assumptions.carry_over(one.design, (ON, OFF), measured(one, value), "rate")
    assert (found.is_seen, found.log_ratio) == (cost > 0, pytest.approx(-cost, abs=0.04))


@pytest.mark.parametrize(("name", "liars"), [(design.PARALLEL, 2), (design.SWITCHBACK, 1)])
def test_a_host_with_numbers_beyond_all_sense_stops_neither_the_looks_nor_the_report(name, liars):
    metrics, honest = (RATE, parts.changed(P99, per="requests"), REQUESTS), noisy(-0.3)

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
    assert looks.taken and [comparison.metric.name for comparison in found] == ["rate", "p99", "requests"]
    json.dumps([comparison.described() for comparison in found], allow_nan=False)
    assert answer.sentences(one, found, looks) and answer.rests_on(one, found, periods)


def lied(hosts, lie, name=design.SWITCHBACK, liar=0, effect=0.0, better="higher"):
    """What is said where one host's rate is another one with SMT off: (comparison, sentence, that host)."""
    one, honest = trial(hosts=hosts, name=name, metrics=(parts.changed(RATE, better=better),)), noisy(effect)

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
    assert (found.judged.verdict, found.hosts, found.turned_by) == (decided, hosts, {host: "inconclusive"})
    assert found.more_hosts >= 1 and f"{host} alone" in sentence and f"{found.more_hosts} more host" in sentence


def said_of(one, value, looks=None, periods=24):
    known = measured(one, value, periods)
    found = evidence.by_hosts(one, known, evidence.compare(one, known))
    looks = looks or evidence.Looks()
    said = answer.sentences(one, found, looks), answer.others(one, found), answer.disagreements(one, found)
    return [*itertools.chain(*said, answer.rests_on(one, found, known))]


def stepped(**factors):
    """Metrics that SMT off changes by a factor, with a little noise that is always the same."""

    def value(host, period, arm):
        noise = 1 + 0.004 * ((host + 3 * period) % 5)
        return {name: noise * (factor if arm == OFF else 1.0) for name, factor in factors.items()}

    return value


MEDIAN, TAIL = (Metric(f"{name}_response", "", "lower", name == "median", None) for name in ("median", "p99"))
OF_RATE = said_of(trial(), stepped(rate=0.8))
OF_TWO = said_of(trial(metrics=(MEDIAN, TAIL)), stepped(median_response=0.97, p99_response=1.4))
LOADED = trial(metrics=(RATE, REQUESTS), traffic="requests", looks_back=50.0), stepped(rate=1.2, requests=0.8)
FUTILE = evidence.Looks((), {OFF: "futile"})


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            said_of(trial(), lambda *_where: {}),
            "Nothing can be said: no host has a value of rate in both arms of a com",
        ),
        (said_of(trial(hosts=1), noisy(-0.3), periods=4), "2 of 12 observations have a value of rate, and a verdict "),
        (OF_RATE, "instead of smt_on, rate changes by −20.0 % (−20.0 to −20.0 %): worse, after 48 of 48 obs"),
        (said_of(trial(), noisy(0.0), FUTILE), "The rest of the trial would hardly have decided it; an effect of "),
        (OF_TWO, "With smt_off instead of smt_on, p99_response changes by +40.0 % (+40.0 to +40.0 %): worse."),
        (OF_TWO, "different ways with smt_off: median_response −3.0 % (−3.0 to −3.0 %), better; p99_response +40.0"),
        (said_of(*LOADED), "rate with smt_off, without what goes along with requests: "),
        (said_of(*LOADED), "A value counts samples from up to 50 s before it, and the first 60 s of a period are not "),
        (OF_RATE, "One observation is a block of periods of a group of hosts, never a scrape."),
        (OF_RATE, "What a change of arm leaves behind does not show in rate with smt_off (p = "),
        (OF_RATE, "Neighbouring periods of a host have a correlation of "),
    ],
)
def test_each_sentence(said, sentence):
    assert any(sentence in one for one in said), said


def test_the_first_period_without_a_value_is_named_with_its_reason():
    one = trial(hosts=2, periods=12, metrics=(Metric("rate", "1/s", "higher", True, "requests"), REQUESTS))
    times = dict.fromkeys(("started", "counted_from", "ended"), "2026-03-01T12:00:00Z")

    def record(number, rate=(2.0, None), requests=(1.0, None), reason=None):
        read = {"rate": rate, "requests": requests} if reason is None else {}
        readings = {name: Reading(value, 1, 5, why) for name, (value, why) in read.items()}
        fields = {"number": number, "arm": ON, "complete": reason is None, "reason": reason, "metrics": readings}
        return Period(**fields, **times, series={}, events=(), block=0)

    def lost(**given):
        web0 = [record(0), record(1), record(2, **given)]
        return answer.lost(one, {"web0": web0, "web1": [record(0), record(1, **given)]})

    said = "2 of 5 periods of hosts have no value of rate and count for nothing, first period 2 of web1: "
    assert lost(reason="the switch took so long") == [f"{said}the switch took so long."]
    assert lost(rate=(None, "1 of 5 points")) == [f"{said}1 of 5 points."]
    assert lost(requests=(0.0, None)) == [f"{said}rate was not above 0."]
    assert lost(reason="each arm is decided: SMT off: worse") == []


def judged(ratio, verdict, better="lower", low=None, high=None):
    about = {"better": better, "ratio": ratio, "ci_low": low, "ci_high": high, "verdict": verdict, "margin": 0.01}
    usual = {"confidence": 0.95, "n": 8, "method": "", "p_value": 0.5, "p_adjusted": 0.5, "interval_confidence": 0.95}
    return Judged(**about, **usual, family=1, minimum_detectable=None, looks=0)


def test_a_change_is_that_of_the_metric_and_its_interval_has_its_direction():
    assert judged(0.8, "loss", "higher", 0.75, 0.9).in_words == "−20 % (−25 to −10 %), worse"
    assert judged(0.8, "loss", "lower", 0.75, 0.9).in_words == "+25 % (+11 to +33 %), worse"
    assert judged(0.8, "inconclusive").in_words == "+25 % (no interval), not decided"


def side(ratio, verdict="inconclusive", metric="p99", unit=""):
    of = Metric(metric, unit, "lower", False, None)
    return effects.Comparison(of, ON, OFF, judged(ratio, verdict), [], None)


def test_metrics_of_one_thing_that_point_different_ways_disagree():
    median, tail = side(1.2, "gain", "median_response"), "p99_response"
    # An estimate that is not decided points somewhere only beyond the margin.
    for other in (side(0.7, "loss", tail), side(0.95, metric=tail)):
        assert effects.disagreeing([median, other]) == [[median, other]]
    agreeing = [side(0.995, metric=tail), side(1.3, "gain", tail), side(0.999, "equivalent", tail)]
    different = [side(0.7, "loss", "p99_wait"), side(0.7, "loss", tail, unit="s")]
    for other in (*agreeing, *different):
        assert effects.disagreeing([median, other]) == []
    assert effects.disagreeing([side(1.2, metric="median_response"), side(0.9, metric=tail)]) == []


@pytest.mark.parametrize(
    ("values", "limits", "said"),
    [
        ([0.5, 1.5], {"above": 1.0}, "the guardrail errors was breached: above 1 (1.5)"),
        ([2.0, 2.0, 2.0], {"above": 1.0, "seconds": 20.0}, "the guardrail errors was breached: above 1 for 20 s (2)"),
        ([2.0, 2.0, 0.5, 2.0, 2.0], {"above": 1.0, "seconds": 20.0}, None),
        # A value that is missing does not end what lasts.
        ([2.0, None, None], {"above": 1.0, "seconds": 20.0}, "the guardrail errors was breached: above 1 for 20 s"),
        ([0.5, *[None] * 7], {"above": 1.0}, "nothing was known of errors for 60 s: it did not answer"),
        ([1.0, 0.5], {"below": 1.0}, "the guardrail errors was breached: below 1 (0.5)"),
    ],
)
def test_what_a_guardrail_says_of_a_value_each_ten_seconds(values, limits, said):
    guard = guardrails.Guard("errors", **{"above": None, "below": None, "seconds": 0.0, **limits}, blind_seconds=60.0)
    found = [guard.feed(10.0 * number, value, "it did not answer") for number, value in enumerate(values)]
    assert found == [*[None] * (len(values) - 1), said]
