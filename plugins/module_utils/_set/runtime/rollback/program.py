# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that a host runs while a change waits for its confirmation: when its time has come,
it tries until the host is read in the state before.

It has loaded all that it needs before it says that it is ready, and goes by its memory. It needs to write no file: at
the end it renames one.
"""

import contextlib
import math
import os
import sys
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    files as host_files,
    kernel_files,
    locks,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import (
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._set import follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    restore as smt_restore,
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import pending as pending_rollback

PURPOSE = "the rollback timer of a change that was not confirmed"
# A confirmation is noticed within this time, so that nothing that was confirmed leaves a process behind.
LOOK_SECONDS = 5.0
# Between two attempts.
PAUSE_SECONDS = 10.0


class Program:
    """The program.

    Args:
        host: the host's kernel.
        pending: the pending rollback.
        wait: waits so many seconds for a signal, and returns its number, None where none came.
        now: seconds of CLOCK_MONOTONIC.
        run_command: runs a command, and gives it up after a time.
    """

    def __init__(
        self,
        host: kernel_files.KernelFiles,
        pending: pending_rollback.Pending,
        wait: "t.Callable[[float], int | None]",
        now: "t.Callable[[], float]" = time.monotonic,
        run_command: follow.RunCommand = follow.run,
    ) -> None:
        self._host, self._fs = host, host_files.HostFs(host.sysroot)
        self._pending, self._wait, self._now = pending, wait, now
        self._run_command = run_command
        # The CPUs of the change, from before the first attempt to take it back.
        self._changed: t.Optional[base.Online] = None
        self._last_sentence = ""

    def run(self) -> None:
        """Wait for the time, and roll back. End at once where the change is confirmed."""
        end, is_asked = self._end_of_time(), False
        while pending_rollback.exists(self._fs):
            if self._now() < end and not is_asked:
                heard = self._wait(min(LOOK_SECONDS, end - self._now()))
                is_asked = heard == service.UNDO_NOW
                if heard == service.RENEWED:
                    self._pending = pending_rollback.load(self._fs) or self._pending
                    end = self._now() + self._pending["seconds"]
                continue
            known = self._pending["since"]
            if self._is_done(is_asked):
                return
            if self._pending["since"] == known:
                service.pause(PAUSE_SECONDS, self._wait, self._now)
            else:
                end = self._end_of_time()

    def _end_of_time(self) -> float:
        return self._pending["since"] + self._pending["seconds"]

    def _is_done(self, is_asked: bool) -> bool:
        """Make an attempt, unless another change that waits has come in between; return whether none has to follow.

        Args:
            is_asked: whether somebody wants it before its time.
        """
        try:
            # Whoever changes the host is waited for. Between attempts others may change it, such as back by hand.
            with locks.HostLock(self._fs.sysroot, PURPOSE, math.inf):
                if not pending_rollback.exists(self._fs):
                    return True
                known, self._pending = self._pending, pending_rollback.load(self._fs) or self._pending
                if self._pending["since"] != known["since"] and self._now() < self._end_of_time() and not is_asked:
                    return False
                if self._changed is None or self._pending["since"] != known["since"]:
                    self._changed = history.load(self._fs, smt_state.read(files=self._host)["online"])
                problems = smt_restore.restore(self._host, self._pending)
                left = smt_restore.left(problems)
                if not left:
                    problems += self._consumers_back(self._changed)
                    self._end()
        except (HostError, OSError, MemoryError) as error:
            self._say(f"not rolled back yet: {error or type(error).__name__}")
            return False
        self._say(f"not rolled back yet: {'; '.join(left)}" if left else "; ".join(["rolled back", *problems]))
        return not left

    def _consumers_back(self, online: base.Online) -> "list[str]":
        """Make the consumers right that followed the change; return what does not work, a sentence each."""
        back = self._pending["cpu"]["online"]
        with contextlib.suppress(OSError):
            history.save(self._fs, online.after(history.ticks(), back))
        chosen = consumer_settings.parse(self._pending["consumers"])
        return follow.Consumers(self._host, chosen, self._run_command).back(online.after(math.inf, back))

    def _end(self) -> None:
        """Leave the files as they were before the change, by what takes no room on the disk."""
        if self._pending["snapshot"] is None:
            smt_snapshot.remove(self._fs)
        pending_rollback.end(self._fs)

    def _say(self, sentence: str) -> None:
        sentence = host_text.printable(" ".join(sentence.split()), 2000)
        if sentence != self._last_sentence:
            self._last_sentence = sentence
            service.notify(f"STATUS={sentence}")
            with contextlib.suppress(OSError):
                sys.stderr.write(f"threadwise-smt: {sentence}\n")
                sys.stderr.flush()


def main(sysroot: str) -> int:
    """What the service runs; the exit status is 0 when nothing is left to roll back."""
    service.listen()
    host = kernel_files.KernelFiles(sysroot)
    pending = pending_rollback.load(host_files.HostFs(sysroot))
    if pending is None:
        return 0
    # Python loads some of what it needs with the first use.
    with contextlib.suppress(HostError, OSError):
        smt_state.differences(pending["cpu"], smt_state.read(files=host))
    os.chdir("/")
    service.notify("READY=1")
    Program(host, pending, service.heard).run()
    return 0
