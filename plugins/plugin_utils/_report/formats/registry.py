# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All output formats: each file of this folder that has a ``FORMAT``."""

from __future__ import annotations

import importlib
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats.base import Format


def formats() -> list[Format]:
    """Return all formats, by the names of their files."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    found = [importlib.import_module(f"{__name__.rpartition('.')[0]}.{name}") for name in names if name != "registry"]
    return [module.FORMAT for module in found if hasattr(module, "FORMAT")]
