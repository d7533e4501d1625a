# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A canvas of plain SVG with texts that are never cut off, and the axes of charts.

A canvas is :data:`WIDTH` units wide and as high as what is on it; the page scales it to its own width. So narrow a
canvas stays legible on a telephone: what would stand beside a plot stands above it, and is wrapped. What many elements
have in common is a class of one letter or so, whose rule :data:`STYLE` says once for all pictures of a page.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import typing as t
import unicodedata
from html import escape

Scale = t.Callable[[float], float]

INK, MUTED, GRID, ACCENT = "ink", "muted", "grid", "accent"
# The colours of a page, which are CSS variables of it: name -> class.
COLOURS = {
    INK: "k",
    MUTED: "u",
    GRID: "g",
    ACCENT: "a",
    "on": "b",
    "off": "c",
    **{f"arm-{number}": f"c{number}" for number in range(3, 9)},
    "gain": "G",
    "loss": "L",
    "even": "E",
    "unsure": "U",
}
# Attribute and value -> class.
CLASSES = {
    ("text-anchor", "middle"): "m",
    ("text-anchor", "end"): "e",
    ("stroke-width", "2"): "w",
    ("stroke-width", "3"): "v",
    ("stroke-linecap", "round"): "r",
    ("stroke-linecap", "square"): "q",
    ("opacity", "0.18"): "o",
    ("fill", "none"): "n",
}
FILL, STROKE = "f", "s"
# Width of a canvas, size of its font, height of a line of text, and room at its edges, in units of SVG.
WIDTH, FONT, LINE, EDGE = 400.0, 12.0, 16.0, 4.0
# Widths of characters as shares of the font's size, in the widest common fonts (DejaVu Sans, Verdana).
NARROW = frozenset(" .,:;'|!()[]/\\ijlIftr-\u00a0\u202f")
BROAD, WIDE = frozenset("+\u2212\u00b1<>=~\u2190\u2192"), frozenset("mwMW@%\u2026")
# The corners of each shape for a circle of radius 1 about its middle.
CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "diamond": ((0, -1.25), (1.1, 0), (0, 1.25), (-1.1, 0)),
    "triangle-up": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    "triangle-down": ((0, 1.1), (1.1, -0.9), (-1.1, -0.9)),
    "triangle-left": ((-1.1, 0), (0.9, -1.1), (0.9, 1.1)),
    "triangle-right": ((1.1, 0), (-0.9, -1.1), (-0.9, 1.1)),
    "arrow": ((0, -1.2), (1, 0), (0.3, 0), (0.3, 1), (-0.3, 1), (-0.3, 0), (-1, 0)),
    "cross": tuple(
        (0.4 * x, 0.4 * y)
        for x, y in zip((-1, 1, 1, 3, 3, 1, 1, -1, -1, -3, -3, -1), (-3, -3, -1, -1, 1, 1, 3, 3, 1, 1, -1, -1))
    ),
}


def _ems(character: str) -> float:
    if character in NARROW:
        return 0.46
    if character in WIDE:
        return 1.08
    if character in BROAD or (character.isascii() and character.isupper()):
        return 0.84
    if character.isascii():
        return 0.64
    if unicodedata.east_asian_width(character) in "WF":
        return 1.3 if unicodedata.category(character) == "So" else 1.05
    return 0.0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 0.9


@functools.lru_cache(maxsize=4096)
def width(text: str) -> float:
    """Return how wide a text is at most, in units of SVG."""
    return FONT * sum(map(_ems, text))


def wrap(text: str, room: float) -> list[str]:
    """Return the lines of a text, none of which is wider than ``room``; a word that is wider is divided."""
    if width(text) <= room:
        return [text]
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width(longer) <= room:
            lines[-1] = longer
            continue
        lines += [word] if lines[-1] else []
        lines[-1] = lines[-1] or word
        while width(lines[-1]) > room and len(lines[-1]) > 1:
            fits = max(1, sum(1 for reach in itertools.accumulate(map(width, lines[-1])) if reach <= room))
            lines[-1:] = [lines[-1][:fits], lines[-1][fits:]]
    return [line for line in lines if line]


def short(value: float) -> str:
    """Format a coordinate: a tenth of a unit cannot be seen."""
    written = f"{value:.1f}"
    return written.removesuffix(".0")


def share(value: float) -> str:
    """Format a share from 0 to 1, such as an opacity."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def tick_label(value: float) -> str:
    """Format a round value; its rounding errors are not shown."""
    return (f"{value:,.10g}" if abs(value) < 1e9 else f"{value:.4g}").replace(",", "\u202f").replace("-", "\u2212")


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """Return the place of a value on an axis; what is outside is at its end."""
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / span))


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Return round values, evenly spaced, from the first at or below ``low`` to the first at or above ``high``.

    Args:
        low: the least value.
        high: the greatest value.
        most: into how many parts the span is divided at most.
        whole: whether only whole numbers have a meaning.
    """
    largest = max(abs(low), abs(high))
    # Values that differ by rounding alone are drawn in the middle of a wider axis.
    span = high - low if high - low > 1e-9 * largest else largest or 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if span / (size * factor) <= most)
    step = max(step, 1.0 if whole else 0.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


class Canvas:
    """The elements of a picture."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._bottom = 0.0

    def svg(self, label: str) -> str:
        """Return the picture as an ``<svg>`` element with this alternative text."""
        view = f"0 0 {short(WIDTH)} {short(self._bottom + EDGE)}"
        return f'<svg role=img aria-label="{escape(label)}" viewBox="{view}">{"".join(self._parts)}</svg>'

    def reach(self, bottom: float) -> None:
        """Make the picture at least this high."""
        self._bottom = max(self._bottom, bottom)

    def path(self, drawn: str, title: str = "", **attributes: str) -> None:
        """Add a path.

        Args:
            drawn: its commands.
            title: what a reader sees who points at it.
            attributes: others, with underscores for hyphens; ``colour``, ``fill`` and ``stroke`` name a colour of the
                page, and an empty one is that of the group.
        """
        content = f">{_titled(title)}</path>" if title else "/>"
        self._parts.append(f'<path{_written(attributes)} d="{drawn}"{content}')

    @contextlib.contextmanager
    def group(self, title: str = "", **attributes: str) -> t.Iterator[None]:
        """Give all elements that are added inside this title and these attributes, as :meth:`path`."""
        self._parts.append(f"<g{_written(attributes)}>{_titled(title)}")
        yield
        self._parts.append("</g>")

    def text(self, x: float, y: float, content: str, anchor: str = "start", colour: str = "") -> None:
        """Add a text whose middle has the height ``y``; the caller sees to it that it has room."""
        attributes = {} if anchor == "start" else {"text_anchor": anchor}
        attributes |= {"fill": colour} if colour else {}
        place = f"x={short(x)} y={y + 0.35 * FONT:.0f}"
        self._parts.append(f"<text{_written(attributes)} {place}>{escape(content, quote=False)}</text>")
        self.reach(y + LINE / 2)

    def lines(self, y: float, content: str, colour: str = "", anchor: str = "start") -> float:
        """Add a text over the whole width, in as many lines as it needs; return the height below it."""
        for line in wrap(content, WIDTH - 2 * EDGE):
            self.text(EDGE if anchor == "start" else WIDTH - EDGE, y + LINE / 2, line, anchor, colour)
            y += LINE
        return y

    def marks(
        self, shape: str, colour: str, radius: float, points: t.Iterable[tuple[float, float, str]], opacity: float = 1
    ) -> None:
        """Add marks of one shape and colour, each with its title; those without one are a single path."""
        attributes = {"fill": colour} | ({"opacity": f"{opacity:g}"} if opacity < 1 else {})
        corners = CORNERS.get(shape)
        if corners is None:
            # A line that is as short as it is not seen has the form of its ends.
            ends = {"stroke_linecap": "round" if shape == "circle" else "square"}
            attributes |= {"stroke": colour, "stroke_width": short(2 * radius), **ends}
        (right, down), *others = corners or [(0.0, 0.0)]
        steps = itertools.pairwise([(right, down), *others])
        shape = "".join(f"l{short(radius * (x - a))} {short(radius * (y - b))}" for (a, b), (x, y) in steps) + "z"
        marks = [
            (f"M{short(x + radius * right)} {short(y + radius * down)}{shape if corners else 'v.1'}", title)
            for x, y, title in points
        ]
        titled = [mark for mark in marks if mark[1]]
        if silent := "".join(mark for mark, title in marks if not title):
            self.path(silent, **attributes)
        if len(titled) == 1:
            self.path(*titled[0], **attributes)
        elif titled:
            with self.group(**attributes):
                for mark in titled:
                    self.path(*mark)


def _titled(title: str) -> str:
    return f"<title>{escape(title, quote=False)}</title>" if title else ""


def _written(attributes: t.Mapping[str, str]) -> str:
    """Return attributes as they stand in a tag, what has a class by it; their values are numbers."""
    classes: dict[str, None] = {}
    others = ""
    for name, value in attributes.items():
        if name in _PAINTED and value in COLOURS:
            classes |= dict.fromkeys((*_PAINTED[name], COLOURS[value]))
        elif name in _PAINTED and not value:
            classes |= dict.fromkeys(_PAINTED[name])
        elif css_class := CLASSES.get((written := name.replace("_", "-"), value)):
            classes[css_class] = None
        else:
            others += f" {written}={value}"
    if not classes:
        return others
    return f' class="{" ".join(classes)}"{others}' if len(classes) > 1 else f" class={next(iter(classes))}{others}"


_PAINTED = {"fill": (FILL,), "stroke": (STROKE,), "colour": ()}
_RULES = {
    **{name: f"color:var(--{colour})" for colour, name in COLOURS.items()},
    FILL: "fill:currentColor",
    STROKE: "stroke:currentColor",
    **{name: f"{attribute}:{value}" for (attribute, value), name in CLASSES.items()},
}
STYLE = f"figure svg{{width:100%;font-size:{FONT:g}px;fill:var(--{INK})}}" + "".join(
    f"svg .{name}{{{rule}}}" for name, rule in _RULES.items()
)


def steps(x: float, tops: t.Sequence[float], height: float) -> str:
    """Return the commands of vertical lines of one height below each other."""
    moves = (f"m0 {short(after - before - height)}v{short(height)}" for before, after in itertools.pairwise(tops))
    return f"M{short(x)} {short(tops[0])}v{short(height)}{''.join(moves)}"


def box(x: float, y: float, across: float, down: float) -> str:
    """Return the commands of a path around a rectangle."""
    return f"M{short(x)} {short(y)}h{short(across)}v{short(down)}h{short(-across)}z"


def line(points: t.Iterable[tuple[float, float]]) -> str:
    """Return the commands of a path from point to point."""
    (x, y), *others = [(short(x), short(y)) for x, y in points]
    drawn = f"M{x} {y}"
    for across, down in others:
        drawn += f"H{across}" if down == y else f"V{down}" if across == x else f"L{across} {down}"
        x, y = across, down
    return drawn


def legend(canvas: Canvas, arms: t.Iterable[tuple[str, str, str]]) -> float:
    """Draw a legend of arms, each with its colour and shape; return the height below it."""
    x, y = EDGE, 0.0
    for title, colour, shape in arms:
        first, *others = wrap(title, WIDTH - 2 * EDGE - 16)
        if x > EDGE and x + 16 + width(first) > WIDTH - EDGE:
            x, y = EDGE, y + LINE
        canvas.marks(shape, colour, 5, [(x + 6, y + LINE / 2, "")])
        canvas.text(x + 16, y + LINE / 2, first)
        x += 16 + width(first) + 16
        for other in others:
            x, y = WIDTH, y + LINE
            canvas.text(EDGE + 16, y + LINE / 2, other)
    return y + LINE


def across(canvas: Canvas, labels: t.Sequence[tuple[float, str]], bottom: float, title: str = "") -> None:
    """Label a horizontal axis at these places, below a plot that ends at ``bottom``: all of them, every second one, or
    every so many, so that none touches the next.
    """
    halves = [width(label) / 2 for _place, label in labels]
    ends = [(min(max(x, half), WIDTH - half), half) for (x, _label), half in zip(labels, halves)]
    every = next(
        every
        for every in range(1, len(labels) + 1)
        if all(x + half + EDGE <= after - other for (x, half), (after, other) in itertools.pairwise(ends[::every]))
    )
    with canvas.group(text_anchor="middle"):
        for (x, _half), (_place, label) in zip(ends[::every], labels[::every]):
            canvas.text(x, bottom + LINE / 2 + EDGE, label)
    bottom += LINE + EDGE
    for number, text in enumerate(wrap(title, WIDTH - 2 * EDGE) if title else ()):
        canvas.text(WIDTH / 2, bottom + LINE * (number + 0.5), text, "middle", MUTED)


class Plot:
    """A plot with a vertical and a horizontal axis.

    Attributes:
        x: value -> place from left to right.
        y: value -> height.
        top: the plot's upper end.
        bottom: its lower end.
        left: its left end.
        right: its right end.
    """

    def __init__(
        self,
        canvas: Canvas,
        span: tuple[float, float],
        along: tuple[t.Sequence[float], str],
        up: tuple[t.Sequence[float], str],
        label: t.Callable[[float], str] = tick_label,
        label_width: float = 0.0,
    ):
        """Draw the axes and the grid.

        Args:
            canvas: to draw on.
            span: where what is above the plot ends, and the plot's height.
            along: ticks and title of the horizontal axis; without a title it is that of the plot below.
            up: ticks and title of the vertical axis; the title stands above it.
            label: the label of a tick of the vertical axis.
            label_width: the least room for these labels, so that plots below each other have one horizontal axis.
        """
        top = canvas.lines(span[0], up[1], MUTED) + LINE / 2
        self.top, self.bottom = top, top + span[1]
        named = [(tick, label(tick)) for tick in up[0]]
        left = EDGE + 6 + max(label_width, *(width(name) for _tick, name in named))
        right = WIDTH - max(2 * EDGE, width(tick_label(along[0][-1])) / 2)
        self.left, self.right = left, right
        self.x = scale(along[0][0], along[0][-1], left, right)
        self.y = scale(up[0][0], up[0][-1], self.bottom, top)
        canvas.path("".join(f"M{short(left)} {short(self.y(tick))}H{short(right)}" for tick in up[0]), stroke=GRID)
        last = math.inf
        with canvas.group(text_anchor="end"):
            for tick, name in named:
                if self.y(tick) < last - FONT:
                    last = self.y(tick)
                    canvas.text(left - 6, last, name)
        if along[1]:
            across(canvas, [(self.x(tick), tick_label(tick)) for tick in along[0]], self.bottom, along[1])
        canvas.reach(self.bottom)
