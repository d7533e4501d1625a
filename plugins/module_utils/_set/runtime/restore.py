# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a host from a record of its state: its CPUs, then the CPU masks of tasks, cpusets and interrupts.

The watchdog calls it, the end of an evaluation and the rollback program. It writes no file but the kernel's.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    record as smt_record,
    state as smt_state,
    transition as smt_transition,
)


def restore(host: kernel_files.KernelFiles, record: "t.Mapping[str, t.Any]") -> "list[str]":
    """Restore the state.

    Args:
        host: the host
        record: a `record.SmtRecord`, possibly from a file

    Returns:
        what was not restored, one sentence each; those that are ``affinity.Harmless`` need no other attempt

    Raises:
        StateError: when ``record`` is not a valid record.
    """
    try:
        smt_record.check(record)
    except (ValueError, KeyError, TypeError) as error:
        raise smt_state.StateError(f"not a valid record of a host's state: {error!r:.200}") from error
    captured = record["masks"]
    masks = affinity.masks_now(host, captured)
    problems = smt_transition.restore(host.sysroot, record["cpu"], host)
    online = smt_state.read(files=host)["online"]
    return problems + affinity.restore(host, captured, masks, online)[0]


def left(problems: "t.Iterable[str]") -> "list[str]":
    """Return the problems that another attempt may solve."""
    return [problem for problem in problems if not isinstance(problem, affinity.Harmless)]
