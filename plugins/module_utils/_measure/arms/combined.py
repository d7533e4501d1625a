# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two arms at once, for an evaluation of two factors: ``smt_off__thp_never``."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    BY_CPUS,
    IDLE,
    OFFLINE,
    ONLINE,
    PARTLY,
    Arm,
    ArmHost,
    RuntimeArm,
)

# What arms do to siblings, what closes most last.
_SIBLINGS = (None, ONLINE, BY_CPUS, IDLE, PARTLY, OFFLINE)


class Combined(RuntimeArm):
    """Two arms with different levers, each of which is switched, proved and restored as it is alone.

    Args:
        name: of both together.
        made_of: the two.
    """

    def __init__(self, name: str, made_of: "tuple[RuntimeArm, RuntimeArm]") -> None:
        super().__init__(name)
        # What each CPU has is switched when those are online that this arm has.
        self._made_of = tuple(sorted(made_of, key=lambda part: part.is_of_each_cpu))
        self.more_work = made_of[0].more_work * made_of[1].more_work
        self.switches_cpus = any(part.switches_cpus for part in made_of)
        self.siblings = max((part.siblings for part in made_of), key=_SIBLINGS.index)
        self.leaves_open = " and ".join(part.leaves_open for part in made_of if part.leaves_open)
        self.settings = {key: value for part in made_of for key, value in part.settings.items()}

    @property
    def made_of(self) -> "tuple[RuntimeArm, ...]":
        """The two arms."""
        return self._made_of

    @property
    def title(self) -> str:
        """Both titles."""
        return ", ".join(part.title for part in self._made_of)

    def examine(self, host: ArmHost) -> None:
        """Look at the host: it can have this arm where it can have both."""
        super().examine(host)
        for part in self._made_of:
            part.examine(host)
        self.reason = next((part.reason for part in self._made_of if part.reason is not None), None)
        self.is_as_found = all(part.is_as_found for part in self._made_of)
        self.settings = {key: value for part in self._made_of for key, value in part.settings.items()}

    def online(self) -> "set[int]":
        """Return the CPUs that are online in the arm that switches them."""
        return next((part.online() for part in self._made_of if part.switches_cpus), super().online())

    def for_workers(self, usable: "set[int]") -> "set[int]":
        """Return which CPUs both leave."""
        for part in self._made_of:
            usable = part.for_workers(usable)
        return usable

    def announcement(self) -> "list[str]":
        """Describe what both switch."""
        return [sentence for part in self._made_of for sentence in part.announcement()]

    def conflicts(self) -> "list[str]":
        """Describe the affinity conflicts of both."""
        return [sentence for part in self._made_of for sentence in part.conflicts()]

    def switch(self) -> None:
        """Switch the host to both."""
        for part in self._made_of:
            part.switch()

    def prove(self) -> None:
        """See that the host is in both."""
        for part in self._made_of:
            part.prove()


def why_not(first: Arm, second: Arm) -> "str | None":
    """Return why two arms cannot be one, as a part of a sentence; None where they can."""
    if not (isinstance(first, RuntimeArm) and isinstance(second, RuntimeArm)):
        return "one takes a reboot, and factors are switched at run time"
    if len(first.made_of) > 1 or len(second.made_of) > 1:
        return "one of them is two arms already"
    if first.lever == second.lever:
        return "both switch the same thing" if first.lever else "neither switches anything"
    if first.takes_of and first.takes_of == second.takes_of:
        return f"both take of {first.takes_of} or limit it, and each can be safe alone and both not"
    return None


def combined(name: str, first: "Arm | None", second: "Arm | None") -> "Combined | None":
    """Return two arms as one, or None where one is missing or they cannot be one.

    Args:
        name: of both together.
        first: the arm of the first part of the name; None where there is none.
        second: likewise, of the second.
    """
    if isinstance(first, RuntimeArm) and isinstance(second, RuntimeArm) and why_not(first, second) is None:
        return Combined(name, (first, second))
    return None
