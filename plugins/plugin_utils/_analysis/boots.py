# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one host measured in several boots -> one result, as if its conditions had been switched.

A change that takes a reboot cannot be interleaved within seconds: what else differs between two boots (where memory lies, which services run, how
warm the machine is) lies between the sides of each comparison. With one boot a condition nothing tells it from the change, and the result is
``confounded``. With several the boot is what is repeated: conditions are compared pair by pair of boots, one in each condition, and not sample by
sample; placements, which are compared within a boot, keep their blocks.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import SMT_OFF, SMT_ON, Result, cpus_of

NAME = "smt_boot"
# What has to be as before, of ``ansible_facts['smt']``: how a difference calls it, and where it stands.
AS_BEFORE = {
    "smt/control": ("control",),
    "CPUs online": ("cpus", "online"),
    "the running kernel's arguments": ("boot", "running"),
    "the next boot's arguments": ("boot", "configured"),
}


class Leg(t.NamedTuple):
    """What was measured in one boot.

    Attributes:
        number: of the boot, from 1 on; 1 and 2 are the first pair
        condition: ``smt_on`` or ``smt_off``
        result: a document that :func:`result_files.load` has accepted, in which nothing was switched
    """

    number: int
    condition: str
    result: Result


def join(run: str, legs: t.Sequence[Leg], boots: int, before: dict[str, t.Any], after: dict[str, t.Any] | None, trouble: str | None = None) -> Result:
    """The result of a host over all of its boots.

    Args:
        run: the run's name
        legs: in the order measured, at least one
        boots: how many boots of each condition were asked for
        before: ``ansible_facts['smt']`` before the first boot
        after: the same after the last one, None while the host is not yet as before
        trouble: what ended it early, if anything did
    """
    first = legs[0].result
    whole = next((leg.result for leg in legs if leg.condition == SMT_ON), first)
    failed = trouble or next((_trouble(leg) for leg in legs if leg.result["outcome"] != "completed"), None)
    done = len(legs) == 2 * boots and after is not None
    samples = list(_samples(legs))
    return {
        **{key: first.get(key) for key in ("schema", "schema_version", "host", "collection_version", "started")},
        "run": run,
        "finished": legs[-1].result.get("finished"),
        "outcome": "failed" if failed else "completed" if done else "interrupted",
        "message": failed or (None if done else f"{len(legs)} of {2 * boots} boots were measured, or the host is not yet booted as before"),
        "facts": whole["facts"],
        "environment": {**first["environment"], "busy": {"others": max((_others(leg.result) for leg in legs), default=0.0)}},
        "change": {"name": NAME, "compared": True, "reason": None, "before": SMT_ON, "after": SMT_OFF, "confounded": boots < 2, "boots": boots},
        "plan": {
            **first["plan"],
            "stopped": "blocks",
            "blocks_done": len({sample["block"] for sample in samples}),
            "seconds_budget": sum(leg.result["plan"].get("seconds_budget") or 0 for leg in legs),
            "placements": {leg.condition: spots for leg in legs for spots in list((leg.result["plan"].get("placements") or {}).values())[:1]},
            "order": "boots in the order A B, B A, ..., nothing switched within one",
        },
        "samples": samples,
        "observations": [],
        "skipped": [{**skip, "condition": leg.condition} for leg in legs for skip in leg.result.get("skipped") or []],
        "events": [event for leg in legs for event in _events(leg)],
        "restored": None if after is None else proof(before, after),
    }


def _samples(legs: t.Sequence[Leg]) -> t.Iterator[dict[str, t.Any]]:
    """All samples with their condition, their boot and its pair; the blocks of a pair follow those of the one before."""
    begin = 0
    for pair, together in itertools.groupby(legs, key=lambda leg: (leg.number - 1) // 2):
        both = list(together)
        for leg in both:
            about = {"condition": leg.condition, "boot": leg.number, "pair": pair}
            yield from ({**sample, **about, "block": begin + sample["block"]} for sample in leg.result["samples"])
        begin += 1 + max((sample["block"] for leg in both for sample in leg.result["samples"]), default=0)


def _trouble(leg: Leg) -> str:
    return f"boot {leg.number}: {leg.result.get('message') or leg.result['outcome']}"


def _events(leg: Leg) -> t.Iterator[dict[str, t.Any]]:
    environment = leg.result["environment"]
    told = f"boot {leg.number}, {leg.condition}: kernel {environment.get('kernel')}, {environment.get('cmdline')}"
    yield {"at": leg.result.get("started"), "event": "boot", "detail": told}
    yield from leg.result.get("events") or []


def _others(result: Result) -> float:
    return (result["environment"].get("busy") or {}).get("others") or 0.0


def proof(before: dict[str, t.Any], after: dict[str, t.Any]) -> dict[str, t.Any]:
    """Hold a host as it is now against how it was found.

    Args:
        before: ``ansible_facts['smt']`` then
        after: ``ansible_facts['smt']`` now

    Returns:
        ``{ok, before, after, differences}``, as a result's ``restored`` has it
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
