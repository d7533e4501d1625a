# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The snapshot of a host's state before the first change, which ``restored`` restores.

It is valid for the boot in which it was saved: a reboot ends run-time changes, and also the tasks and interrupts whose masks the snapshot holds.
Only if the setting is persistent (persistence.py) are the CPUs of a snapshot from an earlier boot still valid.
"""

from __future__ import annotations

import json
import stat
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, state as smt_state

PATH = "var/lib/threadwise-smt/state.json"
SCHEMA = "threadwise.smt/state"
SCHEMA_VERSION = 1
BOOT_ID = "proc/sys/kernel/random/boot_id"


class Snapshot(t.TypedDict):
    """The content of the file, plain JSON data."""

    schema: str
    schema_version: int
    boot_id: str | None
    saved_at: str
    cpu: smt_state.State  # before the first change
    masks: affinity.Captured  # masks to put back
    cores: t.Sequence[t.Sequence[int]]  # CPUs of each core that were seen in this boot


class SmtSnapshotError(Exception):
    """The snapshot exists and cannot be used. The text names the file, the reason and the way out."""


def new(host: kernel_files.KernelFiles, state: smt_state.State, captured: affinity.Captured) -> Snapshot:
    """Return a snapshot of this boot from the state before the first change and the masks that the change may lose."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "boot_id": host.read(BOOT_ID),
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": state,
        "masks": captured,
        "cores": [],
    }


def save(fs: host_files.HostFs, saved: Snapshot) -> None:
    """Write the snapshot atomically, readable by root only, because it lists processes; raise OSError when it cannot be written."""
    fs.write(PATH, json.dumps(saved) + "\n", mode=0o600)


def remove(fs: host_files.HostFs) -> None:
    """Remove the snapshot; raise OSError when it cannot be removed."""
    durable.unlink(fs.path(PATH))


def load(host: kernel_files.KernelFiles, fs: host_files.HostFs, is_persistent: bool) -> Snapshot | None:
    """Return the snapshot, or None if there is none that is valid in this boot.

    Args:
        host: the host
        fs: files of the same host
        is_persistent: whether a setting is persistent over boots, so that this collection caused the state after a boot

    Raises:
        SmtSnapshotError: when the snapshot cannot be used.
    """
    status = fs.status(PATH)
    if status is None:
        return None
    way_out = "remove it if the state before the first change is no longer needed"
    if fs.is_host and (not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022):
        raise SmtSnapshotError(f"{fs.path(PATH)} is not a regular file that only root can write: {way_out}")
    try:
        saved: Snapshot = json.loads(fs.read(PATH, host_files.LARGE) or "")
        if saved["schema"] != SCHEMA or saved["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"it is not a {SCHEMA} of version {SCHEMA_VERSION}")
        smt_state.check_state(saved["cpu"])
        affinity.check(saved["masks"])
        _check_cores(saved["cores"])
        boot_id = saved["boot_id"]
    except (ValueError, KeyError, TypeError, RecursionError, smt_state.StateError) as error:
        raise SmtSnapshotError(f"{fs.path(PATH)} cannot be used ({error!s:.200}): {way_out}") from error
    if boot_id == host.read(BOOT_ID):
        return saved
    if not is_persistent:
        return None
    nothing: affinity.Captured = {"online": saved["cpu"]["online"], "tasks": [], "cpusets": {}, "partitions": {}, "interrupts": {}}
    return {**saved, "masks": nothing, "cores": []}


def _check_cores(cores: t.Sequence[t.Sequence[int]]) -> None:
    cpus = [cpu for core in cores for cpu in core]
    if not smt_state.is_cpus(cpus) or len(set(cpus)) != len(cpus):
        raise ValueError("its cores are not valid")
