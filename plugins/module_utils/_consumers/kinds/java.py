# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JVM sizes its garbage collector, its compiler and its common pool by the CPUs that it may run on when it starts
(os::initial_active_processor_count in HotSpot), or by the CPU quota of its cgroup where that is less
(-XX:+UseContainerSupport), unless it is given a number.
"""

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._consumers.kinds.base import (
    Change,
    Consumer,
    Kind,
    Process,
    of_cpus,
)

_NUMBER = "-XX:ActiveProcessorCount="


def _find(processes: "t.Sequence[Process]", change: Change) -> "list[Consumer]":
    return [
        found
        for one in processes
        if not any(argument.startswith(_NUMBER) for argument in one.arguments)
        for found in of_cpus(
            one,
            change,
            "a JVM with its garbage collector and pools",
            None if one.quota is None else max(1, math.ceil(one.quota)),
        )
    ]


KIND = Kind(program="java", find=_find, remedy="restart it")
