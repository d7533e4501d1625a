# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request of `smt_rollback`: save a host's state before a policy changes it, put that state back, or forget it."""

import contextlib
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    files as host_files,
    kernel_files,
    locks,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change, frame as boot_frame
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    change as memory_change,
    frame as memory_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback.record import FILE
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    frame as smt_frame,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback.timer import RunCommand

SAVED, BACK, CONFIRMED = "saved", "back", "confirmed"
RUNNING, CONFIGURED, MEMORY = "running", "configured", "memory"
PARTS = (RUNNING, CONFIGURED, MEMORY)
ERRORS = (HostError, OSError, *boot_change.ERRORS, *memory_change.ERRORS)


class Request(t.NamedTuple):
    """What is requested.

    Attributes:
        state: `SAVED`, `BACK` or `CONFIRMED`.
        parts: what is going to be changed, of `PARTS`.
        reboot: whether the change takes a reboot.
        rollout: whether the state is kept until `CONFIRMED`; else the next `SAVED` replaces it.
        reboot_ok: whether the caller reboots the host if that is required, and then asks for `BACK` again.
        interrupted_since: when a rollout that was interrupted saved what is kept, as the facts say it; None where they
            know of none.
        check: change nothing.
    """

    state: str
    parts: "t.Sequence[str]" = ()
    reboot: bool = False
    rollout: bool = False
    reboot_ok: bool = False
    interrupted_since: "str | None" = None
    check: bool = False


class Result(TypedDict):
    """The result of the module smt_rollback."""

    changed: bool
    back_to: "str | None"
    not_back: "list[str]"
    reboot_required: bool
    diff: "list[boot_change.Diff]"


class RollbackError(HostError):
    """The state was not saved, or is not back; the text says what is and what is not."""


class _Record(TypedDict):
    """The content of the file."""

    saved_at: str
    rollout: bool
    reboot: bool
    back_to: str
    running: "smt_frame.Frame | None"
    configured: "boot_frame.Frame | None"
    memory: "memory_frame.Frame | None"


class Rollback:
    """One request on one host. ``warnings`` are sentences for the user.

    Args:
        request: what is requested.
        run_command: runs a command, like AnsibleModule.run_command.
        sysroot: root of the host's files.
    """

    def __init__(self, request: Request, run_command: RunCommand, sysroot: str = "/") -> None:
        self.request = request
        self.run_command = run_command
        self.fs = host_files.HostFs(sysroot)
        self.warnings: list[str] = []
        self._diff: list[boot_change.Diff] = []
        self._changed = False
        self._not_back: list[str] = []

    def run(self) -> Result:
        """Carry out the request and return the module's result.

        Raises:
            RollbackError: the state was not saved, or a part of it is not back; what can be put back is.
            StateFileError: what was saved cannot be used.
            HostLockError: something else changes or measures the host.
        """
        if self.fs.is_host and os.geteuid() != 0:
            raise RollbackError("only root can save the state of a host and put it back: use become")
        with contextlib.ExitStack() as stack:
            if self.request.state == SAVED and not self.request.check:
                # Of two rollouts that find nothing saved, one saves.
                stack.enter_context(locks.HostLock(self.fs.sysroot, boot_frame.PURPOSE, locks.CHANGE_SECONDS))
            return self._run()

    def _run(self) -> Result:
        record = FILE.load(self.fs, _checked)
        back_to = record and record["back_to"]
        reboot_required = False
        if self.request.state == SAVED:
            back_to = self._save(record)
        elif self.request.state == CONFIRMED:
            self._changed = record is not None
            if record is not None and not self.request.check:
                FILE.remove(self.fs)
        elif record is not None:
            reboot_required = self._put_back(record)
        self.warnings += self.fs.problems
        return {
            "changed": self._changed,
            "back_to": back_to,
            "not_back": self._not_back,
            "reboot_required": reboot_required,
            "diff": self._diff,
        }

    def _save(self, known: "_Record | None") -> str:
        """Save what is going to be changed.

        What a rollout saved that was interrupted stays: it is older than the present state.
        """
        request = self.request
        older = known if known is not None and known["rollout"] else None
        if older is not None and older["saved_at"] != request.interrupted_since:
            raise RollbackError(
                f"another rollout has begun to change this host, at {host_text.printable(older['saved_at'], 100)}, and"
                " nothing was changed: wait until it has ended, and run this one again. If it was interrupted, this one"
                " takes over what it saved"
            )
        record: _Record = older or {
            "saved_at": host_text.utc_now(),
            "rollout": request.rollout,
            "reboot": request.reboot,
            "back_to": "",
            "running": None,
            "configured": None,
            "memory": None,
        }
        record["reboot"] = record["reboot"] or request.reboot
        try:
            if RUNNING in request.parts and record["running"] is None:
                record["running"] = smt_frame.present(kernel_files.KernelFiles(self.fs.sysroot), self.fs)
            if CONFIGURED in request.parts and record["configured"] is None:
                record["configured"] = boot_frame.present(self.fs)
            if MEMORY in request.parts and record["memory"] is None:
                record["memory"] = memory_frame.present(self.fs)
            record["back_to"] = _described(record)
            if not request.check:
                self._changed = FILE.save(self.fs, record)
        except ERRORS as error:
            raise RollbackError(
                f"the state before the change cannot be saved, and nothing was changed: {error}"
            ) from error
        return record["back_to"]

    def _put_back(self, record: _Record) -> bool:
        """Put back each part of the record, whether another one fails or not;
        return whether the host has to be rebooted.
        """
        failed: list[str] = []
        reboot_required = False
        try:
            reboot_required = self._put_boot_back(record) and record["reboot"]
        except ERRORS as error:
            failed.append(f"boot arguments: {error}")
        if not (reboot_required and self.request.reboot_ok):
            for put_back in (self._put_running_back, self._put_memory_back):
                try:
                    put_back(record)
                except ERRORS as error:
                    failed.append(str(error))
        if failed:
            raise RollbackError(f"not all is back as it was ({record['back_to']}): {'; '.join(failed)}")
        return reboot_required

    def _put_boot_back(self, record: _Record) -> bool:
        frame = record["configured"]
        if frame is None:
            return False
        result = boot_frame.put_back(self.fs, frame, self.request.check)
        self._changed = self._changed or result["changed"]
        self._not_back += result["not_back"]
        self._diff += result["diff"]
        self.warnings += result["warnings"]
        return result["reboot_required"]

    def _put_running_back(self, record: _Record) -> None:
        frame = record["running"]
        if frame is None:
            return
        # What was bound since to CPUs that were offline before the change does not keep it from being taken back.
        request = smt_change.Request(
            smt_change.PREVIOUS, frame=frame, affinity_conflicts="warn", check=self.request.check
        )
        change = smt_change.RuntimeChange(request, self.run_command, self.fs.sysroot)
        result = change.run()
        self._note(result["changed"], result["diff"], [*change.warnings, *result["not_restored"]])

    def _put_memory_back(self, record: _Record) -> None:
        frame = record["memory"]
        if frame is None:
            return
        request = memory_change.Request(memory_change.PREVIOUS, {"margin": 0}, None, self.request.check, frame)
        change = memory_change.MemoryChange(request, self.run_command, self.fs.sysroot)
        result = change.run()
        self._note(result["changed"], result["diff"], change.warnings)

    def _note(self, changed: bool, diff: "t.Iterable[t.Any]", warnings: "t.Iterable[str]") -> None:
        self._changed = self._changed or changed
        self._diff += diff
        self.warnings += warnings


def _described(record: _Record) -> str:
    running, configured, memory = record["running"], record["configured"], record["memory"]
    parts = [
        smt_frame.described(running) if running is not None else "",
        boot_frame.described(configured) if configured is not None else "",
        memory_frame.described(memory) if memory is not None else "",
    ]
    return ", ".join(filter(None, parts))


def _checked(document: t.Any) -> _Record:
    if not all(isinstance(document[name], str) for name in ("saved_at", "back_to")):
        raise ValueError("it is not what a rollback saved")
    return {
        "saved_at": document["saved_at"],
        "rollout": document["rollout"] is True,
        "reboot": document["reboot"] is True,
        "back_to": document["back_to"],
        "running": None if document["running"] is None else smt_frame.check(document["running"]),
        "configured": None if document["configured"] is None else boot_frame.checked(document["configured"]),
        "memory": None if document["memory"] is None else memory_frame.checked(document["memory"]),
    }
