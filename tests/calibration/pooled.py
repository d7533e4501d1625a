# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the verdict of a hardware class is wrong, and what it finds, by the number of its hosts."""

import itertools
import math
import types

import evaluate
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
    return [math.log(end) for end in (one.ratio, one.ci_low, one.ci_high)]


def host(logs, effect, noise, count):
    """Return the comparison of a host of a pool with an effect and another noise."""
    centre, low, high = (effect + noise / UNIT * log for log in logs)
    return types.SimpleNamespace(
        baseline_value=1.0, candidate_value=math.exp(centre), better="higher", ratio=math.exp(centre),
        ci_low=math.exp(low), ci_high=math.exp(high), n=count, interval_confidence=0.95,
        confounded=False, verdict=verdicts.verdict(centre, low, high, math.log1p(MARGIN)),
    )  # fmt: skip


def drawn(source, pool, how_many, effect, between, noise, count):
    """Return the hosts of a class."""
    chosen = source.choice(len(pool), how_many, replace=False)
    effects = math.log1p(effect) + source.normal(0, between, how_many)
    return {str(number): host(pool[number], own, noise, count) for number, own in zip(chosen, effects)}


def judged(source, pools, how_many, cell, effect, times):
    """Return how many classes in a hundred are called by their hosts together, have hosts that disagree, are called by
    their hosts as blocks, and by one host that was measured as often.
    """
    between, noise, count = cell
    found = numpy.zeros(4)
    for _time in range(times):
        hosts = drawn(source, pools[count], how_many, effect, between, noise, count)
        (together,) = pooled.combine_family([hosts], MARGIN)
        sides = ([getattr(one, name) for one in hosts.values()] for name in ("baseline_value", "candidate_value"))
        as_blocks = paired.compare(*sides, margin=MARGIN)
        (alone,) = drawn(source, pools[count * how_many], 1, effect, between, noise, count * how_many).values()
        of_hosts, *others = (one.verdict for one in (together, as_blocks, alone))
        found += [of_hosts in CALLED, of_hosts == pooled.HOSTS_DISAGREE, *(one in CALLED for one in others)]
    return 100 * found / times


def called(centres, halves):
    """Return how many in a hundred of these estimates, with half the widths of their intervals, are called."""
    margin = math.log1p(MARGIN)
    return 100 * numpy.mean((numpy.abs(centres) > margin) & (numpy.abs(centres) - halves > verdicts.CLEARANCE * margin))


def paule_mandel(logs, variances):
    """Return the estimate of the variance between hosts at which Cochran's Q is the number of hosts less one."""
    low, high = numpy.zeros(len(logs)), numpy.ones(len(logs))
    for _step in range(50):
        middle = (low + high) / 2
        _centres, _errors, statistics = weighted(logs, variances, middle)
        is_more = statistics > logs.shape[1] - 1
        low, high = numpy.where(is_more, middle, low), numpy.where(is_more, high, middle)
    return low


def weighted(logs, variances, between):
    """Return the mean of each class with weights by precision, its standard error, and Cochran's Q."""
    weights = 1 / (variances + between[:, None])
    centres = (weights * logs).sum(axis=1) / weights.sum(axis=1)
    return centres, 1 / numpy.sqrt(weights.sum(axis=1)), (weights * (logs - centres[:, None]) ** 2).sum(axis=1)


def of_weights(source, how_many, between, noise, count):
    """Return how many classes without an effect are called by equal weights, by Hartung and Knapp's interval and by the
    normal one, where one host scatters a third as much as the others.
    """
    scatter, size = noise * numpy.array([1 / 3, *[1.0] * (how_many - 1)]), (WEIGHED, how_many)
    logs = source.normal(0, between, size) + source.normal(0, 1, size) * scatter / math.sqrt(count)
    variances = scatter**2 / count * source.chisquare(count - 1, size) / (count - 1)
    quantile, within = special.stdtrit(how_many - 1, 0.975), variances.sum(axis=1) / how_many**2
    freedom = variances.sum(axis=1) ** 2 / (variances**2 / (count - 1)).sum(axis=1)
    by_hosts = quantile * logs.std(axis=1, ddof=1) / math.sqrt(how_many)
    equal = numpy.maximum(by_hosts, special.stdtrit(freedom, 0.975) * numpy.sqrt(within))
    centres, errors, statistics = weighted(logs, variances, paule_mandel(logs, variances))
    normal = special.ndtri(0.975) * errors
    hartung_knapp = numpy.maximum(quantile * errors * numpy.sqrt(statistics / (how_many - 1)), normal)
    ways = (logs.mean(axis=1), equal), (centres, hartung_knapp), (centres, normal)
    return [how_many, f"{100 * between:g} %", f"{100 * noise:g} %", *(f"{called(*one):.1f}" for one in ways)]


def of_classes(source, pools, how_many, between, noise):
    """Return the row of classes of so many hosts, for each number of blocks."""
    cells = [(between, noise, count) for count in BLOCKS]
    equal = [judged(source, pools, how_many, cell, 0.0, EQUAL) for cell in cells]
    row = [", ".join(f"{one[which]:.1f}" for one in equal) for which in range(4)]
    for effect in EFFECTS:
        found = [judged(source, pools, how_many, cell, effect, DIFFERENT) for cell in cells]
        row += [", ".join(f"{one[which]:.0f}" for one in found) for which in (0, 2, 3)]
    return [how_many, f"{100 * between:g} %", f"{100 * noise:g} %", *row]


def main():
    """Print the tables of docs/calibration.md about hardware classes."""
    cells, source = ["hosts", "they differ by", "noise"], numpy.random.default_rng(20261123)
    rows = (of_weights(source, one, max(BETWEEN), noise, min(BLOCKS)) for one in (2, 3, 4) for noise in NOISE)
    evaluate.print_table("", [*cells, "equal weights", "Hartung-Knapp", "normal"], rows)
    print()
    source = numpy.random.default_rng(20261123)
    sizes = sorted({count * hosts for count in BLOCKS for hosts in HOSTS})
    pools = {count: [blocks_of(source, count) for _host in range(POOL)] for count in sizes}
    heads = [f"{part}class called | hosts as blocks | one alone" for part in ("3 %: ", "5 %: ")]
    heads = [
        "no effect: class called",
        "hosts disagree",
        "hosts as blocks",
        "one alone",
        *" | ".join(heads).split(" | "),
    ]
    rows = (of_classes(source, pools, *cell) for cell in itertools.product(HOSTS, BETWEEN, NOISE))
    evaluate.print_table("", [*cells, *heads], rows)


if __name__ == "__main__":
    main()
