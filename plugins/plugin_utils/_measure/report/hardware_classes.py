# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts' conclusions -> what holds for a hardware class, how its hosts differ, and which of them stand out.

The host is the unit of replication: a class of hundred hosts has hundred values, however many samples each of them
took. The blocks of its hosts are combined with the host as a random effect (:mod:`pooled`). Where hosts disagree, that
is the result of the class.
"""

from __future__ import annotations

import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    paired,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import load_limit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change, wording

# With fewer hosts quartiles are meaningless.
MIN_HOSTS_FOR_OUTLIERS = 5
# Tukey's fences: this many interquartile ranges beyond the quartiles. Source: J. W. Tukey, Exploratory Data Analysis
# (1977).
FENCE = 1.5
ENVIRONMENT = ("kernel", "cmdline", "cpu_model", "microcode", "governor", "hypervisor")
MAX_TEXT = 300
# Comparisons that a line about a class has; it counts the others.
MAX_COMPARISONS = 3
# Title of arms that this collection does not know: untrusted hosts could send thousands of names.
UNKNOWN_ARM = "another arm"
_TURNED = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}

Row = dict[str, t.Any]


def row(summary: dict[str, t.Any], page: str) -> Row:
    """Return the overview's row of one host, small enough for thousands:
    its conclusion and its comparisons of the whole machine.
    """
    keep = (
        "effect",
        "ratio",
        "ci_low",
        "ci_high",
        *change.FIELDS,
        "verdict",
        "baseline_value",
        "candidate_value",
        *pooled.DECLARED,
        "margin",
        "confounded",
        "n",
        "interval_confidence",
    )
    recommended = summary["recommendation"]
    arm_titles = list(dict.fromkeys(_arm_title(arm["name"]) for arm in recommended["arms"]))
    subject = None if summary["concerns_smt"] else " and ".join(arm_titles)
    others = host_comparisons.against_baseline(
        host_comparisons.of_other_arms(summary["comparisons"]), summary["arms"][0]["name"]
    )
    by_one = [
        comparison
        for comparison in summary["served_by_one"]
        if host_comparisons.is_of_smt(comparison) or comparison["baseline"]["arm"] == summary["arms"][0]["name"]
    ]
    of_others = [*others, *(comparison for comparison in by_one if not host_comparisons.is_of_smt(comparison))]
    # Arms that cannot do what the baseline can: undecided, whatever was compared.
    unable = [
        arm["name"]
        for arm in recommended["arms"]
        if arm["outcome"] == outcomes.UNDECIDED
        and outcomes.outcome([comparison for comparison in of_others if comparison["effect"] == arm["name"]])
        != outcomes.UNDECIDED
    ]
    return {
        **{
            key: summary[key]
            for key in (
                "host",
                "run",
                "outcome",
                "hardware_class",
                "vulnerable",
                "reboot_required",
                "disagreement",
                "file",
            )
        },
        "page": page,
        "recommendation": recommended["choice"],
        "agreed": recommended["agreed"],
        "subject": subject,
        "arms": arm_titles,
        "title": _conclusion_title(subject, recommended["choice"], of_others, unable),
        "unable": unable,
        # From how many streams on SMT helps, where that and not the whole machine alone decides.
        "streams": summary["crossovers"] if summary["by_streams"] else [],
        "incomplete": summary["incomplete"],
        "sentence": summary["conclusion"]["sentence"],
        "basis": summary["conclusion"]["basis"],
        "environment": _environment(summary),
        "capacities": summary["capacities"],
        "restored": summary["restored"].get("ok") if summary["restored"] else None,
        "differences": (summary["restored"] or {}).get("differences") or [],
        "served_by_one": [
            {
                # As where both sides serve a load.
                "series": series(
                    {**comparison, "effect": arms.SMT_ON, "baseline": comparison["candidate"]}
                    if load_limit.is_said_of_smt_on(comparison, len(summary["arms"]))
                    else comparison
                ),
                "of_smt": host_comparisons.is_of_smt(comparison),
                **{key: comparison[key] for key in ("effect", "verdict", "confounded")},
            }
            for comparison in by_one
        ],
        "workloads": {
            series(comparison): {
                "title": _title(comparison),
                "name": comparison["title"],
                "of_smt": host_comparisons.is_of_smt(comparison),
                "parameter": comparison.get("parameter"),
                "sides": (comparison["baseline"]["arm_title"], comparison["candidate"]["arm_title"]),
                **{key: comparison[key] for key in keep},
            }
            for comparison in [
                *(
                    load_limit.as_said(comparison, len(summary["arms"]))
                    for comparison in host_comparisons.of_smt(summary["comparisons"])
                ),
                *others,
            ]
        },
    }


def _arm_title(name: str) -> str:
    return catalogue.title(name) or UNKNOWN_ARM


def _conclusion_title(
    subject: str | None, choice: str, others: t.Sequence[dict[str, t.Any]], unable: t.Container[str] = ()
) -> str:
    """Return a short title: what is chosen about SMT, and the outcome of each other arm; that of those that are unable
    is open.
    """
    by_arm: dict[str, list[dict[str, t.Any]]] = {}
    for comparison in others:
        by_arm.setdefault(comparison["effect"], []).append(comparison)
    titles = [
        report_text.outcome_title(_arm_title(arm), outcomes.UNDECIDED if arm in unable else outcomes.outcome(group))
        for arm, group in by_arm.items()
    ]
    if subject is None:
        return ", ".join([report_text.RECOMMENDATION_TITLES[choice], *titles])
    return ", ".join(titles) or report_text.outcome_title(subject, outcomes.outcome([]))


def _environment(summary: dict[str, t.Any]) -> dict[str, str]:
    """Return the known parts of the environment that may explain a difference between runs, as short texts."""
    values = {name: summary["environment"].get(name) for name in ENVIRONMENT}
    values["vulnerable"] = None if summary["vulnerable"] is None else ", ".join(summary["vulnerable"]) or "none"
    return {name: str(value)[:MAX_TEXT] for name, value in values.items() if value is not None}


def series(comparison: dict[str, t.Any]) -> str:
    """Return the key of a comparison: its workload, parameter value, at a given rate its metric, and for other arms
    than SMT off against on placement and arms.
    """
    name = (
        comparison["workload"]
        if comparison.get("parameter") is None
        else f"{comparison['workload']} {comparison['parameter']:g}"
    )
    name += f" {comparison['metric']}" if comparison.get("given") else ""
    return str(
        name
        if comparison["effect"] == arms.SMT_OFF and host_comparisons.is_of_smt(comparison)
        else f"{name}, {comparison['placement']}, {comparison['effect']}"
        f"{_against(comparison, comparison['baseline']['arm'])}"
    )


def _against(comparison: dict[str, t.Any], baseline: str) -> str:
    """Name the baseline where it is not the host as it was found."""
    return "" if comparison["baseline"]["arm"] == arms.AS_FOUND else f" against {baseline}"


def _title(comparison: dict[str, t.Any]) -> str:
    """Return the display title of a comparison."""
    if comparison["effect"] == arms.SMT_OFF and host_comparisons.is_of_smt(comparison):
        return str(comparison["title"])
    where = (
        [] if comparison["placement"] == host_comparisons.WHOLE_MACHINE else [placements.title(comparison["placement"])]
    )
    return ", ".join(
        [
            comparison["title"],
            *where,
            f"{_arm_title(comparison['effect'])}{_against(comparison, _arm_title(comparison['baseline']['arm']))}",
        ]
    )


def subjects(rows: t.Sequence[Row]) -> list[str | None]:
    """Return what the runs are about: None for SMT first, then the titles of other arms."""
    return sorted({row["subject"] for row in rows}, key=lambda subject: (subject is not None, subject))


def compared(rows: t.Sequence[Row]) -> str:
    """Describe what the comparisons of these hosts compare."""
    distinct = subjects(rows)
    parts = ["SMT off against SMT on with every online thread busy"] if not distinct or None in distinct else []
    return "; ".join(
        [*parts, *(f"{title} against the baseline" for title in [*beside_smt(rows), *filter(None, distinct)])]
    )


def beside_smt(rows: t.Sequence[Row]) -> list[str]:
    """Return the titles of the other arms of runs that are about SMT."""
    return sorted({title for row in rows if row["subject"] is None for title in row["arms"]})


def by_class(rows: t.Sequence[Row], margin: float, confidence: float) -> list[dict[str, t.Any]]:
    """Compare the hosts of each hardware class, the largest class first, hosts without one last; once per subject.

    Args:
        rows: of all hosts.
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts.

    Returns:
        ``{hardware_class, subject, hosts, recommendation, title, counts (title -> hosts), vulnerable, reboot_required,
        workloads, refused}`` each; each workload is ``{workload, title, name, of_smt, effect, better, ratios, least,
        most, outliers (host -> ratio), change, change_low, change_high, sentence, confounded, ...fields of
        pooled.combine_family}``; ``recommendation`` is also ``hosts_disagree``; ``sentence`` is about the hosts: how
        they differ, who disagrees, or which of them alone turns the verdict. ``refused`` has what hosts declare
        differently, which is not combined: ``{workload, title, of_smt, declared, sentence}``, with ``declared`` a list
        of ``{metric, unit, better, aggregate, hosts}``. What only one of several hosts has does not decide for its
        class.
    """
    classes: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in rows:
        classes.setdefault((row["hardware_class"], row["subject"]), []).append(row)
    ordered = sorted(
        classes.items(), key=lambda pair: (pair[0][0] is None, -len(pair[1]), pair[0][0] or "", pair[0][1] or "")
    )
    return [_class(*key, members, margin, confidence) for key, members in ordered]


def _class(
    name: str | None, subject: str | None, members: t.Sequence[Row], margin: float, confidence: float
) -> dict[str, t.Any]:
    counts: dict[str, int] = {}
    for member in members:
        counts[member["title"]] = counts.get(member["title"], 0) + 1
    hosts: dict[str, dict[str, dict[str, t.Any]]] = {}
    for member in members:
        for key, workload in member["workloads"].items():
            hosts.setdefault(key, {})[member["host"]] = workload
    refused = {key: _refused(key, of_key) for key, of_key in hosts.items() if len(pooled.declarations(of_key)) > 1}
    alike = {key: of_key for key, of_key in hosts.items() if key not in refused}
    judged = {
        key: {**comparison, **dict.fromkeys(("ci_low", "ci_high"), None)}
        if comparison["ci_low"] == comparison["ci_high"]
        else comparison
        for key, comparison in zip(alike, pooled.combine_family(list(alike.values()), margin, confidence))
    }
    deciding: dict[tuple[str | None, str], dict[str, t.Any]] = {}
    alone: dict[tuple[str | None, str], list[str]] = {}
    for key, of_key in hosts.items():
        first = next(iter(of_key.values()))
        effect = None if first["of_smt"] else first["effect"]
        combined = judged.get(key) or {"verdict": pooled.HOSTS_DISAGREE, "n": len(of_key), "confounded": False}
        # What is chosen about SMT is by what SMT off does, whichever side a comparison is of.
        turned = {} if first["effect"] != arms.SMT_ON or effect else _TURNED
        deciding[effect, key] = {**combined, "verdict": turned.get(combined["verdict"], combined["verdict"])}
        alone[effect, key] = [
            turned.get(comparison["verdict"], comparison["verdict"]) for comparison in of_key.values()
        ]
    by_one: dict[tuple[str | None, str], list[dict[str, t.Any]]] = {}
    for comparison in (served for member in members for served in member["served_by_one"]):
        by_one.setdefault((None if comparison["of_smt"] else comparison["effect"], comparison["series"]), []).append(
            comparison
        )
    for place, group in by_one.items():
        # On some hosts both sides serve a load, and on others one of them none.
        compared = alone.get(place, [])
        words = [deciding[place]["verdict"]] if len(compared) >= pooled.MIN_HOSTS else compared
        deciding[place] = {
            "verdict": _agreed([*(served["verdict"] for served in group), *words], len(group) + len(compared)),
            "n": len(group) + len(compared),
            "confounded": any(served["confounded"] for served in [*group, deciding.get(place, {"confounded": False})]),
        }
    by_effect: dict[str | None, list[dict[str, t.Any]]] = {}
    for (effect, _key), comparison in deciding.items():
        by_effect.setdefault(effect, []).append(comparison)
    recommendation = _recommendation(pooled.shared(by_effect.get(None, [])), members)
    others = [
        {**comparison, "effect": effect}
        for effect, group in by_effect.items()
        if effect is not None
        for comparison in pooled.shared(group)
    ]
    return {
        "hardware_class": name,
        "subject": subject,
        "hosts": len(members),
        "recommendation": recommendation,
        "counts": counts,
        "title": _conclusion_title(
            subject, recommendation, others, {name for member in members for name in member["unable"]}
        ),
        "vulnerable": sum(1 for member in members if member["vulnerable"]),
        "reboot_required": sum(1 for member in members if member["reboot_required"]),
        "workloads": [
            {
                **(spread := _spread(key, alike[key], margin)),
                **comparison,
                **change.of(comparison, spread["better"]),
                "sentence": sentence(comparison, alike[key]),
            }
            for key, comparison in judged.items()
        ],
        "refused": list(refused.values()),
    }


def _recommendation(together: t.Sequence[dict[str, t.Any]], members: t.Sequence[Row]) -> str:
    """Return what is recommended to the hosts of a class: what their comparisons say together, unless what each host
    says has another reason than noise.

    Args:
        together: what decides, of all hosts, with its verdict.
        members: the hosts.
    """
    recommended = conclusion.recommendation(together)
    choices: set[str] = {member["recommendation"] for member in members} - {conclusion.NOT_COMPARED}
    if choices and any(member["streams"] for member in members):
        # What streams decide is of each host by itself: there is no ratio of all of them.
        if len(choices) == 1:
            return choices.pop()
        return pooled.HOSTS_DISAGREE if len(choices - {conclusion.UNDECIDED}) > 1 else conclusion.UNDECIDED
    if recommended in conclusion.CHOICES.values() and any(member["incomplete"] for member in members):
        return conclusion.UNDECIDED
    if recommended == conclusion.EITHER and len(choices) == 1:
        # Other reasons than performance may have chosen.
        return choices.pop()
    return recommended


def _agreed(verdicts: t.Iterable[str], hosts: int) -> str:
    """Return the verdict that each host says; undecided for a single host, or where one of them is."""
    distinct = set(verdicts)
    if hosts < pooled.MIN_HOSTS or len(distinct - {paired.INCONCLUSIVE}) < 1:
        return paired.INCONCLUSIVE
    if len(distinct - {paired.INCONCLUSIVE}) > 1:
        return pooled.HOSTS_DISAGREE
    return distinct.pop() if len(distinct) == 1 else paired.INCONCLUSIVE


def _refused(key: str, hosts: t.Mapping[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return a workload that the hosts of a class declare differently."""
    declarations = pooled.declarations(hosts)
    return {
        "workload": key,
        "title": _title_of(hosts),
        "of_smt": next(iter(hosts.values()))["of_smt"],
        "declared": [
            {**dict(zip(pooled.DECLARED, declared)), "hosts": names} for declared, names in declarations.items()
        ],
        "sentence": f"Its hosts declare it differently, so nothing is said of it: {wording.declared(declarations)}.",
    }


def _title_of(hosts: t.Mapping[str, dict[str, t.Any]], field: str = "title") -> str:
    """Return the title that most hosts state; of this collection's own workloads all have one."""
    titles = [str(comparison[field]) for comparison in hosts.values()]
    return max(dict.fromkeys(titles), key=titles.count)


def sentence(combined: dict[str, t.Any], hosts: t.Mapping[str, dict[str, t.Any]]) -> str:
    """Say how the hosts of a class differ in a workload, which of them disagree,
    and which of them alone turns what it says.

    Args:
        combined: as from :func:`pooled.combine_family`.
        hosts: host -> its comparison.
    """
    confounded = [name for name, of_host in hosts.items() if of_host["confounded"]]
    only = (
        f"Confounded with the reboot on {wording.named(confounded)} alone." if 0 < len(confounded) < len(hosts) else ""
    )
    few = (
        [name for name, of_host in hosts.items() if of_host["n"] < paired.MIN_BLOCKS]
        if pooled.MIN_HOSTS <= len(hosts) < paired.MIN_BLOCKS
        else []
    )
    short = f"Too few blocks on {wording.named(few)}: so few hosts need {paired.MIN_BLOCKS} each." if few else ""
    return " ".join(
        filter(
            None, [_difference(combined, hosts), wording.turned(combined, combined["n"], of_class=True), only, short]
        )
    )


def _difference(combined: dict[str, t.Any], hosts: t.Mapping[str, dict[str, t.Any]]) -> str:
    titles = wording.VERDICT_TITLES
    if combined["verdict"] == pooled.HOSTS_DISAGREE:
        return (
            "Its hosts disagree: "
            + "; ".join(f"{titles[verdict]} on {wording.named(hosts)}" for verdict, hosts in combined["said"].items())
            + "."
        )
    if combined["n"] < pooled.MIN_HOSTS:
        return "One host, which speaks for itself only: how the hosts of its class differ is not known."
    still = [name for name, of_host in hosts.items() if of_host["ci_low"] is None and of_host["n"] > 1]
    if combined["tau"] is None and still:
        return (
            f"How much its hosts differ beyond chance is not known: {wording.named(still)}"
            f" {wording.verb(still, 'has', 'have')} the same values in each block."
        )
    if combined["tau"] is None:
        return "How much its hosts differ is not known: they have too few blocks."
    chance = ", which may be chance" if combined["heterogeneity"]["p_adjusted"] > 1 - combined["confidence"] else ""
    differ = (
        f"Hosts differ by {wording.percent(combined['tau'])}{chance}."
        if combined["tau"] > 0
        else "Its hosts differ no more than their own noise explains."
    )
    if (
        combined["verdict"] != paired.INCONCLUSIVE
        or combined["n"] >= paired.MIN_BLOCKS
        or [len(hosts) for hosts in combined["said"].values()] != [combined["n"]]
    ):
        return differ
    return (
        f"{differ} Each of the {combined['n']} says {titles[next(iter(combined['said']))]} by itself; so few decide for"
        " their class only where they agree closely."
    )


def line(group: dict[str, t.Any]) -> str:
    """Say in one line what the hosts of a class say combined.

    Args:
        group: a class of :func:`by_class`.
    """
    parts = [
        f"{workload['title']} {wording.change_and_interval(change.Change.read(workload))},"
        f" {report_text.verdict(workload)}. {workload['sentence']}"
        for workload in group["workloads"][:MAX_COMPARISONS]
    ]
    more = (
        [f"And {len(group['workloads']) - MAX_COMPARISONS} more comparisons."]
        if len(group["workloads"]) > MAX_COMPARISONS
        else []
    )
    refused = [f"{workload['title']}: {workload['sentence']}" for workload in group["refused"][:MAX_COMPARISONS]]
    return " ".join(
        [
            f"{group['hardware_class'] or 'unknown class'}, {group['hosts']} hosts combined: {group['title']}.",
            *refused,
            *parts,
            *more,
        ]
    )


def described(classes: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return classes as results.json has them, without a value for each host.

    Args:
        classes: from :func:`by_class`.
    """
    left_out = ("ratios",)
    return [
        {
            **group,
            "workloads": [
                {key: value for key, value in workload.items() if key not in left_out}
                for workload in group["workloads"]
            ],
        }
        for group in classes
    ]


def _spread(key: str, hosts: t.Mapping[str, dict[str, t.Any]], margin: float) -> dict[str, t.Any]:
    ratios = {host: comparison["ratio"] for host, comparison in hosts.items()}
    return {
        "workload": key,
        **{name: _title_of(hosts, name) for name in ("title", "name")},
        **{name: next(iter(hosts.values()))[name] for name in ("of_smt", "effect", "better")},
        "ratios": list(ratios.values()),
        "least": min(ratios.values()),
        "most": max(ratios.values()),
        "outliers": outliers(ratios, margin),
    }


def outliers(ratios: t.Mapping[str, float], margin: float) -> dict[str, float]:
    """Return the hosts whose log-ratio lies beyond Tukey's fences, by more than what counts as no difference; none for
    fewer than five hosts.
    """
    if len(ratios) < MIN_HOSTS_FOR_OUTLIERS:
        return {}
    first, _median, third = statistics.quantiles(map(math.log, ratios.values()), method="inclusive")
    reach = max(FENCE * (third - first), math.log1p(margin))
    return {host: ratio for host, ratio in ratios.items() if not first - reach <= math.log(ratio) <= third + reach}
