# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sibling cache: the probe's last result, saved for the facts.

A hypervisor may run a guest on other hardware threads after a migration or a restart, so a result is valid only for the
boot in which it was measured. A guest cannot detect a live migration, so the result includes the time of the
measurement.
"""

import math
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, state_file, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache

PATH = "var/lib/threadwise-smt/siblings.json"

_FILE = state_file.StateFile(PATH, "threadwise.smt/measured", mode=0o644)
_CPU_LISTS = ("cpus", "singles", "unclear")
# The facts contain all pairs.
_MAX_PAIRS = 8
_NUMBERS = ("rounds", "seconds", "confidence")


def save(fs: HostFs, result: "t.Mapping[str, object]") -> "dict[str, object]":
    """Save the result of the probe.

    Args:
        fs: the host's files.
        result: what `rounds.run` returned, with ``agrees_with_kernel`` added.

    Returns:
        the facts' ``measured``, as `load` returns it: the result and ``measured_at`` (UTC, ISO 8601).

    Raises:
        OSError: the cache could not be written.
    """
    measured = dict(result, measured_at=host_text.utc_now())
    _FILE.save(fs, {"key": _key(fs), "measured": measured})
    return measured


def load(fs: HostFs) -> "dict[str, object] | None":
    """Return the probe's last result on this machine since it booted, or None.

    A cache that is damaged, or writable by users other than root, is ignored; `fs.problems` says so.
    """
    try:
        return _FILE.load(fs, lambda document: _checked(document["measured"]) if document["key"] == _key(fs) else None)
    except state_file.StateFileError as error:
        fs.note(f"The sibling cache was ignored: {error}. Run the probe again.")
        return None


def disagreement(agrees: "bool | None", pairs: "t.Sequence[str]") -> "str | None":
    """Return a sentence for the user if the probe contradicts the kernel, else None.

    Args:
        agrees: the ``agrees_with_kernel`` of what was measured.
        pairs: its pairs.
    """
    if agrees is not False:
        return None
    shared = [cpulist.quoted(pair).strip("'") for pair in pairs[:_MAX_PAIRS]]
    if not shared:
        return "By measuring, no two CPUs share a core; the kernel says otherwise."
    more = f" (and {len(pairs) - len(shared)} more)" if len(pairs) > len(shared) else ""
    return f"By measuring, CPUs {' and '.join(shared)}{more} share a core; the kernel says otherwise."


def _key(fs: HostFs) -> "list[str]":
    return [topology_cache.machine_key(fs), state_file.boot_id(fs)]


def _checked(measured: t.Any) -> "dict[str, object]":
    """Return the fields that readers use, each checked for its type."""
    checked: dict[str, object] = {name: cpulist.render(cpulist.parse(measured[name])) for name in _CPU_LISTS}
    checked["pairs"] = [cpulist.render(cpulist.parse(pair)) for pair in measured["pairs"]]
    checked.update((name, _number(measured[name])) for name in _NUMBERS)
    if measured["agrees_with_kernel"] not in (True, False, None):
        raise ValueError("agrees_with_kernel is neither true nor false nor null")
    return dict(
        checked,
        agrees_with_kernel=measured["agrees_with_kernel"],
        ratios=[_ratio(ratio) for ratio in measured["ratios"]],
        measured_at=time.strftime(host_text.UTC_FORMAT, time.strptime(measured["measured_at"], host_text.UTC_FORMAT)),
    )


def _ratio(ratio: t.Any) -> "dict[str, object]":
    if ratio["result"] not in ("shares", "apart", None):
        raise ValueError("the result of a pair is neither shares nor apart")
    checked = {name: None if ratio[name] is None else _number(ratio[name]) for name in ("ratio", "low", "high")}
    return dict(checked, pair=cpulist.render(cpulist.parse(ratio["pair"])), result=ratio["result"])


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value
