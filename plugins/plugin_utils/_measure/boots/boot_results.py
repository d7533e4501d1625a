# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combine the results of several boots of one host into one result with all its arms.

A change that needs a reboot cannot be interleaved within seconds: whatever else differs between two boots (memory
layout, running services, temperature) lies between the two sides of each comparison. With one boot per arm this cannot
be separated from the change, and the result is ``confounded``. With several boots the boot is the repeated unit: booted
arms are compared by rounds of boots, one boot of each arm, and not sample by sample. Arms that were switched at run
time within the boots of the baseline, and placements, are compared within a boot and keep their blocks.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.arms import SMT_ON
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    Arm,
    ArmLeftOut,
    Busy,
    Event,
    HostResult,
    Sample,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.boot_plan import BootPlan

# With fewer boots in each arm, other differences between two boots cannot be separated from the arm.
MIN_BOOTS = 2
# Facts that must be restored: name in a reported difference -> what reads it.
AS_BEFORE: dict[str, t.Callable[[Facts], str | tuple[str, ...] | None]] = {
    "smt/control": lambda facts: facts.control,
    "CPUs online": lambda facts: facts.cpus.online,
    "the running kernel's arguments": lambda facts: facts.boot.running,
    "the next boot's arguments": lambda facts: facts.boot.configured,
}


class BootResult(t.NamedTuple):
    """The measurement of one boot.

    Attributes:
        number: number of the boot, from 1.
        arm: the arm that was booted.
        result: what was measured. Its first arm is the booted one; the others were switched at run time.
    """

    number: int
    arm: str
    result: HostResult

    def named(self, arm: str | None) -> str:
        """Return the name of one of the boot's arms in the combined result; without a name that of the booted arm."""
        return self.arm if arm in (None, self.result.arms[0].name) else str(arm)


def join(
    run: str,
    results: t.Sequence[BootResult],
    boot_plan: BootPlan,
    before: Facts,
    after: Facts | None,
    error: str | None = None,
    mitigations: t.Sequence[list[str]] = (),
) -> dict[str, t.Any]:
    """Combine the results of all boots of a host.

    Args:
        run: the run's name.
        results: the measured boots in order, at least one.
        boot_plan: the boots that were planned.
        before: the host's facts before the first boot.
        after: the same after the last boot; None while the host is not restored.
        error: why the run ended early, or None.
        mitigations: the arguments ``mitigations`` of the running kernel before the first boot and after the last one,
            which the facts do not have.

    Returns:
        A result document.
    """
    first = results[0].result
    whole = next((boot.result for boot in results if boot.arm == SMT_ON), None)
    failed = error or next((_error(boot) for boot in results if boot.result.outcome != "completed"), None)
    planned = len(boot_plan.order)
    done = len(results) == planned and after is not None
    samples = list(_samples(results, len(boot_plan.booted)))
    arms, left_out = _arms(results, boot_plan)
    document = {
        **{key: getattr(first, key) for key in ("schema", "schema_version", "host", "collection_version", "started")},
        "run": run,
        "finished": results[-1].result.finished,
        "outcome": "failed" if failed else "completed" if done else "interrupted",
        "message": (
            failed
            or (
                None
                if done
                else (
                    f"{len(results)} of {planned} boots were measured, or the host is not yet booted with its original"
                    " arguments"
                )
            )
        ),
        "facts": whole.facts if whole else before,
        "environment": parts.changed(
            first.environment, busy=Busy(others=max(_others(boot.result) for boot in results))
        ),
        "arms": arms,
        "arms_left_out": left_out,
        "plan": parts.changed(
            first.plan,
            boots=boot_plan.boots,
            booted=[arm.name for arm in boot_plan.booted],
            confounded=boot_plan.boots < MIN_BOOTS,
            stopped="blocks",
            blocks_done=len({sample.block for sample in samples}),
            seconds_budget=sum(boot.result.plan.seconds_budget or 0 for boot in results),
            placements={
                boot.named(arm): spots for boot in results for arm, spots in (boot.result.plan.placements or {}).items()
            },
            order=_order(boot_plan),
        ),
        "samples": samples,
        "observations": _observations(results),
        "skipped": [parts.changed(skip, arm=boot.named(skip.arm)) for boot in results for skip in boot.result.skipped],
        "events": [event for boot in results for event in _events(boot)],
        "restored": None if after is None else proof(before, after, mitigations),
    }
    return t.cast("dict[str, t.Any]", parts.plain(document))


def _arms(results: t.Sequence[BootResult], boot_plan: BootPlan) -> tuple[list[Arm], list[ArmLeftOut]]:
    """Return the arms of all boots, the baseline first, and those that were not measured."""
    of_baseline = [boot.result for boot in results if boot.arm == boot_plan.booted[0].name]
    described = {arm.name: arm for result in of_baseline for arm in result.arms[1:]}
    described |= {
        arm.name: arm for arm in boot_plan.arms if any(arm.name == booted.name for booted in boot_plan.booted)
    }
    arms = [described[name] for name in boot_plan.asked if name in described]
    refused = {
        arm.name: arm
        for result in of_baseline
        for arm in result.arms_left_out
        if arm.name not in described and arm.name in boot_plan.asked
    }
    return arms, [*boot_plan.left_out, *refused.values()]


def _order(boot_plan: BootPlan) -> str:
    within = (
        f"; {', '.join(boot_plan.within)} in balanced blocks within each boot of {boot_plan.booted[0].name}"
        if boot_plan.within[1:]
        else ""
    )
    return f"boots in balanced rounds ({', '.join(boot_plan.order)}){within}"


def _samples(results: t.Sequence[BootResult], booted: int) -> t.Iterator[Sample]:
    """Yield all samples with their arm, boot and round of boots; blocks are numbered on from round to round."""
    begin = 0
    for pair, group in itertools.groupby(results, key=lambda boot: (boot.number - 1) // booted):
        boots = list(group)
        for boot in boots:
            for sample in boot.result.samples:
                arm, block = boot.named(sample.arm), begin + sample.block
                yield parts.changed(sample, arm=arm, boot=boot.number, pair=pair, block=block)
        begin += 1 + max((sample.block for boot in boots for sample in boot.result.samples), default=0)


def _observations(results: t.Sequence[BootResult]) -> list[dict[str, t.Any]]:
    """Return what the kernel showed in the first boot of each arm, and what was recorded in the arms within it."""
    observations: dict[str, dict[str, t.Any]] = {}
    for boot in results:
        facts = boot.result.facts
        booted = {
            "arm": boot.arm,
            "cmdline": boot.result.environment.cmdline,
            "smt": {"control": facts.control, "active": facts.active, "online": facts.cpus.online},
            "vulnerabilities": parts.plain(facts.vulnerabilities),
        }
        for observed in [
            *(parts.plain(parts.changed(seen, arm=boot.named(seen.arm))) for seen in boot.result.observations or ()),
            booted,
        ]:
            # Nothing is taken that was known before, as from an earlier boot.
            before = observations.get(observed["arm"], {})
            observations[observed["arm"]] = {
                **observed,
                **{name: value for name, value in before.items() if name not in observed or value not in (None, {})},
            }
    return list(observations.values())


def _error(boot: BootResult) -> str:
    return f"boot {boot.number}: {boot.result.message or boot.result.outcome}"


def _events(boot: BootResult) -> t.Iterator[Event]:
    environment = boot.result.environment
    detail = f"boot {boot.number}, {boot.arm}: kernel {environment.kernel}, {environment.cmdline}"
    yield Event(at=boot.result.started, event="boot", detail=detail)
    yield from boot.result.events


def _others(result: HostResult) -> float:
    return (result.environment.busy and result.environment.busy.others) or 0.0


def proof(before: Facts, after: Facts, mitigations: t.Sequence[list[str]] = ()) -> dict[str, t.Any]:
    """Compare a host's present state with its state before the run.

    Args:
        before: the host's facts before the run.
        after: its facts now.
        mitigations: as for :func:`join`.

    Returns:
        ``{ok, before, after, differences}``, the ``restored`` part of a result.
    """
    differences = [
        f"{name}: {_shown(read(before))} before, {_shown(read(after))} now"
        for name, read in AS_BEFORE.items()
        if read(before) != read(after)
    ]
    if len(mitigations) > 1 and mitigations[0] != mitigations[-1]:
        texts = [" ".join(arguments) or "none" for arguments in mitigations]
        differences.append(f"the running kernel's mitigations: {texts[0]} before, {texts[-1]} now")
    states = [{"control": facts.control, "online": list(facts.topology.online)} for facts in (before, after)]
    return {"ok": not differences, "before": states[0], "after": states[1], "differences": differences}


def _shown(value: str | tuple[str, ...] | None) -> str:
    return "unknown" if value is None else " ".join(value) or "none" if isinstance(value, tuple) else value
