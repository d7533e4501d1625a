# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of this collection's modules: the valid fields of a success, and what is kept of a failure.

Only the fields of an answer's kind are kept; what Ansible adds (``invocation``, ``deprecations``) is dropped. An
invalid field makes the task fail for this host.
"""

from __future__ import annotations

import itertools
import typing as t
from typing import ClassVar

from ansible.module_utils import json_utils
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import (
    facts,
    host_result,
    parts,
    results,
    text,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts import firmware, memory, proof
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    Answer,
    ChangedAnswer,
    CpuList,
    Name,
    Part,
    RunName,
    Text,
    Unset,
    at_most,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import MAX_TEXT, ONE_LINE

MIB = 1024 * 1024
MAX_MESSAGE = 4000
MAX_WARNINGS = 50

Sentences = t.Annotated[tuple[Text, ...], at_most(20_000)]
Argument = t.Annotated[str, at_most(4096)]
Arguments = t.Annotated[tuple[Argument, ...], at_most(1000)]
Line = t.Annotated[str, text_of(MAX_TEXT, ONE_LINE)]
Unit = t.Annotated[str, at_most(300)]
Units = t.Annotated[tuple[Unit, ...], at_most(20_000)]
Runs = t.Annotated[tuple[RunName, ...], at_most(100)]
Amount = t.Annotated[int, parts.between(0, 1_000_000)] | t.Annotated[float, parts.between(0, 1e6)]
JobId = t.Annotated[str, text_of(50, r"^j?[0-9]{1,20}\.[0-9]{1,20}$")]
# Ansible's job modules write flags as true and false, or as 1 and 0.
Flag = bool | t.Literal[0, 1]


class Diff(Part, frozen=True, omit_defaults=True):
    """A file before and after a change."""

    before: t.Annotated[str, at_most(4 * MIB)] | Unset = parts.UNSET
    after: t.Annotated[str, at_most(4 * MIB)] | Unset = parts.UNSET
    before_header: Argument | Unset = parts.UNSET
    after_header: Argument | Unset = parts.UNSET


Diffs = t.Annotated[tuple[Diff, ...], at_most(1000)]


class SmtFacts(Part, frozen=True):
    """What smt_facts adds to a host's facts."""

    smt: facts.Facts


class FactsAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_facts."""

    ansible_facts: SmtFacts

    def check(self) -> None:
        """See that the facts are consistent."""
        facts.check(self.ansible_facts.smt)


class MemoryFacts(Part, frozen=True):
    """What smt_memory_facts adds to a host's facts."""

    smt_memory: memory.Memory


class MemoryFactsAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_memory_facts."""

    ansible_facts: MemoryFacts


class FirmwareFacts(Part, frozen=True):
    """What smt_firmware_facts adds to a host's facts."""

    smt_firmware: firmware.Firmware


class FirmwareFactsAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_firmware_facts."""

    ansible_facts: FirmwareFacts


class ProbeAnswer(ChangedAnswer, frozen=True, kw_only=True):
    """The answer of smt_probe."""

    probed: bool
    measured: facts.Measured | None
    ansible_facts: SmtFacts | Unset = parts.UNSET

    def check(self) -> None:
        """See that the facts are consistent."""
        if self.ansible_facts:
            facts.check(self.ansible_facts.smt)


class State(Part, frozen=True):
    """The state of SMT."""

    control: t.Annotated[str, at_most(100)]
    active: bool | None
    online: CpuList


class StateFailure(parts.Excerpt, frozen=True):
    """What smt_state says where it refuses a change."""

    affinity_conflicts: Sentences | Unset = parts.UNSET


class StateAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_state."""

    of_failure: ClassVar[type[Part]] = StateFailure
    before: State
    after: State
    affinity_conflicts: Sentences
    not_restored: Sentences
    consumers: Sentences
    rollback_pending: bool
    rollback_started: bool
    diff: Diffs


class ArgumentFound(Part, frozen=True):
    """A boot argument, and where it is."""

    argument: Argument
    where: Argument


class BootArgsAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_boot_args."""

    loader: t.Annotated[str, at_most(40)]
    arguments: Arguments
    found: t.Annotated[tuple[ArgumentFound, ...], at_most(1000)]
    configured_before: Arguments
    configured: Arguments
    running: Arguments
    mitigations_running: Arguments
    reboot_required: bool
    reboot_in_vain: Line | None
    differences: Sentences
    affinity_conflicts: Sentences
    diff: Diffs


class RollbackAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_rollback."""

    back_to: Line | None
    not_back: t.Annotated[tuple[Line, ...], at_most(20_000)]
    reboot_required: bool
    diff: Diffs


class MemoryAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_memory."""

    before: memory.MemoryPolicy
    after: memory.MemoryPolicy
    settings: memory.Settings
    protected: Units
    released: Units
    diff: Diffs


class WorkloadLeftOut(Part, frozen=True):
    """A workload that cannot be measured on the host."""

    name: Name
    reason: Text


class Description(Answer, frozen=True):
    """What smt_benchmark says of the host before it measures."""

    announcement: t.Annotated[tuple[Text, ...], at_most(100)]
    arms: host_result.Arms
    arms_left_out: host_result.ArmsLeftOut
    workloads: t.Annotated[tuple[Name, ...], at_most(200)]
    workloads_left_out: t.Annotated[tuple[WorkloadLeftOut, ...], at_most(200)]
    obstacles: t.Annotated[tuple[Text, ...], at_most(10)]
    missing_packages: t.Annotated[
        tuple[t.Annotated[str, text_of(100, r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")], ...], at_most(100)
    ]
    directory: t.Annotated[str, text_of(1000, r"^/[^\n]*$")]
    uncollected: Runs
    hides_siblings: bool
    busy: Amount


class Collected(Answer, frozen=True):
    """A result that smt_benchmark sends; :mod:`results` reads it."""

    # The host writes JSON with spaces, and other characters than ASCII as escapes.
    characters: ClassVar[int] = results.MAX_BYTES * 3 // 2
    result: dict[str, t.Any]


class StopAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_benchmark_stop."""

    runs: Runs
    uncollected: Runs
    probe: bool


class BootVisitAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_boot_visit."""

    arguments: Arguments
    reboot_required: bool


class SlotAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_slot."""

    granted: bool
    handed_over: bool
    msg: t.Annotated[str, text_of(MAX_MESSAGE, ONE_LINE)]
    wait_seconds: Amount
    holds: facts.Slot | None


class Worker(Part, frozen=True):
    """A service whose workers are as many as before."""

    unit: Unit
    name: Unit
    kind: t.Literal["processes", "threads"]


class TrialConsumer(Part, frozen=True):
    """A service that says how many CPUs it counted."""

    unit: Unit
    has: Unit


class TrialWorkersAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_trial_workers."""

    workers: t.Annotated[tuple[Worker, ...], at_most(100)]
    consumers: t.Annotated[tuple[TrialConsumer, ...], at_most(100)]


class JobStarted(Answer, frozen=True, rename={"keeps_directory": "_ansible_suppress_tmpdir_delete"}):
    """What Ansible says of a job that begins."""

    ansible_job_id: JobId
    keeps_directory: bool | Unset = parts.UNSET

    @property
    def of_ansible(self) -> dict[str, t.Any]:
        """What Ansible itself wants to know."""
        return {"_ansible_suppress_tmpdir_delete": self.keeps_directory} if self.keeps_directory else {}


class JobStatus(Answer, frozen=True, kw_only=True):
    """What Ansible says of a job; of one that has ended, what smt_benchmark has said."""

    ansible_job_id: JobId
    finished: Flag
    started: Flag | Unset = parts.UNSET
    outcome: t.Literal["completed", "failed", "interrupted"] | Unset = parts.UNSET
    message: Text | Unset | None = parts.UNSET


# The modules whose answers are returned as they are.
OF_MODULES: dict[str, type[Answer]] = {
    "smt_facts": FactsAnswer,
    "smt_memory_facts": MemoryFactsAnswer,
    "smt_firmware_facts": FirmwareFactsAnswer,
    "smt_probe": ProbeAnswer,
    "smt_usage": usage.UsageAnswer,
    "smt_proof_host": proof.ProofAnswer,
    "smt_state": StateAnswer,
    "smt_boot_args": BootArgsAnswer,
    "smt_program": ChangedAnswer,
    "smt_rollback": RollbackAnswer,
    "smt_memory": MemoryAnswer,
    "smt_benchmark_stop": StopAnswer,
    "smt_boot_visit": BootVisitAnswer,
    "smt_slot": SlotAnswer,
    "smt_trial_workers": TrialWorkersAnswer,
}


# Ansible's own reading of what a module prints; it is not typed.
_without_other_lines: t.Callable[..., tuple[str, list[str]]] = json_utils._filter_non_json_lines
Kind = t.TypeVar("Kind", bound=Answer)


def accept(kind: type[Kind], stdout: str) -> Kind:
    """Make an answer of a module's output.

    Args:
        kind: what it is to be.
        stdout: the text from the host.

    Raises:
        ModuleFailedError: the module failed.
        BorderError: the answer is not valid; the message names the field and the reason.
    """
    if len(stdout) > kind.characters:
        raise text.BorderError(
            f"it is {len(stdout) / MIB:.0f} MiB long, more than the limit of {kind.characters / MIB:.0f} MiB for this"
            " answer"
        )
    try:
        document, _junk = _without_other_lines(stdout, objects_only=True)
    except ValueError as error:
        raise NoAnswerError("it is not JSON") from error
    answer = text.parse(document)
    if not isinstance(answer, dict):
        raise text.BorderError("it is not a JSON object")
    texts = map(_warning, _list(answer.pop("warnings", None)))
    warnings = tuple(
        text.line(warning)
        for warning in itertools.islice((warning for warning in texts if isinstance(warning, str)), MAX_WARNINGS)
    )
    if answer.get("failed"):
        raise ModuleFailedError({**_failure(kind, answer), **({"warnings": list(warnings)} if warnings else {})})
    accepted = parts.converted(answer, kind)
    accepted.check()
    return parts.changed(accepted, warnings=warnings)


def _warning(warning: t.Any) -> t.Any:
    """Return the text of a warning: modules send it as it is,
    and those of ansible-core 2.19 and later inside an event.
    """
    if not isinstance(warning, dict):
        return warning
    event = warning.get("event")
    return event.get("msg") if isinstance(event, dict) else warning.get("msg")


class NoAnswerError(text.BorderError):
    """A host printed nothing that could be an answer, as without Python."""


class ModuleFailedError(Exception):
    """A module failed.

    Attributes:
        answer: ``failed``, ``msg`` (str), optional ``warnings``, ``exception`` (str) after a crash, and what answers of
            its kind say of a failure. All text is safe to display.
    """

    def __init__(self, answer: dict[str, t.Any]):
        super().__init__(answer["msg"])
        self.answer = answer


def _failure(kind: type[Answer], answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Reduce a failed module's answer to its message and what its kind says of a failure."""
    known = parts.converted(answer, kind.of_failure)
    message = answer.get("msg")
    # Joined to one line: a line of its own could be mistaken for Ansible's output about another host.
    lines = (
        [text.line(line, MAX_MESSAGE) for line in message[:MAX_MESSAGE].splitlines()]
        if isinstance(message, str)
        else []
    )
    kept: dict[str, t.Any] = {
        **parts.plain(known),
        "failed": True,
        "msg": "; ".join(filter(None, lines)) or "it failed without a message",
    }
    if isinstance(answer.get("exception"), str):
        kept["exception"] = answer["exception"][:MAX_TEXT]
    return kept


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []
