# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a trial on the controller: its design, what each host did, looks at it, and its end. Processes of all hosts write here at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

TRIAL, LOOKS, ENDED = "trial.json", "looks.jsonl", "ended.json"
HOSTS = "hosts"
_LOCK = ".lock"


class TrialFileError(Exception):
    """A file of a trial cannot be written; the message names it and the reason."""


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
            TrialFileError: there is a trial of that name.
        """
        if (self.path / TRIAL).exists():
            raise TrialFileError(f"{self.path} holds a trial: a run never overwrites another, so give this one another name (smt_trial_run)")

    def create(self, trial: dict[str, t.Any]) -> None:
        """Write the design of a trial that begins.

        Raises:
            TrialFileError: there is a trial of that name, or the file cannot be written.
        """
        self.see_that_none_exists()
        with _errors_of(self.path):
            (self.path / HOSTS).mkdir(parents=True, exist_ok=True)
            result_files.write_text(self.path / TRIAL, json.dumps(trial, allow_nan=False, indent=1) + "\n")

    def host_file(self, host: str) -> pathlib.Path:
        """Return the file with a host's periods, a JSON document a line."""
        return self.path / HOSTS / f"{result_files.file_stem(host)}.periods.jsonl"

    def ended_file(self, host: str) -> pathlib.Path:
        """Return the file that says how a host's part ended."""
        return self.path / HOSTS / f"{result_files.file_stem(host)}.ended.jsonl"

    def append(self, path: pathlib.Path, document: dict[str, t.Any]) -> None:
        """Add a line to a file, and flush it to disk.

        Raises:
            TrialFileError: it cannot be written.
        """
        line = json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"
        with _errors_of(path), path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    @contextlib.contextmanager
    def alone(self) -> t.Iterator[None]:
        """Keep other processes of this trial from looks until the block ends (flock(2))."""
        with _errors_of(self.path), (self.path / _LOCK).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def end(self, reason: str) -> None:
        """Write why the trial ends for all its hosts; the first reason stays."""
        with self.alone():
            self.write_end(reason)

    def write_end(self, reason: str) -> None:
        """The same for a caller that has the files alone."""
        if self.ended() is None:
            result_files.write_text(self.path / ENDED, json.dumps({"reason": reason}) + "\n")

    def ended(self) -> str | None:
        """Return why the trial ends for all its hosts, None while it goes on."""
        try:
            document = json.loads((self.path / ENDED).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return str(document.get("reason")) if isinstance(document, dict) else None


@contextlib.contextmanager
def _errors_of(path: pathlib.Path) -> t.Iterator[None]:
    try:
        yield
    except (OSError, result_files.ResultError) as error:
        raise TrialFileError(f"{path}: cannot be written: {error}") from error
