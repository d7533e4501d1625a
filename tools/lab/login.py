# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in a guest, by ssh with the keys of its image."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import time

from common import LabError, last_lines
from machine import Machine
from rootfs import HOST_KEY_ALIAS, LOGIN_KEY

# Seconds without a word on the console after which a guest that cannot be reached is taken to stand still. On a machine
# that four other guests kept busy a whole boot took less.
SILENCE = 240


def ssh_options(image_directory: pathlib.Path) -> list[str]:
    """Options that make ssh know the guests by the key of their image,
    and nothing of the user's own configuration of hosts.
    """
    known_hosts = image_directory / "known_hosts"
    return [
        "-o",
        f'UserKnownHostsFile="{known_hosts}"',
        "-o",
        "GlobalKnownHostsFile=/dev/null",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        f"HostKeyAlias={HOST_KEY_ALIAS}",
        "-o",
        "IdentitiesOnly=yes",
    ]


@dataclasses.dataclass(frozen=True)
class Login:
    """The way into one guest."""

    machine: Machine
    image_directory: pathlib.Path
    port: int

    def run(self, command: str, sent: bytes = b"", timeout: float = 120) -> bytes:
        """Run a shell command as root and return what it printed; ``sent`` is its standard input.

        Raises:
            LabError: it failed, or there was no answer within ``timeout`` seconds.
        """
        name = self.machine.directory.name
        try:
            done = subprocess.run(
                [
                    "ssh",
                    "-F",
                    "none",
                    *ssh_options(self.image_directory),
                    "-o",
                    "BatchMode=yes",
                    "-o",
                    "LogLevel=ERROR",
                    "-o",
                    "ConnectTimeout=10",
                    "-i",
                    str(self.image_directory / LOGIN_KEY),
                    "-p",
                    str(self.port),
                    "root@127.0.0.1",
                    command,
                ],
                input=sent,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{name}: no answer within {timeout:.0f} s to: {command}") from error
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors="replace")
            raise LabError(f"{name}: exit code {done.returncode} from: {command}\n{last_lines(output)}")
        return done.stdout

    def wait(self, timeout: float, but_not_boot: str = "") -> str:
        """Wait for a working ssh and return the boot's id; one that is ``but_not_boot`` does not count.

        Raises:
            LabError: it did not come within ``timeout`` seconds, its kernel panicked or stands still, or QEMU ended;
                with the console's last lines.
        """
        deadline = time.monotonic() + timeout
        heard, since = "", time.monotonic()
        while True:
            console = self.machine.console_text()
            if console != heard:
                heard, since = console, time.monotonic()
            try:
                boot = self.run("cat /proc/sys/kernel/random/boot_id", timeout=60).decode(errors="replace").strip()
                if boot != but_not_boot:
                    return boot
            except LabError as error:
                self._give_up_when_hopeless(deadline, timeout, since, error)
            time.sleep(0.5)

    def _give_up_when_hopeless(self, deadline: float, timeout: float, since: float, error: LabError) -> None:
        if not self.machine.pid():
            reason = "QEMU has ended"
        elif "Kernel panic" in self.machine.console_text():
            reason = "its kernel panicked"
        elif time.monotonic() > deadline:
            reason = f"no ssh within {timeout:.0f} s"
        elif time.monotonic() > since + SILENCE:
            reason = f"neither ssh nor a word on its console for {SILENCE} s"
        else:
            return
        name = self.machine.directory.name
        raise LabError(
            f"guest {name} did not come up: {reason}. Its console's last lines:\n{self.machine.last_words()}"
        ) from error
