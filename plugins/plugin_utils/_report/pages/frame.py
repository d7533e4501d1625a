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
import typing as t
from pathlib import Path
from urllib.parse import quote

import jinja2
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import text as report_text
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")


def _stable(value: t.Any) -> t.Any:
    """Round a number to the digits that do not depend on the Python that computed it (from 3.12 on, sums are more
    exact); let no character of a text hide.
    """
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return text.showable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _as_json(value: t.Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _columns(table: t.Iterable[t.Sequence[t.Any]]) -> list[list[t.Any]]:
    """Return a table by columns, each as its different cells and, where some repeat, which of them each row has."""
    found: list[list[t.Any]] = []
    for column in zip(*table):
        keys = list(map(repr, column))
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        if len(places) == len(keys):
            found.append([column])
        else:
            cells = dict(zip(keys, column))
            found.append([[cells[key] for key in places], [places[key] for key in keys]])
    return found


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates, with ``style``, ``script`` and ``script_hash`` (of the policy's only inline script) for
    ``base.html.j2``.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_stable,
    )
    style = re.sub(r"/\*.*?\*/|(?<=[{};,])\s+", "", asset("page.css"), flags=re.DOTALL)
    script = re.sub(r"^\s*(//.*\n)?", "", asset("page.js"), flags=re.MULTILINE)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    made.filters.update(
        number=report_text.number,
        percent=conclusion.percent,
        signed=conclusion.signed,
        change=conclusion.change_of,
        change_of_ratio=conclusion.change_of_ratio,
        interval=report_text.interval,
        verdict=conclusion.VERDICT_TITLES.get,
        placement=placements.title,
        effect=report_text.EFFECT_TITLES.get,
        concluded=report_text.conclusion_title,
        address=quote,
        tied=report_text.tied,
        cpus=report_text.cpu_list,
        counted=report_text.counted,
        columns=lambda table: htmlsafe_json_dumps(_columns(table), dumps=_as_json),
    )
    made.globals.update(style=Markup(style), script=Markup(script), script_hash=digest)
    return made


def asset(name: str) -> str:
    """Read a file beside the templates."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render(template: str, **values: t.Any) -> str:
    """Render a template with these values."""
    return environment().get_template(template).render(**values)
