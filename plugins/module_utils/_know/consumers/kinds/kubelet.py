# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet counts the online CPUs when it starts, and promises them to the scheduler until it ends (kubernetes 67500).

One whose CPU manager has the policy static keeps them in a file, and does not start where the host has others
(validateState in pkg/kubelet/cm/cpumanager/policy_static.go of Kubernetes, read at 1.33). The CPUs of pods are in the
same file, so that the node has to be drained before.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import programs
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds.base import (
    Consumer,
    Kind,
    Online,
    Process,
)


def _find(processes: "t.Sequence[Process]", online: Online) -> "list[Consumer]":
    consumers = []
    for process in processes:
        program = programs.Program(process.pid, process.name, process.arguments)
        state = programs.kubelet_state(process.host, program)
        if state is None:
            counted = len(online.at(process.started))
            # One that is down counts when it starts.
            if process.pid and counted != len(online.now):
                consumers.append(Consumer(process, "its node's capacity", counted, len(online.now)))
            continue
        path, text = state
        cpus, reserved = _cpus(text), programs.reserved_by(process.host, program)
        # With the option strict-cpu-reservation reserved CPUs are not in it.
        if online.now not in (cpus, cpus | reserved):
            removes = (path,) if text is not None else ()
            consumers.append(Consumer(process, "its CPU manager's state", len(cpus), len(online.now), removes))
    return consumers


def _cpus(text: "str | None") -> "frozenset[int]":
    """Return the CPUs of a state; none where it cannot be read."""
    try:
        document = host_text.parse_json(text or "{}")
        lists = [document["defaultCpuSet"]]
        lists += [cpus for pod in (document.get("entries") or {}).values() for cpus in pod.values()]
        return frozenset().union(*map(cpulist.parse_or_empty, lists))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return frozenset()


KIND = Kind(
    programs=("kubelet", *sorted(programs.KUBELETS - {"kubelet"})),
    find=_find,
    remedy="drain the node if its CPU manager is static, stop it, remove that state and start it; else restart it",
    actions=("restart",),
    # The state shows it, but not each kubelet has one.
    shows_number=False,
    settle_seconds=120.0,
    is_roots=True,
    # Of kubelet, k3s and microk8s.
    services=("kubelet.service", "k3s.service", "k3s-agent.service", "snap.microk8s.daemon-kubelite.service"),
)
