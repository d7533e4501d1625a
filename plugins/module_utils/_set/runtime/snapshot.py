# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The snapshot of a host's state before the first change, which ``restored`` restores.

It is valid for the boot in which it was saved: a reboot ends run-time changes, and also the tasks and interrupts whose
masks the snapshot holds. Only if the setting is persistent (persistence.py) are the CPUs of a snapshot from an earlier
boot still valid.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    cpulist,
    files as host_files,
    state_file,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import saved_masks
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import settings as consumer_settings
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    record as smt_record,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import pending as pending_rollback

PATH = "var/lib/threadwise-smt/smt-snapshot.json"

SEEN_PATH = "var/lib/threadwise-smt/seen-cores.json"
_SEEN = state_file.StateFile(SEEN_PATH, "threadwise.smt/seen-cores", mode=0o644)
_FILE = state_file.StateFile(PATH, "threadwise.smt/state", limit=host_files.LARGE)


class Snapshot(TypedDict):
    """The content of the file, plain JSON data; the file has a schema beside it."""

    boot_id: str
    saved_at: str
    cpu: smt_state.State  # before the first change
    masks: saved_masks.Captured  # masks to restore
    consumers: "dict[str, t.Any]"  # which consumers followed, as _know/consumers/settings.py has them


class SmtSnapshotError(SmtError):
    """The snapshot exists and cannot be used. The text names the file, the reason and the way out."""


def new(fs: host_files.HostFs, state: smt_state.State, captured: saved_masks.Captured) -> Snapshot:
    """Return a snapshot of this boot from the state before the first change and the masks that the change may lose."""
    return {
        "boot_id": state_file.boot_id(fs),
        "saved_at": host_text.utc_now(),
        "cpu": state,
        "masks": captured,
        "consumers": consumer_settings.NOTHING.document(),
    }


def save(fs: host_files.HostFs, saved: Snapshot) -> None:
    """Write the snapshot atomically, readable by root only, because it lists processes;
    raise OSError when it cannot be written.
    """
    _FILE.save(fs, saved)


def remove(fs: host_files.HostFs) -> None:
    """Remove the snapshot; raise OSError when it cannot be removed."""
    _FILE.remove(fs)


def load(fs: host_files.HostFs) -> "Snapshot | None":
    """Return the snapshot, or None if there is none that is valid in this boot. Of an earlier boot it is valid where a
    setting is persistent over boots, so that this collection caused the state after a boot.

    After a rollback it is the one from before the change that was rolled back, which the rollback does not write into
    the file: that would take room.

    Raises:
        SmtSnapshotError: when the snapshot cannot be used.
    """
    rolled_back = pending_rollback.rolled_back(fs)
    try:
        saved = rolled_back["snapshot"] if rolled_back else _FILE.load(fs, check)
        if rolled_back and saved is not None:
            check(saved)
    except (HostError, ValueError, KeyError, TypeError) as error:
        raise SmtSnapshotError(
            f"{error}. Remove it only if the state before the first change is no longer needed"
        ) from error
    if saved is None or saved["boot_id"] == state_file.boot_id(fs):
        return saved
    return for_this_boot(fs, saved) if persistence.is_kept(fs) else None


def for_this_boot(fs: host_files.HostFs, saved: Snapshot) -> Snapshot:
    """Return a snapshot of an earlier boot as one of this boot:
    the tasks and interrupts are gone whose masks it has.
    """
    boot_id = state_file.boot_id(fs)
    return (
        saved
        if saved["boot_id"] == boot_id
        else {**saved, "boot_id": boot_id, "masks": saved_masks.nothing(saved["cpu"]["online"])}
    )


def check(document: t.Any) -> Snapshot:
    """Return a snapshot, for example from a file; raise ValueError, KeyError or TypeError when it is not one."""
    smt_record.check(document)
    if not isinstance(document["boot_id"], str):
        raise ValueError("its boot_id is not a text")
    consumer_settings.parse(document.setdefault("consumers", consumer_settings.NOTHING.document()))
    saved: Snapshot = document
    return saved


def seen_cores(fs: host_files.HostFs) -> "list[list[int]]":
    """Return the CPUs of each core that changes of this boot have seen; none where they cannot be read."""
    try:
        seen = _SEEN.load(fs, _checked_seen)
    except state_file.StateFileError as error:
        fs.note(f"What was seen of the cores in this boot was ignored: {error}.")
        return []
    return seen["cores"] if seen and seen["boot_id"] == state_file.boot_id(fs) else []


def save_seen_cores(fs: host_files.HostFs, cores: "t.Iterable[t.Sequence[int]]") -> None:
    """Save the CPUs of each core for this boot, because the kernel forgets them when they go offline;
    raise OSError when they cannot be written.
    """
    _SEEN.save(fs, {"boot_id": state_file.boot_id(fs), "cores": list(map(list, cores))})


def forget_seen_cores(fs: host_files.HostFs) -> None:
    """Remove what was seen of the cores; raise OSError when it cannot be removed."""
    _SEEN.remove(fs)


def _checked_seen(document: t.Any) -> "dict[str, t.Any]":
    cpus = [cpu for core in document["cores"] for cpu in core]
    if not cpulist.is_cpus(cpus) or len(set(cpus)) != len(cpus) or not isinstance(document["boot_id"], str):
        raise ValueError("its cores are not valid")
    return dict(document)
