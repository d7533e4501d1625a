# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All sources of a trial's metrics: found by their files."""

from __future__ import annotations

import functools
import importlib
import pathlib

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import MetricSource


@functools.cache
def sources() -> tuple[MetricSource, ...]:
    """Return all sources, by the names of their files from the last one on."""
    names = sorted((path.stem for path in pathlib.Path(__file__).parent.glob("*.py")), reverse=True)
    modules = [importlib.import_module(f"{__name__.rpartition('.')[0]}.{name}") for name in names]
    return tuple(source for module in modules for source in getattr(module, "SOURCES", ()))
