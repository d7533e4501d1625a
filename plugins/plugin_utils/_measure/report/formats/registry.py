# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All output formats, and the names of all pages: found by their files."""

from __future__ import annotations

import importlib
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import Format


def formats() -> list[Format]:
    """Return all formats, by the names of their files."""
    return _defined("formats", "FORMAT")


def page_names() -> list[str]:
    """Return the names of the pages of a whole run: those of the files of ``pages`` that have a ``NAME``."""
    return _defined("pages", "NAME")


def left_out() -> str | None:
    """Return one sentence about what a report on this controller lacks, for want of recommended packages;
    None where it lacks nothing.
    """
    lost = {f"without {file_format.name}": file_format.missing_library for file_format in formats()}
    return libraries.left_out("the report is made", lost)


def _defined(folder: str, symbol: str) -> list[t.Any]:
    """Return what the files of a folder of this package define under a name, by the names of the files."""
    package = __name__.removesuffix(".formats.registry")
    paths = sorted((Path(__file__).parents[1] / folder).glob("*.py"))
    modules = [importlib.import_module(f"{package}.{folder}.{path.stem}") for path in paths]
    return [getattr(module, symbol) for module in modules if hasattr(module, symbol)]
