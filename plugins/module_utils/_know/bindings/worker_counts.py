# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that run as many processes or threads as there were CPUs: they counted the CPUs when they started,
and do not count again.

Most servers do so: nginx with ``worker_processes auto``, Go's runtime (GOMAXPROCS), thread pools of the JVM.
"""

import collections
import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict

# With fewer CPUs services would be named that have two processes for other reasons, such as sshd.
MIN_CPUS = 4
MAX_FOUND = 100
_LONGEST_NAME = 64
_UNIT = re.compile(r"/([^/\s]{1,255}\.service)(?:/|$)", re.MULTILINE)
_NAME = re.compile(r"^Name:\s*(.*)", re.MULTILINE)
_PARENT = re.compile(r"^PPid:\s*([0-9]{1,10})", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s*([0-9]{1,10})", re.MULTILINE)


class Workers(TypedDict):
    """Processes or threads of a service, as many as CPUs.

    Attributes:
        unit: the systemd unit.
        name: of the processes, or of the one process whose threads they are.
        kind: ``processes`` or ``threads``.
    """

    unit: str
    name: str
    kind: str


def of_services(host: kernel_files.KernelFiles, cpus: int) -> "list[Workers]":
    """Return the processes with one parent, and the processes with threads, of which a service has as many as CPUs.

    Args:
        host: the host.
        cpus: the number of CPUs.
    """
    if cpus < MIN_CPUS:
        return []
    siblings: collections.Counter[tuple[str, str, str]] = collections.Counter()
    threads: list[Workers] = []
    for pid in host.names("proc"):
        if not pid.isdigit():
            continue
        status = host.read(f"proc/{pid}/status") or ""
        unit = _UNIT.search(host.read(f"proc/{pid}/cgroup") or "")
        name, parent, count = _NAME.search(status), _PARENT.search(status), _THREADS.search(status)
        if not (unit and name and parent and count):
            continue
        shown = host_text.printable(unit[1], _LONGEST_NAME), host_text.printable(name[1], _LONGEST_NAME)
        siblings[(*shown, parent[1])] += 1
        if int(count[1]) == cpus:
            threads.append({"unit": shown[0], "name": shown[1], "kind": "threads"})
    workers: list[Workers] = [
        {"unit": unit, "name": name, "kind": "processes"}
        for (unit, name, _parent), count in siblings.items()
        if count == cpus
    ]
    return sorted(workers + threads, key=lambda entry: (entry["unit"], entry["name"]))[:MAX_FOUND]
