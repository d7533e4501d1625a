# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of all arms: what an arm has to offer.

An arm is one of the states of a host that an evaluation compares. A file of this folder defines the arms that switch the same thing, and lists them in
``ARMS``; the registry finds them.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology


class ArmError(Exception):
    """The host cannot be switched to an arm; the text gives the reason."""


class Host(t.NamedTuple):
    """The host and the settings of the evaluation, as an arm needs them.

    Attributes:
        facts: ``ansible_facts['smt']``.
        topology: the host's topology.
        origin: the state of SMT before anything was switched; a sibling that is offline in it although SMT is in use stays offline.
        selected_conflicts: whose affinity conflicts prevent a comparison, as in ``affinity.selected``; empty for nobody's.
        overcommit_ratio: percent of RAM, or None for the host's own.
    """

    facts: "t.Mapping[str, t.Any]"
    topology: Topology
    origin: smt_state.State
    selected_conflicts: "t.Sequence[str]" = ()
    overcommit_ratio: "int | None" = None


class Arm:
    """One state of a host that an evaluation compares; this base class leaves the host as it was found.

    Args:
        name: the arm's name, which ``pattern`` matches.
        host: the host.

    Attributes:
        pattern: a regular expression of the names of this arm.
        lever: what the arm switches. Of arms with the same lever each replaces the other; the lever of the previous arm is restored first where it is another
            one. Empty for an arm that switches nothing.
        name: as above.
        title: the name for people.
        host: as above.
        reason: why the host cannot be switched to this arm, or None.
        settings: what the arm sets, as plain data for the result: name -> number or text.
    """

    pattern: str
    lever: str = ""

    def __init__(self, name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self.title = self.title_of(name)
        self.reason: t.Optional[str] = None
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

    def announcement(self) -> "list[str]":
        """Describe what the arm switches, in sentences for a person."""
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

    def observe(self) -> "dict[str, t.Any] | None":
        """Return what is recorded once in this arm besides its samples (plain data), or None."""
        return None

    def save(self) -> "dict[str, t.Any]":
        """Return the present state of what the lever changes (plain data), for ``restore`` and ``differences``."""
        return {}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore what the lever changed.

        Args:
            saved: as ``save`` returned it, with the state of all other levers.

        Returns:
            What could not be restored, one sentence each.
        """
        return []
