# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all arms: what an arm has to offer.

An arm is one of the states of a host that an evaluation compares. A file of this folder defines the arms that switch
the same thing, and lists them in ``ARMS``; the registry finds them.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology


class ArmError(Exception):
    """The host cannot be switched to an arm; the text gives the reason."""


# Settings of a host by name, for people.
Values = t.Mapping[str, t.Union[str, int, None]]


class Host(t.NamedTuple):
    """The host and the settings of the evaluation, as an arm needs them.

    Attributes:
        facts: ``ansible_facts['smt']``.
        topology: the host's topology.
        origin: the state of SMT before anything was switched; a sibling that is offline in it although SMT is in use
            stays offline.
        selected_conflicts: whose affinity conflicts prevent a comparison, as in ``affinity.selected``; empty for
            nobody's.
        overcommit_ratio: percent of RAM, or None for the host's own.
        files: the host's files.
        run: runs a command without a shell; returns its exit status, output and error output.
    """

    facts: "t.Mapping[str, t.Any]"
    topology: Topology
    origin: smt_state.State
    selected_conflicts: "t.Sequence[str]" = ()
    overcommit_ratio: "int | None" = None
    files: KernelFiles = KernelFiles("/")
    run: "t.Callable[[list[str]], tuple[int, str, str]]" = processes.run


class Arm:
    """One state of a host that an evaluation compares; this base class leaves the host as it was found.

    Args:
        name: the arm's name, which ``pattern`` matches.
        host: the host.

    Attributes:
        pattern: a regular expression of the names of this arm.
        lever: what the arm switches. Of arms with the same lever each replaces the other; the lever of the previous arm
            is restored first where it is another one. Empty for an arm that switches nothing. Where several things of a
            kind can be switched, such as units, an arm adds ``:`` and which one.
        switches_cpus: whether CPUs go online or offline.
        written: the names of this arm as the documentation has them, where the pattern is not the only name.
        summary: what the arm is, and how it is switched, for the table in the documentation.
        needs: what a host needs for it, for that table.
        name: as above.
        title: the name for people.
        host: as above.
        reason: why the host cannot be switched to this arm, or None.
        is_as_found: whether the host is in this arm already, so that there is nothing to compare it with where the host
            as found is an arm, too.
        settings: what the arm sets, as plain data for the result: name -> number or text.
    """

    pattern: str
    lever: str = ""
    switches_cpus: bool = False
    written: "tuple[str, ...]" = ()
    summary: str = ""
    needs: str = ""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self.title = self.title_of(name)
        self.reason: t.Optional[str] = None
        self.is_as_found = False
        self.settings: dict[str, t.Any] = {}

    @classmethod
    def matches(cls, name: str) -> bool:
        """Return whether this is the arm with a name."""
        return re.fullmatch(cls.pattern, name) is not None

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        return name.replace("_", " ")

    def online(self) -> "set[int]":
        """Return the CPUs that are online in this arm, as far as the topology is known."""
        return set(self.host.origin["online"])

    def for_workers(self, usable: "set[int]") -> "set[int]":
        """Return which CPUs the plan's workers may use in this arm.

        Args:
            usable: the CPUs that are online in this arm and that the plan may use at all.
        """
        return usable

    def announcement(self) -> "list[str]":
        """Describe what the arm switches, in sentences for a person; the first follows the arm's title and a colon."""
        return ["nothing is switched."]

    def conflicts(self) -> "list[str]":
        """Describe the affinity conflicts of the arm, in sentences for a person."""
        return []

    def restoration(self) -> "str | None":
        """Name what is restored afterwards, as a part of a sentence, or None for an arm that switches nothing."""
        return None

    def prepare(self) -> bool:
        """Do what the lever needs before the first block.

        Returns:
            True when the topology has to be read again afterwards.

        Raises:
            ArmError: The host cannot be prepared.
        """
        return False

    def switch(self) -> None:
        """Switch the host to this arm, from a host as it was found or from an arm with the same lever.

        Raises:
            ArmError: The host cannot be switched.
        """

    def prove(self) -> None:
        """Read the host and see that it is in this arm, after a switch and again after the samples.

        Raises:
            ArmError: The host is not in this arm, or its state cannot be read.
        """

    def observe(self) -> "dict[str, t.Any] | None":
        """Return what is recorded once in this arm besides its samples (plain data), or None."""
        return None

    def save(self) -> "dict[str, t.Any]":
        """Return the present state of what the lever changes: plain data from which another process can restore it."""
        return {}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore what the lever changed. Another object, in another process, may have switched it.

        Args:
            saved: by lever what ``save`` of the lever's first arm returned, and as ``cpu`` the state of the CPUs.

        Returns:
            What could not be restored, one sentence each.
        """
        return []

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return what of the lever shows whether it is restored, as it was saved and as it is now.

        What differs between the two is a difference.

        Args:
            files: the host's files.
            saved: as ``save`` returned it.
        """
        return {}, {}
