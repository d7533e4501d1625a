# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the rounds of a probe to the groups of CPUs that share a core. Knows nothing of processes and files.

Each round lets a random half of the CPUs work, the next round the other half; such two rounds are a *twin*. A twin gives one slowness (CPU seconds
for a unit of work) of each CPU, and says of each pair of CPUs whether they worked together or apart.

The test is one of randomization (Fisher, "The Design of Experiments", 1935): who works with whom is drawn anew for each twin and depends on nothing
else, so noise of any kind and of any length cannot favour a pair, other than by the chance of the draw. A sample gets a score between 0 and 2, and the
statistic is the sum of the scores, each times how much more together the pair was than the draw made likely. By Hoeffding's inequality ("Probability
Inequalities for Sums of Bounded Random Variables", 1963) the chance that it exceeds z of its standard deviations is at most exp(-z**2 / 2), whatever
the scores are and however few the twins: nothing is assumed of the noise. (The shift to test for and the other partners, see below, are estimated
from the same samples; for these two the bound is an approximation, and the distance between 0 and SHARED_COST is the reserve.)

The score is the fourth power of the pace, relative to the fastest fifth. What disturbs a CPU makes it slower, never faster, so on a noisy host the
fastest samples are the true ones: in a guest that got a quarter of its time they were within 3 % of each other while the median was twice as much.

Cores can have more than two threads. Then a CPU's slowness depends on several others, and the comparison is made among twins with the same number of
its other candidate partners at work. Slowness rather than pace is shifted for a test, because each further thread adds about the same to it, be it
on the execution units or by turns on one CPU.
"""

from __future__ import annotations

import itertools
import math

SHARES = "shares"
APART = "apart"

# A partner makes a CPU slower by at least the one share when they share a core, and by at most the other when they do not; between them nothing is
# claimed. They are paces of 83 and 87 %. Two virtual CPUs that take turns on one thread fall to 50 %, siblings that compute to something in between.
SHARED_COST = 0.20
APART_COST = 0.15
# The chance that any of a host's pairs is claimed wrongly, over all pairs and all looks.
ALPHA = 0.001
# SMT8 is the most there is (POWER).
MOST_PARTNERS = 7
# The score from which on a CPU is a candidate. A wrong one costs sharpness and claims nothing.
CANDIDATE = 3.2
# Scores as whole numbers, for sums over bit sets.
_SCALE = 32
_MOST = 2.0
_RATIOS = (0.1, 2.0)


def critical_value(count, look):
    """What a score has to reach so that none of the pairs of `count` CPUs is claimed wrongly with the chance 1 - ALPHA (float, standard deviations).

    The chance of error is parted among the pairs, their two ends, and the looks at them: 1/2 + 1/6 + 1/12 + ... = 1.
    """
    return math.sqrt(2 * math.log(look * (look + 1) * count * (count - 1) / ALPHA))


class Twin:
    """Two rounds in which each CPU worked once.

    Attributes:
        side: {CPU: 0 or 1}: the round in which it worked.
        slowness: {CPU: CPU seconds for a unit of work (float > 0), or None where it did not work as long as it should}.
    """

    def __init__(self, side, slowness):
        self.side = side
        self.slowness = slowness


class Evidence:
    """What a list of twins says about each pair of CPUs.

    Args:
        cpus: the CPU numbers (iterable of int), two or more.
        twins: list of `Twin`, at least one.
        look: how many times the evidence has been looked at, this time included (int, from 1): the chance of a wrong claim is spread over the looks.
    """

    def __init__(self, cpus, twins, look=1):
        self.cpus = tuple(sorted(cpus))
        self._critical = critical_value(len(self.cpus), look)
        self._everything = (1 << len(twins)) - 1
        self._side = {cpu: _bits(twin.side[cpu] for twin in twins) for cpu in self.cpus}
        self._valid = {cpu: _bits(twin.slowness[cpu] is not None for twin in twins) for cpu in self.cpus}
        self._slowness = {cpu: [(twin.slowness[cpu], 1 << index) for index, twin in enumerate(twins) if twin.slowness[cpu] is not None] for cpu in self.cpus}
        self._crowd = {cpu: _by_value(sum(side == twin.side[cpu] for side in twin.side.values()) for twin in twins) for cpu in self.cpus}
        self._parted = {}
        self._partners = {cpu: self._candidates(cpu) for cpu in self.cpus}
        self._alone = self._slowness_alone()

    def verdicts(self):
        """What is clear about the pairs.

        Not each pair is looked at: when a CPU of one core is apart from a CPU of another, so are the others of both.

        Returns:
            {(lower CPU, higher CPU): SHARES or APART}.
        """
        known = {pair: SHARES for pair in self._candidate_pairs() if self._shares(*pair, in_crowd=True)}
        if not known and len(self.cpus) <= MOST_PARTNERS + 1:
            known = self._whole()
        parts = components(self.cpus, known)
        for one, other in itertools.combinations(parts, 2):
            pair = next((tuple(sorted(pair)) for pair in itertools.product(one, other) if self._apart(*pair)), None)
            if pair:
                known[pair] = APART
        known.update({pair: APART for part in parts for pair in itertools.combinations(part, 2) if self._apart(*pair)})
        return known

    def ratio(self, one, other):
        """The pace of two CPUs that work together, as a share of their pace apart.

        Returns:
            ``(ratio, low, high)``: the ratio at which the test is in balance, and the bounds beyond which it rejects; where the two ends of the pair
                differ, the wider bounds. Each is None where the twins do not tell.
        """
        ends = [end for end in map(self._ratio, (one, other), (other, one)) if end[0] is not None]
        if not ends:
            return None, None, None
        middles, lows, highs = zip(*ends)
        return sum(middles) / len(middles), None if None in lows else min(lows), None if None in highs else max(highs)

    def is_candidate(self, one, other):
        """Whether one of two CPUs seems to slow the other (bool): evidence enough to look at the pair, not to claim it."""
        return other in self._partners[one] or one in self._partners[other]

    def _candidate_pairs(self):
        return [(cpu, other) for cpu in self.cpus for other in sorted(self._partners[cpu]) if cpu < other and cpu in self._partners[other]]

    def _whole(self):
        """All pairs as sharing, when all CPUs slow each other; else nothing.

        Only here twins with different numbers of CPUs at work are compared, because where all CPUs are one core the number at work is what slows them.
        """
        seeming = self._partners
        self._partners = {cpu: [other for other in self.cpus if other != cpu] for cpu in self.cpus}
        self._alone = self._slowness_alone()
        pairs = list(itertools.combinations(self.cpus, 2))
        if all(self._shares(*pair, in_crowd=False) for pair in pairs):
            return dict.fromkeys(pairs, SHARES)
        self._partners = seeming
        self._alone = self._slowness_alone()
        return {}

    def _shares(self, one, other, in_crowd):
        """Sharing slows both, so both have to show it."""
        return all(self._score(this, that, SHARED_COST, in_crowd) > self._critical for this, that in ((one, other), (other, one)))

    def _apart(self, one, other):
        """Sharing would slow both, so it is enough when one is clearly not slowed."""
        return any(self._score(this, that, APART_COST, False) < -self._critical for this, that in ((one, other), (other, one)))

    def _score(self, one, other, cost, in_crowd):
        return 0.0 if self._alone[one] is None else self._shifted(one, other, cost * self._alone[one], self._samples(one, other, in_crowd))

    def _ratio(self, one, other):
        alone = self._alone[one]
        if alone is None:
            return None, None, None
        strata = self._samples(one, other, False)
        return tuple(
            _crossing(lambda ratio: self._shifted(one, other, alone / ratio - alone, strata), level) for level in (0.0, -self._critical, self._critical)
        )

    def _shifted(self, one, other, shift, strata):
        """How much slower one is with the other than by the shift: in the standard deviations of Hoeffding's bound (float), above 0 for slower."""
        together = self._together(one, other)
        total = squares = 0.0
        for likely, samples in strata:
            met = [bit & together for _slowness, bit in samples]
            scores = _scores([slowness - shift if with_it else slowness for (slowness, _bit), with_it in zip(samples, met)])
            total += likely * sum(scores) - sum(score for score, with_it in zip(scores, met) if with_it)
            squares += sum(score * score for score in scores)
        return 2 * total / math.sqrt(squares) if squares else 0.0

    def _together(self, one, other):
        return self._everything & ~(self._side[one] ^ self._side[other])

    def _candidates(self, cpu):
        """The CPUs that slow this one most evidently, one after the other, each seen among twins with as many of those before it at work."""
        chosen = []
        while len(chosen) < min(MOST_PARTNERS, len(self.cpus) - 1):
            planes, deviation = self._planes(cpu, [stratum for stratum, _likely in self._by_count(cpu, chosen, True)])
            scores = [
                (self._rough_score(planes, self._together(cpu, other) & self._valid[cpu]), other) for other in self.cpus if other != cpu and other not in chosen
            ]
            best, other = max(scores)
            if best <= CANDIDATE * deviation:
                break
            chosen.append(other)
        return chosen

    def _planes(self, cpu, strata):
        """Scores without a shift as bit planes, lowest bit first (list of bit sets), and the deviation of their sum (float)."""
        whole = []
        for stratum in strata:
            samples = [(slowness, bit) for slowness, bit in self._slowness[cpu] if bit & stratum]
            whole.extend((round(_SCALE * (score + _MOST)), bit) for score, (_slowness, bit) in zip(_scores([slowness for slowness, _bit in samples]), samples))
        planes = [sum(bit for score, bit in whole if score >> plane & 1) for plane in range(8)]
        return planes, math.sqrt(sum((score / _SCALE - _MOST) ** 2 for score, _bit in whole)) / 2

    @staticmethod
    def _rough_score(planes, together):
        return _MOST * _count(together) - sum(_count(bits & together) << plane for plane, bits in enumerate(planes)) / _SCALE

    def _samples(self, one, other, in_crowd):
        """Where both worked as they should: list of (how likely they were together, list of (slowness of the one, bit of the twin)), one a stratum."""
        partners = tuple(cpu for cpu in self._partners[one] if cpu != other)
        if (one, partners, in_crowd) not in self._parted:
            self._parted[one, partners, in_crowd] = [
                (likely, [sample for sample in self._slowness[one] if sample[1] & stratum]) for stratum, likely in self._by_count(one, partners, in_crowd)
            ]
        valid = self._valid[other]
        parted = self._parted[one, partners, in_crowd]
        return parted if valid == self._everything else [(likely, [sample for sample in samples if sample[1] & valid]) for likely, samples in parted]

    def _by_count(self, cpu, partners, in_crowd):
        """The twins parted by how many of the partners worked together with the CPU, none first.

        Args:
            in_crowd: whether to part them by the number of all CPUs at work, too. (Where not, each CPU was drawn by itself.)

        Returns:
            list of (bit set, how likely it is there that any other CPU worked together with this one).
        """
        strata = [self._everything]
        for partner in partners:
            together = self._together(cpu, partner)
            strata = [stay & ~together | less & together for stay, less in zip([*strata, 0], [0, *strata])]
        others = len(self.cpus) - 1 - len(partners)
        if not in_crowd and len(self.cpus) <= MOST_PARTNERS + 1:
            return [(stratum, 0.5) for stratum in strata]
        return [
            (stratum & bits, (crowd - 1 - count) / max(others, 1)) for count, stratum in enumerate(strata) for crowd, bits in self._crowd[cpu] if stratum & bits
        ]

    def _slowness_alone(self):
        """{CPU: slowness of the fastest fifth with as few partners at work as there are twins for; None without any sample}."""
        alone = {}
        for cpu in self.cpus:
            heaps = (
                sorted(slowness for slowness, bit in self._slowness[cpu] if bit & stratum)
                for stratum, _likely in self._by_count(cpu, self._partners[cpu], False)
            )
            alone[cpu] = next((heap[len(heap) // 5] for heap in heaps if heap), None)
        return alone


def groups(cpus, verdicts):
    """Put the verdicts on pairs together.

    A core is claimed only when everything fits: no two CPUs of it are apart, and towards each CPU outside one of its CPUs is.

    Args:
        cpus: iterable of int.
        verdicts: as from `Evidence.verdicts`.

    Returns:
        ``(cores, unclear)``: a list of tuples of CPUs, one a core (also of one CPU), and a list of CPUs whose core is not clear.
    """
    parts = components(cpus, verdicts)
    number = {cpu: index for index, part in enumerate(parts) for cpu in part}
    parted = {(number[one], number[other]) for (one, other), verdict in verdicts.items() if verdict == APART}
    parted |= {(other, one) for one, other in parted}
    everything = set(range(len(parts)))
    clear = {index for index in everything if (index, index) not in parted and all((index, other) in parted for other in everything - {index})}
    return [tuple(parts[index]) for index in sorted(clear)], sorted(cpu for index in everything - clear for cpu in parts[index])


def components(cpus, verdicts):
    """The CPUs put together along the pairs that share: list of sorted lists, by first CPU."""
    head = {cpu: cpu for cpu in cpus}
    members = {cpu: [cpu] for cpu in cpus}
    for (one, other), verdict in verdicts.items():
        keep, give = head[one], head[other]
        if verdict == SHARES and keep != give:
            members[keep] += members[give]
            head.update((cpu, keep) for cpu in members.pop(give))
    return sorted(sorted(part) for part in members.values())


def _bits(flags):
    return sum(1 << index for index, flag in enumerate(flags) if flag)


def _by_value(values):
    """(value, bit set of the places that hold it), the lowest first."""
    sets = {}
    for index, value in enumerate(values):
        sets[value] = sets.get(value, 0) | 1 << index
    return sorted(sets.items())


def _count(bits):
    return bin(bits).count("1")


def _scores(slowness):
    """The samples' scores, less their mean (list of float)."""
    if not slowness:
        return []
    fast = max(sorted(slowness)[len(slowness) // 5], 1e-12)
    scores = [min(_MOST, (fast / max(value, fast / 2)) ** 4) for value in slowness]
    mean = sum(scores) / len(scores)
    return [score - mean for score in scores]


def _crossing(function, level):
    """Where a rising function of the ratio crosses a level (float), by bisection; None when it does not."""
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
