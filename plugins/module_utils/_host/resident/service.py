# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that a host runs as a service, which waits until its time has come or somebody sends it a signal.

A service that waits, no timer: each daemon-reload starts the time of a timer with OnActiveSec anew (systemd issue
31914), so that it may never elapse. What waits has also loaded all that it needs, and needs neither memory nor a
program of its own when its time has come.
"""

import contextlib
import os
import signal
import socket
import typing as t

# A sign of the controller: its time starts anew. The host is to go back at once.
RENEWED, UNDO_NOW = signal.SIGHUP, signal.SIGUSR1
# A busy host takes a while to load a program.
START_SECONDS = 300


def listen() -> None:
    """Keep the signals for :func:`heard`, which would end the program."""
    for number in (RENEWED, UNDO_NOW):
        # One that is ignored would not wait for its turn.
        signal.signal(number, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, (RENEWED, UNDO_NOW))


def heard(seconds: float) -> "int | None":
    """Wait so many seconds for a signal, and return its number, None where none came."""
    received = signal.sigtimedwait((RENEWED, UNDO_NOW), max(0.0, seconds))
    return None if received is None else received.si_signo


def pause(seconds: float, wait: "t.Callable[[float], int | None]", now: "t.Callable[[], float]") -> None:
    """Wait, or until it is to go back at once.

    Checks of a controller that has not noticed it are no reason to try more often.
    """
    end = now() + seconds
    while now() < end and wait(end - now()) != UNDO_NOW:
        pass


def notify(message: str) -> None:
    """Tell systemd (sd_notify(3)); nothing where it did not start this program."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        ) as systemd:
            systemd.sendto(message.encode("utf-8"), "\0" + address[1:] if address.startswith("@") else address)
