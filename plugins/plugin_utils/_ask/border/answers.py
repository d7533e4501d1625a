# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of this collection's modules: the valid fields of a success, and what is kept of a failure.

Only the fields of an answer's kind are kept; what Ansible adds (``invocation``, ``deprecations``) is dropped. An
invalid field makes the task fail for this host.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible.module_utils import json_utils
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import (
    facts,
    host_result,
    parts,
    results,
    schema,
    text,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts import firmware, memory

MIB = 1024 * 1024
# Facts of 8192 CPUs with their problems are below 1 MiB.
MAX_CHARACTERS = 8 * MIB
MAX_MESSAGE = 4000
MAX_WARNINGS = 50

_SENTENCES = schema.items(schema.TEXT, 20_000)
_of = parts.schema_of
_STATE = schema.whole(control=schema.text(100), active=schema.or_null(schema.BOOL), online=schema.CPU_LIST)
_ARGUMENTS = schema.items(schema.text(4096), 1000)
_LINE = schema.text(MAX_MESSAGE, schema.ONE_LINE)
_NAMES = schema.items(schema.text(300), 20_000)
_WORKLOADS = schema.items(schema.NAME, 200)
_RUNS = schema.items(schema.text(100, schema.RUN_NAME), 100)
_DIFF_TEXT = schema.text(4 * MIB)
_DIFF = schema.strict(
    before=_DIFF_TEXT, after=_DIFF_TEXT, before_header=schema.text(4096), after_header=schema.text(4096)
)


class Kind:
    """A kind of answer.

    Args:
        fields: schema of each field.
        optional: fields that may be missing.
        of_failure: fields that a failed module returns, too.
        characters: length of the longest accepted text.
    """

    def __init__(
        self,
        fields: dict[str, schema.Schema],
        optional: t.Sequence[str] = (),
        of_failure: t.Sequence[str] = (),
        characters: int = MAX_CHARACTERS,
    ):
        self.fields = fields
        self.of_failure = of_failure
        self.characters = characters
        of_success = schema.Checker(schema.strict([name for name in fields if name not in optional], **fields))
        self.check, self.prepare = of_success.check, of_success.prepare
        self.check_failure = schema.Checker(schema.strict((), **{name: fields[name] for name in of_failure})).check


# Ansible's own reading of what a module prints; it is not typed.
_without_other_lines: t.Callable[..., tuple[str, list[str]]] = json_utils._filter_non_json_lines
_JOB = schema.text(50, r"^j?[0-9]{1,20}\.[0-9]{1,20}$")
# Ansible's job modules write flags as true and false, or as 1 and 0.
_FLAG = schema.one_of(True, False, 1, 0)
_OUTCOME = schema.one_of("completed", "failed", "interrupted")

KINDS = {
    "smt_facts": Kind({"changed": schema.BOOL, "ansible_facts": schema.whole(smt=facts.SMT)}),
    "smt_memory_facts": Kind({"changed": schema.BOOL, "ansible_facts": schema.whole(smt_memory=_of(memory.Memory))}),
    "smt_firmware_facts": Kind({"changed": schema.BOOL, "ansible_facts": schema.whole(smt_firmware=firmware.FIRMWARE)}),
    "smt_probe": Kind(
        {
            "changed": schema.BOOL,
            "probed": schema.BOOL,
            "measured": _of(facts.Measured | None),
            "ansible_facts": schema.whole(smt=facts.SMT),
        },
        optional=("ansible_facts",),
    ),
    "smt_usage": Kind({"changed": schema.BOOL, **usage.RATIOS, **usage.FIELDS}),
    "smt_proof_host": Kind(
        {
            "changed": schema.BOOL,
            "kernel": schema.text(200, schema.ONE_LINE),
            "views": schema.items(
                schema.whole(
                    source=_LINE,
                    reason=schema.or_null(_LINE),
                    cores=schema.or_null(schema.count(schema.MAX_CPUS)),
                    differences=schema.items(schema.text(2 * schema.MAX_CPU_LIST, schema.ONE_LINE), 100),
                ),
                20,
            ),
            "instruments": schema.items(
                schema.whole(
                    name=_LINE,
                    reason=schema.or_null(_LINE),
                    detail=_LINE,
                    cost=schema.or_null({"type": "number", "minimum": 0, "maximum": 1e6}),
                ),
                20,
            ),
            "switch": schema.or_null(
                schema.whole(
                    refused=schema.or_null(schema.TEXT),
                    failed=schema.BOOL,
                    conflicts=schema.count(),
                    seconds_off=schema.or_null(schema.SECONDS),
                    seconds_back=schema.or_null(schema.SECONDS),
                    cpus=schema.CPU_LIST,
                    different=schema.mapping(_SENTENCES, 10, r"^[a-z]{1,20}$"),
                    not_restored=_SENTENCES,
                )
            ),
            "recorded": schema.mapping(schema.text(recording.MAX_CHARACTERS), 200_000, recording.PATHS),
        }
    ),
    "smt_state": Kind(
        {
            "changed": schema.BOOL,
            "before": _STATE,
            "after": _STATE,
            "affinity_conflicts": _SENTENCES,
            "not_restored": _SENTENCES,
            "consumers": _SENTENCES,
            "rollback_pending": schema.BOOL,
            "rollback_started": schema.BOOL,
            "diff": schema.items(_DIFF, 1000),
        },
        of_failure=("affinity_conflicts",),
    ),
    "smt_boot_args": Kind(
        {
            "changed": schema.BOOL,
            "loader": schema.text(40),
            "arguments": _ARGUMENTS,
            "found": schema.items(schema.whole(argument=schema.text(4096), where=schema.text(4096)), 1000),
            "configured_before": _ARGUMENTS,
            "configured": _ARGUMENTS,
            "running": _ARGUMENTS,
            "mitigations_running": _ARGUMENTS,
            "reboot_required": schema.BOOL,
            "reboot_in_vain": schema.or_null(schema.text(schema.MAX_TEXT, schema.ONE_LINE)),
            "differences": _SENTENCES,
            "affinity_conflicts": _SENTENCES,
            "diff": schema.items(_DIFF, 1000),
        }
    ),
    "smt_program": Kind({"changed": schema.BOOL}),
    "smt_rollback": Kind(
        {
            "changed": schema.BOOL,
            "back_to": schema.or_null(schema.text(schema.MAX_TEXT, schema.ONE_LINE)),
            "not_back": schema.items(schema.text(schema.MAX_TEXT, schema.ONE_LINE), 20_000),
            "reboot_required": schema.BOOL,
            "diff": schema.items(_DIFF, 1000),
        }
    ),
    "smt_memory": Kind(
        {
            "changed": schema.BOOL,
            "before": _of(memory.MemoryPolicy),
            "after": _of(memory.MemoryPolicy),
            "settings": _of(memory.Settings),
            "protected": _NAMES,
            "released": _NAMES,
            "diff": schema.items(_DIFF, 1000),
        }
    ),
    "describe": Kind(
        {
            "announcement": schema.items(schema.TEXT, 100),
            "arms": _of(host_result.Arms),
            "arms_left_out": _of(host_result.ArmsLeftOut),
            "workloads": _WORKLOADS,
            "workloads_left_out": schema.items(schema.whole(name=schema.NAME, reason=schema.TEXT), 200),
            "obstacles": schema.items(schema.TEXT, 10),
            "missing_packages": schema.items(schema.text(100, r"^[A-Za-z0-9][A-Za-z0-9+._-]*$"), 100),
            "directory": schema.text(1000, r"^/[^\n]*$"),
            "uncollected": _RUNS,
            "hides_siblings": schema.BOOL,
            "busy": {"type": "number", "minimum": 0, "maximum": 1e6},
        }
    ),
    # The host writes JSON with spaces, and other characters than ASCII as escapes.
    "collect": Kind({"result": {"type": "object"}}, characters=results.MAX_BYTES * 3 // 2),
    "forget": Kind({}),
    "smt_benchmark_stop": Kind({"changed": schema.BOOL, "runs": _RUNS, "uncollected": _RUNS, "probe": schema.BOOL}),
    "smt_boot_visit": Kind({"changed": schema.BOOL, "arguments": _ARGUMENTS, "reboot_required": schema.BOOL}),
    "smt_slot": Kind(
        {
            "changed": schema.BOOL,
            "granted": schema.BOOL,
            "handed_over": schema.BOOL,
            "msg": _LINE,
            "wait_seconds": {"type": "number", "minimum": 0, "maximum": 1e6},
            "holds": schema.or_null(_of(facts.Slot)),
        }
    ),
    "smt_trial_workers": Kind(
        {
            "changed": schema.BOOL,
            "workers": schema.items(
                schema.whole(unit=schema.text(300), name=schema.text(300), kind=schema.one_of("processes", "threads")),
                100,
            ),
            "consumers": schema.items(schema.whole(unit=schema.text(300), has=schema.text(300)), 100),
        }
    ),
    # Answers of Ansible's own modules about an async job.
    "job_started": Kind(
        {"ansible_job_id": _JOB, "_ansible_suppress_tmpdir_delete": schema.BOOL},
        optional=("_ansible_suppress_tmpdir_delete",),
    ),
    "job_status": Kind(
        {
            "ansible_job_id": _JOB,
            "started": _FLAG,
            "finished": _FLAG,
            "outcome": _OUTCOME,
            "message": schema.or_null(schema.TEXT),
        },
        optional=("started", "outcome", "message"),
    ),
    "job_cleanup": Kind({}),
}


def accept(name: str, stdout: str) -> dict[str, t.Any]:
    """Validate a module's output and reduce it to the fields of its kind.

    Args:
        name: the kind, a key of `KINDS`.
        stdout: the text from the host.

    Returns:
        The fields of the kind, and ``warnings`` (list of str) where there are any. For a failed module: ``failed``,
        ``msg``, ``exception`` (str) after a crash, and the kind's fields of a failure. All text is safe to display.

    Raises:
        BorderError: the answer is not valid; the message names the field and the reason.
    """
    kind = KINDS[name]
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
    texts = map(_warning, _list(answer.get("warnings")))
    warnings = [
        text.line(warning)
        for warning in itertools.islice((warning for warning in texts if isinstance(warning, str)), MAX_WARNINGS)
    ]
    accepted = _failure(kind, answer) if answer.get("failed") else _success(kind, answer)
    return {**accepted, "warnings": warnings} if warnings else accepted


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


def _success(kind: Kind, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    known = {name: answer[name] for name in kind.fields if name in answer}
    kind.check(known)
    host_facts = known.get("ansible_facts") or {}
    if "smt" in host_facts:
        facts.made(host_facts["smt"])
    return known


def _failure(kind: Kind, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Reduce a failed module's answer to its message and the kind's fields of a failure."""
    known = {name: answer[name] for name in kind.of_failure if name in answer}
    kind.check_failure(known)
    message = answer.get("msg")
    # Joined to one line: a line of its own could be mistaken for Ansible's output about another host.
    lines = (
        [text.line(line, MAX_MESSAGE) for line in message[:MAX_MESSAGE].splitlines()]
        if isinstance(message, str)
        else []
    )
    kept: dict[str, t.Any] = {
        **known,
        "failed": True,
        "msg": "; ".join(filter(None, lines)) or "it failed without a message",
    }
    if isinstance(answer.get("exception"), str):
        kept["exception"] = answer["exception"][: schema.MAX_TEXT]
    return kept


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []
