# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a host's page: each arm against the baseline, workload by workload;
what each arm leaves open of the kernel's list of vulnerabilities.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure, factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts

Comparison = host_comparisons.Comparison
# Rows of one chart, beyond which the next workload begins another one, and rows of all charts; the table has all.
ROWS_OF_A_CHART, MAX_ROWS = 30, 180
# Comparisons that the alternative text of a chart names.
MAX_NAMED = 20
# State -> its words in a table, and the verdict whose colour it has.
STATES = {
    exposure.NOT_AFFECTED: ("not affected", ""),
    exposure.MITIGATED: ("mitigated", ""),
    exposure.SMT_OPEN: ("open by SMT", "loss"),
    exposure.SMT_CLOSED: ("SMT part closed", "gain"),
    exposure.VULNERABLE: ("vulnerable", "loss"),
    exposure.OPENED: ("no longer mitigated", "loss"),
    exposure.NOT_KNOWN: ("not known", "inconclusive"),
}


def against_baseline(summary: Summary) -> list[Comparison]:
    """Return each arm against the baseline at the widest placement, workload by workload,
    arms in the order of the run.
    """
    arms = [arm.name for arm in summary.result.arms]
    comparisons = host_comparisons.against_baseline(host_comparisons.at_widest(summary.analysis.comparisons), arms[0])
    subjects = {
        subject: number for number, subject in enumerate(dict.fromkeys(comparison.work for comparison in comparisons))
    }
    return sorted(comparisons, key=lambda comparison: (subjects[comparison.work], arms.index(comparison.candidate.arm)))


def among_others(summary: Summary) -> list[Comparison]:
    """Return the comparisons of the other arms among each other at the widest placement, where they were asked for."""
    baseline = summary.result.arms[0].name
    return [
        comparison
        for comparison in host_comparisons.at_widest(summary.analysis.comparisons)
        if comparison.baseline.arm != baseline
    ]


def forests(comparisons: t.Sequence[Comparison]) -> list[charts.Picture]:
    """Draw comparisons with the baseline: a group of rows for each workload, which begins with the baseline at 0.

    Args:
        comparisons: from :func:`against_baseline`.
    """
    by_workload: dict[tuple[str, float | None], list[Comparison]] = {}
    for comparison in comparisons:
        by_workload.setdefault(comparison.work, []).append(comparison)
    pages: list[list[list[Comparison]]] = [[]]
    for group in by_workload.values():
        if pages[-1] and sum(len(placed) + 1 for placed in pages[-1]) + len(group) >= ROWS_OF_A_CHART:
            pages.append([])
        pages[-1].append(group)
    most = max(1, MAX_ROWS // ROWS_OF_A_CHART)
    return [_forest(groups) for groups in pages[:most] if groups]


def of_factors(
    factorials: t.Sequence[factors.Factorial], margin: float
) -> list[tuple[factors.Factorial, charts.Picture]]:
    """Draw what two factors do to each workload.

    Args:
        factorials: from :func:`factors.of_host`.
        margin: effects within this share of 1 count as none.
    """
    drawn = []
    for factorial in factorials[: MAX_ROWS // ROWS_OF_A_CHART]:
        rows = list(itertools.starmap(report_text.ratio_row, factorial.rows()))
        drawn.append(
            (factorial, charts.forest(rows, margin, report_text.SIDES_OF_ARMS, f"{factorial.title}: two factors"))
        )
    return drawn


def _forest(groups: t.Sequence[t.Sequence[Comparison]]) -> charts.Picture:
    compared = [comparison for group in groups for comparison in group]
    rows = [row for group in groups for row in (_head(group[0]), *map(_row, group))]
    named = "; ".join(
        f"{comparison.title}, {_label(comparison)} {comparison.in_words}" for comparison in compared[:MAX_NAMED]
    )
    more = f"; and {len(compared) - MAX_NAMED} more in the table" if len(compared) > MAX_NAMED else ""
    baseline = compared[0].baseline.arm_title
    return charts.forest(
        rows,
        compared[0].margin,
        report_text.SIDES_OF_ARMS,
        f"Change against {baseline} with its interval: {named}{more}",
    )


def _head(comparison: Comparison) -> charts.RatioRow:
    """Return the row of the baseline, which names the workload."""
    text = f"{comparison.baseline.arm_title} (baseline)"
    return charts.RatioRow(comparison.title, text, comparison.better, 1.0, charts.BASELINE)


def _row(comparison: Comparison) -> charts.RatioRow:
    return report_text.ratio_row(_label(comparison), comparison)


def _label(comparison: Comparison) -> str:
    where = (
        ""
        if comparison.placement == host_comparisons.WHOLE_MACHINE
        else f", {placements.short_title(comparison.placement)}"
    )
    return f"{comparison.candidate.arm_title}{where}"


def exposures(summary: Summary) -> dict[str, t.Any] | None:
    """Return the table of what each arm leaves open: its arms,
    and a row of cells for each vulnerability that affects the host; None without one.
    """
    by_arm = summary.exposure
    names = sorted({name for arm in by_arm for name, state in arm.states.items() if state != exposure.NOT_AFFECTED})
    if not names:
        return None
    unknown = STATES[exposure.NOT_KNOWN]
    rows = [(name, [STATES[arm.states[name]] if name in arm.states else unknown for arm in by_arm]) for name in names]
    return {"arms": by_arm, "rows": rows}
