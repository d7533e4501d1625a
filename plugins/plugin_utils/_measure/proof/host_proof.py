# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was tried on one host and what came of it: what its tasks answered, as objects."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts, Measured as Siblings
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.proof import (
    Instrument,
    ProofAnswer,
    Switch,
    View,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import costs
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.paired import MIN_BLOCKS
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._page.change import Change

# The arms of the evaluation, the metric that says what came of them, and the effect that was planted: more work takes
# more time.
AS_FOUND, AGAIN, PLANTED = "as_found", "again", "more_work_5"
METRIC = "wall_time"
EFFECT = 0.05
# How far the ends of the interval may be from the planted effect: the start of a sample's command is no more work.
START = 0.005


@dataclasses.dataclass(frozen=True)
class Measured:
    """One arm against the host as it was found.

    Attributes:
        change: of the time of the same work.
        is_called: whether the verdict says that there is a difference.
        least: the share by which two arms have to differ to be called different as surely as paired.POWER; None where
            it is not known.
        blocks: how many times both were measured.
    """

    change: Change
    is_called: bool
    least: float | None
    blocks: int

    @classmethod
    def read(cls, comparison: Comparison) -> Measured:
        """Return it from a comparison."""
        return cls(
            comparison.change,
            comparison.is_called,
            comparison.minimum_detectable,
            comparison.n,
        )

    @property
    def holds_the_effect(self) -> bool:
        """Whether the interval has the planted effect in it, but for the start of a command."""
        low, high = self.change.low, self.change.high
        return low is not None and high is not None and low <= EFFECT and high >= EFFECT - START


@dataclasses.dataclass(frozen=True)
class HostProof:
    """What came of one host.

    Attributes:
        name: in the inventory.
        reason: why nothing was looked at; None where it was.
        facts: of the host; None where they are not known.
        kernel: its release.
        views: what others say of its CPUs.
        instruments: what there is to measure with.
        switch: None where it was not asked for.
        recorded: path -> text of files of the kernel.
        measured: by smt_probe; None where nothing was.
        siblings_reason: why nothing was, or None.
        equal: the host as it was found, against itself; None where it was not measured.
        planted: the same with more work; the same.
        not_compared: why these are None, or None.
        disturbances: what disturbed the measurement, one sentence each.
    """

    name: str
    reason: str | None = None
    facts: Facts | None = None
    kernel: str = ""
    views: tuple[View, ...] = ()
    instruments: tuple[Instrument, ...] = ()
    switch: Switch | None = None
    recorded: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    measured: Siblings | None = None
    siblings_reason: str | None = None
    equal: Measured | None = None
    planted: Measured | None = None
    not_compared: str | None = None
    disturbances: tuple[str, ...] = ()

    @property
    def disagreement(self) -> str | None:
        """What measuring says against the kernel, as a sentence, or None."""
        return self.measured.disagreement if self.measured else None


def of_host(
    name: str,
    facts: Facts | None,
    answer: ProofAnswer,
    measured: Siblings | None,
    siblings_reason: str | None,
) -> HostProof:
    """Return what the host's tasks answered, without the evaluation.

    Args:
        name: of the host.
        facts: of the host, if they are known.
        answer: of smt_proof_host, as the border let it through.
        measured: of smt_probe.
        siblings_reason: why there is none, or None.
    """
    return HostProof(
        name,
        facts=facts,
        kernel=answer.kernel,
        views=answer.views,
        instruments=answer.instruments,
        switch=answer.switch,
        recorded=answer.recorded,
        measured=measured,
        siblings_reason=siblings_reason,
    )


def without_result(proof: HostProof, reason: str) -> HostProof:
    """Return it with the reason why nothing was compared."""
    return dataclasses.replace(proof, not_compared=reason)


def with_result(proof: HostProof, result: HostResult) -> HostProof:
    """Return it with what the evaluation of equal arms and of a planted effect says."""
    analysis = HostAnalysis(costs.added(result))
    compared = [
        comparison
        for comparison in analysis.comparisons
        if comparison.kind == "arm" and comparison.metric == METRIC and comparison.baseline.arm == AS_FOUND
    ]
    # Of fewer there is no verdict: neither does nothing called hold, nor nothing found fail.
    by_arm = {
        comparison.candidate.arm: Measured.read(comparison) for comparison in compared if comparison.n >= MIN_BLOCKS
    }
    missing = None
    if len(by_arm) < 2:
        blocks = min((comparison.n for comparison in compared), default=0)
        ended = result.message or "it ended before both arms had enough samples"
        missing = f"{ended} ({blocks} of at least {MIN_BLOCKS} blocks)"
    return dataclasses.replace(
        proof,
        equal=by_arm.get(AGAIN),
        planted=by_arm.get(PLANTED),
        not_compared=missing,
        disturbances=tuple(cautions.of_disturbances(analysis)),
    )
