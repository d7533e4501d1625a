# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in workloads by name."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.built_in import registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    Workload,
    WorkloadError,
)

BUILT_IN: "dict[str, Workload]" = {
    workload["name"]: workload for workloads in registry.WORKLOADS for workload in workloads
}


def named(names: "t.Sequence[str]") -> "list[Workload]":
    """Return the declarations of the named workloads, in the given order.

    Raises:
        WorkloadError: a name is not the name of a built-in workload.
    """
    unknown = sorted(set(names) - set(BUILT_IN))
    if unknown:
        raise WorkloadError(f"there is no workload {', '.join(unknown)}: choose from {', '.join(sorted(BUILT_IN))}")
    return [BUILT_IN[name] for name in names]


def title(name: str, stated: str) -> str:
    """Return the title of a workload: this collection's own for a built-in one, else what its result states,
    which may be empty.
    """
    return BUILT_IN[name]["title"] if name in BUILT_IN else stated or name


def difference(stated: "t.Mapping[str, t.Any]") -> "str | None":
    """Return in what a result states a built-in workload otherwise than this collection declares it, or None.

    Only what its numbers mean counts: the primary metric, the unit, direction and aggregate of each metric, and what
    its parameter is. A release may add and drop metrics, and change commands, titles and values of a parameter. It
    never changes the meaning of a name: results of earlier releases are read, too.

    Args:
        stated: of the result, as ``declaration.described`` returns it.
    """
    own = BUILT_IN.get(stated["name"])
    if own is None:
        return None
    if stated["primary"] != own["metrics"][0]["name"]:
        return f"decides by {stated['primary']} instead of {own['metrics'][0]['name']}"
    declared: dict[str, t.Mapping[str, t.Any]] = {metric["name"]: metric for metric in own["metrics"]}
    for name in sorted(set(declared) & set(stated["metrics"])):
        for field in ("unit", "better", "aggregate"):
            if stated["metrics"][name][field] != declared[name][field]:
                return f"has {field} {stated['metrics'][name][field]} instead of {declared[name][field]} for {name}"
    parameter: t.Mapping[str, t.Any] = own["parameter"] or {}
    for field in ("name", "unit", "per_worker"):
        stated_value = (stated.get("parameter") or {}).get(field) or None
        if stated_value != (parameter.get(field) or None):
            return f"has a parameter with {field} {stated_value} instead of {parameter.get(field) or None}"
    return None
