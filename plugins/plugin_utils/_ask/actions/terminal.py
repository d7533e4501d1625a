# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What actions say to people while they run.

An action runs in a process of its own and asks Ansible's main process to print. That process ends its thread for this
with the first error of a write (``results_thread_main`` in ansible/plugins/strategy/__init__.py), and then waits for
its actions for ever. So nothing is sent to a reader that is gone, as after ``| head -1`` or the end of ``less``.

Where the standard output is for programs (Ansible's setting ``stdout_callback``), nothing of ours is between what the
callback prints; warnings go to the standard error, as all of Ansible's. The same is in the results of tasks.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import time
import typing as t

from ansible import constants
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import intake

# Ansible's own function has no type hints.
_SETTING: t.Callable[[str], t.Any] = constants.config.get_config_value
STDOUT, STDERR = 1, 2
DEFAULT_WIDTH, MAX_WIDTH = 79, 10_000
# Between two looks whether anybody reads.
READER_SECONDS = 1
NOBODY_READS = "nobody reads what this call prints any more (its pipe was closed, as by | head or the end of a pager)"
# How a callback is called that prints for programs, or nothing: ansible.posix.json and .jsonl, community.general.null,
# and what others call theirs.
_FOR_PROGRAMS = re.compile(r"json|null|(?<![a-z])(xml|csv|logfmt)(?![a-z])")


class Terminal:
    """Ansible's display, as far as somebody reads it."""

    def __init__(self) -> None:
        self._display = Display()

    def display(self, text: str) -> None:
        """Print a text."""
        self._say(STDOUT, self._display.display, text)

    @property
    def width(self) -> int:
        """Columns of the terminal, of COLUMNS where there is none, else 79."""
        with contextlib.suppress(OSError):
            opened = os.open(_path(STDOUT), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                return os.get_terminal_size(opened).columns or DEFAULT_WIDTH
            finally:
                os.close(opened)
        given = os.environ.get("COLUMNS", "")
        return int(given) if given.isdecimal() and 0 < int(given) < MAX_WIDTH else DEFAULT_WIDTH

    def warning(self, text: str) -> None:
        """Print a warning."""
        self._say(STDERR, self._display.warning, text)

    def v(self, text: str) -> None:
        """Print a text that is shown with -v."""
        self._say(STDOUT, self._display.v, text)

    @staticmethod
    def _say(descriptor: int, say: t.Callable[[str], None], text: str) -> None:
        if (descriptor == STDERR or is_for_people()) and is_read(descriptor):
            say(text)


def wait_while_read(seconds: float) -> bool:
    """Wait; return at once and False where nobody reads what Ansible prints on its standard output."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(READER_SECONDS, left))
        if not is_read(STDOUT):
            return False
    return True


class UnreadError(Exception):
    """Nobody reads what Ansible prints any more."""


@contextlib.contextmanager
def while_read() -> t.Iterator[None]:
    """End what is begun within, and its processes, when nobody reads what Ansible prints on its standard output.

    For a call of a module that takes long; what it does on the host ends by itself.

    Yields:
        None.

    Raises:
        UnreadError: nobody reads it any more.
    """
    # A task with a `timeout` uses this timer already.
    if signal.getitimer(signal.ITIMER_REAL) != (0, 0):
        yield
        return
    others = processes.children()

    def look(_number: int, _frame: t.Any) -> None:
        if not is_read(STDOUT):
            intake.end_since(others)
            raise UnreadError(NOBODY_READS)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, READER_SECONDS, READER_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_for_people() -> bool:
    """Return whether people read what Ansible prints on its standard output."""
    callback = str(_SETTING("DEFAULT_STDOUT_CALLBACK"))
    return not _FOR_PROGRAMS.search(callback.rpartition(".")[2].lower())


def is_read(descriptor: int) -> bool:
    """Return whether somebody reads what Ansible's main process writes to a descriptor: False for a pipe whose reader
    is gone, True also where that cannot be seen, as on a controller without /proc.
    """
    path = _path(descriptor)
    with contextlib.suppress(OSError):
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            return True
        opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The end of a pipe that nobody reads has an error (pipe_poll in fs/pipe.c).
            poll = select.poll()
            poll.register(opened, 0)
            return not any(events & select.POLLERR for _descriptor, events in poll.poll(0))
        finally:
            os.close(opened)
    return True


def _path(descriptor: int) -> str:
    """Return the path of a descriptor of Ansible's main process."""
    return f"/proc/{os.getppid()}/fd/{descriptor}"
