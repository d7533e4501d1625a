# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a host's page: each arm against the baseline, workload by workload;
what each arm leaves open of the kernel's list of vulnerabilities.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_arms import exposure, factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts, text as report_text

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


def against_baseline(summary: dict[str, t.Any]) -> list[Comparison]:
    """Return each arm against the baseline at the widest placement, workload by workload,
    arms in the order of the run.
    """
    found = host_comparisons.against_baseline(
        host_comparisons.at_widest(summary["comparisons"]), summary["arms"][0]["name"]
    )
    order = {arm["name"]: number for number, arm in enumerate(summary["arms"])}
    subjects = {subject: number for number, subject in enumerate(dict.fromkeys(map(_subject, found)))}
    return sorted(found, key=lambda one: (subjects[_subject(one)], order[one["candidate"]["arm"]]))


def _subject(one: Comparison) -> tuple[str, float | None]:
    return one["workload"], one.get("parameter")


def among_others(summary: dict[str, t.Any]) -> list[Comparison]:
    """Return the comparisons of the other arms among each other at the widest placement, where they were asked for."""
    baseline = summary["arms"][0]["name"]
    return [one for one in host_comparisons.at_widest(summary["comparisons"]) if one["baseline"]["arm"] != baseline]


def forests(found: t.Sequence[Comparison]) -> list[charts.Picture]:
    """Draw comparisons with the baseline: a group of rows for each workload, which begins with the baseline at 0.

    Args:
        found: from :func:`against_baseline`.
    """
    by_workload: dict[tuple[str, float | None], list[Comparison]] = {}
    for one in found:
        by_workload.setdefault(_subject(one), []).append(one)
    pages: list[list[list[Comparison]]] = [[]]
    for group in by_workload.values():
        if pages[-1] and sum(len(one) + 1 for one in pages[-1]) + len(group) >= ROWS_OF_A_CHART:
            pages.append([])
        pages[-1].append(group)
    most = max(1, MAX_ROWS // ROWS_OF_A_CHART)
    return [_forest(groups) for groups in pages[:most] if groups]


def of_factors(found: t.Sequence[factors.Factorial], margin: float) -> list[tuple[factors.Factorial, charts.Picture]]:
    """Draw what two factors do to each workload.

    Args:
        found: from :func:`factors.of_host`.
        margin: effects within this share of 1 count as none.
    """
    drawn = []
    for one in found[: MAX_ROWS // ROWS_OF_A_CHART]:
        rows = [
            {
                "label": label,
                "better": one.better,
                "ratio": effect.ratio,
                "low": effect.low or effect.ratio,
                "high": effect.high or effect.ratio,
                "verdict": effect.verdict,
                "text": wording.change_and_interval(effect.change),
            }
            for label, effect in one.rows()
        ]
        drawn.append((one, charts.forest(rows, margin, report_text.SIDES_OF_ARMS, f"{one.title}: two factors")))
    return drawn


def _forest(groups: t.Sequence[t.Sequence[Comparison]]) -> charts.Picture:
    compared = [one for group in groups for one in group]
    rows = [row for group in groups for row in (_head(group[0]), *map(_row, group))]
    named = "; ".join(f"{one['title']}, {_label(one)} {wording.judged(one)}" for one in compared[:MAX_NAMED])
    more = f"; and {len(compared) - MAX_NAMED} more in the table" if len(compared) > MAX_NAMED else ""
    baseline = compared[0]["baseline"]["arm_title"]
    return charts.forest(
        rows,
        compared[0]["margin"],
        report_text.SIDES_OF_ARMS,
        f"Change against {baseline} with its interval: {named}{more}",
    )


def _head(one: Comparison) -> dict[str, t.Any]:
    """Return the row of the baseline, which names the workload."""
    return {
        "label": one["title"],
        "better": one["better"],
        "ratio": 1.0,
        "low": 1.0,
        "high": 1.0,
        "verdict": charts.BASELINE,
        "text": f"{one['baseline']['arm_title']} (baseline)",
    }


def _row(one: Comparison) -> dict[str, t.Any]:
    return {"label": _label(one), **report_text.ratio_row(one)}


def _label(one: Comparison) -> str:
    where = (
        "" if one["placement"] == host_comparisons.WHOLE_MACHINE else f", {placements.short_title(one['placement'])}"
    )
    return f"{one['candidate']['arm_title']}{where}"


def exposures(summary: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Return the table of what each arm leaves open: its arms,
    and a row of cells for each vulnerability that affects the host; None without one.
    """
    found = summary["exposure"]
    names = sorted({name for one in found for name, state in one["states"].items() if state != exposure.NOT_AFFECTED})
    if not names:
        return None
    unknown = STATES[exposure.NOT_KNOWN]
    rows = [
        (name, [STATES[one["states"][name]] if name in one["states"] else unknown for one in found]) for name in names
    ]
    return {"arms": found, "rows": rows}
