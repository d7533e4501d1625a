# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common frame of all pages: templates with automatic escaping, one style, one script,
and a policy that allows nothing external.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import string
import typing as t
from pathlib import Path
from urllib.parse import quote

import jinja2
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import canvas, change, wording
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
DIGITS = string.digits + string.ascii_lowercase


def _stable(value: t.Any) -> t.Any:
    """Round a number to the digits that do not depend on the Python that computed it (from 3.12 on, sums are more
    exact); let no character of a text hide.
    """
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return text.showable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _as_json(value: t.Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _columns(table: t.Sequence[t.Sequence[t.Any]]) -> list[t.Any]:
    """Return a table by columns, behind its number of rows.

    A column is the first of its numbers where each next one is greater by one; else its different cells, which of them
    each row has (a digit in base 36 each where so few differ, 0 where all do, or none), and what all of its texts begin
    with.
    """
    return [len(table), *map(_column, zip(*table))]


def _column(column: tuple[t.Any, ...]) -> t.Any:
    if set(map(type, column)) == {int} and column == tuple(range(column[0], column[0] + len(column))):
        return column[0]
    keys = [tuple(cell) if isinstance(cell, list) else cell for cell in column]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    cells: list[t.Any] = list(places)
    which = [places[key] for key in keys]
    shared = _beginning(cells) if all(isinstance(cell, str) for cell in cells) and len(cells) > 1 else ""
    if shared:
        cells = [cell[len(shared) :] for cell in cells]
    if len(cells) in (1, len(keys)):
        return [cells, 0, shared]
    return [cells, "".join(DIGITS[place] for place in which) if len(cells) <= len(DIGITS) else which, shared]


def _beginning(texts: t.Sequence[str]) -> str:
    """Return what all of these begin with: what the first and the last of them in order do."""
    first, last = min(texts), max(texts)
    return first[: next((place for place, pair in enumerate(zip(first, last)) if pair[0] != pair[1]), len(first))]


def _numbered(heads: t.Iterable[tuple[str | None, bool]]) -> str:
    """Return the class of a table by the first of its columns that has numbers (panels.html.j2: head)."""
    counted = [is_number for text, is_number in heads if text is not None]
    return f"a{counted.index(True) + 1}" if True in counted else ""


# What a browser does not need: comments and spaces of a style; spaces and line ends beside what is a line of its own,
# ends of table cells, rows and items, the scope of heads, which their place says, and quotes around a word.
_SPARE_STYLE = re.compile(r"/\*.*?\*/|(?<=[{};,:])\s+(?!\";)|\s+(?=[{}])|;\s*(?=})", re.DOTALL)
_BLOCKS = (
    r"table|caption|thead|tbody|tr|t[dh]|div|details|summary|figure|ul|li|p|h[1-4]|section|header|main|script|button"
)
_SPARE = (
    (re.compile(r"</(?:t[dhr]|thead|tbody|li)>|\sscope=\"(?:col|row)\""), ""),
    (re.compile(r"(?<=[a-z]=)\"([\w.-]+)\"(?=[\s>])"), r"\1"),
    (re.compile(rf"(</?(?:{_BLOCKS})\b[^<>{{}}]*>)\s+"), r"\1"),
)


def compact(template: str) -> str:
    """Return a template without what a browser does not need; it holds nothing yet that comes from a host."""
    for spare, kept in _SPARE:
        template = spare.sub(kept, template)
    return template


class Script(t.NamedTuple):
    """The only inline script of a page, and its hash for the page's policy."""

    text: Markup
    digest: str


def _script(*names: str) -> Script:
    text = "".join(re.sub(r"^\s*(//.*\n)?", "", asset(name), flags=re.MULTILINE) for name in names)
    return Script(Markup(text), base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii"))


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates, with ``style`` and ``scripts``, by whether a page has a filter, for ``base.html.j2``."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: compact(asset(name))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_stable,
    )
    style = f"{_SPARE_STYLE.sub('', asset('page.css'))}{canvas.STYLE}"
    made.filters.update(
        number=wording.number,
        percent=wording.percent,
        signed=wording.signed,
        change=wording.change_of,
        changes=lambda ratios, better: sorted(change.of_ratio(ratio, better) or 0.0 for ratio in ratios),
        signed_share=wording.signed_share,
        interval=wording.interval,
        verdict=wording.VERDICT_TITLES.get,
        placement=placements.title,
        joined=wording.join,
        address=quote,
        tied=wording.tied,
        cpus=wording.cpu_list,
        counted=wording.counted,
        numbered=_numbered,
        columns=lambda table: htmlsafe_json_dumps(_columns(table), dumps=_as_json),
    )
    scripts = {True: _script("filter.js", "page.js"), False: _script("page.js")}
    made.globals.update(style=Markup(style), scripts=scripts)
    return made


def asset(name: str) -> str:
    """Read a file beside the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render(template: str, **values: t.Any) -> str:
    """Render a template with these values."""
    return environment().get_template(template).render(**values)
