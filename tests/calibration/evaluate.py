# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often verdicts are wrong, and how often they find a real slowdown, on recorded samples."""

import argparse
import gzip
import json
import typing as t
from pathlib import Path

import numpy
import simulated
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from scipy import stats

WINDOW = 56
STEP = 8
ALPHA = 0.05
# Time to a verdict: stop when the interval is this narrow, at the latest after all blocks of a window.
ENOUGH_WIDTH = 0.04
FIXED_BLOCKS = 10

Blocks = list[list[float]]


def load(paths):
    """The series of recordings: {kind, series, cpu, seconds, microseconds} each."""
    found = []
    for path in paths:
        with gzip.open(path, "rt", encoding="ascii") as recording:
            found += json.load(recording)["series"]
    return found


def interleaved(samples: t.Sequence[float]) -> tuple[Blocks, Blocks]:
    """ABBA blocks -> each side's two samples by block."""
    blocks = [list(samples[start : start + 4]) for start in range(0, len(samples), 4)]
    return [[block[0], block[3]] for block in blocks], [[block[1], block[2]] for block in blocks]


def before_then_after(samples: t.Sequence[float]) -> tuple[Blocks, Blocks]:
    """The first half is before; paired in the order taken, two by two, for the methods that pair."""
    pairs = [list(samples[start : start + 2]) for start in range(0, len(samples), 2)]
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]


def print_table(title, heads, rows):
    """Print a table of Markdown, each row as soon as it is known."""
    print(*([f"\n### {title}\n"] if title else []), f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), sep="\n")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def kinds(series):
    """The kinds of noise, in their order."""
    return list(dict.fromkeys(one["kind"] for one in series))


ORDERS = {"interleaved": (interleaved, "abba 3 %"), "before-then-after": (before_then_after, "before-then-after 3 %")}


def ours(before: Blocks, after: Blocks) -> int:
    return {paired.GAIN: 1, paired.LOSS: -1}.get(paired.compare(before, after, better="lower").verdict, 0)


def welch(before: Blocks, after: Blocks) -> int:
    """As hyperfine's script does it: Welch's t on the times, at 5 %."""
    return _called(stats.ttest_ind(numpy.ravel(before), numpy.ravel(after), equal_var=False))


def mann_whitney(before: Blocks, after: Blocks) -> int:
    """As benchstat does it: the Mann-Whitney U test on the times, at 5 %."""
    test = stats.mannwhitneyu(numpy.ravel(before), numpy.ravel(after))
    return 0 if test.pvalue >= ALPHA else int(numpy.sign(numpy.median(before) - numpy.median(after)))


def paired_t(before: Blocks, after: Blocks) -> int:
    """A plain paired t on the blocks' means."""
    return _called(stats.ttest_rel(numpy.mean(before, axis=1), numpy.mean(after, axis=1)))


def bootstrap(before: Blocks, after: Blocks) -> int:
    """The BCa bootstrap interval of the mean log-ratio by block."""
    ratios = numpy.mean(numpy.log(before), axis=1) - numpy.mean(numpy.log(after), axis=1)
    how = {"n_resamples": 999, "method": "BCa", "rng": numpy.random.default_rng(1)}
    interval = stats.bootstrap((ratios,), numpy.mean, **how).confidence_interval
    return int(interval.low > 0) - int(interval.high < 0)


def _called(test) -> int:
    return int(numpy.sign(test.statistic)) if test.pvalue < ALPHA else 0


METHODS = {"ours": ours, "Mann-Whitney": mann_whitney, "Welch's t": welch, "paired t": paired_t}
METHODS["BCa bootstrap"] = bootstrap


def windows(series, kind, name, step=STEP):
    """Windows of the series of a name under a kind of noise, each ``step`` samples after the last."""
    found = []
    for one in series:
        if one["series"] == name and one["kind"] == kind:
            times = one["microseconds"]
            found += [times[start : start + WINDOW] for start in range(0, len(times) - WINDOW + 1, step)]
    return found


def separate(series, kind, name):
    """How many windows there are that share no sample."""
    return sum(len(one["microseconds"]) // WINDOW for one in series if one["series"] == name and one["kind"] == kind)


def rates(series, order, methods, step=STEP):
    """By kind of noise: how many comparisons of equal and of slower work, those that share no sample, and by method the
    false calls and the found slowdowns.
    """
    split, slower = ORDERS[order]
    table = {}
    for kind in kinds(series):
        found = {name: [split(window) for window in windows(series, kind, name, step)] for name in ("same", slower)}
        called = {
            name: (
                numpy.mean([method(*sides) != 0 for sides in found["same"]]),
                numpy.mean([method(*sides) == -1 for sides in found[slower]]),
            )
            for name, method in methods.items()
        }
        alone = [separate(series, kind, name) for name in found]
        table[kind] = {"same": len(found["same"]), "slower": len(found[slower]), "separate": alone, "methods": called}
    return table


def overall(table):
    """The same over all kinds, each comparison with the same weight."""
    rows = list(table.values())
    total = {count: sum(row[count] for row in rows) for count in ("same", "slower")}
    shares = {
        name: tuple(
            sum(row["methods"][name][at] * row[count] for row in rows) / total[count] for at, count in enumerate(total)
        )
        for name in rows[0]["methods"]
    }
    return {**total, "separate": numpy.sum([row["separate"] for row in rows], axis=0), "methods": shares}


def with_interval(share, separate_count):
    """A share with its 95 % interval (Wilson) for so many independent comparisons, in per cent."""
    interval = stats.binomtest(round(share * separate_count), separate_count).proportion_ci(method="wilson")
    return f"{100 * share:.1f} ({100 * interval.low:.0f}-{100 * interval.high:.0f})"


def print_rates(table, order):
    rows = []
    for kind, row in [*table.items(), ("all", overall(table))]:
        alone = row["separate"]
        cells = [", ".join(map(with_interval, found, alone)) for found in row["methods"].values()]
        rows.append([kind, f"{row['same']} ({alone[0]}), {row['slower']} ({alone[1]})", *cells])
    title = f"{order}: A/A called gain or loss, and a 3 % slowdown found, in per cent"
    print_table(title, ["noise", "comparisons (separate): A/A, slower", *METHODS], rows)


def scatter(series):
    """Kind -> medians over windows of equal work: the samples' standard deviation, and the range of block medians."""
    found = {}
    for kind in kinds(series):
        logs = [numpy.log(window).reshape(-1, 4) for window in windows(series, kind, "same")]
        wanders = [numpy.ptp(numpy.median(one, axis=1)) for one in logs]
        found[kind] = numpy.median([numpy.std(one) for one in logs]), numpy.median(wanders)
    return found


def until_enough(before: Blocks, after: Blocks) -> tuple[int, str]:
    """Blocks taken until the interval is narrow enough, and the verdict then."""
    for count in range(paired.MIN_BLOCKS, len(before) + 1):
        result = paired.compare(before[:count], after[:count], better="lower")
        if result.ci_high / result.ci_low - 1 <= ENOUGH_WIDTH:
            break
    return result.n, result.verdict


def print_simulated(count):
    """The same for made-up noise: ``count`` equal and ``count`` slower comparisons of each kind, interleaved."""
    names = [name for name in METHODS if name != "BCa bootstrap"]
    slower = numpy.log(1.03) * numpy.tile([0, 1, 1, 0], WINDOW // 4)

    def rows():
        for kind in simulated.KINDS:
            source = numpy.random.default_rng(20161103)
            noise = [kind(source) for _time in range(2 * count)]
            same = [interleaved(numpy.exp(one)) for one in noise[:count]]
            found = [interleaved(numpy.exp(one + slower)) for one in noise[count:]]
            cells = [
                f"{100 * numpy.mean([METHODS[name](*sides) != 0 for sides in same]):.1f},"
                f" {100 * numpy.mean([METHODS[name](*sides) == -1 for sides in found]):.0f}"
                for name in names
            ]
            yield [kind.__name__.replace("_", " "), *cells]

    title = f"made-up noise, interleaved, {count} comparisons each: A/A called, and a 3 % slowdown found, in per cent"
    print_table(title, ["noise", *names], rows())


def print_time_to_verdict(series):
    """Samples are of one length, so that blocks taken stand for time."""
    rows = []
    for kind in kinds(series):
        sides = [[interleaved(window) for window in windows(series, kind, name)] for name in ("same", "abba 5 %")]
        if not sides[1]:
            continue
        stopped_same, stopped = ([until_enough(*one) for one in some] for some in sides)
        fixed_same, fixed = (
            [ours(before[:FIXED_BLOCKS], after[:FIXED_BLOCKS]) for before, after in some] for some in sides
        )
        blocks = numpy.mean([count for count, _verdict in stopped])
        found = numpy.mean([verdict == paired.LOSS for _count, verdict in stopped])
        false = numpy.mean([verdict in (paired.GAIN, paired.LOSS) for _count, verdict in stopped_same])
        at_once, wrong = numpy.mean(numpy.equal(fixed, -1)), numpy.mean(numpy.not_equal(fixed_same, 0))
        calls = [f"{found:.0%}, {at_once:.0%}", f"{false:.1%}, {wrong:.1%}"]
        rows.append([kind, f"{blocks:.1f}", f"{blocks / FIXED_BLOCKS:.2f}", *calls])
    heads = ["noise", "blocks until enough, mean", "time / fixed plan", "found: until enough, fixed"]
    title = f"Time to a verdict on a 5 % slowdown: until the interval is {ENOUGH_WIDTH:.0%} wide, beside 20 runs a side"
    print_table(title, [*heads, "A/A called: until enough, fixed"], rows)


def print_recorded(series):
    print(f"{sum(len(one['microseconds']) for one in series)} samples")
    for kind, (deviation, wander) in scatter(series).items():
        print(f"{kind}: samples scatter by {deviation:.1%} (standard deviation), block medians range over {wander:.1%}")
    for order in ORDERS:
        print_rates(rates(series, order, METHODS), order)
    print_time_to_verdict(series)


def main():
    parser = argparse.ArgumentParser(description="Print how often verdicts are wrong on recorded samples.")
    parser.add_argument("recordings", nargs="*", type=Path, help="what record.py wrote (.json.gz)")
    parser.add_argument(
        "--simulated", type=int, default=0, help="also so many comparisons on each kind of made-up noise"
    )
    arguments = parser.parse_args()
    if arguments.recordings:
        print_recorded(load(arguments.recordings))
    if arguments.simulated:
        print_simulated(arguments.simulated)


if __name__ == "__main__":
    main()
