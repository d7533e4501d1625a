# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback timer: a service that restores the host unless somebody confirms in time that it can still be reached.

Callers hold the host's lock.
"""

import shutil
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive, service
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import errors
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    program,
)

PROGRAM = "var/lib/threadwise-smt/rollback.pyz"
UNIT = "threadwise-smt-rollback.service"
# systemctl(1): the unit is not loaded.
NOT_LOADED = 5

RunCommand = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
"""Runs a command and returns (status, stdout, stderr), as AnsibleModule.run_command."""


class RollbackTimerError(errors.SmtError):
    """The timer cannot be armed or stopped. Nothing else was changed."""


class NoSystemdError(RollbackTimerError):
    """systemd does not run on the host, so that no timer can be armed there."""


class RollbackTimer:
    """The rollback timer of the host whose files are ``fs``."""

    def __init__(self, fs: host_files.HostFs, run_command: RunCommand) -> None:
        self._fs = fs
        self._run = run_command

    def check_can_be_armed(self) -> None:
        """Check the host's requirements; raise NoSystemdError when systemd does not run on the host."""
        if not self._fs.runs_systemd or shutil.which("systemd-run") is None:
            raise NoSystemdError(
                "rollback_after needs systemd (systemd-run), which does not run on this host: nothing was changed."
                " Without rollback_after the change is possible, and nothing but state: restored takes it back"
            )

    def is_armed(self) -> bool:
        """Return whether the service runs that rolls back."""
        return self._run(["systemctl", "is-active", "--quiet", UNIT])[0] == 0

    def arm(self, pending: pending_rollback.Pending) -> None:
        """Start the timer; one that runs starts its time anew, for this rollback.

        Raises:
            RollbackTimerError: that is not possible; the files are to be put back.
            OSError: a file cannot be written.
        """
        pending_rollback.save(self._fs, pending)
        if self.is_armed():
            command = ["systemctl", "kill", "--kill-who=main", "--signal=HUP", UNIT]
        else:
            archive.install(self._fs, PROGRAM, program.__name__)
            self._run(["systemctl", "reset-failed", UNIT])
            command = [
                "systemd-run",
                "--unit=" + UNIT,
                "--description=Restore the SMT state unless its change is confirmed",
                "--service-type=notify",
                "--property=NotifyAccess=main",
                "--property=Restart=on-failure",
                "--property=RestartSec=5",
                f"--property=TimeoutStartSec={service.START_SECONDS}",
                "--property=OOMScoreAdjust=-1000",
                *archive.command(self._fs, PROGRAM),
            ]
        status, _out, message = self._run(command)
        if status != 0:
            detail = f": {' '.join(message.split())[:500]}" if message.strip() else ""
            raise RollbackTimerError(f"{command[0]} did not start the rollback timer (status {status}){detail}")

    def stop(self) -> None:
        """Stop the service, which ends by itself where nothing is pending, and remove its program."""
        status, _out, message = self._run(["systemctl", "stop", UNIT])
        if status not in (0, NOT_LOADED):
            self._fs.note(f"{UNIT} could not be stopped, and ends by itself: {' '.join(message.split())[:500]}.")
        if self._fs.status(PROGRAM) is not None:
            durable.unlink(self._fs.path(PROGRAM))
