# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback timer: a systemd timer that restores the host unless somebody confirms in time that it can still be reached.

The timer starts a copy of the files that restore the state, because Ansible removes its own copy when a module ends. Callers hold the host's lock.
restore.py describes what decides between a rollback and a confirmation.
"""

import inspect
import shutil
import sys
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity, bindings, cpusets, origins, tasks
from ansible_collections.threadwise.smt.plugins.module_utils._compat import typing_forms
from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    cpulist,
    durable,
    errors as host_errors,
    files as host_files,
    kernel_files,
    locks,
    state_file,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt import errors, restore as smt_restore, state as smt_state

PROGRAM = "var/lib/threadwise-smt/restore"
PACKAGE = "threadwise_smt"
UNIT = "threadwise-smt-rollback"
UNITS = (UNIT + ".timer", UNIT + ".service")
# All files of the rollback program. They import only each other, by relative imports.
MODULES = (
    typing_forms,
    host_errors,
    errors,
    cpulist,
    host_text,
    locks,
    durable,
    host_files,
    state_file,
    kernel_files,
    origins,
    tasks,
    cpusets,
    bindings,
    affinity,
    smt_state,
    smt_restore,
)
LONGEST_SECONDS = 7 * 24 * 3600
# systemctl(1): the unit is not loaded.
NOT_LOADED = 5

RunCommand = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
"""Runs a command and returns (status, stdout, stderr), as AnsibleModule.run_command."""


class RollbackTimerError(errors.SmtError):
    """The timer cannot be armed or stopped. Nothing else was changed."""


class RollbackTimer:
    """The rollback timer of the host whose files are ``fs``."""

    def __init__(self, fs: host_files.HostFs, run_command: RunCommand) -> None:
        self._fs = fs
        self._run = run_command

    def check_can_be_armed(self) -> None:
        """Check the host's requirements; raise RollbackTimerError when systemd does not run on the host."""
        if not self._fs.runs_systemd or shutil.which("systemd-run") is None:
            raise RollbackTimerError(
                "rollback_after needs systemd (systemd-run), which does not run on this host: nothing was changed. Without rollback_after the change is "
                "possible, and nothing but state: restored takes it back"
            )

    def arm(self, record: smt_restore.Record, seconds: int) -> None:
        """Start the timer, which restores ``record`` after so many seconds; replace an armed one; raise RollbackTimerError when that is not possible."""
        self.check_can_be_armed()
        try:
            for module in MODULES:
                folder, name = module.__name__.split(".")[-2:]
                self._fs.write(f"{PROGRAM}/{PACKAGE}/{folder}/{name}.py", inspect.getsource(module))
            self._stop()
            self.keep(record)
        except OSError as error:
            raise RollbackTimerError(f"the rollback program cannot be written below /var/lib/threadwise-smt: {error}") from error
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
        status, _out, message = self._run(command)
        if status != 0:
            self._clean()
            raise RollbackTimerError(f"systemd-run did not start the rollback timer (status {status}): {message.strip()[:500]}")

    def keep(self, record: smt_restore.Record) -> None:
        """Write the record that the timer restores; raise OSError when it cannot be written."""
        smt_restore.PENDING.save(self._fs, {**record, "boot_id": state_file.boot_id(self._fs)})

    def with_pending(self, record: smt_restore.Record) -> smt_restore.Record:
        """Return a record that also rolls back an earlier change that is not confirmed: all of it is rolled back at once."""
        earlier = smt_restore.pending(self._fs)
        if earlier is None:
            return record
        return {
            "cpu": earlier["cpu"],
            "masks": affinity.merge(earlier["masks"], record["masks"]),
            "remove": sorted(set(earlier["remove"]) | set(record["remove"])),
        }

    def is_armed(self) -> bool:
        """Return whether a change of this boot is not confirmed and the timer will roll it back."""
        if smt_restore.pending(self._fs) is None:
            return False
        # Status 3: not active. When the timer has elapsed, its service is active until the state is restored.
        return self._run(["systemctl", "is-active", "--quiet", *UNITS])[0] == 0

    def disarm(self) -> None:
        """Stop the timer after a confirmation or a rollback; raise RollbackTimerError when the timer cannot be stopped."""
        if self._fs.status(smt_restore.PENDING.path) is None:
            return
        self._stop()
        self._clean()

    def forget(self) -> None:
        """Remove the mark that a change was rolled back, because another change follows."""
        smt_restore.ROLLED_BACK.remove(self._fs)

    def _stop(self) -> None:
        # Without its record the program does nothing, even if the timer elapses. One that waits for the lock would otherwise use the record of a later change.
        smt_restore.PENDING.remove(self._fs)
        status, _out, message = self._run(["systemctl", "stop", *UNITS])
        if status not in (0, NOT_LOADED):
            raise RollbackTimerError(f"the timer {UNIT}.timer could not be stopped: {message.strip()[:500]}")
        self._run(["systemctl", "reset-failed", *UNITS])

    def _clean(self) -> None:
        shutil.rmtree(self._fs.path(PROGRAM), ignore_errors=True)
        smt_restore.PENDING.remove(self._fs)
