# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page that compares two runs over the same hosts: what a change (kernel, microcode,
setting) did to the effect of SMT.

Within a run SMT on and off alternate, so the effect of SMT is valid for each run and the two can be compared. The
performance itself was measured first before, then after, with everything else that changed in between: it is shown
without a verdict.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t
from urllib.parse import quote

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged, Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out, pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import (
    hardware_classes,
    text as report_text,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import host as host_page
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame, wording

NAME = "compare.html"
FIRST_ROWS = 100
CHANGED, SAME, UNKNOWN = "changed", "no clear difference", "no interval"


def render(
    before: t.Sequence[hardware_classes.Row], after: t.Sequence[hardware_classes.Row], settings: tuple[float, float]
) -> str:
    """Render the page.

    Args:
        before: rows of the earlier run.
        after: rows of this run.
        settings: margin and confidence.
    """
    earlier = {row.host: row for row in before}
    pairs, differing = _alike([(earlier[row.host], row) for row in after if row.host in earlier])
    lines = [line for pair in pairs for line in _lines(*pair)]
    compared = hardware_classes.compared([row for _before, row in pairs])
    effect = "SMT" if not any(row.arms for _before, row in pairs) else "what was switched"
    return frame.render(
        "compare.html.j2",
        hosts=len(pairs),
        runs=[sorted({row.run for row in rows}) for rows in (before, after)],
        only_before=sorted(set(earlier) - {row.host for row in after}),
        only_after=sorted({row.host for row in after} - set(earlier)),
        workloads=_workloads(pairs, *settings),
        differing=differing,
        environment=_environment(pairs),
        conclusions=_conclusions(pairs),
        lines=lines,
        changed=sum(1 for line in lines if line[5][0] == CHANGED),
        first_rows=FIRST_ROWS,
        compared=compared,
        effect=effect,
        heads=[
            (name, False)
            for name in (
                "host",
                "workload",
                f"{compared}, before",
                "after",
                "metric as it was found, after by before",
                f"effect of {effect}",
                "conclusion before",
                "conclusion after",
            )
        ],
    )


def distinguish(before: Ratio, after: Ratio) -> str:
    """Return whether two ratios differ: their intervals do not overlap,
    which is stricter than a test of the difference.
    """
    if before.ci_low is None or before.ci_high is None or after.ci_low is None or after.ci_high is None:
        return UNKNOWN
    return CHANGED if before.ci_high < after.ci_low or after.ci_high < before.ci_low else SAME


Pair = tuple[hardware_classes.Row, hardware_classes.Row]


def _alike(pairs: t.Sequence[Pair]) -> tuple[list[Pair], list[str]]:
    """Return the pairs without the workloads that the hosts, or both runs of a host, declare differently,
    and a sentence about each of these.
    """
    declared: dict[str, dict[str, Comparison]] = {}
    for pair in pairs:
        for when, row in zip(("before", "after"), pair):
            for key in pair[0].workloads.keys() & pair[1].workloads.keys():
                declared.setdefault(key, {})[f"{row.host} {when}"] = row.workloads[key]
    unlike = {key: different for key, rows in declared.items() if len(different := pooled.declarations(rows)) > 1}

    def without(row: hardware_classes.Row) -> hardware_classes.Row:
        workloads = {key: workload for key, workload in row.workloads.items() if key not in unlike}
        return dataclasses.replace(row, workloads=workloads)

    return [(without(before), without(after)) for before, after in pairs], [
        f"{key} is not compared: {pooled.declared(different)}." for key, different in sorted(unlike.items())
    ]


def _lines(before: hardware_classes.Row, after: hardware_classes.Row) -> list[list[t.Any]]:
    """Return a host's rows of the table, one per workload that both runs compared."""
    lines = []
    for key in after.workloads:
        if key in before.workloads:
            old, new = before.workloads[key], after.workloads[key]
            verdict = distinguish(old, new)
            level = new.baseline_value / old.baseline_value
            lines.append(
                [
                    [after.host, after.host, "", quote(after.page)],
                    hardware_classes.title(new),
                    _effect(old),
                    _effect(new),
                    [f"{new.metric} {wording.signed(level)}", level],
                    [verdict, verdict, "inconclusive" if verdict == CHANGED else ""],
                    before.title,
                    after.title,
                ]
            )
    return lines


def _effect(comparison: Comparison) -> list[t.Any]:
    return [comparison.in_words, comparison.change.value, comparison.verdict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect(Judged):
    """What both runs say of a workload, hosts as blocks, and which host alone turns that."""

    title: str
    turned: str


def _workloads(pairs: t.Sequence[Pair], margin: float, confidence: float) -> dict[str, t.Any] | None:
    """Compare the effect of SMT between the runs, hosts as blocks: each workload's comparison, and the chart.

    None without a common workload.
    """
    both: dict[str, dict[str, tuple[Comparison, Comparison]]] = {}
    for before, after in pairs:
        for key in after.workloads:
            if key in before.workloads:
                both.setdefault(key, {})[after.host] = (before.workloads[key], after.workloads[key])
    if not both:
        return None
    # Ratios are turned so that above 1 is better, whichever direction the metric has; a change is of the metric itself.
    family = [
        ([old.ratio for old, _new in hosts.values()], [new.ratio for _old, new in hosts.values()], "higher")
        for hosts in both.values()
    ]
    judged = []
    for hosts, sides, found in zip(both.values(), family, paired.compare_family(family, margin, confidence)):
        new = next(iter(hosts.values()))[1]
        effect = vars(dataclasses.replace(found, better=new.better))
        judged.append(Effect(**effect, title=hardware_classes.title(new), turned=_turned(list(hosts), sides, found)))
    rows = [report_text.ratio_row(effect.title, effect) for effect in judged]
    return {
        "judged": judged,
        "chart": host_page.forest(rows, judged, ("does worse than before", "does better than before")),
    }


def _turned(hosts: list[str], sides: tuple[list[float], list[float], str], comparison: Judged) -> str:
    """Say which host alone turns a verdict about both runs; empty where none does."""
    if comparison.verdict == paired.INCONCLUSIVE:
        return ""
    half = 0.0 if len(hosts) > paired.MIN_BLOCKS else None
    level, margin = 1 - comparison.interval_confidence, math.log1p(comparison.margin)
    before, after = (list(map(math.log, side)) for side in sides[:2])
    turned_by, more_hosts = leave_one_out.turned_by(
        hosts, (before, after), comparison.verdict, level, margin, lambda _place: half
    )
    return leave_one_out.sentence(comparison.verdict, turned_by, more_hosts, len(hosts))


def _environment(pairs: t.Sequence[Pair]) -> list[tuple[str, str, str, int]]:
    """Return the differences between the runs' environments: name, before, after, number of hosts;
    the most frequent first.
    """
    counts: dict[tuple[str, str, str], int] = {}
    for before, after in pairs:
        for name in sorted(set(before.environment) | set(after.environment)):
            old, new = (row.environment.get(name) or "unknown" for row in (before, after))
            if old != new:
                counts[name, old, new] = counts.get((name, old, new), 0) + 1
    return [(*change, count) for change, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _conclusions(pairs: t.Sequence[Pair]) -> list[tuple[str, str, int]]:
    """Return the changed recommendations: before, after and number of hosts."""
    counts: dict[tuple[str, str], int] = {}
    for before, after in pairs:
        if before.title != after.title:
            counts[before.title, after.title] = counts.get((before.title, after.title), 0) + 1
    return [(*change, count) for change, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
