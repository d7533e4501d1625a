# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is made of one host's result, from which its page, the overview and all formats read."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    conclusion,
    outcomes,
    recommendation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure, factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions, spread
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers

# Fields of a result that stand in its summary as they are.
_AS_THEY_ARE = (
    *("host", "run", "outcome", "message", "started", "finished", "collected", "collection_version"),
    *("environment", "arms", "arms_left_out", "restored"),
)


class Summary:
    """One host's part of a report; each part is made when it is first asked for, and once.

    Args:
        analysis: of the host.
        file: name of the result file.
        licence: the price of licensed software, or None.

    Attributes:
        analysis: the analysis.
        result: its result.
        file: name of the result file, safe to display.
    """

    def __init__(self, analysis: HostAnalysis, file: str, licence: recommendation.Licence | None = None) -> None:
        self.analysis, self.result, self.file = analysis, analysis.result, text.showable(file)
        self._licence = licence

    @functools.cached_property
    def conclusion(self) -> conclusion.Conclusion:
        """The conclusion."""
        return conclusion.conclude(self.analysis)

    @functools.cached_property
    def recommendation(self) -> recommendation.Recommendation:
        """The recommendation."""
        return recommendation.recommend(self.analysis, self._licence)

    @functools.cached_property
    def served_by_one(self) -> list[Compared]:
        """What stands for comparisons without a ratio."""
        return outcomes.served_by_one(self.analysis)

    @functools.cached_property
    def by_streams(self) -> bool:
        """Whether streams and not the whole machine alone make the outcome of SMT off against SMT on."""
        return outcomes.is_by_streams(self.analysis)

    @functools.cached_property
    def incomplete(self) -> bool:
        """Whether something is missing that could contradict what was compared."""
        return outcomes.is_incomplete(self.analysis)

    @functools.cached_property
    def factors(self) -> list[factors.Factorial]:
        """What two factors do to each workload."""
        return factors.of_host(self.analysis)

    @functools.cached_property
    def exposure(self) -> list[exposure.Exposure]:
        """What each arm leaves open."""
        return exposure.of_arms(self.result)

    @functools.cached_property
    def not_measured(self) -> list[cautions.Missing]:
        """What was planned and has no sample."""
        return cautions.not_measured(self.result)

    @functools.cached_property
    def failures(self) -> list[cautions.Failure]:
        """The samples that failed."""
        return cautions.failures(self.result)

    @property
    def concerns_smt(self) -> bool:
        """Whether the run is about SMT."""
        return recorded.concerns_smt(self.result)

    @property
    def hardware_class(self) -> str | None:
        """The hardware class of the host."""
        return self.result.facts.hardware_class

    @property
    def vulnerable(self) -> list[str] | None:
        """The vulnerabilities that are open because siblings are online; None where that is not known."""
        return exposure.exposed(self.result)

    @property
    def reboot_required(self) -> bool | None:
        """Whether the host would boot with other arguments; None where that is not known."""
        return self.result.facts.boot.reboot_required

    @property
    def disagreement(self) -> str | None:
        """What measuring says of siblings against the kernel, or None."""
        return self.result.facts.disagreement

    def described(self) -> dict[str, t.Any]:
        """Return the host's part of results.json."""
        analysis = self.analysis
        own = (
            *("file", "hardware_class", "concerns_smt", "vulnerable", "reboot_required", "disagreement"),
            *("by_streams", "incomplete"),
        )
        lists: dict[str, t.Iterable[t.Any]] = {
            "comparisons": analysis.comparisons,
            "served_by_one": self.served_by_one,
            "levels": analysis.levels,
            "factors": self.factors,
            "usage": [use for kinds in analysis.usage.values() for use in kinds.values()],
        }
        tuples: dict[str, t.Iterable[t.Any]] = {
            "tails": spread.find(analysis.comparisons),
            "not_measured": self.not_measured,
            "failures": self.failures,
        }
        return {
            **{name: parts.plain(getattr(self.result, name)) for name in _AS_THEY_ARE},
            **{name: getattr(self, name) for name in own},
            **{name: [part.described() for part in of_host] for name, of_host in lists.items()},
            **{name: [part._asdict() for part in of_host] for name, of_host in tuples.items()},
            "conclusion": self.conclusion.described(),
            "recommendation": self.recommendation.described(),
            "crossovers": list(map(crossovers.described, analysis.curves)),
            "capacities": [dataclasses.asdict(capacity) for capacity in analysis.capacities],
            "exposure": [dataclasses.asdict(arm) for arm in self.exposure],
        }
