# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts as plain SVG: one function for each kind.

Colours are CSS variables of the page (``--on``), so that a chart follows light, dark and print styles. Each chart
has ``role="img"`` and a sentence in ``aria-label``, each point and bar tells its numbers to whoever points at it, and
the page shows them in a table.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change, wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._page.canvas import (
    ACCENT,
    EDGE,
    GRID,
    INK,
    LINE,
    MUTED,
    WIDTH,
    Canvas,
    Plot,
    Scale,
    across,
    box,
    legend,
    line,
    scale,
    share,
    short,
    steps,
    tick_label,
    ticks,
    width,
    wrap,
)

# Verdict -> colour and shape: never distinguished by colour alone.
VERDICTS = {
    "gain": ("gain", "triangle-right"),
    "loss": ("loss", "triangle-left"),
    "equivalent": ("even", "square"),
    "inconclusive": ("unsure", "circle"),
    "hosts_disagree": ("unsure", "cross"),
}
# The look of a row of a forest plot that stands for what the rows below it are compared with.
BASELINE = "baseline"
LOOKS = {**VERDICTS, BASELINE: (INK, "diamond")}
# Colour and shape of each arm in the order of the result, the baseline first; no two colours differ by red and green
# alone.
ARM_COLOURS = ("on", "off", *(f"arm-{number}" for number in range(3, 9)))
ARM_SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "triangle-left", "triangle-right")
# Candidate ticks of a ratio axis.
RATIOS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 10, 30, 100)
# Width of a label on the ratio axis with spacing, and what is left beside that axis for half of the last one.
LABEL_WIDTH, INSET = 62, 30
# Height of a bar, of a row of marks, of a row of a map, and of plots.
BAR, ROW, CELL, BINS, SEQUENCE, TIMELINE, CURVE, CHANGES = 15, 18, 18, 70, 150, 110, 190, 80
# What is above this many times a limit is drawn at the upper end; the least end of an axis of changes.
FAR, LEAST_CHANGE = 2.5, 0.02
# Title of the horizontal axis of streams, which are whole.
STREAMS = "streams"
MAX_BINS = 30
# Samples of a sequence, or fields of a map, beyond which none has a title.
MAX_TITLED = 100


@dataclasses.dataclass(frozen=True)
class Picture:
    """A chart.

    Attributes:
        label: the alternative text.
        svg: an ``<svg>`` element.
    """

    label: str
    svg: str


class RatioRow(t.NamedTuple):
    """A ratio in a picture.

    Attributes:
        label: of what it is.
        text: the metric's own change.
        better: the direction of the metric.
        ratio: its place, which says better or worse.
        verdict: sets its look.
        low, high: the ends of its interval.
        ratios: of each host or observation.
    """

    label: str
    text: str
    better: str
    ratio: float
    verdict: str
    low: float = 1.0
    high: float = 1.0
    ratios: t.Sequence[float] = ()

    def said(self, after_label: str = "") -> str:
        """Return what a text says of it."""
        verdict = "" if self.verdict == BASELINE else f", {wording.VERDICT_TITLES[self.verdict]}"
        return f"{self.label}{after_label} {self.text}{verdict}"


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of an arm with its interval, where it has one; without a value it failed."""

    arm: str
    value: float | None
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends; None where one of them is not known."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def said(self, form: t.Callable[[t.Any], str] = wording.number) -> str:
        """Return ``5.1 (4.9 to 5.3)``, or the value alone."""
        return form(self.value) + (" ({} to {})".format(*map(form, self.interval)) if self.interval else "")


@dataclasses.dataclass(frozen=True)
class Bar(Value):
    """A value in a placement."""

    value: float
    label: str
    text: str


@dataclasses.dataclass(frozen=True)
class Point(Value):
    """A value at a place of the horizontal axis."""

    x: float


class Deviation(t.NamedTuple):
    """How far a sample is from the median of its kind, as a share of it."""

    number: int
    deviation: float
    arm: str


class Reading(t.NamedTuple):
    """A value of a metric in a period; ``at`` in minutes."""

    at: float
    value: float
    period: int


class Band(t.NamedTuple):
    """The time of an arm, in minutes."""

    begin: float
    end: float
    arm: str


class Share(t.NamedTuple):
    """How busy a CPU was in a placement, from 0 to 1."""

    label: str
    cpu: str
    usage: float


def looks(arms: t.Sequence[str], present: t.Container[str]) -> dict[str, tuple[str, str]]:
    """Return colour and shape of each arm of a result that occurs in a chart."""
    by_arm: dict[str, tuple[str, str]] = {}
    for place, title in enumerate(arms):
        if title in present:
            by_arm.setdefault(title, (ARM_COLOURS[place % len(ARM_COLOURS)], ARM_SHAPES[place % len(ARM_SHAPES)]))
    return by_arm


def _legend(canvas: Canvas, arms: t.Mapping[str, tuple[str, str]], shape: str = "") -> float:
    return legend(canvas, ((title, colour, shape or own) for title, (colour, own) in arms.items()))


def _percent(share: float, digits: int = 0) -> str:
    return "0 %" if share == 0 else f"{share:+.{digits}%}".replace("-", "\u2212").replace("%", " %")


# Ratios


def ratio_domain(ratios: t.Iterable[float], margin: float) -> tuple[float, float]:
    """Return the range of the ratio axis with all ratios and the margin, symmetric about 1 on the log scale."""
    reach = max([*(abs(math.log(ratio)) for ratio in ratios), 3 * margin, 0.05])
    # The axis ends at a factor of 100; longer intervals end at the frame.
    reach = min(1.08 * reach, math.log(100))
    return math.exp(-reach), math.exp(reach)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a ratio axis: 1, and from there outwards each that does not overlap the previous one."""
    clear = math.log(high / low) * LABEL_WIDTH / (WIDTH - 2 * INSET)
    marks = [1.0]
    for side in (
        sorted(tick for tick in RATIOS if 1 < tick <= high),
        sorted((tick for tick in RATIOS if low <= tick < 1), reverse=True),
    ):
        last = 1.0
        for tick in side:
            if abs(math.log(tick / last)) >= clear:
                marks.append(tick)
                last = tick
    return sorted(marks)


def _ratio_rows(
    canvas: Canvas, rows: t.Sequence[RatioRow], domain: tuple[float, float], margin: float, sides: tuple[str, str]
) -> tuple[Scale, list[float]]:
    """Draw a line of texts for each row and below it a strip of the axis of ratios, with the margin's band and the line
    at 1; return the scale, and the middle of each strip.

    A place says better or worse. The axis has the metric's own changes where all rows have one direction, else none.
    """
    low, high = domain
    logarithmic = scale(math.log(low), math.log(high), INSET, WIDTH - INSET)

    def place(ratio: float) -> float:
        return logarithmic(math.log(ratio))

    half = WIDTH / 2 - 2 * EDGE
    named = wrap(f"\u2190 {sides[0]}", half), wrap(f"{sides[1]} \u2192", half)
    for texts, x, anchor in zip(named, (WIDTH / 2 - EDGE, WIDTH / 2 + EDGE), ("end", "start")):
        for number, text in enumerate(texts):
            canvas.text(x, LINE * (number + 0.5), text, anchor, MUTED)
    y = LINE * max(map(len, named)) + EDGE
    middles = []
    for number, row in enumerate(rows):
        if row.verdict == BASELINE and number:
            canvas.path(f"M0 {short(y)}H{short(WIDTH)}", stroke=MUTED)
        on_one_line = width(row.label) + width(row.text) + 3 * EDGE < WIDTH
        after = canvas.lines(y + EDGE, row.label)
        y = canvas.lines(after - LINE if on_one_line else after, row.text, anchor="end")
        middles.append(y + ROW / 2)
        y += ROW + EDGE

    def strips(x: float) -> str:
        return steps(x, [middle - ROW / 2 for middle in middles], ROW)

    directions = {row.better for row in rows}
    start, marked = place(1 / (1 + margin)), ratio_ticks(low, high)
    if directions == {"lower"}:
        marked = [1 / tick for tick in reversed(marked)]
    bands = "".join(box(start, middle - ROW / 2, place(1 + margin) - start, ROW) for middle in middles)
    canvas.path("".join(strips(place(tick)) for tick in marked), stroke=GRID)
    canvas.path(bands, fill=MUTED, opacity="0.18")
    canvas.path(strips(place(1)), stroke=INK)
    named_ticks = marked if len(directions) == 1 else [1.0]
    across(canvas, [(place(tick), _percent(_change(tick, rows[0]))) for tick in named_ticks], y)
    return place, middles


def _change(ratio: float, row: RatioRow) -> float:
    return change.of_ratio(ratio, row.better) or 0.0


def forest(rows: t.Sequence[RatioRow], margin: float, sides: tuple[str, str], label: str) -> Picture:
    """Draw ratios with their intervals on a log axis, with the line at 1 and the margin band.

    Args:
        rows: each; the verdict :data:`BASELINE` begins a group with what the others of it are compared with.
        margin: half width of the band.
        sides: the meaning of the sides left and right of 1.
        label: the alternative text.
    """
    canvas = Canvas()
    domain = ratio_domain((end for row in rows for end in (row.low, row.high)), margin)
    place, middles = _ratio_rows(canvas, rows, domain, margin, sides)
    for row, y in zip(rows, middles):
        colour, shape = LOOKS[row.verdict]
        with canvas.group(row.said(":"), colour=colour):
            canvas.path(line([(place(row.low), y), (place(row.high), y)]), stroke="", stroke_width="3")
            canvas.marks(shape, "", 6, [(place(row.ratio), y, "")])
    return Picture(label, canvas.svg(label))


def spread(rows: t.Sequence[RatioRow], margin: float, sides: tuple[str, str], label: str) -> Picture:
    """Draw the ratios of many hosts as ticks, one row per group, with the group's median and verdict.

    Args:
        rows: each, with its ratios.
        margin: half width of the band.
        sides: the meaning of the sides left and right of 1.
        label: the alternative text.
    """
    canvas = Canvas()
    domain = ratio_domain((ratio for row in rows for ratio in row.ratios), margin)
    place, middles = _ratio_rows(canvas, rows, domain, margin, sides)
    for row, y in zip(rows, middles):
        with canvas.group(stroke=ACCENT, stroke_width="1.5", opacity="0.35"):
            # Ratios that round to the same value share one mark.
            for ratio in sorted({float(f"{ratio:.4g}") for ratio in row.ratios}):
                canvas.path(f"M{short(place(ratio))} {short(y - ROW / 2)}v{ROW}", _percent(_change(ratio, row), 1))
        colour, shape = VERDICTS[row.verdict]
        canvas.marks(shape, colour, 5.5, [(place(row.ratio), y, row.said(":"))])
    return Picture(label, canvas.svg(label))


# Values


def bars(rows: t.Sequence[Bar], arms: t.Sequence[str], unit: str, label: str) -> Picture:
    """Draw the rate of each placement as a bar with its interval, arms side by side.

    Args:
        rows: what is drawn.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    canvas = Canvas()
    shown = looks(arms, {row.arm for row in rows})
    y = _legend(canvas, shown, "square") + EDGE
    # The axis is limited, since an interval of few blocks may be many times as long as the bars.
    tallest = max(row.value for row in rows)
    top = min(1.3 * tallest, max([1.05 * tallest, *(row.high for row in rows if row.high is not None)]))
    marked = ticks(0, top, 5)
    place = scale(0, marked[-1], EDGE, WIDTH - 2 * EDGE - 6 - max(width(row.text) for row in rows))
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        groups.setdefault(row.label, []).append(row)
    for name, members in groups.items():
        y = canvas.lines(y, name)
        canvas.path("".join(f"M{short(place(tick))} {short(y)}v{BAR * len(members)}" for tick in marked), stroke=GRID)
        for row in sorted(members, key=lambda row: arms.index(row.arm)):
            middle, end = y + BAR / 2, place(row.value)
            with canvas.group(f"{name}, {row.arm}: {row.said()}"):
                canvas.path(line([(EDGE, middle), (end, middle)]), stroke=shown[row.arm][0], stroke_width=f"{BAR - 2}")
                if row.interval:
                    low, high = map(place, row.interval)
                    canvas.path(line([(low, middle), (high, middle)]), stroke=INK, stroke_width="2")
                    end = max(end, high)
            canvas.text(end + 6, middle, row.text)
            y += BAR
        y += EDGE
    across(canvas, [(place(tick), tick_label(tick)) for tick in marked], y, unit)
    return Picture(label, canvas.svg(label))


def bins(rows: t.Sequence[tuple[str, float]], arms: t.Sequence[str]) -> tuple[list[float], dict[str, list[int]]]:
    """Count values by bins; return the edges of the bins, and the counts of each arm.

    Args:
        rows: title of the arm and value of each worker of a sample.
        arms: titles of all arms of the result, the baseline first.
    """
    values = [value for _arm, value in rows]
    # The rule of Rice: twice the cube root of the number of values.
    edges = ticks(min(values), max(values), min(MAX_BINS, math.ceil(2 * len(values) ** (1 / 3))))
    # A bin is from its lower edge to below its upper one, the last one too.
    if max(values) >= edges[-1]:
        edges.append(2 * edges[-1] - edges[-2])
    counts = {title: [0] * (len(edges) - 1) for title in looks(arms, {arm for arm, _value in rows})}
    last, first, width = len(edges) - 2, edges[0], edges[1] - edges[0]
    for arm, value in rows:
        counts[arm][min(last, int((value - first) / width))] += 1
    return edges, counts


def histogram(
    marked: t.Sequence[float], counts: t.Mapping[str, t.Sequence[int]], arms: t.Sequence[str], unit: str, label: str
) -> Picture:
    """Draw the distribution of values, one row per arm.

    Args:
        marked: the edges of the bins, from :func:`bins`.
        counts: the counts of each arm, from there.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    canvas = Canvas()
    shown = looks(arms, counts)
    most = max(max(count) for count in counts.values())
    y = 0.0
    for number, (title, count) in enumerate(counts.items(), 1):
        plot = Plot(
            canvas,
            (y, BINS),
            (marked, unit if number == len(counts) else ""),
            (ticks(0, most, 3, whole=True), f"{title}, workers"),
        )
        with canvas.group(
            stroke=shown[title][0], stroke_width=short(max(1.0, plot.x(marked[1]) - plot.x(marked[0]) - 1))
        ):
            for low, high, workers in zip(marked, marked[1:], count):
                if workers:
                    x = short(plot.x((low + high) / 2))
                    tooltip = f"{wording.number(low)} to {wording.number(high)}: {workers}"
                    canvas.path(f"M{x} {short(plot.bottom)}V{short(plot.y(workers))}", tooltip)
        y = plot.bottom + LINE
    return Picture(label, canvas.svg(label))


def sequence(rows: t.Sequence[Deviation], arms: t.Sequence[str], label: str) -> Picture:
    """Draw each sample in order, relative to the median of its kind: drift is a slope, a disturbance a step.

    Args:
        rows: the samples.
        arms: titles of all arms of the result, the baseline first.
        label: the alternative text.
    """
    canvas = Canvas()
    shown = looks(arms, {row.arm for row in rows})
    deviations = [row.deviation for row in rows]
    # Of many samples the table has the numbers, and marks are of the two shapes that take the fewest bytes.
    titled = len(rows) <= MAX_TITLED
    if not titled:
        shown = {
            title: (colour, "square" if place % 2 else "circle")
            for place, (title, (colour, _shape)) in enumerate(shown.items())
        }
    plot = Plot(
        canvas,
        (_legend(canvas, shown), SEQUENCE),
        (ticks(0, max(row.number for row in rows), 8, whole=True), "sample, in the order taken"),
        (ticks(min(deviations), max(deviations), 5), "from the median"),
        lambda tick: _percent(round(tick, 12), 1),
    )
    canvas.path(f"M{short(plot.x(0))} {short(plot.y(0))}H{short(WIDTH - 2 * EDGE)}", stroke=INK)
    for title, (colour, shape) in shown.items():
        points = (
            (
                plot.x(row.number),
                plot.y(row.deviation),
                f"{row.number}: {_percent(row.deviation, 2)}" if titled else "",
            )
            for row in rows
            if row.arm == title
        )
        canvas.marks(shape, colour, 2.5, points, 0.8)
    return Picture(label, canvas.svg(label))


def timeline(
    rows: t.Sequence[Reading], bands: t.Sequence[Band], arms: t.Sequence[str], unit: str, label: str
) -> Picture:
    """Draw a metric of one host as a line, over its arms as bands.

    Args:
        rows: a line for each period.
        bands: the arms.
        arms: titles of all arms, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    canvas = Canvas()
    shown = looks(arms, {band.arm for band in bands})
    values = [row.value for row in rows]
    plot = Plot(
        canvas,
        (_legend(canvas, shown, "square"), TIMELINE),
        (ticks(0, max(band.end for band in bands), 8), "minutes since its first period"),
        (ticks(min(values), max(values), 4), unit),
    )
    with canvas.group(opacity="0.18"):
        for band in bands:
            begin, end = plot.x(band.begin), plot.x(band.end)
            tooltip = f"{band.arm}, minutes {band.begin:g} to {band.end:g}"
            canvas.path(box(begin, plot.top, end - begin, TIMELINE), tooltip, fill=shown[band.arm][0])
    periods: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        periods.setdefault(row.period, []).append((plot.x(row.at), plot.y(row.value)))
    drawn = "".join(line(points) for points in periods.values() if len(points) > 1)
    canvas.path(drawn or "M0 0", fill="none", stroke=INK, stroke_width="1.4")
    points = ((plot.x(row.at), plot.y(row.value), f"minute {row.at:g}: {wording.number(row.value)}") for row in rows)
    canvas.marks("circle", INK, 1.6, points)
    return Picture(label, canvas.svg(label))


def streams(
    rows: t.Sequence[Point],
    changes: t.Sequence[Point],
    arms: t.Sequence[str],
    unit: str,
    crossover: int | None,
    label: str,
) -> Picture:
    """Draw a value by number of streams, one line per arm, with the crossover marked; below it the change of each arm
    against the baseline.

    Args:
        rows: the values by number of streams.
        changes: the same with shares of the baseline's value; none are drawn without any.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        crossover: number of streams from which on SMT helps, or None where there is none, or none is known.
        label: the alternative text.
    """
    canvas = Canvas()
    named = [_percent(tick) for tick in _changes(changes)] if changes else []
    upper = _curve(
        canvas, rows, arms, unit, "" if changes else STREAMS, label_width=max(map(width, named), default=0.0)
    )
    plots = [upper]
    if changes:
        label_width = max(width(tick_label(tick)) for tick in _heights(rows))
        title = f"change against {arms[0]}"
        plots.append(_curve(canvas, changes, arms, title, STREAMS, (upper.bottom + EDGE, CHANGES), label_width))
    if crossover is not None:
        for plot in plots:
            x = plot.x(crossover)
            canvas.path(line([(x, plot.top), (x, plot.bottom)]), stroke=INK, stroke_dasharray="4,3")
        x, text = upper.x(crossover), f"from {crossover} streams"
        before = x + 5 + width(text) > WIDTH
        canvas.text(x - 5 if before else x + 5, upper.top + LINE / 2, text, "end" if before else "start")
    return Picture(label, canvas.svg(label))


def points(
    rows: t.Sequence[Point],
    arms: t.Sequence[str],
    unit: str,
    along: str,
    label: str,
    limit: tuple[float, str] | None = None,
    higher: bool = False,
) -> Picture:
    """Draw a value by the workload's parameter, one line per arm.

    Args:
        rows: the values.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the vertical axis.
        along: the parameter with its unit.
        label: the alternative text.
        limit: the greatest value that was allowed, and its name.
        higher: whether a higher value is better; what failed is drawn at the other end.
    """
    canvas = Canvas()
    plot = _curve(canvas, rows, arms, unit, along, limit=limit, higher=higher)
    if limit:
        y = plot.y(limit[0])
        canvas.path(line([(plot.left, y), (plot.right, y)]), stroke=INK, stroke_dasharray="4,3")
        canvas.text(plot.left + EDGE, y - LINE / 2, limit[1])
    return Picture(label, canvas.svg(label))


def _heights(rows: t.Sequence[Point], limit: tuple[float, str] | None = None) -> list[float]:
    """Return the ticks of the vertical axis of a curve: of all values with their intervals, and of zero. A limit has
    room for its name, and what is far above it has an arrow at the upper end.
    """
    ends = [0.0, *(value for row in rows for value in (row.value, row.low, row.high) if value is not None)]
    highest = max(ends) if limit is None else min(FAR * limit[0], max(1.15 * limit[0], *ends))
    return ticks(min(ends), highest, 6)


def _changes(rows: t.Sequence[Point]) -> list[float]:
    """Return the ticks of an axis of changes, on which what is below a percent is next to nothing."""
    ends = [value for row in rows for value in (row.value, row.low, row.high) if value is not None]
    return ticks(min(-LEAST_CHANGE, *ends), max(LEAST_CHANGE, *ends), 4)


def _curve(
    canvas: Canvas,
    rows: t.Sequence[Point],
    arms: t.Sequence[str],
    unit: str,
    along: str,
    below: tuple[float, float] | None = None,
    label_width: float = 0.0,
    limit: tuple[float, str] | None = None,
    higher: bool = False,
) -> Plot:
    """Draw a curve for each arm: with a legend at the top of the canvas, or as shares of a baseline below another
    plot, at this height and as high.
    """
    shown = looks(arms, {row.arm for row in rows})
    places = [row.x for row in rows]
    across_ticks = ticks(min(0, *places), max(places), 8, whole=along in ("", STREAMS))
    up = _changes(rows) if below else _heights(rows, limit)
    plot = Plot(
        canvas,
        below or (_legend(canvas, shown), CURVE),
        (across_ticks, along),
        (up, unit),
        _percent if below else tick_label,
        label_width,
    )
    if below:
        canvas.path(f"M{short(plot.left)} {short(plot.y(0))}H{short(plot.right)}", stroke=INK)
    form = functools.partial(_percent, digits=1) if below else wording.number
    for title, (colour, shape) in shown.items():
        of_arm = sorted((row for row in rows if row.arm == title), key=lambda row: row.x)
        own = [(row, row.value) for row in of_arm if row.value is not None]
        banded = [(row.x, *row.interval) for row, _value in own if row.interval]
        upper = [(plot.x(x), plot.y(high)) for x, _low, high in banded]
        lower = [(plot.x(x), plot.y(low)) for x, low, _high in banded]
        if len(banded) > 1:
            canvas.path(f"{line([*upper, *reversed(lower)])}Z", fill=colour, opacity="0.18")
        if banded:
            canvas.path("".join(map(line, zip(upper, lower))), stroke=colour, stroke_width="2")
        middles = [(plot.x(row.x), plot.y(value)) for row, value in own]
        if len(own) > 1:
            canvas.path(line(middles), fill="none", stroke=colour, stroke_width="2")
        tooltips = (f"{title}, {tick_label(row.x)} {along or STREAMS}: {row.said(form)}" for row, _value in own)
        drawn = [(x, y, text, value) for (x, y), text, (_row, value) in zip(middles, tooltips, own)]
        canvas.marks(shape, colour, 4, [mark[:3] for mark in drawn if mark[3] <= up[-1]])
        canvas.marks("arrow", colour, 6, [(x, y + 7, text) for x, y, text, value in drawn if value > up[-1]])
        end, height = 0.0, plot.top + LINE * (1.5 + list(shown).index(title))
        for x, _y, _text, value in drawn:
            middle = min(x, WIDTH - (half := width(wording.number(value)) / 2))
            if value > up[-1] and end <= middle - half:
                end = middle + half + EDGE
                canvas.text(middle, height, wording.number(value), "middle", colour)
        failed = [row.x for row in of_arm if row.value is None]
        end = plot.bottom if higher else plot.top
        at_end = [(plot.x(x), end, f"{title}, {tick_label(x)} {along}: failed") for x in failed]
        if at_end:
            canvas.marks("cross", colour, 5, at_end)
    return plot


# CPUs


def usage_map(rows: t.Sequence[Share], cpus: t.Sequence[str], label: str) -> Picture:
    """Draw how busy each CPU was: one line per placement, one field per CPU, siblings side by side.

    Args:
        rows: what is known.
        cpus: the CPUs in the order of packages, cores and siblings.
        label: the alternative text.
    """
    canvas = Canvas()
    step = min(26.0, (WIDTH - 2 * EDGE) / len(cpus))
    # Where fields are narrow a seam between them would be all that is seen.
    seam = 1 if step > 8 else 0
    lines: dict[str, dict[str, float]] = {}
    for row in rows:
        lines.setdefault(row.label, {})[row.cpu] = row.usage
    y = 0.0
    for name, usage in lines.items():
        y = canvas.lines(y, name)
        with canvas.group(fill=ACCENT):
            alike: dict[str, list[str]] = {}
            for place, cpu in enumerate(cpus):
                if cpu in usage:
                    field = box(EDGE + step * place, y, step - seam, CELL)
                    opacity = share(0.06 + 0.94 * min(1.0, max(0.0, usage[cpu])))
                    if len(rows) <= MAX_TITLED:
                        canvas.path(field, f"CPU {cpu}: {100 * usage[cpu]:.0f} %", opacity=opacity)
                    else:
                        alike.setdefault(opacity, []).append(field)
            for opacity, fields in alike.items():
                canvas.path("".join(fields), opacity=opacity)
        y += CELL + EDGE
    middles = [(EDGE + step * (place + 0.5), cpu) for place, cpu in enumerate(cpus)]
    across(canvas, middles, y - EDGE, "CPU, siblings side by side")
    return Picture(label, canvas.svg(label))


def topology(
    groups: t.Sequence[tuple[str, t.Sequence[t.Sequence[int]]]],
    offline: t.Container[int],
    label: str,
    usage: t.Mapping[int, float] | None = None,
) -> Picture:
    """Draw the machine: groups of cores with their threads and CPU numbers.

    Args:
        groups: name of each group and its cores, each as its CPU numbers.
        offline: CPUs drawn as outlines.
        label: the alternative text.
        usage: CPU -> usage from 0 to 1, shown as a shade with its percentage; without it all have the same shade.
    """
    canvas = Canvas()
    threads = max((len(core) for _name, cores in groups for core in cores), default=1)
    step, height, gap = (30, 32, 8) if usage is None else (42, 44, 8)
    # A core of more threads than fit beside each other has several rows of them.
    wide = min(threads, int((WIDTH - 2 * EDGE - 8) // step))
    high = height * math.ceil(threads / wide)
    columns = int((WIDTH - 2 * EDGE + gap) // (step * wide + 8 + gap))
    y = 0.0
    for name, cores in groups:
        y = canvas.lines(y, f"{name}: {wording.counted(len(cores), 'core')}", MUTED) + EDGE
        for place, core in enumerate(cores):
            left, top = EDGE + place % columns * (step * wide + 8 + gap), y + place // columns * (high + gap)
            canvas.path(box(left, top, step * wide + 8, high), fill="none", stroke=MUTED)
            for thread, cpu in enumerate(core):
                x, upper = left + 4 + step * (thread % wide), top + height * (thread // wide)
                used = 0.0 if cpu in offline else 1 / 3 if usage is None else usage.get(cpu, 0.0)
                state = "off" if cpu in offline else f"{100 * used:.0f} %"
                look = {"stroke_dasharray": "3,3"} if cpu in offline else {}
                look |= {"fill": ACCENT, "fill_opacity": share(0.6 * min(1.0, max(0.0, used)))}
                title = f"CPU {cpu}: {state}" if usage is not None or cpu in offline else f"CPU {cpu}"
                canvas.path(box(x + 1, upper + 4, step - 2, height - 8), title, stroke=ACCENT, **look)
                texts = [str(cpu)] if usage is None else [str(cpu), state]
                for number, text in enumerate(texts):
                    middle = upper + height / 2 + LINE * (number - (len(texts) - 1) / 2)
                    canvas.text(x + step / 2, middle, text, "middle")
        y += math.ceil(len(cores) / columns) * (high + gap)
    canvas.reach(y)
    return Picture(label, canvas.svg(label))
