# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a run on the host. No sample is lost if the controller, the connection or the plan fails.

A run is a directory with these files: ``header.json`` (what is known before the first sample), ``samples.jsonl``,
``observations.jsonl`` and ``events.jsonl`` (one line for each, on disk before the next sample begins),
``progress.json`` (for the controller to show), ``pid.json`` and ``boot.json`` (the plan's process and its boot id, so
that the controller can check whether the process still exists), ``lock`` (held with flock(2) while the plan's process
or the watchdog that restores the host after it exists), ``ending.json`` (how the run ended).

Nothing is switched or measured before the header is written. A run that ended without a header therefore holds no data.
"""

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
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import utc_now
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.inputs import INPUT

RUN_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
# Search permission for all users: a path below the directory can be opened, but its names cannot be listed.
SEARCH_BY_ALL = 0o011
ROOT_BASE = "/var/lib/threadwise-smt/runs"
LOCK = "lock"
# The prefix for the remains of removed runs. No run has such a name.
REMOVED = ".forgotten-"
# The maximum number of runs that are listed at once.
MAX_RUNS = 100
# The controller accepts a result of up to 32 MiB. The ending of a run is not counted here and needs some room.
MAX_BYTES = 30 * 1024 * 1024

# The ending of a plan that could not write one.
KILLED: "dict[str, t.Any]" = {
    "outcome": "interrupted",
    "message": "the plan did not report its end: it was killed, or the host went down",
    "finished": None,
    "restored": None,
    "skipped": [],
}


class RunDirectoryError(Exception):
    """A directory of a run that cannot be created, read, written or removed; the text names it and gives the reason."""


def base_directory() -> str:
    """Return the directory of all runs: below /var/lib for root,
    below the user's state directory (XDG base directories) for others.
    """
    if os.geteuid() == 0:
        return ROOT_BASE
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "threadwise-smt", "runs")


def kept_runs(base: str) -> "list[str]":
    """Return the names of the runs on this host that have ended and can be fetched, sorted by name,
    at most ``MAX_RUNS``.
    """
    runs = [run for run in _runs(base) if os.path.lexists(run.file("header.json")) and not run.is_running()]
    return [run.run for run in runs[:MAX_RUNS]]


def running_runs(base: str) -> "list[RunDirectory]":
    """Return the runs on this host that have not ended."""
    return [run for run in _runs(base) if run.is_running()]


def sweep(base: str) -> None:
    """Delete the remains of removed runs, and the runs that ended without a header.

    The caller holds the lock against other evaluations.
    """
    for run in _runs(base):
        if not os.path.lexists(run.file("header.json")) and not run.is_running():
            run.remove()
    for name in _names(base):
        if name.startswith(REMOVED):
            _remove_tree(os.path.join(base, name))


def _runs(base: str) -> "list[RunDirectory]":
    return [RunDirectory(base, name) for name in _names(base) if RUN_NAME.match(name)]


def _names(base: str) -> "list[str]":
    try:
        return sorted(os.listdir(base))
    except OSError:
        return []


def _remove_tree(path: str) -> None:
    """Remove the directory of a run.

    Directories of other users in it are removed with their rights. What they may not remove stays.
    """
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
    """The directory of one run.

    Args:
        base: the directory of all runs.
        run: the name of the run: letters, digits, ``.``, ``_`` and ``-``, at most 100 characters.

    Attributes:
        run: as above.
        path: the path of the directory.
        descriptor: the file descriptor of the lock, -1 before ``create``.

    Raises:
        RunDirectoryError: the name is not valid.
    """

    def __init__(self, base: str, run: str) -> None:
        if not RUN_NAME.match(run):
            raise RunDirectoryError(
                f"a run cannot be called {run[:120]!r}: use letters, digits, '.', '_' and '-', at most 100 characters,"
                " with a letter or digit first"
            )
        self.run = run
        self.path = os.path.join(base, run)
        self.descriptor = -1
        # The number of bytes that each file adds to the result.
        self._sizes: dict[str, int] = {}

    def file(self, name: str) -> str:
        """Return the path of a file of the run."""
        return os.path.join(self.path, name)

    def create(self) -> None:
        """Create the directory and take its lock.

        The lock is held until ``release``, or until all processes with ``descriptor`` open have ended.

        Raises:
            RunDirectoryError: the directory cannot be created, or it exists.
        """
        try:
            base = os.path.dirname(self.path)
            # Root's is below the directory of what a host keeps, whose files other users may read.
            durable.make_folders(os.path.dirname(base), 0o755 if os.geteuid() == 0 else 0o700)
            durable.make_folders(base, 0o700)
            os.mkdir(self.path, 0o700)
            durable.sync_names(base)
            self.descriptor = os.open(
                self.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileExistsError:
            raise RunDirectoryError(f"{self.path} exists: a run never overwrites another") from None
        except OSError as error:
            raise RunDirectoryError(f"{self.path} cannot be created: {error}") from error

    def release(self) -> None:
        """Release the lock, because the run has ended."""
        os.close(self.descriptor)

    def is_running(self) -> bool:
        """Return whether the run's process, or the watchdog that restores the host after it, still exists."""
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

    def process(self) -> "int | None":
        """Return the pid of the run's process, None if it has ended and, perhaps, its watchdog restores the host."""
        pid = self.read("pid.json")
        if not isinstance(pid, int):
            return None
        # After its end, or a reboot, another process can have this pid: only the run's own has the lock open.
        try:
            opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return None
        return pid if os.path.realpath(self.file(LOCK)) in opened else None

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the run.

        Args:
            seconds: the time limit.

        Raises:
            RunDirectoryError: the run has not ended within the time limit.
        """
        until = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() >= until:
                raise RunDirectoryError(
                    f"run {self.run} is still being measured on this host by process"
                    f" {self.read('pid.json', 'unknown')}, or the host is being restored after it: fetch the run when"
                    " it has ended"
                )
            time.sleep(0.2)

    def write(self, name: str, data: object, lasting: bool = True) -> None:
        """Write a JSON file. A reader sees either the old or the new file, never a part of one.

        Args:
            name: the name of the file.
            data: plain data.
            lasting: whether the file must survive a crash of the host.

        Raises:
            RunDirectoryError: the file cannot be written. An old file stays.
        """
        if name == "header.json":
            self._sizes[name] = len(json.dumps(data))
        with self._writing(name), tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=self.path, delete=False
        ) as fresh:
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

    def append(self, name: str, data: "t.Mapping[str, t.Any]") -> None:
        """Append one line of JSON. The line is on disk when this returns.

        Args:
            name: the name of the file.
            data: plain data.

        Raises:
            RunDirectoryError: the line cannot be written. The lines before it stay.
        """
        with self._writing(name):
            line = (json.dumps(data, allow_nan=False) + "\n").encode("ascii")
            descriptor = os.open(
                self.file(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                size = os.fstat(descriptor).st_size
                # Begin a new line after a part of a line from an interrupted write, so that this line stays readable.
                torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
                _write_whole(descriptor, b"\n" + line if torn else line, size)
                if not size:
                    durable.sync_names(self.path)
            finally:
                os.close(descriptor)
        self._sizes[name] = self._sizes.get(name, 0) + len(line)

    def size(self) -> int:
        """Return the size of the result so far in bytes, as written by this object.

        The file on the controller has no blanks and is not larger.
        """
        return sum(self._sizes.values())

    @contextlib.contextmanager
    def _writing(self, name: str) -> "t.Iterator[None]":
        try:
            yield
        except (OSError, ValueError) as error:
            raise RunDirectoryError(
                f"cannot write {self.file(name)}: {getattr(error, 'strerror', None) or error}"
            ) from error

    def folder(self, name: str, owner: "tuple[int, int]") -> str:
        """Create a directory in the run's directory for a user.

        The user can open paths below the run's directory, but nothing else in it.

        Args:
            name: the name of the directory.
            owner: (uid, gid) of the user.

        Returns:
            The path of the directory.

        Raises:
            OSError: the directory cannot be created.
        """
        if owner[0] != os.geteuid():
            for parent in (os.path.dirname(os.path.dirname(self.path)), os.path.dirname(self.path), self.path):
                os.chmod(parent, os.stat(parent).st_mode | SEARCH_BY_ALL)
        path = self.file(name)
        users.make_folder(path, owner)
        return path

    def amend(self, **sections: "t.Mapping[str, t.Any]") -> None:
        """Add to sections of the header what is known only after the start of the plan.

        Args:
            **sections: the additions to each section.

        Raises:
            RunDirectoryError: the header cannot be written.
        """
        header = self.read("header.json", {})
        for section, known in sections.items():
            header.setdefault(section, {}).update(known)
        self.write("header.json", header)

    def event(self, event: str, detail: t.Any = None) -> None:
        """Append an event to events.jsonl.

        Args:
            event: the kind of event.
            detail: plain data about it.

        Raises:
            RunDirectoryError: the event cannot be written.
        """
        self.append("events.jsonl", {"at": utc_now(), "event": event, "detail": detail})

    def read(self, name: str, default: t.Any = None) -> t.Any:
        """Return the content of a JSON file, or ``default`` if it cannot be read."""
        try:
            with open(self.file(name), encoding="utf-8") as text:
                return json.load(text, parse_constant=_refuse_constant)
        except (OSError, ValueError, RecursionError):
            return default

    def _lines(self, name: str) -> "tuple[list[dict[str, t.Any]], int]":
        """Return the complete and valid lines of a file, and the number of all others.

        A killed plan or a full disk can leave part of a line, and a damaged disk any text.
        """
        valid: list[dict[str, t.Any]] = []
        invalid = 0
        try:
            with open(self.file(name), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        record = json.loads(line, parse_constant=_refuse_constant)
                    except (ValueError, RecursionError):
                        record = None
                    if isinstance(record, dict) and _IS_VALID[name](record):
                        valid.append(record)
                    else:
                        invalid += 1
        except OSError:
            pass
        return valid, invalid

    def result(self) -> "dict[str, t.Any]":
        """Return the complete result of the run: the header, all samples, observations and events, and how it ended.

        Samples that do not count, because somebody else may have changed the host or a number cannot be read, are kept,
        as failed ones.

        Raises:
            RunDirectoryError: there is no such run on this host, it has no header, or its header is damaged.
        """
        result = self._header()
        ending = self.read("ending.json")
        result.update(ending if isinstance(ending, dict) and set(KILLED) <= set(ending) else KILLED)
        damage = []
        for name in _IS_VALID:
            result[name.partition(".")[0]], invalid = self._lines(name)
            if invalid:
                damage.append(
                    f"{name}: {invalid} lines are not valid and are left out; a plan that was killed can leave part of"
                    " a line"
                )
        for withdrawn in result.pop("withdrawn"):
            for sample in result["samples"]:
                if withdrawn.get("workload") in (None, sample.get("workload")) and (
                    sample.get("index", 0) >= withdrawn["from"]
                ):
                    sample.update(ok=False, error=withdrawn["reason"])
        result["events"] += [{"at": utc_now(), "event": "damaged", "detail": detail} for detail in damage]
        result["plan"]["blocks_done"] = 1 + max((sample["block"] for sample in result["samples"]), default=-1)
        return result

    def _header(self) -> "dict[str, t.Any]":
        path = self.file("header.json")
        if not os.path.lexists(path):
            raise RunDirectoryError(
                f"run {self.run} on this host ended before it measured anything: there is nothing to fetch, and the"
                " next evaluation removes its files"
                if os.path.lexists(self.path)
                else f"there is no run {self.run} on this host"
            )
        header = self.read("header.json")
        if (
            not isinstance(header, dict)
            or not isinstance(header.get("plan"), dict)
            or not isinstance(header.get("arms"), list)
        ):
            raise RunDirectoryError(
                f"{path} is damaged: the result of run {self.run} cannot be put together. Look at the other files"
                f" there, and remove {self.path} by hand"
            )
        return header

    def remove_inputs(self) -> None:
        """Remove the workloads' input files. They can be large and are not needed after the measurement."""
        for name in os.listdir(self.path):
            if name.endswith(INPUT):
                os.unlink(self.file(name))

    def remove(self) -> None:
        """Remove the run in one step, also if this process is killed.

        The next evaluation removes what cannot be removed now.

        Raises:
            RunDirectoryError: nothing was removed.
        """
        removed = os.path.join(os.path.dirname(self.path), f"{REMOVED}{self.run}-{secrets.token_hex(4)}")
        try:
            durable.replace(self.path, removed)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(f"{self.path} cannot be removed: {error.strerror}") from error
        _remove_tree(removed)


def _write_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append data to a file and flush it, or leave the file unchanged.

    Args:
        descriptor: the open file.
        data: what to append.
        size: the current size of the file in bytes.

    Raises:
        OSError: the data cannot be written.
    """
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _refuse_constant(constant: str) -> t.NoReturn:
    raise ValueError(f"{constant} is not a valid JSON number")


def _is_block(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000000


# For each file, whether a line is a valid record.
_IS_VALID: "dict[str, t.Callable[[t.Mapping[str, t.Any]], bool]]" = {
    "samples.jsonl": lambda line: _is_block(line.get("block")),
    "observations.jsonl": lambda line: isinstance(line.get("arm"), str),
    "withdrawn.jsonl": lambda line: _is_block(line.get("from")) and isinstance(line.get("reason"), str),
    "events.jsonl": lambda line: isinstance(line.get("at"), str) and isinstance(line.get("event"), str),
}
