# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the goal ``precision`` does to verdicts: stopped early beside measured to the end.

A window of 56 samples in ABBA order is 28 blocks as a plan takes them: A B, B A, ... The goal looks at the width after
each block, as the plan does.
"""

import argparse
import math

import evaluate
import numpy
import simulated
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals, ranks, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired

MARGIN = 0.01
# The slowdowns that were recorded, and the margins to stop at: the default for one of 3 %, and twice that as well for
# one of 5 %.
RECORDED = (("abba 3 %", 0.01), ("abba 5 %", 0.01), ("abba 5 %", 0.02))
MADE_UP = 150
# Runs a side of the fixed plan that times to a verdict are held against.
FIXED_RUNS = 20
# A stop ends the plan only where the budget would go on: the end of a window stands for the budget.
CALLED = (paired.GAIN, paired.LOSS)


def sides(samples):
    """One sample of each side by block: the plan's order A B, B A, ..."""
    pairs = [(samples[start], samples[start + 1]) for start in range(0, len(samples), 2)]
    ordered = [pair if block % 2 == 0 else pair[::-1] for block, pair in enumerate(pairs)]
    return [pair[0] for pair in ordered], [pair[1] for pair in ordered]


def verdict(before, after, blocks):
    return paired.compare(before[:blocks], after[:blocks], better="lower", margin=MARGIN).verdict


def blocks_until_precise(before, after, margin):
    """The number of blocks after which the plan would stop, with ``smt_eval_margin`` at this."""
    precise = (
        count
        for count in range(verdicts.MIN_BLOCKS_RANKED, len(before))
        if goals.half_width(ranks.Paired.of_values(before[:count], after[:count], "lower"), 1 - goals.CONFIDENCE)
        <= math.log1p(margin)
    )
    return next(precise, len(before))


def stopped(windows, margin):
    """Shares over windows: blocks taken (mean), called when stopped, called after all blocks."""
    found = [(*of_window, blocks_until_precise(*of_window, margin)) for of_window in map(sides, windows)]

    def called(blocks):
        return numpy.mean([verdict(before, after, blocks or count) in CALLED for before, after, count in found])

    count = numpy.mean([count for _before, _after, count in found])
    return {"blocks": count, "stopped": called(0), "whole": called(evaluate.WINDOW // 2), "fixed": called(FIXED_RUNS)}


def row(name, same, slower):
    """Equal work and slower work."""
    return [
        name, f"{same['blocks']:.1f}, {slower['blocks']:.1f}",
        f"{100 * same['stopped']:.1f}, {100 * same['whole']:.1f}",
        f"{100 * slower['stopped']:.0f}, {100 * slower['whole']:.0f}",
        f"{slower['blocks'] / FIXED_RUNS:.2f}", f"{100 * slower['fixed']:.0f}",
    ]  # fmt: skip


HEADS = """noise|blocks taken of 28: A/A, slower|A/A called: stopped, all 28|slowdown called: stopped, all 28
time / 20 runs a side|slowdown called in 20"""


def print_table(title, rows):
    evaluate.print_table(title, HEADS.replace("\n", "|").split("|"), rows)


def of_recorded(series, slowdown, margin):
    totals = {"same": [], slowdown: []}
    for kind in evaluate.kinds(series):
        found = {name: evaluate.windows(series, kind, name) for name in totals}
        if found[slowdown]:
            yield row(kind, stopped(found["same"], margin), stopped(found[slowdown], margin))
            for name, windows in found.items():
                totals[name] += windows
    yield row("all", stopped(totals["same"], margin), stopped(totals[slowdown], margin))


def of_made_up():
    slower = numpy.log(1.03) * numpy.tile([0, 1, 1, 0], evaluate.WINDOW // 4)
    for kind in simulated.KINDS:
        source = numpy.random.default_rng(20261121)
        noise = [kind(source) for _time in range(2 * MADE_UP)]
        same, found = [numpy.exp(one) for one in noise[:MADE_UP]], [numpy.exp(one + slower) for one in noise[MADE_UP:]]
        yield row(kind.__name__.replace("_", " "), stopped(same, MARGIN), stopped(found, MARGIN))


def main():
    """Print the tables of docs/calibration.md about stopping."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("recordings", nargs="+")
    series = evaluate.load(arguments.parse_args().recordings)
    for slowdown, margin in RECORDED:
        print_table(f"Recorded, {slowdown}, stopped at {margin:.0%}", of_recorded(series, slowdown, margin))
    print_table(f"Made up, 3 %, stopped at {MARGIN:.0%}", of_made_up())


if __name__ == "__main__":
    main()
