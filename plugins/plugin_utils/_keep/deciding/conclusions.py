# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the evaluation of one host says of its hardware class."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.basis import Basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons as host_comparisons


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The conclusion of one host's evaluation.

    Attributes:
        host: name in the inventory.
        run: name of the run.
        hardware_class: of the host.
        choice: from :func:`recommendation.recommend`.
        sentence: the conclusion as text.
        workloads: name of each workload and value of its parameter -> its comparison of SMT off against SMT on.
        basis: what it rests on.
        by_one: what stands for comparisons of workloads with a limit that one side never meets, from
            :func:`outcomes.of_smt_by_one`.
        at: time when the controller fetched it, else the end of the run by the host's clock (aware), or None.
        is_incomplete: whether something could not be measured that could contradict what was compared
            (:func:`outcomes.is_incomplete`).
        is_recheck: whether the run only asked whether an earlier result still holds, and so decides nothing.
    """

    host: str
    run: str
    hardware_class: str
    choice: str
    sentence: str
    workloads: t.Mapping[tuple[str, float | None], host_comparisons.Comparison]
    at: datetime.datetime | None
    basis: Basis = dataclasses.field(default_factory=Basis)
    by_one: t.Sequence[host_comparisons.Compared] = ()
    is_incomplete: bool = False
    is_recheck: bool = False

    @property
    def when(self) -> datetime.datetime:
        """By which runs are in order."""
        return self.at or datetime.datetime.min.replace(tzinfo=datetime.UTC)
