# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the laboratory keeps its things, how it reports progress,
and how two runs of it keep out of each other's way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Images and snapshots outlive a working tree: each clone of the same files finds what another one built. By the rule of
# the XDG base directories a path that is not absolute is not used.
_GIVEN = os.environ.get("XDG_CACHE_HOME", "")
CACHE = (pathlib.Path(_GIVEN) if _GIVEN.startswith("/") else pathlib.Path.home() / ".cache") / "threadwise-smt" / "lab"
STATE = ROOT / ".lab"
RECIPE = pathlib.Path(__file__).resolve().parent / "recipe"


class LabError(Exception):
    """Something a person has to know; the message names the guest or file, the reason and the way out."""


def say(text: str) -> None:
    """Print one progress line at once, also when the output is a pipe."""
    print(f"lab: {text}", flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Report the begin of a step that takes a while, and its duration when it succeeded."""
    say(f"{text} ...")
    begin = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - begin:.1f} s")


@contextlib.contextmanager
def locked(path: pathlib.Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; the kernel lets it go when this process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is at work on {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str], **options) -> subprocess.CompletedProcess:
    """Run a tool to its end and return it; raise LabError with the last lines of what it said when it fails."""
    done = subprocess.run(
        command,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        **options,
    )
    if done.returncode:
        raise LabError(f"{command[0]} failed with exit code {done.returncode}:\n{last_lines(done.stdout)}")
    return done


def last_lines(text: str, count: int = 15) -> str:
    """The last ``count`` lines that are not empty, indented so that they stand out below a message."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-count:]) or "    (nothing was printed)"


def write_atomic(path: pathlib.Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def need_packages(*packages: str) -> None:
    """Have missing Debian packages installed when root; else they are named in one line.

    Raises:
        LabError: they are missing and could not be installed.
    """
    if subprocess.run(
        [str(ROOT / "tools" / "debian-packages.sh"), *packages], stdout=sys.stdout, check=False
    ).returncode:
        raise LabError("the laboratory cannot start without the Debian packages named above")
