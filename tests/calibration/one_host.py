# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many verdicts of a hardware class hold without any one of its hosts, by the number of hosts."""

import itertools
import math
import types

import evaluate
import numpy
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled

HOSTS = (2, 3, 4, 5, 6, 8)
BETWEEN = (0.0, 0.005, 0.02)
NOISE = (0.01, 0.03)
EFFECTS = (0.03, 0.05, 0.2)
BLOCKS, MARGIN, POOL, CLASSES = 6, 0.01, 300, 100
ENDS = ("ratio", "ci_low", "ci_high")


def host(source, noise):
    """Return the comparison of a host without an effect."""
    before, after = numpy.exp(source.normal(0, noise / math.sqrt(2), (2, BLOCKS))).tolist()
    one = paired.compare(before, after)
    return types.SimpleNamespace(**vars(one), baseline_value=1.0, candidate_value=one.ratio, confounded=False)


def moved(one, log):
    """Return the same host with an effect."""
    ends = {name: getattr(one, name) * math.exp(log) for name in ENDS}
    verdict = verdicts.verdict(*(math.log(ends[name]) for name in ENDS), math.log1p(MARGIN))
    return types.SimpleNamespace(**{**vars(one), **ends, "candidate_value": ends["ratio"], "verdict": verdict})


def row(source, pool, noise, between, count):
    """Return how many classes of so many hosts are called, and hold without any one of these, by effect."""
    cells = []
    for effect in EFFECTS:
        called = held = 0
        for _class in range(CLASSES):
            drawn = source.choice(POOL, count, replace=False)
            effects = [effect + source.normal(0, between) for _host in drawn]
            hosts = {str(one): moved(pool[place], log) for one, (place, log) in enumerate(zip(drawn, effects))}
            (one,) = pooled.combine_family([hosts], MARGIN)
            is_called = one.verdict in (paired.GAIN, paired.LOSS)
            called, held = called + is_called, held + (is_called and not one.turned_by)
        cells.append(f"{called}, {held}")
    return [count, f"{between:.1%}", f"{noise:.0%}", *cells]


def main():
    source = numpy.random.default_rng(3)
    pools = {}

    def rows():
        for noise, between, count in itertools.product(NOISE, BETWEEN, HOSTS):
            if noise not in pools:
                pools[noise] = [host(source, noise) for _host in range(POOL)]
            yield row(source, pools[noise], noise, between, count)

    heads = ["hosts", "they differ by", "noise", *(f"{effect:.0%}: called, held" for effect in EFFECTS)]
    evaluate.print_table("", heads, rows())


if __name__ == "__main__":
    main()
