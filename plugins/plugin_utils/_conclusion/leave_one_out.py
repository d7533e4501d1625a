# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one host alone turns a verdict: each host is left out in turn,
and the rest is judged again by the same test at the same level.

A host is not trusted, and an honest one may be an exception. What it turns by itself, the others do not say. The answer
keeps its statistic; it names the host, and how many more hosts it takes until the others would have a verdict of their
own.
"""

from __future__ import annotations

import math
import statistics
import typing as t

try:
    import numpy
    from scipy import special
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

from ansible_collections.threadwise.smt.plugins.module_utils._statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired

# Up to so many hosts each one is left out in turn. Of more, those without which the test moves the most, each way.
ALL_TRIED = 32
MAX_MOVING = 4
# Up to so many blocks the interval is looked for; it costs their square. Beyond, the test is asked at the ends of the
# margin alone.
FEW_BLOCKS = 64
# More hosts or blocks than this are no advice.
MOST = 10_000

if t.TYPE_CHECKING:
    Logs = numpy.ndarray[t.Any, t.Any]


def verdict(before: Logs, after: Logs, level: float, margin: float, least_half: float = 0.0) -> str:
    """Return the verdict of blocks with one value of each side: that of ``paired.compare_family`` at a level.

    Args:
        before: logarithms of one side, turned so that larger is better.
        after: of the other side of the same blocks.
        level: of the test.
        margin: the equivalence margin, as a logarithm.
        least_half: half of the least width of the interval, as a logarithm.
    """
    if len(before) <= FEW_BLOCKS:
        centre, low, high = paired.interval(numpy.exp(before).tolist(), numpy.exp(after).tolist(), "higher", level)
        if low is None or high is None:
            return verdicts.INCONCLUSIVE
        return verdicts.verdict(centre, min(low, centre - least_half), max(high, centre + least_half), margin)
    critical = float(special.stdtrit(len(before) - 1, 1 - level / 2))

    def above(end: float) -> bool:
        """Return whether the lower end of the interval is above this."""
        return _statistic(before, after - end) > critical and _statistic(before, after - end - least_half) > 0

    def below(end: float) -> bool:
        return _statistic(before, after - end) < -critical and _statistic(before, after - end + least_half) < 0

    clearance = verdicts.CLEARANCE * margin
    if above(-margin) and below(margin):
        return verdicts.EQUIVALENT
    if above(clearance) and _statistic(before, after - margin) > 0:
        return verdicts.GAIN
    if below(-clearance) and _statistic(before, after + margin) < 0:
        return verdicts.LOSS
    return verdicts.INCONCLUSIVE


def turned_by(
    names: t.Sequence[str],
    sides: tuple[Logs, Logs],
    said: str,
    level: float,
    margin: float,
    least_half: t.Callable[[int], float | None],
) -> tuple[dict[str, str], int | None]:
    """Return each host without which the others have another verdict, name -> that verdict,
    and how many more hosts it takes until none turns it alone.

    Args:
        names: of the hosts, two or more.
        sides: logarithms of both sides, a value for each host, turned so that larger is better.
        said: the verdict of all hosts.
        level: of its test.
        margin: the equivalence margin, as a logarithm.
        least_half: by the place of the host that is left out, half of the least width of the others' interval; None
            where the others are too few for a verdict.

    Returns:
        The hosts, and the number, None where nothing is decided, no host turns it, or no number is known.
    """
    ratios = sides[1] - sides[0]
    turned: dict[str, str] = {}
    counts: list[int | None] = []
    for place in _tried(*sides, margin):
        before, after = (numpy.delete(side, place) for side in sides)
        half = least_half(place)
        others = verdicts.INCONCLUSIVE if half is None else verdict(before, after, level, margin, half)
        if others != said:
            turned[names[place]] = others
            counts.append(needed(after - before if len(names) > 2 else ratios, level, margin))
    return turned, (
        None if said == verdicts.INCONCLUSIVE else more(turned, counts, needed(ratios, level, margin), len(names))
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
    found = (
        of_all
        if len(turned) == hosts
        else statistics.median_high([MOST + 1 if count is None else count for count in counts])
    )
    return None if found is None or found > MOST else max(1, found - (hosts - 1))


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
    found: set[int] = set()
    for shift in (-margin, -verdicts.CLEARANCE * margin, verdicts.CLEARANCE * margin, margin):
        differences = _differences(before, after - shift)
        means = (differences.sum() - differences) / (count - 1)
        variances = ((differences**2).sum() - differences**2) / (count - 1) - means**2
        order = numpy.argsort(means / numpy.sqrt(numpy.maximum(variances, 1e-12)), kind="stable").tolist()
        found.update(order[:MAX_MOVING], order[-MAX_MOVING:])
    return sorted(found)


def needed(ratios: Logs, level: float, margin: float) -> int | None:
    """Return how many blocks or hosts like these have a verdict; None for more than :data:`MOST`.

    Args:
        ratios: log-ratios, two or more.
        level: of the test.
        margin: the equivalence margin, as a logarithm.
    """
    counts = numpy.arange(verdicts.MIN_BLOCKS, MOST + 1)
    centre = abs(float(ratios.mean()))
    halves = special.stdtrit(counts - 1, 1 - level / 2) * float(ratios.std(ddof=1)) / numpy.sqrt(counts)
    decided = (halves <= margin - centre) | ((centre - halves > verdicts.CLEARANCE * margin) & (centre > margin))
    return int(counts[decided.argmax()]) if decided.any() else None


def _statistic(before: Logs, after: Logs) -> float:
    """Return Student's t of the blocks' differences of ranks."""
    differences = _differences(before, after)
    mean, scatter = float(differences.mean()), float(differences.std(ddof=1))
    if abs(mean) < 1e-12:
        return 0.0
    return math.copysign(math.inf, mean) if scatter < 1e-12 else mean / scatter * math.sqrt(len(differences))


def _differences(before: Logs, after: Logs) -> Logs:
    """Return the difference of twice the ranks of both sides, for each block."""
    ordered = numpy.sort(numpy.concatenate([before, after]))
    before_ranks, after_ranks = (
        ordered.searchsorted(side, "left") + ordered.searchsorted(side, "right") for side in (before, after)
    )
    return (after_ranks - before_ranks).astype(float)
