# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""QEMU processes: started in a directory of their own, found again by it, ended by process id and by no other way."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import select
import shutil
import signal
import time

from common import STATE, LabError, last_lines, run
from emulator import PROGRAM
from qmp import Monitor, monitor

SSH_PORT = 22
GUESTS = STATE / "guests"


@dataclasses.dataclass(frozen=True)
class Machine:
    """One QEMU process, running or not, that lives in ``directory``."""

    directory: pathlib.Path

    @property
    def console(self) -> pathlib.Path:
        """The log of its serial console."""
        return self.directory / "console.log"

    @property
    def pidfile(self) -> pathlib.Path:
        """Written by QEMU itself before it runs anything: nothing that interrupts us can lose a process."""
        return self.directory / "pid"

    def start(self, command: list[str], port: int = 0) -> int:
        """Start QEMU in the background and return the loopback port that leads to the guest's ssh; 0 takes a free one.

        Args:
            command: the program and the options that make the machine what it is.
            port: the loopback port.

        Raises:
            LabError: QEMU did not start.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.console.unlink(missing_ok=True)
        full = [
            *command,
            "-name",
            self.directory.name,
            "-daemonize",
            "-pidfile",
            str(self.pidfile),
            # restrict: the guest reaches nothing, only forwarded ports reach it.
            "-netdev",
            f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:{SSH_PORT}",
            "-serial",
            "file:console.log",
            "-qmp",
            "unix:qmp.sock,server=on,wait=off",
            "-D",
            "qemu.log",
        ]
        # A terminal's Ctrl-C goes to its process group: a session of its own keeps QEMU out of it.
        run(full, cwd=self.directory, start_new_session=True)
        with monitor(self.directory / "qmp.sock") as qemu:
            forwarded = self._forwarded(qemu, SSH_PORT)
        if not forwarded:
            raise LabError(f"{self.directory.name}: QEMU does not say which port leads to the guest")
        return forwarded

    def forward(self, port: int) -> int:
        """Let a free loopback port lead to a TCP port of the guest until the process ends, and return it;
        one that does already is returned again.

        Raises:
            LabError: QEMU is gone, or there is no free port.
        """
        with monitor(self.directory / "qmp.sock") as qemu:
            if not self._forwarded(qemu, port):
                qemu.human(f"hostfwd_add net tcp:127.0.0.1:0-:{port}")
            forwarded = self._forwarded(qemu, port)
        if not forwarded:
            raise LabError(f"{self.directory.name}: no loopback port leads to port {port} of the guest")
        return forwarded

    @staticmethod
    def _forwarded(qemu: Monitor, port: int) -> int | None:
        """The loopback port that leads to a port of the guest, or None."""
        match = re.search(
            rf"HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+[\d.]+\s+{port}\s", qemu.human("info usernet")
        )
        return int(match.group(1)) if match else None

    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        process = self._open()
        if not process:
            return None
        os.close(process[1])
        return process[0]

    def _open(self) -> tuple[int, int] | None:
        """Process id and a descriptor for that very process:
        what the descriptor names can no more become another one.
        """
        try:
            pid = int(self.pidfile.read_text(encoding="ascii"))
            descriptor = os.pidfd_open(pid)
        except (OSError, ValueError, OverflowError):
            return None
        # The id may have gone to another process since: it is ours when it was started with our pid file.
        try:
            arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            arguments = []
        if os.fsencode(self.pidfile) in arguments and os.path.basename(arguments[0]).startswith(os.fsencode(PROGRAM)):
            return pid, descriptor
        os.close(descriptor)
        return None

    def cut(self) -> bool:
        """End the process without warning, as a power cut does to a machine; False when there was none.

        What the guest has flushed is on its disk, and what it has not is lost.

        Raises:
            LabError: it did not end.
        """
        return self._end(((signal.SIGKILL, 10),))

    def stop(self) -> bool:
        """End the process; False when there was none.

        Raises:
            LabError: it did not end.
        """
        return self._end(((signal.SIGTERM, 10), (signal.SIGKILL, 10)))

    def _end(self, ways: tuple[tuple[signal.Signals, float], ...]) -> bool:
        """End the process by signals, each with the seconds it is given."""
        process = self._open()
        if not process:
            return False
        pid, descriptor = process
        try:
            for number, time_limit in ways:
                signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], time_limit)[0]:
                    return True
        except ProcessLookupError:
            return True
        finally:
            os.close(descriptor)
        raise LabError(f"{self.directory.name}: process {pid} does not end, not even by SIGKILL")

    def wait(self, timeout: float) -> None:
        """Wait until the machine has powered itself off.

        Raises:
            LabError: it still runs after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while self.pid():
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.directory.name} still runs after {timeout:.0f} s; its console's last"
                    f" lines:\n{self.last_words()}"
                )
            time.sleep(0.2)

    def run_once(self, command: list[str], last_word: str, timeout: float) -> None:
        """Run a machine until it powers itself off, and remove it; what ran before in its directory is ended.

        Raises:
            LabError: it took longer than ``timeout`` seconds, or did not say its last word on the console.
        """
        self.stop()
        try:
            self.start(command)
            self.wait(timeout)
            if last_word not in self.console_text():
                raise LabError(
                    f"{self.directory.name} ended without the words {last_word!r}; the console's last"
                    f" lines:\n{self.last_words()}"
                )
        finally:
            self.stop()
            self.remove()

    def console_text(self) -> str:
        """What the serial console said, its last 64 kB."""
        try:
            with open(self.console, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 65536))
                return log.read().decode(errors="replace").replace("\r", "")
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """The console's last lines without terminal control sequences."""
        return last_lines(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]", "", self.console_text()))

    def remove(self) -> None:
        """Delete the directory of a machine that has ended."""
        shutil.rmtree(self.directory, ignore_errors=True)


def machines() -> list[Machine]:
    """All machines that have a directory, those being prepared included."""
    if not GUESTS.is_dir():
        return []
    return [Machine(entry) for entry in sorted(GUESTS.iterdir()) if entry.is_dir()]
