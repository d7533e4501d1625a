# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a whole machine does, by what it has and costs: work per core, per CPU, per nominal GHz,
per licence and per unit of money, in each arm.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import Costs, HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import costs, measures, recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level

SECONDS_AN_HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The work of a whole machine in one arm. What cannot be known is None.

    Attributes:
        workload: name of the workload.
        title: of the workload.
        unit: of the rate.
        arm: name of the arm.
        arm_title: of the arm.
        rate: with a worker on every online thread; of a workload with a parameter, the highest rate.
        low: lower end of the rate's interval.
        high: upper end of it.
        cores: number of cores with an online thread.
        cpus: number of online logical CPUs that work.
        per_core: rate by core.
        per_cpu: rate by logical CPU.
        per_ghz: rate by nominal GHz of a CPU.
        per_licence: rate by licence, as ``smt_eval_licence_per`` counts them.
        per_money: work for one unit of money, by ``smt_eval_price_per_hour``; only of a rate, which is work by time.
    """

    workload: str
    title: str
    unit: str
    arm: str
    arm_title: str
    rate: float
    low: float | None
    high: float | None
    cores: int | None
    cpus: int | None
    per_core: float | None
    per_cpu: float | None
    per_ghz: float | None
    per_licence: float | None
    per_money: float | None


def capacities(result: HostResult, levels: t.Iterable[Level]) -> list[Capacity]:
    """Return the capacity of a host for each workload whose primary metric adds up over its workers, in each arm.

    Args:
        result: from :func:`result_files.load`.
        levels: from :func:`comparisons.levels`.
    """
    best: dict[tuple[str, str], Level] = {}
    for level in levels:
        if level.primary and level.placement == placements.ALL_THREADS and level.value is not None:
            key = (level.workload, level.arm)
            best[key] = max(level, best.get(key, level), key=lambda candidate: candidate.value or 0.0)
    return [made for level in best.values() if (made := _capacity(result, level))]


def _capacity(result: HostResult, level: Level) -> Capacity | None:
    measure = measures.describe_workload(result, level.workload)
    if not measure.adds_up:
        return None
    used = _cpus(result, level.arm)
    cores = len([core for core in result.facts.core_cpus if used.intersection(core)]) or None
    cpus = len(used) or None
    paid = result.costs or Costs()
    licences = {"core": cores, "thread": cpus, "host": 1}.get(paid.licence_per or "")
    price, nominal, by_time = paid.price_per_hour, result.environment.nominal_mhz, costs.rate_of(measure.unit)
    rate = level.value or 0.0

    def by(amount: float | None) -> float | None:
        return rate / amount if amount and amount > 0 else None

    return Capacity(
        workload=level.workload,
        title=measure.title,
        unit=measure.unit,
        arm=level.arm,
        arm_title=level.arm_title,
        rate=rate,
        low=level.low,
        high=level.high,
        cores=cores,
        cpus=cpus,
        per_core=by(cores),
        per_cpu=by(cpus),
        per_ghz=by(nominal and nominal / 1000),
        per_licence=by(licences),
        per_money=by(price and by_time and price * by_time[1] / SECONDS_AN_HOUR),
    )


def _cpus(result: HostResult, arm: str) -> set[int]:
    """Return the CPUs of the workers that keep every online thread busy in an arm."""
    spot = (result.plan.placements or {}).get(arm, {}).get(placements.ALL_THREADS)
    return {cpu for cpus in (spot and spot.workers) or () for cpu in recorded.cpus_of(cpus)}
