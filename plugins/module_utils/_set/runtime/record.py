# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a host's state by which `restore` restores it."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import saved_masks
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state


class SmtRecord(TypedDict):
    """What is restored.

    Attributes:
        cpu: the state of the CPUs before the change.
        masks: the masks that it could lose.
    """

    cpu: smt_state.State
    masks: saved_masks.Captured


def check(record: t.Any) -> None:
    """Check a record, for example from a file; raise ValueError,
    KeyError or TypeError when it is not a valid record.
    """
    smt_state.check(record["cpu"])
    saved_masks.check(record["masks"])
