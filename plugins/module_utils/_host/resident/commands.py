# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that a pull runs: each within a time limit, and its last words are kept for a sentence."""

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

# What a command may take that is asked to end.
TERM_SECONDS = 30.0
# Lines of a command's output among which its reason is looked for, and the length of a line.
_MAX_LINES, _MAX_LINE = 400, 4000
_REASON = re.compile(r"\[?(error|fatal)\b", re.IGNORECASE)


class CommandError(HostError):
    """A command cannot be started, or takes too long; the message says why."""


class Done(t.NamedTuple):
    """A command that ended.

    Attributes:
        status: its exit status; negative: the signal that ended it.
        output: its last lines.
    """

    status: int
    output: "list[str]"

    @property
    def reason(self) -> str:
        """Why it failed, in its own words, as one line that a terminal does not interpret."""
        lines = [line for line in self.output if line.strip()]
        named = [line for line in lines if _REASON.match(line)]
        message = host_text.printable(" ".join((named or lines or ["it said nothing"])[-1].split()), 400)
        return f"{message} ({f'exit status {self.status}' if self.status >= 0 else f'signal {-self.status}'})"


def run(
    argv: "list[str]", seconds: float, directory: str, environment: "t.Mapping[str, str]", is_shown: bool = True
) -> Done:
    """Run a command.

    Args:
        argv: the command.
        seconds: after which it is ended.
        directory: its working directory.
        environment: variables that it gets beside those of this process.
        is_shown: whether what it prints goes to the journal.

    Raises:
        CommandError: it cannot be started, or it took too long.
    """
    name = os.path.basename(argv[0])
    kept: collections.deque[str] = collections.deque(maxlen=_MAX_LINES)
    try:
        # A session of its own, so that it has no terminal to ask for a password, and can be ended with its children.
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env=dict(os.environ, **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{name} cannot be started: {error}") from None
    # A process that it left running may hold its output open for ever: the command ends when it ends itself.
    reader = threading.Thread(target=_pass_on, args=(process.stdout, kept, is_shown), daemon=True)
    reader.start()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise CommandError(f"{name} took longer than {seconds:.0f} s and was ended") from None
    reader.join(TERM_SECONDS)
    return Done(process.returncode, list(kept))


def _pass_on(stream: t.IO[bytes], kept: "collections.deque[str]", is_shown: bool) -> None:
    for raw in iter(lambda: stream.readline(_MAX_LINE), b""):
        line = raw.decode("utf-8", "replace").rstrip("\n")
        kept.append(line)
        if is_shown:
            show(line)


def show(line: str) -> None:
    """Write a line to the journal; where there is no room for it, go on without."""
    with contextlib.suppress(OSError):
        sys.stdout.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
        sys.stdout.flush()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command with its children: one that went on could still take what the command was given up for.

    The watchdog of a change that Ansible made has a session of its own, and restores the host.
    """
    end = time.monotonic() + TERM_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERM_SECONDS)
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
