# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts' conclusions -> what holds for a hardware class, how its hosts differ, and which of them stand out.

The host is the unit of replication: a class of hundred hosts has hundred values, however many samples each of them
took. The blocks of its hosts are combined with the host as a random effect (:mod:`pooled`). Where hosts disagree, that
is the result of the class.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    paired,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared, Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.of_arms.machines import Capacity
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.streams import Crossover
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import OPPOSITE
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The overview's row of one host, small enough for thousands: its conclusion, and its comparisons of the whole
    machine.

    Attributes:
        host, run, outcome, hardware_class, vulnerable, reboot_required, disagreement, file: of its summary.
        page: name of its page.
        recommendation: what is chosen about SMT.
        agreed: whether no reason points to the other side.
        subject: what the run is about: None for SMT, else the titles of the other arms.
        arms: the titles of other arms.
        title: of the conclusion.
        unable: arms that cannot do what the baseline can: undecided, whatever was compared.
        streams: title of each workload, and from how many streams on SMT helps it, where that and not the whole
            machine alone decides.
        incomplete: whether something is missing that could contradict what was compared.
        sentence: the conclusion.
        basis: what it rests on.
        environment: what may explain a difference between runs.
        capacities: the work of the whole machine.
        restored: whether the host is as it was before; None where that is not known.
        differences: in what it is not.
        served_by_one: what stands for comparisons without a ratio, each with its series.
        workloads: series -> comparison.
    """

    host: str
    run: str
    outcome: str
    hardware_class: str | None
    vulnerable: list[str] | None
    reboot_required: bool | None
    disagreement: str | None
    file: str
    page: str
    recommendation: str
    agreed: bool
    subject: str | None
    arms: list[str]
    title: str
    unable: list[str]
    streams: list[tuple[str, Crossover]]
    incomplete: bool
    sentence: str
    basis: str
    environment: dict[str, str]
    capacities: list[Capacity]
    restored: bool | None
    differences: t.Sequence[str]
    served_by_one: list[tuple[str, Compared]]
    workloads: dict[str, Comparison]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload(pooled.Pooled):
    """What the hosts of a class say of a workload.

    Attributes:
        workload: its series.
        title: of that.
        name: title of the workload alone.
        of_smt: whether it is of SMT on and off.
        effect: of its comparisons.
        ratios: of its hosts.
        outliers: host -> ratio.
        sentence: about the hosts: how they differ, who disagrees, or which of them alone turns the verdict.
    """

    workload: str
    title: str
    name: str
    of_smt: bool
    effect: str
    ratios: list[float]
    outliers: dict[str, float]
    sentence: str

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most ratio."""
        return min(self.ratios), max(self.ratios)

    def described(self) -> dict[str, t.Any]:
        """Return it as results.json has it, without a value for each host."""
        fields = {name: value for name, value in vars(self).items() if name != "ratios"}
        heterogeneity = self.heterogeneity and self.heterogeneity._asdict()
        ends = dict(zip(("least", "most"), self.ends))
        return {**fields, **ends, "heterogeneity": heterogeneity, **self.change.described()}


class Unlike(t.NamedTuple):
    """A workload that the hosts of a class declare differently, so that they are not combined.

    Attributes:
        workload: its series.
        title: of that.
        of_smt: whether it is of SMT on and off.
        declared: from :func:`pooled.declarations`.
    """

    workload: str
    title: str
    of_smt: bool
    declared: dict[tuple[str, ...], list[str]]

    @property
    def hosts(self) -> int:
        """How many hosts declare it."""
        return sum(map(len, self.declared.values()))

    @property
    def sentence(self) -> str:
        """What is said of it."""
        return f"Its hosts declare it differently, so nothing is said of it: {pooled.declared(self.declared)}."

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        declared = [{**dict(zip(pooled.DECLARED, of)), "hosts": hosts} for of, hosts in self.declared.items()]
        return {**self._asdict(), "declared": declared, "sentence": self.sentence}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardwareClass:
    """What the hosts of a hardware class say together, once for each subject.

    Attributes:
        hardware_class: None where it is not known.
        subject: of the rows.
        hosts: how many there are.
        recommendation: as of a host, or ``hosts_disagree``.
        counts: title of the conclusion -> how many hosts have it.
        title: of the conclusion.
        vulnerable: how many hosts are.
        reboot_required: how many would boot otherwise.
        workloads: what they say of each. What only one of several hosts has does not decide for its class.
        refused: what they declare differently.
    """

    hardware_class: str | None
    subject: str | None
    hosts: int
    recommendation: str
    counts: dict[str, int]
    title: str
    vulnerable: int
    reboot_required: int
    workloads: list[Workload]
    refused: list[Unlike]

    @property
    def line(self) -> str:
        """What its hosts say combined, in one line."""
        workloads, refused = self.workloads[:MAX_COMPARISONS], self.refused[:MAX_COMPARISONS]
        more = len(self.workloads) - MAX_COMPARISONS
        return " ".join(
            [
                f"{self.hardware_class or 'unknown class'}, {self.hosts} hosts combined: {self.title}.",
                *(f"{unlike.title}: {unlike.sentence}" for unlike in refused),
                *(
                    f"{work.title} {wording.change_and_interval(work.change)}, {report_text.verdict(work)}."
                    f" {work.sentence}"
                    for work in workloads
                ),
                *([f"And {more} more comparisons."] if more > 0 else []),
            ]
        )

    def described(self) -> dict[str, t.Any]:
        """Return it as results.json has it."""
        lists = {name: [entry.described() for entry in getattr(self, name)] for name in ("workloads", "refused")}
        return {**vars(self), **lists}


class _Deciding(t.NamedTuple):
    """What of a class decides: of which arm, which verdict of how many hosts."""

    effect: str
    verdict: str
    n: int
    confounded: bool


def row(summary: Summary, page: str) -> Row:
    """Return the row of one host.

    Args:
        summary: of the host.
        page: name of its page.
    """
    analysis, result, recommended = summary.analysis, summary.result, summary.recommendation
    of_arms = len(result.arms)
    arm_titles = list(dict.fromkeys(_arm_title(arm.name) for arm in recommended.arms))
    subject = None if summary.concerns_smt else " and ".join(arm_titles)
    by_one = [
        comparison
        for comparison in summary.served_by_one
        if comparison.is_of_smt or comparison.baseline.arm == result.arms[0].name
    ]
    of_others = [*analysis.against_baseline, *(comparison for comparison in by_one if not comparison.is_of_smt)]
    unable = [
        arm.name
        for arm in recommended.arms
        if arm.outcome == outcomes.UNDECIDED
        and outcomes.outcome([comparison for comparison in of_others if comparison.effect == arm.name])
        != outcomes.UNDECIDED
    ]
    of_smt = [comparison.as_said(of_arms) for comparison in analysis.of_smt]
    return Row(
        host=result.host,
        run=result.run,
        outcome=result.outcome,
        hardware_class=summary.hardware_class,
        vulnerable=summary.vulnerable,
        reboot_required=summary.reboot_required,
        disagreement=summary.disagreement,
        file=summary.file,
        incomplete=summary.incomplete,
        capacities=analysis.capacities,
        page=page,
        recommendation=recommended.choice,
        agreed=recommended.agreed,
        subject=subject,
        arms=arm_titles,
        title=_conclusion_title(subject, recommended.choice, of_others, unable),
        unable=unable,
        streams=[(curve.title, curve.crossover) for curve in analysis.curves if summary.by_streams],
        sentence=summary.conclusion.sentence,
        basis=summary.conclusion.basis,
        environment=_environment(summary),
        restored=result.restored.ok if result.restored else None,
        differences=(result.restored and result.restored.differences) or (),
        served_by_one=[
            (series(comparison, comparison.is_said_of_smt_on(of_arms)), comparison) for comparison in by_one
        ],
        workloads={series(comparison): comparison for comparison in [*of_smt, *analysis.against_baseline]},
    )


def _arm_title(name: str) -> str:
    return catalogue.title(name) or UNKNOWN_ARM


def _conclusion_title(
    subject: str | None, choice: str, others: t.Sequence[Compared | _Deciding], unable: t.Container[str] = ()
) -> str:
    """Return a short title: what is chosen about SMT, and the outcome of each other arm; that of those that are unable
    is open.
    """
    by_arm: dict[str, list[Compared | _Deciding]] = {}
    for comparison in others:
        by_arm.setdefault(comparison.effect, []).append(comparison)
    titles = [
        report_text.outcome_title(_arm_title(arm), outcomes.UNDECIDED if arm in unable else outcomes.outcome(group))
        for arm, group in by_arm.items()
    ]
    if subject is None:
        return ", ".join([report_text.RECOMMENDATION_TITLES[choice], *titles])
    return ", ".join(titles) or report_text.outcome_title(subject, outcomes.outcome([]))


def _environment(summary: Summary) -> dict[str, str]:
    """Return the known parts of the environment that may explain a difference between runs, as short texts."""
    values = {name: getattr(summary.result.environment, name) for name in ENVIRONMENT}
    values["vulnerable"] = None if summary.vulnerable is None else ", ".join(summary.vulnerable) or "none"
    return {name: str(value)[:MAX_TEXT] for name, value in values.items() if value is not None}


def series(comparison: Compared, turned: bool = False) -> str:
    """Return the key of a comparison: its workload, parameter value, at a given rate its metric, and for other arms
    than SMT off against on placement and arms.

    Args:
        comparison: the comparison.
        turned: whether it is that of its baseline against its candidate.
    """
    name = comparison.workload if comparison.parameter is None else f"{comparison.workload} {comparison.parameter:g}"
    name += f" {comparison.metric}" if comparison.given else ""
    baseline, effect = comparison.baseline.arm, comparison.effect
    baseline, effect = (comparison.candidate.arm, baseline) if turned else (baseline, effect)
    if effect == arms.SMT_OFF and comparison.is_of_smt:
        return name
    return f"{name}, {comparison.placement}, {effect}{_against(baseline, baseline)}"


def _against(arm: str, baseline: str) -> str:
    """Name the baseline where it is not the host as it was found."""
    return "" if arm == arms.AS_FOUND else f" against {baseline}"


def title(comparison: Comparison) -> str:
    """Return the display title of a comparison."""
    if comparison.effect == arms.SMT_OFF and comparison.is_of_smt:
        return comparison.title
    baseline, placement = comparison.baseline.arm, comparison.placement
    where = [] if placement == host_comparisons.WHOLE_MACHINE else [placements.title(placement)]
    what = f"{_arm_title(comparison.effect)}{_against(baseline, _arm_title(baseline))}"
    return ", ".join([comparison.title, *where, what])


def subjects(rows: t.Sequence[Row]) -> list[str | None]:
    """Return what the runs are about: None for SMT first, then the titles of other arms."""
    return sorted({row.subject for row in rows}, key=lambda subject: (subject is not None, subject))


def compared(rows: t.Sequence[Row]) -> str:
    """Describe what the comparisons of these hosts compare."""
    distinct = subjects(rows)
    parts = ["SMT off against SMT on with every online thread busy"] if not distinct or None in distinct else []
    return "; ".join(
        [*parts, *(f"{title} against the baseline" for title in [*beside_smt(rows), *filter(None, distinct)])]
    )


def beside_smt(rows: t.Sequence[Row]) -> list[str]:
    """Return the titles of the other arms of runs that are about SMT."""
    return sorted({title for row in rows if row.subject is None for title in row.arms})


def by_class(rows: t.Sequence[Row], margin: float, confidence: float) -> list[HardwareClass]:
    """Compare the hosts of each hardware class, the largest class first, hosts without one last; once per subject.

    Args:
        rows: of all hosts.
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts.
    """
    classes: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in rows:
        classes.setdefault((row.hardware_class, row.subject), []).append(row)
    ordered = sorted(
        classes.items(), key=lambda pair: (pair[0][0] is None, -len(pair[1]), pair[0][0] or "", pair[0][1] or "")
    )
    return [_class(*key, members, margin, confidence) for key, members in ordered]


def _class(
    name: str | None, subject: str | None, members: t.Sequence[Row], margin: float, confidence: float
) -> HardwareClass:
    hosts: dict[str, dict[str, Comparison]] = {}
    for member in members:
        for key, comparison in member.workloads.items():
            hosts.setdefault(key, {})[member.host] = comparison
    declared = {key: pooled.declarations(of_key) for key, of_key in hosts.items()}
    alike = {key: of_key for key, of_key in hosts.items() if len(declared[key]) == 1}
    judged = {
        key: dataclasses.replace(combined, ci_low=None, ci_high=None)
        if combined.ci_low == combined.ci_high
        else combined
        for key, combined in zip(alike, pooled.combine_family(list(alike.values()), margin, confidence))
    }
    # Whose outcome it is: None for SMT.
    deciding: dict[tuple[str | None, str], _Deciding] = {}
    alone: dict[tuple[str | None, str], list[str]] = {}
    for key, of_key in hosts.items():
        first = next(iter(of_key.values()))
        place = None if first.is_of_smt else first.effect, key
        said, confounded = pooled.HOSTS_DISAGREE, False
        if combined := judged.get(key):
            said, confounded = combined.verdict, combined.confounded
        # What is chosen about SMT is by what SMT off does, whichever side a comparison is of.
        turned = OPPOSITE if first.effect == arms.SMT_ON and first.is_of_smt else {}
        deciding[place] = _Deciding(first.effect, turned.get(said, said), len(of_key), confounded)
        alone[place] = [turned.get(comparison.verdict, comparison.verdict) for comparison in of_key.values()]
    by_one: dict[tuple[str | None, str], list[Compared]] = {}
    for key, served in itertools.chain.from_iterable(member.served_by_one for member in members):
        by_one.setdefault((None if served.is_of_smt else served.effect, key), []).append(served)
    for place, group in by_one.items():
        # On some hosts both sides serve a load, and on others one of them none.
        compared = alone.get(place, [])
        words = [deciding[place].verdict] if len(compared) >= pooled.MIN_HOSTS else compared
        count = len(group) + len(compared)
        confounded = any(comparison.confounded for comparison in group) or (
            place in deciding and deciding[place].confounded
        )
        said = _agreed([*(comparison.verdict for comparison in group), *words], count)
        deciding[place] = _Deciding(group[0].effect, said, count, confounded)
    by_effect: dict[str | None, list[_Deciding]] = {}
    for (effect, _key), decides in deciding.items():
        by_effect.setdefault(effect, []).append(decides)
    recommendation = _recommendation(pooled.shared(by_effect.pop(None, [])), members)
    others = [decides for group_of in by_effect.values() for decides in pooled.shared(group_of)]
    return HardwareClass(
        hardware_class=name,
        subject=subject,
        hosts=len(members),
        recommendation=recommendation,
        counts=dict(collections.Counter(member.title for member in members)),
        title=_conclusion_title(subject, recommendation, others, {arm for member in members for arm in member.unable}),
        vulnerable=sum(1 for member in members if member.vulnerable),
        reboot_required=sum(1 for member in members if member.reboot_required),
        workloads=[_workload(key, alike[key], combined, margin) for key, combined in judged.items()],
        refused=[
            Unlike(key, _usual(map(title, hosts[key].values())), next(iter(hosts[key].values())).is_of_smt, of_key)
            for key, of_key in declared.items()
            if key not in alike
        ],
    )


def _workload(key: str, hosts: t.Mapping[str, Comparison], combined: pooled.Pooled, margin: float) -> Workload:
    first, ratios = next(iter(hosts.values())), {host: comparison.ratio for host, comparison in hosts.items()}
    return Workload(
        **vars(combined),
        workload=key,
        title=_usual(map(title, hosts.values())),
        name=_usual(comparison.title for comparison in hosts.values()),
        of_smt=first.is_of_smt,
        effect=first.effect,
        ratios=list(ratios.values()),
        outliers=outliers(ratios, margin),
        sentence=sentence(combined, hosts),
    )


def _recommendation(together: t.Sequence[_Deciding], members: t.Sequence[Row]) -> str:
    """Return what is recommended to the hosts of a class: what their comparisons say together, unless what each host
    says has another reason than noise.

    Args:
        together: what decides, of all hosts, with its verdict.
        members: the hosts.
    """
    recommended = conclusion.recommendation(together)
    choices: set[str] = {member.recommendation for member in members} - {conclusion.NOT_COMPARED}
    if choices and any(member.streams for member in members):
        # What streams decide is of each host by itself: there is no ratio of all of them.
        if len(choices) == 1:
            return choices.pop()
        return pooled.HOSTS_DISAGREE if len(choices - {conclusion.UNDECIDED}) > 1 else conclusion.UNDECIDED
    if recommended in conclusion.CHOICES.values() and any(member.incomplete for member in members):
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


def _usual(titles: t.Iterable[str]) -> str:
    """Return the title that most hosts state; of this collection's own workloads all have one."""
    stated = list(titles)
    return max(dict.fromkeys(stated), key=stated.count)


def sentence(combined: pooled.Pooled, hosts: t.Mapping[str, Comparison]) -> str:
    """Say how the hosts of a class differ in a workload, which of them disagree,
    and which of them alone turns what it says.

    Args:
        combined: as from :func:`pooled.combine_family`.
        hosts: host -> its comparison.
    """
    confounded = [name for name, of_host in hosts.items() if of_host.confounded]
    only = (
        f"Confounded with the reboot on {wording.named(confounded)} alone." if 0 < len(confounded) < len(hosts) else ""
    )
    few = (
        [name for name, of_host in hosts.items() if of_host.n < paired.MIN_BLOCKS]
        if pooled.MIN_HOSTS <= len(hosts) < paired.MIN_BLOCKS
        else []
    )
    short = f"Too few blocks on {wording.named(few)}: so few hosts need {paired.MIN_BLOCKS} each." if few else ""
    return " ".join(filter(None, [_difference(combined, hosts), combined.turns, only, short]))


def _difference(combined: pooled.Pooled, hosts: t.Mapping[str, Comparison]) -> str:
    titles = wording.VERDICT_TITLES
    if combined.verdict == pooled.HOSTS_DISAGREE:
        return (
            "Its hosts disagree: "
            + "; ".join(f"{titles[verdict]} on {wording.named(hosts)}" for verdict, hosts in combined.said.items())
            + "."
        )
    if combined.n < pooled.MIN_HOSTS:
        return "One host, which speaks for itself only: how the hosts of its class differ is not known."
    still = [name for name, of_host in hosts.items() if of_host.ci_low is None and of_host.n > 1]
    if combined.tau is None and still:
        return (
            f"How much its hosts differ beyond chance is not known: {wording.named(still)}"
            f" {wording.verb(still, 'has', 'have')} the same values in each block."
        )
    if combined.tau is None:
        return "How much its hosts differ is not known: they have too few blocks."
    found = combined.heterogeneity
    chance = ", which may be chance" if found and found.p_adjusted > 1 - combined.confidence else ""
    differ = (
        f"Hosts differ by {wording.percent(combined.tau)}{chance}."
        if combined.tau > 0
        else "Its hosts differ no more than their own noise explains."
    )
    if (
        combined.verdict != paired.INCONCLUSIVE
        or combined.n >= paired.MIN_BLOCKS
        or [len(hosts) for hosts in combined.said.values()] != [combined.n]
    ):
        return differ
    return (
        f"{differ} Each of the {combined.n} says {titles[next(iter(combined.said))]} by itself; so few decide for"
        " their class only where they agree closely."
    )


def outliers(ratios: t.Mapping[str, float], margin: float) -> dict[str, float]:
    """Return the hosts whose log-ratio lies beyond Tukey's fences, by more than what counts as no difference; none for
    fewer than five hosts.
    """
    if len(ratios) < MIN_HOSTS_FOR_OUTLIERS:
        return {}
    first, _median, third = statistics.quantiles(map(math.log, ratios.values()), method="inclusive")
    reach = max(FENCE * (third - first), math.log1p(margin))
    return {host: ratio for host, ratio in ratios.items() if not first - reach <= math.log(ratio) <= third + reach}
