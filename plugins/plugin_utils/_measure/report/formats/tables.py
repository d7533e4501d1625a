# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows as CSV, safe for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import typing as t

SIGN = re.compile(rb"\Arun,host,")
"""How a file of rows of samples, workers or comparisons begins."""

# The start of a formula for a spreadsheet (OWASP, CSV injection), including full-width forms.
_FORMULA = re.compile(r"^[\s]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would run a text as a formula."""
    return _FORMULA.match(text) is not None


def cell(value: t.Any) -> t.Any:
    """Return a value for a CSV cell: an apostrophe goes in front of a text that would be run as a formula."""
    return f"'{value}" if isinstance(value, str) and is_formula(value) else value


def csv_text(rows: t.Iterable[t.Iterable[t.Any]]) -> str:
    """Format rows as CSV with unescaped texts."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def safe_rows(rows: list[list[t.Any]]) -> list[list[t.Any]]:
    """Return rows that are safe for a spreadsheet; the same object where no cell starts a formula."""
    texts = {value for row in rows for value in row if isinstance(value, str)}
    return [[cell(value) for value in row] for row in rows] if any(map(is_formula, texts)) else rows
