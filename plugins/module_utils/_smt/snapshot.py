# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a host from before the first change: what ``restored`` goes back to.

It belongs to the boot in which it was saved: run-time changes end with a boot, and so do the tasks and interrupts whose masks it holds.
Only where the setting is kept over boots (persistence.py) do the CPUs of an earlier boot's state still count.
"""

from __future__ import annotations

import json
import stat
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, state as smt_state

PATH = "var/lib/threadwise-smt/state.json"
SCHEMA = "threadwise.smt/state"
SCHEMA_VERSION = 1
BOOT_ID = "proc/sys/kernel/random/boot_id"
NOBODY = {"online": [], "tasks": [], "cpusets": {}, "partitions": {}, "interrupts": {}}


class SavedStateError(Exception):
    """The saved state is there and cannot be used; the text names the file and the way out."""


def new(host: affinity.Host, state: dict, captured: dict) -> dict:
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "boot_id": host.read(BOOT_ID),
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": state,
        "bystanders": captured,
        "cores": [],
    }


def save(fs, saved: dict) -> None:
    """Whole or not at all, for root only, because it lists processes. Raises OSError."""
    fs.write(PATH, json.dumps(saved) + "\n", mode=0o600)


def remove(fs) -> None:
    durable.unlink(fs.path(PATH))


def load(host: affinity.Host, fs, kept_over_boots: bool) -> dict | None:
    """The saved state, None when there is none that counts in this boot. Raises SavedStateError.

    Args:
        fs: ``files.HostFs`` of the same host
        kept_over_boots: whether a setting is kept over boots, so that the state is one that this collection brought about
    """
    status = fs.status(PATH)
    if status is None:
        return None
    way_out = "remove it if the state before is no longer wanted"
    if fs.is_host and (not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022):
        raise SavedStateError(f"{fs.path(PATH)} is no regular file of root, or others may write it: {way_out}")
    try:
        saved = json.loads(fs.read(PATH, 64 << 20) or "")
        if saved["schema"] != SCHEMA or saved["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"it is no {SCHEMA} of version {SCHEMA_VERSION}")
        smt_state.check_state(saved["cpu"])
        affinity.check(saved["bystanders"])
        _check_cores(saved["cores"])
        boot_id = saved["boot_id"]
    except (ValueError, KeyError, TypeError, RecursionError, smt_state.StateError) as trouble:
        raise SavedStateError(f"{fs.path(PATH)} cannot be used ({trouble!s:.200}): {way_out}") from trouble
    if boot_id == host.read(BOOT_ID):
        return saved
    return dict(saved, bystanders=dict(NOBODY, online=saved["cpu"]["online"]), cores=[]) if kept_over_boots else None


def _check_cores(cores) -> None:
    cpus = [cpu for core in cores for cpu in core]
    if not smt_state.is_cpus(cpus) or len(set(cpus)) != len(cpus):
        raise ValueError("its cores are none")
