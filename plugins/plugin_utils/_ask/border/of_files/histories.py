# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of earlier calls, of which a history is made: they are kept for years, and others may write to them."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts


class Environment(parts.Excerpt, frozen=True):
    """What a host ran."""

    kernel: parts.Text | None = None


class Compared(parts.Excerpt, frozen=True):
    """What a report says of a workload, of one host or of several; one that hosts do not measure alike has no ratio."""

    workload: parts.Text
    title: parts.Text
    ratio: parts.Number | None = None
    ci_low: parts.Number | None = None
    ci_high: parts.Number | None = None
    interval_confidence: parts.Number | None = None
    verdict: parts.Text | None = None


class ReportedSide(parts.Excerpt, frozen=True):
    """A side of a comparison."""

    arm: parts.Text


class ReportedComparison(Compared, frozen=True, kw_only=True):
    """A comparison of a host."""

    parameter: parts.Number | None = None
    metric: parts.Text
    unit: parts.Text
    better: parts.Better
    aggregate: parts.Text | None = None
    baseline: ReportedSide
    candidate: ReportedSide
    placement: parts.Text
    primary: bool


class ReportedHost(parts.Excerpt, frozen=True):
    """A host of a report."""

    host: parts.Text
    hardware_class: parts.Text | None = None
    started: parts.Text | None = None
    collected: parts.Text | None = None
    environment: Environment | None = None
    comparisons: tuple[ReportedComparison, ...] = ()


class ReportedWorkload(Compared, frozen=True):
    """What the hosts of a class that measured a workload say of it; its name has the value of its parameter.

    Attributes:
        of_smt: whether it is about SMT on and off, with every online thread busy.
        effect: the arm that is compared with the other one; not in files of earlier releases, in which SMT off is.
        name: its title without the sides of the comparison, likewise.
        n: how many hosts measured it.
    """

    of_smt: bool = False
    effect: parts.Text | None = None
    name: parts.Text | None = None
    n: parts.Count = 0


class ReportedClass(parts.Excerpt, frozen=True):
    """A hardware class of a report."""

    hardware_class: parts.Text | None = None
    workloads: tuple[ReportedWorkload, ...] = ()


class Report(parts.Excerpt, frozen=True):
    """The results.json of a run, as far as a history reads it."""

    schema: t.Literal["threadwise.smt/report"]
    schema_version: t.Literal[2]
    classes: list[ReportedClass]
    hosts: list[ReportedHost]
