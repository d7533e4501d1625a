# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that a host runs during its visit: it waits for its time,
and then tries until the host is seen without the arguments.

It has loaded all that it needs before it says that it is ready. When its time has come it goes by its memory and by
what it reads of the host: what it writes down of itself, and what it says, is for others, and where there is no room
for it, it goes on without.
"""

import contextlib
import os
import sys
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    files as host_files,
    locks,
    processes,
    state_file,
    text as host_text,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident.service import RENEWED, UNDO_NOW, notify
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record, steps, units
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import (
    change as slot_change,
    request as slot_request,
)

LOG = "var/lib/threadwise-smt/boot-visit.log"
_MAX_LOG = 1 << 20
# Time between two attempts; for a reboot that was asked for; and between two looks at who changes the host.
PAUSE_SECONDS, REBOOT_SECONDS, LOOK_SECONDS = 30.0, 300.0, 10.0
# Whoever held the host's lock when the time was over was at work. After it so much is left for a sign of the
# controller.
GRACE_SECONDS = 300.0
# Attempts to reboot that respect what inhibits it, such as a package manager at work.
POLITE_ATTEMPTS = 20
# Not by kexec and not by a soft reboot (systemctl(1)): they would keep the arguments of the running kernel.
_FULL = ("env", "SYSTEMCTL_SKIP_AUTO_KEXEC=1", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1", "systemctl")
_REBOOT = (*_FULL, "reboot")
# Since systemd 257 inhibitors hold for root too, and --ignore-inhibitors may ask for a password (issue 36786): this
# does not ask logind.
_REBOOT_WITHOUT_ASKING = (*_FULL, "--no-block", "--job-mode=replace-irreversibly", "start", "reboot.target")


class Program:
    """The program.

    Args:
        fs: the files of the running system.
        visit: its record.
        wait: waits so many seconds for a signal, and returns its number, None where none came.
        now: seconds of a clock that is never set.
    """

    def __init__(
        self,
        fs: host_files.HostFs,
        visit: record.Visit,
        wait: "t.Callable[[float], int | None]",
        now: "t.Callable[[], float]" = time.monotonic,
    ) -> None:
        self._fs, self._visit, self._wait, self._now = fs, visit, wait, now
        self._last_sentence = ""
        self._refused = 0

    def run(self) -> None:
        """Wait for the time, and go back."""
        if not self._visit.is_ending:
            self._wait_for_end()
        self._go_back()

    def _wait_for_end(self) -> None:
        pause, end = self._begin_time()
        while True:
            heard = self._wait(pause)
            if heard == UNDO_NOW:
                return
            if heard == RENEWED:
                self._visit = record.load(self._fs) or self._visit
                pause, end = self._begin_time()
                continue
            holder = self._holder()
            if holder is not None:
                self._say(f"its time is over; it waits, because {holder}")
                end = self._now() + GRACE_SECONDS
            if self._now() >= end:
                return
            pause = LOOK_SECONDS

    def _begin_time(self) -> "tuple[float, float]":
        """Return the seconds of its time, and the moment when it is over."""
        seconds = float(self._visit.seconds)
        notify(
            f"STATUS=undoes the boot arguments of {host_text.printable(self._visit.owner)} after {seconds:.0f} s"
            " without a sign of its controller"
        )
        return seconds, self._now() + seconds

    def _go_back(self) -> None:
        notify(f"STATUS=undoing the boot arguments of {host_text.printable(self._visit.owner)}")
        while True:
            try:
                step = steps.next_step(steps.look(self._fs, self._visit), self._reboots())
                if step is steps.Step.FORGET:
                    self._say(
                        "back: neither the boot configuration nor the running kernel has arguments of"
                        f" {self._visit.owner}"
                    )
                    slot_change.release(self._fs, record.UNIT)
                    units.forget(self._fs, stops=False)
                    return
                pause = self._do(step)
            except Exception as error:
                # Whatever it is, another attempt comes.
                self._fail(
                    str(error) if isinstance(error, (*change.ERRORS, OSError)) else f"{type(error).__name__}: {error}"
                )
                pause = PAUSE_SECONDS
            service.pause(pause, self._wait, self._now)

    def _do(self, step: steps.Step) -> float:
        """Do a step; return the seconds until the next."""
        if step is steps.Step.UNDO:
            steps.undo(self._fs)
            self._keep(is_ending=True, why="")
            self._say(f"the arguments of {self._visit.owner} are removed from the boot configuration")
            return 0
        if step is steps.Step.STAY:
            running = " ".join(steps.look(self._fs, self._visit).running)
            self._fail(
                f"after {self._reboots()} reboots the kernel still runs with {running}, which the boot configuration"
                " does not have: see what boots it"
            )
            return REBOOT_SECONDS
        holder = self._holder()
        if holder is not None:
            self._fail(holder)
            return LOOK_SECONDS
        return self._reboot()

    def _reboots(self) -> int:
        """Return how often it was rebooted to be without the arguments: this boot may be asked for another."""
        boot = state_file.boot_id(self._fs)
        return sum(reboot != boot for reboot in self._visit.reboots)

    def _reboot(self) -> float:
        if self._visit.slot is not None:
            answer = slot_change.acquire(self._fs, slot_request.of_options(self._visit.slot, record.UNIT))
            if not answer.granted:
                self._fail(f"it waits for its reboot: {answer.reason}")
                return PAUSE_SECONDS
        boot = state_file.boot_id(self._fs)
        reboots = (*(reboot for reboot in self._visit.reboots if reboot != boot), boot)
        self._keep(is_ending=True, reboots=reboots)
        is_polite = self._refused < POLITE_ATTEMPTS
        status, _out, message = processes.run(list(_REBOOT if is_polite else _REBOOT_WITHOUT_ASKING))
        if status != 0:
            self._refused += 1
            # logind says of a target that is masked no more than "Access denied".
            is_masked = processes.run(["systemctl", "is-enabled", "reboot.target"])[1].startswith("masked")
            way_out = (
                "reboot.target is masked: unmask it" if is_masked else "systemd-inhibit lists what inhibits reboots"
            )
            self._fail(
                f"it cannot be rebooted: systemctl ended with status {status}: {' '.join(message.split())[:500]}"
                f" ({way_out})"
            )
            return PAUSE_SECONDS
        self._say("rebooting, to be without the arguments")
        return REBOOT_SECONDS

    def _holder(self) -> "str | None":
        return locks.HostLock(self._fs.sysroot, "").holder()

    def _keep(self, **changed: t.Any) -> None:
        self._visit = self._visit._replace(**changed)
        # It goes on from memory: a full disk is no reason to leave the host where it is.
        with contextlib.suppress(OSError):
            record.save(self._fs, self._visit)

    def _fail(self, why: str) -> None:
        self._say(why)
        self._keep(why=why)

    def _say(self, sentence: str) -> None:
        sentence = host_text.printable(" ".join(sentence.split()), 1000)
        if sentence == self._last_sentence:
            return
        self._last_sentence = sentence
        notify(f"STATUS={sentence}")
        with contextlib.suppress(OSError):
            sys.stderr.write(f"threadwise-smt: {sentence}\n")
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            _append(self._fs.path(LOG), f"{host_text.utc_now()} {sentence}\n")


def _append(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < _MAX_LOG:
            os.write(descriptor, line.encode("utf-8"))
    finally:
        os.close(descriptor)


def main(sysroot: str) -> int:
    """What the service runs; the exit status is 0 when the host is back."""
    service.listen()
    fs = host_files.HostFs(sysroot)
    visit = record.load(fs)
    if visit is None:
        return 0
    # Python loads some of what it needs with the first use.
    with contextlib.suppress(*change.ERRORS, OSError):
        steps.look(fs, visit)
    # No file system stays busy because of it.
    os.chdir("/")
    notify("READY=1")
    Program(fs, visit, service.heard).run()
    return 0
