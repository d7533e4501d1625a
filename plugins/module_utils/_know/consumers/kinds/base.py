# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kind of consumer has to offer: how it is recognised, which number it believes in, what puts it right."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files

# How long most services may take after their start until they have their number.
SETTLE_SECONDS = 15.0


class Online(t.NamedTuple):
    """The online CPUs of a host, now and earlier in this boot.

    Attributes:
        now: those that are online, or will be after a change.
        earlier: until when (ticks since the boot, as in `Process.started`) which CPUs were online; the oldest first.
    """

    now: "frozenset[int]"
    earlier: "tuple[tuple[float, frozenset[int]], ...]" = ()

    def at(self, ticks: float) -> "frozenset[int]":
        """Return the CPUs that were online at a time."""
        return next((cpus for until, cpus in self.earlier if ticks < until), self.now)

    def after(self, ticks: float, now: "t.Iterable[int]") -> "Online":
        """Return this with a change to other CPUs at a time."""
        return Online(frozenset(now), (*self.earlier, (ticks, self.now)))


class Process(t.NamedTuple):
    """A process, as far as consumers are recognised by it.

    Attributes:
        pid: its id.
        name: the name of its program (``comm``), printable.
        arguments: its arguments, the program's first.
        parent: the id of its parent.
        started: when it was started, in clock ticks since the boot (proc(5), field 22 of stat).
        threads: the number of its threads.
        mask: the CPUs it may run on, online or not.
        quota: the CPUs whose time it may use, by the smallest quota of its cgroups (v2); None without one.
        unit: its systemd service or scope, printable; None outside of any.
        service: the name of the system's service that it is a part of, for systemctl; None for a process of a
            container, of a login, or of an ordinary user.
        host: its host.
    """

    pid: int
    name: str
    arguments: "tuple[str, ...]"
    parent: int
    started: int
    threads: int
    mask: "frozenset[int]"
    quota: "float | None"
    unit: "str | None"
    service: "str | None"
    host: kernel_files.KernelFiles

    @property
    def title(self) -> str:
        """The unit, or the process itself."""
        return self.unit or f"{self.name} (pid {self.pid})"

    def variables(self, names: "t.Container[str]") -> "dict[str, str] | None":
        """Return variables of its environment at its start; None where nobody may read them. Nothing else of it is
        kept: it may have secrets.
        """
        text = self.host.read(f"proc/{self.pid}/environ")
        pairs = (pair.partition("=") for pair in (text or "").split("\0"))
        return None if text is None else {name: value for name, _equals, value in pairs if name in names}


class Consumer(t.NamedTuple):
    """What counted CPUs, and is wrong, or will be after a change.

    Attributes:
        process: the process that counted.
        has: what it has now, such as ``8 worker processes``.
        counted: the number of CPUs that it believes in.
        gets: the number that it has, or will have.
        removes: files that keep it from starting with that number, below the root; they are removed while it is
            stopped.
    """

    process: Process
    has: str
    counted: int
    gets: int
    removes: "tuple[str, ...]" = ()


class Kind(t.NamedTuple):
    """A kind of consumer.

    Attributes:
        programs: the names of its processes (``comm``), the first of which is that of the kind.
        find: returns which of its processes on a host are wrong.
        remedy: what makes one right, as an imperative clause.
        actions: what systemctl can do to its service that makes it right, the gentlest first.
        shows_number: whether the number that it believes in can be seen; else it is the number of CPUs at its start.
        settle_seconds: how long it may take after that until it is right.
        is_roots: whether only a process of root is one.
        services: its services, of which the first that is started at each boot stands for it where none of its
            processes runs, as a process of the id 0.
    """

    programs: "tuple[str, ...]"
    find: "t.Callable[[t.Sequence[Process], Online], list[Consumer]]"
    remedy: str
    actions: "tuple[str, ...]"
    shows_number: bool = True
    settle_seconds: float = SETTLE_SECONDS
    is_roots: bool = False
    services: "tuple[str, ...]" = ()

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.programs[0]


def of_cpus(process: Process, online: Online, has: str, most: "int | None" = None) -> "list[Consumer]":
    """Return a program that counts the CPUs it may run on, where their number has changed since.

    Args:
        process: of the program.
        online: the CPUs.
        has: what it has for its CPUs.
        most: the most CPUs that it counts; None for all of them.
    """
    counted, gets = (
        min(len(process.mask & cpus), len(cpus) if most is None else most)
        for cpus in (online.at(process.started), online.now)
    )
    # Without any of its CPUs it is an affinity conflict: the kernel lets it run on others then.
    return [Consumer(process, has, counted, gets)] if 0 < gets != counted else []
