# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements before and after a change -> comparisons, by the statistics of the filter ``smt_compare``."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files import measurements
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files.measurements import (
    MeasurementsError,
    Series,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

SCHEMA, SCHEMA_VERSION = "threadwise.smt/compare", 1
ORDER = (
    "If the machine drifted between the two files, that is in the change: measure both sides in turns (A B, B A, ...)."
)


class Comparison(t.NamedTuple):
    """A measurement before and after; ``left_out`` values are more on one side."""

    name: str
    unit: str
    before_value: float
    after_value: float
    judged: Judged
    left_out: int

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        values = {"before_value": self.before_value, "after_value": self.after_value}
        return {
            "name": self.name,
            "unit": self.unit,
            "better": self.judged.better,
            **values,
            **self.judged.described(),
            **self.judged.change.described(),
            "left_out": self.left_out,
        }


class Result(t.NamedTuple):
    """What was compared, what could not be, and what is to be considered."""

    comparisons: list[Comparison]
    not_compared: list[str]
    cautions: list[str]

    def described(self) -> dict[str, t.Any]:
        """Return it as the document of smt_compare."""
        comparisons = [comparison.described() for comparison in self.comparisons]
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **self._asdict(), "comparisons": comparisons}


def compared(
    before: t.Sequence[Series], after: t.Sequence[Series], better: str | None, margin: float, confidence: float
) -> Result:
    """Return the comparisons of what both sides measured, as one family.

    Args:
        before: from before the change.
        after: from after it. One measurement on each side is compared whatever its name.
        better: ``higher`` or ``lower`` for those of which the files do not say it.
        margin: effects within this share of 1 count as none.
        confidence: of all verdicts together.

    Raises:
        MeasurementsError: the sides have nothing in common, or it is not known which way it is better.
        paired.SampleError: a value or a setting is not valid.
    """
    pairs, alone = _matched(before, after)
    directions = [series.better or other.better or str(better) for series, other in pairs]
    unknown = [_title(series) for series, other in pairs if not (series.better or other.better)]
    if unknown and better is None:
        raise MeasurementsError(
            f"it is not known which way {', '.join(unknown[:3])} is better: set smt_compare_better to higher, as for"
            " rates, or to lower, as for times"
        )
    sides = [(series.values[: len(other.values)], other.values[: len(series.values)]) for series, other in pairs]
    results = paired.compare_family(
        [(*values, direction) for values, direction in zip(sides, directions)], margin, confidence
    )
    by_option = [f"smt_compare_better: {better} is better for {', '.join(unknown[:10])}."] if unknown else []
    comparisons = []
    for (series, other), values, direction, judged in zip(pairs, sides, directions, results):
        name = series.name if series.name == other.name else f"{series.name} -> {other.name}"
        typical = paired.sides(*values, direction, judged.ratio)
        comparisons.append(Comparison(name, series.unit, *typical, judged, abs(len(series.values) - len(other.values))))
    return Result(comparisons, alone, [ORDER, *_left_out(comparisons), *by_option])


def _matched(before: t.Sequence[Series], after: t.Sequence[Series]) -> tuple[list[tuple[Series, Series]], list[str]]:
    """Return what both sides measured, and the names of what one of them did."""
    before, after = measurements.by_setting(before, after)
    if len(before) == len(after) == 1:
        pairs = [(before[0], after[0])]
    else:
        sides = [{(series.name, series.unit): series for series in side} for side in (before, after)]
        if any(len(side) < len(given) for side, given in zip(sides, (before, after))):
            raise MeasurementsError("a file has a name twice, so it is not known what belongs together")
        pairs = [(series, sides[1][key]) for key, series in sides[0].items() if key in sides[1]]
    if not pairs:
        names = [", ".join(_title(series) for series in side[:3]) for side in (before, after)]
        raise MeasurementsError(f"the files have nothing in common: {names[0]} before, and {names[1]} after")
    differing = [f"{series.unit} and {other.unit}" for series, other in pairs if series.unit != other.unit]
    if differing:
        raise MeasurementsError(f"the files have different units: {differing[0]}")
    # Allocations can be 0, which has no ratio; where nothing else is left, the comparison says so.
    pairs = [pair for pair in pairs if min(value for series in pair for value in series.values) > 0] or pairs
    both = {id(series) for pair in pairs for series in pair}
    return pairs, list(dict.fromkeys(_title(series) for series in (*before, *after) if id(series) not in both))


def _left_out(comparisons: t.Iterable[Comparison]) -> list[str]:
    return [
        f"{comparison.name or 'One file'} has {wording.counted(comparison.left_out, 'value')} more on one side,"
        f" which {'is' if comparison.left_out == 1 else 'are'} left out."
        for comparison in comparisons
        if comparison.left_out
    ]


def _title(series: Series) -> str:
    return " ".join(filter(None, (series.name, series.unit))) or "this number"


def lines(result: Result, number: t.Callable[[float | None], str]) -> list[str]:
    """Return what a terminal shows: a line each comparison, then what is to be considered.

    Args:
        result: from :func:`compared`.
        number: formats a value.
    """
    shown = []
    for comparison in result.comparisons:
        values = " -> ".join(
            number(value).replace("\u202f", " ") for value in (comparison.before_value, comparison.after_value)
        )
        name = f"{comparison.name}: " if comparison.name else ""
        shown.append(
            f"{name}{values} {comparison.unit}".rstrip() + f", {comparison.judged.in_words}, n = {comparison.judged.n}"
        )
        if comparison.judged.n < paired.MIN_BLOCKS:
            shown.append(f"  {comparison.judged.method}")
    if result.not_compared:
        shown.append(f"Not compared, as they are in one file only or 0: {', '.join(result.not_compared[:10])}")
    return [*shown, *result.cautions]
