# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers -> SVG text to be put into a page, by Altair (the grammar) and vl-convert (the drawing, without browser or network).

Colours are names of the page's CSS variables (``var(--on)``), so that one picture follows light, dark and print. Each picture carries
``role="img"`` and a sentence in ``aria-label``; the numbers themselves stand in a table beside it, which is the page's work.
"""

from __future__ import annotations

import hashlib
import math
import re
import typing as t
from html import escape

try:
    import altair as alt
    import vl_convert
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

Row = t.Dict[str, t.Any]

INK, MUTED, GRID, PAPER, ACCENT = "var(--ink)", "var(--muted)", "var(--grid)", "var(--paper)", "var(--accent)"
# The drawing is laid out with one font and shown with another: a font as wide as the widest of them leaves room for all.
CHARACTER = 7.4
CONFIG: dict[str, t.Any] = {
    "background": "transparent", "font": "system-ui, sans-serif", "aria": False, "padding": 6, "view": {"stroke": None},
    "axis": {"labelColor": INK, "titleColor": MUTED, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID, "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal", "labelLimit": 400},
    "legend": {"labelColor": INK, "titleColor": MUTED, "labelFontSize": 12, "orient": "top", "title": None, "columnPadding": 24},
    "header": {"labelColor": MUTED, "labelFontSize": 12},
}
# Of what is drawn between a chart's axes, in CSS pixels.
WIDTH = 460
# Verdict -> colour and shape: never told apart by colour alone.
VERDICTS = {
    "gain": ("var(--gain)", "triangle-right"),
    "loss": ("var(--loss)", "triangle-left"),
    "equivalent": ("var(--even)", "square"),
    "inconclusive": ("var(--unsure)", "circle"),
}
CONDITIONS = {"smt_on": ("SMT on", "var(--on)"), "smt_off": ("SMT off", "var(--off)"), "as_found": ("as found", "var(--on)")}
# Ratios that people read off an axis; as many of them as the axis spans.
RATIO_TICKS = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.6, 2.0, 3.0, 5.0, 10.0)
LONGEST_LABEL = 46
# Of a label on the ratio axis with some air, in CSS pixels.
LABEL_WIDTH = 56


def shorten(label: str) -> str:
    """A label that fits beside a chart; the table beside it has the whole."""
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def condition_title(condition: str) -> str:
    return CONDITIONS.get(condition, (condition, ""))[0]


def _draw(chart: alt.Chart | alt.LayerChart, label: str) -> str:
    """The chart as an ``<svg>`` element for use inside an HTML page."""
    # Altair's own check against the schema of Vega-Lite takes ten times as long as the drawing; a picture that is wrong fails the tests.
    spec = chart.to_dict(validate=False)
    spec["config"] = CONFIG
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    # Pictures share the page's name space: clip paths and gradients of one must not reach into another.
    number = hashlib.sha256(f"{label}{svg}".encode("utf-8")).hexdigest()[:12]
    svg = re.sub(r'\bid="([^"]+)"', rf'id="c{number}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#c{number}-\1)", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label, quote=True)}" ', 1)


def _rows(rows: t.Sequence[Row]) -> alt.InlineData:
    return alt.Data(values=list(rows))


def _label_axis(rows: t.Sequence[Row], **options: t.Any) -> alt.Axis:
    """An axis of words, with room for the longest of them."""
    return alt.Axis(domain=False, ticks=False, labelPadding=8, minExtent=8 + CHARACTER * max((len(row["label"]) for row in rows), default=0), **options)


def ratio_domain(rows: t.Sequence[Row], margin: float) -> tuple[float, float]:
    """The part of the ratio axis that holds all intervals and the margin, symmetric about 1 in the logarithm."""
    reach = max([abs(math.log(row[end])) for row in rows for end in ("low", "high")] + [3 * margin, 0.05])
    # Beyond ten times anything is as good as infinite; intervals end at the frame.
    reach = min(1.08 * reach, math.log(10))
    return math.exp(-reach), math.exp(reach)


def ratio_ticks(low: float, high: float) -> list[float]:
    """The ratios to write on an axis: 1, and from there outwards each that stands clear of the one before."""
    clear = math.log(high / low) * LABEL_WIDTH / WIDTH
    ticks = [1.0]
    for side in (sorted(tick for tick in RATIO_TICKS if 1 < tick <= high), sorted((tick for tick in RATIO_TICKS if low <= tick < 1), reverse=True)):
        last = 1.0
        for tick in side:
            if abs(math.log(tick / last)) >= clear:
                ticks.append(tick)
                last = tick
    return sorted(ticks)


def forest(rows: t.Sequence[Row], margin: float, sides: tuple[str, str], label: str) -> str:
    """Ratios with their intervals on one logarithmic axis, the line at 1 and the band within which an effect counts as none.

    :param rows: ``{label, ratio, low, high, verdict, text}``
    :param margin: half width of the band
    :param sides: what is better to the left and to the right of 1
    :param label: the sentence for who does not see the picture
    """
    low, high = ratio_domain(rows, margin)
    scale = alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)
    # Two rows may carry the same words and are still two rows: a number in front of the words tells them apart and is not shown.
    shown = [{**row, "label": shorten(row["label"]), "key": f"{number}\x01{shorten(row['label'])}"} for number, row in enumerate(rows)]
    data = _rows(shown)
    y = alt.Y("key:N", sort=None, title=None, axis=_label_axis(shown, labelExpr="split(datum.label, '\x01')[1]"))
    x = alt.X("ratio:Q", scale=scale, title=None,
              axis=alt.Axis(values=ratio_ticks(low, high), labelExpr="datum.value == 1 ? '0 %' : replace(format(datum.value - 1, '+.0%'), '%', ' %')"))
    names = list(VERDICTS)
    colour = alt.Color("verdict:N", legend=None, scale=alt.Scale(domain=names, range=[VERDICTS[name][0] for name in names]))
    shape = alt.Shape("verdict:N", legend=None, scale=alt.Scale(domain=names, range=[VERDICTS[name][1] for name in names]))
    base = alt.Chart(data)
    band = alt.Chart(_rows([{"from": 1 / (1 + margin), "to": 1 + margin}])).mark_rect(color=MUTED, opacity=0.18).encode(
        x=alt.X("from:Q", scale=scale), x2="to:Q")
    line = alt.Chart(_rows([{"at": 1}])).mark_rule(color=INK, strokeWidth=1).encode(x=alt.X("at:Q", scale=scale))
    interval = base.mark_rule(strokeWidth=3).encode(y=y, x=alt.X("low:Q", scale=scale), x2="high:Q", color=colour)
    point = base.mark_point(filled=True, size=130, opacity=1).encode(y=y, x=x, color=colour, shape=shape)
    text = base.mark_text(align="left", dx=12, color=INK, fontSize=12).encode(y=y, text="text:N", x=alt.value(WIDTH))
    end = WIDTH + 12 + CHARACTER * max(len(row["text"]) for row in rows)
    room = alt.Chart(_rows([{"at": 1}])).mark_rule(opacity=0, color=INK).encode(x=alt.value(WIDTH), x2=alt.value(end))
    heads = [
        alt.Chart(_rows([{"text": words}])).mark_text(align=align, color=MUTED, fontSize=12, dx=dx).encode(
            text="text:N", x=alt.value(at), y=alt.value(-12))
        for words, align, at, dx in ((f"← {sides[0]}", "right", WIDTH / 2, -8), (f"{sides[1]} →", "left", WIDTH / 2, 8))
    ]
    return _draw(alt.layer(band, line, interval, point, text, room, *heads).properties(width=WIDTH, height=max(46, 34 * len(rows))), label)


def bars(rows: t.Sequence[Row], unit: str, label: str) -> str:
    """The rate of each placement as a bar with its interval, side by side for each condition.

    :param rows: ``{label, condition, value, low, high, text}``; ``low`` and ``high`` None where one sample gives no interval
    """
    present = [name for name in CONDITIONS if any(row["condition"] == name for row in rows)]
    shown = [{**row, "label": shorten(row["label"]), "condition": condition_title(row["condition"])} for row in rows]
    data = _rows(shown)
    titles = [CONDITIONS[name][0] for name in present]
    y = alt.Y("label:N", sort=None, title=None, axis=_label_axis(shown))
    offset = alt.YOffset("condition:N", sort=titles, scale=alt.Scale(domain=titles, paddingInner=0.12))
    colour = alt.Color("condition:N", sort=titles, scale=alt.Scale(domain=titles, range=[CONDITIONS[name][1] for name in present]),
                       legend=alt.Legend(symbolType="square") if len(present) > 1 else None)
    # An interval of few blocks may be many times as long as the bars that the picture is about: it then ends at the frame.
    tallest = max(row["value"] for row in rows)
    ends = [row["high"] for row in rows if row["high"] is not None]
    scale = alt.Scale(domain=[0, min(1.3 * tallest, max([1.05 * tallest, *ends]))], clamp=True, nice=True)
    base = alt.Chart(data)
    columns = base.mark_bar().encode(y=y, yOffset=offset, x=alt.X("value:Q", title=unit, scale=scale), color=colour)
    interval = base.mark_rule(color=INK, strokeWidth=2).encode(y=y, yOffset=offset, x=alt.X("low:Q", title=unit), x2="high:Q").transform_filter(
        "datum.low != null && datum.high != null")
    text = base.mark_text(align="left", dx=6, color=INK, fontSize=11).encode(
        y=y, yOffset=offset, x=alt.X("end:Q", title=unit), text="text:N"
    ).transform_calculate(end="datum.high == null ? datum.value : datum.high")
    return _draw(alt.layer(columns, interval, text).properties(width=WIDTH, height={"step": 19}), label)


def histogram(rows: t.Sequence[Row], unit: str, label: str) -> str:
    """How often which value came, one row of columns a condition.

    :param rows: ``{condition, value}``, one a sample
    """
    present = [name for name in CONDITIONS if any(row["condition"] == name for row in rows)]
    titles = [CONDITIONS[name][0] for name in present]
    data = _rows([{**row, "condition": condition_title(row["condition"])} for row in rows])
    chart = alt.Chart(data).mark_bar().encode(
        x=alt.X("value:Q", bin=alt.Bin(maxbins=30), title=unit),
        y=alt.Y("count():Q", title="samples", axis=alt.Axis(tickMinStep=1, format="d", tickCount=3, minExtent=30)),
        color=alt.Color("condition:N", legend=None, scale=alt.Scale(domain=titles, range=[CONDITIONS[name][1] for name in present])),
        row=alt.Row("condition:N", sort=titles, title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
    ).properties(width=WIDTH, height=70)
    return _draw(chart, label)


def sequence(rows: t.Sequence[Row], label: str) -> str:
    """Each sample in the order taken, as its distance from the median of its kind: a drift or a disturbance shows as a slope or a step.

    :param rows: ``{index, deviation, condition}``; ``deviation`` 0 = the median of the same placement and condition
    """
    present = [name for name in CONDITIONS if any(row["condition"] == name for row in rows)]
    titles = [CONDITIONS[name][0] for name in present]
    data = _rows([{**row, "condition": condition_title(row["condition"])} for row in rows])
    points = alt.Chart(data).mark_point(filled=True, size=34, opacity=0.8).encode(
        x=alt.X("index:Q", title="sample, in the order taken", axis=alt.Axis(tickMinStep=1, format="d", grid=False)),
        y=alt.Y("deviation:Q", title="from the median", axis=alt.Axis(format="+.1%", tickCount=5, minExtent=56)),
        color=alt.Color("condition:N", scale=alt.Scale(domain=titles, range=[CONDITIONS[name][1] for name in present]),
                        legend=alt.Legend() if len(present) > 1 else None),
        shape=alt.Shape("condition:N", scale=alt.Scale(domain=titles, range=["circle", "diamond"][: len(titles)]),
                        legend=alt.Legend() if len(present) > 1 else None),
    )
    line = alt.Chart(_rows([{"at": 0}])).mark_rule(color=INK, strokeWidth=1).encode(y="at:Q")
    return _draw(alt.layer(line, points).properties(width=WIDTH, height=150), label)


def usage_map(rows: t.Sequence[Row], cpus: t.Sequence[str], label: str) -> str:
    """How busy each CPU was in each placement: a line a placement, a field a CPU, siblings side by side.

    :param rows: ``{label, cpu, usage}``; ``usage`` 0..1
    :param cpus: the CPUs in the order of the machine: package, core, sibling
    """
    step = max(3, min(26, WIDTH // max(1, len(cpus))))
    shown = [{**row, "label": shorten(row["label"])} for row in rows]
    chart = alt.Chart(_rows(shown)).mark_rect(color=ACCENT, stroke=PAPER, strokeWidth=1 if step > 8 else 0).encode(
        x=alt.X("cpu:N", sort=list(cpus), title="CPU, siblings side by side", scale=alt.Scale(domain=list(cpus)),
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy", domain=False, ticks=False)),
        y=alt.Y("label:N", sort=None, title=None, axis=_label_axis(shown)),
        opacity=alt.Opacity("usage:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.06, 1], clamp=True)),
    )
    return _draw(chart.properties(width={"step": step}, height={"step": 20}), label)


def topology(groups: t.Sequence[tuple[str, t.Sequence[t.Sequence[int]]]], offline: t.Container[int], label: str) -> str:
    """The machine: groups of cores, in them threads with their CPU numbers.

    :param groups: name of the group and its cores, each as its CPU numbers
    :param offline: CPUs drawn as outlines
    """
    threads = max((len(core) for _name, cores in groups for core in cores), default=1)
    width, height, gap = 30 * threads + 8, 34, 10
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
                start = left + 4 + 30 * thread
                fields.append({"x": start + 1, "x2": start + 29, "y": upper + 5, "y2": upper + height - 5, "cx": start + 15, "cy": upper + height / 2,
                               "cpu": str(cpu), "online": cpu not in offline})
        top += math.ceil(len(cores) / columns) * (height + gap) + 6
    right = columns * (width + gap)
    x, y = (alt.Scale(domain=domain, nice=False, zero=False) for domain in ([0, right], [top, 0]))
    frame = alt.Chart(_rows(boxes)).mark_rect(fill="transparent", stroke=MUTED, cornerRadius=4).encode(
        x=alt.X("x:Q", scale=x, axis=None), x2="x2:Q", y=alt.Y("y:Q", scale=y, axis=None), y2="y2:Q")
    field = alt.Chart(_rows(fields)).mark_rect(fill=ACCENT, stroke=ACCENT, cornerRadius=3).encode(
        x=alt.X("x:Q", scale=x, axis=None), x2="x2:Q", y=alt.Y("y:Q", scale=y, axis=None), y2="y2:Q",
        fillOpacity=alt.condition("datum.online", alt.value(0.25), alt.value(0)),
        strokeDash=alt.condition("datum.online", alt.value([1, 0]), alt.value([3, 3])))
    name = alt.Chart(_rows(fields)).mark_text(color=INK, fontSize=12).encode(
        x=alt.X("cx:Q", scale=x, axis=None), y=alt.Y("cy:Q", scale=y, axis=None), text="cpu:N")
    head = alt.Chart(_rows(heads)).mark_text(align="left", color=MUTED, fontSize=12).encode(
        x=alt.X("x:Q", scale=x, axis=None), y=alt.Y("y:Q", scale=y, axis=None), text="text:N")
    return _draw(alt.layer(frame, field, name, head).properties(width=right, height=top), label)


def streams(rows: t.Sequence[Row], unit: str, crossover: int | None, label: str) -> str:
    """Rate against the number of streams, one line a condition, with the number from which more threads help marked.

    :param rows: ``{streams, condition, value, low, high}``
    :param crossover: number of streams, or None where the lines do not cross
    """
    present = [name for name in CONDITIONS if any(row["condition"] == name for row in rows)]
    titles = [CONDITIONS[name][0] for name in present]
    data = _rows([{**row, "condition": condition_title(row["condition"])} for row in rows])
    colour = alt.Color("condition:N", scale=alt.Scale(domain=titles, range=[CONDITIONS[name][1] for name in present]),
                       legend=alt.Legend() if len(present) > 1 else None)
    x = alt.X("streams:Q", title="streams", axis=alt.Axis(tickMinStep=1, format="d", grid=False))
    base = alt.Chart(data)
    layers = [
        base.mark_line(strokeWidth=2).encode(x=x, y=alt.Y("value:Q", title=unit), color=colour),
        base.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", color=colour).transform_filter("datum.low != null"),
        base.mark_point(filled=True, size=50, opacity=1).encode(x=x, y="value:Q", color=colour),
    ]
    if crossover is not None:
        mark = alt.Chart(_rows([{"streams": crossover, "text": f"from {crossover} streams"}]))
        layers.append(mark.mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x))
        layers.append(mark.mark_text(align="left", dx=5, color=INK, fontSize=12).encode(x=x, y=alt.value(8), text="text:N"))
    return _draw(alt.layer(*layers).properties(width=WIDTH, height=200), label)
