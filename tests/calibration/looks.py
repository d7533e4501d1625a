# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What planned looks do to verdicts and to a host's time, beside fixed sizes and the usual tests.

A window of 56 samples of equal work is 28 blocks A B, B A, ..., which stand for the budget. An effect is planted by
multiplying the samples of one side. Time is blocks, as a share of a fixed plan of 20 runs a side, and of the budget.
"""

import argparse
import math
import typing as t

import evaluate
import numpy
import simulated
import stopping
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    decisions,
    distributions,
    ranks,
    schedule,
    spending,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from scipy import stats

ALPHA = 0.05
TOTAL = evaluate.WINDOW // 2
EFFECTS = (0.02, 0.03, 0.05, 0.10)
HEAD_EQUAL = """noise|windows|called, %|equivalent, %|futile, %|of these decided by the rest, %|time / 20 runs, / budget
interval holds 1, %|called: fixed 20|Mann-Whitney|Welch"""
HEAD_SLOWER = """noise|slower by|found, %|time / 20 runs|futile, %|interval holds it, %
mean estimate of those found early, %|found: fixed 20|Mann-Whitney|Welch"""

Window = tuple[list[float], list[float]]


class End(t.NamedTuple):
    """How a plan with looks ended."""

    outcome: str | None
    blocks: int
    later: str | None
    log_ratio: float
    holds: bool


def slower(window: Window, effect: float) -> Window:
    """The window with the second side slower by a share."""
    return window[0], [value * (1 + effect) for value in window[1]]


def follow(window: Window, effect: float = 0.0) -> End:
    """Take blocks as a plan does, until it stops; after ``futile`` go on to see what the rest would have said."""
    before, after = slower(window, effect)
    looks = schedule.Schedule()
    ended: tuple[str, int, float, bool] | None = None
    for blocks in range(1, TOTAL + 1):
        if not looks.take(blocks, TOTAL - blocks):
            continue
        comparison = ranks.Paired.of_values(before[:blocks], after[:blocks], "lower")
        outcome = decisions.decide(comparison, looks.looks, ALPHA, stopping.MARGIN, TOTAL - blocks)
        centre, low, high = comparison.interval(spending.levels(looks.looks, ALPHA)[-1])
        here = blocks, centre, low <= -math.log1p(effect) <= high
        if ended is not None and outcome not in (None, decisions.FUTILE):
            return End(ended[0], ended[1], outcome, *ended[2:])
        if ended is None and outcome == decisions.FUTILE:
            ended = (outcome, *here)
        elif ended is None and outcome is not None:
            return End(outcome, blocks, None, *here[1:])
    return End(None, TOTAL, None, *here[1:]) if ended is None else End(ended[0], ended[1], None, *ended[2:])


def fixed(window: Window, effect: float, blocks: int) -> str:
    before, after = slower(window, effect)
    return paired.compare(before[:blocks], after[:blocks], "lower", stopping.MARGIN).verdict


def mann_whitney(window: Window, effect: float) -> bool:
    before, after = (side[: stopping.FIXED_RUNS] for side in slower(window, effect))
    return bool(stats.mannwhitneyu(before, after).pvalue < ALPHA)


def welch(window: Window, effect: float) -> bool:
    before, after = (side[: stopping.FIXED_RUNS] for side in slower(window, effect))
    return bool(stats.ttest_ind(before, after, equal_var=False).pvalue < ALPHA)


def share(values: t.Iterable[bool], digits: int = 1) -> str:
    """A share in per cent."""
    return f"{100 * numpy.mean(list(values)):.{digits}f}"


def rate(values: t.Sequence[bool]) -> str:
    """A share in per cent with its 95 % interval (Wilson)."""
    interval = stats.binomtest(sum(values), len(values)).proportion_ci(method="wilson") if values else None
    return f"{100 * numpy.mean(values):.1f} ({100 * interval.low:.0f}-{100 * interval.high:.0f})" if interval else "-"


def of_equal(name: str, windows: t.Sequence[Window]) -> list:
    """The row of a kind of noise in the table of equal work."""
    same = [follow(window) for window in windows]
    futile = [end for end in same if end.outcome == decisions.FUTILE]
    time = numpy.mean([end.blocks for end in same])
    return [
        name, len(windows), rate([end.outcome in stopping.CALLED for end in same]),
        share((end.outcome == verdicts.EQUIVALENT for end in same), 0), f"{100 * len(futile) / len(same):.0f}",
        rate([end.later is not None for end in futile]), f"{time / stopping.FIXED_RUNS:.2f}, {time / TOTAL:.2f}",
        rate([end.holds for end in same]),
        share(fixed(window, 0, stopping.FIXED_RUNS) in stopping.CALLED for window in windows),
        share(mann_whitney(window, 0) for window in windows), share(welch(window, 0) for window in windows),
    ]  # fmt: skip


def of_slower(name: str, windows: t.Sequence[Window], effect: float) -> list:
    """The row of a kind of noise and an effect in the table of slower work."""
    ends = [follow(window, effect) for window in windows]
    early = [end.log_ratio for end in ends if end.outcome in stopping.CALLED and end.blocks < TOTAL]
    return [
        name, f"{effect:.0%}", rate([end.outcome == paired.LOSS for end in ends]),
        f"{numpy.mean([end.blocks for end in ends]) / stopping.FIXED_RUNS:.2f}",
        share(end.outcome == decisions.FUTILE for end in ends), rate([end.holds for end in ends]),
        f"{-100 * numpy.mean(early):.2f}" if early else "-",
        share(fixed(window, effect, stopping.FIXED_RUNS) == paired.LOSS for window in windows),
        share(mann_whitney(window, effect) for window in windows), share(welch(window, effect) for window in windows),
    ]  # fmt: skip


def print_tables(title: str, kinds: t.Mapping[str, t.Sequence[Window]]) -> None:
    heads = [head.replace("\n", "|").split("|") for head in (HEAD_EQUAL, HEAD_SLOWER)]
    evaluate.print_table(f"{title}: equal work", heads[0], (of_equal(*kind) for kind in kinds.items()))
    cells = ((name, windows, effect) for name, windows in kinds.items() for effect in EFFECTS)
    evaluate.print_table(f"{title}: slower work", heads[1], (of_slower(*cell) for cell in cells))


def print_spending(kinds: t.Mapping[str, t.Sequence[Window]]) -> None:
    """The spending functions beside each other, over all kinds."""
    windows = [window for found in kinds.values() for window in found]
    power = spending.spent
    functions = {
        "like Pocock": lambda alpha, part: alpha * math.log1p((math.e - 1) * part),
        "share to the power of 1.5": power,
        "like O'Brien and Fleming": lambda alpha, part: math.erfc(
            distributions.normal_quantile(alpha / 2) / math.sqrt(2 * part)
        ),
    }

    def rows():
        for name, function in functions.items():
            spending.spent = function
            spending._stage.cache_clear()
            found = []
            for effect in (0.0, *EFFECTS):
                ends = [follow(window, effect) for window in windows]
                wanted = [paired.LOSS] if effect else stopping.CALLED
                blocks = numpy.mean([end.blocks for end in ends])
                found.append(f"{share(end.outcome in wanted for end in ends)}, {blocks / stopping.FIXED_RUNS:.2f}")
            yield [name, *found]

    heads = ["function", "A/A called", *(f"{effect:.0%}" for effect in EFFECTS)]
    evaluate.print_table("Spending functions, all kinds: found (%), time / 20 runs", heads, rows())
    spending.spent = power
    spending._stage.cache_clear()


def recorded(paths: t.Sequence[str]) -> dict[str, list[Window]]:
    """Windows of equal work that share no sample, by kind of noise."""
    series = evaluate.load(paths)
    found = {kind: evaluate.windows(series, kind, "same", evaluate.WINDOW) for kind in evaluate.kinds(series)}
    return {kind: [stopping.sides(window) for window in windows] for kind, windows in found.items()}


def made_up(count: int) -> dict[str, list[Window]]:
    found = {}
    for kind in simulated.KINDS:
        source = numpy.random.default_rng(20261123)
        windows = [numpy.exp(kind(source)).tolist() for _time in range(count)]
        found[kind.__name__.replace("_", " ")] = [stopping.sides(window) for window in windows]
    return found


def main() -> None:
    """Print the tables of docs/calibration.md about planned looks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="*")
    parser.add_argument("--made-up", type=int, default=0, help="also so many windows of each kind of made-up noise")
    arguments = parser.parse_args()
    for title, kinds in (("recorded", recorded(arguments.recordings)), ("made up", made_up(arguments.made_up))):
        if any(kinds.values()):
            print_tables(title, kinds)
            print_spending(kinds)


if __name__ == "__main__":
    main()
