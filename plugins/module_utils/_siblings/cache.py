# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probe measured last, kept for the facts.

A hypervisor may give a guest other threads when it is moved or started again, so a measurement holds for the boot in which it was made; a move
between two hosts while the guest runs shows in nothing that a guest can read, so it carries its time.
"""

from __future__ import annotations

import json
import math
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache

PATH = "var/lib/threadwise-smt/measured.json"
SCHEMA = "threadwise.smt/measured"
SCHEMA_VERSION = 1

_BOOT_ID = "proc/sys/kernel/random/boot_id"
_CPU_LISTS = ("cpus", "singles", "unclear")
# Who needs all the pairs finds them in the facts.
_MOST_NAMED = 8
_NUMBERS = ("rounds", "seconds", "confidence")


def save(fs, result):
    """Keep what `probe.run` returned, with ``agrees_with_kernel``.

    Args:
        fs: `files.HostFs`.

    Returns:
        the facts' ``measured`` (dict), as `load` gives it back: result and ``measured_at`` (UTC, ISO 8601).

    Raises:
        OSError: when it cannot be written.
    """
    measured = dict(result, measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    fs.write(PATH, json.dumps({"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "key": _key(fs), "measured": measured}) + "\n")
    return measured


def load(fs):
    """What was measured on this machine since it was booted (dict), or None.

    A file that is damaged, or that others than root could have written, is not used; `fs.problems` says so.
    """
    text = fs.read(PATH)
    if text is None or not topology_cache.is_trusted(fs, PATH):
        return None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA or data["schema_version"] != SCHEMA_VERSION or data["key"] != _key(fs):
            return None
        return _checked(data["measured"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        fs.note(f"What the probe measured, {fs.path(PATH)}, was left out: it is damaged ({cpulist.quoted(str(error))}). Measure again.")
        return None


def disagreement(measured):
    """What is to be said when measuring tells something else than the kernel.

    Args:
        measured: the facts' ``measured``, perhaps from a host that is not to be trusted.

    Returns:
        a sentence, or None when they agree or nothing is known.
    """
    if not isinstance(measured, dict) or measured.get("agrees_with_kernel") is not False:
        return None
    pairs = measured.get("pairs")
    shared = [cpulist.quoted(pair).strip("'") for pair in pairs[:_MOST_NAMED] if isinstance(pair, str)] if isinstance(pairs, list) else []
    if not shared:
        return "By measuring, no two CPUs share a core; the kernel says otherwise."
    more = f" (and {len(pairs) - len(shared)} more)" if len(pairs) > len(shared) else ""
    return f"By measuring, CPUs {' and '.join(shared)}{more} share a core; the kernel says otherwise."


def _key(fs):
    return [topology_cache.machine_key(fs), (fs.read(_BOOT_ID) or "").strip()]


def _checked(measured):
    """The parts that readers count on, each of the kind it should be."""
    checked = {name: cpulist.render(cpulist.parse(measured[name])) for name in _CPU_LISTS}
    checked["pairs"] = [cpulist.render(cpulist.parse(pair)) for pair in measured["pairs"]]
    checked.update((name, _number(measured[name])) for name in _NUMBERS)
    if measured["agrees_with_kernel"] not in (True, False, None):
        raise ValueError("agrees_with_kernel is neither true nor false nor null")
    return dict(
        checked,
        agrees_with_kernel=measured["agrees_with_kernel"],
        ratios=[_ratio(one) for one in measured["ratios"]],
        measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.strptime(measured["measured_at"], "%Y-%m-%dT%H:%M:%SZ")),
    )


def _ratio(one):
    if one["verdict"] not in ("shares", "apart", None):
        raise ValueError("a pair has another verdict than shares and apart")
    checked = {name: None if one[name] is None else _number(one[name]) for name in ("ratio", "low", "high")}
    return dict(checked, pair=cpulist.render(cpulist.parse(one["pair"])), verdict=one["verdict"])


def _number(value):
    if not math.isfinite(value):
        raise ValueError("a number in it is not finite")
    return value
