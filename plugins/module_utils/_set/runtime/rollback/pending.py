# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending rollback: what the host goes back to unless its change is confirmed.

The file `_PENDING` alone decides whether a change is rolled back or stays; it is only changed while the host's lock is
held. A confirmation removes it. The rollback program restores the state and renames the file to `_ROLLED_BACK`: that
takes no room on the disk. Of the two, the one that gets the lock later no longer finds it.
"""

import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import saved_masks
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    record as smt_record,
    state as smt_state,
)

PATH = "var/lib/threadwise-smt/timer-rollback.json"
ROLLED_BACK_PATH = "var/lib/threadwise-smt/rolled-back.json"

_PENDING = state_file.StateFile(PATH, limit=host_files.LARGE)
_ROLLED_BACK = state_file.StateFile(ROLLED_BACK_PATH, limit=host_files.LARGE)


class Pending(TypedDict):
    """A pending rollback, plain JSON data.

    Attributes:
        boot_id: of the boot in which it is valid.
        cpu: the CPUs before the change, which the rollback restores.
        masks: masks that it restores.
        consumers: which consumers followed the change, and follow it back.
        snapshot: the snapshot before the change, None where there was none. It is the snapshot again after the
            rollback.
        seconds: after so many without a sign of the controller the host goes back.
        since: seconds of CLOCK_MONOTONIC, when they began.
        by: who made the change, as part of a sentence.
    """

    boot_id: str
    cpu: smt_state.State
    masks: saved_masks.Captured
    consumers: "dict[str, t.Any]"
    snapshot: t.Any
    seconds: int
    since: float
    by: str


def load(fs: host_files.HostFs) -> "Pending | None":
    """Return the pending rollback of this boot, or None if there is none.

    Hold the host's lock if the result has to stay true.
    """
    return _of_this_boot(fs, _PENDING)


def rolled_back(fs: host_files.HostFs) -> "Pending | None":
    """Return the rollback that ended the last change of this boot,
    None where it was confirmed or another change followed.
    """
    return _of_this_boot(fs, _ROLLED_BACK)


def exists(fs: host_files.HostFs) -> bool:
    """Return whether the file exists that decides; it is not read."""
    return fs.status(PATH) is not None


def save(fs: host_files.HostFs, pending: Pending) -> None:
    """Write the pending rollback; raise OSError, with the earlier one in force, when it cannot be written."""
    _PENDING.save(fs, pending)


def confirm(fs: host_files.HostFs) -> None:
    """Remove the pending rollback: from now on the change stays. Raise OSError when it cannot be removed."""
    _PENDING.remove(fs)


def end(fs: host_files.HostFs) -> None:
    """Note that the host was rolled back; raise OSError when the file cannot be renamed."""
    durable.replace(fs.path(PATH), fs.path(ROLLED_BACK_PATH))


def forget(fs: host_files.HostFs) -> None:
    """Remove the note that a change was rolled back, because another change follows;
    raise OSError when it cannot be removed.
    """
    _ROLLED_BACK.remove(fs)


def sentence(pending: Pending) -> str:
    """Describe a pending rollback for people: who made the change, and when it is rolled back."""
    return (
        f"a change {pending['by']} waits for its confirmation, and is rolled back in about {seconds_left(pending)} s"
        " without it"
    )


def seconds_left(pending: Pending) -> int:
    """Return in how many seconds it is rolled back unless it is confirmed."""
    return max(0, round(pending["since"] + pending["seconds"] - time.monotonic()))


def _of_this_boot(fs: host_files.HostFs, file: state_file.StateFile) -> "Pending | None":
    try:
        document = file.load(fs, _checked)
    except state_file.StateFileError as error:
        fs.note(f"There is no rollback: {error}.")
        return None
    return document if document and document["boot_id"] == state_file.boot_id(fs) else None


def _checked(document: t.Any) -> Pending:
    smt_record.check(document)
    if not all(
        isinstance(document[name], kind)
        for name, kind in (("boot_id", str), ("seconds", int), ("since", (int, float)), ("by", str))
    ):
        raise ValueError("it is not a pending rollback")
    document["snapshot"]
    consumer_settings.parse(document.setdefault("consumers", consumer_settings.NOTHING.document()))
    pending: Pending = document
    return pending
