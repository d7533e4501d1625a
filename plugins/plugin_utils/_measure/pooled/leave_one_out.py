# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one host alone turns a verdict: each host is left out in turn,
and the rest is judged again by the same test at the same level.

A host is not trusted, and an honest one may be an exception. What it turns by itself, the others do not say. The answer
keeps its statistic; it names the host, and how many more hosts it takes until the others would have a verdict of their
own.
"""

from __future__ import annotations

import bisect
import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions, ranks, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# Up to so many hosts each one is left out in turn. Of more, those without which the test moves the most, each way.
ALL_TRIED = 32
MAX_MOVING = 4
# Up to so many blocks the interval is looked for; it costs their square. Beyond, the test is asked at the ends of the
# margin alone.
FEW_BLOCKS = 64
# More hosts or blocks than this are no advice.
MOST = 10_000

Logs = t.Sequence[float]


def verdict(before: Logs, after: Logs, level: float, margin: float, least_half: float = 0.0) -> str:
    """Return the verdict of blocks with one value of each side: that of ``paired.compare_family`` at a level.

    Args:
        before: logarithms of one side, turned so that larger is better.
        after: of the other side of the same blocks.
        level: of the test.
        margin: the equivalence margin, as a logarithm.
        least_half: half of the least width of the interval, as a logarithm.
    """
    blocks = _blocks(before, after)
    if blocks.n < 2:
        return verdicts.INCONCLUSIVE
    if blocks.n <= FEW_BLOCKS:
        centre, low, high = blocks.interval(level)
        return verdicts.verdict(centre, min(low, centre - least_half), max(high, centre + least_half), margin)
    critical = distributions.student_quantile(level, blocks.n - 1)

    def above(end: float) -> bool:
        """Return whether the lower end of the interval is above this."""
        return blocks.statistic(end) > critical and blocks.statistic(end + least_half) > 0

    def below(end: float) -> bool:
        return blocks.statistic(end) < -critical and blocks.statistic(end - least_half) < 0

    clearance = verdicts.CLEARANCE * margin
    if blocks.statistic(margin) > 0:
        return verdicts.GAIN if above(clearance) else verdicts.INCONCLUSIVE
    if blocks.statistic(-margin) < 0:
        return verdicts.LOSS if below(-clearance) else verdicts.INCONCLUSIVE
    return verdicts.EQUIVALENT if above(-margin) and below(margin) else verdicts.INCONCLUSIVE


def turned_by(
    names: t.Sequence[str],
    sides: tuple[Logs, Logs],
    of_all: str,
    level: float,
    margin: float,
    least_half: t.Callable[[int], float | None],
) -> tuple[dict[str, str], int | None]:
    """Return each host without which the others have another verdict, name -> that verdict,
    and how many more hosts it takes until none turns it alone.

    Args:
        names: of the hosts, two or more.
        sides: logarithms of both sides, a value for each host, turned so that larger is better.
        of_all: the verdict of all hosts.
        level: of its test.
        margin: the equivalence margin, as a logarithm.
        least_half: by the place of the host that is left out, half of the least width of the others' interval; None
            where the others are too few for a verdict.

    Returns:
        The hosts, and the number, None where nothing is decided, no host turns it, or no number is known.
    """
    ratios = _ratios(*sides)
    turned: dict[str, str] = {}
    counts: list[int | None] = []
    for place in _tried(*sides, margin):
        before, after = ([*side[:place], *side[place + 1 :]] for side in sides)
        half = least_half(place)
        others = verdicts.INCONCLUSIVE if half is None else verdict(before, after, level, margin, half)
        if others != of_all:
            turned[names[place]] = others
            counts.append(needed(_ratios(before, after) if len(names) > 2 else ratios, level, margin))
    return turned, (
        None if of_all == verdicts.INCONCLUSIVE else more(turned, counts, needed(ratios, level, margin), len(names))
    )


def more(turned: t.Mapping[str, str], counts: t.Sequence[int | None], of_all: int | None, hosts: int) -> int | None:
    """Return how many more hosts it takes until none turns a verdict alone; None where none does,
    or no number is known.

    Args:
        turned: the hosts that do.
        counts: for each of them, how many hosts like the others have a verdict.
        of_all: how many hosts like all of them have one.
        hosts: how many there are.
    """
    if not turned:
        return None
    # Where it is each of them, none is unlike the others: there are too few.
    needed_hosts = (
        of_all
        if len(turned) == hosts
        else statistics.median_high([MOST + 1 if count is None else count for count in counts])
    )
    return None if needed_hosts is None or needed_hosts > MOST else max(1, needed_hosts - (hosts - 1))


def _tried(before: Logs, after: Logs, margin: float) -> list[int]:
    """Return the places of the hosts that are left out in turn,
    so that the cost for thousands of hosts is that of sorting them.

    Args:
        before: logarithms of one side, a value for each host, turned so that larger is better.
        after: of the other side.
        margin: the equivalence margin, as a logarithm.
    """
    count = len(before)
    if count <= ALL_TRIED:
        return list(range(count))
    blocks = _blocks(before, after)
    places: set[int] = set()
    for shift in (-margin, -verdicts.CLEARANCE * margin, verdicts.CLEARANCE * margin, margin):
        differences = blocks.differences(shift)
        total, squares = sum(differences), sum(difference * difference for difference in differences)
        means = [(total - difference) / (count - 1) for difference in differences]
        variances = [
            (squares - difference * difference) / (count - 1) - mean * mean
            for difference, mean in zip(differences, means)
        ]
        moved = [mean / math.sqrt(max(variance, 1e-12)) for mean, variance in zip(means, variances)]
        order = sorted(range(count), key=moved.__getitem__)
        places.update(order[:MAX_MOVING], order[-MAX_MOVING:])
    return sorted(places)


def needed(ratios: Logs, level: float, margin: float) -> int | None:
    """Return how many blocks or hosts like these have a verdict; None for more than :data:`MOST`.

    Args:
        ratios: log-ratios, two or more.
        level: of the test.
        margin: the equivalence margin, as a logarithm.
    """
    mean, scatter = ranks.moments(ratios)
    centre = abs(mean)

    def is_decided(count: int) -> bool:
        half = distributions.student_quantile(level, count - 1) * scatter / math.sqrt(count)
        return half <= margin - centre or (centre - half > verdicts.CLEARANCE * margin and centre > margin)

    # More blocks make the interval narrower, so those that are enough stay enough.
    counts = range(verdicts.MIN_BLOCKS, MOST + 1)
    place = bisect.bisect_left(counts, True, key=is_decided)
    return counts[place] if place < len(counts) else None


def _blocks(before: Logs, after: Logs) -> ranks.Paired:
    return ranks.Paired([[log] for log in before], [[log] for log in after], "higher")


def _ratios(before: Logs, after: Logs) -> list[float]:
    return [other - log for log, other in zip(before, after)]


def sentence(
    said: str, turned_by: t.Mapping[str, str], more_hosts: int | None, hosts: int, of_class: bool = False
) -> str:
    """Say which host alone turns a verdict about several hosts, what the others say without it,
    and how many more it takes; empty where none does.

    Args:
        said: the verdict.
        turned_by: from :func:`turned_by`.
        more_hosts: likewise.
        hosts: how many there are.
        of_class: whether they stand for a hardware class, for which one host alone does not speak.
    """
    if not turned_by:
        return ""
    names = list(turned_by)
    others_say = wording.join(
        [wording.VERDICT_TITLES.get(verdict, verdict) for verdict in dict.fromkeys(turned_by.values())]
    )
    if said == verdicts.INCONCLUSIVE:
        return (
            f"{wording.named(names)} alone {wording.verb(names, 'keeps', 'keep')} this open: without it the other"
            f" {hosts - 1} say {others_say}."
        )
    takes = (
        "more hosts like the others would hardly tell"
        if more_hosts is None
        else f"it takes about {more_hosts} more {wording.verb(range(more_hosts), 'host', 'hosts')}"
    )
    if hosts == 1:
        return f"{names[0]} alone says this; {takes}."
    if hosts == 2 and of_class:
        return f"One host does not speak for its class, so each of {wording.named(names)} is needed for this; {takes}."
    others = "the other host says" if hosts == 2 else f"the other {hosts - 1} say"
    several = f"One host alone turns this, each of {wording.named(names)}"
    alone = f"{names[0]} alone turns this" if len(names) == 1 else several
    return f"{alone}: without it {others} {others_say}; {takes}."
