# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparisons of several hosts of one hardware class -> one verdict for the class, with the host as a random effect.

A host's effect is that of its class plus a difference of its own, and is known up to the scatter of its blocks. Hosts
have equal weights, and the interval is the wider of two: Student's t of the hosts' log-ratios (ranks from six hosts on,
as for blocks), which contains both sources whatever their sizes are, and what the scatter within the hosts alone
allows, so that hosts which agree by luck do not make it too narrow. docs/calibration.md has the error rates.

A class decides by what its hosts share: hosts that declare a workload differently are not combined, and where one host
alone turns a verdict, it is named.

Equal weights because the t interval stays valid then, however different the hosts' scatters are: R. Ibragimov, U. K.
Mueller, t-Statistic Based Correlation and Heterogeneity Robust Inference, Journal of Business & Economic Statistics 28
(2010). Weights by precision (DerSimonian-Laird; Hartung-Knapp) exceed the level with few hosts of different scatter: C.
Roever, G. Knapp, T. Friede, Hartung-Knapp-Sidik-Jonkman approach and its modification for random-effects meta-analysis
with few studies, BMC Medical Research Methodology 15 (2015). Besides, a host that claims no scatter would overrule the
others.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions, ranks, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# The verdict of a class whose hosts differ in what they say: it has no single one.
HOSTS_DISAGREE = wording.HOSTS_DISAGREE
# What a host may say that contradicts what another one says.
DECIDED = (paired.GAIN, paired.LOSS, paired.EQUIVALENT)
# With fewer hosts nothing is known of how they differ.
MIN_HOSTS = 2
# The least variance of a host's log-ratio: below, it is the rounding of its values.
MIN_VARIANCE = 1e-18
# What the numbers of a workload mean. Values of hosts that differ in it are not of one thing.
DECLARED = ("metric", "unit", "better", "aggregate")

# Host -> its comparison.
Hosts = t.Mapping[str, Comparison]


class Blocks(t.NamedTuple):
    """What a host's own blocks say of it.

    Attributes:
        log: the log-ratio.
        variance: of the log-ratio, by the scatter of the host's blocks.
        freedom: degrees of freedom of the variance.
    """

    log: float
    variance: float
    freedom: float


class Heterogeneity(t.NamedTuple):
    """Cochran's Q, the p-value that hosts without any difference between them have so much of it, and the same for
    all workloads.
    """

    q: float | None
    p_value: float
    p_adjusted: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pooled(Ratio):
    """What the hosts of a class say combined, with hosts in the place of blocks; ``family`` counts the workloads of two
    hosts or more: one host has no verdict for its class, and cannot make the others' stricter by workloads of its own.

    Attributes:
        blocks: those of all hosts.
        tau: how much hosts differ, as a share, without the noise of their blocks (0.02 is 2 %); None if it is not
            known.
        heterogeneity: the test of that, or None.
        said: the hosts that are decided by themselves: verdict -> names.
        confounded: whether a host's comparison is, since the order of boots is the same on all hosts.
        turned_by: each host without which the others say something else: name -> their verdict.
        more_hosts: how many more it takes until no host turns it alone; None where none does or no number is known.
    """

    blocks: int
    tau: float | None
    heterogeneity: Heterogeneity | None
    said: dict[str, list[str]]
    confounded: bool
    turned_by: dict[str, str]
    more_hosts: int | None

    @property
    def turns(self) -> str:
        """Which host alone turns the verdict, as a sentence; empty where none does."""
        return leave_one_out.sentence(self.verdict, self.turned_by, self.more_hosts, self.n, of_class=True)


class Spread(t.NamedTuple):
    """How the hosts of a class differ.

    Attributes:
        within: the variance of the mean of all hosts by the scatter of their blocks alone; 0 where no host's is known.
        freedom: its degrees of freedom.
        tau: standard deviation of the hosts' own log-ratios, without the scatter of their blocks; None for fewer than
            two hosts with an interval.
        statistic: Cochran's Q.
        p_value: that hosts without any difference between them differ so much.
    """

    within: float
    freedom: float
    tau: float | None
    statistic: float | None
    p_value: float | None


def declarations(hosts: Hosts) -> dict[tuple[str, ...], list[str]]:
    """Return what the hosts declare a workload to be, the values of :data:`DECLARED`, and which hosts do;
    what most of them declare comes first.

    Args:
        hosts: host -> its comparison.
    """
    hosts_by_declaration: dict[tuple[str, ...], list[str]] = {}
    for name, comparison in hosts.items():
        hosts_by_declaration.setdefault(tuple(getattr(comparison, field) for field in DECLARED), []).append(name)
    return dict(sorted(hosts_by_declaration.items(), key=lambda entry: -len(entry[1])))


def declared(declarations: t.Mapping[tuple[str, ...], t.Sequence[str]]) -> str:
    """Say which hosts declare a workload how.

    Args:
        declarations: from :func:`declarations`.
    """
    return "; ".join(
        f"{metric} in {unit}, {better} is better, {how} of its workers on {wording.named(names)}"
        for (metric, unit, better, how), names in declarations.items()
    )


def combine_family(family: t.Sequence[Hosts], margin: float = 0.01, confidence: float = 0.95) -> list[Pooled]:
    """Combine the hosts of a class for each of several workloads, with a family-wise error rate of at most ``1 -
    confidence`` (Holm).

    Args:
        family: of each workload, at least one host with its comparison. All hosts declare it alike
            (:func:`declarations`).
        margin: effects within this share of 1 count as none.
        confidence: of all verdicts combined.

    Raises:
        paired.SampleError: a value is not valid, or hosts differ in ``better``.
    """
    alpha = 1 - float(confidence)
    blocks = [[_blocks(comparison) for comparison in hosts.values()] for hosts in family]
    spreads = [_spread(row) for row in blocks]
    between = [paired.compare(*_sides(hosts), margin, confidence) for hosts in family]
    p_values = [
        max(comparison.p_value, _p_value(math.log(comparison.ratio), spread))
        for comparison, spread in zip(between, spreads)
    ]
    several = [place for place, hosts in enumerate(family) if len(hosts) >= MIN_HOSTS]
    judged = [p_values[place] for place in several]
    levels = dict(zip(several, paired.holm_levels(judged, alpha)))
    adjusted = dict(zip(several, paired.holm(judged)))
    differing = dict(
        zip(
            several, paired.holm([1.0 if (p_value := spreads[place].p_value) is None else p_value for place in several])
        )
    )
    results = []
    for place, (hosts, spread, p_value) in enumerate(zip(family, spreads, p_values)):
        level, differ = levels.get(place, alpha), differing.get(place, 1.0)
        centre, low, high = _interval(hosts, spread, level)
        decided = _decided_alone(hosts)
        verdict = paired.INCONCLUSIVE
        if low is not None and high is not None and _is_enough([comparison.n for comparison in hosts.values()]):
            verdict = verdicts.verdict(centre, low, high, math.log1p(margin))
        if len(decided) > 1 and differ <= alpha:
            verdict = HOSTS_DISAGREE
        # Without a verdict, a host is named only if it stands out: leaving out one's opponents until they agree is no
        # test.
        asked = (
            len(hosts) >= MIN_HOSTS
            and verdict != HOSTS_DISAGREE
            and (verdict != paired.INCONCLUSIVE or differ <= alpha or _one_scatters(blocks[place]))
        )
        turned_by, more_hosts = (
            _turned_by(hosts, blocks[place], verdict, level, math.log1p(margin)) if asked else ({}, None)
        )
        results.append(
            Pooled(
                better=between[place].better,
                ratio=_ratio(centre),
                ci_low=None if low is None else _ratio(low),
                ci_high=None if high is None else _ratio(high),
                confidence=float(confidence),
                n=len(hosts),
                blocks=sum(comparison.n for comparison in hosts.values()),
                margin=float(margin),
                verdict=verdict,
                method=_method(hosts),
                p_value=p_value,
                p_adjusted=adjusted.get(place, 1.0),
                interval_confidence=1 - level,
                family=max(1, len(several)),
                tau=None if spread.tau is None else math.expm1(min(spread.tau, 700.0)),
                heterogeneity=(
                    None if spread.p_value is None else Heterogeneity(spread.statistic, spread.p_value, differ)
                ),
                said=decided,
                confounded=any(comparison.confounded for comparison in hosts.values()),
                turned_by=turned_by,
                more_hosts=more_hosts,
            )
        )
    return results


class _Counted(t.Protocol):
    @property
    def n(self) -> int: ...


Counted = t.TypeVar("Counted", bound=_Counted)


def shared(judged: t.Iterable[Counted]) -> list[Counted]:
    """Return those that decide for a class, from :func:`combine_family`: what two hosts or more have,
    or all of them where nothing is shared.
    """
    comparisons = list(judged)
    return [comparison for comparison in comparisons if comparison.n >= MIN_HOSTS] or comparisons


def standard_error(comparison: Comparison) -> float | None:
    """Return the standard error of a host's log-ratio, or None for a single block.

    It is taken from the host's interval at its degrees of freedom, so that it is by the same method as the host's
    verdict.

    Args:
        comparison: a comparison of the host.
    """
    if comparison.ci_low is None or comparison.ci_high is None:
        return None
    half = (math.log(comparison.ci_high) - math.log(comparison.ci_low)) / 2
    return half / distributions.student_quantile(1 - comparison.interval_confidence, comparison.n - 1)


def _sides(hosts: Hosts) -> tuple[list[float], list[float], str]:
    """Return the baseline's and the candidate's value of each host, and which direction is better."""
    comparisons = list(hosts.values())
    better = {comparison.better for comparison in comparisons}
    if len(better) > 1:
        raise paired.SampleError("hosts of one class differ in which direction is better: they cannot be combined")
    return (
        [comparison.baseline_value for comparison in comparisons],
        [comparison.candidate_value for comparison in comparisons],
        better.pop(),
    )


def _blocks(comparison: Comparison) -> Blocks | None:
    """Return what a host's own blocks say of it, None where it has no interval."""
    scatter = standard_error(comparison)
    return (
        None if scatter is None else Blocks(math.log(comparison.ratio), max(scatter**2, MIN_VARIANCE), comparison.n - 1)
    )


def _within(blocks: t.Sequence[Blocks | None]) -> tuple[float, float]:
    """Return the variance of the mean of all hosts by the scatter of their blocks alone, 0 where no host's is known,
    and its degrees of freedom.
    """
    known = [host for host in blocks if host]
    if not known:
        return 0.0, math.inf
    # Degrees of freedom of a sum of variances: F. E. Satterthwaite, An approximate distribution of estimates of
    # variance components, Biometrics 2 (1946).
    total = math.fsum(host.variance for host in known)
    return total / len(known) / len(blocks), total**2 / math.fsum(host.variance**2 / host.freedom for host in known)


def _one_scatters(blocks: t.Sequence[Blocks | None]) -> bool:
    """Return whether one host of three or more scatters more than all others together."""
    variances = [host.variance for host in blocks if host]
    return len(blocks) > MIN_HOSTS and max(variances, default=0.0) > math.fsum(variances) / 2


def _spread(blocks: t.Sequence[Blocks | None]) -> Spread:
    within, freedom = _within(blocks)
    known = [host for host in blocks if host]
    if len(known) < MIN_HOSTS:
        return Spread(within, freedom, None, None, None)
    # The estimate of Hedges and Olkin, whose hosts have equal weights: L. V. Hedges, I. Olkin, Statistical Methods for
    # Meta-Analysis (1985).
    _mean, scatter = ranks.moments([host.log for host in known])
    tau = math.sqrt(max(0.0, scatter**2 - ranks.mean([host.variance for host in known])))
    return Spread(within, freedom, tau, *_heterogeneity(known))


def _heterogeneity(hosts: t.Sequence[Blocks]) -> tuple[float, float]:
    """Return Cochran's Q and its p-value, which takes into account that each variance is an estimate from few blocks.

    Source: B. L. Welch, On the comparison of several mean values: an alternative approach, Biometrika 38 (1951).
    """
    count, total = len(hosts), math.fsum(1 / host.variance for host in hosts)
    centre = math.fsum(host.log / host.variance for host in hosts) / total
    statistic = math.fsum((host.log - centre) ** 2 / host.variance for host in hosts)
    uncertain = math.fsum((1 - 1 / host.variance / total) ** 2 / host.freedom for host in hosts)
    corrected = statistic / (count - 1) / (1 + 2 * (count - 2) / (count**2 - 1) * uncertain)
    return statistic, distributions.fisher_p_value(corrected, count - 1, (count**2 - 1) / (3 * uncertain))


def _p_value(centre: float, spread: Spread) -> float:
    """Return the p-value of no effect by the scatter within the hosts alone; 0 where that is not known."""
    if not spread.within:
        return 0.0
    return distributions.student_p_value(centre / math.sqrt(spread.within), spread.freedom)


def _interval(hosts: Hosts, spread: Spread, level: float) -> tuple[float, float | None, float | None]:
    """Return the log-ratio of the class and its interval at confidence 1 - level; the ends are None for one host."""
    centre, low, high = paired.interval(*_sides(hosts), level)
    if low is None or high is None or not spread.within:
        return centre, low, high
    half = _half(spread.within, spread.freedom, level)
    return centre, min(low, centre - half), max(high, centre + half)


def _half(within: float, freedom: float, level: float) -> float:
    """Return half of the width of the interval that the scatter within the hosts alone allows."""
    return distributions.student_quantile(level, freedom) * math.sqrt(within) if within else 0.0


def _turned_by(
    hosts: Hosts, blocks: t.Sequence[Blocks | None], verdict: str, level: float, margin: float
) -> tuple[dict[str, str], int | None]:
    """Return each host without which the others have another verdict, at the same level,
    and how many more hosts it takes.
    """
    counts = [comparison.n for comparison in hosts.values()]
    *sides, better = _sides(hosts)
    sign = 1.0 if better == "higher" else -1.0

    def least_half(place: int) -> float | None:
        if not _is_enough(counts[:place] + counts[place + 1 :]):
            return None
        return _half(*_within([*blocks[:place], *blocks[place + 1 :]]), level)

    before, after = ([sign * math.log(value) for value in side] for side in sides)
    return leave_one_out.turned_by(list(hosts), (before, after), verdict, level, margin, least_half)


def _is_enough(counts: t.Sequence[int]) -> bool:
    """Return whether a class can have a verdict: hosts as many as blocks that need one,
    or fewer of which each has as many blocks.
    """
    return len(counts) >= paired.MIN_BLOCKS or (
        len(counts) >= MIN_HOSTS and all(count >= paired.MIN_BLOCKS for count in counts)
    )


def _decided_alone(hosts: Hosts) -> dict[str, list[str]]:
    """Return the hosts that are decided by themselves: verdict -> names."""
    by_verdict = {
        verdict: [name for name, comparison in hosts.items() if comparison.verdict == verdict] for verdict in DECIDED
    }
    return {verdict: names for verdict, names in by_verdict.items() if names}


def _method(hosts: Hosts) -> str:
    if len(hosts) < MIN_HOSTS:
        return "one host: nothing is known of how the hosts of its class differ"
    how = "ranks" if len(hosts) >= paired.MIN_BLOCKS_RANKED else "log-ratios"
    method = f"random effect of the host: t on {how} of {len(hosts)} hosts, at least as wide as their blocks allow"
    return (
        method
        if _is_enough([comparison.n for comparison in hosts.values()])
        else f"{method}; fewer than {paired.MIN_BLOCKS} hosts need {paired.MIN_BLOCKS} blocks each for a verdict"
    )


def _ratio(log: float) -> float:
    """Return the ratio, limited to finite numbers."""
    return math.exp(min(max(log, -700.0), 700.0))
