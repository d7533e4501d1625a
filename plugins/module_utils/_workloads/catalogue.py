# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in workloads by name."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import registry
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import Workload, WorkloadError

BUILT_IN: "dict[str, Workload]" = {workload["name"]: workload for workloads in registry.WORKLOADS for workload in workloads}


def named(names: "t.Sequence[str]") -> "list[Workload]":
    """Return the declarations of the named workloads, in the given order.

    Raises:
        WorkloadError: a name is not the name of a built-in workload.
    """
    unknown = sorted(set(names) - set(BUILT_IN))
    if unknown:
        raise WorkloadError(f"there is no workload {', '.join(unknown)}: choose from {', '.join(sorted(BUILT_IN))}")
    return [BUILT_IN[name] for name in names]
