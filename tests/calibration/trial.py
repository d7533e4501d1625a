# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the verdicts of a switchback trial are wrong, beside what is usual for releases: Mann-Whitney and Welch on
scrapes, and Kayenta's rule.

Made-up series of a metric on eight hosts over 24 periods, twenty scrapes in each, which scatter around the level of
their period; with recordings of ``record.py`` also those: a host is a stretch of consecutive samples of equal work.
"""

import argparse
import collections
import functools
import math
import typing as t

import evaluate
import numpy
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, evidence, units
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import Arm, Metric, Trial, of_design
from scipy import stats

HOSTS, PERIODS, SCRAPES = 8, 24, 20
BASELINE, CANDIDATE = "smt_on", "smt_off"
METRIC = Metric("rate", "1/s", "higher", True, None)
# Standard deviations on the scale of logarithms: of a period's level, of a scrape around it, of what hosts share, and
# between hosts.
LEVEL, SCRAPE, SHARED, BETWEEN = 0.08, 0.15, 0.05, 0.3
# The daily rhythm is a factor of three from night to day; 24 periods are a day.
RHYTHM = math.log(3) / 2
SERIES = {
    **{f"autocorrelation {rho:g}": {"rho": rho} for rho in (0.0, 0.3, 0.6, 0.8, 0.95)},
    "daily rhythm": {"rho": 0.6, "rhythm": True},
    "bursts": {"rho": 0.6, "bursts": True},
    "daily rhythm and bursts": {"rho": 0.8, "rhythm": True, "bursts": True},
}
EFFECTS = (0.0, 0.05)
# Of spinnaker/kayenta, NetflixACAJudge with MannWhitneyClassifier: high or low where the 98 % interval of the shift
# between both sides (Hodges and Lehmann) lies beyond a quarter of its estimate.
KAYENTA_TOLERANCE, KAYENTA_CONFIDENCE = 0.25, 0.98

Scrapes = dict[str, numpy.ndarray]


def series(source: numpy.random.Generator, hosts, rho: float, rhythm=False, bursts=False) -> Scrapes:
    """Return the logarithm of each scrape: host -> periods x scrapes."""
    day = numpy.sin(numpy.linspace(0, 2 * math.pi, PERIODS, endpoint=False))
    shared = source.normal(0, SHARED, PERIODS) + (RHYTHM * day if rhythm else 0.0)
    found = {}
    for host in hosts:
        level = [source.normal(0, LEVEL)]
        for step in source.normal(0, LEVEL * math.sqrt(1 - rho * rho), PERIODS - 1):
            level.append(rho * level[-1] + step)
        values = source.normal(0, SCRAPE, (PERIODS, SCRAPES)) + (numpy.array(level) + shared)[:, None]
        values += source.normal(0, BETWEEN)
        if bursts:
            # A burst lasts five scrapes and takes half of the rate, once in three periods.
            for period in range(PERIODS):
                if source.random() < 1 / 3:
                    first = source.integers(0, SCRAPES - 5)
                    values[period, first : first + 5] += math.log(0.5)
        found[host] = values
    return found


def recorded(source: numpy.random.Generator, hosts: t.Sequence[str], rates: t.Sequence[numpy.ndarray]) -> Scrapes:
    """Return the same of a recording."""
    found = {}
    for host in hosts:
        rate = rates[source.integers(0, len(rates))]
        first = source.integers(0, len(rate) - PERIODS * SCRAPES + 1)
        found[host] = rate[first : first + PERIODS * SCRAPES].reshape(PERIODS, SCRAPES)
    return found


def rates_of(paths: t.Sequence[str]) -> dict[str, list[numpy.ndarray]]:
    """Return what :func:`recorded` takes, by kind of noise."""
    samples: dict[tuple[str, int], list[float]] = {}
    for one in evaluate.load(paths):
        if one["series"] == "same":
            samples.setdefault((one["kind"], one["cpu"]), []).extend(one["microseconds"])
    found: dict[str, list[numpy.ndarray]] = {}
    for (kind, _cpu), times in samples.items():
        if len(times) >= PERIODS * SCRAPES:
            found.setdefault(f"recorded: {kind.replace('_', ' ')}", []).append(-numpy.log(times))
    return found


def with_effect(scrapes: Scrapes, arms: t.Mapping[str, t.Sequence[str]], effect: float) -> Scrapes:
    """Return the series of hosts that are in these arms, the candidate lower by a share."""
    return {
        host: one + math.log1p(-effect) * (numpy.array(arms[host]) == CANDIDATE)[:, None]
        for host, one in scrapes.items()
    }


def usual(scrapes: Scrapes, arms: t.Mapping[str, t.Sequence[str]]) -> dict[str, bool]:
    """Whether the usual tests call a difference between the scrapes of both arms."""
    periods = [(name, scrapes[host][at]) for host, of_host in arms.items() for at, name in enumerate(of_host)]
    one, other = (
        numpy.exp(numpy.concatenate([found for name, found in periods if name == arm])) for arm in (BASELINE, CANDIDATE)
    )
    mann_whitney, welch = stats.mannwhitneyu(one, other), stats.ttest_ind(one, other, equal_var=False)
    return {"Mann-Whitney": mann_whitney.pvalue < 0.05, "Welch": welch.pvalue < 0.05, "Kayenta": kayenta(one, other)}


def kayenta(control: numpy.ndarray, experiment: numpy.ndarray) -> bool:
    """Whether Kayenta's judge calls a metric high or low, with its defaults."""
    estimate = float(numpy.median(numpy.subtract.outer(experiment, control)))
    side = math.copysign(1.0, estimate)
    # The end of the interval lies beyond a shift where the test rejects that shift.
    shifted, how = (
        side * (experiment - KAYENTA_TOLERANCE * estimate),
        {"alternative": "greater", "method": "asymptotic"},
    )
    tested = stats.mannwhitneyu(shifted, side * control, **how)
    return bool(tested.pvalue < (1 - KAYENTA_CONFIDENCE) / 2)


def trial_of(seed: int) -> Trial:
    """A trial of the hosts with its own lot."""
    hosts = [design.Member(f"web{number}", "x", float(number)) for number in range(HOSTS)]
    arms = (BASELINE, CANDIDATE)
    drawn = design.draw(design.SWITCHBACK, hosts, design.Wanted(arms, PERIODS, 0, HOSTS, seed))
    return Trial(
        run="simulated",
        created="2026-01-01T00:00:00Z",
        compared=tuple(Arm(arm, arm) for arm in arms),
        metrics=(METRIC,),
        traffic=None,
        guardrails=(),
        margin=0.01,
        period_seconds=300.0,
        settle_seconds=60.0,
        seed=seed,
        **of_design(drawn),
    )


def ended(trial: Trial, scrapes: Scrapes) -> tuple[str, float, float, float]:
    """Follow a trial block by block with its looks."""
    found = evidence.Looks()
    means = {host: numpy.exp(one).mean(axis=1).tolist() for host, one in scrapes.items()}
    for periods in range(2, PERIODS + 1, 2):
        known = {
            host: [units.Period(one, arms[one], {METRIC.name: means[host][one]}) for one in range(periods)]
            for host, arms in trial.design.schedule.items()
        }
        found = evidence.look(trial, known, units.blocks_over(trial.design, known, ()), found)
        if found.decided:
            break
    (one,) = evidence.compare(trial, known, found.taken)
    return one.judged.verdict, periods / PERIODS, one.judged.ci_low, one.judged.ci_high


def row(kind: str, made: t.Callable[..., Scrapes], effect: float, count: int) -> list[str]:
    """A row of the table; ``made`` returns the series of hosts."""
    calls: collections.Counter[tuple[str, str]] = collections.Counter()
    own, time, holds = 0, 0.0, 0
    for number in range(count):
        source = numpy.random.default_rng([number, round(1000 * effect), sum(kind.encode())])
        trial = trial_of(number)
        same = made(source, list(trial.design.schedule))
        layouts = {
            "schedule": trial.design.schedule,
            # Half of the hosts get the new arm, as a release does; the trial's lot says which.
            "canary": {host: arms[:1] * PERIODS for host, arms in trial.design.schedule.items()},
        }
        for name, layout in layouts.items():
            scrapes = with_effect(same, layout, effect)
            calls.update((name, test) for test, called in usual(scrapes, layout).items() if called)
        verdict, share, low, high = ended(trial, with_effect(same, trial.design.schedule, effect))
        own += verdict in ("gain", "loss")
        time += share
        holds += low <= 1 - effect <= high
    interval = stats.binomtest(own, count).proportion_ci(method="wilson")
    tests = [[calls[name, test] for name in ("schedule", "canary")] for test in ("Mann-Whitney", "Welch", "Kayenta")]
    called = f"{own / count:.1%} ({interval.low:.1%} to {interval.high:.1%})"
    others = [", ".join(f"{one / count:.0%}" for one in both) for both in tests]
    return [kind, f"{effect:.0%}", called, f"{time / count:.2f}", f"{holds / count:.1%}", *others]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "recordings", nargs="*", metavar="RECORDING", help="recorded noise, as in tests/calibration/data"
    )
    parser.add_argument("--count", type=int, default=400, help="made-up trials of each row (default %(default)s)")
    arguments = parser.parse_args()
    count = arguments.count
    kinds = {kind: functools.partial(series, **options) for kind, options in SERIES.items()}
    kinds |= {kind: functools.partial(recorded, rates=rates) for kind, rates in rates_of(arguments.recordings).items()}
    print(f"{count} made-up trials a row, {HOSTS} hosts, {PERIODS} periods, {SCRAPES} scrapes in each")
    print("The usual tests on scrapes: with the trial's schedule, and as a canary on half of the hosts")
    heads = ["series", "effect", "called", "time / all periods", "interval holds it", "Mann-Whitney", "Welch"]
    rows = (row(kind, made, effect, count) for effect in EFFECTS for kind, made in kinds.items())
    evaluate.print_table("", [*heads, "Kayenta's rule"], rows)


if __name__ == "__main__":
    main()
