# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's result and the figures that follow from it, from which conclusion, pages and formats read."""

from __future__ import annotations

import functools

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    measures,
    recorded,
    streams,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.of_arms import machines


class HostAnalysis:
    """A host's result with what follows from it; each part is made when it is first asked for, and once.

    Args:
        result: from :func:`result_files.load`, with or without :func:`costs.added`.
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts, and of each interval of one side.
        compare: one of :data:`comparisons.COMPARE`.

    Attributes:
        result: the result.
        settings: ``margin``, ``confidence`` and ``compare``.
    """

    def __init__(
        self,
        result: HostResult,
        margin: float = 0.01,
        confidence: float = 0.95,
        compare: str = host_comparisons.BASELINE,
    ) -> None:
        self.result = result
        self.settings = margin, confidence, compare

    @functools.cached_property
    def comparisons(self) -> list[Comparison]:
        """Every comparison that the samples allow, from :func:`comparisons.compare_host`."""
        return host_comparisons.compare_host(self.result, *self.settings)

    @functools.cached_property
    def levels(self) -> list[Level]:
        """Each side by itself, from :func:`comparisons.levels`."""
        return measures.levels(self.result, self.settings[1])

    @functools.cached_property
    def curves(self) -> list[streams.Curve]:
        """The comparisons by number of streams, from :func:`streams.curves`."""
        return streams.curves(self.result, self.comparisons)

    @functools.cached_property
    def of_smt(self) -> list[Comparison]:
        """Those of SMT off against SMT on that decide, from :func:`comparisons.of_smt`."""
        return host_comparisons.of_smt(self.comparisons)

    @functools.cached_property
    def of_other_arms(self) -> list[Comparison]:
        """Those of other arms that decide, from :func:`comparisons.of_other_arms`."""
        return host_comparisons.of_other_arms(self.comparisons)

    @functools.cached_property
    def against_baseline(self) -> list[Comparison]:
        """Those of other arms that decide, with the arm that is the baseline."""
        return host_comparisons.against_baseline(self.of_other_arms, self.result.arms[0].name)

    @functools.cached_property
    def samples(self) -> dict[str, list[Sample]]:
        """The samples of each workload that has any: name -> samples, in the order taken."""
        by_workload: dict[str, list[Sample]] = {}
        for sample in self.result.samples:
            by_workload.setdefault(sample.workload, []).append(sample)
        return by_workload

    @functools.cached_property
    def usage(self) -> dict[str, dict[usage.Kind, usage.Usage]]:
        """The CPU usage of each workload that has samples, from :func:`usage.of_workload`."""
        confidence = self.settings[1]
        return {
            name: usage.of_workload(self.result, samples, name, confidence) for name, samples in self.samples.items()
        }

    @functools.cached_property
    def capacities(self) -> list[machines.Capacity]:
        """The work of the whole machine, from :func:`machines.capacities`."""
        return machines.capacities(self.result, self.levels)

    @functools.cached_property
    def titles(self) -> dict[str, str]:
        """The title of each arm that was asked for."""
        return {arm.name: arm.title for arm in recorded.asked_arms(self.result)}
