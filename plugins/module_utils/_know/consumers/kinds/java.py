# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JVM sizes its garbage collector, its compiler and its common pool by the CPUs that it may run on when it starts
(os::initial_active_processor_count in HotSpot), or by the CPU quota of its cgroup where that is less
(-XX:+UseContainerSupport), unless it is given a number: in its arguments, or in a variable of its environment.
"""

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds.base import (
    Consumer,
    Kind,
    Online,
    Process,
    of_cpus,
)

_NUMBER = "-XX:ActiveProcessorCount="
_NO_QUOTA = "-XX:-UseContainerSupport"
# Of the launcher (JDK_JAVA_OPTIONS, from 9 on) and of the JVM.
_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def _find(processes: "t.Sequence[Process]", online: Online) -> "list[Consumer]":
    consumers = []
    for process in processes:
        variables = process.variables(_VARIABLES)
        if variables is None:
            continue
        options = [*process.arguments, *(option for value in variables.values() for option in value.split())]
        if not any(option.startswith(_NUMBER) for option in options):
            quota = None if _NO_QUOTA in options else process.quota
            most = None if quota is None else max(1, math.ceil(quota))
            consumers += of_cpus(process, online, "a JVM with its garbage collector and pools", most)
    return consumers


KIND = Kind(
    programs=("java",),
    find=_find,
    remedy="restart it",
    actions=("restart",),
    shows_number=False,
)
