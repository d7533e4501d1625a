# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combine the results of several boots of one host into one result with two arms, SMT on and SMT off.

A change that needs a reboot cannot be interleaved within seconds: whatever else differs between two boots (memory layout, running services,
temperature) lies between the two sides of each comparison. With one boot per arm this cannot be separated from the change, and the result is
``confounded``. With several boots the boot is the repeated unit: arms are compared by pairs of boots, one boot of each arm, and not sample by
sample. Placements are compared within a boot and keep their blocks.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.arms import SMT_OFF, SMT_ON, TITLES
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Result, cpus_of

# With fewer boots in each arm, other differences between two boots cannot be separated from the arm.
LEAST_BOOTS = 2
# The baseline first, with the state of SMT in each.
ARMS = {SMT_ON: "on", SMT_OFF: "off"}
# Parts of ``ansible_facts['smt']`` that must be restored: name in a reported difference -> path in the facts.
AS_BEFORE = {
    "smt/control": ("control",),
    "CPUs online": ("cpus", "online"),
    "the running kernel's arguments": ("boot", "running"),
    "the next boot's arguments": ("boot", "configured"),
}


class BootResult(t.NamedTuple):
    """The measurement of one boot.

    Attributes:
        number: number of the boot, from 1; boots 1 and 2 are the first pair.
        arm: ``smt_on`` or ``smt_off``.
        result: a document accepted by :func:`result_files.load`, in which nothing was switched.
    """

    number: int
    arm: str
    result: Result


def join(run: str, results: t.Sequence[BootResult], boots: int, before: dict[str, t.Any], after: dict[str, t.Any] | None, error: str | None = None) -> Result:
    """Combine the results of all boots of a host.

    Args:
        run: the run's name.
        results: the measured boots in order, at least one.
        boots: the requested number of boots per arm.
        before: ``ansible_facts['smt']`` before the first boot.
        after: the same facts after the last boot; None while the host is not restored.
        error: why the run ended early, or None.

    Returns:
        A result document.
    """
    first = results[0].result
    whole = next((one.result for one in results if one.arm == SMT_ON), first)
    failed = error or next((_error(one) for one in results if one.result["outcome"] != "completed"), None)
    done = len(results) == 2 * boots and after is not None
    samples = list(_samples(results))
    return {
        **{key: first.get(key) for key in ("schema", "schema_version", "host", "collection_version", "started")},
        "run": run,
        "finished": results[-1].result.get("finished"),
        "outcome": "failed" if failed else "completed" if done else "interrupted",
        "message": failed
        or (None if done else f"{len(results)} of {2 * boots} boots were measured, or the host is not yet booted with its original arguments"),
        "facts": whole["facts"],
        "environment": {**first["environment"], "busy": {"others": max((_others(one.result) for one in results), default=0.0)}},
        "arms": [{"name": name, "title": TITLES[name], "baseline": name == SMT_ON, "settings": {"smt": state}} for name, state in ARMS.items()],
        "arms_left_out": [],
        "plan": {
            **first["plan"],
            "boots": boots,
            "confounded": boots < LEAST_BOOTS,
            "stopped": "blocks",
            "blocks_done": len({sample["block"] for sample in samples}),
            "seconds_budget": sum(one.result["plan"].get("seconds_budget") or 0 for one in results),
            "placements": {one.arm: spots for one in results for spots in list((one.result["plan"].get("placements") or {}).values())[:1]},
            "order": "boots in the order A B, B A, ..., nothing switched within one",
        },
        "samples": samples,
        "observations": _observations(results),
        "skipped": [{**skip, "arm": one.arm} for one in results for skip in one.result.get("skipped") or []],
        "events": [event for one in results for event in _events(one)],
        "restored": None if after is None else proof(before, after),
    }


def _samples(results: t.Sequence[BootResult]) -> t.Iterator[dict[str, t.Any]]:
    """Yield all samples with their arm, boot and pair; blocks are numbered on from pair to pair."""
    begin = 0
    for pair, group in itertools.groupby(results, key=lambda one: (one.number - 1) // 2):
        both = list(group)
        for one in both:
            about = {"arm": one.arm, "boot": one.number, "pair": pair}
            yield from ({**sample, **about, "block": begin + sample["block"]} for sample in one.result["samples"])
        begin += 1 + max((sample["block"] for one in both for sample in one.result["samples"]), default=0)


def _observations(results: t.Sequence[BootResult]) -> list[dict[str, t.Any]]:
    """Return what the kernel said of vulnerabilities in the first boot of each arm."""
    first = {one.arm: one.result["facts"]["vulnerabilities"] for one in reversed(results)}
    return [{"arm": arm, "vulnerabilities": first[arm]} for arm in ARMS if first.get(arm)]


def _error(one: BootResult) -> str:
    return f"boot {one.number}: {one.result.get('message') or one.result['outcome']}"


def _events(one: BootResult) -> t.Iterator[dict[str, t.Any]]:
    environment = one.result["environment"]
    detail = f"boot {one.number}, {one.arm}: kernel {environment.get('kernel')}, {environment.get('cmdline')}"
    yield {"at": one.result.get("started"), "event": "boot", "detail": detail}
    yield from one.result.get("events") or []


def _others(result: Result) -> float:
    return (result["environment"].get("busy") or {}).get("others") or 0.0


def proof(before: dict[str, t.Any], after: dict[str, t.Any]) -> dict[str, t.Any]:
    """Compare a host's present state with its state before the run.

    Args:
        before: ``ansible_facts['smt']`` before the run.
        after: ``ansible_facts['smt']`` now.

    Returns:
        ``{ok, before, after, differences}``, the ``restored`` part of a result.
    """
    differences = [
        f"{name}: {_shown(before, path)} before, {_shown(after, path)} now" for name, path in AS_BEFORE.items() if _at(before, path) != _at(after, path)
    ]
    states = [{"control": facts["control"], "online": list(cpus_of(facts["cpus"]["online"]))} for facts in (before, after)]
    return {"ok": not differences, "before": states[0], "after": states[1], "differences": differences}


def _at(facts: dict[str, t.Any], path: tuple[str, ...]) -> t.Any:
    for key in path:
        facts = facts[key]
    return facts


def _shown(facts: dict[str, t.Any], path: tuple[str, ...]) -> str:
    value = _at(facts, path)
    return "unknown" if value is None else " ".join(value) or "none" if isinstance(value, list) else str(value)
