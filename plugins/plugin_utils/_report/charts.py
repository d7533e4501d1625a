# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts in Vega-Lite, rendered by vl-convert (Vega-Lite without a browser) or by the page's own script.

A :class:`Picture` is the name of one of :data:`TEMPLATES` (a Vega-Lite specification without data) with its data and
parameters, so that a thousand pages share their specifications and contain only their numbers. Colours are CSS
variables of the page (``var(--on)``), so that a chart follows light, dark and print styles. Each chart has
``role="img"`` and a sentence in ``aria-label``; the page shows the numbers in a table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import typing as t
from html import escape

try:
    import vl_convert
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

Row = dict[str, t.Any]
Spec = dict[str, t.Any]

INK, MUTED, GRID, PAPER, ACCENT = "var(--ink)", "var(--muted)", "var(--grid)", "var(--paper)", "var(--accent)"
# The layout font differs from the display font: the width of the widest common font leaves room for all.
CHARACTER = 7.4
# Plot area, in CSS pixels.
WIDTH = 460
# Verdict -> colour and shape: never distinguished by colour alone.
VERDICTS = {
    "gain": ("var(--gain)", "triangle-right"),
    "loss": ("var(--loss)", "triangle-left"),
    "equivalent": ("var(--even)", "square"),
    "inconclusive": ("var(--unsure)", "circle"),
    "hosts_disagree": ("var(--unsure)", "cross"),
}
# The look of a row of a forest plot that stands for what the rows below it are compared with.
BASELINE = "baseline"
LOOKS = {**VERDICTS, BASELINE: (INK, "diamond")}
# Colour and shape of each arm in the order of the result, the baseline first; no two colours differ by red and green
# alone.
ARM_COLOURS = (
    "var(--on)",
    "var(--off)",
    "var(--arm-3)",
    "var(--arm-4)",
    "var(--arm-5)",
    "var(--arm-6)",
    "var(--arm-7)",
    "var(--arm-8)",
)
ARM_SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "triangle-left", "triangle-right")
# Candidate ticks of a ratio axis.
RATIO_TICKS = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.6, 2.0, 3.0, 5.0, 10.0)
LONGEST_LABEL = 46
# Width of a label on the ratio axis with spacing, in CSS pixels.
LABEL_WIDTH = 56
# Numeric labels do not overlap in the widest common font.
SPARSE = {"labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 16}
# How the page's own script reaches the library.
BROWSER_NAMES = "window.vegaEmbed = vegaEmbed; window.vega = vega; window.vegaLite = vegaLite;"
# Separates the number that makes a label unique from the label that is shown.
MARK = "\x01"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A chart before rendering.

    Attributes:
        kind: a key of :data:`TEMPLATES`.
        label: the alternative text.
        data: name -> rows, for the template's data of that name.
        params: name -> value, for ``"@name"`` in the template and for its expressions.
        size: ``width`` and ``height`` in CSS pixels, where they depend on the data.
    """

    kind: str
    label: str
    data: dict[str, list[Row]]
    params: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    size: dict[str, t.Any] = dataclasses.field(default_factory=dict)

    def fields(self) -> dict[str, t.Any]:
        """Return the chart as plain data, for a page that renders it."""
        return vars(self)


def shorten(label: str) -> str:
    """Shorten a label to fit beside a chart; the table has the full text."""
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def draw(picture: Picture) -> str:
    """Render a chart as an ``<svg>`` element for an HTML page."""
    template = json.dumps(TEMPLATES[picture.kind])
    # In one pass: a value, such as a title from a host, can look like another parameter.
    template = re.sub(r'"@([a-z_]+)"', lambda match: json.dumps(picture.params[match[1]]), template)
    params = [{"name": name, "value": value} for name, value in picture.params.items()]
    spec = {**json.loads(template), **picture.size, "config": CONFIG, "datasets": picture.data, "params": params}
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    # Ids are unique per chart, because all charts of a page share one namespace.
    number = hashlib.sha256(f"{picture.label}{svg}".encode()).hexdigest()[:12]
    svg = re.sub(r'\bid="([^"]+)"', rf'id="c{number}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#c{number}-\1)", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(picture.label, quote=True)}" ', 1)


def as_json(value: t.Any) -> str:
    """Format plain data for a page's script, such as the fields of a :class:`Picture`."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def browser_script() -> str:
    """Return the script that renders charts in a page: the library (Vega-Lite,
    from vl-convert's package) and :data:`TEMPLATES`.
    """
    templates = json.dumps({"config": CONFIG, "templates": TEMPLATES}, sort_keys=True)
    return f"(() => {{{vl_convert.javascript_bundle(BROWSER_NAMES)}}})();\nwindow.smtCharts = {templates};\n"


# Building blocks of templates


def _data(name: str = "rows") -> Spec:
    return {"name": name}


def _expr(expression: str) -> Spec:
    return {"expr": expression}


def _quantity(name: str, **more: t.Any) -> Spec:
    return {
        "field": name,
        "type": "quantitative",
        **({} if (more.get("axis") or {}).get("title") else {"title": None}),
        **more,
    }


def _label_axis(**more: t.Any) -> Spec:
    """Return an axis of texts, with room for the longest."""
    return {"domain": False, "ticks": False, "labelPadding": 8, "minExtent": "@labels", **more}


def _colour(**more: t.Any) -> Spec:
    """Return the arm's colour, with a legend of the present arms."""
    return {
        "field": "arm",
        "type": "nominal",
        "sort": "@arms",
        "scale": {"domain": "@arms", "range": "@colours"},
        "legend": {"values": "@present", **more},
    }


def _by_verdict(place: int) -> Spec:
    return {
        "field": "verdict",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(LOOKS), "range": [look[place] for look in LOOKS.values()]},
    }


def _label(**more: t.Any) -> Spec:
    return {"type": "text", "color": INK, "fontSize": 12, **more}


def _text(name: str = "text") -> Spec:
    return {"field": name, "type": "nominal"}


def _head(text: str, align: str, at: float, dx: float) -> Spec:
    """Return a text above the axis, on one side of its middle."""
    return {
        "data": {"values": [{}]},
        "mark": _label(align=align, color=MUTED, dx=dx, text=_expr(text)),
        "encoding": {"x": {"value": at}, "y": {"value": -12}},
    }


def _ratio_layers() -> list[Spec]:
    """Return the layers of the margin band and the line at 1."""
    scale = {"type": "log", "domain": ["@low", "@high"], "nice": False, "clamp": True}
    return [
        {
            "data": {"values": [{}]},
            "mark": {"type": "rect", "color": MUTED, "opacity": 0.18},
            "encoding": {
                "x": {"datum": _expr("1 / (1 + margin)"), "type": "quantitative", "scale": scale},
                "x2": {"datum": _expr("1 + margin")},
            },
        },
        {
            "data": {"values": [{}]},
            "mark": {"type": "rule", "color": INK, "strokeWidth": 1},
            "encoding": {"x": {"datum": 1, "type": "quantitative", "scale": scale}},
        },
    ]


def _ratio_axis() -> Spec:
    label = "datum.value == 1 ? '0 %' : replace(format(datum.value - 1, '+.0%'), '%', ' %')"
    scale = {"type": "log", "domain": ["@low", "@high"], "nice": False, "clamp": True}
    return {"axis": {"values": "@ticks", "labelExpr": label, "labelFlush": False}, "scale": scale}


def _forest() -> Spec:
    y = {
        "field": "key",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": _label_axis(labelExpr=f"split(datum.label, '{MARK}')[1]"),
    }
    return {
        "width": WIDTH,
        "layer": [
            *_ratio_layers(),
            {
                "data": _data(),
                "mark": {"type": "rule", "strokeWidth": 3},
                "encoding": {
                    "y": y,
                    "x": _quantity("low", **_ratio_axis()),
                    "x2": {"field": "high"},
                    "color": _by_verdict(0),
                },
            },
            {
                "data": _data(),
                "mark": {"type": "point", "filled": True, "size": 130, "opacity": 1},
                "encoding": {
                    "y": y,
                    "x": _quantity("ratio", **_ratio_axis()),
                    "color": _by_verdict(0),
                    "shape": _by_verdict(1),
                },
            },
            {
                "data": _data(),
                "mark": _label(align="left", dx=12),
                "encoding": {"y": y, "x": {"value": WIDTH}, "text": _text()},
            },
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "opacity": 0, "color": INK},
                "encoding": {"x": {"value": WIDTH}, "x2": {"value": "@end"}},
            },
            _head("'← ' + left", "right", WIDTH / 2, -8),
            _head("right + ' →'", "left", WIDTH / 2, 8),
            # The last layer, because the order of rows is that in which the layers name them.
            {
                "data": _data(),
                "transform": [{"filter": f"datum.verdict == '{BASELINE}'"}],
                "mark": {"type": "rule", "color": MUTED, "strokeWidth": 1},
                "encoding": {"y": {**y, "bandPosition": 0}, "x": {"value": 0}, "x2": {"value": WIDTH}},
            },
        ],
    }


def _bars() -> Spec:
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": _label_axis()}
    offset = {"field": "arm", "type": "nominal", "sort": "@arms", "scale": {"paddingInner": 0.12}}
    across = {"scale": {"domain": [0, "@top"], "clamp": True, "nice": True}, "axis": {"title": "@unit", "tickCount": 6}}
    spot = {"y": y, "yOffset": offset}
    return {
        "width": WIDTH,
        "height": {"step": 19},
        "data": _data(),
        "layer": [
            {
                "mark": "bar",
                "encoding": {**spot, "x": _quantity("value", **across), "color": _colour(symbolType="square")},
            },
            {
                "transform": [{"filter": "datum.low != null && datum.high != null"}],
                "mark": {"type": "rule", "color": INK, "strokeWidth": 2},
                "encoding": {**spot, "x": _quantity("low", **across), "x2": {"field": "high"}},
            },
            {
                "transform": [{"calculate": "datum.high == null ? datum.value : datum.high", "as": "end"}],
                "mark": _label(align="left", dx=6, fontSize=11),
                "encoding": {**spot, "x": _quantity("end", **across), "text": _text()},
            },
        ],
    }


def _histogram() -> Spec:
    row = {
        "field": "arm",
        "type": "nominal",
        "sort": "@arms",
        "title": None,
        "header": {"labelAngle": 0, "labelAlign": "left"},
    }
    counts = {"tickMinStep": 1, "format": "d", "tickCount": 3, "minExtent": 30}
    return {
        # Half of the last label of the axis, which the layout of a facet leaves out.
        "padding": {"left": 6, "top": 6, "right": 24, "bottom": 6},
        "data": _data(),
        "facet": {"row": row},
        "spec": {
            "width": WIDTH,
            "height": 70,
            "mark": "bar",
            "encoding": {
                "x": {
                    "field": "value",
                    "type": "quantitative",
                    "bin": {"maxbins": 30},
                    "axis": {"title": "@unit", **SPARSE},
                },
                "y": {"aggregate": "count", "type": "quantitative", "title": "workers", "axis": counts},
                "color": {**_colour(), "legend": None},
            },
        },
    }


def _sequence() -> Spec:
    scale = {"domain": "@arms", "range": "@shapes"}
    shape = {"field": "arm", "type": "nominal", "sort": "@arms", "scale": scale, "legend": {"values": "@present"}}
    return {
        "width": WIDTH,
        "height": 150,
        "layer": [
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "color": INK, "strokeWidth": 1},
                "encoding": {"y": {"datum": 0, "type": "quantitative"}},
            },
            {
                "data": _data(),
                "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.8},
                "encoding": {
                    "x": _quantity(
                        "index",
                        axis={"title": "sample, in the order taken", "tickMinStep": 1, "format": "d", "grid": False},
                    ),
                    "y": _quantity(
                        "deviation",
                        axis={"title": "from the median", "format": "+.1%", "tickCount": 5, "minExtent": 72},
                    ),
                    "color": _colour(),
                    "shape": shape,
                },
            },
        ],
    }


def _timeline() -> Spec:
    along = {"axis": {"title": "minutes since its first period", "grid": False, **SPARSE}}
    return {
        "width": WIDTH,
        "height": 110,
        "layer": [
            {
                "data": _data("bands"),
                "mark": {"type": "rect", "opacity": 0.18},
                "encoding": {
                    "x": _quantity("begin", **along),
                    "x2": {"field": "end"},
                    "color": _colour(symbolType="square"),
                },
            },
            {
                "data": _data(),
                "mark": {"type": "line", "color": INK, "strokeWidth": 1.4},
                "encoding": {
                    "x": _quantity("at", **along),
                    "y": _quantity(
                        "value", scale={"zero": False}, axis={"title": "@unit", "tickCount": 4, "minExtent": 60}
                    ),
                    "detail": {"field": "period", "type": "nominal"},
                },
            },
        ],
    }


def _usage_map() -> Spec:
    return {
        "height": {"step": 20},
        "data": _data(),
        "mark": {"type": "rect", "color": ACCENT, "stroke": PAPER, "strokeWidth": "@seam"},
        "encoding": {
            "x": {
                "field": "place",
                "type": "ordinal",
                "title": "CPU, siblings side by side",
                "axis": {
                    "labelAngle": 0,
                    "labelOverlap": "greedy",
                    "domain": False,
                    "ticks": False,
                    "labelExpr": "cpus[datum.value]",
                },
            },
            "y": {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": _label_axis()},
            "opacity": {
                "field": "usage",
                "type": "quantitative",
                "legend": None,
                "scale": {"domain": [0, 1], "range": [0.06, 1], "clamp": True},
            },
        },
    }


def _threads(test: str) -> Spec:
    return {"data": _data("fields"), "transform": [{"filter": test}]}


def _topology() -> Spec:
    x, y = (
        {"type": "quantitative", "axis": None, "scale": {"domain": domain, "nice": False, "zero": False}}
        for domain in ([0, "@right"], ["@bottom", 0])
    )
    box = {"x": {"field": "x", **x}, "x2": {"field": "x2"}, "y": {"field": "y", **y}, "y2": {"field": "y2"}}
    return {
        "layer": [
            {
                "data": _data("boxes"),
                "mark": {"type": "rect", "fill": "transparent", "stroke": MUTED, "cornerRadius": 4},
                "encoding": box,
            },
            {
                **_threads("datum.online"),
                "mark": {"type": "rect", "fill": ACCENT, "stroke": ACCENT, "cornerRadius": 3},
                "encoding": {
                    **box,
                    "fillOpacity": {
                        "field": "shade",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {"domain": [0, 1], "range": [0, 0.6], "clamp": True},
                    },
                },
            },
            {
                **_threads("!datum.online"),
                "encoding": box,
                "mark": {
                    "type": "rect",
                    "fill": "transparent",
                    "stroke": ACCENT,
                    "cornerRadius": 3,
                    "strokeDash": [3, 3],
                },
            },
            {
                "data": _data("fields"),
                "mark": _label(),
                "encoding": {"x": {"field": "cx", **x}, "y": {"field": "cy", **y}, "text": _text("text")},
            },
            {
                "data": _data("heads"),
                "mark": _label(align="left", color=MUTED),
                "encoding": {"x": {"field": "x", **x}, "y": {"field": "y", **y}, "text": _text()},
            },
        ]
    }


def _curve(x: Spec) -> Spec:
    """Return a line chart with one line and the band of its intervals per arm, and vertical marks."""
    upward = {"axis": {"title": "@unit", "minExtent": 60}}
    y = _quantity("value", **upward)
    return {
        "width": WIDTH,
        "height": 200,
        "data": _data(),
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": _colour()}},
            {
                "transform": [{"filter": "datum.low != null"}],
                "mark": {"type": "area", "opacity": 0.18},
                "encoding": {"x": x, "y": _quantity("low", **upward), "y2": {"field": "high"}, "color": _colour()},
            },
            {
                "transform": [{"filter": "datum.low != null"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": x, "y": _quantity("low", **upward), "y2": {"field": "high"}, "color": _colour()},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": _colour()},
            },
            {
                "data": _data("marks"),
                "mark": {"type": "rule", "color": INK, "strokeDash": [4, 3]},
                "encoding": {"x": x},
            },
            {
                "data": _data("marks"),
                "mark": _label(align="left", dx=5),
                "encoding": {"x": x, "y": {"value": 8}, "text": _text()},
            },
        ],
    }


def _spread() -> Spec:
    """Return a chart of each host's ratio as a tick, with the median of each row."""
    y = {
        "field": "key",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": _label_axis(labelExpr=f"split(datum.label, '{MARK}')[1]"),
    }
    ratio = _quantity("ratio", **_ratio_axis())
    return {
        "width": WIDTH,
        "height": {"step": 26},
        "layer": [
            *_ratio_layers(),
            {
                "data": _data(),
                "mark": {"type": "tick", "color": ACCENT, "opacity": 0.35, "thickness": 1.5, "size": 16},
                "encoding": {"y": y, "x": ratio},
            },
            {
                "data": _data("medians"),
                "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
                "encoding": {"y": y, "x": ratio, "color": _by_verdict(0), "shape": _by_verdict(1)},
            },
            {
                "data": _data("medians"),
                "mark": _label(align="left", dx=12),
                "encoding": {"y": y, "x": {"value": WIDTH}, "text": _text()},
            },
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "opacity": 0, "color": INK},
                "encoding": {"x": {"value": WIDTH}, "x2": {"value": "@end"}},
            },
            _head("'← ' + left", "right", WIDTH / 2, -8),
            _head("right + ' →'", "left", WIDTH / 2, 8),
        ],
    }


CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "aria": False,
    "padding": 6,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": MUTED,
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 400,
    },
    "legend": {
        "symbolOpacity": 1,
        "labelColor": INK,
        "titleColor": MUTED,
        "labelFontSize": 12,
        "orient": "top",
        "title": None,
        "columnPadding": 24,
    },
    "header": {"labelColor": MUTED, "labelFontSize": 12},
}
TEMPLATES: dict[str, Spec] = {
    "forest": _forest(),
    "bars": _bars(),
    "histogram": _histogram(),
    "sequence": _sequence(),
    "timeline": _timeline(),
    "usage_map": _usage_map(),
    "topology": _topology(),
    "streams": _curve(
        _quantity("x", axis={"tickMinStep": 1, "format": "d", "grid": False, "title": "@along", **SPARSE})
    ),
    "points": _curve(_quantity("x", axis={"grid": False, "title": "@along", **SPARSE})),
    "spread": _spread(),
}


# One function per kind of chart


def _arm_params(rows: t.Sequence[Row], arms: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the looks of all arms of a result, and which of them occur, for a legend."""
    looks = {title: place % len(ARM_COLOURS) for place, title in reversed(list(enumerate(arms)))}
    titles = list(dict.fromkeys(arms))
    return {
        "arms": titles,
        "colours": [ARM_COLOURS[looks[title]] for title in titles],
        "shapes": [ARM_SHAPES[looks[title]] for title in titles],
        "present": [title for title in titles if any(row["arm"] == title for row in rows)],
    }


def _room(labels: t.Iterable[str]) -> float:
    return 8 + CHARACTER * max(map(len, labels), default=0)


def ratio_domain(rows: t.Sequence[Row], margin: float) -> tuple[float, float]:
    """Return the range of the ratio axis with all intervals and the margin, symmetric about 1 on the log scale."""
    reach = max([abs(math.log(row[end])) for row in rows for end in ("low", "high")] + [3 * margin, 0.05])
    # The axis ends at a factor of ten; longer intervals end at the frame.
    reach = min(1.08 * reach, math.log(10))
    return math.exp(-reach), math.exp(reach)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a ratio axis: 1, and from there outwards each that does not overlap the previous one."""
    clear = math.log(high / low) * LABEL_WIDTH / WIDTH
    ticks = [1.0]
    for side in (
        sorted(tick for tick in RATIO_TICKS if 1 < tick <= high),
        sorted((tick for tick in RATIO_TICKS if low <= tick < 1), reverse=True),
    ):
        last = 1.0
        for tick in side:
            if abs(math.log(tick / last)) >= clear:
                ticks.append(tick)
                last = tick
    return sorted(ticks)


def _ratio_params(
    rows: t.Sequence[Row], margin: float, sides: tuple[str, str], labels: t.Sequence[str], texts: t.Iterable[str]
) -> dict[str, t.Any]:
    low, high = ratio_domain(rows, margin)
    return {
        "low": low,
        "high": high,
        "ticks": ratio_ticks(low, high),
        "margin": margin,
        "left": sides[0],
        "right": sides[1],
        "labels": _room(labels),
        "end": WIDTH + 12 + CHARACTER * max(map(len, texts)),
    }


def forest(rows: t.Sequence[Row], margin: float, sides: tuple[str, str], label: str) -> Picture:
    """Draw ratios with their intervals on a log axis, with the line at 1 and the margin band.

    Args:
        rows: ``{label, ratio, low, high, verdict, text}`` each; the verdict :data:`BASELINE` begins a group with what
            the others of it are compared with.
        margin: half width of the band.
        sides: the meaning of the sides left and right of 1.
        label: the alternative text.
    """
    labels = [shorten(row["label"]) for row in rows]
    # A hidden number makes equal labels unique.
    shown = [{**row, "key": f"{number}{MARK}{name}"} for number, (row, name) in enumerate(zip(rows, labels))]
    params = _ratio_params(rows, margin, sides, labels, (row["text"] for row in rows))
    return Picture("forest", label, {"rows": shown}, params, {"height": max(46, 34 * len(rows))})


def spread(rows: t.Sequence[Row], margin: float, sides: tuple[str, str], label: str) -> Picture:
    """Draw the ratios of many hosts as ticks, one row per group, with the group's median and verdict.

    Args:
        rows: ``{label, ratios, ratio, verdict, text}`` each.
        margin: half width of the band.
        sides: the meaning of the sides left and right of 1.
        label: the alternative text.
    """
    labels = [shorten(row["label"]) for row in rows]
    keys = [f"{number}{MARK}{name}" for number, name in enumerate(labels)]
    # Ratios that round to the same value share one mark.
    ticks = [
        {"key": key, "ratio": ratio}
        for key, row in zip(keys, rows)
        for ratio in sorted({float(f"{ratio:.4g}") for ratio in row["ratios"]})
    ]
    medians = [
        {"key": key, **{name: row[name] for name in ("ratio", "verdict", "text")}} for key, row in zip(keys, rows)
    ]
    ends = [{"low": tick["ratio"], "high": tick["ratio"]} for tick in ticks]
    return Picture(
        "spread",
        label,
        {"rows": ticks, "medians": medians},
        _ratio_params(ends, margin, sides, labels, (row["text"] for row in rows)),
    )


def bars(rows: t.Sequence[Row], arms: t.Sequence[str], unit: str, label: str) -> Picture:
    """Draw the rate of each placement as a bar with its interval, arms side by side.

    Args:
        rows: ``{label, arm, value, low, high, text}`` each; ``low`` and ``high`` are None without an interval.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    shown = [{**row, "label": shorten(row["label"])} for row in rows]
    # The axis is limited, since an interval of few blocks may be many times as long as the bars.
    tallest = max(row["value"] for row in rows)
    top = min(1.3 * tallest, max([1.05 * tallest, *(row["high"] for row in rows if row["high"] is not None)]))
    return Picture(
        "bars",
        label,
        {"rows": shown},
        {**_arm_params(rows, arms), "top": top, "unit": unit, "labels": _room(row["label"] for row in shown)},
    )


def histogram(rows: t.Sequence[Row], arms: t.Sequence[str], unit: str, label: str) -> Picture:
    """Draw the distribution of values, one row per arm.

    Args:
        rows: ``{arm, value}``, one per worker of a sample.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    return Picture("histogram", label, {"rows": list(rows)}, {**_arm_params(rows, arms), "unit": unit})


def sequence(rows: t.Sequence[Row], arms: t.Sequence[str], label: str) -> Picture:
    """Draw each sample in order, relative to the median of its kind: drift is a slope, a disturbance a step.

    Args:
        rows: ``{index, deviation, arm}`` each; ``deviation`` is relative to the median of the same placement and arm.
        arms: titles of all arms of the result, the baseline first.
        label: the alternative text.
    """
    return Picture("sequence", label, {"rows": list(rows)}, _arm_params(rows, arms))


def timeline(rows: t.Sequence[Row], bands: t.Sequence[Row], arms: t.Sequence[str], unit: str, label: str) -> Picture:
    """Draw a metric of one host as a line, over its arms as bands.

    Args:
        rows: ``{at, value, period}`` each; ``at`` in minutes, a line for each period.
        bands: ``{begin, end, arm}`` each, in minutes.
        arms: titles of all arms, the baseline first.
        unit: title of the axis.
        label: the alternative text.
    """
    return Picture(
        "timeline", label, {"rows": list(rows), "bands": list(bands)}, {**_arm_params(bands, arms), "unit": unit}
    )


def usage_map(rows: t.Sequence[Row], cpus: t.Sequence[str], label: str) -> Picture:
    """Draw how busy each CPU was: one line per placement, one field per CPU, siblings side by side.

    Args:
        rows: ``{label, cpu, usage}`` each; ``usage`` from 0 to 1.
        cpus: the CPUs in the order of packages, cores and siblings.
        label: the alternative text.
    """
    step = max(3, min(26, WIDTH // max(1, len(cpus))))
    place = {cpu: number for number, cpu in enumerate(cpus)}
    shown = [{"label": shorten(row["label"]), "place": place[row["cpu"]], "usage": row["usage"]} for row in rows]
    params = {"cpus": list(cpus), "seam": 1 if step > 8 else 0, "labels": _room(row["label"] for row in shown)}
    return Picture("usage_map", label, {"rows": shown}, params, {"width": {"step": step}})


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
    threads = max((len(core) for _name, cores in groups for core in cores), default=1)
    step, height, gap = (30, 34, 10) if usage is None else (44, 50, 10)
    width = step * threads + 8
    columns = max(1, min(8, (WIDTH + 150) // (width + gap)))
    boxes, fields, heads = [], [], []
    top = 0
    for title, cores in groups:
        heads.append({"x": 0, "y": top + 6, "text": f"{title}: {len(cores)} core{'s' if len(cores) != 1 else ''}"})
        top += 20
        for place, core in enumerate(cores):
            left, upper = (place % columns) * (width + gap), top + (place // columns) * (height + gap)
            boxes.append({"x": left, "x2": left + width, "y": upper, "y2": upper + height})
            for thread, cpu in enumerate(core):
                start = left + 4 + step * thread
                share = 1 / 3 if usage is None else usage.get(cpu)
                lines = (
                    [str(cpu)]
                    if usage is None
                    else [
                        f"CPU {cpu}" if step * threads > 60 else str(cpu),
                        "off" if share is None else f"{100 * share:.0f} %",
                    ]
                )
                fields.append(
                    {
                        "x": start + 1,
                        "x2": start + step - 1,
                        "y": upper + 5,
                        "y2": upper + height - 5,
                        "cx": start + step / 2,
                        "cy": upper + height / 2 - 7 * (len(lines) - 1),
                        "text": lines,
                        "online": cpu not in offline,
                        "shade": 0 if cpu in offline or share is None else share,
                    }
                )
        top += math.ceil(len(cores) / columns) * (height + gap) + 6
    right = columns * (width + gap)
    return Picture(
        "topology",
        label,
        {"boxes": boxes, "fields": fields, "heads": heads},
        {"right": right, "bottom": top},
        {"width": right, "height": top},
    )


def streams(rows: t.Sequence[Row], arms: t.Sequence[str], unit: str, crossover: int | None, label: str) -> Picture:
    """Draw a value by number of streams, one line per arm, with the crossover marked.

    Args:
        rows: ``{x, arm, value, low, high}`` each.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the axis.
        crossover: number of streams from which on SMT helps, or None where there is none, or none is known.
        label: the alternative text.
    """
    marks = [] if crossover is None else [{"x": crossover, "text": f"from {crossover} streams"}]
    return Picture(
        "streams",
        label,
        {"rows": list(rows), "marks": marks},
        {**_arm_params(rows, arms), "unit": unit, "along": "streams"},
    )


def points(rows: t.Sequence[Row], arms: t.Sequence[str], unit: str, along: str, label: str) -> Picture:
    """Draw a value by the workload's parameter, one line per arm.

    Args:
        rows: ``{x, arm, value, low, high}`` each.
        arms: titles of all arms of the result, the baseline first.
        unit: title of the vertical axis.
        along: the parameter with its unit.
        label: the alternative text.
    """
    return Picture(
        "points", label, {"rows": list(rows), "marks": []}, {**_arm_params(rows, arms), "unit": unit, "along": along}
    )
