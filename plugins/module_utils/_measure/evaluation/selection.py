# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of one evaluation: which of them this host can have, switching between them, and restoring the host."""

import os
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.as_found import AsFound
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    ArmError,
    ArmHost,
    RuntimeArm,
    Values,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.policy import SYSCTLS
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

# What is saved beside the levers: the state of the CPUs.
_CPU = "cpu"


class DescribedArm(TypedDict):
    """An arm as the result has it.

    Attributes:
        name: in samples.
        title: for people.
        baseline: whether the others are compared with this one.
        settings: what it sets.
    """

    name: str
    title: str
    baseline: bool
    settings: "dict[str, t.Any]"


class LeftOutArm(TypedDict):
    """An arm that this host cannot have, with the reason."""

    name: str
    title: str
    reason: str


class Arms:
    """The arms of one evaluation on this host.

    Args:
        given: the arms that were asked for, the baseline first, as ``catalogue.check`` accepts them.
        host: the host.
        saved: the levers whose state is saved; None before anything is.

    Attributes:
        arms: the arms that are measured, the baseline first: those asked for that the host can have, or ``as_found``
            alone where fewer than two are left or the baseline is missing.
        left_out: the arms that were asked for and are not measured.
    """

    def __init__(self, given: "Sequence[t.Any]", host: ArmHost, saved: "t.Container[str] | None" = None) -> None:
        known_arms = [catalogue.get(catalogue.name_of(entry)) for entry in given]
        asked = [arm for arm in known_arms if isinstance(arm, RuntimeArm)]
        for arm in asked:
            arm.examine(host)
        for arm in asked:
            if saved is not None and not all(lever in saved for lever in arm.levers) and arm.reason is None:
                arm.reason = (
                    "what it changes was not saved, because the cores were unknown while siblings were offline: switch"
                    " SMT on first"
                )
        for arm in asked:
            if _is_another(arm, asked):
                arm.reason = arm.reason or "this is already in effect, so there is nothing to compare it with"
        possible = [arm for arm in asked if arm.reason is None]
        self.left_out: list[LeftOutArm] = [
            {"name": arm.name, "title": arm.title, "reason": arm.reason} for arm in asked if arm.reason is not None
        ]
        compared = len(possible) > 1 and possible[0] is asked[0]
        if not compared:
            missing = f"{self.left_out[0]['title']} is not possible" if self.left_out else "no other arm was asked for"
            self.left_out += [
                {"name": arm.name, "title": arm.title, "reason": f"there is nothing to compare it with: {missing}"}
                for arm in possible
                if arm.name != arms.AS_FOUND
            ]
        self.arms: list[RuntimeArm] = possible if compared else [_as_found(host)]
        self._switched = [arm.title for arm in possible if arm.levers]
        self._asked = asked
        self._host = host
        self._current: t.Optional[RuntimeArm] = None
        self._saved: Mapping[str, t.Any] = {}

    @property
    def compared(self) -> bool:
        """Whether arms are compared, and the host is switched."""
        return len(self.arms) > 1

    @property
    def reason(self) -> "str | None":
        """Why nothing is compared, or None."""
        if self.compared:
            return None
        return self.left_out[0]["reason"] if self.left_out else "no other arm than the host as found was asked for"

    def needs_root(self) -> "str | None":
        """Return the sentence for a user who is not root and asked for arms that the host could be switched to,
        or None where no root is needed.
        """
        if not self._switched or os.geteuid() == 0:
            return None
        return (
            f"root is needed to switch this host to {' and '.join(self._switched)}: use become: true, or"
            f" ansible-playbook -b; without root only the arm {arms.AS_FOUND} can be measured"
            f" (smt_eval_arms={arms.AS_FOUND})"
        )

    @property
    def names(self) -> "list[str]":
        """The names of the measured arms, the baseline first."""
        return [arm.name for arm in self.arms]

    def __getitem__(self, name: str) -> RuntimeArm:
        """Return a measured arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)

    def described(self) -> "list[DescribedArm]":
        """Return the measured arms for the result."""
        return [
            {"name": arm.name, "title": arm.title, "baseline": arm is self.arms[0], "settings": arm.settings}
            for arm in self.arms
        ]

    def announcement(self, seconds: float) -> "list[str]":
        """Describe what is switched and restored, and the affinity conflicts: a few sentences for each arm.

        Args:
            seconds: how long the plan takes.
        """
        left_out = [f"{arm['title']} is left out: {arm['reason']}." for arm in self.left_out]
        if not self.compared:
            return [
                f"Nothing will be switched: {self.reason}.",
                (
                    f"The placements that exist on this host will be measured for {length(seconds)}, or less once"
                    " enough is known."
                ),
            ]
        titles = [arm.title for arm in self.arms]
        share = length(seconds / len(self.arms))
        restored = " and ".join(dict.fromkeys(filter(None, (arm.restoration() for arm in self._levers()))))
        return [
            (
                f"The host will be switched between {', '.join(titles[:-1])} and {titles[-1]} many times, for"
                f" {length(seconds)}, or less once enough is known."
            ),
            *(" ".join([f"{arm.title}, {share} in all:", *arm.announcement(), *arm.conflicts()]) for arm in self.arms),
            *(
                [f"Then the present state of {restored} is restored, also when the run fails or loses its controller."]
                if restored
                else []
            ),
            *left_out,
        ]

    def prepare(self) -> bool:
        """Prepare the host before the first block; return whether its topology has to be read again.

        Raises:
            ArmError: The host cannot be prepared.
        """
        prepared = [arm.prepare() for arm in self._levers()]
        return any(prepared)

    def switch(self, name: str) -> None:
        """Switch the host to a measured arm, after ``begin``.

        Raises:
            ArmError: The host cannot be switched.
        """
        arm = self[name]
        # Nothing is known of a host that was only prepared.
        previous = self._levers() if self._current is None else [self._current]
        others = [part for earlier_arm in previous for part in earlier_arm.made_of if part.lever not in arm.levers]
        self._undo(others)
        self._current = arm
        arm.switch()
        if arm.switches_cpus:
            # CPUs that have come online have values from when they went offline.
            self._undo([part for part in others if part.is_of_each_cpu])

    def _undo(self, others: "list[RuntimeArm]") -> None:
        for other in others:
            left = other.restore(self._saved)
            if left:
                raise ArmError(f"{other.title} could not be undone: {'; '.join(left)}")

    def prove(self, name: str) -> None:
        """Read the host and see that it is in a measured arm, and that everything else is as it was saved.

        Raises:
            ArmError: The host is in another state.
        """
        arm = self[name]
        try:
            arm.prove()
            changed = _changed(
                self._host.files,
                {lever: saved for lever, saved in self._saved.items() if lever not in {*arm.levers, _CPU}},
            )
            state = smt_state.read(files=self._host.files)
            changed += _plugged(self._saved[_CPU], state) or (
                [] if arm.switches_cpus else smt_state.differences(self._saved[_CPU], state)
            )
        except (ArmError, HostError) as error:
            raise ArmError(f"the host is not in the arm {arm.title} any more: {error}") from error
        if changed:
            raise ArmError(f"somebody has changed the host while {arm.title} was measured: {'; '.join(changed)}")

    def observe(self, name: str) -> "list[dict[str, t.Any]]":
        """Return what is recorded once in an arm besides its samples;
        in an arm that switches nothing the others observe.
        """
        arm = self[name]
        observations = [part.observe() for part in (arm.made_of if arm.levers else self._levers())]
        return [{"arm": name, **observation} for observation in observations if observation]

    def save(self) -> "dict[str, t.Any]":
        """Return the present state of what the arms change (plain data), for ``begin``,
        ``restore`` and ``differences``.
        """
        return {_CPU: smt_state.read(files=self._host.files), **{arm.lever: arm.save() for arm in self._levers()}}

    def begin(self, saved: "Mapping[str, t.Any]") -> None:
        """Take note of the state before the first switch, which arms without the same lever get back between arms.

        Args:
            saved: as ``save`` returned it.
        """
        self._saved = saved

    def restore(self, saved: "Mapping[str, t.Any]") -> "list[str]":
        """Restore what the arms changed; return what could not be restored, one sentence each."""
        left = []
        # Also of arms that this host cannot have now: it may be in one of them.
        asked = [part for arm in reversed(self._asked) for part in arm.made_of]
        by_lever = {arm.lever: arm for arm in asked if arm.lever in saved}
        for arm in sorted(by_lever.values(), key=lambda arm: arm.is_of_each_cpu):
            try:
                left += arm.restore(saved)
            except HostError as error:
                # The other levers are restored all the same.
                left.append(str(error))
        return left

    def _levers(self) -> "list[RuntimeArm]":
        """Return the first arm of each lever."""
        switched = [part for arm in reversed(self.arms) for part in arm.made_of[::-1]]
        return list({part.lever: part for part in switched if part.lever}.values())[::-1]


def _is_another(arm: RuntimeArm, asked: "t.Sequence[RuntimeArm]") -> bool:
    """Return whether an arm does the same as another one, because the host has it, or a part of it, already."""
    changed = {part.name for part in arm.made_of if not part.is_as_found}
    others = [{part.name for part in other.made_of} for other in asked if other is not arm]
    return len(changed) < len(arm.made_of) and any(
        changed | {arms.AS_FOUND} == names | {arms.AS_FOUND} for names in others
    )


def _as_found(host: ArmHost) -> RuntimeArm:
    arm = AsFound(arms.AS_FOUND)
    arm.examine(host)
    return arm


def length(seconds: float) -> str:
    """Return a duration for people: ``about 90 s``, ``about 5 min``."""
    return f"about {round(seconds)} s" if seconds < 120 else f"about {round(seconds / 60)} min"


def differences(
    saved: "Mapping[str, t.Any]", known: "Iterable[str]" = (), files: "KernelFiles | None" = None
) -> "dict[str, t.Any]":
    """Compare the present state of the host with the saved one.

    Args:
        saved: as ``Arms.save`` returned it.
        known: known differences, one sentence each.
        files: the host's files; None for those of this host.

    Returns:
        ``ok``, ``before`` and ``after`` (``control``, ``online`` (CPU numbers) and, where they were changed,
        ``sysctls`` and ``settings``), and ``differences`` (sentences).
    """
    files = files or KernelFiles("/")
    state = smt_state.read(files=files)
    changes = list(known) or smt_state.differences(saved[_CPU], state)
    before, after = _cpu_state(saved[_CPU]), _cpu_state(state)
    for was, now in _states(files, saved):
        for shown, values in ((before, was), (after, now)):
            for name, value in values.items():
                shown.setdefault("sysctls" if name in SYSCTLS else "settings", {})[name] = value
    changes += [sentence for sentence in _changed(files, saved) if sentence not in changes]
    return {"ok": not changes, "before": before, "after": after, "differences": changes}


def _states(files: KernelFiles, saved: "Mapping[str, t.Any]") -> "list[tuple[Values, Values]]":
    """Return the values of each saved lever, as they were saved and as they are."""
    kinds = {kind.lever: kind for kind in catalogue.kinds() if issubclass(kind, RuntimeArm)}
    return [kinds[lever.partition(":")[0]].states(files, values) for lever, values in saved.items() if lever != _CPU]


def _changed(files: KernelFiles, saved: "Mapping[str, t.Any]") -> "list[str]":
    return [
        f"{name} was {was[name]}, is {now.get(name)}"
        for was, now in _states(files, saved)
        for name in was
        if now.get(name) != was[name]
    ]


def _plugged(before: smt_state.State, after: smt_state.State) -> "list[str]":
    """Return which CPUs were added to the machine or removed from it:
    in each arm the workers would have others than the plan says.
    """
    was, now = set(before["present"]), set(after["present"])
    return smt_state.cpu_sentences(was - now, "{are} no longer present") + smt_state.cpu_sentences(
        now - was, "{are} new to this host"
    )


def _cpu_state(state: "Mapping[str, t.Any]") -> "dict[str, t.Any]":
    return {"control": state["control"], "online": state["online"]}
