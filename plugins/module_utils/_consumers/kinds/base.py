# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kind of consumer has to offer: how it is recognised, which number it believes in, what puts it right."""

import typing as t


class Change(t.NamedTuple):
    """The online CPUs of a host before a change and after it."""

    before: "frozenset[int]"
    after: "frozenset[int]"


class Process(t.NamedTuple):
    """A process, as far as consumers are recognised by it.

    Attributes:
        pid: its id.
        name: the name of its program (``comm``), printable.
        arguments: its arguments, the program's first.
        parent: the id of its parent.
        threads: the number of its threads.
        mask: the CPUs it may run on, online or not.
        quota: the CPUs whose time it may use, by the smallest quota of its cgroups (v2); None without one.
        unit: its systemd service or scope, printable; None outside of any.
    """

    pid: int
    name: str
    arguments: "tuple[str, ...]"
    parent: int
    threads: int
    mask: "frozenset[int]"
    quota: "float | None"
    unit: "str | None"

    @property
    def title(self) -> str:
        """The unit, or the process itself."""
        return self.unit or f"{self.name} (pid {self.pid})"


class Consumer(t.NamedTuple):
    """What counted CPUs, and will be wrong after a change.

    Attributes:
        title: its unit or its process, for people.
        has: what it has now, such as ``8 worker processes``.
        counted: the number of CPUs that it believes in.
        gets: the number that it will have.
    """

    title: str
    has: str
    counted: int
    gets: int


class Kind(t.NamedTuple):
    """A kind of consumer.

    Attributes:
        program: the name of its processes (``comm``).
        find: returns which of its processes on a host will be wrong after a change.
        remedy: what makes one right, as an imperative clause.
    """

    program: str
    find: "t.Callable[[t.Sequence[Process], Change], list[Consumer]]"
    remedy: str


def of_cpus(process: Process, change: Change, has: str, most: "int | None" = None) -> "list[Consumer]":
    """Return a program that counts the CPUs it may run on, where their number changes.

    Args:
        process: of the program.
        change: of the host.
        has: what it has for its CPUs.
        most: the most CPUs that it counts; None for all of them.
    """
    counted, gets = (
        min(len(process.mask & cpus), len(cpus) if most is None else most) for cpus in (change.before, change.after)
    )
    # Without any of its CPUs it is an affinity conflict: the kernel lets it run on others then.
    return [Consumer(process.title, has, counted, gets)] if 0 < gets != counted else []
