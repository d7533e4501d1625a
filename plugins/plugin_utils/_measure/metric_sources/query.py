# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A query to a Prometheus server as the source of a trial's metrics."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import MetricSource, Path


class QueryServer(prometheus.Prometheus):
    """A server that also knows how far back its queries count."""

    @functools.cached_property
    def _lineage(self) -> lineage.Lineage:
        return lineage.Lineage(self)

    def looks_back(self, asked: str, declared: float | None) -> Path:
        """Return how far back a query counts; see `base.Server`."""
        return self._lineage.looks_back(asked, declared)


class Query(MetricSource):
    """A query to the Prometheus server."""

    key, settings = "query", ("query",)
    about = "PromQL, one number for this host"

    def connect(self, get: t.Callable[[str], t.Any]) -> QueryServer:
        """Return the server."""
        return QueryServer(server.access(get))


SOURCES = (Query(),)
