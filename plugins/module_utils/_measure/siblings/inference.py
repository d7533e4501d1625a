# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The statistics of the probe: from its rounds to groups of CPUs that share a core.

This file uses neither processes nor files.

In each round a random half of the CPUs works, in the next round the other half; both are *paired rounds*. They yield
one slowness (CPU seconds per unit of work) for each CPU, and show for each pair of CPUs whether they worked in the same
round.

The test is a randomization test (Fisher, "The Design of Experiments", 1935): the CPUs of a round are drawn anew each
time and depend on nothing else, so noise of any kind and duration cannot favour a pair, except by chance. Each sample
gets a score between 0 and 2. The statistic is the sum of the scores, each weighted by how much more often than expected
the pair was in the same round. By Hoeffding's inequality ("Probability Inequalities for Sums of Bounded Random
Variables", 1963) the probability that it exceeds z standard deviations is at most exp(-z**2 / 2), for any scores and
any number of rounds: the test assumes nothing about the noise. (The shift to test for and the other partners, see
below, are estimated from the same samples; for these two the bound is an approximation, and the distance between 0 and
SHARED_COST is the safety margin.)

The score is the fourth power of the pace, relative to the fastest fifth. Interference makes a CPU slower, never faster,
so on a noisy host the fastest samples are the accurate ones: in a guest that got a quarter of its time they differed by
less than 3 % while the median was twice as high.

Cores can have more than two threads. Then a CPU's slowness depends on several others, and rounds are compared only with
rounds in which the same number of its other candidate partners worked. Tests shift the slowness, not the pace, because
each further thread adds about the same amount to it, whether the threads share the execution units or take turns on one
CPU.
"""

import itertools
import math
import typing as t

SHARES = "shares"
APART = "apart"

# A partner slows a CPU by at least SHARED_COST if they share a core, and by at most APART_COST if they do not; between
# the two nothing is claimed. They correspond to paces of 83 and 87 %. Two virtual CPUs that take turns on one hardware
# thread fall to 50 %, siblings that compute to something in between.
SHARED_COST = 0.20
APART_COST = 0.15
# The probability that any of a host's pairs is claimed wrongly, over all pairs and all evaluations.
ALPHA = 0.001
# SMT8 is the maximum that exists (POWER).
MAX_PARTNERS = 7
# The score above which a CPU is a candidate partner. A wrong candidate reduces the power of the tests but causes no
# claim.
CANDIDATE = 3.2
# Scores as integers, for sums over bit sets.
_SCALE = 32
_MAX_SCORE = 2.0
_RATIOS = (0.1, 2.0)

# The slowness of a CPU and the bit of the paired rounds.
_Sample = t.Tuple[float, int]
# Of each stratum: the expected share of paired rounds in which two CPUs are in the same round, and the samples.
_Strata = t.List[t.Tuple[float, t.List[_Sample]]]


def critical_value(count: int, look: int) -> float:
    """Return the score that a pair must reach so that, with a probability of 1 - ALPHA, no pair is claimed wrongly.

    The error probability is divided among the pairs, their two ends, and the evaluations: 1/2 + 1/6 + 1/12 + ... = 1.

    Args:
        count: number of CPUs.
        look: number of this evaluation, from 1.

    Returns:
        the critical value in standard deviations.
    """
    return math.sqrt(2 * math.log(look * (look + 1) * count * (count - 1) / ALPHA))


class PairedRounds(t.NamedTuple):
    """Two rounds in which each CPU worked once.

    Attributes:
        side: CPU -> the round in which it worked (0 or 1).
        slowness: CPU -> CPU seconds per unit of work (> 0), or None if the sample is invalid.
    """

    side: "dict[int, int]"
    slowness: "dict[int, float | None]"


class PaceRatio(t.NamedTuple):
    """The pace of two CPUs in the same round, relative to their pace in different rounds.

    Attributes:
        ratio: the ratio at which the test is balanced; None if it is unknown.
        low: lower bound, below which the test rejects; None if it is unknown.
        high: upper bound, above which the test rejects; None if it is unknown.
    """

    ratio: "float | None" = None
    low: "float | None" = None
    high: "float | None" = None


class PairTests:
    """The tests on each pair of CPUs.

    Args:
        cpus: the CPU numbers, two or more.
        samples: at least one.
        look: number of this evaluation, from 1: the error probability is divided among all evaluations.
    """

    def __init__(self, cpus: "t.Iterable[int]", samples: "t.Sequence[PairedRounds]", look: int = 1) -> None:
        self.cpus = tuple(sorted(cpus))
        self._critical = critical_value(len(self.cpus), look)
        self._everything = (1 << len(samples)) - 1
        self._side = {cpu: _bits(sample.side[cpu] for sample in samples) for cpu in self.cpus}
        self._valid = {cpu: _bits(sample.slowness[cpu] is not None for sample in samples) for cpu in self.cpus}
        self._slowness: dict[int, list[_Sample]] = {
            cpu: [
                (slowness, 1 << index)
                for index, slowness in enumerate(sample.slowness[cpu] for sample in samples)
                if slowness is not None
            ]
            for cpu in self.cpus
        }
        self._active = {
            cpu: _by_value(sum(side == sample.side[cpu] for side in sample.side.values()) for sample in samples)
            for cpu in self.cpus
        }
        self._strata: dict[tuple[int, tuple[int, ...], bool], _Strata] = {}
        self._partners = {cpu: self._candidates(cpu) for cpu in self.cpus}
        self._alone = self._slowness_alone()

    def statuses(self) -> "dict[tuple[int, int], str]":
        """Return the pairs whose status is clear.

        Not every pair is tested: if a CPU of one core is apart from a CPU of another core, so are all others of both.

        Returns:
            (lower CPU, higher CPU) -> SHARES or APART.
        """
        known = {pair: SHARES for pair in self._candidate_pairs() if self._shares(*pair, by_active=True)}
        if not known and len(self.cpus) <= MAX_PARTNERS + 1:
            known = self._single_core()
        parts = components(self.cpus, known)
        for part, other in itertools.combinations(parts, 2):
            pair = next(((min(pair), max(pair)) for pair in itertools.product(part, other) if self._apart(*pair)), None)
            if pair:
                known[pair] = APART
        known.update({pair: APART for part in parts for pair in itertools.combinations(part, 2) if self._apart(*pair)})
        return known

    def ratio(self, cpu: int, other: int) -> PaceRatio:
        """Return the pace of two CPUs in the same round, relative to their pace in different rounds;
        if the two CPUs differ, the wider bounds.

        Args:
            cpu: a CPU.
            other: another CPU.
        """
        both_ways = [self._ratio(*pair) for pair in ((cpu, other), (other, cpu))]
        ends = [end for end in both_ways if end.ratio is not None]
        ratios = [end.ratio for end in ends if end.ratio is not None]
        if not ratios:
            return PaceRatio()
        lows = [end.low for end in ends if end.low is not None]
        highs = [end.high for end in ends if end.high is not None]
        return PaceRatio(
            sum(ratios) / len(ratios),
            min(lows) if len(lows) == len(ends) else None,
            max(highs) if len(highs) == len(ends) else None,
        )

    def is_candidate(self, cpu: int, other: int) -> bool:
        """Return whether one of two CPUs seems to slow the other: enough to test the pair, not enough to claim it.

        Args:
            cpu: a CPU.
            other: another CPU.
        """
        return other in self._partners[cpu] or cpu in self._partners[other]

    def _candidate_pairs(self) -> "list[tuple[int, int]]":
        return [
            (cpu, other)
            for cpu in self.cpus
            for other in sorted(self._partners[cpu])
            if cpu < other and cpu in self._partners[other]
        ]

    def _single_core(self) -> "dict[tuple[int, int], str]":
        """Return all pairs as sharing if all CPUs slow each other, else nothing.

        Only this test compares rounds with different numbers of active CPUs, because that number is what slows the CPUs
        if all of them are on one core.
        """
        candidates = self._partners
        self._partners = {cpu: [other for other in self.cpus if other != cpu] for cpu in self.cpus}
        self._alone = self._slowness_alone()
        pairs = list(itertools.combinations(self.cpus, 2))
        if all(self._shares(*pair, by_active=False) for pair in pairs):
            return dict.fromkeys(pairs, SHARES)
        self._partners = candidates
        self._alone = self._slowness_alone()
        return {}

    def _shares(self, cpu: int, other: int, by_active: bool) -> bool:
        """Return whether each of two CPUs clearly slows the other, as sharing a core would."""
        return all(
            self._score(this, that, SHARED_COST, by_active) > self._critical
            for this, that in ((cpu, other), (other, cpu))
        )

    def _apart(self, cpu: int, other: int) -> bool:
        """Return whether one of two CPUs is clearly not slowed by the other.

        Sharing a core would slow both, so one is enough.
        """
        return any(
            self._score(this, that, APART_COST, False) < -self._critical for this, that in ((cpu, other), (other, cpu))
        )

    def _score(self, cpu: int, other: int, cost: float, by_active: bool) -> float:
        alone = self._alone[cpu]
        return 0.0 if alone is None else self._shifted(cpu, other, cost * alone, self._samples(cpu, other, by_active))

    def _ratio(self, cpu: int, other: int) -> PaceRatio:
        alone = self._alone[cpu]
        if alone is None:
            return PaceRatio()
        strata = self._samples(cpu, other, False)

        def score(ratio: float) -> float:
            return self._shifted(cpu, other, alone / ratio - alone, strata)

        return PaceRatio(_crossing(score, 0.0), _crossing(score, -self._critical), _crossing(score, self._critical))

    def _shifted(self, cpu: int, other: int, shift: float, strata: _Strata) -> float:
        """Return by how much more than the shift one CPU is slower in the same round as the other,
        in the standard deviations of Hoeffding's bound.
        """
        same_round = self._same_round(cpu, other)
        total = squares = 0.0
        for expected, samples in strata:
            met = [bit & same_round for _slowness, bit in samples]
            scores = _scores(
                [slowness - shift if with_it else slowness for (slowness, _bit), with_it in zip(samples, met)]
            )
            total += expected * sum(scores) - sum(score for score, with_it in zip(scores, met) if with_it)
            squares += sum(score * score for score in scores)
        return 2 * total / math.sqrt(squares) if squares else 0.0

    def _same_round(self, cpu: int, other: int) -> int:
        return self._everything & ~(self._side[cpu] ^ self._side[other])

    def _candidates(self, cpu: int) -> "list[int]":
        """Return the CPUs that slow this one most clearly.

        They are selected one by one. Each is tested among rounds in which the same number of those selected before
        worked.
        """
        chosen: list[int] = []
        while len(chosen) < min(MAX_PARTNERS, len(self.cpus) - 1):
            planes, deviation = self._planes(cpu, [stratum for stratum, _expected in self._by_count(cpu, chosen, True)])
            scores = [
                (self._rough_score(planes, self._same_round(cpu, other) & self._valid[cpu]), other)
                for other in self.cpus
                if other != cpu and other not in chosen
            ]
            best, other = max(scores)
            if best <= CANDIDATE * deviation:
                break
            chosen.append(other)
        return chosen

    def _planes(self, cpu: int, strata: "t.Iterable[int]") -> "tuple[list[int], float]":
        """Return the scores without a shift as bit planes (bit sets, lowest bit first),
        and the standard deviation of their sum.
        """
        scored: list[tuple[int, int]] = []
        for stratum in strata:
            samples = [(slowness, bit) for slowness, bit in self._slowness[cpu] if bit & stratum]
            scores = _scores([slowness for slowness, _bit in samples])
            scored.extend(
                (round(_SCALE * (score + _MAX_SCORE)), bit) for score, (_slowness, bit) in zip(scores, samples)
            )
        planes = [sum(bit for score, bit in scored if score >> plane & 1) for plane in range(8)]
        return planes, math.sqrt(sum((score / _SCALE - _MAX_SCORE) ** 2 for score, _bit in scored)) / 2

    @staticmethod
    def _rough_score(planes: "list[int]", same_round: int) -> float:
        return (
            _MAX_SCORE * _count(same_round)
            - sum(_count(bits & same_round) << plane for plane, bits in enumerate(planes)) / _SCALE
        )

    def _samples(self, cpu: int, other: int, by_active: bool) -> _Strata:
        """Return the strata of the paired rounds in which the samples of both CPUs are valid,
        with the samples of the first CPU.
        """
        partners = tuple(partner for partner in self._partners[cpu] if partner != other)
        if (cpu, partners, by_active) not in self._strata:
            self._strata[cpu, partners, by_active] = [
                (expected, [sample for sample in self._slowness[cpu] if sample[1] & stratum])
                for stratum, expected in self._by_count(cpu, partners, by_active)
            ]
        valid = self._valid[other]
        strata = self._strata[cpu, partners, by_active]
        return (
            strata
            if valid == self._everything
            else [(expected, [sample for sample in samples if sample[1] & valid]) for expected, samples in strata]
        )

    def _by_count(self, cpu: int, partners: "t.Collection[int]", by_active: bool) -> "list[tuple[int, float]]":
        """Return the paired rounds stratified by the number of partners that worked in the same round as the CPU,
        zero first.

        Args:
            cpu: the CPU.
            partners: other CPUs.
            by_active: whether to stratify by the number of all active CPUs, too. (Without, each CPU was drawn
                independently.)

        Returns:
            (bit set, expected share in which any other CPU is in the same round as this one) of each stratum.
        """
        strata = [self._everything]
        for partner in partners:
            same_round = self._same_round(cpu, partner)
            strata = [stay & ~same_round | less & same_round for stay, less in zip([*strata, 0], [0, *strata])]
        others = len(self.cpus) - 1 - len(partners)
        if not by_active and len(self.cpus) <= MAX_PARTNERS + 1:
            return [(stratum, 0.5) for stratum in strata]
        return [
            (stratum & bits, (active - 1 - count) / max(others, 1))
            for count, stratum in enumerate(strata)
            for active, bits in self._active[cpu]
            if stratum & bits
        ]

    def _slowness_alone(self) -> "dict[int, float | None]":
        """Return the slowness of each CPU's fastest fifth, with as few active partners as there are samples for;
        None for a CPU without samples.
        """
        alone = {}
        for cpu in self.cpus:
            heaps = (
                sorted(slowness for slowness, bit in self._slowness[cpu] if bit & stratum)
                for stratum, _expected in self._by_count(cpu, self._partners[cpu], False)
            )
            alone[cpu] = next((heap[len(heap) // 5] for heap in heaps if heap), None)
        return alone


def groups(
    cpus: "t.Collection[int]", statuses: "t.Mapping[tuple[int, int], str]"
) -> "tuple[list[tuple[int, ...]], list[int]]":
    """Combine the statuses of pairs into cores.

    A core is claimed only if all pairs fit: no two of its CPUs are apart, and for each CPU outside at least one of its
    CPUs is apart from it.

    Args:
        cpus: the CPUs.
        statuses: as `PairTests.statuses` returns them.

    Returns:
        ``(cores, unclear)``: the CPUs of each core (which may be a single CPU), and the CPUs whose core is unclear.
    """
    parts = components(cpus, statuses)
    number = {cpu: index for index, part in enumerate(parts) for cpu in part}
    apart = {(number[first], number[other]) for (first, other), status in statuses.items() if status == APART}
    apart |= {(other, index) for index, other in apart}
    everything = set(range(len(parts)))
    clear = {
        index
        for index in everything
        if (index, index) not in apart and all((index, other) in apart for other in everything - {index})
    }
    return [tuple(parts[index]) for index in sorted(clear)], sorted(
        cpu for index in everything - clear for cpu in parts[index]
    )


def components(cpus: "t.Collection[int]", statuses: "t.Mapping[tuple[int, int], str]") -> "list[list[int]]":
    """Return the connected components of the CPUs, where each pair that shares a core is an edge.

    Args:
        cpus: the CPUs.
        statuses: as `PairTests.statuses` returns them.

    Returns:
        sorted lists of CPUs, ordered by first CPU.
    """
    head = {cpu: cpu for cpu in cpus}
    members = {cpu: [cpu] for cpu in cpus}
    for (first, other), status in statuses.items():
        keep, give = head[first], head[other]
        if status == SHARES and keep != give:
            members[keep] += members[give]
            head.update((cpu, keep) for cpu in members.pop(give))
    return sorted(sorted(part) for part in members.values())


def _bits(flags: "t.Iterable[int]") -> int:
    return sum(1 << index for index, flag in enumerate(flags) if flag)


def _by_value(values: "t.Iterable[int]") -> "list[tuple[int, int]]":
    """Return each value, the lowest first, with the bit set of its positions."""
    sets: dict[int, int] = {}
    for index, value in enumerate(values):
        sets[value] = sets.get(value, 0) | 1 << index
    return sorted(sets.items())


def _count(bits: int) -> int:
    return bin(bits).count("1")


def _scores(slowness: "list[float]") -> "list[float]":
    """Return the samples' scores minus their mean."""
    if not slowness:
        return []
    fast = max(sorted(slowness)[len(slowness) // 5], 1e-12)
    scores = [min(_MAX_SCORE, (fast / max(value, fast / 2)) ** 4) for value in slowness]
    mean = sum(scores) / len(scores)
    return [score - mean for score in scores]


def _crossing(function: "t.Callable[[float], float]", level: float) -> "float | None":
    """Return the ratio at which a rising function crosses a level, by bisection; None if it does not."""
    low, high = _RATIOS
    if not function(low) < level < function(high):
        return None
    for _step in range(20):
        middle = (low + high) / 2
        if function(middle) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2
