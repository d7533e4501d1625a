# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The charts of :mod:`charts` as plain SVG, for a controller without vl-convert: the same data, parameters,
colours and shapes.
"""

from __future__ import annotations

import itertools
import math
import typing as t
from html import escape

from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts

Scale = t.Callable[[float], float]

# Font sizes, the width of a character, and room, in CSS pixels.
FONT, SMALL, CHARACTER, EDGE, AXIS, LINE = 12, 11, charts.CHARACTER, 8, 40, 22
# Height of a bar, of a row of a map, of a row of a spread, of a histogram, of a plot of points.
BAR, CELL, ROW, BINS, SEQUENCE, TIMELINE, CURVE = 19, 20, 26, 70, 150, 110, 200
MAX_BINS = 30
# The corners of each shape for a circle of radius 1 about its middle.
CORNERS = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.25), (1.1, 0), (0, 1.25), (-1.1, 0)),
    "triangle-up": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "triangle-down": ((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
    "triangle-left": ((-1.1, 0), (0.9, -1.1), (0.9, 1.1)),
    "triangle-right": ((1.1, 0), (-0.9, -1.1), (-0.9, 1.1)),
    "cross": tuple(
        (x / 2.5, y / 2.5)
        for x, y in (
            (-1, -3),
            (1, -3),
            (1, -1),
            (3, -1),
            (3, 1),
            (1, 1),
            (1, 3),
            (-1, 3),
            (-1, 1),
            (-3, 1),
            (-3, -1),
            (-1, -1),
        )
    ),
}


def draw(picture: charts.Picture) -> str:
    """Render a chart as an ``<svg>`` element for an HTML page."""
    canvas = _Canvas()
    DRAWN[picture.kind](canvas, picture)
    return canvas.svg(picture.label)


class _Canvas:
    """Elements of a picture; it is as large as they need."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self._right = self._bottom = 0.0

    def svg(self, label: str) -> str:
        width, height = math.ceil(self._right + EDGE), math.ceil(self._bottom + EDGE)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" width="{width}"'
            f' height="{height}" viewBox="0 0 {width} {height}"'
        )
        return f'{head} font-family="system-ui, sans-serif">{"".join(self._elements)}</svg>'

    def add(self, name: str, right: float, bottom: float, content: str = "", **attributes: t.Any) -> None:
        """Add an element that reaches to these coordinates; ``content`` is escaped here."""
        self._right, self._bottom = max(self._right, right), max(self._bottom, bottom)
        written = "".join(
            f' {key.replace("_", "-")}="{_short(value) if isinstance(value, (int, float)) else escape(value)}"'
            for key, value in attributes.items()
        )
        self._elements.append(f"<{name}{written}>{escape(content)}</{name}>" if content else f"<{name}{written}/>")

    def text(
        self, x: float, y: float, content: str, anchor: str = "start", colour: str = charts.INK, size: int = FONT
    ) -> None:
        """Add a text whose middle has the height ``y``."""
        width = CHARACTER * len(content) * {"start": 1, "middle": 0.5, "end": 0}[anchor]
        self.add(
            "text",
            x + width,
            y + size / 2,
            content,
            x=x,
            y=y + 0.35 * size,
            text_anchor=anchor,
            fill=colour,
            font_size=size,
        )

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str = charts.GRID,
        width: float = 1,
        **more: t.Any,
    ) -> None:
        """Add a line between two points."""
        right, bottom = max(start[0], end[0]), max(start[1], end[1])
        self.add(
            "line",
            right,
            bottom,
            x1=start[0],
            y1=start[1],
            x2=end[0],
            y2=end[1],
            stroke=colour,
            stroke_width=width,
            **more,
        )

    def box(self, x: float, y: float, width: float, height: float, **more: t.Any) -> None:
        """Add a rectangle."""
        self.add("rect", x + width, y + height, x=x, y=y, width=max(0, width), height=height, **more)

    def area(self, corners: t.Sequence[tuple[float, float]], colour: str, opacity: float) -> None:
        """Add a filled area between corners."""
        points = " ".join(f"{_short(x)},{_short(y)}" for x, y in corners)
        self.add(
            "polygon",
            max(x for x, _y in corners),
            max(y for _x, y in corners),
            points=points,
            fill=colour,
            opacity=opacity,
        )

    def symbol(self, shape: str, x: float, y: float, radius: float, colour: str, **more: t.Any) -> None:
        """Add a filled shape around a point."""
        if shape == "circle":
            self.add("circle", x + radius, y + radius, cx=x, cy=y, r=radius, fill=colour, **more)
            return
        points = " ".join(
            f"{_short(x + radius * across)},{_short(y + radius * down)}" for across, down in CORNERS[shape]
        )
        self.add("polygon", x + radius, y + radius, points=points, fill=colour, **more)


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


# Axes and legends


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    """Return the place of a value on an axis; what is outside is at its end."""
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / span))


def _step(span: float, most: int) -> float:
    """Return the smallest round step that divides a span into at most ``most`` parts."""
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * factor for factor in (1, 2, 5, 10, 20) if span / (size * factor) <= most)


def _ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Return round values from the first at or below ``low`` to the first at or above ``high``."""
    largest = max(abs(low), abs(high))
    # Values that differ by rounding alone are drawn in the middle of a wider axis.
    span = high - low if high - low > 1e-9 * largest else largest or 1.0
    step = max(_step(span, most), 1.0 if whole else 0.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _label(value: float) -> str:
    """Format a round value; its rounding errors are not shown."""
    return (f"{value:,.10g}" if abs(value) < 1e9 else f"{value:.4g}").replace(",", "\u202f")


def _percent(share: float, digits: int = 0) -> str:
    return "0 %" if share == 0 else f"{share:+.{digits}%}".replace("-", "\u2212").replace("%", " %")


def _across(
    canvas: _Canvas,
    ticks: t.Sequence[tuple[float, str]],
    span: tuple[float, float],
    title: str = "",
    top: float | None = None,
) -> None:
    """Draw a horizontal axis below a plot.

    Args:
        canvas: to draw on.
        ticks: place and label of each; labels that would overlap the previous one are left out.
        span: the left end of the axis, and its height on the canvas.
        title: of the axis.
        top: where lines of the grid begin; None for none.
    """
    left, bottom = span
    last = -math.inf
    for x, label in ticks:
        if top is not None:
            canvas.line((x, top), (x, bottom))
        half = CHARACTER * len(label) / 2
        if x - half > last:
            canvas.text(x, bottom + 13, label, "middle")
            last = x + half + EDGE
    canvas.line((left, bottom), (left + charts.WIDTH, bottom))
    if title:
        canvas.text(left + charts.WIDTH / 2, bottom + 31, title, "middle", charts.MUTED)


def _room(ticks: t.Iterable[tuple[float, str]]) -> float:
    """Return the left end of a plot whose vertical axis has these labels."""
    return EDGE + max(72.0, 8 + CHARACTER * max(len(label) for _tick, label in ticks))


def _upward(canvas: _Canvas, ticks: t.Sequence[tuple[float, str]], left: float, title: str, top: float) -> None:
    """Draw a vertical axis with its grid; its title is above it."""
    if title:
        canvas.text(EDGE, top - 14, title, "start", charts.MUTED)
    for y, label in ticks:
        canvas.line((left, y), (left + charts.WIDTH, y))
        canvas.text(left - 6, y, label, "end")


def _legend(canvas: _Canvas, params: dict[str, t.Any], left: float, shapes: bool) -> float:
    """Draw a legend of the arms that occur; return the height below it."""
    x, y = left, 14.0
    for title, colour, shape in zip(params["arms"], params["colours"], params["shapes"]):
        if title not in params["present"]:
            continue
        width = 20 + CHARACTER * len(title)
        if x > left and x + width > left + charts.WIDTH:
            x, y = left, y + LINE
        canvas.symbol(shape if shapes else "square", x + 6, y, 5, colour)
        canvas.text(x + 16, y, title)
        x += width + 24
    return y + LINE


def _looks(params: dict[str, t.Any]) -> dict[str, tuple[str, str]]:
    """Return colour and shape of each arm."""
    return {title: (colour, shape) for title, colour, shape in zip(params["arms"], params["colours"], params["shapes"])}


# One function per kind of chart


def _ratio_frame(canvas: _Canvas, params: dict[str, t.Any], height: float) -> tuple[float, float, Scale]:
    """Draw the axis of ratios with the margin's band and the line at 1; return the left and the upper end of the plot,
    and the scale.
    """
    left, top = EDGE + params["labels"], 30.0
    logarithmic = _scale(math.log(params["low"]), math.log(params["high"]), left, left + charts.WIDTH)

    def place(ratio: float) -> float:
        return logarithmic(math.log(ratio))

    middle, margin = left + charts.WIDTH / 2, params["margin"]
    canvas.text(middle - 8, top - 14, f"← {params['left']}", "end", charts.MUTED)
    canvas.text(middle + 8, top - 14, f"{params['right']} →", "start", charts.MUTED)
    start = place(1 / (1 + margin))
    canvas.box(start, top, place(1 + margin) - start, height, fill=charts.MUTED, opacity=0.18)
    _across(canvas, [(place(tick), _percent(tick - 1)) for tick in params["ticks"]], (left, top + height), top=top)
    canvas.line((place(1), top), (place(1), top + height), charts.INK)
    return left, top, place


def _forest(canvas: _Canvas, picture: charts.Picture) -> None:
    rows, height = picture.data["rows"], picture.size["height"]
    left, top, place = _ratio_frame(canvas, picture.params, height)
    for number, row in enumerate(rows):
        y = top + height * (number + 0.5) / len(rows)
        colour, shape = charts.LOOKS[row["verdict"]]
        if row["verdict"] == charts.BASELINE:
            above = top + height * number / len(rows)
            canvas.line((left, above), (left + charts.WIDTH, above), charts.MUTED)
        canvas.text(left - 8, y, row["key"].partition(charts.MARK)[2], "end")
        canvas.line((place(row["low"]), y), (place(row["high"]), y), colour, 3)
        canvas.symbol(shape, place(row["ratio"]), y, 6, colour)
        canvas.text(left + charts.WIDTH + 12, y, row["text"])


def _spread(canvas: _Canvas, picture: charts.Picture) -> None:
    medians = picture.data["medians"]
    left, top, place = _ratio_frame(canvas, picture.params, ROW * len(medians))
    heights = {row["key"]: top + ROW * (number + 0.5) for number, row in enumerate(medians)}
    for tick in picture.data["rows"]:
        x, y = place(tick["ratio"]), heights[tick["key"]]
        canvas.line((x, y - 8), (x, y + 8), charts.ACCENT, 1.5, opacity=0.35)
    for row in medians:
        y = heights[row["key"]]
        colour, shape = charts.VERDICTS[row["verdict"]]
        canvas.text(left - 8, y, row["key"].partition(charts.MARK)[2], "end")
        canvas.symbol(shape, place(row["ratio"]), y, 5.5, colour)
        canvas.text(left + charts.WIDTH + 12, y, row["text"])


def _bars(canvas: _Canvas, picture: charts.Picture) -> None:
    params, rows = picture.params, picture.data["rows"]
    left = EDGE + params["labels"]
    top = _legend(canvas, params, left, shapes=False)
    ticks = _ticks(0, params["top"], 6)
    place = _scale(0, ticks[-1], left, left + charts.WIDTH)
    groups = list(dict.fromkeys(row["label"] for row in rows))
    group = BAR * len(params["arms"]) + 6
    looks = _looks(params)
    _across(
        canvas, [(place(tick), _label(tick)) for tick in ticks], (left, top + group * len(groups)), params["unit"], top
    )
    for number, label in enumerate(groups):
        canvas.text(left - 8, top + group * (number + 0.5), label, "end")
    for row in rows:
        y = top + group * groups.index(row["label"]) + 3 + BAR * params["arms"].index(row["arm"])
        canvas.box(left, y + 1, place(row["value"]) - left, BAR - 2, fill=looks[row["arm"]][0])
        if row["low"] is not None and row["high"] is not None:
            canvas.line((place(row["low"]), y + BAR / 2), (place(row["high"]), y + BAR / 2), charts.INK, 2)
        canvas.text(
            place(row["value"] if row["high"] is None else row["high"]) + 6, y + BAR / 2, row["text"], size=SMALL
        )


def _histogram(canvas: _Canvas, picture: charts.Picture) -> None:
    params, rows = picture.params, picture.data["rows"]
    values = [row["value"] for row in rows]
    ticks = _ticks(min(values), max(values), MAX_BINS)
    step = ticks[1] - ticks[0]
    left, top = EDGE + AXIS + max(CHARACTER * len(title) for title in params["present"]), 30.0
    place = _scale(ticks[0], ticks[-1], left, left + charts.WIDTH)
    counts = {title: [0] * (len(ticks) - 1) for title in params["present"]}
    for row in rows:
        counts[row["arm"]][min(len(ticks) - 2, int((row["value"] - ticks[0]) / step))] += 1
    most = max(max(found) for found in counts.values())
    looks = _looks(params)
    for number, (title, found) in enumerate(counts.items()):
        upper = top + (BINS + 18) * number
        height = _scale(0, most, upper + BINS, upper)
        _upward(canvas, [(height(count), str(count)) for count in (0, most)], left, "" if number else "workers", top)
        canvas.text(EDGE, upper + BINS / 2, title, colour=charts.MUTED)
        for at, count in enumerate(found):
            start, end = place(ticks[at]), place(ticks[at + 1])
            canvas.box(start + 0.5, height(count), end - start - 1, upper + BINS - height(count), fill=looks[title][0])
    _across(
        canvas,
        [(place(tick), _label(tick)) for tick in ticks],
        (left, top + (BINS + 18) * len(counts) - 18),
        params["unit"],
    )


def _sequence(canvas: _Canvas, picture: charts.Picture) -> None:
    params, rows = picture.params, picture.data["rows"]
    deviations = [row["deviation"] for row in rows]
    ticks = [(tick, _percent(round(tick, 12), 1)) for tick in _ticks(min(deviations), max(deviations), 5)]
    left = _room(ticks)
    top = _legend(canvas, params, left, shapes=True) + LINE
    height = _scale(ticks[0][0], ticks[-1][0], top + SEQUENCE, top)
    along = _ticks(0, max(row["index"] for row in rows), 10, whole=True)
    place = _scale(along[0], along[-1], left, left + charts.WIDTH)
    _upward(canvas, [(height(tick), label) for tick, label in ticks], left, "from the median", top)
    _across(
        canvas, [(place(tick), _label(tick)) for tick in along], (left, top + SEQUENCE), "sample, in the order taken"
    )
    canvas.line((left, height(0)), (left + charts.WIDTH, height(0)), charts.INK)
    looks = _looks(params)
    for row in rows:
        colour, shape = looks[row["arm"]]
        canvas.symbol(shape, place(row["index"]), height(row["deviation"]), 3.2, colour, opacity=0.8)


def _timeline(canvas: _Canvas, picture: charts.Picture) -> None:
    params, rows, bands = picture.params, picture.data["rows"], picture.data["bands"]
    ticks = [
        (tick, _label(tick)) for tick in _ticks(min(row["value"] for row in rows), max(row["value"] for row in rows), 4)
    ]
    left = _room(ticks)
    top = _legend(canvas, params, left, shapes=False) + LINE
    height = _scale(ticks[0][0], ticks[-1][0], top + TIMELINE, top)
    along = _ticks(0, max(band["end"] for band in bands), 10)
    place = _scale(along[0], along[-1], left, left + charts.WIDTH)
    looks = _looks(params)
    for band in bands:
        canvas.box(
            place(band["begin"]),
            top,
            place(band["end"]) - place(band["begin"]),
            TIMELINE,
            fill=looks[band["arm"]][0],
            opacity=0.18,
        )
    _upward(canvas, [(height(tick), label) for tick, label in ticks], left, params["unit"], top)
    _across(
        canvas,
        [(place(tick), _label(tick)) for tick in along],
        (left, top + TIMELINE),
        "minutes since its first period",
    )
    for one, other in itertools.pairwise(rows):
        if one["period"] == other["period"]:
            canvas.line(
                (place(one["at"]), height(one["value"])), (place(other["at"]), height(other["value"])), charts.INK, 1.4
            )


def _usage_map(canvas: _Canvas, picture: charts.Picture) -> None:
    params, step = picture.params, picture.size["width"]["step"]
    left, top = EDGE + params["labels"], float(EDGE)
    labels = list(dict.fromkeys(row["label"] for row in picture.data["rows"]))
    bottom = top + CELL * len(labels)
    for number, label in enumerate(labels):
        canvas.text(left - 8, top + CELL * (number + 0.5), label, "end")
    for row in picture.data["rows"]:
        shade = 0.06 + 0.94 * min(1.0, max(0.0, row["usage"]))
        x, y = left + step * row["place"], top + CELL * labels.index(row["label"])
        canvas.box(
            x, y, step, CELL, fill=charts.ACCENT, opacity=shade, stroke=charts.PAPER, stroke_width=params["seam"]
        )
    last = -math.inf
    for number, cpu in enumerate(params["cpus"]):
        x, half = left + step * (number + 0.5), CHARACTER * len(cpu) / 2
        if x - half > last:
            canvas.text(x, bottom + 11, cpu, "middle")
            last = x + half + 2
    canvas.text(left, bottom + 29, "CPU, siblings side by side", colour=charts.MUTED)


def _topology(canvas: _Canvas, picture: charts.Picture) -> None:
    def span(row: charts.Row) -> tuple[float, float, float, float]:
        return EDGE + row["x"], EDGE + row["y"], row["x2"] - row["x"], row["y2"] - row["y"]

    for row in picture.data["boxes"]:
        canvas.box(*span(row), fill="none", stroke=charts.MUTED, rx=4)
    for row in picture.data["fields"]:
        if row["online"]:
            canvas.box(
                *span(row),
                fill=charts.ACCENT,
                fill_opacity=0.6 * min(1.0, max(0.0, row["shade"])),
                stroke=charts.ACCENT,
                rx=3,
            )
        else:
            canvas.box(*span(row), fill="none", stroke=charts.ACCENT, stroke_dasharray="3,3", rx=3)
        for number, content in enumerate(row["text"]):
            canvas.text(
                EDGE + row["cx"],
                EDGE + row["cy"] + 14 * number,
                content,
                "middle",
                size=FONT if len(row["text"]) == 1 else SMALL,
            )
    for row in picture.data["heads"]:
        canvas.text(EDGE + row["x"], EDGE + row["y"], row["text"], colour=charts.MUTED)


def _curve(canvas: _Canvas, picture: charts.Picture) -> None:
    params, rows = picture.params, picture.data["rows"]
    ends = [value for row in rows for value in (row["value"], row["low"], row["high"]) if value is not None]
    ticks = [(tick, _label(tick)) for tick in _ticks(min(0, *ends), max(0, *ends), 6)]
    left = _room(ticks)
    top = _legend(canvas, params, left, shapes=False) + LINE
    height = _scale(ticks[0][0], ticks[-1][0], top + CURVE, top)
    along = _ticks(
        min(0, *(row["x"] for row in rows)), max(row["x"] for row in rows), 10, whole=picture.kind == "streams"
    )
    place = _scale(along[0], along[-1], left, left + charts.WIDTH)
    _upward(canvas, [(height(tick), label) for tick, label in ticks], left, params["unit"], top)
    _across(canvas, [(place(tick), _label(tick)) for tick in along], (left, top + CURVE), params["along"])
    for title, (colour, _shape) in _looks(params).items():
        own = sorted((row for row in rows if row["arm"] == title), key=lambda row: row["x"])
        points = [(place(row["x"]), height(row["value"])) for row in own]
        banded = [row for row in own if row["low"] is not None and row["high"] is not None]
        edge = [(place(row["x"]), height(row["high"])) for row in banded] + [
            (place(row["x"]), height(row["low"])) for row in reversed(banded)
        ]
        if len(banded) > 1:
            canvas.area(edge, colour, 0.18)
        for start, end in itertools.pairwise(points):
            canvas.line(start, end, colour, 2)
        for row, (x, y) in zip(own, points):
            if row["low"] is not None and row["high"] is not None:
                canvas.line((x, height(row["low"])), (x, height(row["high"])), colour, 2)
            canvas.symbol("circle", x, y, 4, colour)
    for mark in picture.data["marks"]:
        x = place(mark["x"])
        canvas.line((x, top), (x, top + CURVE), charts.INK, stroke_dasharray="4,3")
        canvas.text(x + 5, top + 8, mark["text"])


DRAWN: dict[str, t.Callable[[_Canvas, charts.Picture], None]] = {
    "forest": _forest,
    "bars": _bars,
    "histogram": _histogram,
    "sequence": _sequence,
    "timeline": _timeline,
    "usage_map": _usage_map,
    "topology": _topology,
    "streams": _curve,
    "points": _curve,
    "spread": _spread,
}
