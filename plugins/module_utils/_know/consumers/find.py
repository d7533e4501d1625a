# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of a host that count its CPUs when they start, and believe in that number when siblings go offline or come
back.

A kind of them is a file in ``kinds``. Who is bound to CPUs by their numbers is no consumer but an affinity conflict
(``_know/bindings/affinity.py``).
"""

import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import cgroups, origins, programs
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base, registry

KINDS = {kind.name: kind for kind in registry.KINDS}
_KIND_OF = {program: kind for kind in registry.KINDS for program in kind.programs}
# Those that count whoever runs them.
_ANYBODYS = {program for program, kind in _KIND_OF.items() if not kind.is_roots}
# Links of the units that are started at each boot.
_ENABLED = "etc/systemd/system/multi-user.target.wants"
MAX_FACTS = 100
_LONGEST_NAME = 64
_UNIT = re.compile(r"/([^/\s]{1,255}\.(?:service|scope))(?:/|$)", re.MULTILINE)
_STATUS = {
    key: re.compile(rf"^{key}:[ \t]*(\S+)", re.MULTILINE) for key in ("PPid", "Uid", "Threads", "Cpus_allowed_list")
}
# What a unit of systemd may be called (unit_name_is_valid in its source), so that it is no option of systemctl.
SERVICE = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,246}\.service\Z")


class Found(t.NamedTuple):
    """A consumer that is wrong, or will be, and its kind."""

    kind: base.Kind
    consumer: base.Consumer

    @property
    def counted(self) -> str:
        """What it has, and for how many CPUs."""
        number = self.consumer.counted
        return f"{self.consumer.has} for {number} CPU{'' if number == 1 else 's'}"


def wrong(host: kernel_files.KernelFiles, online: base.Online) -> "list[Found]":
    """Return the consumers of a host that believe in another number of CPUs than it has, or will have.

    Args:
        host: the host.
        online: its CPUs.
    """
    return _wrong(running(host), online)


class Facts(t.NamedTuple):
    """Consumers as plain data, at most :data:`MAX_FACTS` each.

    Attributes:
        now: those that are wrong.
        after_switch: those that are right, and would be wrong with other CPUs.
    """

    now: "list[dict[str, t.Any]]"
    after_switch: "list[dict[str, t.Any]]"


Running = t.Dict[str, t.List[base.Process]]


def facts(running: Running, online: base.Online, after_switch: "t.Iterable[int]") -> Facts:
    """Return the consumers that are wrong, and those that would be.

    Args:
        running: from :func:`running`.
        online: the CPUs of their host, now and earlier.
        after_switch: the CPUs that it would have.
    """
    now = _wrong(running, online)
    # Whatever counts has counted before that.
    after = _wrong(running, online.after(math.inf, after_switch))
    pids = {entry.consumer.process.pid for entry in now}
    return Facts(_facts(now), _facts([entry for entry in after if entry.consumer.process.pid not in pids]))


def running(host: kernel_files.KernelFiles) -> Running:
    """Return the processes of each kind that has any on a host."""
    by_kind: Running = {}
    found = programs.running(host, _KIND_OF, _ANYBODYS)
    if found:
        reader = _Reader(host)
        for program in found:
            by_kind.setdefault(_KIND_OF[program.name].name, []).extend(reader.process(program))
    enabled = host.names(_ENABLED)
    for name, kind in KINDS.items():
        for service in kind.services:
            if service in enabled and not by_kind.get(name):
                by_kind[name] = [base.Process(0, name, (), 0, 0, 0, frozenset(), None, service, service, host)]
    return by_kind


def _wrong(by_kind: Running, online: base.Online) -> "list[Found]":
    entries = [
        Found(KINDS[name], consumer)
        for name, processes in sorted(by_kind.items())
        for consumer in KINDS[name].find(processes, online)
    ]
    # Of the others anybody may start as many as can be named.
    return sorted(entries, key=lambda entry: entry.consumer.process.service is None)


def _facts(entries: "t.Sequence[Found]") -> "list[dict[str, t.Any]]":
    return [
        {
            "program": entry.kind.name,
            "unit": entry.consumer.process.unit,
            "is_service": entry.consumer.process.service is not None,
            "counted": entry.consumer.counted,
            "cpus": entry.consumer.gets,
            "has": f"{entry.consumer.process.title} has {entry.counted}",
            "remedy": entry.kind.remedy,
        }
        for entry in entries[:MAX_FACTS]
    ]


class _Reader:
    """Reads the processes of a host."""

    def __init__(self, host: kernel_files.KernelFiles) -> None:
        self._host, self._cgroups, self._origins = host, cgroups.Cgroups(host), origins.Origins(host)

    def process(self, program: programs.Program) -> "list[base.Process]":
        """Return a process (proc(5)); none where it has ended."""
        folder = f"proc/{program.pid}"
        status, membership = (self._host.read(f"{folder}/{name}") or "" for name in ("status", "cgroup"))
        # The name in brackets may contain any character.
        stat = (self._host.read(f"{folder}/stat") or "").rpartition(")")[2].split()[19:20]
        fields = {key: pattern.search(status) for key, pattern in _STATUS.items()}
        parent, uid, threads, mask = (match[1] if match else "" for match in fields.values())
        if not all(text.isdecimal() and len(text) < 20 for text in (parent, uid, threads, *(stat or [""]))):
            return []
        unit = _UNIT.search(membership)
        paths = [line.split(":", 2)[-1] for line in membership.splitlines()]
        return [
            base.Process(
                program.pid,
                program.name,
                program.arguments,
                int(parent),
                int(stat[0]),
                int(threads),
                cpulist.parse_or_empty(mask),
                self._quota(program.pid),
                host_text.printable(unit[1], _LONGEST_NAME) if unit else None,
                self._service(folder, int(uid), paths),
                self._host,
            )
        ]

    def _service(self, folder: str, uid: int, paths: "list[str]") -> "str | None":
        """Return the service that a process stands for: not one of an ordinary user, who may call it as he likes."""
        service = origins.service(paths)
        is_the_systems = service and self._origins.of_task(folder, uid, paths) is None
        return service if service and is_the_systems and SERVICE.match(service) else None

    def _quota(self, pid: int) -> "float | None":
        """Return the smallest quota of a process's cgroups, in CPUs (``cpu.max``: a time, and its period)."""
        cgroup, quotas = self._cgroups.of_process(pid) or "/", []
        while cgroup.strip("/"):
            limit, _blank, period = (self._cgroups.read(cgroup, "cpu.max") or "").partition(" ")
            if limit.isdecimal() and period.isdecimal() and int(period):
                quotas.append(int(limit) / int(period))
            cgroup = cgroup.rpartition("/")[0]
        return min(quotas, default=None)
