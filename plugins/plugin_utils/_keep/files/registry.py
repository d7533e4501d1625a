# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All files of a check, found by their files."""

from __future__ import annotations

import importlib
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Format


def formats() -> dict[str, Format]:
    """Return all formats by the names of their options."""
    package = __name__.removesuffix(".registry")
    modules = [importlib.import_module(f"{package}.{path.stem}") for path in sorted(Path(__file__).parent.glob("*.py"))]
    found: list[Format] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {file_format.name: file_format for file_format in found}
