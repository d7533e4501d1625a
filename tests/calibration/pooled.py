# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the verdict of a hardware class is wrong, and what it finds, by the number of its hosts,
how much they differ, and their noise.

    .venv/bin/python tests/calibration/pooled.py

It also prints what weights by precision would do, where one host of a class scatters a third as much as the others.

Noise is made up, Gaussian: of a block's log-ratio, and of the hosts' own effects around that of their class. Hosts are
drawn from a pool of hosts without an effect, whose verdicts are computed from blocks as ever. Their intervals move with
the effect and grow with the noise, because ranks do neither.
"""

from __future__ import annotations

import math

import numpy
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled
from scipy import special

HOSTS = (1, 2, 3, 4, 8)
# Standard deviation of the hosts' own effects, as a share.
BETWEEN = (0.0, 0.005, 0.02)
# Standard deviation of a block's log-ratio.
NOISE = (0.01, 0.03)
BLOCKS = (6, 10)
EFFECTS = (0.03, 0.05)
MARGIN = 0.01
# Hosts in a pool, and classes that are drawn in a cell: without an effect, and with one.
POOL, EQUAL, DIFFERENT = 1000, 1000, 300
CALLED = (paired.GAIN, paired.LOSS)
# Classes without an effect for each number of the table about weights, which needs no verdicts of hosts.
WEIGHED = 20000
# The noise at which the pools are made.
UNIT = 0.01


def blocks_of(source, count):
    """Return a host's comparison of equal work, as log-ratio and ends of the interval."""
    before, after = numpy.exp(source.normal(0, UNIT / math.sqrt(2), (2, count))).tolist()
    one = paired.compare(before, after)
    return [math.log(one[name]) for name in ("ratio", "ci_low", "ci_high")]


def host(logs, effect, noise, count):
    """Return the comparison of a host of a pool with an effect and another noise."""
    centre, low, high = (effect + noise / UNIT * log for log in logs)
    return {
        "baseline_value": 1.0,
        "candidate_value": math.exp(centre),
        "better": "higher",
        "ratio": math.exp(centre),
        "ci_low": math.exp(low),
        "ci_high": math.exp(high),
        "n": count,
        "interval_confidence": 0.95,
        "confounded": False,
        "verdict": verdicts.verdict(centre, low, high, math.log1p(MARGIN)),
    }


def drawn(source, pool, how_many, effect, between, noise, count):
    """Return the hosts of a class."""
    chosen = source.choice(len(pool), how_many, replace=False)
    effects = math.log1p(effect) + source.normal(0, between, how_many)
    return {str(number): host(pool[number], own, noise, count) for number, own in zip(chosen, effects)}


def judged(source, pools, how_many, cell, effect, times):
    """Return how many classes in a hundred are called by their hosts together, contested, called by hosts as blocks,
    and by one host that took all blocks.
    """
    between, noise, count = cell
    called = numpy.zeros(4)
    for _time in range(times):
        hosts = drawn(source, pools[count], how_many, effect, between, noise, count)
        (together,) = pooled.combine_family([hosts], MARGIN)
        as_blocks = paired.compare(
            [one["baseline_value"] for one in hosts.values()],
            [one["candidate_value"] for one in hosts.values()],
            margin=MARGIN,
        )
        (alone,) = drawn(source, pools[count * how_many], 1, effect, between, noise, count * how_many).values()
        called += [
            together["verdict"] in CALLED,
            together["verdict"] == pooled.HOSTS_DISAGREE,
            as_blocks["verdict"] in CALLED,
            alone["verdict"] in CALLED,
        ]
    return 100 * called / times


def called(centres, halves):
    """Return how many in a hundred of these estimates, with half the widths of their intervals,
    are called gain or loss.
    """
    margin = math.log1p(MARGIN)
    return 100 * numpy.mean((numpy.abs(centres) > margin) & (numpy.abs(centres) - halves > paired.CLEARANCE * margin))


def paule_mandel(logs, variances):
    """Return the estimate of the variance between hosts at which Cochran's Q is the number of hosts less one,
    for each class.
    """
    low, high = numpy.zeros(len(logs)), numpy.ones(len(logs))
    for _step in range(50):
        middle = (low + high) / 2
        _centres, _errors, statistics = weighted(logs, variances, middle)
        low, high = (
            numpy.where(statistics > logs.shape[1] - 1, middle, low),
            numpy.where(statistics > logs.shape[1] - 1, high, middle),
        )
    return low


def weighted(logs, variances, between):
    """Return the mean of each class with weights by precision, its standard error,
    and Cochran's Q with these weights.
    """
    weights = 1 / (variances + between[:, None])
    centres = (weights * logs).sum(axis=1) / weights.sum(axis=1)
    return centres, 1 / numpy.sqrt(weights.sum(axis=1)), (weights * (logs - centres[:, None]) ** 2).sum(axis=1)


def print_weights(source, how_many, between, noise, count):
    """Print how many classes without an effect are called by equal weights, by Hartung and Knapp's interval,
    and by a normal one.
    """
    scatter = noise * numpy.array([1 / 3, *[1.0] * (how_many - 1)])
    logs = source.normal(0, between, (WEIGHED, how_many)) + source.normal(
        0, 1, (WEIGHED, how_many)
    ) * scatter / math.sqrt(count)
    variances = scatter**2 / count * source.chisquare(count - 1, (WEIGHED, how_many)) / (count - 1)
    quantile = special.stdtrit(how_many - 1, 0.975)
    within, freedom = (
        variances.sum(axis=1) / how_many**2,
        variances.sum(axis=1) ** 2 / (variances**2 / (count - 1)).sum(axis=1),
    )
    equal = numpy.maximum(
        quantile * logs.std(axis=1, ddof=1) / math.sqrt(how_many), special.stdtrit(freedom, 0.975) * numpy.sqrt(within)
    )
    centres, errors, statistics = weighted(logs, variances, paule_mandel(logs, variances))
    normal = special.ndtri(0.975) * errors
    hartung_knapp = numpy.maximum(quantile * errors * numpy.sqrt(statistics / (how_many - 1)), normal)
    cells = " | ".join(
        f"{called(*one):.1f}" for one in ((logs.mean(axis=1), equal), (centres, hartung_knapp), (centres, normal))
    )
    print(f"| {how_many} | {100 * between:g} % | {100 * noise:g} % | {cells} |")


def main():
    """Print the tables of docs/calibration.md about hardware classes."""
    source = numpy.random.default_rng(20261123)
    print("| hosts | they differ by | noise | equal weights | Hartung-Knapp | normal |")
    print("|" + "---|" * 6)
    for how_many in (2, 3, 4):
        for noise in NOISE:
            print_weights(source, how_many, max(BETWEEN), noise, min(BLOCKS))
    print()
    source = numpy.random.default_rng(20261123)
    sizes = sorted({count * hosts for count in BLOCKS for hosts in HOSTS})
    pools = {count: [blocks_of(source, count) for _host in range(POOL)] for count in sizes}
    print(
        "| hosts | they differ by | noise | no effect: class called | hosts disagree | hosts as blocks | one alone |",
        end="",
    )
    print(" 3 %: class called | hosts as blocks | one alone | 5 %: class called | hosts as blocks | one alone |")
    print("|" + "---|" * 13)
    for how_many in HOSTS:
        for between in BETWEEN:
            for noise in NOISE:
                equal = [judged(source, pools, how_many, (between, noise, count), 0.0, EQUAL) for count in BLOCKS]
                cells = [", ".join(f"{one[which]:.1f}" for one in equal) for which in range(4)]
                for effect in EFFECTS:
                    found = [
                        judged(source, pools, how_many, (between, noise, count), effect, DIFFERENT) for count in BLOCKS
                    ]
                    cells += [", ".join(f"{one[which]:.0f}" for one in found) for which in (0, 2, 3)]
                print(f"| {how_many} | {100 * between:g} % | {100 * noise:g} % | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
