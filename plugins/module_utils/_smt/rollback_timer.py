# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dead man's hand: a systemd timer that brings the host back unless somebody confirms in time that it can still be reached.

The timer starts a copy of the restoring files, because what Ansible sent is gone when a module ends. Who changes or confirms anything here holds the
host's lock; restore.py says what decides.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, locks
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, restore as smt_restore, state as smt_state

PROGRAM = "var/lib/threadwise-smt/restore"
PACKAGE = "threadwise_smt"
UNIT = "threadwise-smt-revert"
UNITS = (UNIT + ".timer", UNIT + ".service")
LONGEST_SECONDS = 7 * 24 * 3600
# systemctl(1): the unit is not loaded.
NOT_LOADED = 5


class DeadManError(Exception):
    """The timer cannot be armed or stopped; nothing else was changed."""


class DeadMan:
    """The timer of one host.

    Args:
        host: ``affinity.Host``
        fs: ``files.HostFs`` of the same host
        run_command: ``callable(list of str) -> (status, stdout, stderr)``, as AnsibleModule.run_command
    """

    def __init__(self, host: affinity.Host, fs, run_command):
        self._host = host
        self._fs = fs
        self._run = run_command

    def see_that_it_can_be_armed(self) -> None:
        """Raises DeadManError."""
        if self._fs.status("run/systemd/system") is None or shutil.which("systemd-run") is None:
            raise DeadManError(
                "revert_after needs systemd (systemd-run), which does not run this host: nothing was changed. Leave revert_after out, "
                "or arm another way back yourself"
            )

    def arm(self, record: dict, seconds: int) -> None:
        """Restore ``record`` (as in smt_restore.put_back) after so many seconds; an armed timer is replaced. Raises DeadManError."""
        self.see_that_it_can_be_armed()
        try:
            for module in (cpulist, smt_state, locks, affinity, smt_restore):
                folder, name = module.__name__.split(".")[-2:]
                self._fs.write(f"{PROGRAM}/{PACKAGE}/{folder}/{name}.py", inspect.getsource(module))
            self._stop()
            self.keep(record)
        except OSError as trouble:
            raise DeadManError(f"the restoring program cannot be put below /var/lib/threadwise-smt: {trouble}") from trouble
        command = [
            "systemd-run",
            "--unit=" + UNIT,
            f"--on-active={seconds}",
            "--timer-property=AccuracySec=100ms",
            "--description=Restore the SMT state",
            "--property=WorkingDirectory=" + self._fs.path(PROGRAM),
            sys.executable,
            "-m",
            PACKAGE + "._smt.restore",
            self._fs.sysroot,
        ]
        status, _out, error = self._run(command)
        if status != 0:
            self._clean()
            raise DeadManError(f"systemd-run did not arm the timer (status {status}): {error.strip()[:500]}")

    def keep(self, record: dict) -> None:
        """Have the timer, which is armed or about to be, restore this record. Raises OSError."""
        self._fs.write(smt_restore.PENDING, json.dumps(dict(record, boot_id=self._host.read(smt_restore.BOOT_ID))) + "\n", mode=0o600)

    def with_unconfirmed(self, record: dict) -> dict:
        """A record that also takes back what waits to be confirmed already: what nobody confirmed is undone together."""
        earlier = smt_restore.pending(self._host)
        if earlier is None:
            return record
        return {
            "cpu": earlier["cpu"],
            "bystanders": affinity.merge(earlier["bystanders"], record["bystanders"]),
            "remove": sorted(set(earlier["remove"]) | set(record["remove"])),
        }

    def is_armed(self) -> bool:
        """Whether a change of this boot waits to be confirmed, and would be taken back."""
        if smt_restore.pending(self._host) is None:
            return False
        # Status 3: not active. Once the timer has elapsed its service is active, until it has restored.
        return self._run(["systemctl", "is-active", "--quiet", *list(UNITS)])[0] == 0

    def disarm(self) -> None:
        """The change is confirmed, or was undone. Raises DeadManError when the timer cannot be stopped."""
        if self._fs.status(smt_restore.PENDING) is None:
            return
        self._stop()
        self._clean()

    def forget(self) -> None:
        """That a change was taken back no longer counts once another one follows it."""
        if self._fs.status(smt_restore.REVERTED) is not None:
            os.unlink(self._fs.path(smt_restore.REVERTED))

    def _stop(self) -> None:
        # Without its record the program does nothing, whatever becomes of the timer. One that waits for the lock would take a later record for its own.
        self._remove_record()
        status, _out, error = self._run(["systemctl", "stop", *list(UNITS)])
        if status not in (0, NOT_LOADED):
            raise DeadManError(f"the timer {UNIT}.timer could not be stopped: {error.strip()[:500]}")
        self._run(["systemctl", "reset-failed", *list(UNITS)])

    def _clean(self) -> None:
        shutil.rmtree(self._fs.path(PROGRAM), ignore_errors=True)
        self._remove_record()

    def _remove_record(self) -> None:
        if self._fs.status(smt_restore.PENDING) is not None:
            os.unlink(self._fs.path(smt_restore.PENDING))
