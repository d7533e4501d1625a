# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan leaves on the host while it runs, so that no sample is lost with the controller, the connection or the plan itself.

A run is a folder of files: ``header.json`` (what is known before the first sample), ``samples.jsonl``, ``observations.jsonl`` and
``events.jsonl`` (one line each, written through before the next sample begins), ``progress.json`` (for the controller to show),
``pid.json`` and ``boot.json`` (the plan's process and the boot it lives in, for the controller to see that it is still there), ``lock`` (held
with flock(2) while that process or what puts the host back after it lives), ``ending.json`` (how it ended).

Nothing is switched or measured before there is a header, so a run without one that has ended holds nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, users
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.inputs import INPUT

RUN_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
# Search permission for all: a path below can be opened, names cannot be listed.
WAY_THROUGH = 0o011
ROOT_BASE = "/var/lib/threadwise-smt/runs"
LOCK = "lock"
# What begins so is no run's name: what is left of runs whose results have arrived elsewhere.
FORGOTTEN = ".forgotten-"
# More runs than these are not offered at once.
MOST_RUNS = 100
# A controller takes a result of 32 MiB. How the run ended comes on top of what is counted.
MOST_BYTES = 30 * 1024 * 1024

# The ending of a plan that could not write one.
KILLED: dict[str, t.Any] = {
    "outcome": "interrupted",
    "message": "the plan ended without a word: it was killed, or the host went down",
    "finished": None,
    "restored": None,
    "skipped": [],
}


class RunDirectoryError(Exception):
    """A run's folder cannot be made, read or removed; the text says which and why."""


def base_directory() -> str:
    """Where runs are kept: below /var/lib for root, below the user's state directory (XDG base directories) for others."""
    if os.geteuid() == 0:
        return ROOT_BASE
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "threadwise-smt", "runs")


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def kept_runs(base: str) -> list[str]:
    """The names of the runs on this host that have ended and can be fetched, oldest name first, at most ``MOST_RUNS``."""
    runs = [run for run in _runs(base) if os.path.lexists(run.file("header.json")) and not run.lives()]
    return [run.run for run in runs[:MOST_RUNS]]


def sweep(base: str) -> None:
    """Remove what is left of runs that are forgotten, and of those that ended before they had a header. For who holds the lock against other evaluations."""
    for run in _runs(base):
        if not os.path.lexists(run.file("header.json")) and not run.lives():
            run.remove()
    for name in _names(base):
        if name.startswith(FORGOTTEN):
            _remove_tree(os.path.join(base, name))


def _runs(base: str) -> list[RunDirectory]:
    return [RunDirectory(base, name) for name in _names(base) if RUN_NAME.match(name)]


def _names(base: str) -> list[str]:
    try:
        return sorted(os.listdir(base))
    except OSError:
        return []


def _remove_tree(path: str) -> None:
    """Remove a run's folder. What belongs to another user in it is removed with that user's rights; what those do not suffice for stays."""
    for name in _names(path):
        below = os.path.join(path, name)
        status = os.lstat(below)
        if not stat.S_ISDIR(status.st_mode):
            with contextlib.suppress(OSError):
                os.unlink(below)
        elif status.st_uid != os.geteuid():
            users.remove_folder(below, (status.st_uid, status.st_gid))
        else:
            shutil.rmtree(below, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(path)


class RunDirectory:
    """One run's folder.

    Args:
        base: the folder that holds all runs.
        run: the run's name: letters, digits, ``.``, ``_`` and ``-``, at most 100.
    """

    def __init__(self, base: str, run: str) -> None:
        if not RUN_NAME.match(run):
            raise RunDirectoryError(f"a run cannot be called {run[:120]!r}: only letters, digits, '.', '_' and '-', at most 100, the first a letter or digit")
        self.run = run
        self.path = os.path.join(base, run)
        self.descriptor = -1
        # Bytes that each file adds to the result.
        self._sizes: dict[str, int] = {}

    def file(self, name: str) -> str:
        """Return the path of a file of the run."""
        return os.path.join(self.path, name)

    def create(self) -> None:
        """Make the folder, and hold its lock from now on until ``release``, or until this process and whoever keeps ``descriptor`` open has ended.

        Raises:
            RunDirectoryError: it cannot be made, or is there.
        """
        try:
            durable.make_folders(os.path.dirname(self.path), 0o700)
            os.mkdir(self.path, 0o700)
            durable.sync_names(os.path.dirname(self.path))
            self.descriptor = os.open(self.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileExistsError:
            raise RunDirectoryError(f"{self.path} exists: a run never overwrites another") from None
        except OSError as error:
            raise RunDirectoryError(f"cannot keep a run's samples: {error}") from error

    def release(self) -> None:
        """The run has ended."""
        os.close(self.descriptor)

    def lives(self) -> bool:
        """Whether the run's process, or what puts the host back after it, has not ended yet."""
        try:
            descriptor = os.open(self.file(LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def see_that_it_has_ended(self, seconds: float) -> None:
        """Wait for the end of the run so many seconds.

        Raises:
            RunDirectoryError: it still lives then.
        """
        until = time.monotonic() + seconds
        while self.lives():
            if time.monotonic() >= until:
                raise RunDirectoryError(
                    "run {} is still being measured on this host by process {}, or the host is being put back after it: fetch it when it has ended".format(
                        self.run, self.read("pid.json", "unknown")
                    )
                )
            time.sleep(0.2)

    def write(self, name: str, data: object, lasting: bool = True) -> None:
        """Write a JSON file so that a reader sees the old or the new one, never a half.

        Args:
            name: the file's name.
            data: plain data.
            lasting: whether it has to outlive a crash of the host.

        Raises:
            RunDirectoryError: it cannot be written; the old one, where there is one, is still there.
        """
        if name == "header.json":
            self._sizes[name] = len(json.dumps(data))
        with self._writing(name), tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self.path, delete=False) as fresh:
            try:
                json.dump(data, fresh, allow_nan=False)
                fresh.flush()
                if lasting:
                    os.fsync(fresh.fileno())
                    durable.replace(fresh.name, self.file(name))
                else:
                    os.replace(fresh.name, self.file(name))
            except (OSError, ValueError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(fresh.name)
                raise

    def append(self, name: str, data: t.Mapping[str, t.Any]) -> None:
        """Add one line of JSON and have it on the disk before returning.

        Raises:
            RunDirectoryError: it cannot be written; the lines before it are still there.
        """
        with self._writing(name):
            line = (json.dumps(data, allow_nan=False) + "\n").encode("ascii")
            descriptor = os.open(self.file(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                # What an earlier write left unfinished must not take this line with it.
                torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
                _write_whole(descriptor, b"\n" + line if torn else line, size)
                if not size:
                    durable.sync_names(self.path)
            finally:
                os.close(descriptor)
        self._sizes[name] = self._sizes.get(name, 0) + len(line)

    def size(self) -> int:
        """Bytes of the result so far (int): what this object has written. The controller writes it without blanks, so it is no larger there."""
        return sum(self._sizes.values())

    @contextlib.contextmanager
    def _writing(self, name: str) -> t.Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"cannot write {self.file(name)}: {getattr(error, 'strerror', None) or error}") from error

    def folder(self, name: str, owner: tuple[int, int]) -> str:
        """A folder within the run's in which a user may work: the way to it is opened, what else lies there is not.

        Args:
            name: the folder's name.
            owner: (uid, gid).

        Returns:
            Its path.

        Raises:
            OSError: it cannot be made.
        """
        if owner[0] != os.geteuid():
            for parent in (os.path.dirname(os.path.dirname(self.path)), os.path.dirname(self.path), self.path):
                os.chmod(parent, os.stat(parent).st_mode | WAY_THROUGH)
        path = self.file(name)
        users.make_folder(path, owner)
        return path

    def amend(self, **sections: t.Mapping[str, t.Any]) -> None:
        """Add to sections of the header what is known only once the plan is under way."""
        header = self.read("header.json", {})
        for section, known in sections.items():
            header.setdefault(section, {}).update(known)
        self.write("header.json", header)

    def event(self, event: str, detail: t.Any = None) -> None:
        """Add an event to events.jsonl."""
        self.append("events.jsonl", {"at": utc_now(), "event": event, "detail": detail})

    def read(self, name: str, default: t.Any = None) -> t.Any:
        """Return what a JSON file holds, or ``default`` where it cannot be read."""
        try:
            with open(self.file(name), encoding="utf-8") as text:
                return json.load(text, parse_constant=_no_number)
        except (OSError, ValueError, RecursionError):
            return default

    def read_lines(self, name: str) -> list[dict[str, t.Any]]:
        """The lines that are whole and what they should be: a plan that was killed, or a full disk, may have left a half one, and a damaged disk anything."""
        return self._lines(name)[0]

    def _lines(self, name: str) -> tuple[list[dict[str, t.Any]], int]:
        """The good lines of a file, and how many others there are."""
        good: list[dict[str, t.Any]] = []
        others = 0
        try:
            with open(self.file(name), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        told = json.loads(line, parse_constant=_no_number)
                    except (ValueError, RecursionError):
                        told = None
                    if isinstance(told, dict) and _IS_ONE[name](told):
                        good.append(told)
                    else:
                        others += 1
        except OSError:
            pass
        return good, others

    def result(self) -> dict[str, t.Any]:
        """The result of the run, whole: what the header says, each sample taken, and how it ended.

        Raises:
            RunDirectoryError: there is no such run on this host, or its header is damaged.
        """
        result = self._header()
        ending = self.read("ending.json")
        result.update(ending if isinstance(ending, dict) and set(KILLED) <= set(ending) else KILLED)
        damage = []
        for name in _IS_ONE:
            result[name.partition(".")[0]], others = self._lines(name)
            if others:
                damage.append(f"{name}: {others} lines cannot be used and are left out; a plan that was killed may leave a half one")
        result["events"] += [{"at": utc_now(), "event": "damaged", "detail": detail} for detail in damage]
        result["plan"]["blocks_done"] = 1 + max((sample["block"] for sample in result["samples"]), default=-1)
        return result

    def _header(self) -> dict[str, t.Any]:
        path = self.file("header.json")
        if not os.path.lexists(path):
            raise RunDirectoryError(
                f"run {self.run} on this host ended before it measured anything: there is nothing to fetch, and the next evaluation removes what it left"
                if os.path.lexists(self.path)
                else f"there is no run {self.run} on this host"
            )
        header = self.read("header.json")
        if (
            not isinstance(header, dict)
            or not all(isinstance(header.get(section), dict) for section in ("plan", "change"))
            or "compared" not in header["change"]
        ):
            raise RunDirectoryError(
                f"{path} is damaged: what run {self.run} measured cannot be put together. Look at the files beside it, and remove {self.path} by hand"
            )
        return header

    def remove_inputs(self) -> None:
        """Remove what only the measuring needed: the workloads' input, which can be large."""
        for name in os.listdir(self.path):
            if name.endswith(INPUT):
                os.unlink(self.file(name))

    def remove(self) -> None:
        """Forget the run: all of it at once, also when this is killed. What cannot be removed now is swept up by the next evaluation.

        Raises:
            RunDirectoryError: it is all still there.
        """
        gone = os.path.join(os.path.dirname(self.path), f"{FORGOTTEN}{self.run}-{secrets.token_hex(4)}")
        try:
            durable.replace(self.path, gone)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(f"{self.path} cannot be removed: {error.strerror}") from error
        _remove_tree(gone)


def _write_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append to a file of a size and flush it, or leave it as it was. Raises OSError."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _no_number(word: str) -> t.NoReturn:
    raise ValueError(f"{word} is no number")


def _is_block(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000000


# Which lines of a file are what it is for.
_IS_ONE: dict[str, t.Callable[[t.Mapping[str, t.Any]], bool]] = {
    "samples.jsonl": lambda line: _is_block(line.get("block")),
    "observations.jsonl": lambda line: isinstance(line.get("condition"), str),
    "events.jsonl": lambda line: isinstance(line.get("at"), str) and isinstance(line.get("event"), str),
}
