# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial on the controller: its design, what each host did, looks at it, and its end.

Processes of all hosts write here at the same time.

The directory of trials is the user's, who may have made it a link. What is below it is the collection's own, and no
link belongs there. Others may be able to write there as well: they can end a trial, and damage what it wrote down, but
not have it write anywhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pathlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import spending
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records

TRIAL, LOOKS, ENDED = "trial.json", "looks.jsonl", "ended.json"
HOSTS = "hosts"
_LOCK = ".lock"
# Far longer than the looks of all hosts take one after the other.
LOCK_SECONDS = 300.0


class TrialFileError(text.BorderError):
    """A file of a trial cannot be read or written; the message names it and the reason."""


class TrialDirectory:
    """The directory of a trial.

    Args:
        path: the directory, ``DEST/RUN``.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def see_that_none_exists(self) -> None:
        """Refuse a name that a trial has.

        Raises:
            TrialFileError: there is a trial of that name, or the directory cannot be read.
        """
        try:
            with self._opened() as folder:
                self._see_that_it_is_new(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise TrialFileError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _see_that_it_is_new(self, folder: folders.Folder) -> None:
        if any(map(folder.has, (TRIAL, HOSTS, LOOKS, ENDED))):
            raise TrialFileError(
                f"{self.path} holds a trial: a run never overwrites another, so give this one another name"
                " (smt_trial_run)"
            )

    def create(self, content: str) -> None:
        """Write the design of a trial that begins.

        Args:
            content: of ``trial.json``, from :func:`records.written`.

        Raises:
            TrialFileError: there is a trial of that name, or the file cannot be written.
        """
        if len(content) > records.MAX_BYTES:
            raise TrialFileError(
                f"{self.path / TRIAL}: {len(content)} bytes, more than the {records.MAX_BYTES} that are read again:"
                " take fewer hosts or periods"
            )
        with _errors_of(self.path), self._opened(make=True) as folder, folder.locked(_LOCK, LOCK_SECONDS):
            self._see_that_it_is_new(folder)
            folder.write(TRIAL, io.BytesIO(content.encode("utf-8")))
            with folder.below(HOSTS, make=True):
                pass

    def trial(self, digest: str | None = None) -> records.Trial:
        """Return the design of the trial.

        Args:
            digest: SHA-256 of ``trial.json`` as it was written; None where nothing will be done by it.

        Raises:
            BorderError: it cannot be read, is not valid, or is another one.
        """
        content = self._read(self.path / TRIAL)
        if content is None:
            raise TrialFileError(f"{self.path / TRIAL}: cannot be read: there is no such file")
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise TrialFileError(
                f"{self.path / TRIAL}: somebody has changed it since the schedule was drawn, so no host is switched"
                " by it"
            )
        with self._named(self.path / TRIAL):
            return records.trial_of(content.decode("utf-8", errors="replace"))

    def host_file(self, host: str) -> pathlib.Path:
        """Return the file with a host's periods, a JSON document a line."""
        return self.path / HOSTS / f"{result_files.file_stem(host)}.periods.jsonl"

    def ended_file(self, host: str) -> pathlib.Path:
        """Return the file that says how a host's part ended."""
        return self.path / HOSTS / f"{result_files.file_stem(host)}.ended.jsonl"

    def part(self, trial: records.Trial, host: str) -> records.Part:
        """Return what a host wrote.

        Raises:
            BorderError: its files cannot be read, or what they hold is not of this host; the message names the file and
                the reason.
        """
        periods = self._lines(self.host_file(host), records.Period)
        ends = self._lines(self.ended_file(host), records.End)
        with self._named(self.host_file(host)):
            return records.part(trial, host, periods, ends)

    def looks(self) -> tuple[tuple[spending.Look, ...], dict[str, str]]:
        """Return the looks so far, and what they decided.

        Raises:
            BorderError: they cannot be read, or are not valid.
        """
        taken = self._lines(self.path / LOOKS, records.Look)
        with self._named(self.path / LOOKS):
            return records.looks(taken)

    def append(self, path: pathlib.Path, line: str) -> None:
        """Add a line to a file, and flush it to disk.

        Args:
            path: the file, as this class names it.
            line: from :func:`records.written` or :func:`records.period`.

        Raises:
            TrialFileError: it cannot be written.
        """
        with _errors_of(path), self._opened() as folder, self._place(folder, path) as place:
            place.append(path.name, line.encode("utf-8"), records.MAX_BYTES)

    @contextlib.contextmanager
    def alone(self) -> t.Iterator[None]:
        """Keep other processes of this trial from looks until the block ends."""
        with contextlib.ExitStack() as stack:
            with _errors_of(self.path / _LOCK):
                stack.enter_context(stack.enter_context(self._opened()).locked(_LOCK, LOCK_SECONDS))
            yield

    def end(self, reason: str) -> None:
        """Write why the trial ends for all its hosts; the first reason stays."""
        with self.alone():
            self.write_end(reason)

    def write_end(self, reason: str) -> None:
        """The same for a caller that has the files alone."""
        content = records.written(records.Stopped(reason))
        with _errors_of(self.path / ENDED), self._opened() as folder:
            if not folder.has(ENDED):
                folder.write(ENDED, io.BytesIO(content.encode("utf-8")))

    def ended(self) -> str | None:
        """Return why the trial ends for all its hosts, None while it goes on.

        Whatever has this name ends it: to go back is always safe.
        """
        try:
            content = self._read(self.path / ENDED)
            if content is None:
                return None
            return parts.decoded(content.decode("utf-8", errors="replace"), records.Stopped).reason
        except text.BorderError as error:
            return f"somebody else ended the trial by {ENDED}, which cannot be read: {error}"

    def _lines(self, path: pathlib.Path, kind: type[parts.Made]) -> list[parts.Made]:
        content = self._read(path)
        with self._named(path):
            return records.lines(content or b"", kind)

    def _read(self, path: pathlib.Path) -> bytes | None:
        """Return the content of a file, None where there is none."""
        try:
            with self._opened() as folder, self._place(folder, path) as place:
                return place.read(path.name, records.MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TrialFileError(f"{path.relative_to(self.path)}: cannot be read: {error.strerror}") from error

    @contextlib.contextmanager
    def _named(self, path: pathlib.Path) -> t.Iterator[None]:
        """Name the file in the message of what is wrong in it."""
        try:
            yield
        except text.BorderError as error:
            raise text.BorderError(f"{path.relative_to(self.path)}: {error}") from error

    @contextlib.contextmanager
    def _opened(self, make: bool = False) -> t.Iterator[folders.Folder]:
        with (
            folders.opened(self.path.parent, make) as trials_of_user,
            trials_of_user.below(self.path.name, make) as folder,
        ):
            yield folder

    @contextlib.contextmanager
    def _place(self, folder: folders.Folder, path: pathlib.Path) -> t.Iterator[folders.Folder]:
        """Open the directory of a file: the trial's own, or that of its hosts."""
        if path.parent == self.path:
            yield folder
            return
        with folder.below(path.parent.name) as hosts:
            yield hosts


@contextlib.contextmanager
def _errors_of(path: pathlib.Path) -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrialFileError(f"{path}: cannot be written: {error.strerror}") from error
